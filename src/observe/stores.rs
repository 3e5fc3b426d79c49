//! One watch a kind, each into a store that every reconcile reads, and the word of what changed.
//! Never watches Secrets: they are read one by one, by name.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, PartialObjectMeta};
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::utils::{Backoff, ResetTimerBackoff};
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;
use tracing::warn;

use crate::api::cluster::ValkeyCluster;
use crate::api::config::ValkeyConfig;
use crate::api::image::ValkeyImage;
use crate::api::node::ValkeyNode;
use crate::api::role::ValkeyRole;
use crate::api::{LABEL_INSTANCE, OWNED_SELECTOR, POD_SELECTOR};
use crate::model::name::{ClusterRef, NodeName};
use crate::observe::lean::{LeanConfigMap, LeanHost, LeanPod};

/// Objects a page when a kind is listed: a page is the largest piece of JSON held at once.
const PAGE_SIZE: u32 = 50;
/// Every kind is listed anew so often: an event that an API server lost is missed for no longer.
const RELIST: Duration = Duration::from_mins(10);
/// After a watch failed.
const RETRY_MIN: Duration = Duration::from_millis(200);
/// After it failed again and again: eight requests in as long are no load for an API server, and a
/// cluster waits no longer than that once it is back.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// A watch that went well for as long starts again with the shortest pause.
const RETRY_RESET: Duration = Duration::from_mins(1);

/// What the watches have seen so far.
#[derive(Clone)]
pub struct Stores {
    /// Every `ValkeyCluster`.
    pub clusters: Store<ValkeyCluster>,
    /// Every `ValkeyNode`.
    pub nodes: Store<ValkeyNode>,
    /// Every Valkey pod.
    pub pods: Store<LeanPod>,
    /// Every ConfigMap of ours.
    pub config_maps: Store<LeanConfigMap>,
    /// Every Service of ours.
    pub services: Store<PartialObjectMeta<Service>>,
    /// Every machine. Not waited for: until it is filled nothing is known of machines.
    pub hosts: Store<LeanHost>,
    /// Every `ValkeyConfig`.
    pub configs: Store<ValkeyConfig>,
    /// Every `ValkeyImage`.
    pub images: Store<ValkeyImage>,
    /// Every `ValkeyRole`.
    pub roles: Store<ValkeyRole>,
}

/// A node, by namespace and name.
pub type NodeRef = (String, NodeName);

/// Which clusters and nodes something happened to. Deletions are told too.
pub struct Changes {
    /// Clusters to look at.
    pub clusters: UnboundedReceiver<ClusterRef>,
    /// Nodes to look at.
    pub nodes: UnboundedReceiver<NodeRef>,
}

/// Starts all watches and waits until every store has been filled once.
pub async fn start(client: &Client) -> (Stores, Changes) {
    let (cluster_changed, clusters) = unbounded_channel();
    let (node_changed, nodes) = unbounded_channel();
    let ours = Config::default().labels(OWNED_SELECTOR);
    let told = cluster_changed.clone();
    let cluster_store = watch(client, Config::default(), move |cluster: &ValkeyCluster| {
        tell(&told, cluster.namespace(), Some(cluster.name_any()));
    });
    let (told, node_told) = (cluster_changed.clone(), node_changed.clone());
    let node_store = watch(client, Config::default(), move |node: &ValkeyNode| {
        tell(
            &told,
            node.namespace(),
            Some(node.spec.cluster_name.clone()),
        );
        tell_node(&node_told, node.namespace(), Some(node.name_any()));
    });
    let (told, node_told) = (cluster_changed.clone(), node_changed.clone());
    let pod_store = watch(
        client,
        Config::default().labels(POD_SELECTOR),
        move |pod: &LeanPod| {
            tell(&told, pod.namespace(), instance(pod));
            tell_node(&node_told, pod.namespace(), Some(pod.name_any()));
        },
    );
    let (told, node_told) = (cluster_changed.clone(), node_changed);
    let config_map_store = watch(client, ours.clone(), move |map: &LeanConfigMap| {
        tell(&told, map.namespace(), instance(map));
        let node = map.name_any().strip_suffix("-config").map(str::to_owned);
        tell_node(&node_told, map.namespace(), node);
    });
    let told = cluster_changed.clone();
    let services = watch(client, ours, move |service: &PartialObjectMeta<Service>| {
        tell(&told, service.namespace(), instance(service));
    });
    let (told, pods) = (cluster_changed.clone(), pod_store.clone());
    let hosts = watch(client, Config::default(), move |host: &LeanHost| {
        let name = host.name_any();
        for pod in pods.state_filter(|pod: &LeanPod| pod.host() == Some(&name)) {
            tell(&told, pod.namespace(), instance(pod.as_ref()));
        }
    });
    let stores = Stores {
        hosts,
        configs: watch_menu(client, &cluster_changed, &cluster_store),
        images: watch_menu(client, &cluster_changed, &cluster_store),
        roles: watch_menu(client, &cluster_changed, &cluster_store),
        clusters: cluster_store,
        nodes: node_store,
        pods: pod_store,
        config_maps: config_map_store,
        services,
    };
    filled(&stores).await;
    (stores, Changes { clusters, nodes })
}

