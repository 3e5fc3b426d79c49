//! What was done or is waited for, as Kubernetes Events: one that grows where the same goes on.
//! Never holds up a tick and never fails one: what cannot be written is counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde_json::json;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tracing::debug;

use crate::act::in_terminating_namespace;
use crate::api::cluster::ValkeyCluster;
use crate::api::node::ValkeyNode;
use crate::model::chain;
use crate::model::decision::{Action, Batch, NodeAction};
use crate::model::digest::sha256_hex;
use crate::model::name::NodeName;
use crate::model::why::Why;
use crate::model::world::{ClusterFacts, NodeFacts, World};

/// Who reports; `kubectl describe` shows it as the source.
const REPORTER: &str = "valkey-operator";
/// The API's own limit of a note, bytes.
const NOTE_MAX: usize = 1024;
/// Notices that wait to be written. A tick that finds it full goes on without.
const QUEUE: usize = 1024;
/// Events about one object in a row, and how many seconds bring back one of them: client-go's own
/// limits are 25 and 300.
const BURST: i64 = 60;
const REFILL_SECONDS: i64 = 5;
/// Of a burst so many are kept for failures and receipts.
const RESERVE: i64 = 20;
/// A series that nothing was added to for so long is over, as in client-go's `finishTime`; longer here,
/// because a wait that lasts is told each ten minutes.
const SERIES_SECONDS_MAX: i64 = 1800;
/// The note of an Event cannot be changed. Where what goes on is told in other words, a new one begins
/// no sooner than after this.
const REWORD_SECONDS: i64 = 300;
/// Series that are remembered. Beyond it new ones begin, which loses nothing but their counts.
const SERIES_MAX: usize = 4096;

/// A namespace that is going takes no Event; one of its name may come anew.
const GOING_SECONDS: i64 = 60;

/// The reasons of Events beside those of [`Why`]: what many steps came to, and what no step is about.
pub const REASONS: [&str; 8] = [
    CLUSTER_FORMED,
    ROLL_COMPLETED,
    SCALING_COMPLETED,
    REPAIR_COMPLETED,
    HANDED_OVER,
    RESUMED,
    COSTLY_SETTING,
    TICK_FAILED,
];
/// A new cluster serves.
pub const CLUSTER_FORMED: &str = "ClusterFormed";
/// Every outdated node was replaced.
pub const ROLL_COMPLETED: &str = "RollCompleted";
/// The cluster has the shards that were asked for.
pub const SCALING_COMPLETED: &str = "ScalingCompleted";
/// What was broken is whole.
pub const REPAIR_COMPLETED: &str = "RepairCompleted";
/// A shard has another primary.
pub const HANDED_OVER: &str = "HandedOver";
/// The pause is over.
pub const RESUMED: &str = "Resumed";
/// A setting passes that breaks a promise.
pub const COSTLY_SETTING: &str = "CostlySetting";
/// A tick failed again and again.
pub const TICK_FAILED: &str = "TickFailed";

/// An object that Events are about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct About {
    kind: String,
    api_version: String,
    namespace: Option<String>,
    name: String,
    uid: String,
}

impl About {
    fn object<K: Resource<DynamicType = ()>>(
        namespace: Option<&str>,
        name: &str,
        uid: &str,
    ) -> Self {
        Self {
            kind: K::kind(&()).into_owned(),
            api_version: K::api_version(&()).into_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            uid: uid.to_owned(),
        }
    }

    /// A `ValkeyCluster`.
    #[must_use]
    pub fn cluster(cluster: &ClusterFacts) -> Self {
        let (key, uid) = (&cluster.key, cluster.uid.as_str());
        Self::object::<ValkeyCluster>(Some(&key.namespace), &key.name, uid)
    }

    /// A `ValkeyNode`.
    #[must_use]
    pub fn node(namespace: &str, node: &NodeFacts) -> Self {
        Self::object::<ValkeyNode>(Some(namespace), node.name.as_str(), node.uid.as_str())
    }

