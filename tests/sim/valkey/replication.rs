//! A replica's link to its primary, and a primary's links to its replicas (`replication.c`).
//! Never loses the order of the stream; what was not acknowledged may be lost with its process.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use super::Millis;
use super::Port;
use super::Value;
use super::data::Data;
use super::id::Id;
use super::migration::Tracked;
use super::network::Cargo;
use super::network::Network;
use super::network::Socket;
use super::network::Wake;
use super::process::Process;
use super::process::Use;
use super::process::todo;

/// How much of a snapshot is written, sent or loaded in a millisecond.
const BYTES_A_MILLISECOND: u64 = 100_000;

/// To fork and to open a file.
const SNAPSHOT_OVERHEAD: Millis = 10;

const PING_SIZE: u64 = 14;
const SELECT_SIZE: u64 = 23;
const GETACK_SIZE: u64 = 37;

/// What is replicated.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Ping,
    /// What a slot migration's source says to the target, which passes all of it on.
    Note,
    Select,
    /// `REPLCONF GETACK *`
    GetAck,
    Set(Vec<u8>, Vec<u8>),
    Delete(Vec<Vec<u8>>),
    FlushAll,
    /// `CLUSTER FAILOVER FORCE REPLICAID <id>`
    Failover(Id),
    /// `CLUSTER SYNCSLOTS ESTABLISH`
    ImportBegins(Tracked),
    /// `CLUSTER SYNCSLOTS FINISH`
    ImportEnds(Id, bool, String),
}

impl Op {
    /// The keys that it writes.
    pub(super) fn keys(&self) -> &[Vec<u8>] {
        match self {
            Self::Set(key, _) => std::slice::from_ref(key),
            Self::Delete(keys) => keys,
            Self::Ping
            | Self::Note
            | Self::Select
            | Self::GetAck
            | Self::FlushAll
            | Self::Failover(_)
            | Self::ImportBegins(_)
            | Self::ImportEnds(..) => &[],
        }
    }
}

/// A piece of the stream and where it ends.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    end: u64,
    size: u64,
    op: Op,
}

/// Between a replica and its primary, in both directions.
#[derive(Debug)]
pub(super) enum SyncMessage {
    /// To the primary: the whole handshake.
    Psync(Psync),
    /// To the primary: how far the replica is.
    Ack(u64),
    /// To the replica: the handshake is refused.
    Refused(String),
    /// To the replica: go on.
    Continue(Id),
    /// To the replica: a snapshot of this history and place will come.
    FullResync(Id, u64),
    Snapshot(Snapshot),
    /// To the replica: still preparing.
    Newline,
    Stream(Arc<Entry>),
}

/// A replica's handshake.
#[derive(Debug)]
pub(super) struct Psync {
    username: String,
    password: Option<String>,
    node: Id,
    port: u16,
    from: Option<(Id, u64)>,
    slow: Millis,
    endless: bool,
}

#[derive(Debug)]
pub(super) struct Snapshot {
    data: Data,
    imports: Vec<Tracked>,
}

/// Where a replica is on its way to its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    None,
    Connect,
    Connecting,
    Handshake,
    Transfer,
    Connected,
}

#[derive(Debug)]
struct Backlog {
    /// The offset of its first byte.
    first: u64,
    entries: VecDeque<Arc<Entry>>,
    size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    WaitStart,
    WaitEnd,
    Online,
}

/// A replica as its primary knows it.
#[derive(Debug)]
struct Attached {
    stage: Stage,
    /// Whether the stream flows: after its first acknowledgement.
    started: bool,
    node: Id,
    ip: IpAddr,
    port: u16,
    acked: u64,
    ack_second: i64,
    asked_second: i64,
    initial: u64,
    slow: Millis,
    endless: bool,
}

/// What a fork writes.
#[derive(Debug)]
pub(super) enum Child {
    Sync { number: u64, data: Data },
    Job { number: u64, name: Id },
}

