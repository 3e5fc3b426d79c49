//! Whole rendered objects and tables of texts.
//! Never a server: what Valkey makes of the texts is tested against real ones.

use std::collections::BTreeMap;

use expect_test::Expect;
use expect_test::ExpectFile;
use expect_test::expect;
use expect_test::expect_file;
use serde::Serialize;
use serde_json::Value;
use serde_json::json;

use super::auth_secret;
use super::pod;
use super::service;
use super::status;
use super::tls_secret;
use super::users_acl;
use super::valkey_conf;
use super::valkey_node;
use crate::api::node::JoinType;
use crate::model::desired::Grant;
use crate::model::desired::PodPolicy;
use crate::model::desired::Resolved;
use crate::model::desired::Shape;
use crate::model::desired::Sourced;
use crate::model::desired::User;
use crate::model::name::ClusterRef;
use crate::model::name::ConfigName;
use crate::model::name::NodeName;
use crate::model::name::ShardIndex;
use crate::model::name::Uid;
use crate::model::redacted::Redacted;
use crate::model::tls::File;
use crate::model::tls::TlsFiles;
use crate::model::world::Auth;
use crate::model::world::ClusterFacts;
use crate::model::world::Keeping;
use crate::model::world::NodeFacts;
use crate::model::world::PodSighting;
use crate::model::world::Sighting;

fn cluster(changes: &Value) -> ClusterFacts {
    let mut spec = json!({ "configRef": "standard", "shards": 3, "replicasPerShard": 1 });
    for (key, value) in changes.as_object().unwrap() {
        spec[key] = value.clone();
    }
    ClusterFacts {
        key: ClusterRef {
            namespace: "my-app".into(),
            name: "my-cluster".into(),
        },
        uid: Uid::new("uid-of-cluster"),
        spec: serde_json::from_value(spec).unwrap(),
        status: serde_json::from_value(json!({})).unwrap(),
        deleting: false,
        finalizer: true,
        paused: false,
    }
}

fn node(changes: &Value) -> NodeFacts {
    let mut spec = json!({
        "clusterName": "my-cluster",
        "image": "valkey/valkey:9.1.2",
        "shardIndex": 2,
        "valkeySettings": { "port": "6379", "save": "" },
        "lifecycle": "Joining",
    });
    for (key, value) in changes.as_object().unwrap() {
        spec[key] = value.clone();
    }
    NodeFacts {
        name: NodeName::new("my-cluster-3f8a1"),
        uid: Uid::new("uid-of-node"),
        spec: serde_json::from_value(spec).unwrap(),
        deleting: false,
        finalizer: true,
        foreign_finalizer: None,
        stamp: None,
        join: None,
        settings_digest: None,
        config_map: Keeping::Absent,
        pod: PodSighting::Absent,
        sighting: Sighting::NotAsked,
    }
}

