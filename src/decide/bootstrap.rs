//! The rungs of Creating, each one step of the contract's section 7.
//! Never touches what already holds: a formed cluster passes through all of them without an action.

use std::collections::{BTreeMap, BTreeSet};

use crate::decide::balance::{batch, failures};
use crate::decide::ladder::Scene;
use crate::decide::outdated::Outdated;
use crate::model::decision::{Action, Batch, Nudge, Verdict};
use crate::model::name::{NodeName, ShardIndex, ValkeyId};
use crate::model::shards::SILENT_SECONDS_MAX;
use crate::model::slots::{SLOT_COUNT, SlotRange, SlotSet};
use crate::model::topology::{Member, NodeView, Role};
use crate::model::why::Why;
use crate::model::world::{Keeping, NodeFacts, PodPhase, PodSighting, PodTrouble, Sighting, World};

/// Nothing is made for a cluster that could vanish without being cleaned up.
pub(super) fn finalizer(scene: Scene<'_>) -> Verdict {
    if scene.world.cluster.finalizer {
        Verdict::Pass
    } else {
        Verdict::Take(Action::AddFinalizer, Why::NotYetOurs)
    }
}

/// A paused cluster is only kept, not changed.
pub(super) fn paused(scene: Scene<'_>) -> Verdict {
    if scene.world.cluster.paused {
        Verdict::Hold(Why::Paused)
    } else {
        Verdict::Pass
    }
}

/// Names that are taken and passwords that are lost stop everything that needs them.
pub(super) fn kept_objects(scene: Scene<'_>) -> Verdict {
    let World {
        kept,
        nodes,
        cluster,
        ..
    } = scene.world;
    let name = &cluster.key.name;
    let taken = [
        (kept.service == Keeping::Foreign, "Service", name.clone()),
        (
            matches!(kept.auth, Keeping::Foreign),
            "Secret",
            format!("{name}-operator-auth"),
        ),
        (
            matches!(kept.acl, Keeping::Foreign),
            "ConfigMap",
            format!("{name}-acl"),
        ),
        (
            matches!(kept.tls, Keeping::Foreign),
            "Secret",
            cluster.key.tls_secret_name(),
        ),
    ];
    for (foreign, kind, name) in taken {
        if foreign {
            return Verdict::Hold(Why::NameTaken { kind, name });
        }
    }
    // New passwords would lock the operator out of every running node.
    if kept.auth == Keeping::Absent && !nodes.is_empty() {
        return Verdict::Hold(Why::PasswordsLost);
    }
    Verdict::Pass
}

/// A reference that does not resolve allows no partial action.
pub(super) fn menu(scene: Scene<'_>) -> Verdict {
    match &scene.desired.menu {
        Ok(_) => Verdict::Pass,
        Err(error) => Verdict::Hold(Why::Menu(error.clone())),
    }
}

/// The shape is captured before the first node, so that edits meanwhile are deferred.
pub(super) fn snapshot(scene: Scene<'_>) -> Verdict {
    if scene.world.cluster.status.target_spec.is_some() {
        Verdict::Pass
    } else {
        Verdict::Take(Action::Snapshot(scene.desired.shape), Why::NoSnapshot)
    }
}

/// A node whose pod ended, vanished or is on its way out never comes back: it is deleted, and made anew next.
/// So is one that nobody has met and that will never let the operator in: it started with settings of another
/// hand.
pub(super) fn dead_nodes(scene: Scene<'_>) -> Verdict {
    for node in live(scene.world) {
        let detail = match &node.pod {
            PodSighting::Foreign => "a pod of its name exists that it did not make",
            PodSighting::Absent if node.is_dead() => "its pod is gone",
            PodSighting::Present(pod) if node.is_dead() => {
                pod.end().unwrap_or("its pod is another")
            }
            PodSighting::Present(pod) if pod.deleting => "its pod is being deleted",
            PodSighting::Present(_) => match node.locked_out() {
                Some(refusal) if !may_be_listed(scene.world, node) => refusal,
                Some(_) | None => continue,
            },
            PodSighting::Absent => continue,
        };
        return Verdict::Take(
            Action::DeleteNode(node.name.clone()),
            Why::NodeDied {
                node: node.name.clone(),
                detail: detail.to_owned(),
            },
        );
    }
    Verdict::Pass
}

