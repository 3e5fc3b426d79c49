//! One cluster in numbers, as its last tick saw it.
//! Never kept longer than the cluster.

use std::collections::BTreeMap;

use crate::api::cluster::ClusterState;
use crate::api::node::Lifecycle;
use crate::metrics::Sample;
use crate::model::desired::{Desired, Shape};
use crate::model::name::ValkeyId;
use crate::model::shards::{Answer, Topology};
use crate::model::slots::SLOT_COUNT;
use crate::model::why::Why;
use crate::model::world::{NodeFacts, World};

/// What is shown of one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    state: ClusterState,
    paused: bool,
    waiting: Option<&'static str>,
    wanted: Shape,
    shards: u32,
    slots: u32,
    healthy: bool,
    healthy_at: Option<i64>,
    expiry: Option<i64>,
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq)]
struct Node {
    name: String,
    shard: u32,
    lifecycle: Lifecycle,
    held: Option<Held>,
}

/// What a node that answered holds.
#[derive(Clone, Debug, PartialEq)]
struct Held {
    keys: u64,
    used_bytes: u64,
    max_bytes: u64,
    /// Behind its primary, of a replica whose primary answered too.
    lag_bytes: Option<u64>,
}

impl Reading {
    /// Reads a World; `waiting` is what its tick waits for.
    #[must_use]
    pub fn of(
        world: &World,
        topology: &Topology<'_>,
        desired: &Desired,
        waiting: Option<&Why>,
    ) -> Self {
        let owners = topology.shards.values().filter(|one| !one.slots.is_empty());
        let answering = owners.filter_map(|shard| Some((shard, shard.answering_primary()?)));
        let answering: Vec<_> = answering.collect();
        let slots = answering.iter().map(|(shard, _)| shard.slots.count()).sum();
        let mut linked: BTreeMap<&ValkeyId, u32> = BTreeMap::new();
        for replica in topology.answers.iter().filter(|one| one.is_linked()) {
            if let Some(primary) = replica.view.primary() {
                *linked.entry(primary).or_default() += 1;
            }
        }
        let wanted = desired.shape;
        let complete = answering.iter().all(|(_, primary)| {
            let count = linked.get(&primary.view.id).copied();
            count.unwrap_or(0) >= wanted.replicas
        });
        let agreed = topology.answers.iter().all(|answer| answer.view.cluster_ok);
        let state = world.cluster.status.state;
        let healthy = state == ClusterState::Active && slots == SLOT_COUNT && complete && agreed;
        let offer = desired.tls.as_ref().and_then(|tls| tls.as_ref().ok());
        let nodes = world.nodes.values();
        Self {
            state,
            paused: world.cluster.paused,
            waiting: waiting.map(Why::name),
            wanted,
            shards: u32::try_from(answering.len()).unwrap_or(u32::MAX),
            slots,
            healthy,
            healthy_at: healthy.then_some(world.now),
            expiry: offer.map(|offer| offer.expires),
            nodes: nodes.map(|node| Node::of(topology, node)).collect(),
        }
    }

    /// With the last time of health, where it is not healthy now.
    pub(super) fn after(mut self, before: Option<&Self>) -> Self {
        let last = before.and_then(|before| before.healthy_at);
        self.healthy_at = self.healthy_at.or(last);
        self
    }

    pub(super) fn state(&self) -> &'static str {
        match self.state {
            ClusterState::Creating => "Creating",
            ClusterState::Active => "Active",
            ClusterState::Updating => "Updating",
            ClusterState::Invalid => "Invalid",
        }
    }
}

impl Node {
    fn of(topology: &Topology<'_>, node: &NodeFacts) -> Self {
        let held = node.view().map(|view| {
            let primary = view.primary().and_then(|id| {
                let mut answers = topology.answers.iter();
                answers.find(|one| one.view.id == *id)
            });
            let behind = |primary: &Answer<'_>| primary.view.offset().saturating_sub(view.offset());
            Held {
                keys: view.load.keys,
                used_bytes: view.load.used_bytes,
                max_bytes: view.load.max_bytes,
                lag_bytes: primary.map(behind),
            }
        });
        Self {
            name: node.name.to_string(),
            shard: node.spec.shard_index,
            lifecycle: node.spec.lifecycle,
            held,
        }
    }
}

/// A gauge: name, help, and its samples of one cluster.
type GaugeOf = (&'static str, &'static str, fn(&Reading) -> Vec<Sample>);

