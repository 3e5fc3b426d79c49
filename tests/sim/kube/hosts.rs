//! The machines: where they are, what they hold, whether their kubelet speaks.
//! Never a heartbeat: silence is noticed by its length.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::calendar;
use super::faults::Caller;
use super::json;
use super::kinds::{Key, Kind};
use super::writes::{By, Part, Write};
use super::{Kube, Millis, Task};

/// A machine to add.
#[derive(Clone, Debug)]
pub(crate) struct HostSpec {
    pub(crate) name: String,
    pub(crate) zone: String,
    pub(crate) arch: String,
    /// Labels besides those of name, zone and architecture.
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) cpu: String,
    pub(crate) memory: String,
    pub(crate) pods: u32,
    /// As in `spec.taints`.
    pub(crate) taints: Vec<Value>,
}

impl HostSpec {
    /// Four cores, 16 GiB, 110 pods.
    pub(crate) fn new(name: &str, zone: &str) -> Self {
        Self {
            name: name.to_owned(),
            zone: zone.to_owned(),
            arch: "amd64".to_owned(),
            labels: BTreeMap::new(),
            cpu: "4".to_owned(),
            memory: "16Gi".to_owned(),
            pods: 110,
            taints: Vec::new(),
        }
    }
}

/// What becomes of the processes of a host whose kubelet is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processes {
    /// They run on: only the kubelet, or the network, is gone.
    Alive,
    /// Power cut.
    Dead,
}

/// On the Node of a kubelet that is silent.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

#[derive(Debug)]
struct Host {
    address: String,
    /// Since when its kubelet is silent.
    lost: Option<Millis>,
    /// Images that were pulled here.
    images: BTreeSet<String>,
}

/// All machines.
#[derive(Debug, Default)]
pub(super) struct Hosts(BTreeMap<String, Host>);

impl Hosts {
    /// Whether its kubelet works.
    pub(super) fn is_up(&self, host: &str) -> bool {
        self.0.get(host).is_some_and(|host| host.lost.is_none())
    }

    /// For how long its kubelet has been silent.
    pub(super) fn silent_for(&self, host: &str, now: Millis) -> Option<Millis> {
        Some(now.saturating_sub(self.0.get(host)?.lost?))
    }

    pub(super) fn address(&self, host: &str) -> &str {
        self.0.get(host).map_or("", |host| &host.address)
    }

    /// Whether the image must be pulled first; it is there from now on.
    pub(super) fn pulls(&mut self, host: &str, image: &str) -> bool {
        (self.0.get_mut(host)).is_some_and(|host| host.images.insert(image.to_owned()))
    }
}

impl Kube {
    /// Adds a machine; its Node is there at once.
    pub(crate) fn add_host(&mut self, now: Millis, spec: &HostSpec) {
        let address = format!("192.168.0.{}", self.hosts.0.len() + 1);
        let host = Host {
            address: address.clone(),
            lost: None,
            images: BTreeSet::new(),
        };
        self.hosts.0.insert(spec.name.clone(), host);
        let amounts = json!({"cpu": spec.cpu, "memory": spec.memory,
            "pods": spec.pods.to_string()});
        let mut labels = spec.labels.clone();
        for (key, value) in [
            ("kubernetes.io/hostname", &spec.name),
            ("kubernetes.io/arch", &spec.arch),
            ("topology.kubernetes.io/zone", &spec.zone),
        ] {
            labels.insert(key.to_owned(), value.clone());
        }
        let body = json!({
            "metadata": {"name": spec.name, "labels": labels},
            "spec": {"taints": spec.taints},
            "status": {
                "capacity": amounts, "allocatable": amounts,
                "addresses": [{"type": "InternalIP", "address": address}],
                "conditions": [ready(now, "True")],
            },
        });
        let write = Write::Create {
            kind: Kind::Node,
            namespace: String::new(),
            body,
        };
        let made = self.write(&By::new(now, Caller::Kubelet), &write);
        debug_assert!(made.is_ok(), "a host's name is its own");
    }

    /// Fault F04: a kubelet falls silent, its processes with it or not. Nothing on the host is
    /// started, stopped or reported until it returns. Whoever cannot be reached any more is the
    /// network model's business.
    pub(crate) fn lose_host(&mut self, now: Millis, host: &str, processes: Processes) {
        let Some(held) = self.hosts.0.get_mut(host) else {
            return;
        };
        held.lost.get_or_insert(now);
        let host = host.to_owned();
        if processes == Processes::Dead {
            self.file(now, Task::PowerOff { host: host.clone() });
        }
        self.file(now + self.timing.silence, Task::Silent { host });
    }

    /// A kubelet is back, and looks at what became of its pods.
    pub(crate) fn return_host(&mut self, now: Millis, host: &str) {
        if let Some(held) = self.hosts.0.get_mut(host) {
            held.lost = None;
            let host = host.to_owned();
            self.file(now, Task::Back { host });
        }
    }

    /// A machine is gone for good: power cut, and its Node is deleted, as a cloud does.
    pub(crate) fn delete_host(&mut self, now: Millis, host: &str) {
        self.lose_host(now, host, Processes::Dead);
        let deleted = self.hand(now).delete(Kind::Node, "", host);
        debug_assert!(deleted.is_ok(), "the Node of a host is there");
    }

    /// Whether a host's kubelet works.
    pub(crate) fn host_is_up(&self, host: &str) -> bool {
        self.hosts.is_up(host)
    }

    /// Writes a Node's Ready condition, and the taint that goes with it.
    pub(super) fn mark_ready(&mut self, now: Millis, host: &str, status: &str) {
        let key = Key::new(Kind::Node, "", host);
        let Some(node) = self.api.store().get(&key) else {
            return;
        };
        let mut taints = json::list(node, "/spec/taints").to_vec();
        taints.retain(|taint| taint["key"] != UNREACHABLE);
        if status != "True" {
            taints.push(json!({"key": UNREACHABLE, "effect": "NoSchedule"}));
            taints.push(json!({"key": UNREACHABLE, "effect": "NoExecute"}));
        }
        let by = By::new(now, Caller::Controllers);
        let patches = [
            (
                Part::Status,
                json!({"status": {"conditions": [ready(now, status)]}}),
            ),
            (Part::Main, json!({"spec": {"taints": taints}})),
        ];
        for (part, patch) in patches {
            let key = key.clone();
            let written = self.write(&by, &Write::Merge { key, part, patch });
            debug_assert!(written.is_ok(), "the Node was there just now");
        }
    }

    pub(super) fn back(&mut self, now: Millis, host: &str) {
        if !self.hosts.is_up(host) {
            return;
        }
        self.mark_ready(now, host, "True");
        self.resync(now, host);
    }
}

fn ready(now: Millis, status: &str) -> Value {
    let (reason, message) = if status == "True" {
        ("KubeletReady", "kubelet is posting ready status")
    } else {
        ("NodeStatusUnknown", "Kubelet stopped posting node status.")
    };
    json!({"type": "Ready", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": calendar::stamp(now)})
}
