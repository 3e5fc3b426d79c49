//! Who is forgotten, who takes over, who gets slots, who is spoken to: S2, S3, S8, S9, S13, S16.
//! Never judges commands of a person.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Checker;
use super::Verdict;
use super::evidence::Actor;
use super::evidence::Command;
use super::evidence::Life;
use super::evidence::Millis;
use super::evidence::Name;
use super::evidence::Process;
use super::evidence::Role;
use super::evidence::Step;
use super::evidence::What;
use super::past::Past;
use super::past::Shard;
use super::scene::Scene;
use super::slots::Slots;

/// What the family remembers.
#[derive(Default)]
pub(super) struct Memory {
    /// Who last took over in a shard without a vote, by pod, and when.
    takeovers: BTreeMap<Shard, (String, Millis)>,
}

/// A command of the operator that some process carried out.
pub(super) fn obeyed<'a>(past: &'a Past, step: &'a Step) -> Option<(&'a Command, &'a Process)> {
    let What::Command(command) = &step.what else {
        return None;
    };
    let ours = matches!(step.by, Actor::Operator(_)) && command.outcome.took_effect();
    let process = past.scene.reached(command).filter(|_| ours)?;
    Some((command, process))
}

/// S2: never FORGET a node that owns slots and whose process is alive.
///
/// Except: one cut off from everyone that a takeover has superseded, which owns its slots in no view but
/// its own.
pub(super) fn no_living_owner_is_forgotten(checker: &mut Checker, step: &Step) -> Verdict {
    let past = &checker.past;
    let Some((command, told)) = obeyed(past, step).filter(|(it, _)| it.is(&["CLUSTER", "FORGET"]))
    else {
        return Ok(());
    };
    let scene = &past.scene;
    let Some(target) = scene
        .by_id(command.word(2))
        .filter(|it| it.life != Life::Ended)
    else {
        return Ok(());
    };
    let seen = scene.owned_in_views(&told.home, &target.id);
    if !seen.is_empty() {
        return Err(format!(
            "{} was told to forget {}, which runs and owns {seen}",
            told.told(),
            target.told()
        ));
    }
    if target.life == Life::Alive && !target.own().is_empty() && !scene.cut_off(target) {
        return Err(format!(
            "{} was told to forget {}, which runs, is heard, and holds itself for an owner",
            told.told(),
            target.told()
        ));
    }
    Ok(())
}

/// S3: never FORGET a failed primary while a live replica of it exists and it has not been superseded.
///
/// A replica is one that finished a first sync: no other can take a primary's place. Superseded is a
/// primary whose slots are another's in every view.
pub(super) fn no_candidate_loses_its_primary(checker: &mut Checker, step: &Step) -> Verdict {
    let past = &checker.past;
    let Some((command, told)) = obeyed(past, step).filter(|(it, _)| it.is(&["CLUSTER", "FORGET"]))
    else {
        return Ok(());
    };
    let (scene, id) = (&past.scene, command.word(2));
    if scene
        .by_id(id)
        .is_some_and(|target| target.life == Life::Alive)
    {
        return Ok(());
    }
    let seen = scene.owned_in_views(&told.home, id);
    let mut replicas = scene.alive(&told.home).filter(
        |replica| matches!(&replica.role, Role::Replica { of, synced: true, .. } if of == id),
    );
    match replicas.next() {
        Some(replica) if !seen.is_empty() => Err(format!(
            "{} was told to forget {id}, the owner of {seen}, while {} may take its place",
            told.told(),
            replica.told()
        )),
        Some(_) | None => Ok(()),
    }
}

/// S8: TAKEOVER only if no majority of slot-owning primaries can be reached by anyone; never two in one
/// shard in one outage; the target has the highest offset among the live.
///
/// A primary that came back less than a blink ago, or that was none yet when the operator looked, counts as
/// gone: nobody could know of it. So does one whose pod was deleted by force and that has not ended yet.
/// A replica may not have heard yet what its own primary owns: then owners are counted by the primary that
/// knows of most slots.
pub(super) fn takeover_is_the_last_resort(checker: &mut Checker, step: &Step) -> Verdict {
    let Checker {
        past, membership, ..
    } = checker;
    let Some((_, target)) = obeyed(past, step).filter(|(it, _)| is_takeover(it)) else {
        return Ok(());
    };
    let Role::Replica { of, synced, .. } = &target.role else {
        return Ok(());
    };
    if let Some(witness) = sees_a_quorum(past, step.by, target) {
        return Err(format!(
            "{} was told to take over although {} reaches a majority",
            target.told(),
            witness.told()
        ));
    }
    let mut rivals = past.scene.alive(&target.home).filter(|rival| {
        rival.id != target.id
            && matches!(&rival.role, Role::Replica { of: other, synced: true, .. } if other == of)
    });
    if let Some(better) = rivals.find(|rival| rival.offset > target.offset || !synced) {
        return Err(format!(
            "{} was told to take over although {} has more",
            target.told(),
            better.told()
        ));
    }
    if !synced {
        return Err(format!(
            "{} was told to take over with nothing in it",
            target.told()
        ));
    }
    let Some(shard) = past.shard_of(&target.pod) else {
        return Ok(());
    };
    let now = (target.pod.clone(), past.at);
    let Some((before, when)) = membership.takeovers.insert(shard.clone(), now) else {
        return Ok(());
    };
    let lives_on = past
        .scene
        .process(&before)
        .is_some_and(|it| it.life == Life::Alive)
        && past.living_since(&before) < when;
    if before != target.pod && lives_on {
        return Err(format!(
            "{} was told to take over although the pod {before} was, in the same outage",
            target.told()
        ));
    }
    Ok(())
}

