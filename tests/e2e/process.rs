//! What the operator's process says and does not say.
//! Never reads a log by eye: each line is parsed, and secrets are searched for by value.

use std::path::Path;
use std::process::Command;
use std::process::Stdio;

use serde_json::Value;
use serde_json::json;

use crate::certificates::Authority;
use crate::certificates::LASTING;
use crate::certificates::Leaf;
use crate::follow::ACTIVATION;
use crate::follow::Followed;
use crate::messages::Moment;
use crate::messages::PROMISED;
use crate::plugin;
use crate::slow;
use crate::stage::LIMIT;
use crate::stage::Shape;
use crate::stage::Stage;
use crate::stage::say;
use crate::stage::until;
use crate::testbed::control::Part;
use crate::testbed::machine::Signal;
use crate::testbed::operator;
use crate::testbed::pod;
use crate::testbed::pod::PodName;
use crate::tls;
use crate::tls::SERVICE;
use crate::world::hash;
use crate::world::menu;

/// Where the cluster is whose secrets are looked for.
const PLACE: &str = tls::WANTED.namespace;

/// The password that its user has.
const USERS: &str = "a password of a user";

#[test]
fn an_invalid_setting_ends_the_process_with_a_logged_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_valkey-operator"))
        .env("DEFAULT_ZONE_SPREAD", "Sometimes")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .expect("the operator's binary runs");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let error = lines
        .iter()
        .find(|line| line["level"] == "ERROR")
        .expect("an error is logged");
    let said = error["fields"].to_string();
    for word in ["DEFAULT_ZONE_SPREAD", "Sometimes", "bestEffort", "required"] {
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn every_promised_message_is_said_as_a_json_line() {
    if !slow("every_promised_message_is_said_as_a_json_line") {
        return;
    }
    let stage = Stage::beside_others();
    let mut operator = Followed::start(&stage.testbed);
    let nowhere = json!({"placement": {"nodeSelector": {"no-node": "has-this"}}});
    stage.apply_cluster_with("blocked", Shape::SMALL, &nowhere);
    stage.apply_cluster("talk", Shape::USUAL);
    let mut lines = Vec::new();
    hear(&mut operator, &mut lines, "the first tick", |line| {
        line["fields"]["message"] == "active tick"
    });
    // A process that hangs cannot load its ACLs; an API server that is gone fails a tick.
    let nodes = stage.list("ValkeyNode", "talk").expect("listed");
    let name = nodes
        .first()
        .and_then(|node| node["metadata"]["name"].as_str())
        .expect("a node");
    let pod = PodName {
        namespace: "talk",
        name,
    };
    stage
        .testbed
        .pod_signal(&pod, Some("valkey-server"), Signal::Stop)
        .expect("stopped");
    hear(&mut operator, &mut lines, "a failed ACL LOAD", |line| {
        line["fields"]["message"] == "ACL LOAD failed, will retry next tick"
    });
    stage
        .testbed
        .pod_signal(&pod, Some("valkey-server"), Signal::Continue)
        .expect("continued");
    // So many nodes are still to be made that the next look comes while nobody answers; none of them gets a process.
    let many = Shape {
        shards: 30,
        replicas: 0,
    };
    stage.apply_cluster_with("later", many, &nowhere);
    let created = |line: &Value| {
        line["fields"]["message"] == "node created" && line["fields"]["namespace"] == "later"
    };
    hear(&mut operator, &mut lines, "a node", created);
    stage.testbed.kill(Part::ApiServer).expect("killed");
    hear(&mut operator, &mut lines, "a failed tick", |line| {
        line["fields"]["message"] == "reconcile error, requeuing"
    });
    stage
        .testbed
        .start_again(Part::ApiServer)
        .expect("started again");
    hear(&mut operator, &mut lines, "a node after that", created);
    let of_a_bootstrap = PROMISED
        .iter()
        .filter(|(_, moment)| *moment == Moment::Bootstrap);
    for (promised, _) in of_a_bootstrap {
        assert!(
            lines
                .iter()
                .any(|line| line["fields"]["message"] == *promised),
            "{promised}"
        );
    }
    lines.iter().for_each(check_line);
    say(&format!("{} lines, each well formed", lines.len()));
}

fn hear(
    operator: &mut Followed,
    lines: &mut Vec<Value>,
    what: &str,
    mut is_it: impl FnMut(&Value) -> bool,
) {
    operator.listen(what, LIMIT, |said| {
        lines.push(said.0.clone());
        is_it(&said.0).then_some(())
    });
}

fn check_line(line: &Value) {
    let text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let whole = ["timestamp", "level", "target"]
        .iter()
        .all(|field| text(&line[field]));
    assert!(whole && text(&line["fields"]["message"]), "{line}");
    let target = line["target"].as_str().unwrap_or_default();
    let of_a_tick = matches!(
        target,
        "operator::controller::cluster" | "operator::controller::node"
    );
    if of_a_tick {
        assert!(
            text(&line["fields"]["cluster_name"]) && text(&line["fields"]["namespace"]),
            "{line}"
        );
    }
    // The one line of the controllers' start is about no object.
    let of_the_start = line["fields"]["message"] == "watches filled";
    if of_a_tick || target == "operator::controller" && !of_the_start {
        let reference = line["span"]["object.ref"].as_str().unwrap_or_default();
        assert!(
            reference.starts_with("Valkey"),
            "no object reference: {line}"
        );
    }
}

#[test]
fn no_password_and_no_hash_is_told() {
    if !slow("no_password_and_no_hash_is_told") {
        return;
    }
    let stage = Stage::beside_others();
    let binary = Path::new(env!("CARGO_BIN_EXE_valkey-operator"));
    let environment = [("RUST_LOG", "trace")];
    let mut beside = operator::beside(&stage.testbed, binary, &environment).expect("started");
    let leaf = apply_secured(&stage);
    stage.wait_for_state(PLACE, "Active");
    let log = || std::fs::read_to_string(&beside.log).expect("the log can be read");
    // A pass of the ACL controller speaks to every node.
    until("an ACL pass after activation", LIMIT, || {
        let log = log();
        let active = log.find(ACTIVATION).ok_or("not active")?;
        log[active..]
            .find("ACL reconcile tick")
            .map(drop)
            .ok_or_else(|| "no pass".to_owned())
    });
    let secrets = secrets(&stage, &leaf);
    let log = log();
    assert!(log.contains("\"TRACE\""), "the log is not a trace");
    check_silent("the log", &log, &secrets.all());
    beside.kill();
    let kinds = "events,valkeyclusters,valkeynodes,pods,services,endpoints,configmaps";
    let words = ["get", kinds, "--namespace", PLACE, "--output", "json"];
    let objects = stage.kubectl(words);
    let objects: Value = serde_json::from_str(&objects).expect("JSON");
    for object in objects["items"].as_array().expect("a list") {
        let of_acl = object["metadata"]["name"] == "c-acl";
        let forbidden = match object["kind"].as_str() {
            // The hashes belong into users.acl, and that of a user where its owner wrote it.
            Some("ConfigMap") if of_acl => secrets.open.clone(),
            Some("ValkeyCluster") => [&secrets.open[..], &secrets.hashes[..]].concat(),
            _ => secrets.all(),
        };
        let what = format!("{} {}", object["kind"], object["metadata"]["name"]);
        check_silent(&what, &object.to_string(), &forbidden);
    }
    for question in [
        &["status", "c"][..],
        &["plan", "c"],
        &["connect", "c"],
        &["report", "c"],
        &["menu", "standard"],
        &["who-can", "get", "a-key", "--cluster", "c"],
    ] {
        for form in [&["-n", PLACE][..], &["-n", PLACE, "-o", "json"]] {
            let said = plugin::run(&stage.testbed, &[question, form].concat());
            assert_eq!(said.code, Some(0), "{said:?}");
            check_silent(&format!("{question:?}"), &said.out, &secrets.all());
        }
    }
    for pod in stage.list("Pod", PLACE).expect("listed") {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        let pod = PodName {
            namespace: PLACE,
            name,
        };
        for process in pod::processes(&stage.testbed, &pod).expect("processes") {
            let arguments = std::fs::read(format!("/proc/{}/cmdline", process.pid));
            // A probe's process may have ended by now.
            let arguments = String::from_utf8_lossy(&arguments.unwrap_or_default()).into_owned();
            check_silent(name, &arguments, &secrets.all());
        }
        let said = stage.kubectl(["logs", "--namespace", PLACE, name]);
        check_silent(&format!("the log of {name}"), &said, &secrets.all());
    }
}

/// A cluster with TLS and a user; its certificate.
fn apply_secured(stage: &Stage) -> Leaf {
    let authority = Authority::new("old");
    let leaf = authority.certify(SERVICE, LASTING);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}});
    let role = json!({"categories": [{"name": "all", "access": "allow"}]});
    let role = menu("ValkeyRole", "all", &role);
    for object in [namespace, tls::secret(&leaf, &authority.pem), role] {
        stage.apply(&object.to_string());
    }
    let permissions = json!([{"roleRef": "all", "keys": [{"pattern": "*"}]}]);
    let secured = json!({
        "tls": {"secretRef": tls::SECRET},
        "acl": [{"username": "app", "passwordHashes": [hash(USERS)], "permissions": permissions}],
    });
    stage.apply_cluster_with(PLACE, Shape::USUAL, &secured);
    leaf
}

