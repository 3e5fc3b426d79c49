//! `ValkeyConfig`: an image, resources, settings and users, inherited along `baseRef`.
//! Never resolved here.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::api::acl::AclBinding;
use crate::api::schema;

/// What clusters may be made of. Every field may be left to the config that `baseRef` names.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "valkey.gomomento.com",
    version = "v1alpha1",
    kind = "ValkeyConfig",
    status = "ValkeyConfigStatus",
    doc = "A configuration on the platform's menu.",
    printcolumn(name = "ImageRef", type_ = "string", json_path = ".spec.imageRef"),
    printcolumn(name = "BaseRef", type_ = "string", json_path = ".spec.baseRef")
)]
#[serde(rename_all = "camelCase")]
pub struct ValkeyConfigSpec {
    /// Name of a `ValkeyImage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub image_ref: Option<String>,
    /// Name of the `ValkeyConfig` to inherit from; the chain may be 10 configs long.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub base_ref: Option<String>,
    /// Tolerations and priority of new pods; changing them replaces no pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
    /// What each Valkey container gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// valkey.conf directives, merged per directive along the chain.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::directives")]
    pub valkey: BTreeMap<String, String>,
    /// ACL users of every cluster that selects this config; the first list of a chain is used,
    /// also an empty one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(
        "self.all(a, self.exists_one(b, b.username == a.username))"
    ).message("duplicate username in ACL bindings"))]
    pub acl: Option<Vec<AclBinding>>,
}

impl Eq for ValkeyConfigSpec {}

/// How new pods are scheduled, beyond what the cluster's `placement` says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduling {
    /// As in a pod's spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub tolerations: Option<Vec<Toleration>>,
    /// As in a pod's spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
}

/// Each is both the request and the limit of the Valkey container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
pub struct Resources {
    /// Cores, such as `500m` or 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::PositiveQuantity>")]
    pub cpu: Option<Quantity>,
    /// Bytes, such as `1Gi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::PositiveQuantity>")]
    pub memory: Option<Quantity>,
}

/// Empty so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct ValkeyConfigStatus {}
