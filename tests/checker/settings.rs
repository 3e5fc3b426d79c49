//! Settings: S21. Never judges a user's choice where the operator leaves one.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Checker;
use super::Verdict;
use super::evidence::Life;
use super::evidence::Step;
use super::evidence::Verb;
use super::lifecycle::written;
use super::scene::Body as _;

/// The contract's section 4, without what depends on TLS.
const FORCED: [(&str, &str); 11] = [
    ("aclfile", "/etc/valkey/acl/users.acl"),
    ("bind", "0.0.0.0"),
    ("cluster-allow-replica-migration", "no"),
    ("cluster-config-file", "/var/lib/valkey/nodes.conf"),
    ("cluster-databases", "1"),
    ("cluster-enabled", "yes"),
    ("cluster-node-timeout", "5000"),
    ("cluster-replica-validity-factor", "10"),
    ("dir", "/var/lib/valkey"),
    ("primaryuser", "_momento_repl"),
    ("protected-mode", "no"),
];
/// Without TLS.
const PLAIN: [(&str, &str); 1] = [("port", "6379")];
/// With TLS.
const TLS: [(&str, &str); 9] = [
    ("cluster-preferred-endpoint-type", "hostname"),
    ("port", "0"),
    ("tls-auth-clients", "no"),
    ("tls-ca-cert-file", "/etc/valkey/tls/ca.crt"),
    ("tls-cert-file", "/etc/valkey/tls/tls.crt"),
    ("tls-cluster", "yes"),
    ("tls-key-file", "/etc/valkey/tls/tls.key"),
    ("tls-port", "6379"),
    ("tls-replication", "yes"),
];
/// Second names of forced directives, through which a wish could slip past.
const SECOND: [(&str, &str); 3] = [
    (
        "cluster-slave-validity-factor",
        "cluster-replica-validity-factor",
    ),
    ("masteruser", "primaryuser"),
    ("masterauth", "primaryauth"),
];

/// What the family remembers.
#[derive(Default)]
pub(super) struct Memory {
    /// The settings that were found right, by pod: where they are in memory.
    right: BTreeMap<String, usize>,
}

/// S21: forced settings are in force on every node whatever the user wrote.
///
/// Judged on what a node is made with, and on what its process says is in force where somebody asked.
pub(super) fn forced_settings_hold(checker: &mut Checker, step: &Step) -> Verdict {
    let Checker { past, settings, .. } = checker;
    if past.fresh {
        for process in &past.scene.0.processes {
            let Some(told) = process
                .settings
                .as_ref()
                .filter(|_| process.life == Life::Alive)
            else {
                continue;
            };
            let place = std::sync::Arc::as_ptr(told) as usize;
            if settings.right.get(&process.pod) == Some(&place) {
                continue;
            }
            let tls = past
                .scene
                .node_of(&process.pod)
                .is_some_and(|node| !node.text("/spec/tlsSecret").is_empty());
            in_force(told, tls).map_err(|why| format!("{}: {why}", process.told()))?;
            settings.right.insert(process.pod.clone(), place);
        }
    }
    let write = written(step).filter(|it| it.kind == "ValkeyNode" && it.verb == Verb::Create);
    let Some((write, node)) = write.and_then(|it| Some((it, it.after.as_deref()?))) else {
        return Ok(());
    };
    let map = node.at("/spec/valkeySettings").and_then(Value::as_object);
    let mut told = BTreeMap::new();
    for (name, value) in map.into_iter().flatten() {
        let known = known_as(name);
        if known == "primaryauth" {
            return Err(format!(
                "node {} has {name} for everybody to read",
                write.name
            ));
        }
        if told
            .insert(known, value.as_str().unwrap_or_default().to_owned())
            .is_some()
        {
            return Err(format!("node {} has {name} by two names", write.name));
        }
    }
    let tls = !node.text("/spec/tlsSecret").is_empty();
    in_force(&told, tls).map_err(|why| format!("node {}: {why}", write.name))
}

fn known_as(name: &str) -> String {
    let lower = name.to_lowercase();
    let second = SECOND.iter().find(|(second, _)| *second == lower);
    second.map_or(lower, |(_, first)| (*first).to_owned())
}

fn in_force(told: &BTreeMap<String, String>, tls: bool) -> Verdict {
    let more = if tls {
        TLS.as_slice()
    } else {
        PLAIN.as_slice()
    };
    for (name, wish) in FORCED.iter().chain(more) {
        let found = told.get(*name).map(String::as_str);
        if found != Some(*wish) {
            return Err(format!("{name} is {found:?}, must be {wish:?}"));
        }
    }
    Ok(())
}