/// One process's place in the history of its shard.
#[derive(Debug)]
pub(super) struct Replication {
    pub(super) history: Id,
    history2: Id,
    second_offset: i64,
    pub(super) offset: u64,
    backlog: Option<Backlog>,
    target: Option<(IpAddr, u16)>,
    state: State,
    socket: Option<Socket>,
    /// The history and place of the last primary, to go on from.
    cached: Option<(Id, u64)>,
    promised: Option<(Id, u64)>,
    loading: Option<(u64, Snapshot)>,
    last_interaction: i64,
    down_since: i64,
    transfer_io: i64,
    ever_synced: bool,
    attached: BTreeMap<Socket, Attached>,
    pub(super) child: Option<Child>,
    children: u64,
    selected: bool,
    loops: i64,
    ack_wanted: bool,
}

impl Replication {
    pub(super) fn new(history: Id) -> Self {
        Self {
            history,
            history2: Id::ZERO,
            second_offset: -1,
            offset: 0,
            backlog: None,
            target: None,
            state: State::None,
            socket: None,
            cached: None,
            promised: None,
            loading: None,
            last_interaction: 0,
            down_since: 0,
            transfer_io: 0,
            ever_synced: false,
            attached: BTreeMap::new(),
            child: None,
            children: 0,
            selected: false,
            loops: 0,
            ack_wanted: false,
        }
    }

    /// What the bus tells (`replicationGetReplicaOffset`).
    pub(super) fn own_offset(&self) -> u64 {
        match (self.target, self.state) {
            (None, _) | (Some(_), State::Connected) => self.offset,
            (Some(_), _) => self.cached.map_or(0, |(_, offset)| offset),
        }
    }

    pub(super) fn has_target(&self) -> bool {
        self.target.is_some()
    }

    pub(super) fn target(&self) -> Option<(IpAddr, u16)> {
        self.target
    }

    pub(super) fn is_linked(&self) -> bool {
        self.state == State::Connected
    }

    pub(super) fn is_synced(&self) -> bool {
        self.target.is_none() || self.ever_synced
    }

    pub(super) fn is_loading(&self) -> bool {
        self.loading.is_some()
    }

    /// The second at which its primary was last heard; zero if never.
    pub(super) fn last_heard(&self, _second: i64) -> i64 {
        if self.state == State::Connected {
            self.last_interaction
        } else {
            self.down_since
        }
    }

    /// The replicas in the words of ROLE.
    pub(super) fn role_lines(&self) -> Vec<Value> {
        let online = |replica: &&Attached| replica.stage == Stage::Online;
        let line = |replica: &Attached| {
            let words = [
                replica.ip.to_string(),
                replica.port.to_string(),
                replica.acked.to_string(),
            ];
            Value::Array(words.map(Value::bulk).into())
        };
        self.attached.values().filter(online).map(line).collect()
    }

