//! `ValkeyRole`: a named set of ACL rules.
//! Never names keys: those are the binding's.

use kube::CustomResource;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

use crate::api::schema;

/// Which commands a user may run, on top of none: first the categories, then the commands, each in
/// the given order.
#[derive(
    CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema,
)]
#[kube(
    group = "valkey.gomomento.com",
    version = "v1alpha1",
    kind = "ValkeyRole",
    status = "ValkeyRoleStatus",
    derive = "PartialEq",
    doc = "A permission set on the platform's menu.",
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
pub struct ValkeyRoleSpec {
    /// Rules by command category, at most 64, in this order.
    #[serde(
        default,
        deserialize_with = "schema::null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 64))]
    pub categories: Vec<CategoryRule>,
    /// Rules by command, at most 256, in this order, after those by category.
    #[serde(
        default,
        deserialize_with = "schema::null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 256))]
    pub commands: Vec<CommandRule>,
}

/// A rule for a category, `+@name` or `-@name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct CategoryRule {
    /// The category, without `@`: 1 to 64 letters, digits, hyphens and underscores, beginning with
    /// a letter.
    #[schemars(length(max = 64))]
    #[x_kube(validation = schema::CATEGORY_WORD)]
    pub name: String,
    /// `allow` or `deny`.
    pub access: Access,
}

/// A rule for a command or one of its subcommands, `+name`, `-name|subcommand`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct CommandRule {
    /// The command: 1 to 64 letters, digits, hyphens and underscores, beginning with a letter.
    #[schemars(length(max = 64))]
    #[x_kube(validation = schema::COMMAND_WORD)]
    pub name: String,
    /// One subcommand, spelled by the same rule; the whole command where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = schema::COMMAND_WORD)]
    pub subcommand: Option<String>,
    /// `allow` or `deny`.
    pub access: Access,
}

/// Which way a rule goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// `+`
    Allow,
    /// `-`
    Deny,
}

/// Empty so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct ValkeyRoleStatus {}
