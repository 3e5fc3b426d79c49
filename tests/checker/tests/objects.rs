//! S20 to S24. Never a whole object where its metadata is enough.

use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use super::super::evidence::Actor;
use super::super::evidence::Name;
use super::super::evidence::Outcome;
use super::super::evidence::Verb;
use super::super::evidence::What;
use super::OPERATOR;
use super::Run;
use super::broken;
use super::holds;
use super::owned;
use super::write;

/// `correct horse battery` and `staple, said the cat`.
const OPERATORS: &str = "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5";
const REPLS: &str = "c3RhcGxlLCBzYWlkIHRoZSBjYXQ=";

fn secret(operator: &str) -> Value {
    let data = json!({ "operator-password": operator, "repl-password": REPLS });
    json!({ "metadata": owned("ValkeyCluster", "uid-c", "c"), "data": data })
}

/// A cluster whose passwords were just made.
fn with_passwords() -> Run {
    let mut run = Run::new(1, 0);
    holds(run.creates(OPERATOR, "Secret", "c-operator-auth", &secret(OPERATORS)));
    run.wait(1000);
    run
}

fn logs(run: &mut Run, line: &str) -> Result<(), super::super::Violation> {
    run.step(OPERATOR, What::Log(line.to_owned()))
}

#[test]
fn s20_nowhere_to_be_seen() {
    let mut run = with_passwords();
    holds(logs(&mut run, "correct horse, battery"));
    broken(
        "S20",
        logs(&mut run, "AUTH failed for correct horse battery"),
    );
    broken("S20", logs(&mut run, &format!("data is {OPERATORS}")));
    let event = |text: &str| json!({ "metadata": {}, "message": text });
    holds(run.creates(OPERATOR, "Event", "e", &event("login refused")));
    broken(
        "S20",
        run.creates(OPERATOR, "Event", "e", &event("staple, said the cat")),
    );
    let acl = |text: &str| json!(format!("user u on #{text}"));
    let map = ("ConfigMap", "c-acl");
    let hash = sha256("correct horse battery");
    holds(run.patches(OPERATOR, map, "/data/users.acl", acl(&hash)));
    broken("S20", logs(&mut run, &hash));
    let clear = acl("correct horse battery");
    broken("S20", run.patches(OPERATOR, map, "/data/users.acl", clear));
}

fn sha256(text: &str) -> String {
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(text.as_bytes());
    let halves = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    halves
        .filter_map(|half| char::from_digit(u32::from(half), 16))
        .collect()
}

#[test]
fn s20_never_changed() {
    let mut run = with_passwords();
    holds(run.creates(OPERATOR, "Secret", "c-operator-auth", &secret(OPERATORS)));
    broken(
        "S20",
        run.creates(OPERATOR, "Secret", "c-operator-auth", &secret(REPLS)),
    );
    // Nobody runs under the old ones.
    let mut run = with_passwords();
    for kind in ["ValkeyNode", "Pod"] {
        run.remove(kind, "a0");
    }
    holds(run.creates(OPERATOR, "Secret", "c-operator-auth", &secret(REPLS)));
}

/// What a node is made with.
pub(super) fn settings() -> Value {
    json!({
        "aclfile": "/etc/valkey/acl/users.acl",
        "bind": "0.0.0.0",
        "cluster-allow-replica-migration": "no",
        "cluster-config-file": "/var/lib/valkey/nodes.conf",
        "cluster-databases": "1",
        "cluster-enabled": "yes",
        "cluster-node-timeout": "5000",
        "cluster-replica-validity-factor": "10",
        "dir": "/var/lib/valkey",
        "hz": "50",
        "port": "6379",
        "primaryuser": "_momento_repl",
        "protected-mode": "no",
    })
}

