//! Every 30 seconds each running node is told to read its ACL file again.
//! Never lets one node's failure keep another from it.

use tokio::sync::watch;
use tracing::info;

use crate::controller::{Tools, pass};

/// Ticks until it is told to stop.
pub(super) async fn run(tools: Tools, stop: watch::Receiver<bool>) {
    pass::run(stop, || tick(&tools)).await;
}

async fn tick(tools: &Tools) {
    let clusters = pass::clusters(&tools.reader, |_| true);
    info!(clusters = clusters.len(), "ACL reconcile tick");
    pass::each(tools, &clusters, "ACL LOAD", async |cluster, world| {
        let failed = tools.writer.reload_acls(&world).await;
        let refusal = failed.iter().find_map(|(_, error)| error.refusal());
        tools.telling.acl(&world, refusal);
        tools.reader.note_acl(&cluster, refusal.map(str::to_owned));
        failed
    })
    .await;
}
