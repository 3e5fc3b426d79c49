//! As many shards as asked for, each with its share of the slots: leavers go, drained shards leave,
//! slots move, new shards join. Never takes a node away that owns a slot or takes part in a move.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::node::{JoinType, Lifecycle};
use crate::decide::balance::{batch, failures, shares};
use crate::decide::bootstrap::not_answering;
use crate::decide::join;
use crate::decide::ladder::Scene;
use crate::decide::update;
use crate::model::decision::{Action, Batch, Verdict};
use crate::model::name::ShardIndex;
use crate::model::shards::{Answer, Shard, Topology};
use crate::model::slots::SlotSet;
use crate::model::topology::Load;
use crate::model::why::Why;
use crate::model::world::NodeFacts;

/// Nodes that began to leave go, replicas before their empty primary.
pub(super) fn leaving_nodes(scene: Scene<'_>) -> Verdict {
    let topology = scene.topology;
    for shard in topology.shards.values() {
        let leaving = shard.nodes.iter().filter(|node| {
            node.spec.lifecycle == Lifecycle::Leaving && !node.deleting && !node.is_dead()
        });
        let last = leaving.clone().max_by_key(|node| !shard.is_primary(node));
        let Some(node) = last else { continue };
        if let Some(why) = still_needed(topology, shard, node) {
            return Verdict::Hold(why);
        }
        let why = Why::ShardLeaving(shard.index);
        return Verdict::Take(Action::DeleteNode(node.name.clone()), why);
    }
    Verdict::Pass
}

/// Slots of it or of its primary in anybody's view, their own as well, or a move to or from its shard that has not
/// ended.
fn still_needed(topology: &Topology<'_>, shard: &Shard<'_>, node: &NodeFacts) -> Option<Why> {
    let primary = shard.answering_primary();
    if let Some(primary) = primary.filter(|primary| topology.moves_slots_of(primary.view)) {
        return Some(Why::Migrating(primary.node.name.clone()));
    }
    let owns = |one: &Answer<'_>| {
        let views = topology.answers.iter().map(|by| by.view);
        let mut rows = views.filter_map(|view| view.member(&one.view.id));
        rows.any(|row| !row.slots.is_empty())
    };
    let owner = primary.into_iter().chain(topology.answer(node)).find(owns);
    owner.map(|owner| Why::NotKnownByAll(owner.node.name.clone()))
}

/// A shard too many that owns nothing any more sends its nodes off, replicas first. So go those that the
/// contract's cleanup names too: nodes of no shard are a shard that owns nothing, and one too many.
pub(super) fn drained_shards(scene: Scene<'_>) -> Verdict {
    let topology = scene.topology;
    let unwanted = unwanted(scene);
    let drained = topology.shards.values().filter(|shard| {
        shard.slots.is_empty() && (shard.is_leaving() || unwanted.contains(&shard.index))
    });
    for shard in drained {
        let staying = shard
            .staying()
            .filter(|node| node.spec.lifecycle != Lifecycle::Leaving);
        let Some(node) = staying.max_by_key(|node| !shard.is_primary(node)) else {
            continue;
        };
        if let Some(why) = still_needed(topology, shard, node) {
            return Verdict::Hold(why);
        }
        let why = Why::ShardLeaving(shard.index);
        return Verdict::Take(Action::Leave(node.name.clone()), why);
    }
    Verdict::Pass
}

/// The shards that are there to last: those with an owner or with nodes that stay.
fn in_use<'s, 'a>(topology: &'s Topology<'a>) -> impl Iterator<Item = &'s Shard<'a>> {
    let shards = topology.shards.values();
    shards.filter(|shard| {
        !shard.slots.is_empty() || !shard.is_leaving() && shard.staying().next().is_some()
    })
}

/// The shards too many: those with the fewest slots, of those the highest index. What was drained a
/// little has fewest, so that the choice stands.
fn unwanted(scene: Scene<'_>) -> BTreeSet<ShardIndex> {
    let mut shards: Vec<&Shard<'_>> = in_use(scene.topology).collect();
    shards.sort_by_key(|shard| (shard.slots.count(), std::cmp::Reverse(shard.index)));
    let want = usize::try_from(scene.desired.shape.shards).unwrap_or(usize::MAX);
    let excess = shards.len().saturating_sub(want);
    shards
        .iter()
        .take(excess)
        .map(|shard| shard.index)
        .collect()
}

/// Somebody who owns slots.
struct Source<'a> {
    owner: Answer<'a>,
    slots: SlotSet,
    /// How many of them should go.
    surplus: u32,
}

/// A plan of moves, with those that are under way counted as done.
struct Plan<'a> {
    sources: Vec<Source<'a>>,
    targets: BTreeMap<ShardIndex, (Answer<'a>, u32)>,
}

