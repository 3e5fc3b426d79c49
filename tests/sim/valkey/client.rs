//! Clients: their order of commands, what each must pass before it is run, and what makes one wait
//! (`processCommand`, `blocked.c`).
//! Never answers a later command of a connection before an earlier one.

use std::collections::VecDeque;

use super::ConnectionId;
use super::Millis;
use super::Told;
use super::Value;
use super::acl::Denied;
use super::commands::Command;
use super::commands::DENYOOM;
use super::commands::LOADING;
use super::commands::NO_AUTH;
use super::commands::READONLY;
use super::commands::WRITE_FLAG;
use super::commands::find;
use super::commands::is_container;
use super::network::Network;
use super::network::Wake;
use super::process::Process;
use super::slots::of_key;
use super::table::Row;

/// What no command has as its only words.
pub(super) type Args = Vec<Vec<u8>>;

/// One connection as its process knows it.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) user: Option<String>,
    pub(super) protocol: u8,
    pub(super) readonly: bool,
    pub(super) asking: bool,
    pub(super) name: String,
    queue: VecDeque<Args>,
    blocked: Option<Blocked>,
    /// The offset after its last write.
    written: u64,
}

/// Why the first command of a queue is not answered.
#[derive(Clone, Copy, Debug)]
enum Blocked {
    /// Writes are paused.
    Paused,
    /// WAIT: for so many replicas to have so much.
    Wait { replicas: usize, offset: u64 },
    /// SETSLOT: until the replicas have it.
    SetSlot { replicas: usize, offset: u64 },
}

/// What comes of running a command.
pub(super) enum Outcome {
    Reply(Value),
    /// The reply, and the end of the connection.
    Close(Value),
    /// WAIT has to wait for so long; zero is for ever.
    Wait {
        replicas: usize,
        time: Millis,
    },
    /// SETSLOT waits for replicas.
    Replicate {
        replicas: usize,
        time: Millis,
    },
    /// The process ended.
    Gone,
}

/// Until when writes are paused, for which reason.
#[derive(Debug, Default)]
pub(super) struct Pause {
    pub(super) failover: i64,
    pub(super) migration: i64,
    pub(super) shutdown: bool,
}

impl Pause {
    pub(super) fn is_on(&self, now: i64) -> bool {
        self.shutdown || self.failover > now || self.migration > now
    }

    /// `paused_reason` of `INFO`
    pub(super) fn reason(&self, now: i64) -> &'static str {
        if self.shutdown {
            "shutdown_in_progress"
        } else if self.failover > now {
            "failover_in_progress"
        } else {
            "none"
        }
    }
}

impl Client {
    pub(super) fn new(user: Option<String>) -> Self {
        Self {
            user,
            protocol: 2,
            readonly: false,
            asking: false,
            name: String::new(),
            queue: VecDeque::new(),
            blocked: None,
            written: 0,
        }
    }

    /// Whether it waits for an answer.
    pub(super) fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(super) fn written(&self) -> u64 {
        self.written
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// What protocol 3 has a type for, as the connection's protocol has it.
    pub(super) fn map(&self, pairs: Vec<(Value, Value)>) -> Value {
        if self.protocol == 3 {
            return Value::Map(pairs);
        }
        Value::Array(
            pairs
                .into_iter()
                .flat_map(|(key, value)| [key, value])
                .collect(),
        )
    }

    pub(super) fn verbatim(&self, text: String) -> Value {
        if self.protocol == 3 {
            Value::Verbatim(text)
        } else {
            Value::bulk(text)
        }
    }

    pub(super) fn nil(&self) -> Value {
        if self.protocol == 3 {
            Value::Null
        } else {
            Value::Nil
        }
    }
}

impl Process {
    /// A command's bytes are here.
    pub(super) fn queue_command(
        &mut self,
        net: &mut Network,
        connection: ConnectionId,
        args: Args,
    ) {
        if let Some(client) = self.clients.get_mut(&connection) {
            client.queue.push_back(args);
            self.serve(net, connection);
        }
    }

    /// Runs what a client has sent, up to what has to wait.
    fn serve(&mut self, net: &mut Network, connection: ConnectionId) {
        loop {
            let Some(client) = self.clients.get_mut(&connection) else {
                return;
            };
            if client.blocked.is_some() {
                return;
            }
            let Some(args) = client.queue.front().cloned() else {
                return;
            };
            match self.process(net, connection, &args) {
                Some(Outcome::Reply(value)) => self.reply(net, connection, value),
                Some(Outcome::Close(value)) => {
                    self.reply(net, connection, value);
                    self.close_client(net, connection);
                }
                Some(Outcome::Wait { replicas, time }) => {
                    self.block(net, connection, time, false, replicas);
                }
                Some(Outcome::Replicate { replicas, time }) => {
                    self.block(net, connection, time, true, replicas);
                }
                Some(Outcome::Gone) => return,
                None => {
                    if let Some(client) = self.clients.get_mut(&connection) {
                        client.blocked = Some(Blocked::Paused);
                    }
                }
            }
        }
    }

