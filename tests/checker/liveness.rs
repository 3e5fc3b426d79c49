//! What must come about: L1 to L11, once faults and edits have ended.
//! Never judges a cluster that a person holds back, by a pause or by a reference that does not resolve.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use super::Checker;
use super::Verdict;
use super::Violation;
use super::evidence::Actor;
use super::evidence::Goal;
use super::evidence::Millis;
use super::evidence::Name;
use super::evidence::Object;
use super::evidence::Outcome;
use super::evidence::Process;
use super::evidence::Role;
use super::evidence::Step;
use super::evidence::Verb;
use super::evidence::What;
use super::lifecycle::serves;
use super::lifecycle::written;
use super::past::Past;
use super::past::cluster_of;
use super::scene::Body as _;
use super::scene::PAUSED;
use super::scene::STAMP;
use super::scene::Scene;
use super::scene::Shape;
use super::slots::SLOTS;
use super::slots::Slots;
use super::status::resolved;
use super::status::users;

/// Ticks that a deletion may take.
const DELETION_TICKS: Millis = 20;
/// Ticks within which a mended menu must be acted upon.
const UNBLOCK_TICKS: Millis = 3;
/// The longest that a tick may take.
const TICK_MAX: Millis = 5_000;
/// Tries of one refused action at one pace.
const TRIES_MAX: u32 = 5;
/// A pace as slow as this need not get slower.
const SLOW: Millis = 10_000;
/// By how much slower, in hundredths, one cluster may be beside a stuck one.
const BESIDE_PERCENT: Millis = 120;
/// Faults that hold up requests to the API server, or everything.
const SLOW_GROUND: [&str; 4] = ["F10", "F11", "F12", "F28"];

