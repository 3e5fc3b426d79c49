//! What the API server says when it does not do as it is asked.
//! Never a text that a real one does not say.

use serde_json::{Value, json};

use super::kinds::{Key, Kind};

/// A refused request: the `Status` of the Kubernetes API.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    /// The HTTP status.
    pub(crate) code: u16,
    /// The machine-readable reason.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// Kind, name, causes.
    pub(crate) details: Value,
}

impl Refusal {
    fn new(code: u16, reason: &'static str, message: String) -> Self {
        Self {
            code,
            reason,
            message,
            details: Value::Null,
        }
    }

    fn about(mut self, kind: Kind, name: &str) -> Self {
        let facts = kind.facts();
        self.details = json!({"name": name, "group": facts.group, "kind": facts.plural});
        self
    }

    fn because(mut self, causes: Value) -> Self {
        self.details["causes"] = causes;
        self
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message.into())
    }

    pub(crate) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(404, "NotFound", message.to_owned())
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message.to_owned())
    }

    pub(crate) fn unsupported_media(given: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format: {given} - accepted media types \
             include: application/merge-patch+json, application/apply-patch+yaml"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn not_found(kind: Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.resource());
        Self::new(404, "NotFound", message).about(kind, name)
    }

    pub(crate) fn already_exists(key: &Key) -> Self {
        let message = format!("{} \"{}\" already exists", key.kind.resource(), key.name);
        Self::new(409, "AlreadyExists", message).about(key.kind, &key.name)
    }

    /// Another write came between: what optimistic locking refuses.
    pub(crate) fn modified(kind: Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::conflict(kind, name, why)
    }

    /// `apimachinery/pkg/api/errors.NewConflict`.
    pub(crate) fn conflict(kind: Kind, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            kind.resource()
        );
        Self::new(409, "Conflict", message).about(kind, name)
    }

    /// Fields that other managers own: a list of manager and path.
    pub(crate) fn managed(key: &Key, owned: &[(String, String)]) -> Self {
        let (message, managers) = match owned {
            [(manager, path)] => ("Apply failed with 1 conflict".to_owned(), {
                format!("conflict with \"{manager}\": {path}")
            }),
            several => {
                let lines = several
                    .iter()
                    .map(|(manager, path)| format!("conflict with \"{manager}\": {path}"));
                let count = several.len();
                let lines = lines.collect::<Vec<_>>().join(", ");
                (format!("Apply failed with {count} conflicts"), lines)
            }
        };
        let causes: Vec<Value> = owned
            .iter()
            .map(|(manager, path)| {
                json!({"reason": "FieldManagerConflict", "field": path,
                    "message": format!("conflict with \"{manager}\"")})
            })
            .collect();
        Self::new(409, "Conflict", format!("{message}: {managers}"))
            .about(key.kind, &key.name)
            .because(Value::Array(causes))
    }

    /// Made too late: the namespace is going.
    pub(crate) fn terminating(kind: Kind, name: &str, namespace: &str) -> Self {
        let message = format!(
            "{} \"{name}\" is forbidden: unable to create new content in namespace {namespace} \
             because it is being terminated",
            kind.resource()
        );
        Self::new(403, "Forbidden", message)
            .about(kind, name)
            .because(json!([{
                "reason": "NamespaceTerminating", "field": "metadata.namespace",
                "message": format!("namespace {namespace} is being terminated"),
            }]))
    }

    /// A value that validation refuses.
    pub(crate) fn invalid(kind: Kind, name: &str, field: &str, why: &str) -> Self {
        let facts = kind.facts();
        let qualified = if facts.group.is_empty() {
            facts.name.to_owned()
        } else {
            format!("{}.{}", facts.name, facts.group)
        };
        let message = format!("{qualified} \"{name}\" is invalid: {field}: {why}");
        let mut refusal = Self::new(422, "Invalid", message).about(kind, name);
        refusal.details["kind"] = Value::from(facts.name);
        refusal.because(json!([{
            "reason": "FieldValueForbidden", "message": why, "field": field,
        }]))
    }

    /// A history that is no longer kept: `too old resource version`.
    pub(crate) fn too_old(asked: u64, kept: u64) -> Self {
        let message = format!("too old resource version: {asked} ({kept})");
        Self::new(410, "Expired", message)
    }

    /// A page of a list whose history is no longer kept.
    pub(crate) fn page_too_old() -> Self {
        let message = "The provided continue parameter is too old to display a consistent list \
                       result. You can start a new list without the continue parameter.";
        Self::new(410, "Expired", message.to_owned())
    }

    /// A version that does not exist yet.
    pub(crate) fn too_new(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut refusal = Self::new(504, "Timeout", message);
        refusal.details = json!({"retryAfterSeconds": 1, "causes": [{
            "reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]});
        refusal
    }

    pub(crate) fn too_many(retry_after_seconds: u32) -> Self {
        let message = "the server has received too many requests and has asked us to try again \
                       later";
        let mut refusal = Self::new(429, "TooManyRequests", message.to_owned());
        refusal.details = json!({"retryAfterSeconds": retry_after_seconds});
        refusal
    }

    pub(crate) fn internal() -> Self {
        let message = "Internal error occurred: etcdserver: request timed out";
        Self::new(500, "InternalError", message.to_owned())
    }

    pub(crate) fn unavailable() -> Self {
        let message = "apiserver not ready";
        Self::new(503, "ServiceUnavailable", message.to_owned())
    }

    pub(crate) fn timed_out() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout";
        Self::new(504, "Timeout", message.to_owned())
    }

    /// Seconds that a client is asked to wait.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.details.get("retryAfterSeconds")?.as_u64()
    }

    /// As it goes over the wire.
    pub(crate) fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !self.details.is_null() {
            body["details"] = self.details.clone();
        }
        body
    }
}
