//! The text of `users.acl`, and the `ConfigMap` that carries it.
//! Never names a password, only its hash; never judges a role: what Valkey does not know, Valkey refuses.

use k8s_openapi::api::core::v1::ConfigMap;

use crate::api;
use crate::api::acl::KeyAccess;
use crate::api::acl::KeyPattern;
use crate::api::role::Access;
use crate::api::role::ValkeyRoleSpec;
use crate::model::desired::Grant;
use crate::model::desired::User;
use crate::model::digest::sha256_hex;
use crate::model::redacted::Redacted;
use crate::model::world::Auth;
use crate::model::world::ClusterFacts;
use crate::render::owned_by_cluster;

/// What the operator itself needs: forming and healing the cluster, reading its state, loading ACLs and
/// certificates. No keys.
const OPERATOR_RULES: &str = "resetchannels -@all +cluster +acl|load +ping +info +config|set";

/// What a replica needs of its primary, and what a slot migration needs of its target.
///
/// The published text is `+psync +replconf +ping +cluster|syncslots` without keys. With that, every slot that
/// holds a key refuses to move: the target runs each streamed command under this user, and answers NOPERM to
/// the first `select` or `set`. `pfcount` is streamed as it is; `sync` is what dual-channel replication begins
/// with. Taken away again is what `@write` holds beyond data.
const REPL_RULES: &str = "-@all ~* resetchannels +psync +sync +replconf +ping +cluster|syncslots +select \
                          +@write +pfcount -flushall -flushdb -swapdb -migrate -function -cluster|flushslot -pfdebug";

/// The file: `default`, the bindings in their order, the operator's own users last.
///
/// There is always a line for `default`, since a file without one leaves it wide open. It is open while
/// nobody is bound, as a Valkey without ACLs is.
#[must_use]
pub fn text(users: &[User], auth: &Auth) -> String {
    let default_bound = users.iter().any(|user| user.binding.username == "default");
    let default = match (users.is_empty(), default_bound) {
        (true, _) => Some("user default on nopass ~* &* +@all".to_owned()),
        (false, false) => Some("user default off resetchannels -@all".to_owned()),
        (false, true) => None,
    };
    let own = |name, password: &Redacted<String>, rules| {
        format!("user {name} on #{} {rules}", sha256_hex(password.expose()))
    };
    let mut lines: Vec<String> = default.into_iter().chain(users.iter().map(line)).collect();
    lines.push(own(api::USER_OPERATOR, &auth.operator, OPERATOR_RULES));
    lines.push(own(api::USER_REPL, &auth.repl, REPL_RULES));
    lines.push(String::new());
    lines.join("\n")
}

/// The `ConfigMap` of a cluster with that text.
#[must_use]
pub fn config_map(cluster: &ClusterFacts, text: String) -> ConfigMap {
    ConfigMap {
        metadata: owned_by_cluster(cluster, cluster.key.acl_config_map_name()),
        data: Some([(api::ACL_KEY.to_owned(), text)].into()),
        ..ConfigMap::default()
    }
}

/// A user: the first permission is its root, each further one a selector.
fn line(user: &User) -> String {
    let mut words = vec![
        "user".to_owned(),
        user.binding.username.clone(),
        "on".to_owned(),
    ];
    words.extend(
        user.binding
            .password_hashes
            .iter()
            .map(|hash| format!("#{hash}")),
    );
    if let Some((root, selectors)) = user.grants.split_first() {
        words.extend(rules(root));
        words.extend(selectors.iter().map(|grant| selector(&rules(grant))));
    }
    words.join(" ")
}

/// A selector. Valkey reads the line in words first and ends the selector at a word that ends in `)`, which a
/// pattern may; then it splits what it collected like a shell, so that such a word can be quoted.
fn selector(rules: &[String]) -> String {
    let words: Vec<String> = rules
        .iter()
        .map(|rule| {
            if rule.ends_with(')') {
                format!("\"{}\"", rule.replace('\\', "\\\\"))
            } else {
                rule.clone()
            }
        })
        .collect();
    format!("({})", words.join(" "))
}

/// The rules of one permission, from nothing. `resetchannels` is said, because a user's setting
/// `acl-pubsub-default allchannels` would open every channel to it before the first rule.
fn rules(grant: &Grant) -> Vec<String> {
    let mut rules = vec!["resetchannels".to_owned(), "-@all".to_owned()];
    rules.extend(commands(&grant.role));
    rules.extend(keys(&grant.permission.keys));
    rules.extend(channels(
        grant.permission.channels.as_deref().unwrap_or_default(),
    ));
    rules
}

/// The rules of a role, categories before commands, each in its given order.
fn commands(role: &ValkeyRoleSpec) -> Vec<String> {
    let categories = role
        .categories
        .iter()
        .map(|rule| format!("{}@{}", sign(rule.access), rule.name));
    let commands = role.commands.iter().map(|rule| match &rule.subcommand {
        Some(subcommand) => format!("{}{}|{subcommand}", sign(rule.access), rule.name),
        None => format!("{}{}", sign(rule.access), rule.name),
    });
    categories.chain(commands).collect()
}

/// How a rule begins.
fn sign(access: Access) -> char {
    match access {
        Access::Allow => '+',
        Access::Deny => '-',
    }
}

/// The key patterns. Where one of them is every key, it stands alone: Valkey refuses the whole file for a
/// pattern after `~*`.
fn keys(patterns: &[KeyPattern]) -> Vec<String> {
    let is_all = |key: &&KeyPattern| key.pattern == "*" && key.access == KeyAccess::Readwrite;
    if patterns.iter().any(|key| is_all(&key)) {
        return vec!["~*".to_owned()];
    }
    let key = |key: &KeyPattern| match key.access {
        KeyAccess::Readwrite => format!("~{}", key.pattern),
        KeyAccess::Read => format!("%R~{}", key.pattern),
        KeyAccess::Write => format!("%W~{}", key.pattern),
    };
    patterns.iter().map(key).collect()
}

/// The channel patterns, with the same care for every channel.
fn channels(patterns: &[String]) -> Vec<String> {
    if patterns.iter().any(|pattern| pattern == "*") {
        return vec!["&*".to_owned()];
    }
    patterns
        .iter()
        .map(|pattern| format!("&{pattern}"))
        .collect()
}
