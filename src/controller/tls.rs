//! Every 30 seconds each running node of a TLS cluster is pointed at its certificate files again.
//! Never lets one node's failure keep another from it; never touches a cluster without TLS.

use tokio::sync::watch;
use tracing::{info, warn};

use crate::act::Writer;
use crate::controller::pass;
use crate::model::chain;
use crate::model::name::ClusterRef;
use crate::observe::{Reader, Source};

/// Ticks until it is told to stop.
pub(super) async fn run(reader: Reader, writer: Writer, stop: watch::Receiver<bool>) {
    pass::run(stop, || tick(&reader, &writer)).await;
}

async fn tick(reader: &Reader, writer: &Writer) {
    let clusters = pass::clusters(reader, |cluster| cluster.spec.tls.is_some());
    info!(clusters = clusters.len(), "TLS reconcile tick");
    pass::each(&clusters, |cluster| reload(reader, writer, cluster)).await;
}

async fn reload(reader: &Reader, writer: &Writer, cluster: &ClusterRef) {
    let (cluster_name, namespace) = (&cluster.name, &cluster.namespace);
    let world = match reader.kubernetes_world(cluster, Source::Stores).await {
        Ok(Some(world)) => world,
        Ok(None) => return,
        Err(error) => {
            let error = chain::of(&error);
            warn!(
                cluster_name,
                namespace, error, "certificate reload failed, will retry next tick"
            );
            return;
        }
    };
    for (node, error) in writer.reload_certificates(&world).await {
        let error = chain::of(&error);
        warn!(
            cluster_name,
            namespace,
            %node,
            error,
            "certificate reload failed, will retry next tick"
        );
    }
}
