//! One node's own account of the cluster, as it told it.
//! Never merges accounts: where they differ is what the rungs ask about.

use std::net::IpAddr;

use crate::model::name::ValkeyId;
use crate::model::slots::SlotSet;

/// What one Valkey process says of itself and of the others, all asked in one round trip
/// (`CLUSTER MYID`, `CLUSTER INFO`, `CLUSTER NODES`, `INFO replication`).
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
}

impl NodeView {
    /// Its row of an id.
    #[must_use]
    pub fn member(&self, id: &ValkeyId) -> Option<&Member> {
        self.members.iter().find(|member| member.id == *id)
    }

    /// The slots that it says it owns itself.
    #[must_use]
    pub fn own_slots(&self) -> SlotSet {
        self.member(&self.id)
            .map(|member| member.slots.clone())
            .unwrap_or_default()
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
