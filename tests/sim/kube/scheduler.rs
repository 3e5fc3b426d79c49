//! The scheduler: filters, a spread, and the words for a pod that fits nowhere.
//! Never preempts.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::calendar;
use super::faults::Caller;
use super::json;
use super::kinds::{Key, Kind};
use super::writes::{By, Part, Write, is_deleting};
use super::{Kube, Millis, Task};

/// Why a host does not take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unfit {
    reasons: Vec<String>,
    /// Whether the eviction of others could help.
    resolvable: bool,
}

impl Unfit {
    fn never(reason: impl Into<String>) -> Self {
        Self {
            reasons: vec![reason.into()],
            resolvable: false,
        }
    }
}

/// A look at everything that scheduling depends on.
struct View {
    nodes: Vec<(String, Arc<Value>)>,
    /// Pods that hold room, by the host that they are on.
    pods: Vec<(String, Arc<Value>)>,
}

impl Kube {
    /// Tries the pods that have no host again, soon.
    pub(super) fn reschedule_soon(&mut self, now: Millis) {
        if !self.reschedules {
            self.reschedules = true;
            self.file_within(now, self.timing.reschedule, Task::Reschedule);
        }
    }

    pub(super) fn reschedule(&mut self, now: Millis) {
        self.reschedules = false;
        let pods = self.api.store().list(Kind::Pod, None);
        let homeless = pods.filter(|(_, pod)| json::text(pod, "/spec/nodeName").is_none());
        let homeless: Vec<Key> = homeless.map(|(key, _)| key.clone()).collect();
        for key in homeless {
            self.schedule(now, &key);
        }
    }

    /// Places a pod, or says why it cannot be.
    pub(super) fn schedule(&mut self, now: Millis, key: &Key) {
        let Some(pod) = self.api.store().get(key).cloned() else {
            return;
        };
        if json::text(&pod, "/spec/nodeName").is_some() || is_deleting(&pod) {
            return;
        }
        let view = self.view();
        let verdicts: Vec<(&str, Result<(), Unfit>)> = (view.nodes.iter())
            .map(|(name, node)| (name.as_str(), view.fits(&pod, key, name, node)))
            .collect();
        let mut fitting: Vec<&str> = verdicts
            .iter()
            .filter(|(_, verdict)| verdict.is_ok())
            .map(|(name, _)| *name)
            .collect();
        fitting.sort_by_cached_key(|name| view.cost(&pod, key, name));
        let patch = if let Some(host) = fitting.first() {
            json!({
                "spec": {"nodeName": host},
                "status": {"conditions": [condition(now, "True", None)]},
            })
        } else {
            let message = refusal(verdicts.iter().filter_map(|(_, one)| one.as_ref().err()));
            if said(&pod) == Some(message.as_str()) {
                return;
            }
            json!({"status": {"conditions": [condition(now, "False", Some(&message))]}})
        };
        let (key, part) = (key.clone(), Part::Binding);
        let by = By::new(now, Caller::Scheduler);
        let written = self.write(&by, &Write::Merge { key, part, patch });
        debug_assert!(written.is_ok(), "the pod was there just now");
    }

    fn view(&self) -> View {
        let nodes = self.api.store().list(Kind::Node, None);
        let nodes = nodes.map(|(key, node)| (key.name.clone(), node.clone()));
        let pods = self.api.store().list(Kind::Pod, None);
        let pods = pods.filter_map(|(_, pod)| {
            let over = matches!(
                json::text_or_empty(pod, "/status/phase"),
                "Failed" | "Succeeded"
            );
            let host = json::text(pod, "/spec/nodeName").filter(|_| !over)?;
            Some((host.to_owned(), pod.clone()))
        });
        View {
            nodes: nodes.collect(),
            pods: pods.collect(),
        }
    }
}

