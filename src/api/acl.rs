//! ACL bindings: a user, its password hashes, and roles on keys and channels.
//! Never a password: only hashes are ever written down.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

use crate::api::schema;

/// One Valkey user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AclBinding {
    /// The user's name: 1 to 128 letters, digits, hyphens and underscores. It must not start with
    /// `_momento_`, which is the operator's.
    #[schemars(length(max = 128))]
    #[x_kube(validation = schema::USERNAME_WORD, validation = schema::USERNAME_RESERVED)]
    pub username: String,
    /// SHA-256 hashes of the user's passwords, 1 to 8, each 64 lowercase hex characters without
    /// `#`. Several allow a rotation: add the new one, move the clients, remove the old one.
    // Longer than a hash may be, so that a hash with a prefix is refused in words of ours.
    #[schemars(length(min = 1, max = 8), inner(length(max = 128)))]
    #[x_kube(validation = schema::PASSWORD_HASHES)]
    pub password_hashes: Vec<String>,
    /// 1 to 16 permissions: the first gives the root permissions, each further one becomes a
    /// selector with commands, keys and channels of its own.
    #[schemars(length(max = 16))]
    #[x_kube(validation = schema::SOME_PERMISSION)]
    pub permissions: Vec<Permission>,
}

/// The commands of a role, on keys and channels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Permission {
    /// Name of the `ValkeyRole` with the commands, at most 253 characters.
    #[schemars(length(min = 1, max = 253))]
    pub role_ref: String,
    /// The keys it is for, at most 16 patterns; an empty list means no key.
    #[schemars(length(max = 16))]
    pub keys: Vec<KeyPattern>,
    /// The channels it is for, at most 16 glob patterns of 1 to 128 characters without the `&`
    /// prefix; no channel where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 128)))]
    #[x_kube(validation = schema::CHANNEL_CHARACTERS, validation = schema::CHANNEL_PREFIX)]
    pub channels: Option<Vec<String>>,
}

/// Keys, and what may be done with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyPattern {
    /// A glob pattern of 1 to 256 characters, such as `myapp:*`, without the `~` prefix.
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(validation = schema::KEY_CHARACTERS, validation = schema::KEY_PREFIX)]
    pub pattern: String,
    /// `read`, `write` or `readwrite` (the default).
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
