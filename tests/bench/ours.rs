//! Ours: the operator alone, from the last pod Running to `status.state: Active`, both as a watch shows them.
//! Never speaks to a process.

use kube::runtime::reflector::ObjectRef;
use operator::api::cluster::ClusterState;

use crate::stage::Failure;
use crate::stage::Sample;
use crate::stage::Shape;
use crate::stage::Stage;
use crate::stage::done;

pub(crate) async fn measure(stage: &mut Stage<'_>, shape: Shape) -> Result<Sample, Failure> {
    stage.start_operator()?;
    let key = stage.create(shape, &[], &[]).await?;
    let running = {
        let reference = ObjectRef::new(&key.name).within(&key.namespace);
        stage
            .until("a cluster to be seen", |stage| {
                stage.reader.stores().clusters.get(&reference).is_some()
            })
            .await?;
        stage.all_running(&key, shape.nodes()).await?
    };
    let reference = ObjectRef::new(&key.name).within(&key.namespace);
    stage
        .until("a cluster to be Active", |stage| {
            let cluster = stage.reader.stores().clusters.get(&reference);
            cluster
                .and_then(|cluster| cluster.status.clone())
                .is_some_and(|status| status.state == ClusterState::Active)
        })
        .await?;
    let sample = done("ours", running, Vec::new());
    stage.delete(&key).await?;
    Ok(sample)
}
