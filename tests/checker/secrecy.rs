//! Passwords: S20. Never prints one: a violation says where it was found.

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::Digest as _;
use sha2::Sha256;

use super::Checker;
use super::Verdict;
use super::evidence::Actor;
use super::evidence::Name;
use super::evidence::Step;
use super::evidence::What;
use super::evidence::Write;
use super::past::Past;
use super::scene::Body as _;

/// The keys of the auth Secret that hold a password.
const KEYS: [&str; 2] = ["operator-password", "repl-password"];
/// What is shorter could be part of any text.
const SHORTEST: usize = 16;

/// What the family remembers.
#[derive(Default)]
pub(super) struct Memory {
    /// The passwords of each cluster that ever was, encoded, by the uid of the owner.
    made: BTreeMap<String, Vec<String>>,
    /// How each of them could show.
    forms: Vec<Forms>,
}

struct Forms {
    clear: String,
    encoded: String,
    hash: String,
}

/// S20: passwords never change once made; never in a log, event, status, `ValkeyNode`, `ConfigMap` or process
/// argument.
///
/// Their hashes are in users.acl, whose purpose that is, and nowhere else. Where a Secret was taken away by a
/// hand while no node was there, new passwords harm nobody.
pub(super) fn passwords_are_kept(checker: &mut Checker, step: &Step) -> Verdict {
    let Checker { past, secrecy, .. } = checker;
    if !matches!(step.by, Actor::Operator(_)) {
        return Ok(());
    }
    match &step.what {
        What::Write(write) if write.kind == "Secret" => unchanged(past, secrecy, write),
        What::Write(write) => {
            let body = write.after.as_deref();
            let hash_too = write.kind != "ConfigMap";
            let found = body.and_then(|body| shown_in(&secrecy.forms, body, hash_too));
            found.map_or(Ok(()), |what| {
                Err(format!("{} {} has {what}", write.kind, write.name))
            })
        }
        What::Log(line) => match shown(&secrecy.forms, line, true) {
            // The line itself would carry it on.
            Some(what) => Err(format!("a line of the log has {what}: {}...", start(line))),
            None => Ok(()),
        },
        What::Command(_)
        | What::Tick(_)
        | What::TickEnd(_)
        | What::Fault(_)
        | What::Healed
        | What::Stable(_)
        | What::Calm
        | What::Look => Ok(()),
    }
}

/// As much of a line as cannot hold a password whole.
fn start(line: &str) -> String {
    line.chars().take(SHORTEST).collect()
}

fn unchanged(past: &Past, secrecy: &mut Memory, write: &Write) -> Verdict {
    let Some(secret) = write
        .after
        .as_deref()
        .filter(|_| write.outcome.took_effect())
    else {
        return Ok(());
    };
    let held = |secret: &Value| KEYS.map(|key| secret.text(&format!("/data/{key}")).to_owned());
    let now = held(secret).to_vec();
    if now.iter().any(String::is_empty) {
        return Ok(());
    }
    let owners = secret.owners();
    let Some((_, owner)) = owners.first() else {
        return Ok(());
    };
    let before = secrecy.made.insert((*owner).to_owned(), now.clone());
    let differs = before.is_some_and(|before| before != now);
    for encoded in now {
        let clear = decoded(&encoded);
        if clear.len() >= SHORTEST && secrecy.forms.iter().all(|known| known.clear != clear) {
            let hash = hashed(&clear);
            secrecy.forms.push(Forms {
                clear,
                encoded,
                hash,
            });
        }
    }
    let name = write.name.name.trim_end_matches("-operator-auth");
    let cluster = Name::new(&write.name.namespace, name);
    let needed = write.before.is_some() || past.scene.nodes(&cluster).next().is_some();
    if differs && needed {
        return Err(format!(
            "the passwords in {} were changed while nodes run",
            write.name
        ));
    }
    Ok(())
}

fn shown(forms: &[Forms], text: &str, hash_too: bool) -> Option<&'static str> {
    if text.len() < SHORTEST {
        return None;
    }
    forms.iter().find_map(|form| {
        if text.contains(&form.clear) {
            Some("a password")
        } else if text.contains(&form.encoded) {
            Some("a password, encoded")
        } else if hash_too && text.contains(&form.hash) {
            Some("a password's hash")
        } else {
            None
        }
    })
}

/// In any text of a JSON value; names of fields are not of our making.
fn shown_in(forms: &[Forms], value: &Value, hash_too: bool) -> Option<&'static str> {
    match value {
        Value::String(text) => shown(forms, text, hash_too),
        Value::Array(items) => items
            .iter()
            .find_map(|item| shown_in(forms, item, hash_too)),
        Value::Object(fields) => fields
            .values()
            .find_map(|item| shown_in(forms, item, hash_too)),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn hashed(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let halves = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let digits = halves.filter_map(|half| char::from_digit(u32::from(half), 16));
    digits.collect()
}

/// Base64 of text, as in a Secret.
fn decoded(encoded: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = encoded
        .bytes()
        .filter_map(|byte| DIGITS.iter().position(|digit| *digit == byte));
    let (mut bits, mut held, mut bytes) = (0_u32, 0_u32, Vec::new());
    for digit in digits {
        bits = (bits << 6 | u32::try_from(digit).unwrap_or_default()) & 0xffff;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).unwrap_or_default());
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::decoded;

    #[test]
    fn secrets_are_decoded() {
        assert_eq!(decoded("aGVsbG8gd29ybGQ="), "hello world");
        assert_eq!(decoded("YQ=="), "a");
        assert_eq!(decoded(""), "");
    }
}
