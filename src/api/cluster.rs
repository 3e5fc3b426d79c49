//! `ValkeyCluster`: what a product team asks for.
//! Never conditions: `state` and `message` are the whole status.

use std::collections::BTreeMap;

use kube::CustomResource;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

use crate::api::COUNT_MAX;
use crate::api::SHARDS_MAX;
use crate::api::acl::AclBinding;
use crate::api::schema;

/// What a product team asks for. The name of the object becomes a Service, a label and part of host
/// names, so it is 1 to 57 lowercase letters, digits and hyphens.
#[derive(
    CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema,
)]
#[kube(
    group = "valkey.gomomento.com",
    version = "v1alpha1",
    kind = "ValkeyCluster",
    namespaced,
    status = "ValkeyClusterStatus",
    derive = "PartialEq",
    doc = "A sharded, replicated, in-memory Valkey cluster.",
    validation = schema::CLUSTER_NAME,
    printcolumn(name = "Config", type_ = "string", json_path = ".spec.configRef"),
    printcolumn(name = "Shards", type_ = "integer", json_path = ".spec.shards"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicasPerShard"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = schema::TLS_PRESENCE)]
pub struct ValkeyClusterSpec {
    /// Name of a `ValkeyConfig` on the platform's menu, 1 to 253 characters.
    #[schemars(length(min = 1, max = 253))]
    pub config_ref: String,
    /// Number of shards, each with a share of the 16384 hash slots: 1 to 16384. A change moves
    /// slots between shards.
    #[schemars(range(min = 1, max = SHARDS_MAX))]
    pub shards: u32,
    /// Number of replicas of each shard, the primary not counted, from 0: 1 means two nodes a
    /// shard. Without replicas the death of a machine loses the data of its shards.
    #[schemars(range(min = 0, max = COUNT_MAX))]
    pub replicas_per_shard: u32,
    /// ACL users of this cluster, at most 64, beside those of its config; a username may be in
    /// one of the two only.
    #[serde(
        default,
        deserialize_with = "schema::null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 64))]
    #[x_kube(validation = schema::UNIQUE_USERNAMES)]
    pub acl: Vec<AclBinding>,
    /// Where pods may run. A change of `zones` or `nodeSelector` replaces the pods one by one, a
    /// change of `zoneSpread` reaches new pods only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// With it the cluster speaks TLS only, on port 6379. It can be neither added nor removed later;
    /// `secretRef` may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Annotations of every pod, at most 1024 and 256 KiB in all, none under `valkey.gomomento.com/`.
    /// Added and changed keys reach running pods in place; a removed key stays until a pod is
    /// replaced.
    #[serde(
        default,
        deserialize_with = "schema::null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[schemars(schema_with = "schema::annotations")]
    pub pod_annotations: BTreeMap<String, String>,
}

/// TLS material.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// Name of a Secret with `tls.crt`, `tls.key` and `ca.crt` in the cluster's namespace, 1 to 253
    /// characters. The certificate's names must include `{cluster}.{namespace}.svc.cluster.local`
    /// and `*.{cluster}.{namespace}.svc.cluster.local`.
    #[schemars(length(min = 1, max = 253))]
    pub secret_ref: String,
}

/// Where pods may run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Zones that pods are confined to and that each shard is spread over: at most 256 values of
    /// the label `topology.kubernetes.io/zone`. To reach every zone a shard needs as many nodes.
    #[serde(
        default,
        deserialize_with = "schema::null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 256), inner(length(max = 63)))]
    #[x_kube(validation = schema::ZONES)]
    pub zones: Vec<String>,
    /// How strictly a shard is spread: `bestEffort` or `required`; the operator's default where it
    /// is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone_spread: Option<ZoneSpread>,
    /// Labels, at most 256, that the machine of a pod must have.
    #[serde(
        default,
        deserialize_with = "schema::null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
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
    /// `Creating`, `Active` or `Invalid`; `Updating` is reserved and never written.
    #[serde(default)]
    pub state: ClusterState,
    /// The spec as it was when the cluster began to be built; there until it is Active. Edits of
    /// `shards` and `replicasPerShard` wait so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_spec: Option<ValkeyClusterSpec>,
    /// Reserved, never written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<String>>,
    /// Why the state is `Invalid`, in one sentence.
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
