//! Users, their passwords and what they may do, as an ACL file says it (`acl.c`).
//! Never half applied: a file with one error changes nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::Digest as _;
use sha2::Sha256;

use super::commands::CATEGORIES;
use super::commands::COMMANDS;
use super::commands::Command;
use super::commands::NO_AUTH;
use super::commands::find;
use super::commands::is_container;
use super::commands::subcommands;

const UNKNOWN: &str = "Unknown command or category name in ACL";
const SYNTAX: &str = "Syntax error";
const AFTER_ALL_KEYS: &str = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have \
     any effect. Try 'resetkeys' to start with an empty list of patterns";
const AFTER_ALL_CHANNELS: &str = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not \
     have any effect. Try 'resetchannels' to start with an empty list of channels";
const NO_PASSWORD: &str = "The password you are trying to remove from the user does not exist";
const BAD_HASH: &str = "The password hash must be exactly 64 characters and contain only lowercase hexadecimal \
     characters";
const UNCHANGED: &str =
    "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";

const WRONGPASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

/// A bit for each command.
type Bits = [u64; COMMANDS.len().div_ceil(64)];

/// A key pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Keys {
    pattern: String,
    read: bool,
    write: bool,
}

/// One set of permissions; a user has at least one.
#[derive(Clone, Debug)]
struct Selector {
    all_commands: bool,
    commands: Bits,
    /// The commands of a container by their first argument, for those that have no subcommands.
    first_args: Vec<(String, String)>,
    rules: Vec<String>,
    all_keys: bool,
    keys: Vec<Keys>,
    all_channels: bool,
    channels: Vec<String>,
}

#[derive(Clone, Debug)]
struct User {
    enabled: bool,
    nopass: bool,
    hashes: Vec<String>,
    selectors: Vec<Selector>,
}

/// All users.
#[derive(Clone, Debug)]
pub(super) struct Acl {
    users: BTreeMap<String, User>,
}

/// Why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    Command,
    Key,
}

impl Acl {
    /// As without a file: `default` may do everything.
    pub(super) fn open() -> Self {
        let mut user = User::new();
        for rule in ["on", "nopass", "~*", "&*", "+@all"] {
            // These are known to be good.
            user.apply(rule).ok();
        }
        Self {
            users: [("default".to_owned(), user)].into(),
        }
    }

    /// `ACLLoadFromFile`
    pub(super) fn load(path: &str, text: Option<&String>) -> Result<Self, String> {
        let Some(text) = text else {
            return Err(format!(
                "Error loading ACLs, opening file '{path}': No such file or directory"
            ));
        };
        let mut users: BTreeMap<String, User> = BTreeMap::new();
        let mut errors = String::new();
        for (number, line) in (1..).zip(text.split('\n')) {
            let line = line.trim_matches([' ', '\t', '\r', '\n']);
            if line.is_empty() {
                continue;
            }
            let words: Vec<&str> = line.split(' ').collect();
            let (Some(&"user"), Some(name)) = (words.first(), words.get(1)) else {
                say(
                    &mut errors,
                    &format!(
                        "{path}:{number} should start with user keyword followed by the username. "
                    ),
                );
                continue;
            };
            if name.contains(char::is_whitespace) {
                say(
                    &mut errors,
                    &format!("'{path}:{number}: username '{name}' contains invalid characters. "),
                );
                continue;
            }
            if users.contains_key(*name) {
                let duplicate =
                    format!("WARNING: Duplicate user '{name}' found on line {number}. ");
                say(&mut errors, &duplicate);
                continue;
            }
            let rules = words.get(2..).unwrap_or_default();
            let user = parse_user(rules, &format!("{path}:{number}"), &mut errors);
            users.insert((*name).to_owned(), user);
        }
        if !errors.is_empty() {
            return Err(errors + UNCHANGED);
        }
        let mut acl = Self::open();
        acl.users.extend(users);
        Ok(acl)
    }

