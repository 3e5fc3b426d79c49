//! The table of promises names tests that exist, and leaves no number out.
//! Never judges whether a test shows what its row says: a reader does.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::artifacts::read;
use crate::mutants::table::MUTANTS;
use crate::tidy::sources;

/// What each row may name.
struct Known {
    tests: BTreeSet<String>,
    rows: String,
    mutants: BTreeSet<&'static str>,
}

impl Known {
    fn read() -> Self {
        let texts = ["src", "tests"].into_iter().flat_map(sources);
        let tests = texts.flat_map(|source| tests(&source.text)).collect();
        Self {
            tests,
            rows: read("tests/e2e/crds/rows.rs"),
            mutants: MUTANTS.iter().map(|mutant| mutant.name).collect(),
        }
    }

    /// What is wrong with one name.
    fn fault(&self, name: &str) -> Option<String> {
        if let Some(row) = name.strip_prefix('"') {
            let begin = format!("(\"{row},");
            return (!self.rows.contains(&begin)).then(|| format!("no row {name}"));
        }
        let plain = name.trim_matches('`');
        let known = match plain.strip_prefix("mutant ") {
            Some(mutant) => self.mutants.contains(mutant),
            None => self.tests.contains(plain),
        };
        (!known).then(|| format!("no test {name}"))
    }
}

/// The functions that a test harness runs.
fn tests(text: &str) -> Vec<String> {
    let (mut found, mut marked) = (Vec::new(), false);
    for line in text.lines().map(str::trim) {
        if line == "#[test]" || line.starts_with("#[tokio::test") {
            marked = true;
        } else if let Some((_, rest)) = line.split_once("fn ")
            && marked
        {
            let name = rest.split('(').next().unwrap_or_default();
            found.push(name.to_owned());
            marked = false;
        }
    }
    found
}

#[test]
fn every_sentence_has_a_test() {
    let table = read("tests/sentences.md");
    let known = Known::read();
    let (mut wrong, mut rows, mut last) = (String::new(), 0, (String::new(), 0));
    for line in table.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [id, promise, tests] = cells[..] else {
            writeln!(wrong, "not three cells: {line}").expect("a String takes all");
            continue;
        };
        if id == "Sentence" || id == "Row" {
            continue;
        }
        rows += 1;
        let family = id.trim_end_matches(|c: char| c.is_ascii_digit());
        let number: u32 = id
            .strip_prefix(family)
            .and_then(|digits| digits.parse().ok())
            .unwrap_or_default();
        // The known bugs have the numbers of their list, of which these are some.
        let next = if family == last.0 { last.1 + 1 } else { 1 };
        if number != next && family != "B" || promise.is_empty() || tests.is_empty() {
            writeln!(wrong, "{id} is out of its turn, or empty").expect("a String takes all");
        }
        last = (family.to_owned(), number);
        for fault in tests
            .split(", ")
            .filter_map(|name| known.fault(name.trim()))
        {
            writeln!(wrong, "{id}: {fault}").expect("a String takes all");
        }
    }
    assert!(wrong.is_empty() && rows > 0, "\n{wrong}");
}
