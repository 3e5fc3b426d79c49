//! The Secret with the passwords of the operator's own users.
//! Never makes a password.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api;
use crate::model::world::Auth;
use crate::model::world::ClusterFacts;
use crate::render::owned_by_cluster;

/// The Secret of a cluster. It is immutable and carries a finalizer, since passwords that no running node
/// knows would shut the operator out for ever.
#[must_use]
pub fn secret(cluster: &ClusterFacts, auth: &Auth) -> Secret {
    let repl = auth.repl.expose();
    let data: BTreeMap<String, ByteString> = [
        (api::AUTH_KEY_OPERATOR, auth.operator.expose().clone()),
        (api::AUTH_KEY_REPL, repl.clone()),
        // The whole directive: Valkey would print a bare password to the pod's log, as a line that it does
        // not understand.
        (
            api::AUTH_KEY_PRIMARYAUTH,
            format!("primaryauth \"{repl}\"\n"),
        ),
    ]
    .map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes())))
    .into();
    Secret {
        metadata: ObjectMeta {
            finalizers: Some(vec![api::FINALIZER_AUTH.to_owned()]),
            ..owned_by_cluster(cluster, cluster.key.auth_secret_name())
        },
        type_: Some("Opaque".to_owned()),
        immutable: Some(true),
        data: Some(data),
        string_data: None,
    }
}
