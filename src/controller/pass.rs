//! What is done for every cluster each 30 seconds, whatever happened or not.
//! Never lets one cluster keep another waiting for long, or one node's failure another node.

use std::future::Future;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use kube::ResourceExt as _;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;

use crate::act::Error;
use crate::api::cluster::ValkeyCluster;
use crate::controller::{Tools, stopped};
use crate::metrics::Outcome;
use crate::model::chain;
use crate::model::name::{ClusterRef, NodeName};
use crate::model::world::World;
use crate::observe::{Reader, Source};

/// The contract's period.
const PERIOD: Duration = Duration::from_secs(30);
/// Clusters that are served at once.
const CONCURRENCY: usize = 16;

/// Passes until it is told to stop.
pub(super) async fn run<F: Future<Output = ()>>(stop: watch::Receiver<bool>, pass: impl Fn() -> F) {
    let mut period = tokio::time::interval(PERIOD);
    loop {
        tokio::select! {
            biased;
            () = stopped(stop.clone()) => return,
            _ = period.tick() => pass().await,
        }
    }
}

/// The clusters that are not being deleted, of those that are meant.
pub(super) fn clusters(reader: &Reader, meant: impl Fn(&ValkeyCluster) -> bool) -> Vec<ClusterRef> {
    let all = reader.stores().clusters.state();
    let staying = all
        .iter()
        .filter(|cluster| cluster.metadata.deletion_timestamp.is_none() && meant(cluster));
    let names = staying.map(|cluster| ClusterRef {
        namespace: cluster.namespace().unwrap_or_default(),
        name: cluster.name_any(),
    });
    names.collect()
}

/// Serves each of them by its world, as the stores have it. What fails is said as `what`, and left to
/// the next pass.
pub(super) async fn each<F: Future<Output = Vec<(NodeName, Error)>>>(
    tools: &Tools,
    clusters: &[ClusterRef],
    what: &str,
    serve: impl Fn(ClusterRef, World) -> F,
) {
    let serve = &serve;
    let reader = &tools.reader;
    let served = clusters.iter().map(|cluster| async move {
        let (cluster_name, namespace) = (&cluster.name, &cluster.namespace);
        let begun = Instant::now();
        let ended = |outcome| {
            let telling = &tools.telling;
            telling.reconciled(tools.name, outcome, begun.elapsed());
        };
        let failed = match reader.kubernetes_world(cluster, Source::Stores).await {
            Ok(Some(world)) => serve(cluster.clone(), world).await,
            Ok(None) => return,
            Err(error) => {
                ended(Outcome::Error);
                let error = chain::of(&error);
                warn!(
                    cluster_name,
                    namespace, error, "{what} failed, will retry next tick"
                );
                return;
            }
        };
        ended(if failed.is_empty() {
            Outcome::Success
        } else {
            Outcome::Error
        });
        for (node, error) in failed {
            let error = chain::of(&error);
            warn!(cluster_name, namespace, %node, error, "{what} failed, will retry next tick");
        }
    });
    stream::iter(served)
        .buffer_unordered(CONCURRENCY)
        .collect::<()>()
        .await;
}
