//! Outdated nodes are replaced, one shard at a time: a newcomer joins, an old replica goes, and the
//! primary hands over once before it goes too. Never takes a node away before its successor is there.

use crate::api::node::JoinType;
use crate::decide::join;
use crate::decide::ladder::Scene;
use crate::decide::outdated::Outdated;
use crate::model::decision::{Action, Verdict};
use crate::model::shards::{Answer, Shard, Topology, furthest};
use crate::model::why::Why;
use crate::model::world::NodeFacts;

/// Bytes that a replica may be behind when it is to take over: the primary pauses all writes until it
/// has caught up, and gives up after five seconds.
const LAG_BYTES_MAX: u64 = 1 << 20;

/// The next step of a roll. The shard that is in motion comes first, then the lowest index.
pub(super) fn outdated_nodes(scene: Scene<'_>) -> Verdict {
    let outdated = Outdated::by(scene.desired);
    let want = usize::try_from(scene.desired.shape.nodes_per_shard()).unwrap_or(usize::MAX);
    let shards = scene.topology.shards.values();
    let behind = shards.filter(|shard| shard.staying().any(|node| outdated.is(node)));
    let next = behind.min_by_key(|shard| (shard.staying().count() <= want, shard.index));
    match (next, &scene.world.acl_refusal) {
        // A new pod would not start with the file, and old ones keep their rules only while they run.
        (Some(_), Some(refusal)) => Verdict::Hold(Why::AclRefused(refusal.clone())),
        (Some(shard), None) => roll(scene.topology, shard, &outdated, want),
        (None, _) => Verdict::Pass,
    }
}

/// Whether any node is outdated.
pub(super) fn is_due(scene: Scene<'_>) -> bool {
    let outdated = Outdated::by(scene.desired);
    let mut nodes = scene.topology.shards.values().flat_map(Shard::staying);
    nodes.any(|node| outdated.is(node))
}

fn roll(
    topology: &Topology<'_>,
    shard: &Shard<'_>,
    outdated: &Outdated<'_>,
    want: usize,
) -> Verdict {
    let Some(primary) = shard.answering_primary() else {
        return Verdict::Hold(Why::PrimaryMissing(shard.index));
    };
    let old = || shard.staying().filter(|node| outdated.is(node));
    let Some(oldest) = old().next() else {
        return Verdict::Pass;
    };
    if shard.staying().count() <= want {
        let why = Why::Outdated(oldest.name.clone());
        return Verdict::Take(
            Action::CreateNode(shard.index, Some(JoinType::Replica)),
            why,
        );
    }
    // One that owns slots, by whatever hand, is no replica yet.
    let is_astray = |node: &&NodeFacts| !shard.is_primary(node) && owns_slots(node);
    let astray = || shard.staying().filter(is_astray);
    // An old replica before the primary: its successor is there.
    let replica = old().filter(|node| !shard.is_primary(node) && !owns_slots(node));
    if let Some(replica) = replica.last()
        && shard.staying().count() - astray().count() > want
    {
        let why = Why::Outdated(replica.name.clone());
        return Verdict::Take(Action::DeleteNode(replica.name.clone()), why);
    }
    match astray().last() {
        Some(owner) if !outdated.is(primary.node) => {
            Verdict::Hold(Why::SlotsAstray(owner.name.clone()))
        }
        Some(_) | None => hand_over(topology, primary, outdated),
    }
}

fn owns_slots(node: &NodeFacts) -> bool {
    node.view().is_some_and(|view| !view.own_slots().is_empty())
}

fn hand_over(topology: &Topology<'_>, primary: Answer<'_>, outdated: &Outdated<'_>) -> Verdict {
    let name = primary.node.name.clone();
    if primary.view.failing_over {
        return Verdict::Hold(Why::FailingOver(name));
    }
    if topology.moves_slots_of(primary.view) {
        return Verdict::Hold(Why::Migrating(name));
    }
    let fresh = |heir: &Answer<'_>| {
        let elected = join::is_known_by_all(topology, *heir);
        elected && !outdated.is(heir.node) && !heir.node.is_departing()
    };
    let written = primary.view.offset();
    let near = |heir: &Answer<'_>| written.saturating_sub(heir.view.offset()) <= LAG_BYTES_MAX;
    let heirs = topology.linked_replicas(primary).filter(fresh).filter(near);
    match furthest(heirs) {
        Some(heir) => Verdict::Take(
            Action::Failover(heir.node.name.clone()),
            Why::Outdated(name),
        ),
        None => Verdict::Hold(Why::Lagging(name)),
    }
}
