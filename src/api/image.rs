//! `ValkeyImage`: an image that clusters may run.
//! Never pulled or checked by the operator: the kubelet does that.

use kube::CustomResource;
use kube::KubeSchema;
use serde::Deserialize;
use serde::Serialize;

use crate::api::schema;

/// An image that clusters may run, as `repository:tag`.
#[derive(
    CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema,
)]
#[kube(
    group = "valkey.gomomento.com",
    version = "v1alpha1",
    kind = "ValkeyImage",
    status = "ValkeyImageStatus",
    derive = "PartialEq",
    doc = "An image on the platform's menu: an allowlist entry.",
    printcolumn(name = "Repository", type_ = "string", json_path = ".spec.repository"),
    printcolumn(name = "Tag", type_ = "string", json_path = ".spec.tag"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version")
)]
#[serde(rename_all = "camelCase")]
pub struct ValkeyImageSpec {
    /// The image's repository, such as `registry.example.com/valkey`: 1 to 512 characters.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = schema::NO_SPACES)]
    pub repository: String,
    /// The image's tag, 1 to 256 characters; a digest may follow, as in `9.1.2@sha256:…`.
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(validation = schema::NO_SPACES)]
    pub tag: String,
    /// The Valkey version in the image, for people: 1 to 128 characters.
    #[schemars(length(min = 1, max = 128))]
    pub version: String,
    /// Names of Secrets, at most 16, in each cluster's namespace, that pods pull the image with.
    #[serde(
        default,
        deserialize_with = "schema::null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub pull_secrets: Vec<String>,
}

/// Empty so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct ValkeyImageStatus {}
