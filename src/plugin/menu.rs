//! `menu`: what a config resolves to, each value with the config of the chain that it comes from.
//! Never a resolver of its own: it asks the operator's about a cluster that picks the config.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt as _;
use serde::Serialize;

use crate::api::cluster::{ValkeyCluster, ValkeyClusterSpec, ValkeyClusterStatus, ZoneSpread};
use crate::api::config::ValkeyConfigSpec;
use crate::model::desired::{MenuError, Resolved, Sourced, User};
use crate::model::name::{ClusterRef, Uid};
use crate::model::world::{ClusterFacts, Kept, Menu, World};
use crate::plugin::print::{Cell, Table, Tone, said};
use crate::plugin::{Desk, Error, Exit, Shown};
use crate::resolve;

/// What a config means for a cluster that picks it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct MenuAnswer {
    config: String,
    /// From the config to its root.
    chain: Vec<String>,
    values: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Entry {
    /// A field of a `ValkeyConfig`; of a Valkey directive `valkey.` and its canonical name.
    field: String,
    value: String,
    /// The config that sets it; `(operator)` where the operator does.
    from: String,
}

/// What a menu is made of.
pub(super) const MENU_KINDS: [&str; 3] = ["valkeyconfigs", "valkeyimages", "valkeyroles"];

/// Who sets what no config sets.
const OPERATOR: &str = "(operator)";

/// What is in the place of a value that may be a secret.
pub(super) const HIDDEN: &str = "(hidden)";

impl MenuAnswer {
    /// Resolves a config.
    pub(crate) fn of(menu: &Menu, config: &str) -> Result<Self, MenuError> {
        let resolved = resolve::desired(&hypothetical(menu, config)).menu?;
        let chain = chain(menu, config);
        let values = values(menu, &chain, &resolved);
        Ok(Self {
            config: config.to_owned(),
            chain,
            values,
        })
    }
}

/// A cluster that picks the config and asks for nothing else.
fn hypothetical(menu: &Menu, config: &str) -> World {
    World {
        now: 0,
        cluster: ClusterFacts {
            key: ClusterRef {
                namespace: String::new(),
                name: String::new(),
            },
            uid: Uid::new(""),
            spec: ValkeyClusterSpec {
                config_ref: config.to_owned(),
                ..ValkeyClusterSpec::default()
            },
            status: ValkeyClusterStatus::default(),
            deleting: false,
            finalizer: false,
            paused: false,
        },
        menu: menu.clone(),
        kept: Kept::default(),
        tls_secret: None,
        nodes: BTreeMap::new(),
        strays: BTreeMap::new(),
        acl_refusal: None,
        default_zone_spread: ZoneSpread::default(),
    }
}

/// The configs from one to its root, as far as they exist; each once.
pub(super) fn chain(menu: &Menu, config: &str) -> Vec<String> {
    let mut chain: Vec<String> = Vec::new();
    let mut next = Some(config);
    while let Some(name) = next {
        if chain.iter().any(|known| known == name) {
            break;
        }
        let Some(spec) = menu.configs.get(name) else {
            break;
        };
        chain.push(name.to_owned());
        next = spec.base_ref.as_deref();
    }
    chain
}

fn values(menu: &Menu, chain: &[String], resolved: &Resolved) -> Vec<Entry> {
    let Resolved {
        image,
        cpu,
        memory,
        user_settings,
        node_settings,
        users,
        tolerations,
        priority_class,
        pull_secrets,
        placement: _,
    } = resolved;
    let from = |sets: fn(&ValkeyConfigSpec) -> bool| {
        let configs = chain.iter().filter(|name| {
            let config = menu.configs.get(*name);
            config.is_some_and(sets)
        });
        configs.map(String::as_str).next().unwrap_or(OPERATOR)
    };
    let mut values = vec![sourced("image", image)];
    values.extend(
        pull_secrets
            .iter()
            .map(|secret| Entry::new("pullSecrets", secret.clone(), image.config.as_str())),
    );
    let quantities = [("resources.cpu", cpu), ("resources.memory", memory)];
    for (field, quantity) in quantities {
        let quantity = quantity
            .clone()
            .map(|quantity| quantity.map(|value| value.0));
        values.extend(quantity.iter().map(|quantity| sourced(field, quantity)));
    }
    if !tolerations.is_empty() {
        let words: Vec<String> = tolerations
            .iter()
            .filter_map(|toleration| serde_json::to_string(toleration).ok())
            .collect();
        let from = from(|config| {
            let scheduling = config.scheduling.as_ref();
            scheduling.is_some_and(|scheduling| scheduling.tolerations.is_some())
        });
        values.push(Entry::new("scheduling.tolerations", words.join(" "), from));
    }
    if let Some(class) = priority_class {
        let from = from(|config| {
            let scheduling = config.scheduling.as_ref();
            scheduling.is_some_and(|scheduling| scheduling.priority_class_name.is_some())
        });
        values.push(Entry::new(
            "scheduling.priorityClassName",
            class.clone(),
            from,
        ));
    }
    values.extend(bound(users, from(|config| config.acl.is_some())));
    let names: BTreeSet<&String> = user_settings.keys().chain(node_settings.keys()).collect();
    values.extend(names.into_iter().map(|name| setting(name, resolved)));
    values
}