    /// An object as it was read.
    #[must_use]
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        let meta = object.meta();
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (name, uid) = (text(&meta.name), text(&meta.uid));
        Self::object::<K>(meta.namespace.as_deref(), &name, &uid)
    }

    fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.api_version.clone()),
            kind: Some(self.kind.clone()),
            name: Some(self.name.clone()),
            namespace: self.namespace.clone(),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }

    /// Events about objects without a namespace live in `default`.
    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }
}

/// How much a notice matters where not all can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// A step.
    Step,
    /// The end of something that took many steps.
    Receipt,
    /// A failure.
    Warning,
}

/// One thing to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The object that it is shown with.
    pub about: About,
    /// Another object that it concerns.
    pub related: Option<About>,
    /// Why, in `CamelCase`.
    pub reason: &'static str,
    /// What was done, in `CamelCase`.
    pub action: &'static str,
    /// How much it matters.
    pub weight: Weight,
    /// It goes on: told in other words it is the same all the same.
    pub lasting: bool,
    /// The sentence; no secret, and no more of it than 1 KiB is shown.
    pub note: String,
}

impl Notice {
    /// A step that was taken.
    #[must_use]
    pub fn done(world: &World, action: &Action, why: &Why, made: Option<&NodeName>) -> Self {
        let note = format!("{}: {why}", sentence(action, made));
        Self {
            related: why.node().and_then(|node| related(world, node)),
            ..Self::step(About::cluster(&world.cluster), action.into(), why, &note)
        }
    }

    /// What is waited for, or goes on.
    #[must_use]
    pub fn standing(world: &World, why: &Why) -> Self {
        Self {
            related: why.node().and_then(|node| related(world, node)),
            ..Self::wait(About::cluster(&world.cluster), why)
        }
    }

    /// The same, shown with another object: the one at fault.
    #[must_use]
    pub fn with(self, about: About) -> Self {
        Self { about, ..self }
    }

    /// A step that was taken for a node.
    #[must_use]
    pub fn of_node(namespace: &str, node: &NodeFacts, action: &NodeAction, why: &Why) -> Self {
        let what = match action {
            NodeAction::CreateConfigMap => "ConfigMap made",
            NodeAction::CreatePod => "Pod made",
            NodeAction::Stamp(_) => "Pod recorded",
            NodeAction::DeletePod(_) => "Pod deleted",
            NodeAction::ReleaseNode => "released",
        };
        let note = format!("{what}: {why}");
        Self::step(About::node(namespace, node), action.into(), why, &note)
    }

    /// What a node itself waits for.
    #[must_use]
    pub fn of_waiting_node(namespace: &str, node: &NodeFacts, why: &Why) -> Self {
        Self::wait(About::node(namespace, node), why)
    }

    fn step(about: About, action: &'static str, why: &Why, note: &str) -> Self {
        Self {
            about,
            related: None,
            reason: why.name(),
            action,
            weight: weight(why),
            lasting: false,
            note: why.advised(note),
        }
    }

    fn wait(about: About, why: &Why) -> Self {
        Self {
            lasting: true,
            ..Self::step(about, "Wait", why, &why.to_string())
        }
    }
}

fn weight(why: &Why) -> Weight {
    if why.is_trouble() {
        Weight::Warning
    } else {
        Weight::Step
    }
}

fn related(world: &World, node: &NodeName) -> Option<About> {
    let node = world.nodes.get(node)?;
    Some(About::node(&world.cluster.key.namespace, node))
}

