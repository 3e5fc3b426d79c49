//! What is asked for, each value with the config it came from, or the exact reason why not.
//! Never says what to do about it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::api::acl::{AclBinding, Permission};
use crate::api::cluster::Placement;
use crate::api::role::ValkeyRoleSpec;
use crate::model::digest::sha256_hex;
use crate::model::name::ConfigName;
use crate::model::tls::{Lapse, TlsError, TlsFiles, TlsFlaw};

/// What one cluster should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// The shape to build: the snapshot's while Creating, else the live spec's.
    pub shape: Shape,
    /// What the menu resolves to, or why it does not.
    pub menu: Result<Resolved, MenuError>,
    /// What a TLS cluster's Secret offers, or why it does not validate.
    pub tls: Option<Result<TlsOffer, TlsError>>,
}

/// TLS material that validates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOffer {
    /// The Secret that it is from.
    pub secret: String,
    /// The material.
    pub files: TlsFiles,
    /// Why nodes are not given it all the same.
    pub flaw: Option<TlsFlaw>,
    /// A date that has passed or not come, which keeps nobody from using it.
    pub lapse: Option<Lapse>,
    /// When the certificate ends, in seconds since the Unix epoch.
    pub expires: i64,
}

/// How many of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Shards, at least 1.
    pub shards: u32,
    /// Replicas of each primary.
    pub replicas: u32,
}

impl Shape {
    /// Nodes of one shard.
    #[must_use]
    pub fn nodes_per_shard(self) -> u32 {
        self.replicas.saturating_add(1)
    }
}

/// A value and the config of the chain that set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// The config it came from.
    pub config: ConfigName,
}

impl<T> Sourced<T> {
    /// Another value from the same config.
    #[must_use]
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Sourced<U> {
        Sourced {
            value: change(self.value),
            config: self.config,
        }
    }
}

/// What a config chain resolves to for one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// `repository:tag`.
    pub image: Sourced<String>,
    /// Request and limit of the Valkey container.
    pub cpu: Option<Sourced<Quantity>>,
    /// Request and limit of the Valkey container.
    pub memory: Option<Sourced<Quantity>>,
    /// The merged `valkey` map of the chain: values as they were written, names canonical (lower case,
    /// new spelling), since two spellings of one directive are one directive to Valkey.
    pub user_settings: BTreeMap<String, Sourced<String>>,
    /// All three layers in lower case, without `primaryauth` and what only a pod's own name decides:
    /// what a new node is made with.
    pub node_settings: BTreeMap<String, String>,
    /// Every user, with the permissions that its roles give.
    pub users: Vec<User>,
    /// Tolerations of new pods.
    pub tolerations: Vec<Toleration>,
    /// Priority class of new pods.
    pub priority_class: Option<String>,
    /// Pull secrets of new pods.
    pub pull_secrets: Vec<String>,
    /// The cluster's placement with `zoneSpread` always said: its own, or the operator's default.
    pub placement: Option<Placement>,
}

impl Resolved {
    /// A fingerprint of what the user asked for in the `valkey` maps. A node records it when it is made, so
    /// that our own defaults and forced settings, which change with the operator, never make it outdated.
    #[must_use]
    pub fn settings_digest(&self) -> String {
        // Debug of a string is quoted and escaped, so no two maps have one text.
        let lines = self
            .user_settings
            .iter()
            .map(|(name, set)| format!("{name:?} {:?}", set.value));
        sha256_hex(&lines.collect::<Vec<_>>().join("\n"))
    }
}

/// What the operator's settings say about every pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodPolicy {
    /// Run as user and group 999. Where the platform picks the user (`OpenShift`), neither user nor group is
    /// named.
    pub fixed_user: bool,
}

impl Default for PodPolicy {
    fn default() -> Self {
        Self { fixed_user: true }
    }
}

/// One ACL user: its binding and what each of its permissions grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The binding as it was written.
    pub binding: AclBinding,
    /// One for each permission of the binding, in its order.
    pub grants: Vec<Grant>,
}

/// A permission with the role it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The permission as it was written.
    pub permission: Permission,
    /// The role's rules.
    pub role: ValkeyRoleSpec,
}

/// Why the menu does not resolve. The texts are the contract's: users search for them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MenuError {
    /// A config of the chain is missing.
    #[error("ValkeyConfig {0:?} not found")]
    ConfigNotFound(String),
    /// The chain names an image that is missing.
    #[error("ValkeyImage {0:?} not found")]
    ImageNotFound(String),
    /// No config of the chain names an image; the last one is told.
    #[error("no image_ref in config chain ending at {0:?}")]
    NoImage(String),
    /// The chain is too long, or a circle.
    #[error("config inheritance depth exceeds 10 (cycle?)")]
    TooDeep,
    /// A permission names a role that is missing.
    #[error("ValkeyRole {role:?} not found (referenced by user {username:?})")]
    RoleNotFound {
        /// The missing role.
        role: String,
        /// The user whose permission names it.
        username: String,
    },
    /// The cluster binds a username that its config binds too.
    #[error("duplicate username {0:?} in merged ACL bindings")]
    DuplicateUser(String),
}
