//! Server-side apply: who owns which field, and who is in whose way.
//! Never a schema: lists are taken whole, but for finalizers and owner references.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::json;
use super::kinds::Key;

/// A field, as the keys that lead to it.
pub(crate) type Path = Vec<String>;

/// Which fields each manager applied, by object.
#[derive(Debug, Default)]
pub(crate) struct Owners(BTreeMap<Key, BTreeMap<String, BTreeSet<Path>>>);

/// What is written over an object that somebody else made without apply is owned by them.
const UPDATER: &str = "before-first-apply";

impl Owners {
    /// Fields that would change and are not this manager's: those that another applied, and those
    /// that were there before anybody applied anything.
    pub(super) fn conflicts(
        &self,
        key: &Key,
        manager: &str,
        live: &Value,
        wanted: &Value,
    ) -> Vec<(String, String)> {
        let owners = self.0.get(key);
        let mine = owners.and_then(|owners| owners.get(manager));
        let mut found = Vec::new();
        for path in fields(wanted) {
            let (Some(is), Some(wants)) = (at(live, &path), at(wanted, &path)) else {
                continue;
            };
            if is == wants || is_set(&path) {
                continue;
            }
            let others = owners.into_iter().flatten();
            let other = others
                .filter(|(name, held)| name.as_str() != manager && held.contains(&path))
                .map(|(name, _)| name.clone())
                .next();
            let unowned = mine.is_none_or(|mine| !mine.contains(&path));
            let other = other.or_else(|| unowned.then(|| UPDATER.to_owned()));
            found.extend(other.map(|other| (other, format!(".{}", path.join(".")))));
        }
        found
    }

    /// Fields that this manager applied before, does not now, and nobody else did.
    pub(super) fn given_up(&self, key: &Key, manager: &str, wanted: &BTreeSet<Path>) -> Vec<Path> {
        let Some(owners) = self.0.get(key) else {
            return Vec::new();
        };
        let held = owners.get(manager).into_iter().flatten();
        held.filter(|path| {
            let others = owners.iter().filter(|(name, _)| name.as_str() != manager);
            !wanted.contains(*path) && others.into_iter().all(|(_, held)| !held.contains(*path))
        })
        .cloned()
        .collect()
    }

    /// From now on these are this manager's; where it came in by force, nobody else's value stays.
    pub(super) fn record(&mut self, key: &Key, manager: &str, fields: BTreeSet<Path>) {
        let owners = self.0.entry(key.clone()).or_default();
        for (name, held) in owners.iter_mut() {
            if name != manager {
                held.retain(|path| !fields.contains(path) || is_set(path));
            }
        }
        owners.insert(manager.to_owned(), fields);
    }

    /// Somebody wrote without apply: what they changed is no longer anybody's who applied it.
    pub(super) fn overwritten(&mut self, key: &Key, before: &Value, after: &Value) {
        for held in self
            .0
            .get_mut(key)
            .into_iter()
            .flat_map(BTreeMap::values_mut)
        {
            held.retain(|path| at(before, path) == at(after, path));
        }
    }

    pub(super) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }
}

/// Lists that managers share.
fn is_set(path: &Path) -> bool {
    let shared = matches!(
        path.last().map(String::as_str),
        Some("finalizers" | "ownerReferences")
    );
    shared && path.len() == 2
}

/// The fields that an applied object has an opinion on.
pub(crate) fn fields(wanted: &Value) -> BTreeSet<Path> {
    let mut found = BTreeSet::new();
    gather(wanted, &mut Vec::new(), &mut found);
    let identity = |path: &Path| match path.as_slice() {
        [only] => only == "kind" || only == "apiVersion",
        [first, second] => {
            first == "metadata"
                && matches!(
                    second.as_str(),
                    "name" | "namespace" | "uid" | "resourceVersion"
                )
        }
        _ => false,
    };
    found.retain(|path| !identity(path));
    found
}

fn gather(value: &Value, path: &mut Path, found: &mut BTreeSet<Path>) {
    match value.as_object() {
        Some(map) if !map.is_empty() => {
            for (key, member) in map {
                path.push(key.clone());
                gather(member, path, found);
                path.pop();
            }
        }
        Some(_) | None => {
            found.insert(path.clone());
        }
    }
}

fn at<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(key))
}

/// Removes a field.
pub(super) fn remove(object: &mut Value, path: &[String]) {
    let Some((last, above)) = path.split_last() else {
        return;
    };
    let inner = above
        .iter()
        .try_fold(object, |value, key| value.get_mut(key));
    if let Some(Value::Object(map)) = inner {
        map.remove(last);
    }
}

/// Puts what is wanted over what is there.
pub(super) fn lay_over(object: &mut Value, wanted: &Value) {
    let before = [
        json::list(object, "/metadata/finalizers").to_vec(),
        json::list(object, "/metadata/ownerReferences").to_vec(),
    ];
    json::merge(object, wanted);
    let [finalizers, owners] = before;
    unite(object, "finalizers", finalizers, |a, b| a == b);
    unite(object, "ownerReferences", owners, |a, b| {
        a["uid"] == b["uid"]
    });
}

fn unite(
    object: &mut Value,
    field: &str,
    before: Vec<Value>,
    same: impl Fn(&Value, &Value) -> bool,
) {
    let metadata = json::object(object, "metadata");
    let Some(Value::Array(now)) = metadata.get_mut(field) else {
        return;
    };
    let mut all = before;
    for one in now.drain(..) {
        match all.iter_mut().find(|held| same(held, &one)) {
            Some(held) => *held = one,
            None => all.push(one),
        }
    }
    *now = all;
}