    /// The link's state in the words of ROLE.
    pub(super) fn state_word(&self) -> &'static str {
        match self.state {
            State::None => "none",
            State::Connect => "connect",
            State::Connecting => "connecting",
            State::Handshake => "handshake",
            State::Transfer => "sync",
            State::Connected => "connected",
        }
    }

    pub(super) fn replica_count(&self) -> usize {
        self.attached.len()
    }

    /// How many online replicas have acknowledged so much.
    pub(super) fn acked(&self, offset: u64) -> usize {
        self.attached
            .values()
            .filter(|replica| replica.stage == Stage::Online && replica.acked >= offset)
            .count()
    }

    pub(super) fn online(&self) -> impl Iterator<Item = Id> {
        self.attached
            .values()
            .filter(|replica| replica.stage == Stage::Online)
            .map(|replica| replica.node)
    }

    /// Those that count for `min-replicas-to-write`.
    pub(super) fn good(&self, second: i64, max_lag: i64) -> i64 {
        let good = self.attached.values().filter(|replica| {
            replica.stage == Stage::Online && second - replica.ack_second <= max_lag
        });
        i64::try_from(good.count()).unwrap_or(0)
    }

    /// `isReadyToShutdown`
    pub(super) fn all_caught_up(&self) -> bool {
        self.attached
            .values()
            .all(|replica| replica.acked == self.offset)
    }

    /// A replica that has everything, to hand over to.
    pub(super) fn best_replica(&self) -> Option<Id> {
        let mut best = self
            .attached
            .values()
            .filter(|replica| replica.stage == Stage::Online && replica.acked == self.offset);
        best.next_back().map(|replica| replica.node)
    }

    pub(super) fn lines(&self, second: i64, out: &mut Vec<String>) {
        let states = |stage| match stage {
            Stage::WaitStart | Stage::WaitEnd => "wait_bgsave",
            Stage::Online => "online",
        };
        for (number, replica) in self.attached.values().enumerate() {
            let lag = match replica.stage {
                Stage::Online => second - replica.ack_second,
                Stage::WaitStart | Stage::WaitEnd => 0,
            };
            out.push(format!(
                "slave{number}:ip={},port={},state={},offset={},lag={lag},type=replica",
                replica.ip,
                replica.port,
                states(replica.stage),
                replica.acked,
            ));
        }
    }

    /// It has nothing of its shard's data yet, whatever it was before.
    pub(super) fn holds_nothing(&mut self) {
        self.ever_synced = false;
    }

    /// The replica's part of INFO replication.
    pub(super) fn replica_lines(&self, second: i64, out: &mut Vec<String>) {
        let Some((ip, port)) = self.target else {
            return;
        };
        let up = self.state == State::Connected;
        let offset = match (up, self.cached) {
            (true, _) => self.offset,
            (false, Some((_, offset))) => offset,
            (false, None) => 1,
        };
        let io = if up {
            second - self.last_interaction
        } else {
            -1
        };
        out.push(format!("master_host:{ip}"));
        out.push(format!("master_port:{port}"));
        let word = if up { "up" } else { "down" };
        out.push(format!("master_link_status:{word}"));
        out.push(format!("master_last_io_seconds_ago:{io}"));
        let transfer = self.state == State::Transfer;
        out.push(format!("master_sync_in_progress:{}", u8::from(transfer)));
        out.push(format!("slave_read_repl_offset:{offset}"));
        out.push(format!("slave_repl_offset:{offset}"));
        out.push("replicas_repl_buffer_size:0".to_owned());
        out.push("replicas_repl_buffer_peak:0".to_owned());
        if transfer {
            out.push("master_sync_total_bytes:-1".to_owned());
            out.push("master_sync_read_bytes:0".to_owned());
            out.push("master_sync_left_bytes:-1".to_owned());
            out.push("master_sync_perc:-0.00".to_owned());
            out.push(format!(
                "master_sync_last_io_seconds_ago:{}",
                second - self.transfer_io
            ));
        }
        if !up {
            let down = match self.down_since {
                0 => -1,
                since => second - since,
            };
            out.push(format!("master_link_down_since_seconds:{down}"));
        }
    }

    /// The end of INFO replication.
    pub(super) fn history_lines(&self, backlog_limit: i64, out: &mut Vec<String>) {
        out.push(format!("master_replid:{}", self.history));
        out.push(format!("master_replid2:{}", self.history2));
        out.push(format!("master_repl_offset:{}", self.offset));
        out.push(format!("second_repl_offset:{}", self.second_offset));
        let (first, size) = self
            .backlog
            .as_ref()
            .map_or((0, 0), |backlog| (backlog.first, backlog.size));
        out.push(format!(
            "repl_backlog_active:{}",
            u8::from(self.backlog.is_some())
        ));
        out.push(format!("repl_backlog_size:{backlog_limit}"));
        out.push(format!("repl_backlog_first_byte_offset:{first}"));
        out.push(format!("repl_backlog_histlen:{size}"));
    }
}

impl Process {
    /// `replicationSetPrimary`
    pub(super) fn attach(&mut self, net: &mut Network, ip: IpAddr, port: u16, full: bool) {
        self.leave_primary(net, full);
        self.unblock_all(net);
        self.replication.target = Some((ip, port));
        self.connect_to_primary(net);
    }

    /// The same, while the primary's address is not known.
    pub(super) fn attach_nowhere(&mut self, net: &mut Network, full: bool) {
        self.leave_primary(net, full);
        self.unblock_all(net);
        self.replication.target = None;
    }

