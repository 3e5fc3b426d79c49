//! What is left over goes: replicas beyond the target, members whose node is gone.
//! Never a primary, never the last copy.

use crate::api::node::Lifecycle;
use crate::decide::ladder::Scene;
use crate::model::decision::{Action, Verdict};
use crate::model::shards::{Shard, Topology};
use crate::model::why::Why;
use crate::model::world::NodeFacts;

/// A replica beyond the target: one that is not in place first, then the last by name.
pub(super) fn excess_replicas(scene: Scene<'_>) -> Verdict {
    let topology = scene.topology;
    let want = scene.desired.shape.nodes_per_shard();
    for shard in topology.shards.values() {
        let have = u32::try_from(shard.staying().count()).unwrap_or(u32::MAX);
        let Some(primary) = shard.answering_primary() else {
            continue;
        };
        if have <= want || shard.slots.is_empty() {
            continue;
        }
        let replicas = shard
            .staying()
            .filter(|node| node.name != primary.node.name);
        let worst = replicas.max_by_key(|node| (!in_place(topology, shard, node), &node.name));
        let linked = |node: &&NodeFacts| in_place(topology, shard, node);
        if let Some(node) = worst {
            let left = shard
                .staying()
                .filter(|one| one.name != node.name)
                .filter(linked);
            let left = u32::try_from(left.count()).unwrap_or(u32::MAX);
            if left < scene.desired.shape.replicas {
                return Verdict::Hold(Why::NotLinked(node.name.clone()));
            }
            let shard = shard.index;
            let why = Why::ShardLarge { shard, have, want };
            return Verdict::Take(Action::DeleteNode(node.name.clone()), why);
        }
    }
    Verdict::Pass
}

fn in_place(topology: &Topology<'_>, shard: &Shard<'_>, node: &NodeFacts) -> bool {
    let linked = shard.answering_primary().is_some_and(|primary| {
        let mut linked = topology.linked_replicas(primary);
        linked.any(|one| one.node.name == node.name)
    });
    linked && node.spec.lifecycle == Lifecycle::Active
}

/// Somebody without a node, who may just have died: looked at again before long.
pub(super) fn fading_members(scene: Scene<'_>) -> Verdict {
    let mut strangers = scene.topology.strangers.values();
    match strangers.find(|stranger| stranger.slots.is_empty()) {
        Some(stranger) if stranger.is_foreign() => {
            Verdict::Hold(Why::ForeignMember(stranger.id.clone()))
        }
        Some(stranger) => Verdict::Hold(Why::MemberUnclear(stranger.id.clone())),
        None => Verdict::Pass,
    }
}
