//! JSON lines on stdout: `timestamp`, `level`, `fields`, `target`, spans.
//! Never formats a secret: those are `Redacted` where they are held.

use tracing_subscriber::EnvFilter;

/// Starts logging with a filter such as `info` or `operator=debug,info`.
pub fn start(filter: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(EnvFilter::try_new(filter)?)
        .try_init()
}
