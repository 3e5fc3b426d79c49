//! Made-up evidence in the form of the real: a run that breaks a rule, and one that comes near.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use super::Evidence;
use super::Seen;
use super::judge;
use crate::checker::evidence::Life;
use crate::checker::evidence::Name;
use crate::checker::evidence::Process;
use crate::checker::evidence::Role;
use crate::checker::evidence::Row;
use crate::checker::slots::Slots;

const MACHINERY: &str = "system:node:node-1";

/// A shard of a primary `a` and a replica `b`, Active, written down as it would be seen.
struct Run(Vec<Evidence>);

impl Run {
    fn new() -> Self {
        let mut run = Self(Vec::new());
        run.object(
            "create",
            "ValkeyCluster",
            "c",
            &json!({
                "metadata": {"uid": "uid-c", "resourceVersion": "1"},
                "spec": {"configRef": "standard", "shards": 1, "replicasPerShard": 1},
                "status": {"state": "Active"},
            }),
        );
        for node in ["a", "b"] {
            run.node(node);
        }
        run
    }

    fn node(&mut self, node: &str) {
        let labels = json!({
            "app.kubernetes.io/instance": "c",
            "app.kubernetes.io/managed-by": "valkey-operator",
            "valkey.gomomento.com/shard-index": "0",
        });
        let owner = json!([{"kind": "ValkeyCluster", "uid": "uid-c"}]);
        let stamp = json!({"valkey.gomomento.com/pod-uid": format!("pod-{node}")});
        self.object(
            "create",
            "ValkeyNode",
            node,
            &json!({
                "metadata": {
                    "uid": format!("node-{node}"), "resourceVersion": "2", "labels": labels,
                    "ownerReferences": owner, "annotations": stamp,
                },
                "spec": {"clusterName": "c", "shardIndex": 0, "lifecycle": "Active"},
            }),
        );
        self.object(
            "create",
            "Pod",
            node,
            &json!({
                "metadata": {
                    "uid": format!("pod-{node}"), "resourceVersion": "3", "labels": labels,
                },
                "status": {"phase": "Running"},
            }),
        );
    }

    /// What Kubernetes itself did.
    fn object(&mut self, verb: &str, kind: &str, name: &str, body: &Value) {
        self.asked(MACHINERY, verb, kind, name, body);
    }

    fn asked(&mut self, user: &str, verb: &str, kind: &str, name: &str, body: &Value) {
        let (resource, _) = super::KINDS
            .iter()
            .find(|(_, known)| *known == kind)
            .expect("a kind");
        self.see(Seen::Asked(json!({
            "verb": verb,
            "user": {"username": user},
            "objectRef": {"resource": resource, "namespace": "ns", "name": name},
            "responseStatus": {"code": 200},
            "responseObject": body,
        })));
    }

    fn said(&mut self, message: &str, node: &str) {
        let fields = json!({
            "message": message, "namespace": "ns", "cluster_name": "c", "node": node,
        });
        self.see(Seen::Said(json!({"fields": fields})));
    }

    fn look(&mut self, processes: &[Process]) {
        self.look_since(self.next(), processes);
    }

    /// A look that begins at a moment, and is over next.
    fn look_since(&mut self, begun: i64, processes: &[Process]) {
        let processes = processes.iter().cloned().map(Arc::new).collect();
        self.see(Seen::Look { begun, processes });
    }

    fn see(&mut self, seen: Seen) {
        let at = self.next();
        self.0.push(Evidence { at, seen });
    }

    /// A second after what was seen before.
    fn next(&self) -> i64 {
        self.0.last().map_or(0, |last| last.at + 1_000_000)
    }

    fn broken(self) -> Vec<&'static str> {
        judge(self.0).broken.into_keys().collect()
    }
}

fn process(node: &str, role: Role) -> Process {
    let slots = Slots::all();
    let row = |node: &str, slots: &Slots| Row {
        id: format!("id-{node}"),
        slots: slots.clone(),
        ..Row::default()
    };
    Process {
        home: Name::new("ns", "c"),
        pod: format!("pod-{node}"),
        ip: format!("ip-{node}"),
        life: Life::Alive,
        id: format!("id-{node}"),
        accepts: if role == Role::Primary {
            slots.clone()
        } else {
            Slots::default()
        },
        role,
        state_ok: true,
        table: vec![row("a", &slots), row("b", &Slots::default())],
        keyed: slots,
        ..Process::default()
    }
}

