//! What the API server does with objects when nothing is wrong.
//! Never a pod's life: that has a file of its own.

use serde_json::{Value, json};

use super::super::api::Answer;
use super::super::faults::Verb;
use super::super::kinds::Kind;
use super::super::target::Method;
use super::super::writes::{DeleteOptions, Propagation};
use super::{Bench, CLUSTERS, MAPS, call, cluster, config_map, pod};

fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version
        .expect("every object has one")
        .parse()
        .expect("a number")
}

#[test]
fn a_new_object_gets_what_only_the_server_gives() {
    let mut bench = Bench::new();
    bench.now = 61_000;
    let mut object = cluster("c");
    object["metadata"]["uid"] = json!("mine");
    object["status"] = json!({"state": "Active"});
    let (code, made) = bench.ask(Method::Post, CLUSTERS, &object);
    assert_eq!(code, 201);
    let metadata = &made["metadata"];
    assert_eq!(metadata["creationTimestamp"], "2026-01-01T00:01:01Z");
    assert_eq!(
        (&metadata["generation"], &metadata["namespace"]),
        (&json!(1), &json!("default"))
    );
    assert_ne!(metadata["uid"], "mine");
    assert!(made.get("status").is_none(), "status has a path of its own");
    assert!(version(&made) > 0);
    let (code, said) = bench.ask(Method::Post, CLUSTERS, &object);
    assert_eq!((code, &said["reason"]), (409, &json!("AlreadyExists")));
    let message = "valkeyclusters.valkey.gomomento.com \"c\" already exists";
    assert_eq!(said["message"], message);
}

#[test]
fn what_is_not_there_is_not_found() {
    let mut bench = Bench::new();
    let (code, said) = bench.get_path(&format!("{MAPS}/x"));
    assert_eq!((code, &said["reason"]), (404, &json!("NotFound")));
    assert_eq!(said["message"], "configmaps \"x\" not found");
    let (code, _) = bench.get_path("/apis/apps/v1/deployments");
    assert_eq!(code, 404);
    let target = "/api/v1/namespaces/nowhere/configmaps";
    let (code, said) = bench.ask(Method::Post, target, &config_map("m", ""));
    assert_eq!(
        (code, &said["message"]),
        (404, &json!("namespaces \"nowhere\" not found"))
    );
}

#[test]
fn a_patch_with_an_old_version_is_a_conflict() {
    let mut bench = Bench::new();
    let old = bench.create(config_map("m", "1"));
    let target = format!("{MAPS}/m");
    let patch =
        |version: &Value| json!({"metadata": {"resourceVersion": version}, "data": {"k": "2"}});
    let held = &old["metadata"]["resourceVersion"];
    let (code, new) = bench.ask(Method::Patch, &target, &patch(held));
    assert_eq!((code, &new["data"]["k"]), (200, &json!("2")));
    let (code, said) = bench.ask(Method::Patch, &target, &patch(held));
    assert_eq!((code, &said["reason"]), (409, &json!("Conflict")));
    let message = said["message"].as_str().expect("it says why");
    assert!(
        message.ends_with("apply your changes to the latest version and try again"),
        "{message}"
    );
}

