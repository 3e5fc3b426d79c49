//! The text of valkey.conf and what is in force: parsing, CONFIG SET and CONFIG GET (`config.c`).
//! Never judges a value that Valkey itself does not judge at the start.

use std::collections::BTreeMap;

use super::directives::DIRECTIVES;
use super::directives::Directive;
use super::directives::HIDDEN;
use super::directives::IMMUTABLE;
use super::directives::Kind;
use super::directives::MULTI;
use super::directives::NOT_LOADING;
use super::directives::PROTECTED;
use super::directives::find;

/// How deep includes may nest before it is a circle.
const INCLUDES_MAX: usize = 16;

/// Read and ignored, where they have one value.
const DEPRECATED: [&str; 7] = [
    "list-max-ziplist-entries",
    "list-max-ziplist-value",
    "lua-replicate-commands",
    "io-threads-do-reads",
    "dynamic-hz",
    "events-per-io-thread",
    "sanitize-dump-payload",
];

/// What is in force, by the newer of two names.
#[derive(Clone, Debug, Default)]
pub(super) struct Config {
    set: BTreeMap<&'static str, String>,
    /// The last line was one of `user`: then an ACL file is refused.
    pub(super) has_users: bool,
}

impl Config {
    /// Reads a file's text. What is wrong with it is what Valkey prints to stderr before it exits.
    pub(super) fn read(text: &str, files: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut config = Self::default();
        config.include(text, files, 0)?;
        Ok(config)
    }

    fn include(
        &mut self,
        text: &str,
        files: &BTreeMap<String, String>,
        depth: usize,
    ) -> Result<(), String> {
        for (number, line) in (1..).zip(text.split('\n')) {
            let line = line.trim_matches([' ', '\t', '\r', '\n']);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let fatal = |why: &str| {
                format!(
                    "\n*** FATAL CONFIG FILE ERROR (Version 9.1.2) ***\n\
                     Reading the configuration file, at line {number}\n>>> '{line}'\n{why}\n"
                )
            };
            let Some(words) = split_words(line) else {
                return Err(fatal("Unbalanced quotes in configuration line"));
            };
            let Some((name, values)) = words.split_first() else {
                continue;
            };
            let name = name.to_ascii_lowercase();
            if name == "include" && find(&name).is_none() && values.len() == 1 {
                let path = &values[0];
                if path.contains('*') && !files.contains_key(path) {
                    continue;
                }
                if files
                    .keys()
                    .any(|file| file.starts_with(&format!("{path}/")))
                {
                    continue;
                }
                let Some(text) = files.get(path).filter(|_| depth < INCLUDES_MAX) else {
                    return Err(format!(
                        "Fatal error, can't open config file '{path}': No such file or directory\n"
                    ));
                };
                self.include(text, files, depth + 1)?;
                continue;
            }
            self.line(&name, values).map_err(|why| fatal(&why))?;
        }
        Ok(())
    }

    fn line(&mut self, name: &str, values: &[String]) -> Result<(), String> {
        if let Some(directive) = find(name) {
            return self.directive(directive, values);
        }
        if DEPRECATED.contains(&name) && values.len() == 1 {
            return Ok(());
        }
        match (name, values) {
            ("rename-command", [command, _]) => {
                if super::commands::find(&command.to_ascii_lowercase()).is_none() {
                    return Err("No such command in rename-command".to_owned());
                }
                Ok(())
            }
            ("user", [_, ..]) => {
                self.has_users = true;
                Ok(())
            }
            ("loadmodule", [_, ..]) => Ok(()),
            _ if name.contains('.') && !values.is_empty() => Ok(()),
            _ => Err("Bad directive or wrong number of arguments".to_owned()),
        }
    }