/// Each user with the roles it has on which keys.
fn bound(users: &[User], from: &str) -> Vec<Entry> {
    let users = users.iter().map(|user| {
        let grants = user.grants.iter().map(|grant| {
            let keys = grant.permission.keys.iter();
            let keys: Vec<&str> = keys.map(|key| key.pattern.as_str()).collect();
            format!("{} on {}", grant.permission.role_ref, keys.join(" "))
        });
        let words = grants.collect::<Vec<_>>().join("; ");
        Entry::new(&format!("acl.{}", user.binding.username), words, from)
    });
    users.collect()
}

/// A directive in force: forced settings win over users', users' over our own defaults.
fn setting(name: &str, resolved: &Resolved) -> Entry {
    let field = format!("valkey.{name}");
    let in_force = resolved.node_settings.get(name);
    let from = match (resolved.user_settings.get(name), in_force) {
        (Some(user), Some(value)) if user.value == *value => user.config.as_str(),
        (Some(_) | None, _) => OPERATOR,
    };
    let value = match in_force {
        Some(_) if is_secret(name) => HIDDEN.to_owned(),
        Some(value) => format!("{value:?}").trim_matches('"').to_owned(),
        // What no node is given: the operator sets it in another way.
        None => HIDDEN.to_owned(),
    };
    Entry::new(&field, value, from)
}

/// Whether a directive's value may be a password.
pub(super) fn is_secret(directive: &str) -> bool {
    let directive = directive.to_ascii_lowercase();
    ["auth", "pass", "user", "secret"]
        .iter()
        .any(|word| directive.contains(word))
        && directive != "primaryuser"
        && directive != "tls-auth-clients"
}

fn sourced(field: &str, sourced: &Sourced<String>) -> Entry {
    Entry::new(field, sourced.value.clone(), sourced.config.as_str())
}

impl Entry {
    fn new(field: &str, value: String, from: &str) -> Self {
        Self {
            field: field.to_owned(),
            value,
            from: from.to_owned(),
        }
    }
}

impl Shown for MenuAnswer {
    fn text(&self, width: usize) -> String {
        let name = Tone::Head.paint(&self.config);
        let mut text = format!(
            "{name}\n{}\n",
            said("chain", &self.chain.join(" > "), width)
        );
        let mut table = Table::new(&["FIELD", "VALUE", "FROM"]);
        for Entry { field, value, from } in &self.values {
            let tone = if from == OPERATOR {
                Tone::Plain
            } else {
                Tone::Good
            };
            table.row(vec![
                field.clone().into(),
                value.clone().into(),
                Cell::toned(from.clone(), tone),
            ]);
        }
        text.push_str(&table.text(width));
        text
    }
}

/// The clusters that a config reaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UsedBy {
    config: String,
    clusters: Vec<Use>,
    lacking: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Use {
    namespace: String,
    name: String,
    /// From the config that the cluster picks to the one in question.
    chain: Vec<String>,
}

impl UsedBy {
    fn of(menu: &Menu, config: &str, clusters: &[Arc<ValkeyCluster>]) -> Self {
        let uses = |cluster: &ValkeyCluster| {
            let mut chain = chain(menu, &cluster.spec.config_ref);
            let place = chain.iter().position(|name| name == config)?;
            chain.truncate(place + 1);
            Some(Use {
                namespace: cluster.namespace().unwrap_or_default(),
                name: cluster.name_any(),
                chain,
            })
        };
        Self {
            config: config.to_owned(),
            clusters: clusters
                .iter()
                .filter_map(|cluster| uses(cluster))
                .collect(),
            lacking: Vec::new(),
        }
    }
}

