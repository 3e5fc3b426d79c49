//! What a write does to an object, and what it may not do: the registry of the API server.
//! Never validates a schema.

use std::sync::Arc;

use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};

use super::Millis;
use super::api::Api;
use super::apply;
use super::calendar;
use super::faults::{Caller, Verb};
use super::json;
use super::kinds::{Key, Kind};
use super::refusal::Refusal;

/// Who writes, when, under which name.
#[derive(Clone, Debug)]
pub(crate) struct By {
    pub(crate) now: Millis,
    pub(crate) caller: Caller,
    pub(crate) manager: String,
}

impl By {
    pub(crate) fn new(now: Millis, caller: Caller) -> Self {
        let manager = match caller {
            Caller::Operator(_) => "operator",
            Caller::Hand => "kubectl",
            Caller::Kubelet => "kubelet",
            Caller::Scheduler => "kube-scheduler",
            Caller::Controllers => "kube-controller-manager",
        };
        Self {
            now,
            caller,
            manager: manager.to_owned(),
        }
    }
}

/// Which half of an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    Status,
    /// The scheduler's path: `spec.nodeName` and nothing else.
    Binding,
}

/// What becomes of those that an object owns (`metav1.DeletionPropagation`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Propagation {
    #[default]
    Background,
    /// They lose their owner and stay.
    Orphan,
}

/// `metav1.DeleteOptions`.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) grace_seconds: Option<u64>,
    pub(crate) propagation: Propagation,
}

/// One write.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Create {
        kind: Kind,
        namespace: String,
        body: Value,
    },
    Update {
        key: Key,
        part: Part,
        body: Value,
    },
    Merge {
        key: Key,
        part: Part,
        patch: Value,
    },
    Apply {
        key: Key,
        part: Part,
        body: Value,
        force: bool,
    },
    Delete {
        key: Key,
        options: DeleteOptions,
    },
}

impl Write {
    pub(crate) fn verb(&self) -> Verb {
        match self {
            Self::Create { .. } => Verb::Create,
            Self::Update { .. } => Verb::Update,
            Self::Merge { .. } => Verb::Patch,
            Self::Apply { .. } => Verb::Apply,
            Self::Delete { .. } => Verb::Delete,
        }
    }

    pub(crate) fn part(&self) -> Part {
        match self {
            Self::Create { .. } | Self::Delete { .. } => Part::Main,
            Self::Update { part, .. } | Self::Merge { part, .. } | Self::Apply { part, .. } => {
                *part
            }
        }
    }

    /// The object that it is about; of a create without a name, an empty name.
    pub(crate) fn key(&self) -> Key {
        match self {
            Self::Create {
                kind,
                namespace,
                body,
            } => Key::new(
                *kind,
                namespace,
                json::text_or_empty(body, "/metadata/name"),
            ),
            Self::Update { key, .. }
            | Self::Merge { key, .. }
            | Self::Apply { key, .. }
            | Self::Delete { key, .. } => key.clone(),
        }
    }
}

/// What a write leaves.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) object: Arc<Value>,
    /// The object is gone; what is given is its last state.
    pub(crate) gone: bool,
    /// It was made by this write.
    pub(crate) created: bool,
}

impl Written {
    fn kept(object: Arc<Value>) -> Self {
        Self {
            object,
            gone: false,
            created: false,
        }
    }
}