/// Whether a process knows somebody at the node's address, or may know and does not answer.
fn may_be_listed(world: &World, node: &NodeFacts) -> bool {
    let ip = node.stamped_pod().and_then(|pod| pod.ip);
    live(world).any(|other| match &other.sighting {
        Sighting::Answered(view) => {
            let mut rows = view.members.iter();
            rows.any(|row| row.ip == ip && !row.flags.failing())
        }
        Sighting::Silent(_) => true,
        Sighting::NotAsked | Sighting::LockedOut(_) => false,
    })
}

/// A node whose pod never ran, and that would be made otherwise by now: a mistake that was put right is
/// not waited for.
pub(super) fn mistaken_nodes(scene: Scene<'_>) -> Verdict {
    let outdated = Outdated::by(scene.desired);
    let mut mistaken = live(scene.world).filter(|node| never_ran(node) && outdated.is(node));
    match mistaken.next() {
        Some(node) => {
            let name = node.name.clone();
            Verdict::Take(Action::DeleteNode(name.clone()), Why::JoinOutdated(name))
        }
        None => Verdict::Pass,
    }
}

/// Whether there is no process of it, and never was.
pub(super) fn never_ran(node: &NodeFacts) -> bool {
    match &node.pod {
        PodSighting::Present(pod) => pod.phase == PodPhase::Pending,
        PodSighting::Absent => node.stamp.is_none(),
        PodSighting::Foreign => false,
    }
}

/// A node too many goes before it is taken into anything: two operators at once may make one, and a cluster
/// that starts again may have one of a shard that is not wanted any more. Who runs and tells nothing may own slots, and
/// stays.
pub(super) fn surplus_nodes(scene: Scene<'_>) -> Verdict {
    let shape = scene.desired.shape;
    let shards: BTreeSet<ShardIndex> = live(scene.world).map(shard_of).collect();
    for shard in shards {
        let nodes: Vec<&NodeFacts> = live(scene.world)
            .filter(|node| shard_of(node) == shard)
            .collect();
        let idle = |node: &&NodeFacts| match &node.sighting {
            Sighting::Answered(view) => view.own_slots().is_empty(),
            Sighting::Silent(_) | Sighting::LockedOut(_) => false,
            // While another waits for its pod, nobody is asked.
            Sighting::NotAsked => never_ran(node),
        };
        let wanted = shard.0 < shape.shards || !nodes.iter().all(idle);
        let want = if wanted { shape.nodes_per_shard() } else { 0 };
        let have = nodes.len();
        let last = nodes.into_iter().rev().find(idle);
        if let Some(node) = last
            && u32::try_from(have).is_ok_and(|have| have > want)
        {
            let node = node.name.clone();
            return Verdict::Take(
                Action::DeleteNode(node),
                Why::ShardOver { shard, have, want },
            );
        }
    }
    Verdict::Pass
}

/// One node a tick, for the shard that has the fewest.
pub(super) fn missing_nodes(scene: Scene<'_>) -> Verdict {
    let shape = scene.desired.shape;
    let mut have: BTreeMap<u32, u32> = (0..shape.shards).map(|index| (index, 0)).collect();
    for node in live(scene.world) {
        if let Some(count) = have.get_mut(&node.spec.shard_index) {
            *count += 1;
        }
    }
    let want = shape.nodes_per_shard();
    match have
        .into_iter()
        .min_by_key(|&(index, count)| (count, index))
    {
        Some((index, have)) if have < want => {
            let shard = ShardIndex(index);
            Verdict::Take(
                Action::CreateNode(shard, None),
                Why::ShardShort { shard, have, want },
            )
        }
        Some(_) | None => Verdict::Pass,
    }
}

/// Every pod runs, has an address, and its process answers. The reason that needs a person comes
/// first.
pub(super) fn pods_running(scene: Scene<'_>) -> Verdict {
    let waits = live(scene.world).filter_map(not_answering);
    match waits.min_by_key(urgency) {
        Some(why) => Verdict::Hold(why),
        None => Verdict::Pass,
    }
}