/// One batch from one shard that has too many slots to one that has too few. The next tick may start
/// another source's while it runs. What fails for want of room does not hold up a roll: it may be what makes
/// the room.
pub(super) fn rebalance(scene: Scene<'_>) -> Verdict {
    match next_move(scene) {
        Verdict::Hold(Why::MigrationFailed { .. } | Why::DrainTooLarge { .. })
            if update::is_due(scene) =>
        {
            Verdict::Pass
        }
        verdict @ (Verdict::Take(_, _) | Verdict::Hold(_) | Verdict::Pass) => verdict,
    }
}

fn next_move(scene: Scene<'_>) -> Verdict {
    let topology = scene.topology;
    let unwanted = unwanted(scene);
    let Some(plan) = plan(topology, &unwanted) else {
        return Verdict::Pass;
    };
    if let Some(why) = too_large(&plan, &unwanted) {
        return Verdict::Hold(why);
    }
    let moves = plan
        .sources
        .iter()
        .map(|source| next_batch(topology, &plan, source));
    join::first(moves)
}

fn plan<'a>(topology: &Topology<'a>, unwanted: &BTreeSet<ShardIndex>) -> Option<Plan<'a>> {
    let mut sources: Vec<Source<'a>> = Vec::new();
    let mut have: BTreeMap<ShardIndex, u32> = BTreeMap::new();
    let mut primaries: BTreeMap<ShardIndex, Answer<'a>> = BTreeMap::new();
    for shard in topology.shards.values() {
        let Some(owner) = shard.answering_primary() else {
            continue;
        };
        // A shard that is still being built gets nothing yet.
        let serves = !shard.slots.is_empty() || owner.node.spec.lifecycle == Lifecycle::Active;
        if !serves || shard.is_leaving() {
            continue;
        }
        sources.push(Source {
            owner,
            slots: shard.slots.clone(),
            surplus: 0,
        });
        if !unwanted.contains(&shard.index) {
            have.insert(shard.index, shard.slots.count());
            primaries.insert(shard.index, owner);
        }
    }
    for (owner, slots) in &topology.second_owners {
        sources.push(Source {
            owner: *owner,
            slots: slots.clone(),
            surplus: 0,
        });
    }
    if have.is_empty() {
        return None;
    }
    let shares = shares(&have);
    for source in &mut sources {
        let index = source.owner.node.shard();
        let home = primaries.get(&index);
        let keeps = home.is_some_and(|home| home.node.name == source.owner.node.name);
        let keep = shares.get(&index).filter(|_| keeps).copied().unwrap_or(0);
        let moving: u32 = source
            .owner
            .view
            .exports()
            .map(|job| job.slots.count())
            .sum();
        source.surplus = source.slots.count().saturating_sub(keep + moving);
    }
    let mut targets = BTreeMap::new();
    for (index, primary) in primaries {
        let imports = topology.imports(&primary.view.id);
        let arriving: u32 = imports.map(|job| job.slots.count()).sum();
        let had = have.get(&index).copied().unwrap_or(0);
        let share = shares.get(&index).copied().unwrap_or(0);
        targets.insert(index, (primary, share.saturating_sub(had + arriving)));
    }
    Some(Plan { sources, targets })
}

/// A drain that would run the rest out of memory does not begin.
fn too_large(plan: &Plan<'_>, unwanted: &BTreeSet<ShardIndex>) -> Option<Why> {
    let drained = plan
        .sources
        .iter()
        .filter(|source| unwanted.contains(&source.owner.node.shard()) && source.surplus > 0);
    let data: u64 = drained
        .filter(|source| source.owner.view.load.keys > 0)
        .map(|source| source.owner.view.load.data_bytes)
        .sum();
    let mut room: u64 = 0;
    for (target, _) in plan.targets.values() {
        let Load {
            used_bytes,
            max_bytes,
            ..
        } = target.view.load;
        if max_bytes == 0 {
            return None;
        }
        room = room.saturating_add(max_bytes.saturating_sub(used_bytes));
    }
    (data > room).then_some(Why::DrainTooLarge {
        data_mib: data >> 20,
        room_mib: room >> 20,
    })
}