#[test]
fn a_uid_in_a_patch_or_a_deletion_is_a_precondition() {
    let mut bench = Bench::new();
    let made = bench.create(config_map("m", "1"));
    let uid = made["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let target = format!("{MAPS}/m");
    let patch = |uid: &str| json!({"metadata": {"uid": uid, "annotations": {"a": "b"}}});
    let (code, said) = bench.ask(Method::Patch, &target, &patch("other"));
    assert_eq!((code, &said["reason"]), (422, &json!("Invalid")));
    assert_eq!(bench.ask(Method::Patch, &target, &patch(&uid)).0, 200);
    let options = |uid: &str| json!({"preconditions": {"uid": uid}});
    let (code, said) = bench.ask(Method::Delete, &target, &options("other"));
    assert_eq!((code, &said["reason"]), (409, &json!("Conflict")));
    let (code, said) = bench.ask(Method::Delete, &target, &options(&uid));
    assert_eq!((code, &said["status"]), (200, &json!("Success")));
    assert_eq!(bench.ask(Method::Delete, &target, &options(&uid)).0, 404);
}

#[test]
fn status_and_spec_are_written_apart() {
    let mut bench = Bench::new();
    bench.create(cluster("c"));
    let both = json!({"spec": {"shards": 2}, "status": {"state": "Active"}});
    let (_, main) = bench.ask(Method::Patch, &format!("{CLUSTERS}/c"), &both);
    assert_eq!(
        (&main["spec"]["shards"], main.get("status")),
        (&json!(2), None)
    );
    assert_eq!(main["metadata"]["generation"], 2);
    let both = json!({"spec": {"shards": 3}, "status": {"state": "Active"}});
    let (_, main) = bench.ask(Method::Patch, &format!("{CLUSTERS}/c/status"), &both);
    assert_eq!(
        (&main["spec"]["shards"], &main["status"]["state"]),
        (&json!(2), &json!("Active"))
    );
    assert_eq!(
        main["metadata"]["generation"], 2,
        "a status is no new generation"
    );
    let (code, _) = bench.ask(Method::Patch, &format!("{MAPS}/m/status"), &both);
    assert_eq!(code, 404, "a ConfigMap has no status");
}

#[test]
fn a_patch_that_changes_nothing_is_no_write() {
    let mut bench = Bench::new();
    let made = bench.create(config_map("m", "1"));
    let (code, same) = bench.ask(
        Method::Patch,
        &format!("{MAPS}/m"),
        &json!({"data": {"k": "1"}}),
    );
    assert_eq!((code, version(&same)), (200, version(&made)));
    let record = bench.kube.api.audit().last().expect("it is on record");
    assert!(record.applied && !record.changed());
    let (_, cut) = bench.ask(
        Method::Patch,
        &format!("{MAPS}/m"),
        &json!({"data": {"k": null}}),
    );
    assert_eq!(cut["data"], json!({}), "null takes a member away");
}

#[test]
fn finalizers_hold_an_object_until_the_last_is_gone() {
    let mut bench = Bench::new();
    let mut object = cluster("c");
    object["metadata"]["finalizers"] = json!(["a", "b"]);
    bench.create(object);
    let target = format!("{CLUSTERS}/c");
    let (code, held) = bench.ask(Method::Delete, &target, &Value::Null);
    assert_eq!((code, &held["metadata"]["generation"]), (200, &json!(2)));
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
    let (code, said) = bench.ask(Method::Patch, &target, &finalizers(json!(["a", "b", "c"])));
    assert_eq!((code, &said["reason"]), (422, &json!("Invalid")));
    let (_, held) = bench.ask(Method::Patch, &target, &finalizers(json!(["b"])));
    assert_eq!(held["metadata"]["finalizers"], json!(["b"]));
    let undo = json!({"metadata": {"deletionTimestamp": null}});
    let (_, held) = bench.ask(Method::Patch, &target, &undo);
    assert!(
        held["metadata"]["deletionTimestamp"].is_string(),
        "nobody takes it back"
    );
    let (code, _) = bench.ask(Method::Patch, &target, &finalizers(json!([])));
    assert_eq!(code, 200, "the last state is the answer");
    assert_eq!(bench.get_path(&target).0, 404);
}

fn owned(name: &str, owners: &[&Value]) -> Value {
    let references: Vec<Value> = owners
        .iter()
        .map(|owner| {
            json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"],
                "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]})
        })
        .collect();
    let mut object = config_map(name, "");
    object["metadata"]["ownerReferences"] = Value::Array(references);
    object
}

#[test]
fn what_no_owner_is_left_of_is_collected() {
    let mut bench = Bench::new();
    let (first, second) = (bench.create(cluster("one")), bench.create(cluster("two")));
    bench.create(owned("mine", &[&first]));
    bench.create(owned("ours", &[&first, &second]));
    bench.run_for(1000);
    assert!(bench.get(Kind::ConfigMap, "mine").is_some());
    bench
        .kube
        .hand(bench.now)
        .delete(Kind::ValkeyCluster, "default", "one")
        .expect("it is there");
    assert!(bench.get(Kind::ConfigMap, "mine").is_some(), "not at once");
    bench.run_for(1000);
    assert!(bench.get(Kind::ConfigMap, "mine").is_none());
    let ours = bench
        .get(Kind::ConfigMap, "ours")
        .expect("it has an owner still");
    assert_eq!(
        ours["metadata"]["ownerReferences"].as_array().map(Vec::len),
        Some(1)
    );
}

#[test]
fn an_owner_that_never_was_owns_nothing_for_long() {
    let mut bench = Bench::new();
    let mut owner = bench.create(cluster("one"));
    owner["metadata"]["uid"] = json!("an older one of this name");
    bench.create(owned("late", &[&owner]));
    bench.run_for(1000);
    assert!(bench.get(Kind::ConfigMap, "late").is_none());
}

#[test]
fn orphans_lose_their_owner_and_stay() {
    let mut bench = Bench::new();
    let owner = bench.create(cluster("one"));
    bench.create(owned("mine", &[&owner]));
    let options = DeleteOptions {
        propagation: Propagation::Orphan,
        ..DeleteOptions::default()
    };
    let deleted = bench
        .kube
        .hand(0)
        .delete_with(Kind::ValkeyCluster, "default", "one", options);
    deleted.expect("it is there");
    bench.run_for(1000);
    let mine = bench.get(Kind::ConfigMap, "mine").expect("it stays");
    assert!(mine["metadata"].get("ownerReferences").is_none());
}

#[test]
fn a_namespace_that_goes_takes_all_with_it_and_nothing_new() {
    let mut bench = Bench::new();
    let mut held = cluster("c");
    held["metadata"]["finalizers"] = json!(["a"]);
    bench.create(held);
    bench.create(config_map("m", ""));
    bench
        .kube
        .hand(0)
        .delete(Kind::Namespace, "", "default")
        .expect("it is there");
    let (code, said) = bench.ask(Method::Post, MAPS, &config_map("late", ""));
    assert_eq!((code, &said["reason"]), (403, &json!("Forbidden")));
    assert_eq!(
        said["details"]["causes"][0]["reason"],
        "NamespaceTerminating"
    );
    bench.run_for(2000);
    assert!(bench.get(Kind::ConfigMap, "m").is_none());
    assert!(
        bench.get(Kind::ValkeyCluster, "c").expect("it is held")["metadata"]
            .get("deletionTimestamp")
            .is_some()
    );
    let freed = json!({"metadata": {"finalizers": null}});
    bench.ask(Method::Patch, &format!("{CLUSTERS}/c"), &freed);
    bench.run_for(2000);
    assert!(bench.kube.get(Kind::Namespace, "", "default").is_none());
}

#[test]
fn an_immutable_secret_keeps_its_data() {
    let mut bench = Bench::new();
    bench.create(
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
        "immutable": true, "stringData": {"password": "x"}}),
    );
    assert_eq!(
        bench.get(Kind::Secret, "s").expect("it is there")["data"]["password"],
        "eA=="
    );
    let target = "/api/v1/namespaces/default/secrets/s";
    let (code, said) = bench.ask(
        Method::Patch,
        target,
        &json!({"data": {"password": "eQ=="}}),
    );
    assert_eq!((code, &said["reason"]), (422, &json!("Invalid")));
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(
        bench.ask(Method::Patch, target, &labels).0,
        200,
        "metadata is not data"
    );
}