/// Metadata that only the API server writes.
const SYSTEM: [&str; 7] = [
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

/// The grace of a pod that names none.
const GRACE_DEFAULT_SECONDS: u64 = 30;

impl Api {
    /// Does a write, or says why not.
    pub(super) fn perform(&mut self, by: &By, write: &Write) -> Result<Written, Refusal> {
        match write {
            Write::Create {
                kind,
                namespace,
                body,
            } => self.create(by, *kind, namespace, body),
            Write::Update { key, part, body } => {
                let before = self.existing(key)?;
                let version = json::text_or_empty(body, "/metadata/resourceVersion");
                if version.is_empty() && key.kind.custom() {
                    let why = "Invalid value: 0x0: must be specified for an update";
                    let field = "metadata.resourceVersion";
                    return Err(Refusal::invalid(key.kind, &key.name, field, why));
                }
                let mut after = body.clone();
                json::drop_nulls(&mut after);
                self.overwrite(by, key, *part, &before, after)
            }
            Write::Merge { key, part, patch } => {
                let before = self.existing(key)?;
                let mut after = Value::clone(&before);
                // Not a lock unless the patch has one.
                json::object(&mut after, "metadata").remove("resourceVersion");
                json::merge(&mut after, patch);
                self.overwrite(by, key, *part, &before, after)
            }
            Write::Apply {
                key,
                part,
                body,
                force,
            } => self.apply(by, key, *part, body, *force),
            Write::Delete { key, options } => self.delete(by, key, options),
        }
    }

    fn existing(&self, key: &Key) -> Result<Arc<Value>, Refusal> {
        let found = self.store().get(key).cloned();
        found.ok_or_else(|| Refusal::not_found(key.kind, &key.name))
    }

    fn create(
        &mut self,
        by: &By,
        kind: Kind,
        namespace: &str,
        body: &Value,
    ) -> Result<Written, Refusal> {
        let mut object = self.newborn(by, kind, namespace, body)?;
        let key = Key::new(
            kind,
            namespace,
            json::text_or_empty(&object, "/metadata/name"),
        );
        self.namespace_takes(&key)?;
        if self.store().get(&key).is_some() {
            return Err(Refusal::already_exists(&key));
        }
        let uid = self.next_uid();
        object["metadata"]["uid"] = Value::from(uid);
        let object = self.commit(by.now, &key, object);
        Ok(Written {
            object,
            gone: false,
            created: true,
        })
    }

    /// An object as it is written first: what others may not set is not theirs to set.
    fn newborn(
        &mut self,
        by: &By,
        kind: Kind,
        namespace: &str,
        body: &Value,
    ) -> Result<Value, Refusal> {
        let mut object = body.clone();
        json::drop_nulls(&mut object);
        if !object.is_object() {
            return Err(Refusal::bad_request("the body is not an object"));
        }
        let facts = kind.facts();
        let said = json::text(&object, "/kind");
        if said.is_some_and(|said| said != facts.name) {
            return Err(Refusal::bad_request("the object is of another kind"));
        }
        object["kind"] = Value::from(facts.name);
        object["apiVersion"] = Value::from(kind.api_version());
        let metadata = json::object(&mut object, "metadata");
        if metadata.contains_key("resourceVersion") {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(Refusal::bad_request(why));
        }
        for field in SYSTEM {
            metadata.remove(field);
        }
        check_namespace(metadata, facts.namespaced, namespace)?;
        self.choose_name(kind, metadata)?;
        metadata.insert("creationTimestamp".into(), calendar::stamp(by.now).into());
        if has_generation(kind) {
            metadata.insert("generation".into(), 1.into());
        }
        tidy(metadata);
        initial_status(kind, &mut object);
        Ok(object)
    }

    fn choose_name(
        &mut self,
        kind: Kind,
        metadata: &mut Map<String, Value>,
    ) -> Result<(), Refusal> {
        if metadata.get("name").and_then(Value::as_str).is_some() {
            return Ok(());
        }
        let Some(prefix) = metadata.get("generateName").and_then(Value::as_str) else {
            let why = "Required value: name or generateName is required";
            return Err(Refusal::invalid(kind, "", "metadata.name", why));
        };
        let name = format!("{prefix}{}", self.name_suffix());
        metadata.insert("name".into(), name.into());
        Ok(())
    }

    fn namespace_takes(&self, key: &Key) -> Result<(), Refusal> {
        if !key.kind.facts().namespaced {
            return Ok(());
        }
        let namespace = Key::new(Kind::Namespace, "", &key.namespace);
        match self.store().get(&namespace) {
            None => Err(Refusal::not_found(Kind::Namespace, &key.namespace)),
            Some(namespace) if is_deleting(namespace) => {
                Err(Refusal::terminating(key.kind, &key.name, &key.namespace))
            }
            Some(_) => Ok(()),
        }
    }

    fn overwrite(
        &mut self,
        by: &By,
        key: &Key,
        part: Part,
        before: &Arc<Value>,
        after: Value,
    ) -> Result<Written, Refusal> {
        let written = self.settle(by, key, part, before, after)?;
        self.owners().overwritten(key, before, &written.object);
        Ok(written)
    }

    /// Takes a changed object as far as the caller may change it.
    fn settle(
        &mut self,
        by: &By,
        key: &Key,
        part: Part,
        before: &Arc<Value>,
        mut after: Value,
    ) -> Result<Written, Refusal> {
        if part == Part::Status && !key.kind.facts().status {
            return Err(Refusal::no_such_path());
        }
        check_identity(key, part, before, &after)?;
        let metadata = json::object(&mut after, "metadata");
        tidy(metadata);
        let old_metadata = &before["metadata"];
        for field in SYSTEM.into_iter().chain(["resourceVersion"]) {
            match old_metadata.get(field) {
                Some(value) => metadata.insert(field.to_owned(), value.clone()),
                None => metadata.remove(field),
            };
        }
        for field in ["kind", "apiVersion"] {
            json::carry(before, &mut after, field);
        }
        match part {
            Part::Main => {
                if key.kind.facts().status {
                    json::carry(before, &mut after, "status");
                }
                fold_string_data(key.kind, &mut after);
                check_immutable(key, before, &after)?;
            }
            Part::Status => {
                let mut only = Value::clone(before);
                json::carry(&after, &mut only, "status");
                after = only;
            }
            Part::Binding => {}
        }
        check_finalizers(key, before, &after)?;
        if after == **before {
            return Ok(Written::kept(before.clone()));
        }
        bump_generation(key.kind, before, &mut after);
        if may_go(key.kind, &after) {
            return Ok(self.commit_removal(by.now, key, after));
        }
        Ok(Written::kept(self.commit(by.now, key, after)))
    }

    /// Server-side apply.
    fn apply(
        &mut self,
        by: &By,
        key: &Key,
        part: Part,
        body: &Value,
        force: bool,
    ) -> Result<Written, Refusal> {
        let mut wanted = body.clone();
        json::drop_nulls(&mut wanted);
        let Some(before) = self.store().get(key).cloned() else {
            if part != Part::Main {
                return Err(Refusal::not_found(key.kind, &key.name));
            }
            json::object(&mut wanted, "metadata").insert("name".into(), key.name.as_str().into());
            let written = self.create(by, key.kind, &key.namespace, &wanted)?;
            self.owners()
                .record(key, &by.manager, apply::fields(&wanted));
            return Ok(written);
        };
        let fields = apply::fields(&wanted);
        let conflicts = self.owners().conflicts(key, &by.manager, &before, &wanted);
        if !conflicts.is_empty() && !force {
            return Err(Refusal::managed(key, &conflicts));
        }
        let mut after = Value::clone(&before);
        json::object(&mut after, "metadata").remove("resourceVersion");
        for gone in self.owners().given_up(key, &by.manager, &fields) {
            apply::remove(&mut after, &gone);
        }
        apply::lay_over(&mut after, &wanted);
        let written = self.settle(by, key, part, &before, after)?;
        self.owners().record(key, &by.manager, fields);
        Ok(written)
    }

    fn delete(&mut self, by: &By, key: &Key, options: &DeleteOptions) -> Result<Written, Refusal> {
        let before = self.existing(key)?;
        check_preconditions(key, &before, options)?;
        if options.propagation == Propagation::Orphan {
            let uid = json::text_or_empty(&before, "/metadata/uid").to_owned();
            self.orphan(by.now, &uid);
        }
        let grace = grace_seconds(key.kind, &before, options);
        let deleting = is_deleting(&before);
        let left = before.pointer("/metadata/deletionGracePeriodSeconds");
        let left = left.and_then(Value::as_u64);
        // A grace once granted is only ever shortened.
        if deleting && left.is_some_and(|left| left <= grace) {
            return Ok(Written::kept(before));
        }
        let mut after = Value::clone(&before);
        let metadata = json::object(&mut after, "metadata");
        let until = calendar::stamp(by.now + grace * 1000);
        metadata.insert("deletionTimestamp".into(), until.into());
        metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
        if let (false, Some(generation)) = (deleting, metadata.get("generation")) {
            let next = generation.as_u64().unwrap_or_default() + 1;
            metadata.insert("generation".into(), next.into());
        }
        if key.kind == Kind::Namespace {
            after["status"]["phase"] = Value::from("Terminating");
        }
        if may_go(key.kind, &after) {
            return Ok(self.commit_removal(by.now, key, after));
        }
        Ok(Written::kept(self.commit(by.now, key, after)))
    }

    fn commit_removal(&mut self, now: Millis, key: &Key, last: Value) -> Written {
        self.owners().forget(key);
        Written {
            object: self.remove(now, key, last),
            gone: true,
            created: false,
        }
    }

    /// Takes an owner off all that name it.
    fn orphan(&mut self, now: Millis, uid: &str) {
        let owned: Vec<(Key, Arc<Value>)> = self
            .store()
            .all()
            .filter(|(_, object)| owner_uids(object).any(|owner| owner == uid))
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect();
        for (key, object) in owned {
            let mut freed = Value::clone(&object);
            drop_owner(&mut freed, uid);
            self.commit(now, &key, freed);
        }
    }
}

/// Whether it is on its way out.
pub(crate) fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// The uids of those that own an object.
pub(crate) fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    let owners = json::list(object, "/metadata/ownerReferences");
    owners.iter().filter_map(|owner| owner["uid"].as_str())
}

