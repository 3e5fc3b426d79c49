//! Status patches: a merge patch, applied by its own rules, leaves exactly the status that was meant.
//! Never through a server.

use operator::api::cluster::ValkeyClusterSpec;
use operator::api::cluster::ValkeyClusterStatus;
use operator::model::desired::Shape;
use operator::model::world::World;
use operator::render::status;
use serde_json::Value;
use serde_json::json;

use super::chains;
use super::dice::Dice;
use super::same;

pub(super) fn form(dice: &mut Dice) -> Result<(), String> {
    let mut world: World = chains::world(&json!({}), "c");
    world.cluster.spec = spec(dice);
    let mut old = json!({ "state": dice.of(&["Creating", "Active", "Invalid"]) });
    if dice.once_in(2) {
        old["targetSpec"] = json!(spec(dice));
    }
    if dice.once_in(2) {
        old["message"] = json!("TLS Secret \"s\" has no data");
    }
    world.cluster.status = read(&old)?;
    let before = json!({ "status": old, "spec": { "untouched": 1 } });

    let shape = Shape {
        shards: *dice.of(&[1, 7]),
        replicas: *dice.of(&[0, 2]),
    };
    let mut target = world.cluster.spec.clone();
    (target.shards, target.replicas_per_shard) = (shape.shards, shape.replicas);
    let patch = status::snapshot(&world.cluster, shape).map_err(|error| error.to_string())?;
    let mut after = before.clone();
    merge(&mut after, &patch);
    let wish = json!({
        "status": { "state": "Creating", "targetSpec": target },
        "spec": { "untouched": 1 },
    });
    same("the snapshot", &after, &wish)?;
    let again = read(&after["status"])?.target_spec;
    same("the target", &again, &Some(target))?;

    let mut after = before.clone();
    merge(&mut after, &status::invalidation("because"));
    let mut wish = before.clone();
    wish["status"]["state"] = json!("Invalid");
    wish["status"]["message"] = json!("because");
    same("the invalidation", &after, &wish)?;

    let mut after = before;
    merge(&mut after, &status::activation());
    let wish = json!({ "status": { "state": "Active" }, "spec": { "untouched": 1 } });
    same("the activation", &after, &wish)
}

fn read(status: &Value) -> Result<ValkeyClusterStatus, String> {
    serde_json::from_value(status.clone()).map_err(|error| error.to_string())
}

/// RFC 7396.
fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    let held = into.as_object_mut().expect("it was made one");
    for (key, value) in patch {
        if value.is_null() {
            held.remove(key);
        } else {
            merge(held.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// A spec with parts there or not.
fn spec(dice: &mut Dice) -> ValkeyClusterSpec {
    let mut spec = json!({
        "configRef": dice.of(&["a", "b"]),
        "shards": 1 + dice.small() % 9,
        "replicasPerShard": dice.small() % 4,
    });
    if dice.once_in(2) {
        spec["placement"] = json!({ "zones": dice.some(&["x", "y"], 2) });
        if dice.once_in(2) {
            spec["placement"]["zoneSpread"] = json!(dice.of(&["bestEffort", "required"]));
        }
        for key in ["disk", "gpu"] {
            if dice.once_in(2) {
                spec["placement"]["nodeSelector"][key] = json!(dice.of(&["", "v"]));
            }
        }
    }
    for key in ["a", "b/c", "d"] {
        if dice.once_in(3) {
            spec["podAnnotations"][key] = json!(dice.below(3).to_string());
        }
    }
    if dice.once_in(3) {
        spec["tls"] = json!({ "secretRef": dice.of(&["s", "t"]) });
    }
    if dice.once_in(3) {
        let names = dice.some(&["u", "v"], 2);
        let bindings = names.iter().map(|name| {
            json!({
                "username": name,
                "passwordHashes": ["a".repeat(64)],
                "permissions": [{ "roleRef": "r", "keys": [{ "pattern": "*" }] }],
            })
        });
        spec["acl"] = bindings.collect();
    }
    serde_json::from_value(spec).expect("a spec")
}
