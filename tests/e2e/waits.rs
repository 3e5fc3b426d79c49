//! Clusters that cannot go on: each says exactly why, does nothing by halves, and goes on by itself once it can.
//! Never touches a waiting cluster: only the cause is taken away.

use std::time::Duration;
use std::time::Instant;

use serde_json::Value;
use serde_json::json;

use crate::slow;
use crate::stage::say;
use crate::world::Wanted;
use crate::world::World;
use crate::world::menu;

/// A chain of configs may be this deep.
const DEPTH_MAX: usize = 10;

/// How much slower a good cluster may become beside many that are stuck.
const SLOWER_MAX: f64 = 1.3;

/// The stuck clusters beside it.
const STUCK: usize = 30;

/// Bootstraps that are compared in pairs, so that one hiccup of the machine does not decide.
const PAIRS: usize = 3;

fn config(name: &str, spec: &Value) -> Value {
    menu("ValkeyConfig", name, spec)
}

/// A cluster that waits for the menu.
struct Waiting {
    name: &'static str,
    more: Value,
    /// What is there from the start.
    before: Vec<Value>,
    reason: String,
    /// What takes the cause away.
    remedy: Vec<Value>,
}

impl Waiting {
    fn new(name: &'static str, more: Value, reason: &str) -> Self {
        Self {
            name,
            more,
            before: Vec::new(),
            reason: reason.to_owned(),
            remedy: Vec::new(),
        }
    }

    fn before(mut self, object: Value) -> Self {
        self.before.push(object);
        self
    }

    fn remedy(mut self, object: Value) -> Self {
        self.remedy.push(object);
        self
    }
}

fn config_ref(name: &str) -> Value {
    json!({"configRef": name})
}

/// Something that is named is not there.
fn waits_for_what_is_missing() -> Vec<Waiting> {
    let image = json!({"imageRef": "valkey-9"});
    let published = json!({"repository": "valkey/valkey", "tag": "9.1.2", "version": "9.1.2"});
    let orphan = json!({"imageRef": "valkey-9", "baseRef": "parent"});
    vec![
        Waiting::new(
            "no-config",
            config_ref("later"),
            r#"ValkeyConfig "later" not found"#,
        )
        .remedy(config("later", &image)),
        Waiting::new(
            "no-base",
            config_ref("orphan"),
            r#"ValkeyConfig "parent" not found"#,
        )
        .before(config("orphan", &orphan))
        .remedy(config("parent", &json!({}))),
        Waiting::new(
            "no-image",
            config_ref("unimaged"),
            r#"ValkeyImage "unpublished" not found"#,
        )
        .before(config("unimaged", &json!({"imageRef": "unpublished"})))
        .remedy(menu("ValkeyImage", "unpublished", &published)),
        Waiting::new(
            "no-image-ref",
            config_ref("bare"),
            r#"no image_ref in config chain ending at "root""#,
        )
        .before(config("bare", &json!({"baseRef": "root"})))
        .before(config("root", &json!({})))
        .remedy(config("root", &image)),
    ]
}

/// The first config that is one too many, and a circle.
fn waits_for_a_shorter_chain() -> Vec<Waiting> {
    let too_deep = "config inheritance depth exceeds 10 (cycle?)";
    let image = json!({"imageRef": "valkey-9"});
    let name = |index: usize| format!("deep-{index}");
    let last = config(&name(DEPTH_MAX + 1), &image);
    let links =
        (1..=DEPTH_MAX).map(|index| config(&name(index), &json!({"baseRef": name(index + 1)})));
    let deep = Waiting::new("too-deep", config_ref(&name(1)), too_deep)
        .before(last)
        .remedy(config(&name(DEPTH_MAX), &image));
    let snake = json!({"imageRef": "valkey-9", "baseRef": "tail"});
    vec![
        links.fold(deep, Waiting::before),
        Waiting::new("cycle", config_ref("snake"), too_deep)
            .before(config("snake", &snake))
            .before(config("tail", &json!({"baseRef": "snake"})))
            .remedy(config("tail", &image)),
    ]
}

fn binding(role: &str) -> Value {
    let permission = json!({"roleRef": role, "keys": [{"pattern": "*"}]});
    let hash = "0".repeat(64);
    json!([{"username": "app", "passwordHashes": [hash], "permissions": [permission]}])
}

/// Bindings that cannot be written down.
fn waits_for_bindings() -> Vec<Waiting> {
    let bound = binding("app-readwrite");
    let twice = json!({"configRef": "bound", "acl": bound});
    let role = json!({"categories": [{"name": "read", "access": "allow"}]});
    vec![
        Waiting::new(
            "no-role",
            json!({"acl": binding("unwritten")}),
            r#"ValkeyRole "unwritten" not found (referenced by user "app")"#,
        )
        .remedy(menu("ValkeyRole", "unwritten", &role)),
        Waiting::new(
            "bound-twice",
            twice,
            r#"duplicate username "app" in merged ACL bindings"#,
        )
        .before(config(
            "bound",
            &json!({"imageRef": "valkey-9", "acl": bound}),
        ))
        .remedy(config("bound", &json!({"imageRef": "valkey-9", "acl": []}))),
    ]
}

