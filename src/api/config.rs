//! `ValkeyConfig`: an image, resources, settings and users, inherited along `baseRef`.
//! Never resolved here.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResource;
use kube::KubeSchema;
use serde::Deserialize;
use serde::Serialize;

use crate::api::acl::AclBinding;
use crate::api::schema;

/// What clusters may be made of. Every field may be left to the config that `baseRef` names.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "valkey.gomomento.com",
    version = "v1alpha1",
    kind = "ValkeyConfig",
    status = "ValkeyConfigStatus",
    derive = "PartialEq",
    doc = "A configuration on the platform's menu.",
    printcolumn(name = "ImageRef", type_ = "string", json_path = ".spec.imageRef"),
    printcolumn(name = "BaseRef", type_ = "string", json_path = ".spec.baseRef")
)]
#[serde(rename_all = "camelCase")]
pub struct ValkeyConfigSpec {
    /// Name of a `ValkeyImage`, 1 to 253 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub image_ref: Option<String>,
    /// Name of the `ValkeyConfig` to inherit from, 1 to 253 characters. A chain may be 10 configs
    /// long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub base_ref: Option<String>,
    /// Tolerations and priority of new pods, inherited each on its own; a change replaces no pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
    /// What each Valkey container gets; `cpu` and `memory` are inherited each on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// valkey.conf directives, at most 256 of at most 8192 characters, inherited each on its own.
    /// Those that the operator needs for itself are laid over them.
    #[serde(
        default,
        deserialize_with = "schema::null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[schemars(schema_with = "schema::directives")]
    pub valkey: BTreeMap<String, String>,
    /// ACL users of every cluster that selects this config, at most 64. The first list of a chain
    /// is the whole list, also an empty one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = schema::UNIQUE_USERNAMES)]
    pub acl: Option<Vec<AclBinding>>,
}

impl Eq for ValkeyConfigSpec {}

/// How new pods are scheduled, beyond what the cluster's `placement` says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduling {
    /// Taints that pods put up with, as in a pod's spec, at most 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::tolerations")]
    pub tolerations: Option<Vec<Toleration>>,
    /// Name of a `PriorityClass`, 1 to 253 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
}

/// Each is both the request and the limit of the Valkey container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
pub struct Resources {
    /// Cores, such as `500m` or 2: a quantity above zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::PositiveQuantity>")]
    pub cpu: Option<Quantity>,
    /// Bytes, such as `1Gi`: a quantity above zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::PositiveQuantity>")]
    pub memory: Option<Quantity>,
}

/// Empty so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct ValkeyConfigStatus {}
