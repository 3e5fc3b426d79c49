//! A real `kube::Client` over the model: what it sees of watches, faults and crashes.
//! Never real time: the clock stands still until everybody waits.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::json;

use super::super::client::{Fate, Gate, Moment, Switch, World};
use super::super::faults::{Caller, Effect, Match, Rule, Trouble, Verb};
use super::super::kinds::Kind;
use super::super::{Kube, Millis};
use super::{Bench, config_map};

impl World for Bench {
    fn kube(&mut self) -> &mut Kube {
        &mut self.kube
    }

    fn advance(&mut self, now: Millis) {
        self.kube.advance(now, &mut self.toys);
        self.now = now;
    }

    fn next_event(&self) -> Option<Millis> {
        self.kube.next_event()
    }
}

struct Stage {
    world: Arc<Mutex<Bench>>,
    gate: Gate<Bench>,
    switch: Switch,
    maps: Api<ConfigMap>,
}

impl Stage {
    fn with<T>(&self, act: impl FnOnce(&mut Bench) -> T) -> T {
        let result = act(&mut self.world.lock().expect("nobody panics while it is held"));
        self.gate.nudge();
        result
    }

    /// Lets everything in flight arrive.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn run<F: Future<Output = ()>>(test: impl FnOnce(Stage) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let world = Arc::new(Mutex::new(Bench::new()));
        let gate = Gate::new(world.clone());
        let switch = Switch::default();
        let client = gate.client(Caller::Operator(1), &switch);
        tokio::spawn(gate.clone().run());
        let maps = Api::namespaced(client, "default");
        test(Stage {
            world,
            gate,
            switch,
            maps,
        })
        .await;
    });
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(config_map(name, "1")).expect("a ConfigMap")
}

fn told(event: Result<Event<ConfigMap>, watcher::Error>) -> String {
    event.map_or_else(|error| error.to_string(), |event| event.to_string())
}

#[test]
fn a_client_lists_and_writes() {
    run(|stage| async move {
        stage
            .maps
            .create(&PostParams::default(), &map("a"))
            .await
            .expect("it is new");
        stage
            .maps
            .create(&PostParams::default(), &map("b"))
            .await
            .expect("it is new");
        let again = stage.maps.create(&PostParams::default(), &map("a")).await;
        assert!(matches!(again, Err(kube::Error::Api(status)) if status.is_already_exists()));
        let list = stage
            .maps
            .list(&ListParams::default().labels("app=valkey"))
            .await;
        assert_eq!(list.expect("a list").items.len(), 2);
        let metadata = stage.maps.get_metadata_opt("a").await.expect("an answer");
        assert_eq!(metadata.expect("it is there").name_any(), "a");
        let patch = Patch::Merge(json!({"metadata": {"resourceVersion": "1"}}));
        let stale = stage.maps.patch("a", &PatchParams::default(), &patch).await;
        assert!(matches!(stale, Err(kube::Error::Api(status)) if status.is_conflict()));
        assert!(
            stage
                .maps
                .delete("a", &DeleteParams::default())
                .await
                .expect("it is there")
                .is_right()
        );
        assert!(stage.maps.get_opt("a").await.expect("an answer").is_none());
    });
}

