//! Turns replies into a `NodeView`.
//! Never asks the network, never guesses: an unknown field is passed over, a missing one is named.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::model::name::ValkeyId;
use crate::model::slots::{SlotRange, SlotSet};
use crate::model::topology::{
    Load, Member, MemberFlags, Migration, MigrationState, NodeView, Role,
};

/// Enough of an unreadable line to know it by: a line may list thousands of slots.
const LINE_CHARS_MAX: usize = 200;

/// What is wrong with a reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A field that Valkey always tells is missing or not of its form.
    #[error("{reply} has no readable {field}")]
    Field {
        /// The reply.
        reply: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A line of CLUSTER NODES is too short or has a field that is not of its form.
    #[error("CLUSTER NODES has an unreadable {field} in {line:?}")]
    Line {
        /// The field.
        field: &'static str,
        /// The line, or its beginning.
        line: String,
    },
    /// Not exactly one line of CLUSTER NODES is the node's own, by flag and by id.
    #[error("CLUSTER NODES has no line of its own node, or several")]
    Own,
    /// Two lines of CLUSTER NODES have one id, or one slot.
    #[error("CLUSTER NODES tells of one {what} twice")]
    Twice {
        /// A node, or a slot.
        what: &'static str,
    },
    /// CLUSTER NODES does not end with a line's end.
    #[error("CLUSTER NODES is cut off")]
    CutOff,
}

/// Reads the replies of CLUSTER MYID, CLUSTER INFO, CLUSTER NODES and INFO.
pub fn account(id: &str, info: &str, nodes: &str, server: &str) -> Result<NodeView, Error> {
    let server = Fields::of("INFO replication", server);
    let clock_ms = server.tuning("server_time_usec").unwrap_or(0) / 1000;
    let members = members(nodes, clock_ms)?;
    let id = ValkeyId::new(id);
    let mut own = members.iter().filter(|member| member.flags.myself);
    if own.next().is_none_or(|member| member.id != id) || own.next().is_some() {
        return Err(Error::Own);
    }
    let info = Fields::of("CLUSTER INFO", info);
    Ok(NodeView {
        id,
        cluster_ok: info.one_of("cluster_state", ["ok", "fail"])?,
        slots_assigned: info.number("cluster_slots_assigned")?,
        known_nodes: info.number("cluster_known_nodes")?,
        size: info.number("cluster_size")?,
        current_epoch: info.number("cluster_current_epoch")?,
        my_epoch: info.number("cluster_my_epoch")?,
        role: role(&server)?,
        members,
        loading: server.told("loading") == Some("1"),
        failing_over: server.told("paused_reason") == Some("failover_in_progress"),
        load: load(&server),
        clock: clock_ms / 1000,
        migrations: Vec::new(),
    })
}

/// What only tunes, and is 0 where it is not told: no decision turns on it alone.
fn load(server: &Fields<'_>) -> Load {
    let bytes = |field| server.tuning(field).unwrap_or(0);
    let keys = server
        .told("db0")
        .and_then(|told| told.split(',').next()?.strip_prefix("keys="))
        .and_then(digits);
    Load {
        keys: keys.unwrap_or(0),
        data_bytes: bytes("used_memory_dataset"),
        used_bytes: bytes("used_memory"),
        max_bytes: bytes("maxmemory"),
    }
}

/// Migrations that are read: enough to tell what runs and what failed in a row. Valkey remembers a
/// thousand.
const MIGRATIONS_MAX: usize = 64;

/// Reads the reply of CLUSTER GETSLOTMIGRATIONS, newest first: maps, flat ones in protocol 2.
#[must_use]
pub fn migrations(reply: redis::Value) -> Option<Vec<Migration>> {
    let jobs: Vec<redis::Value> = redis::from_redis_value(reply).ok()?;
    jobs.into_iter()
        .take(MIGRATIONS_MAX)
        .map(|job| migration(&redis::from_redis_value(job).ok()?))
        .collect()
}

fn migration(fields: &BTreeMap<String, redis::Value>) -> Option<Migration> {
    let text = |field: &str| -> Option<String> {
        redis::from_redis_value(fields.get(field)?.clone()).ok()
    };
    let ranges = text("slot_ranges")?;
    let slots = ranges.split(' ').filter(|range| !range.is_empty());
    let slots = slots.map(range).collect::<Option<Vec<SlotRange>>>()?;
    Some(Migration {
        outgoing: text("operation")? == "EXPORT",
        state: match text("state")?.as_str() {
            "success" => MigrationState::Succeeded,
            "failed" | "cancelled" => MigrationState::Failed,
            _ => MigrationState::Running,
        },
        slots: SlotSet::of(slots),
        target: text("target_node").as_deref().and_then(node_id),
        updated: text("last_update_time")?.parse().ok()?,
        message: text("message").unwrap_or_default(),
    })
}

fn role(server: &Fields<'_>) -> Result<Role, Error> {
    // A replica that never synced may tell -1.
    let offset = |offset: i64| offset.try_into().unwrap_or(0);
    if server.one_of("role", ["master", "slave"])? {
        return Ok(Role::Primary {
            offset: offset(server.number("master_repl_offset")?),
        });
    }
    Ok(Role::Replica {
        linked: server.one_of("master_link_status", ["up", "down"])?,
        offset: offset(server.number("slave_repl_offset")?),
    })
}

/// The `field:value` lines of a reply.
struct Fields<'a> {
    reply: &'static str,
    lines: Vec<(&'a str, &'a str)>,
}

