//! The text of a node's `valkey.conf`, and the `ConfigMap` that carries it.
//! Never chooses a setting, never holds a password: that is included from a Secret's file.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::ConfigMap;

use crate::api;
use crate::model::world::ClusterFacts;
use crate::model::world::NodeFacts;
use crate::render::owned_by_node;

/// The directives that take their arguments only unquoted. Every other one takes its value as one quoted
/// argument and splits it itself where it has several.
const UNQUOTED: [&str; 3] = ["loadmodule", "rename-command", "user"];

/// A user's own include: before everything else, since the last line of a directive wins.
const INCLUDE: &str = "include";

/// The file: one line a directive, in order of names, the password's include last.
#[must_use]
pub fn text(settings: &BTreeMap<String, String>) -> String {
    let (first, rest): (Vec<_>, Vec<_>) = settings
        .iter()
        .partition(|(name, _)| name.as_str() == INCLUDE);
    let mut text = String::new();
    for (name, value) in first.into_iter().chain(rest) {
        text.push_str(name);
        text.push(' ');
        if UNQUOTED.contains(&name.as_str()) {
            // The schema refuses line breaks here; should one come by another way, it starts no directive.
            text.extend(value.chars().map(|c| if c.is_control() { ' ' } else { c }));
        } else {
            quote(&mut text, value);
        }
        text.push('\n');
    }
    text.push_str("include ");
    text.push_str(api::PRIMARYAUTH_PATH);
    text.push('\n');
    text
}

/// The `ConfigMap` of a node. A node's settings never change, so neither does this; the kubelet need not watch it.
#[must_use]
pub fn config_map(cluster: &ClusterFacts, node: &NodeFacts) -> ConfigMap {
    ConfigMap {
        metadata: owned_by_node(cluster, node, node.name.config_map_name()),
        immutable: Some(true),
        data: Some([(api::CONF_KEY.to_owned(), text(&node.spec.valkey_settings))].into()),
        ..ConfigMap::default()
    }
}

/// One argument in double quotes, as Valkey's `sdssplitargs` reads it.
fn quote(text: &mut String, value: &str) {
    text.push('"');
    for c in value.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\0'..='\x1f' | '\x7f' => {
                // Writing to a String cannot fail.
                write!(text, "\\x{:02x}", u32::from(c)).ok();
            }
            _ => text.push(c),
        }
    }
    text.push('"');
}
