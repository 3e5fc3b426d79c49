//! What a user's bindings become in a real server: what each may do and may not, and what is kept when they change.
//! Never reads a rule by eye: each is asked for as its user, by `ACL DRYRUN` or as `ACL LIST` tells it.

use expect_test::expect;
use operator::model::desired::Resolved;
use operator::model::digest::sha256_hex;
use serde_json::Value;
use serde_json::json;

use crate::settings::Connection;
use crate::settings::PASSWORD;
use crate::settings::Server;
use crate::settings::resolved;

/// SHA-256 of `secret`.
const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// As many as a config or a cluster may bind.
const BINDINGS_MAX: usize = 64;

/// As many passwords as a user may have.
const PASSWORDS_MAX: usize = 8;

/// Clients that do nothing, and passes over them.
const IDLE: usize = 200;
const PASSES: usize = 20;

fn roles() -> Value {
    let allow = |name: &str| json!({ "name": name, "access": "allow" });
    let deny = |name: &str| json!({ "name": name, "access": "deny" });
    json!({
        "all": { "categories": [allow("all")] },
        "read": { "categories": [allow("read")] },
        "get": { "commands": [allow("get")] },
        "publish": { "commands": [allow("publish"), allow("subscribe")] },
        // Each rule counts from the one before it.
        "mixed": {
            "categories": [allow("read"), deny("dangerous"), allow("connection")],
            "commands": [allow("set"), deny("get"), json!({ "name": "config", "subcommand": "get", "access": "allow" }),
                allow("object"), json!({ "name": "object", "subcommand": "freq", "access": "deny" })],
        },
        "nothing": {},
    })
}

fn user(name: &str, permissions: &Value) -> Value {
    json!({ "username": name, "passwordHashes": [HASH], "permissions": permissions })
}

fn bound(acl: &Value) -> Resolved {
    // Channels must stay shut even where the server opens them to everybody by default.
    let valkey = json!({ "acl-pubsub-default": "allchannels" });
    resolved(&valkey, acl, &roles())
}

/// A user and a command, and whether the one may do the other.
const MAY: &[(&[&str], bool)] = &[
    (&["admin", "SET", "any", "v"], true),
    (&["admin", "PUBLISH", "any", "v"], true),
    (&["ann", "SET", "batch:1", "v"], true),
    (&["ann", "GET", "in:1"], true),
    (&["ann", "SET", "in:1", "v"], false),
    (&["ann", "SET", "out:1", "v"], true),
    (&["ann", "GET", "out:1"], false),
    (&["ann", "GET", "metrics:1"], true),
    (&["ann", "SET", "metrics:1", "v"], false),
    (&["ann", "GET", "(odd)"], true),
    (&["ann", "GET", "back\\slash)"], true),
    (&["ann", "GET", "(open"], true),
    (&["ann", "GET", "odd"], false),
    (&["ann", "GET", "x"], true),
    (&["ann", "SET", "x", "v"], false),
    (&["ann", "PUBLISH", "news.1", "v"], true),
    (&["ann", "PUBLISH", "other", "v"], false),
    // A subscription names patterns, and must name one of its own to the letter.
    (&["ann", "SUBSCRIBE", "news.1"], true),
    (&["ann", "SUBSCRIBE", "other"], false),
    (&["_momento_repl", "SET", "k", "v"], true),
    (
        &["_momento_repl", "MIGRATE", "h", "1", "k", "0", "1"],
        false,
    ),
    (&["_momento_repl", "PUBLISH", "c", "m"], false),
    (&["_momento_operator", "CONFIG", "SET", "hz", "10"], true),
    (&["_momento_operator", "CONFIG", "GET", "hz"], false),
    (&["_momento_repl", "SWAPDB", "0", "1"], false),
    (&["_momento_repl", "PFCOUNT", "k"], true),
    (&["_momento_repl", "CLUSTER", "SYNCSLOTS", "SYNC"], true),
    (&["_momento_repl", "CONFIG", "SET", "hz", "10"], false),
    (&["_momento_operator", "ACL", "LOAD"], true),
    (&["_momento_operator", "ACL", "LIST"], false),
    (&["_momento_operator", "CLUSTER", "MEET", "h", "1"], true),
    (&["_momento_operator", "FLUSHALL"], false),
    (&["_momento_operator", "SET", "k", "v"], false),
    (&["_momento_operator", "SUBSCRIBE", "c"], false),
    (&["bob", "GET", "k"], false),
    (&["bob", "MGET", "k"], true),
    (&["bob", "SET", "k", "v"], true),
    (&["bob", "KEYS", "*"], false),
    (&["bob", "PING"], true),
    (&["bob", "CONFIG", "GET", "hz"], true),
    (&["bob", "CONFIG", "SET", "hz", "10"], false),
    (&["bob", "OBJECT", "ENCODING", "k"], true),
    (&["bob", "OBJECT", "FREQ", "k"], false),
    (&["bob", "MGET", "other"], false),
    // A selector is whole: the command of one and the key of another do not add up.
    (&["cat", "GET", "a"], true),
    (&["cat", "SET", "a", "v"], false),
    (&["cat", "SET", "b", "v"], true),
    (&["cat", "GET", "b"], true),
    (&["cat", "COPY", "a", "b"], false),
    (&["cat", "PUBLISH", "shut", "v"], false),
    (&["dan", "PING"], false),
    (&["dan", "GET", "k"], false),
    (&["default", "GET", "k"], false),
];

