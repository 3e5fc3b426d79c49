//! The tick of a `ValkeyCluster`: look, resolve, keep, decide, act.
//! Never remembers a plan: the next tick looks again.

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

use crate::act::upkeep;
use crate::api::cluster::{ClusterState, ValkeyCluster};
use crate::controller::pace::Creating;
use crate::controller::{Context, Error, config, stopped};
use crate::decide;
use crate::model::decision::{Action, Batch, Decision, Verdict};
use crate::model::desired::Desired;
use crate::model::name::{ClusterRef, NodeName};
use crate::model::why::Why;
use crate::model::world::World;
use crate::observe::Source;
use crate::resolve;

/// Reconciles every cluster that something happened to, until it is told to stop.
pub(super) async fn run(
    context: Context<ClusterRef>,
    mut changed: UnboundedReceiver<ClusterRef>,
    stop: watch::Receiver<bool>,
) {
    let context = Arc::new(context);
    let store = context.tools.reader.stores().clusters.clone();
    let changes = stream::poll_fn(move |task| changed.poll_recv(task))
        .map(|cluster| ObjectRef::new(&cluster.name).within(&cluster.namespace));
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
            // A cluster that is gone leaves nothing behind, here neither.
            if let Err(ControllerError::ObjectNotFound(gone)) = result
                && let Some(namespace) = gone.namespace
            {
                let gone = ClusterRef {
                    namespace,
                    name: gone.name,
                };
                context.forget(&gone);
                context.tools.telling.forget(&gone);
            }
            std::future::ready(())
        })
        .await;
}

async fn reconcile(
    cluster: Arc<ValkeyCluster>,
    context: Arc<Context<ClusterRef>>,
) -> Result<Requeue, Infallible> {
    let key = ClusterRef {
        namespace: cluster.namespace().unwrap_or_default(),
        name: cluster.name_any(),
    };
    let deleting = cluster.metadata.deletion_timestamp.is_some();
    let (cluster_name, namespace) = (&key.name, &key.namespace);
    debug!(cluster_name, namespace, "tick begins");
    let told = async {
        let ended = tick(&context, &key).await;
        context
            .tools
            .telling
            .ended(&cluster, &key, ended.as_ref().err());
        ended
    };
    let next = context.guarded(&key, deleting, told).await;
    debug!(cluster_name, namespace, ?next, "tick ends");
    Ok(next)
}

/// What one look leads to.
struct Thought {
    desired: Desired,
    upkeep: Vec<upkeep::Upkeep>,
    decision: Decision,
}

impl Thought {
    fn of(world: &World) -> Self {
        let desired = resolve::desired(world);
        let upkeep = upkeep::needed(world, &desired);
        let decision = decide::decide(world, &desired);
        Self {
            desired,
            upkeep,
            decision,
        }
    }

    fn writes(&self) -> bool {
        !self.upkeep.is_empty() || matches!(self.decision.verdict, Verdict::Take(_, _))
    }
}

/// A look at the stores is free, and may be behind: whatever it would write is first confirmed by
/// consistent reads of what it touches, or decided once more on a consistent look at everything.
async fn tick(context: &Context<ClusterRef>, key: &ClusterRef) -> Result<Duration, Error> {
    let Some(mut world) = observe(context, key, Source::Stores).await? else {
        return Ok(context.rhythm(key, super::pace::Rhythm::idled));
    };
    let mut thought = Thought::of(&world);
    if thought.writes() {
        let shown = |made: &NodeName| world.nodes.contains_key(made);
        let creating = context.rhythm(key, |rhythm| rhythm.creating(shown, Instant::now()));
        if let Creating::Unseen(pause) = creating {
            return Ok(pause);
        }
        if !is_confirmed(context, &world, &thought, creating == Creating::Seen).await? {
            let Some(fresh) = observe(context, key, Source::Live).await? else {
                return Ok(context.rhythm(key, super::pace::Rhythm::idled));
            };
            world = fresh;
            thought = Thought::of(&world);
        }
    }
    let writer = &context.tools.writer;
    writer
        .upkeep(&world, &thought.upkeep)
        .await
        .map_err(Error::Act)?;
    let made = writer
        .perform(&world, &thought.desired, &thought.decision)
        .await
        .map_err(Error::Act)?;
    let Thought {
        desired, decision, ..
    } = &thought;
    context
        .tools
        .telling
        .concluded(&world, desired, decision, made.as_ref());
    Ok(conclude(context, &world, decision, made.as_ref()))
}

