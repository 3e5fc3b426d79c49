//! What only a real Kubernetes can show.
//! Never judges what a faster suite can judge.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod crds;

use kube::config::{Config, KubeConfigOptions, Kubeconfig};

/// Where the API server is, as a kubeconfig file: it is written to, so it is never guessed.
const KUBECONFIG: &str = "E2E_KUBECONFIG";

#[tokio::test]
async fn kinds() {
    let Ok(path) = std::env::var(KUBECONFIG) else {
        return say(&format!(
            "kinds is skipped: {KUBECONFIG} names no API server"
        ));
    };
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let file = Kubeconfig::read_from(path).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let client = kube::Client::try_from(config.expect("a complete one")).expect("a client");
    crds::accepts_and_refuses(client).await;
}

#[expect(clippy::print_stderr, reason = "a test that skips says so")]
fn say(text: &str) {
    eprintln!("{text}");
}
