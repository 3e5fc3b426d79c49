//! What is made and let go, and how much in one tick: S1, S4, S5, S15, S17.
//! Never judges what a person, the kubelet or the garbage collector does.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use super::Checker;
use super::Verdict;
use super::evidence::Actor;
use super::evidence::Command;
use super::evidence::Life;
use super::evidence::Millis;
use super::evidence::Name;
use super::evidence::Process;
use super::evidence::Step;
use super::evidence::Verb;
use super::evidence::What;
use super::evidence::Write;
use super::membership::obeyed;
use super::past::Past;
use super::past::cluster_of;
use super::scene::Body as _;
use super::scene::STAMP;
use super::scene::Scene;
use super::scene::Shape;
use super::slots::Slots;

/// What the family remembers.
#[derive(Default)]
pub(super) struct Memory {
    /// The actions of the tick under way, by operator and cluster, and when the last of them was.
    ticks: BTreeMap<(u32, Name), (BTreeSet<String>, Millis)>,
    /// The pod that was made for a node, by the node's uid.
    pods: BTreeMap<String, String>,
    /// The pods that somebody else deleted.
    taken: BTreeSet<String>,
    /// Since when a node has not been Joining, by its uid.
    settled: BTreeMap<String, Millis>,
}

/// A write of the operator.
pub(super) fn written(step: &Step) -> Option<&Write> {
    match (&step.what, step.by) {
        (What::Write(write), Actor::Operator(_)) => Some(write),
        _ => None,
    }
}

/// S1: at most one mutating action a tick: create, delete or patch of a `ValkeyNode`, or one mutating Valkey
/// command.
///
/// Except: one FORGET to every node; MEET between members of one gossip; upkeep of Service, auth Secret, ACL
/// ConfigMap and annotations; lifecycle flips at activation. Deletion of a cluster deletes every node at
/// once. The same write or command again is no second action.
pub(super) fn one_action_a_tick(checker: &mut Checker, step: &Step) -> Verdict {
    let Checker {
        past, lifecycle, ..
    } = checker;
    let Actor::Operator(number) = step.by else {
        return Ok(());
    };
    if let What::Tick(cluster) = &step.what {
        lifecycle.ticks.remove(&(number, cluster.clone()));
        return Ok(());
    }
    // What was refused changed nothing, and is often tried again at once by the client itself.
    let refused = written(step).is_some_and(|write| !write.outcome.took_effect());
    let Some((cluster, action)) = action(past, step).filter(|_| !refused) else {
        return Ok(());
    };
    let (actions, last) = lifecycle.ticks.entry((number, cluster)).or_default();
    if !past.knows_ticks() && *last + past.rules.tick_gap < past.at {
        actions.clear();
    }
    *last = past.at;
    actions.insert(action);
    if actions.len() > 1 {
        let all: Vec<&str> = actions.iter().map(String::as_str).collect();
        return Err(format!("one tick did: {}", all.join("; ")));
    }
    Ok(())
}

/// The action that a step is, and of which cluster; nothing where it is none or an exception.
fn action(past: &Past, step: &Step) -> Option<(Name, String)> {
    if let Some(write) = written(step) {
        let cluster = cluster_of(write);
        let name = &write.name.name;
        if write.kind != "ValkeyNode" {
            return None;
        }
        let what = match write.verb {
            Verb::Create => format!("create node {name}"),
            // A cluster that is going lets all its nodes go at once.
            Verb::Delete => past
                .scene
                .standing_cluster(&cluster)
                .map(|_| format!("delete node {name}"))?,
            Verb::Update | Verb::Patch => flip(past, &cluster, write)?,
        };
        return Some((cluster, what));
    }
    let What::Command(command) = &step.what else {
        return None;
    };
    let process = past.scene.reached(command)?;
    let counts = command.changes_topology() && !is_gossip(&past.scene, command, process);
    let words = command.words.join(" ");
    let fan_out = command.is(&["CLUSTER", "FORGET"]);
    let whom = if fan_out { "all" } else { &process.ip };
    counts.then(|| (process.home.clone(), format!("{words} to {whom}")))
}

