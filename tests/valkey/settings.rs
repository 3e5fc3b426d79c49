//! What a user's settings become in a real server: resolved, rendered, started and asked back.
//! Never in cluster with another server.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufRead as _;
use std::io::BufReader;
use std::io::Read as _;
use std::io::Write as _;
use std::iter;
use std::net::TcpListener;
use std::net::TcpStream;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use operator::api::cluster::ZoneSpread;
use operator::model::desired::Resolved;
use operator::model::desired::User;
use operator::model::name::ClusterRef;
use operator::model::name::Uid;
use operator::model::redacted::Redacted;
use operator::model::world::Auth;
use operator::model::world::ClusterFacts;
use operator::model::world::Kept;
use operator::model::world::Menu;
use operator::model::world::World;
use operator::render::users_acl;
use operator::render::valkey_conf;
use operator::resolve;
use serde_json::Value;
use serde_json::json;

/// The operator's and the replication user's passwords in these tests.
pub(crate) const PASSWORD: &str = "0123456789abcdef";

/// The port that is tried next.
static PORT: AtomicU16 = AtomicU16::new(21_000);

/// Every printable oddity in one value.
const HARD: &str = "a\"b'c\\d #e\\n\\x41  f\tg;{}$%`ü€ ";

pub(crate) fn resolved(valkey: &Value, acl: &Value, roles: &Value) -> Resolved {
    let config =
        json!({ "imageRef": "v", "valkey": valkey, "acl": acl, "resources": { "memory": "64Mi" } });
    resolved_from(&json!({ "c": config }), roles)
}

/// What config `c` of these resolves to; the image is `v`.
fn resolved_from(configs: &Value, roles: &Value) -> Resolved {
    let spec = json!({ "configRef": "c", "shards": 1, "replicasPerShard": 0 });
    let menu = json!({
        "configs": configs,
        "images": { "v": { "repository": "r", "tag": "t", "version": "9" } },
    });
    let world = World {
        now: 0,
        cluster: ClusterFacts {
            key: ClusterRef {
                namespace: "ns".into(),
                name: "k".into(),
            },
            uid: Uid::new("u"),
            spec: serde_json::from_value(spec).unwrap(),
            status: serde_json::from_value(json!({})).unwrap(),
            deleting: false,
            finalizer: true,
            paused: false,
        },
        menu: Menu {
            configs: serde_json::from_value(menu["configs"].clone()).unwrap(),
            images: serde_json::from_value(menu["images"].clone()).unwrap(),
            roles: serde_json::from_value(roles.clone()).unwrap(),
        },
        kept: Kept::default(),
        tls_secret: None,
        nodes: BTreeMap::new(),
        strays: BTreeMap::new(),
        acl_refusal: None,
        default_zone_spread: ZoneSpread::BestEffort,
    };
    resolve::desired(&world).menu.unwrap()
}

/// A server with the rendered files; only paths and the port, which belong to a pod, are others.
pub(crate) struct Server {
    process: Child,
    directory: PathBuf,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
        fs::remove_dir_all(&self.directory).ok();
    }
}

impl Server {
    /// Starts one that must live.
    pub(crate) fn start(resolved: &Resolved) -> Self {
        let mut server = Self::launch(resolved);
        assert!(server.answers(), "{}", server.log());
        server
    }

    /// Starts one that must end, and tells what it said.
    pub(crate) fn refusal(resolved: &Resolved) -> String {
        let mut server = Self::launch(resolved);
        assert!(!server.answers(), "it lives");
        server.log()
    }

    fn launch(resolved: &Resolved) -> Self {
        // The bus listens 10000 higher. No two servers of these tests try one port.
        let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        let next = || PORT.fetch_add(1, Ordering::Relaxed);
        let port = iter::repeat_with(next)
            .find(|port| free(*port) && free(port + 10_000))
            .unwrap();
        let directory = std::env::temp_dir().join(format!("valkey-settings-{port}"));
        fs::remove_dir_all(&directory).ok();
        fs::create_dir_all(&directory).unwrap();
        write_files(&directory, port, resolved);
        let log = fs::File::create(directory.join("log")).unwrap();
        let process = Command::new(crate::valkey_server())
            .arg(directory.join("valkey.conf"))
            .args(["--cluster-announce-ip", "127.0.0.1"])
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self {
            process,
            directory,
            port,
        }
    }

