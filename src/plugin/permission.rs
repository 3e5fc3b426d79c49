//! `can-i` and `who-can`: what bindings and roles allow, with the rule that decides.
//! Never asks a process: the rules are read as Valkey reads its ACL file, over a table of its commands.
//!
//! The table is of the Valkey version that it names; a command that a module adds is not in it. A
//! command of several keys is asked about with the one key in each place, and one whose way with its
//! keys hangs on its options (`SORT ... STORE`) as if it had them, but for `SET`, which only reads
//! with `GET`.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::api::acl::KeyAccess;
use crate::api::role::{Access, ValkeyRoleSpec};
use crate::model::desired::{Grant, Resolved, User};
use crate::plugin::menu::MENU_KINDS;
use crate::plugin::print::{Cell, Table, Tone, said, wrapped};
use crate::plugin::{Asked, Desk, Error, Exit, Shown, listed};
use crate::resolve;

/// A line for each command: its name, with `|` before a subcommand; its categories; `-`, or for each
/// place of keys whether it is read (`r`) and written (`w`); flags. Made from a real server.
pub const TABLE: &str = include_str!("permission/commands.txt");

/// A command that the table does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Valkey has no command {0:?}; a subcommand is written behind a |, such as config|set")]
pub struct UnknownCommand(String);

/// What Valkey knows of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Command<'a> {
    name: &'a str,
    categories: BTreeSet<&'a str>,
    /// Of each place of keys whether it is read and whether it is written.
    keys: Vec<(bool, bool)>,
    channels: Channels,
    /// Whoever is connected may run it.
    open: bool,
}

/// What a command does with channels. `COMMAND INFO` does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channels {
    None,
    /// It names some.
    Names,
    /// It names patterns, which must be granted to the letter.
    Patterns,
}

impl Channels {
    fn of(command: &str) -> Self {
        match command {
            "publish" | "spublish" | "subscribe" | "ssubscribe" => Self::Names,
            "psubscribe" => Self::Patterns,
            _ => Self::None,
        }
    }
}

fn find(asked: &str) -> Result<Command<'static>, UnknownCommand> {
    let unknown = || UnknownCommand(asked.to_owned());
    let wanted = asked.to_ascii_lowercase();
    let wanted = wanted.split_whitespace().collect::<Vec<_>>().join("|");
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    let line = lines
        .map(|line| line.split(' ').collect::<Vec<&str>>())
        .find(|words| words.first() == Some(&wanted.as_str()));
    let Some([name, categories, keys, flags]) = line.as_deref() else {
        return Err(unknown());
    };
    // Without GET, as it is mostly meant, it only writes.
    let keys = if *name == "set" { "w" } else { keys };
    let places = keys.split(',').filter(|place| *place != "-");
    Ok(Command {
        name,
        categories: categories.split(',').collect(),
        keys: places
            .map(|place| (place.contains('r'), place.contains('w')))
            .collect(),
        channels: Channels::of(name),
        open: flags.contains("no_auth"),
    })
}

/// Whether a user may run a command, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// Who.
    pub user: String,
    /// The answer.
    pub allowed: bool,
    /// The rule that decides; of a refusal one line for each permission.
    pub because: Vec<String>,
}

/// Judges a command, with a key or a channel where one is given.
pub fn judge(user: &User, asked: &str, key: Option<&str>) -> Result<Judgement, UnknownCommand> {
    let command = find(asked)?;
    let judged = |(allowed, because)| Judgement {
        user: user.binding.username.clone(),
        allowed,
        because,
    };
    let mut refusals = Vec::new();
    for (index, grant) in user.grants.iter().enumerate() {
        let role = &grant.permission.role_ref;
        let permission = format!("permission {} (ValkeyRole {role})", index + 1);
        match permits(grant, &command, key) {
            Ok(rules) => return Ok(judged((true, vec![format!("{permission}: {rules}")]))),
            Err(refusal) => refusals.push(format!("{permission}: {refusal}")),
        }
    }
    if command.open {
        let because = "whoever is connected may run it".to_owned();
        return Ok(judged((true, vec![because])));
    }
    Ok(judged((false, refusals)))
}

