//! Which actions, reasons and errors of the operator came up in the swarm.
//! Never satisfied by silence: what is not reached is excused by name, and what must never come up fails
//! where it does.

use std::collections::BTreeSet;

/// The closed lists, by the word that the log has for them, their file and their name.
const LISTS: &[(&str, &str, &str)] = &[
    (
        "action",
        include_str!("../../src/model/decision.rs"),
        "Action",
    ),
    (
        "action",
        include_str!("../../src/model/decision.rs"),
        "NodeAction",
    ),
    ("why", include_str!("../../src/model/why.rs"), "Why"),
    ("error", include_str!("../../src/act.rs"), "Error"),
    ("error", include_str!("../../src/observe.rs"), "Error"),
    ("error", include_str!("../../src/valkey/client.rs"), "Error"),
];

/// What no run reaches: it says that an invariant of ours is broken.
const NEVER: &[&str] = &[
    "error Encode",
    "error Incomplete",
    "error Menu",
    "error Unknown",
    "why Inconsistent",
];

/// What takes so much to come about that only some thousands of runs are sure to show it: unit tests and the
/// real suites do too.
const RARE: &[&str] = &[
    "action BumpEpoch",
    "action ForceFailover",
    "action Reset",
    "error Call",
    "error Login",
    "error Reply",
    "why AclRefused",
    "why ConfigMapForeign",
    "why DrainTooLarge",
    "why ElectionLost",
    "why EpochLow",
    "why ForeignMember",
    "why Hung",
    "why Lagging",
    "why MigrationFailed",
    "why PasswordsLost",
    "why PodForeign",
    "why SlotsClaimedTwice",
    "why Survivor",
    "why TargetUnready",
];

/// The swarm asks for no TLS; crash points and regressions do, and unit tests judge each certificate.
const TLS: &[&str] = &[
    "action Invalidate",
    "why TlsInvalid",
    "why TlsLapsed",
    "why TlsUnusable",
    "why TlsValid",
];

/// Says what was reached, and fails for what was not.
pub(crate) fn report(seen: &BTreeSet<String>, enough: bool) {
    let all: BTreeSet<String> = LISTS
        .iter()
        .flat_map(|(word, text, list)| {
            let variants = variants(text, list);
            variants
                .into_iter()
                .map(move |variant| format!("{word} {variant}"))
        })
        .collect();
    assert!(
        all.len() > 60,
        "the lists are not found where they should be"
    );
    let of = |names: &[&str]| -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    };
    let (never, rare) = (of(NEVER), of(RARE));
    let unreached: BTreeSet<String> = all.difference(seen).cloned().collect();
    let missing: Vec<&String> = unreached
        .iter()
        .filter(|name| !never.contains(*name) && !rare.contains(*name))
        .filter(|name| !TLS.contains(&name.as_str()))
        .collect();
    let broken: Vec<&String> = never.intersection(seen).collect();
    let absent: Vec<&String> = unreached.intersection(&rare).collect();
    println!(
        "swarm: {} of {} actions, reasons and errors came up, {} never may; rare and not reached: {absent:?}; not reached: {missing:?}",
        all.intersection(seen).count(),
        all.len(),
        never.len(),
    );
    // A few runs do not reach everything.
    if enough {
        assert!(missing.is_empty(), "never reached: {missing:?}");
    }
    assert!(broken.is_empty(), "must never come up: {broken:?}");
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

#[test]
fn lists_are_read_as_they_are_written() {
    let text = "x\npub enum List {\n    /// One.\n    One,\n    Two(u8),\n    Three {\n        Four: u8,\n    },\n}\n    Five,\n";
    let names: Vec<String> = variants(text, "List").into_iter().collect();
    assert_eq!(names, ["One", "Three", "Two"]);
}
