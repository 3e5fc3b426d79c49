//! Everything outside the operators: one Kubernetes, all Valkey processes, and the record of both.
//! Never acts by itself: time and requests come from `clockwork` and the carriers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::checker::evidence::{Actor, Outcome, What};
use crate::events::Events;
use crate::kube::Kube;
use crate::kube::api::Answer;
use crate::kube::client::{self, Fate, Switch};
use crate::kube::target::Call;
use crate::ledger::Ledger;
use crate::plan::{Garbling, Millis};
use crate::pods::{Pods, Runtime};
use crate::record::Record;
use crate::truth;
use crate::valkey::{self, ConnectionId, Net, Peer, Told, Value};
use crate::wish::NAMESPACE;

/// Who sends commands by hand.
const PERSON: Peer = Peer::Client(1);
const PORT: u16 = 6379;

/// A world that several tasks of one thread use in turn.
pub(crate) type Shared = Arc<Mutex<World>>;

/// Takes a world in hand, brought up to now. Never keep it over an await.
pub(crate) fn take(world: &Shared) -> MutexGuard<'_, World> {
    let mut world = world.lock().expect("no panic with it in hand");
    world.catch_up();
    world
}

/// All that an operator stands on.
pub(crate) struct World {
    start: Instant,
    pub(crate) net: Net,
    pub(crate) kube: Kube,
    pub(crate) pods: Pods,
    pub(crate) record: Record,
    pub(crate) ledger: Ledger,
    /// What operators told.
    pub(crate) events: Events,
    /// What replies to operators are instead of what they should be.
    pub(crate) garbled: Option<Garbling>,
    /// By so many seconds the clocks of operators are ahead of the true time.
    pub(crate) operator_clock: Arc<AtomicI64>,
    /// How many requests were served in each millisecond. Each takes one, so these were under way at once.
    pub(crate) served: BTreeMap<Millis, u64>,
    lines: BTreeMap<ConnectionId, (Switch, UnboundedSender<Vec<u8>>)>,
}

impl World {
    /// A world that begins now.
    pub(crate) fn new(net: Net, kube: Kube, record: Record) -> Self {
        Self {
            start: Instant::now(),
            net,
            kube,
            pods: Pods::default(),
            record,
            ledger: Ledger::default(),
            events: Events::default(),
            garbled: None,
            operator_clock: Arc::default(),
            served: BTreeMap::new(),
            lines: BTreeMap::new(),
        }
    }

    /// Milliseconds since it began.
    pub(crate) fn now(&self) -> Millis {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(Millis::MAX)
    }

    /// Lets everything happen that is due.
    fn catch_up(&mut self) {
        let now = self.now();
        self.record.hear(now);
        self.net.advance(now);
        let mut runtime = Runtime {
            net: &mut self.net,
            pods: &mut self.pods,
        };
        self.kube.advance(now, &mut runtime);
        self.note_writes(None);
        self.pass_on();
    }

    /// Records what was written to the API since the last look.
    fn note_writes(&mut self, truth: Option<&Arc<truth::Snapshot>>) {
        for record in self.kube.api.drain_audit() {
            let by = truth::actor(record.caller);
            let truth = match by {
                Actor::Operator(_) => truth.cloned(),
                Actor::Saboteur | Actor::User | Actor::Machinery => None,
            };
            self.record
                .step(record.at, by, What::Write(truth::write(record)), truth);
        }
    }

    /// What is so of the processes of the cluster that is looked at, and of no other's; their tables are left out.
    pub(crate) fn own_truth(&mut self) -> valkey::Truth {
        let now = self.now();
        let mut truth = self.net.truth_without_tables(now);
        let containers = self.pods.containers.values();
        let own: BTreeSet<_> = containers
            .filter(|container| container.namespace == NAMESPACE)
            .filter_map(|container| container.process)
            .collect();
        truth.processes.retain(|process| own.contains(&process.id));
        truth
    }

    /// A person sends a command; whether it was done.
    pub(crate) fn by_hand(&mut self, ip: IpAddr, words: &[&str]) -> bool {
        let now = self.now();
        let valkey::Dial::Open(connection) = self.net.connect(now, PERSON, ip, PORT) else {
            return false;
        };
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let truth = truth::snapshot(self);
        let mut command = truth::command(&truth, ip, &words);
        let answer = self.net.command(now, connection, &words);
        self.net.hang_up(now, connection);
        command.outcome = outcome(&answer, Fate::Go);
        let done = command.outcome == Outcome::Done;
        self.record
            .step(now, Actor::User, What::Command(command), Some(truth));
        done
    }

    /// Dials a process for an operator.
    pub(crate) fn dial(&mut self, ip: IpAddr, port: u16) -> valkey::Dial {
        let now = self.now();
        self.net.connect(now, Peer::Operator, ip, port)
    }

