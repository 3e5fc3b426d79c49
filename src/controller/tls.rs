//! Every 30 seconds each running node of a TLS cluster is pointed at its certificate files again.
//! Never lets one node's failure keep another from it; never touches a cluster without TLS.

use tokio::sync::watch;
use tracing::info;

use crate::act::Writer;
use crate::controller::pass;
use crate::observe::Reader;

/// Ticks until it is told to stop.
pub(super) async fn run(reader: Reader, writer: Writer, stop: watch::Receiver<bool>) {
    pass::run(stop, || tick(&reader, &writer)).await;
}

async fn tick(reader: &Reader, writer: &Writer) {
    let clusters = pass::clusters(reader, |cluster| cluster.spec.tls.is_some());
    info!(clusters = clusters.len(), "TLS reconcile tick");
    pass::each(reader, &clusters, "certificate reload", async |_, world| {
        writer.reload_certificates(&world).await
    })
    .await;
}