/// Whether this is a takeover.
pub(super) fn is_takeover(command: &Command) -> bool {
    command.is(&["CLUSTER", "FAILOVER"]) && command.says("TAKEOVER")
}

/// Whether this is a failover that waits for the old primary.
pub(super) fn is_coordinated(command: &Command) -> bool {
    command.is(&["CLUSTER", "FAILOVER"]) && !command.says("TAKEOVER") && !command.says("FORCE")
}

/// Anyone who hears more than half of the primaries that own slots, those in the target's view, or, where
/// its own primary owns nothing there, in that of a primary that runs and knows of more slots.
fn sees_a_quorum<'a>(past: &'a Past, by: Actor, target: &'a Process) -> Option<&'a Process> {
    let scene = &past.scene;
    let unheard = target
        .row(target.primary())
        .is_none_or(|row| row.slots.is_empty());
    let fuller = scene
        .alive(&target.home)
        .filter(|it| unheard && it.is_primary() && !it.own().is_empty())
        .filter(|it| it.assigned() > target.assigned())
        .max_by_key(|it| it.assigned());
    let owners: Vec<&str> = fuller
        .unwrap_or(target)
        .table
        .iter()
        .filter(|row| !row.slots.is_empty())
        .map(|row| row.id.as_str())
        .collect();
    let looked = past.looked_at(by, &target.home);
    let known = |it: &&Process| {
        let told = past.is_old_news(&it.pod) && past.leading_since(&it.pod) <= looked;
        told && scene.pod(&it.pod).is_some()
    };
    let voters: Vec<&Process> = owners
        .iter()
        .filter_map(|id| scene.by_id(id))
        // One that was reset owns nothing by its own account, and has no vote.
        .filter(|it| it.life == Life::Alive && it.is_primary() && !it.own().is_empty())
        .filter(known)
        .collect();
    scene.alive(&target.home).find(|anyone| {
        let heard =
            |voter: &&&Process| voter.id == anyone.id || scene.hear_each_other(anyone, voter);
        voters.iter().filter(heard).count() * 2 > owners.len()
    })
}

/// S9: coordinated FAILOVER only onto a linked, synced, up-to-date replica, and never while that shard has
/// a slot migration in flight.
pub(super) fn a_planned_failover_is_safe(checker: &mut Checker, step: &Step) -> Verdict {
    let past = &checker.past;
    let Some((_, target)) = obeyed(past, step).filter(|(it, _)| is_coordinated(it)) else {
        return Ok(());
    };
    let Role::Replica { of, linked, synced } = &target.role else {
        return Ok(());
    };
    let told = || format!("{} was told to take its primary's place", target.told());
    if !linked || !synced {
        return Err(format!("{} without being in step", told()));
    }
    let primary = past.scene.by_id(of);
    let behind = primary.map_or(0, |primary| primary.offset.saturating_sub(target.offset));
    if behind > past.rules.offset_lag {
        return Err(format!("{}, {behind} bytes behind", told()));
    }
    match moving(&past.scene, &target.home, of) {
        Some(job) => Err(format!("{} while {job}", told())),
        None => Ok(()),
    }
}

/// A migration job from or to a primary, on a source that runs.
pub(super) fn moving(scene: &Scene, home: &Name, primary: &str) -> Option<String> {
    scene.alive(home).find_map(|source| {
        let export = source
            .exports
            .iter()
            .find(|export| source.id == primary || export.target == primary)?;
        Some(format!(
            "{} moves {} to {}",
            source.told(),
            export.slots,
            export.target
        ))
    })
}

