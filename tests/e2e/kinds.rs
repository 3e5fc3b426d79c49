//! What the API server takes and refuses of the five kinds, and in which words: `kinds.txt`.
//! Never needs the operator: all of it is schema.
//!
//! A row of `kinds.txt` is its name and, below, its lines:
//!
//! ```text
//! shards: none
//!   cluster                      the object that it begins with, see `start`
//!   /spec/shards = 0             changes to it; without a value: `/spec/shards removed`
//!   then /spec/shards = 2        what an update of the stored object changes
//!   status /status/nodes = []    the same of its status
//!   refused spec.shards: …       one line a cause, or `accepted`
//!   reads /spec/shards = 2       what the API server made of it
//! ```
//!
//! `«ab*3»` is ababab, `«{"a":"%"}**2»` is {"a":"0"},{"a":"1"}. `UPDATE_EXPECT=1` writes what the
//! API server said into the file.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a panic is how a test fails, and JSON is a list or it is not"
)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use kube::Client;
use kube::api::PostParams;
use kube::core::Request;
use serde_json::Value;
use serde_json::json;

use super::slow;
use super::testbed::Options;
use super::testbed::Testbed;
use super::testbed::command::say;
use super::testbed::command::wait_for_success;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// What newer API servers say beside any refusal by type or length.
const BESIDE_OTHERS: &str = "some validation rules were not checked because the object was invalid";

const TABLE: &str = "tests/e2e/kinds.txt";

#[test]
fn the_kinds_hold_on_a_real_api_server() -> Outcome {
    if !slow("the_kinds_hold_on_a_real_api_server") {
        return Ok(());
    }
    let testbed = Testbed::up(&Options::default())?;
    installs_either_way(&testbed)?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let client = testbed.client()?;
        accepts_and_refuses(client.clone()).await;
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

/// Tries every row and lists all that differ.
pub(crate) async fn accepts_and_refuses(client: Client) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLE);
    let table = fs::read_to_string(&path).expect("the table can be read");
    let rows = rows(&table);
    let mut written = String::new();
    let mut differing = String::new();
    for (number, row) in rows.iter().enumerate() {
        let actual = attempt(&client, number, row).await;
        if actual != row.expected {
            let (expected, actual) = (row.expected.join("\n    "), actual.join("\n    "));
            writeln!(
                differing,
                "{}\n  expected\n    {expected}\n  actual\n    {actual}",
                row.name
            )
            .unwrap();
        }
        written.push_str(&row.text(&actual));
    }
    if std::env::var("UPDATE_EXPECT").is_ok_and(|value| value == "1") {
        fs::write(&path, written).expect("the table can be written");
    } else {
        assert!(differing.is_empty(), "\n{differing}");
    }
    say(&format!("{} rows on the five kinds", rows.len()));
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
            let made = send(client, "POST", "", &object, !to_be_stored).await;
            let mut made = made.unwrap_or_else(|causes| panic!("{what}: {causes:?}"));
            if to_be_stored {
                let (pointer, value) = change;
                *made.pointer_mut(pointer).expect("what is changed exists") = value;
                let changed = send(client, "PUT", "", &made, false).await;
                object = changed.unwrap_or_else(|causes| panic!("{what}, changed: {causes:?}"));
                send(client, "DELETE", "", &object, false)
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

/// One row of the table.
#[derive(Default)]
struct Row<'a> {
    /// What stands above it: empty lines and notes.
    above: Vec<&'a str>,
    name: &'a str,
    start: &'a str,
    changes: Vec<&'a str>,
    update: Vec<&'a str>,
    status: Vec<&'a str>,
    expected: Vec<String>,
}

fn rows(table: &str) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    let mut above = Vec::new();
    for line in table.lines() {
        let Some(inside) = line.strip_prefix("  ") else {
            if line.is_empty() || line.starts_with('#') {
                above.push(line);
            } else {
                rows.push(Row {
                    above: std::mem::take(&mut above),
                    name: line,
                    ..Row::default()
                });
            }
            continue;
        };
        let row = rows.last_mut().expect("a row begins with its name");
        if let Some(change) = inside.strip_prefix("then ") {
            row.update.push(change);
        } else if let Some(change) = inside.strip_prefix("status ") {
            row.status.push(change);
        } else if inside.starts_with('/') {
            row.changes.push(inside);
        } else if row.start.is_empty() {
            row.start = inside;
        } else {
            row.expected.push(inside.to_owned());
        }
    }
    rows
}