fn resolved() -> Resolved {
    let sourced = |value: &str| Sourced {
        value: value.into(),
        config: ConfigName::new("standard"),
    };
    Resolved {
        image: sourced("valkey/valkey:9.1.2"),
        cpu: None,
        memory: None,
        user_settings: [("hz".to_owned(), sourced("50"))].into(),
        node_settings: [("hz", "50"), ("port", "6379")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        users: Vec::new(),
        tolerations: Vec::new(),
        priority_class: None,
        pull_secrets: Vec::new(),
        placement: None,
    }
}

fn auth() -> Auth {
    Auth {
        operator: Redacted::new("op".to_owned()),
        repl: Redacted::new("re".to_owned()),
        finalizer: true,
    }
}

/// A user whose permissions are `(permission, role)` in JSON.
fn user(username: &str, permissions: &[(Value, Value)]) -> User {
    let grants: Vec<Grant> = permissions
        .iter()
        .map(|(permission, role)| {
            let mut permission = permission.clone();
            permission["roleRef"] = json!("r");
            Grant {
                permission: serde_json::from_value(permission).unwrap(),
                role: serde_json::from_value(role.clone()).unwrap(),
            }
        })
        .collect();
    let mut binding = json!({ "username": username, "passwordHashes": ["aa", "bb"] });
    binding["permissions"] = grants
        .iter()
        .map(|grant| serde_json::to_value(&grant.permission).unwrap())
        .collect();
    User {
        binding: serde_json::from_value(binding).unwrap(),
        grants,
    }
}

#[track_caller]
fn check(object: &impl Serialize, expected: &Expect) {
    expected.assert_eq(&serde_json::to_string_pretty(object).unwrap());
}

#[track_caller]
fn check_file(object: &impl Serialize, expected: &ExpectFile) {
    expected.assert_eq(&format!(
        "{}\n",
        serde_json::to_string_pretty(object).unwrap()
    ));
}

#[test]
fn a_service() {
    check_file(
        &service::service(&cluster(&json!({}))),
        &expect_file!["tests/service.json"],
    );
}

#[test]
fn an_auth_secret() {
    let secret = auth_secret::secret(&cluster(&json!({})), &auth());
    let text: BTreeMap<_, _> = secret
        .data
        .clone()
        .unwrap()
        .into_iter()
        .map(|(key, bytes)| (key, String::from_utf8(bytes.0).unwrap()))
        .collect();
    check(
        &text,
        &expect![[r#"
            {
              "operator-password": "op",
              "primaryauth.conf": "primaryauth \"re\"\n",
              "repl-password": "re"
            }"#]],
    );
    check_file(&secret, &expect_file!["tests/auth_secret.json"]);
}

#[test]
fn a_node() {
    let facts = cluster(&json!({}));
    let name = facts.key.node_name("3f8a1");
    let node = |join| valkey_node::valkey_node(&facts, &resolved(), ShardIndex(2), &name, join);
    check_file(&node(None), &expect_file!["tests/node.json"]);
    for (join, label) in [
        (JoinType::Replica, "replica"),
        (JoinType::Primary, "primary"),
        (JoinType::Shard, "shard"),
    ] {
        let labels = node(Some(join)).metadata.labels.unwrap();
        assert_eq!(labels["valkey.gomomento.com/join-type"], label);
    }
}

#[test]
fn a_node_with_tls_announces_its_name() {
    let mut facts = cluster(&json!({ "tls": { "secretRef": "my-cluster-tls" } }));
    facts.key.name = "a-b-c".to_owned();
    let name = facts.key.node_name("3f8a1");
    let spec = valkey_node::valkey_node(&facts, &resolved(), ShardIndex(2), &name, None).spec;
    // Byte for byte: a dash that is lost on the way is a name that nobody finds (B60).
    assert_eq!(
        spec.valkey_settings["cluster-announce-hostname"],
        "a-b-c-3f8a1.a-b-c.my-app.svc.cluster.local"
    );
    assert_eq!(spec.tls_secret.as_deref(), Some("a-b-c-operator-tls"));
}

#[test]
fn a_tls_secret() {
    let files = |authorities: &str| TlsFiles {
        certificate: File::new(b"certificate".to_vec()),
        key: File::new(b"key".to_vec()),
        authorities: File::new(authorities.as_bytes().to_vec()),
    };
    let facts = cluster(&json!({}));
    check_file(
        &tls_secret::secret(&facts, &files("new")),
        &expect_file!["tests/tls_secret.json"],
    );
    let former = |before: &str| {
        let data = tls_secret::data(&files("new"), Some(&files(before)));
        let former = data.get("former-ca.crt").cloned();
        former.map(|bytes| String::from_utf8(bytes.0).unwrap())
    };
    assert_eq!(former("old").as_deref(), Some("old"));
    // What is there stays, and nothing is no authority.
    assert_eq!((former("new"), former("")), (None, None));
}

#[test]
fn a_pod_with_tls() {
    let facts = cluster(&json!({ "tls": { "secretRef": "mine" } }));
    let node = node(&json!({ "tlsSecret": "my-cluster-operator-tls" }));
    check_file(
        &pod::pod(&facts, &node, &resolved(), PodPolicy::default()),
        &expect_file!["tests/pod_tls.json"],
    );
}

#[test]
fn a_plain_pod() {
    let facts = cluster(&json!({}));
    check_file(
        &pod::pod(&facts, &node(&json!({})), &resolved(), PodPolicy::default()),
        &expect_file!["tests/pod_plain.json"],
    );
}

#[test]
fn a_pod_with_everything() {
    let facts = cluster(&json!({ "podAnnotations": {
        "example.com/inject-sidecar": "false",
        "prometheus.io/scrape": "true",
    } }));
    let node = node(&json!({
        "cpu": "500m",
        "memory": "1Gi",
        "valkeySettings": { "shutdown-timeout": "60" },
        "placement": {
            "zones": ["us-east-1b", "us-east-1a"],
            "zoneSpread": "required",
            "nodeSelector": { "pool": "cache" },
        },
    }));
    let resolved = Resolved {
        tolerations: serde_json::from_value(json!([{ "key": "cache", "operator": "Exists" }]))
            .unwrap(),
        priority_class: Some("high".to_owned()),
        pull_secrets: vec!["registry".to_owned()],
        ..resolved()
    };
    check_file(
        &pod::pod(&facts, &node, &resolved, PodPolicy::default()).spec,
        &expect_file!["tests/pod_full.json"],
    );
    check(
        &pod::pod(&facts, &node, &resolved, PodPolicy::default())
            .metadata
            .annotations,
        &expect![[r#"
            {
              "example.com/inject-sidecar": "false",
              "prometheus.io/scrape": "true"
            }"#]],
    );
}

#[test]
fn a_pod_where_the_platform_picks_the_user() {
    let spec = pod::pod(
        &cluster(&json!({})),
        &node(&json!({})),
        &resolved(),
        PodPolicy { fixed_user: false },
    )
    .spec
    .unwrap();
    check(
        &spec.security_context,
        &expect![[r#"
            {
              "runAsNonRoot": true,
              "seccompProfile": {
                "type": "RuntimeDefault"
              }
            }"#]],
    );
    check(
        &spec.volumes.unwrap()[3],
        &expect![[r#"
            {
              "name": "auth",
              "secret": {
                "defaultMode": 292,
                "items": [
                  {
                    "key": "primaryauth.conf",
                    "path": "primaryauth.conf"
                  }
                ],
                "secretName": "my-cluster-operator-auth"
              }
            }"#]],
    );
}

#[test]
fn spread_constraints() {
    for (placement, expected) in [
        (
            Value::Null,
            vec!["kubernetes.io/hostname ScheduleAnyway shard"],
        ),
        (
            json!({ "nodeSelector": { "a": "b" }, "zoneSpread": "required" }),
            vec!["kubernetes.io/hostname ScheduleAnyway shard"],
        ),
        (
            json!({ "zones": ["a"], "zoneSpread": "bestEffort" }),
            vec![
                "kubernetes.io/hostname ScheduleAnyway shard",
                "topology.kubernetes.io/zone ScheduleAnyway shard",
            ],
        ),
        (
            json!({ "zones": ["a"], "zoneSpread": "required" }),
            vec![
                "kubernetes.io/hostname ScheduleAnyway shard",
                "topology.kubernetes.io/zone DoNotSchedule shard",
                "topology.kubernetes.io/zone ScheduleAnyway cluster",
            ],
        ),
    ] {
        let node = node(&json!({ "placement": placement }));
        let pod = pod::pod(
            &cluster(&json!({})),
            &node,
            &resolved(),
            PodPolicy::default(),
        );
        let constraints: Vec<String> = pod
            .spec
            .unwrap()
            .topology_spread_constraints
            .unwrap()
            .iter()
            .map(|constraint| {
                let labels = constraint
                    .label_selector
                    .clone()
                    .unwrap()
                    .match_labels
                    .unwrap();
                assert_eq!(labels["app.kubernetes.io/instance"], "my-cluster");
                let template = "valkey.gomomento.com/template";
                assert_eq!(
                    labels[template],
                    pod.metadata.labels.as_ref().unwrap()[template]
                );
                let scope = match labels.get("valkey.gomomento.com/shard-index") {
                    Some(index) if index == "2" => "shard",
                    Some(other) => panic!("shard {other}"),
                    None => "cluster",
                };
                assert_eq!(constraint.max_skew, 1);
                format!(
                    "{} {} {scope}",
                    constraint.topology_key, constraint.when_unsatisfiable
                )
            })
            .collect();
        assert_eq!(constraints, expected);
    }
}

#[test]
fn pods_that_no_roll_would_tell_apart_have_one_template() {
    let label = |changes: Value| {
        let (node, policy) = (node(&changes), PodPolicy::default());
        let pod = pod::pod(&cluster(&json!({})), &node, &resolved(), policy);
        pod.metadata.labels.unwrap()["valkey.gomomento.com/template"].clone()
    };
    let plain = label(json!({ "cpu": "1", "placement": { "zones": ["a", "b"] } }));
    // For good: another would set new nodes apart from those that an earlier operator made.
    assert_eq!(plain, "a0d285274daafd21");
    let alike = json!({
        "cpu": "1000m", "shardIndex": 0, "lifecycle": "Active",
        "placement": { "zones": ["b", "a"], "zoneSpread": "required" },
    });
    assert_eq!(label(alike), plain);
    for other in [
        json!({ "cpu": "2", "placement": { "zones": ["a", "b"] } }),
        json!({ "cpu": "1", "placement": { "zones": ["a"] } }),
        json!({ "cpu": "1", "placement": { "zones": ["a", "b"] }, "image": "valkey/valkey:9.1.3" }),
    ] {
        assert_ne!(label(other.clone()), plain, "{other}");
    }
}

#[test]
fn the_grace_period_is_above_the_shutdown_timeout() {
    for (timeout, grace) in [
        (None, 30),
        (Some("60"), 80),
        (Some("0"), 30),
        (Some("1"), 30),
        (Some("-5"), 30),
        (Some("x"), 30),
        (Some("99999999999999999999"), 30),
        (Some("9999999999"), 86_420),
    ] {
        let settings: Value = match timeout {
            Some(timeout) => json!({ "shutdown-timeout": timeout }),
            None => json!({}),
        };
        let node = node(&json!({ "valkeySettings": settings }));
        let pod = pod::pod(
            &cluster(&json!({})),
            &node,
            &resolved(),
            PodPolicy::default(),
        );
        assert_eq!(
            pod.spec.unwrap().termination_grace_period_seconds,
            Some(grace),
            "{timeout:?}"
        );
    }
}

#[test]
fn an_acl_without_bindings_is_open() {
    expect![[r"
        user default on nopass ~* &* +@all
        user _momento_operator on #037aeaeaf4bbf26ddabe7256a8294dc52da48d575a1247b5c2598c47de7aebab resetchannels -@all +cluster +acl|load +ping +info +config|set
        user _momento_repl on #3ac1ecbd2220c6757eb9f289fee88c4068c6791c5b0affef7644e77adfc97b45 -@all ~* resetchannels +psync +sync +replconf +ping +cluster|syncslots +select +@write +pfcount -flushall -flushdb -swapdb -migrate -function -cluster|flushslot -pfdebug
    "]].assert_eq(&users_acl::text(&[], &auth()));
}

#[test]
fn an_acl_with_bindings() {
    let reader = json!({ "categories": [{ "name": "read", "access": "allow" }, { "name": "dangerous", "access": "deny" }] });
    let writer = json!({
        "categories": [{ "name": "all", "access": "allow" }],
        "commands": [
            { "name": "config", "access": "deny" },
            { "name": "config", "subcommand": "get", "access": "allow" },
            { "name": "acl", "subcommand": "setuser", "access": "deny" },
        ],
    });
    let users = [
        user(
            "team-batch",
            &[
                (
                    json!({
                        "keys": [
                            { "pattern": "batch:*" },
                            { "pattern": "in:*", "access": "read" },
                            { "pattern": "out:*", "access": "write" },
                            { "pattern": "x:*", "access": "readwrite" },
                        ],
                        "channels": ["news.*", "jobs"],
                    }),
                    writer.clone(),
                ),
                (
                    json!({ "keys": [{ "pattern": "metrics:*", "access": "read" }] }),
                    reader.clone(),
                ),
                (json!({ "keys": [], "channels": ["c"] }), json!({})),
            ],
        ),
        user("nobody", &[(json!({ "keys": [] }), json!({}))]),
    ];
    expect![[r"
        user default off resetchannels -@all
        user team-batch on #aa #bb resetchannels -@all +@all -config +config|get -acl|setuser ~batch:* %R~in:* %W~out:* ~x:* &news.* &jobs (resetchannels -@all +@read -@dangerous %R~metrics:*) (resetchannels -@all &c)
        user nobody on #aa #bb resetchannels -@all
        user _momento_operator on #037aeaeaf4bbf26ddabe7256a8294dc52da48d575a1247b5c2598c47de7aebab resetchannels -@all +cluster +acl|load +ping +info +config|set
        user _momento_repl on #3ac1ecbd2220c6757eb9f289fee88c4068c6791c5b0affef7644e77adfc97b45 -@all ~* resetchannels +psync +sync +replconf +ping +cluster|syncslots +select +@write +pfcount -flushall -flushdb -swapdb -migrate -function -cluster|flushslot -pfdebug
    "]].assert_eq(&users_acl::text(&users, &auth()));
}

#[test]
fn a_binding_named_default_is_the_default_user() {
    let users = [user(
        "default",
        &[(json!({ "keys": [{ "pattern": "*" }] }), json!({}))],
    )];
    expect![[r"
        user default on #aa #bb resetchannels -@all ~*
        user _momento_operator on #037aeaeaf4bbf26ddabe7256a8294dc52da48d575a1247b5c2598c47de7aebab resetchannels -@all +cluster +acl|load +ping +info +config|set
        user _momento_repl on #3ac1ecbd2220c6757eb9f289fee88c4068c6791c5b0affef7644e77adfc97b45 -@all ~* resetchannels +psync +sync +replconf +ping +cluster|syncslots +select +@write +pfcount -flushall -flushdb -swapdb -migrate -function -cluster|flushslot -pfdebug
    "]].assert_eq(&users_acl::text(&users, &auth()));
}

/// Valkey refuses a file with a pattern after `~*` or `&*`, so every pattern stands alone; and it ends a
/// selector at a word that ends in `)`, so such a word is quoted.
#[test]
fn patterns_that_would_break_the_file() {
    let all_and_more = json!({
        "keys": [
            { "pattern": "a" },
            { "pattern": "*" },
            { "pattern": "b", "access": "read" },
        ],
        "channels": ["x", "*", "y"],
    });
    let read_all = json!({ "keys": [{ "pattern": "*", "access": "read" }, { "pattern": "a" }] });
    let bracket = json!({
        "keys": [{ "pattern": "a(b)" }, { "pattern": "c\\)" }, { "pattern": "(d" }],
        "channels": ["e)"],
    });
    let permissions = [all_and_more, read_all, bracket].map(|permission| (permission, json!({})));
    let mut again = permissions.to_vec();
    again.rotate_left(2);
    let users = [user("ann", &permissions), user("bob", &again)];
    expect![[r#"
        user default off resetchannels -@all
        user ann on #aa #bb resetchannels -@all ~* &* (resetchannels -@all %R~* ~a) (resetchannels -@all "~a(b)" "~c\\)" ~(d "&e)")
        user bob on #aa #bb resetchannels -@all ~a(b) ~c\) ~(d &e) (resetchannels -@all ~* &*) (resetchannels -@all %R~* ~a)
        user _momento_operator on #037aeaeaf4bbf26ddabe7256a8294dc52da48d575a1247b5c2598c47de7aebab resetchannels -@all +cluster +acl|load +ping +info +config|set
        user _momento_repl on #3ac1ecbd2220c6757eb9f289fee88c4068c6791c5b0affef7644e77adfc97b45 -@all ~* resetchannels +psync +sync +replconf +ping +cluster|syncslots +select +@write +pfcount -flushall -flushdb -swapdb -migrate -function -cluster|flushslot -pfdebug
    "#]].assert_eq(&users_acl::text(&users, &auth()));
}

#[test]
fn a_valkey_conf() {
    let settings: BTreeMap<String, String> = [
        ("save", ""),
        (
            "client-output-buffer-limit",
            "normal 0 0 0 replica 512mb 128mb 60",
        ),
        ("include", "/etc/other.conf"),
        ("loadmodule", "/usr/lib/search.so workers 4"),
        ("rename-command", "FLUSHALL \"\""),
        ("user", "bob on\nport 1"),
        ("requirepass", "a\"b\\c'd #e\tf\ng\r\u{1}\u{7f}\u{0} ü€"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    expect![[r#"
        include "/etc/other.conf"
        client-output-buffer-limit "normal 0 0 0 replica 512mb 128mb 60"
        loadmodule /usr/lib/search.so workers 4
        rename-command FLUSHALL ""
        requirepass "a\"b\\c'd #e\tf\ng\r\x01\x7f\x00 ü€"
        save ""
        user bob on port 1
        include /etc/valkey/auth/primaryauth.conf
    "#]]
    .assert_eq(&valkey_conf::text(&settings));
    expect![[r"
        include /etc/valkey/auth/primaryauth.conf
    "]]
    .assert_eq(&valkey_conf::text(&BTreeMap::new()));
}

#[test]
fn config_maps() {
    let facts = cluster(&json!({}));
    check_file(
        &valkey_conf::config_map(&facts, &node(&json!({}))),
        &expect_file!["tests/conf_map.json"],
    );
    check_file(
        &users_acl::config_map(&facts, "text".to_owned()),
        &expect_file!["tests/acl_map.json"],
    );
}

#[test]
fn status_patches() {
    let mut facts = cluster(&json!({ "podAnnotations": { "new": "1" } }));
    let old = json!({
        "configRef": "standard", "shards": 5, "replicasPerShard": 0,
        "podAnnotations": { "old": "1" }, "placement": { "zones": ["a"] },
    });
    facts.status.target_spec = Some(serde_json::from_value(old).unwrap());
    let shape = Shape {
        shards: 2,
        replicas: 4,
    };
    let patch = status::snapshot(&facts, shape).unwrap();
    assert_eq!(patch["status"]["state"], "Creating");
    assert_eq!(patch["status"]["message"], Value::Null);
    let target = &patch["status"]["targetSpec"];
    assert_eq!(target["shards"], 2);
    assert_eq!(target["replicasPerShard"], 4);
    // What the new spec does not have must be named to be gone.
    assert_eq!(target["podAnnotations"], json!({ "new": "1", "old": null }));
    assert!(target.as_object().unwrap().contains_key("placement"));
    assert_eq!(target["placement"], Value::Null);
    assert_eq!(
        status::activation(),
        json!({ "status": { "state": "Active", "targetSpec": null, "message": null } })
    );
    assert_eq!(
        status::invalidation("because"),
        json!({ "status": { "state": "Invalid", "message": "because" } })
    );
}
