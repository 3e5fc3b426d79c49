//! What the operator says a cluster is, and what it may do then: S18, S19.
//! Never reads a log for it.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use super::Checker;
use super::Verdict;
use super::evidence::Actor;
use super::evidence::Life;
use super::evidence::Millis;
use super::evidence::Name;
use super::evidence::Object;
use super::evidence::Role;
use super::evidence::Step;
use super::evidence::Verb;
use super::evidence::What;
use super::lifecycle::written;
use super::past::Past;
use super::past::cluster_of;
use super::scene::Body as _;
use super::scene::STAMP;
use super::scene::Scene;
use super::scene::Shape;
use super::slots::SLOTS;

/// What the family remembers.
#[derive(Default)]
pub(super) struct Memory {
    /// When a cluster that is not Active was last seen to be as an Active one must be, or why it was not.
    formed: BTreeMap<Name, Result<Millis, (Option<Millis>, String)>>,
    /// The clusters that were Active before, by uid, each with the nodes that it had, by uid, before it was last on the way
    /// back.
    active: BTreeMap<String, BTreeSet<String>>,
    /// Since when a cluster's references have not resolved, and why.
    unresolved: BTreeMap<Name, (Millis, String)>,
    /// Since when a cluster has been Invalid.
    invalid: BTreeMap<Name, Millis>,
}

/// S18: `Active` is written only when every condition of the contract's section 7 holds in ground truth.
///
/// It must have held at some moment since the tick that writes it began.
///
/// Except: on the way back from Invalid a roll goes on with the members that it had brought, who was joining goes on
/// with that, and a shard that waits for its first slots goes on waiting. A replica too many that was there before is
/// cleaned up after; one that is made on the way back is not excused.
pub(super) fn active_means_active(checker: &mut Checker, step: &Step) -> Verdict {
    let Checker { past, status, .. } = checker;
    let whole = |cluster: &Object, had: Option<&BTreeSet<String>>| {
        let nodes = past.scene.staying(&cluster.name);
        let serves = |node: &Object| !past.slots_of_shard(node.annotation(STAMP)).is_empty();
        let nodes = nodes.filter(|node| had.is_none() || is_active(node) && serves(node));
        formed(&past.scene, cluster, &nodes.collect::<Vec<_>>(), had)
    };
    if past.fresh {
        for cluster in past.scene.kind("ValkeyCluster") {
            let state = cluster.text("/status/state");
            let was_active = status.active.contains_key(cluster.uid());
            if state == "Active" || state == "Invalid" && was_active {
                let nodes = past.scene.staying(&cluster.name);
                let nodes = nodes.map(|node| node.uid().to_owned()).collect();
                status.active.insert(cluster.uid().to_owned(), nodes);
            }
            if state == "Active" {
                continue;
            }
            let seen = match whole(cluster, status.active.get(cluster.uid())) {
                Ok(()) => Ok(past.at),
                Err(why) => {
                    let last = match status.formed.get(&cluster.name) {
                        Some(Ok(at)) => Some(*at),
                        Some(Err((at, _))) => *at,
                        None => None,
                    };
                    Err((last, why))
                }
            };
            status.formed.insert(cluster.name.clone(), seen);
        }
    }
    let write = written(step).filter(|write| {
        let state = |body: &Value| body.text("/status/state") == "Active";
        write.kind == "ValkeyCluster"
            && write.outcome.took_effect()
            && write.after.as_deref().is_some_and(state)
            && !write.before.as_deref().is_some_and(state)
    });
    let Some(write) = write else {
        return Ok(());
    };
    let name = &write.name;
    let looked = past.looked_at(step.by, name);
    let before = write.before.as_deref();
    let had = before.and_then(|it| status.active.get(it.uid()));
    let mut nodes = past.scene.staying(name);
    if let Some(node) = nodes.find(|node| had.is_none() && !is_active(node)) {
        return Err(format!(
            "{name} is called Active while node {} is not",
            node.name
        ));
    }
    if past
        .scene
        .cluster(name)
        .is_some_and(|it| whole(it, had).is_ok())
    {
        return Ok(());
    }
    match status.formed.get(name) {
        Some(Ok(at) | Err((Some(at), _))) if *at >= looked => Ok(()),
        Some(Err((_, why))) => Err(format!("{name} is called Active although {why}")),
        Some(Ok(_)) | None => Err(format!("{name} is called Active, and never was")),
    }
}

