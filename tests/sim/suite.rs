//! Many runs on all cores, their sums in one line, and of one that fails all that is needed to mend it.
//! Never lets the order in which runs end change what is said.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::plan::{Cut, Plan, Replay};
use crate::run::{Options, Outcome, run};
use crate::shrink::shrink;

/// One run of a suite.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// What it is called where it fails.
    pub(crate) name: String,
    pub(crate) plan: Plan,
    pub(crate) options: Options,
    /// What it has to come to; nothing where the checker alone judges.
    pub(crate) end: Option<String>,
}

/// The sums of a suite.
#[derive(Default)]
struct Sums {
    runs: u64,
    actions: u64,
    agreed: u64,
    virtual_millis: u64,
    faults: BTreeMap<&'static str, u64>,
    hits: u64,
    seen: BTreeSet<String>,
}

/// What went wrong with a job.
struct Failure {
    index: usize,
    rule: String,
    story: String,
}

/// Runs all jobs, prints their sums, and fails with the first in order that does not hold.
///
/// Returns what came up in them.
pub(crate) fn hold(suite: &str, jobs: &[Job]) -> BTreeSet<String> {
    // For who wants to know only whether anything fails: the first failure is enough, as it is.
    let until_first = std::env::var_os("UNTIL_FIRST").is_some();
    let sums = Mutex::new(Sums::default());
    let failures = Mutex::new(Vec::new());
    on_all_cores(jobs.len(), |index| {
        let job = &jobs[index];
        let outcome = run(&job.plan, &job.options);
        let broken = broken(job, &outcome);
        add(&mut sums.lock().expect("no panic with it in hand"), outcome);
        let Some((rule, story)) = broken else {
            return true;
        };
        let failure = Failure { index, rule, story };
        let mut failures = failures.lock().expect("no panic with it in hand");
        failures.push(failure);
        !until_first
    });
    let sums = sums.into_inner().expect("every thread has ended well");
    println!("{suite}: {}", told(&sums));
    let mut failures = failures.into_inner().expect("every thread has ended well");
    failures.sort_by_key(|failure| failure.index);
    if let Some(failure) = failures.first() {
        let job = &jobs[failure.index];
        assert!(
            !until_first,
            "{suite}, {}: {}: {}",
            job.name, failure.rule, failure.story
        );
        panic!(
            "{}\n{}",
            explained(suite, job, failure),
            counted(jobs, &failures)
        );
    }
    sums.seen
}

/// Does a piece of work for each number below a count, until one says that it is enough.
pub(crate) fn on_all_cores(count: usize, work: impl Fn(usize) -> bool + Sync) {
    let next = AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    if !work(number) {
                        next.store(count, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

/// The rule that a run breaks, and how.
fn broken(job: &Job, outcome: &Outcome) -> Option<(String, String)> {
    if let Some(violation) = &outcome.violation {
        return Some((violation.rule.to_owned(), violation.to_string()));
    }
    let end = job.end.as_ref()?;
    (*end != outcome.end).then(|| {
        let story = format!(
            "the end is not that of the undisturbed run\n-- undisturbed:\n{end}-- this one:\n{}",
            outcome.end
        );
        ("L5".to_owned(), story)
    })
}

fn add(sums: &mut Sums, outcome: Outcome) {
    sums.runs += 1;
    sums.actions += outcome.actions;
    sums.agreed += outcome.agreed;
    sums.virtual_millis += outcome.lasted;
    sums.hits += outcome.hits.iter().sum::<u64>();
    for (id, count) in outcome.faults {
        *sums.faults.entry(id).or_default() += count;
    }
    sums.seen.extend(outcome.seen);
}

fn told(sums: &Sums) -> String {
    let mut text = format!(
        "{} runs, {} actions, {} plans of the plugin that were the operator's, {:.1} virtual hours, \
         {} requests and events gone wrong",
        sums.runs,
        sums.actions,
        sums.agreed,
        millis_to_hours(sums.virtual_millis),
        sums.hits
    );
    for (id, count) in &sums.faults {
        write!(text, ", {id} x {count}").expect("memory takes it");
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "a number to look at")]
fn millis_to_hours(millis: u64) -> f64 {
    millis as f64 / 3_600_000.0
}

/// So many runs that break a rule are named.
const SHOWN: usize = 10;

/// How often each rule was broken, and by which runs.
fn counted(jobs: &[Job], failures: &[Failure]) -> String {
    let mut rules: BTreeMap<&str, Vec<&Failure>> = BTreeMap::new();
    for failure in failures {
        rules.entry(&failure.rule).or_default().push(failure);
    }
    let mut text = String::new();
    for (rule, failures) in rules {
        let count = failures.len();
        writeln!(text, "{rule} is broken by {count} runs:").expect("memory takes it");
        for failure in failures.iter().take(SHOWN) {
            let story: String = failure.story.chars().take(300).collect();
            let name = &jobs[failure.index].name;
            writeln!(text, "  {name}: {story}").expect("memory takes it");
        }
    }
    text
}

/// The story of the smallest run that fails the same way, and how to have it again.
fn explained(suite: &str, job: &Job, failure: &Failure) -> String {
    let fails = |cut: &Cut| {
        let outcome = run(&job.plan.clone().cut(cut), &job.options);
        broken(job, &outcome).is_some_and(|(rule, _)| rule == failure.rule)
    };
    // What must end like another run cannot be made smaller than that one.
    let cut = if job.end.is_none() {
        shrink(&job.plan, fails)
    } else {
        Cut::default()
    };
    let plan = job.plan.clone().cut(&cut);
    let options = Options {
        story: true,
        ..job.options.clone()
    };
    let outcome = run(&plan, &options);
    let replay = Replay {
        seed: job.plan.seed,
        cut,
    };
    let mut text = format!("{suite}, {}: {}\n\n{plan:#?}\n\n", job.name, failure.story);
    for line in &outcome.story {
        writeln!(text, "{line}").expect("memory takes it");
    }
    if let Some((_, story)) = broken(job, &outcome) {
        writeln!(text, "\n{story}").expect("memory takes it");
    }
    write!(text, "\nTo have it again: make sim RUN={replay}").expect("memory takes it");
    text
}

/// A count from the environment.
pub(crate) fn count(variable: &str, usual: usize) -> usize {
    let set = std::env::var(variable).ok().filter(|set| !set.is_empty());
    set.map_or(usual, |set| {
        set.parse()
            .unwrap_or_else(|_| panic!("{variable} is {set:?}, must be a number"))
    })
}
