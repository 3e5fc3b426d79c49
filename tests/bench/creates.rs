//! Creates in a row: how far apart ours are, beside the same POSTs sent one after the other by a script that reads nothing.
//!
//! The script sends them twice: with the operator stopped, and to a paused cluster of its, so that nodes get their
//! ConfigMaps and pods meanwhile as ours do. The second tells what our ticks cost, the first what all the work does.
//! All are taken from the audit log. No pod is scheduled, so that pods that start do not slow ours alone.
//! Never counts the first POST's own time: both sides are measured from its arrival to the arrival of the last.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt;
use kube::api::Api;
use kube::api::DeleteParams;
use kube::api::ObjectMeta;
use kube::api::PostParams;
use kube::runtime::reflector::ObjectRef;
use operator::api::ANNOTATION_PAUSED;
use operator::api::LABEL_INSTANCE;
use operator::api::node::ValkeyNode;
use serde_json::Value;

use crate::report::Comparison;
use crate::stage::Failure;
use crate::stage::NAMESPACE;
use crate::stage::Sample;
use crate::stage::Shape;
use crate::stage::Stage;
use crate::testbed::command::say;

/// A node selector that no node has.
const NOWHERE: &[(&str, &str)] = &[("bench", "nowhere")];

/// `bare` compares with the script alone, `loaded` with the script beside the same work.
pub(crate) async fn compare(
    stage: &mut Stage<'_>,
    shape: Shape,
    bare: &mut Comparison,
    loaded: &mut Comparison,
) -> Result<(), Failure> {
    stage.start_operator()?;
    let key = stage.create(shape, NOWHERE, &[]).await?;
    all_made(stage, shape.nodes()).await?;
    let nodes: Vec<ValkeyNode> = {
        let nodes = stage.reader.stores().nodes.state();
        nodes.iter().map(|node| node.as_ref().clone()).collect()
    };
    bare.ours.push(sample(stage, "ours", &key.name)?);
    loaded.ours.push(sample(stage, "ours", &key.name)?);
    stage.delete(&key).await?;

    let paused = [(ANNOTATION_PAUSED, "true")];
    let key = stage.create(shape, NOWHERE, &paused).await?;
    let acl = ObjectRef::new(&key.acl_config_map_name()).within(&key.namespace);
    stage
        .until("what a cluster keeps to be made", |stage| {
            stage.reader.stores().config_maps.get(&acl).is_some()
        })
        .await?;
    let owner = stage.kubernetes_world(&key).await?.cluster.uid;
    send(stage, &nodes, &key.name, Some(owner.as_str())).await?;
    all_made(stage, shape.nodes()).await?;
    let script = "script beside the same work";
    loaded.floor.push(sample(stage, script, &key.name)?);
    stage.delete(&key).await?;

    stage.stop_operator();
    let nobody = format!("{}n", key.name);
    let names = send(stage, &nodes, &nobody, None).await?;
    bare.floor.push(sample(stage, "script alone", &nobody)?);
    stage.start_operator()?;
    let api: Api<ValkeyNode> = Api::namespaced(stage.client.clone(), NAMESPACE);
    for name in &names {
        api.delete(name, &DeleteParams::default()).await?;
    }
    all_made(stage, 0).await
}

async fn all_made(stage: &mut Stage<'_>, nodes: usize) -> Result<(), Failure> {
    stage
        .until("the right count of nodes", |stage| {
            stage.reader.stores().nodes.len() == nodes
        })
        .await
}

/// The POSTs, one after the other, without a look in between.
async fn send(
    stage: &Stage<'_>,
    nodes: &[ValkeyNode],
    cluster: &str,
    owner: Option<&str>,
) -> Result<Vec<String>, Failure> {
    let api: Api<ValkeyNode> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let copies: Vec<_> = nodes
        .iter()
        .map(|node| copy(node, cluster, owner))
        .collect();
    for copy in &copies {
        api.create(&PostParams::default(), copy).await?;
    }
    Ok(copies.iter().map(ResourceExt::name_any).collect())
}

/// The same node of another cluster, or, without an owner, of one that does not exist.
fn copy(node: &ValkeyNode, cluster: &str, owner: Option<&str>) -> ValkeyNode {
    let ObjectMeta {
        name,
        mut labels,
        annotations,
        finalizers,
        owner_references,
        ..
    } = node.metadata.clone();
    let suffix = name.unwrap_or_default();
    let suffix = suffix.split_once('-').map_or("", |(_, suffix)| suffix);
    if let Some(labels) = &mut labels {
        labels.insert(LABEL_INSTANCE.to_owned(), cluster.to_owned());
    }
    let mut copy = ValkeyNode::new(&format!("{cluster}-{suffix}"), node.spec.clone());
    cluster.clone_into(&mut copy.spec.cluster_name);
    copy.metadata.labels = labels;
    copy.metadata.finalizers = finalizers;
    copy.metadata.owner_references = owner_references.filter(|_| owner.is_some());
    for reference in copy.metadata.owner_references.iter_mut().flatten() {
        cluster.clone_into(&mut reference.name);
        owner.unwrap_or_default().clone_into(&mut reference.uid);
    }
    copy.metadata.annotations = annotations.map(|mut held| {
        held.remove(operator::api::ANNOTATION_POD_UID);
        held
    });
    copy
}

fn sample(stage: &Stage<'_>, what: &str, cluster: &str) -> Result<Sample, Failure> {
    let prefix = format!("{cluster}-");
    let mut arrivals = Vec::new();
    for event in stage.testbed.audit()? {
        if event["verb"] == "create"
            && event["objectRef"]["resource"] == "valkeynodes"
            && event["stage"] == "ResponseComplete"
            && text(&event["objectRef"]["name"]).starts_with(&prefix)
        {
            let MicroTime(arrival) =
                serde_json::from_value(event["requestReceivedTimestamp"].clone())?;
            arrivals.push(arrival);
        }
    }
    arrivals.sort();
    let (Some(first), Some(last)) = (arrivals.first(), arrivals.last()) else {
        return Err(format!("the audit log tells no POST of {prefix}").into());
    };
    let took = last.duration_since(*first).as_secs_f64();
    say(&format!("{what}: {} POSTs in {took:.3} s", arrivals.len()));
    Ok(Sample {
        spread: 0.0,
        took,
        steps: Vec::new(),
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
