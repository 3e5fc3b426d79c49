//! A few servers, each at its own loopback address as pods are, and our connector to them.
//! Never outlives its test, not even one that is killed.

use std::fs;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::TcpListener;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use futures::future::join_all;
use operator::model::desired::Resolved;
use operator::model::redacted::Redacted;
use operator::model::topology::NodeView;
use operator::model::world::Auth;
use operator::render::users_acl;
use operator::render::valkey_conf;
use operator::valkey::client::Connector;
use operator::valkey::client::Error;
use operator::valkey::client::Target;
use serde_json::json;
use tokio::time::MissedTickBehavior;

use crate::settings::Connection;
use crate::settings::resolved;

/// A thing that takes a second on an idle machine may take many on a busy one.
const LIMIT: Duration = Duration::from_mins(1);

/// The user that a test looks with; the operator's own may not read a log or list clients.
const ADMIN: (&str, &str) = ("admin", "secret");

/// Servers of one cluster: one port, many addresses.
pub(crate) struct Servers {
    pub(crate) connector: Connector,
    pub(crate) auth: Auth,
    port: u16,
    settings: Resolved,
    each: Vec<Server>,
}

impl Servers {
    /// Starts `count` servers that know nothing of each other.
    pub(crate) async fn start(count: u8) -> Self {
        let mut servers = Self::none();
        for index in 0..count {
            let server = Server::launch(&servers, address(index));
            servers.each.push(server);
        }
        servers.all_answer().await;
        servers
    }

    fn none() -> Self {
        let auth = Auth {
            operator: Redacted::new("a1".repeat(64)),
            repl: Redacted::new("b2".repeat(64)),
            finalizer: true,
        };
        let port = port();
        // SHA-256 of "secret".
        let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        let bindings = json!([{ "username": ADMIN.0, "passwordHashes": [hash],
            "permissions": [{ "roleRef": "all", "keys": [{ "pattern": "*" }] }] }]);
        let roles = json!({ "all": { "categories": [{ "name": "all", "access": "allow" }] } });
        Self {
            connector: Connector::new(port),
            auth,
            port,
            settings: resolved(&json!({}), &bindings, &roles),
            each: Vec::new(),
        }
    }

    async fn all_answer(&self) {
        let all: Vec<usize> = (0..self.each.len()).collect();
        until("every server answers", async || {
            let answers = join_all(all.iter().map(|index| self.account(*index))).await;
            answers.iter().all(Result::is_ok)
        })
        .await;
    }

    /// A connector that knows none of them yet.
    pub(crate) fn another_connector(&self) -> Connector {
        Connector::new(self.port)
    }

    /// Where one listens.
    pub(crate) fn address(&self, index: usize) -> IpAddr {
        self.each[index].address
    }

    /// One, spoken to as the operator.
    pub(crate) fn target(&self, index: usize) -> Target<'_> {
        Target::operator(self.address(index), &self.auth.operator)
    }

    /// One's account.
    pub(crate) async fn account(&self, index: usize) -> Result<NodeView, Error> {
        self.connector.account(&self.target(index)).await
    }

    /// The accounts of some, who must answer, asked all at once.
    pub(crate) async fn accounts(&self, of: &[usize]) -> Vec<NodeView> {
        let accounts = join_all(of.iter().map(|index| self.account(*index))).await;
        accounts.into_iter().map(Result::unwrap).collect()
    }

    /// Waits until all of some say of themselves and of each other what they should.
    pub(crate) async fn agree(
        &self,
        what: &str,
        of: &[usize],
        holds: impl Fn(&NodeView) -> bool,
    ) -> Duration {
        until(what, async || self.accounts(of).await.iter().all(&holds)).await
    }

    /// Introduces all to all through the first, and waits until nobody is a stranger to anybody.
    pub(crate) async fn meet_through_the_first(&self) {
        let all: Vec<usize> = (0..self.each.len()).collect();
        for index in &all[1..] {
            let met = self
                .connector
                .meet(&self.target(0), self.address(*index))
                .await;
            met.unwrap();
        }
        self.agree("everybody knows everybody", &all, |view| {
            let known = |member: &operator::model::topology::Member| {
                !member.flags.handshake && member.connected && member.ip.is_some()
            };
            view.members.len() == all.len() && view.members.iter().all(known)
        })
        .await;
    }

    /// A connection of the test's own, who may do everything.
    pub(crate) fn admin(&self, index: usize) -> Connection {
        Connection::open((self.address(index), self.port), Some(ADMIN))
    }

    /// The connections, by their numbers, that the operator's user has to one.
    pub(crate) fn operator_connections(&self, index: usize) -> Vec<String> {
        let clients = self.admin(index).call(&["CLIENT", "LIST"]);
        clients
            .lines()
            .filter(|client| client.contains("user=_momento_operator"))
            .filter_map(|client| client.split(' ').next())
            .map(str::to_owned)
            .collect()
    }

    /// No living server refused anything to any user of ours.
    pub(crate) fn nothing_was_denied(&self) {
        for (index, server) in self.each.iter().enumerate() {
            if server.process.is_some() {
                assert_eq!(self.admin(index).call(&["ACL", "LOG"]), "", "{index}");
            }
        }
    }

    /// Ends one as a lost machine does.
    pub(crate) fn kill(&mut self, index: usize) {
        self.each[index].kill();
    }

    /// Starts one again on its own files.
    pub(crate) fn start_again(&mut self, index: usize) {
        let server = &mut self.each[index];
        server.process = Some(spawn(&server.directory));
    }

    /// Starts another at the same address, without any memory.
    pub(crate) fn replace(&mut self, index: usize) {
        self.kill(index);
        fs::remove_file(self.each[index].directory.join("nodes.conf")).unwrap();
        self.start_again(index);
    }

    /// Hangs one: the kernel still takes its connections.
    pub(crate) fn pause(&self, index: usize) {
        self.each[index].signal("STOP");
    }

    /// Ends that.
    pub(crate) fn resume(&self, index: usize) {
        self.each[index].signal("CONT");
    }

    /// The rules that one began with.
    pub(crate) fn acl(&self) -> String {
        users_acl::text(&self.settings.users, &self.auth)
    }

    /// Puts other rules where one reads them.
    pub(crate) fn write_acl(&self, index: usize, text: &str) {
        fs::write(self.each[index].directory.join("users.acl"), text).unwrap();
    }
}