    fn reply(&mut self, net: &mut Network, connection: ConnectionId, value: Value) {
        if let Some(client) = self.clients.get_mut(&connection) {
            client.queue.pop_front();
            client.blocked = None;
            net.answer(connection, Told::Reply(value));
        }
    }

    pub(super) fn close_client(&mut self, net: &mut Network, connection: ConnectionId) {
        if self.clients.remove(&connection).is_some() {
            net.answer(connection, Told::Closed);
        }
    }

    fn block(
        &mut self,
        net: &mut Network,
        connection: ConnectionId,
        time: Millis,
        set_slot: bool,
        replicas: usize,
    ) {
        let offset = self.replication.offset;
        if let Some(client) = self.clients.get_mut(&connection) {
            client.blocked = Some(if set_slot {
                Blocked::SetSlot { replicas, offset }
            } else {
                Blocked::Wait {
                    replicas,
                    offset: client.written,
                }
            });
        }
        if time > 0 {
            net.wake(self.id, time, Wake::Blocked(connection));
        }
        self.want_acks();
    }

    /// WAIT's time is over.
    pub(super) fn blocked_time_is_over(&mut self, net: &mut Network, connection: ConnectionId) {
        let blocked = self
            .clients
            .get(&connection)
            .and_then(|client| client.blocked);
        match blocked {
            Some(Blocked::Wait { offset, .. }) => {
                let acked = self.replication.acked(offset);
                self.reply(net, connection, count(acked));
            }
            Some(Blocked::SetSlot { .. }) => self.reply(
                net,
                connection,
                Value::error("NOREPLICAS Not enough good replicas to write."),
            ),
            Some(Blocked::Paused) | None => return,
        }
        self.serve(net, connection);
    }

    /// An acknowledgement came: `processClientsWaitingReplicas`.
    pub(super) fn serve_waiting(&mut self, net: &mut Network) {
        let mut served = Vec::new();
        for (connection, client) in &self.clients {
            if let Some(
                Blocked::Wait { replicas, offset } | Blocked::SetSlot { replicas, offset },
            ) = client.blocked
            {
                let acked = self.replication.acked(offset);
                if acked >= replicas {
                    let wait = matches!(client.blocked, Some(Blocked::Wait { .. }));
                    served.push((*connection, acked, wait));
                }
            }
        }
        for (connection, acked, wait) in served {
            let value = if wait {
                count(acked)
            } else {
                self.finish_set_slot(net, connection)
            };
            self.reply(net, connection, value);
            self.serve(net, connection);
        }
    }

    /// The arguments of the command that a client waits for.
    pub(super) fn waiting_args(&self, connection: ConnectionId) -> Option<Args> {
        self.clients.get(&connection)?.queue.front().cloned()
    }

    /// Clients that wait for acknowledgements are cut off when the process becomes a replica.
    pub(super) fn unblock_all(&mut self, net: &mut Network) {
        let waiting: Vec<ConnectionId> = self
            .clients
            .iter()
            .filter(|(_, client)| {
                matches!(
                    client.blocked,
                    Some(Blocked::Wait { .. } | Blocked::SetSlot { .. })
                )
            })
            .map(|(connection, _)| *connection)
            .collect();
        for connection in waiting {
            self.reply(
                net,
                connection,
                Value::error(
                    "UNBLOCKED force unblock from blocking operation, instance state changed \
                     (master -> replica?)",
                ),
            );
            self.close_client(net, connection);
        }
    }

    pub(super) fn expire_pauses(&mut self, net: &mut Network) {
        if !self.pause.is_on(self.clock(net)) {
            self.resume_paused(net);
        }
    }

    /// Runs what was postponed, unless it still is.
    pub(super) fn resume_paused(&mut self, net: &mut Network) {
        if self.pause.is_on(self.clock(net)) {
            return;
        }
        let paused: Vec<ConnectionId> = self
            .clients
            .iter()
            .filter(|(_, client)| matches!(client.blocked, Some(Blocked::Paused)))
            .map(|(connection, _)| *connection)
            .collect();
        for connection in paused {
            if let Some(client) = self.clients.get_mut(&connection) {
                client.blocked = None;
            }
            self.serve(net, connection);
        }
    }

