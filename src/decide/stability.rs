//! A healthy primary for every shard, no dead member in any table, every replica in its place.
//! Never forgets, replaces or takes over anybody who is not proven dead.

use crate::api::node::{JoinType, Lifecycle};
use crate::decide::bootstrap::{never_ran, not_answering};
use crate::decide::join;
use crate::decide::ladder::Scene;
use crate::decide::outdated::Outdated;
use crate::model::decision::{Action, Verdict};
use crate::model::name::{ShardIndex, ValkeyId};
use crate::model::shards::{
    Answer, Fate, Primary, SILENT_SECONDS_MAX, Shard, Stranger, Topology, furthest,
    is_on_lost_machine, is_silent,
};
use crate::model::slots::{SLOT_COUNT, SlotSet};
use crate::model::why::Why;
use crate::model::world::{NodeFacts, PodSighting};

/// A primary for every shard: elected, taken over, or, where every copy is gone, a fresh one.
pub(super) fn failed_primary(scene: Scene<'_>) -> Verdict {
    let topology = scene.topology;
    if topology.owned.is_empty() {
        return cluster_lost(scene);
    }
    let unheard = topology.shards.values().map(|shard| match shard.primary {
        Primary::Unheard(id) => match topology.strangers.get(id) {
            Some(stranger) => primary_unheard(topology, shard, stranger),
            None => Verdict::Hold(Why::Inconsistent("an owner of slots is nowhere listed")),
        },
        Primary::Answers(primary) => primary_leaving(topology, shard, primary),
        Primary::Nobody => Verdict::Pass,
    });
    let strangers = topology.strangers.values();
    let succeeded = strangers.map(|stranger| succeeded_in_part(topology, stranger));
    match join::first(unheard.chain(succeeded)) {
        Verdict::Pass => orphaned_slots(scene),
        verdict @ (Verdict::Take(_, _) | Verdict::Hold(_)) => verdict,
    }
}

/// Nobody who answers owns a slot or knows an owner. What is silent may be alive and just out of
/// reach; when all else is gone the cluster is formed anew.
fn cluster_lost(scene: Scene<'_>) -> Verdict {
    let nodes = || scene.world.nodes.values();
    let unheard = |node: &&NodeFacts| {
        let full = node.spec.lifecycle != Lifecycle::Joining;
        !node.is_dead() && node.view().is_none() && (is_silent(node) || full)
    };
    if let Some(silent) = nodes().find(unheard) {
        return Verdict::Hold(silence(silent));
    }
    let ended = |node: &&NodeFacts| {
        let replicates = node.view().is_some_and(|view| view.primary().is_some());
        let full = node.spec.lifecycle != Lifecycle::Joining;
        !node.deleting && (node.is_dead() || replicates || full)
    };
    if let Some(node) = nodes().find(ended) {
        return Verdict::Take(Action::DeleteNode(node.name.clone()), ended_because(node));
    }
    Verdict::Take(Action::Snapshot(scene.desired.shape), Why::ClusterLost)
}

fn silence(node: &NodeFacts) -> Why {
    not_answering(node).unwrap_or(Why::PodStarting(node.name.clone()))
}

/// The primary is known from others only.
fn primary_unheard(topology: &Topology<'_>, shard: &Shard<'_>, dead: &Stranger<'_>) -> Verdict {
    let unproven = Verdict::Hold(Why::PrimaryUnproven(shard.index));
    let Some(heir) = dead.heir() else {
        return shard_lost(shard, dead).unwrap_or(unproven);
    };
    let (id, replica) = (dead.id.clone(), heir.node.name.clone());
    if topology.has_quorum() {
        if dead.fate == Fate::Heard {
            return unproven;
        }
        // A vote may be denied for a stale epoch, which each try brings forward.
        if dead.silent_seconds() >= SILENT_SECONDS_MAX {
            return Verdict::Take(Action::ForceFailover(replica), Why::ElectionLost(id));
        }
        return Verdict::Hold(Why::AwaitingElection { dead: id, replica });
    }
    // A primary that is only out of our sight goes on serving where a majority is with it.
    let certain = dead.fate == Fate::Dead
        || dead.fate == Fate::Failing && !topology.may_have_quorum_elsewhere();
    if certain {
        Verdict::Take(Action::Takeover(replica), Why::NoQuorum(id))
    } else {
        unproven
    }
}