impl View {
    /// The filters in the scheduler's order: the first that refuses gives the reason.
    fn fits(&self, pod: &Value, key: &Key, name: &str, node: &Value) -> Result<(), Unfit> {
        if node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
            return Err(Unfit::never("node(s) were unschedulable"));
        }
        let taints = json::list(node, "/spec/taints").iter();
        let mut hard = taints.filter(|taint| taint["effect"] != "PreferNoSchedule");
        if let Some(taint) = hard.find(|taint| !tolerated(pod, taint)) {
            let (key, value) = (
                json::text_or_empty(taint, "/key"),
                json::text_or_empty(taint, "/value"),
            );
            let reason = format!("node(s) had untolerated taint {{{key}: {value}}}");
            return Err(Unfit::never(reason));
        }
        if !wants(pod, node) {
            return Err(Unfit::never(
                "node(s) didn't match Pod's node affinity/selector",
            ));
        }
        self.has_room(pod, name, node)?;
        self.keeps_spread(pod, key, node)
    }

    fn has_room(&self, pod: &Value, name: &str, node: &Value) -> Result<(), Unfit> {
        let here = self.pods.iter().filter(|(host, _)| host == name);
        let here: Vec<&Value> = here.map(|(_, pod)| pod.as_ref()).collect();
        let allocatable = |what: &str| amount(&node["status"]["allocatable"][what]);
        let mut reasons = Vec::new();
        if (here.len() as u128 + 1) * 1000 > allocatable("pods") {
            reasons.push("Too many pods".to_owned());
        }
        for what in ["cpu", "memory"] {
            let (asked, used) = (
                requested(pod, what),
                here.iter().map(|pod| requested(pod, what)).sum::<u128>(),
            );
            if asked > 0 && asked + used > allocatable(what) {
                reasons.push(format!("Insufficient {what}"));
            }
        }
        if reasons.is_empty() {
            return Ok(());
        }
        Err(Unfit {
            reasons,
            resolvable: true,
        })
    }

    fn keeps_spread(&self, pod: &Value, key: &Key, node: &Value) -> Result<(), Unfit> {
        let constraints = json::list(pod, "/spec/topologySpreadConstraints");
        let hard = constraints
            .iter()
            .filter(|constraint| constraint["whenUnsatisfiable"] == "DoNotSchedule");
        for constraint in hard {
            let topology = json::text_or_empty(constraint, "/topologyKey");
            let Some(domain) = label(node, topology) else {
                let reason = "node(s) didn't match pod topology spread constraints (missing \
                              required label)";
                return Err(Unfit::never(reason));
            };
            let counts = self.counts(pod, key, constraint, topology);
            let least = counts.values().min().copied().unwrap_or_default();
            let here = counts.get(domain).copied().unwrap_or_default();
            let skew = constraint["maxSkew"].as_u64().unwrap_or(1);
            if here + 1 - least > skew {
                return Err(Unfit {
                    reasons: vec![
                        "node(s) didn't match pod topology spread constraints".to_owned(),
                    ],
                    resolvable: true,
                });
            }
        }
        Ok(())
    }

    /// Pods that a constraint counts, by domain, on the hosts that the pod could be on at all.
    fn counts(
        &self,
        pod: &Value,
        key: &Key,
        constraint: &Value,
        topology: &str,
    ) -> BTreeMap<&str, u64> {
        let selector = json::text_map(constraint, "/labelSelector/matchLabels");
        let mut domains: BTreeMap<&str, u64> = BTreeMap::new();
        let mut domain_of: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, node) in &self.nodes {
            if let Some(domain) = label(node, topology).filter(|_| wants(pod, node)) {
                domains.entry(domain).or_default();
                domain_of.insert(name, domain);
            }
        }
        for (host, other) in &self.pods {
            let labels = other.pointer("/metadata/labels");
            let selected = selector.iter().all(|(key, value)| {
                labels.and_then(|labels| labels.get(key)?.as_str()) == Some(value)
            });
            let same = json::text(other, "/metadata/namespace") == Some(&key.namespace);
            if let Some(domain) = domain_of.get(host.as_str())
                && selected
                && same
                && !is_deleting(other)
            {
                *domains.entry(domain).or_default() += 1;
            }
        }
        domains
    }

    /// The smaller the better: what soft spreading wants, then few pods, then the name.
    fn cost(&self, pod: &Value, key: &Key, name: &str) -> (u64, usize, String) {
        let node = self.nodes.iter().find(|(node, _)| node == name);
        let constraints = json::list(pod, "/spec/topologySpreadConstraints").iter();
        let crowd = constraints.map(|constraint| {
            let topology = json::text_or_empty(constraint, "/topologyKey");
            let domain = node.and_then(|(_, node)| label(node, topology));
            let counts = self.counts(pod, key, constraint, topology);
            domain
                .and_then(|domain| counts.get(domain).copied())
                .unwrap_or_default()
        });
        let pods = self.pods.iter().filter(|(host, _)| host == name).count();
        (crowd.sum(), pods, name.to_owned())
    }
}

fn label<'a>(node: &'a Value, key: &str) -> Option<&'a str> {
    node.pointer("/metadata/labels")?.get(key)?.as_str()
}

