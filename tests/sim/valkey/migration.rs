//! Atomic slot migration: jobs on the source, on the target and on the target's replicas
//! (`cluster_migrateslots.c`).
//! Never moves a slot without its keys, but for the losses that the real one has too.

use super::ConnectionId;
use super::Port;
use super::Value;
use super::client::Args;
use super::client::text;
use super::cluster::slot;
use super::execute::word;
use super::id::Id;
use super::network::Cargo;
use super::network::Network;
use super::network::Socket;
use super::process::Process;
use super::process::Use;
use super::process::todo;
use super::replication::Child;
use super::replication::Op;
use super::slots::Slots;
use super::slots::of_key;

/// How long a source stays paused at least, once it has let go.
const PROPAGATION: i64 = 2000;

/// Slots as inclusive ranges, in the order in which they were given.
type Ranges = Vec<(u16, u16)>;

/// Keys in the order of their slots.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Between the two processes of a migration.
#[derive(Debug)]
pub(super) enum JobMessage {
    Auth(String, String),
    AuthReply(Result<(), String>),
    Establish {
        name: Id,
        source: Id,
        ranges: Ranges,
        user: Option<(String, String)>,
    },
    EstablishReply(Result<(), String>),
    Ack,
    /// The keys, and the marker of their end.
    Snapshot(Pairs),
    Write(Op),
    RequestPause,
    Paused,
    RequestFailover,
    FailoverGranted,
}

impl JobMessage {
    /// What a source says beside keys, as a subcommand of `CLUSTER SYNCSLOTS`.
    fn word(&self) -> Option<&'static str> {
        match self {
            Self::Ack => Some("ACK"),
            Self::Snapshot(_) => Some("SNAPSHOT-EOF"),
            Self::Paused => Some("PAUSED"),
            Self::FailoverGranted => Some("FAILOVER-GRANTED"),
            Self::Auth(..)
            | Self::AuthReply(_)
            | Self::Establish { .. }
            | Self::EstablishReply(_)
            | Self::Write(_)
            | Self::RequestPause
            | Self::RequestFailover => None,
        }
    }
}

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobState {
    WaitAck,
    ReceiveSnapshot,
    WaitPaused,
    FailoverRequested,
    ImportGranted,
    CleaningUp,
    OnPrimary,
    Connecting,
    ReadAuth,
    ReadEstablish,
    WaitSnapshot,
    Snapshotting,
    Streaming,
    WaitPause,
    Paused,
    ExportGranted,
    Success,
    Cancelled,
    Failed,
}

impl JobState {
    fn word(self) -> &'static str {
        match self {
            Self::WaitAck => "waiting-for-ack",
            Self::ReceiveSnapshot => "receiving-snapshot",
            Self::WaitPaused => "waiting-for-paused",
            Self::FailoverRequested => "failover-requested",
            Self::ImportGranted | Self::ExportGranted => "failover-granted",
            Self::CleaningUp => "cleaning-up",
            Self::OnPrimary => "occurring-on-primary",
            Self::Connecting => "connecting",
            Self::ReadAuth => "reading-auth-response",
            Self::ReadEstablish => "reading-establish-response",
            Self::WaitSnapshot => "waiting-to-snapshot",
            Self::Snapshotting => "snapshotting",
            Self::Streaming => "replicating",
            Self::WaitPause => "waiting-to-pause",
            Self::Paused => "failover-paused",
            Self::Success => "success",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }

    fn is_finished(self) -> bool {
        matches!(self, Self::Success | Self::Cancelled | Self::Failed)
    }

    /// Whether live writes are sent on.
    fn streams(self) -> bool {
        matches!(
            self,
            Self::Streaming | Self::WaitPause | Self::Paused | Self::ExportGranted
        )
    }

    fn is_under_way(self) -> bool {
        !self.is_finished() && self != Self::CleaningUp
    }
}

/// What a replica knows of its primary's import.
#[derive(Clone, Debug)]
pub(super) struct Tracked {
    name: Id,
    ranges: Ranges,
}

/// A migration as one process knows it.
#[derive(Clone, Debug)]
pub(super) struct Job {
    name: Id,
    export: bool,
    ranges: Ranges,
    slots: Slots,
    target: Option<Id>,
    source: Option<Id>,
    created: i64,
    updated: i64,
    acked: i64,
    acks: i64,
    pub(super) state: JobState,
    message: String,
    /// What it becomes when its keys are deleted.
    after: JobState,
    socket: Option<Socket>,
    pause_end: i64,
    /// The keys at the moment of the fork, and what was written since.
    snapshot: Pairs,
    queued: Vec<Op>,
    /// Under whom the target runs what it is sent.
    user: Option<String>,
}

