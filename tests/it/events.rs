//! What becomes of notices: Events as they go over the wire.
//! Never judges what is worth telling: the simulator does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use operator::act::event::{self, Notice, Outcome, Teller, Weight};
use operator::model::decision::Action;
use operator::model::desired::MenuError;
use operator::model::name::{NodeName, ShardIndex};
use operator::model::why::Why;
use operator::model::world::World;
use serde_json::{Value, json};

use crate::wire;

/// An API server that takes Events, a clock, and what became of the notices.
struct Stage {
    world: World,
    clock: Arc<AtomicI64>,
    status: Arc<AtomicU16>,
    sent: Arc<Mutex<Vec<(String, Value)>>>,
    outcomes: Arc<Mutex<Vec<Outcome>>>,
    teller: Teller,
    scribe: event::Scribe,
}

impl Stage {
    fn new() -> Self {
        let (clock, status) = (
            Arc::new(AtomicI64::new(1000)),
            Arc::new(AtomicU16::new(200)),
        );
        let sent: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let (record, answer) = (sent.clone(), status.clone());
        let api = tower::service_fn(move |request: Request<Body>| {
            let (record, status) = (record.clone(), answer.load(Ordering::Relaxed));
            async move {
                let (head, body) = request.into_parts();
                let bytes = body.collect_bytes().await.expect("a body in memory");
                let body = serde_json::from_slice(&bytes).expect("JSON");
                let line = format!("{} {}", head.method, head.uri.path());
                record.lock().expect("not poisoned").push((line, body));
                let mut refusal = json!({"kind": "Status", "apiVersion": "v1", "code": status});
                // As it says of a namespace that is going.
                if status == 403 {
                    refusal["details"] = json!({"causes": [{"reason": "NamespaceTerminating"}]});
                }
                let answer = if status == 200 {
                    json!({"metadata": {}})
                } else {
                    refusal
                };
                let answer = answer.to_string().into_bytes();
                let response = Response::builder().status(status).body(Body::from(answer));
                Ok::<_, std::io::Error>(response.expect("a status"))
            }
        });
        let outcomes: Arc<Mutex<Vec<Outcome>>> = Arc::default();
        let (count, now) = (outcomes.clone(), clock.clone());
        let (teller, scribe) = event::scribe(
            Client::new(api, "default"),
            Arc::new(move || now.load(Ordering::Relaxed)),
            Arc::new(move |outcome| count.lock().expect("not poisoned").push(outcome)),
        );
        Self {
            world: wire::world().0,
            clock,
            status,
            sent,
            outcomes,
            teller,
            scribe,
        }
    }

    /// Tells at a time; notices are written in the order of `script`, each before the next is told.
    async fn play(self, script: Vec<(i64, u16, Notice)>) -> (Vec<(String, Value)>, Vec<Outcome>) {
        let Self {
            clock,
            status,
            sent,
            outcomes,
            teller,
            scribe,
            ..
        } = self;
        let scribe = tokio::spawn(scribe.run());
        for (number, (now, code, notice)) in script.into_iter().enumerate() {
            clock.store(now, Ordering::Relaxed);
            status.store(code, Ordering::Relaxed);
            teller.tell(notice);
            while outcomes.lock().expect("not poisoned").len() <= number {
                tokio::task::yield_now().await;
            }
        }
        drop(teller);
        scribe.await.expect("it ends with its last teller");
        let sent = sent.lock().expect("not poisoned").clone();
        let outcomes = outcomes.lock().expect("not poisoned").clone();
        (sent, outcomes)
    }
}

fn missing_image() -> Why {
    Why::Menu(MenuError::ImageNotFound("i".into()))
}

const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/ns/events";

#[tokio::test]
async fn what_goes_on_is_one_event_that_grows() {
    let stage = Stage::new();
    let notice = Notice::standing(&stage.world, &missing_image());
    let script = [1000, 1010, 1030].map(|now| (now, 200, notice.clone()));
    let (sent, outcomes) = stage.play(script.to_vec()).await;
    assert_eq!(outcomes, [Outcome::Written; 3]);
    let name = sent[0].1["metadata"]["name"].as_str().expect("a name");
    let patch = format!("PATCH {EVENTS}/{name}");
    let lines: Vec<&str> = sent.iter().map(|(line, _)| line.as_str()).collect();
    assert_eq!(lines, [&format!("POST {EVENTS}"), &patch, &patch]);
    let event = &sent[0].1;
    assert_eq!(event["reason"], "Menu");
    assert_eq!(event["action"], "Wait");
    assert_eq!(event["type"], "Warning");
    assert_eq!(
        event["note"],
        "ValkeyImage \"i\" not found (create it, or name another in imageRef)"
    );
    assert_eq!(event["regarding"]["uid"], "uid-c");
    let series: Vec<&Value> = sent[1..]
        .iter()
        .map(|(_, body)| &body["series"]["count"])
        .collect();
    assert_eq!(series, [2, 3]);
}

