//! The language of talks: a text becomes steps, and steps with new replies become the text again.
//! Never knows who plays them.
//!
//! A line that begins with `# ` begins a talk and is its title. Servers are single letters.
//!
//! | line | meaning |
//! |---|---|
//! | `servers a b with name "value" ...` | start them, with settings over those of a pod |
//! | `servers c at a` | one at the address of another, which is dead |
//! | `refuse a with name "value"` | start one that ends at once; what it says is the reply |
//! | `cluster a/d b/e with ...` | start shards of one primary and its replicas, all slots shared out, all linked |
//! | `kill a`, `term a`, `stop a`, `continue a` | the signals |
//! | `end a` | wait until the process has ended; how is the reply |
//! | `start a`, `start a empty` | start it again, with or without the files it left; why it does not is the reply |
//! | `cut a b`, `cut a to b` | packets between them are lost, in both or one direction; `... bus`, `... client`: on that port |
//! | `heal` | all packets arrive again |
//! | `hold a`, `release a` | its slot migrations stay before the pause, or go on |
//! | `deny a`, `allow a` | slot migrations to it never claim, or do |
//! | `acl a add user x ...`, `acl a drop user x` | a line of its ACL file |
//! | `fill a {x} 20` | so many keys of that slot, a few kilobytes each |
//! | `slow a 2s` | a full sync with 20 of them takes it so long |
//! | `wait 500ms`, `mark`, `took 5s..12s` | time passes; a moment to measure from; how long since it |
//! | `a b> COMMAND` | ask each; the lines `a< ...` below are what it answers |
//! | `a admin 2s> COMMAND` | as that user (else the operator's), ready to wait so long |
//! | `a settled> COMMAND` | ask until the answer is the expected one |
//! | `a until COMMAND has TEXT`, `lacks`, `is` | ask until it does |
//! | `a for 3s COMMAND has TEXT`, `lacks`, `is` | it does all the time |
//!
//! Behind a command ` | x y` keeps the lines of those servers (`CLUSTER NODES`) or the fields of those names;
//! `epochs` shows the column of that name, `nolinks` hides the one that changes while a link is tried again.

use std::time::Duration;

/// A server of a talk.
pub(crate) type Name = char;

pub(crate) type Settings = Vec<(String, String)>;

/// Every server's port for clients and other servers' data, as in pods.
pub(crate) const PORT: u16 = 6379;

/// And for the cluster's own talk.
pub(crate) const BUS_PORT: u16 = 16379;

/// How long a question may take in which nothing is said about it.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub(crate) struct Talk {
    pub(crate) file: String,
    pub(crate) title: String,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// Where it is in its file, from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
    pub(crate) what: What,
    /// The lines of the reply, each with the server's name before it.
    pub(crate) expected: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    Servers(Vec<Name>, Settings),
    ServerAt(Name, Name),
    Refuse(Name, Settings),
    Cluster(Vec<Vec<Name>>, Settings),
    Signal(Name, Signal),
    End(Name),
    Start {
        name: Name,
        empty: bool,
    },
    Cut {
        from: Name,
        to: Name,
        both: bool,
        ports: Vec<u16>,
    },
    Heal,
    Switch(Name, Switch, bool),
    AclAdd(Name, String),
    AclDrop(Name, String),
    Fill {
        name: Name,
        tag: String,
        count: usize,
    },
    Slow(Name, Duration),
    Wait(Duration),
    Mark,
    Took(Duration, Duration),
    Ask {
        asked: Asked,
        settled: bool,
    },
    Until {
        asked: Asked,
        condition: Condition,
    },
    For {
        asked: Asked,
        condition: Condition,
        span: Duration,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Kill,
    Term,
    Stop,
    Continue,
}

/// What `DEBUG SLOTMIGRATION` has switches for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    Held,
    Unclaimed,
}

/// A question to some servers.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) who: Vec<Name>,
    pub(crate) user: String,
    pub(crate) patience: Duration,
    pub(crate) words: Vec<String>,
    /// What to keep of the answer; all if empty.
    pub(crate) picks: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) enum Condition {
    Has(String),
    Lacks(String),
    Is(String),
}

impl Talk {
    /// Where its first step is in its file.
    pub(crate) fn line(&self) -> usize {
        self.steps.first().map_or(0, |step| step.line)
    }

    /// Whether every question has an answer.
    pub(crate) fn is_recorded(&self) -> bool {
        self.steps.iter().all(|step| {
            let answered = matches!(
                step.what,
                What::Ask { .. } | What::End(_) | What::Refuse(..)
            );
            !answered || !step.expected.is_empty()
        })
    }
}