/// What one permission says: the rules that allow it, or the first that does not.
fn permits(grant: &Grant, command: &Command<'_>, key: Option<&str>) -> Result<String, String> {
    let rule = match deciding(&grant.role, command) {
        _ if command.open => "whoever is connected may run it".to_owned(),
        Some((Access::Allow, rule)) => rule,
        Some((Access::Deny, rule)) => return Err(format!("rule {rule} denies it")),
        None => return Err(format!("no rule allows {}", command.name)),
    };
    let Some(key) = key else {
        return Ok(rule);
    };
    let mut rules = vec![rule];
    let all = |grant: &Grant| {
        let mut keys = grant.permission.keys.iter();
        keys.any(|key| key.pattern == "*" && key.access == KeyAccess::Readwrite)
    };
    for (read, write) in &command.keys {
        if all(grant) {
            rules.push("keys *".to_owned());
            break;
        }
        let mut patterns = grant.permission.keys.iter();
        let granted = patterns.find(|granted| {
            let (may_read, may_write) = match granted.access {
                KeyAccess::Read => (true, false),
                KeyAccess::Write => (false, true),
                KeyAccess::Readwrite => (true, true),
            };
            let enough = (may_read || !read) && (may_write || !write);
            enough && matches(granted.pattern.as_bytes(), key.as_bytes())
        });
        let Some(granted) = granted else {
            let how = match (read, write) {
                (true, true) => "reading and writing",
                (true, false) => "reading",
                (false, true) => "writing",
                (false, false) => "any use of",
            };
            return Err(format!("no key pattern allows {how} {key:?}"));
        };
        rules.push(format!("keys {}", granted.pattern));
    }
    if command.channels != Channels::None {
        let channels = grant.permission.channels.iter().flatten();
        let granted = channels.into_iter().find(|pattern| match command.channels {
            _ if *pattern == "*" => true,
            Channels::Patterns => *pattern == key,
            Channels::Names | Channels::None => matches(pattern.as_bytes(), key.as_bytes()),
        });
        match granted {
            Some(pattern) => rules.push(format!("channels {pattern}")),
            None => return Err(format!("no channel pattern allows {key:?}")),
        }
    }
    rules.dedup();
    Ok(rules.join(", "))
}

/// The last rule of a role that speaks of a command, which is the one in force.
fn deciding(role: &ValkeyRoleSpec, command: &Command<'_>) -> Option<(Access, String)> {
    let sign = |access| match access {
        Access::Allow => '+',
        Access::Deny => '-',
    };
    let name = command.name;
    let container = name.split('|').next().unwrap_or(name);
    let commands = role.commands.iter().rev().find_map(|rule| {
        let rule_name = rule.name.to_ascii_lowercase();
        let speaks = match &rule.subcommand {
            Some(sub) => format!("{rule_name}|{}", sub.to_ascii_lowercase()) == name,
            None => rule_name == container,
        };
        let spelled = match &rule.subcommand {
            Some(sub) => format!("{}{}|{sub}", sign(rule.access), rule.name),
            None => format!("{}{}", sign(rule.access), rule.name),
        };
        speaks.then_some((rule.access, spelled))
    });
    let categories = role.categories.iter().rev().find_map(|rule| {
        let category = rule.name.to_ascii_lowercase();
        let speaks = category == "all" || command.categories.contains(category.as_str());
        speaks.then(|| (rule.access, format!("{}@{}", sign(rule.access), rule.name)))
    });
    commands.or(categories)
}

/// Whether a text matches a pattern as Valkey has it: `*`, `?`, `[a-z]`, `[^a]` and `\`, as
/// `stringmatchlen` in its `util.c` reads them.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], text) => text.is_empty(),
        ([b'*', rest @ ..], text) => {
            (0..=text.len()).any(|skip| text.get(skip..).is_some_and(|text| matches(rest, text)))
        }
        (_, []) => false,
        ([b'?', rest @ ..], [_, text @ ..]) => matches(rest, text),
        ([b'[', class @ ..], [byte, text @ ..]) => {
            let (holds, rest) = in_class(class, *byte);
            holds && matches(rest, text)
        }
        ([b'\\', literal, rest @ ..] | [literal, rest @ ..], [byte, text @ ..]) => {
            literal == byte && matches(rest, text)
        }
    }
}