    /// Where replies on a connection go.
    pub(crate) fn listen(
        &mut self,
        connection: ConnectionId,
        switch: Switch,
        replies: UnboundedSender<Vec<u8>>,
    ) {
        self.lines.insert(connection, (switch, replies));
    }

    /// The operator closed a connection.
    pub(crate) fn hang_up(&mut self, connection: ConnectionId) {
        self.lines.remove(&connection);
        let now = self.now();
        self.net.hang_up(now, connection);
    }

    /// An operator sends a command.
    pub(crate) fn say(
        &mut self,
        (operator, switch): (u32, &Switch),
        to: IpAddr,
        connection: ConnectionId,
        words: &[Vec<u8>],
    ) {
        let now = self.now();
        let mutating = mutates(words);
        let fate = if mutating {
            switch.count_write(now)
        } else {
            Fate::Go
        };
        if fate == Fate::Vanish {
            return;
        }
        let truth = mutating.then(|| truth::snapshot(self));
        let command = (truth.as_deref()).map(|truth| truth::command(truth, to, words));
        let answer = self.net.command(now, connection, words);
        if let Some(mut command) = command {
            command.outcome = outcome(&answer, fate);
            let by = Actor::Operator(operator);
            self.record.step(now, by, What::Command(command), truth);
        }
        match answer {
            valkey::Answer::Reply(reply) => self.reply(connection, &reply),
            valkey::Answer::Later => {}
            valkey::Answer::Closed => {
                self.lines.remove(&connection);
            }
        }
        if fate == Fate::Last {
            switch.turn_off();
        }
        self.pass_on();
    }

    /// Hands on what processes said or did since.
    fn pass_on(&mut self) {
        let now = self.now();
        for (connection, told) in self.net.take_answers() {
            self.ledger.hear(&mut self.net, now, connection, &told);
            match told {
                Told::Reply(reply) => self.reply(connection, &reply),
                Told::Closed => {
                    self.lines.remove(&connection);
                }
            }
        }
    }

    fn reply(&self, connection: ConnectionId, reply: &Value) {
        let Some((switch, replies)) = self.lines.get(&connection) else {
            return;
        };
        // A dead operator hears no more, and a living one may have dropped its end meanwhile.
        if switch.is_on() {
            let mut bytes = Vec::new();
            match self.garbled {
                Some(Garbling::Text) if matches!(reply, Value::Bulk(_) | Value::Verbatim(_)) => {
                    Value::bulk("of no sense").encode(&mut bytes);
                }
                None | Some(Garbling::Text) => reply.encode(&mut bytes),
                Some(Garbling::Refusal) => Value::error("ERR of no sense").encode(&mut bytes),
                Some(Garbling::Type) => Value::Array(vec![Value::Nil]).encode(&mut bytes),
                Some(Garbling::Bytes) => bytes.extend(b"?of no sense\r\n"),
            }
            replies.send(bytes).ok();
        }
    }
}

impl client::World for World {
    fn kube(&mut self) -> &mut Kube {
        &mut self.kube
    }

    fn advance(&mut self, _now: Millis) {
        self.catch_up();
    }

    fn next_event(&self) -> Option<Millis> {
        [self.kube.next_event(), self.net.next_event()]
            .into_iter()
            .flatten()
            .min()
    }

    fn request(&mut self, now: Millis, call: &Call) -> Answer {
        *self.served.entry(now).or_default() += 1;
        if call.tells() {
            return self.events.request(call).unwrap_or_else(|wrong| {
                self.record.break_rule("events", now, wrong);
                Answer::Nothing { broken_after: None }
            });
        }
        let truth = call.writes().then(|| truth::snapshot(self));
        let answer = self.kube.request(now, call);
        self.note_writes(truth.as_ref());
        answer
    }
}

fn outcome(answer: &valkey::Answer, fate: Fate) -> Outcome {
    match answer {
        valkey::Answer::Reply(Value::Error(words)) => Outcome::Refused(words.clone()),
        valkey::Answer::Reply(_) if fate != Fate::Mute => Outcome::Done,
        valkey::Answer::Reply(_) | valkey::Answer::Later => Outcome::Unanswered { done: true },
        valkey::Answer::Closed => Outcome::Unanswered { done: false },
    }
}

/// Whether a command changes more than the connection that it is sent on.
fn mutates(words: &[Vec<u8>]) -> bool {
    let word = |index: usize| {
        let word = words.get(index).map(Vec::as_slice).unwrap_or_default();
        String::from_utf8_lossy(word).to_ascii_uppercase()
    };
    match word(0).as_str() {
        "CLUSTER" => !matches!(
            word(1).as_str(),
            "MYID"
                | "MYSHARDID"
                | "INFO"
                | "NODES"
                | "SLOTS"
                | "SHARDS"
                | "LINKS"
                | "GETSLOTMIGRATIONS"
        ),
        "ACL" | "CONFIG" => true,
        _ => false,
    }
}