#[test]
fn bindings_give_exactly_what_they_say() {
    let acl = json!([
        user(
            "admin",
            &json!([{ "roleRef": "all", "keys": [{ "pattern": "a" }, { "pattern": "*" }], "channels": ["x", "*"] }])
        ),
        user(
            "ann",
            &json!([
                { "roleRef": "all", "keys": [{ "pattern": "batch:*" }, { "pattern": "in:*", "access": "read" }, { "pattern": "out:*", "access": "write" }] },
                { "roleRef": "read", "keys": [{ "pattern": "metrics:*", "access": "read" }] },
                { "roleRef": "get", "keys": [{ "pattern": "(odd)" }, { "pattern": "back\\\\slash)" }, { "pattern": "(open" }] },
                { "roleRef": "get", "keys": [{ "pattern": "x" }, { "pattern": "r:*", "access": "read" }] },
                { "roleRef": "publish", "keys": [], "channels": ["news.*"] },
            ])
        ),
        user(
            "bob",
            &json!([{ "roleRef": "mixed", "keys": [{ "pattern": "k" }] }])
        ),
        user(
            "cat",
            &json!([
                { "roleRef": "read", "keys": [{ "pattern": "a" }] },
                { "roleRef": "all", "keys": [{ "pattern": "b" }], "channels": [] },
            ])
        ),
        user("dan", &json!([{ "roleRef": "nothing", "keys": [] }])),
    ]);
    let server = Server::start(&bound(&acl));

    assert!(server.connect(None).call(&["PING"]).starts_with("NOAUTH"));
    let mut operator = server.connect(Some(("_momento_operator", PASSWORD)));
    assert_eq!(operator.call(&["PING"]), "PONG");
    assert_eq!(operator.call(&["ACL", "LOAD"]), "OK");
    assert!(operator.call(&["GET", "k"]).contains("no permissions"));
    assert!(
        operator
            .call(&["PUBLISH", "c", "m"])
            .contains("no permissions")
    );
    let mut repl = server.connect(Some(("_momento_repl", PASSWORD)));
    assert_eq!(repl.call(&["PING"]), "PONG");
    for refused in [
        &["FLUSHALL"][..],
        &["FUNCTION", "FLUSH"],
        &["CLUSTER", "FLUSHSLOT", "1"],
        &["GET", "k"],
    ] {
        assert!(repl.call(refused).contains("no permissions"), "{refused:?}");
    }

    let mut admin = server.connect(Some(("admin", "secret")));
    for (words, allowed) in MAY {
        let reply = admin.call(&[&["ACL", "DRYRUN"], *words].concat());
        assert_eq!(reply == "OK", *allowed, "{words:?}: {reply}");
    }
}