#[test]
fn s21_of_a_new_node() {
    let node = |settings: Value| {
        let metadata = owned("ValkeyCluster", "uid-c", "c");
        json!({ "metadata": metadata, "spec": {
            "clusterName": "c", "lifecycle": "Joining", "valkeySettings": settings } })
    };
    holds(Run::new(1, 0).creates(OPERATOR, "ValkeyNode", "x", &node(settings())));
    let with = |name: &str, value: &str| {
        let mut settings = settings();
        settings[name] = json!(value);
        node(settings)
    };
    for (name, value) in [
        ("port", "6380"),
        ("Port", "6379"),
        ("masteruser", "bob"),
        ("primaryauth", "x"),
        ("MASTERAUTH", "x"),
    ] {
        let told = Run::new(1, 0).creates(OPERATOR, "ValkeyNode", "x", &with(name, value));
        broken("S21", told);
    }
    let told = Run::new(1, 0).creates(OPERATOR, "ValkeyNode", "x", &with("hz", "9"));
    holds(told);
}

#[test]
fn s21_in_force() {
    let force = |changes: &[(&str, &str)]| {
        let wish = settings();
        let map = wish.as_object().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut map: std::collections::BTreeMap<String, String> = map
            .map(|(name, value)| (name.clone(), text(value)))
            .collect();
        for (name, value) in changes {
            map.insert((*name).to_owned(), (*value).to_owned());
        }
        Some(Arc::new(map))
    };
    let mut run = Run::new(1, 0);
    run.process("a0").settings = force(&[]);
    holds(run.look());
    run.process("a0").settings = force(&[("cluster-databases", "16")]);
    broken("S21", run.look());
    // A node with TLS listens otherwise.
    let mut run = Run::new(1, 0);
    run.edit("ValkeyNode", "a0", "/spec/tlsSecret", json!("c-tls"));
    run.process("a0").settings = force(&[]);
    broken("S21", run.look());
    let tls = [
        ("cluster-preferred-endpoint-type", "hostname"),
        ("port", "0"),
        ("tls-auth-clients", "no"),
        ("tls-ca-cert-file", "/etc/valkey/tls/ca.crt"),
        ("tls-cert-file", "/etc/valkey/tls/tls.crt"),
        ("tls-cluster", "yes"),
        ("tls-key-file", "/etc/valkey/tls/tls.key"),
        ("tls-port", "6379"),
        ("tls-replication", "yes"),
    ];
    run.process("a0").settings = force(&tls);
    holds(run.look());
}

#[test]
fn s22() {
    let mut run = Run::new(3, 1);
    holds(run.step(Actor::Machinery, What::Calm));
    holds(run.tells("a0", "ACL LOAD"));
    let map = ("ConfigMap", "c-acl");
    broken(
        "S22",
        run.patches(OPERATOR, map, "/data/users.acl", json!("user default on")),
    );
    // Gossip hints are harmless, and still not quiet.
    broken("S22", run.tells("a0", "CLUSTER MEET 10.0.0.3 6379"));
    let wish = json!({ "x": "1" });
    holds(run.patches(
        Actor::User,
        ("ValkeyCluster", "c"),
        "/spec/podAnnotations",
        wish,
    ));
    holds(run.wait(1000).patches(
        OPERATOR,
        ("Pod", "a0"),
        "/metadata/annotations/x",
        json!("1"),
    ));
}

#[test]
fn s23_metadata() {
    let mut run = Run::new(1, 0);
    let map = ("ConfigMap", "c-acl");
    holds(run.patches(OPERATOR, map, "/data/users.acl", json!("user default on")));
    for (pointer, value) in [
        ("/metadata/annotations/theirs", json!("2")),
        ("/metadata/annotations/theirs", Value::Null),
        ("/metadata/labels/theirs", json!("1")),
        ("/metadata/finalizers", json!(["theirs"])),
        ("/metadata/ownerReferences", json!([])),
        ("/data/other", json!("x")),
    ] {
        let mut run = Run::new(1, 0);
        broken("S23", run.patches(OPERATOR, map, pointer, value));
    }
    let node = ("ValkeyNode", "a0");
    let stamp = "/metadata/annotations/valkey.gomomento.com~1pod-uid";
    holds(
        run.wait(1000)
            .patches(OPERATOR, node, stamp, json!("pod-a0")),
    );
    holds(
        run.wait(1000)
            .patches(OPERATOR, node, "/metadata/finalizers", json!([])),
    );
    let cluster = ("ValkeyCluster", "c");
    broken(
        "S23",
        run.patches(OPERATOR, cluster, "/spec/shards", json!(2)),
    );
}

