//! Reading and merging JSON objects.
//! Never knows a kind.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The text at a pointer.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

/// The text at a pointer, or nothing as text.
pub(crate) fn text_or_empty<'a>(value: &'a Value, pointer: &str) -> &'a str {
    text(value, pointer).unwrap_or_default()
}

/// The elements of the list at a pointer.
pub(crate) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The texts of the list at a pointer.
pub(crate) fn texts<'a>(value: &'a Value, pointer: &str) -> Vec<&'a str> {
    list(value, pointer)
        .iter()
        .filter_map(Value::as_str)
        .collect()
}

/// The map of texts at a pointer, as labels are.
pub(crate) fn text_map(value: &Value, pointer: &str) -> BTreeMap<String, String> {
    let entries = value
        .pointer(pointer)
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let texts = entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    texts.collect()
}

/// The object at a key of an object, made where it is missing.
pub(crate) fn object<'a>(value: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let inner = &mut value[key];
    if !inner.is_object() {
        *inner = Value::Object(Map::new());
    }
    match inner {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            unreachable!("it was made an object above")
        }
    }
}

/// Puts `from[key]` in the place of `to[key]`, its absence included.
pub(crate) fn carry(from: &Value, to: &mut Value, key: &str) {
    let Value::Object(to) = to else { return };
    match from.get(key) {
        Some(value) => to.insert(key.to_owned(), value.clone()),
        None => to.remove(key),
    };
}

/// JSON merge patch, RFC 7386.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(map) = target else { return };
    for (key, change) in patch {
        if change.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

/// Drops what typed decoding drops: members that are null.
pub(crate) fn drop_nulls(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|_, member| !member.is_null());
        map.values_mut().for_each(drop_nulls);
    } else if let Value::Array(members) = value {
        members.iter_mut().for_each(drop_nulls);
    }
}