impl Job {
    fn new(name: Id, export: bool, ranges: Ranges, second: i64) -> Self {
        Self {
            name,
            export,
            slots: Slots::of(ranges.iter().copied()),
            ranges,
            target: None,
            source: None,
            created: second,
            updated: second,
            acked: second,
            acks: second,
            state: JobState::Connecting,
            message: String::new(),
            after: JobState::Failed,
            socket: None,
            pause_end: 0,
            snapshot: Vec::new(),
            queued: Vec::new(),
            user: None,
        }
    }

    /// Its slots, while it is under way.
    pub(super) fn open_ranges(&self) -> Option<&Ranges> {
        (!self.state.is_finished()).then_some(&self.ranges)
    }

    fn text(&self) -> String {
        let range = |(start, end): &(u16, u16)| format!("{start}-{end}");
        let ranges: Vec<String> = self.ranges.iter().map(range).collect();
        ranges.join(" ")
    }
}

impl Process {
    fn job(&mut self, name: Id) -> Option<&mut Job> {
        self.jobs.iter_mut().find(|job| job.name == name)
    }

    fn slots_of(&self, wanted: impl Fn(&Job) -> bool) -> Slots {
        self.jobs
            .iter()
            .filter(|job| wanted(job))
            .fold(Slots::default(), |all, job| all.or(&job.slots))
    }

    /// The slots that this process gives away.
    pub(super) fn exported_slots(&self) -> Slots {
        self.slots_of(|job| job.export && !job.state.is_finished())
    }

    /// The slots that it, or its primary, is being given.
    pub(super) fn imported_slots(&self) -> Slots {
        self.slots_of(|job| !job.export && !job.state.is_finished())
    }

    /// The slots that it has let go.
    pub(super) fn granted_slots(&self) -> Slots {
        self.slots_of(|job| job.state == JobState::ExportGranted)
    }

    pub(super) fn is_migration_forked(&self) -> bool {
        matches!(self.replication.child, Some(Child::Job { .. }))
    }

    fn set_job_state(&mut self, net: &Network, name: Id, state: JobState) {
        let second = self.clock(net) / 1000;
        let Some(job) = self.job(name) else {
            return;
        };
        let line = format!(
            "Slot migration {{name: {name}}} state transition: {} -> {}",
            job.state.word(),
            state.word()
        );
        job.state = state;
        job.updated = second;
        self.say(line);
    }

    fn tell_job(&mut self, net: &mut Network, name: Id, message: JobMessage) {
        if let Some(socket) = self.job(name).and_then(|job| job.socket) {
            net.send(socket, Cargo::Job(Box::new(message)));
        }
    }

    /// `CLUSTER MIGRATESLOTS`
    pub(super) fn migrate_slots(
        &mut self,
        net: &mut Network,
        args: &Args,
    ) -> Result<Value, String> {
        self.may_migrate()?;
        let mut groups: Vec<(Ranges, Id)> = Vec::new();
        let mut at = 2;
        while at < args.len() {
            let (group, next) = self.parse_group(args, at, &groups)?;
            groups.push(group);
            at = next;
        }
        let second = self.clock(net) / 1000;
        // The first group's job becomes the newest.
        for (ranges, target) in groups.into_iter().rev() {
            let name = Id::random(&mut net.numbers);
            let mut job = Job::new(name, true, ranges, second);
            job.target = Some(target);
            job.source = Some(self.table.me.id);
            self.say(format!(
                "Slot migration initiated through CLUSTER MIGRATESLOTS command: {{name: {name}, \
                 operation: export, target_node_id: {target}, slots: {}}}",
                job.text()
            ));
            self.jobs.insert(0, job);
            self.connect_export(net, name);
        }
        Ok(Value::ok())
    }

    fn may_migrate(&self) -> Result<(), String> {
        let why = if !self.table.me.is_primary() {
            "Slot migration can only be used on primary nodes."
        } else if !self.table.importing.is_empty() {
            "Slots are being manually imported"
        } else if !self.table.migrating.is_empty() {
            "Slots are being manually migrated"
        } else {
            return Ok(());
        };
        Err(format!("ERR {why}"))
    }

    /// `SLOTSRANGE s e [s e ...] NODE id`, and where the next begins.
    fn parse_group(
        &self,
        args: &Args,
        start: usize,
        groups: &[(Ranges, Id)],
    ) -> Result<((Ranges, Id), usize), String> {
        let keyword = |at: usize| text(word(args, at)).to_ascii_lowercase();
        if keyword(start) != "slotsrange" {
            return Err("ERR syntax error".to_owned());
        }
        let (ranges, owner, at) = self.parse_ranges(args, start + 1)?;
        if owner != self.table.me.id {
            return Err("ERR Slots are not served by this node.".to_owned());
        }
        let slots = Slots::of(ranges.iter().copied());
        if let Some(slot) = self.exported_slots().and(&slots).first() {
            return Err(format!("ERR I am already migrating slot {slot}."));
        }
        let overlaps = |(others, _): &(Ranges, Id)| Slots::of(others.iter().copied()).meets(&slots);
        if groups.iter().any(overlaps) {
            return Err("ERR Slot ranges in migrations overlap".to_owned());
        }
        if keyword(at) != "node" || at + 1 >= args.len() {
            return Err("ERR syntax error".to_owned());
        }
        let name = text(word(args, at + 1));
        if name.len() != 40 {
            return Err(format!("ERR Invalid node name: {name}"));
        }
        let target = Id::parse(&name).filter(|id| self.table.get(*id).is_some());
        let target = target.ok_or_else(|| format!("ERR Unknown node name: {name}"))?;
        if target == self.table.me.id {
            return Err("ERR Target node can not be this node.".to_owned());
        }
        Ok(((ranges, target), at + 2))
    }

