//! The stage with the simulated servers of `tests/sim/valkey`, in virtual time.
//! Never waits.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::time::Duration;

use super::player::Stage;
use super::reply::Answer;
use super::reply::Reply;
use super::script::BUS_PORT;
use super::script::Name;
use super::script::PORT;
use super::script::Settings;
use super::script::Signal;
use super::script::Switch;
use crate::model;
use crate::model::ConnectionId;
use crate::model::Dial;
use crate::model::Launch;
use crate::model::Millis;
use crate::model::Net;
use crate::model::Peer;
use crate::model::ProcessId;
use crate::model::Told;
use crate::servers;

/// Where the files of each would be.
const DIRECTORY: &str = "/data";

pub(crate) struct Modelled {
    net: Net,
    now: Millis,
    processes: BTreeMap<Name, Process>,
    /// One for each user of each server; none that has failed.
    connections: BTreeMap<(Name, String), ConnectionId>,
    /// What came for connections that nobody asked for at the time.
    told: Vec<(ConnectionId, Told)>,
    /// So that no two connections come from one place.
    clients: u32,
}

struct Process {
    id: ProcessId,
    launch: Launch,
    ip: IpAddr,
}

impl Modelled {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            net: Net::new(seed),
            now: 0,
            processes: BTreeMap::new(),
            connections: BTreeMap::new(),
            told: Vec::new(),
            clients: 0,
        }
    }

    fn advance(&mut self, to: Millis) {
        self.now = to;
        self.net.advance(to);
        self.told.extend(self.net.take_answers());
    }

    fn connection(&mut self, name: Name, user: &str) -> Result<ConnectionId, Answer> {
        let key = (name, user.to_owned());
        if let Some(connection) = self.connections.get(&key) {
            return Ok(*connection);
        }
        self.clients += 1;
        let from = match user {
            "operator" => Peer::Operator,
            _ => Peer::Client(self.clients),
        };
        let ip = self.processes[&name].ip;
        let connection = match self.net.connect(self.now, from, ip, PORT) {
            Dial::Open(connection) => connection,
            Dial::Refused => return Err(Answer::Refused),
            Dial::Silent => return Err(Answer::Silent),
        };
        if let Some((user, password)) = servers::login(user) {
            let words = ["AUTH", user, password].map(str::to_owned);
            let answer = self.answer(connection, &words, Duration::from_secs(20));
            if answer != Answer::Reply(Reply::Simple("OK".to_owned())) {
                return Err(answer);
            }
        }
        self.connections.insert(key, connection);
        Ok(connection)
    }

    fn answer(&mut self, connection: ConnectionId, words: &[String], patience: Duration) -> Answer {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.clone().into_bytes()).collect();
        match self.net.command(self.now, connection, &words) {
            model::Answer::Reply(value) => return reply(&value),
            model::Answer::Closed => return Answer::Closed,
            model::Answer::Later => {}
        }
        let deadline = self.now + millis(patience);
        loop {
            self.told.extend(self.net.take_answers());
            let own = |(to, _): &(ConnectionId, Told)| *to == connection;
            if let Some(at) = self.told.iter().position(own) {
                return match self.told.remove(at).1 {
                    Told::Reply(value) => reply(&value),
                    Told::Closed => Answer::Closed,
                };
            }
            if self.now >= deadline {
                return Answer::Silent;
            }
            let next = self.net.next_event().unwrap_or(deadline);
            self.advance(next.clamp(self.now + 1, deadline));
        }
    }

    fn forget_connections(&mut self, name: Name) {
        self.connections.retain(|(to, _), _| *to != name);
    }
}

impl Stage for Modelled {
    fn start(&mut self, name: Name, address: &str, settings: &Settings) -> Result<(), String> {
        let mut all = vec![("enable-debug-command", "yes")];
        all.extend(
            settings
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        );
        let ip: IpAddr = address.parse().unwrap();
        let address = SocketAddr::new(ip, PORT);
        let (conf, files) = servers::files(DIRECTORY.as_ref(), address, &all);
        let launch = Launch {
            ip,
            conf,
            files,
            nodes_conf: None,
        };
        let id = self.net.start(self.now, launch.clone())?;
        self.processes.insert(name, Process { id, launch, ip });
        Ok(())
    }

