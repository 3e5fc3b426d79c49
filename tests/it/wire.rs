//! Every write to the API server, once: method, path and body, as they go over the wire.
//! Never judges when a write is made: that is `decide`'s.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use expect_test::{Expect, expect};
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use operator::act::upkeep::Upkeep;
use operator::act::{CHANCE_BYTES, Writer};
use operator::api::cluster::{ValkeyClusterSpec, ValkeyClusterStatus, ZoneSpread};
use operator::api::node::{JoinType, Lifecycle, ValkeyNodeSpec};
use operator::model::decision::{Action, Decision, NodeAction, Verdict};
use operator::model::desired::{Desired, PodPolicy, Resolved, Shape, Sourced};
use operator::model::name::{ClusterRef, ConfigName, NodeName, ShardIndex, Uid};
use operator::model::redacted::Redacted;
use operator::model::tls::{File, TlsError, TlsFiles};
use operator::model::why::Why;
use operator::model::world::{
    Auth, ClusterFacts, Host, Keeping, Kept, Menu, NodeFacts, PodFacts, PodPhase, PodSighting,
    Sighting, World,
};
use operator::valkey::client::Connector;
use serde_json::{Value, json};

/// A Writer to an API server that takes nothing and says so with this code.
fn refused(code: u16) -> Writer {
    let api = tower::service_fn(move |_: Request<Body>| async move {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
            "reason": "Any", "message": "no", "code": code});
        let body = Body::from(serde_json::to_vec(&status).expect("JSON"));
        let mut response = Response::new(body);
        *response.status_mut() = http::StatusCode::from_u16(code).expect("a code");
        Ok::<_, std::io::Error>(response)
    });
    writer(Client::new(api, "default"))
}

fn writer(client: Client) -> Writer {
    Writer::new(
        client,
        Connector::new(6379),
        PodPolicy::default(),
        Arc::new(|_| [7; CHANCE_BYTES]),
    )
}

/// A Writer, and what it sends.
fn recorder() -> (Writer, Arc<Mutex<Vec<String>>>) {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let record = sent.clone();
    let api = tower::service_fn(move |request: Request<Body>| {
        let record = record.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.expect("a body in memory");
            let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let line = format!("{} {}\n{}", head.method, head.uri, shown(&body));
            record.lock().expect("no panic while it is held").push(line);
            Ok::<_, std::io::Error>(Response::new(Body::from(answer(&head, body))))
        }
    });
    (writer(Client::new(api, "default")), sent)
}

/// Long bodies are other tests' business: an object that is made is shown by its kind and owner.
fn shown(body: &Value) -> String {
    let meta = &body["metadata"];
    if body["kind"].is_string() && meta["name"].is_string() {
        let owner = meta
            .pointer("/ownerReferences/0/name")
            .unwrap_or(&Value::Null);
        return format!(
            "{} owned by {owner}, finalizers {}",
            body["kind"], meta["finalizers"]
        );
    }
    body.to_string()
}

/// What a real API server answers, as far as the client reads it.
fn answer(head: &http::request::Parts, body: Value) -> Vec<u8> {
    let kinds = [
        ("/secrets/", "Secret"),
        ("/configmaps/", "ConfigMap"),
        ("/pods/", "Pod"),
    ];
    let kind = kinds
        .iter()
        .find(|(path, _)| head.uri.path().contains(path));
    let uids = [("valkeynodes", "uid-node"), ("valkeyclusters", "uid-c")];
    let uid = uids.iter().find(|(path, _)| head.uri.path().contains(path));
    let answer = match head.method.as_str() {
        "POST" => body,
        "DELETE" => json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
        _ => json!({
            "apiVersion": "v1", "kind": kind.map_or("Any", |(_, kind)| kind),
            "metadata": {
                "name": "any", "resourceVersion": "7", "uid": uid.map_or("uid-any", |(_, uid)| uid),
                "ownerReferences": [{"apiVersion": "v1", "kind": "Any", "name": "c", "uid": "uid-c"}],
                "finalizers": [
                    "else.example/keep", "valkey.gomomento.com/cleanup",
                    "valkey.gomomento.com/node-cleanup", "valkey.gomomento.com/auth-protection",
                ],
            },
            "spec": {
                "configRef": "standard", "shards": 1, "replicasPerShard": 0,
                "clusterName": "c", "image": "valkey:9", "shardIndex": 0,
            },
        }),
    };
    serde_json::to_vec(&answer).expect("JSON")
}

