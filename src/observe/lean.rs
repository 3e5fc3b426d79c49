//! Pods, ConfigMaps and machines, read as the few fields that anything is decided by.
//! Never kept whole: a thousand clusters fit in 50 MB because of it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::Resource;
use kube::api::ObjectMeta;
use serde::{Deserialize, Deserializer, Serialize};

use crate::model::digest::sha256_hex;
use crate::model::name::Uid;
use crate::model::world::{CONTAINER_EXITED, Host, PodFacts, PodPhase, PodTrouble};

/// Makes a type readable wherever the kind that it is a part of is.
macro_rules! part_of {
    ($whole:ty, $part:ty, $scope:ty) => {
        impl Resource for $part {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                <$whole as Resource>::kind(&())
            }
            fn group((): &()) -> Cow<'_, str> {
                <$whole as Resource>::group(&())
            }
            fn version((): &()) -> Cow<'_, str> {
                <$whole as Resource>::version(&())
            }
            fn plural((): &()) -> Cow<'_, str> {
                <$whole as Resource>::plural(&())
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

part_of!(Pod, LeanPod, NamespaceResourceScope);
part_of!(ConfigMap, LeanConfigMap, NamespaceResourceScope);
part_of!(Node, LeanHost, ClusterResourceScope);

/// A machine, which Kubernetes calls a Node, as far as a pod's life hangs on it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LeanHost {
    /// Its metadata.
    pub metadata: ObjectMeta,
    #[serde(default)]
    status: LeanHostStatus,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct LeanHostStatus {
    conditions: Vec<LeanCondition>,
}

impl LeanHost {
    /// What its conditions say.
    pub(super) fn state(&self) -> Host {
        let ready =
            |condition: &LeanCondition| condition.kind == "Ready" && condition.status == "True";
        if self.status.conditions.iter().any(ready) {
            Host::Ready
        } else {
            Host::NotReady
        }
    }
}

/// A ConfigMap with the digests of its values instead of the values.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LeanConfigMap {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// The SHA-256 of each value.
    #[serde(default, deserialize_with = "digests")]
    pub data: BTreeMap<String, String>,
}

fn digests<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let data = Option::<BTreeMap<String, String>>::deserialize(from)?.unwrap_or_default();
    Ok(data
        .into_iter()
        .map(|(key, value)| (key, sha256_hex(&value)))
        .collect())
}

/// A pod without what nothing is decided by.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LeanPod {
    /// Its metadata.
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: LeanPodSpec,
    /// Its status.
    #[serde(default)]
    pub status: LeanPodStatus,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct LeanPodSpec {
    node_name: Option<String>,
}

