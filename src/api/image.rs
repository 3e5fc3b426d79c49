//! `ValkeyImage`: an image that clusters may run.
//! Never pulled or checked by the operator: the kubelet does that.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// An image that clusters may run, as `repository:tag`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "valkey.gomomento.com",
    version = "v1alpha1",
    kind = "ValkeyImage",
    status = "ValkeyImageStatus",
    doc = "An image on the platform's menu: an allowlist entry.",
    printcolumn(name = "Repository", type_ = "string", json_path = ".spec.repository"),
    printcolumn(name = "Tag", type_ = "string", json_path = ".spec.tag"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version")
)]
#[serde(rename_all = "camelCase")]
pub struct ValkeyImageSpec {
    /// The image's repository, verbatim.
    #[schemars(length(min = 1, max = 512))]
    pub repository: String,
    /// The image's tag, verbatim.
    #[schemars(length(min = 1, max = 128))]
    pub tag: String,
    /// The Valkey version in the image, for people.
    #[schemars(length(min = 1, max = 128))]
    pub version: String,
    /// Names of Secrets, in the cluster's namespace, that pods pull the image with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub pull_secrets: Vec<String>,
}

/// Empty so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct ValkeyImageStatus {}