/// Whether a node is a full member.
fn is_active(node: &Object) -> bool {
    node.text("/spec/lifecycle") == "Active"
}

/// Whether a cluster of these nodes is what an Active one must be, by its snapshot's shape; beyond it there may be those
/// that a shard of it had before.
fn formed(
    scene: &Scene,
    cluster: &Object,
    nodes: &[&Object],
    had: Option<&BTreeSet<String>>,
) -> Verdict {
    let target = cluster.body.at("/status/targetSpec");
    let spec = target.or_else(|| cluster.body.get("spec"));
    let shape = spec.map_or(
        Shape {
            shards: 0,
            replicas: 0,
        },
        Shape::of,
    );
    let mut kept: BTreeMap<Option<u64>, usize> = BTreeMap::new();
    for node in nodes {
        if had.is_some_and(|had| had.contains(node.uid())) {
            *kept.entry(node.number("/spec/shardIndex")).or_default() += 1;
        }
    }
    let share = shape.replicas + 1;
    let surplus: usize = kept.values().map(|have| have.saturating_sub(share)).sum();
    if !(shape.nodes()..=shape.nodes() + surplus).contains(&nodes.len()) {
        return Err(format!("it has {} of {} nodes", nodes.len(), shape.nodes()));
    }
    let mut replicas: BTreeMap<&str, usize> = BTreeMap::new();
    let mut owners: BTreeSet<&str> = BTreeSet::new();
    for node in nodes {
        let process = scene.process(node.annotation(STAMP));
        let Some(process) = process.filter(|process| process.life == Life::Alive) else {
            return Err(format!("node {} does not run", node.name));
        };
        if !process.state_ok {
            return Err(format!(
                "{} does not report cluster_state ok",
                process.told()
            ));
        }
        if process.assigned() != SLOTS {
            return Err(format!(
                "{} counts {} slots",
                process.told(),
                process.assigned()
            ));
        }
        let seen = process.table.iter().filter(|row| !row.slots.is_empty());
        owners.extend(seen.map(|row| row.id.as_str()));
        if let Role::Replica {
            of,
            linked: true,
            synced: true,
        } = &process.role
        {
            *replicas.entry(of).or_default() += 1;
        }
    }
    if owners.len() != shape.shards {
        return Err(format!(
            "{} of {} shards own slots",
            owners.len(),
            shape.shards
        ));
    }
    for owner in owners {
        let have = replicas.get(owner).copied().unwrap_or_default();
        if have < shape.replicas {
            return Err(format!(
                "{owner} has {have} of {} replicas in step",
                shape.replicas
            ));
        }
    }
    Ok(())
}

/// S19: no topology action while Invalid; no action at all in a tick whose references do not resolve.
///
/// Except: the three upkeep objects, which are kept in every state; farewells, since neither a deletion nor a
/// node on its way out waits for a reference. What the menu was less than the stores' lag ago is still seen, and by a node
/// that gets its pod, what its cluster was. Of two operators one may have looked before the other said Invalid.
pub(super) fn no_action_on_sand(checker: &mut Checker, step: &Step) -> Verdict {
    let Checker { past, status, .. } = checker;
    if past.fresh {
        for cluster in past.scene.kind("ValkeyCluster") {
            if cluster.text("/status/state") != "Invalid" {
                status.invalid.remove(&cluster.name);
            } else if !status.invalid.contains_key(&cluster.name) {
                status.invalid.insert(cluster.name.clone(), past.at);
            }
            match resolved(&past.scene, cluster) {
                Ok(()) => drop(status.unresolved.remove(&cluster.name)),
                Err(why) => {
                    let since = status
                        .unresolved
                        .get(&cluster.name)
                        .map_or(past.at, |(at, _)| *at);
                    status.unresolved.insert(cluster.name.clone(), (since, why));
                }
            }
        }
    }
    let Some((name, action)) = action(past, step) else {
        return Ok(());
    };
    let Some(cluster) = past.scene.standing_cluster(&name) else {
        return Ok(());
    };
    let is_old = |since: Millis| since + past.rules.cache_lag < past.at;
    if cluster.text("/status/state") == "Invalid" {
        let by_node = written(step).is_some_and(|write| write.kind == "Pod");
        let since = status.invalid.get(&name).copied().unwrap_or(past.at);
        let unseen = if by_node {
            !is_old(since)
        } else {
            since >= past.looked_at(step.by, &name)
        };
        return if unseen {
            Ok(())
        } else {
            Err(format!("{action} while {name} is Invalid"))
        };
    }
    match status.unresolved.get(&name) {
        Some((since, why)) if is_old(*since) => Err(format!("{action} although {why}")),
        Some(_) | None => Ok(()),
    }
}