    fn directive(
        &mut self,
        directive: &'static Directive,
        values: &[String],
    ) -> Result<(), String> {
        let value = match values {
            [value] => value.clone(),
            _ if directive.flags & MULTI != 0 => values.join(" "),
            _ => return Err("wrong number of arguments".to_owned()),
        };
        let value = check(directive, &value)?;
        // Save points add up, unless they are taken away.
        if directive.name == "save"
            && !value.is_empty()
            && let Some(points) = self.set.get_mut("save").filter(|points| !points.is_empty())
        {
            *points = format!("{points} {value}");
            return Ok(());
        }
        self.set.insert(directive.name, value);
        Ok(())
    }

    /// The value in force, by the newer of two names.
    pub(super) fn text(&self, name: &str) -> &str {
        match self.set.get(name) {
            Some(value) => value,
            None => find(name).map_or("", |directive| directive.default),
        }
    }

    pub(super) fn yes(&self, name: &str) -> bool {
        self.text(name) == "yes"
    }

    pub(super) fn number(&self, name: &str) -> i64 {
        self.text(name).parse().unwrap_or(0)
    }

    /// CONFIG SET: all pairs or none. Else what it answers.
    pub(super) fn set(&mut self, pairs: &[(String, String)], loading: bool) -> Result<(), String> {
        let failed = |name: &str, why: &str| {
            format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")
        };
        let mut found: Vec<&'static Directive> = Vec::new();
        for (name, _) in pairs {
            let Some(directive) = find(&name.to_ascii_lowercase()) else {
                return Err(format!(
                    "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
                ));
            };
            if directive.flags & IMMUTABLE != 0 {
                return Err(failed(name, "can't set immutable config"));
            }
            if directive.flags & PROTECTED != 0 && self.text("enable-protected-configs") == "no" {
                return Err(failed(name, "can't set protected config"));
            }
            if directive.flags & NOT_LOADING != 0 && loading {
                return Err("LOADING Valkey is loading the dataset in memory".to_owned());
            }
            if found.iter().any(|other| other.name == directive.name) {
                return Err(failed(name, "duplicate parameter"));
            }
            found.push(directive);
        }
        let mut checked = Vec::new();
        for (directive, (_, value)) in found.iter().zip(pairs) {
            let value = check(directive, value).map_err(|why| failed(directive.name, &why))?;
            checked.push((directive.name, value));
        }
        self.set.extend(checked);
        Ok(())
    }

    /// CONFIG GET: the names that match one of the patterns, and their values.
    pub(super) fn get(&self, patterns: &[String]) -> Vec<(String, String)> {
        let mut found = BTreeMap::new();
        for pattern in patterns {
            let lower = pattern.to_ascii_lowercase();
            if !pattern.contains(['*', '?', '[']) {
                if let Some(directive) = find(&lower) {
                    found.insert(pattern.clone(), self.text(directive.name).to_owned());
                }
                continue;
            }
            for directive in DIRECTIVES.iter().filter(|known| known.flags & HIDDEN == 0) {
                for name in [directive.name, directive.alias] {
                    if !name.is_empty() && super::acl::matches(lower.as_bytes(), name.as_bytes()) {
                        found.insert(name.to_owned(), self.text(directive.name).to_owned());
                    }
                }
            }
        }
        found.into_iter().collect()
    }
}

/// The value as Valkey keeps it, or what it says of it.
fn check(directive: &Directive, value: &str) -> Result<String, String> {
    let between = |number: i64, (least, most): (i64, i64)| {
        if (least..=most).contains(&number) {
            Ok(number.to_string())
        } else {
            Err(format!(
                "argument must be between {least} and {most} inclusive"
            ))
        }
    };
    match &directive.kind {
        Kind::Bool => match value.to_ascii_lowercase().as_str() {
            word @ ("yes" | "no") => Ok(word.to_owned()),
            _ => Err("argument must be 'yes' or 'no'".to_owned()),
        },
        Kind::Enum(words) => check_words(words, value, directive.flags & MULTI != 0),
        Kind::Number(least, most) => match value.parse() {
            // Out of range it is clamped.
            Ok(number) if directive.name == "hz" => Ok(i64::clamp(number, 1, 500).to_string()),
            Ok(number) => between(number, (*least, *most)),
            Err(_) => Err("argument couldn't be parsed into an integer".to_owned()),
        },
        Kind::Memory(least, most) => match memory(value).filter(|it| *it >= 0 || *least < 0) {
            Some(bytes) => between(bytes, (*least, *most)),
            None => Err("argument must be a memory value".to_owned()),
        },
        Kind::Text => check_text(directive.name, value),
    }
}