    fn leave_primary(&mut self, net: &mut Network, full: bool) {
        let second = self.clock(net) / 1000;
        let was_primary = self.replication.target.is_none();
        let replication = &mut self.replication;
        let here = (replication.history, replication.offset);
        if replication.state == State::Connected {
            replication.cached = (!full).then_some(here);
            replication.down_since = second;
        }
        if was_primary && !full {
            replication.cached = Some(here);
            replication.ever_synced = true;
        }
        replication.loading = None;
        replication.promised = None;
        replication.state = State::Connect;
        if full {
            replication.ever_synced = false;
        }
        self.drop_upstream(net);
    }

    fn drop_upstream(&mut self, net: &mut Network) {
        if let Some(socket) = self.replication.socket.take() {
            self.links.remove(&socket);
            net.close(socket);
        }
    }

    fn connect_to_primary(&mut self, net: &mut Network) {
        let Some(target) = self.replication.target else {
            return;
        };
        let socket = net.dial((self.id, self.ip), target, Port::Client);
        self.links.insert(socket, Use::Upstream);
        self.replication.socket = Some(socket);
        self.replication.state = State::Connecting;
        self.replication.transfer_io = self.clock(net) / 1000;
    }

    /// The dialed primary's kernel accepted.
    pub(super) fn upstream_open(&mut self, net: &mut Network, socket: Socket) {
        if self.replication.socket != Some(socket) {
            return;
        }
        self.replication.state = State::Handshake;
        let psync = Psync {
            username: self.config.text("primaryuser").to_owned(),
            password: Some(self.config.text("primaryauth").to_owned())
                .filter(|password| !password.is_empty()),
            node: self.table.me.id,
            port: self.port,
            from: self.replication.cached,
            slow: self.switches.sync_extra,
            endless: self.switches.sync_endless,
        };
        net.send(socket, Cargo::Sync(Box::new(SyncMessage::Psync(psync))));
    }

    /// The link to the primary is gone, or never came to be.
    pub(super) fn upstream_closed(&mut self, net: &mut Network, refused: bool) {
        let second = self.clock(net) / 1000;
        self.drop_upstream(net);
        let replication = &mut self.replication;
        replication.loading = None;
        let was_connected = replication.state == State::Connected;
        if was_connected {
            replication.cached = Some((replication.history, replication.offset));
            replication.down_since = second;
        }
        if replication.target.is_none() {
            replication.state = State::None;
            return;
        }
        replication.state = State::Connect;
        // It tries again at once if it was linked, else at the next second.
        if was_connected && !refused {
            self.connect_to_primary(net);
        }
    }

    /// `replicationUnsetPrimary`
    pub(super) fn detach(&mut self, net: &mut Network) {
        if !self.replication.has_target() && self.replication.state == State::None {
            return;
        }
        self.drop_upstream(net);
        let history = Id::random(&mut net.numbers);
        let replication = &mut self.replication;
        replication.target = None;
        replication.cached = None;
        replication.promised = None;
        replication.loading = None;
        replication.history2 = replication.history;
        replication.second_offset = i64::try_from(replication.offset + 1).unwrap_or(-1);
        replication.history = history;
        replication.state = State::None;
        replication.selected = false;
        replication.down_since = 0;
        self.drop_replicas(net);
        self.imports_end(net, "A failover occurred during slot import");
    }

    /// `disconnectReplicas`
    fn drop_replicas(&mut self, net: &mut Network) {
        let sockets: Vec<Socket> = self.replication.attached.keys().copied().collect();
        for socket in sockets {
            self.drop_replica(net, socket);
        }
    }

    pub(super) fn drop_replica(&mut self, net: &mut Network, socket: Socket) {
        self.replication.attached.remove(&socket);
        self.links.remove(&socket);
        net.close(socket);
        let wanted = self
            .replication
            .attached
            .values()
            .any(|replica| replica.stage == Stage::WaitEnd);
        if !wanted && matches!(self.replication.child, Some(Child::Sync { .. })) {
            self.replication.child = None;
        }
    }

