//! The merge patches of a cluster's status, one for each transition.
//! Never writes `nodes` or a condition.

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::api::cluster::ClusterState;
use crate::api::cluster::ValkeyClusterSpec;
use crate::model::desired::Shape;
use crate::model::world::ClusterFacts;

/// Entering Creating: the live spec becomes the target, in this shape.
///
/// # Errors
/// None in practice: the spec came from JSON.
pub fn snapshot(cluster: &ClusterFacts, shape: Shape) -> Result<Value, serde_json::Error> {
    let target = serde_json::to_value(ValkeyClusterSpec {
        shards: shape.shards,
        replicas_per_shard: shape.replicas,
        ..cluster.spec.clone()
    })?;
    let old = serde_json::to_value(&cluster.status.target_spec)?;
    Ok(json!({ "status": {
        "state": ClusterState::Creating,
        "targetSpec": merge_patch(&old, target),
        "message": null,
    } }))
}

/// Reaching Active: the target is met, edits made meanwhile are picked up.
#[must_use]
pub fn activation() -> Value {
    json!({ "status": { "state": ClusterState::Active, "targetSpec": null, "message": null } })
}

/// The TLS Secret does not validate. A target that is being built stays.
#[must_use]
pub fn invalidation(message: &str) -> Value {
    json!({ "status": { "state": ClusterState::Invalid, "message": message } })
}

/// What to send in a merge patch so that `old` becomes exactly `new`: a merge keeps the keys that it does not
/// name, so those that are gone are named as null.
fn merge_patch(old: &Value, new: Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, &new) else {
        return new;
    };
    let gone = old
        .keys()
        .filter(|key| !new.contains_key(*key))
        .map(|key| (key.clone(), Value::Null));
    let kept = new.iter().map(|(key, value)| {
        let before = old.get(key).unwrap_or(&Value::Null);
        (key.clone(), merge_patch(before, value.clone()))
    });
    Value::Object(gone.chain(kept).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::merge_patch;

    #[test]
    fn what_is_gone_is_named() {
        assert_eq!(
            merge_patch(
                &json!({ "a": 1, "b": { "c": 1, "d": [1, 2] }, "e": { "f": 1 } }),
                json!({ "a": 1, "b": { "d": [3] }, "g": { "h": 2 } }),
            ),
            json!({ "a": 1, "b": { "c": null, "d": [3] }, "e": null, "g": { "h": 2 } }),
        );
        assert_eq!(
            merge_patch(&json!(null), json!({ "a": { "b": 1 } })),
            json!({ "a": { "b": 1 } })
        );
    }
}
