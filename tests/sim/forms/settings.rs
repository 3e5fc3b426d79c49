//! valkey.conf: whatever value a user wishes for, Valkey reads that value, and the forced ones are in
//! force. Never the operator's own table of second names: the ones used here are written out again.

use std::collections::BTreeMap;

use operator::render::valkey_conf;
use operator::resolve;
use serde_json::json;

use super::chains;
use super::dice::Dice;
use super::dice::alphabet;
use super::hold;
use super::same;
use super::shell;
use super::shell::shown;

/// What Valkey takes only unquoted.
const BARE: [&str; 3] = ["loadmodule", "rename-command", "user"];

/// The contract's list.
pub(super) const FORCED: [(&str, &str); 12] = [
    ("aclfile", "/etc/valkey/acl/users.acl"),
    ("bind", "0.0.0.0"),
    ("cluster-allow-replica-migration", "no"),
    ("cluster-config-file", "/var/lib/valkey/nodes.conf"),
    ("cluster-databases", "1"),
    ("cluster-enabled", "yes"),
    ("cluster-node-timeout", "5000"),
    ("cluster-replica-validity-factor", "10"),
    ("dir", "/var/lib/valkey"),
    ("port", "6379"),
    ("primaryuser", "_momento_repl"),
    ("protected-mode", "no"),
];

/// Second names that matter to them.
const SECOND: [(&str, &str); 3] = [
    (
        "cluster-slave-validity-factor",
        "cluster-replica-validity-factor",
    ),
    ("masteruser", "primaryuser"),
    ("masterauth", "primaryauth"),
];

/// Ordinary names.
const NAMES: [&str; 12] = [
    "appendonly",
    "client-output-buffer-limit",
    "include",
    "loadmodule",
    "maxmemory",
    "notify-keyspace-events",
    "proc-title-template",
    "rename-command",
    "save",
    "shutdown-timeout",
    "some_module.setting",
    "user",
];

pub(super) fn form(dice: &mut Dice) -> Result<(), String> {
    if dice.once_in(2) {
        written(dice)
    } else {
        forced(dice)
    }
}

/// A map of settings, written and read back.
fn written(dice: &mut Dice) -> Result<(), String> {
    let settings: BTreeMap<String, String> = (0..dice.between(0, 12))
        .map(|_| (name(dice).to_lowercase(), value(dice)))
        .collect();
    let text = valkey_conf::text(&settings);
    let lines = lines(&text);
    hold(lines.len() == settings.len() + 1, || {
        format!(
            "{} directives became {} lines: {text:?}",
            settings.len(),
            lines.len()
        )
    })?;
    for (name, value) in &settings {
        let begins =
            |line: &&&[u8]| line.split(|byte| *byte == b' ').next() == Some(name.as_bytes());
        let mut found = lines[..settings.len()].iter().filter(begins);
        let (Some(line), None) = (found.next(), found.next()) else {
            return Err(format!("{name} is not on one line of {text:?}"));
        };
        if BARE.contains(&name.as_str()) {
            let tail = line.strip_prefix(name.as_bytes()).unwrap_or_default();
            let flat: String = value
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect();
            let trimmed = |bytes: &[u8]| bytes.trim_ascii().to_vec();
            same(name, &trimmed(tail), &trimmed(flat.as_bytes()))?;
            continue;
        }
        let Some(words) = shell::words(line) else {
            return Err(format!("Valkey cannot read {:?}", shown(line)));
        };
        let wish = vec![name.clone().into_bytes(), value.clone().into_bytes()];
        same(name, &words, &wish)?;
    }
    // The last line of a directive wins: a user's include comes first, the password's last.
    if settings.contains_key("include") {
        hold(lines[0].starts_with(b"include "), || {
            format!("include is not first: {text:?}")
        })?;
    }
    let last = lines.last().copied().unwrap_or_default();
    same(
        "the last line",
        &shown(last),
        &"include /etc/valkey/auth/primaryauth.conf".to_owned(),
    )
}

