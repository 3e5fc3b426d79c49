//! A whole life under exactly the release's role: nothing is refused, and no right is left unused.
//! Never grants the operator anything beyond its manifest.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::slow;
use crate::stage::LIMIT;
use crate::stage::Shape;
use crate::stage::Stage;
use crate::stage::say;
use crate::stage::until;
use crate::testbed::machine::Signal;
use crate::testbed::operator;
use crate::testbed::pod::PodName;
use crate::world::menu;

const ACCOUNT: &str = "system:serviceaccount:valkey-operator:valkey-operator";

/// The kubelet kills after this; the manifest leaves it at Kubernetes' default.
const GRACE: Duration = Duration::from_secs(30);

/// `group/resource[/subresource] verb`.
type Rights = BTreeSet<String>;

#[test]
fn a_whole_life_needs_the_released_role_and_no_more() {
    if !slow("a_whole_life_needs_the_released_role_and_no_more") {
        return;
    }
    let stage = Stage::beside_others();
    let binary = Path::new(env!("CARGO_BIN_EXE_valkey-operator"));
    operator::deploy(&stage.testbed, binary).expect("deployed");
    live(&stage);
    tells(&stage);
    stops_gracefully(&stage);
    passes_away(&stage);
    let asked = stage.audit(ACCOUNT);
    let asked: Vec<&Value> = asked
        .iter()
        .filter(|event| event["user"]["username"] == ACCOUNT)
        .collect();
    let refused: Vec<_> = asked
        .iter()
        .filter(|event| event["responseStatus"]["code"] == 403)
        // A namespace that is going takes no new object; that is no matter of rights.
        .filter(|event| event["annotations"]["authorization.k8s.io/decision"] != "allow")
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let used: Rights = asked
        .iter()
        .map(|event| right_of(&event["objectRef"], event))
        .collect();
    let granted = granted(&stage);
    let unused: Vec<_> = granted.difference(&used).collect();
    let beyond: Vec<_> = used.difference(&granted).collect();
    assert!(
        unused.is_empty() && beyond.is_empty(),
        "unused: {unused:?}, beyond: {beyond:?}"
    );
    say(&format!("{} rights, each of them used", used.len()));
}

fn right_of(object: &Value, event: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut resource = format!(
        "{}/{}",
        text(&object["apiGroup"]),
        text(&object["resource"])
    );
    if let Some(part) = object["subresource"].as_str() {
        resource = format!("{resource}/{part}");
    }
    format!("{resource} {}", text(&event["verb"]))
}

/// What the role in force says, which is the manifest's.
fn granted(stage: &Stage) -> Rights {
    let role = stage.kubectl(["get", "clusterrole", "valkey-operator", "--output", "json"]);
    let role: Value = serde_json::from_str(&role).expect("JSON");
    let words = |value: &Value| -> Vec<String> {
        let words = value.as_array().into_iter().flatten();
        words
            .map(|word| word.as_str().unwrap_or_default().to_owned())
            .collect()
    };
    let mut granted = Rights::new();
    for rule in role["rules"].as_array().expect("rules") {
        for group in words(&rule["apiGroups"]) {
            for resource in words(&rule["resources"]) {
                for verb in words(&rule["verbs"]) {
                    granted.insert(format!("{group}/{resource} {verb}"));
                }
            }
        }
    }
    granted
}

fn with_acl(hashes: &[&str], annotation: &str) -> Value {
    json!({
        "podAnnotations": {"example.com/team": annotation},
        "acl": [{
            "username": "app",
            "passwordHashes": hashes,
            "permissions": [{"roleRef": "app-readwrite", "keys": [{"pattern": "*"}]}],
        }],
    })
}

