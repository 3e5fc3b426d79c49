//! For each rule a run that breaks it and one that comes near. Never a simulator: the evidence is written
//! by hand.

mod data;
mod lifecycle;
mod liveness;
mod membership;
mod objects;
mod rolls;
mod status;

use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use super::Checker;
use super::Rules;
use super::Violation;
use super::evidence::Actor;
use super::evidence::Command;
use super::evidence::Fault;
use super::evidence::Hits;
use super::evidence::Millis;
use super::evidence::Name;
use super::evidence::Object;
use super::evidence::Outcome;
use super::evidence::Process;
use super::evidence::Role;
use super::evidence::Row;
use super::evidence::Snapshot;
use super::evidence::Step;
use super::evidence::Verb;
use super::evidence::What;
use super::evidence::Write;
use super::slots::Slots;

/// The operator of most runs.
const OPERATOR: Actor = Actor::Operator(0);

/// A run over a cluster `ns/c`: formed, Active and healthy until a test changes something.
///
/// Node `a0` is the primary of shard 0, `a1` its replica, `b0` the primary of shard 1. A node's pod has the
/// uid `pod-a0`, its process the id `id-a0` and an address that ends in its place.
struct Run {
    checker: Checker,
    truth: Snapshot,
    at: Millis,
}

impl Run {
    fn new(shards: usize, replicas: usize) -> Self {
        let mut run = Self {
            checker: Checker::new(Rules::default()),
            truth: Snapshot::default(),
            at: 100_000,
        };
        run.add_cluster("c", shards, replicas, "");
        run
    }

    /// Another cluster beside the first: its nodes' names begin with a prefix.
    fn add_cluster(&mut self, name: &str, shards: usize, replicas: usize, prefix: &str) {
        let uid = format!("uid-{name}");
        self.put(
            "ValkeyCluster",
            name,
            json!({
                "metadata": { "uid": uid, "finalizers": ["valkey.gomomento.com/cleanup"] },
                "spec": { "configRef": "standard", "shards": shards, "replicasPerShard": replicas },
                "status": { "state": "Active" },
            }),
        );
        self.put_menu("ValkeyConfig", "standard", &json!({ "imageRef": "v9" }));
        self.put_menu(
            "ValkeyImage",
            "v9",
            &json!({ "repository": "r", "tag": "t" }),
        );
        for (kind, tail, data) in [
            ("Service", "", json!({})),
            ("Secret", "-operator-auth", json!({})),
            (
                "ConfigMap",
                "-acl",
                json!({ "users.acl": "user default on nopass ~* &* +@all\n" }),
            ),
        ] {
            let mut object =
                json!({ "metadata": owned("ValkeyCluster", &uid, name), "data": data });
            object["metadata"]["annotations"] = json!({ "theirs": "1" });
            self.put(kind, &format!("{name}{tail}"), object);
        }
        let per_shard = 16384 / shards;
        for shard in 0..shards {
            for member in 0..=replicas {
                let node = format!("{prefix}{}{member}", letter(shard));
                self.add_node(name, &node, shard);
                let first = u16::try_from(shard * per_shard).unwrap();
                let last = if shard + 1 == shards {
                    16384
                } else {
                    (shard + 1) * per_shard
                };
                let slots = Slots::of([(first, u16::try_from(last - 1).unwrap())]);
                let place = self.truth.processes.len() + 1;
                let primary = format!("id-{prefix}{}0", letter(shard));
                self.truth.processes.push(Arc::new(Process {
                    home: Name::new("ns", name),
                    pod: format!("pod-{node}"),
                    ip: format!("10.0.0.{place}"),
                    id: format!("id-{node}"),
                    role: match member {
                        0 => Role::Primary,
                        _ => Role::Replica {
                            of: primary,
                            linked: true,
                            synced: true,
                        },
                    },
                    accepts: if member == 0 {
                        slots.clone()
                    } else {
                        Slots::default()
                    },
                    keyed: slots,
                    state_ok: true,
                    offset: 1000,
                    ..Process::default()
                }));
            }
        }
        self.introduce();
    }

