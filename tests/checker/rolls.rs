//! Planned change, shard by shard: S6, S7. Never judges repairs.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::Checker;
use super::Verdict;
use super::evidence::Life;
use super::evidence::Millis;
use super::evidence::Name;
use super::evidence::Role;
use super::evidence::Step;
use super::evidence::Verb;
use super::lifecycle::written;
use super::membership::obeyed;
use super::past::Past;
use super::past::Shard;
use super::past::cluster_of;
use super::scene::Body as _;
use super::scene::JOIN_TYPE;
use super::scene::SHARD_INDEX;
use super::scene::Shape;

/// What the family remembers.
#[derive(Default)]
pub(super) struct Memory {
    /// What happened in each shard since its cluster was last edited.
    turns: BTreeMap<Shard, Turn>,
    /// Whom each pod replicated in the last truth, by id.
    roles: BTreeMap<String, Option<String>>,
    /// The shards in motion, each with how many members it should have had when it began.
    moving: BTreeMap<Name, BTreeMap<u64, i64>>,
}

/// One roll of one shard: from one edit to the next.
#[derive(Default)]
struct Turn {
    since: Millis,
    /// The pods that the operator told to become primary.
    failovers: BTreeSet<String>,
    /// How often a replica became primary.
    promotions: usize,
    /// One of them was told so before the operator could know of the edit.
    early: bool,
    /// Those of them that were not seen promoted yet.
    awaited: BTreeSet<String>,
    /// The awaited of the roll before.
    overdue: BTreeSet<String>,
}

/// S6: at most one operator-issued failover per shard per roll; role changes per shard per roll at most one
/// when planned.
///
/// Except: one more for each injected fault on that shard. A roll lasts from one edit of the cluster or the
/// menu to the next; what was decided before the operator could know of the edit belongs to the roll before, as does
/// the change of role that it ends in.
/// Whoever takes the place of a dead primary repairs, and is no part of a roll; nor is who was not told to and takes the
/// place of one that was taken for dead, whenever that is seen.
/// The same replica asked again is no second failover, and what ends with its cluster hands over as it likes.
pub(super) fn one_failover_a_roll(checker: &mut Checker, step: &Step) -> Verdict {
    let Checker { past, rolls, .. } = checker;
    if past.fresh {
        promotions(past, rolls)?;
    }
    let coordinated = ["CLUSTER", "FAILOVER"];
    let told = obeyed(past, step).filter(|(it, _)| it.is(&coordinated) && it.words.len() == 2);
    let Some((_, process)) = told else {
        return Ok(());
    };
    let replica = matches!(process.role, Role::Replica { .. });
    let Some(shard) = past.shard_of(&process.pod).filter(|_| replica).cloned() else {
        return Ok(());
    };
    let turn = turn(past, rolls, &shard);
    turn.failovers.insert(process.pod.clone());
    turn.awaited.insert(process.pod.clone());
    turn.early |= past.may_not_know(step.by, &shard.0);
    allowed(past, &shard, turn, turn.failovers.len(), "failovers")
}

fn promotions(past: &Past, rolls: &mut Memory) -> Verdict {
    for process in &past.scene.0.processes {
        let follows = match &process.role {
            Role::Replica { of, .. } => Some(of.clone()),
            Role::Primary => None,
        };
        // One that was reset is nobody's replica, and no primary of anything.
        let promoted = follows.is_none() && !process.own().is_empty();
        let before = rolls.roles.insert(process.pod.clone(), follows);
        let Some(former) = before.flatten().filter(|_| promoted) else {
            continue;
        };
        let hands_over = past.scene.by_id(&former);
        if hands_over.is_none_or(|former| former.life != Life::Alive) {
            continue;
        }
        let Some(shard) = past.shard_of(&process.pod).cloned() else {
            continue;
        };
        let turn = turn(past, rolls, &shard);
        let told = turn.awaited.remove(&process.pod);
        if turn.overdue.remove(&process.pod) || !told && past.is_shaken(&shard) {
            continue;
        }
        turn.promotions += 1;
        allowed(past, &shard, turn, turn.promotions, "changes of role")?;
    }
    Ok(())
}

fn turn<'a>(past: &Past, rolls: &'a mut Memory, shard: &Shard) -> &'a mut Turn {
    let since = past.edited_at(&shard.0);
    let turn = rolls.turns.entry(shard.clone()).or_default();
    if turn.since < since {
        *turn = Turn {
            since,
            overdue: std::mem::take(&mut turn.awaited),
            ..Turn::default()
        };
    }
    turn
}

fn allowed(past: &Past, shard: &Shard, turn: &Turn, have: usize, what: &str) -> Verdict {
    if past.scene.standing_cluster(&shard.0).is_none() {
        return Ok(());
    }
    let Some(hits) = past.hits_on(shard, turn.since) else {
        return Ok(());
    };
    if have <= 1 + hits + usize::from(turn.early) {
        return Ok(());
    }
    let (cluster, index) = shard;
    Err(format!(
        "{have} {what} in shard {index} of {cluster} with {hits} faults on it"
    ))
}

/// S7: at most one shard in motion during a roll.
///
/// Except: repairs of other shards. In motion is a shard that gets a node although it has all its members,
/// until it has as many as it should again.
pub(super) fn one_shard_in_motion(checker: &mut Checker, step: &Step) -> Verdict {
    let Checker { past, rolls, .. } = checker;
    let write = written(step).filter(|write| {
        write.kind == "ValkeyNode" && write.verb == Verb::Create && write.outcome.took_effect()
    });
    let Some((write, node)) = write.and_then(|write| Some((write, write.after.as_deref()?))) else {
        return Ok(());
    };
    let cluster = cluster_of(write);
    let wanted = wanted(past, &cluster);
    let moving = rolls.moving.entry(cluster.clone()).or_default();
    // A target that shrank meanwhile keeps no shard in motion: what is too much then is cleaned up at the end.
    moving.retain(|index, begun| members(past, &cluster, *index) > wanted.max(*begun));
    let index = node.label(SHARD_INDEX).parse().unwrap_or_default();
    let joins_new_shard = ["shard", "primary"].contains(&node.label(JOIN_TYPE));
    let active = past
        .scene
        .cluster(&cluster)
        .is_some_and(|it| it.text("/status/state") == "Active");
    if !active || joins_new_shard || members(past, &cluster, index) < wanted {
        return Ok(());
    }
    moving.insert(index, wanted);
    if moving.len() > 1 {
        let all: Vec<String> = moving.keys().map(ToString::to_string).collect();
        return Err(format!(
            "shards {} of {cluster} are in motion at once",
            all.join(" and ")
        ));
    }
    Ok(())
}

/// How many members each shard should have.
fn wanted(past: &Past, cluster: &Name) -> i64 {
    let spec = past.scene.cluster(cluster);
    let spec = spec.and_then(|cluster| cluster.body.get("spec"));
    spec.map_or(0, |spec| {
        i64::try_from(Shape::of(spec).replicas).unwrap_or(i64::MAX - 1) + 1
    })
}

/// A shard's living members that are to stay, newcomers too.
fn members(past: &Past, cluster: &Name, index: u64) -> i64 {
    let members = past.scene.staying(cluster).filter(|node| {
        let pod = node.annotation(super::scene::STAMP);
        node.number("/spec/shardIndex") == Some(index)
            && (pod.is_empty()
                || past
                    .scene
                    .process(pod)
                    .is_some_and(|it| past.scene.stands(it)))
    });
    i64::try_from(members.count()).unwrap_or(i64::MAX)
}