/// What the server understood, in its own order of words.
#[test]
fn a_server_lists_users_as_they_were_bound() {
    let acl = json!([user(
        "ann",
        &json!([
            { "roleRef": "mixed", "keys": [{ "pattern": "a:*" }, { "pattern": "r:*", "access": "read" }, { "pattern": "w:*", "access": "write" }],
              "channels": ["c.*", "d"] },
            { "roleRef": "read", "keys": [{ "pattern": "s:*", "access": "read" }] },
        ])
    )]);
    let roles = json!({ "mixed": roles()["mixed"], "read": roles()["read"],
        "look": { "commands": [{ "name": "acl", "subcommand": "list", "access": "allow" }] } });
    let mut acl = acl;
    let watcher = user("watcher", &json!([{ "roleRef": "look", "keys": [] }]));
    acl.as_array_mut().unwrap().push(watcher);
    let server = Server::start(&resolved(&json!({}), &acl, &roles));
    let listed = server
        .connect(Some(("watcher", "secret")))
        .call(&["ACL", "LIST"]);
    let hash = sha256_hex(PASSWORD);
    let listed = listed.replace(HASH, "HASH").replace(&hash, "OWN");
    expect![[r"
        user _momento_operator on #OWN resetchannels -@all +cluster +acl|load +ping +info +config|set
        user _momento_repl on #OWN ~* resetchannels -@all +psync +sync +replconf +ping +cluster|syncslots +select +@write +pfcount -flushall -flushdb -swapdb -migrate -function -cluster|flushslot -pfdebug
        user ann on #HASH ~a:* %R~r:* %W~w:* resetchannels &c.* &d -@all +@read -@dangerous +@connection +set -get +config|get +object -object|freq (%R~s:* resetchannels -@all +@read)
        user default off resetchannels -@all
        user watcher on #HASH resetchannels -@all +acl|list"]].assert_eq(&listed);
}

/// Nobody bound, others bound, bound itself, bound beside others.
#[test]
fn the_default_user_in_all_four_cases() {
    let read = json!([{ "roleRef": "read", "keys": [{ "pattern": "*" }] }]);
    let (default, ann) = (user("default", &read), user("ann", &read));
    let down = "CLUSTERDOWN";
    for (acl, unnamed, named) in [
        (json!([]), down, None),
        (json!([ann]), "NOAUTH", None),
        (json!([default]), "NOAUTH", Some("default")),
        (json!([ann, default]), "NOAUTH", Some("default")),
        (json!([default, ann]), "NOAUTH", Some("ann")),
    ] {
        let server = Server::start(&bound(&acl));
        let mut connection = server.connect(None);
        let told = connection.call(&["GET", "k"]);
        assert!(told.starts_with(unnamed), "{acl}: {told}");
        if unnamed == down {
            // Nobody is bound: nothing is shut, and any password will do.
            assert_eq!(connection.call(&["PUBLISH", "c", "m"]), "0");
            assert_eq!(connection.call(&["CONFIG", "SET", "hz", "10"]), "OK");
        }
        let login = connection.call(&["AUTH", "secret"]);
        if acl.to_string().contains("\"default\"") {
            assert_eq!(login, "OK", "{acl}");
            assert!(connection.call(&["SET", "k", "v"]).starts_with("NOPERM"));
            assert!(connection.call(&["GET", "k"]).starts_with("CLUSTERDOWN"));
        } else if unnamed == "NOAUTH" {
            assert!(login.starts_with("WRONGPASS"), "{acl}: {login}");
        }
        if let Some(named) = named {
            let mut connection = server.connect(Some((named, "secret")));
            assert!(connection.call(&["GET", "k"]).starts_with("CLUSTERDOWN"));
        }
    }
}

/// The password of a user that has several.
fn password(number: usize, index: usize) -> String {
    format!("password {index} of {number}")
}

#[test]
fn each_of_64_users_gets_in_and_does_only_his_own() {
    let binding = |number: usize| {
        let hashes: Vec<String> = (0..PASSWORDS_MAX)
            .map(|index| sha256_hex(&password(number, index)))
            .collect();
        json!({ "username": format!("user-{number}"), "passwordHashes": hashes, "permissions": [
            { "roleRef": "all", "keys": [{ "pattern": format!("own-{number}:*") }] },
            { "roleRef": "get", "keys": [{ "pattern": "shared" }] },
        ]})
    };
    let acl = (0..BINDINGS_MAX).map(binding).collect();
    let server = Server::start(&bound(&Value::Array(acl)));
    for number in 0..BINDINGS_MAX {
        let name = format!("user-{number}");
        let own = format!("own-{number}:k");
        let others = format!("own-{}:k", (number + 1) % BINDINGS_MAX);
        for index in 0..PASSWORDS_MAX {
            let mut connection = server.connect(Some((&name, &password(number, index))));
            // The rules are asked before the slots, of which nobody has any here.
            for (words, begin) in [
                (["SET", &own, "v"], "CLUSTERDOWN"),
                (["SET", &others, "v"], "NOPERM"),
                (["SET", "shared", "v"], "NOPERM"),
            ] {
                let told = connection.call(&words);
                assert!(told.starts_with(begin), "{name} {words:?}: {told}");
            }
            assert!(
                connection
                    .call(&["GET", "shared"])
                    .starts_with("CLUSTERDOWN")
            );
        }
        let mut connection = server.connect(None);
        for wrong in [
            password((number + 1) % BINDINGS_MAX, 0),
            sha256_hex(&password(number, 0)),
            String::new(),
        ] {
            let told = connection.call(&["AUTH", &name, &wrong]);
            assert!(told.starts_with("WRONGPASS"), "{name}: {told}");
        }
    }
}

/// The users of a cluster, one for each of these names.
fn readers(names: &[&str], role: &str) -> Resolved {
    let permissions = json!([{ "roleRef": role, "keys": [{ "pattern": "k" }] }]);
    let users = names.iter().map(|name| user(name, &permissions)).collect();
    bound(&Value::Array(users))
}

#[test]
fn a_reload_cuts_nobody_who_did_not_change() {
    let server = Server::start(&readers(&["stays", "goes", "changes"], "read"));
    let mut operator = server.connect(Some(("_momento_operator", PASSWORD)));
    let connect = |name| server.connect(Some((name, "secret")));
    let mut stay: Vec<Connection> = (0..IDLE).map(|_| connect("stays")).collect();
    stay.push(server.connect(Some(("_momento_repl", PASSWORD))));
    let (mut goes, mut changes) = (connect("goes"), connect("changes"));
    for _ in 0..PASSES {
        assert_eq!(operator.call(&["ACL", "LOAD"]), "OK");
    }
    assert!(goes.is_open() && changes.is_open());
    // Two stay as they are, one is gone, one may do less.
    let less = json!([
        user(
            "stays",
            &json!([{ "roleRef": "read", "keys": [{ "pattern": "k" }] }])
        ),
        user(
            "changes",
            &json!([{ "roleRef": "get", "keys": [{ "pattern": "k" }] }])
        ),
    ]);
    server.rewrite(&bound(&less).users);
    assert_eq!(operator.call(&["ACL", "LOAD"]), "OK");
    let cut = stay
        .iter_mut()
        .filter_map(|one| (!one.is_open()).then_some(()));
    assert_eq!(cut.count(), 0, "unchanged users are not cut");
    assert!(!goes.is_open(), "one who is gone is");
    let told = server.connect(None).call(&["AUTH", "goes", "secret"]);
    assert!(told.starts_with("WRONGPASS"), "{told}");
    assert!(
        connect("changes")
            .call(&["MGET", "k"])
            .starts_with("NOPERM")
    );
}

/// A file that is no good as a whole: nobody gains and nobody loses anything by it.
#[test]
fn a_role_that_the_server_does_not_know_changes_nothing() {
    let roles = json!({
        "read": roles()["read"],
        "strange": { "commands": [{ "name": "no-such-command", "access": "allow" }] },
        "odd": { "categories": [{ "name": "no-such-category", "access": "allow" }] },
    });
    let keys = json!([{ "pattern": "k" }]);
    let reads = json!([{ "roleRef": "read", "keys": keys }]);
    let server = Server::start(&resolved(&json!({}), &json!([user("ann", &reads)]), &roles));
    let mut operator = server.connect(Some(("_momento_operator", PASSWORD)));
    let mut idle = server.connect(Some(("ann", "secret")));
    for (role, said) in [
        ("strange", "Unknown command"),
        ("odd", "Unknown command or category"),
    ] {
        let broken = json!([
            user("ann", &json!([{ "roleRef": "read", "keys": [] }])),
            user("bob", &json!([{ "roleRef": role, "keys": keys }])),
        ]);
        let broken = resolved(&json!({}), &broken, &roles);
        server.rewrite(&broken.users);
        let told = operator.call(&["ACL", "LOAD"]);
        assert!(
            told.contains(said) && !told.contains(HASH),
            "{role}: {told}"
        );
        assert!(
            idle.call(&["GET", "k"]).starts_with("CLUSTERDOWN"),
            "ann has her key"
        );
        let told = server.connect(None).call(&["AUTH", "bob", "secret"]);
        assert!(told.starts_with("WRONGPASS"), "{told}");
        // A pod that starts with it ends at once, and says so.
        let log = Server::refusal(&broken);
        assert!(log.contains(said), "{role}: {log}");
    }
    let mended = json!([user("ann", &reads), user("bob", &reads)]);
    server.rewrite(&resolved(&json!({}), &mended, &roles).users);
    assert_eq!(operator.call(&["ACL", "LOAD"]), "OK");
    assert!(idle.is_open());
    server.connect(Some(("bob", "secret")));
}
