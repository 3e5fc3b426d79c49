//! Every 30 seconds each running node of a TLS cluster is pointed at its certificate files again.
//! Never lets one node's failure keep another from it; never touches a cluster without TLS.

use tokio::sync::watch;
use tracing::info;

use crate::controller::{Tools, pass};

/// Ticks until it is told to stop.
pub(super) async fn run(tools: Tools, stop: watch::Receiver<bool>) {
    pass::run(stop, || tick(&tools)).await;
}

async fn tick(tools: &Tools) {
    let clusters = pass::clusters(&tools.reader, |cluster| cluster.spec.tls.is_some());
    info!(clusters = clusters.len(), "TLS reconcile tick");
    pass::each(tools, &clusters, "certificate reload", async |_, world| {
        tools.writer.reload_certificates(&world).await
    })
    .await;
}