fn replica(linked: bool) -> Process {
    let of = "id-a".to_owned();
    process(
        "b",
        Role::Replica {
            of,
            linked,
            synced: true,
        },
    )
}

#[test]
fn what_is_made_for_an_object_whose_maker_has_not_heard_of_it_yet_has_an_owner() {
    let mut run = Run::new();
    let node = run
        .0
        .iter()
        .position(
            |one| matches!(&one.seen, Seen::Asked(event) if event["objectRef"]["name"] == "b"),
        )
        .expect("the creation of node b");
    let owner = json!([{"kind": "ValkeyNode", "uid": "node-b"}]);
    let labels = json!({
        "app.kubernetes.io/instance": "c", "app.kubernetes.io/managed-by": "valkey-operator",
    });
    let config = json!({
        "metadata": {
            "uid": "config-b", "resourceVersion": "4", "labels": labels, "ownerReferences": owner,
        },
    });
    run.asked(super::OPERATOR, "create", "ConfigMap", "b-config", &config);
    let heard = run.0.last().expect("the ConfigMap").at;
    run.0[node].at = heard + 1;
    assert_eq!(run.broken(), Vec::<&str>::new());
}

#[test]
fn a_primary_that_is_deleted_with_its_slots_is_noticed() {
    let mut run = Run::new();
    let both = [process("a", Role::Primary), replica(true)];
    run.look(&both);
    run.asked(super::OPERATOR, "delete", "ValkeyNode", "a", &Value::Null);
    run.look(&both);
    assert_eq!(run.broken(), ["S5"]);
}

#[test]
fn what_a_look_shows_that_was_not_over_was_not_there_before() {
    let alive = [process("a", Role::Primary), replica(true)];
    let mut ended = alive.clone();
    ended[0].life = Life::Ended;
    let mut run = Run::new();
    run.look(&alive);
    let begun = run.next();
    run.asked(super::OPERATOR, "delete", "ValkeyNode", "a", &Value::Null);
    run.look_since(begun, &ended);
    run.look(&ended);
    assert_eq!(run.broken(), ["S5"]);
}

#[test]
fn a_failover_onto_a_replica_out_of_step_is_noticed() {
    let failover = |after: Process| {
        let mut run = Run::new();
        run.look(&[process("a", Role::Primary), replica(false)]);
        run.said("failover to up-to-date replica for rolling upgrade", "b");
        run.look(&[process("a", Role::Primary), after]);
        run.broken()
    };
    assert_eq!(failover(replica(false)), ["S9"]);
    // It may have been in step by then, and was if it was let in.
    assert_eq!(failover(replica(true)), [""; 0]);
    assert_eq!(failover(process("b", Role::Primary)), [""; 0]);
}

#[test]
fn two_writers_of_a_slot_are_noticed_where_they_last() {
    let writers = |looks: usize| {
        let mut run = Run::new();
        for _ in 0..looks {
            run.look(&[process("a", Role::Primary), process("b", Role::Primary)]);
        }
        run.look(&[process("a", Role::Primary), replica(true)]);
        run.broken()
    };
    assert_eq!(writers(2), ["S12"]);
    // Processes are not asked in one moment.
    assert_eq!(writers(1), [""; 0]);
}

#[test]
fn two_actions_without_an_end_between_them_are_one_tick() {
    let tick = |end: Option<&Value>| {
        let mut run = Run::new();
        run.look(&[process("a", Role::Primary), replica(true)]);
        run.said("spec captured", "");
        let node = json!({
            "metadata": {"labels": {
                "app.kubernetes.io/instance": "c",
                "app.kubernetes.io/managed-by": "valkey-operator",
                "valkey.gomomento.com/shard-index": "0",
                "valkey.gomomento.com/join-type": "shard",
            }, "ownerReferences": [{"kind": "ValkeyCluster", "uid": "uid-c"}]},
        });
        for name in ["d", "e"] {
            run.asked(super::OPERATOR, "create", "ValkeyNode", name, &node);
            if let Some(line) = end {
                run.see(Seen::Said(line.clone()));
            }
        }
        run.broken().contains(&"S1")
    };
    assert!(tick(None));
    let created = json!({
        "fields": {"message": "node created", "namespace": "ns", "cluster_name": "c"},
    });
    assert!(!tick(Some(&created)));
    // A write that came through was not answered.
    let failed = |reconciled: &str| {
        json!({
            "fields": {"message": "reconcile error, requeuing"},
            "span": {"object.ref": format!("{reconciled}.v1alpha1.valkey.gomomento.com/c.ns")},
        })
    };
    assert!(!tick(Some(&failed("ValkeyCluster"))));
    assert!(tick(Some(&failed("ValkeyNode"))), "of another controller");
}