    /// `ACL SETUSER`: all rules or none.
    pub(super) fn set(&mut self, name: &str, rules: &[String]) -> Result<(), String> {
        let mut user = self.users.get(name).cloned().unwrap_or_else(User::new);
        for rule in rules {
            let applied = user.apply(rule);
            applied.map_err(|why| format!("Error in ACL SETUSER modifier '{rule}': {why}"))?;
        }
        self.users.insert(name.to_owned(), user);
        Ok(())
    }

    /// The user of that name and password, else what Valkey says.
    pub(super) fn authenticate(&self, name: &str, password: &str) -> Result<String, String> {
        let user = self.users.get(name).filter(|user| user.enabled);
        let good = user.is_some_and(|user| user.nopass || user.hashes.contains(&sha256(password)));
        if good {
            Ok(name.to_owned())
        } else {
            Err(WRONGPASS.to_owned())
        }
    }

    /// Whom a new connection belongs to without a word.
    pub(super) fn default_without_password(&self) -> Option<String> {
        self.users
            .get("default")
            .filter(|user| user.enabled && user.nopass)
            .map(|_| "default".to_owned())
    }

    /// Whether `AUTH` may go without a name.
    pub(super) fn default_has_password(&self) -> bool {
        self.users.get("default").is_none_or(|user| !user.nopass)
    }

    pub(super) fn knows(&self, name: &str) -> bool {
        self.users.contains_key(name)
    }

    /// Whether a user may run a command without keys, by its full name.
    pub(super) fn may_run(&self, user: &str, command: &str) -> bool {
        find(command).is_some_and(|command| self.check(user, command, &[], &[]).is_ok())
    }

    /// Whether one of a user's selectors allows a command with its keys: each with whether it is read and
    /// whether it is written.
    pub(super) fn check(
        &self,
        user: &str,
        command: &Command,
        args: &[Vec<u8>],
        keys: &[(Vec<u8>, bool, bool)],
    ) -> Result<(), Denied> {
        let Some(user) = self.users.get(user) else {
            return Err(Denied::Command);
        };
        let mut denied = Denied::Command;
        for selector in &user.selectors {
            if !selector.allows(command, args) {
                continue;
            }
            let reaches = |(key, read, write): &(Vec<u8>, bool, bool)| {
                selector.all_keys
                    || selector.keys.iter().any(|keys| {
                        (keys.read || !read)
                            && (keys.write || !write)
                            && matches(keys.pattern.as_bytes(), key)
                    })
            };
            if keys.iter().all(reaches) {
                return Ok(());
            }
            denied = Denied::Key;
        }
        Err(denied)
    }

    /// `ACL LIST`
    pub(super) fn list(&self) -> Vec<String> {
        let line = |(name, user): (&String, &User)| format!("user {name} {}", user.description());
        self.users.iter().map(line).collect()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.users.keys().cloned().collect()
    }
}

fn say(errors: &mut String, error: &str) {
    errors.push_str(error);
}

/// A line's rules, selectors in brackets put together first.
fn parse_user(words: &[&str], place: &str, errors: &mut String) -> User {
    let mut user = User::new();
    let mut rules: Vec<String> = Vec::new();
    let mut open: Option<String> = None;
    for word in words {
        if let Some(selector) = &mut open {
            selector.push(' ');
            selector.push_str(word);
            if word.ends_with(')') {
                rules.extend(open.take());
            }
        } else if word.starts_with('(') && !word.ends_with(')') {
            open = Some((*word).to_owned());
        } else {
            rules.push((*word).to_owned());
        }
    }
    if open.is_some() {
        say(
            errors,
            &format!("{place}: Unmatched parenthesis in selector definition."),
        );
        return user;
    }
    let mut syntax = false;
    for rule in rules {
        let rule = rule.trim_matches(['\t', '\r', '\n']);
        match user.apply(rule) {
            Err(UNKNOWN) => say(
                errors,
                &format!("{place}: Error in applying operation '{rule}': {UNKNOWN}. "),
            ),
            Err(why) if !syntax => {
                syntax = true;
                say(errors, &format!("{place}: {why}. "));
            }
            Ok(()) | Err(_) => {}
        }
    }
    user
}