    /// The ranges, who owns them, and where they end (`parseSlotRangesOrReply`).
    fn parse_ranges(&self, args: &Args, start: usize) -> Result<(Ranges, Id, usize), String> {
        let bad = || "ERR Invalid or out of range slot".to_owned();
        let mut ranges: Ranges = Vec::new();
        let mut owner = None;
        let mut at = start;
        while at < args.len() && text(word(args, at)).parse::<i64>().is_ok() {
            let first = slot(word(args, at)).ok_or_else(bad)?;
            if at + 1 >= args.len() {
                return Err("ERR No end slot for final slot range".to_owned());
            }
            let last = slot(word(args, at + 1)).ok_or_else(bad)?;
            if first > last {
                return Err(format!(
                    "ERR Start slot number {first} is greater than end slot number {last}."
                ));
            }
            for slot in first..=last {
                let Some(row) = self.table.owner(slot) else {
                    return Err(format!("ERR Slot {slot} has no node served."));
                };
                if *owner.get_or_insert(row.id) != row.id {
                    return Err("ERR Requested slots span multiple shards".to_owned());
                }
            }
            if let Some((a, b)) = ranges.iter().find(|(a, b)| last >= *a && first <= *b) {
                return Err(format!(
                    "ERR Slot range {first}-{last} overlaps with previous range {a}-{b}."
                ));
            }
            ranges.push((first, last));
            at += 2;
        }
        match owner {
            Some(owner) => Ok((ranges, owner, at)),
            None => Err("ERR No slot ranges specified".to_owned()),
        }
    }

    /// `CLUSTER CANCELSLOTMIGRATIONS`
    pub(super) fn cancel_migrations(&mut self, net: &mut Network) -> Result<Value, String> {
        let exports: Vec<Id> = self
            .jobs
            .iter()
            .filter(|job| job.export && job.state.is_under_way())
            .map(|job| job.name)
            .collect();
        if exports.is_empty() {
            return Err("ERR No migrations ongoing".to_owned());
        }
        for name in exports {
            self.finish_job(net, name, JobState::Cancelled, "");
        }
        Ok(Value::ok())
    }

    /// `CLUSTER GETSLOTMIGRATIONS`
    pub(super) fn migrations(&self, connection: ConnectionId) -> Value {
        let Some(client) = self.clients.get(&connection) else {
            return Value::Nil;
        };
        let describe = |job: &Job| {
            let bulk = |key: &str, value: String| (Value::bulk(key), Value::bulk(value));
            let number = |key: &str, value: i64| (Value::bulk(key), Value::Integer(value));
            let operation = if job.export { "EXPORT" } else { "IMPORT" };
            let mut fields = vec![
                bulk("name", job.name.to_string()),
                bulk("operation", operation.to_owned()),
                bulk("slot_ranges", job.text()),
            ];
            if let (Some(target), Some(source)) = (job.target, job.source) {
                fields.push(bulk("target_node", target.to_string()));
                fields.push(bulk("source_node", source.to_string()));
            }
            fields.extend([
                number("create_time", job.created),
                number("last_update_time", job.updated),
                number("last_ack_time", job.acked),
                bulk("state", job.state.word().to_owned()),
                bulk("message", job.message.clone()),
                number("cow_size", 0),
                number("remaining_repl_size", 0),
            ]);
            client.map(fields)
        };
        Value::Array(self.jobs.iter().map(describe).collect())
    }

    fn connect_export(&mut self, net: &mut Network, name: Id) {
        let target = self.job(name).and_then(|job| job.target);
        let address = target
            .and_then(|id| self.table.get(id))
            .and_then(|row| Some((row.ip?, row.port)));
        let Some(address) = address else {
            self.finish_job(
                net,
                name,
                JobState::Failed,
                "Unable to connect to target node: target node not found",
            );
            return;
        };
        let socket = net.dial((self.id, self.ip), address, Port::Client);
        self.links.insert(socket, Use::Export(name));
        if let Some(job) = self.job(name) {
            job.socket = Some(socket);
        }
    }

    /// The target's kernel accepted.
    pub(super) fn export_open(&mut self, net: &mut Network, name: Id) {
        let password = self.config.text("primaryauth").to_owned();
        if password.is_empty() {
            self.establish(net, name);
            return;
        }
        let user = match self.config.text("primaryuser") {
            "" => "default".to_owned(),
            user => user.to_owned(),
        };
        self.tell_job(net, name, JobMessage::Auth(user, password));
        self.set_job_state(net, name, JobState::ReadAuth);
    }

