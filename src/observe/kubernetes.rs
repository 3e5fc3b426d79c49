//! The Kubernetes half of a World: from the stores, or from the API server with consistent reads.
//! Never adopts: an object with a name of ours that we do not own is Foreign.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::slice;
use std::sync::Arc;

use futures::future::try_join_all;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::api::{Api, ListParams, PartialObjectMeta};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use crate::api::cluster::ValkeyCluster;
use crate::api::config::ValkeyConfig;
use crate::api::image::ValkeyImage;
use crate::api::node::{JoinType, Lifecycle, ValkeyNode, ValkeyNodeSpec};
use crate::api::role::ValkeyRole;
use crate::api::{
    ACL_KEY, ANNOTATION_PAUSED, ANNOTATION_POD_UID, ANNOTATION_SETTINGS_DIGEST, AUTH_KEY_OPERATOR,
    AUTH_KEY_REPL, FINALIZER_AUTH, FINALIZER_CLUSTER, FINALIZER_NODE, LABEL_INSTANCE,
    LABEL_JOIN_TYPE, LABEL_SHARD_INDEX, POD_SELECTOR, TLS_KEY_AUTHORITIES, TLS_KEY_CERTIFICATE,
    TLS_KEY_FORMER_AUTHORITIES, TLS_KEY_PRIVATE_KEY,
};
use crate::model::name::{ClusterRef, NodeName, Uid};
use crate::model::redacted::Redacted;
use crate::model::tls::{File, TlsFiles};
use crate::model::world::{
    AclInUse, Auth, ClusterFacts, Host, Keeping, Kept, Menu, NodeFacts, PodSighting, Sighting,
    TlsInUse, TlsSecret, World,
};
use crate::observe::lean::{LeanConfigMap, LeanPod};
use crate::observe::stores::Stores;
use crate::observe::{Error, Reader, Source};

/// A cluster as Kubernetes knows it; nothing if it does not exist.
pub(super) async fn world(
    reader: &Reader,
    key: &ClusterRef,
    source: Source,
) -> Result<Option<World>, Error> {
    let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
    let acl_name = key.acl_config_map_name();
    let stores = &reader.stores;
    let (cluster, nodes, pods, service, acl, auth) = tokio::join!(
        one(reader, &stores.clusters, source, (namespace, name)),
        many(
            reader,
            &stores.nodes,
            source,
            namespace,
            format!("{LABEL_INSTANCE}={name}")
        ),
        many(reader, &stores.pods, source, namespace, pods_of(name)),
        one(reader, &stores.services, source, (namespace, name)),
        one(
            reader,
            &stores.config_maps,
            source,
            (namespace, acl_name.as_str())
        ),
        auth_secret(reader, key, source),
    );
    let Some(cluster) = cluster? else {
        reader.kept_secrets().remove(key);
        reader.kept_tls().remove(key);
        reader.acl_refusals().remove(key);
        return Ok(None);
    };
    let cluster = cluster_facts(key, &cluster)?;
    let (tls_secret, tls) = match &cluster.spec.tls {
        // A cluster that is going needs none, and waits for none.
        Some(tls) if !cluster.deleting && source != Source::StoresAlone => {
            let read = tls_secrets(reader, &cluster, &tls.secret_ref, source).await?;
            (Some(read.secret), read.in_use)
        }
        Some(_) | None => (None, Keeping::Absent),
    };
    let nodes = nodes?;
    let mut pods = pods?;
    if source == Source::Live && lacks_a_stamped_pod(&nodes, &pods) {
        pods = many(reader, &stores.pods, source, namespace, pods_of(name)).await?;
    }
    let kept = Kept {
        service: keeping(service?, &cluster.uid, |_: &PartialObjectMeta<Service>| ()),
        auth: auth?.map_or(Keeping::Absent, |secret| auth_facts(&secret, &cluster.uid)),
        acl: keeping(acl?, &cluster.uid, |map: &LeanConfigMap| AclInUse {
            uid: Uid::new(map.uid().unwrap_or_default()),
            digest: map.data.get(ACL_KEY).cloned().unwrap_or_default(),
        }),
        tls,
    };
    Ok(Some(World {
        now: (reader.clock)(),
        menu: menu(&stores.configs, &stores.images, &stores.roles),
        kept,
        tls_secret,
        strays: strays(stores, &nodes, &pods),
        acl_refusal: reader.acl_refusals().get(key).cloned(),
        nodes: all_nodes(stores, &cluster, &nodes, &pods)?,
        default_zone_spread: reader.default_zone_spread,
        cluster,
    }))
}

