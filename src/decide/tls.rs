//! The rungs of a TLS cluster's Secret: into Invalid, and out of it again.
//! Never a reason to touch what runs: nodes go on with what they were given last.

use std::collections::BTreeMap;

use crate::api::cluster::ClusterState;
use crate::api::node::Lifecycle;
use crate::decide::ladder::Scene;
use crate::model::decision::{Action, Verdict};
use crate::model::desired::{Shape, TlsOffer};
use crate::model::name::ShardIndex;
use crate::model::why::Why;
use crate::model::world::{Keeping, NodeFacts};

/// The state follows the Secret, whatever it was.
pub(super) fn validated(scene: Scene<'_>) -> Verdict {
    let status = &scene.world.cluster.status;
    let invalid = status.state == ClusterState::Invalid;
    match &scene.desired.tls {
        Some(Err(error)) => {
            let why = Why::TlsInvalid(error.clone());
            if invalid && status.message.as_ref() == Some(&error.to_string()) {
                Verdict::Hold(why)
            } else {
                Verdict::Take(Action::Invalidate(error.clone()), why)
            }
        }
        Some(Ok(_)) | None if invalid => {
            Verdict::Take(Action::Snapshot(shape(scene)), Why::TlsValid)
        }
        Some(Ok(_)) | None => Verdict::Pass,
    }
}

/// Without any material that works there is nothing to make a node with.
pub(super) fn usable(scene: Scene<'_>) -> Verdict {
    match (&scene.world.kept.tls, &scene.desired.tls) {
        (Keeping::Absent, Some(Ok(offer))) => unusable(offer).map_or(Verdict::Pass, Verdict::Hold),
        (Keeping::Absent | Keeping::Ours(_) | Keeping::Foreign, _) => Verdict::Pass,
    }
}

/// What a person should know of a Secret that validates.
pub(super) fn notes(offer: &TlsOffer) -> impl Iterator<Item = Why> {
    let lapsed = offer.lapse.clone().map(|lapse| Why::TlsLapsed {
        secret: offer.secret.clone(),
        lapse,
    });
    unusable(offer).into_iter().chain(lapsed)
}

fn unusable(offer: &TlsOffer) -> Option<Why> {
    offer.flaw.clone().map(|flaw| Why::TlsUnusable {
        secret: offer.secret.clone(),
        flaw,
    })
}

/// A cluster that was formed before and is whole is Active again. Nodes that join or leave go on with
/// that then. A shard that was emptied meanwhile is no part of it any more, and a replica that joined is.
pub(super) fn formed(scene: Scene<'_>) -> Verdict {
    let shape = shape(scene);
    if shape == scene.desired.shape {
        Verdict::Take(Action::Activate(Vec::new()), Why::Formed)
    } else {
        Verdict::Take(Action::Snapshot(shape), Why::Formed)
    }
}

/// What to build on the way back. A formed cluster keeps its shape, and one that was being formed its
/// target: edits made meanwhile wait until it is Active. Else it is what is asked for now.
fn shape(scene: Scene<'_>) -> Shape {
    let world = scene.world;
    let spec = &world.cluster.spec;
    let live = Shape {
        shards: spec.shards,
        replicas: spec.replicas_per_shard,
    };
    if world.is_formed() {
        return formed_shape(scene, live);
    }
    let begun = world.cluster.status.target_spec.as_ref();
    match begun.filter(|_| !world.nodes.is_empty()) {
        Some(target) => Shape {
            shards: target.shards,
            replicas: target.replicas_per_shard,
        },
        None => live,
    }
}

/// By the full members of the shards that own slots; of all where nobody answers who could tell. Shards
/// may have more or fewer replicas in the middle of a roll or a repair: what is asked for decides between
/// the fewest and the most.
fn formed_shape(scene: Scene<'_>, live: Shape) -> Shape {
    let topology = scene.topology;
    let serves = |node: &NodeFacts| {
        let shard = topology.shards.get(&node.shard());
        topology.owned.is_empty() || shard.is_some_and(|shard| !shard.slots.is_empty())
    };
    let mut shards: BTreeMap<ShardIndex, u32> = BTreeMap::new();
    for node in scene.world.nodes.values() {
        if node.spec.lifecycle == Lifecycle::Active && !node.deleting && serves(node) {
            *shards.entry(node.shard()).or_default() += 1;
        }
    }
    let (least, most) = (shards.values().min(), shards.values().max());
    let (Some(least), Some(most)) = (least, most) else {
        return live;
    };
    Shape {
        shards: u32::try_from(shards.len()).unwrap_or(live.shards),
        replicas: live.replicas.clamp(least - 1, most - 1),
    }
}