/// Why a node cannot be asked yet.
pub(super) fn not_answering(node: &NodeFacts) -> Option<Why> {
    let name = node.name.clone();
    let pod = match &node.pod {
        PodSighting::Absent => return Some(Why::PodStarting(name)),
        PodSighting::Foreign => return Some(Why::PodForeign(name)),
        PodSighting::Present(pod) => pod,
    };
    if pod.phase != PodPhase::Running || pod.ip.is_none() || node.stamp.is_none() {
        return Some(match &pod.trouble {
            Some(PodTrouble::Unschedulable(detail)) => Why::Unschedulable {
                node: name,
                detail: detail.clone(),
            },
            Some(PodTrouble::Waiting { reason, message }) => Why::PodWaiting {
                node: name,
                detail: format!("{reason}: {message}"),
            },
            Some(PodTrouble::Ended(_)) | None => Why::PodStarting(name),
        });
    }
    match &node.sighting {
        Sighting::Answered(_) => None,
        Sighting::NotAsked => Some(Why::PodStarting(name)),
        Sighting::Silent(detail) | Sighting::LockedOut(detail) => Some(Why::Silent {
            node: name,
            detail: detail.clone(),
        }),
    }
}

fn urgency(why: &Why) -> u8 {
    if matches!(why, Why::Unschedulable { .. }) {
        0
    } else if matches!(why, Why::PodWaiting { .. } | Why::PodForeign(_)) {
        1
    } else if matches!(why, Why::Silent { .. }) {
        2
    } else {
        3
    }
}

/// One MEET a tick through a seed, without waiting for the one before: gossip does the rest.
///
/// The seed is the node that knows most of the others, so that a node made late never becomes one.
pub(super) fn nodes_met(scene: Scene<'_>) -> Verdict {
    let views = views(scene.world);
    let ids: BTreeSet<&ValkeyId> = views.iter().map(|(_, view)| &view.id).collect();
    let known = |view: &NodeView| acquaintances(view).filter(|id| ids.contains(id)).count();
    // `max_by_key` keeps the last of equals: reversed, that is the first by name.
    let Some((seed, seed_view)) = views.iter().rev().max_by_key(|(_, view)| known(view)) else {
        return Verdict::Pass;
    };
    let mut handshaking = None;
    for (newcomer, view) in &views {
        if seed_view
            .member(&view.id)
            .is_some_and(|row| !row.flags.handshake)
        {
            continue;
        }
        let address = newcomer.stamped_pod().and_then(|pod| pod.ip);
        if seed_view
            .members
            .iter()
            .any(|row| row.flags.handshake && row.ip == address)
        {
            handshaking = Some(Why::Handshaking(newcomer.name.clone()));
            continue;
        }
        let (seed, newcomer) = (seed.name.clone(), newcomer.name.clone());
        let why = Why::NotMet {
            seed: seed.clone(),
            newcomer: newcomer.clone(),
        };
        return Verdict::Take(Action::Meet { seed, newcomer }, why);
    }
    handshaking.map_or(Verdict::Pass, Verdict::Hold)
}

/// Dead members of an earlier life are forgotten; an id that is not ours and lives is left alone.
pub(super) fn stale_members(scene: Scene<'_>) -> Verdict {
    let views = views(scene.world);
    let ours: BTreeSet<&ValkeyId> = views.iter().map(|(_, view)| &view.id).collect();
    let strangers: BTreeSet<&ValkeyId> = views
        .iter()
        .flat_map(|(_, view)| acquaintances(view))
        .filter(|id| !ours.contains(id))
        .collect();
    for id in strangers {
        let rows: Vec<&Member> = views
            .iter()
            .filter_map(|(_, view)| view.member(id))
            .collect();
        let dead = |row: &&Member| row.flags.failed || row.flags.suspected || row.flags.no_address;
        if rows.iter().all(dead) {
            match dead_stranger(&views, id, &rows) {
                Verdict::Pass => continue,
                verdict @ (Verdict::Take(_, _) | Verdict::Hold(_)) => return verdict,
            }
        }
        let connected = rows.iter().all(|row| row.connected && !dead(row));
        return Verdict::Hold(if connected {
            Why::ForeignMember(id.clone())
        } else {
            Why::MemberUnclear(id.clone())
        });
    }
    Verdict::Pass
}

