//! The status of a pod, as a kubelet writes it.
//! Never decides what state a pod is in.

use serde_json::{Value, json};

use super::Millis;
use super::calendar;
use super::containers::Exit;
use super::json;

/// What a kubelet has to say of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The container is not there, for a reason and with a message.
    Waiting(String, String),
    Running,
    /// The container ended, the pod with it.
    Ended(Exit),
    /// The pod ended before its container was made.
    NeverRan,
    /// The host was too full (`eviction_manager.go`).
    Evicted(Option<Exit>, String),
}

/// All that goes into a status besides the word.
pub(super) struct Setting<'a> {
    pub(super) now: Millis,
    pub(super) pod: &'a Value,
    pub(super) host_address: &'a str,
    pub(super) ip: Option<String>,
    pub(super) admitted: Millis,
    pub(super) started: Option<Millis>,
}

/// The whole status.
pub(super) fn compose(setting: &Setting<'_>, word: &Word) -> Value {
    let (phase, state) = match word {
        Word::Waiting(reason, message) => ("Pending", Some(waiting(reason, message))),
        Word::Running => ("Running", Some(running(setting))),
        Word::Ended(exit) if exit.code == 0 => ("Succeeded", Some(terminated(setting, exit))),
        Word::Ended(exit) => ("Failed", Some(terminated(setting, exit))),
        Word::NeverRan => ("Failed", None),
        Word::Evicted(exit, _) => (
            "Failed",
            exit.as_ref().map(|exit| terminated(setting, exit)),
        ),
    };
    let ready = *word == Word::Running;
    let over = matches!(phase, "Failed" | "Succeeded");
    let mut status = json!({
        "phase": phase,
        "qosClass": setting.pod["status"]["qosClass"],
        "hostIP": setting.host_address,
        "hostIPs": [{"ip": setting.host_address}],
        "startTime": calendar::stamp(setting.admitted),
        "conditions": conditions(setting, ready, over),
    });
    if let Some(ip) = &setting.ip {
        status["podIP"] = Value::from(ip.as_str());
        status["podIPs"] = json!([{"ip": ip}]);
    }
    if let Some(state) = state {
        status["containerStatuses"] = json!([container(setting.pod, ready, &state)]);
    }
    if let Word::Evicted(_, message) = word {
        status["reason"] = Value::from("Evicted");
        status["message"] = Value::from(message.as_str());
    }
    status
}

fn container(pod: &Value, ready: bool, state: &Value) -> Value {
    let spec = &pod["spec"]["containers"][0];
    json!({
        "name": spec["name"], "image": spec["image"], "imageID": "", "ready": ready,
        "started": ready, "restartCount": 0, "state": state, "lastState": {},
    })
}

fn waiting(reason: &str, message: &str) -> Value {
    let mut waiting = json!({"reason": reason});
    if !message.is_empty() {
        waiting["message"] = Value::from(message);
    }
    json!({"waiting": waiting})
}

fn running(setting: &Setting<'_>) -> Value {
    let started = calendar::stamp(setting.started.unwrap_or(setting.now));
    json!({"running": {"startedAt": started}})
}

fn terminated(setting: &Setting<'_>, exit: &Exit) -> Value {
    let ordinary = if exit.code == 0 { "Completed" } else { "Error" };
    let mut terminated = json!({
        "exitCode": exit.code,
        "reason": exit.reason.as_deref().unwrap_or(ordinary),
        "startedAt": calendar::stamp(setting.started.unwrap_or(setting.now)),
        "finishedAt": calendar::stamp(setting.now),
    });
    // Only of an error: that is what the pod's termination message policy says.
    if !exit.message.is_empty() && exit.code != 0 {
        terminated["message"] = Value::from(exit.message.as_str());
    }
    json!({"terminated": terminated})
}

/// Those of the kubelet; what others wrote stays.
fn conditions(setting: &Setting<'_>, ready: bool, over: bool) -> Value {
    let held = json::list(setting.pod, "/status/conditions");
    let mut all: Vec<Value> = held
        .iter()
        .filter(|one| matches!(json::text(one, "/type"), Some("PodScheduled")))
        .cloned()
        .collect();
    for (kind, holds) in [
        ("Initialized", true),
        ("Ready", ready),
        ("ContainersReady", ready),
        ("PodReadyToStartContainers", setting.ip.is_some() && !over),
    ] {
        let status = if holds { "True" } else { "False" };
        let before = held
            .iter()
            .find(|one| one["type"] == kind && one["status"] == status);
        let since = before.and_then(|one| json::text(one, "/lastTransitionTime"));
        let since = since.map_or_else(|| calendar::stamp(setting.now), str::to_owned);
        let mut condition = json!({"type": kind, "status": status, "lastTransitionTime": since});
        if !holds {
            condition["reason"] = Value::from(if over {
                "PodFailed"
            } else {
                "ContainersNotReady"
            });
        }
        all.push(condition);
    }
    Value::Array(all)
}
