//! The node controller's only question: ConfigMap, pod, stamp, farewell, or nothing.
//! Never makes a second pod: a stamped node without its pod is dead, and stays so.

use crate::api::node::Lifecycle;
use crate::model::decision::{NodeAction, Verdict};
use crate::model::why::Why;
use crate::model::world::{Keeping, NodeFacts, PodSighting};

/// Decides for one node.
#[must_use]
pub fn decide(node: &NodeFacts) -> Verdict<NodeAction> {
    if node.deleting {
        return farewell(node);
    }
    match (&node.config_map, &node.pod) {
        (Keeping::Foreign, _) => Verdict::Hold(Why::ConfigMapForeign(node.name.clone())),
        (_, PodSighting::Foreign) => Verdict::Hold(Why::PodForeign(node.name.clone())),
        (Keeping::Absent, _) if !node.is_dead() => Verdict::Take(
            NodeAction::CreateConfigMap,
            Why::NodeStep("it has no ConfigMap"),
        ),
        (_, PodSighting::Present(pod)) if node.stamp.is_none() => Verdict::Take(
            NodeAction::Stamp(pod.uid.clone()),
            Why::NodeStep("its pod is not recorded yet"),
        ),
        (_, PodSighting::Absent)
            if node.stamp.is_none() && node.spec.lifecycle == Lifecycle::Joining =>
        {
            Verdict::Take(NodeAction::CreatePod, Why::NodeStep("it never had a pod"))
        }
        (Keeping::Absent | Keeping::Ours(()), PodSighting::Present(_) | PodSighting::Absent) => {
            Verdict::Pass
        }
    }
}

/// The pod's deletion is requested, and that is all that is waited for: a lost machine may never
/// confirm it.
fn farewell(node: &NodeFacts) -> Verdict<NodeAction> {
    match &node.pod {
        PodSighting::Present(pod) if !pod.deleting => Verdict::Take(
            NodeAction::DeletePod(pod.uid.clone()),
            Why::NodeStep("it is being deleted"),
        ),
        PodSighting::Present(_) | PodSighting::Absent | PodSighting::Foreign => {
            if node.finalizer {
                Verdict::Take(
                    NodeAction::ReleaseNode,
                    Why::NodeStep("its pod is going or gone"),
                )
            } else {
                Verdict::Pass
            }
        }
    }
}
