//! Slots on the move: S14. Never judges whether they should move.

use super::Checker;
use super::Verdict;
use super::evidence::Command;
use super::evidence::Life;
use super::evidence::Process;
use super::evidence::Step;
use super::membership::is_coordinated;
use super::membership::moving;
use super::membership::obeyed;
use super::past::Past;
use super::slots::Slots;

/// The batches of a MIGRATESLOTS: slots and the id that they go to. The form is
/// `SLOTSRANGE first last [first last ...] NODE id`, once or more.
pub(super) fn batches(command: &Command) -> Vec<(Slots, String)> {
    let mut batches = Vec::new();
    let mut ranges: Vec<String> = Vec::new();
    let mut words = command.words.iter().skip(2);
    while let Some(word) = words.next() {
        if word.eq_ignore_ascii_case("NODE") {
            let target = words.next().cloned().unwrap_or_default();
            batches.push((Slots::of_pairs(&ranges), target));
            ranges.clear();
        } else if !word.eq_ignore_ascii_case("SLOTSRANGE") {
            ranges.push(word.clone());
        }
    }
    batches
}

/// S14: at most one migration job in flight per source; none from or to a shard without a healthy primary; no
/// failover issued in a shard with a job in flight.
///
/// A takeover does not wait for jobs. A primary that died less than a blink ago counts as healthy: nobody
/// could know.
pub(super) fn one_job_a_source(checker: &mut Checker, step: &Step) -> Verdict {
    let past = &checker.past;
    let Some((command, told)) = obeyed(past, step) else {
        return Ok(());
    };
    if is_coordinated(command)
        && let Some(job) = moving(&past.scene, &told.home, told.primary())
    {
        return Err(format!("{} was told to fail over while {job}", told.told()));
    }
    if !command.is(&["CLUSTER", "MIGRATESLOTS"]) {
        return Ok(());
    }
    let batches = batches(command);
    let jobs = batches.len() + told.exports.len();
    if jobs > 1 {
        return Err(format!("{} has {jobs} jobs at once", told.told()));
    }
    if !told.is_primary() {
        return Err(format!("{} was told to move slots", told.told()));
    }
    for (slots, target) in batches {
        let healthy = past
            .scene
            .by_id(&target)
            .filter(|target| healthy(past, target));
        if healthy.is_none() {
            return Err(format!(
                "{} moves {slots} to {target}, no healthy primary",
                told.told()
            ));
        }
    }
    Ok(())
}

fn healthy(past: &Past, process: &Process) -> bool {
    process.is_primary() && (process.life == Life::Alive || !past.is_old_news(&process.pod))
}
