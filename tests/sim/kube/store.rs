//! The objects, each version of them, and the one counter that orders all writes.
//! Never judges a write.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::kinds::{Key, Kind};
use super::refusal::Refusal;

/// What a write did to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

/// One write, as the history keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) version: u64,
    pub(crate) key: Key,
    pub(crate) change: Change,
    pub(crate) before: Option<Arc<Value>>,
    /// The new object; of a deleted one its last state under the version of the deletion.
    pub(crate) object: Arc<Value>,
}

/// What etcd is to a real API server.
#[derive(Debug)]
pub(crate) struct Store {
    objects: BTreeMap<Key, Arc<Value>>,
    history: VecDeque<Entry>,
    /// The last version whose entry is no longer kept.
    compacted: u64,
    version: u64,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            compacted: 0,
            // A real one is never at 0, which means "any" in a request.
            version: 1,
        }
    }

    /// The version of the last write.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Up to where the history is forgotten.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(key)
    }

    /// Every object.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.objects.iter()
    }

    /// The objects of a kind, of one namespace or of all, in the order of their keys.
    pub(crate) fn list<'a>(
        &'a self,
        kind: Kind,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> + use<'a> {
        let namespace = namespace.map(str::to_owned);
        let from = Key {
            kind,
            namespace: namespace.clone().unwrap_or_default(),
            name: String::new(),
        };
        self.objects.range(from..).take_while(move |(key, _)| {
            let inside = namespace.as_ref().is_none_or(|one| key.namespace == *one);
            key.kind == kind && inside
        })
    }

    /// The objects of a kind as they were at an earlier version: the history is taken back.
    pub(crate) fn list_at(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        version: u64,
    ) -> Result<BTreeMap<Key, Arc<Value>>, Refusal> {
        if version < self.compacted {
            return Err(Refusal::too_old(version, self.compacted));
        }
        let now = self.list(kind, namespace);
        let mut then: BTreeMap<Key, Arc<Value>> = now
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect();
        let undone = self.history.iter().rev();
        for entry in undone.take_while(|entry| entry.version > version) {
            let inside = namespace.is_none_or(|namespace| entry.key.namespace == namespace);
            if entry.key.kind != kind || !inside {
                continue;
            }
            match &entry.before {
                Some(before) => then.insert(entry.key.clone(), before.clone()),
                None => then.remove(&entry.key),
            };
        }
        Ok(then)
    }

    /// The version that was the newest so many writes ago, as far as the history goes.
    pub(crate) fn version_before(&self, writes: u64) -> u64 {
        self.version.saturating_sub(writes).max(self.compacted)
    }

    /// The writes after a version.
    pub(crate) fn since(&self, version: u64) -> impl Iterator<Item = &Entry> {
        let kept = self
            .history
            .partition_point(|entry| entry.version <= version);
        self.history.iter().skip(kept)
    }

    /// Writes an object, new or not, under the next version.
    pub(crate) fn put(&mut self, key: &Key, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = Value::from(self.version.to_string());
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), object.clone());
        let change = if before.is_some() {
            Change::Modified
        } else {
            Change::Added
        };
        self.remember(key, change, before, object.clone());
        object
    }

    /// Removes an object; the last state that watchers are shown is given.
    pub(crate) fn remove(&mut self, key: &Key, mut last: Value) -> Arc<Value> {
        self.version += 1;
        last["metadata"]["resourceVersion"] = Value::from(self.version.to_string());
        let before = self.objects.remove(key);
        let last = Arc::new(last);
        self.remember(key, Change::Deleted, before, last.clone());
        last
    }

    fn remember(
        &mut self,
        key: &Key,
        change: Change,
        before: Option<Arc<Value>>,
        object: Arc<Value>,
    ) {
        self.history.push_back(Entry {
            version: self.version,
            key: key.clone(),
            change,
            before,
            object,
        });
    }

    /// The write made last.
    pub(crate) fn last(&self) -> Option<&Entry> {
        self.history.back()
    }

    /// Forgets the history: whoever is behind finds it gone.
    pub(crate) fn compact(&mut self) {
        self.compacted = self.version;
        self.history.clear();
    }
}