#[test]
fn a_pods_spec_is_as_it_was_made() {
    let mut bench = Bench::new();
    bench.create(pod("p"));
    let target = "/api/v1/namespaces/default/pods/p";
    let patch = json!({"spec": {"containers": []}});
    assert_eq!(bench.ask(Method::Patch, target, &patch).0, 422);
    let patch = json!({"metadata": {"annotations": {"a": "b"}}});
    assert_eq!(bench.ask(Method::Patch, target, &patch).0, 200);
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("a list has items");
    items
        .iter()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect()
}

#[test]
fn lists_are_selected_by_labels() {
    let mut bench = Bench::new();
    for (name, shard) in [("a", "0"), ("b", "1"), ("c", "2")] {
        let mut map = config_map(name, "");
        map["metadata"]["labels"]["shard"] = json!(shard);
        bench.create(map);
    }
    bench.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bare"}}));
    for (selector, expected) in [
        ("shard%3D1", vec!["b"]),
        ("app%3Dvalkey%2Cshard%21%3D1", vec!["a", "c"]),
        ("shard+in+%280%2C2%29", vec!["a", "c"]),
        ("shard+notin+%280%2C2%29", vec!["b", "bare"]),
        ("shard", vec!["a", "b", "c"]),
        ("%21shard", vec!["bare"]),
    ] {
        let (_, list) = bench.get_path(&format!("{MAPS}?&labelSelector={selector}"));
        assert_eq!(names(&list), expected, "{selector}");
    }
    let (_, list) = bench.get_path("/api/v1/configmaps?fieldSelector=metadata.name%3Dbare");
    assert_eq!(
        (names(&list), &list["kind"]),
        (vec!["bare"], &json!("ConfigMapList"))
    );
}

