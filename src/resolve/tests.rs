//! Tables of menus and what they resolve to.
//! Never touches a neighbour.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::json;

use super::desired;
use super::forced::canonical;
use crate::api::cluster::ZoneSpread;
use crate::model::desired::Resolved;
use crate::model::desired::Shape;
use crate::model::name::ClusterRef;
use crate::model::name::Uid;
use crate::model::world::ClusterFacts;
use crate::model::world::Kept;
use crate::model::world::Menu;
use crate::model::world::World;

/// A world from JSON: `configs` (name to spec), `roles`, `images` (default: `v9`), `cluster` (over a default
/// spec) and `status`.
fn world(parts: &Value) -> World {
    let part = |key: &str| parts.get(key).cloned().unwrap_or_else(|| json!({}));
    let mut spec = json!({ "configRef": "c", "shards": 3, "replicasPerShard": 1 });
    for (key, value) in part("cluster").as_object().unwrap() {
        spec[key] = value.clone();
    }
    let images = match parts.get("images") {
        Some(images) => images.clone(),
        None => {
            json!({ "v9": { "repository": "valkey/valkey", "tag": "9.1.2", "version": "9.1.2" } })
        }
    };
    World {
        now: 0,
        cluster: ClusterFacts {
            key: ClusterRef {
                namespace: "ns".into(),
                name: "k".into(),
            },
            uid: Uid::new("u"),
            spec: serde_json::from_value(spec).unwrap(),
            status: serde_json::from_value(part("status")).unwrap(),
            deleting: false,
            finalizer: true,
            paused: false,
        },
        menu: Menu {
            configs: serde_json::from_value(part("configs")).unwrap(),
            images: serde_json::from_value(images).unwrap(),
            roles: serde_json::from_value(part("roles")).unwrap(),
        },
        kept: Kept::default(),
        tls_secret: None,
        nodes: BTreeMap::new(),
        strays: BTreeMap::new(),
        acl_refusal: None,
        default_zone_spread: ZoneSpread::Required,
    }
}

fn resolved(parts: &Value) -> Resolved {
    desired(&world(parts)).menu.unwrap()
}

fn error(parts: &Value) -> String {
    desired(&world(parts)).menu.unwrap_err().to_string()
}

/// A binding with one permission by a role.
fn binding(username: &str, role: &str) -> Value {
    json!({
        "username": username,
        "passwordHashes": ["a".repeat(64)],
        "permissions": [{ "roleRef": role, "keys": [] }],
    })
}

/// `count` configs `c`, `c1`, `c2` ..., each inheriting from the next; the last has the image.
fn chain(count: usize) -> Value {
    let name = |i: usize| {
        if i == 0 {
            "c".to_owned()
        } else {
            format!("c{i}")
        }
    };
    let config = |i: usize| {
        if i + 1 == count {
            json!({ "imageRef": "v9" })
        } else {
            json!({ "baseRef": name(i + 1) })
        }
    };
    Value::Object((0..count).map(|i| (name(i), config(i))).collect())
}

