//! Makes the objects that `act` writes: labels and owners here, one object a file below.
//! Never asks whether an object is needed, never names one by chance: values in, objects out.

pub mod auth_secret;
pub mod pod;
pub mod service;
pub mod status;
pub mod tls_secret;
pub mod users_acl;
pub mod valkey_conf;
pub mod valkey_node;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

use crate::api;
use crate::api::cluster::ValkeyCluster;
use crate::api::node::ValkeyNode;
use crate::model::name::ClusterRef;
use crate::model::name::ShardIndex;
use crate::model::world::ClusterFacts;
use crate::model::world::NodeFacts;

/// The labels of everything that belongs to a cluster.
///
/// They also select its pods: with `managed-by`, so that a Helm release of Valkey by the same name in the
/// same namespace, which has the other two, is not taken for a part of it.
#[must_use]
pub fn labels(cluster: &ClusterRef) -> BTreeMap<String, String> {
    [
        (api::LABEL_NAME, api::LABEL_NAME_VALUE),
        (api::LABEL_INSTANCE, cluster.name.as_str()),
        (api::LABEL_MANAGED_BY, api::LABEL_MANAGED_BY_VALUE),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// The labels of everything that belongs to one shard.
#[must_use]
pub fn shard_labels(cluster: &ClusterRef, shard: ShardIndex) -> BTreeMap<String, String> {
    let mut labels = labels(cluster);
    labels.insert(api::LABEL_SHARD_INDEX.to_owned(), shard.to_string());
    labels
}

/// The metadata of an object that the cluster owns.
fn owned_by_cluster(cluster: &ClusterFacts, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(cluster.key.namespace.clone()),
        labels: Some(labels(&cluster.key)),
        owner_references: Some(vec![owner::<ValkeyCluster>(
            &cluster.key.name,
            cluster.uid.as_str(),
        )]),
        ..ObjectMeta::default()
    }
}

/// The metadata of an object that a node of the cluster owns.
fn owned_by_node(cluster: &ClusterFacts, node: &NodeFacts, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(cluster.key.namespace.clone()),
        labels: Some(shard_labels(
            &cluster.key,
            ShardIndex(node.spec.shard_index),
        )),
        owner_references: Some(vec![owner::<ValkeyNode>(
            node.name.as_str(),
            node.uid.as_str(),
        )]),
        ..ObjectMeta::default()
    }
}

/// A controller owner: `kubectl drain` refuses a pod without one. It does not block its owner's deletion:
/// that would need the right to update the owner's finalizers, and buys nothing, since ours hold it anyway.
fn owner<K: Resource<DynamicType = ()>>(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    }
}

#[cfg(test)]
mod tests;
