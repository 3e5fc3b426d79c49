//! One look by somebody who is not the operator: lists instead of watches, port-forwards instead of
//! addresses. Never writes, and never fails for what may not be read: that is told beside the World.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::stream;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Event as KubeEvent, Node, Pod, Secret};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{Api, ListParams};
use kube::core::DeserializeGuard;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::io::DuplexStream;

use crate::api::cluster::{ValkeyCluster, ZoneSpread};
use crate::api::config::ValkeyConfig;
use crate::api::node::ValkeyNode;
use crate::api::{LABEL_ZONE, OWNED_SELECTOR, POD_SELECTOR, PORT};
use crate::model::chain;
use crate::model::name::{ClusterRef, NodeName};
use crate::model::world::{Menu, World};
use crate::observe::lean::LeanPod;
use crate::observe::stores::Stores;
use crate::observe::{Error, Reader, Source, kubernetes};
use crate::valkey::client::Connector;

const FORBIDDEN: u16 = 403;

/// What the visitor may not do, so that something is not known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The verb of the request.
    pub verb: &'static str,
    /// The resource, with its subresource.
    pub resource: String,
    /// The one object, where the request names one.
    pub name: Option<String>,
    /// Where; nothing is everywhere.
    pub namespace: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "you may not {} {}", self.verb, self.resource)?;
        if let Some(name) = &self.name {
            write!(f, " {name:?}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace:?}"),
            None => f.write_str(" of the whole cluster"),
        }
    }
}

type Refusals = Arc<Mutex<BTreeSet<Refusal>>>;

/// Pods by address, with their namespaces.
type Doors = Arc<Mutex<BTreeMap<IpAddr, (String, String)>>>;

/// Whoever looks once, or again and again.
#[derive(Clone)]
pub struct Visitor {
    client: Client,
    connector: Connector,
    clock: Arc<dyn Fn() -> i64 + Send + Sync>,
    doors: Doors,
    refusals: Refusals,
}

impl Visitor {
    /// Reaches processes through the API server, from wherever that is reached.
    #[must_use]
    pub fn new(client: Client, clock: Arc<dyn Fn() -> i64 + Send + Sync>) -> Self {
        let (doors, refusals) = (Doors::default(), Refusals::default());
        let forward = Forward {
            client: client.clone(),
            doors: doors.clone(),
            refusals: refusals.clone(),
        };
        let dial = Arc::new(move |address| forward.clone().open(address).boxed());
        Self {
            client,
            connector: Connector::through(PORT, dial),
            clock,
            doors,
            refusals,
        }
    }

    /// Reaches processes by a connector that is there already.
    #[must_use]
    pub fn with_connector(
        client: Client,
        connector: Connector,
        clock: Arc<dyn Fn() -> i64 + Send + Sync>,
    ) -> Self {
        Self {
            client,
            connector,
            clock,
            doors: Doors::default(),
            refusals: Refusals::default(),
        }
    }

    /// Lists the clusters alone, in one namespace or in all; a refusal where that may not be.
    pub async fn clusters(
        &self,
        namespace: Option<&str>,
    ) -> Result<Result<Vec<Arc<ValkeyCluster>>, Refusal>, Error> {
        let lister = Lister::of(&self.client, namespace);
        let clusters = store_of(lister.namespaced("").await?);
        let refused = lister.into_refusals().pop_first();
        Ok(refused.map_or_else(|| Ok(sorted(&clusters)), Err))
    }

    /// Lists the menu alone; refusals where any of it may not be listed.
    pub async fn menu(&self) -> Result<Result<Menu, BTreeSet<Refusal>>, Error> {
        let lister = Lister::of(&self.client, None);
        let (configs, images, roles) = tokio::try_join!(
            lister.everywhere(),
            lister.everywhere(),
            lister.everywhere()
        )?;
        let menu = kubernetes::menu(&store_of(configs), &store_of(images), &store_of(roles));
        let refusals = lister.into_refusals();
        Ok(if refusals.is_empty() {
            Ok(menu)
        } else {
            Err(refusals)
        })
    }

    /// Lists the names of the `ValkeyConfig`s alone; a refusal where that may not be.
    pub async fn config_names(&self) -> Result<Result<Vec<String>, Refusal>, Error> {
        let lister = Lister::of(&self.client, None);
        let configs: Vec<ValkeyConfig> = lister.everywhere().await?;
        let refused = lister.into_refusals().pop_first();
        let mut names: Vec<String> = configs.iter().map(ResourceExt::name_any).collect();
        names.sort();
        Ok(refused.map_or(Ok(names), Err))
    }