/// A rule's id beside what is wrong.
type Ruled = Result<(), (&'static str, String)>;

/// What the family remembers.
#[derive(Default)]
pub(super) struct Memory {
    /// When each cluster reached its declared state, since all is stable.
    reached: BTreeMap<Name, Millis>,
    /// When each cluster was first seen to be Active.
    active: BTreeMap<Name, Millis>,
    /// When each cluster that is being deleted was first seen so, by uid.
    deleting: BTreeMap<String, Millis>,
    /// Since when each tick under way has been.
    ticks: BTreeMap<(u32, Name), Millis>,
    /// Clusters whose menu did not resolve when last looked at.
    blocked: BTreeSet<Name>,
    /// Clusters whose menu was mended, when, and not acted upon yet.
    mended: BTreeMap<Name, Millis>,
    /// Refused actions.
    refused: BTreeMap<String, Tries>,
}

/// How often something was tried in vain.
struct Tries {
    last: Millis,
    longest: Millis,
    at_this_pace: u32,
}

/// L1: the declared state is reached and kept, within 60 + 15 x nodes + 3 x batches ticks. L2: all 16384
/// slots assigned, `cluster_state:ok` on all nodes, one view. L3: every shard has exactly its replica target,
/// each linked. L6: the same after a wrong spec was put right. L7: under faults that never stop but leave 60 s
/// between them, every operation ends.
///
/// A tick is counted as a second here: the operator's own last from none to many.
pub(super) fn the_declared_state_comes(checker: &mut Checker, step: &Step) -> Ruled {
    let Checker { past, liveness, .. } = checker;
    note_active(past, liveness);
    if matches!(step.what, What::Stable(_)) {
        liveness.reached.clear();
    }
    let Some((goal, since)) = past.stable.filter(|_| past.fresh) else {
        return Ok(());
    };
    for cluster in judged(past) {
        let name = &cluster.name;
        let reached = liveness.reached.get(name).copied();
        match declared(&past.scene, cluster) {
            Ok(()) if reached.is_none() => drop(liveness.reached.insert(name.clone(), past.at)),
            Ok(()) => {}
            Err((rule, why)) => {
                let late = past.at > since + bound(past, cluster);
                let rule = rule_of(goal, rule);
                if reached.is_some() && goal != Goal::UnderFaults {
                    return Err((
                        rule,
                        format!("{name} was as declared, and is not any more: {why}"),
                    ));
                }
                if reached.is_none() && late {
                    let seconds = (past.at - since) / 1000;
                    return Err((rule, format!("{name} after {seconds} s of peace: {why}")));
                }
            }
        }
    }
    Ok(())
}

/// The rule that a goal is judged by.
fn rule_of(goal: Goal, part: &'static str) -> &'static str {
    match goal {
        Goal::Declared => part,
        Goal::PutRight => "L6",
        Goal::UnderFaults => "L7",
    }
}

fn note_active(past: &Past, liveness: &mut Memory) {
    if !past.fresh {
        return;
    }
    for cluster in past.scene.kind("ValkeyCluster") {
        let active = cluster.text("/status/state") == "Active";
        if active && !liveness.active.contains_key(&cluster.name) {
            liveness.active.insert(cluster.name.clone(), past.at);
        }
    }
}

/// The clusters that nothing but the operator holds back.
fn judged(past: &Past) -> impl Iterator<Item = &Object> {
    past.scene.kind("ValkeyCluster").filter(|cluster| {
        !cluster.deleting()
            && !past.rules.left_out.contains(&cluster.name)
            && cluster.annotation(PAUSED) != "true"
            && resolved(&past.scene, cluster).is_ok()
    })
}

fn bound(past: &Past, cluster: &Object) -> Millis {
    let spec = cluster.body.get("spec").unwrap_or(&Value::Null);
    let nodes = Millis::try_from(Shape::of(spec).nodes()).unwrap_or(Millis::MAX);
    let ticks = nodes
        .saturating_mul(15)
        .saturating_add(60 + 3 * past.rules.batches);
    ticks
        .saturating_mul(past.rules.tick)
        .saturating_add(past.rules.grace)
}

/// Whether every stable cluster is as declared, so that a feeder may stop.
pub(super) fn settled(past: &Past, liveness: &Memory) -> bool {
    judged(past).all(|cluster| liveness.reached.contains_key(&cluster.name))
}

/// What a run that has ended still owes.
pub(super) fn owed(past: &Past, liveness: &Memory) -> Result<(), Violation> {
    let Some((goal, since)) = past.stable else {
        return Ok(());
    };
    for cluster in judged(past) {
        if liveness.reached.contains_key(&cluster.name) {
            continue;
        }
        if let Err((rule, why)) = declared(&past.scene, cluster) {
            let seconds = (past.at - since) / 1000;
            return Err(Violation {
                rule: rule_of(goal, rule),
                at: past.at,
                story: format!(
                    "{} when the run ended, after {seconds} s of peace: {why}",
                    cluster.name
                ),
            });
        }
    }
    Ok(())
}

/// Whether a cluster is what its spec and the menu say, by the first rule that says no.
pub(super) fn declared(scene: &Scene, cluster: &Object) -> Ruled {
    let spec = cluster.body.get("spec").unwrap_or(&Value::Null);
    let shape = Shape::of(spec);
    objects(scene, cluster, shape).map_err(|why| ("L1", why))?;
    let members: Vec<&Process> = scene
        .staying(&cluster.name)
        .filter_map(|node| scene.process(node.annotation(STAMP)))
        .filter(|process| scene.stands(process))
        .collect();
    if members.len() != shape.nodes() {
        let (have, want) = (members.len(), shape.nodes());
        return Err((
            "L1",
            format!("{have} of {want} nodes run in a pod of their own"),
        ));
    }
    one_view(&members, shape).map_err(|why| ("L2", why))?;
    replicas(&members, shape).map_err(|why| ("L3", why))
}

/// The Kubernetes half.
fn objects(scene: &Scene, cluster: &Object, shape: Shape) -> Verdict {
    let state = cluster.text("/status/state");
    if state != "Active" || cluster.body.at("/status/targetSpec").is_some() {
        return Err(format!("its state is {state:?}"));
    }
    let nodes: Vec<&Object> = scene.nodes(&cluster.name).collect();
    let mut shards: BTreeMap<u64, usize> = BTreeMap::new();
    for node in &nodes {
        *shards
            .entry(node.number("/spec/shardIndex").unwrap_or(u64::MAX))
            .or_default() += 1;
        let lifecycle = node.text("/spec/lifecycle");
        if lifecycle != "Active" || node.deleting() {
            return Err(format!("node {} is {lifecycle}", node.name));
        }
    }
    let even = shards.values().all(|count| *count == shape.replicas + 1);
    if nodes.len() != shape.nodes() || shards.len() != shape.shards || !even {
        return Err(format!("its nodes are, by shard: {shards:?}"));
    }
    kept(scene, cluster)
}

/// What is kept in every state, and the users in the ACL file.
fn kept(scene: &Scene, cluster: &Object) -> Verdict {
    let named = |tail: &str| Name {
        namespace: cluster.name.namespace.clone(),
        name: format!("{}{tail}", cluster.name.name),
    };
    for (kind, tail) in [
        ("Service", ""),
        ("Secret", "-operator-auth"),
        ("ConfigMap", "-acl"),
    ] {
        let object = scene.object(kind, &named(tail));
        if !object.is_some_and(|object| object.owned_by(cluster.uid())) {
            return Err(format!("its {kind} {} is not there", named(tail)));
        }
    }
    for (pod, key, value) in annotations(scene, cluster) {
        if pod.annotation(key) != value {
            return Err(format!(
                "annotation {key} of pod {} is not {value}",
                pod.name
            ));
        }
    }
    let Some(wish) = users(scene, cluster) else {
        return Ok(());
    };
    let file = scene.object("ConfigMap", &named("-acl"));
    let file = file.map_or("", |map| {
        map.body
            .at("/data/users.acl")
            .and_then(Value::as_str)
            .unwrap_or_default()
    });
    let mut found = BTreeMap::new();
    for line in file.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let user = words.get(1).copied().unwrap_or_default();
        let hashes = words
            .iter()
            .filter_map(|word| word.strip_prefix('#'))
            .map(str::to_owned);
        if !user.starts_with("_momento_") && (user != "default" || wish.contains_key(user)) {
            found.insert(user.to_owned(), hashes.collect::<Vec<_>>());
        }
    }
    if found != wish {
        let (have, want): (Vec<_>, Vec<_>) = (found.keys().collect(), wish.keys().collect());
        return Err(format!(
            "the ACL file has {have:?} where {want:?} are bound"
        ));
    }
    Ok(())
}

/// What each pod should be annotated with.
fn annotations<'a>(
    scene: &'a Scene,
    cluster: &'a Object,
) -> impl Iterator<Item = (&'a Object, &'a str, &'a str)> {
    let wish = cluster
        .body
        .at("/spec/podAnnotations")
        .and_then(Value::as_object);
    let wish = wish.into_iter().flatten();
    wish.flat_map(move |(key, value)| {
        let value = value.as_str().unwrap_or_default();
        let pods = scene
            .nodes(&cluster.name)
            .filter_map(|node| scene.pod(node.annotation(STAMP)));
        pods.map(move |pod| (pod, key.as_str(), value))
    })
}