/// Every gauge of a cluster and of its nodes.
pub(super) const GAUGES: &[GaugeOf] = &[
    (
        "valkey_cluster_state",
        "1 for the state that the cluster is in",
        |one| vec![(vec![("state", one.state().to_owned())], 1.0)],
    ),
    (
        "valkey_cluster_paused",
        "1 while the pause annotation is set",
        |one| alone(flag(one.paused)),
    ),
    (
        "valkey_cluster_waiting",
        "1 for the reason that the operator waits for, while it waits",
        |one| {
            let reason = |reason: &str| (vec![("reason", reason.to_owned())], 1.0);
            one.waiting.map(reason).into_iter().collect()
        },
    ),
    (
        "valkey_cluster_shards",
        "Shards whose primary owns slots and answers",
        |one| alone(f64::from(one.shards)),
    ),
    (
        "valkey_cluster_shards_desired",
        "Shards that are asked for",
        |one| alone(f64::from(one.wanted.shards)),
    ),
    ("valkey_cluster_nodes", "ValkeyNodes by lifecycle", |one| {
        let lifecycles = [
            (Lifecycle::Joining, "Joining"),
            (Lifecycle::Active, "Active"),
            (Lifecycle::Leaving, "Leaving"),
        ];
        let count = |of: Lifecycle| one.nodes.iter().filter(|node| node.lifecycle == of).count();
        let sample = |(of, name): (Lifecycle, &str)| {
            (
                vec![("lifecycle", name.to_owned())],
                number(count(of) as u64),
            )
        };
        lifecycles.map(sample).to_vec()
    }),
    (
        "valkey_cluster_nodes_desired",
        "ValkeyNodes that are asked for",
        |one| {
            let nodes = u64::from(one.wanted.shards) * u64::from(one.wanted.nodes_per_shard());
            alone(number(nodes))
        },
    ),
    (
        "valkey_cluster_slots_covered",
        "Slots whose primary answers, of 16384",
        |one| alone(f64::from(one.slots)),
    ),
    (
        "valkey_cluster_healthy",
        "1 if it is Active, all slots are covered, every shard has its replicas in sync, and all nodes agree",
        |one| alone(flag(one.healthy)),
    ),
    (
        "valkey_cluster_healthy_timestamp_seconds",
        "When it was last seen healthy; none before the first time since the operator's start",
        |one| {
            one.healthy_at
                .into_iter()
                .flat_map(|at| alone(time(at)))
                .collect()
        },
    ),
    (
        "valkey_cluster_certificate_expiry_timestamp_seconds",
        "When the certificate in its TLS Secret ends",
        |one| {
            one.expiry
                .into_iter()
                .flat_map(|at| alone(time(at)))
                .collect()
        },
    ),
    (
        "valkey_node_up",
        "1 if the node answered in the last tick",
        |one| {
            let nodes = one.nodes.iter();
            nodes
                .map(|node| (node.labels(), flag(node.held.is_some())))
                .collect()
        },
    ),
    ("valkey_node_keys", "Keys that the node holds", |one| {
        one.held(|held| Some(held.keys))
    }),
    (
        "valkey_node_used_memory_bytes",
        "used_memory of the node",
        |one| one.held(|held| Some(held.used_bytes)),
    ),
    (
        "valkey_node_max_memory_bytes",
        "maxmemory of the node; 0 is no limit",
        |one| one.held(|held| Some(held.max_bytes)),
    ),
    (
        "valkey_node_replication_lag_bytes",
        "How far a replica is behind its primary",
        |one| one.held(|held| held.lag_bytes),
    ),
];

impl Reading {
    fn held(&self, value: impl Fn(&Held) -> Option<u64>) -> Vec<Sample> {
        let nodes = self.nodes.iter();
        let samples = nodes.filter_map(|node| {
            let value = value(node.held.as_ref()?)?;
            Some((node.labels(), number(value)))
        });
        samples.collect()
    }
}

impl Node {
    fn labels(&self) -> Vec<(&'static str, String)> {
        vec![
            ("shard", self.shard.to_string()),
            ("node", self.name.clone()),
        ]
    }
}

fn alone(value: f64) -> Vec<Sample> {
    vec![(Vec::new(), value)]
}

fn flag(value: bool) -> f64 {
    f64::from(u8::from(value))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "Prometheus has floating numbers only"
)]
fn number(value: u64) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "Prometheus has floating numbers only"
)]
fn time(seconds: i64) -> f64 {
    seconds as f64
}
