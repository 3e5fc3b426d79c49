//! What the plugin says of a user's permissions, held against a real server: its table of commands, and
//! its answers beside those of `ACL DRYRUN`. Never a rule that is judged by our own reading alone.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use operator::api::acl::AclBinding;
use operator::model::desired::User;
use operator::model::digest::sha256_hex;
use operator::plugin::permission::{TABLE, judge};
use redis::Value as Reply;
use serde_json::{Value, json};

use crate::servers::{PASSWORD, Server};
use crate::settings::{self, resolved};

/// Where the table is kept.
const FILE: &str = "src/plugin/permission/commands.txt";

fn text(reply: &Reply) -> String {
    redis::from_redis_value(reply.clone()).unwrap()
}

fn list(reply: &Reply) -> Vec<Reply> {
    redis::from_redis_value(reply.clone()).unwrap()
}

/// The words of a set, which RESP2 tells as a list of simple strings.
fn words(reply: &Reply) -> Vec<String> {
    list(reply).iter().map(text).collect()
}

/// A line for a command and for each of its subcommands, from what `COMMAND` tells.
fn lines(command: &Reply, table: &mut BTreeSet<String>) {
    let parts = list(command);
    let categories: BTreeSet<String> = words(&parts[6])
        .iter()
        .map(|category| category.trim_start_matches('@').to_owned())
        .collect();
    let keys: Vec<String> = list(&parts[8]).iter().filter_map(place).collect();
    let flags: Vec<String> = words(&parts[2])
        .into_iter()
        .filter(|flag| flag == "no_auth")
        .collect();
    let or_none = |words: String| {
        if words.is_empty() {
            "-".to_owned()
        } else {
            words
        }
    };
    table.insert(format!(
        "{} {} {} {}",
        text(&parts[0]),
        or_none(categories.into_iter().collect::<Vec<_>>().join(",")),
        or_none(keys.join(",")),
        or_none(flags.join(","))
    ));
    for subcommand in list(&parts[9]) {
        lines(&subcommand, table);
    }
}

/// What is done with the keys in one place of a command.
fn place(spec: &Reply) -> Option<String> {
    let fields = list(spec);
    let at = fields.iter().position(|field| {
        matches!(field, Reply::BulkString(name) if name == b"flags")
            || matches!(field, Reply::SimpleString(name) if name == "flags")
    })?;
    let flags: BTreeSet<String> = words(&fields[at + 1])
        .iter()
        .map(|flag| flag.to_lowercase())
        .collect();
    if flags.contains("not_key") {
        return None;
    }
    let has = |names: &[&str]| names.iter().any(|name| flags.contains(*name));
    let letters = [
        (has(&["access"]), 'r'),
        (has(&["insert", "update", "delete"]), 'w'),
        (has(&["variable_flags"]), 'v'),
    ];
    let letters: String = letters
        .into_iter()
        .filter_map(|(holds, letter)| holds.then_some(letter))
        .collect();
    Some(if letters.is_empty() {
        "x".to_owned()
    } else {
        letters
    })
}

#[test]
fn the_table_of_commands_is_the_servers() {
    let server = Server::start();
    let info: String = server.ask(&["INFO", "server"]);
    let version = info
        .lines()
        .find_map(|line| line.strip_prefix("valkey_version:"))
        .unwrap();
    let mut table = BTreeSet::new();
    for command in server.ask::<Vec<Reply>>(&["COMMAND"]) {
        lines(&command, &mut table);
    }
    let mut made = format!("# valkey {version}\n");
    for line in table {
        made.push_str(&line);
        made.push('\n');
    }
    if std::env::var("UPDATE_EXPECT").is_ok_and(|value| value == "1") {
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE), made).unwrap();
        return;
    }
    assert!(
        TABLE == made,
        "{FILE} is not the server's: make bless writes it anew"
    );
}

/// A command as it is asked about, and as it is run; `K` is the key or channel.
const COMMANDS: &[(&str, &str)] = &[
    ("get", "get K"),
    ("set", "set K v"),
    ("getset", "getset K v"),
    ("del", "del K"),
    ("exists", "exists K"),
    ("type", "type K"),
    ("copy", "copy K K"),
    ("rename", "rename K K"),
    ("append", "append K v"),
    ("incr", "incr K"),
    ("lpush", "lpush K v"),
    ("lmove", "lmove K K left left"),
    ("smembers", "smembers K"),
    ("sort", "sort K store K"),
    ("sort_ro", "sort_ro K"),
    ("zadd", "zadd K 1 m"),
    ("zunionstore", "zunionstore K 1 K"),
    ("bitfield", "bitfield K set u8 0 1"),
    ("xread", "xread streams K 0"),
    ("xadd", "xadd K * f v"),
    ("watch", "watch K"),
    ("eval", "eval x 1 K"),
    ("fcall_ro", "fcall_ro f 1 K"),
    ("script|load", "script load x"),
    ("object|encoding", "object encoding K"),
    ("object|freq", "object freq K"),
    ("memory|usage", "memory usage K"),
    ("memory|stats", "memory stats"),
    ("ping", "ping"),
    ("auth", "auth a b"),
    ("hello", "hello"),
    ("info", "info"),
    ("keys", "keys *"),
    ("flushall", "flushall"),
    ("config|get", "config get hz"),
    ("config|set", "config set hz 10"),
    ("cluster|slots", "cluster slots"),
    ("cluster|reset", "cluster reset"),
    ("client|list", "client list"),
    ("client|setname", "client setname n"),
    ("acl|whoami", "acl whoami"),
    ("publish", "publish K m"),
    ("spublish", "spublish K m"),
    ("subscribe", "subscribe K"),
    ("psubscribe", "psubscribe K"),
    ("ssubscribe", "ssubscribe K"),
    ("unsubscribe", "unsubscribe K"),
];

