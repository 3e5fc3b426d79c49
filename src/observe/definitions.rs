//! The five kinds as they are served, beside what this release knows of them.
//! Never changes a definition: whoever installs the release does.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use crate::api;
use crate::observe::Error;

/// One kind, and how it is served.
#[derive(Debug)]
pub struct Compared {
    /// The kind.
    pub kind: String,
    /// What this release has and the served definition lacks: fields by their path, and rules.
    /// Nothing where it is not served at all.
    pub lacks: Result<Option<BTreeSet<String>>, Error>,
}

/// Reads every definition by its name.
pub async fn compare(client: &Client) -> Vec<Compared> {
    let mut compared = Vec::new();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for ours in api::definitions() {
        let name = ours.name_any();
        let served = definitions.get_opt(&name).await;
        let served = served.map_err(|source| Error::Read {
            kind: "CustomResourceDefinition",
            name,
            source: Box::new(source),
        });
        compared.push(Compared {
            kind: ours.spec.names.kind.clone(),
            lacks: served.map(|served| served.map(|served| lacks(&ours, &served))),
        });
    }
    compared
}

/// What one definition has and another lacks.
fn lacks(ours: &CustomResourceDefinition, served: &CustomResourceDefinition) -> BTreeSet<String> {
    let (ours, served) = (content(ours), content(served));
    ours.difference(&served).cloned().collect()
}

fn content(definition: &CustomResourceDefinition) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for version in &definition.spec.versions {
        let schema = version.schema.as_ref();
        let schema = schema.and_then(|schema| schema.open_api_v3_schema.as_ref());
        if let Ok(schema) = serde_json::to_value(schema) {
            walk(&schema, &version.name, &mut found);
        }
    }
    found
}

fn walk(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let fields = schema.get("properties").and_then(Value::as_object);
    for (name, field) in fields.into_iter().flatten() {
        let path = format!("{path}.{name}");
        walk(field, &path, found);
        found.insert(path);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(inner) {
            walk(inner, &format!("{path}[]"), found);
        }
    }
    let rules = schema.get("x-kubernetes-validations");
    for rule in rules.and_then(Value::as_array).into_iter().flatten() {
        if let Some(rule) = rule.get("rule").and_then(Value::as_str) {
            found.insert(format!("{path} ({rule})"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(change: impl Fn(&mut Value)) -> Vec<String> {
        let ours = &api::definitions()[1];
        let mut served = serde_json::to_value(ours).unwrap();
        change(&mut served);
        let served = serde_json::from_value(served).unwrap();
        lacks(ours, &served).into_iter().collect()
    }

    const SPEC: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";

    #[test]
    fn a_definition_of_an_earlier_release_lacks_its_newer_fields() {
        let without = |served: &mut Value| {
            let fields = &mut served.pointer_mut(SPEC).unwrap()["properties"];
            fields.as_object_mut().unwrap().remove("imageRef");
        };
        assert_eq!(changed(without), ["v1alpha1.spec.imageRef"]);
    }

    #[test]
    fn a_rule_that_is_not_served_is_missed_and_a_newer_field_is_not() {
        let without = |served: &mut Value| {
            let spec = served.pointer_mut(SPEC).unwrap();
            spec["properties"]["tomorrow"] = serde_json::json!({"type": "string"});
            spec["properties"]["acl"]["x-kubernetes-validations"] = Value::Null;
        };
        let lacks = changed(without);
        assert!(!lacks.is_empty());
        assert!(
            lacks
                .iter()
                .all(|one| one.starts_with("v1alpha1.spec.acl (")),
            "{lacks:?}"
        );
    }
}
