//! What the plugin asks an API server for, request by request.
//! Never judges what is printed of the answers: the plugin's own tests do.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use expect_test::{Expect, expect};
use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use operator::model::name::{ClusterRef, NodeName};
use operator::model::world::{Keeping, World};
use operator::observe::visit::{Visit, Visitor};
use operator::valkey::client::Connector;
use serde_json::{Value, json};

const OTHERS: [&str; 3] = ["services/c", "configmaps/c-acl", "configmaps/c-1-config"];

type Asked = Arc<Mutex<BTreeSet<String>>>;

/// A namespace with one cluster of one node, and with objects of others.
fn answer(path: &str) -> (StatusCode, Value) {
    let object = |kind: &str, name: &str, owner: &str, spec: Value| {
        json!({"apiVersion": "valkey.gomomento.com/v1alpha1", "kind": kind, "spec": spec,
            "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}"),
                "labels": {"app.kubernetes.io/instance": "c"},
                "finalizers": ["foregroundDeletion", "valkey.gomomento.com/node-cleanup", "example.com/backup"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "Any", "name": "any", "uid": owner}]}})
    };
    if OTHERS.iter().any(|other| path.ends_with(other)) {
        let name = path.rsplit('/').next();
        let other = json!({"apiVersion": "v1", "kind": "Any", "metadata": {"namespace": "ns", "name": name}});
        return (StatusCode::OK, other);
    }
    let items = match path.rsplit('/').next().unwrap_or_default() {
        "valkeyclusters" => vec![object(
            "ValkeyCluster",
            "c",
            "nobody",
            json!({"configRef": "standard", "shards": 1, "replicasPerShard": 0}),
        )],
        "valkeynodes" => vec![object(
            "ValkeyNode",
            "c-1",
            "uid-c",
            json!({"clusterName": "c", "image": "valkey:9", "shardIndex": 0}),
        )],
        _ => Vec::new(),
    };
    let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
    (StatusCode::OK, list)
}

/// Who asks, what of it is refused, and what was asked for.
fn visitor(refused: &'static str) -> (Visitor, Asked) {
    let asked = Asked::default();
    let record = asked.clone();
    let api = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let line = format!("{} {}", request.method(), request.uri());
        record
            .lock()
            .expect("no panic while it is held")
            .insert(line);
        let (code, body) = if path.ends_with(refused) {
            let code = StatusCode::FORBIDDEN;
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "reason": "Forbidden", "message": "no", "code": code.as_u16()});
            (code, status)
        } else {
            answer(&path)
        };
        let body = Body::from(serde_json::to_vec(&body).expect("JSON"));
        let mut response = Response::new(body);
        *response.status_mut() = code;
        async move { Ok::<_, std::io::Error>(response) }
    });
    let client = Client::new(api, "default");
    let visitor = Visitor::with_connector(client, Connector::new(6379), Arc::new(|| 0));
    (visitor, asked)
}

fn check(asked: &Asked, expected: &Expect) {
    let asked = asked.lock().expect("no panic while it is held");
    let lines: Vec<&str> = asked.iter().map(String::as_str).collect();
    expected.assert_eq(&lines.join("\n"));
}

async fn world(visit: &Visit) -> World {
    let cluster = ClusterRef {
        namespace: "ns".into(),
        name: "c".into(),
    };
    let world = visit.outline(&cluster).await.expect("read");
    world.expect("there is the cluster")
}

#[tokio::test]
async fn a_visit_lists_what_is_ours_and_reads_by_name_what_could_be_in_the_way() {
    let (visitor, asked) = visitor("nothing");
    let visit = visitor.visit("ns").await.expect("visited");
    check(
        &asked,
        &expect![[r#"
        GET /api/v1/namespaces/ns/configmaps/c-1-config
        GET /api/v1/namespaces/ns/configmaps/c-acl
        GET /api/v1/namespaces/ns/configmaps?&labelSelector=app.kubernetes.io%2Fmanaged-by%3Dvalkey-operator
        GET /api/v1/namespaces/ns/pods?&labelSelector=app.kubernetes.io%2Fname%3Dvalkey%2Cvalkey.gomomento.com%2Fshard-index
        GET /api/v1/namespaces/ns/services/c
        GET /api/v1/namespaces/ns/services?&labelSelector=app.kubernetes.io%2Fmanaged-by%3Dvalkey-operator
        GET /api/v1/nodes?&labelSelector=
        GET /apis/valkey.gomomento.com/v1alpha1/namespaces/ns/valkeyclusters?&labelSelector=
        GET /apis/valkey.gomomento.com/v1alpha1/namespaces/ns/valkeynodes?&labelSelector=
        GET /apis/valkey.gomomento.com/v1alpha1/valkeyconfigs?&labelSelector=
        GET /apis/valkey.gomomento.com/v1alpha1/valkeyimages?&labelSelector=
        GET /apis/valkey.gomomento.com/v1alpha1/valkeyroles?&labelSelector="#]],
    );
    assert_eq!(visit.refusals().next(), None);
    let world = world(&visit).await;
    assert_eq!(world.kept.service, Keeping::Foreign);
    assert!(matches!(world.kept.acl, Keeping::Foreign));
    let node = &world.nodes[&NodeName::new("c-1")];
    assert_eq!(node.config_map, Keeping::Foreign);
    assert_eq!(
        node.foreign_finalizer.as_deref(),
        Some("example.com/backup")
    );
}

#[tokio::test]
async fn what_could_be_in_the_way_and_may_not_be_read_is_told_once() {
    let (by_name, _) = visitor("services/c");
    let visit = by_name.visit("ns").await.expect("visited");
    let refused: Vec<String> = visit.refusals().map(ToString::to_string).collect();
    assert_eq!(
        refused,
        ["you may not get services \"c\" in namespace \"ns\""]
    );
    let (listed, asked) = visitor("services");
    let visit = listed.visit("ns").await.expect("visited");
    let refused: Vec<String> = visit.refusals().map(ToString::to_string).collect();
    assert_eq!(refused, ["you may not list services in namespace \"ns\""]);
    let asked = asked.lock().expect("no panic while it is held");
    assert!(!asked.iter().any(|line| line.contains("services/c")));
}

#[tokio::test]
async fn the_menu_is_read_alone() {
    let (whole, asked) = visitor("nothing");
    assert!(whole.menu().await.expect("read").is_ok());
    check(
        &asked,
        &expect![[r#"
        GET /apis/valkey.gomomento.com/v1alpha1/valkeyconfigs?&labelSelector=
        GET /apis/valkey.gomomento.com/v1alpha1/valkeyimages?&labelSelector=
        GET /apis/valkey.gomomento.com/v1alpha1/valkeyroles?&labelSelector="#]],
    );
    let (names, asked) = visitor("nothing");
    assert_eq!(names.config_names().await.expect("read"), Ok(Vec::new()));
    check(
        &asked,
        &expect!["GET /apis/valkey.gomomento.com/v1alpha1/valkeyconfigs?&labelSelector="],
    );
    let (refused, _) = visitor("valkeyroles");
    let refusals = refused.menu().await.expect("read").expect_err("refused");
    let told: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["you may not list valkeyroles of the whole cluster"]);
}