    /// Lists all that a World is made of, in one namespace. Of what everybody has, such as Services,
    /// the operator's own is listed, and what could be in its way is read by name.
    pub async fn visit(&self, namespace: &str) -> Result<Visit, Error> {
        let lister = Lister::of(&self.client, Some(namespace));
        // A pod is made before its node is stamped, so pods that are read later hold every stamped
        // one that still is.
        let nodes_then_pods = async {
            let nodes = lister.namespaced("").await?;
            Ok::<_, Error>((nodes, lister.namespaced(POD_SELECTOR).await?))
        };
        let lists = async {
            tokio::join!(
                nodes_then_pods,
                lister.namespaced(""),
                lister.namespaced(OWNED_SELECTOR),
                lister.namespaced(OWNED_SELECTOR),
                lister.everywhere(),
                lister.everywhere(),
                lister.everywhere(),
                lister.everywhere(),
            )
        };
        // On the heap: so many lists at once are a large future.
        let lists = Box::pin(lists).await;
        let (nodes_and_pods, clusters, config_maps, services, hosts, configs, images, roles) =
            lists;
        let (nodes, pods) = nodes_and_pods?;
        let (clusters, mut config_maps, mut services) = (clusters?, config_maps?, services?);
        let keys: Vec<ClusterRef> = clusters.iter().map(key_of).collect();
        let others = async {
            tokio::try_join!(
                lister.add_others(&mut config_maps, config_maps_of(&keys, &nodes)),
                lister.add_others(&mut services, services_of(&keys)),
            )
        };
        Box::pin(others).await?;
        let stores = Stores {
            clusters: store_of(clusters),
            nodes: store_of(nodes),
            pods: store_of(pods),
            config_maps: store_of(config_maps),
            services: store_of(services),
            hosts: store_of(hosts?),
            configs: store_of(configs?),
            images: store_of(images?),
            roles: store_of(roles?),
        };
        self.note_doors(&stores.pods);
        let reader = Reader::new(
            self.client.clone(),
            stores,
            self.connector.clone(),
            self.clock.clone(),
            ZoneSpread::default(),
        );
        Ok(Visit {
            reader,
            refusals: lister.into_refusals(),
            forward_refusals: self.refusals.clone(),
        })
    }

    /// What happened to objects of a namespace lately, as Kubernetes tells it.
    pub async fn events(&self, namespace: &str) -> Result<Vec<KubeEvent>, Error> {
        let api: Api<KubeEvent> = Api::namespaced(self.client.clone(), namespace);
        let list = api.list(&ListParams::default()).await;
        let list = list.map_err(|source| kubernetes::read_error::<KubeEvent>(namespace, source))?;
        Ok(list.items)
    }

    fn note_doors(&self, pods: &Store<LeanPod>) {
        let mut doors = lock(&self.doors);
        for pod in pods.state() {
            // An address that an ended pod had may be another's.
            if let (Some(ip), Some(namespace)) = (pod.running_at(), pod.namespace()) {
                doors.insert(ip, (namespace, pod.name_any()));
            }
        }
    }
}

/// What was listed, and what could not be.
pub struct Visit {
    reader: Reader,
    refusals: BTreeSet<Refusal>,
    forward_refusals: Refusals,
}

/// A cluster as far as the visitor may see it.
#[derive(Debug)]
pub struct Sight {
    /// What is known. Without the auth Secret no process was asked.
    pub world: World,
    /// What is not, and why. Machines apart, the operator would know it.
    pub lacking: Vec<Refusal>,
}

impl Sight {
    /// What the operator knows of the cluster and the visitor does not.
    pub fn gaps(&self) -> impl Iterator<Item = &Refusal> {
        let machines = Node::plural(&());
        let gaps = self.lacking.iter();
        gaps.filter(move |refusal| refusal.resource != machines)
    }
}

/// Where a pod runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The machine that it is bound to.
    pub host: Option<String>,
    /// That machine's zone, where it has one and may be read.
    pub zone: Option<String>,
}

impl Visit {
    /// Every cluster that was listed, by namespace and name.
    #[must_use]
    pub fn clusters(&self) -> Vec<Arc<ValkeyCluster>> {
        sorted(&self.reader.stores.clusters)
    }

