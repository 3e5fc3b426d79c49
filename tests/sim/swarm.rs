//! Sim-A: random shapes, edits and faults; then all is healed, and the wish has to come true.
//! Never a run that cannot be had again: what fails names its seed and the smallest cut of it.

use crate::coverage;
use crate::plan::{Plan, Replay};
use crate::run::{Options, run};
use crate::suite::{Job, count, hold};

/// Runs of each submission; SEEDS asks for another number, FROM for another first one.
const SEEDS: usize = 800;
/// With as many runs, whatever is not rare comes up.
const ENOUGH: usize = 2_500;

fn job(seed: u64) -> Job {
    Job {
        name: format!("seed {seed}"),
        plan: Plan::draw(seed),
        options: Options::default(),
        end: None,
    }
}

#[test]
fn every_seed_holds() {
    let first = count("FROM", 0) as u64;
    let seeds = count("SEEDS", SEEDS) as u64;
    let jobs: Vec<Job> = (first..first + seeds).map(job).collect();
    let seen = hold("swarm", &jobs);
    coverage::report(&seen, jobs.len() >= ENOUGH);
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..20 {
        let (plan, options) = (Plan::draw(seed), Options::default());
        let (one, other) = (run(&plan, &options), run(&plan, &options));
        assert_eq!(one.fingerprint, other.fingerprint, "seed {seed}");
    }
}

/// Tells one run, named by RUN.
#[test]
fn replay() {
    let Some(named) = std::env::var("RUN").ok().filter(|named| !named.is_empty()) else {
        return;
    };
    let replay: Replay = named.parse().expect("RUN names a run");
    let plan = Plan::draw(replay.seed).cut(&replay.cut);
    let options = Options {
        story: true,
        ..Options::default()
    };
    let outcome = run(&plan, &options);
    println!("{plan:#?}");
    for line in &outcome.story {
        println!("{line}");
    }
    println!("{}fingerprint {:016x}", outcome.end, outcome.fingerprint);
    if let Some(violation) = outcome.violation {
        panic!("{violation}");
    }
}