fn pods_of(cluster: &str) -> String {
    format!("{POD_SELECTOR},{LABEL_INSTANCE}={cluster}")
}

/// The pods may have been read before the nodes: one made and stamped in between would look gone, and
/// its node dead. Pods that are read after the stamp was seen have it, or it is gone.
fn lacks_a_stamped_pod(nodes: &[Arc<ValkeyNode>], pods: &[Arc<LeanPod>]) -> bool {
    nodes.iter().any(|node| {
        let stamp = node.annotations().get(ANNOTATION_POD_UID);
        stamp.is_some() && !pods.iter().any(|pod| pod.uid().as_ref() == stamp)
    })
}

/// The nodes that a cluster owns, each with its pod.
fn all_nodes(
    stores: &Stores,
    cluster: &ClusterFacts,
    nodes: &[Arc<ValkeyNode>],
    pods: &[Arc<LeanPod>],
) -> Result<BTreeMap<NodeName, NodeFacts>, Error> {
    let pods: BTreeMap<String, &LeanPod> = pods
        .iter()
        .map(|pod| (pod.name_any(), pod.as_ref()))
        .collect();
    let owned = nodes
        .iter()
        .filter(|node| owned_by(node.as_ref(), &cluster.uid));
    let facts = owned.map(|node| {
        let config_map = reference(
            &cluster.key.namespace,
            &NodeName::new(node.name_any()).config_map_name(),
        );
        let config_map = stores.config_maps.get(&config_map);
        let pod = pods.get(&node.name_any()).copied();
        node_facts(stores, node, config_map, pod)
    });
    facts
        .map(|facts| facts.map(|node| (node.name.clone(), node)))
        .collect()
}

/// One node with its ConfigMap and pod, as Kubernetes knows them.
pub(super) async fn node(
    reader: &Reader,
    namespace: &str,
    name: &NodeName,
    source: Source,
) -> Result<Option<NodeFacts>, Error> {
    let config_name = name.config_map_name();
    let stores = &reader.stores;
    let pod = one(reader, &stores.pods, source, (namespace, name.as_str()));
    let config_map = one(
        reader,
        &stores.config_maps,
        source,
        (namespace, config_name.as_str()),
    );
    let (pod, config_map) = tokio::join!(pod, config_map);
    let (mut pod, config_map) = (pod?, config_map?);
    // After its pod: one that came and went meanwhile would look as if there had never been any.
    let node = one(reader, &stores.nodes, source, (namespace, name.as_str())).await?;
    let Some(node) = node else {
        return Ok(None);
    };
    if lacks_a_stamped_pod(slice::from_ref(&node), pod.as_slice()) {
        pod = one(reader, &stores.pods, source, (namespace, name.as_str())).await?;
    }
    node_facts(stores, &node, config_map, pod.as_deref()).map(Some)
}

/// Whether the API server has the cluster and these nodes as the World has them.
pub(super) async fn confirms(
    reader: &Reader,
    world: &World,
    nodes: &[&NodeName],
) -> Result<bool, Error> {
    let key = &world.cluster.key;
    let (namespace, stores) = (key.namespace.as_str(), &reader.stores);
    let reads = nodes
        .iter()
        .map(|name| node(reader, namespace, name, Source::Live));
    let (cluster, fresh) = tokio::join!(
        one(
            reader,
            &stores.clusters,
            Source::Live,
            (namespace, &key.name)
        ),
        try_join_all(reads),
    );
    let Some(cluster) = cluster? else {
        return Ok(false);
    };
    let same = fresh?.into_iter().zip(nodes).all(|(fresh, name)| {
        // Nobody was asked again: what the processes said is of this tick already.
        fresh
            .zip(world.nodes.get(name))
            .is_some_and(|(mut fresh, seen)| {
                fresh.sighting = seen.sighting.clone();
                fresh == *seen
            })
    });
    Ok(same && cluster_facts(key, &cluster)? == world.cluster)
}

fn reference<K: Resource<DynamicType = ()>>(namespace: &str, name: &str) -> ObjectRef<K> {
    ObjectRef::new(name).within(namespace)
}

