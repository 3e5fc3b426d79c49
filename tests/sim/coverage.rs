//! Which rungs, actions, reasons and errors of the operator came up.
//! Never satisfied by silence: what the swarm does not reach is reached by a run that is kept for it (`kept.rs`),
//! or named here with the reason why nothing can.

use std::collections::BTreeSet;

use crate::kept::kept;

const DECISION: &str = include_str!("../../src/model/decision.rs");

/// The closed lists, by the word that the log has for them, their file and their name.
const LISTS: &[(&str, &str, &str)] = &[
    ("action", DECISION, "Action"),
    ("action", DECISION, "NodeAction"),
    ("why", include_str!("../../src/model/why.rs"), "Why"),
    ("error", include_str!("../../src/act.rs"), "Error"),
    ("error", include_str!("../../src/observe.rs"), "Error"),
    ("error", include_str!("../../src/valkey/client.rs"), "Error"),
];

/// The rungs of all ladders.
const RUNGS: &str = include_str!("../../src/decide.rs");

/// What comes up only where an invariant of ours is broken, and which.
const NEVER: &[(&str, &str)] = &[
    (
        "error Encode",
        "what was read from JSON can be written as JSON",
    ),
    (
        "error Incomplete",
        "an API server sets uid and name of whatever it stores",
    ),
    (
        "error Menu",
        "no rung below the menu's takes an action without a menu",
    ),
    ("error Unknown", "an action names what the World has"),
    ("why Inconsistent", "facts do not contradict each other"),
];

/// Says what was reached, and fails for what must not be.
pub(crate) fn report(seen: &BTreeSet<String>) {
    let all = all();
    let unreached: Vec<&String> = all.difference(seen).collect();
    println!(
        "swarm: {} of {} rungs, actions, reasons and errors came up; not {unreached:?}",
        all.intersection(seen).count(),
        all.len(),
    );
    let broken = NEVER.iter().filter(|(name, _)| seen.contains(*name));
    let broken: Vec<_> = broken.collect();
    assert!(broken.is_empty(), "must never come up: {broken:?}");
}

/// Fails for what neither those runs reached nor one that is kept.
pub(crate) fn demand(seen: &BTreeSet<String>) {
    let excused = excused();
    let mut missing = all();
    missing.retain(|name| !seen.contains(name) && !excused.contains(name.as_str()));
    assert!(missing.is_empty(), "never reached: {missing:?}");
}

/// What the swarm need not reach.
fn excused() -> BTreeSet<&'static str> {
    let kept = kept().into_iter().flat_map(|run| run.names);
    let never = NEVER.iter().map(|(name, _)| name);
    kept.chain(never).copied().collect()
}

/// Everything that there is to be reached.
fn all() -> BTreeSet<String> {
    let lists = LISTS.iter().flat_map(|(word, text, list)| {
        let variants = variants(text, list).into_iter();
        variants.map(move |variant| format!("{word} {variant}"))
    });
    let rungs = rungs(RUNGS).map(|rung| format!("rung {rung}"));
    lists.chain(rungs).collect()
}

/// The names of an enum's variants, as rustfmt writes them.
fn variants(text: &str, list: &str) -> BTreeSet<String> {
    let head = format!("pub enum {list} {{");
    let body = text.lines().skip_while(|line| *line != head).skip(1);
    let lines = body.take_while(|line| *line != "}");
    lines
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()))
        .map(|line| {
            let name = line.split(|character: char| !character.is_alphanumeric());
            name.into_iter().next().unwrap_or_default().to_owned()
        })
        .collect()
}

/// The names of rungs: the first text of each `Rung::new`.
fn rungs(text: &str) -> impl Iterator<Item = &str> {
    let made = text.split("Rung::new(").skip(1);
    made.filter_map(|made| made.split('"').nth(1))
}

#[test]
fn what_is_excused_is_there() {
    let all = all();
    for name in excused() {
        assert!(all.contains(name), "{name} is nothing that could come up");
    }
}

#[test]
fn lists_are_read_as_they_are_written() {
    let text = "x\npub enum List {\n    /// One.\n    One,\n    Two(u8),\n    Three {\n        Four: u8,\n    },\n}\n    Five,\n";
    let names: Vec<String> = variants(text, "List").into_iter().collect();
    assert_eq!(names, ["One", "Three", "Two"]);
    let text = "Rung::new(\"a\", \"b\", c),\nRung::new(\n    \"d e\",\n    \"f\",\n    g,\n),\n";
    assert_eq!(rungs(text).collect::<Vec<_>>(), ["a", "d e"]);
    assert!(
        all().len() > 100,
        "the lists are not found where they should be"
    );
}
