//! Creates in a row: how far apart ours are, beside the same POSTs sent one after the other by a script that reads nothing.
//!
//! Both are taken from the audit log. No pod is scheduled, so that pods that start do not slow ours alone.
//! Never counts the first POST's own time: both sides are measured from its arrival to the arrival of the last.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt as _;
use kube::api::Api;
use kube::api::DeleteParams;
use kube::api::ObjectMeta;
use kube::api::PostParams;
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

pub(crate) async fn compare(
    stage: &mut Stage<'_>,
    shape: Shape,
    comparison: &mut Comparison,
) -> Result<(), Failure> {
    stage.start_operator()?;
    let key = stage.create(shape, &[("bench", "nowhere")]).await?;
    let made = |stage: &Stage<'_>| stage.reader.stores().nodes.len();
    let nodes = shape.nodes();
    stage
        .until("all nodes to be made", |stage| made(stage) == nodes)
        .await?;
    let nodes: Vec<ValkeyNode> = {
        let nodes = stage.reader.stores().nodes.state();
        nodes.iter().map(|node| node.as_ref().clone()).collect()
    };
    comparison
        .ours
        .push(sample(stage, "ours", &format!("{}-", key.name))?);
    stage.delete(&key).await?;
    stage.stop_operator();
    let other = format!("{}s", key.name);
    let api: Api<ValkeyNode> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let copies: Vec<_> = nodes.iter().map(|node| copy(node, &other)).collect();
    for copy in &copies {
        api.create(&PostParams::default(), copy).await?;
    }
    comparison
        .floor
        .push(sample(stage, "script", &format!("{other}-"))?);
    stage.start_operator()?;
    for copy in &copies {
        api.delete(&copy.name_any(), &DeleteParams::default())
            .await?;
    }
    stage
        .until("no node to be left", |stage| made(stage) == 0)
        .await
}

/// The same node of a cluster that does not exist.
fn copy(node: &ValkeyNode, cluster: &str) -> ValkeyNode {
    let ObjectMeta {
        name,
        mut labels,
        annotations,
        finalizers,
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
    copy.metadata.annotations = annotations.map(|mut held| {
        held.remove(operator::api::ANNOTATION_POD_UID);
        held
    });
    copy
}

fn sample(stage: &Stage<'_>, what: &str, prefix: &str) -> Result<Sample, Failure> {
    let mut arrivals = Vec::new();
    for event in stage.testbed.audit()? {
        if event["verb"] == "create"
            && event["objectRef"]["resource"] == "valkeynodes"
            && event["stage"] == "ResponseComplete"
            && text(&event["objectRef"]["name"]).starts_with(prefix)
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
