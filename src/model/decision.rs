//! What a tick decided: the closed list of what can be done, and why.
//! Never holds an address or a password: `act` finds them in the World.

use crate::api::node::JoinType;
use crate::model::desired::Shape;
use crate::model::name::{NodeName, ShardIndex, Uid, ValkeyId};
use crate::model::slots::{SlotRange, SlotSet};
use crate::model::tls::TlsError;
use crate::model::why::Why;

/// The outcome of climbing one ladder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<A = Action> {
    /// What to do now, if anything.
    pub verdict: Verdict<A>,
    /// The rung that took or holds, by name; none where all passed.
    pub rung: Option<&'static str>,
    /// The rungs above that did not apply, by name.
    pub passed: Vec<&'static str>,
    /// Gossip hints to give while waiting. They change no topology and are not actions.
    pub nudges: Vec<Nudge>,
    /// What a person should know, whatever is done.
    pub notes: Vec<Why>,
}

/// One rung's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict<A = Action> {
    /// Do this, for that reason.
    Take(A, Why),
    /// Nothing can be done before something else happens.
    Hold(Why),
    /// The rung does not apply; of a whole ladder: there is nothing to do.
    Pass,
}

/// A MEET from one member to another that it should already know: it carries the sender's slot
/// table at once, where gossip takes seconds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nudge {
    /// Who sends.
    pub from: NodeName,
    /// To whom.
    pub to: NodeName,
}

/// All that can be done to a cluster, each a single step. The variants' names are public: Events and
/// metrics have them.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
pub enum Action {
    /// Put the cleanup finalizer on the cluster.
    AddFinalizer,
    /// Write the spec to `status.targetSpec` in this shape, with state Creating.
    Snapshot(Shape),
    /// Set the state Invalid, and say why.
    Invalidate(TlsError),
    /// Make a node for a shard; into an Active cluster it joins as something.
    CreateNode(ShardIndex, Option<JoinType>),
    /// Delete a node; its finalizer deletes the pod.
    DeleteNode(NodeName),
    /// Introduce a node to the others through a member.
    Meet {
        /// The member that is told.
        seed: NodeName,
        /// The node it is told of.
        newcomer: NodeName,
    },
    /// Make every live node forget a dead member, in this one tick.
    Forget(ValkeyId),
    /// Give slots that nobody owns to a primary.
    AssignSlots {
        /// Who gets them.
        primary: NodeName,
        /// Which.
        range: SlotRange,
    },
    /// Make a node the replica of a primary.
    Replicate {
        /// The node that becomes a replica.
        replica: NodeName,
        /// Its primary.
        primary: NodeName,
    },
    /// Let a replica take its dead primary's place without a vote.
    Takeover(NodeName),
    /// Let a replica of a dead primary stand for election now.
    ForceFailover(NodeName),
    /// Let a replica and its living primary change places without losing a write.
    Failover(NodeName),
    /// Give slots that nobody owns any more to a primary of a formed cluster.
    AdoptSlots {
        /// Who gets them.
        primary: NodeName,
        /// Which.
        slots: SlotSet,
    },
    /// Give a primary's claims the greatest epoch, so that no earlier claim is believed.
    BumpEpoch(NodeName),
    /// Start moving slots with their keys from one primary to another.
    Migrate(Batch),
    /// A node has all that its shard has: it counts as Active.
    CompleteJoin(NodeName),
    /// A node of a drained shard begins to leave.
    Leave(NodeName),
    /// Make a process that outlived its node forget the cluster.
    Reset(NodeName),
    /// Turn these Joining nodes and then the cluster Active, and clear the snapshot.
    Activate(Vec<NodeName>),
    /// Delete every node of a cluster that is being deleted.
    DeleteAllNodes,
    /// Let go of the auth Secret and then of the cluster.
    ReleaseCluster,
}

/// Slots that move together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Who owns them.
    pub source: NodeName,
    /// Who gets them.
    pub target: NodeName,
    /// Which.
    pub slots: SlotSet,
}

/// All that the node controller can do. The variants' names are public, as those of [`Action`].
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
pub enum NodeAction {
    /// Make the node's ConfigMap.
    CreateConfigMap,
    /// Make the node's pod: once in its life.
    CreatePod,
    /// Record the uid of the pod that was made.
    Stamp(Uid),
    /// Delete the pod of a node that is being deleted.
    DeletePod(Uid),
    /// Let go of the node.
    ReleaseNode,
}
