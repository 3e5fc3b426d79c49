//! The Kubernetes writes of `perform`. A write that finds its work done already is done.
//! Never sends more than one object's change in a step, but where the contract names the exception.

use futures::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::act::{Error, Writer};
use crate::api::cluster::ValkeyCluster;
use crate::api::node::{JoinType, Lifecycle, ValkeyNode};
use crate::api::{
    ANNOTATION_POD_UID, FINALIZER_AUTH, FINALIZER_CLUSTER, FINALIZER_NODE, LABEL_JOIN_TYPE,
};
use crate::model::desired::{Resolved, Shape};
use crate::model::digest::hex;
use crate::model::name::{NodeName, ShardIndex, Uid};
use crate::model::tls::TlsError;
use crate::model::world::{ClusterFacts, Keeping, NodeFacts, World};
use crate::render;

/// Hex characters behind the cluster's name in the name of a node.
const SUFFIX_CHARACTERS: usize = 5;
/// Who the API server notes as the writer.
pub(super) const FIELD_MANAGER: &str = "valkey-operator";

impl Writer {
    pub(super) async fn add_finalizer(&self, cluster: &ClusterFacts) -> Result<(), Error> {
        let api = self.api::<ValkeyCluster>(&cluster.key.namespace);
        let (verb, name) = ("put the finalizer on", &cluster.key.name);
        edit_finalizers(&api, verb, name, &cluster.uid, |held| {
            if !held.iter().any(|one| one == FINALIZER_CLUSTER) {
                held.push(FINALIZER_CLUSTER.to_owned());
            }
        })
        .await
    }

    pub(super) async fn snapshot(&self, cluster: &ClusterFacts, shape: Shape) -> Result<(), Error> {
        let patch = render::status::snapshot(cluster, shape).map_err(|source| Error::Encode {
            name: cluster.key.name.clone(),
            source,
        })?;
        self.patch_status(cluster, &patch).await
    }

    pub(super) async fn invalidate(
        &self,
        cluster: &ClusterFacts,
        error: &TlsError,
    ) -> Result<(), Error> {
        let patch = render::status::invalidation(&error.to_string());
        self.patch_status(cluster, &patch).await
    }

    /// Nodes first: a cluster that is Active has no Joining node left from its bootstrap.
    pub(super) async fn activate(&self, world: &World, nodes: &[NodeName]) -> Result<(), Error> {
        let api = &self.api::<ValkeyNode>(&world.cluster.key.namespace);
        let seen = nodes.iter().filter_map(|name| world.nodes.get(name));
        let flips = seen.map(|node| turn(api, "activate", node, Lifecycle::Active));
        join_all(flips)
            .await
            .into_iter()
            .collect::<Result<(), Error>>()?;
        self.patch_status(&world.cluster, &render::status::activation())
            .await
    }

    async fn patch_status(
        &self,
        cluster: &ClusterFacts,
        patch: &serde_json::Value,
    ) -> Result<(), Error> {
        let name = &cluster.key.name;
        self.api::<ValkeyCluster>(&cluster.key.namespace)
            .patch_status(name, &params(), &Patch::Merge(patch))
            .await
            .map(drop)
            .map_err(|source| failed::<ValkeyCluster>("patch the status of", name, source))
    }

    pub(super) async fn create_node(
        &self,
        cluster: &ClusterFacts,
        resolved: &Resolved,
        shard: ShardIndex,
        join: Option<JoinType>,
    ) -> Result<NodeName, Error> {
        let mut suffix = hex(&(self.chance)(&cluster.key));
        suffix.truncate(SUFFIX_CHARACTERS);
        let name = cluster.key.node_name(&suffix);
        let node = render::valkey_node::valkey_node(cluster, resolved, shard, &name, join);
        create(&self.api(&cluster.key.namespace), &node)
            .await
            .map(|_: ValkeyNode| name)
    }

    /// The label of a new shard's nodes goes with the join; those of replacements tell for good why
    /// they are there.
    pub(super) async fn complete_join(
        &self,
        cluster: &ClusterFacts,
        node: &NodeFacts,
    ) -> Result<(), Error> {
        let labels = match node.join {
            Some(JoinType::Shard) => json!({LABEL_JOIN_TYPE: null}),
            Some(JoinType::Replica | JoinType::Primary) | None => json!({}),
        };
        let patch = json!({
            "metadata": {"uid": node.uid.as_str(), "labels": labels},
            "spec": {"lifecycle": Lifecycle::Active},
        });
        let api = self.api::<ValkeyNode>(&cluster.key.namespace);
        merge(&api, "activate", node.name.as_str(), &patch).await
    }

    pub(super) async fn leave(
        &self,
        cluster: &ClusterFacts,
        node: &NodeFacts,
    ) -> Result<(), Error> {
        let api = self.api::<ValkeyNode>(&cluster.key.namespace);
        turn(&api, "send off", node, Lifecycle::Leaving).await
    }

    pub(super) async fn delete_node(
        &self,
        cluster: &ClusterFacts,
        node: &NodeFacts,
    ) -> Result<(), Error> {
        let api = self.api::<ValkeyNode>(&cluster.key.namespace);
        delete(&api, node.name.as_str(), &node.uid).await
    }

    pub(super) async fn delete_all_nodes(&self, world: &World) -> Result<(), Error> {
        let staying = world.nodes.values().filter(|node| !node.deleting);
        let deletions = staying.map(|node| self.delete_node(&world.cluster, node));
        join_all(deletions).await.into_iter().collect()
    }