#[test]
fn every_error_is_told_in_the_words_of_the_contract() {
    let user = |role: &str| json!([binding("ann", role)]);
    for (parts, text) in [
        (json!({}), "ValkeyConfig \"c\" not found"),
        (
            json!({ "configs": { "c": { "baseRef": "b", "imageRef": "v9" } } }),
            "ValkeyConfig \"b\" not found",
        ),
        (
            json!({ "configs": { "c": { "imageRef": "v8" } } }),
            "ValkeyImage \"v8\" not found",
        ),
        (
            json!({ "configs": { "c": { "baseRef": "root" }, "root": {} } }),
            "no image_ref in config chain ending at \"root\"",
        ),
        (
            json!({ "configs": { "c": {} } }),
            "no image_ref in config chain ending at \"c\"",
        ),
        (
            json!({ "configs": { "c": { "imageRef": "v9", "baseRef": "c" } } }),
            "config inheritance depth exceeds 10 (cycle?)",
        ),
        (
            json!({ "configs": { "c": { "baseRef": "b" }, "b": { "baseRef": "c" } } }),
            "config inheritance depth exceeds 10 (cycle?)",
        ),
        (
            json!({ "configs": chain(11) }),
            "config inheritance depth exceeds 10 (cycle?)",
        ),
        (
            json!({ "configs": { "c": { "imageRef": "v9", "acl": user("reader") } } }),
            "ValkeyRole \"reader\" not found (referenced by user \"ann\")",
        ),
        (
            json!({ "configs": { "c": { "imageRef": "v9" } }, "cluster": { "acl": user("reader") } }),
            "ValkeyRole \"reader\" not found (referenced by user \"ann\")",
        ),
        (
            json!({
                "configs": { "c": { "imageRef": "v9", "acl": user("r") } },
                "cluster": { "acl": user("r") },
                "roles": { "r": {} },
            }),
            "duplicate username \"ann\" in merged ACL bindings",
        ),
    ] {
        assert_eq!(error(&parts), text, "{parts}");
    }
}

#[test]
fn of_two_errors_the_one_nearer_to_the_config_is_told() {
    let acl = json!([binding("ann", "nobody")]);
    let mut broken = json!({
        "configs": { "c": { "baseRef": "b", "acl": acl } },
        "cluster": { "acl": acl },
        "images": {},
    });
    assert_eq!(error(&broken), "ValkeyConfig \"b\" not found");
    broken["configs"]["b"] = json!({});
    assert_eq!(
        error(&broken),
        "no image_ref in config chain ending at \"b\""
    );
    broken["configs"]["b"] = json!({ "imageRef": "v9" });
    assert_eq!(error(&broken), "ValkeyImage \"v9\" not found");
    broken["images"] = json!({ "v9": { "repository": "r", "tag": "t", "version": "9" } });
    assert_eq!(
        error(&broken),
        "duplicate username \"ann\" in merged ACL bindings"
    );
    broken["cluster"] = json!({});
    assert_eq!(
        error(&broken),
        "ValkeyRole \"nobody\" not found (referenced by user \"ann\")"
    );
    broken["roles"] = json!({ "nobody": {} });
    assert_eq!(resolved(&broken).image.value, "r:t");
}

#[test]
fn the_config_that_names_what_is_missing_is_blamed() {
    let user = json!([binding("ann", "reader")]);
    let overridden = json!({
        "c": { "baseRef": "b", "acl": [] }, "b": { "imageRef": "v9", "acl": user },
    });
    let mut inherited = overridden.clone();
    inherited["c"] = json!({ "baseRef": "b" });
    for (parts, config) in [
        (json!({}), None),
        (json!({ "configs": { "c": { "baseRef": "b" } } }), Some("c")),
        (
            json!({ "configs": { "c": { "baseRef": "b" }, "b": { "imageRef": "v8" } } }),
            Some("b"),
        ),
        (
            json!({ "configs": { "c": { "baseRef": "b" }, "b": {} } }),
            Some("b"),
        ),
        (json!({ "configs": chain(11) }), Some("c")),
        (json!({ "configs": inherited }), Some("b")),
        // Nobody has the users of a config that another one overrides: it is the cluster's own.
        (
            json!({ "configs": overridden, "cluster": { "acl": user } }),
            None,
        ),
    ] {
        let world = world(&parts);
        let error = desired(&world).menu.unwrap_err();
        assert_eq!(super::blamed(&world, &error), config, "{parts}");
    }
}

#[test]
fn ten_configs_are_not_too_many() {
    let resolved = resolved(&json!({ "configs": chain(10) }));
    assert_eq!(resolved.image.value, "valkey/valkey:9.1.2");
    assert_eq!(resolved.image.config.as_str(), "c9");
}