    /// A message of replication, on either side.
    pub(super) fn sync_message(&mut self, net: &mut Network, socket: Socket, message: SyncMessage) {
        match message {
            SyncMessage::Psync(psync) => self.asked_to_sync(net, socket, &psync),
            SyncMessage::Ack(offset) => self.acknowledged(net, socket, offset),
            SyncMessage::Refused(_)
            | SyncMessage::Continue(_)
            | SyncMessage::FullResync(..)
            | SyncMessage::Snapshot(_)
            | SyncMessage::Newline
            | SyncMessage::Stream(_)
                if self.replication.socket != Some(socket) => {}
            SyncMessage::Refused(why) => {
                self.say(format!("Unable to synchronize with PRIMARY: {why}"));
                self.upstream_closed(net, true);
            }
            SyncMessage::Continue(history) => self.continues(net, history),
            SyncMessage::FullResync(history, offset) => {
                self.say(format!("Full resync from primary: {history}:{offset}"));
                self.replication.promised = Some((history, offset));
                self.replication.state = State::Transfer;
                self.replication.transfer_io = self.clock(net) / 1000;
            }
            SyncMessage::Snapshot(snapshot) => self.load(net, snapshot),
            SyncMessage::Newline => self.replication.transfer_io = self.clock(net) / 1000,
            SyncMessage::Stream(entry) => self.streamed(net, &entry),
        }
    }

    fn continues(&mut self, net: &mut Network, history: Id) {
        let second = self.clock(net) / 1000;
        let Some((cached, offset)) = self.replication.cached.take() else {
            return;
        };
        self.say("Successful partial resynchronization with primary.".to_owned());
        if cached != history {
            self.replication.history2 = cached;
            self.replication.second_offset = i64::try_from(offset + 1).unwrap_or(-1);
            self.drop_replicas(net);
        }
        let replication = &mut self.replication;
        replication.history = history;
        replication.offset = offset;
        replication.state = State::Connected;
        replication.last_interaction = second;
        replication.down_since = 0;
        replication.ever_synced = true;
        replication.backlog.get_or_insert(Backlog::after(offset));
        self.break_if_switched(net);
    }

    /// The old data goes when the new begins to load (`replicationAttachToNewPrimary`).
    fn load(&mut self, net: &mut Network, snapshot: Snapshot) {
        // The snapshot is a file first.
        if self.switches.disk_full {
            self.say("I/O error trying to sync with PRIMARY: No space left on device".to_owned());
            self.upstream_closed(net, true);
            return;
        }
        self.replication.cached = None;
        self.drop_replicas(net);
        self.replication.backlog = None;
        self.data.clear();
        self.replication.ever_synced = false;
        let time = 3 + snapshot.data.bytes() / BYTES_A_MILLISECOND;
        self.replication.children += 1;
        let number = self.replication.children;
        self.replication.loading = Some((number, snapshot));
        net.wake(self.id, time, Wake::Loaded(number));
        self.imports_end(net, "Full resynchronization occurred");
    }

    pub(super) fn loaded(&mut self, net: &mut Network, number: u64) {
        let second = self.clock(net) / 1000;
        let mine = |loading: &mut (u64, Snapshot)| loading.0 == number;
        let Some((_, snapshot)) = self.replication.loading.take_if(mine) else {
            return;
        };
        let Some((history, offset)) = self.replication.promised.take() else {
            return;
        };
        self.data = snapshot.data;
        self.track_imports(net, snapshot.imports);
        let replication = &mut self.replication;
        replication.history = history;
        replication.offset = offset;
        replication.history2 = Id::ZERO;
        replication.second_offset = -1;
        replication.backlog = Some(Backlog::after(offset));
        replication.state = State::Connected;
        replication.last_interaction = second;
        replication.down_since = 0;
        replication.ever_synced = true;
        self.say("PRIMARY <-> REPLICA sync: Finished with success".to_owned());
        self.send_ack(net, offset);
        self.break_if_switched(net);
    }

    fn break_if_switched(&mut self, net: &mut Network) {
        if self.switches.replication_broken {
            self.upstream_closed(net, true);
        }
    }

    fn send_ack(&self, net: &mut Network, offset: u64) {
        if let Some(socket) = self.replication.socket
            && self.replication.state == State::Connected
        {
            net.send(socket, Cargo::Sync(Box::new(SyncMessage::Ack(offset))));
        }
    }

