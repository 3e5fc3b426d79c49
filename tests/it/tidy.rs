//! The house's own rules, held by reading the source as text: who may import whom, purity, words.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Who may import whom. A module may always use itself.
const IMPORTS: &[(&str, &[&str])] = &[
    ("api", &[]),
    ("telemetry", &[]),
    ("settings", &["api"]),
    ("model", &["api"]),
    ("resolve", &["api", "model"]),
    ("decide", &["api", "model"]),
    ("render", &["api", "model"]),
    ("valkey", &["model"]),
    ("observe", &["api", "model", "valkey"]),
    ("act", &["api", "model", "render", "valkey"]),
    (
        "controller",
        &[
            "api", "model", "resolve", "decide", "observe", "act", "metrics", "settings", "valkey",
        ],
    ),
    ("metrics", &["api", "model"]),
    ("serve", &["metrics"]),
    ("plugin", &["api", "model", "observe", "resolve", "decide"]),
    ("bin", &["plugin"]),
    ("lib", &[]),
    (
        "main",
        &[
            "controller",
            "metrics",
            "model",
            "serve",
            "settings",
            "telemetry",
            "valkey",
        ],
    ),
];

/// Rooms whose outcome must follow from their input alone, and what would break that.
const PURE: &[&str] = &["api", "model", "resolve", "decide", "render"];
const IMPURE: &[&str] = &[
    "async ",
    ".await",
    "SystemTime::now",
    "Instant::now",
    "rand::",
    "tracing::",
    "tokio::",
    "std::env",
    "std::fs",
    "kube::Client",
];

/// Names that say nothing, or that nobody would check otherwise.
const BANNED_FILES: &[&str] = &[
    "utils", "util", "common", "helpers", "helper", "misc", "manager",
];
const BANNED_WORDS: &[&str] = &[
    "maybe_",
    "opt_",
    "fn test_",
    "use crate::{",
    "#[allow(",
    "#[ignore",
];

pub(crate) struct Source {
    path: PathBuf,
    room: String,
    pub(crate) text: String,
}

/// Every Rust file below a folder of the package.
pub(crate) fn sources(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder is in the package") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let inside = path
                    .strip_prefix(root)
                    .expect("below the package")
                    .to_path_buf();
                let first = inside.iter().nth(1).expect("a file below a folder");
                let room = first.to_string_lossy().trim_end_matches(".rs").to_owned();
                let text = fs::read_to_string(&path).expect("UTF-8 source");
                found.push(Source {
                    path: inside,
                    room,
                    text,
                });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Lines with their numbers, without comments.
fn code(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    let lines = source.text.lines().enumerate();
    lines.map(|(number, line)| (number + 1, line.split("//").next().unwrap_or_default()))
}

fn refuse(violations: &str) {
    assert!(violations.is_empty(), "\n{violations}");
}

#[test]
fn rooms_import_only_what_the_table_allows() {
    let table: BTreeMap<&str, &[&str]> = IMPORTS.iter().copied().collect();
    let mut violations = String::new();
    for source in sources("src") {
        let Some(allowed) = table.get(source.room.as_str()) else {
            writeln!(
                violations,
                "{}: room is not in the table",
                source.path.display()
            )
            .unwrap();
            continue;
        };
        for (number, line) in code(&source) {
            for root in ["crate::", "operator::"] {
                for (at, _) in line.match_indices(root) {
                    let rest = &line[at + root.len()..];
                    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                    let room = &rest[..end.unwrap_or(rest.len())];
                    if table.contains_key(room) && room != source.room && !allowed.contains(&room) {
                        let path = source.path.display();
                        writeln!(
                            violations,
                            "{path}:{number}: {} imports {room}",
                            source.room
                        )
                        .unwrap();
                    }
                }
            }
        }
    }
    refuse(&violations);
}

#[test]
fn pure_rooms_have_no_clock_no_chance_and_no_io() {
    let mut violations = String::new();
    for source in sources("src")
        .iter()
        .filter(|source| PURE.contains(&source.room.as_str()))
    {
        for (number, line) in code(source) {
            for word in IMPURE.iter().filter(|word| line.contains(*word)) {
                writeln!(violations, "{}:{number}: {word}", source.path.display()).unwrap();
            }
        }
    }
    refuse(&violations);
}

#[test]
fn files_and_names_say_what_they_are() {
    let mut violations = String::new();
    for source in sources("src").iter().chain(&sources("tests")) {
        let path = source.path.display();
        let stem = source
            .path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if BANNED_FILES.contains(&stem.as_str()) {
            writeln!(violations, "{path}: a file's name says what is in it").unwrap();
        }
        if !source.text.starts_with("//!") {
            writeln!(violations, "{path}: begins without saying what it does").unwrap();
        }
        for (number, line) in code(source).filter(|_| stem != "tidy") {
            for word in BANNED_WORDS.iter().filter(|word| line.contains(*word)) {
                writeln!(violations, "{path}:{number}: {word}").unwrap();
            }
        }
    }
    refuse(&violations);
}

#[test]
fn source_modules_say_what_they_never_do() {
    let mut violations = String::new();
    for source in sources("src") {
        let head = source
            .text
            .lines()
            .take_while(|line| line.starts_with("//!"));
        let head: Vec<&str> = head.collect();
        if !head
            .iter()
            .any(|line| line.contains("Never") || line.contains("never"))
        {
            writeln!(violations, "{}: says no absence", source.path.display()).unwrap();
        }
    }
    refuse(&violations);
}
