//! Every 30 seconds each running node is told to read its ACL file again.
//! Never lets one node's failure keep another from it.

use tokio::sync::watch;
use tracing::info;

use crate::controller::{Pass, pass};

/// Ticks until it is told to stop.
pub(super) async fn run(pass: Pass, stop: watch::Receiver<bool>) {
    pass::run(stop, || tick(&pass)).await;
}

async fn tick(pass: &Pass) {
    let clusters = pass::clusters(&pass.reader, |_| true);
    info!(clusters = clusters.len(), "ACL reconcile tick");
    pass::each(pass, &clusters, "ACL LOAD", async |cluster, world| {
        let failed = pass.writer.reload_acls(&world).await;
        let refusal = failed.iter().find_map(|(_, error)| error.refusal());
        pass.telling.acl(&world, refusal);
        pass.reader.note_acl(&cluster, refusal.map(str::to_owned));
        failed
    })
    .await;
}
