//! What only a real Kubernetes can show: slow, so each runs only where SLOW=1 asks for it.
//! Never judges what a faster suite can judge.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on says so and ends"
)]

#[path = "../checker/lib.rs"]
mod checker;
#[path = "../testbed/lib.rs"]
mod testbed;

mod alerts;
mod api;
mod audit;
mod bootstrap;
mod census;
#[path = "../certificates/lib.rs"]
mod certificates;
mod chart;
mod crds;
mod deletion;
mod docs;
mod faults;
mod figures;
mod follow;
mod governance;
mod governed;
mod held;
mod idle;
mod kills;
mod kinds;
mod ledger;
mod living;
mod machines;
#[path = "../it/messages.rs"]
mod messages;
mod neighbours;
mod permissions;
mod plugin;
mod process;
mod restart;
mod secured;
mod situations;
mod soak;
mod stage;
mod testbed_itself;
mod tls;
#[path = "../certificates/client.rs"]
mod tls_client;
mod transcript;
mod trial;
mod troubles;
mod turn;
mod waits;
mod watch;
mod world;

/// Whether slow tests were asked for; says which one is skipped where they were not.
pub(crate) fn slow(test: &str) -> bool {
    let asked_for = std::env::var("SLOW").is_ok_and(|value| value == "1");
    if !asked_for {
        testbed::command::say(&format!("{test} is skipped: it is slow and SLOW is not 1"));
    }
    asked_for
}

/// Whether everything is to be tried, however long it takes.
pub(crate) fn all() -> bool {
    std::env::var("ALL").is_ok_and(|value| value == "1")
}

/// Whether every slow test was asked for, also what takes too long for a usual run; says which one is skipped.
pub(crate) fn thorough(test: &str) -> bool {
    if !slow(test) {
        return false;
    }
    let asked_for = all();
    if !asked_for {
        testbed::command::say(&format!("{test} is skipped: ALL is not 1"));
    }
    asked_for
}
