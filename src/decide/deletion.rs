//! The rungs of a cluster that is being deleted.
//! Never speaks the Valkey protocol, never waits for a reference or for an object that is missing.

use crate::decide::ladder::Scene;
use crate::model::decision::{Action, Verdict};
use crate::model::why::Why;
use crate::model::world::NodeFacts;

/// Every node is asked to go, then waited for.
pub(super) fn nodes(scene: Scene<'_>) -> Verdict {
    let nodes = &scene.world.nodes;
    if nodes.values().any(|node| !node.deleting) {
        return Verdict::Take(Action::DeleteAllNodes, Why::Deleting);
    }
    let held = nodes.values().find(|node| holder(node).is_some());
    match held.or_else(|| nodes.values().next()) {
        None => Verdict::Pass,
        Some(node) => Verdict::Hold(Why::NodesLeaving {
            node: node.name.clone(),
            count: nodes.len(),
            holder: holder(node).cloned(),
        }),
    }
}

/// The finalizer that alone keeps a node, where the operator let go of it.
fn holder(node: &NodeFacts) -> Option<&String> {
    let foreign = node.foreign_finalizer.as_ref();
    foreign.filter(|_| !node.finalizer)
}

/// With no node left the auth Secret and the cluster are let go; owner references do the rest.
pub(super) fn release(scene: Scene<'_>) -> Verdict {
    if scene.world.cluster.finalizer {
        Verdict::Take(Action::ReleaseCluster, Why::NothingLeft)
    } else {
        Verdict::Pass
    }
}
