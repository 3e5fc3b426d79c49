//! Tells people of every tick: Events and numbers.
//! Never read by a tick, and never holds one up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use tokio::time::Instant;
use tracing::info;

use crate::act::event::{self, About, Notice, Teller, Weight};
use crate::api::cluster::{ClusterState, ValkeyCluster};
use crate::api::node::ValkeyNode;
use crate::controller::Error;
use crate::controller::chronicle::{Chronicle, HandOver, Interruption};
use crate::metrics::{Cause, Metrics, Outcome, Reading};
use crate::model::chain;
use crate::model::decision::{Action, Decision, NodeAction, Verdict};
use crate::model::desired::Desired;
use crate::model::name::{ClusterRef, NodeName};
use crate::model::shards::Topology;
use crate::model::why::Why;
use crate::model::world::{NodeFacts, World};
use crate::observe::stores::{NodeRef, Stores};
use crate::resolve;

/// Settings that pass and break a promise, and what they cost.
const COSTLY: [(&str, &str); 2] = [
    (
        "rename-command",
        "a renamed data command makes every slot migration fail, so the cluster cannot be scaled",
    ),
    (
        "requirepass",
        "it protects nothing beside an ACL file: bind users instead",
    ),
];

/// Where everything that is told goes.
pub(super) struct Telling {
    teller: Teller,
    metrics: Metrics,
    stores: Stores,
    chronicles: Mutex<BTreeMap<ClusterRef, Chronicle>>,
}

impl Telling {
    /// Tells of what happens to clusters and menu in these stores.
    pub(super) fn new(teller: Teller, metrics: Metrics, stores: Stores) -> Arc<Self> {
        Arc::new(Self {
            teller,
            metrics,
            stores,
            chronicles: Mutex::default(),
        })
    }

    fn chronicle<T>(&self, cluster: &ClusterRef, tell: impl FnOnce(&mut Chronicle) -> T) -> T {
        let chronicles = self.chronicles.lock();
        let mut all = chronicles.unwrap_or_else(PoisonError::into_inner);
        tell(all.entry(cluster.clone()).or_default())
    }

    /// A cluster is gone, and all that was known of it.
    pub(super) fn forget(&self, cluster: &ClusterRef) {
        let chronicles = self.chronicles.lock();
        let mut all = chronicles.unwrap_or_else(PoisonError::into_inner);
        all.remove(cluster);
        self.metrics.forget(cluster);
    }

    /// A reconcile ended.
    pub(super) fn reconciled(&self, controller: &'static str, outcome: Outcome, took: Duration) {
        self.metrics.reconciled(controller, outcome, took);
    }

    /// A tick of a cluster failed, or did not.
    pub(super) fn ended(&self, cluster: &ValkeyCluster, key: &ClusterRef, failure: Option<&Error>) {
        let failed = failure.is_some();
        let due = self.chronicle(key, |chronicle| chronicle.failed(failed, Instant::now()));
        if let Some(failure) = failure.filter(|_| due) {
            self.teller
                .tell(tick_failed(About::of(cluster), chain::of(failure)));
        }
    }

    /// A tick of a node failed, or did not: told of its cluster too, where people look first.
    pub(super) fn node_ended(
        &self,
        node: &ValkeyNode,
        cluster: &ClusterRef,
        failure: Option<&Error>,
    ) {
        let name = NodeName::new(node.name_any());
        let Some(failure) = failure else {
            self.node_well(cluster, &name);
            return;
        };
        let now = Instant::now();
        if !self.chronicle(cluster, |chronicle| chronicle.node_failed(&name, now)) {
            return;
        }
        let (about, note) = (About::of(node), chain::of(failure));
        let object = ObjectRef::new(&cluster.name).within(&cluster.namespace);
        if let Some(cluster) = self.stores.clusters.get(&object) {
            self.teller.tell(Notice {
                related: Some(about.clone()),
                ..tick_failed(About::of(cluster.as_ref()), format!("node {name}: {note}"))
            });
        }
        self.teller.tell(tick_failed(about, note));
    }

    /// A node fails no more, if it did. Its cluster may be gone before it, and is not remembered anew for that.
    fn node_well(&self, cluster: &ClusterRef, node: &NodeName) {
        let chronicles = self.chronicles.lock();
        let mut all = chronicles.unwrap_or_else(PoisonError::into_inner);
        if let Some(chronicle) = all.get_mut(cluster) {
            chronicle.node_well(node);
        }
    }

