//! valkey.conf, users.acl, logins and protocols.

use std::collections::BTreeMap;

use super::super::Answer;
use super::super::Dial;
use super::super::Launch;
use super::super::Net;
use super::super::Peer;
use super::super::Told;
use super::super::Value;
use super::stage::Stage;

const ACL_PATH: &str = "/etc/valkey/acl/users.acl";
const CONF: &str = "cluster-enabled yes\naclfile \"/etc/valkey/acl/users.acl\"\n\
    primaryuser \"_momento_repl\"\ninclude /etc/valkey/auth/primaryauth.conf\n";

/// SHA-256 of `secret`.
const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

fn users() -> String {
    format!(
        "user default off resetchannels -@all\n\
         user app on #{HASH} resetchannels -@all +@read +@write -del %R~a:* ~b:* (resetchannels -@all +incr ~c)\n\
         user _momento_operator on #{HASH} resetchannels -@all +cluster +acl|load +ping +info +config|set\n\
         user _momento_repl on #{HASH} -@all ~* resetchannels +psync +sync +replconf +ping \
         +cluster|syncslots +select +@write +pfcount -flushall -flushdb -swapdb -migrate -function \
         -cluster|flushslot -pfdebug\n"
    )
}

fn files() -> BTreeMap<String, String> {
    [
        (ACL_PATH.to_owned(), users()),
        (
            "/etc/valkey/auth/primaryauth.conf".to_owned(),
            "primaryauth \"secret\"\n".to_owned(),
        ),
    ]
    .into()
}

fn launch(conf: &str, files: BTreeMap<String, String>) -> Launch {
    Launch {
        ip: "10.0.0.1".parse().unwrap(),
        conf: conf.to_owned(),
        files,
        nodes_conf: None,
    }
}

fn refusal(conf: &str) -> String {
    Net::new(1)
        .start(0, launch(conf, BTreeMap::new()))
        .unwrap_err()
}

/// Facts 5.2: what stops the start, in Valkey's words.
#[test]
fn a_bad_file_ends_the_process() {
    let fatal = |line: &str, why: &str| {
        format!(
            "\n*** FATAL CONFIG FILE ERROR (Version 9.1.2) ***\nReading the configuration file, at \
             line 2\n>>> '{line}'\n{why}\n"
        )
    };
    for (line, why) in [
        (
            "no-such-thing 1",
            "Bad directive or wrong number of arguments",
        ),
        ("port", "wrong number of arguments"),
        (
            "primaryauth a\"b",
            "Unbalanced quotes in configuration line",
        ),
        ("appendonly maybe", "argument must be 'yes' or 'no'"),
        ("maxmemory 1.5gb", "argument must be a memory value"),
        (
            "rename-command NOSUCH \"\"",
            "No such command in rename-command",
        ),
    ] {
        assert_eq!(refusal(&format!("# a comment\n{line}\n")), fatal(line, why));
    }
    assert_eq!(
        refusal("include /nowhere.conf\n"),
        "Fatal error, can't open config file '/nowhere.conf': No such file or directory\n"
    );
    let said = refusal("cluster-enabled yes\naclfile /nowhere.acl\n");
    assert!(
        said.contains("opening file '/nowhere.acl': No such file or directory"),
        "{said}"
    );
    let said = refusal("cluster-enabled yes\nreplicaof 10.0.0.2 6379\n");
    assert!(
        said.contains("replicaof directive not allowed in cluster mode"),
        "{said}"
    );
}

#[test]
fn values_are_read_as_valkey_reads_them() {
    let mut stage = Stage::empty();
    let conf = "MAXMEMORY 2kb\nsave \"900 1\"\nsave 300 10\nmasterauth \"a\\\"b #\\x41\"\n\
                hz 1000\nlua-replicate-commands yes\nio-threads \"2\"\nmaxmemory-policy allkeys-lru\n\
                enable-debug-command yes\nx.y 1\n";
    stage.start(conf);
    let mut get = |name: &str| {
        let Value::Array(pair) = stage.ask(0, &format!("CONFIG GET {name}")) else {
            panic!("no pair");
        };
        pair[1].text().unwrap().to_owned()
    };
    assert_eq!(get("maxmemory"), "2048");
    assert_eq!(get("save"), "900 1 300 10");
    assert_eq!(get("primaryauth"), "a\"b #A");
    assert_eq!(get("hz"), "500");
    assert_eq!(get("appendonly"), "no");
    assert_eq!(
        stage.ask(0, "CONFIG SET databases 3"),
        Value::error(
            "ERR CONFIG SET failed (possibly related to argument 'databases') - can't set immutable \
             config"
        )
    );
    assert_eq!(
        stage.ask(0, "CONFIG SET nosuch 3"),
        Value::error("ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'")
    );
    assert_eq!(
        stage.ask(0, "CONFIG SET dir /tmp"),
        Value::error(
            "ERR CONFIG SET failed (possibly related to argument 'dir') - can't set protected config"
        )
    );
    assert_eq!(
        stage.ask(0, "CONFIG SET appendonly yes appendonly no"),
        Value::error(
            "ERR CONFIG SET failed (possibly related to argument 'appendonly') - duplicate parameter"
        )
    );
}

