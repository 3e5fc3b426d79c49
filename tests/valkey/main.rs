//! Real valkey-server processes on loopback: what our modules say and read, held against the truth.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::unwrap_in_result,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on ends, and what it measured is for who asks with --nocapture"
)]

mod acls;
#[path = "../certificates/lib.rs"]
mod certificates;
mod commands;
mod connections;
#[path = "../sim/valkey/lib.rs"]
mod model;
mod nudge;
mod permissions;
mod recordings;
mod servers;
mod settings;
mod talks;
#[path = "../testbed/lib.rs"]
mod testbed;
mod tls;
#[path = "../certificates/client.rs"]
mod tls_client;

use std::path::PathBuf;

/// The server's program, of the version that the image of the testbed holds.
fn valkey_server() -> PathBuf {
    testbed::valkey_server()
        .unwrap_or_else(|error| panic!("no valkey-server, which `make test` makes first: {error}"))
}
