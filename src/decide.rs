//! Turns what is known and what is wanted into one action, or the reason to wait.
//! Never reads, writes, or remembers: the same World gives the same Decision.

mod active;
mod bootstrap;
mod deletion;
mod ladder;
pub mod node;
#[cfg(test)]
mod tests;

use crate::api::cluster::ClusterState;
use crate::decide::ladder::{Rung, Scene};
use crate::model::decision::{Action, Decision, Verdict};
use crate::model::desired::Desired;
use crate::model::world::World;

/// The rungs of a cluster that is being deleted. It comes before everything: neither a reference
/// that does not resolve nor a missing object may keep a cluster from going.
const DELETING: &[Rung] = &[
    Rung::new("nodes", deletion::nodes),
    Rung::new("release", deletion::release),
];

/// What must hold in every other state before its own rungs are asked.
const COMMON: &[Rung] = &[
    Rung::new("finalizer", bootstrap::finalizer),
    Rung::new("paused", bootstrap::paused),
    Rung::new("kept objects", bootstrap::kept_objects),
    Rung::new("menu", bootstrap::menu),
];

/// The rungs of Creating, in the order of the contract's section 7.
const CREATING: &[Rung] = &[
    Rung::new("snapshot", bootstrap::snapshot),
    Rung::new("dead nodes", bootstrap::dead_nodes),
    Rung::new("surplus nodes", bootstrap::surplus_nodes),
    Rung::new("missing nodes", bootstrap::missing_nodes),
    Rung::new("pods running", bootstrap::pods_running),
    Rung::new("nodes met", bootstrap::nodes_met),
    Rung::new("stale members", bootstrap::stale_members),
    Rung::new("slots assigned", bootstrap::slots_assigned),
    Rung::new("replicas attached", bootstrap::replicas_attached),
    Rung::new("verified", bootstrap::verified),
];

/// Picks the ladder by state and climbs it.
#[must_use]
pub fn decide(world: &World, desired: &Desired) -> Decision {
    let scene = Scene { world, desired };
    if world.cluster.deleting {
        return ladder::climb(&[DELETING], scene);
    }
    let rungs = match world.cluster.status.state {
        ClusterState::Creating => CREATING,
        ClusterState::Active | ClusterState::Updating => active::ACTIVE,
        ClusterState::Invalid => &[],
    };
    let mut decision = ladder::climb(&[COMMON, rungs], scene);
    decision.nudges = match &decision.verdict {
        Verdict::Take(Action::AssignSlots { primary, .. }, _) => {
            bootstrap::nudges_after_claim(world, primary)
        }
        Verdict::Hold(why) => bootstrap::nudges_while_waiting(world, why),
        Verdict::Take(_, _) | Verdict::Pass => Vec::new(),
    };
    decision
}
