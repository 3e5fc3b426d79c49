//! What the derives cannot say of a schema.
//! Never changes what an object may hold, only how the API server checks it.

use std::borrow::Cow;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
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

/// A Kubernetes quantity above zero, as a string or an integer.
pub(super) struct PositiveQuantity;

impl JsonSchema for PositiveQuantity {
    fn schema_name() -> Cow<'static, str> {
        "PositiveQuantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-validations": [{
                "rule": "type(self) == int ? self > 0 \
                         : isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",
                "message": "must be a quantity above zero, such as 500m, 2 or 1Gi",
            }],
            "maxLength": 64,
        })
    }

    fn inline_schema() -> bool {
        true
    }
}

/// Takes the rules out of the status: only the operator writes it, from a spec that passed them,
/// and they would count twice against the API server's budget.
pub(super) fn finish(definition: &mut CustomResourceDefinition) {
    for version in &mut definition.spec.versions {
        let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
        let properties = schema.and_then(|schema| schema.properties.as_mut());
        if let Some(status) = properties.and_then(|properties| properties.get_mut("status")) {
            strip_rules(status);
        }
    }
}

fn strip_rules(schema: &mut JSONSchemaProps) {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
    };
    schema.x_kubernetes_validations = None;
    schema.properties.iter_mut().flat_map(|all| all.values_mut()).for_each(strip_rules);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        strip_rules(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        strip_rules(values);
    }
}