    fn streamed(&mut self, net: &mut Network, entry: &Arc<Entry>) {
        if self.replication.state != State::Connected {
            return;
        }
        self.replication.last_interaction = self.clock(net) / 1000;
        let before = self.replication.offset;
        self.replication.offset = entry.end;
        self.keep(entry);
        self.forward(net, entry);
        let writes = !entry.op.keys().is_empty() || matches!(entry.op, Op::FlushAll);
        if writes && self.dies_of_its_disk(net) {
            return;
        }
        match &entry.op {
            Op::Ping | Op::Note | Op::Select => {}
            Op::GetAck => self.send_ack(net, before),
            Op::Set(key, value) => self.data.set(key, value),
            Op::Delete(keys) => {
                for key in keys {
                    self.data.delete(key);
                }
            }
            Op::FlushAll => self.data.clear(),
            Op::Failover(id) => {
                if *id == self.table.me.id && self.table.me.is_replica() {
                    self.fail_over(net, true, false);
                }
            }
            Op::ImportBegins(import) => self.track_imports(net, vec![import.clone()]),
            Op::ImportEnds(name, success, message) => {
                self.tracked_end(net, *name, *success, message);
            }
        }
    }

    fn keep(&mut self, entry: &Arc<Entry>) {
        let limit = u64::try_from(self.config.number("repl-backlog-size")).unwrap_or(0);
        if let Some(backlog) = &mut self.replication.backlog {
            backlog.push(Arc::clone(entry), limit);
        }
    }

    fn forward(&mut self, net: &mut Network, entry: &Arc<Entry>) {
        for (socket, replica) in &self.replication.attached {
            if replica.stage == Stage::Online && replica.started {
                let stream = SyncMessage::Stream(Arc::clone(entry));
                net.send(*socket, Cargo::Sync(Box::new(stream)));
            }
        }
    }

    /// `replicationFeedReplicas`
    pub(super) fn feed(&mut self, net: &mut Network, op: Op, size: u64) {
        if self.replication.has_target() {
            return;
        }
        if self.replication.backlog.is_none() && self.replication.attached.is_empty() {
            self.replication.offset += 1;
            return;
        }
        let touches_keys = matches!(op, Op::Set(..) | Op::Delete(_) | Op::FlushAll);
        if touches_keys && !self.replication.selected {
            self.replication.selected = true;
            self.append(net, Op::Select, SELECT_SIZE);
        }
        self.append(net, op, size);
    }

    fn append(&mut self, net: &mut Network, op: Op, size: u64) {
        self.replication.offset += size;
        let entry = Arc::new(Entry {
            end: self.replication.offset,
            size,
            op,
        });
        self.keep(&entry);
        self.forward(net, &entry);
    }

    /// `syncCommand`, with what comes before it on a connection.
    fn asked_to_sync(&mut self, net: &mut Network, socket: Socket, psync: &Psync) {
        let refuse = |net: &mut Network, why: String| {
            let refused = SyncMessage::Refused(why);
            net.send(socket, Cargo::Sync(Box::new(refused)));
            net.close(socket);
        };
        if let Err(why) = self.may_sync(psync) {
            refuse(net, why);
            return;
        }
        let Some(ip) = net.peer_ip(socket) else {
            return;
        };
        let second = self.clock(net) / 1000;
        self.links.insert(socket, Use::Downstream);
        let mut replica = Attached {
            stage: Stage::WaitStart,
            started: false,
            node: psync.node,
            ip,
            port: psync.port,
            acked: 0,
            ack_second: second,
            asked_second: second,
            initial: 0,
            slow: psync.slow,
            endless: psync.endless,
        };
        if let Some(offset) = self.can_continue(psync.from) {
            self.say(format!(
                "Partial resynchronization request from {ip}:{} accepted.",
                psync.port
            ));
            replica.stage = Stage::Online;
            replica.started = true;
            self.replication.attached.insert(socket, replica);
            let accepted = SyncMessage::Continue(self.replication.history);
            net.send(socket, Cargo::Sync(Box::new(accepted)));
            self.send_backlog(net, socket, offset);
            return;
        }
        self.replication.attached.insert(socket, replica);
        if self.replication.attached.len() == 1 && self.replication.backlog.is_none() {
            self.replication.history = Id::random(&mut net.numbers);
            self.replication.history2 = Id::ZERO;
            self.replication.second_offset = -1;
            self.replication.backlog = Some(Backlog::after(self.replication.offset));
        }
        let delayed = self.config.yes("repl-diskless-sync")
            && self.config.number("repl-diskless-sync-delay") > 0;
        if !delayed && self.replication.child.is_none() {
            self.start_snapshot(net);
        }
    }

