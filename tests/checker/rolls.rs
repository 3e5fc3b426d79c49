//! Planned change, shard by shard: S6, S7. Never judges repairs.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::Checker;
use super::Verdict;
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
    /// Who replicated whom, by pod, in the last truth.
    roles: BTreeMap<String, bool>,
    /// The shards in motion.
    moving: BTreeMap<Name, BTreeSet<u64>>,
}

/// One roll of one shard: from one edit to the next.
#[derive(Default)]
struct Turn {
    since: Millis,
    /// The pods that the operator told to become primary.
    failovers: BTreeSet<String>,
    /// How often a replica became primary.
    promotions: usize,
}

/// S6: at most one operator-issued failover per shard per roll; role changes per shard per roll at most one
/// when planned.
///
/// Except: one more for each injected fault on that shard. A roll lasts from one edit of the cluster or the
/// menu to the next. The same replica asked again is no second failover.
pub(super) fn one_failover_a_roll(checker: &mut Checker, step: &Step) -> Verdict {
    let Checker { past, rolls, .. } = checker;
    if past.fresh {
        promotions(past, rolls)?;
    }
    let told = obeyed(past, step).filter(|(it, _)| it.is(&["CLUSTER", "FAILOVER"]));
    let Some((_, process)) = told else {
        return Ok(());
    };
    let replica = matches!(process.role, Role::Replica { .. });
    let Some(shard) = past.shard_of(&process.pod).filter(|_| replica).cloned() else {
        return Ok(());
    };
    let turn = turn(past, rolls, &shard);
    turn.failovers.insert(process.pod.clone());
    let (have, since) = (turn.failovers.len(), turn.since);
    allowed(past, &shard, since, have, "failovers")
}

fn promotions(past: &Past, rolls: &mut Memory) -> Verdict {
    for process in &past.scene.0.processes {
        let replica = !process.is_primary();
        match rolls.roles.get_mut(&process.pod) {
            Some(before) if *before == replica => continue,
            Some(before) => *before = replica,
            None => {
                rolls.roles.insert(process.pod.clone(), replica);
                continue;
            }
        }
        let Some(shard) = past.shard_of(&process.pod).filter(|_| !replica).cloned() else {
            continue;
        };
        let turn = turn(past, rolls, &shard);
        turn.promotions += 1;
        let (have, since) = (turn.promotions, turn.since);
        allowed(past, &shard, since, have, "changes of role")?;
    }
    Ok(())
}

fn turn<'a>(past: &Past, rolls: &'a mut Memory, shard: &Shard) -> &'a mut Turn {
    let since = past.edited_at(&shard.0);
    let turn = rolls.turns.entry(shard.clone()).or_default();
    if turn.since < since {
        *turn = Turn {
            since,
            ..Turn::default()
        };
    }
    turn
}

fn allowed(past: &Past, shard: &Shard, since: Millis, have: usize, what: &str) -> Verdict {
    let Some(hits) = past.hits_on(shard, since) else {
        return Ok(());
    };
    if have <= 1 + hits {
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
    let moving = rolls.moving.entry(cluster.clone()).or_default();
    moving.retain(|index| surplus(past, &cluster, *index) > 0);
    let index = node.label(SHARD_INDEX).parse().unwrap_or_default();
    let joins_new_shard = ["shard", "primary"].contains(&node.label(JOIN_TYPE));
    let active = past
        .scene
        .cluster(&cluster)
        .is_some_and(|it| it.text("/status/state") == "Active");
    if !active || joins_new_shard || surplus(past, &cluster, index) < 0 {
        return Ok(());
    }
    moving.insert(index);
    if moving.len() > 1 {
        let all: Vec<String> = moving.iter().map(ToString::to_string).collect();
        return Err(format!(
            "shards {} of {cluster} are in motion at once",
            all.join(" and ")
        ));
    }
    Ok(())
}

/// By how many a shard's living members that are to stay, newcomers too, outnumber its target.
fn surplus(past: &Past, cluster: &Name, index: u64) -> i64 {
    let wanted = past
        .scene
        .cluster(cluster)
        .and_then(|cluster| cluster.body.get("spec"))
        .map_or(0, |spec| Shape::of(spec).replicas + 1);
    let members = past.scene.staying(cluster).filter(|node| {
        let pod = node.annotation(super::scene::STAMP);
        node.number("/spec/shardIndex") == Some(index)
            && (pod.is_empty()
                || past
                    .scene
                    .process(pod)
                    .is_some_and(|it| past.scene.stands(it)))
    });
    let have = members.count();
    i64::try_from(have).unwrap_or(i64::MAX) - i64::try_from(wanted).unwrap_or(i64::MAX)
}
