//! What only a real Kubernetes can show: slow, so each runs only where SLOW=1 asks for it.
//! Never judges what a faster suite can judge.

#[path = "../testbed/lib.rs"]
mod testbed;

mod crds;
mod testbed_itself;

use testbed::Options;
use testbed::Testbed;

/// Needs no machine to run pods on: the API server alone judges what is sent to it.
#[tokio::test(flavor = "multi_thread")]
async fn the_kinds_accept_and_refuse() -> Result<(), Box<dyn std::error::Error>> {
    if !slow("the_kinds_accept_and_refuse") {
        return Ok(());
    }
    let testbed = Testbed::up(&Options {
        nodes: 0,
        ..Options::default()
    })?;
    let definitions = concat!(env!("CARGO_MANIFEST_DIR"), "/crds/crds.json");
    testbed.kubectl(["apply", "-f", definitions])?;
    testbed.kubectl([
        "apply",
        "--server-side",
        "--force-conflicts",
        "-f",
        definitions,
    ])?;
    crds::accepts_and_refuses(testbed.client()?).await;
    Ok(())
}

/// Whether slow tests were asked for; says which one is skipped where they were not.
pub(crate) fn slow(test: &str) -> bool {
    let asked_for = std::env::var("SLOW").is_ok_and(|value| value == "1");
    if !asked_for {
        testbed::command::say(&format!("{test} is skipped: it is slow and SLOW is not 1"));
    }
    asked_for
}
