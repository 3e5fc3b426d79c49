//! Carries out what was decided, one write at a time.
//! Never decides and never reads: what it needs beyond the action is in the World.

pub mod event;
mod kubernetes;
pub mod upkeep;
mod valkey;

use std::net::IpAddr;
use std::sync::Arc;

use kube::Client;
use kube::core::Status;

use crate::model::decision::{Action, Decision, NodeAction, Nudge, Verdict};
use crate::model::desired::{Desired, PodPolicy, Resolved};
use crate::model::name::{ClusterRef, NodeName};
use crate::model::world::{Auth, Keeping, NodeFacts, World};
use crate::valkey::client::{Connector, Target};

/// Random bytes for a cluster: new ones at every call. It is told for which, so that they can be
/// had again where a run is to be repeated.
pub type Chance = Arc<dyn Fn(&ClusterRef) -> [u8; CHANCE_BYTES] + Send + Sync>;

/// What the longest need, a password, takes.
pub const CHANCE_BYTES: usize = 64;

/// Whoever holds a Writer can change the world.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    connector: Connector,
    pod_policy: PodPolicy,
    chance: Chance,
}

/// What went wrong while writing. The tick ends; the next one sees how far it came.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server did not take a write.
    #[error("failed to {verb} {kind} {name:?}")]
    Write {
        /// What was tried.
        verb: &'static str,
        /// The object's kind.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Why not.
        source: Box<kube::Error>,
    },
    /// A spec cannot be written as JSON.
    #[error("failed to encode the spec of ValkeyCluster {name:?}")]
    Encode {
        /// The cluster.
        name: String,
        /// Why not.
        source: serde_json::Error,
    },
    /// A Valkey process did not take a command.
    #[error("failed to send {command} to node {node}")]
    Command {
        /// The command.
        command: &'static str,
        /// The node.
        node: NodeName,
        /// Why not.
        source: Box<crate::valkey::client::Error>,
    },
    /// An action names what the World does not have.
    #[error("nothing is known of {what} of node {node}")]
    Unknown {
        /// What is missing.
        what: &'static str,
        /// The node.
        node: NodeName,
    },
    /// An action that needs a resolved menu came without one.
    #[error("the menu does not resolve")]
    Menu,
}

/// Whether a write was refused because its namespace is going: no other in there will be taken.
#[must_use]
pub fn in_terminating_namespace(refusal: &Status) -> bool {
    let mut causes = refusal.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == "NamespaceTerminating")
}

impl Error {
    /// Whether the API server will never take what it was sent: it breaks a rule, or is too large.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        match self {
            Self::Write { source, .. } => {
                matches!(&**source, kube::Error::Api(status) if matches!(status.code, 413 | 422))
            }
            Self::Encode { .. } | Self::Command { .. } | Self::Unknown { .. } | Self::Menu => false,
        }
    }

    /// What a Valkey process had against a command, in its words.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Command { source, .. } => source.refusal(),
            Self::Write { .. } | Self::Encode { .. } | Self::Unknown { .. } | Self::Menu => None,
        }
    }
}

impl Writer {
    /// Writes through one client and one connector.
    #[must_use]
    pub fn new(
        client: Client,
        connector: Connector,
        pod_policy: PodPolicy,
        chance: Chance,
    ) -> Self {
        Self {
            client,
            connector,
            pod_policy,
            chance,
        }
    }

    /// By how much a pause differs from what was meant, 0.8 to 1.2, so that many clusters that
    /// wait for the same do not tick at once.
    #[must_use]
    pub fn spread(&self, cluster: &ClusterRef) -> f64 {
        let [byte, ..] = (self.chance)(cluster);
        0.8 + 0.4 * f64::from(byte) / f64::from(u8::MAX)
    }

    /// Carries out a cluster's decision, then gives its gossip hints.
    ///
    /// Returns the name of the object that was made, if one was.
    pub async fn perform(
        &self,
        world: &World,
        desired: &Desired,
        decision: &Decision,
    ) -> Result<Option<NodeName>, Error> {
        let made = match &decision.verdict {
            Verdict::Take(action, _) => self.act(world, desired, action).await?,
            Verdict::Hold(_) | Verdict::Pass => None,
        };
        self.nudge(world, &decision.nudges).await;
        Ok(made)
    }

