//! A client that writes numbered keys wherever they belong, and knows which writes were acknowledged.
//! Never counts a write as lost while nobody serves its slot.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::checker::evidence;
use crate::valkey::{self, Answer, Dial, Net, Peer, Truth, Value};

/// Between two writes.
pub(crate) const BEAT: u64 = 500;

const PORT: u16 = 6379;

/// What was acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    tried: u64,
    acknowledged: BTreeMap<String, String>,
}

impl Ledger {
    /// Who made the cluster has it deleted: its data is nobody's any more.
    pub(crate) fn close(&mut self) {
        self.acknowledged.clear();
    }

    /// Writes one key, if somebody serves its slot.
    pub(crate) fn write(&mut self, net: &mut Net, now: u64) {
        self.tried += 1;
        let (key, value) = (format!("key-{}", self.tried), self.tried.to_string());
        let truth = net.truth(now);
        let Some(ip) = server(&truth, &key) else {
            return;
        };
        if ask(net, now, ip, &["SET", &key, &value]) == Some(Value::ok()) {
            self.acknowledged.insert(key, value);
        }
    }

    /// Reads all of it back.
    pub(crate) fn read(&self, net: &mut Net, now: u64) -> evidence::Ledger {
        let truth = net.truth(now);
        let mut lost = Vec::new();
        for (key, value) in &self.acknowledged {
            let Some(ip) = server(&truth, key) else {
                continue;
            };
            let found = ask(net, now, ip, &["GET", key]);
            let there = found.as_ref().and_then(Value::text) == Some(value);
            let absent = matches!(found, Some(Value::Nil | Value::Null));
            if absent || (!there && found.as_ref().is_some_and(|found| found.text().is_some())) {
                lost.push(evidence::Lost {
                    key: key.clone(),
                    slot: valkey::slot_of(key.as_bytes()),
                    waited: false,
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
fn server(truth: &Truth, key: &str) -> Option<IpAddr> {
    let slot = valkey::slot_of(key.as_bytes());
    let serves = |process: &valkey::ProcessTruth| {
        let mut slots = process.slots.iter();
        process.writable && slots.any(|(start, end)| (*start..=*end).contains(&slot))
    };
    let mut processes = truth.processes.iter();
    processes
        .find(|process| serves(process))
        .map(|process| process.ip)
}

fn ask(net: &mut Net, now: u64, ip: IpAddr, words: &[&str]) -> Option<Value> {
    let Dial::Open(connection) = net.connect(now, Peer::Client(0), ip, PORT) else {
        return None;
    };
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let answer = net.command(now, connection, &words);
    net.hang_up(now, connection);
    match answer {
        Answer::Reply(Value::Error(_)) | Answer::Later | Answer::Closed => None,
        Answer::Reply(reply) => Some(reply),
    }
}
