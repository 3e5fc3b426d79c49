//! What the model costs: the simulator runs thousands of worlds.

#![expect(
    clippy::print_stderr,
    reason = "what it costs is for who asks with --nocapture"
)]

use std::time::Duration;
use std::time::Instant;

use super::stage::Stage;

/// Of real time, for a second of six idle processes, on a loaded machine: the goal is well under a millisecond.
const LIMIT: Duration = Duration::from_millis(2);

#[test]
fn an_idle_cluster_costs_next_to_nothing() {
    let mut stage = Stage::cluster(3, 1);
    let seconds = 300;
    let start = Instant::now();
    stage.run(u64::from(seconds) * 1000);
    let each = start.elapsed() / seconds;
    eprintln!("a virtual second of six idle processes: {each:?}");
    assert!(each < LIMIT, "{each:?}");
}

#[test]
fn questions_are_cheap() {
    let mut stage = Stage::cluster(3, 1);
    let rounds = 200;
    let start = Instant::now();
    for _ in 0..rounds {
        for words in [
            "CLUSTER MYID",
            "CLUSTER INFO",
            "CLUSTER NODES",
            "INFO replication",
        ] {
            stage.ask(0, words);
        }
    }
    eprintln!(
        "an operator's look at one process: {:?}",
        start.elapsed() / rounds
    );
}
