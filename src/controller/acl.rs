//! Every 30 seconds each running node is told to read its ACL file again.
//! Never lets one node's failure keep another from it.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use kube::ResourceExt as _;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::act::Writer;
use crate::controller::stopped;
use crate::model::chain;
use crate::model::name::ClusterRef;
use crate::observe::{Reader, Source};

/// The contract's period.
const PERIOD: Duration = Duration::from_secs(30);
/// Clusters that are told at once.
const CONCURRENCY: usize = 16;

/// Ticks until it is told to stop.
pub(super) async fn run(reader: Reader, writer: Writer, stop: watch::Receiver<bool>) {
    let mut period = tokio::time::interval(PERIOD);
    loop {
        tokio::select! {
            biased;
            () = stopped(stop.clone()) => return,
            _ = period.tick() => tick(&reader, &writer).await,
        }
    }
}

async fn tick(reader: &Reader, writer: &Writer) {
    let clusters: Vec<ClusterRef> = reader
        .stores()
        .clusters
        .state()
        .iter()
        .filter(|cluster| cluster.metadata.deletion_timestamp.is_none())
        .map(|cluster| ClusterRef {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
        })
        .collect();
    info!(clusters = clusters.len(), "ACL reconcile tick");
    let passes = clusters
        .iter()
        .map(|cluster| reload(reader, writer, cluster));
    stream::iter(passes)
        .buffer_unordered(CONCURRENCY)
        .collect::<()>()
        .await;
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
                namespace, error, "ACL LOAD failed, will retry next tick"
            );
            return;
        }
    };
    let failed = writer.reload_acls(&world).await;
    let refusal = failed.iter().find_map(|(_, error)| error.refusal());
    reader.note_acl(cluster, refusal.map(str::to_owned));
    for (node, error) in failed {
        let error = chain::of(&error);
        warn!(cluster_name, namespace, %node, error, "ACL LOAD failed, will retry next tick");
    }
}