    fn establish(&mut self, net: &mut Network, name: Id) {
        let source = self.table.me.id;
        let password = self.config.text("primaryauth").to_owned();
        let user = self.config.text("primaryuser").to_owned();
        let Some(ranges) = self.job(name).map(|job| job.ranges.clone()) else {
            return;
        };
        let establish = JobMessage::Establish {
            name,
            source,
            ranges,
            user: (!password.is_empty()).then_some((user, password)),
        };
        self.tell_job(net, name, establish);
        self.set_job_state(net, name, JobState::ReadEstablish);
    }

    /// A message of a migration, on either side.
    pub(super) fn job_message(&mut self, net: &mut Network, socket: Socket, message: JobMessage) {
        match (message, self.links.get(&socket)) {
            (JobMessage::Auth(user, password), None) => {
                let reply = self.acl.authenticate(&user, &password).map(|_| ());
                net.send(socket, Cargo::Job(Box::new(JobMessage::AuthReply(reply))));
            }
            (
                JobMessage::Establish {
                    name,
                    source,
                    ranges,
                    user,
                },
                None,
            ) => {
                let reply = self.asked_to_import(net, socket, (name, source, ranges), user);
                let reply = reply.map_err(|why| format!("-{why}"));
                net.send(
                    socket,
                    Cargo::Job(Box::new(JobMessage::EstablishReply(reply))),
                );
            }
            (message, Some(Use::Export(name))) => {
                let name = *name;
                self.at_source(net, name, message);
            }
            (message, Some(Use::Import(name))) => {
                let name = *name;
                self.at_target(net, name, message);
            }
            _ => {}
        }
    }

    /// `clusterCommandSyncSlotsEstablish`
    fn asked_to_import(
        &mut self,
        net: &mut Network,
        socket: Socket,
        (name, source, ranges): (Id, Id, Ranges),
        user: Option<(String, String)>,
    ) -> Result<(), String> {
        let user = match user {
            Some((user, password)) => self.acl.authenticate(&user, &password).ok(),
            None => self.acl.default_without_password(),
        };
        let user = user.ok_or("NOAUTH Authentication required.")?;
        if !self.acl.may_run(&user, "cluster|syncslots") {
            return Err(format!(
                "NOPERM User {user} has no permissions to run the 'cluster|syncslots' command"
            ));
        }
        if self.replication.is_loading() {
            return Err("LOADING Valkey is loading the dataset in memory".to_owned());
        }
        self.may_migrate()?;
        if self.table.get(source).is_none() {
            return Err("ERR Target node does not know the source node".to_owned());
        }
        if source == self.table.me.id {
            return Err("ERR Source node is target node itself".to_owned());
        }
        let slots = Slots::of(ranges.iter().copied());
        if self.imported_slots().meets(&slots) {
            return Err(
                "ERR Slot is already being imported on the target by a different migration"
                    .to_owned(),
            );
        }
        let owned = self
            .table
            .get(source)
            .is_some_and(|row| slots.without(row.slots()).is_empty());
        if !owned {
            return Err("ERR Target node does not agree about current slot ownership".to_owned());
        }
        let tracked = Tracked {
            name,
            ranges: ranges.clone(),
        };
        let job_ranges = ranges.clone();
        let mut job = Job::new(name, false, ranges, self.clock(net) / 1000);
        job.source = Some(source);
        job.target = Some(self.table.me.id);
        job.state = JobState::WaitAck;
        job.socket = Some(socket);
        job.user = Some(user);
        self.jobs.insert(0, job);
        self.links.insert(socket, Use::Import(name));
        let size = establish_size(name, source, &job_ranges);
        self.feed(net, Op::ImportBegins(tracked), size);
        self.todo |= todo::MIGRATION;
        Ok(())
    }

    fn at_source(&mut self, net: &mut Network, name: Id, message: JobMessage) {
        let second = self.clock(net) / 1000;
        let Some(job) = self.job(name).filter(|job| job.state.is_under_way()) else {
            return;
        };
        let state = job.state;
        match message {
            JobMessage::AuthReply(Ok(())) => self.establish(net, name),
            JobMessage::AuthReply(Err(why)) => {
                let why = format!("Failed to AUTH to target node: {why}");
                self.finish_job(net, name, JobState::Failed, &why);
            }
            JobMessage::EstablishReply(Ok(())) => {
                self.set_job_state(net, name, JobState::WaitSnapshot);
                self.tell_job(net, name, JobMessage::Ack);
                self.todo |= todo::MIGRATION;
            }
            JobMessage::EstablishReply(Err(why)) => {
                let why = format!("Received error during handshake to target: {why}\r\n");
                self.finish_job(net, name, JobState::Failed, &why);
            }
            JobMessage::Ack => job.acked = second,
            JobMessage::RequestPause => {
                if state == JobState::Snapshotting {
                    self.set_job_state(net, name, JobState::Streaming);
                }
                if !self.try_pause(net, name) {
                    self.set_job_state(net, name, JobState::WaitPause);
                }
            }
            JobMessage::RequestFailover => self.grant(net, name),
            JobMessage::Auth(..)
            | JobMessage::Establish { .. }
            | JobMessage::Snapshot(_)
            | JobMessage::Write(_)
            | JobMessage::Paused
            | JobMessage::FailoverGranted => {}
        }
    }

