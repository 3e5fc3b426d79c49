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
        if digest(call).is_multiple_of(REFUSED) {
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
    pub(crate) fn into_all(self) -> Vec<Value> {
        self.0.into_values().collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Act, Edit, Part, Plan, Shape};
    use crate::run::{Options, run};

    fn told(acts: &[(Millis, Edit)], healed: Millis) -> Vec<Value> {
        let plan = Plan {
            seed: 1,
            hosts: 3,
            neighbour: false,
            shape: Shape {
                shards: 1,
                replicas: 1,
            },
            acts: acts
                .iter()
                .map(|(at, edit)| (*at, Act::Edit(*edit)))
                .collect(),
            healed,
        };
        let options = Options {
            story: true,
            ..Options::default()
        };
        let outcome = run(&plan, &options);
        if let Some(violation) = outcome.violation {
            panic!("{}\n{violation}", outcome.story.join("\n"));
        }
        outcome.told
    }

    fn of<'a>(told: &'a [Value], kind: &str, reason: &str) -> Vec<&'a Value> {
        let is = |event: &&Value| event["regarding"]["kind"] == kind && event["reason"] == reason;
        told.iter().filter(is).collect()
    }

    /// Ten seconds, twenty and forty after the first.
    #[test]
    fn a_stuck_cluster_is_one_event_that_grows() {
        let acts = [(0, Edit::Withdraw(Part::Image)), (10, Edit::Apply)];
        let told = told(&acts, 100_000);
        for kind in ["ValkeyCluster", "ValkeyConfig"] {
            let menu = of(&told, kind, "Menu");
            assert_eq!(menu.len(), 1, "{told:#?}");
            let count = menu[0]["series"]["count"].as_i64().unwrap_or(1);
            assert!((3..=5).contains(&count), "{menu:#?}");
        }
        assert_eq!(
            of(&told, "ValkeyCluster", "ClusterFormed").len(),
            1,
            "{told:#?}"
        );
    }

    #[test]
    fn a_pause_and_a_scaling_are_told_with_their_ends() {
        let wider = Shape {
            shards: 2,
            replicas: 1,
        };
        let acts = [
            (0, Edit::Apply),
            (30_000, Edit::Pause),
            (31_000, Edit::Reshape(wider)),
            (60_000, Edit::Resume),
        ];
        let told = told(&acts, 120_000);
        assert_eq!(of(&told, "ValkeyCluster", "Paused").len(), 1, "{told:#?}");
        assert_eq!(of(&told, "ValkeyCluster", "Resumed").len(), 1, "{told:#?}");
        let scaled = of(&told, "ValkeyCluster", "ScalingCompleted");
        let totals = |event: &&Value| {
            event["note"]
                .as_str()
                .is_some_and(|note| note.contains("8192 slots moved"))
        };
        assert!(scaled.iter().any(totals), "{told:#?}");
        let time = |event: &Value| event["eventTime"].as_str().unwrap_or_default().to_owned();
        let [from, to] =
            ["Paused", "Resumed"].map(|reason| time(of(&told, "ValkeyCluster", reason)[0]));
        let meanwhile = told
            .iter()
            .filter(|event| event["action"] != "Wait" && time(event) > from && time(event) < to);
        assert_eq!(meanwhile.count(), 0, "{told:#?}");
    }
}