/// A patch of a node counts if it changes its lifecycle or a label; the stamp and the finalizer are the node
/// controller's. All flips of an activation are one action.
fn flip(past: &Past, cluster: &Name, write: &Write) -> Option<String> {
    let (before, after) = (write.before.as_deref()?, write.after.as_deref()?);
    let name = &write.name.name;
    let lifecycle = after.text("/spec/lifecycle");
    if !lifecycle.is_empty() && lifecycle != before.text("/spec/lifecycle") {
        let state = past
            .scene
            .cluster(cluster)
            .map(|it| it.text("/status/state").to_owned());
        let forming = state.is_none_or(|state| state != "Active");
        return Some(if forming && lifecycle == "Active" {
            "activate".to_owned()
        } else {
            format!("make node {name} {lifecycle}")
        });
    }
    let labels = |body: &Value| body.at("/metadata/labels").cloned();
    let relabelled = labels(after).is_some_and(|labels_now| Some(labels_now) != labels(before));
    relabelled.then(|| format!("label node {name}"))
}

/// A MEET between two that gossip would bring together anyway.
fn is_gossip(scene: &Scene, command: &Command, from: &Process) -> bool {
    if !command.is(&["CLUSTER", "MEET"]) {
        return false;
    }
    let Some(to) = scene.at_address(command.word(2)) else {
        return false;
    };
    let mut near = BTreeSet::from([from.id.as_str()]);
    loop {
        let before = near.len();
        for process in scene.alive(&from.home) {
            let known = process.table.iter().filter(|row| !row.handshake);
            let ids: Vec<&str> = known
                .map(|row| row.id.as_str())
                .chain([process.id.as_str()])
                .collect();
            if ids.iter().any(|id| near.contains(id)) {
                near.extend(ids);
            }
        }
        if near.contains(to.id.as_str()) || near.len() == before {
            return near.contains(to.id.as_str());
        }
    }
}

/// The pod that a write lets go: its own deletion, its node's, or the release of a node that still has it.
fn let_go<'a>(past: &'a Past, step: &'a Step) -> Option<(&'a Write, &'a Process)> {
    let write = written(step).filter(|write| write.outcome.took_effect())?;
    past.scene.standing_cluster(&cluster_of(write))?;
    let before = write.before.as_deref()?;
    let pod = match (write.kind.as_str(), write.verb) {
        // Of a node that is going already, be it by a hand, the pod goes with it.
        ("Pod", Verb::Delete) => {
            let node = past.scene.node_of(before.uid());
            node.filter(|node| !node.deleting())?;
            before.uid()
        }
        ("ValkeyNode", Verb::Delete) => before.annotation(STAMP),
        ("ValkeyNode", Verb::Patch | Verb::Update) => {
            let after = write.after.as_deref();
            let held = after
                .map(|after| after.finalizers().len())
                .unwrap_or_default();
            let released = before.deleting() && held < before.finalizers().len();
            if released {
                before.annotation(STAMP)
            } else {
                ""
            }
        }
        _ => "",
    };
    // Whoever deleted the pod before has let it go already.
    past.scene.pod(pod).filter(|pod| !pod.deleting())?;
    let process = past.scene.process(pod)?;
    (process.life == Life::Alive).then_some((write, process))
}

/// S4: never delete or let go of the last live, synced copy of a slot that holds keys.
///
/// Except: deletion of the cluster; without replicas, after the process is proven dead. One that hangs, or
/// whose pod is gone or going, is no live copy; what hit another after the operator looked, it cannot know.
pub(super) fn no_last_copy_is_let_go(checker: &mut Checker, step: &Step) -> Verdict {
    let past = &checker.past;
    let emptied = obeyed(past, step).filter(|(command, process)| {
        past.scene.standing_cluster(&process.home).is_some()
            && (command.is(&["CLUSTER", "RESET"])
                || command.is(&["CLUSTER", "REPLICATE"])
                || command.is(&["FLUSHALL"])
                || command.is(&["FLUSHDB"]))
    });
    let (how, process) = if let Some((write, process)) = let_go(past, step) {
        (
            format!("{:?} of {} {}", write.verb, write.kind, write.name),
            process,
        )
    } else if let Some((command, process)) = emptied {
        (command.words.join(" "), process)
    } else {
        return Ok(());
    };
    let others = past
        .scene
        .standing(&process.home)
        .filter(|other| other.pod != process.pod && other.is_synced());
    let kept = others.fold(Slots::default(), |all, other| all.with(&other.keyed));
    let lost = process.keyed.without(&kept);
    if lost.is_empty() {
        return Ok(());
    }
    if unseen_hits(past, step, process) != Some(0) {
        checker.past.cost(&lost);
        return Ok(());
    }
    Err(format!(
        "{how} lets go of the last copy of {lost}: {}",
        process.told()
    ))
}

