//! The simulator: the whole operator over a fake Kubernetes and fake Valkey processes, in virtual time.
//! Never reads a real clock, opens a socket or draws a number that does not come from the seed.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

#[path = "../checker/lib.rs"]
mod checker;
mod forms;
#[path = "kube/lib.rs"]
mod kube;
#[path = "valkey/lib.rs"]
mod valkey;