impl Row<'_> {
    /// The row as it stands in the file, with another ending.
    fn text(&self, ending: &[String]) -> String {
        let mut text = String::new();
        for line in self.above.iter().chain([&self.name]) {
            writeln!(text, "{line}").unwrap();
        }
        writeln!(text, "  {}", self.start).unwrap();
        let parts = [
            ("", &self.changes),
            ("then ", &self.update),
            ("status ", &self.status),
        ];
        for (word, changes) in parts {
            for change in changes {
                writeln!(text, "  {word}{change}").unwrap();
            }
        }
        for line in ending {
            writeln!(text, "  {line}").unwrap();
        }
        text
    }
}

/// What the API server says of a row, in the table's words.
async fn attempt(client: &Client, number: usize, row: &Row<'_>) -> Vec<String> {
    let mut object = start(row.start);
    row.changes
        .iter()
        .for_each(|line| change(&mut object, line));
    let updated = !row.update.is_empty() || !row.status.is_empty();
    let answer = if updated {
        object["metadata"]["name"] = json!(format!("row-{number}"));
        let before = send(client, "POST", "", &object, false).await;
        let mut next = before.expect("what a row updates can be stored");
        let changes = row.update.iter().chain(&row.status);
        changes.for_each(|line| change(&mut next, line));
        let part = if row.status.is_empty() { "" } else { "/status" };
        let answer = send(client, "PUT", part, &next, true).await;
        send(client, "DELETE", "", &object, false)
            .await
            .expect("it can be deleted again");
        answer
    } else {
        send(client, "POST", "", &object, true).await
    };
    let made = match answer {
        Ok(made) => made,
        Err(causes) => return causes,
    };
    let reads = row
        .expected
        .iter()
        .filter_map(|line| line.strip_prefix("reads "));
    let reads = reads.map(|line| {
        let pointer = line.split(' ').next().unwrap_or_default();
        match made.pointer(pointer) {
            Some(value) => format!("reads {pointer} = {value}"),
            None => format!("reads {pointer} absent"),
        }
    });
    std::iter::once("accepted".to_owned())
        .chain(reads)
        .collect()
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

/// `/a/b = value` or `/a/b removed`. What is missing on the way is made, and a list without an
/// entry at `acl/0` gets a whole binding there first.
fn change(object: &mut Value, line: &str) {
    let (pointer, value) = match line.split_once(" = ") {
        Some((pointer, value)) => (pointer, Some(value)),
        None => (
            line.strip_suffix(" removed")
                .expect("a change ends in `removed`"),
            None,
        ),
    };
    let (path, last) = pointer.rsplit_once('/').expect("a path has a slash");
    let mut at = object;
    for step in path.split('/').skip(1) {
        if step == "acl" && at.get("acl").is_none() {
            at["acl"] = json!([binding("a")]);
        }
        at = match at {
            Value::Array(items) => &mut items[step.parse::<usize>().expect("a list's index")],
            at => &mut at[step],
        };
    }
    let Some(value) = value else {
        at.as_object_mut().expect("an object").remove(last);
        return;
    };
    let value = expand(value);
    let value = serde_json::from_str(&value).unwrap_or_else(|error| panic!("{value}: {error}"));
    match at {
        Value::Array(items) => items[last.parse::<usize>().expect("a list's index")] = value,
        at => at[last] = value,
    }
}

/// Writes out `«ab*3»` and `«ab**3»`.
fn expand(text: &str) -> String {
    let Some((before, rest)) = text.split_once('«') else {
        return text.to_owned();
    };
    let (inside, after) = rest.split_once('»').expect("« ends with »");
    let (what, count) = inside.rsplit_once('*').expect("« » has a count");
    let count: usize = count.parse().expect("a number");
    let (what, between) = what
        .strip_suffix('*')
        .map_or((what, ""), |what| (what, ","));
    let items: Vec<String> = (0..count)
        .map(|number| what.replace('%', &number.to_string()))
        .collect();
    format!("{before}{}{}", items.join(between), expand(after))
}

/// The object that the API server made, or one line a cause.
async fn send(
    client: &Client,
    verb: &str,
    part: &str,
    object: &Value,
    dry_run: bool,
) -> Result<Value, Vec<String>> {
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
        format!("/{name}{part}")
    };
    let query = request.uri().query().unwrap_or_default();
    // As kubectl asks for it: a mistyped field is refused, not dropped.
    let uri = format!("{path}{name}?{query}&fieldValidation=Strict");
    *request.uri_mut() = uri.parse().expect("an address");
    match client.request::<Value>(request).await {
        Ok(made) => Ok(made),
        Err(kube::Error::Api(status)) => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let mut causes: Vec<String> = causes
                .filter(|cause| !cause.message.contains(BESIDE_OTHERS))
                .map(|cause| format!("refused {}: {}", cause.field, cause.message))
                .collect();
            // Causes come in any order.
            causes.sort();
            let whole = || vec![format!("refused {}", status.message)];
            Err(if causes.is_empty() { whole() } else { causes })
        }
        Err(error) => panic!("the API server does not answer: {error}"),
    }
}