#[test]
fn a_watcher_begins_follows_is_cut_expires_and_recovers() {
    run(|stage| async move {
        stage.with(|bench| bench.create(config_map("first", "")));
        let events = watcher(stage.maps.clone(), Config::default().page_size(1)).default_backoff();
        let mut events = Box::pin(events.map(told));
        let mut next = async || events.next().await.expect("it never ends");
        assert_eq!(next().await, "Init");
        assert_eq!(next().await, "InitApply(first)");
        assert_eq!(next().await, "InitDone");
        stage.with(|bench| bench.create(config_map("second", "")));
        assert_eq!(next().await, "Apply(second)");
        let of = Match::kind(Kind::ConfigMap);
        stage.with(|bench| {
            assert_eq!(bench.kube.api.cut_watches(bench.now, &of, true), 1);
            bench.create(config_map("third", ""))
        });
        let broken = next().await;
        assert!(broken.starts_with("watch stream failed"), "{broken}");
        assert_eq!(next().await, "Apply(third)", "nothing was missed");
        stage
            .with(|bench| {
                assert_eq!(bench.kube.api.cut_watches(bench.now, &of, false), 1);
                bench
                    .kube
                    .hand(bench.now)
                    .delete(Kind::ConfigMap, "default", "first")
            })
            .expect("it was there");
        assert_eq!(next().await, "Delete(first)", "an end is no error");
        stage.with(|bench| {
            bench.kube.api.compact();
            assert_eq!(bench.kube.api.expire_watches(bench.now, &of), 1);
            bench.create(config_map("fourth", ""))
        });
        let gone = next().await;
        assert!(
            gone.starts_with("error returned by apiserver during watch"),
            "{gone}"
        );
        for expected in [
            "Init",
            "InitApply(fourth)",
            "InitApply(second)",
            "InitApply(third)",
            "InitDone",
        ] {
            assert_eq!(next().await, expected);
        }
    });
}

#[test]
fn what_comes_in_one_moment_is_served_by_content() {
    for order in [["a", "b", "c"], ["c", "a", "b"]] {
        run(|stage| async move {
            let params = PostParams::default();
            let objects = order.map(map);
            let creates = objects
                .iter()
                .map(|object| stage.maps.create(&params, object));
            let made = futures::future::try_join_all(creates)
                .await
                .expect("all are new");
            let mut made: Vec<(String, String)> = made
                .iter()
                .map(|map| (map.resource_version().expect("a version"), map.name_any()))
                .collect();
            made.sort();
            let names: Vec<&str> = made.iter().map(|(_, name)| name.as_str()).collect();
            assert_eq!(names, ["a", "b", "c"]);
        });
    }
}

#[test]
fn a_default_client_asks_again_when_the_server_is_busy() {
    run(|stage| async move {
        let rule = Rule {
            count: 3,
            ..Rule::once(
                Match::kind(Kind::ConfigMap).verb(Verb::Create),
                Effect::Answer {
                    trouble: Trouble::TooMany(1),
                    applied: false,
                },
            )
        };
        stage.with(|bench| bench.kube.api.misbehave(rule));
        stage
            .maps
            .create(&PostParams::default(), &map("a"))
            .await
            .expect("at last");
        assert!(stage.gate.now() > 3000, "it waited as it was told");
        assert_eq!(stage.switch.writes().len(), 4);
        let rule = Rule::once(
            Match::kind(Kind::ConfigMap),
            Effect::Answer {
                trouble: Trouble::TimedOut,
                applied: true,
            },
        );
        stage.with(|bench| bench.kube.api.misbehave(rule));
        let late = stage.maps.create(&PostParams::default(), &map("b")).await;
        assert!(
            matches!(late, Err(kube::Error::Api(status)) if status.is_already_exists()),
            "the first attempt had its effect"
        );
    });
}

#[test]
fn a_request_may_never_be_answered_or_break() {
    run(|stage| async move {
        let of = Match::kind(Kind::ConfigMap).verb(Verb::Get);
        stage.with(|bench| {
            bench
                .kube
                .api
                .misbehave(Rule::once(of.clone(), Effect::Hang { applied: false }));
            let effect = Effect::Break {
                after: 500,
                applied: false,
            };
            bench.kube.api.misbehave(Rule::once(of, effect))
        });
        let hour = Duration::from_hours(1);
        assert!(
            tokio::time::timeout(hour, stage.maps.get("a"))
                .await
                .is_err()
        );
        assert!(matches!(
            stage.maps.get("a").await,
            Err(kube::Error::Service(_))
        ));
    });
}

