//! The objects that are kept in every state: Service, auth Secret, ACL ConfigMap, TLS Secret, annotations.
//! Never takes over what somebody else made, never changes a password once made.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::Resource;
use kube::api::Api;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::act::kubernetes::{create, merge};
use crate::act::{Error, Writer, auth};
use crate::api::ACL_KEY;
use crate::model::chain;
use crate::model::desired::Desired;
use crate::model::digest::{hex, sha256_hex};
use crate::model::name::{NodeName, Uid};
use crate::model::redacted::Redacted;
use crate::model::tls::TlsFiles;
use crate::model::world::{Auth, Keeping, PodSighting, World};
use crate::render;

/// One object to make or to put right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upkeep {
    /// Make the headless Service.
    CreateService,
    /// Make the auth Secret, with new passwords.
    CreateAuth,
    /// Make the ACL ConfigMap with this text.
    CreateAcl(Redacted<String>),
    /// Put this text into the ACL ConfigMap.
    UpdateAcl {
        /// The one that was seen.
        map: Uid,
        /// What it is to have.
        text: Redacted<String>,
    },
    /// Make the Secret with the TLS material that pods mount.
    CreateTls(TlsFiles),
    /// Give it this material, all at once.
    UpdateTls {
        /// The one that was seen.
        secret: Uid,
        /// What it had.
        before: TlsFiles,
        /// What it is to have.
        files: TlsFiles,
    },
    /// Add or change these annotations of a node's pod.
    Annotate {
        /// The node.
        node: NodeName,
        /// Its pod.
        pod: Uid,
        /// What differs.
        annotations: BTreeMap<String, String>,
    },
}

impl Upkeep {
    /// Whether there is something that serves without it.
    fn is_change(&self) -> bool {
        match self {
            Self::UpdateAcl { .. } | Self::UpdateTls { .. } | Self::Annotate { .. } => true,
            Self::CreateService | Self::CreateAuth | Self::CreateAcl(_) | Self::CreateTls(_) => {
                false
            }
        }
    }
}

/// What differs from what is kept. Nothing before the finalizer is on the cluster, nor while it is
/// being deleted: the auth Secret must not outlive it.
#[must_use]
pub fn needed(world: &World, desired: &Desired) -> Vec<Upkeep> {
    if world.cluster.deleting || !world.cluster.finalizer {
        return Vec::new();
    }
    let mut needed = Vec::new();
    if world.kept.service == Keeping::Absent {
        needed.push(Upkeep::CreateService);
    }
    // New passwords would lock the operator out of every running node.
    if world.kept.auth == Keeping::Absent && world.nodes.is_empty() {
        needed.push(Upkeep::CreateAuth);
    }
    if let (Some(auth), Ok(resolved)) = (auth(world), &desired.menu) {
        let text = render::users_acl::text(&resolved.users, auth);
        match &world.kept.acl {
            Keeping::Absent => needed.push(Upkeep::CreateAcl(Redacted::new(text))),
            Keeping::Ours(in_use) if in_use.digest != sha256_hex(&text) => {
                needed.push(Upkeep::UpdateAcl {
                    map: in_use.uid.clone(),
                    text: Redacted::new(text),
                });
            }
            Keeping::Ours(_) | Keeping::Foreign => {}
        }
    }
    needed.extend(tls(world, desired));
    needed.extend(annotations(world));
    needed
}

/// Material that validates and would work, at once. What does not leaves the last that did.
fn tls(world: &World, desired: &Desired) -> Option<Upkeep> {
    let Some(Ok(offer)) = &desired.tls else {
        return None;
    };
    if offer.flaw.is_some() {
        return None;
    }
    let files = offer.files.clone();
    match &world.kept.tls {
        Keeping::Absent => Some(Upkeep::CreateTls(files)),
        Keeping::Ours(in_use) if in_use.files != files => Some(Upkeep::UpdateTls {
            secret: in_use.uid.clone(),
            before: in_use.files.clone(),
            files,
        }),
        Keeping::Ours(_) | Keeping::Foreign => None,
    }
}