/// Whether what was thought on a look at the stores holds on consistent reads of what it touches.
///
/// Only where that is as good as a consistent look at everything, which costs more than the rest of
/// the tick: since Kubernetes 1.31 a list waits 100 ms or more for the API server's own cache. A
/// command to processes is decided by what they said in this very tick. Of creates in a row each is
/// decided on stores that show the node made last, and so all that was there when it was made; and
/// nobody else makes nodes.
async fn is_confirmed(
    context: &Context<ClusterRef>,
    world: &World,
    thought: &Thought,
    creating: bool,
) -> Result<bool, Error> {
    let Verdict::Take(action, _) = &thought.decision.verdict else {
        return Ok(false);
    };
    let touched: &[&NodeName] = match action {
        Action::CreateNode(_, _) if creating => &[],
        Action::Meet { seed, newcomer } => &[seed, newcomer],
        Action::AssignSlots { primary, .. } => &[primary],
        Action::Replicate { replica, primary } => &[replica, primary],
        Action::BumpEpoch(node) | Action::CompleteJoin(node) => &[node],
        Action::AddFinalizer
        | Action::Snapshot(_)
        | Action::Invalidate(_)
        | Action::CreateNode(_, _)
        | Action::DeleteNode(_)
        | Action::Forget(_)
        | Action::Takeover(_)
        | Action::ForceFailover(_)
        | Action::Failover(_)
        | Action::AdoptSlots { .. }
        | Action::Migrate(_)
        | Action::Leave(_)
        | Action::Reset(_)
        | Action::Activate(_)
        | Action::DeleteAllNodes
        | Action::ReleaseCluster => return Ok(false),
    };
    if !thought.upkeep.is_empty() {
        return Ok(false);
    }
    let confirmed = context.tools.reader.confirms(world, touched).await;
    confirmed.map_err(Error::Observe)
}

async fn observe(
    context: &Context<ClusterRef>,
    key: &ClusterRef,
    source: Source,
) -> Result<Option<World>, Error> {
    context
        .tools
        .reader
        .world(key, source)
        .await
        .map_err(Error::Observe)
}

/// Says what was done or what is waited for, and when to look again.
fn conclude(
    context: &Context<ClusterRef>,
    world: &World,
    decision: &Decision,
    made: Option<&NodeName>,
) -> Duration {
    let key = &world.cluster.key;
    say_decision(key, decision);
    if context.rhythm(key, |rhythm| {
        rhythm.worth_noting(&decision.notes, Instant::now())
    }) {
        say_notes(key, &decision.notes);
    }
    if world.cluster.status.state == ClusterState::Active && !world.cluster.deleting {
        info!(
            cluster_name = key.name,
            namespace = key.namespace,
            "active tick"
        );
    }
    match &decision.verdict {
        Verdict::Take(action, why) => {
            say_done(key, action, why, made);
            let made = made.map(|made| (made, world.nodes.keys().cloned().collect()));
            context.rhythm(key, |rhythm| {
                rhythm.acted(action, why, made, Instant::now())
            })
        }
        Verdict::Hold(why) => {
            let aloud = context.rhythm(key, |rhythm| rhythm.worth_saying(why, Instant::now()));
            say_waiting(key, why, aloud);
            context.rhythm(key, |rhythm| rhythm.waited(why, Instant::now()))
        }
        // Spread, so that a thousand clusters that became Active at once do not tick at once.
        Verdict::Pass => context
            .rhythm(key, super::pace::Rhythm::idled)
            .mul_f64(context.tools.writer.spread(key)),
    }
}

/// The whole decision, for whoever wants to follow every tick.
fn say_decision(key: &ClusterRef, decision: &Decision) {
    let (cluster_name, namespace) = (&key.name, &key.namespace);
    let Decision {
        verdict,
        rung,
        passed,
        nudges,
        notes,
    } = decision;
    debug!(
        cluster_name,
        namespace,
        ?verdict,
        rung,
        ?passed,
        ?nudges,
        ?notes,
        "decided"
    );
}

fn say_notes(key: &ClusterRef, notes: &[Why]) {
    let (cluster_name, namespace) = (&key.name, &key.namespace);
    for note in notes {
        warn!(cluster_name, namespace, because = %note, "attention");
    }
}

