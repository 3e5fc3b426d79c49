//! Valkey servers as their pods would run them, each on an address of its own, and what is asked of them beside our
//! own modules. Never leaves one running: each dies with the test that started it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::io::Write as _;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::net::TcpStream;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use operator::model::redacted::Redacted;
use operator::model::topology::NodeView;
use operator::model::world::Auth;
use operator::render::users_acl;
use operator::render::valkey_conf;
use operator::valkey::client::Connector;
use operator::valkey::client::Error;
use operator::valkey::client::Target;
use serde_json::json;

use crate::settings::resolved;

/// Every server's, as in pods; the bus listens 10000 higher. Below the range from which the kernel gives ports away.
pub(crate) const PORT: u16 = 7379;

/// As long as ours are, and nowhere in a server's usual words.
pub(crate) const PASSWORD: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\
                                   0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Of the user that looks at what the operator's own may not.
const ADMIN: [&str; 2] = ["admin", "secret"];

/// SHA-256 of `secret`.
const ADMIN_HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// A server on a busy machine starts in well under a second.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The longest that anything here takes: a failing node is called so after five seconds.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

/// Between two looks at a condition.
const POLL: Duration = Duration::from_millis(10);

/// One server, with the settings and the ACL file of a pod in a cluster where somebody is bound.
pub(crate) struct Server {
    process: Child,
    pub(crate) directory: PathBuf,
    pub(crate) address: SocketAddr,
    tls: bool,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
        fs::remove_dir_all(&self.directory).ok();
    }
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// With settings over those of a pod.
    pub(crate) fn start_with(settings: &[(&str, &str)]) -> Self {
        Self::start_at(SocketAddr::new(next_address(), PORT), settings)
    }

    pub(crate) fn start_at(address: SocketAddr, settings: &[(&str, &str)]) -> Self {
        let place = format!(
            "valkey-{}-{}-{}",
            std::process::id(),
            address.ip(),
            address.port()
        );
        let directory = std::env::temp_dir().join(place.replace(':', "."));
        fs::create_dir_all(&directory).unwrap();
        write_files(&directory, address, settings);
        let tls = settings.iter().any(|(name, _)| *name == "tls-port");
        let process = spawn(&directory);
        let mut server = Self {
            process,
            directory,
            address,
            tls,
        };
        server.wait_until_it_listens();
        server
    }

    /// Ends the process as a kernel or a lost machine does.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts a killed one again, with all that it had.
    pub(crate) fn start_again(&mut self) {
        self.process = spawn(&self.directory);
        self.wait_until_it_listens();
    }

    /// Hangs it: connections are still accepted, by the kernel.
    pub(crate) fn hang(&self) {
        self.signal("STOP");
    }

    pub(crate) fn wake(&self) {
        self.signal("CONT");
    }

    fn signal(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.process.id());
        assert!(
            Command::new("sh")
                .args(["-c", &kill])
                .status()
                .unwrap()
                .success()
        );
    }

    pub(crate) fn ip(&self) -> IpAddr {
        self.address.ip()
    }

    pub(crate) async fn account(&self, connector: &Connector) -> Result<NodeView, Error> {
        connector
            .account(&Target::operator(self.ip(), &password()))
            .await
    }

    /// Its account, which it has to give.
    pub(crate) async fn view(&self, connector: &Connector) -> NodeView {
        self.account(connector)
            .await
            .unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// What an administrator is answered.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let [user, password] = ADMIN;
        let client =
            redis::Client::open(format!("redis://{user}:{password}@{}/", self.address)).unwrap();
        let mut connection = client.get_connection().unwrap();
        connection.set_read_timeout(Some(LIMIT)).unwrap();
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command
            .query(&mut connection)
            .unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// The bytes that came for the operator's four questions, in protocol 2 or 3.
    pub(crate) fn record(&self, protocol: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let hello = format!("HELLO {protocol} AUTH _momento_operator {PASSWORD}\r\n");
        stream.write_all(hello.as_bytes()).unwrap();
        let mut parser = redis::Parser::new();
        parser.parse_value(&mut stream).unwrap();
        let asked = "CLUSTER MYID\r\nCLUSTER INFO\r\nCLUSTER NODES\r\nINFO replication\r\n";
        stream.write_all(asked.as_bytes()).unwrap();
        let mut copying = Copying {
            stream,
            bytes: Vec::new(),
        };
        for _ in 0..4 {
            parser.parse_value(&mut copying).unwrap();
        }
        copying.bytes
    }

    fn wait_until_it_listens(&mut self) {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let log = || fs::read_to_string(self.directory.join("log")).unwrap();
            if let Some(status) = self.process.try_wait().unwrap() {
                panic!(
                    "the server at {} ended with {status}: {}",
                    self.address,
                    log()
                );
            }
            let connected = TcpStream::connect(self.address).is_ok();
            if connected && (self.tls || log().contains("Ready to accept connections")) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "no server at {}: {}",
                self.address,
                log()
            );
            std::thread::sleep(POLL);
        }
    }
}