/// See `PodStatus` of the Kubernetes API.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeanPodStatus {
    phase: Option<String>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    conditions: Vec<LeanCondition>,
    container_statuses: Vec<LeanContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct LeanCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct LeanContainerStatus {
    state: LeanContainerState,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct LeanContainerState {
    waiting: Option<LeanReason>,
    terminated: Option<LeanReason>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct LeanReason {
    reason: Option<String>,
    message: Option<String>,
    exit_code: Option<i32>,
}

/// What the kubelet says of every container before it is started: nothing is wrong yet.
const ORDINARY_WAITS: [&str; 2] = ["ContainerCreating", "PodInitializing"];

impl LeanPod {
    /// The machine that it is bound to.
    pub(super) fn host(&self) -> Option<&str> {
        self.spec.node_name.as_deref()
    }

    /// Its address, if it runs.
    pub(super) fn running_at(&self) -> Option<IpAddr> {
        let facts = self.facts(Host::Unknown)?;
        facts.ip.filter(|_| facts.phase == PodPhase::Running)
    }

    /// The pod as facts; nothing where it has no uid, which the API server never lets happen.
    pub(super) fn facts(&self, host: Host) -> Option<PodFacts> {
        let trouble = self
            .ended()
            .or_else(|| self.unschedulable())
            .or_else(|| self.waiting());
        let phase = match (&trouble, self.status.phase.as_deref()) {
            (Some(PodTrouble::Ended(_)), _) => PodPhase::Ended,
            (_, Some("Running")) => PodPhase::Running,
            _ => PodPhase::Pending,
        };
        Some(PodFacts {
            uid: Uid::new(self.metadata.uid.clone()?),
            phase,
            ip: self
                .status
                .pod_ip
                .as_ref()
                .and_then(|ip| ip.parse::<IpAddr>().ok()),
            host,
            deleting: self.metadata.deletion_timestamp.is_some(),
            trouble,
            annotations: self.metadata.annotations.clone().unwrap_or_default(),
        })
    }

    fn ended(&self) -> Option<PodTrouble> {
        let mut states = self.status.container_statuses.iter();
        if let Some(end) = states.find_map(|status| status.state.terminated.as_ref()) {
            let code = end.exit_code.unwrap_or_default();
            return Some(PodTrouble::Ended(format!(
                "{CONTAINER_EXITED}{code}{}",
                words(end.reason.as_deref(), end.message.as_deref())
            )));
        }
        let over = matches!(self.status.phase.as_deref(), Some("Failed" | "Succeeded"));
        let status = &self.status;
        over.then(|| {
            PodTrouble::Ended(format!(
                "its pod ended{}",
                words(status.reason.as_deref(), status.message.as_deref())
            ))
        })
    }

    fn unschedulable(&self) -> Option<PodTrouble> {
        let condition = self.status.conditions.iter().find(|condition| {
            condition.kind == "PodScheduled"
                && condition.status == "False"
                && condition.reason.as_deref() == Some("Unschedulable")
        })?;
        Some(PodTrouble::Unschedulable(
            condition.message.clone().unwrap_or_default(),
        ))
    }

    fn waiting(&self) -> Option<PodTrouble> {
        let mut states = self.status.container_statuses.iter();
        let waiting = states.find_map(|status| status.state.waiting.as_ref())?;
        let reason = waiting.reason.clone().unwrap_or_default();
        if reason.is_empty() || ORDINARY_WAITS.contains(&reason.as_str()) {
            return None;
        }
        Some(PodTrouble::Waiting {
            reason,
            message: waiting.message.clone().unwrap_or_default(),
        })
    }
}

/// Lines of a container's end that are kept: Valkey names file, line, text and cause in its last four.
const LAST_LINES: usize = 4;

fn words(reason: Option<&str>, message: Option<&str>) -> String {
    let lines = message.unwrap_or_default().lines().map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    let last = lines
        .get(lines.len().saturating_sub(LAST_LINES)..)
        .unwrap_or_default()
        .join(" / ");
    match (reason, last.as_str()) {
        (Some(reason), "") => format!(" ({reason})"),
        (Some(reason), last) => format!(" ({reason}): {last}"),
        (None, "") => String::new(),
        (None, last) => format!(": {last}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(status: &serde_json::Value) -> (PodPhase, Option<PodTrouble>) {
        let pod = serde_json::json!({"metadata": {"uid": "u"}, "status": status});
        let facts = serde_json::from_value::<LeanPod>(pod)
            .unwrap()
            .facts(Host::Unknown)
            .unwrap();
        (facts.phase, facts.trouble)
    }

    #[test]
    fn a_pod_says_why_it_does_not_run() {
        assert_eq!(
            trouble(&serde_json::json!({"phase": "Pending"})),
            (PodPhase::Pending, None)
        );
        assert_eq!(
            trouble(&serde_json::json!({"phase": "Pending", "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/3 nodes are available"}]})),
            (
                PodPhase::Pending,
                Some(PodTrouble::Unschedulable("0/3 nodes are available".into()))
            )
        );
        let waiting = |reason: &str| {
            serde_json::json!({"phase": "Pending", "containerStatuses": [
                {"state": {"waiting": {"reason": reason, "message": "m"}}}]})
        };
        assert_eq!(trouble(&waiting("ContainerCreating")).1, None);
        let pull = PodTrouble::Waiting {
            reason: "ErrImagePull".into(),
            message: "m".into(),
        };
        assert_eq!(
            trouble(&waiting("ErrImagePull")),
            (PodPhase::Pending, Some(pull))
        );
    }

    #[test]
    fn a_machine_is_ready_only_if_it_says_so() {
        let state = |conditions: serde_json::Value| {
            let host = serde_json::json!({"metadata": {}, "status": {"conditions": conditions}});
            serde_json::from_value::<LeanHost>(host).unwrap().state()
        };
        let ready = |status: &str| serde_json::json!([{"type": "Ready", "status": status}]);
        assert_eq!(state(ready("True")), Host::Ready);
        assert_eq!(state(ready("Unknown")), Host::NotReady);
        assert_eq!(state(serde_json::json!([])), Host::NotReady);
    }

    #[test]
    fn a_terminated_container_is_an_end_before_the_phase_says_so() {
        let (phase, trouble) = trouble(&serde_json::json!({"phase": "Running",
            "containerStatuses": [{"state": {"terminated": {
                "exitCode": 137, "reason": "OOMKilled"}}}]}));
        assert_eq!(phase, PodPhase::Ended);
        assert_eq!(
            trouble,
            Some(PodTrouble::Ended(
                "its container exited with code 137 (OOMKilled)".into()
            ))
        );
    }

    #[test]
    fn an_evicted_pod_keeps_the_kubelets_words() {
        let (phase, trouble) = trouble(&serde_json::json!({"phase": "Failed",
            "reason": "Evicted", "message": "The node was low on resource: memory."}));
        assert_eq!(phase, PodPhase::Ended);
        let words = "its pod ended (Evicted): The node was low on resource: memory.";
        assert_eq!(trouble, Some(PodTrouble::Ended(words.into())));
    }

    #[test]
    fn a_refused_setting_is_told_in_valkeys_last_words() {
        let log = "Valkey 9 starting\n\n*** FATAL CONFIG FILE ERROR (Version 9.1.2) ***\n\
                   Reading the configuration file, at line 7\n>>> 'no-such \"yes\"'\n\
                   Bad directive or wrong number of arguments\n";
        let (_, trouble) = trouble(&serde_json::json!({"phase": "Failed",
            "containerStatuses": [{"state": {"terminated": {
                "exitCode": 1, "reason": "Error", "message": log}}}]}));
        let told = "its container exited with code 1 (Error): \
                    *** FATAL CONFIG FILE ERROR (Version 9.1.2) *** / \
                    Reading the configuration file, at line 7 / >>> 'no-such \"yes\"' / \
                    Bad directive or wrong number of arguments";
        assert_eq!(trouble, Some(PodTrouble::Ended(told.into())));
    }
}