    /// The nodes of a cluster, as they were listed.
    #[must_use]
    pub fn nodes(&self, cluster: &ClusterRef) -> Vec<Arc<ValkeyNode>> {
        let nodes = &self.reader.stores.nodes;
        let mut nodes = nodes.state_filter(|node: &ValkeyNode| {
            node.namespace().as_ref() == Some(&cluster.namespace)
                && node.spec.cluster_name == cluster.name
        });
        nodes.sort_by_key(|node| node.name_any());
        nodes
    }

    /// What could not be listed.
    pub fn refusals(&self) -> impl Iterator<Item = &Refusal> {
        self.refusals.iter()
    }

    /// Where a node's pod runs.
    #[must_use]
    pub fn place(&self, namespace: &str, node: &NodeName) -> Place {
        let stores = &self.reader.stores;
        let pod = ObjectRef::new(node.as_str()).within(namespace);
        let pod = stores.pods.get(&pod);
        let host = pod.and_then(|pod| pod.host().map(str::to_owned));
        let machine = host
            .as_ref()
            .and_then(|host| stores.hosts.get(&ObjectRef::new(host)));
        let zone = machine.and_then(|machine| machine.labels().get(LABEL_ZONE).cloned());
        Place { host, zone }
    }

    /// A cluster as it was listed, without Secrets and without asking anybody.
    pub async fn outline(&self, cluster: &ClusterRef) -> Result<Option<World>, Error> {
        let alone = Source::StoresAlone;
        self.reader.kubernetes_world(cluster, alone).await
    }

    /// A cluster with what its processes say, as far as both may be read.
    pub async fn sight(&self, cluster: &ClusterRef) -> Result<Option<Sight>, Error> {
        let mut refusals = self.refusals.clone();
        let world = match self.reader.world(cluster, Source::Stores).await {
            Err(Error::Read { name, source, .. }) if is_status(&source, FORBIDDEN) => {
                refusals.insert(Refusal {
                    verb: "get",
                    resource: Secret::plural(&()).into_owned(),
                    name: Some(name),
                    namespace: Some(cluster.namespace.clone()),
                });
                let alone = Source::StoresAlone;
                self.reader.kubernetes_world(cluster, alone).await?
            }
            world => world?,
        };
        refusals.extend(lock(&self.forward_refusals).iter().cloned());
        Ok(world.map(|world| Sight {
            world,
            lacking: refusals.into_iter().collect(),
        }))
    }
}

/// By namespace and name.
fn sorted(clusters: &Store<ValkeyCluster>) -> Vec<Arc<ValkeyCluster>> {
    let mut clusters = clusters.state();
    clusters.sort_by_key(|cluster| (cluster.namespace(), cluster.name_any()));
    clusters
}

fn key_of(cluster: &ValkeyCluster) -> ClusterRef {
    ClusterRef {
        namespace: cluster.namespace().unwrap_or_default(),
        name: cluster.name_any(),
    }
}

/// A namespace, and a name in it.
type Name = (String, String);

fn services_of(clusters: &[ClusterRef]) -> BTreeSet<Name> {
    let names = clusters.iter();
    names
        .map(|key| (key.namespace.clone(), key.name.clone()))
        .collect()
}

fn config_maps_of(clusters: &[ClusterRef], nodes: &[ValkeyNode]) -> BTreeSet<Name> {
    let acl = clusters
        .iter()
        .map(|key| (key.namespace.clone(), key.acl_config_map_name()));
    let configs = nodes.iter().map(|node| {
        let name = NodeName::new(node.name_any()).config_map_name();
        (node.namespace().unwrap_or_default(), name)
    });
    acl.chain(configs).collect()
}

fn store_of<K>(objects: Vec<K>) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let (store, mut writer) = reflector::store();
    writer.apply_watcher_event(&Event::Init);
    for object in objects {
        writer.apply_watcher_event(&Event::InitApply(object));
    }
    writer.apply_watcher_event(&Event::InitDone);
    store
}

/// Reads by name that are under way at once: few are left to read so, but in a namespace where all is new.
const READS_AT_ONCE: usize = 8;

/// Lists kinds, and notes which of them it may not.
struct Lister<'a> {
    client: &'a Client,
    namespace: Option<&'a str>,
    refusals: Mutex<BTreeSet<Refusal>>,
}

impl<'a> Lister<'a> {
    fn of(client: &'a Client, namespace: Option<&'a str>) -> Self {
        Self {
            client,
            namespace,
            refusals: Mutex::default(),
        }
    }