#[test]
fn the_first_config_that_sets_a_field_wins_each_field_on_its_own() {
    let resolved = resolved(&json!({ "configs": {
        "c": { "baseRef": "b", "resources": { "cpu": "2" } },
        "b": { "baseRef": "a", "imageRef": "v9", "resources": { "memory": "1Gi" },
               "scheduling": { "priorityClassName": "high" } },
        "a": { "imageRef": "v8", "resources": { "cpu": "1", "memory": "2Gi" },
               "scheduling": { "priorityClassName": "low", "tolerations": [{ "key": "db", "operator": "Exists" }] } },
    } }));
    assert_eq!(resolved.image.config.as_str(), "b");
    let cpu = resolved.cpu.unwrap();
    assert_eq!((cpu.value.0.as_str(), cpu.config.as_str()), ("2", "c"));
    let memory = resolved.memory.unwrap();
    assert_eq!(
        (memory.value.0.as_str(), memory.config.as_str()),
        ("1Gi", "b")
    );
    assert_eq!(resolved.priority_class.as_deref(), Some("high"));
    assert_eq!(resolved.tolerations[0].key.as_deref(), Some("db"));
}

#[test]
fn the_acl_of_the_first_config_that_sets_one_is_taken_whole() {
    let usernames = |parts: &Value| -> Vec<String> {
        resolved(parts)
            .users
            .into_iter()
            .map(|user| user.binding.username)
            .collect()
    };
    let mut parts = json!({
        "configs": {
            "c": { "baseRef": "b", "imageRef": "v9" },
            "b": { "baseRef": "a", "acl": [binding("zoe", "r"), binding("bob", "r")] },
            "a": { "acl": [binding("ann", "r")] },
        },
        "roles": { "r": {} },
        "cluster": { "acl": [binding("eve", "r")] },
    });
    assert_eq!(usernames(&parts), ["zoe", "bob", "eve"]);
    // An empty list counts as set.
    parts["configs"]["c"]["acl"] = json!([]);
    assert_eq!(usernames(&parts), ["eve"]);
}

#[test]
fn settings_are_merged_by_directive_whatever_the_spelling() {
    let settings = |configs: Value| -> Vec<String> {
        let all = resolved(&json!({ "configs": configs })).user_settings;
        all.iter()
            .map(|(name, set)| format!("{name}={} from {}", set.value, set.config))
            .collect()
    };
    assert_eq!(
        settings(json!({
            "c": { "baseRef": "b", "imageRef": "v9", "valkey": { "maxclients": "1", "slave-priority": "7" } },
            "b": { "valkey": { "MaxClients": "2", "replica-priority": "8", "timeout": "9", "save": "" } },
        })),
        [
            "maxclients=1 from c",
            "replica-priority=7 from c",
            "save= from b",
            "timeout=9 from b"
        ],
    );
    // Two spellings in one map: the last in byte order.
    assert_eq!(
        settings(json!({ "c": { "imageRef": "v9", "valkey": {
            "HZ": "1", "hz": "2", "Hz": "3",
            "slowlog-max-len": "4", "commandlog-slow-execution-max-len": "5",
            "x-Unknown": "6",
        } } })),
        [
            "commandlog-slow-execution-max-len=4 from c",
            "hz=2 from c",
            "x-unknown=6 from c"
        ],
    );
}

