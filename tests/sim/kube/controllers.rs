//! The controllers of Kubernetes itself: garbage of owners, namespaces, pods of lost hosts.
//! Never blocks a deletion on what is owned: `blockOwnerDeletion` is read by nobody.

use std::sync::Arc;

use serde_json::{Value, json};

use super::faults::Caller;
use super::json;
use super::kinds::{Key, Kind};
use super::writes::{By, DeleteOptions, Part, Write, drop_owner, is_deleting, owner_uids};
use super::{Kube, Millis, Task};

impl Kube {
    fn controller_write(&mut self, now: Millis, write: &Write) -> bool {
        let by = By::new(now, Caller::Controllers);
        self.write(&by, write).is_ok()
    }

    fn controller_delete(&mut self, now: Millis, key: Key, uid: &str) {
        let options = DeleteOptions {
            uid: Some(uid.to_owned()),
            ..DeleteOptions::default()
        };
        self.controller_write(now, &Write::Delete { key, options });
    }

    /// What an owner leaves behind when it is gone (`garbagecollector.go`, `attemptToDeleteItem`).
    pub(super) fn collect(&mut self, now: Millis, owner: &str) {
        let owned: Vec<(Key, Arc<Value>)> = self
            .api
            .store()
            .all()
            .filter(|(_, object)| owner_uids(object).any(|uid| uid == owner))
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect();
        for (key, object) in owned {
            self.judge(now, &key, &object);
        }
    }

    /// An object that was made with owners that may not be there.
    pub(super) fn examine(&mut self, now: Millis, key: &Key, uid: &str) {
        let object = self.api.store().get(key).cloned();
        let same = object.filter(|object| json::text(object, "/metadata/uid") == Some(uid));
        if let Some(object) = same {
            self.judge(now, key, &object);
        }
    }

    /// Deletes what no owner is left of; where one is, only the absent ones are dropped.
    fn judge(&mut self, now: Millis, key: &Key, object: &Arc<Value>) {
        let owners = json::list(object, "/metadata/ownerReferences");
        let (there, absent): (Vec<&Value>, Vec<&Value>) = owners
            .iter()
            .partition(|owner| self.is_there(&key.namespace, owner));
        let uid = json::text_or_empty(object, "/metadata/uid");
        if absent.is_empty() || is_deleting(object) {
            return;
        }
        if there.is_empty() {
            self.controller_delete(now, key.clone(), uid);
            return;
        }
        let mut freed = Value::clone(object);
        for owner in &absent {
            drop_owner(&mut freed, json::text_or_empty(owner, "/uid"));
        }
        let (key, part) = (key.clone(), Part::Main);
        self.controller_write(
            now,
            &Write::Update {
                key,
                part,
                body: freed,
            },
        );
    }

    /// An owner counts by uid: another object under its name is somebody else.
    fn is_there(&self, namespace: &str, owner: &Value) -> bool {
        let text = |pointer: &str| json::text_or_empty(owner, pointer);
        let Some(kind) = Kind::named(text("/apiVersion"), text("/kind")) else {
            // A kind that is not served is never taken for absent.
            return true;
        };
        let found = self
            .api
            .store()
            .get(&Key::new(kind, namespace, text("/name")));
        found.is_some_and(|object| json::text_or_empty(object, "/metadata/uid") == text("/uid"))
    }

    /// One round: everything in the namespace is deleted, and it goes when nothing is left.
    pub(super) fn empty(&mut self, now: Millis, namespace: &str) {
        let left: Vec<(Key, Arc<Value>)> = self
            .api
            .store()
            .all()
            .filter(|(key, _)| key.kind.facts().namespaced && key.namespace == namespace)
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect();
        let key = Key::new(Kind::Namespace, "", namespace);
        if left.is_empty() {
            let write = Write::Merge {
                key,
                part: Part::Main,
                patch: json!({"spec": {"finalizers": null}}),
            };
            self.controller_write(now, &write);
            return;
        }
        for (key, object) in left.into_iter().filter(|(_, object)| !is_deleting(object)) {
            let uid = json::text_or_empty(&object, "/metadata/uid").to_owned();
            self.controller_delete(now, key, &uid);
        }
        let namespace = namespace.to_owned();
        self.file_within(now, self.timing.emptying, Task::Empty { namespace });
    }

    /// Where pods are, by the API server's word.
    fn pods_on(&self, host: &str) -> Vec<(Key, Arc<Value>)> {
        let pods = self.api.store().list(Kind::Pod, None);
        let here = pods.filter(|(_, pod)| json::text(pod, "/spec/nodeName") == Some(host));
        here.map(|(key, pod)| (key.clone(), pod.clone())).collect()
    }

    /// A kubelet has been silent for too long (`node_lifecycle_controller.go`).
    pub(super) fn silent(&mut self, now: Millis, host: &str) {
        if self.hosts.silent_for(host, now) < Some(self.timing.silence) {
            return;
        }
        self.mark_ready(now, host, "Unknown");
        for (key, pod) in self.pods_on(host) {
            let mut conditions = json::list(&pod, "/status/conditions").to_vec();
            for condition in &mut conditions {
                if condition["type"] == "Ready" {
                    condition["status"] = Value::from("False");
                }
            }
            let patch = json!({"status": {"conditions": conditions}});
            let part = Part::Status;
            self.controller_write(now, &Write::Merge { key, part, patch });
        }
        let host = host.to_owned();
        self.file(now + self.timing.toleration, Task::EvictAll { host });
    }

    /// Its pods have tolerated it for long enough (`taint_eviction.go`).
    pub(super) fn evict_all(&mut self, now: Millis, host: &str) {
        let enough = self.timing.silence + self.timing.toleration;
        if self.hosts.silent_for(host, now) < Some(enough) {
            return;
        }
        for (key, pod) in self.pods_on(host) {
            let uid = json::text_or_empty(&pod, "/metadata/uid").to_owned();
            self.controller_delete(now, key, &uid);
        }
    }

    /// Pods of a Node that is gone are removed without grace (`gc_controller.go`).
    pub(super) fn orphans(&mut self, now: Millis, host: &str) {
        if self
            .api
            .store()
            .get(&Key::new(Kind::Node, "", host))
            .is_some()
        {
            return;
        }
        for (key, pod) in self.pods_on(host) {
            let options = DeleteOptions {
                uid: json::text(&pod, "/metadata/uid").map(str::to_owned),
                grace_seconds: Some(0),
                ..DeleteOptions::default()
            };
            self.controller_write(now, &Write::Delete { key, options });
        }
    }
}