/// Bootstrap, edits, and a hand that deletes.
fn live(stage: &Stage) {
    let (one, two) = ("1".repeat(64), "2".repeat(64));
    restricted(stage, "life");
    stage.apply_cluster_with("life", Shape::USUAL, &with_acl(&[&one], "red"));
    stage.wait_for_state("life", "Active");
    stage.apply_cluster_with("life", Shape::USUAL, &with_acl(&[&one, &two], "blue"));
    until("pods are annotated", LIMIT, || {
        let pods = stage.list("Pod", "life")?;
        let team = |pod: &&Value| pod["metadata"]["annotations"]["example.com/team"] != "blue";
        pods.iter()
            .find(team)
            .map_or(Ok(()), |pod| Err(pod["metadata"].to_string()))
    });
    until("the ACL file has the new hash", LIMIT, || {
        let map = stage.get("ConfigMap", "life", "c-acl")?.ok_or("none")?;
        if map["data"]["users.acl"]
            .as_str()
            .is_some_and(|text| text.contains(&two))
        {
            Ok(())
        } else {
            Err(map.to_string())
        }
    });
    stage.delete("Service", "life", "c");
    until("the Service is back", LIMIT, || {
        let service = stage.get("Service", "life", "c")?.ok_or("none")?;
        let going = !service["metadata"]["deletionTimestamp"].is_null();
        if going {
            Err(service.to_string())
        } else {
            Ok(())
        }
    });
}

/// A bootstrap, a roll with its receipts and a wait for a person, as Events and in numbers; no password in either.
fn tells(stage: &Stage) {
    let orphan = menu("ValkeyConfig", "orphan", &json!({"imageRef": "nowhere"}));
    stage.apply(&orphan.to_string());
    stage.apply_cluster_with("stuck", Shape::SMALL, &json!({"configRef": "orphan"}));
    let hz = "{\"spec\":{\"valkey\":{\"hz\":\"11\"}}}";
    stage.kubectl([
        "patch",
        "valkeyconfig",
        "standard",
        "--type=merge",
        "--patch",
        hz,
    ]);
    until("the receipt of the roll", LIMIT, || {
        let told = events(stage, "life")?;
        let of = |reason: &str| {
            told.iter()
                .filter(|event| event["reason"] == reason)
                .count()
        };
        // One coordinated failover a shard.
        if of("RollCompleted") == 1 && of("HandedOver") >= 3 && of("ClusterFormed") == 1 {
            Ok(())
        } else {
            Err(format!("{told:#?}"))
        }
    });
    let told = events(stage, "life").expect("listed");
    for event in told.iter().filter(|event| event["reason"] == "HandedOver") {
        let note = event["message"].as_str().unwrap_or_default();
        say(note);
        assert!(note.contains("at an equal offset"), "{event}");
    }
    for reason in ["ClusterFormed", "RollCompleted"] {
        let receipt = told
            .iter()
            .find(|event| event["reason"] == reason)
            .expect("told");
        say(&format!("{reason} {}", receipt["message"]));
    }
    assert!(
        told.iter().any(|event| event["action"] == "CreateNode"),
        "{told:#?}"
    );
    let menu = until("one Event that grows", LIMIT, || {
        let told = events(stage, "stuck")?;
        let menu: Vec<&Value> = told
            .iter()
            .filter(|event| event["reason"] == "Menu")
            .collect();
        match menu.as_slice() {
            [one] if one["series"]["count"].as_i64() >= Some(2) => Ok((*one).clone()),
            others => Err(format!("{others:#?}")),
        }
    });
    let note = menu["message"].as_str().unwrap_or_default();
    assert!(
        note.starts_with("ValkeyImage \"nowhere\" not found"),
        "{menu}"
    );
    let of_the_config = events(stage, "default").expect("listed");
    let blamed =
        |event: &&Value| event["involvedObject"]["name"] == "orphan" && event["message"] == note;
    assert_eq!(
        of_the_config.iter().filter(blamed).count(),
        1,
        "{of_the_config:#?}"
    );
    numbers(stage, &[told, of_the_config].concat());
}

fn events(stage: &Stage, namespace: &str) -> Result<Vec<Value>, String> {
    let mut told = stage.list("Event", namespace)?;
    told.retain(|event| event["reportingComponent"] == "valkey-operator");
    Ok(told)
}

