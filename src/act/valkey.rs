//! The Valkey commands of `perform`, each to the process that the World saw in this very tick.
//! Never dials an address that no pod of the cluster holds.

use futures::future::join_all;
use tracing::debug;

use crate::act::{Error, Writer, address, known, target};
use crate::api::TLS_PATHS;
use crate::model::chain;
use crate::model::decision::{Batch, Nudge};
use crate::model::name::{NodeName, ValkeyId};
use crate::model::slots::{SlotRange, SlotSet};
use crate::model::topology::NodeView;
use crate::model::world::{NodeFacts, PodPhase, World};

impl Writer {
    /// The newcomer's address answered with its id, as this cluster's own, earlier in this tick.
    pub(super) async fn meet(
        &self,
        world: &World,
        seed: &NodeName,
        newcomer: &NodeName,
    ) -> Result<(), Error> {
        let (seed, newcomer) = (known(world, seed)?, known(world, newcomer)?);
        let sent = self
            .connector
            .meet(&target(world, seed)?, address(newcomer)?)
            .await;
        sent.map_err(|source| failed("CLUSTER MEET", seed, source))
    }

    /// To every node that answered and lists the id, at once: Valkey does not gossip a FORGET for
    /// longer than a minute, and one node that remembers brings the dead row back to all.
    pub(super) async fn forget(&self, world: &World, id: &ValkeyId) -> Result<(), Error> {
        let replicates = |node: &NodeFacts| node.view().and_then(NodeView::primary) == Some(id);
        let listing = world.nodes.values().filter(|node| {
            node.view().is_some_and(|view| view.member(id).is_some()) && !replicates(node)
        });
        let told = join_all(listing.map(|node| async move {
            let sent = self.connector.forget(&target(world, node)?, id).await;
            sent.map_err(|source| failed("CLUSTER FORGET", node, source))
        }))
        .await;
        told.into_iter().collect()
    }

    /// Tells every running node to read its ACL file again; returns those that could not.
    pub async fn reload_acls(&self, world: &World) -> Vec<(NodeName, Error)> {
        let told = join_all(running(world).map(|node| async move {
            let target = target(world, node).map_err(|error| (node.name.clone(), error))?;
            let sent = self.connector.acl_load(&target).await;
            sent.map_err(|source| (node.name.clone(), failed("ACL LOAD", node, source)))
        }));
        told.await.into_iter().filter_map(Result::err).collect()
    }

    /// Points every running node at its TLS files, so that it reads them again; returns those that
    /// could not. Open connections live on, and files that do not fit each other change nothing.
    pub async fn reload_certificates(&self, world: &World) -> Vec<(NodeName, Error)> {
        let told = join_all(running(world).map(|node| async move {
            let target = target(world, node).map_err(|error| (node.name.clone(), error))?;
            let sent = self.connector.config_set(&target, &TLS_PATHS).await;
            sent.map_err(|source| (node.name.clone(), failed("CONFIG SET", node, source)))
        }));
        told.await.into_iter().filter_map(Result::err).collect()
    }

    pub(super) async fn assign_slots(
        &self,
        world: &World,
        primary: &NodeName,
        range: SlotRange,
    ) -> Result<(), Error> {
        let primary = known(world, primary)?;
        let sent = self
            .connector
            .add_slots(&target(world, primary)?, range)
            .await;
        sent.map_err(|source| failed("CLUSTER ADDSLOTSRANGE", primary, source))
    }

    pub(super) async fn replicate(
        &self,
        world: &World,
        replica: &NodeName,
        primary: &NodeName,
    ) -> Result<(), Error> {
        let (replica, primary) = (known(world, replica)?, known(world, primary)?);
        let sent = self
            .connector
            .replicate(&target(world, replica)?, id(primary)?)
            .await;
        sent.map_err(|source| failed("CLUSTER REPLICATE", replica, source))
    }

    pub(super) async fn claim_slots(
        &self,
        world: &World,
        primary: &NodeName,
        slots: &SlotSet,
    ) -> Result<(), Error> {
        let primary = known(world, primary)?;
        let sent = self
            .connector
            .add_slot_set(&target(world, primary)?, slots)
            .await;
        sent.map_err(|source| failed("CLUSTER ADDSLOTSRANGE", primary, source))
    }

    pub(super) async fn bump_epoch(&self, world: &World, primary: &NodeName) -> Result<(), Error> {
        let primary = known(world, primary)?;
        let sent = self.connector.bump_epoch(&target(world, primary)?).await;
        sent.map_err(|source| failed("CLUSTER BUMPEPOCH", primary, source))
    }

    pub(super) async fn migrate(&self, world: &World, batch: &Batch) -> Result<(), Error> {
        let source = known(world, &batch.source)?;
        let to = id(known(world, &batch.target)?)?;
        let sent = self
            .connector
            .migrate_slots(&target(world, source)?, &batch.slots, to)
            .await;
        sent.map_err(|error| failed("CLUSTER MIGRATESLOTS", source, error))
    }

    pub(super) async fn failover(&self, world: &World, replica: &NodeName) -> Result<(), Error> {
        let replica = known(world, replica)?;
        let sent = self.connector.failover(&target(world, replica)?).await;
        sent.map_err(|source| failed("CLUSTER FAILOVER", replica, source))
    }

    pub(super) async fn failover_force(
        &self,
        world: &World,
        replica: &NodeName,
    ) -> Result<(), Error> {
        let replica = known(world, replica)?;
        let target = target(world, replica)?;
        let sent = self.connector.failover_force(&target).await;
        sent.map_err(|source| failed("CLUSTER FAILOVER FORCE", replica, source))
    }

    pub(super) async fn reset(&self, world: &World, node: &NodeName) -> Result<(), Error> {
        let node = known(world, node)?;
        let sent = self.connector.reset(&target(world, node)?).await;
        sent.map_err(|source| failed("CLUSTER RESET HARD", node, source))
    }

    pub(super) async fn takeover(&self, world: &World, replica: &NodeName) -> Result<(), Error> {
        let replica = known(world, replica)?;
        let sent = self.connector.takeover(&target(world, replica)?).await;
        sent.map_err(|source| failed("CLUSTER FAILOVER TAKEOVER", replica, source))
    }
}

fn running(world: &World) -> impl Iterator<Item = &NodeFacts> {
    world.nodes.values().filter(|node| {
        node.stamped_pod()
            .is_some_and(|pod| pod.phase == PodPhase::Running && !pod.deleting)
    })
}

fn id(node: &NodeFacts) -> Result<&ValkeyId, Error> {
    let view = node.view().ok_or_else(|| Error::Unknown {
        what: "the id",
        node: node.name.clone(),
    })?;
    Ok(&view.id)
}

fn failed(command: &'static str, node: &NodeFacts, source: crate::valkey::client::Error) -> Error {
    Error::Command {
        command,
        node: node.name.clone(),
        source: Box::new(source),
    }
}

/// Gossip hints are given all at once. One that fails is not missed: gossip brings the same news
/// later, and the next tick hints again.
pub(super) async fn nudge(writer: &Writer, world: &World, nudges: &[Nudge]) {
    join_all(nudges.iter().map(|nudge| async move {
        if let Err(error) = writer.meet(world, &nudge.from, &nudge.to).await {
            debug!(
                cluster_name = world.cluster.key.name,
                namespace = world.cluster.key.namespace,
                node = %nudge.from,
                error = chain::of(&error),
                "gossip hint failed"
            );
        }
    }))
    .await;
}
