//! The closed list of reasons, one sentence each, for logs and for people.
//! Never decides anything.

mod advice;

use std::fmt;

use crate::model::desired::MenuError;
use crate::model::name::{NodeName, ShardIndex, ValkeyId};
use crate::model::slots::SlotSet;
use crate::model::tls::{Lapse, TlsError, TlsFlaw};

/// Why something is done or waited for. The variants' names are public: Events and metrics have them
/// as their reason, and docs/monitoring.md lists them.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
pub enum Why {
    /// The cluster is being deleted.
    Deleting,
    /// Its nodes are on their way out.
    NodesLeaving {
        /// One of them: one that is held, if there is such.
        node: NodeName,
        /// How many there are.
        count: usize,
        /// Somebody else's finalizer that keeps that one, where nothing of the operator's does any more.
        holder: Option<String>,
    },
    /// All that was made is gone.
    NothingLeft,
    /// A new object.
    NotYetOurs,
    /// The pause annotation is set.
    Paused,
    /// An object that the cluster needs exists, and is somebody else's.
    NameTaken {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The auth Secret is gone while nodes run under its passwords.
    PasswordsLost,
    /// A reference does not resolve.
    Menu(MenuError),
    /// The TLS Secret does not validate.
    TlsInvalid(TlsError),
    /// The TLS Secret validates again.
    TlsValid,
    /// What the TLS Secret holds would not work.
    TlsUnusable {
        /// The Secret.
        secret: String,
        /// What is wrong with it.
        flaw: TlsFlaw,
    },
    /// A date of the certificate in a TLS Secret has passed, or not come.
    TlsLapsed {
        /// The Secret.
        secret: String,
        /// Which date.
        lapse: Lapse,
    },
    /// Creating without a snapshot.
    NoSnapshot,
    /// A shard has fewer nodes than it should.
    ShardShort {
        /// Which.
        shard: ShardIndex,
        /// How many it has.
        have: u32,
        /// How many it should have.
        want: u32,
    },
    /// A shard has more nodes than its target.
    ShardOver {
        /// Which.
        shard: ShardIndex,
        /// How many it has.
        have: usize,
        /// How many it should have.
        want: u32,
    },
    /// A node's pod ended or vanished before the cluster was formed.
    NodeDied {
        /// Which.
        node: NodeName,
        /// In the words of whoever saw it end.
        detail: String,
    },
    /// The scheduler has no place for a pod.
    Unschedulable {
        /// The pod.
        node: NodeName,
        /// The scheduler's words.
        detail: String,
    },
    /// The kubelet cannot start a pod.
    PodWaiting {
        /// The pod.
        node: NodeName,
        /// The kubelet's words.
        detail: String,
    },
    /// Somebody else's pod has the node's name.
    PodForeign(NodeName),
    /// Somebody else's ConfigMap has the node's config name.
    ConfigMapForeign(NodeName),
    /// A pod is not made or not running yet.
    PodStarting(NodeName),
    /// A process does not answer.
    Silent {
        /// Whose.
        node: NodeName,
        /// What was tried and what came back.
        detail: String,
    },
    /// A node is not known to the seed.
    NotMet {
        /// The seed.
        seed: NodeName,
        /// The node.
        newcomer: NodeName,
    },
    /// A handshake is on its way.
    Handshaking(NodeName),
    /// An id that no node of this cluster has, and that is dead.
    StaleMember(ValkeyId),
    /// An id that no node of this cluster has, and that is alive.
    ForeignMember(ValkeyId),
    /// A newcomer that a member of another cluster met before anybody of its own.
    MetElsewhere {
        /// The newcomer.
        node: NodeName,
        /// Whom it knows.
        member: ValkeyId,
    },
    /// An id that no node of this cluster has, and of which it is not sure yet whether it is dead.
    MemberUnclear(ValkeyId),
    /// A dead primary whose replica stands for election.
    AwaitingElection {
        /// The dead primary.
        dead: ValkeyId,
        /// A replica of it.
        replica: NodeName,
    },
    /// A dead primary, and no majority that could vote for its replica.
    NoQuorum(ValkeyId),
    /// Slots without an owner.
    SlotsUnassigned(ShardIndex),
    /// The nodes do not tell the same of the slots.
    SlotsDisagree {
        /// The smallest count told.
        least: u32,
        /// The greatest.
        most: u32,
    },
    /// Slots that two nodes of the cluster claim.
    SlotsClaimedTwice(SlotSet),
    /// A node that is to be a replica, and owns slots.
    SlotsAstray(NodeName),
    /// A node of a shard that does not replicate the shard's primary.
    NotAttached {
        /// The node.
        replica: NodeName,
        /// Its primary.
        primary: NodeName,
    },
    /// A node does not know its primary yet, or not as one, or not that it owns slots.
    PrimaryUnknown {
        /// The node.
        replica: NodeName,
        /// Its primary.
        primary: NodeName,
    },
    /// A replica's first sync is not finished.
    NotLinked(NodeName),
    /// A node does not report `cluster_state:ok`.
    StateNotOk(NodeName),
    /// A node's table has more or fewer rows than the cluster has nodes.
    TableDiffers {
        /// The node.
        node: NodeName,
        /// Rows it has.
        rows: u32,
        /// Nodes there are.
        nodes: usize,
    },
    /// The number of shards is not the target's.
    ShardCount {
        /// Slot-owning primaries.
        have: u32,
        /// Asked for.
        want: u32,
    },
    /// A shard's primary does not answer, and it is not proven that it is dead.
    PrimaryUnproven(ShardIndex),
    /// A dead primary whose replica lost every election for a minute.
    ElectionLost(ValkeyId),
    /// Every copy of a shard's data is gone.
    ShardLost {
        /// Which.
        shard: ShardIndex,
        /// Its primary.
        dead: ValkeyId,
    },
    /// Every copy of all data is gone.
    ClusterLost,
    /// A replica whose primary died before its first sync was finished.
    NeverSynced(NodeName),
    /// A shard without any primary.
    PrimaryMissing(ShardIndex),
    /// Slots whose owner was given up.
    SlotsOrphaned(ShardIndex),
    /// A claim that an earlier one would win against.
    EpochLow(NodeName),
    /// A primary that is on its way out.
    PrimaryLeaving(NodeName),
    /// A member that died or left.
    MemberDead(ValkeyId),
    /// A node whose pod ended or vanished.
    NodeEnded {
        /// Which.
        node: NodeName,
        /// In the words of whoever saw it end.
        detail: String,
    },
    /// A node whose pod ended before it was a full member.
    JoinEnded {
        /// Which.
        node: NodeName,
        /// In the words of whoever saw it end.
        detail: String,
    },
    /// A process that kept silent to us and to a peer for a minute.
    Hung(NodeName),
    /// A process that outlived its node.
    Survivor(NodeName),
    /// A joining node that was made from a spec that changed since.
    JoinOutdated(NodeName),
    /// A joining node with a finished sync.
    Joined(NodeName),
    /// A node that not every member knows for what it is.
    NotKnownByAll(NodeName),
    /// A shard that is not wanted any more and owns no slot.
    ShardLeaving(ShardIndex),
    /// There are fewer shards than asked for.
    ShardsFew {
        /// How many there are.
        have: u32,
        /// How many are asked for.
        want: u32,
    },
    /// One shard has more than its share of slots and another less.
    Unbalanced {
        /// Which has more.
        from: ShardIndex,
        /// Which has less.
        to: ShardIndex,
    },
    /// A migration is under way.
    Migrating(NodeName),
    /// The last migrations of a source failed.
    MigrationFailed {
        /// Whose.
        source: NodeName,
        /// How many in a row.
        failures: u32,
        /// The newest one's reason, in Valkey's words.
        message: String,
    },
    /// What would be drained does not fit into what stays.
    DrainTooLarge {
        /// What it holds.
        data_mib: u64,
        /// What there is room for.
        room_mib: u64,
    },
    /// A primary is not ready to be given slots.
    TargetUnready(NodeName),
    /// A node that is not what the spec asks for.
    Outdated(NodeName),
    /// A node refuses the ACL file that a new one would have to start with.
    AclRefused(String),
    /// No up-to-date replica is near enough to its primary.
    Lagging(NodeName),
    /// A failover is under way.
    FailingOver(NodeName),
    /// A shard has more nodes than it should.
    ShardLarge {
        /// Which.
        shard: ShardIndex,
        /// How many there are.
        have: u32,
        /// How many are asked for.
        want: u32,
    },
    /// Every check of activation holds.
    Formed,
    /// Facts contradict each other: nothing is done.
    Inconsistent(&'static str),
    /// The node's next step.
    NodeStep(&'static str),
}

impl Why {
    /// Whether it tells of data that is gone for good.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::ShardLost { .. } | Self::ClusterLost)
    }
}

impl Why {
    /// Whether a node that goes for it is one that was to go.
    #[must_use]
    pub fn is_planned(&self) -> bool {
        matches!(
            self,
            Self::Outdated(_)
                | Self::JoinOutdated(_)
                | Self::ShardLeaving(_)
                | Self::ShardLarge { .. }
        )
    }
}

impl fmt::Display for Why {
    #[expect(clippy::too_many_lines, reason = "one sentence a variant")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deleting => f.write_str("the cluster is being deleted"),
            Self::NodesLeaving {
                node,
                holder: Some(holder),
                ..
            } => write!(
                f,
                "node {node} is kept from being deleted by finalizer {holder}, which is not the operator's"
            ),
            Self::NodesLeaving {
                node,
                count: 1,
                holder: None,
            } => write!(f, "node {node} is still being deleted"),
            Self::NodesLeaving {
                node,
                count,
                holder: None,
            } => write!(
                f,
                "{count} nodes are still being deleted, {node} among them"
            ),
            Self::NothingLeft => f.write_str("no node is left"),
            Self::NotYetOurs => f.write_str("the cluster has no cleanup finalizer yet"),
            Self::Paused => f.write_str("the cluster is paused by annotation"),
            Self::NameTaken { kind, name } => write!(
                f,
                "a {kind} named {name:?} exists that this cluster did not make: delete or rename it"
            ),
            Self::PasswordsLost => f.write_str(
                "the auth Secret is gone while nodes run under its passwords: restore it, or \
                 delete and recreate the cluster",
            ),
            Self::Menu(error) => error.fmt(f),
            Self::TlsInvalid(error) => error.fmt(f),
            Self::TlsValid => f.write_str("the TLS Secret validates again"),
            Self::TlsUnusable { secret, flaw } => {
                write!(f, "nodes are not given TLS Secret {secret:?}: {flaw}")
            }
            Self::TlsLapsed { secret, lapse } => {
                write!(f, "the certificate in TLS Secret {secret:?} {lapse}")
            }
            Self::NoSnapshot => f.write_str("the spec is not captured yet"),
            Self::ShardShort { shard, have, want } => {
                write!(f, "shard {shard} has {have} of {want} nodes")
            }
            Self::ShardOver { shard, have, want } => {
                write!(f, "shard {shard} has {have} nodes, {want} are asked for")
            }
            Self::NodeDied { node, detail } => {
                write!(
                    f,
                    "node {node} is gone before the cluster was formed: {detail}"
                )
            }
            Self::Unschedulable { node, detail } => {
                write!(f, "pod {node} cannot be scheduled: {detail}")
            }
            Self::PodWaiting { node, detail } => write!(f, "pod {node} cannot start: {detail}"),
            Self::PodForeign(node) => write!(
                f,
                "a pod named {node} exists that this cluster did not make: delete or rename it"
            ),
            Self::ConfigMapForeign(node) => write!(
                f,
                "a ConfigMap named {node}-config exists that this node did not make: delete it"
            ),
            Self::PodStarting(node) => write!(f, "pod {node} is not running yet"),
            Self::Silent { node, detail } => write!(f, "node {node} does not answer: {detail}"),
            Self::NotMet { seed, newcomer } => write!(f, "{seed} does not know {newcomer}"),
            Self::Handshaking(node) => write!(f, "{node} is being introduced"),
            Self::StaleMember(id) => write!(f, "member {id} is dead and no node of this cluster"),
            Self::MetElsewhere { node, member } => write!(
                f,
                "member {member} of another cluster met {node} before its own did"
            ),
            Self::ForeignMember(id) => {
                write!(
                    f,
                    "member {id} is alive and no node of this cluster: it is left alone"
                )
            }
            Self::MemberUnclear(id) => {
                write!(
                    f,
                    "member {id} is no node of this cluster and not proven dead yet"
                )
            }
            Self::AwaitingElection { dead, replica } => {
                write!(
                    f,
                    "primary {dead} is dead, its replica {replica} stands for election"
                )
            }
            Self::NoQuorum(id) => {
                write!(
                    f,
                    "primary {id} is dead, and too few primaries are left to elect its replica"
                )
            }
            Self::SlotsUnassigned(shard) => write!(f, "shard {shard} has slots without an owner"),
            Self::SlotsDisagree { least, most } => {
                write!(f, "nodes tell between {least} and {most} assigned slots")
            }
            Self::SlotsClaimedTwice(slots) => write!(f, "two nodes claim the same slots: {slots}"),
            Self::SlotsAstray(node) => write!(f, "{node} is to be a replica and owns slots"),
            Self::NotAttached { replica, primary } => {
                write!(f, "{replica} does not replicate {primary}")
            }
            Self::PrimaryUnknown { replica, primary } => {
                write!(f, "{replica} does not know {primary} as a primary yet")
            }
            Self::NotLinked(node) => write!(f, "replica {node} has not finished its first sync"),
            Self::StateNotOk(node) => write!(f, "{node} does not report cluster_state ok"),
            Self::TableDiffers { node, rows, nodes } => {
                write!(
                    f,
                    "{node} knows {rows} members where the cluster has {nodes}"
                )
            }
            Self::ShardCount { have, want } => write!(f, "{have} of {want} shards own slots"),
            Self::PrimaryUnproven(shard) => write!(
                f,
                "the primary of shard {shard} does not answer and is not proven dead"
            ),
            Self::ElectionLost(dead) => write!(
                f,
                "primary {dead} is dead, and no election of its replica was won for a minute"
            ),
            Self::ShardLost { shard, dead } => write!(
                f,
                "shard {shard} lost every copy of its data with its primary {dead}: its slots start empty"
            ),
            Self::ClusterLost => write!(
                f,
                "every node is gone and all data with them: the cluster starts empty"
            ),
            Self::NeverSynced(node) => write!(f, "{node} never had the data of its dead primary"),
            Self::PrimaryMissing(shard) => write!(f, "shard {shard} has no primary"),
            Self::SlotsOrphaned(shard) => write!(f, "shard {shard} gets slots that nobody owns"),
            Self::EpochLow(node) => {
                write!(f, "the claims of {node} do not have the greatest epoch")
            }
            Self::PrimaryLeaving(node) => write!(f, "primary {node} is on its way out"),
            Self::MemberDead(id) => write!(f, "member {id} is dead and not needed any more"),
            Self::NodeEnded { node, detail } => write!(f, "node {node} is dead: {detail}"),
            Self::JoinEnded { node, detail } => {
                write!(f, "node {node} ended before it had joined: {detail}")
            }
            Self::Hung(node) => write!(
                f,
                "{node} has been silent to the operator and to its peers for a minute"
            ),
            Self::Survivor(node) => write!(f, "the process of {node} outlived its node"),
            Self::JoinOutdated(node) => write!(
                f,
                "{node} was still joining when what it is made of changed"
            ),
            Self::Joined(node) => write!(f, "{node} has all that its shard has"),
            Self::NotKnownByAll(node) => {
                write!(f, "not every member knows {node} for what it is yet")
            }
            Self::ShardLeaving(shard) => {
                write!(f, "shard {shard} is not wanted any more and owns no slot")
            }
            Self::ShardsFew { have, want } => write!(f, "the cluster has {have} of {want} shards"),
            Self::Unbalanced { from, to } => write!(
                f,
                "shard {from} has more than its share of slots, shard {to} has less"
            ),
            Self::Migrating(source) => write!(f, "slots are on their way from {source}"),
            Self::MigrationFailed {
                source,
                failures,
                message,
            } => write!(
                f,
                "the last {failures} migrations from {source} failed, retrying smaller and later: {message}"
            ),
            Self::DrainTooLarge { data_mib, room_mib } => write!(
                f,
                "a drain of {data_mib} MiB does not fit into the {room_mib} MiB that are free below maxmemory in the shards that stay"
            ),
            Self::TargetUnready(node) => write!(f, "{node} is not ready to be given slots"),
            Self::Outdated(node) => write!(f, "{node} is outdated"),
            Self::AclRefused(refusal) => {
                write!(
                    f,
                    "new nodes wait for an ACL file that running ones accept: {refusal}"
                )
            }
            Self::Lagging(primary) => write!(
                f,
                "no up-to-date replica of {primary} is near enough to take its place"
            ),
            Self::FailingOver(primary) => write!(f, "{primary} is handing over to a replica"),
            Self::ShardLarge { shard, have, want } => {
                write!(f, "shard {shard} has {have} nodes where {want} are wanted")
            }
            Self::Formed => f.write_str("every node reports the whole cluster healthy"),
            Self::Inconsistent(what) => write!(f, "inconsistent: {what}"),
            Self::NodeStep(what) => f.write_str(what),
        }
    }
}
