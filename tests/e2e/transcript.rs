//! What somebody sees who asks of a cluster by kubectl alone, with all that differs from run to run taken out.
//! Never takes out a word that somebody would act on.

use crate::plugin::ask;
use crate::world::World;

/// As long as the random end of a node's name.
const SUFFIX: usize = 5;

/// What is asked of `c` in a namespace, and what comes back.
pub(crate) fn of(world: &World, namespace: &str) -> Result<String, String> {
    let kubectl = |words: &[&str]| {
        let object = ["valkeycluster", "c", "-n", namespace];
        let words = words.iter().chain(&object);
        let told = world.stage.testbed.kubectl(words);
        told.map_err(|error| error.to_string())
    };
    let plugin = |word: &str| {
        let said = ask(world, &[word, "c", "-n", namespace]);
        format!("{}{}", said.out, said.err)
    };
    let described = kubectl(&["describe"])?;
    let sections = [
        ("kubectl get valkeycluster c", stable(&kubectl(&["get"])?)),
        (
            "kubectl describe valkeycluster c",
            status_and_events(&described),
        ),
        ("kubectl valkey status c", stable(&plugin("status"))),
        ("kubectl valkey plan c", stable(&plugin("plan"))),
    ];
    let sections = sections.map(|(command, told)| format!("$ {command}\n{told}"));
    Ok(sections.join("\n"))
}

/// The end of a description: what comes before repeats the manifest.
fn status_and_events(described: &str) -> String {
    let begin = described
        .find("\nStatus:")
        .or_else(|| described.find("\nEvents:"));
    let (_, end) = described.split_at(begin.map_or(0, |at| at + 1));
    let (status, events) = end.split_once("Events:").unwrap_or((end, ""));
    let mut events: Vec<String> = events.lines().filter_map(event).collect();
    // Those of one second come in any order, and one that was told twice is one.
    events.sort();
    events.dedup();
    format!("...\n{}Events:\n{}\n", stable(status), events.join("\n"))
}

/// Its type, reason and message: not its age, nor who reports.
fn event(line: &str) -> Option<String> {
    let mut cells = line
        .trim()
        .split("  ")
        .map(str::trim)
        .filter(|cell| !cell.is_empty());
    let (weight, reason) = (cells.next()?, cells.next()?);
    let (_age, _reporter) = (cells.next()?, cells.next()?);
    let message: Vec<&str> = cells.collect();
    let is_event = weight == "Normal" || weight == "Warning";
    is_event.then(|| {
        format!(
            "  {weight}  {reason}  {}",
            stable_words(&message.join("  "))
        )
    })
}

/// How far the plugin indents what does not fit into a line.
const CONTINUED: &str = "\n        ";

/// What the kubelet says between two attempts, around what it says after each.
const BETWEEN: (&str, &str) = (
    "ImagePullBackOff: Back-off pulling image ",
    "ErrImagePull: ",
);

fn stable(text: &str) -> String {
    let text = text.replace(CONTINUED, " ");
    let lines = text.lines().map(|line| {
        let indent = &line[..line.len() - line.trim_start().len()];
        let mut line = stable_words(line.trim_start());
        if is_row_of_node(&line) {
            line = without_counts(&line);
        }
        format!("{indent}{line}\n")
    });
    lines.collect()
}

/// One blank between words: how wide a column is depends on what is in it.
fn stable_words(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let told = words.iter().enumerate().map(|(at, word)| {
        let unit = words.get(at + 1).copied().unwrap_or_default();
        stable_word(word, unit)
    });
    let line = told.collect::<Vec<_>>().join(" ");
    let (wait, attempt) = BETWEEN;
    match (line.find(wait), line.find(attempt)) {
        (Some(from), Some(to)) if from < to => format!("{}{}", &line[..from], &line[to..]),
        _ => line,
    }
}

/// A word with the one after it, which may be its unit.
fn stable_word(word: &str, unit: &str) -> String {
    let core = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let is_number = core.starts_with(|c: char| c.is_ascii_digit());
    let unit = unit.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let name = if let Some(node) = node_in(core) {
        return word.replace(&node, "c-<node>");
    } else if core.len() == 40 && core.chars().all(|c| c.is_ascii_hexdigit()) {
        "<id>"
    } else if core.split('.').count() == 4 && is_number {
        "<address>"
    } else if ["node-1", "node-2", "node-3"].contains(&core) {
        "<machine>"
    } else if is_number && core.contains("Mi/") {
        "<used>/48.0Mi"
    } else if is_number && ["s", "ms", "MiB", "bytes"].contains(&unit) || is_age(core) {
        "<n>"
    } else {
        return word.to_owned();
    };
    word.replace(core, name)
}

/// The name of a node in a word: of its pod, its ConfigMap, or with what it is the subject of.
fn node_in(word: &str) -> Option<String> {
    let end = word.strip_prefix("c-")?;
    let suffix = end.get(..SUFFIX)?;
    let is_random = suffix.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    let is_whole = !end[SUFFIX..].starts_with(|c: char| c.is_ascii_alphanumeric());
    (is_random && is_whole).then(|| format!("c-{suffix}"))
}

fn is_age(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_digit() || "smh".contains(c);
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(['s', 'm', 'h'])
        && word.chars().all(is_part)
}

/// Shard, node, role, lifecycle, and what is counted.
fn is_row_of_node(line: &str) -> bool {
    let mut words = line.split(' ');
    let shard = words.next().is_some_and(|word| word.parse::<u32>().is_ok());
    shard && words.next() == Some("c-<node>")
}

fn without_counts(line: &str) -> String {
    let mut words = line.split(' ');
    let shard = words.next().unwrap_or_default();
    let rest = words.map(|word| match word {
        "a" | "b" | "c" => "<zone>",
        word if word.parse::<u64>().is_ok() => "<n>",
        word => word,
    });
    [shard]
        .into_iter()
        .chain(rest)
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn what_differs_from_run_to_run_is_taken_out() {
    let told = "0  c-1a2b3  primary  Active  146156  3341  3.4Mi/48.0Mi  node-3  c\n\
                member 07c37dfeb235213a872192d90877d0cd55635b91 at 10.1.0.7:6379 took 180 ms\n";
    assert_eq!(
        stable(told),
        "0 c-<node> primary Active <n> <n> <used>/48.0Mi <machine> <zone>\n\
         member <id> at <address> took <n> ms\n"
    );
    let described = "Name: c\nSpec:\n  Shards: 1\nStatus:\n  State:  Active\nEvents:\n  Type  Reason  Age  From  \
                     Message\n  ----  ------  ---  ----  -------\n  Warning  Menu  5s (x2 over 9s)  valkey-operator  \
                     ValkeyImage \"i\" not found\n";
    assert_eq!(
        status_and_events(described),
        "...\nStatus:\n  State: Active\nEvents:\n  Warning  Menu  ValkeyImage \"i\" not found\n"
    );
    assert_eq!(
        stable_words("c-1a2b3-config c-config 25s"),
        "c-<node>-config c-config <n>"
    );
}