pub(crate) fn world() -> (World, Desired) {
    let spec = ValkeyClusterSpec {
        config_ref: "standard".into(),
        shards: 1,
        ..ValkeyClusterSpec::default()
    };
    let auth = Auth {
        operator: Redacted::new("o".into()),
        repl: Redacted::new("r".into()),
        finalizer: true,
    };
    let node = node();
    let world = World {
        now: 0,
        cluster: ClusterFacts {
            key: ClusterRef {
                namespace: "ns".into(),
                name: "c".into(),
            },
            uid: Uid::new("uid-c"),
            spec,
            status: ValkeyClusterStatus::default(),
            deleting: false,
            finalizer: true,
            paused: false,
        },
        menu: Menu::default(),
        kept: Kept {
            service: Keeping::Absent,
            auth: Keeping::Ours(auth),
            acl: Keeping::Absent,
            tls: Keeping::Absent,
        },
        tls_secret: None,
        nodes: BTreeMap::from([(node.name.clone(), node)]),
        strays: BTreeMap::new(),
        acl_refusal: None,
        default_zone_spread: ZoneSpread::BestEffort,
    };
    let image = Sourced {
        value: "valkey:9".into(),
        config: ConfigName::new("standard"),
    };
    let resolved = Resolved {
        image,
        cpu: None,
        memory: None,
        placement: None,
        user_settings: BTreeMap::new(),
        node_settings: BTreeMap::new(),
        users: Vec::new(),
        tolerations: Vec::new(),
        priority_class: None,
        pull_secrets: Vec::new(),
    };
    (
        world,
        Desired {
            shape: Shape {
                shards: 1,
                replicas: 0,
            },
            menu: Ok(resolved),
            tls: None,
        },
    )
}

fn node() -> NodeFacts {
    let pod = PodFacts {
        uid: Uid::new("uid-pod"),
        phase: PodPhase::Running,
        ip: None,
        host: Host::Unknown,
        deleting: false,
        trouble: None,
        annotations: BTreeMap::new(),
    };
    NodeFacts {
        name: NodeName::new("c-1a2b3"),
        uid: Uid::new("uid-node"),
        spec: ValkeyNodeSpec {
            lifecycle: Lifecycle::Joining,
            ..ValkeyNodeSpec::default()
        },
        deleting: false,
        finalizer: true,
        foreign_finalizer: None,
        stamp: Some(Uid::new("uid-pod")),
        join: Some(JoinType::Shard),
        settings_digest: None,
        config_map: Keeping::Ours(()),
        pod: PodSighting::Present(pod),
        sighting: Sighting::NotAsked,
    }
}

async fn check(action: Action, expected: Expect) {
    check_in(&world().0, action, expected).await;
}

async fn check_in(world: &World, action: Action, expected: Expect) {
    let ((_, desired), (writer, sent)) = (self::world(), recorder());
    let verdict = Verdict::Take(action, Why::Deleting);
    let decision = Decision {
        verdict,
        rung: None,
        passed: Vec::new(),
        nudges: Vec::new(),
        notes: Vec::new(),
    };
    writer
        .perform(world, &desired, &decision)
        .await
        .expect("the API takes every write");
    expected.assert_eq(&sent.lock().expect("not poisoned").join("\n"));
}

async fn check_node(action: NodeAction, expected: Expect) {
    let ((world, desired), (writer, sent)) = (world(), recorder());
    let node = node();
    let performed = writer.perform_node(&world, &desired, &node, &action).await;
    performed.expect("the API takes every write");
    expected.assert_eq(&sent.lock().expect("not poisoned").join("\n"));
}

