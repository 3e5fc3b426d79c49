//! The bench of bootstrap speed: ours beside the floor, in one run, on the same kind of pods.
//!
//! The operator makes the pods of both. For ours it goes on; for the floor it is stopped once all pods are made, and a
//! driver that knows the end from the start takes over. Only ratios are judged: seconds are this machine's alone.
//! Never tests anything but speed, never runs unasked.

#![expect(
    clippy::print_stdout,
    reason = "a program for people answers on standard output"
)]
#![expect(
    clippy::indexing_slicing,
    reason = "a bench that has lost count is to end, not to measure on"
)]

#[path = "../testbed/lib.rs"]
mod testbed;

mod creates;
mod floor;
mod ours;
mod report;
mod stage;

use std::process::ExitCode;

use self::report::Comparison;
use self::stage::Failure;
use self::stage::Shape;
use self::stage::Stage;
use self::testbed::Options;
use self::testbed::Testbed;
use self::testbed::command::say;

/// Enough for a median that one disturbed round does not move.
const ROUNDS: usize = 5;

const SMALL: Shape = Shape {
    shards: 3,
    replicas: 1,
};
const LARGE: Shape = Shape {
    shards: 10,
    replicas: 1,
};
/// Many creates in a row.
const MANY: Shape = Shape {
    shards: 12,
    replicas: 1,
};

/// How many times the floor our bootstrap may take. What is left of it after Valkey's own 5 s are our ticks.
const SMALL_GOAL: f64 = 1.25;
const LARGE_GOAL: f64 = 1.4;
/// How many times a bare POST a create of ours may take: it is decided on consistent reads.
const CREATE_GOAL: f64 = 2.0;

fn main() -> ExitCode {
    if std::env::var("SLOW").is_ok_and(|value| value == "1") {
        match run() {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => {
                say("a goal is missed");
                ExitCode::FAILURE
            }
            Err(failure) => {
                say(&format!("the bench could not run: {failure}"));
                ExitCode::FAILURE
            }
        }
    } else {
        say("the bench of bootstrap speed is skipped: it is slow and SLOW is not 1");
        ExitCode::SUCCESS
    }
}

/// Whether every goal holds.
fn run() -> Result<bool, Failure> {
    let rounds = match std::env::var("ROUNDS") {
        Ok(rounds) => rounds.parse()?,
        Err(_) => ROUNDS,
    };
    let only = std::env::var("ONLY").ok();
    let chosen = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let testbed = Testbed::up(&Options {
        nodes: 3,
        zones: ["a", "b", "c"].map(str::to_owned).into(),
        ..Options::default()
    })?;
    let runtime = tokio::runtime::Runtime::new()?;
    let mut comparisons = Vec::new();
    {
        let mut stage = runtime.block_on(Stage::set(&testbed))?;
        let bootstraps = [
            ("bootstrap 3x(1+1)", "small", SMALL, SMALL_GOAL),
            ("bootstrap 10x(1+1)", "large", LARGE, LARGE_GOAL),
        ];
        for (name, short, shape, goal) in bootstraps {
            if chosen(short) {
                let mut comparison = Comparison::new(name, goal);
                runtime.block_on(bootstrap(&mut stage, shape, rounds, &mut comparison))?;
                comparisons.push(comparison);
            }
        }
        if chosen("creates") {
            let mut bare = Comparison::new("creates 12x(1+1)", CREATE_GOAL);
            let mut loaded = Comparison::new(" beside the same work", CREATE_GOAL);
            for _ in 0..rounds {
                let compared = creates::compare(&mut stage, MANY, &mut bare, &mut loaded);
                runtime.block_on(compared)?;
            }
            comparisons.extend([bare, loaded]);
        }
        stage.keep_log()?;
    }
    let version = testbed.kubectl(["version", "--output=json"])?;
    testbed.down()?;
    let path = report::keep(&comparisons, &serde_json::from_str(&version)?)?;
    println!("{}", report::table(&comparisons));
    println!("raw samples: {}", path.display());
    Ok(comparisons.iter().all(Comparison::holds))
}

/// The order turns from round to round, so that a machine that slows down slows both.
async fn bootstrap(
    stage: &mut Stage<'_>,
    shape: Shape,
    rounds: usize,
    comparison: &mut Comparison,
) -> Result<(), Failure> {
    for round in 0..rounds {
        for turn in 0..2 {
            if (round + turn) % 2 == 0 {
                comparison.ours.push(ours::measure(stage, shape).await?);
            } else {
                comparison.floor.push(floor::measure(stage, shape).await?);
            }
        }
    }
    Ok(())
}
