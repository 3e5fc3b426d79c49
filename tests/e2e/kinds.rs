//! The five kinds on a real API server: installed either way, and the biggest objects. What else is
//! taken and refused, and in which words, is in `crds`.
//! Never needs the operator: all of it is schema.

#![expect(clippy::panic, reason = "a panic is how a test fails")]

use std::path::Path;

use kube::Client;
use kube::api::PostParams;
use kube::core::Request;
use serde_json::Value;
use serde_json::json;

use super::crds;
use super::slow;
use super::testbed::Options;
use super::testbed::Testbed;
use super::testbed::command::say;
use super::testbed::command::wait_for_success;
use super::turn;

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[test]
fn the_kinds_hold_on_a_real_api_server() -> Outcome {
    if !slow("the_kinds_hold_on_a_real_api_server") {
        return Ok(());
    }
    let _turn = turn::beside_others();
    let testbed = Testbed::up(&Options {
        nodes: 0,
        ..Options::default()
    })?;
    installs_either_way(&testbed)?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let client = testbed.client()?;
        crds::accepts_and_refuses(client.clone()).await;
        takes_the_biggest(&client).await;
        Ok::<(), Box<dyn std::error::Error>>(())
    })?;
    testbed.down()?;
    Ok(())
}

/// `kubectl apply` as a person types it, and as a deployment tool does; each time from nothing.
fn installs_either_way(testbed: &Testbed) -> Outcome {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds/crds.json");
    let file = file.display().to_string();
    for way in ["--server-side=false", "--server-side=true"] {
        testbed.kubectl(["delete", "--ignore-not-found", "-f", &file])?;
        for _upgrade in 0..2 {
            let said = testbed.kubectl(["apply", way, "-f", &file])?;
            assert_eq!(said.lines().count(), 5, "{said}");
        }
        let established = [
            "wait",
            "--for=condition=Established",
            "--timeout=10s",
            "-f",
            &file,
        ];
        wait_for_success(
            "the kinds to be established",
            std::time::Duration::from_mins(1),
            || testbed.kubectl(established),
        )?;
    }
    Ok(())
}

/// What etcd takes in one object by default, less what Kubernetes adds to it.
const STORED_MAX: usize = 1_450_000;
/// What the API server takes in one request.
const REQUEST_MAX: usize = 3_100_000;

/// Lists full and strings as long as may be, as far as an object may be large at all: they must not
/// exhaust what the API server spends on rules, neither made nor changed.
async fn takes_the_biggest(client: &Client) {
    for limit in [STORED_MAX, REQUEST_MAX] {
        for (mut object, change) in biggest(limit) {
            let size = object.to_string().len();
            let what = format!("a {} of {size} bytes", object["kind"]);
            let to_be_stored = limit == STORED_MAX;
            let made = send(client, "POST", &object, !to_be_stored).await;
            let mut made = made.unwrap_or_else(|causes| panic!("{what}: {causes}"));
            if to_be_stored {
                let (pointer, value) = change;
                *made.pointer_mut(pointer).expect("what is changed exists") = value;
                let changed = send(client, "PUT", &made, false).await;
                object = changed.unwrap_or_else(|causes| panic!("{what}, changed: {causes}"));
                send(client, "DELETE", &object, false)
                    .await
                    .expect("it can be deleted");
            }
            say(&format!("{what} is taken"));
        }
    }
}