#[test]
fn a_server_that_stood_still_goes_on_where_it_was() {
    run(|stage| async move {
        stage.settle().await;
        let now = stage.gate.now();
        stage.with(|bench| bench.kube.api.freeze(now, now + 60_000));
        let (params, object) = (PostParams::default(), map("a"));
        let made = stage.maps.create(&params, &object);
        let early = async {
            tokio::time::sleep(Duration::from_secs(59)).await;
            stage.with(|bench| bench.get(Kind::ConfigMap, "a").is_some())
        };
        let (made, early) = tokio::join!(made, early);
        made.expect("at last");
        assert!(!early && stage.gate.now() >= now + 60_000);
        assert_eq!(stage.switch.writes().len(), 1, "it was one write");
    });
}

#[test]
fn an_operator_ends_at_a_write_in_three_ways() {
    for (moment, done, heard) in [
        (Moment::BeforeEffect, 1, 1),
        (Moment::AfterEffect, 2, 1),
        (Moment::AfterAnswer, 2, 2),
    ] {
        run(|stage| async move {
            stage.switch.crash_at(2, moment);
            let events = watcher(stage.maps.clone(), Config::default());
            let mut events = Box::pin(
                events.try_filter(|event| std::future::ready(matches!(event, Event::Apply(_)))),
            );
            let answers = Arc::new(Mutex::new(0));
            let (maps, counted) = (stage.maps.clone(), answers.clone());
            tokio::spawn(async move {
                for name in ["a", "b", "c"] {
                    maps.create(&PostParams::default(), &map(name))
                        .await
                        .expect("it is new");
                    *counted.lock().expect("one thread") += 1;
                }
            });
            stage.switch.ended().await;
            stage.settle().await;
            let made = stage.with(|bench| bench.kube.list(Kind::ConfigMap, None, "").len());
            assert_eq!(
                (made, *answers.lock().expect("one thread")),
                (done, heard),
                "{moment:?}"
            );
            stage.with(|bench| bench.create(config_map("later", "")));
            let silent = tokio::time::timeout(Duration::from_hours(1), async {
                while events.next().await.is_some() {}
            });
            assert!(silent.await.is_err(), "its watches are silent");
            let read = tokio::time::timeout(Duration::from_hours(1), stage.maps.get("a"));
            assert!(read.await.is_err(), "it is not answered");
            let next = stage.gate.client(Caller::Operator(2), &Switch::default());
            let next: Api<ConfigMap> = Api::namespaced(next, "default");
            assert_eq!(
                next.list(&ListParams::default())
                    .await
                    .expect("a list")
                    .items
                    .len(),
                done + 1
            );
        });
    }
}

#[test]
fn commands_to_processes_are_counted_with_the_writes() {
    run(|stage| async move {
        stage.switch.crash_at(2, Moment::AfterEffect);
        assert_eq!(stage.switch.count_write(0), Fate::Go);
        let (params, object) = (PostParams::default(), map("a"));
        let write = stage.maps.create(&params, &object);
        assert!(
            tokio::time::timeout(Duration::from_secs(1), write)
                .await
                .is_err()
        );
        assert!(stage.with(|bench| bench.get(Kind::ConfigMap, "a").is_some()));
        assert_eq!(stage.switch.count_write(0), Fate::Vanish);
        assert_eq!(stage.switch.writes().len(), 2);
    });
}

#[test]
fn secrets_go_over_the_wire_as_bytes() {
    run(|stage| async move {
        stage.with(|bench| {
            bench.create(json!({"apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "s"}, "stringData": {"a": "b"}}))
        });
        let client = stage.gate.client(Caller::Operator(1), &stage.switch);
        let secrets: Api<Secret> = Api::namespaced(client, "default");
        let secret = secrets.get("s").await.expect("it is there");
        let data = secret.data.expect("it holds something");
        assert_eq!(
            data.get("a").map(|bytes| bytes.0.as_slice()),
            Some(b"b".as_slice())
        );
    });
}
