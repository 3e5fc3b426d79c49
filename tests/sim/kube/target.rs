//! What a request is about, read from its path and query.
//! Never looks at an object.

use std::collections::BTreeMap;

use super::faults::{Caller, Verb};
use super::kinds::{Key, Kind};
use super::refusal::Refusal;

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// A request as it comes over the wire. Its order is the order in which requests of one moment are
/// served: by what they are, not by when they came.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Call {
    pub(crate) caller: Caller,
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) body: Vec<u8>,
    pub(crate) accept: String,
    pub(crate) content_type: String,
}

impl Call {
    /// Whether it changes anything. Events are words, not acts.
    pub(crate) fn writes(&self) -> bool {
        self.method != Method::Get && !self.tells()
    }

    /// Whether it is about an Event.
    pub(crate) fn tells(&self) -> bool {
        self.target.starts_with("/apis/events.k8s.io/")
    }
}

/// Where a request leads.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) verb: Verb,
    pub(super) kind: Kind,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
    pub(super) query: BTreeMap<String, String>,
    /// The client wants metadata only.
    pub(super) partial: bool,
}

impl Target {
    pub(super) fn of(call: &Call) -> Result<Self, Refusal> {
        let (path, query) = call.target.split_once('?').unwrap_or((&call.target, ""));
        let query = pairs(query);
        let segments: Vec<String> = path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(decode)
            .collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(Refusal::no_such_path()),
        };
        let (namespace, rest) = match rest {
            // A namespace itself, or its status.
            ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => {
                (None, rest)
            }
            ["namespaces", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
            rest => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some(*name), None),
            [plural, name, subresource] => (*plural, Some(*name), Some(*subresource)),
            _ => return Err(Refusal::no_such_path()),
        };
        let kind = Kind::routed(group, version, plural).ok_or_else(Refusal::no_such_path)?;
        let watch = matches!(query.get("watch").map(String::as_str), Some("true" | "1"));
        let apply = call.content_type.starts_with("application/apply-patch");
        let verb = match (call.method, name) {
            (Method::Get, Some(_)) => Verb::Get,
            (Method::Get, None) if watch => Verb::Watch,
            (Method::Get, None) => Verb::List,
            (Method::Post, _) => Verb::Create,
            (Method::Put, Some(_)) => Verb::Update,
            (Method::Patch, Some(_)) if apply => Verb::Apply,
            (Method::Patch, Some(_)) => Verb::Patch,
            (Method::Delete, Some(_)) => Verb::Delete,
            (Method::Put | Method::Patch | Method::Delete, None) => {
                return Err(Refusal::method_not_allowed());
            }
        };
        Ok(Self {
            verb,
            kind,
            namespace,
            name: name.map(str::to_owned),
            subresource: subresource.map(str::to_owned),
            query,
            partial: call.accept.contains("as=PartialObjectMetadata"),
        })
    }

    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let value = self.query.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let parse = |text: &str| {
            let wrong = format!("{name}: Invalid value: {text:?}");
            text.parse().map_err(|_| Refusal::bad_request(wrong))
        };
        self.parameter(name).map(parse).transpose()
    }

    /// The key of the object, its name empty where the request has none.
    pub(super) fn key(&self) -> Key {
        let (namespace, name) = (self.namespace.as_deref(), self.name.as_deref());
        Key::new(
            self.kind,
            namespace.unwrap_or_default(),
            name.unwrap_or_default(),
        )
    }

    pub(super) fn is_status(&self) -> bool {
        self.subresource.as_deref() == Some("status")
    }
}

fn pairs(query: &str) -> BTreeMap<String, String> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        })
        .collect()
}

/// Undoes percent-encoding, and the plus that forms write for a space.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let escaped = (byte == b'%').then(|| {
            let mut digits = rest.clone();
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let (high, low) = (digit(digits.next())?, digit(digits.next())?);
            rest = digits;
            u8::try_from(high * 16 + low).ok()
        });
        bytes.push(match (escaped.flatten(), byte) {
            (None, b'+') => b' ',
            (Some(byte), _) | (None, byte) => byte,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