    /// The Secret first: once the cluster is gone nobody would come back for it.
    pub(super) async fn release_cluster(&self, world: &World) -> Result<(), Error> {
        let key = &world.cluster.key;
        if let Keeping::Ours(auth) = &world.kept.auth
            && auth.finalizer
        {
            let (api, name) = (self.api::<Secret>(&key.namespace), key.auth_secret_name());
            release(&api, &name, &world.cluster.uid, FINALIZER_AUTH).await?;
        }
        let api = self.api::<ValkeyCluster>(&key.namespace);
        release(&api, &key.name, &world.cluster.uid, FINALIZER_CLUSTER).await
    }

    pub(super) async fn create_config_map(
        &self,
        cluster: &ClusterFacts,
        node: &NodeFacts,
    ) -> Result<(), Error> {
        let map = render::valkey_conf::config_map(cluster, node);
        create(&self.api(&cluster.key.namespace), &map)
            .await
            .map(|_: ConfigMap| ())
    }

    /// The next tick stamps the pod's uid on the node; until then the node is introduced to nobody.
    pub(super) async fn create_pod(
        &self,
        world: &World,
        resolved: &Resolved,
        node: &NodeFacts,
    ) -> Result<(), Error> {
        let pod = render::pod::pod(&world.cluster, node, resolved, self.pod_policy);
        create(&self.api(&world.cluster.key.namespace), &pod)
            .await
            .map(|_: Pod| ())
    }

    pub(super) async fn stamp(
        &self,
        namespace: &str,
        node: &NodeFacts,
        pod: &Uid,
    ) -> Result<(), Error> {
        let patch = json!({"metadata": {
            "uid": node.uid.as_str(),
            "annotations": {ANNOTATION_POD_UID: pod.as_str()},
        }});
        merge(
            &self.api::<ValkeyNode>(namespace),
            "stamp",
            node.name.as_str(),
            &patch,
        )
        .await
    }

    pub(super) async fn delete_pod(
        &self,
        namespace: &str,
        node: &NodeFacts,
        pod: &Uid,
    ) -> Result<(), Error> {
        delete(&self.api::<Pod>(namespace), node.name.as_str(), pod).await
    }

    pub(super) async fn release_node(
        &self,
        namespace: &str,
        node: &NodeFacts,
    ) -> Result<(), Error> {
        let api = self.api::<ValkeyNode>(namespace);
        release(&api, node.name.as_str(), &node.uid, FINALIZER_NODE).await
    }

    pub(super) fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }
}

pub(super) fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

pub(super) fn failed<K: Resource<DynamicType = ()>>(
    verb: &'static str,
    name: &str,
    source: kube::Error,
) -> Error {
    let kind = match K::kind(&()) {
        std::borrow::Cow::Borrowed(kind) => kind,
        std::borrow::Cow::Owned(_) => "object",
    };
    Error::Write {
        verb,
        kind,
        name: name.to_owned(),
        source: Box::new(source),
    }
}

pub(super) async fn create<K>(api: &Api<K>, object: &K) -> Result<K, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let created = api.create(&params, object).await;
    created.map_err(|source| failed::<K>("create", &object.name_any(), source))
}

pub(super) async fn merge<K>(
    api: &Api<K>,
    verb: &'static str,
    name: &str,
    patch: &serde_json::Value,
) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let patched = api.patch(name, &params(), &Patch::Merge(patch)).await;
    patched
        .map(drop)
        .map_err(|source| failed::<K>(verb, name, source))
}

/// The next step of a node's life, for the very node that was seen.
async fn turn(
    api: &Api<ValkeyNode>,
    verb: &'static str,
    node: &NodeFacts,
    lifecycle: Lifecycle,
) -> Result<(), Error> {
    let patch = json!({
        "metadata": {"uid": node.uid.as_str()},
        "spec": {"lifecycle": lifecycle},
    });
    merge(api, verb, node.name.as_str(), &patch).await
}

/// Deletes the very object that was seen, never one made under its name since.
async fn delete<K>(api: &Api<K>, name: &str, uid: &Uid) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.as_str().to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(source) => Err(failed::<K>("delete", name, source)),
    }
}

/// Takes one finalizer off. An object that is gone was let go.
async fn release<K>(api: &Api<K>, name: &str, seen: &Uid, finalizer: &str) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    edit_finalizers(api, "release", name, seen, |held| {
        held.retain(|one| one != finalizer);
    })
    .await
}

/// Edits the finalizers that are there now, so that those of others stay; a conflict is retried
/// by the next tick. Only of the very object that was seen, or of one that it owns: somebody else's may
/// have taken its name.
async fn edit_finalizers<K>(
    api: &Api<K>,
    verb: &'static str,
    name: &str,
    seen: &Uid,
    edit: impl FnOnce(&mut Vec<String>),
) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let read = api.get_metadata_opt(name).await;
    let Some(object) = read.map_err(|source| failed::<K>(verb, name, source))? else {
        return Ok(());
    };
    let uids = object.owner_references().iter().map(|owner| &owner.uid);
    if !uids
        .chain(&object.metadata.uid)
        .any(|uid| uid == seen.as_str())
    {
        return Ok(());
    }
    let mut finalizers = object.metadata.finalizers.unwrap_or_default();
    edit(&mut finalizers);
    let patch = json!({"metadata": {
        "resourceVersion": object.metadata.resource_version,
        "finalizers": finalizers,
    }});
    merge(api, verb, name, &patch).await
}