    async fn act(
        &self,
        world: &World,
        desired: &Desired,
        action: &Action,
    ) -> Result<Option<NodeName>, Error> {
        let cluster = &world.cluster;
        match action {
            Action::AddFinalizer => self.add_finalizer(cluster).await?,
            Action::Snapshot(shape) => self.snapshot(cluster, *shape).await?,
            Action::Invalidate(error) => self.invalidate(cluster, error).await?,
            Action::CreateNode(shard, join) => {
                let resolved = resolved(desired)?;
                let made = self.create_node(cluster, resolved, *shard, *join).await?;
                return Ok(Some(made));
            }
            Action::DeleteNode(node) => self.delete_node(cluster, known(world, node)?).await?,
            Action::Meet { seed, newcomer } => self.meet(world, seed, newcomer).await?,
            Action::Forget(id) => self.forget(world, id).await?,
            Action::AssignSlots { primary, range } => {
                self.assign_slots(world, primary, *range).await?;
            }
            Action::Replicate { replica, primary } => {
                self.replicate(world, replica, primary).await?;
            }
            Action::Takeover(replica) => self.takeover(world, replica).await?,
            Action::ForceFailover(replica) => self.failover_force(world, replica).await?,
            Action::Failover(replica) => self.failover(world, replica).await?,
            Action::AdoptSlots { primary, slots } => {
                self.claim_slots(world, primary, slots).await?;
            }
            Action::BumpEpoch(primary) => self.bump_epoch(world, primary).await?,
            Action::Migrate(batch) => self.migrate(world, batch).await?,
            Action::CompleteJoin(node) => self.complete_join(cluster, known(world, node)?).await?,
            Action::Leave(node) => self.leave(cluster, known(world, node)?).await?,
            Action::Reset(node) => self.reset(world, node).await?,
            Action::Activate(nodes) => self.activate(world, nodes).await?,
            Action::DeleteAllNodes => self.delete_all_nodes(world).await?,
            Action::ReleaseCluster => self.release_cluster(world).await?,
        }
        Ok(None)
    }

    /// Carries out the node controller's decision.
    pub async fn perform_node(
        &self,
        world: &World,
        desired: &Desired,
        node: &NodeFacts,
        action: &NodeAction,
    ) -> Result<(), Error> {
        let cluster = &world.cluster;
        match action {
            NodeAction::CreateConfigMap => self.create_config_map(cluster, node).await,
            NodeAction::CreatePod => self.create_pod(world, resolved(desired)?, node).await,
            NodeAction::Stamp(uid) => self.stamp(&cluster.key.namespace, node, uid).await,
            NodeAction::DeletePod(_) | NodeAction::ReleaseNode => {
                self.farewell(&cluster.key.namespace, node, action).await
            }
        }
    }

    /// The part of `perform_node` that needs no cluster: a node outlives its cluster's object.
    pub async fn farewell(
        &self,
        namespace: &str,
        node: &NodeFacts,
        action: &NodeAction,
    ) -> Result<(), Error> {
        match action {
            NodeAction::DeletePod(uid) => self.delete_pod(namespace, node, uid).await,
            NodeAction::ReleaseNode => self.release_node(namespace, node).await,
            NodeAction::CreateConfigMap | NodeAction::CreatePod | NodeAction::Stamp(_) => Ok(()),
        }
    }

    async fn nudge(&self, world: &World, nudges: &[Nudge]) {
        valkey::nudge(self, world, nudges).await;
    }
}

fn resolved(desired: &Desired) -> Result<&Resolved, Error> {
    desired.menu.as_ref().map_err(|_| Error::Menu)
}

fn known<'a>(world: &'a World, node: &NodeName) -> Result<&'a NodeFacts, Error> {
    let found = world.nodes.get(node).or_else(|| world.strays.get(node));
    found.ok_or_else(|| Error::Unknown {
        what: "the object",
        node: node.clone(),
    })
}

fn address(node: &NodeFacts) -> Result<IpAddr, Error> {
    node.stamped_pod()
        .and_then(|pod| pod.ip)
        .ok_or_else(|| Error::Unknown {
            what: "the address",
            node: node.name.clone(),
        })
}

fn auth(world: &World) -> Option<&Auth> {
    match &world.kept.auth {
        Keeping::Ours(auth) => Some(auth),
        Keeping::Absent | Keeping::Foreign => None,
    }
}

/// Where and as whom a node's process is spoken to.
fn target<'a>(world: &'a World, node: &NodeFacts) -> Result<Target<'a>, Error> {
    Target::of(world, node, address(node)?).map_err(|missing| Error::Unknown {
        what: missing.0,
        node: node.name.clone(),
    })
}