    /// A node with its pod, Active, without a process.
    fn add_node(&mut self, cluster: &str, node: &str, shard: usize) {
        let mut metadata = owned("ValkeyCluster", &format!("uid-{cluster}"), cluster);
        metadata["uid"] = json!(format!("node-{node}"));
        metadata["annotations"] = json!({ "valkey.gomomento.com/pod-uid": format!("pod-{node}") });
        metadata["finalizers"] = json!(["valkey.gomomento.com/node-cleanup"]);
        metadata["labels"]["valkey.gomomento.com/shard-index"] = json!(shard.to_string());
        let spec = json!({ "clusterName": cluster, "shardIndex": shard, "lifecycle": "Active" });
        self.put(
            "ValkeyNode",
            node,
            json!({ "metadata": metadata, "spec": spec }),
        );
        let mut metadata = owned("ValkeyNode", &format!("node-{node}"), cluster);
        metadata["uid"] = json!(format!("pod-{node}"));
        metadata["labels"]["valkey.gomomento.com/shard-index"] = json!(shard.to_string());
        self.put(
            "Pod",
            node,
            json!({ "metadata": metadata, "spec": { "hostname": node } }),
        );
    }

    /// Everybody lists everybody of its cluster, as each says of itself.
    fn introduce(&mut self) {
        let rows: Vec<(Name, Row)> = self
            .truth
            .processes
            .iter()
            .map(|process| {
                let slots = match process.role {
                    Role::Primary => process.accepts.clone(),
                    Role::Replica { .. } => Slots::default(),
                };
                let row = Row {
                    id: process.id.clone(),
                    ip: process.ip.clone(),
                    connected: true,
                    slots,
                    ..Row::default()
                };
                (process.home.clone(), row)
            })
            .collect();
        for process in &mut self.truth.processes {
            let of_its_own = rows.iter().filter(|(home, _)| *home == process.home);
            let table = of_its_own.map(|(_, row)| row.clone()).collect();
            Arc::make_mut(process).table = table;
        }
    }

    fn put(&mut self, kind: &str, name: &str, mut body: Value) {
        body["metadata"]["name"] = json!(name);
        let name = Name::new("ns", name);
        self.set(kind, name, body);
    }

    fn put_menu(&mut self, kind: &str, name: &str, spec: &Value) {
        let body = json!({ "metadata": { "name": name, "uid": name }, "spec": spec });
        self.set(kind, Name::new("", name), body);
    }

    fn set(&mut self, kind: &str, name: Name, body: Value) {
        self.truth
            .objects
            .retain(|object| object.kind != kind || object.name != name);
        self.truth.objects.push(Arc::new(Object {
            kind: kind.to_owned(),
            name,
            body: Arc::new(body),
        }));
    }

    fn remove(&mut self, kind: &str, name: &str) {
        self.truth
            .objects
            .retain(|object| object.kind != kind || object.name.name != name);
    }

    fn body(&self, kind: &str, name: &str) -> Value {
        let mut objects = self.truth.objects.iter();
        let found = objects.find(|object| object.kind == kind && object.name.name == name);
        Value::clone(&found.unwrap_or_else(|| panic!("no {kind} {name}")).body)
    }

    /// Changes a field of an object in the truth.
    fn edit(&mut self, kind: &str, name: &str, pointer: &str, value: Value) {
        let mut body = self.body(kind, name);
        set_at(&mut body, pointer, value);
        let old = self
            .truth
            .objects
            .iter()
            .find(|it| it.kind == kind && it.name.name == name);
        let key = old.unwrap().name.clone();
        self.set(kind, key, body);
    }

    /// The process of a node, to be changed.
    fn process(&mut self, node: &str) -> &mut Process {
        let pod = format!("pod-{node}");
        let mut processes = self.truth.processes.iter_mut();
        Arc::make_mut(processes.find(|process| process.pod == pod).unwrap())
    }

    /// A row of a node's table, to be changed.
    fn row(&mut self, node: &str, of: &str) -> &mut Row {
        let id = format!("id-{of}");
        let mut rows = self.process(node).table.iter_mut();
        rows.find(|row| row.id == id).unwrap()
    }

    fn wait(&mut self, millis: Millis) -> &mut Self {
        self.at += millis;
        self
    }

    fn step(&mut self, by: Actor, what: What) -> Result<(), Violation> {
        let step = Step {
            at: self.at,
            by,
            what,
            truth: Some(Arc::new(self.truth.clone())),
        };
        self.checker.step(&step)
    }

    fn look(&mut self) -> Result<(), Violation> {
        self.step(Actor::Machinery, What::Look)
    }

    fn tick(&mut self, cluster: &str) {
        holds(self.step(OPERATOR, What::Tick(Name::new("ns", cluster))));
    }

    /// The operator gives a command to a node's process.
    fn tells(&mut self, node: &str, words: &str) -> Result<(), Violation> {
        let Process { ip, pod, id, .. } = self.process(node).clone();
        let command = Command {
            ip,
            pod: Some(pod),
            id: Some(id),
            words: words.split(' ').map(str::to_owned).collect(),
            outcome: Outcome::Done,
        };
        self.step(OPERATOR, What::Command(command))
    }

