//! Many clusters on one config: an edit of the menu reaches all of them at once, and the API server is not overrun.
//! Never gives them a machine: what is looked at is how the operator treats the API server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::checker::Rules;
use crate::kube::Kube;
use crate::kube::client::Gate;
use crate::kube::kinds::Kind;
use crate::log::Log;
use crate::operators::Operators;
use crate::pipes::Pipes;
use crate::plan::{Millis, Part};
use crate::record::Record;
use crate::valkey::Net;
use crate::wish::NAMESPACE;
use crate::world::{Shared, World, take};

/// Clusters on one config. What each costs does not hang on how many there are; five hundred take this simulator
/// minutes.
const HERD: usize = 100;

/// From an edit of the menu to the last write that it leads to. A request takes a millisecond here, and 64 clusters
/// are served at once.
const REACHED_MAX: Millis = 2_000;

/// Ticks at once are 64 of clusters, 64 of nodes and 16 of a pass; each may read all that a cluster has at once.
const AT_ONCE_MAX: u64 = (64 + 64 + 16) * 8;

/// What one edit may cost one cluster: three writes follow on it before all have theirs (users, snapshot, node), and
/// each is confirmed by a look of eight consistent reads.
const REQUESTS_MAX: u64 = 3 * 9;

fn cluster(number: usize) -> Value {
    json!({
        "apiVersion": "valkey.gomomento.com/v1alpha1",
        "kind": "ValkeyCluster",
        "metadata": {"name": format!("cache-{number}"), "namespace": NAMESPACE},
        "spec": {
            "configRef": "standard", "shards": 1, "replicasPerShard": 0,
            "acl": [{
                "username": "app",
                "passwordHashes": ["0".repeat(64)],
                "permissions": [{"roleRef": "app", "keys": [{"pattern": "*"}]}],
            }],
        },
    })
}

struct Herd {
    world: Shared,
    api: Gate<World>,
}

impl Herd {
    fn start() -> Self {
        let record = Record::new(Rules::default(), Log::start(), false);
        let mut world = World::new(Net::new(1), Kube::new(1), record);
        world.kube.hand(0).create_namespace(NAMESPACE);
        let world = Shared::new(Mutex::new(world));
        let api = Gate::new(world.clone());
        tokio::spawn(api.clone().run());
        Self { world, api }
    }

    /// A person applies objects.
    fn apply(&self, objects: impl IntoIterator<Item = Value>) {
        let mut world = take(&self.world);
        let now = world.now();
        for object in objects {
            let made = world.kube.hand(now).apply(object);
            made.expect("a valid object");
        }
        drop(world);
        self.api.nudge();
    }

    /// Waits until it holds, and tells how long it took, how many requests there were, and how many at once.
    async fn until(&self, what: &str, holds: impl Fn(&Kube) -> bool) -> (Millis, u64, u64) {
        let begun = take(&self.world).now();
        let took = loop {
            let took = {
                let world = take(&self.world);
                let took = world.now() - begun;
                if holds(&world.kube) {
                    break took;
                }
                took
            };
            assert!(took < 60_000, "{what}: never");
            sleep(Duration::from_millis(10)).await;
        };
        let world = take(&self.world);
        let served = world.served.range(begun..).map(|(_, count)| *count);
        let at_once = served.clone().max().unwrap_or_default();
        let told = (took, served.sum(), at_once);
        println!(
            "herd: {what}: {} ms, {} requests, {} at once",
            told.0, told.1, told.2
        );
        told
    }
}

fn written(kube: &Kube, text: &str) -> bool {
    let maps = kube.list(Kind::ConfigMap, Some(NAMESPACE), "");
    let files = maps
        .iter()
        .filter_map(|map| map["data"]["users.acl"].as_str());
    files.filter(|file| file.contains(text)).count() == HERD
}

#[test]
fn clusters_on_one_config_are_served_at_once_and_no_stampede() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime needs nothing but memory");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let hears = tracing_subscriber::registry().with(Log::start());
        let _hears = tracing::subscriber::set_default(hears);
        let herd = Herd::start();
        herd.apply((0..HERD).map(cluster));
        let mut operators = Operators {
            first: None,
            wall: Arc::default(),
            pipes: Pipes::start(&herd.world, &herd.api),
            api: herd.api.clone(),
            seed: 1,
        };
        let _running = operators.start(0, None);
        let kept = |kube: &Kube| kube.list(Kind::Secret, Some(NAMESPACE), "").len() == HERD;
        herd.until(
            "all wait for the menu, with what is kept in every state",
            kept,
        )
        .await;

        // One after the other what is missing appears; only the last is followed by a write.
        for part in [Part::Config, Part::BaseConfig, Part::Image] {
            herd.apply([part.object()]);
            sleep(Duration::from_millis(REACHED_MAX)).await;
            assert!(
                take(&herd.world)
                    .kube
                    .list(Kind::ValkeyNode, Some(NAMESPACE), "")
                    .is_empty()
            );
        }
        herd.apply([Part::Role.object()]);
        judge(
            herd.until("the last missing part appears", |kube| {
                written(kube, "user app on")
            })
            .await,
        );
        let placed = |kube: &Kube| kube.list(Kind::Pod, Some(NAMESPACE), "").len() == HERD;
        herd.until("each has its pod", placed).await;
        sleep(Duration::from_millis(REACHED_MAX)).await;

        let mut role = Part::Role.object();
        role["spec"]["commands"][0]["name"] = json!("object");
        role["spec"]["commands"][0]["subcommand"] = json!("encoding");
        herd.apply([role]);
        judge(
            herd.until("a role is edited", |kube| written(kube, "+object|encoding"))
                .await,
        );
        sleep(Duration::from_millis(REACHED_MAX)).await;

        // What changes nothing is looked up and not asked.
        let mut image = Part::Image.object();
        image["spec"]["version"] = json!("9.1");
        let before = total(&herd);
        herd.apply([image]);
        sleep(Duration::from_millis(100)).await;
        let cost = total(&herd) - before;
        println!("herd: an edit that changes no cluster: {cost} requests");
        assert!(
            cost < u64::try_from(HERD).expect("a small number"),
            "{cost} requests"
        );
        assert!(take(&herd.world).record.violation.is_none());
    });
}

fn total(herd: &Herd) -> u64 {
    take(&herd.world).served.values().sum()
}

fn judge((took, requests, at_once): (Millis, u64, u64)) {
    let herd = u64::try_from(HERD).expect("a small number");
    assert!(took <= REACHED_MAX, "{took} ms");
    assert!(requests <= herd * REQUESTS_MAX, "{requests} requests");
    assert!(at_once <= AT_ONCE_MAX, "{at_once} at once");
}