#[test]
fn a_menu_that_does_not_resolve_holds_the_cluster_until_it_does() {
    if !slow("a_menu_that_does_not_resolve_holds_the_cluster_until_it_does") {
        return;
    }
    let world = World::beside_others();
    world.namespace("menu");
    let waits = [
        waits_for_what_is_missing(),
        waits_for_a_shorter_chain(),
        waits_for_bindings(),
    ];
    let waits = waits.into_iter().flatten().collect::<Vec<_>>();
    let wanted: Vec<Wanted<'_>> = waits
        .iter()
        .map(|waiting| Wanted {
            namespace: "menu",
            name: waiting.name,
            shards: 1,
            replicas: 0,
        })
        .collect();
    let before: Vec<Value> = waits
        .iter()
        .flat_map(|waiting| waiting.before.clone())
        .collect();
    world.apply_all(&before);
    let clusters = waits.iter().zip(&wanted);
    world.apply_all(
        &clusters
            .map(|(waiting, wanted)| wanted.manifest(&waiting.more))
            .collect::<Vec<_>>(),
    );
    for waiting in &waits {
        world.wait_for_reason("menu", waiting.name, &waiting.reason);
        nothing_is_begun(&world, waiting.name);
    }
    for waiting in &waits {
        // The others change nothing for one that waits.
        nothing_is_begun(&world, waiting.name);
        // As the person who mends it would; a field that is gone from the manifest is gone from the object.
        world.apply_all(&waiting.remedy);
    }
    for wanted in &wanted {
        // A binding turns the anonymous user off, whom the truth is asked as.
        if wanted.name == "no-role" || wanted.name == "bound-twice" {
            world.wait_for_state(wanted.namespace, wanted.name, "Active");
        } else {
            world.wait_until_formed(wanted);
        }
    }
}

/// No node, no pod, no half of an ACL, no snapshot.
fn nothing_is_begun(world: &World, name: &str) {
    assert_eq!(
        world.nodes("menu", name).expect("listed").len(),
        0,
        "{name}"
    );
    assert_eq!(world.pods("menu", name).expect("listed").len(), 0, "{name}");
    let acl = world
        .stage
        .get("ConfigMap", "menu", &format!("{name}-acl"))
        .expect("read");
    assert_eq!(acl, None, "{name}");
    let status = world.cluster("menu", name).expect("a cluster")["status"].clone();
    assert!(status["targetSpec"].is_null(), "{name}: {status}");
}

#[test]
fn a_pod_without_a_place_or_an_image_holds_the_cluster_until_it_runs() {
    if !slow("a_pod_without_a_place_or_an_image_holds_the_cluster_until_it_runs") {
        return;
    }
    let world = World::beside_others();
    world.namespace("pods");
    let wanted = |name, replicas| Wanted {
        namespace: "pods",
        name,
        shards: 1,
        replicas,
    };
    let testbed = &world.stage.testbed;
    let kubectl = |words: &[&str]| world.stage.kubectl(words);
    // Zone b is there and full, zone d is not there.
    kubectl(&["cordon", "node-2"]);
    let zones = |zones: &[&str]| json!({"placement": {"zones": zones, "zoneSpread": "required"}});
    let (full, zoned) = (wanted("full", 1), wanted("zoned", 1));
    let (selected, unpulled) = (wanted("selected", 1), wanted("unpulled", 0));
    let selector = json!({"placement": {"nodeSelector": {"disk": "fast"}}});
    let tag = json!({"repository": "valkey/valkey", "tag": "9.1.99", "version": "9.1.99"});
    let config = config(
        "new",
        &json!({"imageRef": "new", "resources": {"cpu": "50m", "memory": "64Mi"}}),
    );
    world.apply_all(&[
        menu("ValkeyImage", "new", &tag),
        config,
        full.manifest(&zones(&["a", "b"])),
        zoned.manifest(&zones(&["d"])),
        selected.manifest(&selector),
        unpulled.manifest(&json!({"configRef": "new"})),
    ]);
    for name in [full.name, zoned.name, selected.name] {
        scheduler_is_quoted(&world, name);
    }
    let pulling =
        |_: &str, because: &str| because.contains("cannot start") && because.contains("Image");
    world.wait_until_said(
        "the kubelet's words on the image",
        "pods",
        "unpulled",
        pulling,
    );
    kubectl(&["label", "node", "node-1", "disk=fast"]);
    world.wait_until_formed(&selected);
    kubectl(&[
        "label",
        "node",
        "node-3",
        "--overwrite",
        "topology.kubernetes.io/zone=d",
    ]);
    world.wait_until_formed(&zoned);
    kubectl(&["uncordon", "node-2"]);
    world.wait_until_formed(&full);
    let from = "docker.io/valkey/valkey:9.1.2";
    testbed
        .tag_image(from, "docker.io/valkey/valkey:9.1.99")
        .expect("the image is there");
    world.wait_until_formed(&unpulled);
}

