//! Whether a run has come to where it should, and what it came to.
//! Never judges how.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::Value;

use crate::checker::evidence::{Life, Name, Object, Role, Snapshot};
use crate::hands::found;
use crate::kube::kinds::Kind;
use crate::plan::Kept;
use crate::wish::{CERTIFICATE, CLUSTER, NAMESPACE, Wish};
use crate::world::World;

/// Whether there is a namespace to make things in.
pub(crate) fn namespace_stands(world: &World) -> bool {
    let namespace = world.kube.get(Kind::Namespace, "", NAMESPACE);
    namespace.is_some_and(|namespace| namespace["metadata"]["deletionTimestamp"].is_null())
}

/// Whether the cluster is being deleted, by itself or with its namespace.
pub(crate) fn is_going(world: &World) -> bool {
    let namespace = world.kube.get(Kind::Namespace, "", NAMESPACE);
    if namespace.is_some() && !namespace_stands(world) {
        return true;
    }
    let cluster = world.kube.get(Kind::ValkeyCluster, NAMESPACE, CLUSTER);
    cluster.is_some_and(|cluster| !cluster["metadata"]["deletionTimestamp"].is_null())
}

/// Whether the cluster is being deleted, or is not there at all.
pub(crate) fn is_given_up(world: &World) -> bool {
    is_going(world)
        || world
            .kube
            .get(Kind::ValkeyCluster, NAMESPACE, CLUSTER)
            .is_none()
}

/// Whether the wish has come true; if not, what is missing.
pub(crate) fn reached(world: &World, truth: &Snapshot, wish: &Wish) -> Result<(), String> {
    let clusters = truth
        .objects
        .iter()
        .filter(|object| object.kind == "ValkeyCluster");
    for neighbour in clusters.filter(|cluster| cluster.name.namespace != NAMESPACE) {
        if neighbour.body["status"]["state"] != "Active" {
            return Err(format!("{} is not Active", neighbour.name));
        }
        whole(truth, &neighbour.name)?;
    }
    if !wish.exists {
        // Who asked for a cluster keeps his own Secret.
        let own = |name: &Name| name.namespace == NAMESPACE && name.name != CERTIFICATE;
        let left = truth.objects.iter().filter(|object| own(&object.name));
        let mut left = left.map(|object| format!("{} {}", object.kind, object.name));
        return left
            .next()
            .map_or(Ok(()), |left| Err(format!("{left} is still there")));
    }
    let cluster = world
        .kube
        .get(Kind::ValkeyCluster, NAMESPACE, CLUSTER)
        .ok_or("there is no cluster")?;
    if cluster["status"]["state"] != "Active" {
        let waits: &Value = &cluster["status"];
        return Err(format!("the cluster is not Active: {waits}"));
    }
    // That one was taken is made up for with the next list, if its event was lost.
    let kept = [Kept::Service, Kept::AclConfigMap];
    if let Some(missing) = kept.into_iter().find(|it| found(world, *it).is_none()) {
        return Err(format!("{missing:?} is not there"));
    }
    let nodes = whole(truth, &Name::new(NAMESPACE, CLUSTER))?;
    if nodes != wish.shape.nodes() {
        return Err(format!("{nodes} nodes of {}", wish.shape.nodes()));
    }
    Ok(())
}

/// Whether each node of a cluster is a full member and has a process that serves; how many they are.
fn whole(truth: &Snapshot, home: &Name) -> Result<u32, String> {
    let alive = truth
        .processes
        .iter()
        .filter(|process| process.home == *home && process.life == Life::Alive);
    let mut count = 0;
    for process in alive {
        count += 1;
        if !process.state_ok {
            return Err(format!("{} does not say cluster_state:ok", process.ip));
        }
        if let Role::Replica { linked: false, .. } = process.role {
            return Err(format!("replica {} has no link", process.ip));
        }
    }
    let is_own = |node: &&Arc<Object>| {
        let of = &node.body["spec"]["clusterName"];
        node.kind == "ValkeyNode" && node.name.namespace == home.namespace && *of == *home.name
    };
    let nodes: Vec<_> = truth.objects.iter().filter(is_own).collect();
    if let Some(node) = nodes
        .iter()
        .find(|node| node.body["spec"]["lifecycle"] != "Active")
    {
        return Err(format!("{} is not Active", node.name));
    }
    let nodes = u32::try_from(nodes.len()).map_err(|error| error.to_string())?;
    if nodes != count {
        return Err(format!("{home} has {count} processes for {nodes} nodes"));
    }
    Ok(nodes)
}

/// What it all came to, in words that two runs share whose names differ.
pub(crate) fn state(truth: &Snapshot) -> String {
    let mut text = String::new();
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for object in &truth.objects {
        let detail = match object.kind.as_str() {
            "ValkeyCluster" => format!(" {}", object.body["status"]),
            // By shard, below: which index a shard has hangs on what it went through.
            "ValkeyNode" => continue,
            "Pod" => format!(" {}", object.body["status"]["phase"]),
            _ => String::new(),
        };
        *counts
            .entry(format!("{}{detail}", object.kind))
            .or_default() += 1;
    }
    let nodes = truth
        .objects
        .iter()
        .filter(|object| object.kind == "ValkeyNode");
    let mut shards: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for node in nodes {
        let spec = &node.body["spec"];
        let shard = shards.entry(spec["shardIndex"].to_string()).or_default();
        shard.push(spec["lifecycle"].to_string());
    }
    for mut lifecycles in shards.into_values() {
        lifecycles.sort();
        *counts
            .entry(format!("shard of {}", lifecycles.join(" ")))
            .or_default() += 1;
    }
    for (what, count) in counts {
        writeln!(text, "{count} {what}").expect("memory takes it");
    }
    let mut roles: BTreeMap<String, u32> = BTreeMap::new();
    for process in &truth.processes {
        if process.life != Life::Ended {
            let role = match &process.role {
                Role::Primary => format!("primary of {} slots", process.accepts.len()),
                Role::Replica { linked, .. } => format!("replica, linked: {linked}"),
            };
            *roles.entry(role).or_default() += 1;
        }
    }
    for (role, count) in roles {
        writeln!(text, "{count} {role}").expect("memory takes it");
    }
    text
}
