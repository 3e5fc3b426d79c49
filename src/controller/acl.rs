//! Every 30 seconds each running node is told to read its ACL file again.
//! Never lets one node's failure keep another from it.

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
    let clusters = pass::clusters(reader, |_| true);
    info!(clusters = clusters.len(), "ACL reconcile tick");
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
