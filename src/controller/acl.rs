//! Every 30 seconds each running node is told to read its ACL file again.
//! Never lets one node's failure keep another from it.

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
    let clusters = pass::clusters(reader, |_| true);
    info!(clusters = clusters.len(), "ACL reconcile tick");
    pass::each(reader, &clusters, "ACL LOAD", async |cluster, world| {
        let failed = writer.reload_acls(&world).await;
        let refusal = failed.iter().find_map(|(_, error)| error.refusal());
        reader.note_acl(&cluster, refusal.map(str::to_owned));
        failed
    })
    .await;
}
