//! A deleted cluster leaves nothing: whatever its state, whatever is missing, whoever else fails meanwhile.
//! Never trusts a list of kinds: the API server is asked which there are, and each of them is searched.

use std::thread;
use std::time::Duration;
use std::time::Instant;

use serde_json::Value;
use serde_json::json;

use crate::follow::ACTIVATION;
use crate::follow::Followed;
use crate::slow;
use crate::stage::LIMIT;
use crate::stage::Shape;
use crate::stage::Stage;
use crate::stage::say;
use crate::stage::until;

/// The issue's promise for a namespace; its own polling deadline is more generous.
const NAMESPACE_LIMIT: Duration = Duration::from_mins(1);

const ROUNDS: u32 = 10;

/// Creates that were under way when a namespace began to go. The operator is told of it by the first.
const REFUSED_MAX: usize = 8;

const BLOCKED: &str = "bootstrap blocked: pod cannot be scheduled";

/// What happens to a cluster between the message and its deletion.
struct Case {
    name: &'static str,
    spec: fn() -> Value,
    /// When it strikes.
    after: &'static str,
    before_deletion: fn(&Stage, &str),
}

fn usual() -> Value {
    json!({})
}

fn nowhere() -> Value {
    json!({"placement": {"nodeSelector": {"no-node": "has-this"}}})
}

fn nothing(_: &Stage, _: &str) {}

const CASES: &[Case] = &[
    Case {
        name: "active",
        spec: usual,
        after: ACTIVATION,
        before_deletion: nothing,
    },
    Case {
        name: "finalizer",
        spec: usual,
        after: "finalizer added",
        before_deletion: nothing,
    },
    Case {
        name: "captured",
        spec: usual,
        after: "spec captured",
        before_deletion: nothing,
    },
    Case {
        name: "first-node",
        spec: usual,
        after: "node created",
        before_deletion: nothing,
    },
    Case {
        name: "first-pod",
        spec: usual,
        after: "creating Pod for node",
        before_deletion: nothing,
    },
    Case {
        name: "half-met",
        spec: usual,
        after: "cluster meet issued",
        before_deletion: nothing,
    },
    Case {
        name: "half-slots",
        spec: usual,
        after: "slots assigned",
        before_deletion: nothing,
    },
    Case {
        name: "unschedulable",
        spec: nowhere,
        after: BLOCKED,
        before_deletion: nothing,
    },
    Case {
        name: "no-menu",
        spec: || json!({"configRef": "passing"}),
        after: ACTIVATION,
        before_deletion: |stage, _| {
            stage.kubectl(["delete", "valkeyconfig", "passing"]);
            stage.kubectl(["delete", "valkeyimage", "passing"]);
        },
    },
    Case {
        name: "no-service",
        spec: usual,
        after: "cluster meet issued",
        before_deletion: |stage, namespace| stage.delete("Service", namespace, "c"),
    },
    Case {
        name: "no-acl",
        spec: usual,
        after: ACTIVATION,
        before_deletion: |stage, namespace| stage.delete("ConfigMap", namespace, "c-acl"),
    },
    Case {
        name: "no-auth",
        spec: usual,
        after: ACTIVATION,
        before_deletion: lose_auth,
    },
    Case {
        name: "no-auth-creating",
        spec: usual,
        after: "creating Pod for node",
        before_deletion: lose_auth,
    },
];

/// Only a hand that takes the finalizer off can lose it.
fn lose_auth(stage: &Stage, namespace: &str) {
    let patch = r#"{"metadata":{"finalizers":null}}"#;
    let words = [
        "patch",
        "secret",
        "c-operator-auth",
        "--type=merge",
        "--patch",
        patch,
    ];
    let words = words.into_iter().chain(["--namespace", namespace]);
    stage.testbed.kubectl(words).expect("patched");
    stage.delete("Secret", namespace, "c-operator-auth");
}

