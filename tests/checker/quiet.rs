//! Rest: S22. Never judges before a feeder says that there is nothing to do.

use super::Checker;
use super::Verdict;
use super::evidence::Actor;
use super::evidence::Step;
use super::evidence::What;

/// S22: quiet: nothing to do means zero API writes and zero mutating commands over 1,000 ticks.
///
/// Except: ACL LOAD and TLS CONFIG SET passes.
pub(super) fn nothing_to_do_is_nothing_done(checker: &mut Checker, step: &Step) -> Verdict {
    if !checker.past.calm || !matches!(step.by, Actor::Operator(_)) {
        return Ok(());
    }
    match &step.what {
        What::Write(write) => Err(format!(
            "{:?} of {} {} though there is nothing to do",
            write.verb, write.kind, write.name
        )),
        What::Command(command) if command.changes_topology() => Err(format!(
            "{} to {} though there is nothing to do",
            command.words.join(" "),
            command.ip
        )),
        What::Command(_)
        | What::Tick(_)
        | What::TickEnd(_)
        | What::Log(_)
        | What::Fault(_)
        | What::Healed
        | What::Stable(_)
        | What::Calm
        | What::Look => Ok(()),
    }
}