    fn may_sync(&self, psync: &Psync) -> Result<(), String> {
        let user = match &psync.password {
            Some(password) => {
                let name = if psync.username.is_empty() {
                    "default"
                } else {
                    &psync.username
                };
                self.acl.authenticate(name, password)?
            }
            None => self
                .acl
                .default_without_password()
                .ok_or("-NOAUTH Authentication required.")?,
        };
        for command in ["replconf", "psync"] {
            if !self.acl.may_run(&user, command) {
                return Err(format!(
                    "-NOPERM User {user} has no permissions to run the '{command}' command"
                ));
            }
        }
        if self.replication.is_loading() {
            return Err("-LOADING Valkey is loading the dataset in memory".to_owned());
        }
        if self.replication.has_target() && !self.replication.is_linked() {
            return Err("-NOMASTERLINK Can't SYNC while not connected with my master".to_owned());
        }
        Ok(())
    }

    /// `primaryTryPartialResynchronization`: from which offset on.
    fn can_continue(&self, from: Option<(Id, u64)>) -> Option<u64> {
        let (history, offset) = from?;
        let next = i64::try_from(offset + 1).ok()?;
        let replication = &self.replication;
        let known = history == replication.history
            || history == replication.history2 && next <= replication.second_offset;
        let backlog = replication.backlog.as_ref()?;
        let kept = offset + 1 >= backlog.first && offset < backlog.first + backlog.size;
        (known && (kept || offset + 1 == backlog.first + backlog.size)).then_some(offset)
    }

    fn send_backlog(&mut self, net: &mut Network, socket: Socket, after: u64) {
        let Some(backlog) = &self.replication.backlog else {
            return;
        };
        for entry in backlog.entries.iter().filter(|entry| entry.end > after) {
            let stream = SyncMessage::Stream(Arc::clone(entry));
            net.send(socket, Cargo::Sync(Box::new(stream)));
        }
    }

    /// `startBgsaveForReplication` for all that wait.
    fn start_snapshot(&mut self, net: &mut Network) {
        let (history, offset) = (self.replication.history, self.replication.offset);
        let mut slow = 0;
        let mut endless = false;
        for (socket, replica) in &mut self.replication.attached {
            if replica.stage != Stage::WaitStart {
                continue;
            }
            replica.stage = Stage::WaitEnd;
            replica.initial = offset;
            slow = slow.max(replica.slow);
            endless |= replica.endless;
            let full = SyncMessage::FullResync(history, offset);
            net.send(*socket, Cargo::Sync(Box::new(full)));
        }
        self.replication.selected = false;
        self.replication.children += 1;
        let number = self.replication.children;
        self.replication.child = Some(Child::Sync {
            number,
            data: self.data.clone(),
        });
        if !endless {
            let time = SNAPSHOT_OVERHEAD + self.data.bytes() / BYTES_A_MILLISECOND + slow;
            net.wake(self.id, time, Wake::ChildDone(number));
        }
    }

    /// A fork for a slot migration; false if there is one already.
    pub(super) fn start_job_child(&mut self, net: &mut Network, name: Id, bytes: u64) -> bool {
        if self.replication.child.is_some() {
            return false;
        }
        self.replication.children += 1;
        let number = self.replication.children;
        self.replication.child = Some(Child::Job { number, name });
        let time = SNAPSHOT_OVERHEAD + bytes / BYTES_A_MILLISECOND;
        net.wake(self.id, time, Wake::ChildDone(number));
        true
    }

    pub(super) fn child_done(&mut self, net: &mut Network, done: u64) {
        let mine = |child: &mut Child| match child {
            Child::Sync { number, .. } | Child::Job { number, .. } => *number == done,
        };
        match self.replication.child.take_if(mine) {
            None => {}
            Some(Child::Sync { data, .. }) => self.send_snapshots(net, &data),
            Some(Child::Job { name, .. }) => {
                self.snapshot_written(net, name);
                self.todo |= todo::MIGRATION;
            }
        }
    }