/// An owner that was outlived by its successor, which has a part of its slots: without replicas they move there in a roll.
fn succeeded_in_part(topology: &Topology<'_>, dead: &Stranger<'_>) -> Verdict {
    let shard = dead
        .node
        .and_then(|node| topology.shards.get(&node.shard()));
    match shard {
        Some(shard) if !dead.slots.is_empty() && matches!(shard.primary, Primary::Answers(_)) => {
            primary_unheard(topology, shard, dead)
        }
        Some(_) | None => Verdict::Pass,
    }
}

/// No replica can take the place. Nothing while a copy may be left.
fn shard_lost(shard: &Shard<'_>, dead: &Stranger<'_>) -> Option<Verdict> {
    let silent = |node: &&NodeFacts| !node.is_dead() && is_silent(node);
    if dead.fate != Fate::Dead || shard.nodes.iter().copied().any(|node| silent(&node)) {
        return None;
    }
    // Valkey refuses to forget one's own primary, and a replica that waits for it is of no use.
    let mut heirs = dead.heirs.iter().filter(|heir| !heir.node.deleting);
    if let Some(heir) = heirs.next() {
        let node = heir.node.name.clone();
        let why = Why::NeverSynced(node.clone());
        return Some(Verdict::Take(Action::DeleteNode(node), why));
    }
    let why = Why::ShardLost {
        shard: shard.index,
        dead: dead.id.clone(),
    };
    Some(Verdict::Take(Action::Forget(dead.id.clone()), why))
}

/// A primary whose pod waits for a kubelet that does not end it hands over while it still can.
fn primary_leaving(topology: &Topology<'_>, shard: &Shard<'_>, primary: Answer<'_>) -> Verdict {
    if !primary.node.is_departing() && !primary.node.is_dead() || shard.slots.is_empty() {
        return Verdict::Pass;
    }
    let name = primary.node.name.clone();
    let heirs = topology.linked_replicas(primary);
    match furthest(heirs.filter(|heir| !heir.node.is_departing())) {
        Some(heir) if is_on_lost_machine(primary.node) && !primary.view.failing_over => {
            let heir = heir.node.name.clone();
            Verdict::Take(Action::Failover(heir), Why::PrimaryLeaving(name))
        }
        // It is ending, and hands over itself or is taken over after.
        Some(_) => Verdict::Hold(Why::PrimaryLeaving(name)),
        // A replica that could take over comes first.
        None => Verdict::Pass,
    }
}

/// Slots whose owner was given up go to fresh primaries; every view has to tell the same before. Those that an owner gave
/// up go back to it.
fn orphaned_slots(scene: Scene<'_>) -> Verdict {
    let topology = scene.topology;
    let orphaned = topology.orphaned();
    if orphaned.is_empty() {
        return join::first(
            topology
                .answers
                .iter()
                .map(|answer| epoch_kept(topology, *answer)),
        );
    }
    let mut staying = topology.answers.iter().filter(|it| !it.node.is_departing());
    let back = staying.find_map(|answer| {
        let others = topology.answers.iter().map(|other| other.view);
        let slots = answer.view.given_up(others, &topology.owned);
        (!slots.is_empty()).then_some((answer.node, slots))
    });
    if let Some((node, slots)) = back {
        return adopted(node, slots);
    }
    let without: Vec<ShardIndex> = shards_without_owner(scene);
    let Some(&index) = without.first() else {
        return given_to_the_smallest(topology, orphaned);
    };
    let shard = topology.shards.get(&index);
    let staying: Vec<&NodeFacts> = shard.into_iter().flat_map(Shard::staying).collect();
    let outdated = Outdated::by(scene.desired);
    if let Some(node) = staying
        .iter()
        .find(|node| is_stale_join(topology, node, &outdated))
    {
        let why = Why::JoinOutdated(node.name.clone());
        return Verdict::Take(Action::DeleteNode(node.name.clone()), why);
    }
    let Some(primary) = shard.and_then(Shard::answering_primary) else {
        return match staying.iter().find_map(|node| not_answering(node)) {
            Some(why) => Verdict::Hold(why),
            None => scene.newcomer(index, JoinType::Primary, Why::PrimaryMissing(index)),
        };
    };
    let seed = topology
        .answers
        .iter()
        .find(|answer| is_settled(answer, primary));
    match seed.map_or(Verdict::Pass, |seed| join::met(*seed, primary)) {
        Verdict::Pass => {}
        verdict @ (Verdict::Take(_, _) | Verdict::Hold(_)) => return verdict,
    }
    // The part of this shard where several were lost.
    let shards = u32::try_from(without.len()).unwrap_or(u32::MAX).max(1);
    let part = orphaned.count().div_ceil(shards);
    let rest = orphaned.last(orphaned.count() - part);
    adopt(topology, primary, orphaned.minus(&rest))
}

