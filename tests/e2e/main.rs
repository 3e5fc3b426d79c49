//! A real control plane, real kubelets and the operator's own binary; slow, few, and under faults.
#![expect(clippy::expect_used, reason = "a test that cannot go on says so and ends")]

#[path = "../testbed/lib.rs"]
mod testbed;

mod census;
mod deletion;
mod faults;
mod follow;
mod permissions;
mod process;
mod restart;
mod stage;
