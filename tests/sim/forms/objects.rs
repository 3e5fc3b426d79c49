//! Rendered objects: names and labels that Kubernetes takes, owners, no password, nothing that points
//! nowhere. Never a golden file: those are beside the renderers.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use operator::api::node::JoinType;
use operator::model::desired::PodPolicy;
use operator::model::desired::Resolved;
use operator::model::name::NodeName;
use operator::model::name::ShardIndex;
use operator::model::name::Uid;
use operator::model::redacted::Redacted;
use operator::model::world::Auth;
use operator::model::world::ClusterFacts;
use operator::model::world::Keeping;
use operator::model::world::NodeFacts;
use operator::model::world::PodSighting;
use operator::model::world::Sighting;
use operator::render::auth_secret;
use operator::render::pod;
use operator::render::service;
use operator::render::users_acl;
use operator::render::valkey_conf;
use operator::render::valkey_node;
use operator::resolve;
use serde_json::Value;
use serde_json::json;

use super::chains;
use super::dice::Dice;
use super::dice::alphabet;
use super::hold;
use super::same;

pub(super) fn form(dice: &mut Dice) -> Result<(), String> {
    let (cluster, resolved) = menu(dice);
    let secret = |dice: &mut Dice| Redacted::new(format!("secret{:x}", dice.next()));
    let auth = Auth {
        operator: secret(dice),
        repl: secret(dice),
        finalizer: true,
    };
    let name = cluster
        .key
        .node_name(&format!("{:05x}", dice.below(0x10_0000)));
    let shard = ShardIndex(dice.small() % 16384);
    let join = *dice.of(&[None, Some(JoinType::Replica), Some(JoinType::Shard)]);
    let made = valkey_node::valkey_node(&cluster, &resolved, shard, &name, join);
    let node = NodeFacts {
        name: name.clone(),
        uid: Uid::new("uid-of-node"),
        spec: made.spec.clone(),
        deleting: false,
        finalizer: true,
        foreign_finalizer: None,
        stamp: None,
        join,
        settings_digest: None,
        config_map: Keeping::Absent,
        pod: PodSighting::Absent,
        sighting: Sighting::NotAsked,
    };
    let policy = PodPolicy {
        fixed_user: dice.once_in(2),
    };
    let text = users_acl::text(&resolved.users, &auth);
    let pod = json!(pod::pod(&cluster, &node, &resolved, policy));
    let (by_cluster, by_node) = ("uid-of-cluster", "uid-of-node");
    for (object, owner) in [
        (json!(service::service(&cluster)), by_cluster),
        (json!(users_acl::config_map(&cluster, text)), by_cluster),
        (json!(made), by_cluster),
        (json!(valkey_conf::config_map(&cluster, &node)), by_node),
        (pod.clone(), by_node),
    ] {
        ours(&object, &cluster, owner)?;
        for password in [&auth.operator, &auth.repl] {
            hold(!object.to_string().contains(password.expose()), || {
                format!("a password in {object}")
            })?;
        }
    }
    ours(
        &json!(auth_secret::secret(&cluster, &auth)),
        &cluster,
        by_cluster,
    )?;
    network(&json!(service::service(&cluster)), &pod)?;
    whole(&pod, &cluster, &name)?;
    resources(&pod, &json!(made))
}

/// Names, labels and the owner.
fn ours(object: &Value, cluster: &ClusterFacts, owner: &str) -> Result<(), String> {
    let metadata = &object["metadata"];
    let told = || format!("{} {}", object["kind"], metadata["name"]);
    let name = metadata["name"].as_str().unwrap_or_default();
    hold(
        is_dns_label(name) || object["kind"] == "ConfigMap" || object["kind"] == "Secret",
        || format!("{} has no name for a host", told()),
    )?;
    hold(is_dns_subdomain(name), || {
        format!("{} has no valid name", told())
    })?;
    same(
        "the namespace",
        &metadata["namespace"],
        &json!(cluster.key.namespace),
    )?;
    let labels = metadata["labels"].as_object().cloned().unwrap_or_default();
    for (key, value) in &labels {
        let value = value.as_str().unwrap_or("?");
        let name = key.rsplit('/').next().unwrap_or_default();
        hold(
            is_label(name) && (value.is_empty() || is_label(value)),
            || format!("{} has label {key}={value}", told()),
        )?;
    }
    same(
        "instance",
        &labels["app.kubernetes.io/instance"],
        &json!(cluster.key.name),
    )?;
    same(
        "manager",
        &labels["app.kubernetes.io/managed-by"],
        &json!("valkey-operator"),
    )?;
    let owners = &metadata["ownerReferences"];
    same("the owner", &owners[0]["uid"], &json!(owner))?;
    same(
        "who controls",
        &(
            owners[0]["controller"].clone(),
            owners.as_array().map(Vec::len),
        ),
        &(json!(true), Some(1)),
    )
}

fn is_label(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.len() <= 63
        && ends(text.chars().next())
        && ends(text.chars().last())
        && text.chars().all(inner)
}

fn is_dns_label(text: &str) -> bool {
    is_label(text) && is_dns_subdomain(text) && !text.contains('.')
}

