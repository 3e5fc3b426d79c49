//! Worlds in a few words, and what is decided in them.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};

use crate::api::cluster::{ClusterState, ValkeyClusterSpec, ZoneSpread};
use crate::api::node::{Lifecycle, ValkeyNodeSpec};
use crate::decide::{decide, node};
use crate::model::decision::{Decision, Verdict};
use crate::model::desired::{Desired, MenuError, Resolved, Shape, Sourced};
use crate::model::name::{ClusterRef, ConfigName, NodeName, Uid, ValkeyId};
use crate::model::redacted::Redacted;
use crate::model::slots::{SLOT_COUNT, SlotRange, SlotSet};
use crate::model::topology::{Member, MemberFlags, NodeView, Role};
use crate::model::world::{
    Auth, ClusterFacts, Keeping, Kept, Menu, NodeFacts, PodFacts, PodPhase, PodSighting,
    PodTrouble, Sighting, World,
};

/// Reads a world from words: `target 3x1` and nodes parted by `|`, each
/// `NAME sSHARD` followed by any of
///
/// - `new`, `unstamped`, `pending`, `unschedulable`, `unpullable`, `ended`, `vanished`, `deleting`,
///   `silent` instead of a running pod that answers;
/// - `slots A-B`, `of NAME` (replicates), `unlinked`, `notok`, `counts N` (its slots_assigned);
/// - `blind` (knows only itself), `handshakes NAME`, `lists ID:FLAGS` with flags joined by `+`.
fn world(words: &str) -> (World, Desired) {
    let mut parts = words.split('|').map(str::trim);
    let head: Vec<&str> = parts.next().unwrap().split_whitespace().collect();
    let (shards, replicas) = head[1].split_once('x').unwrap();
    let shape = Shape { shards: shards.parse().unwrap(), replicas: replicas.parse().unwrap() };
    let nodes: Vec<Vec<&str>> = parts.map(|part| part.split_whitespace().collect()).collect();
    let mut facts: BTreeMap<NodeName, NodeFacts> = nodes.iter().map(|words| node_of(words)).collect();
    let rows: Vec<Member> = nodes.iter().filter_map(|words| row_of(words)).collect();
    for words in &nodes {
        let facts = facts.get_mut(&NodeName::new(words[0])).unwrap();
        if matches!(facts.sighting, Sighting::Answered(_)) {
            facts.sighting = Sighting::Answered(view_of(words, &rows));
        }
    }
    let spec = ValkeyClusterSpec {
        config_ref: "standard".into(),
        shards: shape.shards,
        replicas_per_shard: shape.replicas,
        ..ValkeyClusterSpec::default()
    };
    let mut status = crate::api::cluster::ValkeyClusterStatus::default();
    if head[0] == "active" {
        status.state = ClusterState::Active;
    } else if head[0] == "target" {
        status.target_spec = Some(spec.clone());
    }
    let auth = Auth {
        operator: Redacted::new("o".into()),
        repl: Redacted::new("r".into()),
        finalizer: true,
    };
    let world = World {
        now: 0,
        cluster: ClusterFacts {
            key: ClusterRef { namespace: "ns".into(), name: "c".into() },
            uid: Uid::new("cluster"),
            spec,
            status,
            deleting: head[0] == "deleting",
            finalizer: head[0] != "unowned",
            paused: head[0] == "paused",
        },
        menu: Menu::default(),
        kept: Kept {
            service: Keeping::Ours(()),
            auth: Keeping::Ours(auth),
            acl: Keeping::Ours(String::new()),
        },
        nodes: facts,
        default_zone_spread: ZoneSpread::BestEffort,
    };
    (world, Desired { shape, menu: Ok(resolved()) })
}

fn resolved() -> Resolved {
    let image = Sourced { value: "valkey:9".into(), config: ConfigName::new("standard") };
    Resolved {
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
    }
}