    /// `slotExportTryDoPause`
    fn try_pause(&mut self, net: &mut Network, name: Id) -> bool {
        if self.switches.migration_held {
            return false;
        }
        let end = self.clock(net) + self.config.number("cluster-manual-failover-timeout") * 2;
        if let Some(job) = self.job(name) {
            job.pause_end = end;
        }
        self.pause.migration = self.pause.migration.max(end);
        self.tell_job(net, name, JobMessage::Paused);
        self.set_job_state(net, name, JobState::Paused);
        true
    }

    fn is_pause_over(&self, net: &Network, name: Id) -> bool {
        let now = self.clock(net);
        let end = self.jobs.iter().find(|job| job.name == name);
        end.is_none_or(|job| job.pause_end < now) || self.pause.migration <= now
    }

    /// `clusterCommandSyncSlotsRequestFailover`
    fn grant(&mut self, net: &mut Network, name: Id) {
        let paused = self
            .job(name)
            .is_some_and(|job| job.state == JobState::Paused);
        if !paused {
            self.finish_job(
                net,
                name,
                JobState::Failed,
                "Unexpected state machine transition",
            );
            return;
        }
        if self.is_pause_over(net, name) {
            self.finish_job(
                net,
                name,
                JobState::Failed,
                "Unpaused before failover completed",
            );
            return;
        }
        let least = self.clock(net) + PROPAGATION;
        if let Some(job) = self.job(name) {
            job.pause_end = job.pause_end.max(least);
        }
        self.pause.migration = self.pause.migration.max(least);
        self.tell_job(net, name, JobMessage::FailoverGranted);
        self.set_job_state(net, name, JobState::ExportGranted);
    }

    fn at_target(&mut self, net: &mut Network, name: Id, message: JobMessage) {
        let second = self.clock(net) / 1000;
        let Some(job) = self.job(name).filter(|job| job.state.is_under_way()) else {
            return;
        };
        job.acked = second;
        let state = job.state;
        if let Some(word) = message.word() {
            let words = ["CLUSTER", "SYNCSLOTS", word].map(|word| word.as_bytes().to_vec());
            self.feed(net, Op::Note, super::execute::size(&words.into()));
        }
        match message {
            JobMessage::Ack if state == JobState::WaitAck => {
                self.set_job_state(net, name, JobState::ReceiveSnapshot);
            }
            JobMessage::Snapshot(pairs) => {
                for (key, value) in pairs {
                    if !self.imported(net, name, Op::Set(key, value)) {
                        return;
                    }
                }
                self.tell_job(net, name, JobMessage::RequestPause);
                self.set_job_state(net, name, JobState::WaitPaused);
            }
            JobMessage::Write(op) => {
                self.imported(net, name, op);
            }
            JobMessage::Paused => {
                self.tell_job(net, name, JobMessage::RequestFailover);
                self.set_job_state(net, name, JobState::FailoverRequested);
            }
            JobMessage::FailoverGranted => {
                self.set_job_state(net, name, JobState::ImportGranted);
                self.todo |= todo::MIGRATION;
            }
            JobMessage::Ack
            | JobMessage::Auth(..)
            | JobMessage::AuthReply(_)
            | JobMessage::Establish { .. }
            | JobMessage::EstablishReply(_)
            | JobMessage::RequestPause
            | JobMessage::RequestFailover => {}
        }
    }

    /// A streamed command, run like any other but under the source's user; false if it failed the job.
    fn imported(&mut self, net: &mut Network, name: Id, op: Op) -> bool {
        let user = self.job(name).and_then(|job| job.user.clone());
        if let Some(why) = self.import_refusal(net, &user.unwrap_or_default(), &op) {
            self.finish_job(net, name, JobState::Failed, why);
            return false;
        }
        if self.dies_of_its_disk(net) {
            return false;
        }
        let size = match &op {
            Op::Set(key, value) => {
                self.data.set(key, value);
                super::execute::size(&vec![b"SET".to_vec(), key.clone(), value.clone()])
            }
            Op::Delete(keys) => {
                for key in keys {
                    self.data.delete(key);
                }
                let mut args = vec![b"DEL".to_vec()];
                args.extend(keys.iter().cloned());
                super::execute::size(&args)
            }
            Op::Ping
            | Op::Note
            | Op::Select
            | Op::GetAck
            | Op::FlushAll
            | Op::Failover(_)
            | Op::ImportBegins(_)
            | Op::ImportEnds(..) => return true,
        };
        self.feed(net, op, size);
        true
    }