#[test]
fn pages_of_one_list_are_of_one_moment() {
    let mut bench = Bench::new();
    for name in ["a", "b", "c", "d"] {
        bench.create(config_map(name, ""));
    }
    let (_, first) = bench.get_path(&format!("{MAPS}?limit=2"));
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 2);
    bench
        .kube
        .hand(0)
        .delete(Kind::ConfigMap, "default", "c")
        .expect("it is there");
    bench.create(config_map("bb", ""));
    let token = first["metadata"]["continue"]
        .as_str()
        .expect("there is more")
        .to_owned();
    let rest = format!("{MAPS}?limit=2&continue={}", token.replace('/', "%2F"));
    let (_, second) = bench.get_path(&rest);
    assert_eq!(
        names(&second),
        ["c", "d"],
        "as it was when the first page was read"
    );
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    assert!(second["metadata"].get("continue").is_none());
    bench.kube.api.compact();
    bench.create(config_map("e", ""));
    let (code, said) = bench.get_path(&rest);
    assert_eq!((code, &said["reason"]), (410, &json!("Expired")));
}

#[test]
fn a_version_that_does_not_exist_yet_is_not_served() {
    let mut bench = Bench::new();
    let (code, said) = bench.get_path(&format!("{MAPS}?resourceVersion=99999"));
    assert_eq!((code, &said["reason"]), (504, &json!("Timeout")));
}

#[test]
fn metadata_alone_is_given_where_it_is_asked_for() {
    let mut bench = Bench::new();
    bench.create(config_map("m", "secret"));
    for (target, kind) in [
        (format!("{MAPS}/m"), "PartialObjectMetadata"),
        (MAPS.to_owned(), "PartialObjectMetadataList"),
    ] {
        let mut call = call(Method::Get, &target, &Value::Null);
        call.accept = format!("application/json;as={kind};g=meta.k8s.io;v=v1");
        let Answer::Full { body, .. } = bench.kube.request(0, &call) else {
            panic!("a read is answered");
        };
        let said: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(
            (&said["kind"], &said["apiVersion"]),
            (&json!(kind), &json!("meta.k8s.io/v1"))
        );
        assert!(!said.to_string().contains("secret"));
    }
}

