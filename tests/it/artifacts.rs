//! Generated files are what the code generates.
//! Never written by hand: `make bless` writes them.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// Compares a file of the package with its new content; `make bless` rewrites it.
fn check(file: &str, new: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, new).expect("the package is writable");
    }
    let old = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        old == new,
        "{file} is not what the code generates: run `make bless`"
    );
}

#[test]
fn crds_json_is_generated() {
    let items: Vec<Value> = operator::api::definitions()
        .iter()
        .map(|definition| serde_json::to_value(definition).expect("a definition is JSON"))
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let text = serde_json::to_string_pretty(&list).expect("JSON") + "\n";
    check("crds/crds.json", &text);
}