    /// A node is gone, and that it failed. Whose it was is not known any more.
    pub(super) fn forget_node(&self, (namespace, node): &NodeRef) {
        let chronicles = self.chronicles.lock();
        let mut all = chronicles.unwrap_or_else(PoisonError::into_inner);
        for (cluster, chronicle) in all.iter_mut() {
            if cluster.namespace == *namespace {
                chronicle.node_well(node);
            }
        }
    }

    /// A tick of a cluster came to its end.
    pub(super) fn concluded(
        &self,
        world: &World,
        desired: &Desired,
        decision: &Decision,
        made: Option<&NodeName>,
    ) {
        let key = &world.cluster.key;
        let topology = Topology::of(world);
        if world.cluster.deleting {
            self.metrics.forget(key);
        } else {
            let reading = Reading::of(world, &topology, desired, waited_for(decision));
            self.metrics.observed(key, reading);
        }
        let now = Instant::now();
        for receipt in self.chronicle(key, |chronicle| chronicle.looked(&topology, now)) {
            self.handed_over(world, &receipt);
        }
        let paused = world.cluster.paused;
        if self.chronicle(key, |chronicle| chronicle.resumed(paused)) {
            let note = "the pause annotation is gone: topology actions go on".to_owned();
            self.receipt(world, event::RESUMED, note);
        }
        // A date is for the log alone.
        let lasting = |why: &&Why| !matches!(why, Why::TlsLapsed { .. });
        let standing = waited_for(decision)
            .into_iter()
            .chain(decision.notes.iter().filter(lasting));
        for why in self.chronicle(key, |chronicle| chronicle.due(standing, now)) {
            self.stands(world, why);
        }
        match &decision.verdict {
            Verdict::Take(action, why) => {
                self.metrics.acted(action.into());
                self.teller.tell(Notice::done(world, action, why, made));
                self.chronicle(key, |chronicle| chronicle.acted(world, action, why, now));
                if matches!(action, Action::CreateNode(_, _)) {
                    self.costs(world, desired);
                }
                if matches!(action, Action::Activate(_)) {
                    self.completed(world, true, now);
                }
            }
            Verdict::Pass if world.cluster.status.state == ClusterState::Active => {
                self.completed(world, false, now);
            }
            Verdict::Pass | Verdict::Hold(_) => {}
        }
    }

    fn stands(&self, world: &World, why: &Why) {
        let notice = Notice::standing(world, why);
        if let Why::Menu(error) = why
            && let Some(config) = resolve::blamed(world, error)
            && let Some(config) = self.stores.configs.get(&ObjectRef::new(config))
        {
            let at_fault = notice.clone().with(About::of(config.as_ref()));
            self.teller.tell(at_fault);
        }
        self.teller.tell(notice);
    }

    fn handed_over(&self, world: &World, receipt: &HandOver) {
        let ClusterRef { namespace, name } = &world.cluster.key;
        let (cluster_name, because) = (name, receipt.sentence());
        let cause = match receipt.how {
            Interruption::Planned { .. } => Some(Cause::Planned),
            Interruption::Failure { .. } => Some(Cause::Failure),
            // How long is not known.
            Interruption::Unseen { .. } => None,
        };
        if let Some(cause) = cause {
            self.metrics.handed_over(cause, receipt.how.length());
        }
        info!(
            cluster_name,
            namespace,
            shard_index = receipt.shard.0,
            because,
            "shard handed over"
        );
        self.receipt(world, event::HANDED_OVER, because);
    }

    fn completed(&self, world: &World, formed: bool, now: Instant) {
        let key = &world.cluster.key;
        let totals = self.chronicle(key, |chronicle| chronicle.completed(formed, now));
        if let Some(totals) = totals {
            let (cluster_name, namespace) = (&key.name, &key.namespace);
            let (reason, because) = (totals.reason, totals.sentence());
            info!(cluster_name, namespace, reason, because, "work completed");
            self.receipt(world, reason, because);
        }
    }

    fn receipt(&self, world: &World, reason: &'static str, note: String) {
        self.teller.tell(Notice {
            about: About::cluster(&world.cluster),
            related: None,
            reason,
            action: "Receipt",
            weight: Weight::Receipt,
            lasting: false,
            note,
        });
    }