#[test]
fn tls_is_forced_where_the_cluster_has_it() {
    let of = |cluster: Value| {
        let wishes = json!({
            "port": "1", "TLS-Port": "2", "tls-auth-clients": "yes", "tls-ca-cert-file": "/mine",
        });
        let config = json!({ "imageRef": "v9", "valkey": wishes });
        let parts = json!({ "configs": { "c": config }, "cluster": cluster });
        resolved(&parts).node_settings
    };
    let with = of(json!({ "tls": { "secretRef": "s" } }));
    for (name, value) in [
        ("port", "0"),
        ("tls-port", "6379"),
        ("tls-cluster", "yes"),
        ("tls-replication", "yes"),
        ("tls-cert-file", "/etc/valkey/tls/tls.crt"),
        ("tls-key-file", "/etc/valkey/tls/tls.key"),
        ("tls-ca-cert-file", "/etc/valkey/tls/ca.crt"),
        ("tls-auth-clients", "no"),
        ("cluster-preferred-endpoint-type", "hostname"),
    ] {
        assert_eq!(with[name], value, "{name}");
    }
    let without = of(json!({}));
    assert_eq!(without["port"], "6379");
    assert_eq!(without["tls-port"], "2");
    assert!(!without.contains_key("tls-cluster"));
}

#[test]
fn no_spelling_escapes_the_forced_layer() {
    let forced = resolved(&json!({ "configs": { "c": { "imageRef": "v9" } } })).node_settings;
    let escape = json!({
        "Port": "1", "BIND": "127.0.0.1", "protected-MODE": "yes", "Dir": "/tmp", "aclFile": "/x",
        "Cluster-Enabled": "no", "CLUSTER-node-timeout": "1", "cluster-config-FILE": "x",
        "masteruser": "bob", "MasterUser": "bob", "PRIMARYUSER": "bob",
        "masterauth": "x", "primaryauth": "x", "MASTERAUTH": "x", "PrimaryAuth": "x",
        "cluster-slave-validity-factor": "0", "Cluster-Replica-Validity-Factor": "0",
        "cluster-allow-replica-migration": "yes", "cluster-databases": "16",
    });
    let resolved = resolved(&json!({ "configs": { "c": { "imageRef": "v9", "valkey": escape } } }));
    assert_eq!(resolved.node_settings, forced);
    // What was asked for is kept, for those who want to know.
    assert_eq!(resolved.user_settings["port"].value, "1");
}

