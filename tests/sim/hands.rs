//! What others do with their own hands: objects in the place of ours, commands to our processes.
//! Never what the operator could have asked for.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use crate::acts::{named, picked};
use crate::end;
use crate::kube::kinds::Kind;
use crate::plan::{Kept, Meddling, Millis};
use crate::valkey::{Launch, Life, ProcessId, ProcessTruth};
use crate::wish::{CLUSTER, IMAGES, NAMESPACE};
use crate::world::World;

/// A label of objects that are nobody's but their maker's.
const FOREIGN: &str = "team.example/own";
/// Where a process of nobody's cluster is.
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 1));

/// What was put in the place of what.
#[derive(Debug)]
pub(crate) struct Squatted {
    kind: Kind,
    name: String,
    before: Option<Value>,
}

/// Which object is meant, if there is one.
pub(crate) fn found(world: &World, kept: Kept) -> Option<(Kind, String)> {
    let (kind, pick) = kind_of(kept);
    let acl = format!("{CLUSTER}-acl");
    let mut names: Vec<String> = named(world, kind)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    match kept {
        Kept::AclConfigMap => names.retain(|name| *name == acl),
        Kept::NodeConfigMap(_) => names.retain(|name| *name != acl),
        Kept::Service | Kept::Auth | Kept::Node(_) | Kept::Pod(_) => {}
    }
    picked(&names, pick).map(|name| (kind, name.clone()))
}

fn kind_of(kept: Kept) -> (Kind, u8) {
    match kept {
        Kept::Service => (Kind::Service, 0),
        Kept::Auth => (Kind::Secret, 0),
        Kept::AclConfigMap => (Kind::ConfigMap, 0),
        Kept::NodeConfigMap(pick) => (Kind::ConfigMap, pick),
        Kept::Node(pick) => (Kind::ValkeyNode, pick),
        Kept::Pod(pick) => (Kind::Pod, pick),
    }
}

/// Takes an object away, whatever holds it, and puts another of its name there. Nothing where the namespace is
/// going, and for a node, which nobody else makes.
pub(crate) fn squat(world: &mut World, now: Millis, kept: Kept) -> Option<Squatted> {
    if !end::namespace_stands(world) {
        return None;
    }
    let usual = match kept {
        Kept::Service => Some((Kind::Service, CLUSTER.to_owned())),
        Kept::Auth => Some((Kind::Secret, format!("{CLUSTER}-operator-auth"))),
        Kept::AclConfigMap => Some((Kind::ConfigMap, format!("{CLUSTER}-acl"))),
        Kept::Node(_) => return None,
        Kept::NodeConfigMap(_) | Kept::Pod(_) => None,
    };
    let (kind, name) = found(world, kept).or(usual)?;
    let before = world.kube.get(kind, NAMESPACE, &name).cloned();
    if before.as_ref().is_some_and(is_foreign) {
        return None;
    }
    let mut hand = world.kube.hand(now);
    if before.is_some() {
        let free = json!({"metadata": {"finalizers": null}});
        let freed = hand.patch(kind, NAMESPACE, &name, free);
        // It may have been held by that alone.
        freed.expect("it is there");
        hand.force_delete(kind, NAMESPACE, &name).ok();
    }
    let mut body = json!({
        "apiVersion": "v1",
        "kind": kind.facts().name,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {FOREIGN: "yes"}},
    });
    if kind == Kind::Pod {
        // It fits nowhere, so that no process of it is taken for one of ours.
        body["spec"] = json!({
            "containers": [{"name": "own", "image": IMAGES[0]}],
            "nodeSelector": {"no": "where"},
        });
    } else if kind == Kind::Service {
        body["spec"] = json!({"clusterIP": "None", "ports": [{"port": 1}]});
    } else {
        body["data"] = json!({"own": "aGVsbG8="});
    }
    hand.create(body).expect("the name is free");
    Some(Squatted { kind, name, before })
}

fn is_foreign(object: &Value) -> bool {
    object["metadata"]["labels"][FOREIGN] == "yes"
}

/// Takes a foreign object away again. Passwords that were lost with what was there before are restored, as
/// from a copy that somebody had kept.
pub(crate) fn give_back(world: &mut World, now: Millis, squatted: &Squatted) {
    let Squatted { kind, name, before } = squatted;
    let there = world.kube.get(*kind, NAMESPACE, name);
    if there.is_some_and(is_foreign) {
        let hand = &mut world.kube.hand(now);
        let deleted = hand.force_delete(*kind, NAMESPACE, name);
        deleted.expect("it is there");
    }
    let cluster = world.kube.get(Kind::ValkeyCluster, NAMESPACE, CLUSTER);
    let owner = cluster.map(|cluster| cluster["metadata"]["uid"].clone());
    let Some(before) = before.as_ref().filter(|_| *kind == Kind::Secret) else {
        return;
    };
    let same = owner.is_some_and(|owner| before["metadata"]["ownerReferences"][0]["uid"] == owner);
    let gone = world.kube.get(*kind, NAMESPACE, name).is_none();
    if same && gone && !end::is_going(world) {
        let mut copy = before.clone();
        if let Some(metadata) = copy["metadata"].as_object_mut() {
            let kept = [
                "name",
                "namespace",
                "labels",
                "finalizers",
                "ownerReferences",
            ];
            metadata.retain(|key, _| kept.contains(&key.as_str()));
        }
        let made = world.kube.hand(now).create(copy);
        made.expect("it is gone, and the namespace stands");
    }
}