fn sentence(action: &Action, made: Option<&NodeName>) -> String {
    match action {
        Action::AddFinalizer => "finalizer added".to_owned(),
        Action::Snapshot(shape) => format!(
            "forming {} shards with {} replicas each",
            shape.shards, shape.replicas
        ),
        Action::Invalidate(_) => "state is Invalid".to_owned(),
        Action::CreateNode(shard, _) => match made {
            Some(made) => format!("node {made} made for shard {shard}"),
            None => format!("node made for shard {shard}"),
        },
        Action::DeleteNode(node) => format!("node {node} deleted"),
        Action::Meet { seed, newcomer } => format!("{newcomer} introduced through {seed}"),
        Action::Forget(id) => format!("member {id} forgotten"),
        Action::AssignSlots { primary, range } => format!("slots {range} given to {primary}"),
        Action::Replicate { replica, primary } => format!("{replica} made a replica of {primary}"),
        Action::Takeover(replica) => format!("{replica} told to take over without a vote"),
        Action::ForceFailover(replica) => format!("{replica} told to stand for election"),
        Action::Failover(replica) => format!("{replica} told to take over from its living primary"),
        Action::AdoptSlots { primary, slots } => {
            format!("{} orphaned slots given to {primary}", slots.count())
        }
        Action::BumpEpoch(node) => format!("epoch of {node} raised"),
        Action::Migrate(Batch {
            source,
            target,
            slots,
        }) => format!(
            "{} slots on their way from {source} to {target}",
            slots.count()
        ),
        Action::CompleteJoin(node) => format!("{node} completed its join"),
        Action::Leave(node) => format!("{node} begins to leave"),
        Action::Reset(node) => format!("process of {node} reset"),
        Action::Activate(_) => "state is Active".to_owned(),
        Action::DeleteAllNodes => "all nodes deleted".to_owned(),
        Action::ReleaseCluster => "cluster released".to_owned(),
    }
}

/// What became of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Outcome {
    /// It is an Event, or part of one.
    Written,
    /// There were too many.
    Dropped,
    /// The API server did not take it.
    Failed,
}

/// Counts what became of notices.
pub type Count = Arc<dyn Fn(Outcome) + Send + Sync>;

/// Takes notices, and keeps nobody waiting.
#[derive(Clone)]
pub struct Teller {
    queue: Sender<Notice>,
    count: Count,
}

impl Teller {
    /// Hands a notice on, or drops it where too many wait already.
    pub fn tell(&self, notice: Notice) {
        if self.queue.try_send(notice).is_err() {
            (self.count)(Outcome::Dropped);
        }
    }
}

/// Writes what tellers are told, one after the other.
pub struct Scribe {
    client: Client,
    queue: Receiver<Notice>,
    count: Count,
    clock: Arc<dyn Fn() -> i64 + Send + Sync>,
    series: BTreeMap<Key, Series>,
    budgets: BTreeMap<About, Budget>,
    /// When a namespace was last found to be going.
    going: BTreeMap<String, i64>,
}

/// A teller and the scribe that writes for it. `clock` gives seconds since the Unix epoch.
#[must_use]
pub fn scribe(
    client: Client,
    clock: Arc<dyn Fn() -> i64 + Send + Sync>,
    count: Count,
) -> (Teller, Scribe) {
    let (sender, queue) = channel(QUEUE);
    let teller = Teller {
        queue: sender,
        count: count.clone(),
    };
    let scribe = Scribe {
        client,
        queue,
        count,
        clock,
        series: BTreeMap::new(),
        budgets: BTreeMap::new(),
        going: BTreeMap::new(),
    };
    (teller, scribe)
}

/// What makes two notices one series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    about: About,
    related: Option<About>,
    reason: &'static str,
    action: &'static str,
    /// Not of what lasts.
    note: Option<String>,
}

#[derive(Clone, Debug)]
struct Series {
    name: String,
    note: String,
    count: i32,
    began: i64,
    last: i64,
}

/// A bucket of tokens, each worth one Event.
#[derive(Clone, Copy, Debug)]
struct Budget {
    tokens: i64,
    since: i64,
}

impl Budget {
    fn take(&mut self, weight: Weight, now: i64) -> bool {
        let back = (now - self.since).max(0) / REFILL_SECONDS;
        if self.tokens + back >= BURST {
            (self.tokens, self.since) = (BURST, now);
        } else {
            self.tokens += back;
            self.since += back * REFILL_SECONDS;
        }
        let kept = if weight == Weight::Step { RESERVE } else { 0 };
        let granted = self.tokens > kept;
        self.tokens -= i64::from(granted);
        granted
    }
}

impl Scribe {
    /// Writes until every teller is gone.
    pub async fn run(mut self) {
        while let Some(notice) = self.queue.recv().await {
            let outcome = self.write(notice).await;
            (self.count)(outcome);
        }
    }

