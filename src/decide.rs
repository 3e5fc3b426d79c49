//! Turns what is known and what is wanted into one action, or the reason to wait.
//! Never reads, writes, or remembers: the same World gives the same Decision.

mod balance;
mod bootstrap;
mod cleanup;
mod deletion;
mod join;
mod ladder;
pub mod node;
mod outdated;
mod stability;
#[cfg(test)]
mod tests;
mod tls;
mod topology;
mod update;

use crate::api::cluster::ClusterState;
use crate::decide::ladder::{Level, Rung, Scene};
use crate::model::decision::{Action, Decision, Verdict};
use crate::model::desired::Desired;
use crate::model::shards::Topology;
use crate::model::why::Why;
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
    Rung::new("TLS validated", tls::validated),
    Rung::new("kept objects", bootstrap::kept_objects),
    Rung::new("TLS usable", tls::usable),
    Rung::new("menu", bootstrap::menu),
];

/// The rungs of Creating, in the order of the contract's section 7.
const CREATING: &[Rung] = &[
    Rung::new("snapshot", bootstrap::snapshot),
    Rung::new("dead nodes", bootstrap::dead_nodes),
    Rung::new("mistaken nodes", bootstrap::mistaken_nodes),
    Rung::new("surplus nodes", bootstrap::surplus_nodes),
    Rung::new("missing nodes", bootstrap::missing_nodes),
    Rung::new("pods running", bootstrap::pods_running),
    Rung::new("nodes met", bootstrap::nodes_met),
    Rung::new("stale members", bootstrap::stale_members),
    Rung::new("slots assigned", bootstrap::slots_assigned),
    Rung::new("replicas attached", bootstrap::replicas_attached),
    Rung::new("verified", bootstrap::verified),
];

/// First of Active, and of Creating where a formed cluster passes through it.
const STABILITY: &[Rung] = &[
    Rung::new("failed primary", stability::failed_primary),
    Rung::new("departed members", stability::departed_members),
    Rung::new("missing replicas", stability::missing_replicas),
];

/// Then, in a cluster that is whole, in the order of the contract's section 8.
const PLANNED: &[Rung] = &[
    Rung::new("whole", stability::whole),
    Rung::new("leaving nodes", topology::leaving_nodes),
    Rung::new("drained shards", topology::drained_shards),
    Rung::new("rebalance", topology::rebalance),
    Rung::new("missing shards", topology::missing_shards),
    Rung::new("outdated nodes", update::outdated_nodes),
    Rung::new("excess replicas", cleanup::excess_replicas),
    Rung::new("orphan nodes", cleanup::orphan_nodes),
    Rung::new("fading members", cleanup::fading_members),
];

/// What is left to do for a formed cluster that passes through Creating.
const REFORMED: &[Rung] = &[
    Rung::new("snapshot", bootstrap::snapshot),
    Rung::new("whole", stability::whole),
    Rung::new("formed", tls::formed),
];

/// Picks the ladder by state and climbs it.
#[must_use]
pub fn decide(world: &World, desired: &Desired) -> Decision {
    let reading = Topology::of(world);
    let scene = Scene {
        world,
        desired,
        topology: &reading,
    };
    if world.cluster.deleting {
        return ladder::climb(&[Level::Strict(DELETING)], scene);
    }
    let mut decision = ladder::climb(ladder_of(scene), scene);
    decision.nudges = match &decision.verdict {
        Verdict::Take(
            Action::AssignSlots { primary, .. } | Action::AdoptSlots { primary, .. },
            _,
        ) => bootstrap::nudges_after_claim(world, primary),
        Verdict::Hold(why) => bootstrap::nudges_while_waiting(world, why),
        Verdict::Take(_, _) | Verdict::Pass => Vec::new(),
    };
    let foreign = reading.strangers.values().filter(|one| one.is_foreign());
    decision.notes = foreign
        .map(|one| Why::ForeignMember(one.id.clone()))
        .collect();
    if let Some(Ok(offer)) = &desired.tls {
        decision.notes.extend(tls::notes(offer));
    }
    decision
}

fn ladder_of(scene: Scene<'_>) -> &'static [Level] {
    match scene.world.cluster.status.state {
        ClusterState::Creating if tls::is_formed(scene.world) => &[
            Level::Strict(COMMON),
            Level::Open(STABILITY),
            Level::Strict(REFORMED),
        ],
        ClusterState::Creating => &[Level::Strict(COMMON), Level::Strict(CREATING)],
        ClusterState::Active | ClusterState::Updating => &[
            Level::Strict(COMMON),
            Level::Open(STABILITY),
            Level::Strict(PLANNED),
        ],
        ClusterState::Invalid => &[Level::Strict(COMMON)],
    }
}