struct Server {
    address: IpAddr,
    directory: PathBuf,
    process: Option<Child>,
}

impl Server {
    fn launch(of: &Servers, address: Ipv4Addr) -> Self {
        let directory = std::env::temp_dir().join(format!("valkey-servers-{address}-{}", of.port));
        fs::remove_dir_all(&directory).ok();
        fs::create_dir_all(&directory).unwrap();
        write_files(&directory, of, address);
        Self {
            address: address.into(),
            process: Some(spawn(&directory)),
            directory,
        }
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().ok();
            process.wait().ok();
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.process.as_ref().unwrap().id();
        let kill = Command::new("sh")
            .args(["-c", &format!("kill -{name} {pid}")])
            .status();
        assert!(kill.unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if !std::thread::panicking() {
            fs::remove_dir_all(&self.directory).ok();
        }
    }
}

fn spawn(directory: &Path) -> Child {
    let log = fs::File::options()
        .append(true)
        .create(true)
        .open(directory.join("log"))
        .unwrap();
    // The kernel ends it when the thread that started it ends, however that comes.
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL"])
        .arg(crate::valkey_server())
        .arg(directory.join("valkey.conf"))
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// What a pod has; only paths, the port and the addresses are others.
fn write_files(directory: &Path, of: &Servers, address: Ipv4Addr) {
    let path = |name: &str| directory.join(name).display().to_string();
    let mut settings = of.settings.node_settings.clone();
    for (name, value) in [
        ("dir", path("")),
        ("cluster-config-file", path("nodes.conf")),
        ("aclfile", path("users.acl")),
        ("port", of.port.to_string()),
        ("bind", address.to_string()),
    ] {
        assert!(
            settings.insert(name.to_owned(), value).is_some(),
            "{name} is forced"
        );
    }
    // A pod sends from its own address.
    settings.insert("bind-source-addr".to_owned(), address.to_string());
    settings.insert("cluster-announce-ip".to_owned(), address.to_string());
    let conf = valkey_conf::text(&settings).replace(
        "/etc/valkey/auth/primaryauth.conf",
        &path("primaryauth.conf"),
    );
    fs::write(path("valkey.conf"), conf).unwrap();
    fs::write(path("users.acl"), of.acl()).unwrap();
    let password = of.auth.repl.expose();
    fs::write(
        path("primaryauth.conf"),
        format!("primaryauth \"{password}\"\n"),
    )
    .unwrap();
}

/// Programs that run at the same time use other networks; that of this one follows from its process id.
fn address(index: u8) -> Ipv4Addr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 + high % 64, low, index + 1)
}

/// The tests of this program use other ports. The bus listens 10000 higher, below what the kernel deals out.
fn port() -> u16 {
    static PORT: AtomicU16 = AtomicU16::new(12_000);
    loop {
        let port = PORT.fetch_add(1, Ordering::Relaxed);
        if [port, port + 10_000]
            .iter()
            .all(|port| TcpListener::bind((address(0), *port)).is_ok())
        {
            return port;
        }
    }
}

/// Looks again and again until something holds, and tells how long that took.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) -> Duration {
    let begin = Instant::now();
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        if holds().await {
            return begin.elapsed();
        }
        assert!(begin.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
    }
}
