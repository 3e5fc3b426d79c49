//! What the derives cannot say of a schema, and how the generated one is made fit to install.
//! Never changes what an object may hold, only how the API server checks it.
//!
//! Rules use what the CEL of Kubernetes 1.27 knows: no `quantity()`, no `fieldPath`, no `reason`.
//! The API server refuses a definition whose rules could cost too much, by an estimate from the
//! schema's limits: where a limit below has no reason of its own, that estimate is its reason.

use std::borrow::Cow;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrBool;
use schemars::JsonSchema;
use schemars::Schema;
use schemars::SchemaGenerator;
use schemars::json_schema;
use serde::Deserialize;
use serde::Deserializer;
use serde_json::Value;
use serde_json::json;

/// A rule and what the API server says where it does not hold.
type Rule = (&'static str, &'static str);

/// On a cluster as a whole.
pub(super) const CLUSTER_NAME: Rule = (
    "self.metadata.name.size() <= 57 \
     && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    "name must be 1 to 57 lowercase letters, digits or hyphens, begin with a letter and not end \
     with a hyphen",
);

/// On a cluster's spec, at an update.
pub(super) const TLS_PRESENCE: Rule = (
    "has(self.tls) == has(oldSelf.tls)",
    "tls can be neither added to nor removed from an existing cluster",
);

/// On a node's spec, at an update.
pub(super) const NODE_IMMUTABLE: Rule = (
    "self.clusterName == oldSelf.clusterName && self.image == oldSelf.image \
     && self.shardIndex == oldSelf.shardIndex && self.valkeySettings == oldSelf.valkeySettings \
     && has(self.cpu) == has(oldSelf.cpu) && (!has(self.cpu) || self.cpu == oldSelf.cpu) \
     && has(self.memory) == has(oldSelf.memory) \
     && (!has(self.memory) || self.memory == oldSelf.memory) \
     && has(self.tlsSecret) == has(oldSelf.tlsSecret) \
     && (!has(self.tlsSecret) || self.tlsSecret == oldSelf.tlsSecret) \
     && has(self.placement) == has(oldSelf.placement) \
     && (!has(self.placement) || self.placement == oldSelf.placement)",
    "a ValkeyNode is immutable except for its lifecycle",
);

/// On a list of ACL bindings.
pub(super) const UNIQUE_USERNAMES: Rule = (
    "self.all(a, self.exists_one(b, b.username == a.username))",
    "duplicate username in ACL bindings",
);

/// On a user's name.
pub(super) const USERNAME_WORD: Rule = (
    "self.matches('^[a-zA-Z0-9_-]+$')",
    "username must be letters, digits, hyphens and underscores, at least one",
);

/// On a user's name.
pub(super) const USERNAME_RESERVED: Rule = (
    "!self.startsWith('_momento_')",
    "username must not start with _momento_: the prefix is reserved for the operator",
);

/// On a list of password hashes.
pub(super) const PASSWORD_HASHES: Rule = (
    "self.all(hash, hash.matches('^[0-9a-f]{64}$'))",
    "each password hash must be exactly 64 lowercase hex characters (SHA-256), without #",
);

/// On a list of permissions.
pub(super) const SOME_PERMISSION: Rule =
    ("self.size() >= 1", "at least one permission is required");

/// On a key pattern.
pub(super) const KEY_CHARACTERS: Rule = (
    r#"!self.matches('["\'\\pZ\\p{Cc}]')"#,
    "key pattern must not contain control characters, spaces or quotes",
);

/// On a key pattern.
pub(super) const KEY_PREFIX: Rule = (
    "!self.startsWith('~')",
    "key pattern must be without the ~ prefix: the operator adds it",
);

/// On a list of channel patterns.
pub(super) const CHANNEL_CHARACTERS: Rule = (
    r#"self.all(channel, !channel.matches('["\'\\pZ\\p{Cc}]'))"#,
    "channel patterns must not contain control characters, spaces or quotes",
);

/// On a list of channel patterns.
pub(super) const CHANNEL_PREFIX: Rule = (
    "self.all(channel, !channel.startsWith('&'))",
    "channel patterns must be without the & prefix: the operator adds it",
);