    fn into_refusals(self) -> BTreeSet<Refusal> {
        let refusals = self.refusals.into_inner();
        refusals.unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what has one of these names and is not in the list of ours: if it is another's, it is in the way.
    async fn add_others<K>(&self, ours: &mut Vec<K>, names: BTreeSet<Name>) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + fmt::Debug
            + DeserializeOwned,
    {
        // Who may not list them was told so; each name besides would say nothing new.
        if lock(&self.refusals)
            .iter()
            .any(|one| one.resource == K::plural(&()))
        {
            return Ok(());
        }
        let known: BTreeSet<Name> = ours
            .iter()
            .map(|object| (object.namespace().unwrap_or_default(), object.name_any()))
            .collect();
        let lacking = names.into_iter().filter(|name| !known.contains(name));
        let others: Vec<Option<K>> = stream::iter(lacking)
            .map(|(namespace, name)| self.named(namespace, name))
            .buffered(READS_AT_ONCE)
            .try_collect()
            .await?;
        ours.extend(others.into_iter().flatten());
        Ok(())
    }

    async fn named<K>(&self, namespace: String, name: String) -> Result<Option<K>, Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + fmt::Debug
            + DeserializeOwned,
    {
        let api: Api<DeserializeGuard<K>> = Api::namespaced(self.client.clone(), &namespace);
        match api.get_opt(&name).await {
            Ok(found) => Ok(found.and_then(|guard| guard.0.ok())),
            Err(error) if is_status(&error, FORBIDDEN) => {
                lock(&self.refusals).insert(Refusal {
                    verb: "get",
                    resource: K::plural(&()).into_owned(),
                    name: Some(name),
                    namespace: Some(namespace),
                });
                Ok(None)
            }
            Err(source) => Err(kubernetes::read_error::<K>(&name, source)),
        }
    }

    async fn namespaced<K>(&self, labels: &str) -> Result<Vec<K>, Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + fmt::Debug
            + DeserializeOwned,
    {
        let client = self.client.clone();
        let api = match self.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        };
        self.list(&api, labels, self.namespace).await
    }

    async fn everywhere<K>(&self) -> Result<Vec<K>, Error>
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope>
            + Clone
            + fmt::Debug
            + DeserializeOwned,
    {
        self.list(&Api::all(self.client.clone()), "", None).await
    }

    async fn list<K>(
        &self,
        api: &Api<DeserializeGuard<K>>,
        labels: &str,
        namespace: Option<&str>,
    ) -> Result<Vec<K>, Error>
    where
        K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned,
    {
        match api.list(&ListParams::default().labels(labels)).await {
            // What this release cannot read is as good as absent, as it is to the operator.
            Ok(list) => Ok(list
                .items
                .into_iter()
                .filter_map(|guard| guard.0.ok())
                .collect()),
            Err(error) if is_status(&error, FORBIDDEN) => {
                lock(&self.refusals).insert(Refusal {
                    verb: "list",
                    resource: K::plural(&()).into_owned(),
                    name: None,
                    namespace: namespace.map(str::to_owned),
                });
                Ok(Vec::new())
            }
            Err(source) => Err(kubernetes::read_error::<K>(labels, source)),
        }
    }
}

/// Opens byte streams to pods through the API server.
#[derive(Clone)]
struct Forward {
    client: Client,
    doors: Doors,
    refusals: Refusals,
}

impl Forward {
    async fn open(self, address: SocketAddr) -> io::Result<DuplexStream> {
        let door = lock(&self.doors).get(&address.ip()).cloned();
        let Some((namespace, name)) = door else {
            return Err(io::Error::other("no running pod has this address"));
        };
        let port = address.port();
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let mut forwarder = api.portforward(&name, &[port]).await.map_err(|error| {
            if is_status(&error, FORBIDDEN) {
                // A WebSocket begins with a GET, and that is what it is judged as.
                lock(&self.refusals).insert(Refusal {
                    verb: "get",
                    resource: "pods/portforward".to_owned(),
                    name: None,
                    namespace: Some(namespace),
                });
            }
            io::Error::other(format!("no port-forward: {}", chain::of(&error)))
        })?;
        forwarder
            .take_stream(port)
            .ok_or_else(|| io::Error::other("the port-forward has no stream"))
    }
}

fn is_status(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// Nothing that is done under a lock can leave its content half changed.
fn lock<T>(content: &Mutex<T>) -> MutexGuard<'_, T> {
    content.lock().unwrap_or_else(PoisonError::into_inner)
}
