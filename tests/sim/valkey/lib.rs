//! Valkey 9.1 processes as a cluster sees them: bus, elections, replication, slots, keys.
//! Never opens a socket, never looks at a clock: time is what it is told.
//!
//! How to use it: `Net::start` a process for each container, `Net::connect` to it, `Net::command` on the
//! connection. Whatever is told a time first lives through all that was due before it. What is not
//! answered at once (a stopped process, a cut path, a paused write, WAIT) is `Answer::Later`: its answer
//! comes, or never comes, by `Net::take_answers`.

#![allow(dead_code, reason = "the talks need less of it than the simulator")]

mod acl;
mod bus;
mod client;
mod cluster;
mod commands;
mod config;
mod cron;
mod data;
mod directives;
mod disk;
mod execute;
mod failover;
mod id;
mod info;
mod message;
mod migration;
mod network;
mod number;
mod ownership;
mod process;
mod replication;
pub(crate) mod resp;
mod slots;
mod table;
mod truth;

use std::collections::BTreeMap;
use std::net::IpAddr;

use client::Client;
use network::Event;
use network::Network;
use process::Process;
pub(crate) use resp::Value;

/// Milliseconds since the simulation's start.
pub(crate) type Millis = u64;

/// What the clock of every unshifted machine reads at the simulation's start, in milliseconds since 1970.
pub(crate) const CLOCK_AT_START: i64 = 1_795_958_739_000;

/// The slot that a key belongs to.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    slots::of_key(key)
}

/// One run of one program. A program that is started again is another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProcessId(pub(crate) u32);

/// One TCP connection to a client port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// Where packets come from or go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    /// The operator's pod.
    Operator,
    /// A client outside the cluster, by a number of the caller's choice.
    Client(u32),
    /// The pod at an address, whatever runs in it now or later.
    Pod(IpAddr),
}

/// Which of a pod's two ports a connection was made to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Port {
    /// 6379: commands, replication, slot migration.
    Client,
    /// 16379: the cluster bus.
    Bus,
}

/// One direction between two ends, of the packets that belong to connections to one kind of port. The
/// replies of a process travel from its pod to the dialer, on the same kind of port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Path {
    /// Whose packets.
    pub(crate) from: Peer,
    /// To whom.
    pub(crate) to: Peer,
    /// Of which connections.
    pub(crate) port: Port,
}

/// A process as the kubelet starts it.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// The pod's address.
    pub(crate) ip: IpAddr,
    /// The text of its `valkey.conf`.
    pub(crate) conf: String,
    /// The mounted files by absolute path: what `include` and `aclfile` name.
    pub(crate) files: BTreeMap<String, String>,
    /// What a former process left on the same volume; none on a fresh one.
    pub(crate) nodes_conf: Option<NodesConf>,
}

/// The cluster's memory on a volume: the file that `cluster-config-file` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodesConf {
    /// Its text, in Valkey's own form.
    pub(crate) text: String,
}

/// What a kernel does to a process on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGTERM: an orderly end, by the settings of `shutdown-on-sigterm`.
    Term,
    /// SIGKILL, and the end of a machine: the kernel closes its connections where the paths are open.
    Kill,
    /// SIGSTOP: the process stands still, its kernel still accepts connections and bytes.
    Stop,
    /// SIGCONT: it goes on, and sees that time has jumped.
    Continue,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    /// When.
    pub(crate) at: Millis,
    /// The exit code: 0, 1, or 128 and the signal's number.
    pub(crate) code: i32,
    /// The last lines of its log, oldest first.
    pub(crate) log: Vec<String>,
}

/// What comes of dialing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dial {
    /// Somebody's kernel accepted.
    Open(ConnectionId),
    /// A pod is there and nothing listens at that port.
    Refused,
    /// No answer, not even a refusal: no such pod, or the path is cut in either direction.
    Silent,
}

/// What comes of a command.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// The reply, in the form of the connection's protocol.
    Reply(Value),
    /// Nothing yet: look at `Net::take_answers` after each `Net::advance`. It may never come.
    Later,
    /// The connection is closed: nothing was sent.
    Closed,
}