/// On the name of a command or a subcommand.
pub(super) const COMMAND_WORD: Rule = (
    "self.matches('^[a-zA-Z][a-zA-Z0-9_-]*$')",
    "must be letters, digits, hyphens and underscores, beginning with a letter",
);

/// On the name of a category.
pub(super) const CATEGORY_WORD: Rule = (
    "self.matches('^[a-zA-Z][a-zA-Z0-9_-]*$')",
    "must be letters, digits, hyphens and underscores, beginning with a letter, without @",
);

/// On the parts of an image's name. The kubelet would take neither, and the pod would wait for ever.
pub(super) const NO_SPACES: Rule = (
    r"!self.matches('[\\pZ\\p{Cc}]')",
    "must not contain spaces or control characters",
);

/// On a list of zones, which become the values of a label selector.
pub(super) const ZONES: Rule = (
    "self.all(zone, zone.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$'))",
    "zones must be label values: letters, digits, '-', '_' and '.', beginning and ending with a \
     letter or digit",
);

/// A valkey.conf directive map: at most 256 directives of at most 8192 characters each.
///
/// The name begins its line unquoted, so it must be one word that no quote, comment or line break
/// can hide in. `rename-command`, `loadmodule` and `user` are the directives whose value Valkey
/// takes only unquoted, so a line break there would begin a line of its own.
pub(super) fn directives(_: &mut SchemaGenerator) -> Schema {
    let rules = [
        every_key(
            "key.matches('^[a-zA-Z0-9_][a-zA-Z0-9._-]*$')",
            "a directive's name must be one plain word: letters, digits, '.', '_' and '-'",
        ),
        every_key(
            r"!self[key].contains('\u0000')",
            "a directive's value must not contain a NUL byte",
        ),
        every_key(
            "!(key.lowerAscii() in ['rename-command', 'loadmodule', 'user']) \
             || !self[key].matches('[\\n\\r]')",
            "the value of rename-command, loadmodule and user must be one line",
        ),
    ];
    json_schema!({
        "type": "object",
        "maxProperties": 256,
        "additionalProperties": {"type": "string", "maxLength": 8192},
        "x-kubernetes-validations": rules,
    })
}

/// Annotations that every pod gets, with keys and sizes that Kubernetes takes. That all of them
/// together are at most 256 KiB is not said: the CEL of 1.27 cannot bound what a sum costs.
pub(super) fn annotations(_: &mut SchemaGenerator) -> Schema {
    let rules = [
        every_key(
            "!key.startsWith('valkey.gomomento.com/')",
            "the prefix valkey.gomomento.com/ is reserved for the operator",
        ),
        // Kubernetes takes the prefix of an annotation in capitals too, that of a label not.
        every_key(
            "key.size() <= 317 && key.indexOf('/') <= 253 && key.matches('^(\
             [A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*/\
             )?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",
            "an annotation's key must be a name of at most 63 letters, digits, '-', '_' and '.', \
             after an optional DNS name and '/'",
        ),
    ];
    json_schema!({
        "type": "object",
        "maxProperties": 1024,
        "additionalProperties": {"type": "string", "maxLength": 262_144},
        "x-kubernetes-validations": rules,
    })
}

/// Labels that a machine must have, within what Kubernetes takes.
pub(super) fn node_selector(_: &mut SchemaGenerator) -> Schema {
    let rules = [
        every_key(
            "key.size() <= 317 && key.indexOf('/') <= 253 && key.matches('^(\
             [a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/\
             )?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",
            "a label's key must be a name of at most 63 letters, digits, '-', '_' and '.', after \
             an optional DNS name and '/'",
        ),
        every_key(
            "self[key].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')",
            "a label's value must be letters, digits, '-', '_' and '.', beginning and ending with \
             a letter or digit",
        ),
    ];
    json_schema!({
        "type": "object",
        "maxProperties": 256,
        "additionalProperties": {"type": "string", "maxLength": 63},
        "x-kubernetes-validations": rules,
    })
}