    fn import_refusal(&self, net: &Network, user: &str, op: &Op) -> Option<&'static str> {
        const FAILED: &str =
            "Failed to process command during slot migration. Check logs for more information";
        let keys = op.keys();
        let command = match keys.first()? {
            _ if matches!(op, Op::Delete(_)) => "del",
            _ => "set",
        };
        let known = super::commands::find(command)?;
        let written = |key: &Vec<u8>| (key.clone(), false, true);
        let keys: Vec<(Vec<u8>, bool, bool)> = keys.iter().map(written).collect();
        let allowed = self.acl.check(user, known, &[], &keys).is_ok();
        if !allowed || !self.acl.may_run(user, "select") {
            return Some(FAILED);
        }
        if self.has_too_few_replicas(net) {
            return Some(FAILED);
        }
        (self.is_full() && command == "set").then_some("Ran out of memory (OOM) during slot import")
    }

    /// A write on the source: targets of its key's slot get it too.
    pub(super) fn feed_exports(&mut self, net: &mut Network, op: &Op) {
        let Some(slot) = op.keys().first().map(|key| of_key(key)) else {
            return;
        };
        let mut streams = Vec::new();
        for job in &mut self.jobs {
            if !job.export || !job.slots.contains(slot) {
                continue;
            }
            if job.state == JobState::Snapshotting {
                job.queued.push(op.clone());
            } else if job.state.streams() {
                streams.push(job.name);
            }
        }
        for name in streams {
            self.tell_job(net, name, JobMessage::Write(op.clone()));
        }
    }

    /// The fork has written a job's keys. They are those of the moment of the fork: what was written since was
    /// queued.
    pub(super) fn snapshot_written(&mut self, net: &mut Network, name: Id) {
        let waiting = |job: &&mut Job| job.state == JobState::Snapshotting;
        let Some(job) = self.job(name).filter(waiting) else {
            return;
        };
        let queued = std::mem::take(&mut job.queued);
        let pairs = std::mem::take(&mut job.snapshot);
        self.tell_job(net, name, JobMessage::Snapshot(pairs));
        self.set_job_state(net, name, JobState::Streaming);
        for op in queued {
            self.tell_job(net, name, JobMessage::Write(op));
        }
    }

    /// `clusterSlotMigrationCron`
    pub(super) fn migration_cron(&mut self, net: &mut Network) {
        if self.jobs.is_empty() {
            return;
        }
        let second = self.clock(net) / 1000;
        let timeout = self.config.number("repl-timeout");
        let names: Vec<Id> = self
            .jobs
            .iter()
            .filter(|job| !job.state.is_finished())
            .map(|job| job.name)
            .collect();
        for name in names {
            let Some(job) = self.job(name) else {
                continue;
            };
            let immune = [
                JobState::ExportGranted,
                JobState::OnPrimary,
                JobState::CleaningUp,
            ];
            if !immune.contains(&job.state) && second - job.acked > timeout {
                self.finish_job(
                    net,
                    name,
                    JobState::Failed,
                    "Timed out after too long with no interaction",
                );
                continue;
            }
            self.proceed(net, name);
            self.send_job_ack(net, name, second);
        }
        let most = self.config.number("cluster-slot-migration-log-max-len");
        self.jobs
            .truncate(usize::try_from(most).unwrap_or(usize::MAX));
        self.try_unpause(net);
    }

    fn send_job_ack(&mut self, net: &mut Network, name: Id, second: i64) {
        let silent = [
            JobState::Snapshotting,
            JobState::WaitAck,
            JobState::Connecting,
            JobState::ReadAuth,
            JobState::ReadEstablish,
            JobState::OnPrimary,
            JobState::ExportGranted,
        ];
        let Some(job) = self.job(name) else {
            return;
        };
        if job.state.is_under_way() && !silent.contains(&job.state) && job.acks != second {
            job.acks = second;
            self.tell_job(net, name, JobMessage::Ack);
        }
    }

    /// `proceedWithSlotMigration`
    fn proceed(&mut self, net: &mut Network, name: Id) {
        let Some(state) = self.job(name).map(|job| job.state) else {
            return;
        };
        match state {
            JobState::ImportGranted if !self.switches.migration_unclaimed => {
                self.claim_import(net, name);
            }
            JobState::CleaningUp => self.clean_up(net, name),
            JobState::WaitSnapshot => self.start_export_snapshot(net, name),
            JobState::WaitPause => {
                self.try_pause(net, name);
            }
            JobState::Paused if self.is_pause_over(net, name) => {
                self.finish_job(
                    net,
                    name,
                    JobState::Failed,
                    "Timed out before streaming completed",
                );
            }
            JobState::ExportGranted if self.is_pause_over(net, name) => {
                self.finish_job(
                    net,
                    name,
                    JobState::Failed,
                    "Unpaused before migration completed (migration may have succeeded with lost \
                     writes)",
                );
            }
            JobState::ExportGranted => self.check_export(net, name),
            JobState::ImportGranted
            | JobState::WaitAck
            | JobState::ReceiveSnapshot
            | JobState::WaitPaused
            | JobState::FailoverRequested
            | JobState::OnPrimary
            | JobState::Connecting
            | JobState::ReadAuth
            | JobState::ReadEstablish
            | JobState::Snapshotting
            | JobState::Streaming
            | JobState::Paused
            | JobState::Success
            | JobState::Cancelled
            | JobState::Failed => {}
        }
    }

    /// `performSlotImportJobFailover`
    fn claim_import(&mut self, net: &mut Network, name: Id) {
        self.bump_epoch();
        let Some(slots) = self.job(name).map(|job| job.slots.clone()) else {
            return;
        };
        self.table.give(&slots, self.table.me.id);
        self.update_state(net);
        self.todo |= todo::BROADCAST;
        self.finish_job(net, name, JobState::Success, "");
    }

    fn clean_up(&mut self, net: &mut Network, name: Id) {
        let Some(job) = self.job(name) else {
            return;
        };
        let (slots, after, message) = (job.slots.clone(), job.after, job.message.clone());
        let foreign = slots.without(self.table.me.slots());
        for slot in foreign.iter() {
            if self.data.count(slot) > 0 {
                self.delete_slot(net, slot);
            }
        }
        self.finish_job(net, name, after, &message);
    }

    fn start_export_snapshot(&mut self, net: &mut Network, name: Id) {
        let Some(slots) = self.job(name).map(|job| job.slots.clone()) else {
            return;
        };
        let pairs = self.data.part(&slots);
        let bytes: usize = pairs
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        if !self.start_job_child(net, name, u64::try_from(bytes).unwrap_or(0)) {
            return;
        }
        if let Some(job) = self.job(name) {
            job.snapshot = pairs;
        }
        self.set_job_state(net, name, JobState::Snapshotting);
    }

    /// Whether the slots of an export are still this process's, or the target's already.
    fn check_export(&mut self, net: &mut Network, name: Id) {
        let Some(job) = self.jobs.iter().find(|job| job.name == name) else {
            return;
        };
        if !job.state.is_under_way() {
            return;
        }
        let whole = |row: Option<&super::table::Row>| {
            row.is_some_and(|row| job.slots.without(row.slots()).is_empty())
        };
        if whole(Some(&self.table.me)) {
            return;
        }
        if whole(job.target.and_then(|id| self.table.get(id))) {
            self.finish_job(net, name, JobState::Success, "");
        } else {
            self.finish_job(
                net,
                name,
                JobState::Failed,
                "Slots are no longer owned by myself",
            );
        }
    }

    fn open_jobs(&self, export: bool) -> Vec<Id> {
        self.jobs
            .iter()
            .filter(|job| job.export == export && job.state.is_under_way())
            .map(|job| job.name)
            .collect()
    }

    /// `clusterUpdateSlotExportsOnOwnershipChange`
    pub(super) fn exports_changed_owner(&mut self, net: &mut Network) {
        for name in self.open_jobs(true) {
            self.check_export(net, name);
        }
        self.try_unpause(net);
    }

    /// `clusterUpdateSlotImportsOnOwnershipChange`
    pub(super) fn imports_changed_owner(&mut self, net: &mut Network) {
        for name in self.open_jobs(false) {
            let replica = !self.table.me.is_primary();
            let Some(job) = self.jobs.iter().find(|job| job.name == name) else {
                continue;
            };
            if replica {
                if job.state != JobState::OnPrimary {
                    self.set_job_state(net, name, JobState::OnPrimary);
                    self.drop_job_link(net, name);
                    if let Some(job) = self.job(name) {
                        job.target = None;
                        job.source = None;
                    }
                }
                continue;
            }
            let Some(source) = job.source else {
                continue;
            };
            let whole = |row: &super::table::Row| job.slots.without(row.slots()).is_empty();
            if self.table.get(source).is_some_and(whole) {
                continue;
            }
            let why = if whole(&self.table.me) {
                "Slots were unexpectedly assigned to myself during import"
            } else {
                "Slots are no longer owned by source node"
            };
            self.finish_job(net, name, JobState::Failed, why);
        }
    }

    /// All imports of this process end.
    pub(super) fn imports_end(&mut self, net: &mut Network, why: &str) {
        for name in self.open_jobs(false) {
            self.finish_job(net, name, JobState::Failed, why);
        }
    }

    /// `clusterHandleFlushDuringSlotMigration`
    pub(super) fn jobs_flushed(&mut self, net: &mut Network) {
        for name in [self.open_jobs(true), self.open_jobs(false)].concat() {
            self.finish_job(net, name, JobState::Failed, "Data was flushed");
        }
    }

    /// The other process's end is closed.
    pub(super) fn job_closed(&mut self, net: &mut Network, name: Id, refused: bool) {
        let Some(job) = self.job(name) else {
            return;
        };
        job.socket = None;
        if !job.state.is_under_way() || job.state == JobState::OnPrimary {
            return;
        }
        let export = job.export;
        match (job.state, export) {
            (JobState::ExportGranted, _) => {}
            (JobState::Connecting, _) if refused => self.finish_job(
                net,
                name,
                JobState::Failed,
                "Unable to connect to target node: Connection refused",
            ),
            (_, true) => self.finish_job(
                net,
                name,
                JobState::Failed,
                "Connection lost to target. Check CLUSTER GETSLOTMIGRATIONS on the target node for \
                 more information.",
            ),
            (_, false) => self.finish_job(
                net,
                name,
                JobState::Failed,
                "Connection lost to source. Check CLUSTER GETSLOTMIGRATIONS on the source node for \
                 more information.",
            ),
        }
        self.todo |= todo::MIGRATION;
    }

    fn drop_job_link(&mut self, net: &mut Network, name: Id) {
        if let Some(socket) = self.job(name).and_then(|job| job.socket.take()) {
            self.links.remove(&socket);
            net.close(socket);
        }
    }

    /// `finishSlotMigrationJob`
    fn finish_job(&mut self, net: &mut Network, name: Id, state: JobState, message: &str) {
        let primary = self.table.me.is_primary() && !self.replication.is_loading();
        let Some(job) = self.job(name) else {
            return;
        };
        message.clone_into(&mut job.message);
        job.pause_end = 0;
        job.snapshot.clear();
        let export = job.export;
        let dirty =
            !export && primary && job.state != JobState::CleaningUp && state != JobState::Success;
        if dirty {
            job.after = state;
            self.set_job_state(net, name, JobState::CleaningUp);
            self.drop_job_link(net, name);
            self.todo |= todo::MIGRATION;
            return;
        }
        self.set_job_state(net, name, state);
        self.drop_job_link(net, name);
        if export {
            let child =
                matches!(&self.replication.child, Some(Child::Job { name: of, .. }) if *of == name);
            if child {
                self.replication.child = None;
            }
            self.try_unpause(net);
        } else if self.table.me.is_primary() {
            let success = state == JobState::Success;
            let ends = Op::ImportEnds(name, success, message.to_owned());
            self.feed(net, ends, finish_size(name, success, message));
        }
    }

    /// `slotExportTryUnpause`
    fn try_unpause(&mut self, net: &mut Network) {
        if self.pause.migration == 0 || self.jobs.iter().any(|job| job.pause_end != 0) {
            return;
        }
        self.pause.migration = 0;
        self.resume_paused(net);
    }

    /// What a replica is told of its primary's imports.
    pub(super) fn track_imports(&mut self, net: &Network, imports: Vec<Tracked>) {
        let second = self.clock(net) / 1000;
        for Tracked { name, ranges } in imports {
            let mut job = Job::new(name, false, ranges, second);
            job.state = JobState::OnPrimary;
            self.jobs.insert(0, job);
        }
    }

    /// What a replica has to know to go on from a snapshot.
    pub(super) fn tracked_imports(&self) -> Vec<Tracked> {
        self.jobs
            .iter()
            .filter(|job| !job.export && !job.state.is_finished())
            .map(|job| Tracked {
                name: job.name,
                ranges: job.ranges.clone(),
            })
            .collect()
    }

    pub(super) fn tracked_end(&mut self, net: &mut Network, name: Id, success: bool, why: &str) {
        let state = if success {
            JobState::Success
        } else {
            JobState::Failed
        };
        self.finish_job(net, name, state, why);
    }
}