    /// Somebody makes an object. The truth is as before: a test puts it there.
    fn creates(
        &mut self,
        by: Actor,
        kind: &str,
        name: &str,
        body: &Value,
    ) -> Result<(), Violation> {
        let write = write(Verb::Create, kind, name, None, Some(body.clone()));
        self.step(by, What::Write(write))
    }

    /// Somebody deletes an object.
    fn deletes(&mut self, by: Actor, kind: &str, name: &str) -> Result<(), Violation> {
        let before = self.body(kind, name);
        let write = write(Verb::Delete, kind, name, Some(before), None);
        self.step(by, What::Write(write))
    }

    /// Somebody changes a field of an object, in the truth too.
    fn patches(
        &mut self,
        by: Actor,
        (kind, name): (&str, &str),
        pointer: &str,
        value: Value,
    ) -> Result<(), Violation> {
        let before = self.body(kind, name);
        let mut after = before.clone();
        set_at(&mut after, pointer, value.clone());
        let write = write(Verb::Patch, kind, name, Some(before), Some(after));
        let told = self.step(by, What::Write(write));
        self.edit(kind, name, pointer, value);
        told
    }

    /// A fault on the pods of these nodes.
    fn breaks(&mut self, id: &str, nodes: &[&str]) {
        let pods = nodes.iter().map(|node| format!("pod-{node}")).collect();
        let (id, hits) = (id.to_owned(), Hits::Pods(pods));
        holds(self.step(Actor::Saboteur, What::Fault(Fault { id, hits })));
    }
}

fn letter(shard: usize) -> char {
    char::from(b'a' + u8::try_from(shard).unwrap())
}

/// The metadata of what an operator made.
fn owned(kind: &str, uid: &str, cluster: &str) -> Value {
    json!({
        "uid": format!("of-{uid}"),
        "labels": {
            "app.kubernetes.io/instance": cluster,
            "app.kubernetes.io/managed-by": "valkey-operator",
        },
        "ownerReferences": [{ "kind": kind, "uid": uid, "controller": true }],
    })
}

fn write(verb: Verb, kind: &str, name: &str, before: Option<Value>, after: Option<Value>) -> Write {
    let menu = ["ValkeyConfig", "ValkeyImage", "ValkeyRole"].contains(&kind);
    Write {
        verb,
        kind: kind.to_owned(),
        name: Name::new(if menu { "" } else { "ns" }, name),
        subresource: String::new(),
        before: before.map(Arc::new),
        after: after.map(Arc::new),
        outcome: Outcome::Done,
    }
}

/// Sets a field, or takes it away where the value is null. Missing objects on the way are made.
fn set_at(body: &mut Value, pointer: &str, value: Value) {
    let unescaped = |part: &str| part.replace("~1", "/");
    let mut parts: Vec<String> = pointer.split('/').skip(1).map(unescaped).collect();
    let last = parts.pop().unwrap();
    let mut at = body;
    for part in parts {
        at = &mut at[part];
    }
    if value.is_null() {
        if let Some(map) = at.as_object_mut() {
            map.remove(&last);
        }
    } else {
        at[last] = value;
    }
}

#[track_caller]
fn holds(told: Result<(), Violation>) {
    if let Err(violation) = told {
        panic!("{violation}");
    }
}

#[track_caller]
fn broken(rule: &str, told: Result<(), Violation>) {
    match told {
        Err(violation) if violation.rule == rule => {}
        Err(violation) => panic!("not {rule} but {violation}"),
        Ok(()) => panic!("{rule} was not noticed"),
    }
}

#[test]
fn every_rule_is_judged() {
    let safety = (1..=24).map(|number| format!("S{number}"));
    let liveness = (1..=11).map(|number| format!("L{number}"));
    let elsewhere = ["L1", "L2", "L3", "L5", "L6", "L7", "L9"];
    for rule in safety.chain(liveness) {
        let listed = super::LAWS.iter().filter(|(law, _)| *law == rule).count();
        assert_eq!(listed == 0, elsewhere.contains(&rule.as_str()), "{rule}");
        assert!(listed < 2, "{rule}");
    }
}

#[test]
fn a_healthy_cluster_breaks_no_rule() {
    let mut run = Run::new(3, 1);
    holds(run.look());
    run.tick("c");
    holds(run.wait(1000).look());
}
