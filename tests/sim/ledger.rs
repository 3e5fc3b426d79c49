//! A client that writes numbered keys wherever they belong, and knows which writes were acknowledged.
//! Never counts a write as lost while nobody serves its slot.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::checker::evidence;
use crate::valkey::{
    self, Answer, ConnectionId, Dial, Life, Net, Peer, ProcessTruth, Told, Truth, Value,
};

/// Between two writes.
pub(crate) const BEAT: u64 = 500;

/// One write in so many is followed by a WAIT for every replica.
const WAITED: u64 = 3;
/// How long it waits for them, in milliseconds: it is answered before the next write.
const PATIENCE: &str = "400";

const PORT: u16 = 6379;
const CLIENT: Peer = Peer::Client(0);

/// What was acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    tried: u64,
    acknowledged: BTreeMap<String, String>,
    /// The keys that every replica of their shard had.
    waited: BTreeSet<String>,
    /// WAITs that are not answered yet: for which key, and for how many replicas.
    waiting: BTreeMap<ConnectionId, (String, i64)>,
}

impl Ledger {
    /// Who made the cluster has it deleted: its data is nobody's any more.
    pub(crate) fn close(&mut self) {
        self.acknowledged.clear();
        self.waited.clear();
        self.waiting.clear();
    }

    /// Writes one key, if somebody serves its slot.
    pub(crate) fn write(&mut self, net: &mut Net, now: u64, truth: &Truth) {
        let wait = self.tried.is_multiple_of(WAITED);
        self.put((net, now), truth, &self.tried.to_string(), wait);
    }

    /// Writes so many keys with values of 4 KiB.
    pub(crate) fn fill(&mut self, net: &mut Net, now: u64, truth: &Truth, values: u8) {
        for _ in 0..values {
            self.put((net, now), truth, &"x".repeat(4096), false);
        }
    }

    fn put(&mut self, (net, now): (&mut Net, u64), truth: &Truth, value: &str, wait: bool) {
        self.tried += 1;
        let key = format!("key-{}", self.tried);
        let Some(server) = server(truth, &key) else {
            return;
        };
        let Dial::Open(connection) = net.connect(now, CLIENT, server.ip, PORT) else {
            return;
        };
        if said(net, now, connection, &["SET", &key, value]) == Answer::Reply(Value::ok()) {
            self.acknowledged.insert(key.clone(), value.to_owned());
            let replicas = replicas(truth, server);
            if wait && replicas > 0 {
                self.waiting.insert(connection, (key, replicas));
                let wait = ["WAIT", &replicas.to_string(), PATIENCE];
                match said(net, now, connection, &wait) {
                    Answer::Reply(reply) => self.hear(net, now, connection, &Told::Reply(reply)),
                    Answer::Later => {}
                    Answer::Closed => self.hear(net, now, connection, &Told::Closed),
                }
                return;
            }
        }
        net.hang_up(now, connection);
    }

    /// Something came on a connection: perhaps the answer to a WAIT.
    pub(crate) fn hear(&mut self, net: &mut Net, now: u64, connection: ConnectionId, told: &Told) {
        let Some((key, replicas)) = self.waiting.remove(&connection) else {
            return;
        };
        if matches!(told, Told::Reply(Value::Integer(reached)) if *reached >= replicas) {
            self.waited.insert(key);
        }
        net.hang_up(now, connection);
    }

    /// Reads all of it back.
    pub(crate) fn read(&self, net: &mut Net, now: u64, truth: &Truth) -> evidence::Ledger {
        let mut lost = Vec::new();
        for (key, value) in &self.acknowledged {
            let Some(server) = server(truth, key) else {
                continue;
            };
            let found = ask(net, now, server.ip, &["GET", key]);
            let there = found.as_ref().and_then(Value::text) == Some(value);
            let absent = matches!(found, Some(Value::Nil | Value::Null));
            if absent || (!there && found.as_ref().is_some_and(|found| found.text().is_some())) {
                lost.push(evidence::Lost {
                    key: key.clone(),
                    slot: valkey::slot_of(key.as_bytes()),
                    waited: self.waited.contains(key),
                });
            }
        }
        evidence::Ledger {
            acknowledged: self.acknowledged.len() as u64,
            lost,
        }
    }
}

/// Who takes writes for a key.
fn server<'a>(truth: &'a Truth, key: &str) -> Option<&'a ProcessTruth> {
    let slot = valkey::slot_of(key.as_bytes());
    let serves = |process: &&ProcessTruth| {
        let mut slots = process.slots.iter();
        process.writable && slots.any(|(start, end)| (*start..=*end).contains(&slot))
    };
    truth.processes.iter().find(serves)
}

/// How many processes are replicas of one, whether it reaches them or not.
fn replicas(truth: &Truth, primary: &ProcessTruth) -> i64 {
    let of = |process: &&ProcessTruth| {
        process.life != Life::Exited && process.replicates.as_ref() == Some(&primary.node_id)
    };
    i64::try_from(truth.processes.iter().filter(of).count()).unwrap_or(i64::MAX)
}

fn ask(net: &mut Net, now: u64, ip: IpAddr, words: &[&str]) -> Option<Value> {
    let Dial::Open(connection) = net.connect(now, CLIENT, ip, PORT) else {
        return None;
    };
    let answer = said(net, now, connection, words);
    net.hang_up(now, connection);
    match answer {
        Answer::Reply(Value::Error(_)) | Answer::Later | Answer::Closed => None,
        Answer::Reply(reply) => Some(reply),
    }
}

fn said(net: &mut Net, now: u64, connection: ConnectionId, words: &[&str]) -> Answer {
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    net.command(now, connection, &words)
}
