//! The stage with real processes: every talk in a network of its own, where each server has an address of its own.
//! Never leaves one running: each dies with the thread that started it.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind::Interrupted;
use std::io::ErrorKind::TimedOut;
use std::io::ErrorKind::WouldBlock;
use std::io::Read as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use super::player::Stage;
use super::reply::Answer;
use super::reply::Reply;
use super::reply::request;
use super::script::Name;
use super::script::PORT;
use super::script::Settings;
use super::script::Signal;
use super::script::Switch;
use crate::servers;

/// A server on a busy machine starts in well under a second.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Between two looks at a start.
const POLL: Duration = Duration::from_millis(5);

pub(crate) struct Real {
    /// Holds the network while the talk lasts.
    network: Child,
    directory: PathBuf,
    servers: BTreeMap<Name, Process>,
    /// One for each user of each server; none that has failed.
    connections: BTreeMap<(Name, String), UnixStream>,
    begin: Instant,
}

struct Process {
    child: Child,
    directory: PathBuf,
    code: Option<i32>,
}

impl Drop for Real {
    fn drop(&mut self) {
        for process in self.servers.values_mut() {
            process.child.kill().ok();
            process.child.wait().ok();
        }
        self.network.kill().ok();
        self.network.wait().ok();
        fs::remove_dir_all(&self.directory).ok();
    }
}

