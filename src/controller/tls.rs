//! Every 30 seconds each running node of a TLS cluster is pointed at its certificate files again.
//! Never lets one node's failure keep another from it; never touches a cluster without TLS.

use tokio::sync::watch;
use tracing::info;

use crate::controller::{Pass, pass};

/// Ticks until it is told to stop.
pub(super) async fn run(pass: Pass, stop: watch::Receiver<bool>) {
    pass::run(stop, || tick(&pass)).await;
}

async fn tick(pass: &Pass) {
    let clusters = pass::clusters(&pass.reader, |cluster| cluster.spec.tls.is_some());
    info!(clusters = clusters.len(), "TLS reconcile tick");
    pass::each(pass, &clusters, "certificate reload", async |_, world| {
        pass.writer.reload_certificates(&world).await
    })
    .await;
}
