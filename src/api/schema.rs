//! What the derives cannot say of a schema.
//! Never changes what an object may hold, only how the API server checks it.

use std::borrow::Cow;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// A valkey.conf directive map: at most 256 directives of at most 8192 characters, which is also
/// what the API server's budget for rules allows.
pub(super) fn directives(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 256,
        "additionalProperties": {"type": "string", "maxLength": 8192},
        "x-kubernetes-validations": [
            {
                "rule": "self.all(key, key.size() <= 128 \
                         && key.matches('^[a-zA-Z0-9][a-zA-Z0-9._-]*$'))",
                "message": "a directive's name must be one plain word of at most 128 letters, \
                            digits, dots, hyphens and underscores",
            },
            {
                "rule": "self.all(key, !self[key].contains('\\u0000'))",
                "message": "a directive's value must not contain a NUL character",
            },
            {
                "rule": "self.all(key, !(key.lowerAscii() in \
                         ['rename-command', 'loadmodule', 'user']) \
                         || !(self[key].contains('\\n') || self[key].contains('\\r')))",
                "message": "the value of rename-command, loadmodule and user must be one line",
            },
        ],
    })
}

/// What a node must be labelled with, as a pod's spec takes it.
pub(super) fn node_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": 63},
        "x-kubernetes-validations": [
            {"rule": format!("self.all(key, {})", qualified_name("a-z")), "message": NAME_MESSAGE},
            {
                "rule": "self.all(key, self[key] == '' || \
                         self[key].matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$'))",
                "message": "a label's value must hold only letters, digits, hyphens, underscores \
                            and dots, with a letter or digit at both ends",
            },
        ],
    })
}

/// Annotations that a pod can have.
pub(super) fn annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 256,
        "additionalProperties": {"type": "string", "maxLength": 262_144},
        "x-kubernetes-validations": [
            {
                "rule": "self.all(key, !key.lowerAscii().startsWith('valkey.gomomento.com/'))",
                "message": "the annotation prefix valkey.gomomento.com/ is reserved by the \
                            operator",
            },
            {
                "rule": format!("self.all(key, {})", qualified_name("A-Za-z")),
                "message": NAME_MESSAGE,
            },
        ],
    })
}

/// Which names of labels and annotations Kubernetes takes.
fn qualified_name(letters: &str) -> String {
    let word = format!("[{letters}0-9]([-{letters}0-9]*[{letters}0-9])?");
    format!(
        "key.size() <= 317 && key.indexOf('/') <= 253 && \
         key.matches('^({word}([.]{word})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$')"
    )
}

/// What is said of any other name.
const NAME_MESSAGE: &str = "a key must be at most 63 letters, digits, hyphens, underscores and \
                            dots, with a letter or digit at both ends, after an optional DNS name \
                            and a slash";

/// A Kubernetes quantity above zero, as a string or an integer.
///
/// Said in words that Kubernetes 1.27 knows: its rules cannot ask for a quantity yet.
pub(super) struct PositiveQuantity;

impl JsonSchema for PositiveQuantity {
    fn schema_name() -> Cow<'static, str> {
        "PositiveQuantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "maxLength": 32,
            "x-kubernetes-validations": [{
                "rule": "type(self) == int ? self > 0 : \
                         self.matches('^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)\
                         ([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,2})?$') \
                         && self.matches('^[+0.]*[1-9]')",
                "message": "must be a quantity above zero, such as 500m, 2 or 1Gi",
            }],
        })
    }

    fn inline_schema() -> bool {
        true
    }
}

/// Takes out what the derives say too much.
///
/// The rules of the status: only the operator writes it, from a spec that passed them, and they
/// would count twice against the API server's budget. Formats of unsigned integers: the API server
/// knows none and warns of each; the limits that stand beside them say the same. `nullable`: without
/// it the API server takes a null for what it means, nothing, and stores none.
pub(super) fn finish(definition: &mut CustomResourceDefinition) {
    for version in &mut definition.spec.versions {
        let schema = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut());
        let Some(schema) = schema else { continue };
        everywhere(schema, &|schema| {
            schema.format.take_if(|format| format.starts_with("uint"));
            schema.nullable = None;
        });
        let properties = schema.properties.as_mut();
        if let Some(status) = properties.and_then(|properties| properties.get_mut("status")) {
            everywhere(status, &|schema| schema.x_kubernetes_validations = None);
        }
    }
}

/// Changes a schema and every schema in it.
fn everywhere(schema: &mut JSONSchemaProps, change: &dyn Fn(&mut JSONSchemaProps)) {
    change(schema);
    let properties = schema
        .properties
        .iter_mut()
        .flat_map(|all| all.values_mut());
    properties.for_each(|property| everywhere(property, change));
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        everywhere(items, change);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        everywhere(values, change);
    }
}
