//! Reads the world: Kubernetes first, then every running pod with the cluster's own credentials.
//! Never writes, never decides; a pod that does not answer is kept with the reason.

pub mod definitions;
pub mod kubernetes;
pub mod lean;
pub mod stores;
pub mod valkey;
pub mod visit;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Secret;
use kube::Client;

use crate::api::cluster::ZoneSpread;
use crate::model::name::{ClusterRef, NodeName};
use crate::model::world::{NodeFacts, World};
use crate::observe::stores::Stores;
use crate::valkey::client::Connector;

/// Whoever holds a Reader can look and cannot touch.
#[derive(Clone)]
pub struct Reader {
    client: Client,
    stores: Stores,
    connector: Connector,
    clock: Arc<dyn Fn() -> i64 + Send + Sync>,
    default_zone_spread: ZoneSpread,
    /// The auth Secrets as last read, by cluster: they are immutable, and not watched.
    auth: Arc<Mutex<BTreeMap<ClusterRef, Secret>>>,
    /// The two TLS Secrets of clusters as last read, for a few seconds.
    tls: Arc<Mutex<BTreeMap<ClusterRef, kubernetes::TlsRead>>>,
    /// What nodes had against their ACL file in the last pass of the ACL controller.
    acl_refusals: Arc<Mutex<BTreeMap<ClusterRef, String>>>,
}

/// Where Kubernetes facts are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The stores of the watches: free, and possibly behind.
    Stores,
    /// The stores, and no Secret: for whoever may not read one.
    StoresAlone,
    /// The API server, with consistent reads: before every write. The menu is read from the stores
    /// here too: what a stale menu makes is rolled later, what a stale node list makes is a node
    /// too many.
    Live,
}

/// What went wrong on the way to a World. The tick ends, nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server did not give an object.
    #[error("failed to read {kind} {name:?}")]
    Read {
        /// Its kind.
        kind: &'static str,
        /// Its name, or the selector of a list.
        name: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// An object lacks what the API server always sets.
    #[error("{kind} {name:?} has no {field}")]
    Incomplete {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
        /// What is missing.
        field: &'static str,
    },
}

impl Reader {
    /// Reads through one client and one connector; `clock` gives seconds since the Unix epoch.
    #[must_use]
    pub fn new(
        client: Client,
        stores: Stores,
        connector: Connector,
        clock: Arc<dyn Fn() -> i64 + Send + Sync>,
        default_zone_spread: ZoneSpread,
    ) -> Self {
        Self {
            client,
            stores,
            connector,
            clock,
            default_zone_spread,
            auth: Arc::default(),
            tls: Arc::default(),
            acl_refusals: Arc::default(),
        }
    }

    /// The stores that the watches fill.
    #[must_use]
    pub fn stores(&self) -> &Stores {
        &self.stores
    }

    /// Notes whether a node refused its ACL file; nobody can be asked for that later.
    pub fn note_acl(&self, cluster: &ClusterRef, refusal: Option<String>) {
        let mut refusals = self.acl_refusals();
        match refusal {
            Some(refusal) => refusals.insert(cluster.clone(), refusal),
            None => refusals.remove(cluster),
        };
    }

    fn acl_refusals(&self) -> MutexGuard<'_, BTreeMap<ClusterRef, String>> {
        self.acl_refusals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn kept_secrets(&self) -> MutexGuard<'_, BTreeMap<ClusterRef, Secret>> {
        self.auth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept_tls(&self) -> MutexGuard<'_, BTreeMap<ClusterRef, kubernetes::TlsRead>> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that is known of a cluster, every running node asked; nothing if it does not exist.
    ///
    /// Nobody is asked while a cluster that is being formed has nodes whose pod does not run yet:
    /// nothing is decided by the answers before all run, and the ticks until then are not held up.
    pub async fn world(
        &self,
        cluster: &ClusterRef,
        source: Source,
    ) -> Result<Option<World>, Error> {
        let Some(mut world) = kubernetes::world(self, cluster, source).await? else {
            return Ok(None);
        };
        if !world.cluster.deleting && !valkey::starting(&world) {
            valkey::ask_all(&self.connector, &mut world).await;
        }
        Ok(Some(world))
    }

    /// What Kubernetes knows of a cluster; nobody is asked.
    pub async fn kubernetes_world(
        &self,
        cluster: &ClusterRef,
        source: Source,
    ) -> Result<Option<World>, Error> {
        kubernetes::world(self, cluster, source).await
    }

    /// Whether consistent reads of the cluster and of these nodes, each with its ConfigMap and pod,
    /// give what `world` has. Reads by name are served at once, unlike lists.
    pub async fn confirms(&self, world: &World, nodes: &[&NodeName]) -> Result<bool, Error> {
        kubernetes::confirms(self, world, nodes).await
    }

    /// One node with its ConfigMap and pod; nothing if it does not exist.
    pub async fn node(
        &self,
        namespace: &str,
        name: &NodeName,
        source: Source,
    ) -> Result<Option<NodeFacts>, Error> {
        kubernetes::node(self, namespace, name, source).await
    }
}