/// What a replica tells before its first sync is over.
const OFFSET_NEVER_SYNCED: u64 = 1;

/// A dead primary with a replica is not forgotten: its peers would no longer know whose place the
/// replica asks for, and never vote. Where no vote can be won the replica takes its place. One that
/// never finished its first sync does not stand for election and has nothing to take over with.
fn dead_stranger(views: &[(&NodeFacts, &NodeView)], id: &ValkeyId, rows: &[&Member]) -> Verdict {
    let replicates = |view: &NodeView| view.primary() == Some(id);
    let replicas = views.iter().rev().filter(|(_, view)| replicates(view));
    if let Some((replica, view)) = replicas.max_by_key(|(_, view)| view.offset())
        && rows.iter().any(|row| !row.slots.is_empty())
    {
        if view.offset() <= OFFSET_NEVER_SYNCED {
            let replica = replica.name.clone();
            let why = Why::NeverSynced(replica.clone());
            return Verdict::Take(Action::DeleteNode(replica), why);
        }
        let (dead, replica) = (id.clone(), replica.name.clone());
        let voters = views
            .iter()
            .filter(|(_, view)| !view.own_slots().is_empty())
            .count();
        let has_quorum = u32::try_from(voters).is_ok_and(|voters| voters > view.size / 2);
        let silent_seconds = rows.iter().map(|row| row.silent_seconds).min().unwrap_or(0);
        return if !has_quorum {
            Verdict::Take(Action::Takeover(replica), Why::NoQuorum(dead))
        } else if silent_seconds >= SILENT_SECONDS_MAX {
            Verdict::Take(Action::ForceFailover(replica), Why::ElectionLost(dead))
        } else {
            Verdict::Hold(Why::AwaitingElection { dead, replica })
        };
    }
    // Valkey refuses to forget one's own primary: such a node is attached elsewhere first.
    if views
        .iter()
        .all(|(_, view)| view.member(id).is_none() || replicates(view))
    {
        return Verdict::Pass;
    }
    Verdict::Take(Action::Forget(id.clone()), Why::StaleMember(id.clone()))
}

/// One contiguous range a tick, and only while every node tells the same count, but for what is taken back.
pub(super) fn slots_assigned(scene: Scene<'_>) -> Verdict {
    let views = views(scene.world);
    let (mut owned, mut twice) = (SlotSet::default(), SlotSet::default());
    for claim in views.iter().map(|(_, view)| view.own_slots()) {
        twice = twice.union(&claim.minus(&claim.minus(&owned)));
        owned = owned.union(&claim);
    }
    if !twice.is_empty() {
        return Verdict::Hold(Why::SlotsClaimedTwice(twice));
    }
    for (node, view) in &views {
        let given_up = view.given_up(views.iter().map(|(_, other)| *other), &owned);
        if let Some(&range) = given_up.ranges().first() {
            let (primary, shard) = (node.name.clone(), shard_of(node));
            return Verdict::Take(
                Action::AssignSlots { primary, range },
                Why::SlotsUnassigned(shard),
            );
        }
    }
    let told = || views.iter().map(|(_, view)| view.slots_assigned);
    let least = told().min().unwrap_or(0);
    let most = told().max().unwrap_or(0);
    if least != most || most != owned.count() {
        return Verdict::Hold(Why::SlotsDisagree { least, most });
    }
    let shards = scene.desired.shape.shards;
    for index in 0..shards {
        let gaps = SlotRange::share(index, shards).map(|share| owned.missing_from(share));
        let Some(&range) = gaps.as_ref().and_then(|gaps| gaps.ranges().first()) else {
            continue;
        };
        let shard = ShardIndex(index);
        let Some((primary, _)) = primary_of(&views, shard) else {
            return Verdict::Hold(Why::Inconsistent("a shard without slots has no primary"));
        };
        let primary = primary.name.clone();
        return Verdict::Take(
            Action::AssignSlots { primary, range },
            Why::SlotsUnassigned(shard),
        );
    }
    Verdict::Pass
}

