//! A Kubernetes that misbehaves on request: API server, scheduler, kubelets and controllers.
//! Never validates a schema: objects come valid, or deliberately past it.
//!
//! ```text
//! client.rs ──► api.rs ──► writes.rs ──► store.rs ──► watch.rs ──► client.rs
//!  (async)      target.rs   apply.rs        │
//!               faults.rs                   └─ notices ─► agenda: controllers.rs, scheduler.rs,
//! hand.rs ───────────────► writes.rs                      kubelet.rs ─► trait Containers
//! ```
//!
//! A fault is a [`faults::Rule`], a function of [`api::Api`] (cut, expire, compact) or one of
//! `hosts.rs`, `kubelet.rs` and `hand.rs`. All else is right, and takes the time that
//! [`api::Latencies`] and [`Timing`] say.

#![expect(
    dead_code,
    reason = "what the suites do not use yet is part of the model all the same"
)]

pub(crate) mod api;
mod apply;
pub(crate) mod calendar;
pub(crate) mod client;
pub(crate) mod containers;
mod controllers;
pub(crate) mod faults;
pub(crate) mod hand;
pub(crate) mod hosts;
pub(crate) mod json;
pub(crate) mod kinds;
pub(crate) mod kubelet;
pub(crate) mod pool;
pub(crate) mod refusal;
pub(crate) mod rng;
mod scheduler;
mod selector;
mod status;
pub(crate) mod store;
pub(crate) mod target;
mod tests;
mod volumes;
pub(crate) mod watch;
pub(crate) mod writes;

use std::collections::BTreeMap;

use api::{Answer, Api, Notice};
use containers::Containers;
use hosts::Hosts;
use kinds::{Key, Kind};
use kubelet::Kubelets;
use refusal::Refusal;
use rng::Rng;
use store::Change;
use target::Call;
use writes::{By, Write, Written, is_deleting, owner_uids};

/// Virtual time: milliseconds since the simulation began.
pub(crate) type Millis = u64;

/// A shortest and a longest duration: each time one between them is drawn.
pub(crate) type Span = (Millis, Millis);

/// How long the parts of Kubernetes take when nothing is wrong.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    /// From a pod's creation to its placement.
    pub(crate) schedule: Span,
    /// Before a pod that fits nowhere is tried again after something changed (`podInitialBackoff`).
    pub(crate) reschedule: Span,
    /// From a write to the kubelet's first look at it.
    pub(crate) kubelet: Span,
    /// Volumes and sandbox.
    pub(crate) sandbox: Span,
    /// The first pull of an image on a host; later ones are free.
    pub(crate) pull: Span,
    /// From the image to the first instruction of the process.
    pub(crate) start: Span,
    /// From a change of a container to the kubelet's word of it: `PLEG` looks once a second.
    pub(crate) relist: Span,
    /// From a change of a ConfigMap to the files in a container: the kubelet syncs once a minute.
    pub(crate) propagation: Span,
    /// From the end of an owner to that of what it owned.
    pub(crate) collection: Span,
    /// Between two rounds through a namespace that is going.
    pub(crate) emptying: Span,
    /// A kubelet that is silent so long makes its Node not ready (`--node-monitor-grace-period`).
    pub(crate) silence: Millis,
    /// Pods are evicted so long after that (`DefaultTolerationSeconds`).
    pub(crate) toleration: Millis,
    /// Pods of a Node that is gone are removed so late (`gc_controller.go`, `quarantineTime`).
    pub(crate) pod_gc: Millis,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            schedule: (5, 30),
            reschedule: (1000, 1500),
            kubelet: (5, 50),
            sandbox: (100, 400),
            pull: (1000, 4000),
            start: (50, 300),
            relist: (20, 1000),
            propagation: (0, 60_000),
            collection: (20, 200),
            emptying: (100, 500),
            silence: 40_000,
            toleration: 300_000,
            pod_gc: 40_000,
        }
    }
}