impl User {
    fn new() -> Self {
        Self {
            enabled: false,
            nopass: false,
            hashes: Vec::new(),
            selectors: vec![Selector::new()],
        }
    }

    /// `ACLSetUser`
    fn apply(&mut self, rule: &str) -> Result<(), &'static str> {
        if rule.is_empty() {
            return Ok(());
        }
        match rule.to_ascii_lowercase().as_str() {
            "on" => self.enabled = true,
            "off" => self.enabled = false,
            "skip-sanitize-payload" | "sanitize-payload" => {}
            "nopass" => {
                self.nopass = true;
                self.hashes.clear();
            }
            "resetpass" => {
                self.nopass = false;
                self.hashes.clear();
            }
            "clearselectors" => self.selectors.truncate(1),
            "reset" => *self = Self::new(),
            _ => return self.apply_valued(rule),
        }
        Ok(())
    }

    fn apply_valued(&mut self, rule: &str) -> Result<(), &'static str> {
        let (mark, value) = rule.split_at_checked(1).ok_or(SYNTAX)?;
        let hash = |value: &str| match mark {
            ">" | "<" => Ok(sha256(value)),
            _ if is_hash(value) => Ok(value.to_owned()),
            _ => Err(BAD_HASH),
        };
        match mark {
            ">" | "#" => {
                let hash = hash(value)?;
                if !self.hashes.contains(&hash) {
                    self.hashes.push(hash);
                }
                self.nopass = false;
                Ok(())
            }
            "<" | "!" => {
                let hash = hash(value)?;
                let before = self.hashes.len();
                self.hashes.retain(|kept| *kept != hash);
                if self.hashes.len() == before {
                    Err(NO_PASSWORD)
                } else {
                    Ok(())
                }
            }
            "(" if rule.ends_with(')') => {
                let inside = value.strip_suffix(')').unwrap_or(value);
                let mut selector = Selector::new();
                for rule in super::config::split_words(inside).ok_or(SYNTAX)? {
                    selector.apply(&rule)?;
                }
                self.selectors.push(selector);
                Ok(())
            }
            _ => match self.selectors.first_mut() {
                Some(root) => root.apply(rule),
                None => Err(SYNTAX),
            },
        }
    }

    fn description(&self) -> String {
        let mut text = String::from(if self.enabled { "on " } else { "off " });
        if self.nopass {
            text += "nopass ";
        }
        for hash in &self.hashes {
            // Writing to a String cannot fail.
            write!(text, "#{hash} ").ok();
        }
        for (index, selector) in self.selectors.iter().enumerate() {
            let words = selector.description();
            if index == 0 {
                text += &words;
            } else {
                write!(text, " ({words})").ok();
            }
        }
        text
    }
}

impl Selector {
    fn new() -> Self {
        Self {
            all_commands: false,
            commands: Bits::default(),
            first_args: Vec::new(),
            rules: Vec::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels: false,
            channels: Vec::new(),
        }
    }

    fn allows(&self, command: &Command, args: &[Vec<u8>]) -> bool {
        if self.all_commands || command.flags & NO_AUTH != 0 || self.has(command) {
            return true;
        }
        let first = args.get(1).map(|arg| arg.to_ascii_lowercase());
        first.is_some_and(|first| {
            self.first_args
                .iter()
                .any(|(name, arg)| name == command.name && arg.as_bytes() == first)
        })
    }

    fn has(&self, command: &Command) -> bool {
        let (word, bit) = place(command);
        self.commands.get(word).is_some_and(|word| word & bit != 0)
    }

