//! The operator is killed after each of its writes, and at random moments: the next one finishes what it began.
//! Never looks into the operator: it counts what the API server was asked and asks each Valkey process.

use rand::RngExt as _;
use rand::SeedableRng as _;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use crate::all;
use crate::follow::ACTIVATION;
use crate::follow::Followed;
use crate::slow;
use crate::stage::LIMIT;
use crate::stage::Shape;
use crate::stage::Stage;
use crate::stage::say;

/// Without `ALL=1` every so-manieth write is tried.
const STRIDE: usize = 8;

/// A bootstrap of 3x1 is under way for at least so long.
const UNDER_WAY_MS: u64 = 5000;

/// With `ALL=1`, and without.
const RANDOM_RUNS: (usize, usize) = (20, 2);

#[test]
fn killed_after_each_write_the_next_operator_finishes() {
    if !slow("killed_after_each_write_the_next_operator_finishes") {
        return;
    }
    let all = all();
    let stage = Stage::beside_others();
    let mut operator = Followed::start(&stage.testbed);
    let writes = writes_of_a_bootstrap(&stage, &mut operator);
    assert!(writes > 30, "a bootstrap has more than {writes} writes");
    let stride = if all { 1 } else { STRIDE };
    let points: Vec<usize> = (1..=writes).step_by(stride).collect();
    let how = if all {
        "each"
    } else {
        "every eighth (ALL=1: each)"
    };
    say(&format!(
        "killing the operator after {how} of {writes} writes, {} runs",
        points.len()
    ));
    for &point in &points {
        let namespace = format!("write-{point}");
        stage.apply_cluster(&namespace, Shape::USUAL);
        let (said, active) = listen_to_write(&mut operator, &namespace, point);
        operator.kill();
        operator = Followed::start(&stage.testbed);
        if !active {
            operator.hear(&namespace, ACTIVATION, LIMIT);
        }
        finish(&stage, &namespace, &operator);
        say(&format!("killed after write {point} ({said}): formed"));
    }
    assert_all_gone(&stage, &operator);
}

#[test]
fn killed_at_random_moments_the_next_operator_finishes() {
    if !slow("killed_at_random_moments_the_next_operator_finishes") {
        return;
    }
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    say(&format!("SEED={seed}"));
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let stage = Stage::beside_others();
    let runs = if all() { RANDOM_RUNS.0 } else { RANDOM_RUNS.1 };
    let mut kills = 0;
    let mut operator = Followed::start(&stage.testbed);
    for run in 1..=runs {
        let namespace = format!("moment-{run}");
        stage.apply_cluster(&namespace, Shape::USUAL);
        let start = Instant::now();
        for _ in 0..random.random_range(1..=3) {
            // The moment is what is chosen here; nothing is waited for.
            thread::sleep(Duration::from_millis(random.random_range(0..UNDER_WAY_MS)));
            operator.kill();
            kills += 1;
            operator = Followed::start(&stage.testbed);
        }
        stage.wait_until_formed(&namespace, Shape::USUAL);
        finish(&stage, &namespace, &operator);
        say(&format!(
            "run {run}: formed after {:.1} s",
            start.elapsed().as_secs_f32()
        ));
    }
    say(&format!(
        "{runs} runs (ALL=1: {}), {kills} kills",
        RANDOM_RUNS.0
    ));
    assert_all_gone(&stage, &operator);
}

/// How many writes an undisturbed bootstrap has.
fn writes_of_a_bootstrap(stage: &Stage, operator: &mut Followed) -> usize {
    stage.apply_cluster("undisturbed", Shape::USUAL);
    let mut writes = 0;
    operator.listen("an undisturbed bootstrap", LIMIT, |said| {
        if said.namespace() == "undisturbed" && said.is_write() {
            writes += 1;
        }
        (said.namespace() == "undisturbed" && said.message() == ACTIVATION).then_some(())
    });
    finish(stage, "undisturbed", operator);
    writes
}

/// Returns at the n-th write, or at the last; which it was, and whether it was the last.
fn listen_to_write(operator: &mut Followed, namespace: &str, point: usize) -> (String, bool) {
    let mut count = 0;
    operator.listen(&format!("write {point} of {namespace}"), LIMIT, |said| {
        if said.namespace() != namespace || !said.is_write() {
            return None;
        }
        count += 1;
        let active = said.message() == ACTIVATION;
        (count == point || active).then(|| (said.message().to_owned(), active))
    })
}

/// The same end each time; then the cluster goes while the next one comes.
fn finish(stage: &Stage, namespace: &str, operator: &Followed) {
    let formed = stage.formed(namespace, Shape::USUAL);
    assert_eq!(formed, Ok(()), "{namespace}; {}", operator.last_words());
    let census = stage.census(namespace);
    let words = operator.last_words();
    assert_eq!(
        census.check(Shape::USUAL.nodes()),
        Ok(()),
        "{namespace}; {words}"
    );
    assert!(
        census.deleted.is_empty(),
        "{namespace}: no node had to go: {census:?}; {words}"
    );
    stage.delete("Namespace", "", namespace);
}

fn assert_all_gone(stage: &Stage, operator: &Followed) {
    let words = [
        "wait",
        "--for=delete",
        "valkeyclusters,valkeynodes,pods",
        "--all",
    ];
    let words = words
        .into_iter()
        .chain(["--all-namespaces", "--timeout=180s"]);
    let gone = stage.testbed.kubectl(words);
    assert!(gone.is_ok(), "{gone:?}; {}", operator.last_words());
}
