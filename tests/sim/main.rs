//! The simulator: the whole operator over a fake Kubernetes and fake Valkey processes, in virtual time.
//! Never reads a real clock, opens a socket or draws a number that does not come from the seed.
//!
//! ```text
//! swarm crash stale forms                 the suites; suite.rs runs many runs, shrink.rs cuts one down
//! kept regressions                        runs that are written out, by scenario.rs; coverage.rs: what must come up
//! plan.rs ─► run.rs ─► acts.rs, hands.rs  what a seed stands for; one run; every edit and fault, once each
//!              │
//!   operators.rs (the real operator) ─► kube/client.rs ─► kube/    the Kubernetes that misbehaves
//!              │                    └─► pipes.rs ───────► valkey/  Valkey processes, held to real ones
//!              │                        world.rs, pods.rs          by the talks of tests/valkey
//!   ledger.rs: clients    log.rs: what it says    truth.rs ─► record.rs ─► ../checker: S1-S24, L1-L11
//! ```
//!
//! A new fault is a variant of `plan::Fault`, its lines in `acts.rs`, and a chance in `Plan::draw`. A new
//! rule is a function of the checker. What fails prints its story and `make sim RUN=...`.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a panic is how a test fails"
)]
#![expect(clippy::print_stdout, reason = "sums and stories are for people")]

mod acts;
mod agenda;
mod chains;
#[path = "../checker/lib.rs"]
mod checker;
mod coverage;
mod crash;
mod end;
mod events;
mod forms;
mod hands;
mod herd;
mod kept;
#[path = "kube/lib.rs"]
mod kube;
mod ledger;
mod log;
mod onlooker;
mod operators;
mod pipes;
mod plan;
mod pods;
mod record;
mod regressions;
mod run;
mod scenario;
mod shrink;
mod stale;
mod suite;
mod swarm;
mod truth;
#[path = "valkey/lib.rs"]
mod valkey;
mod wish;
mod world;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
