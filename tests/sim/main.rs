//! The simulator: the whole operator over a fake Kubernetes and fake Valkey processes, in virtual time.
//! Never reads a real clock, opens a socket or draws a number that does not come from the seed.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod acts;
#[path = "../checker/lib.rs"]
mod checker;
mod coverage;
mod crash;
mod end;
mod forms;
#[path = "kube/lib.rs"]
mod kube;
mod ledger;
mod log;
mod operators;
mod pipes;
mod plan;
mod pods;
mod record;
mod run;
mod shrink;
mod stale;
mod suite;
mod swarm;
mod truth;
#[path = "valkey/lib.rs"]
mod valkey;
mod wish;
mod world;