/// What became of an earlier `Answer::Later`, or of a connection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    /// The reply to the oldest unanswered command of the connection.
    Reply(Value),
    /// The process, or its kernel, closed the connection; unanswered commands stay unanswered.
    Closed,
}

/// Faults of one process, and what `DEBUG` switches in a real one. All off by default.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own, and any may be on with any"
)]
pub(crate) struct Switches {
    /// Its wall clock is ahead by so many milliseconds (behind, if negative).
    pub(crate) clock_shift: i64,
    /// Syncs that it receives take so much longer than their size asks for.
    pub(crate) sync_extra: Millis,
    /// Syncs that it receives begin and never end.
    pub(crate) sync_endless: bool,
    /// `DEBUG SLOTMIGRATION PREVENT-PAUSE 1`: its exports stay in `waiting-to-pause`.
    pub(crate) migration_held: bool,
    /// `DEBUG SLOTMIGRATION PREVENT-FAILOVER 1`: its imports never claim.
    pub(crate) migration_unclaimed: bool,
    /// Its volume takes no writes: saves fail, and with save points that breaks writes.
    pub(crate) disk_full: bool,
    /// The kernel kills it at the next write.
    pub(crate) out_of_memory: bool,
    /// The link to its primary breaks at once whenever it is made.
    pub(crate) replication_broken: bool,
}

/// Everything that is so, whoever can see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Truth {
    /// Every process that was ever started, in order.
    pub(crate) processes: Vec<ProcessTruth>,
}

/// How a process fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It runs.
    Running,
    /// It was sent SIGSTOP.
    Stopped,
    /// It ended.
    Exited,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessTruth {
    /// Which.
    pub(crate) id: ProcessId,
    /// Its pod's address.
    pub(crate) ip: IpAddr,
    /// Whether it lives.
    pub(crate) life: Life,
    /// Its own node id, 40 hexadecimal digits. What follows is what it held last, if it exited.
    pub(crate) node_id: String,
    /// Its shard id.
    pub(crate) shard_id: String,
    /// Its primary's node id; none for a primary.
    pub(crate) replicates: Option<String>,
    /// The slots that it owns in its own view, as inclusive ranges. Empty for a replica.
    pub(crate) slots: Vec<(u16, u16)>,
    /// Whether it would take a write for those slots now: it runs, is a primary, its cluster state is ok,
    /// and it has not paused its clients to hand slots over.
    pub(crate) writable: bool,
    /// `cluster_state` in its own view.
    pub(crate) cluster_ok: bool,
    /// Its own epoch: of a replica, its primary's.
    pub(crate) config_epoch: u64,
    /// The greatest epoch that it has heard of.
    pub(crate) current_epoch: u64,
    /// Its table, itself left out.
    pub(crate) known: Vec<KnownTruth>,
    /// Its replication history and place in it.
    pub(crate) replication: ReplicationTruth,
    /// How many keys it holds in each slot that has any.
    pub(crate) keys: BTreeMap<u16, u32>,
    /// Slot migrations that it takes part in and that have not ended: each as the ranges of its slots.
    pub(crate) migrating: Vec<Vec<(u16, u16)>>,
}

/// A row of a process's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownTruth {
    /// The node id that it believes in.
    pub(crate) id: String,
    /// Where it believes it to be.
    pub(crate) ip: Option<IpAddr>,
    /// Its flags, in the words of CLUSTER NODES.
    pub(crate) flags: String,
    /// The primary that it believes the node to replicate.
    pub(crate) replicates: Option<String>,
    /// The slots that it believes the node to own.
    pub(crate) slots: Vec<(u16, u16)>,
}

/// Where a process is in which history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplicationTruth {
    /// The history's name, `master_replid`.
    pub(crate) history: String,
    /// How far it is.
    pub(crate) offset: u64,
    /// A replica's link to its primary: whether it is up. True for a primary.
    pub(crate) linked: bool,
    /// Whether it holds a whole copy of its shard's data as of `offset`: a primary, or a replica that once
    /// finished its sync.
    pub(crate) synced: bool,
    /// The replicas that are attached to it and online.
    pub(crate) replicas: Vec<ProcessId>,
}

