//! Who ever lived in a namespace, from the API server's audit log, which no missed watch event can falsify.
//! Never relies on the creation itself: an API server that is killed has not written down its last answers, so whoever
//! is in any answer lived. Never counts what was refused.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

/// The nodes and pods of one namespace through all time.
#[derive(Debug, Default)]
pub(crate) struct Census {
    /// Every ValkeyNode that was ever made.
    pub(crate) nodes: BTreeSet<String>,
    /// Those of them whose deletion was asked for.
    pub(crate) deleted: BTreeSet<String>,
    /// The most that stood at one time.
    pub(crate) most: usize,
    /// The uids of the pods that were ever made, by name.
    pub(crate) pods: BTreeMap<String, BTreeSet<String>>,
}

impl Census {
    pub(crate) fn of(audit: &[Value], namespace: &str) -> Self {
        let mut events: Vec<&Value> = audit
            .iter()
            .filter(|event| event["objectRef"]["namespace"] == namespace)
            .filter(|event| matches!(event["responseStatus"]["code"].as_u64(), Some(200..300)))
            .collect();
        events.sort_by_key(|event| event["stageTimestamp"].as_str().unwrap_or_default());
        let mut census = Self::default();
        for event in events {
            let object = &event["responseObject"];
            let metadata = &object["metadata"];
            let text = |field: &str| metadata[field].as_str().map(str::to_owned);
            // What only says that something was done has none.
            let (Some(name), Some(uid)) = (text("name"), text("uid")) else {
                continue;
            };
            match object["kind"].as_str().unwrap_or_default() {
                "ValkeyNode" => {
                    if text("deletionTimestamp").is_some() {
                        census.deleted.insert(name.clone());
                    }
                    census.nodes.insert(name);
                }
                "Pod" => {
                    census.pods.entry(name).or_default().insert(uid);
                }
                _ => {}
            }
            census.most = census.most.max(census.standing());
        }
        census
    }

    /// Made and not deleted.
    pub(crate) fn standing(&self) -> usize {
        self.nodes.difference(&self.deleted).count()
    }

    /// What the operator promises whatever happens: never more nodes than wanted, each with one pod in its life.
    pub(crate) fn check(&self, wanted: usize) -> Result<(), String> {
        if self.most > wanted || self.standing() != wanted {
            return Err(format!("wanted {wanted} nodes: {self:?}"));
        }
        match self
            .pods
            .iter()
            .find(|(name, uids)| uids.len() != 1 || !self.nodes.contains(*name))
        {
            Some((name, _)) => Err(format!("not one pod was made for node {name}: {self:?}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(verb: &str, code: u64, kind: &str, metadata: &Value) -> Value {
        json!({
            "verb": verb,
            "objectRef": {"namespace": "ns"},
            "responseStatus": {"code": code},
            "responseObject": {"kind": kind, "metadata": metadata},
            "stageTimestamp": "now",
        })
    }

    #[test]
    fn who_is_in_any_answer_lived_though_nobody_wrote_the_creation_down() {
        let node = json!({"name": "a", "uid": "1"});
        let pod = json!({"name": "a", "uid": "2"});
        let stamped = event("patch", 200, "ValkeyNode", &node);
        let told = event("patch", 200, "Pod", &pod);
        let census = Census::of(&[stamped.clone(), told.clone()], "ns");
        assert_eq!(census.check(1), Ok(()));
        assert!(census.deleted.is_empty());
        let refused = event("create", 409, "Status", &json!({}));
        let done = event("delete", 200, "Status", &json!({}));
        let census = Census::of(&[refused, stamped.clone(), done, told.clone()], "ns");
        assert_eq!(census.check(1), Ok(()));
        let going = json!({"name": "a", "uid": "1", "deletionTimestamp": "now"});
        let released = event("patch", 200, "ValkeyNode", &going);
        let census = Census::of(&[stamped.clone(), told.clone(), released], "ns");
        assert_eq!(census.deleted.len(), 1);
        assert!(census.check(1).is_err());
        let second = event("patch", 200, "Pod", &json!({"name": "a", "uid": "3"}));
        let census = Census::of(&[stamped, told.clone(), second], "ns");
        assert!(census.check(1).is_err(), "two pods");
        assert!(Census::of(&[told], "ns").check(0).is_err(), "of no node");
    }
}