impl Real {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let place = format!("talk-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(place);
        fs::create_dir_all(&directory).unwrap();
        let script = "ip link set lo up && echo up && exec sleep infinity";
        let mut network = Command::new("setpriv")
            .args([
                "--pdeathsig",
                "KILL",
                "unshare",
                "--net",
                "sh",
                "-c",
                script,
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 3];
        let output = network.stdout.as_mut().unwrap();
        output
            .read_exact(&mut said)
            .expect("a network namespace, which only root may make");
        Self {
            network,
            directory,
            servers: BTreeMap::new(),
            connections: BTreeMap::new(),
            begin: Instant::now(),
        }
    }

    fn inside(&self) -> [String; 2] {
        let network = format!("--net=/proc/{}/ns/net", self.network.id());
        ["nsenter".to_owned(), network]
    }

    fn iptables(&self, words: &[&str]) {
        let [program, network] = self.inside();
        let done = Command::new(program)
            .args([&network, "iptables", "--wait"])
            .args(words)
            .status()
            .unwrap();
        assert!(done.success(), "iptables {words:?}: {done}");
    }

    fn spawn(&self, directory: &Path) -> Child {
        let log = fs::File::create(directory.join("log")).unwrap();
        let [program, network] = self.inside();
        Command::new(program)
            .args([&network, "setpriv", "--pdeathsig", "KILL"])
            .arg(crate::valkey_server())
            .arg(directory.join("valkey.conf"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// The reason if it ends instead.
    fn wait_until_it_listens(&mut self, name: Name) -> Result<(), String> {
        let process = self.servers.get_mut(&name).unwrap();
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let log = fs::read_to_string(process.directory.join("log")).unwrap();
            if let Some(status) = process.child.try_wait().unwrap() {
                let code = status.code().unwrap_or(-1);
                process.code = Some(code);
                return Err(reason(&log));
            }
            if log.contains("Ready to accept connections unix") {
                return Ok(());
            }
            assert!(Instant::now() < deadline, "{name} does not listen: {log}");
            std::thread::sleep(POLL);
        }
    }

    fn connection(&mut self, name: Name, user: &str) -> Result<&mut UnixStream, Answer> {
        let key = (name, user.to_owned());
        if !self.connections.contains_key(&key) {
            let socket = self.servers[&name].directory.join("socket");
            let mut stream = UnixStream::connect(socket).map_err(|_gone| Answer::Refused)?;
            if let Some((user, password)) = servers::login(user) {
                let words = ["AUTH", user, password].map(str::to_owned);
                let answer = ask(&mut stream, &words, START_LIMIT);
                if answer != Answer::Reply(Reply::Simple("OK".to_owned())) {
                    return Err(answer);
                }
            }
            self.connections.insert(key.clone(), stream);
        }
        Ok(self.connections.get_mut(&key).unwrap())
    }

    fn forget_connections(&mut self, name: Name) {
        self.connections.retain(|(to, _), _| *to != name);
    }
}

impl Stage for Real {
    fn start(&mut self, name: Name, address: &str, settings: &Settings) -> Result<(), String> {
        let directory = self.directory.join(name.to_string());
        fs::create_dir_all(&directory).unwrap();
        let socket = directory.join("socket").display().to_string();
        let mut all = vec![
            ("unixsocket", socket.as_str()),
            ("enable-debug-command", "yes"),
        ];
        all.extend(
            settings
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        );
        let address = SocketAddr::new(address.parse().unwrap(), PORT);
        servers::write_files(&directory, address, &all);
        let child = self.spawn(&directory);
        self.servers.insert(
            name,
            Process {
                child,
                directory,
                code: None,
            },
        );
        self.wait_until_it_listens(name)
    }

    fn again(&mut self, name: Name, empty: bool) -> Result<(), String> {
        self.forget_connections(name);
        let directory = self.servers[&name].directory.clone();
        if empty {
            for file in ["nodes.conf", "dump.rdb"] {
                fs::remove_file(directory.join(file)).ok();
            }
        }
        let child = self.spawn(&directory);
        let process = self.servers.get_mut(&name).unwrap();
        process.child = child;
        process.code = None;
        self.wait_until_it_listens(name)
    }

    fn signal(&mut self, name: Name, signal: Signal) {
        let word = match signal {
            Signal::Kill => "KILL",
            Signal::Term => "TERM",
            Signal::Stop => "STOP",
            Signal::Continue => "CONT",
        };
        let process = self.servers.get_mut(&name).unwrap();
        let kill = format!("kill -{word} {}", process.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(sent.success(), "{kill}");
        if signal == Signal::Kill {
            process.child.wait().unwrap();
            process.code = Some(137);
            self.forget_connections(name);
        }
    }

    fn ended(&mut self, name: Name) -> Option<i32> {
        let process = self.servers.get_mut(&name).unwrap();
        if process.code.is_none() {
            process.code = process
                .child
                .try_wait()
                .unwrap()
                .map(|status| status.code().unwrap_or(-1));
        }
        let code = process.code;
        if code.is_some() {
            self.forget_connections(name);
        }
        code
    }

    fn ask(&mut self, name: Name, user: &str, words: &[String], patience: Duration) -> Answer {
        let stream = match self.connection(name, user) {
            Ok(stream) => stream,
            Err(answer) => return answer,
        };
        let answer = ask(stream, words, patience);
        if !matches!(answer, Answer::Reply(_)) {
            self.connections.remove(&(name, user.to_owned()));
        }
        answer
    }

    fn cut(&mut self, from: &str, to: &str, ports: &[u16]) {
        for port in ports {
            let port = port.to_string();
            for end in ["--sport", "--dport"] {
                self.iptables(&[
                    "-A", "INPUT", "-s", from, "-d", to, "-p", "tcp", end, &port, "-j", "DROP",
                ]);
            }
        }
    }

    fn heal(&mut self) {
        self.iptables(&["-F", "INPUT"]);
    }

    fn switch(&mut self, name: Name, switch: Switch, on: bool) {
        let word = match switch {
            Switch::Held => "PREVENT-PAUSE",
            Switch::Unclaimed => "PREVENT-FAILOVER",
        };
        let words = ["DEBUG", "SLOTMIGRATION", word, if on { "1" } else { "0" }];
        let answer = self.ask(name, "admin", &words.map(str::to_owned), START_LIMIT);
        assert_eq!(answer, Answer::Reply(Reply::Simple("OK".to_owned())));
    }

    fn slow(&mut self, name: Name, span: Duration) {
        let delay = (span.as_micros() / 20).to_string();
        let words = [
            "CONFIG",
            "SET",
            "key-load-delay",
            &delay,
            "loading-process-events-interval-bytes",
            "1024",
        ];
        let answer = self.ask(name, "admin", &words.map(str::to_owned), START_LIMIT);
        assert_eq!(answer, Answer::Reply(Reply::Simple("OK".to_owned())));
    }

    fn directory(&self, name: Name) -> String {
        format!("{}/", self.directory.join(name.to_string()).display())
    }

    fn acl(&mut self, name: Name, edit: &dyn Fn(&mut Vec<String>)) {
        let file = self.servers[&name].directory.join("users.acl");
        let text = fs::read_to_string(&file).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        edit(&mut lines);
        fs::write(file, lines.join("\n") + "\n").unwrap();
    }

    fn wait(&mut self, span: Duration) {
        std::thread::sleep(span);
    }

    fn pause(&mut self) {
        self.wait(Duration::from_millis(20));
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }
}

/// A question on a connection, and how it went.
fn ask(stream: &mut UnixStream, words: &[String], patience: Duration) -> Answer {
    let deadline = Instant::now() + patience;
    if stream.write_all(&request(words)).is_err() {
        return Answer::Closed;
    }
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 1 << 16];
    loop {
        if let Some((reply, _)) = Reply::parse(&bytes) {
            return Answer::Reply(reply);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Answer::Silent;
        }
        stream.set_read_timeout(Some(left)).unwrap();
        match stream.read(&mut chunk) {
            Ok(0) => return Answer::Closed,
            Ok(length) => bytes.extend_from_slice(&chunk[..length]),
            Err(error) => {
                if matches!(error.kind(), WouldBlock | TimedOut) {
                    return Answer::Silent;
                } else if error.kind() != Interrupted {
                    return Answer::Closed;
                }
            }
        }
    }
}

/// What a server that ended at once says of it, without the moments.
fn reason(log: &str) -> String {
    let mut lines = Vec::new();
    for line in log.lines() {
        // A log line's own words come after its mark.
        match line.split_once(" # ") {
            Some((_, words)) => lines.push(words),
            None if line.contains(" * ") => {}
            None => lines.push(line),
        }
    }
    lines.join("\n")
}
