//! The pages of docs: what must be findable is on them, and every link leads somewhere.
//! Never judges whether a page is right: a reader does, and a test that runs its commands.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::artifacts::read;
use crate::messages::PROMISED;
use crate::monitoring::rows;

const TROUBLESHOOTING: &str = "docs/troubleshooting.md";

fn names_in(folder: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(folder).expect("the folder is in the package");
    let names = entries.map(|entry| entry.expect("readable").file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// Warnings have a heading here; what needs no hand is in a table that the page links.
#[test]
fn each_warning_and_each_message_can_be_found_by_who_has_a_trouble() {
    let (page, tables) = (read(TROUBLESHOOTING), read("docs/monitoring.md"));
    let (_, warnings) = tables.split_once("\nWarnings:\n").expect("a table");
    let (warnings, _) = warnings
        .split_once("\nOrdinary reasons:\n")
        .expect("a table");
    let warnings = rows(warnings);
    assert!(warnings.len() > 20, "{warnings:?}");
    let headings: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("### "))
        .collect();
    for reason in warnings {
        let name = format!("`{reason}`");
        assert!(
            headings.iter().any(|heading| heading.contains(&name)),
            "no heading for {name}"
        );
    }
    for (message, _) in PROMISED {
        assert!(page.contains(&format!("`{message}`")), "{message}");
    }
}

#[test]
fn each_prepared_situation_is_shown_to_who_is_in_it() {
    let page = read(TROUBLESHOOTING);
    let situations = names_in("tests/fixtures/situations");
    assert!(situations.len() >= 20, "{situations:?}");
    for situation in situations {
        let link = format!("](../tests/fixtures/situations/{situation})");
        assert!(page.contains(&link), "{situation} is not linked");
    }
}

/// As GitHub names a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars()
        .filter(|c| c.is_alphanumeric() || "-_".contains(*c))
        .collect()
}

/// A link's target in a page of a folder, and the heading there.
fn broken(folder: &str, page: &str, link: &str) -> bool {
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(folder)
        .join(file);
    if !file.is_empty() && !path.exists() {
        return true;
    }
    let target = if file.is_empty() {
        page.to_owned()
    } else if heading.is_empty() {
        return false;
    } else {
        fs::read_to_string(path).expect("a page")
    };
    let mut headings = target.lines().filter(|line| line.starts_with('#'));
    !headings.any(|line| anchor(line.trim_start_matches('#').trim()) == heading)
}

#[test]
fn every_link_of_the_pages_leads_somewhere() {
    let docs = names_in("docs")
        .into_iter()
        .map(|name| ("docs", format!("docs/{name}")));
    let top = ["README.md", "ARCHITECTURE.md"].map(|name| (".", name.to_owned()));
    let mut seen = 0;
    for (folder, name) in docs.chain(top) {
        let page = read(&name);
        for rest in page.split("](").skip(1) {
            let link = rest.split(')').next().unwrap_or_default();
            if link.starts_with("http") {
                continue;
            }
            seen += 1;
            assert!(!broken(folder, &page, link), "{name}: {link}");
        }
    }
    assert!(seen > 50, "{seen} links");
}

/// What the health checks for Argo CD and Flux ask for is what a status has.
#[test]
fn health_checks_ask_for_fields_and_states_that_there_are() {
    let page = read("docs/operations.md");
    let (_, checks) = page
        .split_once("\n## Argo CD and Flux\n")
        .expect("a section");
    let (checks, _) = checks.split_once("\n## Deleting\n").expect("its end");
    let crds: serde_json::Value = serde_json::from_str(&read("crds/crds.json")).expect("JSON");
    let kinds = crds["items"].as_array().expect("kinds");
    let kind = kinds
        .iter()
        .find(|kind| kind["spec"]["names"]["kind"] == "ValkeyCluster");
    let schema = &kind.expect("the kind")["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let status = &schema["properties"]["status"]["properties"];
    let mut asked = BTreeSet::new();
    for rest in checks.split("status.").skip(1) {
        let end = rest
            .find(|c: char| !c.is_alphanumeric())
            .unwrap_or(rest.len());
        asked.insert(&rest[..end]);
    }
    assert_eq!(asked, BTreeSet::from(["message", "state", "targetSpec"]));
    for field in asked {
        assert!(status[field].is_object(), "a status has no {field}");
    }
    let states = status["state"]["enum"].as_array().expect("a closed list");
    for state in ["Active", "Invalid"] {
        assert!(
            checks.contains(state) && states.contains(&state.into()),
            "{state}"
        );
    }
}

#[test]
fn the_readme_lists_every_page() {
    let readme = read("README.md");
    for name in names_in("docs") {
        assert!(readme.contains(&format!("](docs/{name})")), "{name}");
    }
}