/// One replica a tick, to the primary of its shard, once it owns no slot.
pub(super) fn replicas_attached(scene: Scene<'_>) -> Verdict {
    let views = views(scene.world);
    let mut unknown = None;
    for (node, view) in &views {
        let Some((primary, primary_view)) = primary_of(&views, shard_of(node)) else {
            return Verdict::Hold(Why::Inconsistent("a shard has no primary"));
        };
        if primary.name == node.name || view.primary() == Some(&primary_view.id) {
            continue;
        }
        if !view.own_slots().is_empty() {
            return slots_returned((node, view), (primary, primary_view));
        }
        let (replica, primary) = (node.name.clone(), primary.name.clone());
        if !view.knows_primary(&primary_view.id) {
            unknown = Some(Why::PrimaryUnknown { replica, primary });
            continue;
        }
        let why = Why::NotAttached {
            replica: replica.clone(),
            primary: primary.clone(),
        };
        return Verdict::Take(Action::Replicate { replica, primary }, why);
    }
    unknown.map_or(Verdict::Pass, Verdict::Hold)
}

/// Slots that somebody gave by hand to a node which is to be a replica go to its primary, keys and all.
fn slots_returned(
    (node, view): (&NodeFacts, &NodeView),
    (primary, primary_view): (&NodeFacts, &NodeView),
) -> Verdict {
    let source = node.name.clone();
    if view.exports().next().is_some() {
        return Verdict::Hold(Why::Migrating(source));
    }
    let failures = match failures(&source, view) {
        Ok(failures) => failures,
        Err(why) => return Verdict::Hold(why),
    };
    let target = primary.name.clone();
    if !primary_view.cluster_ok || !view.knows_primary(&primary_view.id) {
        return Verdict::Hold(Why::TargetUnready(target));
    }
    let why = Why::SlotsAstray(source.clone());
    let slots = view.own_slots();
    let slots = slots.last(batch(view.load, slots.count(), failures));
    let batch = Batch {
        source,
        target,
        slots,
    };
    Verdict::Take(Action::Migrate(batch), why)
}

/// The cluster is Active only when every node tells the whole truth of it.
pub(super) fn verified(scene: Scene<'_>) -> Verdict {
    let views = views(scene.world);
    let want = scene.desired.shape.shards;
    for (node, view) in &views {
        if let Some(why) = unhealthy(node, view, &views, want) {
            return Verdict::Hold(why);
        }
    }
    let joining = live(scene.world).map(|node| node.name.clone()).collect();
    Verdict::Take(Action::Activate(joining), Why::Formed)
}

fn unhealthy(
    node: &NodeFacts,
    view: &NodeView,
    views: &[(&NodeFacts, &NodeView)],
    want: u32,
) -> Option<Why> {
    if let Role::Replica { linked: false, .. } = view.role {
        return Some(Why::NotLinked(node.name.clone()));
    }
    let agrees = usize::try_from(view.known_nodes).is_ok_and(|rows| rows == views.len())
        && views.iter().all(|(_, other)| {
            let own = other.member(&other.id);
            let seen = view.member(&other.id);
            seen.zip(own)
                .is_some_and(|(seen, own)| seen.slots == own.slots && seen.primary == own.primary)
        });
    if !agrees {
        let (rows, nodes) = (view.known_nodes, views.len());
        return Some(Why::TableDiffers {
            node: node.name.clone(),
            rows,
            nodes,
        });
    }
    if view.slots_assigned != SLOT_COUNT || view.size != want {
        return Some(Why::ShardCount {
            have: view.size,
            want,
        });
    }
    if !view.cluster_ok {
        return Some(Why::StateNotOk(node.name.clone()));
    }
    None
}