/// S13: ADDSLOTS only for slots that no live node claims in any live node's view, and only when all agree
/// on the count.
///
/// Except: a node that was reset takes back what the others still take for its own, and what a hand did since the
/// operator looked.
/// Nodes are those that are to stay: one on its way out is asked by nobody.
pub(super) fn slots_are_free_when_given(checker: &mut Checker, step: &Step) -> Verdict {
    let past = &checker.past;
    let Some((command, told)) = obeyed(past, step) else {
        return Ok(());
    };
    if past.is_meddled_with(step.by, &told.home) {
        return Ok(());
    }
    let wanted = if command.is(&["CLUSTER", "ADDSLOTSRANGE"]) {
        Slots::of_pairs(command.words.get(2..).unwrap_or_default())
    } else if command.is(&["CLUSTER", "ADDSLOTS"]) {
        let words = command.words.iter().skip(2);
        Slots::of(
            words
                .filter_map(|word| word.parse().ok())
                .map(|slot| (slot, slot)),
        )
    } else {
        return Ok(());
    };
    let scene = &past.scene;
    let given = || format!("{} was given {wanted}", told.told());
    let gave_up = !told.own().meets(&wanted);
    let mut rows = scene.standing(&told.home).flat_map(|node| &node.table);
    let takes_back =
        gave_up && rows.any(|row| row.id == told.id && wanted.without(&row.slots).is_empty());
    let mut count = None;
    // Who was never met counts for itself alone.
    let met = |id: &str| {
        let mut others = scene.standing(&told.home).filter(|other| other.id != id);
        others.any(|other| other.table.iter().any(|row| row.id == id))
    };
    for node in scene.standing(&told.home).filter(|node| met(&node.id)) {
        let claims = node.table.iter().filter(|row| row.slots.meets(&wanted));
        for row in claims.filter(|row| !takes_back || row.id != told.id) {
            if scene
                .by_id(&row.id)
                .is_some_and(|owner| owner.life == Life::Alive)
            {
                let (slots, owner) = (row.slots.common(&wanted), &row.id);
                return Err(format!(
                    "{} although {owner} owns {slots} in the view of {}",
                    given(),
                    node.told()
                ));
            }
        }
        let assigned = node.assigned();
        if !takes_back && *count.get_or_insert(assigned) != assigned {
            return Err(format!(
                "{} while {} counts {assigned} and another {}",
                given(),
                node.told(),
                count.unwrap_or_default()
            ));
        }
    }
    Ok(())
}

/// S16: never a command to a process that is not a pod of this cluster: pod uid, address and node id are
/// matched in the same tick. Node-id sets of two clusters never intersect.
///
/// What came to an address after the tick had looked at it is nobody's fault. ACL LOAD and CONFIG SET are
/// not matched: they do no harm to whoever takes the cluster's own password.
pub(super) fn commands_reach_their_own(checker: &mut Checker, step: &Step) -> Verdict {
    let past = &checker.past;
    if past.fresh {
        tables_are_apart(&past.scene)?;
    }
    let Some((command, told)) = obeyed(past, step).filter(|(it, _)| it.changes_topology()) else {
        return Ok(());
    };
    let said = || format!("{} to {}", command.words.join(" "), told.told());
    let looked = past.looked_at(step.by, &told.home);
    let admitted = |process: &Process| {
        past.scene.node_of(&process.pod).is_some()
            // A hand took its node away: until its pod is gone it is a member, and has the data.
            || past.scene.pod(&process.pod).is_some_and(|pod| {
                let mut nodes = past.scene.kind("ValkeyNode");
                nodes.all(|node| node.name != pod.name)
            })
            || past
                .stamped_at(&process.pod)
                .is_some_and(|seen| seen >= looked)
            || past
                .first_seen(&process.pod)
                .is_none_or(|seen| seen > looked)
    };
    if !admitted(told) {
        return Err(format!("{}: no node has its pod {}", said(), told.pod));
    }
    let other = if command.is(&["CLUSTER", "MEET"]) {
        past.scene.at_address(command.word(2))
    } else if command.is(&["CLUSTER", "REPLICATE"]) {
        past.scene.by_id(command.word(2))
    } else {
        None
    };
    let Some(other) = other.filter(|other| other.life != Life::Ended) else {
        return Ok(());
    };
    if !admitted(other) {
        return Err(format!(
            "{}: no node has the pod of {}",
            said(),
            other.told()
        ));
    }
    let old = past
        .first_seen(&other.pod)
        .is_some_and(|seen| seen <= looked);
    if other.home != told.home && old {
        return Err(format!("{}: {} is of {}", said(), other.told(), other.home));
    }
    Ok(())
}

/// No process lists an id of another cluster, newcomers left out of which nobody of their own knows: Valkey itself meets
/// whoever gets the address of somebody that it has lost touch with (`cluster_legacy.c`).
fn tables_are_apart(scene: &Scene) -> Verdict {
    let processes = &scene.0.processes;
    let mut homes = processes.iter().map(|process| &process.home);
    let first = homes.next();
    if homes.all(|home| Some(home) == first) {
        return Ok(());
    }
    let running = || {
        processes
            .iter()
            .filter(|process| process.life != Life::Ended)
    };
    let lists = |process: &Process, id: &str| {
        let mut rows = process.table.iter().filter(|row| !row.handshake);
        rows.any(|row| row.id == id)
    };
    let is_member = |process: &&Arc<Process>| {
        let mut own = running().filter(|other| other.home == process.home);
        !process.own().is_empty()
            || own.any(|other| other.id != process.id && lists(other, &process.id))
    };
    for process in running().filter(is_member) {
        let known = process.table.iter().filter(|row| !row.handshake);
        for row in known {
            let mut strangers = running()
                .filter(|other| other.home != process.home)
                .filter(is_member);
            if let Some(stranger) = strangers.find(|other| other.id == row.id) {
                return Err(format!(
                    "{} of {} lists {} of {}",
                    process.told(),
                    process.home,
                    stranger.told(),
                    stranger.home
                ));
            }
        }
    }
    Ok(())
}