#[test]
fn a_primary_that_is_forgotten_before_its_replica_took_over_is_noticed() {
    let forgotten = |promoted: bool| {
        let dead = Process {
            life: Life::Ended,
            ..process("a", Role::Primary)
        };
        let owns = |node: &str, slots: Slots| Row {
            id: format!("id-{node}"),
            slots,
            ..Row::default()
        };
        let mut witness = Process {
            accepts: Slots::default(),
            ..process("w", Role::Primary)
        };
        let mut run = Run::new();
        run.node("w");
        run.look(&[dead.clone(), replica(false), witness.clone()]);
        let said = json!({
            "message": "dead member forgotten", "namespace": "ns", "cluster_name": "c",
            "member": "id-a",
        });
        run.see(Seen::Said(json!({"fields": said})));
        let survivor = if promoted {
            witness.table = vec![owns("b", Slots::all())];
            process("b", Role::Primary)
        } else {
            witness.table = vec![owns("b", Slots::default())];
            replica(false)
        };
        let survivor = Process {
            table: witness.table.clone(),
            ..survivor
        };
        run.look(&[dead, survivor, witness]);
        run.broken().contains(&"S3")
    };
    assert!(forgotten(false));
    // Both can have come between two looks.
    assert!(!forgotten(true));
}

#[test]
fn a_takeover_that_a_vote_could_have_made_is_noticed() {
    let taken = |voters: &[&str], newcomer: Option<&str>, gone: Option<&str>| {
        let rows = |owners: [&str; 3]| -> Vec<Row> {
            let ranges = [(0, 5460), (5461, 10922), (10923, 16383)];
            let rows = owners.into_iter().zip(ranges);
            rows.map(|(node, range)| Row {
                id: format!("id-{node}"),
                slots: Slots::of([range]),
                ..Row::default()
            })
            .collect()
        };
        let look = |owners: [&str; 3], role: Role| {
            let mut look = vec![process("a", Role::Primary), process("b", role)];
            look.extend(voters.iter().map(|node| process(node, Role::Primary)));
            for process in &mut look {
                process.table = rows(owners);
                process.accepts = Slots::default();
            }
            look[0].life = Life::Ended;
            look
        };
        let mut run = Run::new();
        for node in voters {
            run.node(node);
        }
        let of = "id-a".to_owned();
        let replica = Role::Replica {
            of,
            linked: false,
            synced: true,
        };
        for _ in 0..4 {
            run.look(&look(["a", "d", "e"], replica.clone()));
        }
        run.said("no quorum — issued TAKEOVER on replica", "b");
        let mut last = look(["b", "d", "e"], Role::Primary);
        last.extend(newcomer.map(|node| Process {
            table: rows(["b", "d", node]),
            ..process(node, Role::Primary)
        }));
        for process in &mut last {
            if gone.is_some_and(|node| process.pod == format!("pod-{node}")) {
                process.life = Life::Ended;
            }
        }
        run.look(&last);
        run.broken().contains(&"S8")
    };
    assert!(taken(&["d", "e"], None, None));
    assert!(!taken(&["d"], None, None));
    assert!(
        !taken(&["d"], Some("f"), None),
        "it owns the slots of e only since then"
    );
    assert!(
        !taken(&["d", "e"], None, Some("e")),
        "it may have been gone by then"
    );
    assert!(
        taken(&["d", "e"], None, Some("b")),
        "the others had a vote all the same"
    );
}