/// Gives the objects of a kind fields that no schema of ours has, as under a later version of it.
pub(crate) fn widen(world: &mut World, now: Millis, kind: Kind) {
    let keys = |object: &Value| {
        let text = |key: &str| {
            object["metadata"][key]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        (text("namespace"), text("name"))
    };
    let objects: Vec<_> = world
        .kube
        .list(kind, None, "")
        .into_iter()
        .map(keys)
        .collect();
    let wider = json!({"later": {"list": [1, {"of": "things"}], "none": false}});
    for (namespace, name) in objects {
        let mut hand = world.kube.hand(now);
        let patched = hand.patch(kind, &namespace, &name, json!({"spec": wider}));
        patched.expect("it is there");
        if kind.facts().status {
            let patched = hand.patch_status(kind, &namespace, &name, json!({"status": wider}));
            patched.expect("it is there");
        }
    }
}

/// No machine takes a new pod any more, or every one does again.
pub(crate) fn close(world: &mut World, now: Millis, closed: bool) {
    const CLOSED: &str = "team.example/closed";
    let nodes = world.kube.list(Kind::Node, None, "");
    let taints = nodes.into_iter().map(|node| {
        let taints = node["spec"]["taints"].as_array().cloned();
        let mut taints = taints.unwrap_or_default();
        taints.retain(|taint| taint["key"] != CLOSED);
        if closed {
            taints.push(json!({"key": CLOSED, "effect": "NoSchedule"}));
        }
        (node["metadata"]["name"].clone(), taints)
    });
    let taints: Vec<_> = taints.collect();
    for (name, taints) in taints {
        let patch = json!({"spec": {"taints": taints}});
        let name = name.as_str().unwrap_or_default();
        let patched = world.kube.hand(now).patch(Kind::Node, "", name, patch);
        patched.expect("the machine is there");
    }
}

/// A replica that has its primary's data, by address, and the primary.
pub(crate) fn pair(world: &mut World, pick: u8) -> Option<(IpAddr, ProcessId)> {
    let truth = world.own_truth();
    let runs = |process: &&ProcessTruth| process.life == Life::Running;
    let replicas = truth.processes.iter().filter(runs).filter_map(|replica| {
        let of = replica.replicates.as_ref()?;
        let mut primaries = truth.processes.iter().filter(runs);
        let primary = primaries.find(|primary| primary.node_id == *of)?;
        let ready = replica.replication.synced && replica.replication.linked;
        ready.then_some((replica.ip, primary.id))
    });
    let replicas: Vec<_> = replicas.collect();
    picked(&replicas, pick).copied()
}

/// Starts a process that belongs to nobody's cluster.
pub(crate) fn stranger(world: &mut World) -> ProcessId {
    let now = world.now();
    world.net.withdraw(now, STRANGER);
    let launch = Launch {
        ip: STRANGER,
        conf: "port 6379\ncluster-enabled yes\ncluster-node-timeout 5000\nprotected-mode no\n"
            .to_owned(),
        files: std::collections::BTreeMap::new(),
        nodes_conf: None,
    };
    world.net.start(now, launch).expect("its settings are good")
}

/// Tells a process something, sometimes about another; where it is, if it was done.
pub(crate) fn meddle(
    world: &mut World,
    how: Meddling,
    (one, other): (ProcessId, ProcessId),
) -> Option<IpAddr> {
    let now = world.now();
    let truth = world.net.truth(now);
    let process = |id| truth.processes.iter().find(|process| process.id == id);
    let (one, other) = (process(one)?, process(other)?);
    let (id, stranger) = (other.node_id.as_str(), STRANGER.to_string());
    let words: &[&str] = match how {
        Meddling::Failover => &["CLUSTER", "FAILOVER"],
        Meddling::Takeover => &["CLUSTER", "FAILOVER", "TAKEOVER"],
        Meddling::Forget => &["CLUSTER", "FORGET", id],
        Meddling::Reset => &["CLUSTER", "RESET"],
        Meddling::AddSlot => &["CLUSTER", "ADDSLOTS", "7"],
        Meddling::SetSlot => &["CLUSTER", "SETSLOT", "7", "NODE", &one.node_id],
        Meddling::Replicate => &["CLUSTER", "REPLICATE", id],
        Meddling::Meet => &["CLUSTER", "MEET", &stranger, "6379"],
        Meddling::LockOut => &["ACL", "SETUSER", "_momento_operator", "off"],
    };
    world.by_hand(one.ip, words).then_some(one.ip)
}
