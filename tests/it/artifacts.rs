//! Files that are made from the code, held equal to it.
//! Never edited by hand: `make bless` writes them.

use std::fs;
use std::path::Path;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use operator::api;
use serde_json::{Value, json};

#[test]
fn crds_json_holds_the_five_kinds() {
    equals("crds/crds.json", &pretty(&definitions()));
}

#[test]
fn printer_columns_are_the_documented_ones() {
    let columns: Vec<String> = api::definitions().iter().map(columns).collect();
    let documented = [
        "ValkeyImage Cluster: Repository .spec.repository, Tag .spec.tag, Version .spec.version",
        "ValkeyConfig Cluster: ImageRef .spec.imageRef, BaseRef .spec.baseRef",
        "ValkeyRole Cluster: Age .metadata.creationTimestamp",
        "ValkeyCluster Namespaced: Config .spec.configRef, Shards .spec.shards, \
         Replicas .spec.replicasPerShard, State .status.state",
        "ValkeyNode Namespaced: Cluster .spec.clusterName, Image .spec.image, \
         Lifecycle .spec.lifecycle",
    ];
    assert_eq!(columns, documented);
}

fn columns(definition: &CustomResourceDefinition) -> String {
    let version = &definition.spec.versions[0];
    let columns = version.additional_printer_columns.iter().flatten();
    let columns: Vec<String> = columns
        .map(|column| format!("{} {}", column.name, column.json_path))
        .collect();
    let spec = &definition.spec;
    format!("{} {}: {}", spec.names.kind, spec.scope, columns.join(", "))
}

/// One object, so that one `kubectl apply -f` installs all five.
fn definitions() -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": api::definitions()})
}

fn pretty(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("JSON prints");
    text.push('\n');
    text
}

/// Holds a file of the package equal to what the code makes, or writes it where asked to.
fn equals(path: &str, made: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var("UPDATE_EXPECT").is_ok_and(|value| value == "1") {
        fs::write(&file, made).expect("the file can be written");
        return;
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    if kept == made {
        return;
    }
    let mut lines = kept.lines().zip(made.lines()).enumerate();
    let (number, (kept, made)) = lines
        .find(|(_, (kept, made))| kept != made)
        .unwrap_or((0, ("(shorter)", "(longer)")));
    panic!(
        "{path} is not what the code makes: `make bless` writes it anew\n\
         line {}\n  kept: {kept}\n  made: {made}",
        number + 1
    );
}