async fn check_upkeep(upkeep: Upkeep, expected: Expect) {
    let ((world, _), (writer, sent)) = (world(), recorder());
    writer
        .upkeep(&world, &[upkeep])
        .await
        .expect("the API takes every write");
    expected.assert_eq(&sent.lock().expect("not poisoned").join("\n"));
}

#[tokio::test]
async fn the_cluster_is_written_in_single_steps() {
    check(Action::AddFinalizer, expect![[r#"
        GET /apis/valkey.gomomento.com/v1alpha1/namespaces/ns/valkeyclusters/c
        null
        PATCH /apis/valkey.gomomento.com/v1alpha1/namespaces/ns/valkeyclusters/c?&fieldManager=valkey-operator
        {"metadata":{"finalizers":["else.example/keep","valkey.gomomento.com/cleanup","valkey.gomomento.com/node-cleanup","valkey.gomomento.com/auth-protection"],"resourceVersion":"7"}}"#]]).await;
    check(Action::Snapshot(Shape { shards: 1, replicas: 0 }), expect![[r#"
        PATCH /apis/valkey.gomomento.com/v1alpha1/namespaces/ns/valkeyclusters/c/status?&fieldManager=valkey-operator
        {"status":{"message":null,"state":"Creating","targetSpec":{"configRef":"standard","replicasPerShard":0,"shards":1}}}"#]]).await;
    let error = TlsError::NoData("mine".into());
    check(Action::Invalidate(error), expect![[r#"
        PATCH /apis/valkey.gomomento.com/v1alpha1/namespaces/ns/valkeyclusters/c/status?&fieldManager=valkey-operator
        {"status":{"message":"TLS Secret \"mine\" has no data","state":"Invalid"}}"#]]).await;
    check(
        Action::Activate(vec![NodeName::new("c-1a2b3")]),
        expect![[r#"
            PATCH /apis/valkey.gomomento.com/v1alpha1/namespaces/ns/valkeynodes/c-1a2b3?&fieldManager=valkey-operator
            {"metadata":{"uid":"uid-node"},"spec":{"lifecycle":"Active"}}
            PATCH /apis/valkey.gomomento.com/v1alpha1/namespaces/ns/valkeyclusters/c/status?&fieldManager=valkey-operator
            {"status":{"message":null,"state":"Active","targetSpec":null}}"#]],
    )
    .await;
    check(Action::CompleteJoin(NodeName::new("c-1a2b3")), expect![[r#"
        PATCH /apis/valkey.gomomento.com/v1alpha1/namespaces/ns/valkeynodes/c-1a2b3?&fieldManager=valkey-operator
        {"metadata":{"labels":{"valkey.gomomento.com/join-type":null},"uid":"uid-node"},"spec":{"lifecycle":"Active"}}"#]]).await;
    check(Action::Leave(NodeName::new("c-1a2b3")), expect![[r#"
        PATCH /apis/valkey.gomomento.com/v1alpha1/namespaces/ns/valkeynodes/c-1a2b3?&fieldManager=valkey-operator
        {"metadata":{"uid":"uid-node"},"spec":{"lifecycle":"Leaving"}}"#]]).await;
    check(Action::ReleaseCluster, expect![[r#"
        GET /api/v1/namespaces/ns/secrets/c-operator-auth
        null
        PATCH /api/v1/namespaces/ns/secrets/c-operator-auth?&fieldManager=valkey-operator
        {"metadata":{"finalizers":["else.example/keep","valkey.gomomento.com/cleanup","valkey.gomomento.com/node-cleanup"],"resourceVersion":"7"}}
        GET /apis/valkey.gomomento.com/v1alpha1/namespaces/ns/valkeyclusters/c
        null
        PATCH /apis/valkey.gomomento.com/v1alpha1/namespaces/ns/valkeyclusters/c?&fieldManager=valkey-operator
        {"metadata":{"finalizers":["else.example/keep","valkey.gomomento.com/node-cleanup","valkey.gomomento.com/auth-protection"],"resourceVersion":"7"}}"#]]).await;
}

/// Somebody deleted what was seen, and made something else under its name.
#[tokio::test]
async fn what_took_a_name_keeps_its_finalizers() {
    let (mut world, _) = world();
    world.cluster.uid = Uid::new("uid-before");
    check_in(
        &world,
        Action::ReleaseCluster,
        expect![[r#"
        GET /api/v1/namespaces/ns/secrets/c-operator-auth
        null
        GET /apis/valkey.gomomento.com/v1alpha1/namespaces/ns/valkeyclusters/c
        null"#]],
    )
    .await;
}

#[tokio::test]
async fn nodes_are_deleted_by_uid_and_let_go_one_finalizer_only() {
    check(
        Action::DeleteNode(NodeName::new("c-1a2b3")),
        expect![[r#"
        DELETE /apis/valkey.gomomento.com/v1alpha1/namespaces/ns/valkeynodes/c-1a2b3?
        {"preconditions":{"uid":"uid-node"}}"#]],
    )
    .await;
    check(
        Action::DeleteAllNodes,
        expect![[r#"
        DELETE /apis/valkey.gomomento.com/v1alpha1/namespaces/ns/valkeynodes/c-1a2b3?
        {"preconditions":{"uid":"uid-node"}}"#]],
    )
    .await;
    check_node(
        NodeAction::CreateConfigMap,
        expect![[r#"
        POST /api/v1/namespaces/ns/configmaps?&fieldManager=valkey-operator
        "ConfigMap" owned by "c-1a2b3", finalizers null"#]],
    )
    .await;
    check_node(
        NodeAction::CreatePod,
        expect![[r#"
        POST /api/v1/namespaces/ns/pods?&fieldManager=valkey-operator
        "Pod" owned by "c-1a2b3", finalizers null"#]],
    )
    .await;
    check_node(NodeAction::Stamp(Uid::new("uid-pod")), expect![[r#"
        PATCH /apis/valkey.gomomento.com/v1alpha1/namespaces/ns/valkeynodes/c-1a2b3?&fieldManager=valkey-operator
        {"metadata":{"annotations":{"valkey.gomomento.com/pod-uid":"uid-pod"},"uid":"uid-node"}}"#]]).await;
    check_node(
        NodeAction::DeletePod(Uid::new("uid-pod")),
        expect![[r#"
        DELETE /api/v1/namespaces/ns/pods/c-1a2b3?
        {"preconditions":{"uid":"uid-pod"}}"#]],
    )
    .await;
    check_node(NodeAction::ReleaseNode, expect![[r#"
        GET /apis/valkey.gomomento.com/v1alpha1/namespaces/ns/valkeynodes/c-1a2b3
        null
        PATCH /apis/valkey.gomomento.com/v1alpha1/namespaces/ns/valkeynodes/c-1a2b3?&fieldManager=valkey-operator
        {"metadata":{"finalizers":["else.example/keep","valkey.gomomento.com/cleanup","valkey.gomomento.com/auth-protection"],"resourceVersion":"7"}}"#]]).await;
}

#[tokio::test]
async fn a_new_node_is_made_under_a_random_name() {
    let ((world, desired), (writer, sent)) = (world(), recorder());
    let verdict = Verdict::Take(Action::CreateNode(ShardIndex(0), None), Why::Deleting);
    let decision = Decision {
        verdict,
        rung: None,
        passed: Vec::new(),
        nudges: Vec::new(),
        notes: Vec::new(),
    };
    let made = writer
        .perform(&world, &desired, &decision)
        .await
        .expect("the API takes it");
    let name = made.expect("a node was made").to_string();
    let suffix = name
        .strip_prefix("c-")
        .expect("it begins with the cluster's name");
    assert!(
        suffix.len() == 5 && suffix.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{name}"
    );
    let sent = sent.lock().expect("not poisoned").join("\n");
    let expected = expect![[r#"
        POST /apis/valkey.gomomento.com/v1alpha1/namespaces/ns/valkeynodes?&fieldManager=valkey-operator
        "ValkeyNode" owned by "c", finalizers ["valkey.gomomento.com/node-cleanup"]"#]];
    expected.assert_eq(&sent.replace(&name, "c-XXXXX"));
}

#[tokio::test]
async fn kept_objects_are_made_once_and_put_right() {
    check_upkeep(
        Upkeep::CreateService,
        expect![[r#"
        POST /api/v1/namespaces/ns/services?&fieldManager=valkey-operator
        "Service" owned by "c", finalizers null"#]],
    )
    .await;
    check_upkeep(
        Upkeep::CreateAuth,
        expect![[r#"
        POST /api/v1/namespaces/ns/secrets?&fieldManager=valkey-operator
        "Secret" owned by "c", finalizers ["valkey.gomomento.com/auth-protection"]"#]],
    )
    .await;
    check_upkeep(
        Upkeep::CreateAcl(Redacted::new("user default off".into())),
        expect![[r#"
            POST /api/v1/namespaces/ns/configmaps?&fieldManager=valkey-operator
            "ConfigMap" owned by "c", finalizers null"#]],
    )
    .await;
    check_upkeep(
        Upkeep::UpdateAcl {
            map: Uid::new("acl"),
            text: Redacted::new("user default off".into()),
        },
        expect![[r#"
            PATCH /api/v1/namespaces/ns/configmaps/c-acl?&fieldManager=valkey-operator
            {"data":{"users.acl":"user default off"},"metadata":{"uid":"acl"}}"#]],
    )
    .await;
    let files = |authorities: &str| TlsFiles {
        certificate: File::new(b"certificate".to_vec()),
        key: File::new(b"key".to_vec()),
        authorities: File::new(authorities.as_bytes().to_vec()),
    };
    check_upkeep(
        Upkeep::CreateTls(files("new")),
        expect![[r#"
        POST /api/v1/namespaces/ns/secrets?&fieldManager=valkey-operator
        "Secret" owned by "c", finalizers null"#]],
    )
    .await;
    let update = Upkeep::UpdateTls {
        secret: Uid::new("tls"),
        before: files("old"),
        files: files("new"),
    };
    check_upkeep(update, expect![[r#"
        PATCH /api/v1/namespaces/ns/secrets/c-operator-tls?&fieldManager=valkey-operator
        {"data":{"ca.crt":"bmV3","former-ca.crt":"b2xk","tls.crt":"Y2VydGlmaWNhdGU=","tls.key":"a2V5"},"metadata":{"uid":"tls"}}"#]]).await;
    let annotate = Upkeep::Annotate {
        node: NodeName::new("c-1a2b3"),
        pod: Uid::new("uid-pod"),
        annotations: BTreeMap::from([("example.com/a".to_owned(), "1".to_owned())]),
    };
    check_upkeep(
        annotate,
        expect![[r#"
        PATCH /api/v1/namespaces/ns/pods/c-1a2b3?&fieldManager=valkey-operator
        {"metadata":{"annotations":{"example.com/a":"1"},"uid":"uid-pod"}}"#]],
    )
    .await;
}

/// Annotations or users that are too large for the API server stopped every repair of their cluster.
#[tokio::test]
async fn a_change_that_is_refused_as_invalid_does_not_end_the_tick() {
    let (world, _) = world();
    let annotate = || Upkeep::Annotate {
        node: NodeName::new("c-1a2b3"),
        pod: Uid::new("uid-pod"),
        annotations: BTreeMap::from([("example.com/a".to_owned(), "1".to_owned())]),
    };
    let users = || Redacted::new("user a on".to_owned());
    for (code, upkeep, ends) in [
        (422, annotate(), false),
        (
            413,
            Upkeep::UpdateAcl {
                map: Uid::new("acl"),
                text: users(),
            },
            false,
        ),
        // Whoever else has written, or is not there, is met again in the next tick.
        (409, annotate(), true),
        (
            503,
            Upkeep::UpdateAcl {
                map: Uid::new("acl"),
                text: users(),
            },
            true,
        ),
        // Without it no pod could start.
        (422, Upkeep::CreateAcl(users()), true),
        (422, Upkeep::CreateService, true),
    ] {
        let kept = refused(code)
            .upkeep(&world, std::slice::from_ref(&upkeep))
            .await;
        assert_eq!(kept.is_err(), ends, "{code}: {upkeep:?}: {kept:?}");
    }
}
