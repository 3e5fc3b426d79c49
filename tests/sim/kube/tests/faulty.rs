//! Each way in which the API server can misbehave, and what is right about its watches.
//! Never two faults in one test.

use serde_json::{Value, json};

use super::super::api::Answer;
use super::super::faults::{Effect, Match, Rule, Trouble, Verb};
use super::super::kinds::Kind;
use super::super::target::Method;
use super::super::watch::WatchId;
use super::{Bench, MAPS, config_map, pod};

fn maps() -> Match {
    Match::kind(Kind::ConfigMap)
}

#[test]
fn each_trouble_comes_with_and_without_its_effect() {
    for (trouble, code) in [
        (Trouble::Conflict, 409),
        (Trouble::AlreadyExists, 409),
        (Trouble::TooMany(3), 429),
        (Trouble::Internal, 500),
        (Trouble::Unavailable, 503),
        (Trouble::TimedOut, 504),
    ] {
        for applied in [false, true] {
            let mut bench = Bench::new();
            let effect = Effect::Answer { trouble, applied };
            bench
                .kube
                .api
                .misbehave(Rule::once(maps().verb(Verb::Create), effect));
            let (answered, said) = bench.ask(Method::Post, MAPS, &config_map("m", ""));
            assert_eq!((answered, &said["code"]), (code, &json!(code)));
            assert_eq!(
                bench.get(Kind::ConfigMap, "m").is_some(),
                applied,
                "{trouble:?}"
            );
            let record = bench.kube.api.audit().last().expect("it is on record");
            assert_eq!(
                (record.code, record.applied, record.faulted),
                (code, applied, true)
            );
        }
    }
}

#[test]
fn a_server_that_is_too_busy_says_for_how_long() {
    let mut bench = Bench::new();
    let effect = Effect::Answer {
        trouble: Trouble::TooMany(3),
        applied: false,
    };
    bench.kube.api.misbehave(Rule::once(maps(), effect));
    let answer = bench.request(Method::Get, MAPS, &Value::Null);
    assert!(
        matches!(
            answer,
            Answer::Full {
                retry_after: Some(3),
                ..
            }
        ),
        "{answer:?}"
    );
}

#[test]
fn a_request_may_hang_or_break_after_its_effect() {
    for (effect, broken_after) in [
        (Effect::Hang { applied: true }, None),
        (
            Effect::Break {
                after: 60_000,
                applied: true,
            },
            Some(60_000),
        ),
    ] {
        let mut bench = Bench::new();
        bench.kube.api.misbehave(Rule::once(maps(), effect));
        let answer = bench.request(Method::Post, MAPS, &config_map("m", ""));
        assert_eq!(answer, Answer::Nothing { broken_after });
        assert!(bench.get(Kind::ConfigMap, "m").is_some());
        assert_eq!(
            bench.kube.api.audit().last().map(|record| record.code),
            Some(0)
        );
    }
}

#[test]
fn a_delayed_read_is_as_old_as_its_request() {
    let mut bench = Bench::new();
    bench.kube.api.misbehave(Rule::once(
        maps().verb(Verb::List),
        Effect::Delay { by: 5000 },
    ));
    let answer = bench.request(Method::Get, MAPS, &Value::Null);
    assert!(
        matches!(answer, Answer::Full { after, .. } if after > 5000),
        "{answer:?}"
    );
}

#[test]
fn a_rule_lets_some_pass_and_hits_some() {
    let mut bench = Bench::new();
    let rule = Rule {
        skip: 1,
        count: 2,
        from: 0,
        until: 100,
        ..Rule::once(
            maps().verb(Verb::List),
            Effect::Answer {
                trouble: Trouble::Internal,
                applied: false,
            },
        )
    };
    let number = bench.kube.api.misbehave(rule);
    let codes: Vec<u16> = (0..5).map(|_| bench.get_path(MAPS).0).collect();
    assert_eq!(codes, [200, 500, 500, 200, 200]);
    assert_eq!(bench.kube.api.faults.hits().get(number), Some(&2));
}

