//! Every behaviour and every fault of the model, once.
//! Never a run of the operator: that is for the suites.

mod faulty;
mod objects;
mod pods;
mod through_client;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::api::Answer;
use super::containers::{Containers, Exit, Files, Launch, Signal, StartFailure};
use super::faults::Caller;
use super::hosts::HostSpec;
use super::kinds::Kind;
use super::target::{Call, Method};
use super::watch::{WatchId, WatchItem};
use super::{Kube, Millis};

/// Processes that run until they are told otherwise.
#[derive(Debug, Default)]
struct Toys {
    launched: Vec<Launch>,
    signals: Vec<(Millis, String, Signal)>,
    exits: BTreeMap<String, Exit>,
    refreshed: Vec<(Millis, Files)>,
    /// Ignores SIGTERM.
    stubborn: bool,
    /// Answers no probe.
    hung: bool,
}

impl Containers for Toys {
    fn start(&mut self, _: Millis, launch: Launch) -> Result<(), StartFailure> {
        self.launched.push(launch);
        Ok(())
    }

    fn signal(&mut self, now: Millis, uid: &str, signal: Signal) {
        self.signals.push((now, uid.to_owned(), signal));
        let code = match signal {
            Signal::Term if self.stubborn => return,
            Signal::Term => 0,
            Signal::Kill => 137,
        };
        self.end(uid, code, "");
    }

    fn exited(&mut self, _: Millis, uid: &str) -> Option<Exit> {
        self.exits.remove(uid)
    }

    fn refresh(&mut self, now: Millis, _: &str, files: Files) {
        self.refreshed.push((now, files));
    }

    fn answers_probe(&mut self, _: Millis, _: &str) -> bool {
        !self.hung
    }
}

impl Toys {
    fn end(&mut self, uid: &str, code: i32, message: &str) {
        let exit = Exit {
            code,
            reason: None,
            message: message.to_owned(),
        };
        self.exits.insert(uid.to_owned(), exit);
    }
}

/// A model with toys for processes.
struct Bench {
    kube: Kube,
    toys: Toys,
    now: Millis,
}

impl Bench {
    fn new() -> Self {
        Self {
            kube: Kube::new(7),
            toys: Toys::default(),
            now: 0,
        }
    }

    /// Three hosts in three zones, and an image.
    fn with_hosts() -> Self {
        let mut bench = Self::new();
        for (host, zone) in [("h1", "a"), ("h2", "b"), ("h3", "c")] {
            bench.kube.add_host(0, &HostSpec::new(host, zone));
        }
        bench.kube.add_image("valkey:9");
        bench
    }

    fn run_to(&mut self, until: Millis) {
        while let Some(due) = self.kube.next_event().filter(|due| *due <= until) {
            self.kube.advance(due, &mut self.toys);
        }
        self.kube.advance(until, &mut self.toys);
        self.now = until;
    }

    fn run_for(&mut self, time: Millis) {
        self.run_to(self.now + time);
    }

    fn create(&mut self, object: Value) -> Value {
        let made = self.kube.hand(self.now).create(object);
        made.expect("it can be made")
    }

    fn get(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.kube.get(kind, "default", name)
    }

    /// What is answered: status and body.
    fn ask(&mut self, method: Method, target: &str, body: &Value) -> (u16, Value) {
        match self.request(method, target, body) {
            Answer::Full { status, body, .. } => {
                (status, serde_json::from_slice(&body).expect("JSON"))
            }
            Answer::Stream { .. } | Answer::Nothing { .. } | Answer::Later { .. } => {
                (0, Value::Null)
            }
        }
    }

    fn request(&mut self, method: Method, target: &str, body: &Value) -> Answer {
        let call = call(method, target, body);
        self.kube.request(self.now, &call)
    }

    fn get_path(&mut self, target: &str) -> (u16, Value) {
        self.ask(Method::Get, target, &Value::Null)
    }

    fn watch(&mut self, target: &str) -> WatchId {
        let answer = self.request(Method::Get, target, &Value::Null);
        let Answer::Stream { watch, .. } = answer else {
            panic!("no watch but {answer:?}");
        };
        watch
    }

    /// What a watch says by now, each event as its type and the object's name and version.
    fn heard(&mut self, watch: WatchId) -> Vec<String> {
        let mut heard = Vec::new();
        while let Some(item) = self.kube.api.poll_watch(self.now, watch) {
            heard.push(match item {
                WatchItem::Line(line) => shown(&line),
                WatchItem::End => "END".to_owned(),
                WatchItem::Broken => "BROKEN".to_owned(),
            });
        }
        heard
    }
}

fn shown(line: &[u8]) -> String {
    let event: Value = serde_json::from_slice(line).expect("a line of JSON");
    let word = event["type"].as_str().unwrap_or_default();
    let object = &event["object"];
    if let Some(code) = object["code"].as_u64() {
        return format!("{word} {code}");
    }
    let name = object["metadata"]["name"].as_str().unwrap_or("-");
    format!("{word} {name}")
}

fn call(method: Method, target: &str, body: &Value) -> Call {
    let body = if body.is_null() {
        Vec::new()
    } else {
        serde_json::to_vec(body).expect("JSON")
    };
    Call {
        caller: Caller::Operator(1),
        method,
        target: target.to_owned(),
        body,
        accept: "application/json".to_owned(),
        content_type: match method {
            Method::Patch => "application/merge-patch+json".to_owned(),
            Method::Get | Method::Post | Method::Put | Method::Delete => {
                "application/json".to_owned()
            }
        },
    }
}

fn config_map(name: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app": "valkey"}}, "data": {"k": text}})
}

fn cluster(name: &str) -> Value {
    json!({"apiVersion": "valkey.gomomento.com/v1alpha1", "kind": "ValkeyCluster",
        "metadata": {"name": name},
        "spec": {"configRef": "standard", "shards": 1, "replicasPerShard": 0}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": name, "labels": {"app": "valkey"}},
    "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 30,
        "containers": [{"name": "valkey", "image": "valkey:9",
            "command": ["valkey-server"], "args": ["--announce", "$(POD_IP)"],
            "env": [{"name": "POD_IP",
                "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}],
    }})
}

const CLUSTERS: &str = "/apis/valkey.gomomento.com/v1alpha1/namespaces/default/valkeyclusters";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
