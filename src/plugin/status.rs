//! `status`: a cluster's shards and nodes, and what is going on.
//! Never guesses: what may not be read is left out, and said to be.

use std::cmp::Reverse;
use std::sync::Arc;

use kube::ResourceExt as _;
use serde::Serialize;

use crate::api::cluster::{ClusterState, ValkeyCluster};
use crate::api::node::Lifecycle;
use crate::model::name::NodeName;
use crate::model::shards::{Shard, Topology};
use crate::model::slots::SLOT_COUNT;
use crate::model::topology::Role;
use crate::model::world::{
    ClusterFacts, Host, NodeFacts, PodFacts, PodPhase, PodSighting, PodTrouble, Sighting,
};
use crate::observe::visit::{Place, Sight};
use crate::plugin::plan::Plan;
use crate::plugin::print::{Cell, Table, Tone, bar, bytes, said};
use crate::plugin::{Shown, name_of, tone_of};

/// A cluster as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    namespace: String,
    name: String,
    state: ClusterState,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    config: String,
    tls: bool,
    paused: bool,
    deleting: bool,
    wanted_shards: u32,
    wanted_replicas: u32,
    /// What the operator does or waits for; nothing where that cannot be known.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<Plan>,
    /// Of 16384; nothing where no process was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    slots_owned: Option<u32>,
    /// The largest shard beside the mean; nothing where there are not two that answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    skew_percent: Option<Skew>,
    shards: Vec<ShardStatus>,
    /// What is not known, and why.
    lacking: Vec<String>,
}