/// A user's map, resolved, written and read back: what is in force.
fn forced(dice: &mut Dice) -> Result<(), String> {
    let user: BTreeMap<String, String> = (0..dice.between(0, 10))
        .map(|_| (name(dice), value(dice)))
        .collect();
    let world = chains::world(&json!({ "c": { "imageRef": "i", "valkey": user } }), "c");
    let resolved = resolve::desired(&world)
        .menu
        .map_err(|error| error.to_string())?;
    let text = valkey_conf::text(&resolved.node_settings);
    let mut force: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut count = 0_usize;
    for line in lines(&text) {
        count += 1;
        let words = shell::words(line).unwrap_or_default();
        if let [name, value] = words.as_slice() {
            force.insert(known_as(&String::from_utf8_lossy(name)), value.clone());
        }
    }
    hold(count == resolved.node_settings.len() + 1, || {
        format!("lines broke: {text:?}")
    })?;
    for (name, wish) in FORCED {
        let found = force.get(name).map(|value| shown(value));
        same(name, &found, &Some(wish.to_owned()))?;
    }
    hold(!force.contains_key("primaryauth"), || {
        format!("a password in {text:?}")
    })?;
    for (name, value) in &user {
        let known = known_as(name);
        let spellings = user.keys().filter(|other| known_as(other) == known).count();
        let ours = FORCED.iter().any(|(forced, _)| *forced == known)
            || known == "primaryauth"
            || known == "include"
            || BARE.contains(&known.as_str());
        if !ours && spellings == 1 {
            let found = force.get(&known).cloned();
            same(name, &found, &Some(value.clone().into_bytes()))?;
        }
    }
    Ok(())
}

/// The lines that Valkey reads: those that hold something, without the space around them
/// (`loadServerConfigFromString` in config.c).
fn lines(text: &str) -> Vec<&[u8]> {
    let held = text.split('\0').next().unwrap_or_default();
    held.split('\n')
        .map(|line| line.trim_matches([' ', '\t', '\r', '\n']).as_bytes())
        .filter(|line| !line.is_empty() && !line.starts_with(b"#"))
        .collect()
}

/// The one name by which Valkey knows a directive.
fn known_as(name: &str) -> String {
    let lower = name.to_lowercase();
    let second = SECOND.iter().find(|(second, _)| *second == lower);
    second.map_or(lower, |(_, first)| (*first).to_owned())
}

/// A name that the schema takes, in any case.
fn name(dice: &mut Dice) -> String {
    let plain = match dice.below(6) {
        0 => dice.of(&FORCED).0.to_owned(),
        1 => dice.of(&SECOND).0.to_owned(),
        2 => "primaryauth".to_owned(),
        3 => {
            let tail = alphabet("abcdefghijklmnopqrstuvwxyz0123456789._-");
            format!("x{}", dice.text(&tail, 0, 20))
        }
        _ => (*dice.of(&NAMES)).to_owned(),
    };
    if dice.once_in(2) {
        return plain;
    }
    plain
        .chars()
        .map(|c| {
            if dice.once_in(3) {
                c.to_ascii_uppercase()
            } else {
                c
            }
        })
        .collect()
}

/// A value that the schema takes: anything but a NUL.
fn value(dice: &mut Dice) -> String {
    let odd =
        alphabet("ab 09\"'\\#\n\r\t\u{1}\u{7}\u{8}\u{b}\u{1b}\u{7f}\u{85}\u{2028}äß🦀x41n%-:/");
    match dice.below(12) {
        0 => String::new(),
        1 => "3600 1 300 100".to_owned(),
        2 => "normal 0 0 0 replica 256mb 64mb 60 pubsub 32mb 8mb 60".to_owned(),
        3 => dice.text(&odd, 0, 8192),
        4 => format!("{0}yes\nport 1\n{0}", dice.text(&odd, 0, 4)),
        _ => dice.text(&odd, 0, 30),
    }
}