/// Added and changed keys only: removed ones stay until the pod is replaced, and those of other
/// people are theirs.
fn annotations(world: &World) -> impl Iterator<Item = Upkeep> + '_ {
    let wanted = &world.cluster.spec.pod_annotations;
    world.nodes.values().filter_map(move |node| {
        let PodSighting::Present(pod) = &node.pod else {
            return None;
        };
        let differs: BTreeMap<String, String> = wanted
            .iter()
            .filter(|(key, value)| pod.annotations.get(*key) != Some(value))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        (!differs.is_empty() && !pod.deleting).then(|| Upkeep::Annotate {
            node: node.name.clone(),
            pod: pod.uid.clone(),
            annotations: differs,
        })
    })
}

impl Writer {
    /// Makes and puts right what is needed. A change that the API server finds invalid, mostly because it
    /// is too large, is said and left: pods live on with what they have, and their cluster is not to go
    /// without repairs for it.
    pub async fn upkeep(&self, world: &World, needed: &[Upkeep]) -> Result<(), Error> {
        for one in needed {
            match self.keep(world, one).await {
                Err(error) if one.is_change() && error.is_invalid() => {
                    let (namespace, cluster_name) =
                        (&world.cluster.key.namespace, &world.cluster.key.name);
                    let error = chain::of(&error);
                    warn!(
                        cluster_name,
                        namespace, error, "change refused, will retry next tick"
                    );
                }
                kept => kept?,
            }
        }
        Ok(())
    }

    async fn keep(&self, world: &World, upkeep: &Upkeep) -> Result<(), Error> {
        let cluster = &world.cluster;
        let (namespace, cluster_name) = (&cluster.key.namespace, &cluster.key.name);
        match upkeep {
            Upkeep::CreateService => {
                info!(cluster_name, namespace, "creating headless Service");
                let service = render::service::service(cluster);
                create(&self.api(namespace), &service)
                    .await
                    .map(|_: Service| ())
            }
            Upkeep::CreateAuth => {
                info!(cluster_name, namespace, "creating auth Secret");
                let password = || Redacted::new(hex(&(self.chance)(&cluster.key)));
                let auth = Auth {
                    operator: password(),
                    repl: password(),
                    finalizer: true,
                };
                let secret = render::auth_secret::secret(cluster, &auth);
                create(&self.api(namespace), &secret)
                    .await
                    .map(|_: Secret| ())
            }
            Upkeep::CreateAcl(text) => {
                info!(cluster_name, namespace, "creating ACL ConfigMap");
                let map = render::users_acl::config_map(cluster, text.expose().clone());
                create(&self.api(namespace), &map)
                    .await
                    .map(|_: ConfigMap| ())
            }
            Upkeep::UpdateAcl { map, text } => {
                info!(cluster_name, namespace, "updating ACL ConfigMap");
                let data = json!({ACL_KEY: text.expose()});
                let name = cluster.key.acl_config_map_name();
                put::<ConfigMap>(&self.api(namespace), &name, map, &data).await
            }
            Upkeep::CreateTls(files) => {
                info!(cluster_name, namespace, "creating TLS Secret");
                let secret = render::tls_secret::secret(cluster, files);
                create(&self.api(namespace), &secret)
                    .await
                    .map(|_: Secret| ())
            }
            Upkeep::UpdateTls {
                secret,
                before,
                files,
            } => {
                info!(cluster_name, namespace, "updating TLS Secret");
                let data = json!(render::tls_secret::data(files, Some(before)));
                let name = cluster.key.tls_secret_name();
                put::<Secret>(&self.api(namespace), &name, secret, &data).await
            }
            Upkeep::Annotate {
                node,
                pod,
                annotations,
            } => {
                info!(cluster_name, namespace, pod = %node, "updating pod annotations");
                let patch = json!({"metadata": {"uid": pod.as_str(), "annotations": annotations}});
                let api = self.api::<Pod>(namespace);
                merge(&api, "annotate", node.as_str(), &patch).await
            }
        }
    }
}

/// Changes the data of the very object that was seen, never of one made under its name since.
async fn put<K>(api: &Api<K>, name: &str, seen: &Uid, data: &Value) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let patch = json!({"metadata": {"uid": seen.as_str()}, "data": data});
    merge(api, "update", name, &patch).await
}