/// A member that was there before: not the newcomer, and not on its way out.
fn is_settled(answer: &Answer<'_>, newcomer: Answer<'_>) -> bool {
    answer.node.name != newcomer.node.name
        && !answer.node.is_departing()
        && !answer.view.own_slots().is_empty()
}

/// Shards that should own slots and do not, lost ones with nodes first; a shard that scale-out is
/// still building waits for its share.
fn shards_without_owner(scene: Scene<'_>) -> Vec<ShardIndex> {
    let shards = &scene.topology.shards;
    let building = |node: &NodeFacts| {
        node.join == Some(JoinType::Shard) && node.spec.lifecycle == Lifecycle::Joining
    };
    let is_building = |shard: &Shard<'_>| shard.nodes.iter().any(|node| building(node));
    let provided = shards
        .values()
        .filter(|shard| !shard.slots.is_empty() || is_building(shard))
        .count();
    let missing = usize::try_from(scene.desired.shape.shards)
        .unwrap_or(usize::MAX)
        .saturating_sub(provided);
    let lost = shards
        .values()
        .filter(|shard| shard.slots.is_empty() && !shard.is_leaving() && !is_building(shard));
    let lost = lost.map(|shard| shard.index);
    let unused = (0..u32::MAX)
        .map(ShardIndex)
        .filter(|index| !shards.contains_key(index));
    lost.chain(unused).take(missing).collect()
}

fn given_to_the_smallest(topology: &Topology<'_>, orphaned: SlotSet) -> Verdict {
    // A shard that is still being built may not even be known to the others.
    let owners = topology
        .shards
        .values()
        .filter(|shard| !shard.slots.is_empty());
    let primaries = owners.filter_map(|shard| {
        let primary = shard.answering_primary()?;
        Some((shard.slots.count(), shard.index, primary))
    });
    match primaries.min_by_key(|&(slots, index, _)| (slots, index)) {
        Some((_, _, primary)) => adopt(topology, primary, orphaned),
        None => Verdict::Hold(Why::Inconsistent("slots without an owner and no primary")),
    }
}

fn adopt(topology: &Topology<'_>, primary: Answer<'_>, slots: SlotSet) -> Verdict {
    if let Some(why) = disagreement(topology, topology.owned.count()) {
        return Verdict::Hold(why);
    }
    adopted(primary.node, slots)
}

fn adopted(node: &NodeFacts, slots: SlotSet) -> Verdict {
    let why = Why::SlotsOrphaned(node.shard());
    let primary = node.name.clone();
    Verdict::Take(Action::AdoptSlots { primary, slots }, why)
}

/// Whether any member tells another count of assigned slots.
fn disagreement(topology: &Topology<'_>, count: u32) -> Option<Why> {
    let members = topology.answers.iter().filter(|answer| {
        let joining = answer.node.spec.lifecycle == Lifecycle::Joining;
        // A newcomer that was never met knows nothing yet.
        !(answer.node.is_departing() || joining && answer.view.members.len() == 1)
    });
    let told: Vec<u32> = members.map(|answer| answer.view.slots_assigned).collect();
    let (least, most) = (told.iter().min().copied()?, told.iter().max().copied()?);
    (least != count || most != count).then_some(Why::SlotsDisagree { least, most })
}

/// A fresh primary's claims must win against those of whoever had the slots before, should he return. No two
/// fresh ones claim the same: they would outbid each other for ever.
fn epoch_kept(topology: &Topology<'_>, answer: Answer<'_>) -> Verdict {
    let Answer { node, view } = answer;
    if !is_fresh(node) || view.own_slots().is_empty() {
        return Verdict::Pass;
    }
    let fresh = |id: &ValkeyId| {
        let mut answers = topology.answers.iter();
        answers.any(|it| it.view.id == *id && is_fresh(it.node))
    };
    let former = view.members.iter().filter(|row| !fresh(&row.id));
    let greatest = former.map(|row| row.epoch).max().unwrap_or(0);
    if view.my_epoch < greatest || view.my_epoch == 0 {
        return join::epoch_raised(node);
    }
    if let Some(why) = disagreement(topology, SLOT_COUNT) {
        return Verdict::Hold(why);
    }
    if view.cluster_ok {
        join::counted(node)
    } else {
        Verdict::Hold(Why::StateNotOk(node.name.clone()))
    }
}

