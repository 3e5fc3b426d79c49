//! The Secret with the TLS material that a cluster's pods mount.
//! Never judges the material.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use crate::api;
use crate::model::tls::File;
use crate::model::tls::TlsFiles;
use crate::model::world::ClusterFacts;
use crate::render::owned_by_cluster;

/// The Secret of a cluster.
#[must_use]
pub fn secret(cluster: &ClusterFacts, files: &TlsFiles) -> Secret {
    Secret {
        metadata: owned_by_cluster(cluster, cluster.key.tls_secret_name()),
        type_: Some("Opaque".to_owned()),
        data: Some(data(files, None)),
        ..Secret::default()
    }
}

/// Its data. Where the authorities are others than before, those before are kept beside them: nodes that have
/// not loaded the new files yet are known by these.
#[must_use]
pub fn data(files: &TlsFiles, before: Option<&TlsFiles>) -> BTreeMap<String, ByteString> {
    let former = before
        .map(|before| &before.authorities)
        .filter(|former| !former.expose().is_empty() && **former != files.authorities);
    let mut data: BTreeMap<&str, &File> = [
        (api::TLS_KEY_CERTIFICATE, &files.certificate),
        (api::TLS_KEY_PRIVATE_KEY, &files.key),
        (api::TLS_KEY_AUTHORITIES, &files.authorities),
    ]
    .into();
    data.extend(former.map(|former| (api::TLS_KEY_FORMER_AUTHORITIES, former)));
    let bytes = |file: &File| ByteString(file.expose().clone());
    data.into_iter()
        .map(|(key, file)| (key.to_owned(), bytes(file)))
        .collect()
}