struct Session {
    net: Net,
    connection: super::super::ConnectionId,
}

impl Session {
    fn new() -> Self {
        let mut net = Net::new(1);
        net.start(0, launch(CONF, files())).unwrap();
        Self::on(net)
    }

    fn on(mut net: Net) -> Self {
        let ip = "10.0.0.1".parse().unwrap();
        let Dial::Open(connection) = net.connect(0, Peer::Operator, ip, 6379) else {
            panic!("nobody at {ip}");
        };
        Self { net, connection }
    }

    fn ask(&mut self, words: &str) -> Value {
        let args: Vec<Vec<u8>> = words
            .split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect();
        let answer = self.net.command(0, self.connection, &args);
        let Answer::Reply(value) = answer else {
            panic!("{words}: {answer:?}");
        };
        value
    }
}

/// Facts 4.1: the shapes of refusals.
#[test]
fn logins_are_refused_in_valkeys_words() {
    let mut session = Session::new();
    assert_eq!(
        session.ask("PING"),
        Value::error("NOAUTH Authentication required.")
    );
    assert_eq!(
        session.ask("NOSUCH"),
        Value::error("NOAUTH Authentication required.")
    );
    for words in [
        "AUTH app wrong",
        "AUTH nobody secret",
        "AUTH secret",
        "AUTH default secret",
    ] {
        assert_eq!(
            session.ask(words),
            Value::error("WRONGPASS invalid username-password pair or user is disabled."),
            "{words}"
        );
    }
    assert_eq!(session.ask("AUTH _momento_operator secret"), Value::ok());
    assert_eq!(session.ask("PING"), Value::Simple("PONG".to_owned()));
    for (words, command) in [
        ("DBSIZE", "dbsize"),
        ("CONFIG GET save", "config|get"),
        ("CLIENT SETINFO LIB-NAME x", "client|setinfo"),
        ("ACL WHOAMI", "acl|whoami"),
        ("SELECT 0", "select"),
    ] {
        assert_eq!(
            session.ask(words),
            Value::Error(format!(
                "NOPERM User _momento_operator has no permissions to run the '{command}' command"
            ))
        );
    }
    assert_eq!(
        session.ask("CLUSTER BUMPEPOCH"),
        Value::Simple("BUMPED 1".to_owned())
    );
    assert_eq!(
        session.ask("CLUSTER BUMPEPOCH"),
        Value::Simple("STILL 1".to_owned())
    );
    assert_eq!(
        session.ask("NOSUCH a b"),
        Value::error("ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' ")
    );
}

#[test]
fn keys_are_guarded_by_patterns() {
    let mut session = Session::new();
    session.ask("AUTH app secret");
    let key = Value::error("NOPERM No permissions to access a key");
    assert_eq!(session.ask("GET z"), key);
    assert_eq!(session.ask("SET a:1 x"), key);
    assert_eq!(
        session.ask("GET a:1"),
        Value::error("CLUSTERDOWN Hash slot not served")
    );
    assert_eq!(
        session.ask("SET b:1 x"),
        Value::error("CLUSTERDOWN Hash slot not served")
    );
    assert_eq!(
        session.ask("INCR c"),
        Value::error("CLUSTERDOWN Hash slot not served")
    );
    assert_eq!(
        session.ask("DEL b:1"),
        Value::error("NOPERM User app has no permissions to run the 'del' command")
    );
}