/// Made for a shard that lost every copy, and not counted yet.
fn is_fresh(node: &NodeFacts) -> bool {
    node.join == Some(JoinType::Primary) && node.spec.lifecycle == Lifecycle::Joining
}

/// Dead members are forgotten by everyone, hung ones given up, and nodes that ended cleared away.
pub(super) fn departed_members(scene: Scene<'_>) -> Verdict {
    let topology = scene.topology;
    for stranger in topology.strangers.values() {
        if is_forgettable(stranger) {
            let id = stranger.id.clone();
            return Verdict::Take(Action::Forget(id.clone()), Why::MemberDead(id));
        }
        if let Some(hung) = hung(stranger) {
            let why = Why::Hung(hung.name.clone());
            return Verdict::Take(Action::DeleteNode(hung.name.clone()), why);
        }
    }
    for node in scene.world.nodes.values() {
        if is_forgotten(topology, node) {
            let why = Why::Hung(node.name.clone());
            return Verdict::Take(Action::DeleteNode(node.name.clone()), why);
        }
        let gone = node.is_dead() || is_shut(node);
        if gone && !node.deleting && node.view().is_none() && !is_listed(topology, node) {
            return Verdict::Take(Action::DeleteNode(node.name.clone()), ended_because(node));
        }
    }
    for stray in scene.world.strays.values() {
        if is_lingering(topology, stray) {
            let name = stray.name.clone();
            return Verdict::Take(Action::Reset(name.clone()), Why::Survivor(name));
        }
    }
    Verdict::Pass
}

/// Dead, owning nothing in any view, and named by no replica: peers that have forgotten a primary
/// cannot elect its replica, so that one has to be attached elsewhere first.
fn is_forgettable(stranger: &Stranger<'_>) -> bool {
    // A node that is only silent may wake: it is given up first, or its peers would not know it.
    let given_up = |node: &NodeFacts| node.deleting || node.is_dead();
    let gone = stranger.fate != Fate::Heard && stranger.node.is_none_or(given_up);
    gone && stranger.heirs.is_empty() && stranger.rows.iter().all(|row| row.slots.is_empty())
}

/// Silent to us and to a peer for a minute, and no last copy.
fn hung<'a>(stranger: &Stranger<'a>) -> Option<&'a NodeFacts> {
    let node = stranger.node?;
    let owns = !stranger.slots.is_empty();
    let hung = stranger.fate != Fate::Heard
        && is_silent(node)
        && !node.is_departing()
        && !node.is_dead()
        && stranger.silent_seconds() >= SILENT_SECONDS_MAX
        && (!owns || stranger.heir().is_some());
    hung.then_some(node)
}

/// A full member once, silent now, and nobody lists it any more.
fn is_forgotten(topology: &Topology<'_>, node: &NodeFacts) -> bool {
    let serving = |answer: &Answer<'_>| answer.view.slots_assigned == SLOT_COUNT;
    is_silent(node)
        && !node.is_departing()
        && !node.is_dead()
        && node.spec.lifecycle == Lifecycle::Active
        && !is_listed(topology, node)
        && topology.answers.iter().any(serving)
}

/// A newcomer that started with settings of another hand, and will never let the operator in.
fn is_shut(node: &NodeFacts) -> bool {
    node.spec.lifecycle == Lifecycle::Joining && node.locked_out().is_some()
}

fn is_listed(topology: &Topology<'_>, node: &NodeFacts) -> bool {
    let mut strangers = topology.strangers.values();
    strangers.any(|stranger| stranger.node.is_some_and(|home| home.name == node.name))
}

/// A process without a node, which no kubelet will end soon, still among the members.
fn is_lingering(topology: &Topology<'_>, stray: &NodeFacts) -> bool {
    let owner = |shard: &&Shard<'_>| shard.index == stray.shard() && !shard.slots.is_empty();
    let replaced = topology.shards.values().find(owner);
    let replaced = replaced.and_then(Shard::answering_primary);
    is_on_lost_machine(stray)
        && replaced.is_some_and(|primary| primary.node.name != stray.name)
        && stray
            .view()
            .is_some_and(|view| view.members.len() > 1 && view.own_slots().is_empty())
}