    async fn write(&mut self, notice: Notice) -> Outcome {
        let now = (self.clock)();
        self.going.retain(|_, since| now - *since < GOING_SECONDS);
        if self.going.contains_key(notice.about.namespace()) || !self.grants(&notice, now) {
            return Outcome::Dropped;
        }
        let note = cut(&notice.note);
        let key = Key {
            about: notice.about.clone(),
            related: notice.related.clone(),
            reason: notice.reason,
            action: notice.action,
            note: (!notice.lasting).then(|| note.to_owned()),
        };
        let api: Api<Event> = Api::namespaced(self.client.clone(), notice.about.namespace());
        let goes_on = |series: &&mut Series| {
            let reworded = series.note != note && now - series.began >= REWORD_SECONDS;
            !reworded && now - series.last < SERIES_SECONDS_MAX
        };
        if let Some(series) = self.series.get_mut(&key).filter(goes_on) {
            let count = series.count.saturating_add(1);
            let patch = json!({"series": {"count": count, "lastObservedTime": time(now)}});
            let patch = Patch::Merge(&patch);
            match api
                .patch(&series.name, &PatchParams::default(), &patch)
                .await
            {
                Ok(_) => {
                    (series.count, series.last) = (count, now);
                    return Outcome::Written;
                }
                // It expired, or somebody deleted it: a new one begins.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return failed(&notice, &error),
            }
        }
        let event = event(&notice, note, now);
        let series = Series {
            name: event.metadata.name.clone().unwrap_or_default(),
            note: note.to_owned(),
            count: 1,
            began: now,
            last: now,
        };
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            self.series.remove(&key);
            if matches!(&error, kube::Error::Api(status) if in_terminating_namespace(status)) {
                let namespace = notice.about.namespace().to_owned();
                self.going.insert(namespace, now);
            }
            return failed(&notice, &error);
        }
        self.remember(key, series, now);
        Outcome::Written
    }

    fn grants(&mut self, notice: &Notice, now: i64) -> bool {
        if self.budgets.len() >= SERIES_MAX {
            let full = BURST * REFILL_SECONDS;
            self.budgets.retain(|_, budget| now - budget.since < full);
        }
        let full = Budget {
            tokens: BURST,
            since: now,
        };
        let budget = self.budgets.entry(notice.about.clone()).or_insert(full);
        budget.take(notice.weight, now)
    }

    fn remember(&mut self, key: Key, series: Series, now: i64) {
        if self.series.len() >= SERIES_MAX {
            self.series
                .retain(|_, series| now - series.last < SERIES_SECONDS_MAX);
            if self.series.len() >= SERIES_MAX {
                self.series.clear();
            }
        }
        self.series.insert(key, series);
    }
}

fn failed(notice: &Notice, error: &kube::Error) -> Outcome {
    let (reason, error) = (notice.reason, chain::of(error));
    debug!(reason, error, "an Event was not taken");
    Outcome::Failed
}

fn event(notice: &Notice, note: &str, now: i64) -> Event {
    let About {
        namespace: _,
        kind: _,
        api_version: _,
        name,
        uid,
    } = &notice.about;
    let identity = format!(
        "{uid} {:?} {} {} {note} {now}",
        notice.related, notice.reason, notice.action
    );
    let identity = sha256_hex(&identity);
    let suffix = identity.get(..16).unwrap_or(&identity);
    let type_ = match notice.weight {
        Weight::Step | Weight::Receipt => "Normal",
        Weight::Warning => "Warning",
    };
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{suffix}")),
            namespace: Some(notice.about.namespace().to_owned()),
            ..ObjectMeta::default()
        },
        event_time: Some(time(now)),
        action: Some(notice.action.to_owned()),
        reason: Some(notice.reason.to_owned()),
        note: Some(note.to_owned()),
        type_: Some(type_.to_owned()),
        regarding: Some(notice.about.reference()),
        related: notice.related.as_ref().map(About::reference),
        reporting_controller: Some(REPORTER.to_owned()),
        reporting_instance: Some(REPORTER.to_owned()),
        series: None::<EventSeries>,
        ..Event::default()
    }
}

fn time(seconds: i64) -> MicroTime {
    MicroTime(Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// As much as the API takes, ending between two characters.
fn cut(note: &str) -> &str {
    note.get(..note.floor_char_boundary(NOTE_MAX))
        .unwrap_or(note)
}