const PASSING_MENU: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "valkey.gomomento.com/v1alpha1", "kind": "ValkeyImage", "metadata": {"name": "passing"},
   "spec": {"repository": "valkey/valkey", "tag": "9.1.2", "version": "9.1.2"}},
  {"apiVersion": "valkey.gomomento.com/v1alpha1", "kind": "ValkeyConfig", "metadata": {"name": "passing"},
   "spec": {"imageRef": "passing", "resources": {"cpu": "50m", "memory": "64Mi"}}}
]}"#;

#[test]
fn a_deleted_cluster_leaves_nothing_in_any_state() {
    if !slow("a_deleted_cluster_leaves_nothing_in_any_state") {
        return;
    }
    let stage = Stage::beside_others();
    stage.apply(PASSING_MENU);
    never_seen(&stage);
    let mut operator = Followed::start(&stage.testbed);
    let mut namespaces = Vec::new();
    for case in CASES {
        let namespace = format!("delete-{}", case.name);
        stage.apply_cluster_with(&namespace, Shape::USUAL, &(case.spec)());
        operator.hear(&namespace, case.after, LIMIT);
        (case.before_deletion)(&stage, &namespace);
        stage.delete("ValkeyCluster", &namespace, "c");
        namespaces.push(namespace);
    }
    rounds(&stage);
    namespaces.push("delete-rounds".to_owned());
    for step in [
        "all nodes deleted",
        "pod deleted",
        "node released",
        "cluster released",
    ] {
        namespaces.push(operator_restarted(&stage, &mut operator, step));
    }
    // Pods take their time to end: all of that is waited for at once.
    for namespace in &namespaces {
        let what = format!("nothing is left in {namespace}; {}", operator.last_words());
        until(&what, LIMIT, || empty(&stage, namespace));
        say(&format!("{namespace}: nothing is left"));
    }
    no_trace_outside_of_namespaces(&stage);
}

#[test]
fn deletion_waits_for_no_lost_machine() {
    if !slow("deletion_waits_for_no_lost_machine") {
        return;
    }
    let stage = Stage::beside_others();
    let mut operator = Followed::start(&stage.testbed);
    let namespace = "lost-machine";
    stage.apply_cluster(namespace, Shape::USUAL);
    operator.hear(namespace, ACTIVATION, LIMIT);
    stage.testbed.node_pause("node-1").expect("paused");
    stage.delete("ValkeyCluster", namespace, "c");
    stage.wait_until_gone("ValkeyCluster", namespace, "c");
    until("no ValkeyNode is left", LIMIT, || {
        let nodes = stage.list("ValkeyNode", namespace)?;
        if nodes.is_empty() {
            Ok(())
        } else {
            Err(format!("{nodes:?}"))
        }
    });
    let pods = stage.list("Pod", namespace).expect("listed");
    let lost = |pod: &&Value| pod["spec"]["nodeName"] == "node-1";
    assert!(
        pods.iter().any(|pod| lost(&pod)),
        "the machine was not needed: {pods:?}"
    );
    stage.testbed.node_resume("node-1").expect("resumed");
    until("nothing is left", LIMIT, || empty(&stage, namespace));
}

#[test]
fn a_deleted_namespace_takes_its_clusters_along() {
    if !slow("a_deleted_namespace_takes_its_clusters_along") {
        return;
    }
    let stage = Stage::beside_others();
    let mut operator = Followed::start(&stage.testbed);
    let points = [
        "finalizer added",
        "creating Pod for node",
        "cluster meet issued",
        ACTIVATION,
    ];
    for (number, after) in points.into_iter().enumerate() {
        let (going, staying) = (format!("going-{number}"), format!("staying-{number}"));
        stage.apply_cluster(&going, Shape::USUAL);
        operator.hear(&going, after, LIMIT);
        stage.delete("Namespace", "", &going);
        let start = Instant::now();
        stage.apply_cluster(&staying, Shape::SMALL);
        operator.hear(&staying, ACTIVATION, LIMIT);
        until(
            &format!("namespace {going} is gone"),
            NAMESPACE_LIMIT,
            || {
                stage
                    .get("Namespace", "", &going)?
                    .map_or(Ok(()), |found| Err(found.to_string()))
            },
        );
        say(&format!(
            "{going} (after {after:?}): gone in {:.1} s",
            start.elapsed().as_secs_f32()
        ));
        stage.wait_until_formed(&staying, Shape::SMALL);
        let refused = stage.audit(&format!("\"namespace\":\"{going}\""));
        let refused = refused.iter().filter(|event| {
            event["responseStatus"]["code"] == 403 && event["user"]["username"] == "admin"
        });
        let refused = refused.count();
        say(&format!("{going}: {refused} writes were refused"));
        assert!(
            refused <= REFUSED_MAX,
            "{refused}; {}",
            operator.last_words()
        );
        stage.delete("Namespace", "", &staying);
    }
}

