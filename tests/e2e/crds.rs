//! The five kinds before a real API server: the definitions install, and every row of a table is
//! accepted or refused in exactly the words that the row says.
//! Never needs a node, a pod or the operator.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod rows;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::conditions;
use kube::runtime::wait::await_condition;
use kube::{Client, Error, ResourceExt as _};
use serde_json::{Value, json};

/// What `kubectl apply -f` of a user installs.
const DEFINITIONS: &str = include_str!("../../crds/crds.json");

/// What a client-side apply leaves on an object, and how long an object's annotations may be.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// Requests in flight: more only wait for each other in the API server.
const AT_ONCE: usize = 16;

/// One object, or an object and a change of it, and what the API server says.
struct Row {
    what: &'static str,
    base: Base,
    /// How the object that is there before the change differs from the base; none is there where
    /// this is none.
    was: Option<Edits>,
    /// How the object that is sent differs from that.
    sent: Edits,
    answer: Answer,
}

/// JSON pointers and the values there; `-` takes the field away. In a value, `<a*3>` stands for
/// `aaa`, and `{"each": 3, "of": x}` for three `x` in a list, or with a `key` in a map, `§` being
/// the number of each.
type Edits = &'static [(&'static str, &'static str)];

#[derive(Clone, Copy)]
enum Base {
    Image,
    Config,
    Role,
    Cluster,
    /// A cluster with an ACL binding.
    Bound,
    Node,
}