/// Something that will happen by itself.
#[derive(Clone, Debug)]
enum Task {
    /// The owner with this uid is gone.
    Collect {
        owner: String,
    },
    /// Is the owner that this object names there at all?
    Examine {
        key: Key,
        uid: String,
    },
    /// One round through a namespace that is going.
    Empty {
        namespace: String,
    },
    Schedule {
        key: Key,
    },
    /// Pods that fitted nowhere are tried again.
    Reschedule,
    /// The kubelet looks at a pod.
    Sync {
        key: Key,
        uid: String,
    },
    Probe {
        uid: String,
    },
    Refresh {
        uid: String,
    },
    /// The processes of a host end with it.
    PowerOff {
        host: String,
    },
    /// The control plane notices that a kubelet is silent.
    Silent {
        host: String,
    },
    /// It evicts the pods of a silent kubelet.
    EvictAll {
        host: String,
    },
    /// A kubelet is back.
    Back {
        host: String,
    },
    /// Pods of a Node that is gone are removed.
    Orphans {
        host: String,
    },
}

/// The whole of it.
#[derive(Debug)]
pub(crate) struct Kube {
    /// The API server.
    pub(crate) api: Api,
    /// How long things take.
    pub(crate) timing: Timing,
    hosts: Hosts,
    kubelets: Kubelets,
    agenda: BTreeMap<(Millis, u64), Task>,
    filed: u64,
    reschedules: bool,
    rng: Rng,
    /// The latest moment that anything happened at: nothing happens before it any more.
    now: Millis,
}