    /// Whether it takes connections before it ends.
    fn answers(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if self.process.try_wait().unwrap().is_some() || Instant::now() > deadline {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap()
    }

    /// Puts other users into its ACL file, as a kubelet does.
    pub(crate) fn rewrite(&self, users: &[User]) {
        fs::write(
            self.directory.join("users.acl"),
            users_acl::text(users, &auth()),
        )
        .unwrap();
    }

    /// A connection, logged in if a user is named.
    pub(crate) fn connect(&self, login: Option<(&str, &str)>) -> Connection {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let mut connection = Connection(BufReader::new(stream));
        if let Some((user, password)) = login {
            assert_eq!(connection.call(&["AUTH", user, password]), "OK");
        }
        connection
    }
}

fn auth() -> Auth {
    Auth {
        operator: Redacted::new(PASSWORD.to_owned()),
        repl: Redacted::new(PASSWORD.to_owned()),
        finalizer: true,
    }
}

fn write_files(directory: &Path, port: u16, resolved: &Resolved) {
    let path = |name: &str| directory.join(name).display().to_string();
    let mut settings = resolved.node_settings.clone();
    for (name, value) in [
        ("dir", path("")),
        ("cluster-config-file", path("nodes.conf")),
        ("aclfile", path("users.acl")),
        ("port", port.to_string()),
        ("bind", "127.0.0.1".to_owned()),
    ] {
        assert!(
            settings.insert(name.to_owned(), value).is_some(),
            "{name} is forced"
        );
    }
    let conf = valkey_conf::text(&settings).replace(
        "/etc/valkey/auth/primaryauth.conf",
        &path("primaryauth.conf"),
    );
    fs::write(path("valkey.conf"), conf).unwrap();
    fs::write(path("users.acl"), users_acl::text(&resolved.users, &auth())).unwrap();
    fs::write(
        path("primaryauth.conf"),
        format!("primaryauth \"{PASSWORD}\"\n"),
    )
    .unwrap();
}

/// A connection that speaks just enough RESP2, byte for byte.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    /// The reply, arrays joined by line breaks.
    pub(crate) fn call(&mut self, words: &[&str]) -> String {
        let head = format!("*{}\r\n", words.len());
        let bulk = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
        let request = words
            .iter()
            .map(bulk)
            .fold(head, |request, bulk| request + &bulk);
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        self.reply()
    }

    /// Whether the server has not closed it.
    pub(crate) fn is_open(&mut self) -> bool {
        let mut head = String::new();
        let sent = self.0.get_mut().write_all(b"PING\r\n");
        sent.is_ok() && self.0.read_line(&mut head).is_ok() && !head.is_empty()
    }

    fn reply(&mut self) -> String {
        let mut head = String::new();
        self.0.read_line(&mut head).unwrap();
        let (kind, rest) = head.trim_end().split_at(1);
        match kind {
            "$" if rest == "-1" => "(nil)".to_owned(),
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.0.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                String::from_utf8(bytes).unwrap()
            }
            "*" => {
                let count: usize = rest.parse().unwrap();
                (0..count)
                    .map(|_| self.reply())
                    .collect::<Vec<_>>()
                    .join("\n")
            }
            _ => rest.to_owned(),
        }
    }

    /// The value that `CONFIG GET` tells.
    fn config(&mut self, name: &str) -> String {
        let reply = self.call(&["CONFIG", "GET", name]);
        reply
            .split_once('\n')
            .map_or(String::new(), |(_, value)| value.to_owned())
    }
}

