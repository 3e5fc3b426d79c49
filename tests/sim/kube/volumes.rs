//! What a container finds: files of ConfigMaps and Secrets, environment, command line.
//! Never a subPath: such a file would not follow its volume.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use k8s_openapi::ByteString;
use serde_json::Value;

use super::containers::Files;
use super::json;
use super::kinds::{Key, Kind};
use super::store::Store;

/// A ConfigMap or Secret, or a key in it, that a pod needs and that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing(pub(super) String);

/// The ConfigMaps and Secrets whose change reaches a pod's files.
pub(super) fn sources(pod: &Value) -> Vec<Key> {
    let namespace = json::text_or_empty(pod, "/metadata/namespace");
    let volumes = json::list(pod, "/spec/volumes").iter();
    volumes
        .filter_map(|volume| Some(source(volume, namespace)?.0))
        .collect()
}

/// The object behind a volume, and the volume's own words about it.
fn source<'a>(volume: &'a Value, namespace: &str) -> Option<(Key, &'a Value)> {
    let map = volume.get("configMap").filter(|map| map.is_object());
    if let Some(map) = map {
        let name = json::text_or_empty(map, "/name");
        return Some((Key::new(Kind::ConfigMap, namespace, name), map));
    }
    let secret = volume.get("secret").filter(|secret| secret.is_object())?;
    let name = json::text_or_empty(secret, "/secretName");
    Some((Key::new(Kind::Secret, namespace, name), secret))
}

/// The files of a pod's one container, as its volumes are now.
pub(super) fn files(store: &Store, pod: &Value) -> Result<Files, Missing> {
    let namespace = json::text_or_empty(pod, "/metadata/namespace");
    let mut files = Files::new();
    for volume in json::list(pod, "/spec/volumes") {
        let Some((key, words)) = source(volume, namespace) else {
            continue;
        };
        let optional = words["optional"] == true;
        let Some(object) = store.get(&key) else {
            if optional {
                continue;
            }
            return Err(Missing(not_found(&key)));
        };
        let content = select(&key, content(key.kind, object), words, optional)?;
        let mounts = json::list(pod, "/spec/containers/0/volumeMounts").iter();
        for mount in mounts.filter(|mount| mount["name"] == volume["name"]) {
            let path = json::text_or_empty(mount, "/mountPath").trim_end_matches('/');
            for (file, text) in &content {
                files.insert(format!("{path}/{file}"), text.clone());
            }
        }
    }
    Ok(files)
}

fn not_found(key: &Key) -> String {
    let what = key.kind.facts().plural.trim_end_matches('s');
    format!("{what} \"{}\" not found", key.name)
}

/// All keys, or those that `items` names, under the paths that it gives.
fn select(
    key: &Key,
    content: BTreeMap<String, String>,
    words: &Value,
    optional: bool,
) -> Result<BTreeMap<String, String>, Missing> {
    let items = json::list(words, "/items");
    if items.is_empty() {
        return Ok(content);
    }
    let mut selected = BTreeMap::new();
    for item in items {
        let name = json::text_or_empty(item, "/key");
        match content.get(name) {
            Some(text) => {
                let path = json::text_or_empty(item, "/path").to_owned();
                selected.insert(path, text.clone());
            }
            None if optional => {}
            None => {
                let name = &key.name;
                return Err(Missing(format!(
                    "references non-existent secret key: {name}"
                )));
            }
        }
    }
    Ok(selected)
}

/// What a ConfigMap or Secret holds, as text.
fn content(kind: Kind, object: &Value) -> BTreeMap<String, String> {
    let data = json::text_map(object, "/data");
    if kind != Kind::Secret {
        return data;
    }
    data.into_iter()
        .map(|(key, encoded)| {
            let bytes = serde_json::from_value::<ByteString>(Value::from(encoded));
            let bytes = bytes.map(|ByteString(bytes)| bytes).unwrap_or_default();
            (key, String::from_utf8_lossy(&bytes).into_owned())
        })
        .collect()
}

/// The environment of a pod's one container.
pub(super) fn environment(
    store: &Store,
    pod: &Value,
    ip: Ipv4Addr,
    host_address: &str,
) -> Result<BTreeMap<String, String>, Missing> {
    let namespace = json::text_or_empty(pod, "/metadata/namespace");
    let mut environment = BTreeMap::new();
    for variable in json::list(pod, "/spec/containers/0/env") {
        let name = json::text_or_empty(variable, "/name").to_owned();
        let reference = |kind: Kind, pointer: &str| {
            let reference = variable
                .pointer(pointer)
                .filter(|value| value.is_object())?;
            let name = json::text_or_empty(reference, "/name");
            Some((Key::new(kind, namespace, name), reference))
        };
        let secret = reference(Kind::Secret, "/valueFrom/secretKeyRef");
        let map = reference(Kind::ConfigMap, "/valueFrom/configMapKeyRef");
        let value = if let Some((key, reference)) = secret.or(map) {
            referred(store, &key, reference)?
        } else {
            let field = json::text(variable, "/valueFrom/fieldRef/fieldPath");
            match field {
                Some("status.podIP") => Some(ip.to_string()),
                Some("status.hostIP") => Some(host_address.to_owned()),
                Some(path) => {
                    let pointer = format!("/{}", path.replace('.', "/"));
                    json::text(pod, &pointer).map(str::to_owned)
                }
                None => {
                    let value = json::text_or_empty(variable, "/value");
                    Some(fill(value, &environment))
                }
            }
        };
        if let Some(value) = value {
            environment.insert(name, value);
        }
    }
    Ok(environment)
}

fn referred(store: &Store, key: &Key, reference: &Value) -> Result<Option<String>, Missing> {
    let optional = reference["optional"] == true;
    let name = json::text_or_empty(reference, "/key");
    match store.get(key) {
        None if optional => Ok(None),
        None => Err(Missing(not_found(key))),
        Some(object) => match content(key.kind, object).remove(name) {
            None if !optional => {
                let whole = format!("{}/{}", key.namespace, key.name);
                Err(Missing(format!("couldn't find key {name} in {whole}")))
            }
            value => Ok(value),
        },
    }
}

/// Command and arguments, `$(NAME)` filled in where the name is known.
pub(super) fn command(pod: &Value, environment: &BTreeMap<String, String>) -> Vec<String> {
    let command = json::texts(pod, "/spec/containers/0/command");
    let arguments = json::texts(pod, "/spec/containers/0/args");
    let words = command.into_iter().chain(arguments);
    words.map(|word| fill(word, environment)).collect()
}

fn fill(text: &str, environment: &BTreeMap<String, String>) -> String {
    let mut filled = text.to_owned();
    for (name, value) in environment {
        filled = filled.replace(&format!("$({name})"), value);
    }
    filled
}
