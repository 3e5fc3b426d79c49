//! Real `valkey-server` processes on loopback: our settings, commands and parsers against the truth.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::path::PathBuf;

#[path = "../testbed/lib.rs"]
mod testbed;

mod commands;
mod fixtures;
mod servers;
mod settings;

/// Valkey's server, executable on this machine.
fn valkey_server() -> PathBuf {
    testbed::valkey_server().unwrap()
}