#[test]
fn three_layers() {
    let settings = |config: Value| {
        let mut config = config;
        config["imageRef"] = json!("v9");
        resolved(&json!({ "configs": { "c": config } })).node_settings
    };
    let all: Vec<String> =
        settings(json!({ "resources": { "memory": "1Gi" }, "valkey": { "hz": "50" } }))
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
    expect_test::expect![[r"
        aclfile /etc/valkey/acl/users.acl
        bind 0.0.0.0
        cluster-allow-replica-migration no
        cluster-config-file /var/lib/valkey/nodes.conf
        cluster-databases 1
        cluster-enabled yes
        cluster-node-timeout 5000
        cluster-replica-validity-factor 10
        dir /var/lib/valkey
        hz 50
        maxmemory 805306368
        port 6379
        primaryuser _momento_repl
        protected-mode no
        repl-diskless-sync-delay 0
        save 
        shutdown-on-sigterm failover"]]
    .assert_eq(&all.join("\n"));

    for (memory, maxmemory) in [
        (json!("1Gi"), Some("805306368")),
        (json!("1000"), Some("750")),
        (json!(1000), Some("750")),
        (json!("1k"), Some("750")),
        (json!("1G"), Some("750000000")),
        (json!("1e9"), Some("750000000")),
        (json!("0.5Gi"), Some("402653184")),
        (json!("1000000m"), Some("750")),
        (json!("0"), None),
    ] {
        let set = settings(json!({ "resources": { "memory": memory } }));
        assert_eq!(
            set.get("maxmemory").map(String::as_str),
            maxmemory,
            "{memory}"
        );
    }
    assert_eq!(settings(json!({})).get("maxmemory"), None);
    let own = settings(json!({
        "resources": { "memory": "1Gi" },
        "valkey": { "MaxMemory": "100mb", "Save": "900 1", "shutdown-on-SIGTERM": "default", "repl-diskless-sync-delay": "5" },
    }));
    assert_eq!(own["maxmemory"], "100mb");
    assert_eq!(own["save"], "900 1");
    assert_eq!(own["shutdown-on-sigterm"], "default");
    assert_eq!(own["repl-diskless-sync-delay"], "5");
}

#[test]
fn every_name_has_one_spelling() {
    for (written, name) in [
        ("PORT", "port"),
        ("masterauth", "primaryauth"),
        ("MasterUser", "primaryuser"),
        ("slaveof", "replicaof"),
        ("slave-read-only", "replica-read-only"),
        ("repl-ping-slave-period", "repl-ping-replica-period"),
        ("min-slaves-to-write", "min-replicas-to-write"),
        ("Cluster-Slave-No-Failover", "cluster-replica-no-failover"),
        (
            "slowlog-log-slower-than",
            "commandlog-execution-slower-than",
        ),
        ("lua-time-limit", "busy-reply-threshold"),
        ("zset-max-ziplist-value", "zset-max-listpack-value"),
        ("bio_cpulist", "bio-cpulist"),
        ("slave-unheard-of", "slave-unheard-of"),
        ("search.Workers", "search.workers"),
    ] {
        assert_eq!(canonical(written), name);
        assert_eq!(canonical(&canonical(written)), name);
    }
}

#[test]
fn the_snapshot_rules_the_shape_while_creating() {
    let shape = |state: Value, target: Value| {
        let status = json!({ "state": state, "targetSpec": target });
        desired(&world(&json!({ "status": status }))).shape
    };
    let target = json!({ "configRef": "old", "shards": 5, "replicasPerShard": 0 });
    let live = Shape {
        shards: 3,
        replicas: 1,
    };
    assert_eq!(
        shape(json!("Creating"), target.clone()),
        Shape {
            shards: 5,
            replicas: 0
        }
    );
    assert_eq!(shape(json!("Creating"), Value::Null), live);
    assert_eq!(shape(json!("Active"), target.clone()), live);
    assert_eq!(shape(json!("Updating"), target.clone()), live);
    assert_eq!(shape(json!("Invalid"), target.clone()), live);
    // A status that was never written is Creating.
    assert_eq!(desired(&world(&json!({}))).shape, live);
    assert_eq!(
        desired(&world(&json!({ "status": { "targetSpec": target } }))).shape,
        Shape {
            shards: 5,
            replicas: 0
        }
    );
}

#[test]
fn the_placement_says_its_zone_spread() {
    let spread = |cluster: Value| {
        let parts = json!({ "configs": { "c": { "imageRef": "v9" } }, "cluster": cluster });
        resolved(&parts)
            .placement
            .map(|placement| placement.zone_spread)
    };
    assert_eq!(spread(json!({})), None);
    assert_eq!(
        spread(json!({ "placement": { "zones": ["a"] } })),
        Some(Some(ZoneSpread::Required))
    );
    assert_eq!(
        spread(json!({ "placement": { "zones": ["a"], "zoneSpread": "bestEffort" } })),
        Some(Some(ZoneSpread::BestEffort))
    );
}

#[test]
fn the_digest_tells_only_what_was_asked_for() {
    let digest = |config: Value| {
        let mut config = config;
        config["imageRef"] = json!("v9");
        resolved(&json!({ "configs": { "c": config } })).settings_digest()
    };
    let base = digest(json!({ "valkey": { "slave-priority": "1" } }));
    // Another spelling, our own defaults and forced settings change nothing.
    assert_eq!(
        base,
        digest(json!({ "valkey": { "Replica-Priority": "1" } }))
    );
    assert_eq!(
        base,
        digest(json!({ "valkey": { "slave-priority": "1" }, "resources": { "memory": "1Gi" } }))
    );
    assert_ne!(base, digest(json!({ "valkey": { "slave-priority": "2" } })));
    assert_ne!(base, digest(json!({})));
    // No two maps have one text.
    assert_ne!(
        digest(json!({ "valkey": { "a": "1\"\nb \"2" } })),
        digest(json!({ "valkey": { "a": "1", "b": "2" } }))
    );
}
