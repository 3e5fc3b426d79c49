//! What belongs to others: S23. Never judges an object that the operator made.

use std::collections::BTreeSet;

use serde_json::Map;
use serde_json::Value;

use super::Checker;
use super::Verdict;
use super::evidence::Actor;
use super::evidence::Step;
use super::evidence::Verb;
use super::evidence::Write;
use super::lifecycle::written;
use super::past::Past;
use super::past::cluster_of;
use super::scene::Body as _;
use super::scene::JOIN_TYPE;

/// All that the operator may write to.
const KINDS: [&str; 7] = [
    "ConfigMap",
    "Event",
    "Pod",
    "Secret",
    "Service",
    "ValkeyCluster",
    "ValkeyNode",
];
/// Labels, annotations and finalizers of the operator's own.
const OURS: &str = "valkey.gomomento.com/";

/// S23: nothing of others is touched: foreign annotations, labels, other namespaces' same-named objects.
///
/// An object is ours if a cluster or a node of ours owns it; of a `ValkeyCluster` the status and our finalizer
/// are. A pod annotation that is not wished any more may be one of which the operator could not know that yet.
pub(super) fn what_is_foreign_is_left_alone(checker: &mut Checker, step: &Step) -> Verdict {
    let past = &checker.past;
    let Some(write) = written(step).filter(|write| write.outcome.took_effect()) else {
        return Ok(());
    };
    let told = || format!("{:?} of {} {}", write.verb, write.kind, write.name);
    if !KINDS.contains(&write.kind.as_str()) {
        return Err(format!("{}: none of our kinds", told()));
    }
    if write.kind == "Event" {
        return Ok(());
    }
    let Some(before) = write.before.as_deref() else {
        let cluster = cluster_of(write);
        // A request may come so late that its cluster is gone: what it makes goes with its owner.
        let late = write.after.as_deref().is_some_and(|made| {
            let mut owners = made.owners().into_iter();
            owners.any(|(_, uid)| past.uids.contains(uid))
        });
        let known = past.scene.cluster(&cluster).is_some() || write.verb != Verb::Create || late;
        return if known {
            Ok(())
        } else {
            Err(format!("{} for no cluster of this namespace", told()))
        };
    };
    let owned = before
        .owners()
        .iter()
        .any(|(_, uid)| past.uids.contains(*uid));
    if !owned && write.kind != "ValkeyCluster" {
        return Err(format!("{}, which is not ours", told()));
    }
    if write.verb == Verb::Delete {
        return if write.kind == "ValkeyCluster" {
            Err(told())
        } else {
            Ok(())
        };
    }
    // The last finalizer was taken off.
    let Some(after) = write.after.as_deref() else {
        return Ok(());
    };
    metadata_is_kept(past, (step.by, write), before, after)
        .and_then(|()| content_is_kept(&write.kind, before, after))
        .map_err(|what| format!("{} changed {what}", told()))
}

fn map<'a>(body: &'a Value, pointer: &str) -> Option<&'a Map<String, Value>> {
    body.at(pointer).and_then(Value::as_object)
}

/// The keys whose values differ.
fn changed<'a>(before: &'a Value, after: &'a Value, pointer: &str) -> BTreeSet<&'a str> {
    let (old, new) = (map(before, pointer), map(after, pointer));
    let value = |map: Option<&'a Map<String, Value>>, key: &str| map.and_then(|map| map.get(key));
    let keys = old.into_iter().chain(new).flat_map(Map::keys);
    keys.filter(|key| value(old, key) != value(new, key))
        .map(String::as_str)
        .collect()
}

fn metadata_is_kept(
    past: &Past,
    (by, write): (Actor, &Write),
    before: &Value,
    after: &Value,
) -> Verdict {
    for label in changed(before, after, "/metadata/labels") {
        if write.kind != "ValkeyNode" || label != JOIN_TYPE {
            return Err(format!("label {label}"));
        }
    }
    let name = cluster_of(write);
    let cluster = past.scene.cluster(&name);
    let wishes = cluster.and_then(|cluster| map(&cluster.body, "/spec/podAnnotations"));
    let is_wished = |annotation: &str| {
        wishes.is_some_and(|wishes| wishes.contains_key(annotation)) || past.may_not_know(by, &name)
    };
    for annotation in changed(before, after, "/metadata/annotations") {
        let removed =
            map(after, "/metadata/annotations").is_none_or(|it| !it.contains_key(annotation));
        let wished = write.kind == "Pod" && !removed && is_wished(annotation);
        if !wished && !annotation.starts_with(OURS) {
            return Err(format!("annotation {annotation}"));
        }
    }
    let foreign = |body: &Value| -> Vec<String> {
        let held = body
            .finalizers()
            .into_iter()
            .filter(|held| !held.starts_with(OURS));
        held.map(str::to_owned).collect()
    };
    if foreign(before) != foreign(after) && !after.is_null() {
        return Err(format!("foreign finalizers {:?}", foreign(before)));
    }
    let owners = |body: &Value| body.at("/metadata/ownerReferences").cloned();
    if owners(before) != owners(after) && !after.is_null() {
        return Err("owners".to_owned());
    }
    Ok(())
}

/// What of an object's content is not the operator's to change.
fn content_is_kept(kind: &str, before: &Value, after: &Value) -> Verdict {
    if after.is_null() {
        return Ok(());
    }
    let part = match kind {
        "ValkeyCluster" | "Service" => "spec",
        "Secret" => "data",
        _ => "",
    };
    if before.get(part) != after.get(part) {
        return Err(part.to_owned());
    }
    if kind == "ConfigMap" {
        let mut keys = changed(before, after, "/data");
        keys.remove("users.acl");
        if !keys.is_empty() {
            return Err(format!("{keys:?}"));
        }
    }
    Ok(())
}
