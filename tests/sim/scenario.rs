//! Runs that are written out: a shape, and what happens when.
//! Never drawn from a seed: they stay what they are when the swarm learns to do more.

use crate::plan::{Act, Edit, Fault, Millis, Plan, Shape};
use crate::run::{Options, Outcome, run};

/// A cluster of this shape on three machines, and what happens to it; ten seconds later all is healed.
pub(crate) fn plan((shards, replicas): (u32, u32), acts: &[(Millis, Act)]) -> Plan {
    let last = acts.last().map_or(0, |(at, _)| *at);
    Plan {
        seed: 1,
        hosts: 3,
        neighbour: false,
        shape: Shape { shards, replicas },
        acts: acts.to_vec(),
        healed: last + 10_000,
    }
}

/// Runs it, and fails where a rule is broken.
pub(crate) fn holds(plan: &Plan) -> Outcome {
    let options = Options {
        story: true,
        ..Options::default()
    };
    let outcome = run(plan, &options);
    if let Some(violation) = outcome.violation {
        panic!("{}\n{violation}", outcome.story.join("\n"));
    }
    outcome
}

pub(crate) const fn edit(at: Millis, edit: Edit) -> (Millis, Act) {
    (at, Act::Edit(edit))
}

pub(crate) const fn fault(at: Millis, fault: Fault) -> (Millis, Act) {
    (at, Act::Fault(fault))
}

/// A process is killed.
pub(crate) const fn kill(at: Millis, pick: u8) -> (Millis, Act) {
    let orderly = false;
    fault(at, Fault::KillProcess { pick, orderly })
}