/// How often the shard of a process was hit after the operator looked; nothing where it cannot be told.
fn unseen_hits(past: &Past, step: &Step, process: &Process) -> Option<usize> {
    let looked = past.looked_at(step.by, &process.home);
    let shard = past.shard_of(&process.pod);
    shard.map_or(Some(0), |shard| past.hits_on(shard, looked))
}

/// A node's deletion by the operator, and its process where it runs.
fn retired<'a>(past: &'a Past, step: &'a Step) -> Option<(&'a Value, &'a Process)> {
    let (write, process) = let_go(past, step)?;
    let node = write.before.as_deref()?;
    let retired = write.kind == "ValkeyNode" && write.verb == Verb::Delete;
    retired.then_some((node, process))
}

/// S5: replace before retire: when a member is deleted, at least 1 + replicasPerShard others of its shard are
/// live, synced and Active, by the spec as it is, or was when the operator looked, but for those that something hit
/// since.
///
/// Except: excess replicas above the target, of which the others are enough; members already dead; a shard
/// that owns no slot any more, and a cluster where nobody owns one; nodes that never became Active.
pub(super) fn replace_before_retire(checker: &mut Checker, step: &Step) -> Verdict {
    let past = &checker.past;
    let Some((node, process)) = retired(past, step) else {
        return Ok(());
    };
    let scene = &past.scene;
    let primary = process.primary();
    let drained = past.slots_of_shard(&process.pod).is_empty();
    if node.text("/spec/lifecycle") == "Joining" || drained || !serves(scene, &process.home) {
        return Ok(());
    }
    if scene.cluster(&process.home).is_none() {
        return Ok(());
    }
    let wanted = past.replicas_asked(step.by, &process.home) + 1;
    let others = scene.standing(&process.home).filter(|other| {
        other.pod != process.pod
            && other.primary() == primary
            && other.is_linked()
            && other.is_synced()
            && scene
                .node_of(&other.pod)
                .is_some_and(|node| node.text("/spec/lifecycle") == "Active")
    });
    let have = others.count();
    if unseen_hits(past, step, process).is_none_or(|hits| have + hits >= wanted) {
        return Ok(());
    }
    Err(format!(
        "{} is retired with {have} of {wanted} others in its shard",
        process.told()
    ))
}

/// Whether anybody of a cluster owns a slot by its own account.
pub(super) fn serves(scene: &Scene, home: &Name) -> bool {
    scene.alive(home).any(|one| !one.own().is_empty())
}

/// S15: scale-in deletes a member only at 0 slots in every live view and with no job in flight; never drains
/// more shards than asked.
///
/// The first half holds for every member that is deleted alive, unless nobody owns a slot: a user took them. What one
/// says itself whose pod is still told to be Pending cannot be known: nobody asks it.
pub(super) fn only_the_drained_leave(checker: &mut Checker, step: &Step) -> Verdict {
    let past = &checker.past;
    drains_what_was_asked(past, step)?;
    let Some((_, process)) = retired(past, step) else {
        return Ok(());
    };
    let mut owned = past.scene.owned_in_views(&process.home, &process.id);
    let pod = past.scene.pod(&process.pod);
    if pod.is_none_or(|pod| pod.text("/status/phase") != "Pending") {
        owned = owned.with(&process.own());
    }
    if !owned.is_empty() && serves(&past.scene, &process.home) {
        return Err(format!("{} is deleted with {owned}", process.told()));
    }
    match super::membership::moving(&past.scene, &process.home, &process.id) {
        Some(job) => Err(format!("{} is deleted while {job}", process.told())),
        None => Ok(()),
    }
}