const KEYS: &[&str] = &[
    "in:1", "out:1", "both:a", "both:z", "news.1", "news.*", "*", "x[y", "other",
];

fn roles() -> Value {
    let rule = |name: &str, access: &str| json!({"name": name, "access": access});
    let sub = |name: &str, sub: &str, access: &str| json!({"name": name, "subcommand": sub, "access": access});
    json!({
        "all": {"categories": [rule("all", "allow")]},
        "mild": {"categories": [rule("all", "allow"), rule("dangerous", "deny"), rule("scripting", "deny")]},
        "reads": {"categories": [rule("read", "allow"), rule("connection", "allow"), rule("slow", "deny")]},
        "taken-back": {"categories": [rule("write", "deny"), rule("write", "allow")],
            "commands": [rule("set", "deny"), rule("get", "allow"), rule("GET", "deny"), rule("get", "allow")]},
        "parts": {"commands": [rule("config", "allow"), sub("config", "set", "deny"),
            sub("CLUSTER", "slots", "allow"), rule("object", "allow"), sub("object", "freq", "deny"),
            sub("client", "list", "allow"), rule("client", "deny")]},
        "talk": {"categories": [rule("pubsub", "allow")]},
        "nothing": {},
    })
}

fn bindings() -> Value {
    let user = |name: &str, permissions: Value| json!({"username": name, "passwordHashes": [sha256_hex(PASSWORD)], "permissions": permissions});
    let keys = json!([
        {"pattern": "in:*", "access": "read"}, {"pattern": "out:?", "access": "write"},
        {"pattern": "both:[a-c]"}, {"pattern": "x\\[y"}, {"pattern": "[^a-w]ther"},
    ]);
    let one =
        |role: &str| json!([{"roleRef": role, "keys": keys, "channels": ["news.*", "in:[0-9]"]}]);
    json!([
        user(
            "free",
            json!([{"roleRef": "all", "keys": [{"pattern": "*"}], "channels": ["*"]}])
        ),
        user("mild", one("mild")),
        user("reads", one("reads")),
        user("back", one("taken-back")),
        user(
            "parts",
            json!([{"roleRef": "parts", "keys": [{"pattern": "*", "access": "read"}]}])
        ),
        user("talk", one("talk")),
        user("nothing", one("nothing")),
        user(
            "both",
            json!([
                {"roleRef": "reads", "keys": [{"pattern": "*"}]},
                {"roleRef": "all", "keys": [{"pattern": "out:*"}]},
                {"roleRef": "talk", "keys": [], "channels": ["other"]},
            ])
        ),
    ])
}

#[test]
fn answers_are_those_of_the_server() {
    let resolved = resolved(&json!({}), &bindings(), &roles());
    let server = settings::Server::start(&resolved);
    let mut free = server.connect(Some(("free", PASSWORD)));
    let (mut wrong, mut yes, mut count) = (Vec::new(), 0, 0);
    for user in &resolved.users {
        for (asked, run) in COMMANDS {
            for key in KEYS {
                let takes_key = run.split(' ').any(|word| word == "K");
                let words: Vec<&str> = run
                    .split(' ')
                    .map(|word| if word == "K" { key } else { word })
                    .collect();
                let name = user.binding.username.as_str();
                let words: Vec<&str> = ["ACL", "DRYRUN", name].into_iter().chain(words).collect();
                let said = free.call(&words);
                assert!(!said.starts_with("ERR"), "{words:?}: {said}");
                let judged = judge(user, asked, takes_key.then_some(*key)).unwrap();
                count += 1;
                yes += usize::from(judged.allowed);
                assert!(!judged.because.is_empty());
                if judged.allowed != (said == "OK") {
                    wrong.push(format!(
                        "{name}: {run} with {key}: {said}, we say {judged:?}"
                    ));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(
        yes * 10 > count && yes * 10 < count * 9,
        "{yes} of {count} are allowed"
    );
    println!("{count} answers as ACL DRYRUN gives them, {yes} of them yes");
}

#[test]
fn what_nobody_knows_is_said_to_be_unknown() {
    let binding: AclBinding = serde_json::from_value(json!({
        "username": "u", "passwordHashes": [], "permissions": []}))
    .unwrap();
    let user = User {
        binding,
        grants: Vec::new(),
    };
    let error = judge(&user, "gett", None).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"Valkey has no command "gett"; a subcommand is written behind a |, such as config|set"#
    );
}