/// Whether a class, read behind its bracket, holds a byte, and what follows the class.
fn in_class(mut class: &[u8], byte: u8) -> (bool, &[u8]) {
    let negated = class.first() == Some(&b'^');
    if let (true, [_, rest @ ..]) = (negated, class) {
        class = rest;
    }
    let mut holds = false;
    loop {
        match class {
            // A class without an end ends with the pattern.
            [] => return (holds != negated, &[]),
            [b']', rest @ ..] => return (holds != negated, rest),
            [b'\\', literal, rest @ ..] => {
                holds |= *literal == byte;
                class = rest;
            }
            [start, b'-', end, rest @ ..] => {
                holds |= (*start.min(end)..=*start.max(end)).contains(&byte);
                class = rest;
            }
            [literal, rest @ ..] => {
                holds |= *literal == byte;
                class = rest;
            }
        }
    }
}

/// An answer to `can-i` and `who-can`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Permissions {
    command: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    users: Vec<Judgement>,
    /// It is about one user, who was named.
    #[serde(skip)]
    of_one: bool,
}

impl Shown for Permissions {
    fn text(&self, width: usize) -> String {
        if let ([only], true) = (self.users.as_slice(), self.of_one) {
            let (word, tone) = if only.allowed {
                ("yes", Tone::Good)
            } else {
                ("no", Tone::Bad)
            };
            let mut text = format!("{}\n", tone.paint(word));
            for because in &only.because {
                text.push_str(&wrapped("  ", because, width));
            }
            return text;
        }
        let mut table = Table::new(&["USER", "MAY", "BECAUSE"]);
        for user in &self.users {
            let may = if user.allowed {
                Cell::toned("yes", Tone::Good)
            } else {
                Cell::toned("no", Tone::Bad)
            };
            table.row(vec![
                user.user.clone().into(),
                may,
                user.because.join("; ").into(),
            ]);
        }
        let mut text = table.text(width);
        if self.users.is_empty() {
            text = said(
                "users",
                "none is bound: whoever connects may do anything",
                width,
            );
        }
        text
    }
}

impl Desk {
    /// Judges one user, or all of a cluster.
    pub(super) async fn can(&self, user: Option<String>, asked: Asked) -> Result<Exit, Error> {
        let Asked {
            command,
            key,
            cluster,
        } = asked;
        find(&command).map_err(Error::Command)?;
        let (cluster, visit) = self.find(cluster).await?;
        listed("this", &visit, &MENU_KINDS)?;
        let world = visit.outline(&cluster).await.map_err(Error::Observe)?;
        let world = world.ok_or(Error::NoCluster(cluster))?;
        let resolved = resolve::desired(&world)
            .menu
            .map_err(|source| Error::Menu {
                config: world.cluster.spec.config_ref.clone(),
                source,
            })?;
        let mut users = Vec::new();
        for one in chosen(&resolved, user.as_deref())? {
            users.push(judge(one, &command, key.as_deref()).map_err(Error::Command)?);
        }
        let of_one = user.is_some();
        let refused = of_one && users.iter().any(|user| !user.allowed);
        self.show(&Permissions {
            command,
            key,
            users,
            of_one,
        })?;
        Ok(if refused { Exit::No } else { Exit::Done })
    }
}

/// The user of that name, or all.
fn chosen<'a>(resolved: &'a Resolved, user: Option<&str>) -> Result<Vec<&'a User>, Error> {
    let users = || resolved.users.iter();
    let Some(user) = user else {
        return Ok(users().collect());
    };
    let found: Vec<&User> = users().filter(|one| one.binding.username == user).collect();
    if found.is_empty() {
        let bound: Vec<&str> = users().map(|one| one.binding.username.as_str()).collect();
        let bound = if bound.is_empty() {
            "none, so that whoever connects may do anything".to_owned()
        } else {
            bound.join(", ")
        };
        return Err(Error::NoUser {
            user: user.to_owned(),
            bound,
        });
    }
    Ok(found)
}