/// Takes one owner off an object.
pub(crate) fn drop_owner(object: &mut Value, uid: &str) {
    let metadata = json::object(object, "metadata");
    if let Some(Value::Array(owners)) = metadata.get_mut("ownerReferences") {
        owners.retain(|owner| owner["uid"] != uid);
    }
    tidy(metadata);
}

/// Empty lists and maps of metadata are not kept, as Go's `omitempty` does not.
fn tidy(metadata: &mut Map<String, Value>) {
    for field in ["finalizers", "ownerReferences", "labels", "annotations"] {
        let empty = metadata.get(field).is_some_and(|value| {
            value.is_null()
                || value.as_array().is_some_and(Vec::is_empty)
                || value.as_object().is_some_and(Map::is_empty)
        });
        if empty {
            metadata.remove(field);
        }
    }
}

fn check_namespace(
    metadata: &mut Map<String, Value>,
    namespaced: bool,
    namespace: &str,
) -> Result<(), Refusal> {
    if !namespaced {
        metadata.remove("namespace");
        return Ok(());
    }
    match metadata.get("namespace").and_then(Value::as_str) {
        Some(said) if !said.is_empty() && said != namespace => Err(Refusal::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
        Some(_) | None => {
            metadata.insert("namespace".into(), namespace.into());
            Ok(())
        }
    }
}

/// A write that names another object than it is sent to, or a version or uid that is no more. Of a status the uid is
/// left out (`PrepareForUpdate` of `status_strategy.go`).
fn check_identity(key: &Key, part: Part, before: &Value, after: &Value) -> Result<(), Refusal> {
    let name = json::text_or_empty(after, "/metadata/name");
    if !name.is_empty() && name != key.name {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            key.name
        )));
    }
    let uid = json::text_or_empty(after, "/metadata/uid");
    let held = json::text_or_empty(before, "/metadata/uid");
    if part == Part::Main && !uid.is_empty() && uid != held {
        let why = format!("Invalid value: \"{uid}\": field is immutable");
        return Err(Refusal::invalid(key.kind, &key.name, "metadata.uid", &why));
    }
    let version = json::text_or_empty(after, "/metadata/resourceVersion");
    if !version.is_empty() && version != json::text_or_empty(before, "/metadata/resourceVersion") {
        return Err(Refusal::modified(key.kind, &key.name));
    }
    Ok(())
}

