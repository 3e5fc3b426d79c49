<<<<<<< HEAD
//! A real control plane, real kubelets and the operator's own binary; slow, few, and under faults.
#![expect(clippy::expect_used, reason = "a test that cannot go on says so and ends")]
=======
//! What only a real Kubernetes can show: slow, so each runs only where SLOW=1 asks for it.
//! Never judges what a faster suite can judge.
>>>>>>> main

#[path = "../testbed/lib.rs"]
mod testbed;

<<<<<<< HEAD
mod census;
mod deletion;
mod faults;
mod follow;
mod permissions;
mod process;
mod restart;
mod stage;
mod world;
=======
mod testbed_itself;

/// Whether slow tests were asked for; says which one is skipped where they were not.
pub(crate) fn slow(test: &str) -> bool {
    let asked_for = std::env::var("SLOW").is_ok_and(|value| value == "1");
    if !asked_for {
        testbed::command::say(&format!("{test} is skipped: it is slow and SLOW is not 1"));
    }
    asked_for
}
>>>>>>> main