#[expect(clippy::too_many_lines, reason = "one message an action")]
fn say_done(key: &ClusterRef, action: &Action, why: &Why, made: Option<&NodeName>) {
    let (cluster_name, namespace) = (&key.name, &key.namespace);
    let because = why.to_string();
    match action {
        Action::AddFinalizer => info!(cluster_name, namespace, because, "finalizer added"),
        Action::Snapshot(_) if why.is_loss() => {
            warn!(
                cluster_name,
                namespace, because, "all data lost, forming the cluster anew"
            );
        }
        Action::Snapshot(_) => info!(cluster_name, namespace, because, "spec captured"),
        Action::Invalidate(_) => {
            warn!(
                cluster_name,
                namespace, because, "TLS Secret validation failed, setting cluster Invalid"
            );
        }
        Action::CreateNode(shard, _) => {
            let node = made.map(NodeName::as_str);
            info!(
                cluster_name,
                namespace,
                node,
                shard_index = shard.0,
                because,
                "node created"
            );
        }
        Action::DeleteNode(node) if why.is_planned() => {
            info!(cluster_name, namespace, %node, because, "node deleted");
        }
        Action::DeleteNode(node) => {
            warn!(cluster_name, namespace, %node, because, "node deleted");
        }
        Action::Meet { newcomer, .. } => {
            info!(cluster_name, namespace, node = %newcomer, because, "cluster meet issued");
        }
        Action::Forget(id) if why.is_loss() => {
            warn!(cluster_name, namespace, member = %id, because, "shard lost, its slots start empty");
        }
        Action::Forget(id) => {
            info!(cluster_name, namespace, member = %id, because, "dead member forgotten");
        }
        Action::AssignSlots { primary, range } => {
            info!(cluster_name, namespace, node = %primary, slots = %range, because, "slots assigned");
        }
        Action::Replicate { replica, .. } => {
            info!(cluster_name, namespace, node = %replica, because, "replica attached");
        }
        Action::Takeover(replica) => {
            warn!(
                cluster_name,
                namespace,
                node = %replica,
                because,
                "no quorum — issued TAKEOVER on replica"
            );
        }
        Action::ForceFailover(replica) => {
            warn!(cluster_name, namespace, node = %replica, because, "issued FAILOVER FORCE on replica");
        }
        Action::Failover(replica) => {
            info!(
                cluster_name,
                namespace,
                node = %replica,
                because,
                "failover to up-to-date replica for rolling upgrade"
            );
        }
        Action::AdoptSlots { primary, slots } => {
            warn!(cluster_name, namespace, node = %primary, slots = %slots, because, "orphaned slots assigned");
        }
        Action::BumpEpoch(node) => {
            info!(cluster_name, namespace, node = %node, because, "epoch bumped");
        }
        Action::Migrate(Batch {
            source,
            target,
            slots,
        }) => {
            let (count, slots) = (slots.count(), slots.to_string());
            info!(
                cluster_name,
                namespace,
                node = %source,
                target_node = %target,
                count,
                slots,
                because,
                "slot migration started"
            );
        }
        Action::CompleteJoin(node) => {
            info!(cluster_name, namespace, node = %node, because, "completed join");
        }
        Action::Leave(node) => info!(cluster_name, namespace, %node, because, "node leaves"),
        Action::Reset(node) => {
            warn!(cluster_name, namespace, %node, because, "surviving process reset");
        }
        Action::Activate(_) => {
            info!(
                cluster_name,
                namespace, because, "cluster formed, transitioning to Active"
            );
        }
        Action::DeleteAllNodes => info!(cluster_name, namespace, because, "all nodes deleted"),
        Action::ReleaseCluster => info!(cluster_name, namespace, because, "cluster released"),
    }
}

fn say_waiting(key: &ClusterRef, why: &Why, aloud: bool) {
    let (cluster_name, namespace) = (&key.name, &key.namespace);
    let because = why.to_string();
    if !aloud {
        debug!(cluster_name, namespace, because, "waiting");
    } else if let Why::Unschedulable { node, .. } = why {
        warn!(
            cluster_name,
            namespace,
            pod = %node,
            because,
            "bootstrap blocked: pod cannot be scheduled"
        );
    } else if let Why::AwaitingElection { replica, .. } = why {
        info!(
            cluster_name,
            namespace,
            node = %replica,
            because,
            "primary unhealthy but replicas exist, waiting for auto-failover"
        );
    } else if matches!(why, Why::MigrationFailed { .. } | Why::DrainTooLarge { .. }) {
        warn!(cluster_name, namespace, because, "waiting");
    } else {
        info!(cluster_name, namespace, because, "waiting");
    }
}