/// Keeps what is read.
struct Copying {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl io::Read for Copying {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.stream.read(buffer)?;
        self.bytes.extend_from_slice(&buffer[..length]);
        Ok(length)
    }
}

/// The operator's own, as every server here has it.
pub(crate) fn password() -> Redacted<String> {
    Redacted::new(PASSWORD.to_owned())
}

/// An address that no other server has, of this run or of another that goes on beside it.
pub(crate) fn next_address() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let last = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(last < 255, "one run starts at most 254 servers");
    IpAddr::V4(Ipv4Addr::new(127, 64 | high, low, last))
}

fn spawn(directory: &Path) -> Child {
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(directory.join("log"))
        .unwrap();
    // The kernel kills it when the thread that started it ends, however that comes.
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL"])
        .arg(crate::valkey_server())
        .arg(directory.join("valkey.conf"))
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// Who is meant by these words, and the password.
pub(crate) fn login(user: &str) -> Option<(&'static str, &'static str)> {
    match user {
        "admin" => Some((ADMIN[0], ADMIN[1])),
        "operator" => Some(("_momento_operator", PASSWORD)),
        "repl" => Some(("_momento_repl", PASSWORD)),
        _ => None,
    }
}

/// The texts of its `valkey.conf` and of the files that this names, by their paths in its directory.
pub(crate) fn files(
    directory: &Path,
    address: SocketAddr,
    settings: &[(&str, &str)],
) -> (String, BTreeMap<String, String>) {
    let acl = json!([{ "username": ADMIN[0], "passwordHashes": [ADMIN_HASH],
        "permissions": [{ "roleRef": "all", "keys": [{ "pattern": "*" }], "channels": ["*"] }] }]);
    let roles = json!({ "all": { "categories": [{ "name": "all", "access": "allow" }] } });
    let resolved = resolved(&json!({}), &acl, &roles);
    let auth = Auth {
        operator: password(),
        repl: password(),
        finalizer: true,
    };
    let path = |name: &str| directory.join(name).display().to_string();
    let mut lines: BTreeMap<String, String> = resolved.node_settings;
    for (name, value) in [
        ("dir", path("")),
        ("cluster-config-file", path("nodes.conf")),
        ("aclfile", path("users.acl")),
        ("port", address.port().to_string()),
        ("bind", address.ip().to_string()),
        // So that the others see it at its own address, as a pod's network makes sure.
        ("bind-source-addr", address.ip().to_string()),
    ] {
        lines.insert(name.to_owned(), value);
    }
    for (name, value) in settings {
        lines.insert((*name).to_owned(), (*value).to_owned());
    }
    let conf = valkey_conf::text(&lines)
        .replace(operator::api::PRIMARYAUTH_PATH, &path("primaryauth.conf"));
    let users = users_acl::text(&resolved.users, &auth);
    let primaryauth = format!("primaryauth \"{PASSWORD}\"\n");
    let named = [
        (path("users.acl"), users),
        (path("primaryauth.conf"), primaryauth),
    ];
    (conf, named.into())
}

pub(crate) fn write_files(directory: &Path, address: SocketAddr, settings: &[(&str, &str)]) {
    let (conf, files) = files(directory, address, settings);
    fs::write(directory.join("valkey.conf"), conf).unwrap();
    for (path, text) in files {
        fs::write(path, text).unwrap();
    }
}

/// Looks until there is what was waited for; else says what was there last.
pub(crate) async fn eventually<T>(
    what: &str,
    mut look: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        match look().await {
            Ok(found) => return found,
            Err(seen) => assert!(Instant::now() < deadline, "{what} never came: {seen}"),
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Waits until the account of every server is as it should be.
pub(crate) async fn all_see<'a>(
    what: &str,
    connector: &Connector,
    servers: impl IntoIterator<Item = &'a Server> + Clone,
    holds: impl Fn(&NodeView) -> bool,
) {
    eventually(what, async || {
        for server in servers.clone() {
            let view = server
                .account(connector)
                .await
                .map_err(|error| format!("{error:?}"))?;
            if !holds(&view) {
                return Err(format!("{view:#?}"));
            }
        }
        Ok(())
    })
    .await;
}

/// No command was sent that the operator's user may not run, and no login was refused.
pub(crate) fn nothing_was_denied<'a>(servers: impl IntoIterator<Item = &'a Server>) {
    for server in servers {
        let denied: Vec<redis::Value> = server.ask(&["ACL", "LOG"]);
        assert!(denied.is_empty(), "{denied:?}");
    }
}
