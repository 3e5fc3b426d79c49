//! The `ValkeyNode` that records what one member is made of.
//! Never chooses its name or its shard.

use std::collections::BTreeMap;

use kube::api::ObjectMeta;

use crate::api;
use crate::api::node::JoinType;
use crate::api::node::Lifecycle;
use crate::api::node::ValkeyNode;
use crate::api::node::ValkeyNodeSpec;
use crate::model::desired::Resolved;
use crate::model::name::NodeName;
use crate::model::name::ShardIndex;
use crate::model::world::ClusterFacts;
use crate::render::owned_by_cluster;
use crate::render::shard_labels;

/// A new node of a shard. Bootstrap nodes have no join type.
#[must_use]
pub fn valkey_node(
    cluster: &ClusterFacts,
    resolved: &Resolved,
    shard: ShardIndex,
    name: &NodeName,
    join: Option<JoinType>,
) -> ValkeyNode {
    let mut labels = shard_labels(&cluster.key, shard);
    labels.extend(join.map(|join| (api::LABEL_JOIN_TYPE.to_owned(), join.as_str().to_owned())));
    let annotations: BTreeMap<_, _> = [(
        api::ANNOTATION_SETTINGS_DIGEST.to_owned(),
        resolved.settings_digest(),
    )]
    .into();
    let mut settings = resolved.node_settings.clone();
    if cluster.spec.tls.is_some() {
        let host = cluster.key.host_of(name);
        settings.insert("cluster-announce-hostname".to_owned(), host);
    }
    ValkeyNode {
        metadata: ObjectMeta {
            labels: Some(labels),
            annotations: Some(annotations),
            finalizers: Some(vec![api::FINALIZER_NODE.to_owned()]),
            ..owned_by_cluster(cluster, name.as_str().to_owned())
        },
        spec: ValkeyNodeSpec {
            cluster_name: cluster.key.name.clone(),
            image: resolved.image.value.clone(),
            cpu: resolved.cpu.as_ref().map(|cpu| cpu.value.clone()),
            memory: resolved.memory.as_ref().map(|memory| memory.value.clone()),
            valkey_settings: settings,
            shard_index: shard.0,
            tls_secret: cluster
                .spec
                .tls
                .as_ref()
                .map(|_| cluster.key.tls_secret_name()),
            placement: resolved.placement.clone(),
            lifecycle: Lifecycle::Joining,
        },
    }
}