    fn send_snapshots(&mut self, net: &mut Network, data: &Data) {
        let second = self.clock(net) / 1000;
        let imports = self.tracked_imports();
        for (socket, replica) in &mut self.replication.attached {
            if replica.stage == Stage::WaitEnd {
                replica.stage = Stage::Online;
                replica.ack_second = second;
                let snapshot = SyncMessage::Snapshot(Snapshot {
                    data: data.clone(),
                    imports: imports.clone(),
                });
                net.send(*socket, Cargo::Sync(Box::new(snapshot)));
            }
        }
        self.todo |= todo::MIGRATION;
    }

    fn acknowledged(&mut self, net: &mut Network, socket: Socket, offset: u64) {
        let second = self.clock(net) / 1000;
        let Some(replica) = self.replication.attached.get_mut(&socket) else {
            return;
        };
        replica.acked = replica.acked.max(offset);
        replica.ack_second = second;
        if replica.stage == Stage::Online && !replica.started {
            replica.started = true;
            let initial = replica.initial;
            self.send_backlog(net, socket, initial);
            // So that the offset of a synced replica is never zero.
            if self.replication.offset == 0 {
                self.feed(net, Op::Ping, PING_SIZE);
            }
        }
        self.serve_waiting(net);
    }

    pub(super) fn want_acks(&mut self) {
        self.replication.ack_wanted = true;
    }

    /// One request for all clients that began to wait.
    pub(super) fn ask_acks(&mut self, net: &mut Network) {
        if std::mem::take(&mut self.replication.ack_wanted) {
            self.feed(net, Op::GetAck, GETACK_SIZE);
        }
    }

    /// `replicationCron`
    pub(super) fn replication_cron(&mut self, net: &mut Network) {
        let second = self.clock(net) / 1000;
        let timeout = self.config.number("repl-timeout");
        let replication = &self.replication;
        let late = match replication.state {
            State::None | State::Connect => false,
            State::Connecting | State::Handshake | State::Transfer => {
                second - replication.transfer_io > timeout && replication.loading.is_none()
            }
            State::Connected => second - replication.last_interaction > timeout,
        };
        if late {
            self.say("PRIMARY timeout: no data nor PING received...".to_owned());
            self.upstream_closed(net, false);
        }
        if self.replication.state == State::Connect && self.replication.has_target() {
            self.connect_to_primary(net);
        }
        self.send_ack(net, self.replication.offset);
        self.serve_replicas(net, second, timeout);
        self.replication.loops += 1;
    }

    fn serve_replicas(&mut self, net: &mut Network, second: i64, timeout: i64) {
        let period = self.config.number("repl-ping-replica-period").max(1);
        let due = self.replication.loops % period == 0;
        let handing_over = self.election.manual_end != 0 && self.pause.is_on(self.clock(net));
        if due && !self.replication.attached.is_empty() && !handing_over {
            self.feed(net, Op::Ping, PING_SIZE);
        }
        let mut late = Vec::new();
        for (socket, replica) in &self.replication.attached {
            match replica.stage {
                Stage::WaitStart | Stage::WaitEnd => {
                    net.send(*socket, Cargo::Sync(Box::new(SyncMessage::Newline)));
                }
                Stage::Online if second - replica.ack_second > timeout => late.push(*socket),
                Stage::Online => {}
            }
        }
        for socket in late {
            self.drop_replica(net, socket);
        }
        let delay = self.config.number("repl-diskless-sync-delay");
        let diskless = self.config.yes("repl-diskless-sync");
        let ready = self.replication.attached.values().any(|replica| {
            replica.stage == Stage::WaitStart
                && (!diskless || second - replica.asked_second >= delay)
        });
        if ready && self.replication.child.is_none() {
            self.start_snapshot(net);
        }
    }
}

impl Backlog {
    fn after(offset: u64) -> Self {
        Self {
            first: offset + 1,
            entries: VecDeque::new(),
            size: 0,
        }
    }

    fn push(&mut self, entry: Arc<Entry>, limit: u64) {
        self.size += entry.size;
        self.entries.push_back(entry);
        while self.size > limit
            && let Some(oldest) = self.entries.pop_front()
        {
            self.size -= oldest.size;
            self.first += oldest.size;
        }
    }
}
