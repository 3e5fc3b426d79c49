//! The kubectl plugin's entry: words in, an answer and an exit code out.
//! Never more than that: what is answered, and how, is in `plugin`.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use operator::plugin;

#[tokio::main]
async fn main() -> ExitCode {
    // There is none before: this is the first thing that happens.
    drop(rustls::crypto::ring::default_provider().install_default());
    match plugin::run(plugin::Words::parse()).await {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(error) => {
            let complaint = plugin::complaint(&error);
            // Where even that cannot be written, the exit code is all that is left to say.
            drop(anstream::stderr().write_all(complaint.as_bytes()));
            ExitCode::FAILURE
        }
    }
}
