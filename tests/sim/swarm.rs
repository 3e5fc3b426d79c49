//! Sim-A: random shapes, edits and faults; then all is healed, and the wish has to come true.
//! Never a run that cannot be had again: what fails names its seed and the smallest cut of it.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::coverage;
use crate::plan::{Plan, Replay};
use crate::run::{Options, run};
use crate::shrink::shrink;
use crate::suite::{Job, count, hold, on_all_cores};

/// Runs of each submission; SEEDS asks for another number, FROM for another first one.
const SEEDS: usize = 5_000;
/// Runs in which REACH looks for what it names, unless SEEDS says otherwise.
const REACH: usize = 10_000;

/// In one of so many runs the plugin's plan is compared with the operator's decisions.
const COMPARED: u64 = 8;

fn job(seed: u64) -> Job {
    Job {
        name: format!("seed {seed}"),
        plan: Plan::draw(seed),
        options: Options {
            compares: seed.is_multiple_of(COMPARED),
            ..Options::default()
        },
        end: None,
    }
}

#[test]
fn every_seed_holds() {
    let first = count("FROM", 0) as u64;
    let seeds = count("SEEDS", SEEDS) as u64;
    let jobs: Vec<Job> = (first..first + seeds).map(job).collect();
    let seen = hold("swarm", &jobs);
    coverage::report(&seen);
    // A few runs do not reach everything, nor does a mutant, of which a broken rule is sought.
    let until_first = std::env::var_os("UNTIL_FIRST").is_some();
    if first == 0 && jobs.len() >= SEEDS && !until_first {
        coverage::demand(&seen);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..20 {
        let (plan, options) = (Plan::draw(seed), Options::default());
        let (one, other) = (run(&plan, &options), run(&plan, &options));
        assert_eq!(one.fingerprint, other.fingerprint, "seed {seed}");
    }
}

/// Finds for each name of REACH, parted by commas, a run that comes by it, as small as it can be.
#[test]
fn reach() {
    let Some(names) = std::env::var("REACH").ok().filter(|it| !it.is_empty()) else {
        return;
    };
    let reaches = |plan: &Plan, name: &str| {
        let outcome = run(plan, &Options::default());
        outcome.violation.is_none() && outcome.seen.contains(name)
    };
    let first = count("FROM", 0) as u64;
    let sought: Mutex<BTreeSet<&str>> = Mutex::new(names.split(',').collect());
    let taken = || sought.lock().expect("no panic with it in hand");
    on_all_cores(count("SEEDS", REACH), |number| {
        let seed = first + number as u64;
        let plan = Plan::draw(seed);
        let outcome = run(&plan, &Options::default());
        let found = |name: &&str| outcome.violation.is_none() && outcome.seen.contains(*name);
        let names: Vec<&str> = taken().extract_if(.., found).collect();
        for name in names {
            let cut = shrink(&plan, |cut| reaches(&plan.clone().cut(cut), name));
            println!("{name}: {}", Replay { seed, cut });
        }
        !taken().is_empty()
    });
    println!("not reached: {:?}", taken());
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