impl Condition {
    /// Words or flags in a row, since `fail` is not `fail?`.
    pub(crate) fn holds(&self, lines: &[String]) -> bool {
        let text = lines.join("\n");
        let split = |text: &'_ str| -> Vec<String> {
            let words = text.split(|letter: char| letter.is_whitespace() || letter == ',');
            words.map(str::to_owned).collect()
        };
        let words = split(&text);
        let found = |wanted: &str| {
            let wanted = split(wanted);
            words.windows(wanted.len()).any(|words| words == wanted)
        };
        match self {
            Self::Has(wanted) => found(wanted),
            Self::Lacks(wanted) => !found(wanted),
            Self::Is(wanted) => text == *wanted,
        }
    }
}

/// The talks of one file.
pub(crate) fn parse(file: &str, text: &str) -> Vec<Talk> {
    let mut talks: Vec<Talk> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if let Some(title) = line.strip_prefix("# ") {
            talks.push(Talk {
                file: file.to_owned(),
                title: title.to_owned(),
                steps: Vec::new(),
            });
        } else if !line.trim().is_empty() {
            let talk = talks.last_mut();
            let talk = talk.unwrap_or_else(|| panic!("{file}:{number}: no talk has begun"));
            if is_reply(line) {
                let step = talk.steps.last_mut().expect("a reply follows a step");
                step.expected.push(line.to_owned());
            } else {
                let what =
                    what(line).unwrap_or_else(|| panic!("{file}:{number}: what is {line:?}?"));
                talk.steps.push(Step {
                    line: number,
                    text: line.to_owned(),
                    what,
                    expected: Vec::new(),
                });
            }
        }
    }
    talks
}

/// A file with other replies: those of the steps at these lines.
pub(crate) fn rewritten(text: &str, replies: &[(usize, Vec<String>)]) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut replaced = false;
    for (index, line) in text.lines().enumerate() {
        if is_reply(line) && replaced {
            continue;
        }
        lines.push(line);
        if !is_reply(line) {
            let found = replies.iter().find(|(number, _)| *number == index + 1);
            replaced = found.is_some();
            lines.extend(
                found
                    .into_iter()
                    .flat_map(|(_, new)| new)
                    .map(String::as_str),
            );
        }
    }
    lines.join("\n") + "\n"
}

fn is_reply(line: &str) -> bool {
    let mut letters = line.chars();
    letters
        .next()
        .is_some_and(|letter| letter.is_ascii_lowercase())
        && letters.next() == Some('<')
}

fn what(line: &str) -> Option<What> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    Some(match verb {
        "servers" if rest.contains(" at ") => {
            let (started, at) = rest.split_once(" at ")?;
            What::ServerAt(name(started)?, name(at)?)
        }
        "servers" => {
            let (names, settings) = with(rest);
            What::Servers(names.split(' ').map(name).collect::<Option<_>>()?, settings)
        }
        "refuse" => {
            let (refused, settings) = with(rest);
            What::Refuse(name(refused)?, settings)
        }
        "cluster" => {
            let (shards, settings) = with(rest);
            let shard = |shard: &str| shard.split('/').map(name).collect::<Option<Vec<_>>>();
            What::Cluster(
                shards.split(' ').map(shard).collect::<Option<_>>()?,
                settings,
            )
        }
        "kill" => What::Signal(name(rest)?, Signal::Kill),
        "term" => What::Signal(name(rest)?, Signal::Term),
        "stop" => What::Signal(name(rest)?, Signal::Stop),
        "continue" => What::Signal(name(rest)?, Signal::Continue),
        "end" => What::End(name(rest)?),
        "start" => match rest.split_once(' ') {
            None => What::Start {
                name: name(rest)?,
                empty: false,
            },
            Some((started, "empty")) => What::Start {
                name: name(started)?,
                empty: true,
            },
            Some(_) => return None,
        },
        "cut" => cut(rest)?,
        "hold" => What::Switch(name(rest)?, Switch::Held, true),
        "release" => What::Switch(name(rest)?, Switch::Held, false),
        "deny" => What::Switch(name(rest)?, Switch::Unclaimed, true),
        "allow" => What::Switch(name(rest)?, Switch::Unclaimed, false),
        "heal" => What::Heal,
        "acl" => acl(rest)?,
        "fill" => {
            let [filled, tag, count] = *rest.split(' ').collect::<Vec<_>>() else {
                return None;
            };
            What::Fill {
                name: name(filled)?,
                tag: tag.to_owned(),
                count: count.parse().ok()?,
            }
        }
        "slow" => {
            let (slowed, time) = rest.split_once(' ')?;
            What::Slow(name(slowed)?, span(time)?)
        }
        "wait" => What::Wait(span(rest)?),
        "mark" => What::Mark,
        "took" => {
            let (from, to) = rest.split_once("..")?;
            What::Took(span(from)?, span(to)?)
        }
        _ => question(line)?,
    })
}

