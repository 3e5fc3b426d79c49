//! What is done for every cluster each 30 seconds, whatever happened or not.
//! Never lets one cluster keep another waiting for long.

use std::future::Future;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use kube::ResourceExt as _;
use tokio::sync::watch;

use crate::api::cluster::ValkeyCluster;
use crate::controller::stopped;
use crate::model::name::ClusterRef;
use crate::observe::Reader;

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

/// Serves each of them.
pub(super) async fn each<'a, F: Future<Output = ()>>(
    clusters: &'a [ClusterRef],
    serve: impl Fn(&'a ClusterRef) -> F,
) {
    stream::iter(clusters.iter().map(serve))
        .buffer_unordered(CONCURRENCY)
        .collect::<()>()
        .await;
}
