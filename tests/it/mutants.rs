//! Every bug that can be put back still has its place in the code. Never puts one back: that takes
//! minutes, and `make mutants` does it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

#[path = "../mutants/lib.rs"]
pub(crate) mod table;

#[test]
fn every_mutant_has_its_place() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut wrong, mut names) = (String::new(), BTreeSet::new());
    for mutant in table::MUTANTS {
        let name = mutant.name;
        if !names.insert(name) {
            writeln!(wrong, "{name}: the name is taken").unwrap();
        }
        if mutant.story.is_empty() || mutant.noticed_by.is_empty() || mutant.edits.is_empty() {
            writeln!(wrong, "{name}: says nothing").unwrap();
        }
        for edit in mutant.edits {
            let text = fs::read_to_string(root.join(edit.file)).unwrap_or_default();
            let places = text.matches(edit.text).count();
            if places != 1 {
                writeln!(
                    wrong,
                    "{name}: occurs {places} times in {}:\n{}",
                    edit.file, edit.text
                )
                .unwrap();
            }
            if edit.text == edit.replacement {
                writeln!(wrong, "{name}: changes nothing").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