fn one_view(members: &[&Process], shape: Shape) -> Verdict {
    let own: BTreeMap<&str, Option<&Slots>> = members
        .iter()
        .map(|member| {
            let id = member.id.as_str();
            (id, member.row(id).map(|row| &row.slots))
        })
        .collect();
    for member in members {
        let rows = &member.table;
        let known = rows.iter().all(|row| own.contains_key(row.id.as_str()));
        if !known
            || rows.len() != own.len()
            || member.table.iter().any(|row| row.handshake || row.failed)
        {
            return Err(format!(
                "{} lists {} of {} members",
                member.told(),
                rows.len(),
                own.len()
            ));
        }
        if member.assigned() != SLOTS || !member.state_ok {
            return Err(format!(
                "{} counts {} slots, or is not ok",
                member.told(),
                member.assigned()
            ));
        }
        let owners = member
            .table
            .iter()
            .filter(|row| !row.slots.is_empty())
            .count();
        if owners != shape.shards {
            return Err(format!(
                "{} sees {owners} of {} shards",
                member.told(),
                shape.shards
            ));
        }
        for row in &member.table {
            if own.get(row.id.as_str()) != Some(&Some(&row.slots)) {
                return Err(format!(
                    "{} sees {} with {}",
                    member.told(),
                    row.id,
                    row.slots
                ));
            }
        }
    }
    Ok(())
}

fn replicas(members: &[&Process], shape: Shape) -> Verdict {
    for primary in members.iter().filter(|member| !member.own().is_empty()) {
        let linked = members.iter().filter(|member| {
            matches!(&member.role, Role::Replica { of, linked: true, .. } if *of == primary.id)
        });
        let have = linked.count();
        if have != shape.replicas {
            return Err(format!(
                "{} has {have} of {} replicas linked",
                primary.told(),
                shape.replicas
            ));
        }
    }
    Ok(())
}

