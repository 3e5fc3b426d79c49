//! Every 30 seconds each node of a TLS cluster is pointed at its certificate files again.
//! Never touches a cluster without TLS; clusters with it are held back by `decide` so far, so that
//! none has a node to be told.

use std::time::Duration;

use tokio::sync::watch;
use tracing::info;

use crate::controller::stopped;
use crate::observe::Reader;

/// The contract's period.
const PERIOD: Duration = Duration::from_secs(30);

/// Ticks until it is told to stop.
pub(super) async fn run(reader: Reader, stop: watch::Receiver<bool>) {
    let mut period = tokio::time::interval(PERIOD);
    loop {
        tokio::select! {
            biased;
            () = stopped(stop.clone()) => return,
            _ = period.tick() => {
                let clusters = reader.stores().clusters.state();
                let clusters = clusters.iter().filter(|cluster| cluster.spec.tls.is_some()).count();
                info!(clusters, "TLS reconcile tick");
            }
        }
    }
}