impl<'a> Fields<'a> {
    fn of(reply: &'static str, text: &'a str) -> Self {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        Self {
            reply,
            lines: lines.collect(),
        }
    }

    fn told(&self, field: &str) -> Option<&'a str> {
        let mut lines = self.lines.iter();
        lines
            .find(|(name, _)| *name == field)
            .map(|(_, value)| *value)
    }

    fn tuning<T: FromStr>(&self, field: &str) -> Option<T> {
        self.told(field)?.parse().ok()
    }

    fn number<T: FromStr>(&self, field: &'static str) -> Result<T, Error> {
        self.tuning(field).ok_or_else(|| self.unreadable(field))
    }

    /// Whether it says yes; anything but `yes` and `no` is unreadable.
    fn one_of(&self, field: &'static str, [yes, no]: [&str; 2]) -> Result<bool, Error> {
        match self.told(field) {
            Some(value) if value == yes => Ok(true),
            Some(value) if value == no => Ok(false),
            Some(_) | None => Err(self.unreadable(field)),
        }
    }

    fn unreadable(&self, field: &'static str) -> Error {
        Error::Field {
            reply: self.reply,
            field,
        }
    }
}

/// Reads a CLUSTER NODES reply; the form is in `clusterGenNodesDescription` of `cluster_legacy.c`.
fn members(nodes: &str, clock_ms: i64) -> Result<Vec<Member>, Error> {
    if !nodes.ends_with('\n') {
        return Err(Error::CutOff);
    }
    let members = nodes
        .lines()
        .map(|line| member(line, clock_ms))
        .collect::<Result<Vec<Member>, Error>>()?;
    let mut ids: Vec<&ValkeyId> = members.iter().map(|member| &member.id).collect();
    ids.sort_unstable();
    if ids.windows(2).any(|pair| pair.first() == pair.last()) {
        return Err(Error::Twice { what: "node" });
    }
    let ranges = || members.iter().flat_map(|member| member.slots.ranges());
    let counted: u32 = ranges().map(|range| range.count()).sum();
    if SlotSet::of(ranges().copied().collect()).count() != counted {
        return Err(Error::Twice { what: "slot" });
    }
    Ok(members)
}

fn member(line: &str, clock_ms: i64) -> Result<Member, Error> {
    let unreadable = |field| Error::Line {
        field,
        line: line.chars().take(LINE_CHARS_MAX).collect(),
    };
    let mut fields = line.split(' ');
    let mut next = |field| fields.next().ok_or_else(|| unreadable(field));
    let id = next("id")?;
    let address = next("address")?;
    let flags = next("flags")?;
    let primary = next("primary")?;
    let (ping_sent, pong_received) = (next("ping time")?, next("pong time")?);
    let epoch = next("epoch")?;
    let link = next("link state")?;
    let slots = fields
        // In brackets: a slot that is being moved by hand; it still belongs to its owner's range.
        .filter(|slots| !slots.starts_with('['))
        .map(|slots| range(slots).ok_or_else(|| unreadable("slots")))
        .collect::<Result<Vec<SlotRange>, Error>>()?;
    Ok(Member {
        id: node_id(id).ok_or_else(|| unreadable("id"))?,
        ip: ip(address)
            .ok_or_else(|| unreadable("address"))?
            .parse()
            .ok(),
        flags: member_flags(flags),
        primary: match primary {
            "-" => None,
            id => Some(node_id(id).ok_or_else(|| unreadable("primary"))?),
        },
        epoch: digits(epoch).ok_or_else(|| unreadable("epoch"))?,
        connected: match link {
            "connected" => true,
            "disconnected" => false,
            _ => return Err(unreadable("link state")),
        },
        silent_seconds: silent_ms(clock_ms, pong_received, ping_sent) / 1000,
        slots: SlotSet::of(slots),
    })
}

/// Since the last answer, or, of one that never answered, since the first question. Both are 0 in a
/// node's own row.
fn silent_ms(clock_ms: i64, pong_received: &str, ping_sent: &str) -> i64 {
    let times = [pong_received, ping_sent].map(|time| time.parse().unwrap_or(0));
    let last = times.into_iter().find(|time| *time > 0);
    last.map_or(0, |last| clock_ms.saturating_sub(last).max(0))
}

fn node_id(text: &str) -> Option<ValkeyId> {
    (text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| ValkeyId::new(text))
}

/// Of `<ip>:<port>@<bus>[,<hostname>[,...]]`. It is empty for a node that was never met and for a
/// ghost, and may be announced as a name.
fn ip(address: &str) -> Option<&str> {
    let (address, _bus) = address.split_once('@')?;
    let (ip, _port) = address.rsplit_once(':')?;
    Some(ip)
}

fn member_flags(flags: &str) -> MemberFlags {
    let mut read = MemberFlags::default();
    for flag in flags.split(',') {
        match flag {
            "myself" => read.myself = true,
            "master" => read.primary = true,
            "fail?" => read.suspected = true,
            "fail" => read.failed = true,
            "handshake" => read.handshake = true,
            "noaddr" => read.no_address = true,
            // `slave`, `nofailover`, `noflags`, and what a later version may add.
            _ => {}
        }
    }
    read
}

fn range(text: &str) -> Option<SlotRange> {
    let (start, end) = text.split_once('-').unwrap_or((text, text));
    SlotRange::new(digits(start)?, digits(end)?)
}

/// Rust would take a sign as well.
fn digits<T: FromStr>(text: &str) -> Option<T> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests;