    fn set(&mut self, command: &Command, allow: bool) {
        let (word, bit) = place(command);
        if let Some(word) = self.commands.get_mut(word) {
            *word = if allow { *word | bit } else { *word & !bit };
        }
        if !allow {
            self.all_commands = false;
        }
    }

    /// `ACLChangeSelectorPerm`
    fn change(&mut self, command: &'static Command, allow: bool) {
        self.set(command, allow);
        self.first_args.retain(|(name, _)| name != command.name);
        for sub in subcommands(command.name) {
            self.set(sub, allow);
        }
    }

    /// `ACLSetSelector`
    fn apply(&mut self, rule: &str) -> Result<(), &'static str> {
        match rule.to_ascii_lowercase().as_str() {
            "allkeys" | "~*" => {
                self.all_keys = true;
                self.keys.clear();
            }
            "resetkeys" => {
                self.all_keys = false;
                self.keys.clear();
            }
            "allchannels" | "&*" => {
                self.all_channels = true;
                self.channels.clear();
            }
            "resetchannels" => {
                self.all_channels = false;
                self.channels.clear();
            }
            // There is one database.
            "alldbs" | "resetdbs" => {}
            "allcommands" | "+@all" => self.reset_commands(true),
            "nocommands" | "-@all" => self.reset_commands(false),
            lower => return self.apply_valued(rule, lower),
        }
        Ok(())
    }

    fn reset_commands(&mut self, all: bool) {
        self.all_commands = all;
        self.commands = [if all { u64::MAX } else { 0 }; COMMANDS.len().div_ceil(64)];
        self.rules.clear();
        self.first_args.clear();
    }

    fn apply_valued(&mut self, rule: &str, lower: &str) -> Result<(), &'static str> {
        let (mark, value) = rule.split_at_checked(1).ok_or(SYNTAX)?;
        match mark {
            "~" => self.add_keys(value, true, true),
            "%" => {
                let (access, pattern) = value.split_once('~').ok_or(SYNTAX)?;
                let access = access.to_ascii_uppercase();
                let (read, write) = match access.as_str() {
                    "R" => (true, false),
                    "W" => (false, true),
                    "RW" | "WR" => (true, true),
                    _ => return Err(SYNTAX),
                };
                self.add_keys(pattern, read, write)
            }
            "&" if self.all_channels => Err(AFTER_ALL_CHANNELS),
            "&" if value.contains(char::is_whitespace) => Err(SYNTAX),
            "&" => {
                if !self.channels.iter().any(|channel| channel == value) {
                    self.channels.push(value.to_owned());
                }
                Ok(())
            }
            "+" | "-" => {
                let name = lower.get(1..).ok_or(SYNTAX)?;
                match name.strip_prefix('@') {
                    Some(category) => self.change_category(category, mark == "+"),
                    None => self.change_command(name, mark == "+"),
                }
            }
            _ if lower.starts_with("db=") => Ok(()),
            _ => Err(SYNTAX),
        }
    }

    fn add_keys(&mut self, pattern: &str, read: bool, write: bool) -> Result<(), &'static str> {
        if self.all_keys {
            return Err(AFTER_ALL_KEYS);
        }
        if pattern.contains(char::is_whitespace) {
            return Err(SYNTAX);
        }
        match self.keys.iter_mut().find(|keys| keys.pattern == pattern) {
            Some(keys) => {
                keys.read |= read;
                keys.write |= write;
            }
            None => self.keys.push(Keys {
                pattern: pattern.to_owned(),
                read,
                write,
            }),
        }
        Ok(())
    }

    fn change_category(&mut self, category: &str, allow: bool) -> Result<(), &'static str> {
        let index = CATEGORIES.iter().position(|name| *name == category);
        let flag = 1 << index.ok_or(UNKNOWN)?;
        self.note_rule(&format!("@{category}"), allow);
        for command in &COMMANDS {
            if command.categories & flag == 0 {
                continue;
            }
            if command.name.contains('|') {
                self.set(command, allow);
            } else {
                self.change(command, allow);
            }
        }
        Ok(())
    }

    fn change_command(&mut self, name: &str, allow: bool) -> Result<(), &'static str> {
        if let Some(command) = find(name) {
            self.change(command, allow);
            self.note_rule(name, allow);
            return Ok(());
        }
        let (command, arg) = name.split_once('|').ok_or(UNKNOWN)?;
        let known = find(command).filter(|_| allow && !is_container(command));
        if known.is_none() {
            return Err(UNKNOWN);
        }
        if arg.is_empty() {
            return Err(SYNTAX);
        }
        self.first_args.push((command.to_owned(), arg.to_owned()));
        self.note_rule(name, true);
        Ok(())
    }

    /// A later rule of a command takes the place of earlier ones of it and of its subcommands.
    fn note_rule(&mut self, name: &str, allow: bool) {
        self.rules.retain(|rule| {
            let kept = rule.get(1..).unwrap_or_default();
            let rest = kept.strip_prefix(name);
            rest.is_none_or(|rest| !rest.is_empty() && !rest.starts_with('|'))
        });
        let sign = if allow { '+' } else { '-' };
        self.rules.push(format!("{sign}{name}"));
    }

    /// `ACLDescribeSelector`
    fn description(&self) -> String {
        let mut words: Vec<String> = Vec::new();
        if self.all_keys {
            words.push("~*".to_owned());
        }
        for keys in &self.keys {
            words.push(match (keys.read, keys.write) {
                (true, true) => format!("~{}", keys.pattern),
                (true, false) => format!("%R~{}", keys.pattern),
                _ => format!("%W~{}", keys.pattern),
            });
        }
        if self.all_channels {
            words.push("&*".to_owned());
        } else {
            words.push("resetchannels".to_owned());
        }
        words.extend(self.channels.iter().map(|channel| format!("&{channel}")));
        // The last bit belongs to no command: only `+@all` sets it.
        let future = self.commands.last().is_some_and(|word| word >> 63 == 1);
        words.push(if future { "+@all" } else { "-@all" }.to_owned());
        words.extend(self.rules.iter().cloned());
        words.join(" ")
    }
}