    fn again(&mut self, name: Name, empty: bool) -> Result<(), String> {
        self.forget_connections(name);
        let process = &self.processes[&name];
        let mut launch = process.launch.clone();
        if let Some(files) = self.net.files(process.id) {
            launch.files.clone_from(files);
        }
        launch.nodes_conf = if empty {
            None
        } else {
            self.net.nodes_conf(process.id)
        };
        let id = self.net.start(self.now, launch)?;
        self.processes.get_mut(&name).unwrap().id = id;
        Ok(())
    }

    fn signal(&mut self, name: Name, signal: Signal) {
        let process = self.processes[&name].id;
        let sent = match signal {
            Signal::Kill => model::Signal::Kill,
            Signal::Term => model::Signal::Term,
            Signal::Stop => model::Signal::Stop,
            Signal::Continue => model::Signal::Continue,
        };
        self.net.signal(self.now, process, sent);
        if signal == Signal::Kill {
            self.forget_connections(name);
        }
    }

    fn ended(&mut self, name: Name) -> Option<i32> {
        let exit = self.net.exit(self.processes[&name].id)?;
        self.forget_connections(name);
        Some(exit.code)
    }

    fn ask(&mut self, name: Name, user: &str, words: &[String], patience: Duration) -> Answer {
        let connection = match self.connection(name, user) {
            Ok(connection) => connection,
            Err(answer) => return answer,
        };
        let answer = self.answer(connection, words, patience);
        if !matches!(answer, Answer::Reply(_)) {
            self.net.hang_up(self.now, connection);
            self.connections.remove(&(name, user.to_owned()));
        }
        answer
    }

    fn cut(&mut self, from: &str, to: &str, ports: &[u16]) {
        for port in ports {
            let path = model::Path {
                from: Peer::Pod(from.parse().unwrap()),
                to: Peer::Pod(to.parse().unwrap()),
                port: match *port {
                    BUS_PORT => model::Port::Bus,
                    _ => model::Port::Client,
                },
            };
            self.net.cut(self.now, path);
        }
    }

    fn heal(&mut self) {
        self.net.heal_all(self.now);
    }

    fn switch(&mut self, name: Name, switch: Switch, on: bool) {
        let process = self.processes[&name].id;
        let switches = self.net.switches(self.now, process).unwrap();
        match switch {
            Switch::Held => switches.migration_held = on,
            Switch::Unclaimed => switches.migration_unclaimed = on,
        }
    }

    fn slow(&mut self, name: Name, span: Duration) {
        let process = self.processes[&name].id;
        let switches = self.net.switches(self.now, process).unwrap();
        switches.sync_extra = millis(span);
    }

    fn directory(&self, _name: Name) -> String {
        format!("{DIRECTORY}/")
    }

    fn acl(&mut self, name: Name, edit: &dyn Fn(&mut Vec<String>)) {
        let process = self.processes[&name].id;
        let files = self.net.files(process).unwrap();
        let text = files.get_mut(&format!("{DIRECTORY}/users.acl")).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        edit(&mut lines);
        *text = lines.join("\n") + "\n";
    }

    fn wait(&mut self, span: Duration) {
        self.advance(self.now + millis(span));
    }

    fn pause(&mut self) {
        self.advance(self.now + 50);
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.now)
    }
}

/// By its bytes: what the operator reads is what is compared.
fn reply(value: &model::Value) -> Answer {
    let (reply, _) = Reply::parse(&value.bytes()).unwrap();
    Answer::Reply(reply)
}

fn millis(span: Duration) -> Millis {
    u64::try_from(span.as_millis()).unwrap()
}