/// The message that people search for, with the pod and the very words of its condition.
fn scheduler_is_quoted(world: &World, name: &str) {
    world.until(
        &format!("the scheduler is quoted for {name}"),
        "pods",
        || {
            let log = world.log()?;
            let blocked = log.iter().find(|line| {
                let fields = &line["fields"];
                fields["message"] == "bootstrap blocked: pod cannot be scheduled"
                    && fields["cluster_name"] == name
            });
            let fields = &blocked.ok_or("nothing is said")?["fields"];
            let pods = world.pods("pods", name)?;
            let pod = pods
                .iter()
                .find(|pod| pod["metadata"]["name"] == fields["pod"]);
            let pod = pod.ok_or_else(|| format!("{fields} names no pod of {name}"))?;
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            let words: Vec<&str> = conditions
                .filter(|condition| condition["reason"] == "Unschedulable")
                .filter_map(|condition| condition["message"].as_str())
                .collect();
            let because = fields["because"].as_str().unwrap_or_default();
            let quoted = words
                .iter()
                .any(|words| because.ends_with(words) && !words.is_empty());
            if quoted {
                Ok(())
            } else {
                Err(format!("{fields} does not quote {words:?}"))
            }
        },
    );
    let status = world.cluster("pods", name).expect("a cluster")["status"].clone();
    assert_eq!(status["state"], "Creating", "bootstrap holds");
}

#[test]
fn thirty_stuck_clusters_do_not_slow_a_good_one() {
    if !slow("thirty_stuck_clusters_do_not_slow_a_good_one") {
        return;
    }
    let world = World::up();
    world.namespace("good");
    world.namespace("stuck");
    // The first pays for what is cold.
    bootstrap(&world, "warm");
    let alone = fastest(&world, "alone");
    let nowhere = json!({"repository": "valkey/valkey", "tag": "none", "version": "none"});
    let unpullable = [
        menu("ValkeyImage", "unpullable", &nowhere),
        config("unpullable", &json!({"imageRef": "unpullable"})),
    ];
    world.apply_all(
        &unpullable
            .into_iter()
            .chain((0..STUCK).map(stuck))
            .collect::<Vec<_>>(),
    );
    world.until("all of them are stuck", "stuck", || {
        let log = world.log()?;
        let speaking = |name: &str| {
            log.iter().any(|line| {
                let fields = &line["fields"];
                let message = &fields["message"];
                let held =
                    message == "waiting" || message == "bootstrap blocked: pod cannot be scheduled";
                fields["cluster_name"] == name && held
            })
        };
        let silent = (0..STUCK).map(stuck_name).find(|name| !speaking(name));
        silent.map_or(Ok(()), |name| Err(format!("{name} says nothing")))
    });
    let beside = fastest(&world, "beside");
    let ratio = beside.as_secs_f64() / alone.as_secs_f64();
    say(&format!(
        "a bootstrap beside {STUCK} stuck clusters takes {ratio:.2} times as long"
    ));
    assert!(
        ratio <= SLOWER_MAX,
        "{beside:?} beside them, {alone:?} without"
    );
}

/// The best of a few: what slows a single one is the machine, what slows all of them is the operator.
fn fastest(world: &World, name: &str) -> Duration {
    let times = (0..PAIRS).map(|index| bootstrap(world, &format!("{name}-{index}")));
    times.min().expect("some")
}

/// From apply to Active; the cluster is gone afterwards.
fn bootstrap(world: &World, name: &str) -> Duration {
    let wanted = Wanted {
        namespace: "good",
        name,
        shards: 3,
        replicas: 1,
    };
    let start = Instant::now();
    world.apply_all(&[wanted.manifest(&json!({}))]);
    world.wait_for_state("good", name, "Active");
    let took = start.elapsed();
    world.stage.delete("ValkeyCluster", "good", name);
    world.stage.wait_until_gone("ValkeyCluster", "good", name);
    world.until("its pods are gone", "good", || {
        let pods = world.pods("good", name)?;
        if pods.is_empty() {
            Ok(())
        } else {
            Err(format!("{} pods", pods.len()))
        }
    });
    took
}

fn stuck_name(index: usize) -> String {
    format!("stuck-{index}")
}

/// A quarter each waits for a config, for a place, for a role and for an image that no registry has.
fn stuck(index: usize) -> Value {
    let more = match index % 4 {
        0 => config_ref("nowhere"),
        1 => json!({"placement": {"nodeSelector": {"no-node": "has-this"}}}),
        2 => json!({"acl": binding("nobody")}),
        _ => config_ref("unpullable"),
    };
    let name = stuck_name(index);
    let wanted = Wanted {
        namespace: "stuck",
        name: &name,
        shards: 3,
        replicas: 1,
    };
    wanted.manifest(&more)
}