#[test]
fn a_stale_list_is_stale_only_where_it_may_be() {
    let mut bench = Bench::new();
    for name in ["a", "b", "c"] {
        bench.create(config_map(name, ""));
    }
    let rule = Rule::during(maps(), Effect::StaleList { writes: 2 }, 0, 100);
    bench.kube.api.misbehave(rule);
    let count = |list: &Value| list["items"].as_array().map(Vec::len);
    let (_, cached) = bench.get_path(&format!("{MAPS}?resourceVersion=0"));
    assert_eq!(count(&cached), Some(1));
    let (_, filling) = bench.get_path(&format!("{MAPS}?limit=50"));
    assert_eq!(count(&filling), Some(1));
    let (_, consistent) = bench.get_path(MAPS);
    assert_eq!(count(&consistent), Some(3));
    // Whoever goes on from the stale list misses nothing.
    let version = cached["metadata"]["resourceVersion"]
        .as_str()
        .expect("a version")
        .to_owned();
    let watch = bench.watch(&format!("{MAPS}?watch=true&resourceVersion={version}"));
    bench.now = 10;
    assert_eq!(bench.heard(watch), ["ADDED b", "ADDED c"]);
}

fn watched(bench: &mut Bench) -> WatchId {
    let version = bench.kube.api.store().version();
    bench.watch(&format!(
        "{MAPS}?&watch=true&allowWatchBookmarks=true&resourceVersion={version}"
    ))
}

#[test]
fn a_watch_tells_each_change_in_its_order() {
    let mut bench = Bench::new();
    let watch = watched(&mut bench);
    bench.create(config_map("m", "1"));
    assert!(bench.heard(watch).is_empty(), "not before it is due");
    bench.ask(
        Method::Patch,
        &format!("{MAPS}/m"),
        &json!({"data": {"k": "2"}}),
    );
    bench.ask(Method::Delete, &format!("{MAPS}/m"), &Value::Null);
    bench.create(pod("other kinds are not its business"));
    bench.now = 10;
    assert_eq!(bench.heard(watch), ["ADDED m", "MODIFIED m", "DELETED m"]);
}

#[test]
fn an_object_that_leaves_the_selection_is_told_as_deleted() {
    let mut bench = Bench::new();
    bench.create(config_map("m", "1"));
    let version = bench.kube.api.store().version();
    let target = format!("{MAPS}?watch=1&labelSelector=app%3Dvalkey&resourceVersion={version}");
    let watch = bench.watch(&target);
    let label = |value: Value| json!({"metadata": {"labels": {"app": value}}});
    bench.ask(Method::Patch, &format!("{MAPS}/m"), &label(json!("other")));
    bench.ask(Method::Patch, &format!("{MAPS}/m"), &label(json!("valkey")));
    bench.now = 10;
    assert_eq!(bench.heard(watch), ["DELETED m", "ADDED m"]);
}

#[test]
fn a_watch_from_nowhere_begins_with_what_is_there() {
    let mut bench = Bench::new();
    bench.create(config_map("m", "1"));
    let watch = bench.watch(&format!("{MAPS}?watch=true"));
    assert_eq!(bench.heard(watch), ["ADDED m"]);
    let target = format!(
        "{MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
         allowWatchBookmarks=true"
    );
    let watch = bench.watch(&target);
    assert_eq!(bench.heard(watch), ["ADDED m", "BOOKMARK -"]);
}

#[test]
fn a_watch_sends_bookmarks_and_ends_when_it_was_to() {
    let mut bench = Bench::new();
    let version = bench.kube.api.store().version();
    let options = "watch=true&allowWatchBookmarks=true&timeoutSeconds=90";
    let watch = bench.watch(&format!("{MAPS}?{options}&resourceVersion={version}"));
    assert_eq!(bench.kube.api.watches().next_due(watch), Some(60_000));
    bench.now = 60_000;
    assert_eq!(bench.heard(watch), ["BOOKMARK -"]);
    assert_eq!(bench.kube.api.watches().next_due(watch), Some(90_000));
    bench.now = 90_000;
    assert_eq!(bench.heard(watch), ["END"]);
    assert!(!bench.kube.api.watches().is_open(watch));
}