/// Node selector and required node affinity.
fn wants(pod: &Value, node: &Value) -> bool {
    let selector = json::text_map(pod, "/spec/nodeSelector");
    let selected = selector
        .iter()
        .all(|(key, value)| label(node, key) == Some(value));
    let terms = json::list(
        pod,
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
         /nodeSelectorTerms",
    );
    let affine = terms.is_empty()
        || terms.iter().any(|term| {
            let mut all = json::list(term, "/matchExpressions").iter();
            all.all(|expression| expressed(node, expression))
        });
    selected && affine
}

fn expressed(node: &Value, expression: &Value) -> bool {
    let held = label(node, json::text_or_empty(expression, "/key"));
    let values = json::texts(expression, "/values");
    match json::text_or_empty(expression, "/operator") {
        "In" => held.is_some_and(|held| values.contains(&held)),
        "NotIn" => held.is_none_or(|held| !values.contains(&held)),
        "Exists" => held.is_some(),
        "DoesNotExist" => held.is_none(),
        _ => false,
    }
}

fn tolerated(pod: &Value, taint: &Value) -> bool {
    let mut tolerations = json::list(pod, "/spec/tolerations").iter();
    tolerations.any(|toleration| {
        let text = |pointer: &str| json::text(toleration, pointer);
        let key = text("/key").is_none_or(|key| taint["key"] == key);
        let effect = text("/effect").is_none_or(|effect| taint["effect"] == effect);
        let value = text("/operator") == Some("Exists")
            || text("/value").unwrap_or_default() == json::text_or_empty(taint, "/value");
        key && effect && value
    })
}

/// What the containers of a pod ask for, in thousandths.
fn requested(pod: &Value, what: &str) -> u128 {
    let containers = json::list(pod, "/spec/containers").iter();
    containers
        .map(|container| amount(&container["resources"]["requests"][what]))
        .sum()
}

/// Suffixes of a quantity.
const UNITS: [(&str, u128); 12] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("k", 1000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("e3", 1000),
    ("e6", 1_000_000),
    ("e9", 1_000_000_000),
];

/// A quantity in thousandths: `500m`, `2`, `1.5`, `1Gi`, `1e3`.
pub(super) fn amount(quantity: &Value) -> u128 {
    let Some(text) = quantity.as_str() else {
        return u128::from(quantity.as_u64().unwrap_or_default()) * 1000;
    };
    if let Some(number) = text.strip_suffix('m') {
        return number.parse().unwrap_or_default();
    }
    let unit = UNITS.iter().find(|(unit, _)| text.ends_with(unit));
    let (number, factor) = match unit {
        Some((unit, factor)) => (text.strip_suffix(unit).unwrap_or_default(), *factor),
        None => (text, 1),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let thousandths = format!("{whole}{part:0<3.3}");
    thousandths.parse::<u128>().unwrap_or_default() * factor
}

fn said(pod: &Value) -> Option<&str> {
    let conditions = json::list(pod, "/status/conditions");
    let condition = conditions
        .iter()
        .find(|one| one["type"] == "PodScheduled")?;
    json::text(condition, "/message")
}

fn condition(now: Millis, status: &str, message: Option<&str>) -> Value {
    let mut condition = json!({"type": "PodScheduled", "status": status, "lastProbeTime": null,
        "lastTransitionTime": calendar::stamp(now)});
    if let Some(message) = message {
        condition["reason"] = Value::from("Unschedulable");
        condition["message"] = Value::from(message);
    }
    condition
}

/// `FitError.Error` and what the preemption plugin adds to it.
fn refusal<'a>(unfits: impl Iterator<Item = &'a Unfit>) -> String {
    let mut reasons: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut all, mut resolvable) = (0_u32, 0_u32);
    for unfit in unfits {
        all += 1;
        resolvable += u32::from(unfit.resolvable);
        for reason in &unfit.reasons {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    if all == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let head = format!("0/{all} nodes are available");
    let counted = |reasons: Vec<(u32, &str)>| {
        let mut lines: Vec<String> = reasons
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, reason)| format!("{count} {reason}"))
            .collect();
        lines.sort();
        lines.join(", ")
    };
    let why = counted(
        reasons
            .into_iter()
            .map(|(why, count)| (count, why))
            .collect(),
    );
    let preemption = counted(vec![
        (resolvable, "No preemption victims found for incoming pod"),
        (all - resolvable, "Preemption is not helpful for scheduling"),
    ]);
    format!("{head}: {why}. preemption: {head}: {preemption}.")
}
