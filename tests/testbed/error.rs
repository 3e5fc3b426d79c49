//! What can go wrong in a testbed, with the command, file or condition that it went wrong at.
//! Never says what to do about it.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("failed to start {command}: {source}")]
    Start { command: String, source: io::Error },
    #[error("{command} ended with {status}: {output}")]
    Failed {
        command: String,
        status: std::process::ExitStatus,
        output: String,
    },
    #[error("failed to {doing} {}: {source}", path.display())]
    File {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{what} did not come within {seconds} s; last seen: {last_seen}")]
    Deadline {
        what: String,
        seconds: u64,
        last_seen: String,
    },
    #[error("failed to make the certificate of {subject}: {source}")]
    Certificate {
        subject: String,
        source: rcgen::Error,
    },
    #[error("failed to read {what}: {source}")]
    Json {
        what: String,
        source: serde_json::Error,
    },
    #[error("failed to make a client from {}: {source}", path.display())]
    Kubeconfig {
        path: PathBuf,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("{0}")]
    Refused(String),
}
