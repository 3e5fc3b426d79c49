//! `ValkeyRole`: a named set of ACL rules.
//! Never names keys: those are the binding's.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    doc = "A permission set on the platform's menu.",
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
pub struct ValkeyRoleSpec {
    /// Rules by command category.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub categories: Vec<CategoryRule>,
    /// Rules by command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub commands: Vec<CommandRule>,
}

/// A rule for a category, `+@name` or `-@name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct CategoryRule {
    /// The category, without `@`.
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z][a-zA-Z0-9_-]*$')").message(
        "a category's name must start with a letter and hold only letters, \
         digits, hyphens and underscores, without @"
    ))]
    pub name: String,
    /// Allowed or denied.
    pub access: Access,
}

/// A rule for a command or one of its subcommands, `+name`, `-name|subcommand`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct CommandRule {
    /// The command.
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z][a-zA-Z0-9_-]*$')").message(
        "a command's name must start with a letter and hold only letters, \
         digits, hyphens and underscores"
    ))]
    pub name: String,
    /// One subcommand; the whole command where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z][a-zA-Z0-9_-]*$')").message(
        "a subcommand's name must start with a letter and hold only letters, \
         digits, hyphens and underscores"
    ))]
    pub subcommand: Option<String>,
    /// Allowed or denied.
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
