//! `ValkeyNode`: one member of a cluster, written by the operator alone.
//! Never edited but for its lifecycle: a pod always reflects the spec it was made from.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResource;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

use crate::api::COUNT_MAX;
use crate::api::cluster::Placement;
use crate::api::schema;

/// One member of a cluster, with its one pod and one `ConfigMap`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "valkey.gomomento.com",
    version = "v1alpha1",
    kind = "ValkeyNode",
    namespaced,
    derive = "PartialEq",
    doc = "One member of a ValkeyCluster, made by the operator; read-only for everyone else.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image"),
    printcolumn(name = "Lifecycle", type_ = "string", json_path = ".spec.lifecycle")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = schema::NODE_IMMUTABLE)]
pub struct ValkeyNodeSpec {
    /// The cluster it belongs to.
    #[schemars(length(min = 1, max = 253))]
    pub cluster_name: String,
    /// `repository:tag`.
    #[schemars(length(min = 1, max = 1024))]
    pub image: String,
    /// Cores, request and limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::PositiveQuantity>")]
    pub cpu: Option<Quantity>,
    /// Bytes, request and limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::PositiveQuantity>")]
    pub memory: Option<Quantity>,
    /// valkey.conf directives, forced ones included, `primaryauth` not.
    #[serde(default, deserialize_with = "schema::null_as_default")]
    pub valkey_settings: BTreeMap<String, String>,
    /// The shard it is scheduled for, from 0: not Valkey's shard id.
    #[schemars(range(min = 0, max = COUNT_MAX))]
    pub shard_index: u32,
    /// The Secret with its TLS material.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub tls_secret: Option<String>,
    /// Where its pod may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// `Joining`, `Active` (the default) or `Leaving`.
    #[serde(default)]
    pub lifecycle: Lifecycle,
}

impl Eq for ValkeyNodeSpec {}

/// Where a node is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Lifecycle {
    /// It gets its pod and is introduced to the others.
    Joining,
    /// A full member.
    #[default]
    Active,
    /// On its way out.
    Leaving,
}

/// Why a node joins an Active cluster: the value of its `join-type` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinType {
    /// A replacement or an added replica.
    Replica,
    /// It replaces a dead primary.
    Primary,
    /// A shard added by scale-out.
    Shard,
}

impl JoinType {
    /// The label's value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replica => "replica",
            Self::Primary => "primary",
            Self::Shard => "shard",
        }
    }

    /// The type that a label's value names.
    #[must_use]
    pub fn of(label: &str) -> Option<Self> {
        [Self::Replica, Self::Primary, Self::Shard]
            .into_iter()
            .find(|join| join.as_str() == label)
    }
}