/// `rest.BeforeDelete`.
fn check_preconditions(key: &Key, before: &Value, options: &DeleteOptions) -> Result<(), Refusal> {
    let held = json::text_or_empty(before, "/metadata/uid");
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != held) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({held}). The \
             object might have been deleted and then recreated"
        );
        return Err(Refusal::conflict(key.kind, &key.name, &why));
    }
    let held = json::text_or_empty(before, "/metadata/resourceVersion");
    if let Some(version) = options
        .version
        .as_deref()
        .filter(|version| *version != held)
    {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the \
             ResourceVersion in record ({held}). The object might have been modified"
        );
        return Err(Refusal::conflict(key.kind, &key.name, &why));
    }
    Ok(())
}

/// `rest.ValidateObjectMetaUpdate`: whoever is being deleted is held by nobody new.
fn check_finalizers(key: &Key, before: &Value, after: &Value) -> Result<(), Refusal> {
    if !is_deleting(before) {
        return Ok(());
    }
    let held = json::texts(before, "/metadata/finalizers");
    let new: Vec<&str> = json::texts(after, "/metadata/finalizers")
        .into_iter()
        .filter(|finalizer| !held.contains(finalizer))
        .collect();
    if new.is_empty() {
        return Ok(());
    }
    let why = format!(
        "Forbidden: no new finalizers can be added if the object is being deleted, found new \
         finalizers []string{new:?}"
    );
    Err(Refusal::invalid(
        key.kind,
        &key.name,
        "metadata.finalizers",
        &why,
    ))
}