impl Shown for UsedBy {
    fn text(&self, width: usize) -> String {
        let mut text = String::new();
        if self.clusters.is_empty() {
            text = format!("no ValkeyCluster uses ValkeyConfig {:?}\n", self.config);
        } else {
            let mut table = Table::new(&["NAMESPACE", "NAME", "BY"]);
            for Use {
                namespace,
                name,
                chain,
            } in &self.clusters
            {
                let chain = chain.join(" > ");
                table.row(vec![
                    namespace.clone().into(),
                    name.clone().into(),
                    chain.into(),
                ]);
            }
            text.push_str(&table.text(width));
        }
        for lacking in &self.lacking {
            text.push_str(&said("lacking", lacking, width));
        }
        text
    }
}

impl Desk {
    /// Resolves a config, or lists who uses it.
    pub(super) async fn menu(&self, config: String, used_by: bool) -> Result<Exit, Error> {
        let menu = self.visitor.menu().await.map_err(Error::Observe)?;
        let menu = menu.map_err(|refusals| Error::Refused {
            what: "the menu",
            refusals: refusals.into_iter().collect(),
        })?;
        if !used_by {
            let answer = MenuAnswer::of(&menu, &config);
            self.show(&answer.map_err(|source| Error::Menu { config, source })?)?;
            return Ok(Exit::Done);
        }
        if !menu.configs.contains_key(&config) {
            let source = MenuError::ConfigNotFound(config.clone());
            return Err(Error::Menu { config, source });
        }
        let everywhere = self.visitor.clusters(None).await.map_err(Error::Observe)?;
        let (clusters, lacking) = match everywhere {
            Ok(clusters) => (clusters, Vec::new()),
            Err(refusal) => {
                let here = self.clusters("--used-by", Some(&self.namespace));
                (here.await?, vec![refusal.to_string()])
            }
        };
        let mut answer = UsedBy::of(&menu, &config, &clusters);
        answer.lacking = lacking;
        self.show(&answer)?;
        Ok(Exit::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_that_may_hold_a_password_are_hidden() {
        let hidden = [
            "requirepass",
            "primaryauth",
            "masterauth",
            "tls-key-file-pass",
            "user",
        ];
        assert!(hidden.into_iter().all(is_secret));
        let shown = ["maxmemory", "primaryuser", "tls-auth-clients", "save"];
        assert!(!shown.into_iter().any(is_secret));
    }

    #[test]
    fn each_value_names_the_config_it_comes_from() {
        let menu = Menu {
            configs: [
                (
                    "base",
                    serde_json::json!({"imageRef": "v9", "resources": {"memory": "64Mi"},
                        "valkey": {"maxmemory-policy": "allkeys-lru", "hz": "10"}}),
                ),
                (
                    "child",
                    serde_json::json!({"baseRef": "base", "valkey": {"HZ": "20", "port": "1"}}),
                ),
            ]
            .map(|(name, spec)| (name.to_owned(), serde_json::from_value(spec).unwrap()))
            .into(),
            images: [(
                "v9".to_owned(),
                serde_json::from_value(serde_json::json!({
                    "repository": "valkey/valkey", "tag": "9", "version": "9"}))
                .unwrap(),
            )]
            .into(),
            roles: BTreeMap::new(),
        };
        let answer = MenuAnswer::of(&menu, "child").unwrap();
        assert_eq!(answer.chain, ["child", "base"]);
        let told = |field: &str| {
            let mut values = answer.values.iter();
            let found = values.find(|value| value.field == field).unwrap();
            (found.value.as_str(), found.from.as_str())
        };
        assert_eq!(told("image"), ("valkey/valkey:9", "base"));
        assert_eq!(told("resources.memory"), ("64Mi", "base"));
        assert_eq!(told("valkey.hz"), ("20", "child"));
        assert_eq!(told("valkey.maxmemory-policy"), ("allkeys-lru", "base"));
        // Forced over what the child says.
        assert_eq!(told("valkey.port"), ("6379", OPERATOR));
        assert_eq!(
            MenuAnswer::of(&menu, "none"),
            Err(MenuError::ConfigNotFound("none".into()))
        );
    }
}
