//! The five kinds and every constant that users see.
//! Never behaviour: what these objects mean is worked out elsewhere.

#![expect(
    unreachable_pub,
    reason = "KubeSchema repeats each struct inside a function"
)]

pub mod acl;
pub mod cluster;
pub mod config;
pub mod image;
pub mod node;
pub mod role;
mod schema;
#[cfg(test)]
mod tests;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

/// On every object that the operator makes.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`LABEL_MANAGED_BY`].
pub const LABEL_MANAGED_BY_VALUE: &str = "valkey-operator";
/// On every object that the operator makes.
pub const LABEL_NAME: &str = "app.kubernetes.io/name";
/// The value of [`LABEL_NAME`].
pub const LABEL_NAME_VALUE: &str = "valkey";
/// The cluster's name, on every object of a cluster.
pub const LABEL_INSTANCE: &str = "app.kubernetes.io/instance";
/// The zone of a machine, by its cloud or its administrator.
pub const LABEL_ZONE: &str = "topology.kubernetes.io/zone";
/// The shard that a node and its pod are scheduled for.
pub const LABEL_SHARD_INDEX: &str = "valkey.gomomento.com/shard-index";
/// On a pod: the template that its node was made of, so that those of one template are kept apart.
pub const LABEL_TEMPLATE: &str = "valkey.gomomento.com/template";
/// Why a node joins an Active cluster; see [`node::JoinType`].
pub const LABEL_JOIN_TYPE: &str = "valkey.gomomento.com/join-type";
/// Selects what the operator made, but pods.
pub const OWNED_SELECTOR: &str = "app.kubernetes.io/managed-by=valkey-operator";
/// Selects every Valkey pod of every cluster.
pub const POD_SELECTOR: &str = "app.kubernetes.io/name=valkey,valkey.gomomento.com/shard-index";

/// `"true"` on a `ValkeyCluster` stops its topology actions.
pub const ANNOTATION_PAUSED: &str = "valkey.gomomento.com/paused";
/// On a `ValkeyNode`: the uid of the one pod it ever had.
pub const ANNOTATION_POD_UID: &str = "valkey.gomomento.com/pod-uid";
/// On a `ValkeyNode`: the digest of the user's settings it was made with.
pub const ANNOTATION_SETTINGS_DIGEST: &str = "valkey.gomomento.com/settings-digest";

/// Keeps a `ValkeyCluster` until its nodes are gone.
pub const FINALIZER_CLUSTER: &str = "valkey.gomomento.com/cleanup";
/// Keeps a `ValkeyNode` until its pod's deletion is requested.
pub const FINALIZER_NODE: &str = "valkey.gomomento.com/node-cleanup";
/// Keeps the auth Secret until its cluster is let go.
pub const FINALIZER_AUTH: &str = "valkey.gomomento.com/auth-protection";

/// Where clients connect.
pub const PORT: u16 = 6379;
/// The name of [`PORT`] on the Service.
pub const PORT_NAME: &str = "valkey";
/// Where members of a cluster connect to each other.
pub const BUS_PORT: u16 = 16379;
/// The name of [`BUS_PORT`] on the Service.
pub const BUS_PORT_NAME: &str = "valkey-bus";

/// The auth Secret's key for the password of [`USER_OPERATOR`].
pub const AUTH_KEY_OPERATOR: &str = "operator-password";
/// The auth Secret's key for the password of [`USER_REPL`].
pub const AUTH_KEY_REPL: &str = "repl-password";
/// The auth Secret's key for the directive that every pod includes.
pub const AUTH_KEY_PRIMARYAUTH: &str = "primaryauth.conf";
/// The Valkey user that the operator connects as.
pub const USER_OPERATOR: &str = "_momento_operator";
/// The Valkey user that nodes replicate and move slots as.
pub const USER_REPL: &str = "_momento_repl";
/// The TLS Secret's key for the certificate, and the file's name in a pod.
pub const TLS_KEY_CERTIFICATE: &str = "tls.crt";
/// The same for its private key.
pub const TLS_KEY_PRIVATE_KEY: &str = "tls.key";
/// The same for the authorities.
pub const TLS_KEY_AUTHORITIES: &str = "ca.crt";
/// The operator's own key for the authorities before those.
pub const TLS_KEY_FORMER_AUTHORITIES: &str = "former-ca.crt";
/// The key of the `ConfigMap` with the ACL file.
pub const ACL_KEY: &str = "users.acl";
/// The key of a node's `ConfigMap`.
pub const CONF_KEY: &str = "valkey.conf";

/// Where a pod finds the included `primaryauth` directive.
pub const PRIMARYAUTH_PATH: &str = "/etc/valkey/auth/primaryauth.conf";
/// Valkey's working directory.
pub const DATA_DIR: &str = "/var/lib/valkey";
/// Where a pod finds its valkey.conf.
pub const CONF_DIR: &str = "/etc/valkey/conf";
/// Where a pod finds users.acl.
pub const ACL_DIR: &str = "/etc/valkey/acl";
/// Where a pod finds what [`PRIMARYAUTH_PATH`] names.
pub const AUTH_DIR: &str = "/etc/valkey/auth";
/// Where a pod finds its TLS files.
pub const TLS_DIR: &str = "/etc/valkey/tls";
/// The settings with the paths of those files.
pub const TLS_PATHS: [(&str, &str); 3] = [
    ("tls-cert-file", "/etc/valkey/tls/tls.crt"),
    ("tls-key-file", "/etc/valkey/tls/tls.key"),
    ("tls-ca-cert-file", "/etc/valkey/tls/ca.crt"),
];
/// The one container of a Valkey pod.
pub const CONTAINER_NAME: &str = "valkey";

/// The most shards a cluster may have: one for each hash slot.
pub const SHARDS_MAX: u32 = 16_384;
/// The most of anything that is counted without a limit of its own: what the API's integers hold.
pub const COUNT_MAX: u32 = i32::MAX.cast_unsigned();

/// The definitions of all five kinds, as `crds/crds.json` has them.
#[must_use]
pub fn definitions() -> Vec<CustomResourceDefinition> {
    let mut definitions = vec![
        image::ValkeyImage::crd(),
        config::ValkeyConfig::crd(),
        role::ValkeyRole::crd(),
        cluster::ValkeyCluster::crd(),
        node::ValkeyNode::crd(),
    ];
    definitions.iter_mut().for_each(schema::finish);
    definitions
}