/// Immutable Secrets and ConfigMaps, and pods, whose spec stays as it was made.
fn check_immutable(key: &Key, before: &Value, after: &Value) -> Result<(), Refusal> {
    let fixed: &[&str] = match key.kind {
        Kind::Secret | Kind::ConfigMap if before["immutable"] == true => {
            &["immutable", "data", "binaryData", "type"]
        }
        Kind::Pod => &["spec"],
        Kind::Namespace
        | Kind::Node
        | Kind::ValkeyConfig
        | Kind::ValkeyImage
        | Kind::ValkeyRole
        | Kind::ConfigMap
        | Kind::Event
        | Kind::Secret
        | Kind::Service
        | Kind::ValkeyCluster
        | Kind::ValkeyNode => &[],
    };
    let Some(field) = fixed
        .iter()
        .find(|field| before.get(**field) != after.get(**field))
    else {
        return Ok(());
    };
    let why = if key.kind == Kind::Pod {
        "Forbidden: pod updates may not change fields other than \
         `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
         `spec.tolerations` (only additions to existing tolerations),\
         `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously \
         negative)"
    } else {
        "Forbidden: field is immutable when `immutable` is set"
    };
    Err(Refusal::invalid(key.kind, &key.name, field, why))
}

/// Kinds whose generation is kept: those of a `CustomResourceDefinition`.
fn has_generation(kind: Kind) -> bool {
    kind.custom()
}

/// A change of anything but metadata and status is a new generation.
fn bump_generation(kind: Kind, before: &Value, after: &mut Value) {
    if has_generation(kind) && !content(before).eq(content(after)) {
        let generation = before["metadata"]["generation"].as_u64().unwrap_or(1) + 1;
        after["metadata"]["generation"] = Value::from(generation);
    }
}

fn content(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let members = object.as_object().into_iter().flatten();
    members.filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status"))
}

/// Whether nothing keeps it: it is being deleted, has no grace left and no finalizer. A namespace is
/// kept by its content too.
fn may_go(kind: Kind, object: &Value) -> bool {
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds");
    let over = grace.and_then(Value::as_u64).unwrap_or_default() == 0;
    let held = !json::list(object, "/metadata/finalizers").is_empty()
        || kind == Kind::Namespace && !json::list(object, "/spec/finalizers").is_empty();
    is_deleting(object) && over && !held
}

/// `podStrategy.CheckGracefulDelete`: a pod that is nowhere or over has no grace.
fn grace_seconds(kind: Kind, object: &Value, options: &DeleteOptions) -> u64 {
    let placed = json::text(object, "/spec/nodeName").is_some();
    let phase = json::text_or_empty(object, "/status/phase");
    if kind != Kind::Pod || !placed || matches!(phase, "Failed" | "Succeeded") {
        return 0;
    }
    let own = object.pointer("/spec/terminationGracePeriodSeconds");
    let own = own.and_then(Value::as_u64).unwrap_or(GRACE_DEFAULT_SECONDS);
    options.grace_seconds.unwrap_or(own)
}

/// Status is nobody's to set at the beginning, but for what is set here.
fn initial_status(kind: Kind, object: &mut Value) {
    fold_string_data(kind, object);
    if kind == Kind::Node || !kind.facts().status {
        return;
    }
    let status = match kind {
        Kind::Pod => Some(json!({"phase": "Pending", "qosClass": "BestEffort"})),
        Kind::Namespace => {
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            Some(json!({"phase": "Active"}))
        }
        Kind::Service => Some(json!({"loadBalancer": {}})),
        Kind::Node
        | Kind::ValkeyConfig
        | Kind::ValkeyImage
        | Kind::ValkeyRole
        | Kind::ConfigMap
        | Kind::Event
        | Kind::Secret
        | Kind::ValkeyCluster
        | Kind::ValkeyNode => None,
    };
    let Value::Object(object) = object else {
        return;
    };
    match status {
        Some(status) => object.insert("status".into(), status),
        None => object.remove("status"),
    };
}

/// A Secret's `stringData` becomes `data`.
fn fold_string_data(kind: Kind, object: &mut Value) {
    if kind != Kind::Secret || object.get("stringData").is_none() {
        return;
    }
    let texts = json::text_map(object, "/stringData");
    let data = json::object(object, "data");
    for (key, text) in texts {
        let bytes = serde_json::to_value(ByteString(text.into_bytes()));
        data.insert(key, bytes.unwrap_or_default());
    }
    if let Value::Object(object) = object {
        object.remove("stringData");
    }
}