impl Kube {
    /// An empty cluster without hosts; `default` and `kube-system` are there.
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut kube = Self {
            api: Api::new(rng.draw()),
            timing: Timing::default(),
            hosts: Hosts::default(),
            kubelets: Kubelets::default(),
            agenda: BTreeMap::new(),
            filed: 0,
            reschedules: false,
            rng,
            now: 0,
        };
        for namespace in ["default", "kube-system"] {
            kube.hand(0).create_namespace(namespace);
        }
        kube
    }

    /// Serves a request at once; the model must have been advanced to `now` before.
    pub(crate) fn request(&mut self, now: Millis, call: &Call) -> Answer {
        self.now = self.now.max(now);
        let answer = self.api.request(now, call);
        self.digest(now);
        answer
    }

    /// When something is to happen by itself next. Watches have a time of their own.
    pub(crate) fn next_event(&self) -> Option<Millis> {
        self.agenda.keys().next().map(|(at, _)| *at)
    }

    /// Lets everything happen that is due, and looks which containers ended.
    pub(crate) fn advance(&mut self, now: Millis, containers: &mut dyn Containers) {
        while let Some(entry) = self.agenda.first_entry() {
            let due = entry.key().0;
            if due > now {
                break;
            }
            let task = entry.remove();
            if due > self.now {
                self.notice_exits(self.now, containers);
                self.now = due;
            }
            self.act(self.now, task, containers);
        }
        self.now = self.now.max(now);
        self.notice_exits(self.now, containers);
    }

    fn act(&mut self, now: Millis, task: Task, containers: &mut dyn Containers) {
        match task {
            Task::Collect { owner } => self.collect(now, &owner),
            Task::Examine { key, uid } => self.examine(now, &key, &uid),
            Task::Empty { namespace } => self.empty(now, &namespace),
            Task::Schedule { key } => self.schedule(now, &key),
            Task::Reschedule => self.reschedule(now),
            Task::Sync { key, uid } => self.sync(now, &key, &uid, containers),
            Task::Probe { uid } => self.probe(now, &uid, containers),
            Task::Refresh { uid } => self.refresh(now, &uid, containers),
            Task::PowerOff { host } => self.power_off(now, &host, containers),
            Task::Silent { host } => self.silent(now, &host),
            Task::EvictAll { host } => self.evict_all(now, &host),
            Task::Back { host } => self.back(now, &host),
            Task::Orphans { host } => self.orphans(now, &host),
        }
    }

    fn file(&mut self, at: Millis, task: Task) {
        self.filed += 1;
        self.agenda.insert((at, self.filed), task);
    }

    fn file_within(&mut self, now: Millis, span: Span, task: Task) {
        let after = self.rng.between(span);
        self.file(now + after, task);
    }

    fn write(&mut self, by: &By, write: &Write) -> Result<Written, Refusal> {
        self.now = self.now.max(by.now);
        let written = self.api.write(by, write);
        self.digest(by.now);
        written
    }

    /// Lets those who watch inside Kubernetes hear of what was written.
    fn digest(&mut self, now: Millis) {
        for notice in self.api.take_notices() {
            self.hear_of_owners(now, &notice);
            match notice.key.kind {
                Kind::Pod => self.hear_of_pod(now, &notice),
                Kind::Node => self.hear_of_node(now, &notice),
                Kind::Namespace => self.hear_of_namespace(now, &notice),
                Kind::ConfigMap | Kind::Secret => self.hear_of_volume(now, &notice),
                Kind::ValkeyConfig
                | Kind::ValkeyImage
                | Kind::ValkeyRole
                | Kind::Event
                | Kind::Service
                | Kind::ValkeyCluster
                | Kind::ValkeyNode => {}
            }
        }
    }

    fn hear_of_owners(&mut self, now: Millis, notice: &Notice) {
        let uid = json::text_or_empty(&notice.object, "/metadata/uid").to_owned();
        let key = notice.key.clone();
        let span = self.timing.collection;
        match notice.change {
            Change::Deleted => self.file_within(now, span, Task::Collect { owner: uid }),
            // The owner may have gone before what it owns was made.
            Change::Added if owner_uids(&notice.object).next().is_some() => {
                self.file_within(now, span, Task::Examine { key, uid });
            }
            Change::Added | Change::Modified => {}
        }
    }

    fn hear_of_pod(&mut self, now: Millis, notice: &Notice) {
        let object = &notice.object;
        let key = notice.key.clone();
        let uid = json::text_or_empty(object, "/metadata/uid").to_owned();
        let placed = json::text(object, "/spec/nodeName").is_some();
        if notice.change == Change::Added && !placed {
            self.file_within(now, self.timing.schedule, Task::Schedule { key });
            return;
        }
        let was_placed = (notice.before.as_deref())
            .is_some_and(|before| json::text(before, "/spec/nodeName").is_some());
        let grace = |object: &serde_json::Value| {
            object
                .pointer("/metadata/deletionGracePeriodSeconds")
                .cloned()
        };
        let told_to_go =
            is_deleting(object) && notice.before.as_deref().and_then(grace) != grace(object);
        let gone = notice.change == Change::Deleted;
        if placed && (!was_placed || told_to_go || gone) {
            self.file_within(now, self.timing.kubelet, Task::Sync { key, uid });
        }
        let phase = json::text_or_empty(object, "/status/phase");
        // Room may have become free.
        if gone || matches!(phase, "Failed" | "Succeeded") {
            self.reschedule_soon(now);
        }
    }

    fn hear_of_node(&mut self, now: Millis, notice: &Notice) {
        self.reschedule_soon(now);
        if notice.change == Change::Deleted {
            let host = notice.key.name.clone();
            self.file(now + self.timing.pod_gc, Task::Orphans { host });
        }
    }

    fn hear_of_namespace(&mut self, now: Millis, notice: &Notice) {
        let before = notice.before.as_deref();
        if notice.change == Change::Modified
            && is_deleting(&notice.object)
            && !before.is_some_and(is_deleting)
        {
            let namespace = notice.key.name.clone();
            self.file_within(now, self.timing.emptying, Task::Empty { namespace });
        }
    }

    fn hear_of_volume(&mut self, now: Millis, notice: &Notice) {
        if notice.change == Change::Deleted {
            return;
        }
        for uid in self.kubelets.users_of(&notice.key) {
            self.file_within(now, self.timing.propagation, Task::Refresh { uid });
        }
    }
}
