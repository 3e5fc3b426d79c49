//! `report`: what a bug report needs, as one JSON document.
//! Never a secret: hashes of passwords, values of directives that may hold one, and what users wrote
//! into annotations are hidden, wherever else their text occurs too.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::model::chain as causes;
use crate::observe::visit::Sight;
use crate::plugin::menu::{HIDDEN, chain, is_secret};
use crate::plugin::status::Status;
use crate::plugin::{Desk, Error, Exit, now, put};

/// Of ours, and so no user's.
const OWN_ANNOTATIONS: &str = "valkey.gomomento.com/";

/// A shorter text is part of other words, and no secret worth the name.
const SECRET_LENGTH_MIN: usize = 6;

/// Hides what may be secret, and remembers it.
#[derive(Default)]
struct Redaction {
    secrets: BTreeSet<String>,
}

impl Redaction {
    /// An object with its secrets hidden.
    fn object(&mut self, value: Value) -> Value {
        match value {
            Value::Object(fields) => {
                let fields = fields
                    .into_iter()
                    .filter(|(name, _)| name != "managedFields");
                let fields = fields.map(|(name, value)| {
                    let value = self.field(&name, value);
                    (name, value)
                });
                Value::Object(fields.collect())
            }
            Value::Array(values) => {
                let values = values.into_iter().map(|value| self.object(value));
                Value::Array(values.collect())
            }
            value @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => value,
        }
    }

    fn field(&mut self, name: &str, value: Value) -> Value {
        match (name, value) {
            ("passwordHashes", Value::Array(hashes)) => {
                let hashes = hashes.into_iter().map(|hash| self.hide(hash));
                Value::Array(hashes.collect())
            }
            ("valkey" | "valkeySettings", Value::Object(settings)) => {
                self.entries(settings, is_secret)
            }
            ("annotations" | "podAnnotations", Value::Object(annotations)) => {
                self.entries(annotations, |key| !key.starts_with(OWN_ANNOTATIONS))
            }
            (_, value) => self.object(value),
        }
    }

    fn entries(&mut self, entries: Map<String, Value>, hides: impl Fn(&str) -> bool) -> Value {
        let entries = entries.into_iter().map(|(name, value)| {
            let value = if hides(&name) {
                self.hide(value)
            } else {
                value
            };
            (name, value)
        });
        Value::Object(entries.collect())
    }

    fn hide(&mut self, value: Value) -> Value {
        if let Value::String(secret) = value
            && secret.len() >= SECRET_LENGTH_MIN
        {
            self.secrets.insert(secret);
        }
        HIDDEN.into()
    }

    /// A text without what was hidden before, longest first.
    fn scrub(&self, value: Value) -> Value {
        match value {
            Value::String(text) => {
                let mut secrets: Vec<&String> = self.secrets.iter().collect();
                secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
                let scrubbed = secrets
                    .into_iter()
                    .fold(text, |text, secret| text.replace(secret.as_str(), HIDDEN));
                Value::String(scrubbed)
            }
            Value::Array(values) => {
                Value::Array(values.into_iter().map(|value| self.scrub(value)).collect())
            }
            Value::Object(fields) => {
                let fields = fields.into_iter().map(|(name, value)| {
                    let value = self.scrub(value);
                    (name, value)
                });
                Value::Object(fields.collect())
            }
            value @ (Value::Null | Value::Bool(_) | Value::Number(_)) => value,
        }
    }
}

/// The configs of a cluster's chain, and the images and roles of the menu.
fn menu(sight: &Sight) -> Result<Value, serde_json::Error> {
    let menu = &sight.world.menu;
    let chain = chain(menu, &sight.world.cluster.spec.config_ref);
    let mut configs = Map::new();
    for name in &chain {
        if let Some(config) = menu.configs.get(name) {
            configs.insert(name.clone(), serde_json::to_value(config)?);
        }
    }
    Ok(json!({
        "chain": chain,
        "configs": configs,
        "images": serde_json::to_value(&menu.images)?,
        "roles": serde_json::to_value(&menu.roles)?,
    }))
}

impl Desk {
    /// Prints the document, whatever form was asked for.
    pub(super) async fn report(&self, name: Option<String>) -> Result<Exit, Error> {
        let (visit, sight) = self.sight(name).await?;
        let key = sight.world.cluster.key.clone();
        let place = |node: &_| visit.place(&key.namespace, node);
        let clusters = visit.clusters();
        let cluster = clusters.iter().find(|cluster| {
            let meta = &cluster.metadata;
            meta.name.as_deref() == Some(&key.name)
        });
        let json = |value: Result<Value, serde_json::Error>| value.map_err(Error::Json);
        let nodes = visit.nodes(&key);
        let names: BTreeSet<&str> = nodes
            .iter()
            .filter_map(|node| node.metadata.name.as_deref())
            .chain([key.name.as_str()])
            .collect();
        let events = match self.visitor.events(&key.namespace).await {
            Ok(events) => {
                let concerned = events.into_iter().filter(|event| {
                    let object = event.involved_object.name.as_deref();
                    object.is_some_and(|name| names.contains(name))
                });
                json(serde_json::to_value(concerned.collect::<Vec<_>>()))?
            }
            Err(error) => json!(causes::of(&error)),
        };
        let mut redaction = Redaction::default();
        let document = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "time": now(),
            "cluster": redaction.object(json(serde_json::to_value(cluster.map(AsRef::as_ref)))?),
            "nodes": redaction.object(json(serde_json::to_value(
                nodes.iter().map(AsRef::as_ref).collect::<Vec<_>>()
            ))?),
            "menu": redaction.object(json(menu(&sight))?),
            "status": json(serde_json::to_value(Status::of(&sight, place)))?,
            "events": redaction.object(events),
        });
        let document = redaction.scrub(document);
        let mut text = serde_json::to_string_pretty(&document).map_err(Error::Json)?;
        text.push('\n');
        put(&text)?;
        Ok(Exit::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_left_anywhere() {
        let object = json!({
            "metadata": {
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": "all of it",
                    "valkey.gomomento.com/paused": "true",
                },
                "managedFields": [{"manager": "kubectl"}],
            },
            "spec": {
                "valkey": {"requirepass": "hunter22", "hz": "10"},
                "acl": [{"username": "app", "passwordHashes": ["abcdef0123"]}],
                "podAnnotations": {"token": "sesame-open"},
            },
        });
        let mut redaction = Redaction::default();
        let object = redaction.object(object);
        assert_eq!(
            object,
            json!({
                "metadata": {"annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": HIDDEN,
                    "valkey.gomomento.com/paused": "true",
                }},
                "spec": {
                    "valkey": {"requirepass": HIDDEN, "hz": "10"},
                    "acl": [{"username": "app", "passwordHashes": [HIDDEN]}],
                    "podAnnotations": {"token": HIDDEN},
                },
            })
        );
        let words = json!({"pods": ["line 7: >>> 'requirepass \"hunter22\"'", "sesame-open"]});
        assert_eq!(
            redaction.scrub(words),
            json!({"pods": [format!("line 7: >>> 'requirepass \"{HIDDEN}\"'"), HIDDEN]})
        );
    }
}
