//! The tick of a `ValkeyNode`: its ConfigMap, its one pod, the stamp, the farewell.
//! Never changes a pod's spec, never makes a pod again.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use kube::ResourceExt as _;
use kube::runtime::Controller;
use kube::runtime::controller::{Action as Requeue, Error as ControllerError};
use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::api::cluster::ClusterState;
use crate::api::node::ValkeyNode;
use crate::controller::{Context, Error, config, stopped};
use crate::decide;
use crate::model::decision::{NodeAction, Verdict};
use crate::model::desired::Desired;
use crate::model::name::{ClusterRef, NodeName};
use crate::model::world::{NodeFacts, World};
use crate::observe::Source;
use crate::observe::stores::NodeRef;
use crate::resolve;

/// How long a node waits for its cluster's menu or Secret, whose edits start no tick of a node.
const HOMELESS: Duration = Duration::from_secs(1);

/// Reconciles every node that something happened to, until it is told to stop.
pub(super) async fn run(
    context: Context<NodeRef>,
    mut changed: UnboundedReceiver<NodeRef>,
    stop: watch::Receiver<bool>,
) {
    let context = Arc::new(context);
    let store = context.tools.reader.stores().nodes.clone();
    let changes = stream::poll_fn(move |task| changed.poll_recv(task))
        .map(|(namespace, node)| ObjectRef::new(node.as_str()).within(&namespace));
    Controller::for_shared_stream(stream::pending(), store)
        .with_config(config())
        .reconcile_on(changes)
        .graceful_shutdown_on(stopped(stop))
        .run(
            reconcile,
            |_, never: &Infallible, _| match *never {},
            context.clone(),
        )
        .for_each(|result| {
            if let Err(ControllerError::ObjectNotFound(gone)) = result
                && let Some(namespace) = gone.namespace
            {
                let gone = (namespace, NodeName::new(gone.name));
                context.forget(&gone);
                context.tools.telling.forget_node(&gone);
            }
            std::future::ready(())
        })
        .await;
}

async fn reconcile(
    node: Arc<ValkeyNode>,
    context: Arc<Context<NodeRef>>,
) -> Result<Requeue, Infallible> {
    let key = (
        node.namespace().unwrap_or_default(),
        NodeName::new(node.name_any()),
    );
    let cluster = ClusterRef {
        namespace: key.0.clone(),
        name: node.spec.cluster_name.clone(),
    };
    let deleting = node.metadata.deletion_timestamp.is_some();
    let told = async {
        let ended = tick(&context, &key, &cluster).await;
        let failure = ended.as_ref().err();
        context.tools.telling.node_ended(&node, &cluster, failure);
        ended
    };
    Ok(context.guarded(&key, deleting, told).await)
}

async fn tick(
    context: &Context<NodeRef>,
    key: &NodeRef,
    cluster: &ClusterRef,
) -> Result<Duration, Error> {
    let look = |source| context.tools.reader.node(&key.0, &key.1, source);
    let idle = || context.rhythm(key, super::pace::Rhythm::idled);
    let Some(seen) = look(Source::Stores).await.map_err(Error::Observe)? else {
        return Ok(idle());
    };
    if decide::node::decide(&seen) == Verdict::Pass {
        return Ok(idle());
    }
    // A node takes its leave whatever became of its cluster; it grows only within it.
    let home = if seen.deleting {
        None
    } else {
        home(context, cluster).await?
    };
    if home.is_none() && !seen.deleting {
        return Ok(HOMELESS);
    }
    let Some(node) = look(Source::Live).await.map_err(Error::Observe)? else {
        return Ok(idle());
    };
    let verdict = decide::node::decide(&node);
    debug!(
        cluster_name = cluster.name,
        namespace = key.0,
        node = %node.name,
        ?verdict,
        "decided"
    );
    match verdict {
        Verdict::Take(action, why) => {
            perform(context, home.as_ref(), key, &node, &action).await?;
            say(key, cluster, &action, &why.to_string());
            context.tools.telling.stepped(&key.0, &node, &action, &why);
            Ok(context.rhythm(key, super::pace::Rhythm::stepped))
        }
        Verdict::Hold(why) => {
            if context.rhythm(key, |rhythm| rhythm.worth_saying(&why, Instant::now())) {
                context.tools.telling.node_waits(&key.0, &node, &why);
                let (namespace, node) = key;
                warn!(cluster_name = cluster.name, namespace, %node, because = %why, "waiting");
            }
            Ok(context.rhythm(key, |rhythm| rhythm.waited(&why, Instant::now())))
        }
        Verdict::Pass => Ok(idle()),
    }
}

/// The cluster as a node may grow in it; nothing while it is going or Invalid, or its menu does not resolve, or its
/// TLS Secret does not validate.
async fn home(
    context: &Context<NodeRef>,
    cluster: &ClusterRef,
) -> Result<Option<(World, Desired)>, Error> {
    let world = context
        .tools
        .reader
        .kubernetes_world(cluster, Source::Stores)
        .await;
    let world = world.map_err(Error::Observe)?.filter(|world| {
        !world.cluster.deleting && world.cluster.status.state != ClusterState::Invalid
    });
    let home = world.map(|world| {
        let desired = resolve::desired(&world);
        (world, desired)
    });
    let valid = |desired: &Desired| !matches!(desired.tls, Some(Err(_)));
    Ok(home.filter(|(_, desired)| desired.menu.is_ok() && valid(desired)))
}

async fn perform(
    context: &Context<NodeRef>,
    home: Option<&(World, Desired)>,
    (namespace, _): &NodeRef,
    node: &NodeFacts,
    action: &NodeAction,
) -> Result<(), Error> {
    let writer = &context.tools.writer;
    let performed = match home {
        Some((world, desired)) => writer.perform_node(world, desired, node, action).await,
        None => writer.farewell(namespace, node, action).await,
    };
    performed.map_err(Error::Act)
}

fn say((namespace, node): &NodeRef, cluster: &ClusterRef, action: &NodeAction, because: &str) {
    let cluster_name = &cluster.name;
    match action {
        NodeAction::CreateConfigMap => {
            info!(cluster_name, namespace, %node, because, "creating ConfigMap for node");
        }
        NodeAction::CreatePod => {
            info!(cluster_name, namespace, %node, because, "creating Pod for node");
        }
        NodeAction::Stamp(_) => info!(cluster_name, namespace, %node, because, "pod recorded"),
        NodeAction::DeletePod(_) => info!(cluster_name, namespace, %node, because, "pod deleted"),
        NodeAction::ReleaseNode => info!(cluster_name, namespace, %node, because, "node released"),
    }
}