    /// `processCommand`: none if the command is to wait for the end of a pause.
    fn process(
        &mut self,
        net: &mut Network,
        connection: ConnectionId,
        args: &Args,
    ) -> Option<Outcome> {
        let refused = |text: String| Some(Outcome::Reply(Value::Error(text)));
        let client = self.clients.get(&connection)?;
        let found = lookup(args);
        let open = found
            .as_ref()
            .is_ok_and(|command| command.flags & NO_AUTH != 0);
        let user = match (&client.user, open) {
            (Some(user), _) => user.clone(),
            (None, true) => String::new(),
            (None, false) => return refused("NOAUTH Authentication required.".to_owned()),
        };
        let command = match found {
            Ok(command) => command,
            Err(why) => return refused(why),
        };
        let arity = usize::from(command.arity.unsigned_abs());
        if command.arity > 0 && args.len() != arity || args.len() < arity {
            return refused(wrong_arity(command.name));
        }
        let keys = keys(command, args);
        if command.flags & NO_AUTH == 0
            && let Err(denied) = self.permitted(&user, command, args, &keys)
        {
            return refused(denied);
        }
        if let Some(redirection) = self.redirection(connection, command, &keys) {
            return refused(redirection);
        }
        if let Some(why) = self.unfit(net, command) {
            return refused(why);
        }
        let writes = command.flags & WRITE_FLAG != 0;
        if writes && self.pause.is_on(self.clock(net)) {
            return None;
        }
        if writes && self.switches.out_of_memory {
            self.end(net, 137);
            return Some(Outcome::Gone);
        }
        let outcome = self.execute(net, connection, command, args);
        if let Some(client) = self.clients.get_mut(&connection) {
            if writes {
                client.written = self.replication.offset;
            }
            client.asking = command.name == "asking";
        }
        Some(outcome)
    }

    fn permitted(
        &self,
        user: &str,
        command: &Command,
        args: &Args,
        keys: &[Vec<u8>],
    ) -> Result<(), String> {
        let reads = !matches!(command.name, "set" | "del" | "unlink" | "mset");
        let writes = command.flags & READONLY == 0;
        let keys: Vec<(Vec<u8>, bool, bool)> = keys
            .iter()
            .map(|key| (key.clone(), reads, writes))
            .collect();
        match self.acl.check(user, command, args, &keys) {
            Ok(()) => Ok(()),
            Err(Denied::Command) => Err(format!(
                "NOPERM User {user} has no permissions to run the '{}' command",
                command.name
            )),
            Err(Denied::Key) => Err("NOPERM No permissions to access a key".to_owned()),
        }
    }

    /// `getNodeByQuery` and what it makes a client do.
    fn redirection(
        &self,
        connection: ConnectionId,
        command: &Command,
        keys: &[Vec<u8>],
    ) -> Option<String> {
        let slot = of_key(keys.first()?);
        if keys.iter().any(|key| of_key(key) != slot) {
            return Some("CROSSSLOT Keys in request don't hash to the same slot".to_owned());
        }
        let Some(owner) = self.table.owner(slot) else {
            return Some("CLUSTERDOWN Hash slot not served".to_owned());
        };
        if !self.table.ok {
            let reads = self.config.yes("cluster-allow-reads-when-down");
            if !reads {
                return Some("CLUSTERDOWN The cluster is down".to_owned());
            }
            if command.flags & WRITE_FLAG != 0 {
                return Some(
                    "CLUSTERDOWN The cluster is down and only accepts read commands".to_owned(),
                );
            }
        }
        let me = &self.table.me;
        let client = self.clients.get(&connection)?;
        let missing = || keys.iter().any(|key| self.data.get(key).is_none());
        if owner.id == me.id {
            let to = self.table.migrating.get(&slot).filter(|_| missing());
            let target = to.and_then(|id| self.table.get(*id))?;
            return Some(format!("ASK {slot} {}", self.endpoint(target)));
        }
        if self.table.importing.contains_key(&slot) && client.asking {
            return None;
        }
        let readable = client.readonly && command.flags & WRITE_FLAG == 0 && me.is_replica();
        if readable && me.primary == Some(owner.id) {
            return None;
        }
        Some(format!("MOVED {slot} {}", self.endpoint(owner)))
    }

    /// Where clients are told to go.
    pub(super) fn endpoint(&self, row: &Row) -> String {
        let ip = row.ip.map_or(String::new(), |ip| ip.to_string());
        let host = match self.config.text("cluster-preferred-endpoint-type") {
            "hostname" if row.hostname.is_empty() => "?".to_owned(),
            "hostname" => row.hostname.clone(),
            "unknown-endpoint" => String::new(),
            _ => ip,
        };
        format!("{host}:{}", row.port)
    }