/// How many bytes `CLUSTER SYNCSLOTS ESTABLISH` has in the stream.
fn establish_size(name: Id, source: Id, ranges: &[(u16, u16)]) -> u64 {
    let (name, source) = (name.to_string(), source.to_string());
    let mut words = vec!["CLUSTER", "SYNCSLOTS", "ESTABLISH", "SOURCE", &source];
    words.extend(["NAME", &name, "SLOTSRANGE"]);
    let ends = ranges.iter().flat_map(|(start, end)| [start, end]);
    let ends: Vec<String> = ends.map(u16::to_string).collect();
    words.extend(ends.iter().map(String::as_str));
    super::execute::size(&words.iter().map(|word| word.as_bytes().to_vec()).collect())
}

/// How many bytes `CLUSTER SYNCSLOTS FINISH` has in the stream.
fn finish_size(name: Id, success: bool, message: &str) -> u64 {
    let name = name.to_string();
    let state = if success { "success" } else { "failed" };
    let mut words = vec![
        "CLUSTER",
        "SYNCSLOTS",
        "FINISH",
        "STATE",
        state,
        "NAME",
        &name,
    ];
    if !message.is_empty() {
        words.extend(["MESSAGE", message]);
    }
    super::execute::size(&words.iter().map(|word| word.as_bytes().to_vec()).collect())
}