struct Secrets {
    /// Passwords and a private key, in the clear and as Secrets write them.
    open: Vec<String>,
    /// Of the operator's own passwords.
    hashes: Vec<String>,
    /// Of the user's password.
    of_user: String,
}

impl Secrets {
    fn all(&self) -> Vec<String> {
        let hashes = self.hashes.iter().chain([&self.of_user]);
        self.open.iter().chain(hashes).cloned().collect()
    }
}

fn secrets(stage: &Stage, leaf: &Leaf) -> Secrets {
    let read = |secret: &str, key: &str, decoded: &str| {
        let template = format!("--output=go-template={{{{index .data \"{key}\" {decoded}}}}}");
        stage.kubectl(["get", "secret", secret, "--namespace", PLACE, &template])
    };
    // A line of a key's text is enough to know it by.
    let of_key = leaf.key.lines().nth(1).expect("a key").to_owned();
    let mut open = vec![of_key, read(tls::SECRET, "tls.key", ""), USERS.to_owned()];
    let mut hashes = Vec::new();
    for key in ["operator-password", "repl-password"] {
        let password = read("c-operator-auth", key, "| base64decode");
        assert_eq!(password.len(), 128, "a password is 128 characters");
        hashes.push(hash(&password));
        open.extend([password, read("c-operator-auth", key, "")]);
    }
    Secrets {
        open,
        hashes,
        of_user: hash(USERS),
    }
}

fn check_silent(what: &str, text: &str, forbidden: &[String]) {
    let told = forbidden
        .iter()
        .find(|secret| text.contains(secret.as_str()));
    let around = told
        .and_then(|secret| text.find(secret.as_str()))
        .unwrap_or_default();
    let line = text[..around].rfind('\n').map_or(0, |end| end + 1);
    assert!(
        told.is_none(),
        "{what} tells a secret after {:?}",
        &text[line..around]
    );
}