    /// Whether there is no room for more. Where any key may be evicted there always is.
    pub(super) fn is_full(&self) -> bool {
        let limit = self.config.number("maxmemory");
        let evicts = self.config.text("maxmemory-policy").starts_with("allkeys-");
        let used = i64::try_from(self.data.bytes()).unwrap_or(i64::MAX);
        limit > 0 && !evicts && used > limit
    }

    /// What the process cannot do in its present state.
    fn unfit(&self, net: &Network, command: &Command) -> Option<String> {
        let has = |flag| command.flags & flag != 0;
        if has(DENYOOM) && self.is_full() {
            return Some("OOM command not allowed when used memory > 'maxmemory'.".to_owned());
        }
        let breaks = has(WRITE_FLAG) || command.name == "ping";
        if breaks && self.is_disk_broken() {
            return Some(
                "MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to \
                 persist to disk. Commands that may modify the data set are disabled, because this \
                 instance is configured to report errors during writes if RDB snapshotting fails \
                 (stop-writes-on-bgsave-error option). Please check the Valkey logs for details about \
                 the RDB error."
                    .to_owned(),
            );
        }
        let replica = self.replication.has_target();
        if has(WRITE_FLAG) && !replica && self.has_too_few_replicas(net) {
            return Some("NOREPLICAS Not enough good replicas to write.".to_owned());
        }
        if has(WRITE_FLAG) && replica && self.config.yes("replica-read-only") {
            return Some("READONLY You can't write against a read only replica.".to_owned());
        }
        if self.replication.is_loading() && !has(LOADING) {
            return Some("LOADING Valkey is loading the dataset in memory".to_owned());
        }
        None
    }

    pub(super) fn has_too_few_replicas(&self, net: &Network) -> bool {
        let wanted = self.config.number("min-replicas-to-write");
        let lag = self.config.number("min-replicas-max-lag");
        let second = self.clock(net) / 1000;
        wanted > 0 && lag > 0 && self.replication.good(second, lag) < wanted
    }

    /// Who cannot save and is told to write by a primary or by a migration's source aborts (`processCommand`).
    pub(super) fn dies_of_its_disk(&mut self, net: &mut Network) -> bool {
        let dies = self.is_disk_broken() && !self.config.yes("replica-ignore-disk-write-errors");
        if dies {
            self.say("Guru Meditation: Replica was unable to write command to disk.".to_owned());
            self.end(net, 134);
        }
        dies
    }

    /// A save failed, and save points make that matter.
    pub(super) fn is_disk_broken(&self) -> bool {
        self.switches.disk_full
            && !self.config.text("save").is_empty()
            && self.config.yes("stop-writes-on-bgsave-error")
    }
}

pub(super) fn count(number: usize) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

pub(super) fn wrong_arity(command: &str) -> String {
    format!("ERR wrong number of arguments for '{command}' command")
}

/// An argument as text, as far as it is any.
pub(super) fn text(arg: &[u8]) -> String {
    String::from_utf8_lossy(arg).into_owned()
}

/// The command, or what Valkey says where there is none.
fn lookup(args: &Args) -> Result<&'static Command, String> {
    let word = |index: usize| args.get(index).map(|arg| text(arg)).unwrap_or_default();
    let name = word(0).to_ascii_lowercase();
    if is_container(&name) && args.len() > 1 {
        let full = format!("{name}|{}", word(1).to_ascii_lowercase());
        return find(&full).ok_or_else(|| {
            let shown: String = word(1).chars().take(128).collect();
            format!(
                "ERR unknown subcommand '{shown}'. Try {} HELP.",
                word(0).to_ascii_uppercase()
            )
        });
    }
    find(&name).ok_or_else(|| {
        let mut list = String::new();
        for arg in args.iter().skip(1) {
            if list.len() >= 128 {
                break;
            }
            let room = 128 - list.len();
            let shown: String = text(arg).chars().take(room).collect();
            list.extend(["'", &shown, "' "]);
        }
        let shown: String = word(0).chars().take(128).collect();
        let whole = format!("ERR unknown command '{shown}', with args beginning with: {list}");
        whole.replace(['\r', '\n'], " ")
    })
}

/// A command's keys.
fn keys(command: &Command, args: &Args) -> Vec<Vec<u8>> {
    let (first, last, step) = command.keys;
    let Ok(first) = usize::try_from(first) else {
        return Vec::new();
    };
    if first == 0 {
        return Vec::new();
    }
    let end = match usize::try_from(last) {
        Ok(last) => last + 1,
        Err(_) => args
            .len()
            .saturating_sub(usize::from(last.unsigned_abs()) - 1),
    };
    let step = usize::try_from(step).unwrap_or(1).max(1);
    args.iter()
        .take(end)
        .skip(first)
        .step_by(step)
        .cloned()
        .collect()
}