#[tokio::test]
async fn other_words_for_the_same_begin_no_event_within_five_minutes() {
    let stage = Stage::new();
    let waiting = |detail: &str| {
        let node = NodeName::new("c-1a2b3");
        let detail = detail.to_owned();
        Notice::standing(&stage.world, &Why::PodWaiting { node, detail })
    };
    let script = vec![
        (1000, 200, waiting("ErrImagePull")),
        (1010, 200, waiting("ImagePullBackOff")),
        (1400, 200, waiting("ImagePullBackOff")),
    ];
    let (sent, _) = stage.play(script).await;
    let methods: Vec<&str> = sent
        .iter()
        .filter_map(|(line, _)| line.split(' ').next())
        .collect();
    assert_eq!(methods, ["POST", "PATCH", "POST"]);
    assert_eq!(sent[0].1["related"]["kind"], "ValkeyNode");
    assert_eq!(sent[0].1["related"]["uid"], "uid-node");
}

#[tokio::test]
async fn each_action_is_an_event_of_its_own() {
    let stage = Stage::new();
    let done = |name: &str| {
        let why = Why::ShardShort {
            shard: ShardIndex(0),
            have: 0,
            want: 1,
        };
        let action = Action::CreateNode(ShardIndex(0), None);
        Notice::done(&stage.world, &action, &why, Some(&NodeName::new(name)))
    };
    let script = ["c-aaaaa", "c-bbbbb"].map(|name| (1000, 200, done(name)));
    let (sent, _) = stage.play(script.to_vec()).await;
    let notes: Vec<&Value> = sent.iter().map(|(_, body)| &body["note"]).collect();
    assert_eq!(
        notes,
        [
            "node c-aaaaa made for shard 0: shard 0 has 0 of 1 nodes",
            "node c-bbbbb made for shard 0: shard 0 has 0 of 1 nodes"
        ]
    );
    assert_eq!(sent[0].1["action"], "CreateNode");
    assert_eq!(sent[0].1["type"], "Normal");
    assert_ne!(sent[0].1["metadata"]["name"], sent[1].1["metadata"]["name"]);
}

#[tokio::test]
async fn a_refused_event_is_counted_and_an_expired_one_begins_anew() {
    let stage = Stage::new();
    let notice = Notice::standing(&stage.world, &missing_image());
    let script = [(1000, 500), (1010, 200), (1020, 404)];
    let script = script.map(|(now, code)| (now, code, notice.clone()));
    let (sent, outcomes) = stage.play(script.to_vec()).await;
    // The third is told of an Event that is gone; to the one that would begin anew the answer is the same.
    assert_eq!(
        outcomes,
        [Outcome::Failed, Outcome::Written, Outcome::Failed]
    );
    let methods: Vec<&str> = sent
        .iter()
        .filter_map(|(line, _)| line.split(' ').next())
        .collect();
    assert_eq!(methods, ["POST", "POST", "PATCH", "POST"]);
}

/// Each refused Event was a refused request, and a cluster that is taken apart has many to tell.
#[tokio::test]
async fn a_namespace_that_is_going_is_told_nothing_for_a_minute() {
    let stage = Stage::new();
    let wait = Notice::standing(&stage.world, &missing_image());
    let script = vec![
        (1000, 403, wait.clone()),
        (1059, 200, wait.clone()),
        (1060, 200, wait),
    ];
    let (sent, outcomes) = stage.play(script).await;
    let expected = [Outcome::Failed, Outcome::Dropped, Outcome::Written];
    assert_eq!(outcomes, expected);
    assert_eq!(sent.len(), 2);
}

#[tokio::test]
async fn steps_give_way_to_receipts_and_warnings_where_there_are_too_many() {
    let stage = Stage::new();
    let notice = |number: usize, weight| Notice {
        weight,
        lasting: false,
        note: format!("number {number}"),
        ..Notice::standing(&stage.world, &Why::Paused)
    };
    let mut script: Vec<(i64, u16, Notice)> = (0..100)
        .map(|number| (1000, 200, notice(number, Weight::Step)))
        .collect();
    script.push((1000, 200, notice(100, Weight::Receipt)));
    script.push((1000, 200, notice(101, Weight::Warning)));
    // Two tokens come back.
    script.push((1010, 200, notice(102, Weight::Step)));
    let (sent, outcomes) = stage.play(script).await;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for outcome in &outcomes[..100] {
        *counts.entry(format!("{outcome:?}")).or_default() += 1;
    }
    assert_eq!(
        counts,
        BTreeMap::from([("Dropped".into(), 60), ("Written".into(), 40)])
    );
    assert_eq!(outcomes[100..102], [Outcome::Written; 2]);
    assert_eq!(
        sent.len(),
        outcomes
            .iter()
            .filter(|one| **one == Outcome::Written)
            .count()
    );
}

#[tokio::test]
async fn a_note_is_cut_where_the_api_would_refuse_it() {
    let stage = Stage::new();
    let notice = Notice {
        note: "é".repeat(2000),
        ..Notice::standing(&stage.world, &Why::Paused)
    };
    let (sent, outcomes) = stage.play(vec![(1000, 200, notice)]).await;
    assert_eq!(outcomes, [Outcome::Written]);
    assert_eq!(sent[0].1["note"].as_str().map(str::len), Some(1024));
}

#[tokio::test]
async fn a_full_queue_holds_nobody_up() {
    let stage = Stage::new();
    let notice = Notice::standing(&stage.world, &Why::Paused);
    for _ in 0..2000 {
        stage.teller.tell(notice.clone());
    }
    let outcomes = stage.outcomes.lock().expect("not poisoned").clone();
    assert_eq!(outcomes, vec![Outcome::Dropped; 976]);
}
