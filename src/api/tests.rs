//! What becomes of objects on their way between JSON and the types.
//! Never what the API server would refuse: that is its own to say.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::json;

use super::cluster::ValkeyCluster;
use super::config::ValkeyConfig;
use super::image::ValkeyImage;
use super::node::ValkeyNode;
use super::role::ValkeyRole;

/// Reads an object with this spec and gives back the spec that is written for it.
fn written<Kind: DeserializeOwned + Serialize>(spec: &Value) -> Value {
    let kind = std::any::type_name::<Kind>().rsplit("::").next().unwrap();
    let object = json!({
        "apiVersion": "valkey.gomomento.com/v1alpha1",
        "kind": kind,
        "metadata": { "name": "x" },
        "spec": spec,
    });
    let read: Kind = serde_json::from_value(object).unwrap();
    serde_json::to_value(read).unwrap()["spec"].take()
}

#[test]
fn what_is_left_out_stays_out() {
    let image = json!({ "repository": "r", "tag": "t", "version": "v" });
    assert_eq!(written::<ValkeyImage>(&image), image);
    assert_eq!(written::<ValkeyConfig>(&json!({})), json!({}));
    assert_eq!(written::<ValkeyRole>(&json!({})), json!({}));
    let cluster = json!({ "configRef": "c", "shards": 1, "replicasPerShard": 0 });
    assert_eq!(written::<ValkeyCluster>(&cluster), cluster);
    assert_eq!(
        written::<ValkeyNode>(&json!({ "clusterName": "c", "image": "i", "shardIndex": 0 })),
        json!({
            "clusterName": "c", "image": "i", "shardIndex": 0,
            "valkeySettings": {}, "lifecycle": "Active",
        }),
    );
}

#[test]
fn null_is_nothing() {
    let image = json!({ "repository": "r", "tag": "t", "version": "v" });
    let mut nulls = image.clone();
    nulls["pullSecrets"] = Value::Null;
    assert_eq!(written::<ValkeyImage>(&nulls), image);
    let nulls = json!({
        "imageRef": null, "baseRef": null, "scheduling": null, "resources": null,
        "valkey": null, "acl": null,
    });
    assert_eq!(written::<ValkeyConfig>(&nulls), json!({}));
    let nulls = json!({ "categories": null, "commands": null });
    assert_eq!(written::<ValkeyRole>(&nulls), json!({}));
    let cluster = json!({ "configRef": "c", "shards": 1, "replicasPerShard": 0 });
    let mut nulls = cluster.clone();
    for field in ["acl", "placement", "tls", "podAnnotations"] {
        nulls[field] = Value::Null;
    }
    assert_eq!(written::<ValkeyCluster>(&nulls), cluster);
    nulls["placement"] = json!({ "zones": null, "zoneSpread": null, "nodeSelector": null });
    assert_eq!(written::<ValkeyCluster>(&nulls)["placement"], json!({}));
}

#[test]
fn an_empty_acl_is_not_an_absent_one() {
    let config = json!({ "acl": [] });
    assert_eq!(written::<ValkeyConfig>(&config), config);
}

#[test]
fn numbers_are_quantities() {
    let config = json!({ "resources": { "cpu": 2, "memory": "1Gi" } });
    let read = written::<ValkeyConfig>(&config);
    assert_eq!(
        read,
        json!({ "resources": { "cpu": "2", "memory": "1Gi" } })
    );
}

#[test]
fn access_is_both_where_it_is_left_out() {
    let mut cluster = json!({ "configRef": "c", "shards": 1, "replicasPerShard": 0 });
    cluster["acl"] = json!([{
        "username": "u",
        "passwordHashes": [],
        "permissions": [{ "roleRef": "r", "keys": [{ "pattern": "*" }] }],
    }]);
    let written = written::<ValkeyCluster>(&cluster);
    assert_eq!(
        written["acl"][0]["permissions"][0]["keys"][0]["access"],
        "readwrite"
    );
}
