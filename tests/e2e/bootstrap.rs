//! From `kubectl apply` to a cluster that serves, in every shape, with the operator deployed as released.
//! Never takes the operator's word: what counts is what the API server, the processes and a client say.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;

use crate::plugin;
use crate::slow;
use crate::stage::say;
use crate::world::Formed;
use crate::world::Wanted;
use crate::world::World;

const KEYS: usize = 10_000;

/// The shapes of the first release, with names that `kubectl get` shows in this order.
const SHAPES: [Wanted<'static>; 6] = [
    shape("c1x0", 1, 0),
    shape("c1x1", 1, 1),
    shape("c2x0", 2, 0),
    shape("c3x1", 3, 1),
    shape("c3x2", 3, 2),
    shape("c6x1", 6, 1),
];

const fn shape(name: &'static str, shards: usize, replicas: usize) -> Wanted<'static> {
    Wanted {
        namespace: "shapes",
        name,
        shards,
        replicas,
    }
}

#[test]
fn clusters_of_every_shape_in_one_namespace_become_active_and_serve() {
    if !slow("clusters_of_every_shape_in_one_namespace_become_active_and_serve") {
        return;
    }
    let world = World::beside_others();
    world.namespace("shapes");
    let placement =
        json!({"placement": {"zones": ["a", "b", "c"]}, "podAnnotations": {"team": "x"}});
    let manifests: Vec<Value> = SHAPES
        .iter()
        .map(|shape| shape.manifest(&placement))
        .collect();
    world.apply_all(&manifests);
    let formed: Vec<Formed> = SHAPES
        .iter()
        .map(|shape| world.wait_until_formed(shape))
        .collect();
    for (wanted, formed) in SHAPES.iter().zip(&formed) {
        spread_over_hosts(wanted, formed);
        for pod in &formed.pods {
            pod_is_as_promised(wanted, pod);
        }
    }
    services_are_as_promised(&world);
    columns(&world, &formed);
    for wanted in &SHAPES[3..] {
        serves(&world, wanted);
    }
    let [_, single, _, usual, _, _] = &SHAPES;
    plugin::answers(&world, usual);
    plugin::says_what_is_missing(&world, usual);
    plugin::works_under_its_roles(&world, usual);
    plugin::is_completed_by_kubectl(&world, usual);
    plugin::follows_a_change(&world, single);
}

#[test]
fn clusters_of_one_name_never_mix() {
    if !slow("clusters_of_one_name_never_mix") {
        return;
    }
    let world = World::beside_others();
    let wanted = ["left", "right"].map(|namespace| {
        world.namespace(namespace);
        Wanted {
            namespace,
            name: "c",
            shards: 3,
            replicas: 1,
        }
    });
    world.apply_all(&wanted.map(|wanted| wanted.manifest(&json!({}))));
    let [left, right] = wanted.map(|wanted| world.wait_until_formed(&wanted));
    // Each table held exactly its own members' ids; so it is enough that no member is in both.
    assert!(left.ids().is_disjoint(&right.ids()), "{left:?} {right:?}");
    let written = replies(&world, "c.left.svc.cluster.local", "SET side left\n");
    assert_eq!(written, ["OK"]);
    let elsewhere = replies(&world, "c.right.svc.cluster.local", "GET side\n");
    assert_eq!(elsewhere, [""], "it is in the other cluster");
}

/// Ten thousand keys through a client that follows redirections, with the Service as its seed.
fn serves(world: &World, wanted: &Wanted<'_>) {
    let host = format!("{}.{}.svc.cluster.local", wanted.name, wanted.namespace);
    let lines = |line: fn(usize) -> String| (0..KEYS).map(line).collect::<String>();
    let writes = lines(|key| format!("SET key:{key} value:{key}\n"));
    let reads = lines(|key| format!("GET key:{key}\n"));
    let written = replies(world, &host, &writes);
    assert_eq!(
        written.iter().find(|reply| *reply != "OK"),
        None,
        "a write was refused"
    );
    assert_eq!(written.len(), KEYS);
    let read = replies(world, &host, &reads);
    let mut values = read.iter().enumerate();
    let wrong = values.find(|(key, value)| **value != format!("value:{key}"));
    assert_eq!(
        wrong, None,
        "a key of {wanted:?} reads otherwise than it was written"
    );
    assert_eq!(read.len(), KEYS);
    let held = world
        .wait_until_formed(wanted)
        .members
        .into_iter()
        .map(|member| {
            let size = world.ask(&member.ip, "DBSIZE\n").expect("answered");
            size.trim().parse::<usize>().expect("a number")
        });
    assert_eq!(
        held.sum::<usize>(),
        KEYS * (1 + wanted.replicas),
        "each copy holds every key"
    );
    say(&format!("{} served {KEYS} keys", wanted.name));
}

/// What a client that follows redirections is answered, without its notes on where it was sent.
fn replies(world: &World, host: &str, commands: &str) -> Vec<String> {
    let told = world
        .valkey_cli(&["-c", "-h", host], commands)
        .expect("answered");
    let replies = told
        .lines()
        .filter(|line| !line.starts_with("-> Redirected"));
    replies.map(str::to_owned).collect()
}

/// Three hosts: no two of a shard share one.
fn spread_over_hosts(wanted: &Wanted<'_>, formed: &Formed) {
    let mut hosts: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for pod in &formed.pods {
        let shard = pod["metadata"]["labels"]["valkey.gomomento.com/shard-index"].as_str();
        let host = pod["spec"]["nodeName"].as_str();
        let (shard, host) = (shard.expect("a shard"), host.expect("a host"));
        let new = hosts.entry(shard).or_default().insert(host);
        assert!(new, "two of shard {shard} of {wanted:?} are on {host}");
    }
    assert_eq!(hosts.len(), wanted.shards);
}

/// Section 3 of the contract, on what the API server holds after all its defaults.
fn pod_is_as_promised(wanted: &Wanted<'_>, pod: &Value) {
    let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
    let name = metadata["name"].as_str().expect("a name");
    let same = |what: &str, is: &Value, should: Value| assert_eq!(*is, should, "{what} of {name}");
    same("hostname", &spec["hostname"], json!(name));
    same("subdomain", &spec["subdomain"], json!(wanted.name));
    let suffix = name
        .strip_prefix(wanted.name)
        .and_then(|rest| rest.strip_prefix('-'));
    let hex =
        suffix.is_some_and(|hex| hex.len() == 5 && hex.bytes().all(|c| c.is_ascii_hexdigit()));
    assert!(
        hex,
        "{name} is not the cluster's name and five hex characters"
    );
    let labels = &metadata["labels"];
    same(
        "name label",
        &labels["app.kubernetes.io/name"],
        json!("valkey"),
    );
    same(
        "instance label",
        &labels["app.kubernetes.io/instance"],
        json!(wanted.name),
    );
    same("annotation", &metadata["annotations"]["team"], json!("x"));
    let owner = &metadata["ownerReferences"];
    same("owner", &owner[0]["kind"], json!("ValkeyNode"));
    same("owner's name", &owner[0]["name"], json!(name));
    same("controller", &owner[0]["controller"], json!(true));
    same("restart policy", &spec["restartPolicy"], json!("Never"));
    same("token", &spec["automountServiceAccountToken"], json!(false));
    same("service links", &spec["enableServiceLinks"], json!(false));
    let security = &spec["securityContext"];
    same("user", &security["runAsUser"], json!(999));
    same("group", &security["fsGroup"], json!(999));
    same("non-root", &security["runAsNonRoot"], json!(true));
    let grace = spec["terminationGracePeriodSeconds"].as_u64();
    assert!(
        grace.is_some_and(|seconds| seconds > 10),
        "{name} has no time to hand over: {grace:?}"
    );
    let arm = json!({"key": "kubernetes.io/arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"});
    assert!(
        spec["tolerations"]
            .as_array()
            .is_some_and(|all| all.contains(&arm)),
        "{name}"
    );
    same(
        "containers",
        &json!(spec["containers"].as_array().map(Vec::len)),
        json!(1),
    );
    container_is_as_promised(name, &spec["containers"][0]);
    volumes_are_as_promised(wanted, name, spec);
    let terms = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let zones = &terms["nodeSelectorTerms"][0]["matchExpressions"][0];
    same(
        "zones",
        zones,
        json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b", "c"]}),
    );
    spread_is_as_promised(wanted, name, pod);
}

/// By host and by zone, among the pods of this cluster's shard only.
fn spread_is_as_promised(wanted: &Wanted<'_>, name: &str, pod: &Value) {
    let constraints = pod["spec"]["topologySpreadConstraints"]
        .as_array()
        .expect("constraints");
    let keys: Vec<_> = constraints
        .iter()
        .map(|one| one["topologyKey"].as_str())
        .collect();
    assert_eq!(
        keys,
        [
            Some("kubernetes.io/hostname"),
            Some("topology.kubernetes.io/zone")
        ],
        "{name}"
    );
    let labels = pod["metadata"]["labels"].as_object().expect("labels");
    for constraint in constraints {
        assert_eq!(constraint["maxSkew"], 1, "{name}");
        assert_eq!(constraint["whenUnsatisfiable"], "ScheduleAnyway", "{name}");
        let selector = &constraint["labelSelector"]["matchLabels"];
        assert_eq!(selector["app.kubernetes.io/instance"], wanted.name);
        assert_eq!(
            selector["valkey.gomomento.com/shard-index"],
            labels["valkey.gomomento.com/shard-index"]
        );
        let mut others = selector.as_object().expect("labels").iter();
        assert!(
            others.all(|(key, value)| labels.get(key) == Some(value)),
            "{name} counts itself"
        );
    }
}

fn container_is_as_promised(name: &str, container: &Value) {
    let same = |what: &str, is: &Value, should: Value| assert_eq!(*is, should, "{what} of {name}");
    same("image", &container["image"], json!("valkey/valkey:9.1.2"));
    let amounts = json!({"cpu": "50m", "memory": "64Mi"});
    same(
        "resources",
        &container["resources"],
        json!({"limits": amounts, "requests": amounts}),
    );
    let probe = &container["livenessProbe"];
    same("period", &probe["periodSeconds"], json!(10));
    same("timeout", &probe["timeoutSeconds"], json!(5));
    same("failures", &probe["failureThreshold"], json!(6));
    let command = probe["exec"]["command"].to_string();
    assert!(
        command.contains("_momento_repl") && command.contains("ping"),
        "{command}"
    );
    same("readiness", &container["readinessProbe"], Value::Null);
    same(
        "escalation",
        &container["securityContext"]["allowPrivilegeEscalation"],
        json!(false),
    );
    same(
        "capabilities",
        &container["securityContext"]["capabilities"]["drop"],
        json!(["ALL"]),
    );
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    for path in ["/var/lib/valkey", "/etc/valkey/acl"] {
        let trimmed = |mount: &Value| {
            mount["mountPath"]
                .as_str()
                .map(|path| path.trim_end_matches('/').to_owned())
        };
        assert!(
            mounts
                .iter()
                .any(|mount| trimmed(mount).as_deref() == Some(path)),
            "{path}: {mounts:?}"
        );
    }
}

fn volumes_are_as_promised(wanted: &Wanted<'_>, name: &str, spec: &Value) {
    let volumes = spec["volumes"].as_array().expect("volumes");
    let of = |kind: &str| {
        volumes
            .iter()
            .filter(|volume| !volume[kind].is_null())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("emptyDir").len(), 1, "{name}");
    assert_eq!(of("persistentVolumeClaim").len(), 0, "{name}");
    let maps: BTreeSet<_> = of("configMap")
        .iter()
        .map(|volume| volume["configMap"]["name"].clone().to_string())
        .collect();
    let wanted_maps = [
        format!("\"{name}-config\""),
        format!("\"{}-acl\"", wanted.name),
    ];
    assert_eq!(maps, BTreeSet::from(wanted_maps));
    let secrets = of("secret");
    assert_eq!(secrets.len(), 1, "{name}");
    let secret = &secrets[0]["secret"];
    assert_eq!(
        secret["secretName"],
        format!("{}-operator-auth", wanted.name)
    );
    let keys = secret["items"].as_array().expect("items");
    assert_eq!(keys.len(), 1, "one key alone is mounted");
    assert_eq!(keys[0]["key"], "primaryauth.conf");
}

fn services_are_as_promised(world: &World) {
    for wanted in &SHAPES {
        let service = world
            .stage
            .get("Service", "shapes", wanted.name)
            .expect("read")
            .expect("a Service");
        let spec = &service["spec"];
        assert_eq!(spec["clusterIP"], "None");
        assert_eq!(spec["publishNotReadyAddresses"], true);
        let ports = spec["ports"].as_array().expect("ports").iter();
        let ports: Vec<_> = ports
            .map(|port| (port["name"].clone(), port["port"].clone()))
            .collect();
        assert_eq!(
            ports,
            [
                (json!("valkey"), json!(6379)),
                (json!("valkey-bus"), json!(16379))
            ]
        );
    }
}

/// `kubectl get` as a person sees it, without ages.
fn columns(world: &World, formed: &[Formed]) {
    let table = |words: &[&str]| {
        let text = world
            .stage
            .testbed
            .kubectl(["get"].iter().chain(words))
            .expect("kubectl get");
        let lines = text
            .lines()
            .map(|line| line.split_whitespace().map(str::to_owned).collect());
        lines.collect::<Vec<Vec<String>>>()
    };
    let in_shapes = "--namespace=shapes";
    let clusters = table(&["valkeyclusters", in_shapes]);
    assert_eq!(
        clusters[0][..5],
        ["NAME", "CONFIG", "SHARDS", "REPLICAS", "STATE"]
    );
    for (row, wanted) in clusters[1..].iter().zip(&SHAPES) {
        let (shards, replicas) = (wanted.shards.to_string(), wanted.replicas.to_string());
        assert_eq!(
            row[..5],
            [wanted.name, "standard", &shards, &replicas, "Active"]
        );
    }
    assert_eq!(clusters.len(), 1 + SHAPES.len());
    let nodes = table(&["valkeynodes", in_shapes]);
    assert_eq!(nodes[0][..4], ["NAME", "CLUSTER", "IMAGE", "LIFECYCLE"]);
    for row in &nodes[1..] {
        let (cluster, _) = row[0].rsplit_once('-').expect("a node's name");
        assert_eq!(row[1..4], [cluster, "valkey/valkey:9.1.2", "Active"]);
    }
    assert_eq!(
        nodes.len() - 1,
        formed.iter().map(|formed| formed.pods.len()).sum::<usize>()
    );
    let images = table(&["valkeyimages"]);
    assert_eq!(images[0][..4], ["NAME", "REPOSITORY", "TAG", "VERSION"]);
    assert_eq!(
        images[1][..4],
        ["valkey-9", "valkey/valkey", "9.1.2", "9.1.2"]
    );
    let child = json!({
        "apiVersion": "valkey.gomomento.com/v1alpha1",
        "kind": "ValkeyConfig",
        "metadata": {"name": "child"},
        "spec": {"imageRef": "valkey-9", "baseRef": "standard"},
    });
    world.stage.apply(&child.to_string());
    let configs = table(&["valkeyconfigs"]);
    assert_eq!(configs[0][..3], ["NAME", "IMAGEREF", "BASEREF"]);
    assert_eq!(configs[1][..3], ["child", "valkey-9", "standard"]);
    assert_eq!(configs[2][..2], ["standard", "valkey-9"]);
    assert_eq!(table(&["valkeyroles"])[0], ["NAME", "AGE"]);
}