enum Answer {
    /// It is stored, and then these are the values there.
    Stored(Edits),
    /// Each cause in a line, as `field: message`.
    Refused(&'static str),
}

const fn accepted(what: &'static str, base: Base, sent: Edits) -> Row {
    Row {
        what,
        base,
        was: None,
        sent,
        answer: Answer::Stored(&[]),
    }
}

const fn becomes(what: &'static str, base: Base, sent: Edits, stored: Edits) -> Row {
    Row {
        what,
        base,
        was: None,
        sent,
        answer: Answer::Stored(stored),
    }
}

const fn refused(what: &'static str, base: Base, sent: Edits, causes: &'static str) -> Row {
    Row {
        what,
        base,
        was: None,
        sent,
        answer: Answer::Refused(causes),
    }
}

const fn change(what: &'static str, base: Base, was: Edits, sent: Edits) -> Row {
    Row {
        what,
        base,
        was: Some(was),
        sent,
        answer: Answer::Stored(&[]),
    }
}

const fn no_change(
    what: &'static str,
    base: Base,
    was: Edits,
    sent: Edits,
    causes: &'static str,
) -> Row {
    Row {
        what,
        base,
        was: Some(was),
        sent,
        answer: Answer::Refused(causes),
    }
}

/// Installs the definitions in both ways of `kubectl apply`, then sends every row.
pub(crate) async fn accepts_and_refuses(client: Client) {
    install(&client).await;
    let namespaces = Api::<Namespace>::all(client.clone());
    let namespace = json!({ "metadata": { "generateName": "kinds-" } });
    let namespace = serde_json::from_value(namespace).expect("a namespace");
    let namespace = namespaces.create(&PostParams::default(), &namespace).await;
    let namespace = namespace.expect("a namespace").name_any();
    let numbered = rows::ROWS.iter().enumerate();
    let differences: Vec<String> = stream::iter(numbered)
        .map(|(number, row)| difference(&client, &namespace, number, row))
        .buffered(AT_ONCE)
        .filter_map(|difference| async { difference })
        .collect()
        .await;
    statuses(&client, &namespace).await;
    namespaces
        .delete(&namespace, &DeleteParams::default())
        .await
        .expect("it is there");
    let count = rows::ROWS.len();
    assert!(
        differences.is_empty(),
        "{} of {count} rows differ:\n\n{}",
        differences.len(),
        differences.join("\n"),
    );
    super::testbed::command::say(&format!(
        "the API server answered {count} manifests as they deserve"
    ));
}

/// Only a cluster's status holds anything, and a node has none.
async fn statuses(client: &Client, namespace: &str) {
    let bases = [
        Base::Image,
        Base::Config,
        Base::Role,
        Base::Cluster,
        Base::Node,
    ];
    for base in bases {
        let api = api(client, namespace, base);
        let object = base.object("status");
        let spec = object["spec"].clone();
        api.create(&PostParams::default(), &typed(&object))
            .await
            .expect("a sound object");
        let write = async |status: Value| {
            let patch = Patch::Merge(json!({ "status": status }));
            let patched = api
                .patch_status("status", &PatchParams::default(), &patch)
                .await;
            patched.map(|object| object.data["status"].clone())
        };
        match base {
            Base::Node => {
                let error = write(json!({})).await.expect_err("there is none");
                assert_eq!(reason(&error), Some("NotFound"), "{error}");
            }
            Base::Cluster | Base::Bound => {
                let status = write(json!({ "message": "m" })).await.expect("a message");
                assert_eq!(status, json!({ "message": "m", "state": "Creating" }));
                let full = json!({
                    "state": "Invalid", "targetSpec": spec, "nodes": ["a"], "message": "m",
                });
                assert_eq!(write(full.clone()).await.expect("all fields"), full);
                let error = write(json!({ "state": "active" })).await;
                assert_eq!(
                    causes(&error.expect_err("no such state")),
                    "status.state: Unsupported value: \"active\": supported values: \
                     \"Creating\", \"Active\", \"Updating\", \"Invalid\"",
                );
            }
            Base::Image | Base::Config | Base::Role => {
                let status = write(json!({ "state": "Active" })).await;
                assert_eq!(status.expect("an empty status"), json!({}));
            }
        }
        api.delete("status", &DeleteParams::default())
            .await
            .expect("it is there");
    }
}

async fn install(client: &Client) {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let list: Value = serde_json::from_str(DEFINITIONS).expect("JSON");
    for item in list["items"].as_array().expect("a list") {
        let name = item["metadata"]["name"].as_str().expect("a name");
        let mut applied = item.clone();
        let text = format!("{item}\n");
        assert!(
            text.len() < ANNOTATIONS_MAX,
            "{name}: too long for a client-side apply"
        );
        applied["metadata"]["annotations"] = json!({ LAST_APPLIED: text });
        let applied = serde_json::from_value(applied).expect("a definition");
        if let Err(error) = api.create(&PostParams::default(), &applied).await {
            assert_eq!(reason(&error), Some("AlreadyExists"), "{name}: {error}");
        }
        let params = PatchParams::apply("kinds").force();
        let applied = api.patch(name, &params, &Patch::Apply(item)).await;
        applied.unwrap_or_else(|error| panic!("{name}: {error}"));
        let established = conditions::is_crd_established();
        await_condition(api.clone(), name, established)
            .await
            .expect("it is served");
    }
}

/// What the API server says to a row, beside what it should; nothing where the two agree.
async fn difference(client: &Client, namespace: &str, number: usize, row: &Row) -> Option<String> {
    let api = api(client, namespace, row.base);
    let mut object = row.base.object(&format!("row-{number}"));
    let said = match row.was {
        None => {
            edit(&mut object, row.sent);
            api.create(&dry_run(), &typed(&object)).await
        }
        Some(was) => {
            edit(&mut object, was);
            let stored = api.create(&PostParams::default(), &typed(&object)).await;
            let stored = stored.unwrap_or_else(|error| panic!("{}: {error}", row.what));
            edit(&mut object, row.sent);
            object["metadata"]["resourceVersion"] = json!(stored.resource_version());
            let said = api
                .replace(&stored.name_any(), &dry_run(), &typed(&object))
                .await;
            let gone = api
                .delete(&stored.name_any(), &DeleteParams::default())
                .await;
            gone.expect("it is there");
            said
        }
    };
    let (expected, actual) = match (&row.answer, said) {
        (Answer::Stored(edits), Ok(stored)) => {
            let stored = serde_json::to_value(stored).expect("JSON");
            let unequal = edits.iter().find_map(|(pointer, text)| {
                let wanted = value(text);
                let found = stored.pointer(pointer).cloned();
                (wanted != found).then_some((pointer, wanted, found))
            });
            let (pointer, wanted, found) = unequal?;
            (
                format!("{pointer} = {wanted:?}"),
                format!("{pointer} = {found:?}"),
            )
        }
        (Answer::Stored(_), Err(error)) => ("accepted".to_owned(), causes(&error)),
        (Answer::Refused(causes), Ok(_)) => (repeated(causes), "accepted".to_owned()),
        (Answer::Refused(expected), Err(error)) => (repeated(expected), causes(&error)),
    };
    (expected != actual).then(|| {
        let mut text = String::new();
        writeln!(text, "{}", row.what).expect("memory");
        for (sign, lines) in [('-', expected), ('+', actual)] {
            lines
                .lines()
                .for_each(|line| writeln!(text, "  {sign} {line}").expect("memory"));
        }
        text
    })
}

fn api(client: &Client, namespace: &str, base: Base) -> Api<DynamicObject> {
    let (kind, namespaced) = base.kind();
    let kind = GroupVersionKind::gvk("valkey.gomomento.com", "v1alpha1", kind);
    let resource = ApiResource::from_gvk(&kind);
    if namespaced {
        Api::namespaced_with(client.clone(), namespace, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    }
}

fn dry_run() -> PostParams {
    PostParams {
        dry_run: true,
        ..PostParams::default()
    }
}

fn typed(object: &Value) -> DynamicObject {
    serde_json::from_value(object.clone()).expect("an object")
}

impl Base {
    fn kind(self) -> (&'static str, bool) {
        match self {
            Self::Image => ("ValkeyImage", false),
            Self::Config => ("ValkeyConfig", false),
            Self::Role => ("ValkeyRole", false),
            Self::Cluster | Self::Bound => ("ValkeyCluster", true),
            Self::Node => ("ValkeyNode", true),
        }
    }

    fn object(self, name: &str) -> Value {
        let cluster = json!({ "configRef": "standard", "shards": 3, "replicasPerShard": 1 });
        let spec = match self {
            Self::Image => {
                json!({ "repository": "valkey/valkey", "tag": "9.1.2", "version": "9.1.2" })
            }
            Self::Config => json!({ "imageRef": "valkey-9" }),
            Self::Role => json!({}),
            Self::Cluster => cluster,
            Self::Bound => {
                let mut bound = cluster;
                bound["acl"] = json!([{
                    "username": "app",
                    "passwordHashes": ["0".repeat(64)],
                    "permissions": [{ "roleRef": "rw", "keys": [{ "pattern": "app:*" }] }],
                }]);
                bound
            }
            Self::Node => {
                json!({ "clusterName": "c", "image": "valkey/valkey:9.1.2", "shardIndex": 0 })
            }
        };
        json!({
            "apiVersion": "valkey.gomomento.com/v1alpha1",
            "kind": self.kind().0,
            "metadata": { "name": name },
            "spec": spec,
        })
    }
}

fn edit(object: &mut Value, edits: Edits) {
    for (pointer, text) in edits {
        let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
        let mut at = &mut *object;
        for step in parent.split('/').skip(1) {
            at = match step.parse::<usize>() {
                Ok(index) => &mut at[index],
                Err(_) => &mut at[step],
            };
        }
        match (value(text), field.parse::<usize>()) {
            (Some(value), Ok(index)) => at[index] = value,
            (Some(value), Err(_)) => at[field] = value,
            (None, _) => {
                at.as_object_mut().expect("a parent").remove(field);
            }
        }
    }
}

fn value(text: &str) -> Option<Value> {
    let value = || serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    (text != "-").then(|| unfolded(value()))
}

/// The value that a folded one stands for.
fn unfolded(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(repeated(&text)),
        Value::Array(items) => items.into_iter().map(unfolded).collect(),
        Value::Object(map) => match (map.get("each").and_then(Value::as_u64), map.get("of")) {
            (Some(count), Some(of)) => {
                let item = |number| unfolded(numbered(of, number));
                match map.get("key") {
                    None => (0..count).map(item).collect(),
                    Some(key) => {
                        let key = key.as_str().expect("a map's key is text");
                        let key = |number: u64| repeated(&key.replace('§', &number.to_string()));
                        (0..count)
                            .map(|number| (key(number), item(number)))
                            .collect()
                    }
                }
            }
            _ => map
                .into_iter()
                .map(|(key, of)| (repeated(&key), unfolded(of)))
                .collect(),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

fn numbered(of: &Value, number: u64) -> Value {
    match of {
        Value::String(text) => Value::String(text.replace('§', &number.to_string())),
        // An inner repetition numbers its own.
        Value::Object(map) if map.contains_key("each") => of.clone(),
        Value::Object(map) => map
            .iter()
            .map(|(key, of)| (key.clone(), numbered(of, number)))
            .collect(),
        Value::Array(items) => items.iter().map(|of| numbered(of, number)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => of.clone(),
    }
}

/// The text with `<a*3>` as `aaa`.
fn repeated(text: &str) -> String {
    let mut whole = String::new();
    let mut rest = text;
    while let Some((before, fold)) = rest.split_once('<') {
        whole.push_str(before);
        let unfolded = fold.split_once('>').and_then(|(fold, after)| {
            let (unit, count) = fold.split_once('*')?;
            Some((unit.repeat(count.parse().ok()?), after))
        });
        if let Some((unfolded, after)) = unfolded {
            whole.push_str(&unfolded);
            rest = after;
        } else {
            whole.push('<');
            rest = fold;
        }
    }
    whole.push_str(rest);
    whole
}

fn reason(error: &Error) -> Option<&str> {
    if let Error::Api(status) = error {
        Some(status.reason.as_str())
    } else {
        None
    }
}

/// Said beside every refusal by the schema's limits, whatever they are.
const RULES_UNCHECKED: &str = "some validation rules were not checked";

/// Why the API server refused, a cause in a line, in the order of fields.
fn causes(error: &Error) -> String {
    let Error::Api(status) = error else {
        return error.to_string();
    };
    let causes = status
        .details
        .as_ref()
        .map(|details| details.causes.as_slice());
    let lines: BTreeSet<_> = causes
        .unwrap_or_default()
        .iter()
        .filter(|cause| !cause.message.contains(RULES_UNCHECKED))
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect();
    if lines.is_empty() {
        return format!("{} {}", status.code, status.message);
    }
    lines.into_iter().collect::<Vec<_>>().join("\n")
}
