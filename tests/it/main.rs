//! The fast suite: whatever a laptop can tell in seconds, without a cluster or a Valkey.
//! Never sleeps, never opens a socket.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod artifacts;
#[path = "../certificates/lib.rs"]
mod certificates;
mod events;
mod messages;
mod monitoring;
mod mutants;
mod pages;
mod release;
mod sentences;
mod tidy;
mod tls;
mod visit;
mod wire;
