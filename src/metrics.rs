//! The numbers of the operator and of its clusters, as Prometheus reads them.
//! Never an input of a decision, and never a label that a user could make many of: names of namespaces,
//! clusters and nodes, and closed lists.
//!
//! Series: about 200 of the process; 11 of each cluster and 3 more while it is TLS, waits or was healthy; 5 of each
//! node. Those of a cluster go with it.

mod reading;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

pub use crate::metrics::reading::Reading;
use crate::model::name::ClusterRef;

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Outcome {
    /// It did what it could.
    Success,
    /// It failed and will be tried again.
    Error,
    /// It met a bug.
    Panic,
}

/// Why a shard changed its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Cause {
    /// The operator asked a living primary to hand over.
    Planned,
    /// The primary was gone, or handed over by itself.
    Failure,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reconcile {
    controller: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Action {
    action: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventOutcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandOver {
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Method {
    method: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Version {
    version: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// All numbers. Clones are the same numbers.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Numbers>);

#[derive(Debug)]
struct Numbers {
    registry: Registry,
    reconciles: Family<Reconcile, Counter>,
    durations: Histograms<Controller>,
    actions: Family<Action, Counter>,
    events: Family<EventOutcome, Counter>,
    requests: Family<Method, Counter>,
    responses: Family<Code, Counter>,
    handovers: Histograms<HandOver>,
    outdated: Family<Kind, Gauge>,
    clusters: Clusters,
    ready: AtomicBool,
}

/// What is known of each cluster, as of its last tick.
#[derive(Clone, Debug, Default)]
struct Clusters(Arc<Mutex<BTreeMap<ClusterRef, Reading>>>);

impl Default for Metrics {
    fn default() -> Self {
        // A tick takes 1 ms on the stores alone, and at most a few deadlines of 5 to 10 s.
        let durations: Histograms<Controller> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 8)));
        // A coordinated failover takes 10 to 100 ms and is looked for after 200; an election seconds.
        let handovers: Histograms<HandOver> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.1, 2.0, 11)));
        let mut numbers = Numbers {
            registry: Registry::default(),
            reconciles: Family::default(),
            durations,
            actions: Family::default(),
            events: Family::default(),
            requests: Family::default(),
            responses: Family::default(),
            handovers,
            outdated: Family::default(),
            clusters: Clusters::default(),
            ready: AtomicBool::new(false),
        };
        numbers.register();
        Self(Arc::new(numbers))
    }
}

impl Numbers {
    fn register(&mut self) {
        let build: Family<Version, Gauge> = Family::default();
        let version = env!("CARGO_PKG_VERSION");
        build.get_or_create(&Version { version }).set(1);
        let registry = self.registry.sub_registry_with_prefix("valkey_operator");
        registry.register("build_info", "The release that runs", build);
        registry.register(
            "reconciles",
            "Reconciles by controller and outcome: success, error, panic",
            self.reconciles.clone(),
        );
        registry.register(
            "reconcile_duration_seconds",
            "How long reconciles took",
            self.durations.clone(),
        );
        registry.register("actions", "Topology actions by kind", self.actions.clone());
        registry.register(
            "events",
            "Kubernetes Events by outcome: written, dropped, failed",
            self.events.clone(),
        );
        registry.register(
            "api_requests",
            "Requests to the API server by HTTP method",
            self.requests.clone(),
        );
        registry.register(
            "api_responses",
            "Answers of the API server by HTTP status",
            self.responses.clone(),
        );
        registry.register(
            "handover_seconds",
            "How long shards were without a primary by cause: planned (at most), failure (as far as was seen)",
            self.handovers.clone(),
        );
        registry.register(
            "crd_outdated",
            "1 of a kind whose served definition lacks what this release has",
            self.outdated.clone(),
        );
        let clusters = Box::new(self.clusters.clone());
        self.registry.register_collector(clusters);
    }
}

impl Metrics {
    /// Counts a reconcile.
    pub fn reconciled(&self, controller: &'static str, outcome: Outcome, took: Duration) {
        let numbers = &self.0;
        let outcome = outcome.into();
        let labels = Reconcile {
            controller,
            outcome,
        };
        numbers.reconciles.get_or_create(&labels).inc();
        let durations = numbers.durations.get_or_create(&Controller { controller });
        durations.observe(took.as_secs_f64());
    }

    /// Counts an action.
    pub fn acted(&self, action: &'static str) {
        self.0.actions.get_or_create(&Action { action }).inc();
    }

    /// Counts an Event by what became of it.
    pub fn event(&self, outcome: &'static str) {
        self.0.events.get_or_create(&EventOutcome { outcome }).inc();
    }

    /// Counts a request to the API server.
    pub fn requested(&self, method: &str) {
        let method = method.to_owned();
        self.0.requests.get_or_create(&Method { method }).inc();
    }

    /// Counts its answer.
    pub fn answered(&self, code: u16) {
        self.0.responses.get_or_create(&Code { code }).inc();
    }

    /// Counts a shard's change of primary.
    pub fn handed_over(&self, cause: Cause, took: Duration) {
        let cause = cause.into();
        let handovers = self.0.handovers.get_or_create(&HandOver { cause });
        handovers.observe(took.as_secs_f64());
    }

    /// Notes whether a kind is served in an older definition than this release's.
    pub fn definition(&self, kind: &str, outdated: bool) {
        let kind = kind.to_owned();
        let gauge = self.0.outdated.get_or_create(&Kind { kind });
        gauge.set(i64::from(outdated));
    }

    /// Replaces what is known of a cluster.
    pub fn observed(&self, cluster: &ClusterRef, reading: Reading) {
        let mut clusters = self.0.clusters.lock();
        let before = clusters.get(cluster);
        let reading = reading.after(before);
        clusters.insert(cluster.clone(), reading);
    }

    /// Forgets a cluster.
    pub fn forget(&self, cluster: &ClusterRef) {
        self.0.clusters.lock().remove(cluster);
    }

    /// The stores are filled: clusters are served from now on.
    pub fn now_ready(&self) {
        self.0.ready.store(true, Ordering::Relaxed);
    }

    /// Whether clusters are served.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.ready.load(Ordering::Relaxed)
    }

    /// All of it, in the `OpenMetrics` text format.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut page = String::new();
        text::encode(&mut page, &self.0.registry)?;
        Ok(page)
    }
}

impl Clusters {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClusterRef, Reading>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A value with the labels that it has beside the cluster's.
type Sample = (Vec<(&'static str, String)>, f64);

impl Collector for Clusters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // Cloned, so that no tick waits for whoever reads slowly.
        let clusters = self.lock().clone();
        let mut states: BTreeMap<&'static str, u32> = BTreeMap::new();
        for reading in clusters.values() {
            *states.entry(reading.state()).or_default() += 1;
        }
        let states = states
            .into_iter()
            .map(|(state, count)| (vec![("state", state.to_owned())], f64::from(count)));
        let by_state = "Clusters by state";
        gauge(&mut encoder, ("valkey_operator_clusters", by_state), states)?;
        for (name, help, samples) in reading::GAUGES {
            let all = clusters.iter().flat_map(|(cluster, reading)| {
                let labelled = |(mut more, value): Sample| {
                    let mut labels = vec![
                        ("namespace", cluster.namespace.clone()),
                        ("cluster", cluster.name.clone()),
                    ];
                    labels.append(&mut more);
                    (labels, value)
                };
                samples(reading).into_iter().map(labelled)
            });
            gauge(&mut encoder, (name, help), all)?;
        }
        Ok(())
    }
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    samples: impl Iterator<Item = Sample>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in samples {
        family.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}