#[test]
fn s23_pods() {
    let annotate = |key: &str| {
        let mut run = Run::new(1, 0);
        run.edit(
            "ValkeyCluster",
            "c",
            "/spec/podAnnotations",
            json!({ "ours": "1" }),
        );
        let pointer = format!("/metadata/annotations/{key}");
        run.patches(OPERATOR, ("Pod", "a0"), &pointer, json!("1"))
    };
    holds(annotate("ours"));
    broken("S23", annotate("theirs"));
}

#[test]
fn s23_objects() {
    // Somebody else's, under our name.
    let mut run = Run::new(1, 0);
    run.put(
        "ConfigMap",
        "c-acl",
        json!({ "metadata": { "uid": "x" }, "data": {} }),
    );
    let map = ("ConfigMap", "c-acl");
    broken(
        "S23",
        run.patches(OPERATOR, map, "/data/users.acl", json!("user default on")),
    );
    run.put("Pod", "a0", json!({ "metadata": { "uid": "y" } }));
    broken("S23", run.deletes(OPERATOR, "Pod", "a0"));
    holds(run.deletes(Actor::User, "Pod", "a0"));
    broken("S23", run.deletes(OPERATOR, "ValkeyImage", "v9"));
    broken("S23", run.deletes(OPERATOR, "ValkeyCluster", "c"));
    // What was not done was not touched.
    let before = run.body("Pod", "a0");
    let mut refused = write(Verb::Delete, "Pod", "a0", Some(before), None);
    refused.outcome = Outcome::Refused("409".to_owned());
    holds(run.step(OPERATOR, What::Write(refused)));
    // A cluster of that name is in another namespace.
    let mut service = serde_json::Value::clone(&run.body("Service", "c"));
    service["metadata"]["ownerReferences"] = json!([]);
    let mut made = write(Verb::Create, "Service", "c", None, Some(service));
    made.name = Name::new("elsewhere", "c");
    broken("S23", run.step(OPERATOR, What::Write(made)));
}

#[test]
fn s24_made_to_be_found() {
    let service = |change: fn(&mut Value)| {
        let mut body = json!({ "metadata": owned("ValkeyCluster", "uid-c", "c") });
        change(&mut body);
        Run::new(1, 0).creates(OPERATOR, "Service", "c", &body)
    };
    holds(service(|_| {}));
    broken(
        "S24",
        service(|body| body["metadata"]["ownerReferences"] = json!([])),
    );
    broken(
        "S24",
        service(|body| body["metadata"]["ownerReferences"][0]["uid"] = json!("x")),
    );
    let unmanaged = |body: &mut Value| {
        body["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!("helm");
    };
    broken("S24", service(unmanaged));
}

#[test]
fn s24_left() {
    let mut run = Run::new(1, 0);
    holds(run.look());
    run.remove("ValkeyCluster", "c");
    holds(run.look());
    holds(run.wait(80_000).look());
    broken("S24", run.wait(20_000).look());
    // A pod whose machine is lost ends when its machine says so.
    let mut run = Run::new(1, 0);
    holds(run.look());
    run.remove("ValkeyCluster", "c");
    holds(run.look());
    run.truth.objects.retain(|object| object.kind == "Pod");
    run.edit("Pod", "a0", "/metadata/deletionTimestamp", json!("now"));
    holds(run.wait(100_000).look());
    // Labels alone are enough: of an object that nobody owns any more.
    let mut run = Run::new(1, 0);
    holds(run.look());
    run.remove("ValkeyCluster", "c");
    holds(run.look());
    let labels = run.body("Secret", "c-operator-auth")["metadata"]["labels"].clone();
    run.truth.objects.clear();
    run.put(
        "Secret",
        "c-operator-auth",
        json!({ "metadata": { "labels": labels } }),
    );
    broken("S24", run.wait(100_000).look());
    // All gone, and another cluster has the name.
    let mut run = Run::new(1, 0);
    holds(run.look());
    run.remove("ValkeyCluster", "c");
    holds(run.look());
    run.truth.objects.clear();
    run.put(
        "ValkeyCluster",
        "c",
        json!({ "metadata": { "uid": "again" }, "spec": {} }),
    );
    let labels = json!({ "metadata": { "labels": labels } });
    run.put("Secret", "c-operator-auth", labels);
    holds(run.wait(100_000).look());
}
