//! ACL bindings: a user, its password hashes, and roles on keys and channels.
//! Never a password: only hashes are ever written down.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One Valkey user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AclBinding {
    /// The user's name, at most 128 characters.
    #[schemars(length(max = 128))]
    #[x_kube(
        validation = Rule::new("self.matches('^[a-zA-Z0-9_-]+$')").message(
            "username must hold only letters, digits, hyphens and underscores, at least one"
        ),
        validation = Rule::new("!self.startsWith('_momento_')").message(
            "usernames that start with _momento_ are reserved by the operator"
        )
    )]
    pub username: String,
    /// SHA-256 hashes of the user's passwords, 1 to 8, each 64 lowercase hex characters without `#`.
    #[schemars(length(min = 1, max = 8), inner(length(max = 128)))]
    #[x_kube(validation = Rule::new("self.all(hash, hash.matches('^[0-9a-f]{64}$'))").message(
        "each password hash must be exactly 64 lowercase hex characters (SHA-256), without #"
    ))]
    pub password_hashes: Vec<String>,
    /// 1 to 16: the first gives the root permissions, each further one a selector.
    #[schemars(length(max = 16))]
    #[x_kube(
        validation = Rule::new("self.size() >= 1").message("at least one permission is required")
    )]
    pub permissions: Vec<Permission>,
}

/// A role on keys and channels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Permission {
    /// Name of a `ValkeyRole`.
    #[schemars(length(min = 1, max = 253))]
    pub role_ref: String,
    /// Keys that it is for, at most 16; none means no key.
    #[schemars(length(max = 16))]
    pub keys: Vec<KeyPattern>,
    /// Channel patterns without `&`, at most 16; none means no channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 128)))]
    #[x_kube(
        validation = Rule::new(
            "self.all(channel, channel.matches('^[^\\\\pC\\\\pZ\\'\"]*$'))"
        ).message("channel patterns must not contain control characters, spaces or quotes"),
        validation = Rule::new("self.all(channel, !channel.startsWith('&'))").message(
            "channel patterns are written without the & prefix"
        )
    )]
    pub channels: Option<Vec<String>>,
}

/// Keys, and what may be done with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct KeyPattern {
    /// A glob pattern without `~`, at most 256 characters.
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(
        validation = Rule::new("self.matches('^[^\\\\pC\\\\pZ\\'\"]*$')").message(
            "key pattern must not contain control characters, spaces or quotes"
        ),
        validation = Rule::new("!self.startsWith('~')").message(
            "key pattern is written without the ~ prefix"
        )
    )]
    pub pattern: String,
    /// Reading, writing or both.
    #[serde(default)]
    pub access: KeyAccess,
}

/// What may be done with keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyAccess {
    /// `%R~`
    Read,
    /// `%W~`
    Write,
    /// `~`
    #[default]
    Readwrite,
}