fn place(command: &Command) -> (usize, u64) {
    let index = COMMANDS
        .binary_search_by(|known| known.name.cmp(command.name))
        .unwrap_or(0);
    (index / 64, 1 << (index % 64))
}

fn is_hash(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").ok();
            hex
        })
}

/// Glob patterns as `KEYS` has them (`stringmatchlen` in util.c).
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            matches(rest, text)
                || text
                    .split_first()
                    .is_some_and(|(_, tail)| matches(pattern, tail))
        }
        (Some((b'?', rest)), Some((_, tail))) => matches(rest, tail),
        (Some((b'[', rest)), Some((first, tail))) => {
            let (found, after) = in_class(rest, *first);
            found && matches(after, tail)
        }
        (Some((b'\\', rest)), Some((first, tail))) if !rest.is_empty() => rest
            .split_first()
            .is_some_and(|(escaped, rest)| escaped == first && matches(rest, tail)),
        (Some((byte, rest)), Some((first, tail))) => byte == first && matches(rest, tail),
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Whether a byte is in a class, and what follows its bracket.
fn in_class(class: &[u8], byte: u8) -> (bool, &[u8]) {
    let end = class
        .iter()
        .position(|byte| *byte == b']')
        .unwrap_or(class.len());
    let (inside, after) = class.split_at(end);
    let after = after.get(1..).unwrap_or_default();
    let (negated, inside) = match inside.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, inside),
    };
    let mut found = false;
    let mut rest = inside;
    while let Some((first, tail)) = rest.split_first() {
        if let (Some(b'-'), Some(last)) = (tail.first(), tail.get(1)) {
            found |= (*first..=*last).contains(&byte);
            rest = tail.get(2..).unwrap_or_default();
        } else {
            found |= *first == byte;
            rest = tail;
        }
    }
    (found != negated, after)
}
