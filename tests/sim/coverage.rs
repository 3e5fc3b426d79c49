//! Which actions, reasons and errors of the operator came up in the swarm.
//! Never satisfied by silence: what is not reached is excused by name, and an excuse that is not needed
//! any more fails too.

use std::collections::BTreeSet;

/// The closed lists, by the word that the log has for them, their file and their name.
const LISTS: &[(&str, &str, &str)] = &[
    (
        "action",
        include_str!("../../src/model/decision.rs"),
        "Action",
    ),
    ("why", include_str!("../../src/model/why.rs"), "Why"),
    ("error", include_str!("../../src/act.rs"), "Error"),
    ("error", include_str!("../../src/observe.rs"), "Error"),
    ("error", include_str!("../../src/valkey/client.rs"), "Error"),
];

/// What no run of the swarm reaches, and why.
const EXCUSED: &[(&str, &str)] = &[
    ("action Failover", ROLLS),
    ("action ForceFailover", LOST_VOTES),
    ("action Invalidate", TLS),
    ("action Reset", OTHERS),
    ("error Call", REPLIES),
    ("error Encode", NEVER),
    ("error Incomplete", NEVER),
    ("error Login", OTHERS),
    ("error Menu", NEVER),
    ("error Reply", REPLIES),
    ("error Unknown", NEVER),
    ("why AclRefused", ROLLS),
    ("why ConfigMapForeign", OTHERS),
    ("why DrainTooLarge", ROLLS),
    ("why ElectionLost", LOST_VOTES),
    ("why FailingOver", ROLLS),
    ("why ForeignMember", OTHERS),
    ("why Hung", REPLIES),
    ("why Inconsistent", NEVER),
    ("why Lagging", ROLLS),
    ("why MigrationFailed", ROLLS),
    (
        "why NodeStep",
        "a node's controller does not tell its decisions",
    ),
    ("why PasswordsLost", OTHERS),
    ("why PodForeign", OTHERS),
    ("why SlotsClaimedTwice", LOST_VOTES),
    ("why Survivor", OTHERS),
    ("why TargetUnready", ROLLS),
    ("why TlsInvalid", TLS),
    ("why TlsLapsed", TLS),
    ("why TlsUnusable", TLS),
    ("why TlsValid", TLS),
    ("why Unschedulable", "every host of the swarm has room"),
];

const ROLLS: &str =
    "the swarm changes no good image, setting or memory yet: unit tests and the real suites do";
const LOST_VOTES: &str = "no fault of the swarm lets a standing quorum lose its elections";
const OTHERS: &str = "nobody else makes objects or processes of our names in the swarm";
const REPLIES: &str =
    "a modelled process answers well or is not reached, and none hangs for a minute";
const TLS: &str = "the swarm asks for no TLS: unit tests and the real suites do";
const NEVER: &str = "says that an invariant of ours is broken";

/// Says what was reached, and fails for what was not.
pub(crate) fn report(seen: &BTreeSet<String>, all_usual: bool) {
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
    let excused: BTreeSet<String> = EXCUSED.iter().map(|(name, _)| (*name).to_owned()).collect();
    let missing: Vec<&String> = all
        .difference(seen)
        .filter(|name| !excused.contains(*name))
        .collect();
    let needless: Vec<&String> = excused.intersection(seen).collect();
    println!(
        "swarm: {} of {} actions, reasons and errors came up, {} are excused; not reached: {missing:?}",
        all.intersection(seen).count(),
        all.len(),
        excused.len()
    );
    // Other runs than the usual ones reach other things.
    if all_usual {
        assert!(missing.is_empty(), "never reached: {missing:?}");
        assert!(needless.is_empty(), "excused and reached: {needless:?}");
    }
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