/// Each with the place of a change and what to put there.
fn biggest(limit: usize) -> Vec<(Value, (&'static str, Value))> {
    let settings = |length: usize| -> Value {
        (0..256)
            .map(|number| (format!("setting-{number}"), json!("a".repeat(length))))
            .collect()
    };
    let length = (limit / 256 - 40).min(8192);
    let mut config = start("config");
    config["spec"]["valkey"] = settings(length);
    let mut node = start("node");
    node["spec"]["valkeySettings"] = settings(length);
    // 64 bindings of 16 permissions on 16 keys of whatever length remains.
    let mut many = start("cluster");
    many["spec"]["acl"] = bindings(64, limit / (64 * 16 * 16) - 55, 0);
    // As many bindings as fit, each as big as may be.
    let mut large = start("cluster");
    large["spec"]["acl"] = bindings(limit / 117_000, 256, 128);
    let mut role = start("role");
    let name = "a".repeat(64);
    let category = |number: usize| json!({"name": format!("a{number}"), "access": "deny"});
    role["spec"]["categories"] = (0..64).map(category).collect();
    let command = |_| json!({"name": name, "subcommand": name, "access": "allow"});
    role["spec"]["commands"] = (0..256).map(command).collect();
    let shards = || ("/spec/shards", json!(2));
    vec![
        (config, ("/spec/valkey/setting-0", json!("b"))),
        (node, ("/spec/lifecycle", json!("Leaving"))),
        (many, shards()),
        (large, shards()),
        (role, ("/spec/commands/0/access", json!("deny"))),
    ]
}

fn bindings(count: usize, pattern: usize, channel: usize) -> Value {
    let key = json!({"pattern": "k".repeat(pattern), "access": "read"});
    let mut permission = json!({"roleRef": "r", "keys": vec![key; 16]});
    if channel > 0 {
        permission["roleRef"] = json!("r".repeat(253));
        permission["channels"] = vec![json!("c".repeat(channel)); 16].into();
    }
    let named = |number: usize| {
        let mut binding = binding(&format!("user-{number}"));
        binding["passwordHashes"] = vec![json!("a".repeat(64)); 8].into();
        binding["permissions"] = vec![permission.clone(); 16].into();
        binding
    };
    (0..count).map(named).collect()
}

/// An object that is accepted as it is.
fn start(word: &str) -> Value {
    let (kind, spec) = match word {
        "image" => (
            "ValkeyImage",
            json!({"repository": "valkey/valkey", "tag": "9.1.2", "version": "9.1.2"}),
        ),
        "config" => ("ValkeyConfig", json!({})),
        "role" => ("ValkeyRole", json!({})),
        "cluster" => (
            "ValkeyCluster",
            json!({"configRef": "none", "shards": 1, "replicasPerShard": 0}),
        ),
        "node" => (
            "ValkeyNode",
            json!({"clusterName": "none", "image": "none:none", "shardIndex": 0}),
        ),
        other => panic!("{other:?} is no object to begin with"),
    };
    json!({
        "apiVersion": "valkey.gomomento.com/v1alpha1",
        "kind": kind,
        "metadata": {"name": "a-name"},
        "spec": spec,
    })
}

/// A binding that is accepted as it is, under that name.
fn binding(username: &str) -> Value {
    json!({
        "username": username,
        "passwordHashes": ["0123456789abcdef".repeat(4)],
        "permissions": [{"roleRef": "reader", "keys": [{"pattern": "*"}]}],
    })
}

/// The object that the API server made, or why not.
async fn send(client: &Client, verb: &str, object: &Value, dry_run: bool) -> Result<Value, String> {
    let kind = object["kind"].as_str().expect("a kind").to_lowercase();
    let namespace = match kind.as_str() {
        "valkeycluster" | "valkeynode" => "/namespaces/default",
        _ => "",
    };
    let path = format!("/apis/valkey.gomomento.com/v1alpha1{namespace}/{kind}s");
    let body = if verb == "DELETE" { &json!({}) } else { object };
    let body = serde_json::to_vec(body).expect("JSON prints");
    let parameters = PostParams {
        dry_run,
        field_manager: Some("kinds".to_owned()),
    };
    let mut request = Request::new(&path)
        .create(&parameters, body)
        .expect("a request can be made");
    *request.method_mut() = verb.parse().expect("a verb");
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let name = if verb == "POST" {
        String::new()
    } else {
        format!("/{name}")
    };
    let query = request.uri().query().unwrap_or_default();
    // As kubectl asks for it: a mistyped field is refused, not dropped.
    let uri = format!("{path}{name}?{query}&fieldValidation=Strict");
    *request.uri_mut() = uri.parse().expect("an address");
    let sent = client.request::<Value>(request).await;
    sent.map_err(|refusal| refusal.to_string())
}