fn ended_because(node: &NodeFacts) -> Why {
    let detail = match &node.pod {
        PodSighting::Present(pod) => {
            let another = || node.is_dead().then_some("its pod is another");
            let end = pod.end().or_else(another).or_else(|| node.locked_out());
            end.unwrap_or("nothing is left of its cluster")
        }
        PodSighting::Absent => "its pod is gone",
        PodSighting::Foreign => "a pod of its name exists that it did not make",
    };
    let (node, joining) = (node.name.clone(), node.spec.lifecycle == Lifecycle::Joining);
    let detail = detail.to_owned();
    if joining {
        Why::JoinEnded { node, detail }
    } else {
        Why::NodeEnded { node, detail }
    }
}

/// Every shard that serves has as many linked replicas as it should.
pub(super) fn missing_replicas(scene: Scene<'_>) -> Verdict {
    let outdated = Outdated::by(scene.desired);
    let shards = || scene.topology.shards.values();
    // Before anything is added, so that a bad spec never blocks its own correction.
    let nodes = shards().flat_map(|shard| shard.staying().map(move |node| (shard, node)));
    for (shard, node) in nodes {
        let serves = shard.is_primary(node) && !shard.slots.is_empty();
        if is_stale_join(scene.topology, node, &outdated)
            && !serves
            && !is_heir(scene.topology, node)
        {
            let why = Why::JoinOutdated(node.name.clone());
            return Verdict::Take(Action::DeleteNode(node.name.clone()), why);
        }
    }
    join::first(shards().map(|shard| replicas_of(scene, shard)))
}

/// It replicates a primary that nobody hears: it may hold the last copy of its data.
fn is_heir(topology: &Topology<'_>, node: &NodeFacts) -> bool {
    let mut heirs = (topology.strangers.values()).flat_map(|stranger| &stranger.heirs);
    heirs.any(|heir| heir.node.name == node.name)
}

/// One that owns slots, by whatever hand, is no newcomer any more.
fn is_stale_join(topology: &Topology<'_>, node: &NodeFacts, outdated: &Outdated<'_>) -> bool {
    let joins = node.spec.lifecycle == Lifecycle::Joining && outdated.is(node);
    joins
        && match node.view() {
            Some(view) => view.own_slots().is_empty(),
            None => never_ran(node) || !may_have_data(topology, node),
        }
}

/// Whether one that does not answer may have the only copy of anything: it was given slots and written to before it fell
/// silent, or its primary did. Where nobody answers, nobody can tell.
fn may_have_data(topology: &Topology<'_>, node: &NodeFacts) -> bool {
    let answers = || topology.answers.iter().map(|answer| answer.view);
    let ip = node.stamped_pod().and_then(|pod| pod.ip);
    let mut rows = answers().flat_map(|view| &view.members);
    let answering = |primary: &ValkeyId| answers().any(|view| view.id == *primary);
    topology.answers.is_empty()
        || rows.any(|row| {
            row.ip.is_some() && row.ip == ip && !row.primary.as_ref().is_some_and(answering)
        })
}

fn replicas_of(scene: Scene<'_>, shard: &Shard<'_>) -> Verdict {
    let Some(primary) = shard
        .answering_primary()
        .filter(|_| !shard.slots.is_empty())
    else {
        return Verdict::Pass;
    };
    let want = scene.desired.shape.nodes_per_shard();
    let have = u32::try_from(shard.staying().count()).unwrap_or(u32::MAX);
    if have < want {
        let index = shard.index;
        let why = Why::ShardShort {
            shard: index,
            have,
            want,
        };
        return scene.newcomer(index, JoinType::Replica, why);
    }
    let topology = scene.topology;
    join::first(
        shard
            .staying()
            .map(|node| join::replica(topology, primary, node)),
    )
}

/// Planned work begins only in a cluster that is whole: everyone answers, agrees and serves.
pub(super) fn whole(scene: Scene<'_>) -> Verdict {
    let nodes = scene.topology.shards.values().flat_map(Shard::staying);
    let members = nodes.filter(|node| node.spec.lifecycle == Lifecycle::Active);
    join::first(members.map(|node| {
        let Some(view) = node.view() else {
            return Verdict::Hold(silence(node));
        };
        if view.slots_assigned != SLOT_COUNT {
            return Verdict::Hold(Why::SlotsDisagree {
                least: view.slots_assigned,
                most: SLOT_COUNT,
            });
        }
        if view.cluster_ok {
            Verdict::Pass
        } else {
            Verdict::Hold(Why::StateNotOk(node.name.clone()))
        }
    }))
}
