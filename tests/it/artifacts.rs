//! Files that are generated, each held equal to what the source says.
//! `make bless` rewrites them; a plain run refuses a difference.

use expect_test::expect_file;
use operator::api;
use serde_json::{Value, json};

/// What `kubectl apply -f crds/crds.json` installs.
#[test]
fn crds() {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": api::definitions() });
    expect_file!["../../crds/crds.json"].assert_eq(&pretty(&list));
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