/// A cluster that no operator ever saw goes at once.
fn never_seen(stage: &Stage) {
    let namespace = "delete-never-seen";
    stage.apply_cluster(namespace, Shape::USUAL);
    stage.delete("ValkeyCluster", namespace, "c");
    stage.wait_until_gone("ValkeyCluster", namespace, "c");
    assert_eq!(empty(stage, namespace), Ok(()));
}

/// The same name again and again, deleted ever later after its creation.
fn rounds(stage: &Stage) {
    let namespace = "delete-rounds";
    for round in 0..ROUNDS {
        stage.apply_cluster(namespace, Shape::USUAL);
        // The age at which it dies is what is chosen here; nothing is waited for.
        thread::sleep(Duration::from_millis(150) * round);
        stage.delete("ValkeyCluster", namespace, "c");
        stage.wait_until_gone("ValkeyCluster", namespace, "c");
    }
}

/// The operator dies in the middle of a deletion; returns where.
fn operator_restarted(stage: &Stage, operator: &mut Followed, step: &str) -> String {
    let namespace = format!("delete-restart-{}", step.replace(' ', "-"));
    stage.apply_cluster(&namespace, Shape::USUAL);
    operator.hear(&namespace, ACTIVATION, LIMIT);
    stage.delete("ValkeyCluster", &namespace, "c");
    operator.hear(&namespace, step, LIMIT);
    operator.kill();
    *operator = Followed::start(&stage.testbed);
    namespace
}

/// Whether no object of any kind bears a cluster's label or has an owner of ours.
fn empty(stage: &Stage, namespace: &str) -> Result<(), String> {
    let kinds = kinds(stage, "--namespaced=true");
    let words = ["get", &kinds, "--namespace", namespace, "--output", "json"];
    let found = stage
        .testbed
        .kubectl(words)
        .map_err(|error| error.to_string())?;
    without_ours(&found)
}

fn no_trace_outside_of_namespaces(stage: &Stage) {
    let kinds = kinds(stage, "--namespaced=false");
    let found = stage.kubectl(["get", &kinds, "--output", "json"]);
    assert_eq!(without_ours(&found), Ok(()));
}

fn kinds(stage: &Stage, scope: &str) -> String {
    let words = ["api-resources", "--verbs=list", "--output=name", scope];
    stage
        .kubectl(words)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(",")
}

fn without_ours(list: &str) -> Result<(), String> {
    let list: Value = serde_json::from_str(list).map_err(|error| error.to_string())?;
    let ours = |object: &&Value| {
        let meta = &object["metadata"];
        let owners = meta["ownerReferences"].as_array().into_iter().flatten();
        let mut kinds = owners.map(|owner| owner["kind"].as_str().unwrap_or_default());
        let kind = object["kind"].as_str().unwrap_or_default();
        !meta["labels"]["app.kubernetes.io/instance"].is_null()
            || kinds.any(|kind| kind.starts_with("Valkey"))
            || matches!(kind, "ValkeyCluster" | "ValkeyNode")
    };
    let items = list["items"].as_array().ok_or("no list")?;
    match items.iter().find(ours) {
        Some(left) => Err(format!("left: {} {}", left["kind"], left["metadata"])),
        None => Ok(()),
    }
}
