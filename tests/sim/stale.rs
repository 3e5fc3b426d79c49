//! Sim-C: every workflow with each read late or old, and with each event of a watch lost, doubled or late.
//! Never two of them in one run: what one does must not hide behind another.

use crate::crash::{Workflow, workflows};
use crate::kube::faults::{Effect, Match, Rule, Verb};
use crate::plan::{Act, Fault, Millis, Plan};
use crate::run::{Options, Outcome, run};
use crate::suite::{Job, count, hold};

/// What goes wrong with a read.
fn reads() -> [(&'static str, Effect); 2] {
    [
        ("read late", Effect::Delay { by: 700 }),
        ("read very late", Effect::Delay { by: 4_000 }),
    ]
}

/// What goes wrong with an event.
fn events() -> [(&'static str, Effect); 3] {
    [
        ("event lost", Effect::Lose),
        ("event twice", Effect::Double),
        ("event late", Effect::Lag { by: 5_000 }),
    ]
}

/// Of what is late or doubled one in so many is tried at each submission, of what is lost one in half as
/// many: THIN=1 tries all.
const THIN: usize = 4;

#[test]
fn every_read_can_be_old_and_every_event_be_lost() {
    let thin = count("THIN", THIN);
    let mut jobs = Vec::new();
    for workflow in workflows() {
        let Workflow { name, plan, from } = &workflow;
        let (undisturbed, counts) = counted(plan, *from);
        assert_eq!(undisturbed.violation, None, "{name}, undisturbed");
        let job = |what: &str, number: u64, rule: Rule| Job {
            name: format!("{name}, {what} {number}"),
            plan: plan.clone(),
            options: Options {
                trouble: vec![Rule {
                    from: *from,
                    ..rule
                }],
                compares: false,
                ..Options::default()
            },
            end: Some(undisturbed.end.clone()),
        };
        for (what, effect) in reads() {
            jobs.extend(
                (0..counts.reads)
                    .step_by(thin)
                    .map(|number| job(what, number, nth(of_reads(), effect.clone(), number))),
            );
        }
        for (what, effect) in events() {
            let lost = effect == Effect::Lose;
            let step = if lost { thin.div_ceil(2) } else { thin };
            jobs.extend(
                (0..counts.events)
                    .step_by(step)
                    .map(|number| job(what, number, nth(of_events(), effect.clone(), number))),
            );
        }
        jobs.extend(restarts(&workflow, &undisturbed, thin));
    }
    hold("stale", &jobs);
}

/// A restarted operator fills its stores with lists that are older than what its predecessor wrote.
fn restarts<'a>(
    workflow: &'a Workflow,
    undisturbed: &'a Outcome,
    thin: usize,
) -> impl Iterator<Item = Job> + 'a {
    let Workflow { name, plan, .. } = workflow;
    let (first, last) = (
        workflow.first_of(&undisturbed.writes),
        undisturbed.writes.len(),
    );
    let writes = [1, 5, 20];
    writes.into_iter().flat_map(move |writes| {
        (first..=last).step_by(thin).map(move |crash| {
            let mut plan = plan.clone();
            let stale = Fault::StaleLists {
                writes,
                lasts: plan.healed,
            };
            plan.acts.insert(0, (0, Act::Fault(stale)));
            Job {
                name: format!("{name}, ended at write {crash}, then lists old by {writes}"),
                plan,
                options: Options {
                    crash: Some((crash, crate::kube::client::Moment::AfterAnswer)),
                    compares: false,
                    ..Options::default()
                },
                end: Some(undisturbed.end.clone()),
            }
        })
    })
}

struct Counts {
    reads: u64,
    events: u64,
}

/// The undisturbed run, and how many reads and events it has from then on.
fn counted(plan: &Plan, from: Millis) -> (Outcome, Counts) {
    let all = |of, effect| Rule::during(of, effect, from, Millis::MAX);
    let options = Options {
        trouble: vec![
            all(of_reads(), Effect::Delay { by: 0 }),
            all(of_events(), Effect::Lag { by: 0 }),
        ],
        ..Options::default()
    };
    let outcome = run(plan, &options);
    let counts = Counts {
        reads: outcome.hits[0],
        events: outcome.hits[1],
    };
    (outcome, counts)
}

fn nth(of: Match, effect: Effect, number: u64) -> Rule {
    Rule {
        skip: number,
        ..Rule::once(of, effect)
    }
}

fn of_reads() -> Match {
    Match {
        operators: true,
        verbs: vec![Verb::Get, Verb::List],
        ..Match::default()
    }
}

fn of_events() -> Match {
    Match {
        operators: true,
        verbs: vec![Verb::Watch],
        ..Match::default()
    }
}