/// One object by namespace and name.
async fn one<K>(
    reader: &Reader,
    store: &Store<K>,
    source: Source,
    (namespace, name): (&str, &str),
) -> Result<Option<Arc<K>>, Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    if source != Source::Live {
        return Ok(store.get(&reference(namespace, name)));
    }
    let api: Api<K> = Api::namespaced(reader.client.clone(), namespace);
    let object = api
        .get_opt(name)
        .await
        .map_err(|source| read_error::<K>(name, source))?;
    Ok(object.map(Arc::new))
}

/// The objects of one namespace with these labels.
async fn many<K>(
    reader: &Reader,
    store: &Store<K>,
    source: Source,
    namespace: &str,
    labels: String,
) -> Result<Vec<Arc<K>>, Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    if source != Source::Live {
        let instance = labels
            .rsplit_once('=')
            .map(|(_, instance)| instance.to_owned());
        return Ok(store.state_filter(|object: &K| {
            let meta = object.meta();
            meta.namespace.as_deref() == Some(namespace)
                && meta
                    .labels
                    .as_ref()
                    .and_then(|labels| labels.get(LABEL_INSTANCE))
                    == instance.as_ref()
        }));
    }
    let api: Api<K> = Api::namespaced(reader.client.clone(), namespace);
    let list = api
        .list(&ListParams::default().labels(&labels))
        .await
        .map_err(|source| read_error::<K>(&labels, source))?;
    Ok(list.items.into_iter().map(Arc::new).collect())
}

/// The auth Secret. Secrets are not watched, so that the operator need not be allowed to list them;
/// this one is immutable, so that what was read once serves every tick that writes nothing.
async fn auth_secret(
    reader: &Reader,
    cluster: &ClusterRef,
    source: Source,
) -> Result<Option<Secret>, Error> {
    if source == Source::StoresAlone {
        return Ok(None);
    }
    let owner = reader
        .stores
        .clusters
        .get(&reference(&cluster.namespace, &cluster.name));
    let owner = owner.and_then(|cluster| uid_of(cluster.as_ref()).ok());
    if source == Source::Stores
        && let Some(secret) = reader.kept_secrets().get(cluster)
        && owner.is_some_and(|owner| owned_by(secret, &owner))
    {
        return Ok(Some(secret.clone()));
    }
    let read = secret_named(reader, &cluster.namespace, &cluster.auth_secret_name()).await?;
    let mut kept = reader.kept_secrets();
    match &read {
        Some(secret) => kept.insert(cluster.clone(), secret.clone()),
        None => kept.remove(cluster),
    };
    Ok(read)
}

async fn secret_named(
    reader: &Reader,
    namespace: &str,
    name: &str,
) -> Result<Option<Secret>, Error> {
    let api: Api<Secret> = Api::namespaced(reader.client.clone(), namespace);
    api.get_opt(name)
        .await
        .map_err(|source| read_error::<Secret>(name, source))
}

/// How old what is known of TLS Secrets may be in a tick that writes nothing. They are not watched:
/// this is how late a change of one is noticed where ticks are frequent, and what keeps those from
/// asking each time.
const TLS_AGE_SECONDS_MAX: i64 = 5;

/// The user's TLS Secret and the operator's own, as they were.
#[derive(Clone)]
pub(super) struct TlsRead {
    at: i64,
    owner: Uid,
    name: String,
    secret: TlsSecret,
    in_use: Keeping<TlsInUse>,
}

async fn tls_secrets(
    reader: &Reader,
    cluster: &ClusterFacts,
    name: &str,
    source: Source,
) -> Result<TlsRead, Error> {
    let (key, now) = (&cluster.key, (reader.clock)());
    if source == Source::Stores
        && let Some(read) = reader.kept_tls().get(key)
        && read.owner == cluster.uid
        && read.name == name
        && (0..TLS_AGE_SECONDS_MAX).contains(&(now - read.at))
    {
        return Ok(read.clone());
    }
    let own = key.tls_secret_name();
    let (secret, in_use) = tokio::join!(
        secret_named(reader, &key.namespace, name),
        secret_named(reader, &key.namespace, &own),
    );
    let read = TlsRead {
        at: now,
        owner: cluster.uid.clone(),
        name: name.to_owned(),
        secret: tls_secret(secret?),
        in_use: keeping(in_use?.map(Arc::new), &cluster.uid, tls_in_use),
    };
    reader.kept_tls().insert(key.clone(), read.clone());
    Ok(read)
}