/// Asks a server for every directive of a table of `(written name, value, directive, what CONFIG GET tells)`.
fn check(table: &[Row<'_>]) {
    let valkey = table
        .iter()
        .map(|(name, value, ..)| ((*name).to_owned(), json!(value)))
        .collect();
    let resolved = resolved(&Value::Object(valkey), &json!([]), &json!({}));
    let server = Server::start(&resolved);
    let mut connection = server.connect(None);
    for (name, value, directive, expected) in table {
        assert_eq!(connection.config(directive), *expected, "{name} {value:?}");
    }
}

/// One directive: how it is written, its value, how it is asked for and what is told.
type Row<'a> = (&'a str, &'a str, &'a str, &'a str);

const MEANT: &[Row<'_>] = &[
    ("save", "3600 1 300 100", "save", "3600 1 300 100"),
    (
        "notify-keyspace-events",
        "KEA",
        "notify-keyspace-events",
        "AKE",
    ),
    (
        "client-output-buffer-limit",
        "normal 0 0 0 replica 512mb 128mb 60 pubsub 32mb 8mb 60",
        "client-output-buffer-limit",
        "normal 0 0 0 slave 536870912 134217728 60 pubsub 33554432 8388608 60",
    ),
    ("MaxMemory", "100mb", "maxmemory", "104857600"),
    (
        "maxmemory-policy",
        "allkeys-lru",
        "maxmemory-policy",
        "allkeys-lru",
    ),
    ("maxmemory-clients", "10%", "maxmemory-clients", "10%"),
    ("requirepass", HARD, "requirepass", HARD),
    ("availability-zone", HARD, "availability-zone", HARD),
    (
        "syslog-ident",
        "#not a comment",
        "syslog-ident",
        "#not a comment",
    ),
    (
        "replica-announce-ip",
        "trailing space ",
        "replica-announce-ip",
        "trailing space ",
    ),
    (
        "proc-title-template",
        "\"{title}\" 'x'",
        "proc-title-template",
        "\"{title}\" 'x'",
    ),
    ("tls-ciphers", "A:B \\ C", "tls-ciphers", "A:B \\ C"),
    (
        "tls-protocols",
        "TLSv1.2 TLSv1.3",
        "tls-protocols",
        "TLSv1.2 TLSv1.3",
    ),
    ("slave-priority", "7", "replica-priority", "7"),
    ("min-slaves-max-lag", "11", "min-replicas-max-lag", "11"),
    ("Lua-Time-Limit", "4000", "busy-reply-threshold", "4000"),
    (
        "slowlog-log-slower-than",
        "-1",
        "commandlog-execution-slower-than",
        "-1",
    ),
    ("slowlog-max-len", "64", "slowlog-max-len", "64"),
    (
        "hash-max-ziplist-entries",
        "100",
        "hash-max-listpack-entries",
        "100",
    ),
    (
        "list-max-ziplist-size",
        "-3",
        "list-max-listpack-size",
        "-3",
    ),
    (
        "latency-tracking-info-percentiles",
        "50 99 99.9",
        "latency-tracking-info-percentiles",
        "50 99 99.9",
    ),
    (
        "oom-score-adj-values",
        "0 200 800",
        "oom-score-adj-values",
        "0 200 800",
    ),
    (
        "shutdown-on-sigterm",
        "nosave failover",
        "shutdown-on-sigterm",
        "nosave failover",
    ),
    (
        "shutdown-on-sigint",
        "default",
        "shutdown-on-sigint",
        "default",
    ),
    ("repl-backlog-size", "1mb", "repl-backlog-size", "1048576"),
    ("HZ", "50", "hz", "50"),
    ("appendonly", "yes", "appendonly", "yes"),
    ("io-threads", "2", "io-threads", "2"),
    (
        "bind-source-addr",
        "127.0.0.1",
        "bind-source-addr",
        "127.0.0.1",
    ),
    ("loglevel", "warning", "loglevel", "warning"),
    ("timeout", "0", "timeout", "0"),
    ("acllog-max-len", "0", "acllog-max-len", "0"),
    (
        "stream-node-max-bytes",
        "4kb",
        "stream-node-max-bytes",
        "4096",
    ),
    ("dbfilename", "dump file.rdb", "dbfilename", "dump file.rdb"),
    // Amounts, in each unit that Valkey knows: those with a `b` at the end are powers of two.
    (
        "client-query-buffer-limit",
        "1048576b",
        "client-query-buffer-limit",
        "1048576",
    ),
    (
        "proto-max-bulk-len",
        "2000k",
        "proto-max-bulk-len",
        "2000000",
    ),
    (
        "active-defrag-ignore-bytes",
        "3KB",
        "active-defrag-ignore-bytes",
        "3072",
    ),
    (
        "auto-aof-rewrite-min-size",
        "5m",
        "auto-aof-rewrite-min-size",
        "5000000",
    ),
    (
        "tracking-table-max-keys",
        "7",
        "tracking-table-max-keys",
        "7",
    ),
    (
        "hll-sparse-max-bytes",
        "2Kb",
        "hll-sparse-max-bytes",
        "2048",
    ),
    ("maxmemory-samples", "9", "maxmemory-samples", "9"),
    // Truths, and words of a list, however they are written.
    ("activerehashing", "NO", "activerehashing", "no"),
    (
        "lazyfree-lazy-eviction",
        "no",
        "lazyfree-lazy-eviction",
        "no",
    ),
    ("LAZYFREE-LAZY-EXPIRE", "Yes", "lazyfree-lazy-expire", "yes"),
    (
        "cluster-require-full-coverage",
        "no",
        "cluster-require-full-coverage",
        "no",
    ),
    (
        "cluster-allow-reads-when-down",
        "yes",
        "cluster-allow-reads-when-down",
        "yes",
    ),
    ("appendfsync", "EVERYSEC", "appendfsync", "everysec"),
    (
        "repl-diskless-load",
        "Disabled",
        "repl-diskless-load",
        "disabled",
    ),
    (
        "tls-auth-clients",
        "OPTIONAL",
        "tls-auth-clients",
        "optional",
    ),
    (
        "enable-debug-command",
        "local",
        "enable-debug-command",
        "local",
    ),
    // Over a default of ours.
    (
        "Repl-Diskless-Sync-Delay",
        "3",
        "repl-diskless-sync-delay",
        "3",
    ),
    // Ours win.
    ("masteruser", "bob", "primaryuser", "_momento_repl"),
    ("MasterAuth", "x", "primaryauth", PASSWORD),
    ("PRIMARYAUTH", "y", "masterauth", PASSWORD),
    (
        "Cluster-Slave-Validity-Factor",
        "0",
        "cluster-replica-validity-factor",
        "10",
    ),
    ("CLUSTER-NODE-TIMEOUT", "1", "cluster-node-timeout", "5000"),
    ("Protected-Mode", "yes", "protected-mode", "no"),
    ("cluster-databases", "16", "cluster-databases", "1"),
    ("Cluster-Enabled", "no", "cluster-enabled", "yes"),
    (
        "CLUSTER-ALLOW-REPLICA-MIGRATION",
        "yes",
        "cluster-allow-replica-migration",
        "no",
    ),
    (
        "cluster-announce-ip",
        "10.0.0.1",
        "cluster-announce-ip",
        "127.0.0.1",
    ),
];

#[test]
fn a_server_has_what_its_user_meant() {
    check(MEANT);
}

#[test]
fn an_empty_value_is_a_value() {
    check(&[
        ("save", "", "save", ""),
        ("notify-keyspace-events", "", "notify-keyspace-events", ""),
        ("requirepass", "", "requirepass", ""),
        ("availability-zone", "", "availability-zone", ""),
        ("syslog-ident", "", "syslog-ident", ""),
        ("logfile", "", "logfile", ""),
        ("pidfile", "", "pidfile", ""),
        ("unixsocket", "", "unixsocket", ""),
        ("tls-ciphers", "", "tls-ciphers", ""),
        ("tls-protocols", "", "tls-protocols", ""),
        ("replica-announce-ip", "", "replica-announce-ip", ""),
        (
            "cluster-announce-hostname",
            "",
            "cluster-announce-hostname",
            "",
        ),
        (
            "cluster-announce-human-nodename",
            "",
            "cluster-announce-human-nodename",
            "",
        ),
        ("bind-source-addr", "", "bind-source-addr", ""),
        ("locale-collate", "", "locale-collate", ""),
        ("ignore-warnings", "", "ignore-warnings", ""),
        ("server-cpulist", "", "server-cpulist", ""),
        (
            "latency-tracking-info-percentiles",
            "",
            "latency-tracking-info-percentiles",
            "",
        ),
    ]);
}

#[test]
fn our_defaults_and_every_character() {
    let all: String = (1..=255_u8)
        .map(char::from)
        .filter(|c| *c != '\0')
        .collect();
    let long = "x".repeat(8192);
    check(&[
        ("requirepass", &all, "requirepass", &all),
        ("availability-zone", &long, "availability-zone", &long),
        (
            "syslog-ident",
            "line\nport 1\r\nport 2",
            "syslog-ident",
            "line\nport 1\r\nport 2",
        ),
        ("timeout", "0", "maxmemory", "50331648"),
        ("timeout", "0", "save", ""),
        ("timeout", "0", "repl-diskless-sync-delay", "0"),
        ("timeout", "0", "shutdown-on-sigterm", "failover"),
        ("timeout", "0", "cluster-allow-replica-migration", "no"),
        ("timeout", "0", "primaryauth", PASSWORD),
    ]);
}

/// The root, a config on it and the one that is named, each with a spelling of its own.
#[test]
fn a_chain_is_one_wish_whatever_its_spellings() {
    let configs = json!({
        "root": { "imageRef": "v", "resources": { "memory": "64Mi" },
            "valkey": { "slave-priority": "1", "timeout": "1", "SAVE": "900 1", "hz": "20" } },
        "base": { "baseRef": "root",
            "valkey": { "Replica-Priority": "2", "Timeout": "2", "notify-keyspace-events": "KEA" } },
        "c": { "baseRef": "base", "resources": { "memory": 134_217_728 },
            "valkey": { "SLAVE-PRIORITY": "3", "notify-keyspace-events": "" } },
    });
    let server = Server::start(&resolved_from(&configs, &json!({})));
    let mut connection = server.connect(None);
    for (name, expected) in [
        ("replica-priority", "3"),
        ("timeout", "2"),
        ("notify-keyspace-events", ""),
        ("save", "900 1"),
        ("hz", "20"),
        ("repl-diskless-sync-delay", "0"),
        ("cluster-node-timeout", "5000"),
        // 75 % of the child's memory, not of the root's.
        ("maxmemory", "100663296"),
    ] {
        assert_eq!(connection.config(name), expected, "{name}");
    }
}

#[test]
fn maxmemory_is_three_quarters_of_the_memory_where_nobody_says_it() {
    for (memory, own, expected) in [
        (json!("64Mi"), None, "50331648"),
        (json!("1G"), None, "750000000"),
        (json!(134_217_728), None, "100663296"),
        (json!("64Mi"), Some("10mb"), "10485760"),
        (json!("64Mi"), Some("0"), "0"),
        (Value::Null, None, "0"),
    ] {
        let mut config = json!({ "imageRef": "v", "resources": { "memory": memory } });
        if let Some(own) = own {
            config["valkey"] = json!({ "MAXMEMORY": own });
        }
        let server = Server::start(&resolved_from(&json!({ "c": config }), &json!({})));
        let told = server.connect(None).config("maxmemory");
        assert_eq!(told, expected, "{config}");
    }
}

#[test]
fn a_renamed_command_is_renamed() {
    let valkey = json!({ "Rename-Command": "FLUSHALL \"\"" });
    let server = Server::start(&resolved(&valkey, &json!([]), &json!({})));
    assert!(
        server
            .connect(None)
            .call(&["FLUSHALL"])
            .contains("unknown command")
    );
}

#[test]
fn what_a_server_does_not_take_ends_it() {
    for (valkey, said) in [
        (json!({ "no-such-directive": "1" }), "Bad directive"),
        (
            json!({ "maxmemory": "lots" }),
            "argument must be a memory value",
        ),
        (json!({ "user": "bob on" }), "users defined in valkey.conf"),
        (json!({ "replicaof": "10.0.0.1 6379" }), "replicaof"),
    ] {
        let error = Server::refusal(&resolved(&valkey, &json!([]), &json!({})));
        assert!(error.contains(said), "{valkey}: {error}");
    }
}
