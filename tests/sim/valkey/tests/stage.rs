//! Clusters of modelled processes, each at its own address, and a client for each.
//! Never lets a failed question pass unseen.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::net::Ipv4Addr;

use super::super::Answer;
use super::super::ConnectionId;
use super::super::Dial;
use super::super::Launch;
use super::super::Millis;
use super::super::Net;
use super::super::NodesConf;
use super::super::Path;
use super::super::Peer;
use super::super::Port;
use super::super::ProcessId;
use super::super::ProcessTruth;
use super::super::Signal;
use super::super::Told;
use super::super::Value;

/// The settings of a pod that matter here.
pub(super) const CONF: &str = "port \"6379\"\ncluster-enabled \"yes\"\ncluster-node-timeout \"5000\"\n\
    save \"\"\nrepl-diskless-sync-delay \"0\"\ncluster-allow-replica-migration \"no\"\n\
    enable-debug-command \"yes\"\n";

/// Some processes in one world.
pub(super) struct Stage {
    pub(super) net: Net,
    pub(super) now: Millis,
    pub(super) nodes: Vec<ProcessId>,
    connections: BTreeMap<ProcessId, ConnectionId>,
}

impl Stage {
    pub(super) fn empty() -> Self {
        Self {
            net: Net::new(7),
            now: 0,
            nodes: Vec::new(),
            connections: BTreeMap::new(),
        }
    }

    /// Processes that do not know each other.
    pub(super) fn strangers(count: usize) -> Self {
        let mut stage = Self::empty();
        for _ in 0..count {
            stage.start(CONF);
        }
        stage
    }

    /// A formed cluster: the primaries first, then their replicas in the same order.
    pub(super) fn cluster(shards: usize, replicas: usize) -> Self {
        let mut stage = Self::strangers(shards * (1 + replicas));
        stage.form(shards);
        stage
    }

    fn form(&mut self, shards: usize) {
        for index in 1..self.nodes.len() {
            let ip = self.ip(index);
            self.good(0, &format!("CLUSTER MEET {ip} 6379"));
        }
        let all = self.nodes.len();
        self.all_meet();
        for index in 0..shards {
            let (start, end) = (index * 16384 / shards, (index + 1) * 16384 / shards - 1);
            self.good(index, &format!("CLUSTER ADDSLOTSRANGE {start} {end}"));
        }
        for index in shards..all {
            let primary = self.id(index % shards);
            self.good(index, &format!("CLUSTER REPLICATE {primary}"));
        }
        self.until(20_000, "all is well", |stage| {
            (0..all).all(|index| stage.field(index, "cluster_state") == "ok")
                && (shards..all).all(|index| stage.is_linked(index))
                && stage.epochs_differ(shards)
        });
    }

    /// Waits until everybody knows everybody, by their own ids.
    pub(super) fn all_meet(&mut self) {
        let all = self.nodes.len();
        self.until(5000, "all know all", |stage| {
            (0..all).all(|index| {
                let nodes = stage.text(index, "CLUSTER NODES");
                nodes.lines().count() == all && !nodes.contains("handshake")
            })
        });
    }

    fn epochs_differ(&mut self, shards: usize) -> bool {
        let truth = self.net.truth(self.now);
        let mut epochs: Vec<u64> = truth
            .processes
            .iter()
            .take(shards)
            .map(|process| process.config_epoch)
            .collect();
        epochs.sort_unstable();
        epochs.dedup();
        epochs.len() == shards
    }

