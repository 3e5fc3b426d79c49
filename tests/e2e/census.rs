//! Who ever lived in a namespace, from the API server's audit log, which no restart and no missed watch event can
//! falsify. Never counts what was refused.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

/// The ValkeyNodes and pods of one namespace through all time.
#[derive(Debug, Default)]
pub(crate) struct Census {
    /// Every ValkeyNode that was ever made.
    pub(crate) nodes: BTreeSet<String>,
    /// Those of them whose deletion was asked for.
    pub(crate) deleted: BTreeSet<String>,
    /// The most that stood at one time.
    pub(crate) most: usize,
    /// How many pods were ever made under each name.
    pub(crate) pods: BTreeMap<String, usize>,
}

impl Census {
    pub(crate) fn of(audit: &[Value], namespace: &str) -> Self {
        let mut events: Vec<&Value> = audit
            .iter()
            .filter(|event| event["objectRef"]["namespace"] == namespace)
            .filter(|event| matches!(event["responseStatus"]["code"].as_u64(), Some(200..=202)))
            .filter(|event| event["objectRef"].get("subresource").is_none())
            .collect();
        events.sort_by_key(|event| event["stageTimestamp"].as_str().unwrap_or_default());
        let mut census = Self::default();
        for event in events {
            let of = |field: &str| event["objectRef"][field].as_str().unwrap_or_default();
            let name = of("name").to_owned();
            match (event["verb"].as_str().unwrap_or_default(), of("resource")) {
                ("create", "valkeynodes") => {
                    census.nodes.insert(name);
                }
                ("delete", "valkeynodes") => {
                    census.deleted.insert(name);
                }
                ("create", "pods") => *census.pods.entry(name).or_default() += 1,
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
            .find(|(name, count)| **count != 1 || !self.nodes.contains(*name))
        {
            Some((name, count)) => Err(format!("{count} pods were made for {name}: {self:?}")),
            None => Ok(()),
        }
    }
}
