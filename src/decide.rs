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
pub(crate) mod tests;
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
    Rung::new("nodes", "every node is gone", deletion::nodes),
    Rung::new("release", "it is let go already", deletion::release),
];

/// What must hold in every other state before its own rungs are asked.
const COMMON: &[Rung] = &[
    Rung::new(
        "finalizer",
        "the cluster carries the operator's finalizer",
        bootstrap::finalizer,
    ),
    Rung::new("paused", "the cluster is not paused", bootstrap::paused),
    Rung::new(
        "TLS validated",
        "the cluster needs no TLS Secret, or has one that validates",
        tls::validated,
    ),
    Rung::new(
        "kept objects",
        "its Service, Secrets and ConfigMap are its own",
        bootstrap::kept_objects,
    ),
    Rung::new(
        "TLS usable",
        "the TLS material in use is there, where any is needed",
        tls::usable,
    ),
    Rung::new(
        "menu",
        "its config, image and roles resolve",
        bootstrap::menu,
    ),
];

/// Of a cluster that is formed, and of one that is formed again.
const SNAPSHOT: Rung = Rung::new(
    "snapshot",
    "the spec to build is captured",
    bootstrap::snapshot,
);

/// Before anything is planned, in either state.
const WHOLE: Rung = Rung::new(
    "whole",
    "every slot is served and every node answers",
    stability::whole,
);

/// Before anybody is met, in either state.
const APART: Rung = Rung::new(
    "newcomers apart",
    "no newcomer is known to another cluster",
    join::newcomers_apart,
);

/// The rungs of Creating, in the order of the contract's section 7.
const CREATING: &[Rung] = &[
    SNAPSHOT,
    Rung::new(
        "dead nodes",
        "no node's pod has ended",
        bootstrap::dead_nodes,
    ),
    Rung::new(
        "mistaken nodes",
        "every node belongs to what is being built",
        bootstrap::mistaken_nodes,
    ),
    Rung::new(
        "surplus nodes",
        "no shard has too many nodes",
        bootstrap::surplus_nodes,
    ),
    Rung::new(
        "missing nodes",
        "every shard has its nodes",
        bootstrap::missing_nodes,
    ),
    Rung::new(
        "pods running",
        "every pod runs and every process answers",
        bootstrap::pods_running,
    ),
    APART,
    Rung::new(
        "nodes met",
        "every node knows every other",
        bootstrap::nodes_met,
    ),
    Rung::new(
        "stale members",
        "nobody lists a member that is gone",
        bootstrap::stale_members,
    ),
    Rung::new(
        "slots assigned",
        "every slot has an owner, and all agree on it",
        bootstrap::slots_assigned,
    ),
    Rung::new(
        "replicas attached",
        "every replica has its primary's data",
        bootstrap::replicas_attached,
    ),
    Rung::new(
        "verified",
        "every node reports the whole cluster healthy",
        bootstrap::verified,
    ),
];

/// First of Active, and of Creating where a formed cluster passes through it.
const STABILITY: &[Rung] = &[
    APART,
    Rung::new(
        "failed primary",
        "every shard has a primary that lives, or needs no help to get one",
        stability::failed_primary,
    ),
    Rung::new(
        "departed members",
        "no member is dead or gone",
        stability::departed_members,
    ),
    Rung::new(
        "missing replicas",
        "no shard lacks a replica",
        stability::missing_replicas,
    ),
];

/// Then, in a cluster that is whole, in the order of the contract's section 8.
const PLANNED: &[Rung] = &[
    WHOLE,
    Rung::new(
        "leaving nodes",
        "no node is on its way out",
        topology::leaving_nodes,
    ),
    Rung::new(
        "drained shards",
        "no shard is drained and unwanted",
        topology::drained_shards,
    ),
    Rung::new(
        "rebalance",
        "slots are spread evenly and none is moving",
        topology::rebalance,
    ),
    Rung::new(
        "missing shards",
        "there are as many shards as asked for",
        topology::missing_shards,
    ),
    Rung::new(
        "outdated nodes",
        "every node is made of what the spec resolves to",
        update::outdated_nodes,
    ),
    Rung::new(
        "excess replicas",
        "no shard has a replica too many",
        cleanup::excess_replicas,
    ),
    Rung::new(
        "fading members",
        "every member that was forgotten has faded",
        cleanup::fading_members,
    ),
];

/// What is left to do for a formed cluster that passes through Creating.
const REFORMED: &[Rung] = &[
    SNAPSHOT,
    WHOLE,
    Rung::new("formed", "the cluster is formed and Active", tls::formed),
];

/// What it means that a rung passed.
#[must_use]
pub fn clear(rung: &str) -> Option<&'static str> {
    let ladders = [DELETING, COMMON, CREATING, STABILITY, PLANNED, REFORMED];
    let mut rungs = ladders.into_iter().flatten();
    rungs.find(|one| one.name == rung).map(|one| one.clear)
}

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
    // What is waited for is said once.
    if let Verdict::Hold(why) = &decision.verdict {
        decision.notes.retain(|note| note != why);
    }
    decision
}

fn ladder_of(scene: Scene<'_>) -> &'static [Level] {
    match scene.world.cluster.status.state {
        ClusterState::Creating if scene.world.is_formed() => &[
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
