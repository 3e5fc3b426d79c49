//! Sim-B: every workflow, ended at every write in each of three moments, one run each.
//! Never judged by rules alone: each run has to end where the undisturbed one does.

use crate::kube::client::Moment;
use crate::plan::{Act, Edit, Fault, Kept, Millis, Part, Plan};
use crate::run::{Options, run};
use crate::scenario::{self, edit};
use crate::suite::{Job, hold};

/// What is tried.
pub(crate) struct Workflow {
    pub(crate) name: &'static str,
    pub(crate) plan: Plan,
    /// What comes before is the same as in an earlier one, and is tried there.
    pub(crate) from: Millis,
}

impl Workflow {
    /// The first of these writes that is tried, counted from 1.
    pub(crate) fn first_of(&self, writes: &[Millis]) -> usize {
        writes.partition_point(|at| *at < self.from) + 1
    }
}

/// All of them.
pub(crate) fn workflows() -> Vec<Workflow> {
    let mut all: Vec<Workflow> = Vec::new();
    for (name, plan) in plans() {
        let earlier = all.iter().map(|earlier| parting(&earlier.plan, &plan));
        let from = earlier.max().unwrap_or(0);
        all.push(Workflow { name, plan, from });
    }
    all
}

/// When two plans are no longer the same.
fn parting(one: &Plan, other: &Plan) -> Millis {
    if one.shape != other.shape {
        return 0;
    }
    let acts = one.acts.iter().zip(&other.acts);
    let same = acts.take_while(|(one, other)| one == other).count();
    let next = [one, other].map(|plan| plan.acts.get(same));
    let next = next.into_iter().flatten().map(|(at, _)| *at);
    next.min().unwrap_or(Millis::MAX)
}

#[expect(clippy::too_many_lines, reason = "one entry a workflow")]
fn plans() -> Vec<(&'static str, Plan)> {
    let edits = |shape: (u32, u32), acts: &[(Millis, Edit)]| {
        let acts: Vec<(Millis, Act)> = acts.iter().map(|(at, it)| edit(*at, *it)).collect();
        let last = acts.last().map_or(0, |(at, _)| *at);
        Plan {
            healed: last + 20_000,
            ..scenario::plan(shape, &acts)
        }
    };
    let apply = (0, Edit::Apply);
    let mut dies = edits((2, 1), &[apply]);
    let kill = Fault::KillProcess {
        pick: 1,
        orderly: false,
    };
    dies.acts.push((4_000, Act::Fault(kill)));
    vec![
        ("bootstrap 1x0", edits((1, 0), &[apply])),
        ("bootstrap 1x2", edits((1, 2), &[apply])),
        ("bootstrap 2x1", edits((2, 1), &[apply])),
        ("bootstrap 3x1", edits((3, 1), &[apply])),
        ("a pod dies meanwhile", dies),
        ("delete", edits((2, 1), &[apply, (20_000, Edit::Delete)])),
        (
            "delete meanwhile",
            edits((2, 1), &[apply, (2_000, Edit::Delete)]),
        ),
        (
            "delete and make again",
            edits(
                (1, 1),
                &[apply, (20_000, Edit::Delete), (40_000, Edit::Apply)],
            ),
        ),
        (
            "menu late",
            edits(
                (1, 1),
                &[
                    (0, Edit::Withdraw(Part::BaseConfig)),
                    (10, Edit::Apply),
                    (5_000, Edit::Offer(Part::BaseConfig)),
                ],
            ),
        ),
        (
            "image misspelt",
            edits(
                (1, 0),
                &[
                    (0, Edit::Misspell),
                    (10, Edit::Apply),
                    (20_000, Edit::Respell),
                    (20_500, Edit::Delete),
                    (40_000, Edit::Apply),
                ],
            ),
        ),
        (
            "bindings",
            edits(
                (1, 1),
                &[
                    apply,
                    (20_000, Edit::Bind(1)),
                    (40_000, Edit::Bind(2)),
                    (60_000, Edit::Bind(0)),
                ],
            ),
        ),
        (
            "annotations and pause",
            edits(
                (1, 1),
                &[
                    apply,
                    (1_000, Edit::Pause),
                    (3_000, Edit::Annotate(7)),
                    (6_000, Edit::Resume),
                ],
            ),
        ),
        (
            "kept objects taken",
            edits(
                (1, 1),
                &[
                    apply,
                    (20_000, Edit::Take(Kept::Service)),
                    (21_000, Edit::Take(Kept::AclConfigMap)),
                ],
            ),
        ),
        (
            "certificate late, lost and there again",
            edits(
                (2, 1),
                &[
                    (0, Edit::Secure),
                    (10, Edit::Apply),
                    (5_000, Edit::Certify),
                    (60_000, Edit::Uncertify),
                    (90_000, Edit::Certify),
                ],
            ),
        ),
        (
            "a node taken meanwhile",
            edits((1, 1), &[apply, (3_000, Edit::Take(Kept::Node(0)))]),
        ),
    ]
}

#[test]
fn every_write_can_be_the_last() {
    let mut jobs = Vec::new();
    for workflow in workflows() {
        let Workflow { name, plan, .. } = &workflow;
        let undisturbed = run(plan, &Options::default());
        assert_eq!(undisturbed.violation, None, "{name}, undisturbed");
        let writes = &undisturbed.writes;
        for write in workflow.first_of(writes)..=writes.len() {
            jobs.extend(Moment::ALL.map(|moment| Job {
                name: format!("{name}, write {write} {moment:?}"),
                plan: plan.clone(),
                options: Options {
                    crash: Some((write, moment)),
                    compares: false,
                    ..Options::default()
                },
                end: Some(undisturbed.end.clone()),
            }));
        }
    }
    hold("crash", &jobs);
}