/// L4: creating a missing `ValkeyImage`, `ValkeyConfig`, `ValkeyRole` or Secret unblocks every waiter untouched,
/// within 3 ticks.
///
/// A waiter is a cluster that is being formed and has nodes to make: its next step must show. Not while
/// something is broken, nor one that waits for its TLS Secret besides, which is read every few seconds.
pub(super) fn a_mended_menu_unblocks(checker: &mut Checker, step: &Step) -> Verdict {
    let Checker { past, liveness, .. } = checker;
    if let Some(write) = written(step) {
        liveness.mended.remove(&cluster_of(write));
    }
    if !past.fresh {
        return Ok(());
    }
    for cluster in past.scene.kind("ValkeyCluster") {
        let name = &cluster.name;
        if resolved(&past.scene, cluster).is_err() {
            liveness.blocked.insert(name.clone());
            liveness.mended.remove(name);
        } else if liveness.blocked.remove(name) {
            liveness.mended.insert(name.clone(), past.at);
        }
        let Some(since) = liveness.mended.get(name) else {
            continue;
        };
        let spec = cluster.body.get("spec").unwrap_or(&Value::Null);
        let waits = !matches!(cluster.text("/status/state"), "Active" | "Invalid")
            && !serves(&past.scene, name)
            && cluster.annotation(PAUSED) != "true"
            && !cluster.deleting()
            && !past.rules.left_out.contains(name)
            && past.scene.nodes(name).count() < Shape::of(spec).nodes();
        if !waits || !past.troubles.is_empty() || past.trouble_at > *since {
            liveness.mended.remove(name);
        } else if since + UNBLOCK_TICKS * past.rules.tick + past.rules.grace < past.at {
            return Err(format!(
                "{name} still waits, though its menu resolves since {since} ms"
            ));
        }
    }
    Ok(())
}

/// L8: a tick ends in 5 s with a third of the nodes black-holed: probes in parallel, each with its own limit.
///
/// Not while the API server itself holds requests up.
pub(super) fn a_tick_ends(checker: &mut Checker, step: &Step) -> Verdict {
    let Checker { past, liveness, .. } = checker;
    let Actor::Operator(number) = step.by else {
        return Ok(());
    };
    let slow = past
        .troubles
        .iter()
        .any(|id| SLOW_GROUND.contains(&id.as_str()));
    match &step.what {
        What::Tick(cluster) => {
            liveness.ticks.insert((number, cluster.clone()), past.at);
            Ok(())
        }
        What::TickEnd(cluster) => {
            let began = liveness.ticks.remove(&(number, cluster.clone()));
            let lasted = began.map_or(0, |began| past.at - began);
            let disturbed = slow || began.is_some_and(|began| past.trouble_at >= began);
            if lasted <= TICK_MAX || disturbed {
                return Ok(());
            }
            Err(format!("a tick of {cluster} took {lasted} ms"))
        }
        What::Write(_)
        | What::Command(_)
        | What::Log(_)
        | What::Fault(_)
        | What::Healed
        | What::Stable(_)
        | What::Calm
        | What::Look => Ok(()),
    }
}

/// L9: a stuck cluster does not slow another: it takes at most 1.2 x of what it takes alone.
///
/// For a feeder that ran the same cluster twice, to compare by [`Checker::active_at`].
pub(crate) fn beside_a_stuck_one(alone: Millis, beside: Millis) -> Result<(), Violation> {
    if beside * 100 <= alone * BESIDE_PERCENT {
        return Ok(());
    }
    Err(Violation {
        rule: "L9",
        at: beside,
        story: format!("Active after {beside} ms beside a stuck cluster, {alone} ms alone"),
    })
}

pub(super) fn active_at(liveness: &Memory, cluster: &Name) -> Option<Millis> {
    liveness.active.get(cluster).copied()
}

/// L10: deletion ends, in any state, with any object missing, namespace terminating included, in 20 ticks.
///
/// Counted from when nothing is broken any more. Whoever put a finalizer of his own waits for himself.
pub(super) fn deletion_ends(checker: &mut Checker, _: &Step) -> Verdict {
    let Checker { past, liveness, .. } = checker;
    if !past.fresh {
        return Ok(());
    }
    let held = |object: &Object| {
        let mut finalizers = object.finalizers().into_iter();
        finalizers.any(|one| !one.starts_with("valkey.gomomento.com/"))
    };
    for cluster in past
        .scene
        .kind("ValkeyCluster")
        .filter(|cluster| cluster.deleting())
    {
        if held(cluster) || past.scene.nodes(&cluster.name).any(held) {
            liveness.deleting.remove(cluster.uid());
            continue;
        }
        let seen = liveness
            .deleting
            .entry(cluster.uid().to_owned())
            .or_insert(past.at);
        if !past.troubles.is_empty() {
            *seen = past.at;
        }
        let since = (*seen).max(past.trouble_at);
        if since + DELETION_TICKS * past.rules.tick + past.rules.grace < past.at {
            let nodes = past.scene.nodes(&cluster.name).count();
            return Err(format!(
                "{} is still there {} ms after its deletion, with {nodes} nodes",
                cluster.name,
                past.at - since
            ));
        }
    }
    Ok(())
}