/// Facts 2.6: protocol 3 has maps and verbatim strings.
#[test]
fn hello_changes_the_protocol() {
    let mut session = Session::new();
    assert_eq!(
        session.ask("HELLO 4"),
        Value::error("NOPROTO unsupported protocol version")
    );
    let said = session.ask("HELLO 3 AUTH _momento_operator secret");
    let Value::Map(pairs) = said else {
        panic!("{said:?}");
    };
    assert_eq!(pairs[2], (Value::bulk("proto"), Value::Integer(3)));
    let nodes = session.ask("CLUSTER NODES");
    assert!(matches!(&nodes, Value::Verbatim(text) if text.contains("myself,master")));
    assert!(nodes.bytes().starts_with(b"="));
    assert_eq!(
        session.ask("CLUSTER GETSLOTMIGRATIONS"),
        Value::Array(Vec::new())
    );
}

/// Facts 4.3: ACL LOAD is all or nothing, and cuts off whose user is gone.
#[test]
fn users_are_loaded_anew() {
    let mut session = Session::new();
    session.ask("AUTH _momento_operator secret");
    let mut app = Session::on(std::mem::replace(&mut session.net, Net::new(2)));
    app.ask("AUTH app secret");
    std::mem::swap(&mut session.net, &mut app.net);
    let process = super::super::ProcessId(0);
    let write = |session: &mut Session, text: String| {
        session
            .net
            .files(process)
            .unwrap()
            .insert(ACL_PATH.to_owned(), text);
    };
    write(&mut session, users() + "user app on\nnonsense\n");
    assert_eq!(
        session.ask("ACL LOAD"),
        Value::error(
            "ERR WARNING: Duplicate user 'app' found on line 5. /etc/valkey/acl/users.acl:6 should \
             start with user keyword followed by the username. WARNING: ACL errors detected, no \
             change to the previously active ACL rules was performed"
        )
    );
    write(&mut session, users().replace("+@read", "+@nosuch"));
    assert_eq!(
        session.ask("ACL LOAD"),
        Value::error(
            "ERR /etc/valkey/acl/users.acl:2: Error in applying operation '+@nosuch': Unknown command \
             or category name in ACL. WARNING: ACL errors detected, no change to the previously \
             active ACL rules was performed"
        )
    );
    let without: Vec<String> = users()
        .lines()
        .filter(|line| !line.contains("user app"))
        .map(str::to_owned)
        .collect();
    write(&mut session, without.join("\n"));
    assert_eq!(session.ask("ACL LOAD"), Value::ok());
    assert_eq!(session.net.take_answers(), [(app.connection, Told::Closed)]);
    assert_eq!(session.ask("PING"), Value::Simple("PONG".to_owned()));
}

#[test]
fn users_are_listed_as_they_are_kept() {
    let mut session = Session::new();
    let text = format!("{}user admin on #{HASH} ~* &* +@all\n", users());
    session
        .net
        .files(super::super::ProcessId(0))
        .unwrap()
        .insert(ACL_PATH.to_owned(), text);
    session.ask("AUTH _momento_operator secret");
    session.ask("ACL LOAD");
    session.ask("AUTH admin secret");
    let Value::Array(list) = session.ask("ACL LIST") else {
        panic!();
    };
    let line = |name: &str| {
        let start = format!("user {name} ");
        let found = list.iter().filter_map(Value::text);
        found
            .into_iter()
            .find(|line| line.starts_with(&start))
            .unwrap()
            .to_owned()
    };
    assert_eq!(line("default"), "user default off resetchannels -@all");
    assert_eq!(line("admin"), format!("user admin on #{HASH} ~* &* +@all"));
    assert_eq!(
        line("app"),
        format!(
            "user app on #{HASH} %R~a:* ~b:* resetchannels -@all +@read +@write -del (~c \
             resetchannels -@all +incr)"
        )
    );
    assert_eq!(session.ask("ACL WHOAMI"), Value::bulk("admin"));
}

/// A user that is turned off stays logged in where it is, and can log in nowhere else.
#[test]
fn a_user_is_turned_off() {
    let mut net = Net::new(1);
    let conf = "cluster-enabled yes\nprotected-mode no\n";
    net.start(0, launch(conf, BTreeMap::new())).unwrap();
    let mut session = Session::on(net);
    for words in [
        "ACL SETUSER x on >secret +@all",
        "AUTH x secret",
        "ACL SETUSER x off",
    ] {
        assert_eq!(session.ask(words), Value::ok(), "{words}");
    }
    assert_eq!(session.ask("PING"), Value::Simple("PONG".to_owned()));
    assert!(matches!(session.ask("AUTH x secret"), Value::Error(_)));
    let odd = "ERR Error in ACL SETUSER modifier 'odd': Syntax error";
    assert_eq!(session.ask("ACL SETUSER x on odd"), Value::error(odd));
    assert!(matches!(session.ask("AUTH x secret"), Value::Error(_)));
}
