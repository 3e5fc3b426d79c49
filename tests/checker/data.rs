//! Acknowledged writes: S10, S11, S12. Never judges a write that nobody acknowledged.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::Checker;
use super::Verdict;
use super::evidence::Life;
use super::evidence::Lost;
use super::evidence::Millis;
use super::evidence::Process;
use super::evidence::Step;
use super::past::Felt;
use super::past::Past;

/// What the family remembers.
#[derive(Default)]
pub(super) struct Memory {
    /// Since when two processes, by pod, have been accepting writes for one slot.
    twice: BTreeMap<(String, String), Millis>,
}

fn lost(past: &Past) -> &[Lost] {
    let ledger = past.scene.0.ledger.as_ref().filter(|_| past.fresh);
    ledger
        .map(|ledger| ledger.lost.as_slice())
        .unwrap_or_default()
}

/// S10: no acknowledged write is lost in planned work: bootstrap edits, scale out and in, replica count, roll,
/// ACL, TLS, operator restart and upgrade.
///
/// Planned is a slot whose shard no fault but the operator's own ever hit.
pub(super) fn planned_work_loses_nothing(checker: &mut Checker, _: &Step) -> Verdict {
    let past = &checker.past;
    for lost in lost(past) {
        if !past.felt.iter().any(|felt| felt.reaches(lost.slot)) {
            let Lost { key, slot, .. } = lost;
            return Err(format!(
                "{key} of slot {slot} is lost, and no fault hit its shard"
            ));
        }
    }
    Ok(())
}

/// S11: a write acknowledged with `WAIT R` (R = all replicas) survives any single fault.
///
/// Single is what hit one pod of the shard, ever, while another had the data: what was written while there were
/// replicas is not in what a scale to none left.
pub(super) fn waited_writes_survive_one_fault(checker: &mut Checker, _: &Step) -> Verdict {
    let past = &checker.past;
    for lost in lost(past).iter().filter(|lost| lost.waited) {
        let felt = || past.felt.iter().filter(|felt| felt.reaches(lost.slot));
        // Of a fault, the pods of this shard: it may have hit others too.
        let pods: BTreeSet<&str> = felt()
            .flat_map(|felt| &felt.pods)
            .filter(|(_, slots)| slots.has(lost.slot))
            .map(|(pod, _)| pod.as_str())
            .collect();
        let beyond = |felt: &Felt| felt.everything || felt.lone.has(lost.slot);
        if pods.len() <= 1 && !felt().any(beyond) {
            let Lost { key, slot, .. } = lost;
            let pods: Vec<&str> = pods.into_iter().collect();
            return Err(format!(
                "{key} of slot {slot}, which every replica had, is lost by a fault of {}",
                pods.join(" ")
            ));
        }
    }
    Ok(())
}

/// S12: two live nodes never accept writes for one slot longer than node timeout + 2 s; never at all when
/// planned.
///
/// Except: a one-shard cluster cut in two for longer than the hold of takeovers.
pub(super) fn one_writer_a_slot(checker: &mut Checker, _: &Step) -> Verdict {
    let Checker { past, data, .. } = checker;
    if !past.fresh {
        return Ok(());
    }
    let writers: Vec<&Process> = past
        .scene
        .0
        .processes
        .iter()
        .filter(|process| process.life == Life::Alive && !process.accepts.is_empty())
        .map(AsRef::as_ref)
        .collect();
    let mut still = BTreeMap::new();
    for (index, one) in writers.iter().enumerate() {
        for other in writers.iter().skip(index + 1) {
            if one.home != other.home || !one.accepts.meets(&other.accepts) {
                continue;
            }
            let pair = (one.pod.clone(), other.pod.clone());
            let since = data.twice.get(&pair).copied().unwrap_or(past.at);
            still.insert(pair, since);
            let lasted = past.at - since;
            let longest = past.rules.node_timeout + 2_000;
            let cut = !past.scene.hear_each_other(one, other);
            let lone = cut && owners(one) <= 1 && owners(other) <= 1;
            if (past.planned() || lasted > longest) && !lone {
                let slots = one.accepts.common(&other.accepts);
                return Err(format!(
                    "both {} and {} accept writes for {slots}, for {lasted} ms now",
                    one.told(),
                    other.told()
                ));
            }
        }
    }
    data.twice = still;
    Ok(())
}

fn owners(process: &Process) -> usize {
    let rows = process.table.iter();
    rows.filter(|row| !row.slots.is_empty()).count()
}