#[test]
fn a_lost_event_is_lost_and_only_a_list_heals_it() {
    let mut bench = Bench::new();
    let watch = watched(&mut bench);
    bench
        .kube
        .api
        .misbehave(Rule::once(maps().verb(Verb::Watch), Effect::Lose));
    bench.create(config_map("lost", ""));
    bench.create(config_map("seen", ""));
    bench.now = 10;
    assert_eq!(bench.heard(watch), ["ADDED seen"]);
    let (_, list) = bench.get_path(MAPS);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2));
}

#[test]
fn an_event_may_come_twice() {
    let mut bench = Bench::new();
    let watch = watched(&mut bench);
    bench.kube.api.misbehave(Rule::once(maps(), Effect::Double));
    bench.create(config_map("m", ""));
    bench.now = 10;
    assert_eq!(bench.heard(watch), ["ADDED m", "ADDED m"]);
}

#[test]
fn an_event_that_lags_holds_back_the_next() {
    let mut bench = Bench::new();
    let watch = watched(&mut bench);
    bench
        .kube
        .api
        .misbehave(Rule::once(maps(), Effect::Lag { by: 500 }));
    bench.create(config_map("late", ""));
    bench.create(config_map("next", ""));
    bench.now = 499;
    assert!(bench.heard(watch).is_empty());
    bench.now = 510;
    assert_eq!(bench.heard(watch), ["ADDED late", "ADDED next"]);
}

#[test]
fn an_event_may_lag_by_writes() {
    let mut bench = Bench::new();
    let watch = watched(&mut bench);
    let effect = Effect::LagWrites {
        writes: 2,
        at_most: 10_000,
    };
    bench.kube.api.misbehave(Rule::once(maps(), effect.clone()));
    bench.create(config_map("a", ""));
    bench.create(config_map("b", ""));
    bench.now = 100;
    assert!(bench.heard(watch).is_empty());
    bench.create(config_map("c", ""));
    bench.now = 200;
    assert_eq!(bench.heard(watch), ["ADDED a", "ADDED b", "ADDED c"]);
    bench.kube.api.misbehave(Rule::once(maps(), effect));
    bench.create(config_map("d", ""));
    bench.now = 20_000;
    assert_eq!(bench.heard(watch), ["ADDED d"], "not for ever");
}

#[test]
fn a_watch_is_cut_and_goes_on_from_where_it_was() {
    for (broken, end) in [(false, "END"), (true, "BROKEN")] {
        let mut bench = Bench::new();
        let watch = watched(&mut bench);
        bench.create(config_map("unsent", ""));
        let before = bench.kube.api.store().version() - 1;
        assert_eq!(bench.kube.api.cut_watches(bench.now, &maps(), broken), 1);
        assert_eq!(bench.heard(watch), [end]);
        let again = bench.watch(&format!("{MAPS}?watch=true&resourceVersion={before}"));
        bench.now = 10;
        assert_eq!(bench.heard(again), ["ADDED unsent"]);
    }
}

#[test]
fn a_history_that_is_gone_is_told_in_the_stream_and_by_rule_as_a_status() {
    let mut bench = Bench::new();
    bench.create(config_map("a", ""));
    let version = bench.kube.api.store().version();
    bench.create(config_map("b", ""));
    let open = watched(&mut bench);
    bench.kube.api.compact();
    let target = format!("{MAPS}?watch=true&resourceVersion={version}");
    let watch = bench.watch(&target);
    assert_eq!(bench.heard(watch), ["ERROR 410", "END"]);
    bench.create(config_map("c", ""));
    bench.now = 10;
    assert_eq!(bench.heard(open), ["ADDED c"], "who keeps up is not hurt");
    assert_eq!(bench.kube.api.expire_watches(bench.now, &maps()), 1);
    assert_eq!(bench.heard(open), ["ERROR 410", "END"]);
    let gone = Effect::Answer {
        trouble: Trouble::Gone,
        applied: false,
    };
    bench
        .kube
        .api
        .misbehave(Rule::once(maps().verb(Verb::Watch), gone));
    assert_eq!(bench.get_path(&target).0, 410);
    bench
        .kube
        .api
        .misbehave(Rule::once(maps().verb(Verb::Watch), Effect::GoneEvent));
    let now = bench.kube.api.store().version();
    let watch = bench.watch(&format!("{MAPS}?watch=true&resourceVersion={now}"));
    assert_eq!(bench.heard(watch), ["ERROR 410", "END"]);
}