/// An edit of the menu is told to every cluster: which one it reaches is found out by resolving.
fn watch_menu<K>(
    client: &Client,
    changed: &UnboundedSender<ClusterRef>,
    clusters: &Store<ValkeyCluster>,
) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (told, clusters) = (changed.clone(), clusters.clone());
    watch(client, Config::default(), move |_: &K| {
        for cluster in clusters.state() {
            tell(&told, cluster.namespace(), Some(cluster.name_any()));
        }
    })
}

/// Follows a kind for as long as the process lives.
fn watch<K>(client: &Client, config: Config, changed: impl Fn(&K) + Send + 'static) -> Store<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone + Send + Sync,
{
    let (store, writer) = reflector::store();
    let api: Api<DeserializeGuard<K>> = Api::all(client.clone());
    let (kept, known) = (store.clone(), store.clone());
    let config = config.page_size(PAGE_SIZE);
    let events =
        stream::repeat_with(move || watcher(api.clone(), config.clone()).take_until(sleep(RELIST)))
            .flatten()
            .backoff(ResetTimerBackoff::new(Retry::default(), RETRY_RESET))
            .filter_map(move |event| {
                let readable = event.map(|event| readable(&kept, event)).transpose();
                std::future::ready(readable)
            })
            .modify(|object| object.managed_fields_mut().clear())
            .reflect(writer);
    tokio::spawn(events.for_each(move |event| {
        match event {
            Ok(Event::Apply(object) | Event::Delete(object)) => changed(&object),
            Ok(Event::InitApply(object)) => {
                // The store is as it was until the whole list is there.
                if !has(&known, &object) {
                    changed(&object);
                }
            }
            Ok(Event::Init | Event::InitDone) => {}
            Err(error) => {
                let kind = K::kind(&K::DynamicType::default()).into_owned();
                warn!(
                    kind,
                    error = &error as &dyn std::error::Error,
                    "watch failed, will retry"
                );
            }
        }
        std::future::ready(())
    }));
    store
}

/// Whether a store has this very version of an object.
fn has<K>(store: &Store<K>, object: &K) -> bool
where
    K: Resource + Clone + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    let known = store.get(&ObjectRef::from_obj(object));
    known.is_some_and(|known| known.resource_version() == object.resource_version())
}

/// An object that this release cannot read, because its kind was edited by hand or is another
/// release's, is as good as absent until it can be: it must not keep the others from being read.
fn readable<K>(store: &Store<K>, event: Event<DeserializeGuard<K>>) -> Option<Event<K>>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    let read = |guard: DeserializeGuard<K>| guard.0.map_err(|invalid| gone(store, invalid));
    match event {
        Event::Init => Some(Event::Init),
        Event::InitDone => Some(Event::InitDone),
        Event::InitApply(guard) => read(guard).ok().map(Event::InitApply),
        Event::Apply(guard) => {
            read(guard).map_or_else(|gone| gone, |read| Some(Event::Apply(read)))
        }
        Event::Delete(guard) => {
            read(guard).map_or_else(|gone| gone, |read| Some(Event::Delete(read)))
        }
    }
}

/// Says what cannot be read; the end of what it was when it still could.
fn gone<K>(store: &Store<K>, invalid: InvalidObject) -> Option<Event<K>>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    let (name, namespace) = (invalid.metadata.name?, invalid.metadata.namespace);
    warn!(
        kind = %K::kind(&K::DynamicType::default()),
        name,
        namespace,
        error = invalid.error,
        "an object cannot be read and is taken for absent"
    );
    let mut reference = ObjectRef::new(&name);
    reference.namespace = namespace;
    store
        .get(&reference)
        .map(|known| Event::Delete(K::clone(&known)))
}

/// Pauses that double. Without chance: the few watches of one process are no crowd.
struct Retry(Duration);

impl Default for Retry {
    fn default() -> Self {
        Self(RETRY_MIN)
    }
}

impl Iterator for Retry {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.0;
        self.0 = (pause * 2).min(RETRY_MAX);
        Some(pause)
    }
}

impl Backoff for Retry {
    fn reset(&mut self) {
        *self = Self::default();
    }
}

fn instance(object: &impl Resource) -> Option<String> {
    object.meta().labels.as_ref()?.get(LABEL_INSTANCE).cloned()
}

fn tell(to: &UnboundedSender<ClusterRef>, namespace: Option<String>, name: Option<String>) {
    if let (Some(namespace), Some(name)) = (namespace, name) {
        // Nobody listens any more only while the process stops.
        to.send(ClusterRef { namespace, name }).ok();
    }
}

fn tell_node(to: &UnboundedSender<NodeRef>, namespace: Option<String>, name: Option<String>) {
    if let (Some(namespace), Some(name)) = (namespace, name) {
        to.send((namespace, NodeName::new(name))).ok();
    }
}

async fn filled(stores: &Stores) {
    let Stores {
        clusters,
        nodes,
        pods,
        config_maps,
        services,
        hosts: _,
        configs,
        images,
        roles,
    } = stores;
    let filled = tokio::join!(
        clusters.wait_until_ready(),
        nodes.wait_until_ready(),
        pods.wait_until_ready(),
        config_maps.wait_until_ready(),
        services.wait_until_ready(),
        configs.wait_until_ready(),
        images.wait_until_ready(),
        roles.wait_until_ready(),
    );
    let results = <[_; 8]>::from(filled);
    if results.iter().any(Result::is_err) {
        warn!("a watch ended before its store was filled");
    }
}