/// Of four primaries two died at once, and both their replicas have taken over when it is looked next: two of the four had a
/// vote.
#[test]
fn a_takeover_that_no_vote_could_have_made_is_none_the_worse_for_its_success() {
    let row = |node: &str, range: (u16, u16)| Row {
        id: format!("id-{node}"),
        slots: Slots::of([range]),
        ..Row::default()
    };
    let look = |first: &str, second: &str| {
        let table = vec![
            row(first, (0, 4095)),
            row(second, (4096, 8191)),
            row("e", (8192, 12287)),
            row("f", (12288, 16383)),
        ];
        let replica = |node: &str, primary: &str| {
            let of = format!("id-{primary}");
            process(
                node,
                Role::Replica {
                    of,
                    linked: false,
                    synced: true,
                },
            )
        };
        let leads = |node: &str| process(node, Role::Primary);
        let heir = |node: &str, primary: &str| {
            let promoted = table.iter().any(|row| row.id == format!("id-{node}"));
            if promoted {
                leads(node)
            } else {
                replica(node, primary)
            }
        };
        let mut look = vec![
            leads("a"),
            leads("c"),
            heir("b", "a"),
            heir("d", "c"),
            leads("e"),
            leads("f"),
        ];
        for process in &mut look {
            process.table.clone_from(&table);
            process.accepts = Slots::default();
            if ["pod-a", "pod-c"].contains(&process.pod.as_str()) {
                process.life = Life::Ended;
            }
        }
        look
    };
    let mut run = Run::new();
    for node in ["c", "d", "e", "f"] {
        run.node(node);
    }
    for _ in 0..4 {
        run.look(&look("a", "c"));
    }
    run.said("no quorum — issued TAKEOVER on replica", "b");
    run.look(&look("b", "d"));
    assert!(!run.broken().contains(&"S8"));
}

#[test]
fn every_message_of_an_action_ends_a_tick() {
    let source = include_str!("../../../src/controller/cluster.rs");
    let (_, after) = source.split_once("fn say_done").expect("what says it");
    let (body, _) = after.split_once("\n}\n").expect("its end");
    let said: BTreeSet<&str> = body.split('"').skip(1).step_by(2).collect();
    let failed = ["reconcile error, requeuing"];
    let ends = said.into_iter().chain(failed).collect::<BTreeSet<_>>();
    assert_eq!(ends, super::ENDS_OF_TICKS.into_iter().collect());
}

#[test]
fn a_container_that_ended_is_an_end_before_the_phase_says_so() {
    let mut objects = super::Objects::default();
    let mut told = |state: &str| {
        let version = if state == "running" { "1" } else { "2" };
        objects.take(&json!({
            "verb": "patch", "responseStatus": {"code": 200},
            "objectRef": {
                "resource": "pods", "namespace": "ns", "name": "a", "subresource": "status",
            },
            "responseObject": {
                "metadata": {"name": "a", "uid": "u", "resourceVersion": version},
                "status": {"phase": "Running", "containerStatuses": [{"state": {state: {}}}]},
            },
        }));
        (objects.ended().len(), objects.running("ns").len())
    };
    assert_eq!(told("running"), (0, 1));
    assert_eq!(told("terminated"), (1, 0));
}

#[test]
fn a_pod_that_is_evicted_is_on_its_way_out_at_once() {
    let mut objects = super::Objects::default();
    let reference = json!({"resource": "pods", "namespace": "ns", "name": "a"});
    objects.take(&json!({
        "verb": "create", "objectRef": reference, "responseStatus": {"code": 201},
        "responseObject": {"metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}},
    }));
    let mut eviction = json!({
        "verb": "create", "objectRef": reference, "responseStatus": {"code": 429},
        "responseObject": {"kind": "Status"}, "stageTimestamp": "2026-01-01T00:00:00.000000Z",
    });
    eviction["objectRef"]["subresource"] = json!("eviction");
    let going = |objects: &super::Objects| {
        let mut pods = objects.pods("ns");
        pods.any(|pod| pod["metadata"]["deletionTimestamp"].is_string())
    };
    objects.take(&eviction);
    assert!(!going(&objects), "it was refused");
    eviction["responseStatus"]["code"] = json!(201);
    objects.take(&eviction);
    assert!(going(&objects));
}
