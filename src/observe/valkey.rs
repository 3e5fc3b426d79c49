//! Asks every running pod of a cluster for its account, all at once.
//! Never drops the silent: silence is an answer.

use futures::future::join_all;
use tracing::debug;

use crate::api::cluster::ClusterState;
use crate::model::chain;
use crate::model::name::ClusterRef;
use crate::model::world::{Keeping, NodeFacts, PodPhase, Sighting, World};
use crate::valkey::client::{Connector, Error, Target};

/// Fills in what each process says. A node without its own running pod is not asked.
pub(super) async fn ask_all(connector: &Connector, world: &mut World) {
    if !matches!(world.kept.auth, Keeping::Ours(_)) {
        return;
    }
    let seen: &World = world;
    let everyone = seen.nodes.values().chain(seen.strays.values());
    let sightings = join_all(everyone.map(|node| async {
        let Some(address) = address(node) else {
            return Sighting::NotAsked;
        };
        let target = match Target::of(seen, node, address) {
            Ok(target) => target,
            Err(missing) => return Sighting::Silent(missing.to_string()),
        };
        match connector.account(&target).await {
            Ok(view) => Sighting::Answered(view),
            Err(failure) => without_account(seen, node, &failure),
        }
    }))
    .await;
    let everyone = world.nodes.values_mut().chain(world.strays.values_mut());
    for (node, sighting) in everyone.zip(sightings) {
        node.sighting = sighting;
    }
}

fn without_account(world: &World, node: &NodeFacts, failure: &Error) -> Sighting {
    let ClusterRef { namespace, name } = &world.cluster.key;
    debug!(cluster_name = name, namespace, node = %node.name, ?failure, "no account of a node");
    let detail = chain::of(failure);
    if failure.is_locked_out() {
        Sighting::LockedOut(detail)
    } else {
        Sighting::Silent(detail)
    }
}

/// Whether a cluster that is being formed still waits for pods: nobody is asked before. One that was formed serves.
pub(super) fn starting(world: &World) -> bool {
    let mut staying = world.nodes.values().filter(|node| !node.deleting);
    world.cluster.status.state == ClusterState::Creating
        && !world.is_formed()
        && staying.any(|node| address(node).is_none())
}

fn address(node: &NodeFacts) -> Option<std::net::IpAddr> {
    let pod = node.stamped_pod()?;
    if pod.phase == PodPhase::Running {
        pod.ip
    } else {
        None
    }
}