fn tls_secret(secret: Option<Secret>) -> TlsSecret {
    let Some(secret) = secret else {
        return TlsSecret::Absent;
    };
    let mut data = secret.data.unwrap_or_default();
    if data.is_empty() {
        return TlsSecret::Empty;
    }
    let keys = [
        TLS_KEY_CERTIFICATE,
        TLS_KEY_PRIVATE_KEY,
        TLS_KEY_AUTHORITIES,
    ];
    let files = keys.into_iter().filter_map(|key| {
        let ByteString(bytes) = data.remove(key)?;
        Some((key, File::new(bytes)))
    });
    TlsSecret::Holding(files.collect())
}

/// What is missing in a Secret of ours is as good as empty: it differs from what should be there.
fn tls_in_use(secret: &Secret) -> TlsInUse {
    let file = |key: &str| {
        let content = secret.data.as_ref().and_then(|data| data.get(key));
        File::new(
            content
                .map(|ByteString(bytes)| bytes.clone())
                .unwrap_or_default(),
        )
    };
    TlsInUse {
        uid: Uid::new(secret.uid().unwrap_or_default()),
        files: TlsFiles {
            certificate: file(TLS_KEY_CERTIFICATE),
            key: file(TLS_KEY_PRIVATE_KEY),
            authorities: file(TLS_KEY_AUTHORITIES),
        },
        former_authorities: file(TLS_KEY_FORMER_AUTHORITIES),
    }
}

pub(super) fn read_error<K: Resource<DynamicType = ()>>(name: &str, source: kube::Error) -> Error {
    let kind = match K::kind(&()) {
        std::borrow::Cow::Borrowed(kind) => kind,
        std::borrow::Cow::Owned(_) => "object",
    };
    Error::Read {
        kind,
        name: name.to_owned(),
        source: Box::new(source),
    }
}

/// The menu as the stores have it.
pub(super) fn menu(
    configs: &Store<ValkeyConfig>,
    images: &Store<ValkeyImage>,
    roles: &Store<ValkeyRole>,
) -> Menu {
    Menu {
        configs: named(configs, |config| config.spec.clone()),
        images: named(images, |image| image.spec.clone()),
        roles: named(roles, |role| role.spec.clone()),
    }
}

fn named<K, S>(store: &Store<K>, spec: impl Fn(&K) -> S) -> BTreeMap<String, S>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store
        .state()
        .iter()
        .map(|object| (object.name_any(), spec(object)))
        .collect()
}

fn uid_of<K: Resource<DynamicType = ()>>(object: &K) -> Result<Uid, Error> {
    object
        .meta()
        .uid
        .clone()
        .map(Uid::new)
        .ok_or_else(|| Error::Incomplete {
            kind: "object",
            name: object.name_any(),
            field: "metadata.uid",
        })
}

fn has_finalizer(object: &impl Resource, finalizer: &str) -> bool {
    object
        .meta()
        .finalizers
        .iter()
        .flatten()
        .any(|held| held == finalizer)
}

/// Those that Kubernetes puts on what is deleted with `--cascade`, and takes off by itself.
const FINALIZERS_OF_KUBERNETES: [&str; 2] = ["foregroundDeletion", "orphan"];

fn foreign_finalizer(node: &ValkeyNode) -> Option<String> {
    let mut finalizers = node.finalizers().iter();
    let foreign = finalizers
        .find(|one| *one != FINALIZER_NODE && !FINALIZERS_OF_KUBERNETES.contains(&one.as_str()));
    foreign.cloned()
}

fn owned_by(object: &impl Resource, owner: &Uid) -> bool {
    object
        .meta()
        .owner_references
        .iter()
        .flatten()
        .any(|held| held.uid == owner.as_str())
}

fn keeping<K: Resource, T>(
    object: Option<Arc<K>>,
    owner: &Uid,
    content: impl FnOnce(&K) -> T,
) -> Keeping<T> {
    match object {
        None => Keeping::Absent,
        Some(object) if owned_by(object.as_ref(), owner) => Keeping::Ours(content(&object)),
        Some(_) => Keeping::Foreign,
    }
}

