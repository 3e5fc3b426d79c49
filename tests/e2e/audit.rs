//! What the API server's audit log leaves open: a writer that is killed does not hear of its write, and the log calls
//! that a time-out, whether it took effect or not.
//! Never guesses: what became of such a write is what was told of its object later.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;

/// Creations and deletions by verb, resource, namespace and name.
type Key = (String, String, String, String);

/// Writes down as done what was called a time-out and took effect. The log in its own order.
pub(crate) fn complete<'a>(events: impl IntoIterator<Item = &'a mut Value>) {
    let mut events: Vec<&mut Value> = events.into_iter().collect();
    let mut heard = BTreeSet::new();
    let mut effects: BTreeMap<Key, Value> = BTreeMap::new();
    for event in &events {
        if !matches!(event["responseStatus"]["code"].as_u64(), Some(200..300)) {
            continue;
        }
        heard.insert(key(event, event["verb"].as_str().unwrap_or_default()));
        let object = &event["responseObject"];
        let metadata = &object["metadata"];
        if !metadata["uid"].is_string() {
            continue;
        }
        let goes = metadata["deletionTimestamp"].is_string();
        let shown = ["create"].into_iter().chain(goes.then_some("delete"));
        for verb in shown {
            let first = effects.entry(key(event, verb));
            first.or_insert_with(|| object.clone());
        }
    }
    for event in &mut events {
        let key = key(event, event["verb"].as_str().unwrap_or_default());
        let is_open = event["responseStatus"]["code"] == 504 && !heard.contains(&key);
        if let Some(effect) = effects.get(&key).filter(|_| is_open) {
            event["responseStatus"] = json!({"code": 200});
            event["responseObject"] = effect.clone();
        }
    }
}

fn key(event: &Value, verb: &str) -> Key {
    let of = |field: &str| {
        let text = event["objectRef"][field].as_str();
        text.unwrap_or_default().to_owned()
    };
    (verb.to_owned(), of("resource"), of("namespace"), of("name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(verb: &str, name: &str, code: u64, metadata: &Value) -> Value {
        json!({
            "verb": verb,
            "objectRef": {"resource": "valkeynodes", "namespace": "ns", "name": name},
            "responseStatus": {"code": code},
            "responseObject": {"metadata": metadata},
        })
    }

    #[test]
    fn what_a_killed_writer_did_not_hear_of_is_known_by_what_came_of_it() {
        let alive = json!({"uid": "1"});
        let going = json!({"uid": "1", "deletionTimestamp": "now"});
        let told = |mut events: Vec<Value>| {
            complete(&mut events);
            let codes = events.iter().map(|event| &event["responseStatus"]["code"]);
            codes.map(|code| code.as_u64().unwrap()).collect::<Vec<_>>()
        };
        let made = event("create", "a", 504, &json!({}));
        assert_eq!(told(vec![made.clone()]), [504], "nothing came of it");
        let other = event("patch", "b", 200, &alive);
        assert_eq!(told(vec![made.clone(), other]), [504, 200]);
        let stamped = event("patch", "a", 200, &alive);
        assert_eq!(told(vec![made.clone(), stamped]), [200, 200]);
        let again = event("create", "a", 201, &alive);
        assert_eq!(told(vec![made, again]), [504, 201], "it was the next one");
        let deleted = event("delete", "a", 504, &json!({}));
        let stamped = event("patch", "a", 200, &alive);
        assert_eq!(told(vec![deleted.clone(), stamped]), [504, 200]);
        let released = event("patch", "a", 200, &going);
        assert_eq!(told(vec![deleted, released]), [200, 200]);
    }
}
