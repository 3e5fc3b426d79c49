//! A person with kubectl: objects in, objects out, and no fault in between.
//! Never through the queue of the clients: what is done here is done at once.

use serde_json::{Value, json};

use super::faults::Caller;
use super::json;
use super::kinds::{Key, Kind};
use super::refusal::Refusal;
use super::selector::Labels;
use super::writes::{By, DeleteOptions, Part, Write};
use super::{Kube, Millis};

/// The hand, at one moment.
pub(crate) struct Hand<'a> {
    kube: &'a mut Kube,
    now: Millis,
}

impl Kube {
    /// Everything that a person can do by hand.
    pub(crate) fn hand(&mut self, now: Millis) -> Hand<'_> {
        Hand { kube: self, now }
    }

    /// Reads an object without anybody noticing.
    pub(crate) fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Value> {
        let object = self.api.store().get(&Key::new(kind, namespace, name));
        object.map(AsRef::as_ref)
    }

    /// Reads objects by kind, namespace and label selector without anybody noticing.
    pub(crate) fn list(&self, kind: Kind, namespace: Option<&str>, selector: &str) -> Vec<&Value> {
        let labels = Labels::parse(selector).unwrap_or_default();
        let all = self.api.store().list(kind, namespace);
        let selected = all.filter(|(_, object)| labels.selects(object));
        selected.map(|(_, object)| object.as_ref()).collect()
    }
}

impl Hand<'_> {
    fn write(&mut self, write: &Write) -> Result<Value, Refusal> {
        let by = By::new(self.now, Caller::Hand);
        let written = self.kube.write(&by, write)?;
        Ok(Value::clone(&written.object))
    }

    /// Makes a namespace.
    pub(crate) fn create_namespace(&mut self, name: &str) {
        let made = self.create(json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name},
        }));
        debug_assert!(made.is_ok(), "a namespace is made once");
    }

    /// `kubectl create`: kind and namespace are the object's own; without one it is `default`.
    pub(crate) fn create(&mut self, body: Value) -> Result<Value, Refusal> {
        let key = key_of(&body)?;
        self.write(&Write::Create {
            kind: key.kind,
            namespace: key.namespace,
            body,
        })
    }

    /// `kubectl apply --server-side --force-conflicts`.
    pub(crate) fn apply(&mut self, body: Value) -> Result<Value, Refusal> {
        self.write(&Write::Apply {
            key: key_of(&body)?,
            part: Part::Main,
            body,
            force: true,
        })
    }

    /// `kubectl patch --type merge`.
    pub(crate) fn patch(
        &mut self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: Value,
    ) -> Result<Value, Refusal> {
        self.write(&Write::Merge {
            key: Key::new(kind, namespace, name),
            part: Part::Main,
            patch,
        })
    }

    /// `kubectl patch --type merge --subresource status`.
    pub(crate) fn patch_status(
        &mut self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: Value,
    ) -> Result<Value, Refusal> {
        self.write(&Write::Merge {
            key: Key::new(kind, namespace, name),
            part: Part::Status,
            patch,
        })
    }

    /// `kubectl delete --wait=false`.
    pub(crate) fn delete(
        &mut self,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Value, Refusal> {
        self.delete_with(kind, namespace, name, DeleteOptions::default())
    }

    /// `kubectl delete --force --grace-period=0`: the object goes at once, the process later.
    pub(crate) fn force_delete(
        &mut self,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Value, Refusal> {
        let options = DeleteOptions {
            grace_seconds: Some(0),
            ..DeleteOptions::default()
        };
        self.delete_with(kind, namespace, name, options)
    }

    /// A deletion with options.
    pub(crate) fn delete_with(
        &mut self,
        kind: Kind,
        namespace: &str,
        name: &str,
        options: DeleteOptions,
    ) -> Result<Value, Refusal> {
        let key = Key::new(kind, namespace, name);
        self.write(&Write::Delete { key, options })
    }
}

fn key_of(body: &Value) -> Result<Key, Refusal> {
    let text = |pointer: &str| json::text_or_empty(body, pointer);
    let kind = Kind::named(text("/apiVersion"), text("/kind"));
    let kind = kind.ok_or_else(|| Refusal::bad_request("no matches for kind"))?;
    let namespace = json::text(body, "/metadata/namespace").unwrap_or("default");
    Ok(Key::new(kind, namespace, text("/metadata/name")))
}