fn check_words(words: &[&str], value: &str, several: bool) -> Result<String, String> {
    let lower = value.to_ascii_lowercase();
    let given: Vec<&str> = if several {
        lower.split_whitespace().collect()
    } else {
        vec![&lower]
    };
    if given.is_empty() || given.iter().any(|word| !words.contains(word)) {
        return Err(format!(
            "argument(s) must be one of the following: {}",
            words.join(", ")
        ));
    }
    if given.contains(&"save") && given.contains(&"nosave") {
        return Err("shutdown options SAVE and NOSAVE can't be used simultaneously".to_owned());
    }
    Ok(given.join(" "))
}

fn check_text(name: &str, value: &str) -> Result<String, String> {
    match name {
        "save" => {
            let value = if value == "\"\"" { "" } else { value };
            let numbers = value.split_whitespace().collect::<Vec<&str>>();
            let good = |word: &&str| word.parse::<i64>().is_ok_and(|number| number >= 0);
            if numbers.len().is_multiple_of(2) && numbers.iter().all(good) {
                Ok(numbers.join(" "))
            } else {
                Err("Invalid save parameters".to_owned())
            }
        }
        "cluster-announce-hostname" => {
            let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
            if value.len() >= 256 {
                Err("Hostnames must be less than 256 characters".to_owned())
            } else if value.chars().all(good) {
                Ok(value.to_owned())
            } else {
                Err(
                    "Hostnames may only contain alphanumeric characters, hyphens or dots"
                        .to_owned(),
                )
            }
        }
        _ => Ok(value.to_owned()),
    }
}

/// Sizes: `kb` and its kin are powers of 1024, `k` and its kin of 1000.
fn memory(text: &str) -> Option<i64> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match lower.get(digits.len()..)? {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1024,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<i64>().ok()?.checked_mul(unit)
}

/// Words as a shell splits them; none if a quote stays open (`sdssplitargs`).
pub(super) fn split_words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, after) = first_word(rest)?;
        words.push(word);
        rest = after.trim_start();
    }
    Some(words)
}

fn first_word(text: &str) -> Option<(String, &str)> {
    let mut word = String::new();
    let mut rest = text;
    loop {
        let mut chars = rest.chars();
        let Some(first) = chars.next() else {
            return Some((word, rest));
        };
        if first.is_whitespace() {
            return Some((word, rest));
        }
        if first == '"' || first == '\'' {
            let (quoted, after) = quoted(chars.as_str(), first)?;
            word.push_str(&quoted);
            rest = after;
        } else {
            word.push(first);
            rest = chars.as_str();
        }
    }
}

/// What is between quotes, and what follows.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut word = String::new();
    let mut chars = text.chars();
    loop {
        let c = chars.next()?;
        if c == quote {
            return Some((word, chars.as_str()));
        }
        if c != '\\' {
            word.push(c);
            continue;
        }
        let rest = chars.as_str();
        if quote == '\'' {
            if let Some(after) = rest.strip_prefix('\'') {
                word.push('\'');
                chars = after.chars();
            } else {
                word.push('\\');
            }
            continue;
        }
        let byte = rest
            .strip_prefix('x')
            .and_then(|hex| u8::from_str_radix(hex.get(..2)?, 16).ok());
        if let Some(byte) = byte {
            word.push(char::from(byte));
            chars = rest.get(3..)?.chars();
            continue;
        }
        word.push(match chars.next()? {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'b' => '\u{8}',
            'a' => '\u{7}',
            other => other,
        });
    }
}