/// A batch that empties its source must leave as many shards as were asked for. An edit younger than a blink
/// cannot have been seen. Whoever was just met knows no owner but itself, so that each speaks for itself too.
fn drains_what_was_asked(past: &Past, step: &Step) -> Verdict {
    let batch = obeyed(past, step).filter(|(it, _)| it.is(&["CLUSTER", "MIGRATESLOTS"]));
    let Some((command, source)) = batch else {
        return Ok(());
    };
    let moved = super::migration::batches(command)
        .into_iter()
        .fold(Slots::default(), |all, (slots, _)| all.with(&slots));
    let young = past.edited_at(&source.home) + past.rules.blink > past.at;
    if young || !source.own().without(&moved).is_empty() {
        return Ok(());
    }
    let listed = source.table.iter().filter(|row| !row.slots.is_empty());
    let alive = past.scene.alive(&source.home);
    let owning = alive.filter(|one| !one.own().is_empty());
    let owners: BTreeSet<&str> = listed
        .map(|row| row.id.as_str())
        .chain(owning.map(|one| one.id.as_str()))
        .collect();
    let owners = owners.len();
    let cluster = past.scene.standing_cluster(&source.home);
    let spec = cluster.and_then(|cluster| cluster.body.get("spec"));
    let asked = spec.map_or(0, |spec| Shape::of(spec).shards);
    if owners > asked {
        return Ok(());
    }
    Err(format!(
        "{} is drained, the last but {} of {asked} shards",
        source.told(),
        owners - 1
    ))
}

/// S17: one `ValkeyNode`, at most one pod in its life, created only while Joining; a pod's spec is never
/// patched.
///
/// Except: annotations, another pod for one that somebody else took before the node had recorded it, and the pod of a node
/// that was Joining when its own tick looked.
pub(super) fn one_pod_in_a_life(checker: &mut Checker, step: &Step) -> Verdict {
    let Checker {
        past, lifecycle, ..
    } = checker;
    lifecycle.taken.extend(taken_pod(step));
    for node in past.scene.kind("ValkeyNode") {
        let known = lifecycle.settled.contains_key(node.uid());
        if !known && node.text("/spec/lifecycle") != "Joining" {
            lifecycle.settled.insert(node.uid().to_owned(), past.at);
        }
    }
    let write = written(step).filter(|write| write.kind == "Pod" && write.outcome.took_effect());
    let Some(write) = write else {
        return Ok(());
    };
    match write.verb {
        Verb::Delete => Ok(()),
        Verb::Update | Verb::Patch => {
            let part = |body: &Value| [body.get("spec").cloned(), body.get("status").cloned()];
            let (before, after) = (
                write.before.as_deref().map(part),
                write.after.as_deref().map(part),
            );
            if before == after {
                return Ok(());
            }
            Err(format!("the spec of pod {} was changed", write.name))
        }
        Verb::Create => {
            let Some(pod) = write.after.as_deref() else {
                return Ok(());
            };
            let owners = pod.owners();
            let Some((_, node)) = owners.iter().find(|(kind, _)| *kind == "ValkeyNode") else {
                return Err(format!("pod {} was made for no node", write.name));
            };
            let before = lifecycle
                .pods
                .insert((*node).to_owned(), pod.uid().to_owned());
            let recorded = |pod: &String| past.stamped_at(pod).is_some();
            let counts = |pod: &String| recorded(pod) || !lifecycle.taken.contains(pod);
            if let Some(before) = before.filter(counts) {
                return Err(format!("node {} had the pod {before} already", write.name));
            }
            let settled = lifecycle.settled.get(*node).copied().unwrap_or(past.at);
            let mut nodes = past.scene.kind("ValkeyNode");
            match nodes
                .find(|object| object.uid() == *node)
                .map(|it| it.text("/spec/lifecycle"))
            {
                None | Some("Joining") => Ok(()),
                Some(_) if settled + past.rules.blink > past.at => Ok(()),
                Some(other) => Err(format!("node {} got a pod while {other}", write.name)),
            }
        }
    }
}

/// The pod that is deleted by another than the operator.
fn taken_pod(step: &Step) -> Option<String> {
    let What::Write(write) = &step.what else {
        return None;
    };
    let theirs = !matches!(step.by, Actor::Operator(_));
    let takes = write.kind == "Pod" && write.verb == Verb::Delete && write.outcome.took_effect();
    let pod = write.before.as_deref().filter(|_| theirs && takes)?;
    Some(pod.uid().to_owned())
}