/// L11: the same refused action is not tried more than 5 times at the same pace: back off, and say why in the
/// log.
///
/// Slower is half as slow again. A pace of half a minute is slow enough.
pub(super) fn refusals_slow_it_down(checker: &mut Checker, step: &Step) -> Verdict {
    let Checker { past, liveness, .. } = checker;
    let Actor::Operator(number) = step.by else {
        return Ok(());
    };
    let (what, outcome) = match &step.what {
        What::Write(write) => {
            // Names of nodes are drawn anew at each try.
            let name = match (write.kind.as_str(), write.verb) {
                ("ValkeyNode", Verb::Create) => Name::new(&write.name.namespace, "any"),
                _ => write.name.clone(),
            };
            (
                format!(
                    "{:?} of {} {name} {}",
                    write.verb, write.kind, write.subresource
                ),
                &write.outcome,
            )
        }
        What::Command(command) => (
            format!("{} to {}", command.words.join(" "), command.ip),
            &command.outcome,
        ),
        What::Tick(_)
        | What::TickEnd(_)
        | What::Log(_)
        | What::Fault(_)
        | What::Healed
        | What::Stable(_)
        | What::Calm
        | What::Look => return Ok(()),
    };
    let key = format!("{number} {what}");
    // A client of its own accord asks an overloaded server again, ever more slowly.
    let overloaded = ["429", "503", "504"];
    if let Outcome::Refused(words) = outcome
        && overloaded.iter().any(|code| words.starts_with(code))
    {
        return Ok(());
    }
    if *outcome == Outcome::Done {
        liveness.refused.remove(&key);
        return Ok(());
    }
    let tries = liveness.refused.entry(key).or_insert(Tries {
        last: past.at,
        longest: 0,
        at_this_pace: 0,
    });
    let pause = past.at - tries.last;
    tries.last = past.at;
    if pause >= SLOW || pause * 2 >= tries.longest * 3 && pause > 0 {
        tries.longest = pause;
        tries.at_this_pace = 1;
    } else {
        tries.at_this_pace += 1;
    }
    if tries.at_this_pace <= TRIES_MAX {
        return Ok(());
    }
    Err(format!(
        "{what} was refused and tried again {} times, {} ms apart at most",
        tries.at_this_pace, tries.longest
    ))
}

/// A cluster's end state with names, addresses, ids and passwords left out: what two runs must have in common
/// (L5: crash anywhere, the end state equals the end state of the undisturbed run, names apart).
pub(super) fn portrait(scene: &Scene, cluster: &Name) -> String {
    let Some(object) = scene.cluster(cluster) else {
        return format!("{cluster} is gone\n");
    };
    let part = |pointer: &str| object.body.at(pointer).unwrap_or(&Value::Null).to_string();
    let mut lines = vec![
        format!("spec {}", part("/spec")),
        format!("status {}", part("/status")),
    ];
    for (kind, tail) in [
        ("Service", ""),
        ("Secret", "-operator-auth"),
        ("ConfigMap", "-acl"),
    ] {
        let name = Name {
            name: format!("{}{tail}", cluster.name),
            ..cluster.clone()
        };
        let ours = scene
            .object(kind, &name)
            .map(|it| it.owned_by(object.uid()));
        lines.push(format!("{kind} ours: {ours:?}"));
    }
    let mut nodes: Vec<String> = scene
        .nodes(cluster)
        .map(|node| node_portrait(scene, node))
        .collect();
    nodes.sort();
    lines.extend(nodes);
    lines.join("\n") + "\n"
}

fn node_portrait(scene: &Scene, node: &Object) -> String {
    let spec = node.body.get("spec").unwrap_or(&Value::Null);
    let process = scene.process(node.annotation(STAMP)).map_or_else(
        || "no process".to_owned(),
        |process| {
            let (life, primary) = (process.life, process.is_primary());
            let (slots, linked) = (process.own(), process.is_linked());
            format!("{life:?} primary {primary} owns {slots:?} linked {linked}")
        },
    );
    // Which node of a shard became its primary is chance: the sorted lines pair up all the same.
    format!("node {spec} {process}")
}
