//! `ValkeyCluster`: what a product team asks for.
//! Never conditions: `state` and `message` are the whole status.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::acl::AclBinding;
use crate::api::schema;

/// A sharded, replicated Valkey cluster.
#[derive(
    CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema,
)]
#[kube(
    group = "valkey.gomomento.com",
    version = "v1alpha1",
    kind = "ValkeyCluster",
    namespaced,
    status = "ValkeyClusterStatus",
    doc = "A sharded, replicated, in-memory Valkey cluster.",
    validation = Rule::new(
        "self.metadata.name.size() <= 57 \
         && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')"
    ).message(
        "a cluster's name must be 1 to 57 lowercase letters, digits and hyphens, \
         starting with a letter and not ending with a hyphen"
    ),
    printcolumn(name = "Config", type_ = "string", json_path = ".spec.configRef"),
    printcolumn(name = "Shards", type_ = "integer", json_path = ".spec.shards"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicasPerShard"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.tls) == has(oldSelf.tls)").message(
    "tls can be neither added nor removed: make a new cluster"
))]
pub struct ValkeyClusterSpec {
    /// Name of a `ValkeyConfig` on the platform's menu.
    #[schemars(length(min = 1, max = 253))]
    pub config_ref: String,
    /// Shards, 1 to 16384.
    #[schemars(range(min = 1, max = 16384))]
    pub shards: u32,
    /// Replicas of each primary.
    #[schemars(range(min = 0, max = 1024))]
    pub replicas_per_shard: u32,
    /// ACL users of this cluster, beside those of its config.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(
        "self.all(a, self.exists_one(b, b.username == a.username))"
    ).message("duplicate username in ACL bindings"))]
    pub acl: Vec<AclBinding>,
    /// Where pods may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// With it the cluster speaks TLS only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Annotations of every pod. Added and changed keys reach running pods; a removed key stays
    /// until a pod is replaced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::annotations")]
    pub pod_annotations: BTreeMap<String, String>,
}

/// TLS material.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// Name of a Secret with `tls.crt`, `tls.key` and `ca.crt` in the cluster's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub secret_ref: String,
}

/// Where pods may run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Zones that pods are confined to and that each shard is spread over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    #[x_kube(validation = Rule::new(
        "self.all(zone, zone.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$'))"
    ).message(
        "a zone must hold only letters, digits, hyphens, underscores and dots, \
         with a letter or digit at both ends"
    ))]
    pub zones: Vec<String>,
    /// How strictly; the operator's default where unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone_spread: Option<ZoneSpread>,
    /// Node labels, verbatim in each pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::node_selector")]
    pub node_selector: BTreeMap<String, String>,
}

/// How strictly a shard is spread over its zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ZoneSpread {
    /// Pods run even where spreading is not possible.
    #[default]
    BestEffort,
    /// Pods wait until it is.
    Required,
}

/// What the operator reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValkeyClusterStatus {
    /// Where the cluster is in its life.
    #[serde(default)]
    pub state: ClusterState,
    /// The spec that is being built; topology edits meanwhile wait until it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_spec: Option<ValkeyClusterSpec>,
    /// Reserved, never written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<String>>,
    /// Why the state is Invalid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Where a cluster is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClusterState {
    /// Being built.
    #[default]
    Creating,
    /// Formed and serving.
    Active,
    /// Reserved, never written.
    Updating,
    /// Its TLS Secret does not validate.
    Invalid,
}