fn cluster_facts(key: &ClusterRef, cluster: &ValkeyCluster) -> Result<ClusterFacts, Error> {
    Ok(ClusterFacts {
        key: key.clone(),
        uid: uid_of(cluster)?,
        spec: cluster.spec.clone(),
        status: cluster.status.clone().unwrap_or_default(),
        deleting: cluster.metadata.deletion_timestamp.is_some(),
        finalizer: has_finalizer(cluster, FINALIZER_CLUSTER),
        paused: cluster
            .annotations()
            .get(ANNOTATION_PAUSED)
            .is_some_and(|value| value == "true"),
    })
}

/// A Secret of ours always holds both passwords; one that does not is as good as somebody else's.
fn auth_facts(secret: &Secret, owner: &Uid) -> Keeping<Auth> {
    let password = |key: &str| {
        let ByteString(bytes) = secret.data.as_ref()?.get(key)?;
        String::from_utf8(bytes.clone()).ok().map(Redacted::new)
    };
    match (password(AUTH_KEY_OPERATOR), password(AUTH_KEY_REPL)) {
        (Some(operator), Some(repl)) if owned_by(secret, owner) => Keeping::Ours(Auth {
            operator,
            repl,
            finalizer: has_finalizer(secret, FINALIZER_AUTH),
        }),
        _ => Keeping::Foreign,
    }
}

/// Pods of the cluster whose node is gone: their processes may live for as long as they are given
/// to end, or longer on a lost machine.
fn strays(
    stores: &Stores,
    nodes: &[Arc<ValkeyNode>],
    pods: &[Arc<LeanPod>],
) -> BTreeMap<NodeName, NodeFacts> {
    let known: BTreeSet<String> = nodes.iter().map(|node| node.name_any()).collect();
    let made = |pod: &LeanPod| {
        let mut owners = pod.owner_references().iter();
        owners.any(|owner| owner.kind == ValkeyNode::kind(&()))
    };
    let strays = pods
        .iter()
        .filter(|pod| made(pod) && !known.contains(&pod.name_any()));
    let facts = strays.filter_map(|pod| {
        let facts = pod.facts(host(stores, pod))?;
        let label = pod.labels().get(LABEL_SHARD_INDEX)?;
        let spec = ValkeyNodeSpec {
            shard_index: label.parse().ok()?,
            lifecycle: Lifecycle::Leaving,
            ..ValkeyNodeSpec::default()
        };
        let name = NodeName::new(pod.name_any());
        let node = NodeFacts {
            name: name.clone(),
            uid: facts.uid.clone(),
            spec,
            deleting: true,
            finalizer: false,
            foreign_finalizer: None,
            stamp: Some(facts.uid.clone()),
            join: None,
            settings_digest: None,
            config_map: Keeping::Absent,
            pod: PodSighting::Present(facts),
            sighting: Sighting::NotAsked,
        };
        Some((name, node))
    });
    facts.collect()
}

/// What is known of a pod's machine: nothing while no machine at all is known.
fn host(stores: &Stores, pod: &LeanPod) -> Host {
    let Some(name) = pod.host() else {
        return Host::Unknown;
    };
    match stores.hosts.get(&ObjectRef::new(name)) {
        Some(host) => host.state(),
        None if stores.hosts.is_empty() => Host::Unknown,
        None => Host::Gone,
    }
}

fn node_facts(
    stores: &Stores,
    node: &ValkeyNode,
    config_map: Option<Arc<LeanConfigMap>>,
    pod: Option<&LeanPod>,
) -> Result<NodeFacts, Error> {
    let uid = uid_of(node)?;
    Ok(NodeFacts {
        name: NodeName::new(node.name_any()),
        spec: node.spec.clone(),
        deleting: node.metadata.deletion_timestamp.is_some(),
        finalizer: has_finalizer(node, FINALIZER_NODE),
        foreign_finalizer: foreign_finalizer(node),
        stamp: node.annotations().get(ANNOTATION_POD_UID).map(Uid::new),
        join: node
            .labels()
            .get(LABEL_JOIN_TYPE)
            .and_then(|label| JoinType::of(label)),
        settings_digest: node.annotations().get(ANNOTATION_SETTINGS_DIGEST).cloned(),
        config_map: keeping(config_map, &uid, |_| ()),
        pod: match pod {
            None => PodSighting::Absent,
            Some(pod) if owned_by(pod, &uid) => pod
                .facts(host(stores, pod))
                .map_or(PodSighting::Absent, PodSighting::Present),
            Some(_) => PodSighting::Foreign,
        },
        sighting: Sighting::NotAsked,
        uid,
    })
}