fn node_of(words: &[&str]) -> (NodeName, NodeFacts) {
    let has = |word: &str| words.contains(&word);
    let name = NodeName::new(words[0]);
    let uid = Uid::new(format!("pod-{name}"));
    let trouble = if has("unschedulable") {
        Some(PodTrouble::Unschedulable("0/3 nodes available".into()))
    } else if has("unpullable") {
        Some(PodTrouble::Waiting { reason: "ErrImagePull".into(), message: "no such".into() })
    } else if has("ended") {
        Some(PodTrouble::Ended("its container exited with code 1".into()))
    } else {
        None
    };
    let phase = if has("ended") {
        PodPhase::Ended
    } else if has("pending") || has("unschedulable") || has("unpullable") {
        PodPhase::Pending
    } else {
        PodPhase::Running
    };
    let running = phase == PodPhase::Running && !has("new") && !has("vanished");
    let pod = PodFacts {
        uid: uid.clone(),
        phase,
        ip: running.then(|| address(words[0])),
        deleting: false,
        trouble,
        annotations: BTreeMap::new(),
    };
    let facts = NodeFacts {
        name: name.clone(),
        uid: Uid::new(format!("node-{name}")),
        spec: ValkeyNodeSpec {
            shard_index: words[1].strip_prefix('s').unwrap().parse().unwrap(),
            lifecycle: Lifecycle::Joining,
            ..ValkeyNodeSpec::default()
        },
        deleting: has("deleting"),
        finalizer: true,
        stamp: (!has("new") && !has("unstamped")).then_some(uid),
        config_map: Keeping::Ours(()),
        pod: if has("new") || has("vanished") {
            PodSighting::Absent
        } else {
            PodSighting::Present(pod)
        },
        sighting: if has("silent") {
            Sighting::Silent("connection refused".into())
        } else if running && !has("unstamped") {
            Sighting::Answered(view_of(words, &[]))
        } else {
            Sighting::NotAsked
        },
    };
    (name, facts)
}

fn address(name: &str) -> std::net::IpAddr {
    std::net::Ipv4Addr::new(10, 0, 0, name.as_bytes()[0]).into()
}

fn after<'a>(words: &[&'a str], word: &str) -> Option<&'a str> {
    let at = words.iter().position(|one| *one == word)?;
    words.get(at + 1).copied()
}

fn id(name: &str) -> ValkeyId {
    ValkeyId::new(format!("id-{name}"))
}

/// A node's own row; none for one that no table lists.
fn row_of(words: &[&str]) -> Option<Member> {
    let slots = after(words, "slots").map(|range| {
        let (start, end) = range.split_once('-').unwrap();
        SlotRange::new(start.parse().unwrap(), end.parse().unwrap()).unwrap()
    });
    let unlisted = ["blind", "new", "pending", "unschedulable", "unpullable"];
    let primary = after(words, "of").map(id);
    (!unlisted.iter().any(|word| words.contains(word))).then(|| Member {
        id: id(words[0]),
        ip: Some(address(words[0])),
        flags: MemberFlags { primary: primary.is_none(), ..MemberFlags::default() },
        primary,
        epoch: 0,
        connected: true,
        slots: SlotSet::of(slots.into_iter().collect()),
    })
}

fn view_of(words: &[&str], rows: &[Member]) -> NodeView {
    let has = |word: &str| words.contains(&word);
    let own = id(words[0]);
    let mut members: Vec<Member> = rows.to_vec();
    if has("blind") {
        members = row_of(&words[..2]).into_iter().collect();
    }
    if let Some(name) = after(words, "handshakes") {
        let flags = MemberFlags { handshake: true, ..MemberFlags::default() };
        let mut row = row_of(&[name, "s0"]).unwrap();
        (row.id, row.flags) = (ValkeyId::new("random"), flags);
        members.push(row);
    }
    if let Some((name, flags)) = after(words, "lists").and_then(|listed| listed.split_once(':')) {
        let mut row = row_of(&[name, "s0"]).unwrap();
        row.flags.failed = flags.contains("fail");
        row.flags.suspected = flags.contains("suspected");
        row.connected = flags.contains("connected");
        if flags.contains("slots") {
            row.slots = SlotSet::of(SlotRange::share(0, 3).into_iter().collect());
        }
        members.push(row);
    }
    let counted: u32 = members.iter().map(|row| row.slots.count()).sum();
    let size = members.iter().filter(|row| !row.slots.is_empty()).count();
    NodeView {
        id: own,
        cluster_ok: !has("notok") && counted == SLOT_COUNT,
        slots_assigned: after(words, "counts").map_or(counted, |count| count.parse().unwrap()),
        known_nodes: u32::try_from(members.len()).unwrap(),
        size: u32::try_from(size).unwrap(),
        current_epoch: 1,
        my_epoch: 1,
        role: match after(words, "of") {
            Some(_) => Role::Replica { linked: !has("unlinked"), offset: 14 },
            None => Role::Primary { offset: 14 },
        },
        members,
    }
}

fn told(decision: &Decision) -> String {
    let mut line = match &decision.verdict {
        Verdict::Take(action, why) => format!("take {action:?}: {why}"),
        Verdict::Hold(why) => format!("hold: {why}"),
        Verdict::Pass => "pass".to_owned(),
    };
    for nudge in &decision.nudges {
        line += &format!("\nnudge {} -> {}", nudge.from, nudge.to);
    }
    line.replace("NodeName(\"", "").replace("\")", "").replace("ShardIndex", "shard ")
}

#[expect(clippy::needless_pass_by_value, reason = "expect! reads best inline")]
fn check(words: &str, expected: Expect) {
    let (world, desired) = world(words);
    expected.assert_eq(&told(&decide(&world, &desired)));
}