/// Kubernetes limits the whole of such a name, not its parts.
fn is_dns_subdomain(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let part =
        |part: &str| !part.is_empty() && part.chars().all(inner) && part.trim_matches('-') == part;
    text.len() <= 253 && text.split('.').all(part)
}

/// The Service selects the pod, and names it.
fn network(service: &Value, pod: &Value) -> Result<(), String> {
    let labels = pod["metadata"]["labels"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    for (key, value) in service["spec"]["selector"]
        .as_object()
        .into_iter()
        .flatten()
    {
        same(key, &labels.get(key), &Some(value))?;
    }
    same(
        "the subdomain",
        &pod["spec"]["subdomain"],
        &service["metadata"]["name"],
    )?;
    same(
        "the host name",
        &pod["spec"]["hostname"],
        &pod["metadata"]["name"],
    )
}

/// What the pod points at is there, and nothing of another cluster is spread against.
fn whole(pod: &Value, cluster: &ClusterFacts, name: &NodeName) -> Result<(), String> {
    let spec = &pod["spec"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let volumes: BTreeSet<String> = list(&spec["volumes"])
        .iter()
        .map(|one| one["name"].to_string())
        .collect();
    let mounts = list(&spec["containers"][0]["volumeMounts"]);
    let mounted: BTreeSet<String> = mounts.iter().map(|one| one["name"].to_string()).collect();
    same("what is mounted", &mounted, &volumes)?;
    hold(
        mounts.iter().all(|mount| mount.get("subPath").is_none()),
        || "a subPath".to_owned(),
    )?;
    same("containers", &list(&spec["containers"]).len(), &1)?;
    same("restarts", &spec["restartPolicy"], &json!("Never"))?;
    let text = pod.to_string();
    for part in [
        format!("{name}-config"),
        format!("{}-acl", cluster.key.name),
        format!("{}-operator-auth", cluster.key.name),
    ] {
        hold(text.contains(&format!("\"{part}\"")), || {
            format!("{part} is not mounted")
        })?;
    }
    for constraint in list(&spec["topologySpreadConstraints"]) {
        let labels = &constraint["labelSelector"]["matchLabels"];
        same(
            "the spread",
            &labels["app.kubernetes.io/instance"],
            &json!(cluster.key.name),
        )?;
    }
    let wish = json!(cluster.spec.pod_annotations);
    let found = pod["metadata"]
        .get("annotations")
        .cloned()
        .unwrap_or_else(|| json!({}));
    same("annotations", &found, &wish)?;
    let grace = spec["terminationGracePeriodSeconds"]
        .as_i64()
        .unwrap_or_default();
    hold((30..=86_420).contains(&grace), || {
        format!("{grace} s of grace")
    })
}

/// Each resource is both request and limit, as the node says it.
fn resources(pod: &Value, node: &Value) -> Result<(), String> {
    let found = pod
        .pointer("/spec/containers/0/resources")
        .cloned()
        .unwrap_or_default();
    same("limits", &found["limits"], &found["requests"])?;
    for name in ["cpu", "memory"] {
        same(name, &found["limits"][name], &node["spec"][name])?;
    }
    same(
        "the image",
        &pod["spec"]["containers"][0]["image"],
        &node["spec"]["image"],
    )
}

/// A cluster with the longest and oddest names that the schema takes, and what its menu resolves to.
fn menu(dice: &mut Dice) -> (ClusterFacts, Resolved) {
    let mut config = json!({ "imageRef": "i", "valkey": {} });
    if dice.once_in(2) {
        config["resources"] = json!({ "cpu": "250m", "memory": dice.of(&["64Mi", "1Gi", "1"]) });
    }
    if dice.once_in(2) {
        let seconds = alphabet("0123456789 -x");
        config["valkey"]["shutdown-timeout"] = json!(dice.text(&seconds, 0, 22));
    }
    let mut world = chains::world(&json!({ "c": config }), "c");
    let cluster = &mut world.cluster;
    cluster.key.name = cluster_name(dice);
    cluster.key.namespace = dice.of(&["a", "default", "x-1"]).to_string();
    cluster.uid = Uid::new("uid-of-cluster");
    let mut annotations: BTreeMap<String, String> = BTreeMap::new();
    for key in ["example.com/a", "b", "prometheus.io/scrape"] {
        if dice.once_in(2) {
            annotations.insert(key.to_owned(), dice.text(&alphabet("a\"\n{}ä "), 0, 9));
        }
    }
    cluster.spec.pod_annotations = annotations;
    if dice.once_in(2) {
        let zones = dice.some(&["a", "b", "c"], 2);
        let placement =
            json!({ "zones": zones, "zoneSpread": dice.of(&["bestEffort", "required"]) });
        cluster.spec.placement = serde_json::from_value(placement).expect("a placement");
    }
    let resolved = resolve::desired(&world).menu.expect("the menu resolves");
    (world.cluster, resolved)
}

fn cluster_name(dice: &mut Dice) -> String {
    let first = alphabet("abcxyz");
    let inner = alphabet("abcxyz0189--");
    let last = alphabet("abcxyz0189");
    let length = *dice.of(&[1, 2, 3, 20, 56, 57]);
    let mut name = dice.text(&first, 1, 1);
    if length > 1 {
        name += &dice.text(&inner, length - 2, length - 2);
        name += &dice.text(&last, 1, 1);
    }
    name
}