    #[expect(
        clippy::unused_self,
        reason = "where it is asked for, the stage is at hand"
    )]
    pub(super) fn ip(&self, index: usize) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, u8::try_from(index + 1).unwrap()))
    }

    /// Starts one more.
    pub(super) fn start(&mut self, conf: &str) -> usize {
        let ip = self.ip(self.nodes.len());
        self.start_at(ip, conf, None)
    }

    pub(super) fn start_at(
        &mut self,
        ip: IpAddr,
        conf: &str,
        nodes_conf: Option<NodesConf>,
    ) -> usize {
        let launch = Launch {
            ip,
            conf: conf.to_owned(),
            files: BTreeMap::new(),
            nodes_conf,
        };
        let process = self.net.start(self.now, launch).unwrap();
        self.nodes.push(process);
        self.nodes.len() - 1
    }

    pub(super) fn run(&mut self, time: Millis) {
        self.now += time;
        self.net.advance(self.now);
    }

    /// Waits for something; how long it took.
    pub(super) fn until(
        &mut self,
        limit: Millis,
        what: &str,
        mut holds: impl FnMut(&mut Self) -> bool,
    ) -> Millis {
        let start = self.now;
        while !holds(self) {
            assert!(
                self.now < start + limit,
                "not within {limit} ms: {what}\n{}",
                self.views()
            );
            self.run(5);
        }
        self.now - start
    }

    /// What everybody who answers sees.
    pub(super) fn views(&mut self) -> String {
        let mut lines = Vec::new();
        for process in self.net.truth(self.now).processes {
            let (id, known) = (process.id, process.known.clone());
            let mut process = process;
            process.known.clear();
            lines.push(format!("{process:?}"));
            lines.extend(known.iter().map(|known| format!("    {known:?}")));
            let log = self.net.log(id).iter().rev().take(12).rev();
            lines.extend(log.map(|line| format!("    | {line}")));
        }
        lines.join("\n")
    }

    pub(super) fn truth(&mut self, index: usize) -> ProcessTruth {
        self.net.truth(self.now).processes[usize::try_from(self.nodes[index].0).unwrap()].clone()
    }

    pub(super) fn id(&mut self, index: usize) -> String {
        self.truth(index).node_id
    }

    pub(super) fn connection(&mut self, index: usize) -> ConnectionId {
        let process = self.nodes[index];
        if let Some(connection) = self.connections.get(&process) {
            return *connection;
        }
        let ip = self.truth(index).ip;
        let Dial::Open(connection) = self.net.connect(self.now, Peer::Operator, ip, 6379) else {
            panic!("nobody at {ip}");
        };
        self.connections.insert(process, connection);
        connection
    }

    /// Sends words; what comes at once.
    pub(super) fn send(&mut self, index: usize, words: &str) -> Answer {
        let connection = self.connection(index);
        self.send_on(connection, words)
    }

    pub(super) fn send_on(&mut self, connection: ConnectionId, words: &str) -> Answer {
        let args: Vec<Vec<u8>> = words
            .split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect();
        self.net.command(self.now, connection, &args)
    }

    /// Sends words, whose reply has to come at once.
    pub(super) fn ask(&mut self, index: usize, words: &str) -> Value {
        let answer = self.send(index, words);
        let Answer::Reply(value) = answer else {
            panic!("{words}: {answer:?}");
        };
        value
    }

    pub(super) fn text(&mut self, index: usize, words: &str) -> String {
        self.ask(index, words).text().unwrap().to_owned()
    }

    /// Sends words that have to be answered with OK.
    pub(super) fn good(&mut self, index: usize, words: &str) {
        assert_eq!(self.ask(index, words), Value::ok(), "{words}");
    }

    /// A line of CLUSTER INFO.
    pub(super) fn field(&mut self, index: usize, name: &str) -> String {
        let info = self.text(index, "CLUSTER INFO");
        value(&info, name)
    }

    /// A line of INFO replication.
    pub(super) fn repl(&mut self, index: usize, name: &str) -> String {
        let info = self.text(index, "INFO replication");
        value(&info, name)
    }

    pub(super) fn is_linked(&mut self, index: usize) -> bool {
        let info = self.text(index, "INFO replication");
        info.contains("master_link_status:up")
    }

    /// Whether a process is a primary with slots.
    pub(super) fn owns(&mut self, index: usize) -> bool {
        !self.truth(index).slots.is_empty()
    }

    pub(super) fn signal(&mut self, index: usize, signal: Signal) {
        let process = self.nodes[index];
        self.net.signal(self.now, process, signal);
    }

    pub(super) fn answers(&mut self) -> Vec<(ConnectionId, Told)> {
        self.net.take_answers()
    }

    /// Cuts, both ways and on both ports, between two of them.
    pub(super) fn part(&mut self, a: usize, b: usize) {
        let (a, b) = (Peer::Pod(self.ip(a)), Peer::Pod(self.ip(b)));
        for port in [Port::Client, Port::Bus] {
            self.net.cut(
                self.now,
                Path {
                    from: a,
                    to: b,
                    port,
                },
            );
            self.net.cut(
                self.now,
                Path {
                    from: b,
                    to: a,
                    port,
                },
            );
        }
    }

    /// Writes keys through whoever owns them; how many.
    pub(super) fn fill(&mut self, primaries: &[usize], count: usize) {
        for number in 0..count {
            let words = format!("SET key:{number} value:{number}");
            let taken = primaries
                .iter()
                .any(|index| self.ask(*index, &words) == Value::ok());
            assert!(taken, "{words}");
        }
    }
}

/// The value of a `field:value` line.
pub(super) fn value(text: &str, name: &str) -> String {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .unwrap_or_else(|| panic!("no {name} in {text}"))
        .to_owned()
}