/// The promised series are there, of both clusters, and neither they nor Events tell a password.
fn numbers(stage: &Stage, told: &[Value]) {
    let pods = stage.list("Pod", "valkey-operator").expect("listed");
    let address = pods[0]["status"]["podIP"].as_str().expect("an address");
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 200"));
    let page = get(address, "/metrics");
    for series in [
        "valkey_cluster_healthy{namespace=\"life\",cluster=\"c\"} 1",
        "valkey_cluster_slots_covered{namespace=\"life\",cluster=\"c\"} 16384",
        "valkey_cluster_waiting{namespace=\"stuck\",cluster=\"c\",reason=\"Menu\"} 1",
        "valkey_operator_clusters{state=\"Active\"} 1",
        "valkey_operator_crd_outdated{kind=\"ValkeyCluster\"} 0",
        "valkey_operator_handover_seconds_count{cause=\"planned\"} 3",
    ] {
        assert!(
            page.lines().any(|line| line.starts_with(series)),
            "{series}: {page}"
        );
    }
    for key in ["operator-password", "repl-password"] {
        let template = format!("--output=go-template={{{{index .data \"{key}\" | base64decode}}}}");
        let password = stage.kubectl([
            "get",
            "secret",
            "c-operator-auth",
            "--namespace=life",
            &template,
        ]);
        assert_eq!(password.len(), 128);
        assert!(!page.contains(&password), "a metric tells {key}");
        assert!(
            !json!(told).to_string().contains(&password),
            "an Event tells {key}"
        );
    }
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect((address, 8080)).expect("the operator listens");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .expect("asked");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("answered");
    page
}

/// The deletion of a cluster, and of a namespace with one in it.
fn passes_away(stage: &Stage) {
    stage.delete("ValkeyCluster", "life", "c");
    stage.wait_until_gone("ValkeyCluster", "life", "c");
    restricted(stage, "after-life");
    stage.apply_cluster("after-life", Shape::SMALL);
    stage.wait_for_state("after-life", "Active");
    stage.delete("Namespace", "", "after-life");
    stage.wait_until_gone("Namespace", "", "after-life");
}

/// Valkey's pods too are to fit the strictest profile.
fn restricted(stage: &Stage, namespace: &str) {
    stage.kubectl(["create", "namespace", namespace]);
    let label = "pod-security.kubernetes.io/enforce=restricted";
    stage.kubectl(["label", "namespace", namespace, label]);
}

fn stops_gracefully(stage: &Stage) {
    let enforced = stage
        .get("Namespace", "", "valkey-operator")
        .expect("read")
        .expect("the release has a namespace");
    let label = &enforced["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
    assert_eq!(label, "restricted");
    let pods = stage.list("Pod", "valkey-operator").expect("listed");
    let name = pods
        .first()
        .and_then(|pod| pod["metadata"]["name"].as_str())
        .expect("one pod");
    let pod = PodName {
        namespace: "valkey-operator",
        name,
    };
    let signalled = stage
        .testbed
        .pod_signal(&pod, Some("valkey-operator"), Signal::Terminate);
    signalled.expect("signalled");
    let ended = until("the container's end", GRACE, || {
        let pod = stage
            .get("Pod", pod.namespace, pod.name)?
            .ok_or("the pod is gone")?;
        let status = &pod["status"]["containerStatuses"][0];
        let ended = [
            &status["lastState"]["terminated"],
            &status["state"]["terminated"],
        ];
        let ended = ended.into_iter().find(|state| !state.is_null());
        ended.cloned().ok_or_else(|| status.to_string())
    });
    assert_eq!(ended["exitCode"], 0, "{ended}");
    until("the operator runs again", LIMIT, || {
        let pod = stage
            .get("Pod", pod.namespace, pod.name)?
            .ok_or("the pod is gone")?;
        let status = &pod["status"]["containerStatuses"][0];
        if status["ready"] == true && status["restartCount"] == 1 {
            Ok(())
        } else {
            Err(status.to_string())
        }
    });
    let log = stage.kubectl(["logs", "--previous", "--namespace", pod.namespace, pod.name]);
    let messages: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"))
        .map(|line| line["fields"]["message"].clone())
        .collect();
    let position = |text: &str| messages.iter().position(|message| message == text);
    let (stopping, stopped) = (position("stopping"), position("stopped"));
    assert!(stopping.is_some() && stopping < stopped, "{log}");
}