    /// New nodes get settings that pass and cost something.
    fn costs(&self, world: &World, desired: &Desired) {
        let Ok(resolved) = &desired.menu else { return };
        for (setting, cost) in COSTLY {
            if let Some(set) = resolved.user_settings.get(setting) {
                self.teller.tell(Notice {
                    about: About::cluster(&world.cluster),
                    related: None,
                    reason: event::COSTLY_SETTING,
                    action: "CreateNode",
                    weight: Weight::Warning,
                    lasting: true,
                    note: format!("ValkeyConfig {} sets {setting}: {cost}", set.config),
                });
            }
        }
    }

    /// Nodes took their ACL file, or one of them refused it.
    pub(super) fn acl(&self, world: &World, refusal: Option<&str>) {
        let key = &world.cluster.key;
        let refused = refusal.is_some();
        let due = self.chronicle(key, |chronicle| chronicle.refused(refused, Instant::now()));
        if let Some(refusal) = refusal.filter(|_| due) {
            let why = Why::AclRefused(refusal.to_owned());
            let notice = Notice::standing(world, &why);
            let sentence =
                format!("nodes keep their old rules, a new one could not start: {refusal}");
            self.teller.tell(Notice {
                action: "ReloadAcl",
                note: why.advised(&sentence),
                ..notice
            });
        }
    }

    /// A step was taken for a node. The ConfigMap and the stamp are parts of making its pod.
    pub(super) fn stepped(
        &self,
        namespace: &str,
        node: &NodeFacts,
        action: &NodeAction,
        why: &Why,
    ) {
        let told = matches!(action, NodeAction::CreatePod | NodeAction::DeletePod(_));
        self.metrics.acted(action.into());
        if told {
            let notice = Notice::of_node(namespace, node, action, why);
            self.teller.tell(notice);
        }
    }

    /// A node waits.
    pub(super) fn node_waits(&self, namespace: &str, node: &NodeFacts, why: &Why) {
        self.teller
            .tell(Notice::of_waiting_node(namespace, node, why));
    }
}

fn tick_failed(about: About, note: String) -> Notice {
    Notice {
        about,
        related: None,
        reason: event::TICK_FAILED,
        action: "Reconcile",
        weight: Weight::Warning,
        lasting: true,
        note,
    }
}

fn waited_for(decision: &Decision) -> Option<&Why> {
    match &decision.verdict {
        Verdict::Hold(why) => Some(why),
        Verdict::Take(_, _) | Verdict::Pass => None,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;
    use kube::runtime::reflector::{self, Store};
    use kube::{Client, Resource};

    use super::*;
    use crate::api::node::ValkeyNodeSpec;

    fn empty<K>() -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + 'static,
    {
        reflector::store().0
    }

    fn telling() -> Arc<Telling> {
        let api = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Body::empty()))
        });
        let client = Client::new(api, "default");
        let (teller, _) = event::scribe(client, Arc::new(|| 0), Arc::new(|_| {}));
        let stores = Stores {
            clusters: empty(),
            nodes: empty(),
            pods: empty(),
            config_maps: empty(),
            services: empty(),
            hosts: empty(),
            configs: empty(),
            images: empty(),
            roles: empty(),
        };
        Telling::new(teller, Metrics::default(), stores)
    }

    #[tokio::test]
    async fn a_node_that_fails_is_remembered_until_it_is_well_or_gone() {
        let telling = telling();
        let cluster = ClusterRef {
            namespace: "ns".into(),
            name: "c".into(),
        };
        let node = ValkeyNode::new("c-1", ValkeyNodeSpec::default());
        let gone = |namespace: &str| (namespace.to_owned(), NodeName::new("c-1"));
        let failure = Error::Observe(crate::observe::Error::Incomplete {
            kind: "ValkeyNode",
            name: "c-1".into(),
            field: "metadata.uid",
        });
        let ended = |failure| telling.node_ended(&node, &cluster, failure);
        ended(None);
        assert!(telling.chronicles.lock().unwrap().is_empty());

        let later = Instant::now() + Duration::from_secs(10);
        // What fails again later is due if it was remembered, and begins anew if not.
        let lasts = |between: &dyn Fn()| {
            ended(Some(&failure));
            between();
            let due = telling.chronicle(&cluster, |one| one.node_failed(&gone("ns").1, later));
            ended(None);
            due
        };
        assert!(lasts(&|| {}));
        assert!(!lasts(&|| ended(None)));
        assert!(lasts(&|| telling.forget_node(&gone("elsewhere"))));
        assert!(!lasts(&|| telling.forget_node(&gone("ns"))));
    }
}