fn apply(bench: &mut Bench, manager: &str, force: bool, body: &Value) -> (u16, Value) {
    let target = format!("{MAPS}/m?&force={force}&fieldManager={manager}");
    let mut call = call(Method::Patch, &target, body);
    "application/apply-patch+yaml".clone_into(&mut call.content_type);
    let Answer::Full { status, body, .. } = bench.kube.request(0, &call) else {
        panic!("a write is answered");
    };
    (status, serde_json::from_slice(&body).expect("JSON"))
}

#[test]
fn apply_knows_who_wants_what() {
    let mut bench = Bench::new();
    let data = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
    let (code, _) = apply(&mut bench, "one", false, &data(json!({"a": "1", "b": "1"})));
    assert_eq!(code, 201);
    let (code, said) = apply(&mut bench, "two", false, &data(json!({"a": "2", "c": "2"})));
    assert_eq!((code, &said["reason"]), (409, &json!("Conflict")));
    let cause = &said["details"]["causes"][0];
    assert_eq!(
        (&cause["field"], &cause["reason"]),
        (&json!(".data.a"), &json!("FieldManagerConflict"))
    );
    let (code, now) = apply(&mut bench, "two", true, &data(json!({"a": "2", "c": "2"})));
    assert_eq!(
        (code, &now["data"]),
        (200, &json!({"a": "2", "b": "1", "c": "2"}))
    );
    let (_, now) = apply(&mut bench, "one", false, &data(json!({"d": "1"})));
    assert_eq!(
        now["data"],
        json!({"a": "2", "c": "2", "d": "1"}),
        "b is given up, a is lost"
    );
    assert_eq!(
        bench.kube.api.audit().last().map(|record| record.verb),
        Some(Verb::Apply)
    );
}

#[test]
fn who_writes_over_an_applied_field_owns_it() {
    let mut bench = Bench::new();
    let data = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
    apply(&mut bench, "one", false, &data(json!({"a": "1", "b": "1"})));
    bench.ask(
        Method::Patch,
        &format!("{MAPS}/m"),
        &json!({"data": {"a": "2"}}),
    );
    let (code, _) = apply(&mut bench, "one", false, &data(json!({"a": "1", "b": "1"})));
    assert_eq!(code, 409);
    let (_, now) = apply(&mut bench, "one", false, &data(json!({"b": "1"})));
    assert_eq!(
        now["data"],
        json!({"a": "2", "b": "1"}),
        "it is not one's to take away"
    );
}

#[test]
fn an_object_of_ours_is_not_replaced_blindly() {
    let mut bench = Bench::new();
    let made = bench.create(cluster("c"));
    let target = format!("{CLUSTERS}/c");
    assert_eq!(bench.ask(Method::Put, &target, &cluster("c")).0, 422);
    let mut next = made.clone();
    next["spec"]["shards"] = json!(5);
    let (code, after) = bench.ask(Method::Put, &target, &next);
    assert_eq!((code, &after["spec"]["shards"]), (200, &json!(5)));
    assert_eq!(bench.ask(Method::Put, &target, &next).0, 409);
}

#[test]
fn every_write_is_on_record_with_what_it_did() {
    let mut bench = Bench::new();
    bench.kube.api.drain_audit();
    let target = format!("{MAPS}?&fieldManager=me");
    bench.ask(Method::Post, &target, &config_map("m", "1"));
    bench.ask(Method::Post, &target, &config_map("m", "1"));
    bench.ask(Method::Delete, &format!("{MAPS}/m"), &Value::Null);
    bench.get_path(&format!("{MAPS}/m"));
    let told: Vec<String> = bench
        .kube
        .api
        .audit()
        .iter()
        .map(|record| {
            let (before, after) = (record.before.is_some(), record.after.is_some());
            format!(
                "{:?} {} {} {before} {after} {}",
                record.verb, record.key, record.code, record.manager
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            "Create configmaps/default/m 201 false true me",
            "Create configmaps/default/m 409 true true me",
            "Delete configmaps/default/m 200 true false unknown",
        ]
    );
    assert_eq!(bench.kube.api.reads(), 1);
}