/// All processes of one world, their links and their clients.
#[derive(Debug)]
pub(crate) struct Net {
    network: Network,
    processes: Vec<Process>,
}

impl Net {
    /// An empty world. All that is random in it comes from the seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            network: Network::new(seed),
            processes: Vec::new(),
        }
    }

    /// Lives through all that is due until then, that moment included. Time never goes back: an earlier
    /// moment is now.
    pub(crate) fn advance(&mut self, now: Millis) {
        while let Some(event) = self.network.pop(now) {
            self.dispatch(event);
        }
        self.network.now = self.network.now.max(now);
    }

    /// When something is due next. Who waits for no answer needs not come by: the next call with a time
    /// catches up.
    pub(crate) fn next_event(&self) -> Option<Millis> {
        self.network.next_event()
    }

    fn dispatch(&mut self, event: Event) {
        let (process, event) = match event {
            Event::Arrive(socket, cargo) => match self.network.deliver(socket, cargo) {
                Some((process, cargo)) => (process, Event::Arrive(socket, cargo)),
                None => return,
            },
            Event::Cron(process)
            | Event::Wake(process, _)
            | Event::Command(process, ..)
            | Event::HangUp(process, _) => (process, event),
        };
        if let Some(process) = process_mut(&mut self.processes, process) {
            process.event(&mut self.network, event);
        }
    }

    /// Starts a process. If it ends at once, by its settings or files, what it says on stderr.
    pub(crate) fn start(&mut self, now: Millis, launch: Launch) -> Result<ProcessId, String> {
        self.advance(now);
        let id = ProcessId(u32::try_from(self.processes.len()).unwrap_or(u32::MAX));
        let process = Process::start(&mut self.network, id, launch)?;
        self.processes.push(process);
        Ok(id)
    }

    /// Its mounted files, to be changed as the kubelet would.
    pub(crate) fn files(&mut self, process: ProcessId) -> Option<&mut BTreeMap<String, String>> {
        process_mut(&mut self.processes, process).map(|process| &mut process.files)
    }

    /// What its volume holds for a process that is started on it after this one's end.
    pub(crate) fn nodes_conf(&self, process: ProcessId) -> Option<NodesConf> {
        self.process(process)
            .map(|process| disk::write(&process.table))
    }

    /// Sends a signal. Nothing happens to one that has exited.
    pub(crate) fn signal(&mut self, now: Millis, process: ProcessId, signal: Signal) {
        self.advance(now);
        if let Some(process) = process_mut(&mut self.processes, process) {
            process.signal(&mut self.network, signal);
        }
    }

    /// How it ended, if it did.
    pub(crate) fn exit(&self, process: ProcessId) -> Option<Exit> {
        self.process(process)?.exit.clone()
    }

    /// Its log so far, oldest line first: the lines that people look for, not all that Valkey writes.
    pub(crate) fn log(&self, process: ProcessId) -> &[String] {
        self.process(process).map_or(&[], |process| &process.log)
    }

    /// The pod is gone with its address: who dials it is not even refused, until a process starts there
    /// again. A process that still runs in it is killed.
    pub(crate) fn withdraw(&mut self, now: Millis, ip: IpAddr) {
        self.advance(now);
        let process = self.network.listener(ip).and_then(|(process, _)| process);
        if let Some(process) = process.and_then(|id| process_mut(&mut self.processes, id)) {
            process.signal(&mut self.network, Signal::Kill);
        }
        self.network.withdraw(ip);
    }

    /// Dials. A stopped process's kernel accepts.
    pub(crate) fn connect(&mut self, now: Millis, from: Peer, ip: IpAddr, port: u16) -> Dial {
        self.advance(now);
        let Some((process, listens)) = self.network.listener(ip) else {
            return Dial::Silent;
        };
        if self.network.is_whole(from, ip) != (true, true) {
            return Dial::Silent;
        }
        let Some(id) = process.filter(|_| listens == port) else {
            return Dial::Refused;
        };
        let Some(process) = process_mut(&mut self.processes, id) else {
            return Dial::Refused;
        };
        let connection = self.network.wire(from, ip, id);
        let user = process.acl.default_without_password();
        process.clients.insert(connection, Client::new(user));
        Dial::Open(connection)
    }

    /// Sends a command. Commands of one connection are answered in their order.
    pub(crate) fn command(
        &mut self,
        now: Millis,
        connection: ConnectionId,
        args: &[Vec<u8>],
    ) -> Answer {
        self.advance(now);
        let Some(wire) = self.network.wires.get(&connection) else {
            return Answer::Closed;
        };
        let id = wire.process;
        let whole = self.network.is_whole(wire.from, wire.ip).0;
        let event = Event::Command(id, connection, args.to_vec());
        if !whole {
            self.network.hold(event);
            return Answer::Later;
        }
        let Some(process) = process_mut(&mut self.processes, id) else {
            return Answer::Closed;
        };
        let client = process.clients.get(&connection);
        let first = client.is_some_and(|client| !client.is_waiting());
        process.event(&mut self.network, event);
        match self.network.take_answer(connection).filter(|_| first) {
            Some(value) => Answer::Reply(value),
            None => Answer::Later,
        }
    }

    /// What came since the last call, in order: late replies, and connections that were closed.
    pub(crate) fn take_answers(&mut self) -> Vec<(ConnectionId, Told)> {
        self.network.take_answers()
    }

    /// The caller closes a connection.
    pub(crate) fn hang_up(&mut self, now: Millis, connection: ConnectionId) {
        self.advance(now);
        if let Some(wire) = self.network.wires.remove(&connection)
            && let Some(process) = process_mut(&mut self.processes, wire.process)
        {
            let event = Event::HangUp(wire.process, connection);
            process.event(&mut self.network, event);
        }
    }

    /// Packets on this path vanish from now on.
    pub(crate) fn cut(&mut self, now: Millis, path: Path) {
        self.advance(now);
        self.network.cut(path);
    }

    /// They travel again.
    pub(crate) fn heal(&mut self, now: Millis, path: Path) {
        self.advance(now);
        self.network.heal(Some(&path));
    }

    /// The paths on which packets vanish.
    pub(crate) fn cuts(&self) -> impl Iterator<Item = &Path> {
        self.network.cuts()
    }

    /// Every path is whole again.
    pub(crate) fn heal_all(&mut self, now: Millis) {
        self.advance(now);
        self.network.heal(None);
    }

    /// How long a message takes on the bus and in replication between any two processes, from now on.
    pub(crate) fn set_delay(&mut self, now: Millis, delay: Millis) {
        self.advance(now);
        self.network.delay = delay;
    }

    /// One of so many messages is lost and sent again, from now on; none with 0.
    pub(crate) fn set_loss(&mut self, now: Millis, one_in: u64) {
        self.advance(now);
        self.network.loss = one_in;
    }

    /// Cuts a replica's link to its primary, once.
    pub(crate) fn break_replication(&mut self, now: Millis, replica: ProcessId) {
        self.advance(now);
        if let Some(process) = process_mut(&mut self.processes, replica) {
            process.upstream_closed(&mut self.network, false);
        }
    }

    /// A process's fault switches.
    pub(crate) fn switches(&mut self, now: Millis, process: ProcessId) -> Option<&mut Switches> {
        self.advance(now);
        process_mut(&mut self.processes, process).map(|process| &mut process.switches)
    }

    /// What is so now.
    pub(crate) fn truth(&mut self, now: Millis) -> Truth {
        self.advance(now);
        truth::truth(&self.network, &self.processes)
    }

    /// The same, but for the tables: most of what is so, and cheap.
    pub(crate) fn truth_without_tables(&mut self, now: Millis) -> Truth {
        self.advance(now);
        truth::without_tables(&self.network, &self.processes)
    }

    /// How a process fares now.
    pub(crate) fn life(&mut self, now: Millis, process: ProcessId) -> Option<Life> {
        self.advance(now);
        self.process(process).map(|process| process.life)
    }

    fn process(&self, id: ProcessId) -> Option<&Process> {
        self.processes.get(usize::try_from(id.0).ok()?)
    }
}

fn process_mut(processes: &mut [Process], id: ProcessId) -> Option<&mut Process> {
    processes.get_mut(usize::try_from(id.0).ok()?)
}

#[cfg(test)]
mod tests;