/// What needs a sound cluster: everything but upkeep, farewells and gossip.
fn action(past: &Past, step: &Step) -> Option<(Name, String)> {
    if let Some(write) = written(step) {
        let what = match (write.kind.as_str(), write.verb) {
            ("ValkeyNode", Verb::Create | Verb::Delete) | ("Pod", Verb::Create) => write.verb,
            ("ValkeyNode", Verb::Patch | Verb::Update) => {
                let lifecycle = |body: &Value| body.at("/spec/lifecycle").cloned();
                let after = write.after.as_deref().and_then(lifecycle);
                let flipped = after != write.before.as_deref().and_then(lifecycle);
                Some(write.verb).filter(|_| flipped && after.is_some())?
            }
            _ => return None,
        };
        return Some((
            cluster_of(write),
            format!("{what:?} of {} {}", write.kind, write.name),
        ));
    }
    let What::Command(command) = &step.what else {
        return None;
    };
    let ours = matches!(step.by, Actor::Operator(_));
    let counts = ours && command.changes_topology() && !command.is(&["CLUSTER", "MEET"]);
    let process = past.scene.reached(command).filter(|_| counts)?;
    let what = format!("{} to {}", command.words.join(" "), process.told());
    Some((process.home.clone(), what))
}

/// Whether everything that a cluster names is there, by the contract's section 1.
pub(super) fn resolved(scene: &Scene, cluster: &Object) -> Verdict {
    let menu = |kind: &str, name: &str| scene.object(kind, &Name::new("", name));
    let mut chain: Vec<&Object> = Vec::new();
    let mut next = cluster.text("/spec/configRef");
    while !next.is_empty() {
        if chain.len() == 10 {
            return Err("the chain of configs is too deep".to_owned());
        }
        let config =
            menu("ValkeyConfig", next).ok_or_else(|| format!("config {next} is not there"))?;
        chain.push(config);
        next = config.text("/spec/baseRef");
    }
    let images = chain.iter().map(|config| config.text("/spec/imageRef"));
    let image = images.filter(|image| !image.is_empty()).collect::<Vec<_>>();
    let image = image.first().ok_or("no config names an image")?;
    menu("ValkeyImage", image).ok_or_else(|| format!("image {image} is not there"))?;
    let mut names = BTreeSet::new();
    for binding in bindings(&chain, cluster) {
        let user = binding.text("/username");
        if !names.insert(user) {
            return Err(format!("user {user} is bound twice"));
        }
        let permissions = binding.get("permissions").and_then(Value::as_array);
        for permission in permissions.into_iter().flatten() {
            let role = permission.text("/roleRef");
            menu("ValkeyRole", role).ok_or_else(|| format!("role {role} is not there"))?;
        }
    }
    Ok(())
}

/// Every binding: those of the first config that has any list, then the cluster's own.
fn bindings<'a>(chain: &[&'a Object], cluster: &'a Object) -> impl Iterator<Item = &'a Value> {
    let list = |object: &'a Object| object.body.at("/spec/acl").and_then(Value::as_array);
    let menu = chain.iter().find_map(|config| list(config));
    menu.into_iter().chain(list(cluster)).flatten()
}

/// The users that a cluster should have, each with its password hashes; nothing where its references do not
/// resolve.
pub(super) fn users(scene: &Scene, cluster: &Object) -> Option<BTreeMap<String, Vec<String>>> {
    resolved(scene, cluster).ok()?;
    let mut chain = Vec::new();
    let mut next = cluster.text("/spec/configRef");
    while let Some(config) = scene.object("ValkeyConfig", &Name::new("", next)) {
        chain.push(config);
        next = config.text("/spec/baseRef");
    }
    let user = |binding: &Value| {
        let hashes = binding.get("passwordHashes").and_then(Value::as_array);
        let hashes = hashes.into_iter().flatten().filter_map(Value::as_str);
        let hashes = hashes.map(str::to_owned).collect();
        (binding.text("/username").to_owned(), hashes)
    };
    Some(bindings(&chain, cluster).map(user).collect())
}
