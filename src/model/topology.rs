//! One node's own account of the cluster, as it told it.
//! Never merges accounts: where they differ is what the rungs ask about.

use std::net::IpAddr;

use crate::model::name::ValkeyId;
use crate::model::slots::SlotSet;

/// What one Valkey process says of itself and of the others, all asked in one round trip
/// (`CLUSTER MYID`, `CLUSTER INFO`, `CLUSTER NODES`, `INFO`, `CLUSTER GETSLOTMIGRATIONS`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Its own id.
    pub id: ValkeyId,
    /// `cluster_state:ok`.
    pub cluster_ok: bool,
    /// `cluster_slots_assigned`: how many slots have an owner in its view.
    pub slots_assigned: u32,
    /// `cluster_known_nodes`, handshakes and dead rows included.
    pub known_nodes: u32,
    /// `cluster_size`: primaries that own a slot.
    pub size: u32,
    /// `cluster_current_epoch`.
    pub current_epoch: u64,
    /// `cluster_my_epoch`.
    pub my_epoch: u64,
    /// What it replicates, if it does.
    pub role: Role,
    /// Its table, in the order it gave; its own row is the one with `flags.myself`.
    pub members: Vec<Member>,
    /// It is loading a snapshot and refuses most commands meanwhile.
    pub loading: bool,
    /// Writes are paused for a failover that is under way.
    pub failing_over: bool,
    /// What it holds.
    pub load: Load,
    /// The time by its own clock, in seconds since the Unix epoch.
    pub clock: i64,
    /// The slot migrations that it takes part in and remembers, newest first.
    pub migrations: Vec<Migration>,
}

/// How much data a node holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Keys.
    pub keys: u64,
    /// `used_memory_dataset`, bytes.
    pub data_bytes: u64,
    /// `used_memory`, bytes.
    pub used_bytes: u64,
    /// `maxmemory`, bytes; 0 is no limit.
    pub max_bytes: u64,
}

/// One slot migration, as one of its two sides tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// This side gives the slots away.
    pub outgoing: bool,
    /// How far it came.
    pub state: MigrationState,
    /// Which slots.
    pub slots: SlotSet,
    /// Who gets them; a replica of the target does not tell.
    pub target: Option<ValkeyId>,
    /// When it last changed, in seconds by this side's clock.
    pub updated: i64,
    /// Why it failed, in Valkey's words.
    pub message: String,
}

/// How far a slot migration came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationState {
    /// Anything that is no end; a state that a later version adds is taken for one of these.
    Running,
    /// The target owns the slots.
    Succeeded,
    /// It failed or was cancelled: nothing changed hands.
    Failed,
}

impl NodeView {
    /// Its row of an id.
    #[must_use]
    pub fn member(&self, id: &ValkeyId) -> Option<&Member> {
        self.members.iter().find(|member| member.id == *id)
    }

    /// Whether its table has an id as a primary: of any other Valkey refuses to become a replica.
    #[must_use]
    pub fn knows_primary(&self, id: &ValkeyId) -> bool {
        self.member(id)
            .is_some_and(|row| !row.flags.handshake && row.primary.is_none())
    }

    /// The slots that it says it owns itself.
    #[must_use]
    pub fn own_slots(&self) -> SlotSet {
        self.member(&self.id)
            .map(|member| member.slots.clone())
            .unwrap_or_default()
    }

    /// The slots that others take for its own and that nobody has: a hand reset it, or took them away. The others will
    /// not learn better: Valkey keeps an owner that no longer claims a slot until somebody else claims it
    /// (`owner_not_claiming_slot` in `cluster_legacy.c`).
    pub fn given_up<'a>(&self, others: impl Iterator<Item = &'a Self>, owned: &SlotSet) -> SlotSet {
        if self.primary().is_some() {
            return SlotSet::default();
        }
        let rows = others.filter_map(|other| other.member(&self.id));
        let believed = rows.fold(SlotSet::default(), |all, row| all.union(&row.slots));
        believed.minus(owned)
    }

    /// The primary that it replicates by its own row.
    #[must_use]
    pub fn primary(&self) -> Option<&ValkeyId> {
        self.member(&self.id)?.primary.as_ref()
    }

    /// How far it is in its shard's history, bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        match self.role {
            Role::Primary { offset } | Role::Replica { offset, .. } => offset,
        }
    }

    /// The migrations by which it gives slots away and that have not ended.
    pub fn exports(&self) -> impl Iterator<Item = &Migration> {
        self.migrations
            .iter()
            .filter(|job| job.outgoing && job.state == MigrationState::Running)
    }
}

/// A node's part in replication, from `INFO replication`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// `role:master`.
    Primary {
        /// `master_repl_offset`, bytes.
        offset: u64,
    },
    /// `role:slave`.
    Replica {
        /// `master_link_status:up`: the only sign of a finished first sync.
        linked: bool,
        /// `slave_repl_offset`, bytes; below 2 it never synced.
        offset: u64,
    },
}

/// One row of a node's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id; random and passing while `flags.handshake`.
    pub id: ValkeyId,
    /// Its address, where the row has one.
    pub ip: Option<IpAddr>,
    /// What the row says of it.
    pub flags: MemberFlags,
    /// The primary that it replicates.
    pub primary: Option<ValkeyId>,
    /// Its configuration epoch.
    pub epoch: u64,
    /// The bus link to it is `connected`.
    pub connected: bool,
    /// For how many seconds nothing was heard of it, by the clock of the node whose row it is.
    pub silent_seconds: i64,
    /// The slots that it owns in this view.
    pub slots: SlotSet,
}

/// The flags of a row; see `clusterNode` flags in Valkey's `cluster_legacy.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "Valkey's own flags, each independent"
)]
pub struct MemberFlags {
    /// `myself`.
    pub myself: bool,
    /// `master`.
    pub primary: bool,
    /// `fail?`: this node's own suspicion.
    pub suspected: bool,
    /// `fail`: agreed by a majority of voting primaries.
    pub failed: bool,
    /// `handshake`.
    pub handshake: bool,
    /// `noaddr`.
    pub no_address: bool,
}

impl MemberFlags {
    /// Whether this view holds it for failing: alone, with a majority, or because its id is gone
    /// from its address.
    #[must_use]
    pub fn failing(&self) -> bool {
        self.suspected || self.failed || self.no_address
    }
}