/// The largest shard's share in percent of the mean: 100 is even.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Skew {
    slots: u64,
    keys: u64,
    memory: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShardStatus {
    index: u32,
    slots: String,
    slot_count: u32,
    #[serde(skip)]
    bar: String,
    nodes: Vec<NodeStatus>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeStatus {
    name: String,
    /// `primary`, `replica` or `unknown`.
    role: &'static str,
    lifecycle: Lifecycle,
    deleting: bool,
    /// The pod's phase, or what keeps it from running.
    pod: String,
    /// What it said when it was asked: `answered`, `not asked`, or why it did not.
    process: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    /// Bytes behind its primary.
    #[serde(skip_serializing_if = "Option::is_none")]
    lag: Option<u64>,
    /// A replica's link to its primary.
    #[serde(skip_serializing_if = "Option::is_none")]
    linked: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used_bytes: Option<u64>,
    /// 0 is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
}

/// How many cells a shard's bar has.
const BAR_CELLS: u32 = 32;

impl Status {
    /// What a sight shows; `place` tells where a node's pod runs.
    #[must_use]
    pub fn of(sight: &Sight, place: impl Fn(&NodeName) -> Place) -> Self {
        let world = &sight.world;
        let ClusterFacts {
            key,
            uid: _,
            spec,
            status,
            deleting,
            finalizer: _,
            paused,
        } = &world.cluster;
        let topology = Topology::of(world);
        let known = sight.gaps().next().is_none();
        let asked = !topology.answers.is_empty();
        let shards = topology.shards.values();
        Self {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            state: status.state,
            message: status.message.clone(),
            config: spec.config_ref.clone(),
            tls: spec.tls.is_some(),
            paused: *paused,
            deleting: *deleting,
            wanted_shards: spec.shards,
            wanted_replicas: spec.replicas_per_shard,
            plan: known.then(|| Plan::of(world)),
            slots_owned: asked.then(|| topology.owned.count()),
            skew_percent: skew(&topology),
            shards: shards
                .map(|shard| shard_status(shard, &topology, &place))
                .collect(),
            lacking: sight.lacking.iter().map(ToString::to_string).collect(),
        }
    }
}

fn skew(topology: &Topology<'_>) -> Option<Skew> {
    let primaries: Vec<_> = topology
        .shards
        .values()
        .filter(|shard| !shard.slots.is_empty())
        .filter_map(|shard| Some((shard.slots.count(), shard.answering_primary()?.view.load)))
        .collect();
    if primaries.len() < 2 {
        return None;
    }
    let percent = |amounts: Vec<u64>| {
        let (sum, count) = (amounts.iter().sum::<u64>(), amounts.len() as u64);
        let most = amounts.into_iter().max().unwrap_or(0);
        (most * count * 100).checked_div(sum).unwrap_or(100)
    };
    Some(Skew {
        slots: percent(
            primaries
                .iter()
                .map(|(slots, _)| u64::from(*slots))
                .collect(),
        ),
        keys: percent(primaries.iter().map(|(_, load)| load.keys).collect()),
        memory: percent(primaries.iter().map(|(_, load)| load.used_bytes).collect()),
    })
}

fn shard_status(
    shard: &Shard<'_>,
    topology: &Topology<'_>,
    place: &impl Fn(&NodeName) -> Place,
) -> ShardStatus {
    let primary = shard.answering_primary().map(|answer| answer.view.offset());
    let mut nodes = shard.nodes.clone();
    nodes.sort_by_key(|node| (Reverse(shard.is_primary(node)), &node.name));
    ShardStatus {
        index: shard.index.0,
        slots: shard.slots.to_string(),
        slot_count: shard.slots.count(),
        bar: if topology.answers.is_empty() {
            String::new()
        } else {
            bar(&shard.slots, BAR_CELLS)
        },
        nodes: nodes
            .into_iter()
            .map(|node| node_status(node, primary, place(&node.name)))
            .collect(),
    }
}

fn node_status(node: &NodeFacts, primary: Option<u64>, place: Place) -> NodeStatus {
    let view = node.view();
    let (role, linked) = match view.map(|view| &view.role) {
        Some(Role::Primary { .. }) => ("primary", None),
        Some(Role::Replica { linked, .. }) => ("replica", Some(*linked)),
        None => ("unknown", None),
    };
    let offset = view.map(crate::model::topology::NodeView::offset);
    NodeStatus {
        name: node.name.to_string(),
        role,
        lifecycle: node.spec.lifecycle,
        deleting: node.deleting,
        pod: pod_words(&node.pod),
        process: match &node.sighting {
            Sighting::NotAsked => "not asked".to_owned(),
            Sighting::Answered(_) => "answered".to_owned(),
            Sighting::Silent(why) | Sighting::LockedOut(why) => why.clone(),
        },
        offset,
        lag: linked.and_then(|_| Some(primary?.saturating_sub(offset?))),
        linked,
        keys: view.map(|view| view.load.keys),
        used_bytes: view.map(|view| view.load.used_bytes),
        max_bytes: view.map(|view| view.load.max_bytes),
        ip: match &node.pod {
            PodSighting::Present(pod) => pod.ip.map(|ip| ip.to_string()),
            PodSighting::Absent | PodSighting::Foreign => None,
        },
        host: place.host,
        zone: place.zone,
    }
}

fn pod_words(pod: &PodSighting) -> String {
    match pod {
        PodSighting::Absent => "no pod".to_owned(),
        PodSighting::Foreign => "somebody else's pod has its name".to_owned(),
        PodSighting::Present(PodFacts {
            host: Host::Gone, ..
        }) => "its machine is gone".to_owned(),
        PodSighting::Present(PodFacts { deleting: true, .. }) => "ending".to_owned(),
        PodSighting::Present(PodFacts {
            trouble: Some(trouble),
            ..
        }) => match trouble {
            PodTrouble::Unschedulable(words) => format!("unschedulable: {words}"),
            PodTrouble::Waiting { reason, message } if message.is_empty() => reason.clone(),
            PodTrouble::Waiting { reason, message } => format!("{reason}: {message}"),
            PodTrouble::Ended(words) => words.clone(),
        },
        PodSighting::Present(pod) => match pod.phase {
            PodPhase::Pending => "pending".to_owned(),
            PodPhase::Running => "running".to_owned(),
            PodPhase::Ended => "ended".to_owned(),
        },
    }
}

impl Shown for Status {
    fn text(&self, width: usize) -> String {
        let mut text = name_of(&self.namespace, &self.name, self.state);
        text.push_str(&said("spec", &self.spec_words(), width));
        if let Some(message) = &self.message {
            text.push_str(&said("message", message, width));
        }
        let now = self.plan.as_ref().map(Plan::sentence);
        text.push_str(&said(
            "now",
            now.as_deref()
                .unwrap_or("cannot be known by what you may read"),
            width,
        ));
        if let Some(plan) = &self.plan {
            text.push_str(&plan.advice(width));
        }
        if let Some(owned) = self.slots_owned {
            let words = format!("{owned} of {SLOT_COUNT} have an owner");
            text.push_str(&said("slots", &words, width));
        }
        if let Some(skew) = self.skew_percent {
            let Skew {
                slots,
                keys,
                memory,
            } = skew;
            let words = format!(
                "the largest shard beside the mean: slots {slots} %, keys {keys} %, \
                 memory {memory} %"
            );
            text.push_str(&said("skew", &words, width));
        }
        if self.slots_owned.is_some() {
            text.push('\n');
            text.push_str(&self.slot_table().text(width));
        }
        if !self.shards.is_empty() {
            text.push('\n');
            text.push_str(&self.node_table().text(width));
        }
        text.push_str(&self.troubles(width));
        if !self.lacking.is_empty() {
            text.push('\n');
            for lacking in &self.lacking {
                text.push_str(&said("lacking", lacking, width));
            }
        }
        text
    }
}

impl Status {
    fn spec_words(&self) -> String {
        let mut words = format!(
            "config {}, shards {}, replicas per shard {}",
            self.config, self.wanted_shards, self.wanted_replicas
        );
        for (holds, word) in [
            (self.tls, ", TLS"),
            (self.paused, ", paused"),
            (self.deleting, ", being deleted"),
        ] {
            if holds {
                words.push_str(word);
            }
        }
        words
    }

    fn slot_table(&self) -> Table {
        let mut table = Table::new(&["SHARD", "SLOTS 0 TO 16383", "COUNT", "RANGES"]);
        for shard in &self.shards {
            table.row(vec![
                shard.index.to_string().into(),
                shard.bar.clone().into(),
                shard.slot_count.to_string().into(),
                shard.slots.clone().into(),
            ]);
        }
        table
    }

    fn node_table(&self) -> Table {
        let heads = [
            "SHARD",
            "NODE",
            "ROLE",
            "LIFECYCLE",
            "OFFSET",
            "LAG",
            "KEYS",
            "MEMORY",
            "HOST",
            "ZONE",
        ];
        let mut table = Table::new(&heads);
        for shard in &self.shards {
            for node in &shard.nodes {
                table.row(node.row(shard.index));
            }
        }
        table
    }

    /// What is wrong with nodes, in words.
    fn troubles(&self, width: usize) -> String {
        let nodes = self.shards.iter().flat_map(|shard| &shard.nodes);
        let mut text = String::new();
        for node in nodes {
            let pod = (node.pod != "running").then(|| format!("its pod: {}", node.pod));
            let process = !matches!(node.process.as_str(), "answered" | "not asked");
            let process = process.then(|| format!("its process: {}", node.process));
            for trouble in pod.into_iter().chain(process) {
                let words = format!("{}: {trouble}", node.name);
                text.push_str(&said("node", &words, width));
            }
        }
        if text.is_empty() {
            text
        } else {
            format!("\n{text}")
        }
    }
}

impl NodeStatus {
    fn row(&self, shard: u32) -> Vec<Cell> {
        let number =
            |number: Option<u64>| Cell::from(number.map(|n| n.to_string()).unwrap_or_default());
        let word = |word: &Option<String>| Cell::from(word.clone().unwrap_or_default());
        let role = match self.linked {
            Some(false) => Cell::toned("replica, no link", Tone::Bad),
            Some(true) | None if self.role == "unknown" => Cell::default(),
            Some(true) | None => Cell::from(self.role),
        };
        let lifecycle = format!("{:?}", self.lifecycle);
        let memory = self.used_bytes.zip(self.max_bytes).map(|(used, max)| {
            if max == 0 {
                bytes(used)
            } else {
                format!("{}/{}", bytes(used), bytes(max))
            }
        });
        vec![
            shard.to_string().into(),
            self.name.clone().into(),
            role,
            match self.lifecycle {
                _ if self.deleting => Cell::toned("deleting", Tone::Busy),
                Lifecycle::Active => Cell::toned(lifecycle, Tone::Good),
                Lifecycle::Joining | Lifecycle::Leaving => Cell::toned(lifecycle, Tone::Busy),
            },
            number(self.offset),
            number(self.lag),
            number(self.keys),
            memory.unwrap_or_default().into(),
            word(&self.host),
            word(&self.zone),
        ]
    }
}

/// Every cluster in a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Overview {
    clusters: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    namespace: String,
    name: String,
    state: ClusterState,
    config: String,
    shards: u32,
    replicas_per_shard: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl Overview {
    /// All that were listed.
    #[must_use]
    pub fn of(clusters: &[Arc<ValkeyCluster>]) -> Self {
        Self {
            clusters: clusters.iter().map(|cluster| Line::of(cluster)).collect(),
        }
    }
}

impl Line {
    fn of(cluster: &ValkeyCluster) -> Self {
        let status = cluster.status.clone().unwrap_or_default();
        Self {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
            state: status.state,
            config: cluster.spec.config_ref.clone(),
            shards: cluster.spec.shards,
            replicas_per_shard: cluster.spec.replicas_per_shard,
            message: status.message,
        }
    }
}

impl Shown for Overview {
    fn text(&self, width: usize) -> String {
        if self.clusters.is_empty() {
            return "no ValkeyCluster here: -A looks in all namespaces\n".to_owned();
        }
        let heads = [
            "NAMESPACE",
            "NAME",
            "STATE",
            "CONFIG",
            "SHARDS",
            "REPLICAS",
            "MESSAGE",
        ];
        let mut table = Table::new(&heads);
        for line in &self.clusters {
            table.row(vec![
                line.namespace.clone().into(),
                line.name.clone().into(),
                Cell::toned(format!("{:?}", line.state), tone_of(line.state)),
                line.config.clone().into(),
                line.shards.to_string().into(),
                line.replicas_per_shard.to_string().into(),
                line.message.clone().unwrap_or_default().into(),
            ]);
        }
        table.text(width)
    }
}