/// After a claim its owner tells every other node that it knows at once: gossip would take 2 to 3 seconds.
pub(super) fn nudges_after_claim(world: &World, primary: &NodeName) -> Vec<Nudge> {
    let owner = world.nodes.get(primary).and_then(NodeFacts::view);
    let knows = |node: &&NodeFacts| {
        let row = owner
            .zip(node.view())
            .and_then(|(owner, view)| owner.member(&view.id));
        row.is_some_and(|row| !row.flags.handshake)
    };
    live(world)
        .filter(|node| node.name != *primary)
        .filter(knows)
        .map(|node| Nudge {
            from: primary.clone(),
            to: node.name.clone(),
        })
        .collect()
}

/// While nodes differ, those who know tell those who do not.
pub(super) fn nudges_while_waiting(world: &World, why: &Why) -> Vec<Nudge> {
    let views = views(world);
    // Only between members: a node that nobody knows is introduced by an action of its own.
    let meshed = |view: &NodeView| view.members.len() > 1;
    if let Why::PrimaryUnknown { replica, primary } = why {
        return vec![Nudge {
            from: primary.clone(),
            to: replica.clone(),
        }];
    }
    if let Why::NotKnownByAll(newcomer) = why {
        let Some((_, view)) = views.iter().find(|(node, _)| node.name == *newcomer) else {
            return Vec::new();
        };
        let others = || views.iter().filter(|(node, _)| node.name != *newcomer);
        let strange = |other: &NodeView| other.member(&view.id).is_none();
        // Who is no member yet, and has a slot by some hand, is introduced as any newcomer is: to one.
        let heard = |row: &Member| !row.flags.myself && !row.flags.handshake;
        let alone = !view.members.iter().any(heard) && others().all(|(_, other)| strange(other));
        return others()
            .filter(|(_, other)| meshed(other) && strange(other))
            .take(if alone { 1 } else { usize::MAX })
            .map(|(other, _)| Nudge {
                from: newcomer.clone(),
                to: other.name.clone(),
            })
            .collect();
    }
    let differs = |teller: &NodeView, other: &NodeView| {
        let row = other.member(&teller.id);
        let slots = teller.own_slots();
        if matches!(why, Why::SlotsDisagree { .. }) {
            !slots.is_empty() && row.is_none_or(|row| row.slots != slots)
        } else {
            matches!(why, Why::TableDiffers { .. }) && row.is_none()
        }
    };
    let pairs = views
        .iter()
        .flat_map(|teller| views.iter().map(move |other| (teller, other)));
    pairs
        .filter(|((teller, view), (other, other_view))| {
            let members = meshed(view) && meshed(other_view);
            teller.name != other.name && members && differs(view, other_view)
        })
        .map(|((from, _), (to, _))| Nudge {
            from: from.name.clone(),
            to: to.name.clone(),
        })
        .collect()
}

/// Every node that is not on its way out.
fn live(world: &World) -> impl DoubleEndedIterator<Item = &NodeFacts> {
    world.nodes.values().filter(|node| !node.deleting)
}

/// The nodes that answered, by name. Rungs below `pods_running` may take it for all of them.
fn views(world: &World) -> Vec<(&NodeFacts, &NodeView)> {
    live(world)
        .filter_map(|node| node.view().map(|view| (node, view)))
        .collect()
}

/// The ids in a table, without those that are only passing handshakes.
fn acquaintances(view: &NodeView) -> impl Iterator<Item = &ValkeyId> {
    view.members
        .iter()
        .filter(|row| !row.flags.handshake)
        .map(|row| &row.id)
}

fn shard_of(node: &NodeFacts) -> ShardIndex {
    ShardIndex(node.spec.shard_index)
}

/// A shard's primary: who owns most slots, else the first by name that replicates nobody.
fn primary_of<'a>(
    views: &[(&'a NodeFacts, &'a NodeView)],
    shard: ShardIndex,
) -> Option<(&'a NodeFacts, &'a NodeView)> {
    views
        .iter()
        .rev()
        .filter(|(node, view)| shard_of(node) == shard && matches!(view.role, Role::Primary { .. }))
        .max_by_key(|(_, view)| view.own_slots().count())
        .copied()
}