fn next_batch(topology: &Topology<'_>, plan: &Plan<'_>, source: &Source<'_>) -> Verdict {
    let owner = source.owner;
    let name = owner.node.name.clone();
    if owner.view.exports().next().is_some() {
        return Verdict::Hold(Why::Migrating(name));
    }
    if source.surplus == 0 {
        return Verdict::Pass;
    }
    let failures = match failures(&name, owner.view) {
        Ok(failures) => failures,
        Err(why) => return Verdict::Hold(why),
    };
    // The neediest first; `max_by_key` keeps the last of equals, reversed that is the lowest index.
    let targets = plan
        .targets
        .iter()
        .rev()
        .map(|(index, target)| (*index, *target));
    let Some((index, (target, room))) = targets.max_by_key(|(_, (_, room))| *room) else {
        return Verdict::Pass;
    };
    if room == 0 {
        return Verdict::Pass;
    }
    if let Some(why) = unready(topology, owner, target, index) {
        return Verdict::Hold(why);
    }
    let most = batch(owner.view.load, source.slots.count(), failures);
    let slots = source.slots.last(most.min(source.surplus).min(room));
    let why = Why::Unbalanced {
        from: owner.node.shard(),
        to: index,
    };
    let batch = Batch {
        source: name,
        target: target.node.name.clone(),
        slots,
    };
    Verdict::Take(Action::Migrate(batch), why)
}

/// A target serves, knows the owner, and has its replicas: what it is given has as many copies as
/// before. The owner may be a replica to be, which it is once its slots are given.
fn unready(
    topology: &Topology<'_>,
    owner: Answer<'_>,
    target: Answer<'_>,
    index: ShardIndex,
) -> Option<Why> {
    let unready = Why::TargetUnready(target.node.name.clone());
    if !target.view.cluster_ok || target.view.member(&owner.view.id).is_none() {
        return Some(unready);
    }
    let shard = topology.shards.get(&index)?;
    let both = [&target.node.name, &owner.node.name];
    let replicas = shard.staying().filter(|node| !both.contains(&&node.name));
    let linked = topology
        .linked_replicas(target)
        .filter(|one| !one.node.is_departing());
    (linked.count() < replicas.count()).then_some(unready)
}

/// Shards that are asked for and not there: all nodes, all known, all synced, and only then counted.
pub(super) fn missing_shards(scene: Scene<'_>) -> Verdict {
    let topology = scene.topology;
    let building = topology.shards.values().filter(|shard| {
        let staying = || shard.staying();
        shard.slots.is_empty()
            && !shard.is_leaving()
            && staying().next().is_some()
            && staying().any(|node| node.spec.lifecycle == Lifecycle::Joining)
    });
    match join::first(building.map(|shard| build(scene, shard))) {
        verdict @ Verdict::Take(_, _) => return verdict,
        hold @ Verdict::Hold(_) => match another_shard(scene) {
            Verdict::Pass => return hold,
            verdict @ (Verdict::Take(_, _) | Verdict::Hold(_)) => return verdict,
        },
        Verdict::Pass => {}
    }
    another_shard(scene)
}

fn another_shard(scene: Scene<'_>) -> Verdict {
    let want = scene.desired.shape.shards;
    let have = u32::try_from(in_use(scene.topology).count()).unwrap_or(u32::MAX);
    let shards = &scene.topology.shards;
    let unused = (0..u32::MAX)
        .map(ShardIndex)
        .find(|index| !shards.contains_key(index));
    match unused {
        Some(index) if have < want => {
            scene.newcomer(index, JoinType::Shard, Why::ShardsFew { have, want })
        }
        Some(_) | None => Verdict::Pass,
    }
}

fn build(scene: Scene<'_>, shard: &Shard<'_>) -> Verdict {
    let want = scene.desired.shape.nodes_per_shard();
    let have = u32::try_from(shard.staying().count()).unwrap_or(u32::MAX);
    let index = shard.index;
    if have < want {
        let why = Why::ShardShort {
            shard: index,
            have,
            want,
        };
        return scene.newcomer(index, JoinType::Shard, why);
    }
    let topology = scene.topology;
    let Some(primary) = shard.answering_primary() else {
        let waiting = shard.staying().find_map(not_answering);
        return waiting.map_or(Verdict::Pass, Verdict::Hold);
    };
    let mut serving = topology
        .shards
        .values()
        .filter(|shard| !shard.slots.is_empty());
    let seed = serving.find_map(Shard::answering_primary);
    match seed.map_or(Verdict::Pass, |seed| join::met(seed, primary)) {
        Verdict::Pass => {}
        verdict @ (Verdict::Take(_, _) | Verdict::Hold(_)) => return verdict,
    }
    let replicas = shard
        .staying()
        .filter(|node| node.name != primary.node.name);
    match join::first(replicas.map(|node| join::replica(topology, primary, node))) {
        Verdict::Pass => {}
        verdict @ (Verdict::Take(_, _) | Verdict::Hold(_)) => return verdict,
    }
    if !join::is_known_by_all(topology, primary) {
        return Verdict::Hold(Why::NotKnownByAll(primary.node.name.clone()));
    }
    if !primary.view.cluster_ok {
        return Verdict::Hold(Why::StateNotOk(primary.node.name.clone()));
    }
    join::counted(primary.node)
}
