//! The Events that operators tell: taken as the API server takes them, and looked through for secrets.
//! Never an act: nothing is drawn, counted or kept waiting for them, so that a run with them is the run without.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::kube::api::Answer;
use crate::kube::target::{Call, Method};
use crate::plan::Millis;

/// As long as any other write takes.
const LATENCY: Millis = 4;
/// One in so many is refused, whatever else goes well: that must not be felt anywhere.
const REFUSED: u64 = 7;
/// The API server's limits, bytes.
const NOTE_MAX: usize = 1024;
const WORD_MAX: usize = 128;
/// What a password and its hash are made of, at least.
const SECRET: usize = 64;

/// Every Event, by the path of its object.
#[derive(Debug, Default)]
pub(crate) struct Events(BTreeMap<String, Value>);

impl Events {
    /// Serves a request, or tells what is wrong with it.
    pub(crate) fn request(&mut self, call: &Call) -> Result<Answer, String> {
        let body: Value = serde_json::from_slice(&call.body).map_err(|error| error.to_string())?;
        let path = call.target.split('?').next().unwrap_or_default().to_owned();
        if digest(call) % REFUSED == 0 {
            return Ok(answer(500, &json!({"kind": "Status", "code": 500})));
        }
        match call.method {
            Method::Post => {
                check(&body)?;
                let name = body["metadata"]["name"].as_str().ok_or("no name")?;
                let path = format!("{path}/{name}");
                if self.0.contains_key(&path) {
                    return Ok(answer(409, &json!({"kind": "Status", "code": 409})));
                }
                self.0.insert(path, body.clone());
                Ok(answer(201, &body))
            }
            Method::Patch => {
                let Some(event) = self.0.get_mut(&path) else {
                    return Ok(answer(404, &json!({"kind": "Status", "code": 404})));
                };
                let fields: Vec<&String> = body
                    .as_object()
                    .into_iter()
                    .flat_map(|all| all.keys())
                    .collect();
                if fields != ["series"] {
                    return Err(format!("all but the series is immutable: {body}"));
                }
                let count = |event: &Value| event["series"]["count"].as_i64().unwrap_or(1);
                if count(&body) < 2 || count(&body) <= count(event) {
                    return Err(format!("a series that does not grow: {body} after {event}"));
                }
                event["series"] = body["series"].clone();
                Ok(answer(200, event))
            }
            Method::Get | Method::Put | Method::Delete => {
                Err(format!("{:?} of an Event", call.method))
            }
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Value> {
        self.0.values()
    }
}

/// What the API server validates (`ValidateEventCreate`), and that nothing in it looks like a secret.
fn check(event: &Value) -> Result<(), String> {
    let text = |field: &str| event[field].as_str().unwrap_or_default();
    for field in [
        "reason",
        "action",
        "reportingController",
        "reportingInstance",
    ] {
        if text(field).is_empty() || text(field).len() > WORD_MAX {
            return Err(format!("{field} is {:?}", text(field)));
        }
    }
    if !matches!(text("type"), "Normal" | "Warning") {
        return Err(format!("type is {:?}", text("type")));
    }
    if text("note").is_empty() || text("note").len() > NOTE_MAX {
        return Err(format!("the note has {} bytes", text("note").len()));
    }
    if text("eventTime").is_empty() || event["regarding"]["uid"].as_str().is_none_or(str::is_empty)
    {
        return Err(format!("no time or no object: {event}"));
    }
    let hex =
        |word: &str| word.len() >= SECRET && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut words = text("note").split(|c: char| !c.is_ascii_alphanumeric());
    match words.find(|word| hex(word)) {
        Some(_) => Err(format!("a secret in {:?}", text("note"))),
        None => Ok(()),
    }
}

fn answer(status: u16, body: &Value) -> Answer {
    Answer::Full {
        after: LATENCY,
        status,
        retry_after: None,
        body: body.to_string().into_bytes(),
    }
}

/// FNV-1a.
fn digest(call: &Call) -> u64 {
    let bytes = call.target.bytes().chain(call.body.iter().copied());
    bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