fn cut(rest: &str) -> Option<What> {
    let (ends, ports) = match (rest.strip_suffix(" bus"), rest.strip_suffix(" client")) {
        (Some(ends), _) => (ends, vec![BUS_PORT]),
        (None, Some(ends)) => (ends, vec![PORT]),
        (None, None) => (rest, vec![PORT, BUS_PORT]),
    };
    let (from, to) = ends.split_once(' ')?;
    let (both, to) = match to.strip_prefix("to ") {
        Some(to) => (false, to),
        None => (true, to),
    };
    Some(What::Cut {
        from: name(from)?,
        to: name(to)?,
        both,
        ports,
    })
}

fn acl(rest: &str) -> Option<What> {
    let (edited, edit) = rest.split_once(' ')?;
    let (verb, line) = edit.split_once(' ')?;
    match verb {
        "add" => Some(What::AclAdd(name(edited)?, line.to_owned())),
        "drop" => Some(What::AclDrop(name(edited)?, line.to_owned())),
        _ => None,
    }
}

fn question(line: &str) -> Option<What> {
    let mut asked = Asked::of(&[], "");
    let mut settled = false;
    let mut rest = line;
    loop {
        let end = rest.find([' ', '>'])?;
        let (word, more) = rest.split_at(end);
        rest = &more[1..];
        if let Some(name) = name(word) {
            asked.who.push(name);
        } else if word == "until" {
            let (command, condition) = condition(rest)?;
            asked.command(command);
            return Some(What::Until { asked, condition });
        } else if word == "for" {
            let (time, rest) = rest.split_once(' ')?;
            let span = span(time)?;
            let (command, condition) = condition(rest)?;
            asked.command(command);
            return Some(What::For {
                asked,
                condition,
                span,
            });
        } else if word == "settled" {
            settled = true;
        } else if let Some(patience) = span(word) {
            asked.patience = patience;
        } else {
            word.clone_into(&mut asked.user);
        }
        if more.starts_with('>') {
            asked.command(rest.trim());
            return (!asked.who.is_empty()).then_some(What::Ask { asked, settled });
        }
    }
}

impl Asked {
    /// A question of the operator's.
    pub(crate) fn of(who: &[Name], command: &str) -> Self {
        let mut asked = Self {
            who: who.to_vec(),
            user: "operator".to_owned(),
            patience: PATIENCE,
            words: Vec::new(),
            picks: Vec::new(),
        };
        asked.command(command);
        asked
    }

    fn command(&mut self, text: &str) {
        let (command, picks) = text.split_once(" | ").unwrap_or((text, ""));
        self.words = words(command);
        self.picks = words(picks);
    }
}

fn condition(text: &str) -> Option<(&str, Condition)> {
    let split = |word: &str| {
        let (command, wanted) = text.split_once(word)?;
        Some((command, wanted.to_owned()))
    };
    let has = split(" has ").map(|(command, wanted)| (command, Condition::Has(wanted)));
    let lacks = || split(" lacks ").map(|(command, wanted)| (command, Condition::Lacks(wanted)));
    let is = || split(" is ").map(|(command, wanted)| (command, Condition::Is(wanted)));
    has.or_else(lacks).or_else(is)
}

fn name(word: &str) -> Option<Name> {
    let mut letters = word.chars();
    let name = letters.next()?;
    (letters.next().is_none() && name.is_ascii_lowercase()).then_some(name)
}

fn span(word: &str) -> Option<Duration> {
    if let Some(number) = word.strip_suffix("ms") {
        return number.parse().ok().map(Duration::from_millis);
    }
    let number = word.strip_suffix('s')?;
    number.parse().ok().map(Duration::from_secs_f64)
}

/// What stands before `with`, and the settings behind it.
fn with(rest: &str) -> (&str, Settings) {
    let (before, settings) = rest.split_once(" with ").unwrap_or((rest, ""));
    let words = words(settings);
    let pairs = words
        .chunks(2)
        .map(|pair| (pair[0].clone(), pair[1].clone()));
    (before, pairs.collect())
}

/// Split at spaces; what stands in double quotes is one word.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for (index, part) in text.split('"').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}