/// Tolerations as a pod's spec takes them: one that it refuses would stop every new pod.
pub(super) fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": {
            "type": "object",
            "properties": {
                "key": {
                    "type": "string",
                    "maxLength": 317,
                    "description": "The taint's key; every taint where it is left out.",
                },
                "operator": {
                    "type": "string",
                    "enum": ["", "Exists", "Equal"],
                    "description": "Exists or Equal (the default).",
                },
                "value": {
                    "type": "string",
                    "maxLength": 63,
                    "description": "The taint's value, for Equal.",
                },
                "effect": {
                    "type": "string",
                    "enum": ["", "NoSchedule", "PreferNoSchedule", "NoExecute"],
                    "description": "The taint's effect; every effect where it is left out.",
                },
                "tolerationSeconds": {
                    "type": "integer",
                    "format": "int64",
                    "description": "For NoExecute: how long the pod may stay; for ever where it \
                                    is left out.",
                },
            },
            "x-kubernetes-validations": [
                {
                    "rule": "(has(self.key) && self.key != '') \
                             || (has(self.operator) && self.operator == 'Exists')",
                    "message": "a toleration without a key must have the operator Exists",
                },
                {
                    "rule": "!has(self.operator) || self.operator != 'Exists' \
                             || !has(self.value) || self.value == ''",
                    "message": "a toleration with the operator Exists must have no value",
                },
                {
                    "rule": "!has(self.tolerationSeconds) \
                             || (has(self.effect) && self.effect == 'NoExecute')",
                    "message": "tolerationSeconds needs the effect NoExecute",
                },
            ],
        },
    })
}

/// A rule on each key of a map. The message names a key that breaks it, in the manner of the API
/// server; where the key holds a line break, the API server takes the message without it.
fn every_key(holds: &str, message: &str) -> Value {
    let tail = format!("\": {message}");
    json!({
        "rule": format!("self.all(key, {holds})"),
        "message": message,
        "messageExpression": format!("'\"' + self.filter(key, !({holds}))[0] + {tail:?}"),
    })
}

/// A Kubernetes quantity above zero, as a string or an integer.
pub(super) struct PositiveQuantity;

impl JsonSchema for PositiveQuantity {
    fn schema_name() -> Cow<'static, str> {
        "PositiveQuantity".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "maxLength": 64,
            "x-kubernetes-validations": [{
                "rule": "type(self) == int ? self > 0 \
                         : self.matches('^[+]?[0.]*[1-9]') && self.matches(\
                         '^[+]?[0-9]*[.]?[0-9]*([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9][0-9]?)?$')",
                "message": "must be a quantity above zero, such as 500m, 2 or 1Gi",
            }],
        })
    }
}

/// Reads a null as nothing. The API server keeps none, but an object may be older than its schema.
pub(super) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Makes a generated definition fit to install.
pub(super) fn finish(definition: &mut CustomResourceDefinition) {
    for version in &mut definition.spec.versions {
        let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|it| it.open_api_v3_schema.as_mut())
        else {
            continue;
        };
        visit(schema, &plain);
        // Only the operator writes the status, from a spec that has passed the rules: a limit that
        // a later release draws closer must not stop it, nor count twice against the budget.
        if let Some(status) = schema
            .properties
            .as_mut()
            .and_then(|it| it.get_mut("status"))
        {
            visit(status, &unlimited);
        }
    }
}

/// Without null, the API server drops a null as if the field were absent, so that no rule meets
/// one. It knows no unsigned numbers and warns of them.
fn plain(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.title = None;
    // The lines of a comment, not of a text.
    schema.description = schema
        .description
        .take()
        .map(|text| text.replace('\n', " "));
    if schema.format.as_deref() == Some("uint32") {
        schema.format = None;
    }
}

fn unlimited(schema: &mut JSONSchemaProps) {
    schema.x_kubernetes_validations = None;
    schema.max_length = None;
    schema.min_length = None;
    schema.max_items = None;
    schema.min_items = None;
    schema.max_properties = None;
    schema.maximum = None;
    schema.minimum = None;
}

fn visit(schema: &mut JSONSchemaProps, change: &dyn Fn(&mut JSONSchemaProps)) {
    change(schema);
    for property in schema
        .properties
        .iter_mut()
        .flat_map(|all| all.values_mut())
    {
        visit(property, change);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        visit(items, change);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        visit(values, change);
    }
}
