//! The messages of the cluster bus (`clusterMsg` in `cluster_legacy.h`).
//! Never altered on the way.

use std::net::IpAddr;
use std::sync::Arc;

use super::id::Id;
use super::slots::Slots;

/// One message.
#[derive(Clone, Debug)]
pub(super) struct BusMessage {
    pub(super) header: Header,
    pub(super) body: Body,
}

/// What the sender says of itself in every message.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) sender: Id,
    pub(super) flags: u16,
    pub(super) announced_ip: Option<IpAddr>,
    pub(super) port: u16,
    pub(super) bus_port: u16,
    /// Its own, or a replica's primary's.
    pub(super) slots: Arc<Slots>,
    pub(super) primary: Option<Id>,
    pub(super) current_epoch: u64,
    /// Its own, or a replica's primary's.
    pub(super) config_epoch: u64,
    pub(super) offset: u64,
    /// `CLUSTERMSG_FLAG0_PAUSED`
    pub(super) paused: bool,
    /// `CLUSTERMSG_FLAG0_FORCEACK`
    pub(super) force_ack: bool,
}

/// What a message is for.
#[derive(Clone, Debug)]
pub(super) enum Body {
    Ping(Gossip),
    Pong(Gossip),
    Meet(Gossip),
    /// That a node is failing.
    Fail(Id),
    AuthRequest,
    AuthAck,
    /// What a node owns since which epoch.
    Update {
        node: Id,
        epoch: u64,
        slots: Arc<Slots>,
    },
    ManualFailoverStart,
}

/// How many kinds there are.
pub(super) const KINDS: usize = 8;

/// The names of the kinds in CLUSTER INFO, in its order.
pub(super) const KIND_NAMES: [&str; KINDS] = [
    "ping", "pong", "meet", "fail", "auth-req", "auth-ack", "update", "mfstart",
];

impl Body {
    /// Its place among the kinds.
    pub(super) fn kind(&self) -> usize {
        match self {
            Self::Ping(_) => 0,
            Self::Pong(_) => 1,
            Self::Meet(_) => 2,
            Self::Fail(_) => 3,
            Self::AuthRequest => 4,
            Self::AuthAck => 5,
            Self::Update { .. } => 6,
            Self::ManualFailoverStart => 7,
        }
    }

    /// How many bytes the whole message has.
    pub(super) fn size(&self) -> u64 {
        const HEADER: u64 = 2256;
        const ENTRY: u64 = 104;
        HEADER
            + match self {
                Self::Ping(gossip) | Self::Pong(gossip) | Self::Meet(gossip) => {
                    let entries = u64::try_from(gossip.entries.len()).unwrap_or(0);
                    entries * ENTRY + gossip.extensions.as_ref().map_or(0, Extensions::size)
                }
                Self::Fail(_) => 40,
                Self::AuthRequest | Self::AuthAck | Self::ManualFailoverStart => 0,
                Self::Update { .. } => 40 + 8 + 2048,
            }
    }
}

/// What pings carry.
#[derive(Clone, Debug)]
pub(super) struct Gossip {
    pub(super) entries: Vec<Entry>,
    /// Only to who is known to read them.
    pub(super) extensions: Option<Extensions>,
}

/// What the sender says of another node.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) id: Id,
    pub(super) flags: u16,
    pub(super) ip: Option<IpAddr>,
    pub(super) port: u16,
    pub(super) bus_port: u16,
    /// In whole seconds.
    pub(super) pong_received: i64,
}

/// What later versions added.
#[derive(Clone, Debug)]
pub(super) struct Extensions {
    pub(super) shard: Id,
    pub(super) hostname: String,
    /// Whom the sender has forgotten, and for how many more seconds.
    pub(super) forgotten: Vec<(Id, i64)>,
}

impl Extensions {
    fn size(&self) -> u64 {
        let hostname = if self.hostname.is_empty() {
            0
        } else {
            8 + (u64::try_from(self.hostname.len()).unwrap_or(0) + 1).next_multiple_of(8)
        };
        let forgotten = u64::try_from(self.forgotten.len()).unwrap_or(0);
        48 + hostname + forgotten * 56
    }
}
