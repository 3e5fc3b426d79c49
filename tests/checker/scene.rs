//! A snapshot with the questions that rules ask of it. Never remembers an earlier one.

use std::sync::Arc;

use serde_json::Value;

use super::evidence::Command;
use super::evidence::Cut;
use super::evidence::Life;
use super::evidence::Name;
use super::evidence::Object;
use super::evidence::Process;
use super::evidence::Role;
use super::evidence::Row;
use super::evidence::Snapshot;
use super::slots::Slots;

/// The uid of the one pod that a node ever had, stamped on it.
pub(super) const STAMP: &str = "valkey.gomomento.com/pod-uid";
/// Whose cluster an object is a part of.
pub(super) const INSTANCE: &str = "app.kubernetes.io/instance";
/// Which shard a node is scheduled for.
pub(super) const SHARD_INDEX: &str = "valkey.gomomento.com/shard-index";
/// Why a node joins an Active cluster.
pub(super) const JOIN_TYPE: &str = "valkey.gomomento.com/join-type";
/// Stops a cluster's topology actions.
pub(super) const PAUSED: &str = "valkey.gomomento.com/paused";

/// Reads of any object's JSON; what is not there is empty.
pub(super) trait Body {
    /// The JSON.
    fn json(&self) -> &Value;

    /// What is at a path such as `/metadata/uid`. Cheaper than a JSON pointer, which rules ask for by the
    /// thousand.
    fn at(&self, path: &str) -> Option<&Value> {
        let mut parts = path.split('/').skip(1);
        parts.try_fold(self.json(), |value, part| value.get(part))
    }

    /// Text at a path.
    fn text(&self, path: &str) -> &str {
        let value = self.at(path);
        value.and_then(Value::as_str).unwrap_or_default()
    }

    /// A number at a path.
    fn number(&self, path: &str) -> Option<u64> {
        self.at(path).and_then(Value::as_u64)
    }

    /// Its uid.
    fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    /// A label.
    fn label(&self, key: &str) -> &str {
        entry(self.json(), "labels", key)
    }

    /// An annotation.
    fn annotation(&self, key: &str) -> &str {
        entry(self.json(), "annotations", key)
    }

    /// It is being deleted.
    fn deleting(&self) -> bool {
        !self.text("/metadata/deletionTimestamp").is_empty()
    }

    /// Its owners, as kind and uid.
    fn owners(&self) -> Vec<(&str, &str)> {
        let owners = self.at("/metadata/ownerReferences");
        let owners = owners.and_then(Value::as_array).into_iter().flatten();
        let pair = |owner| (text_of(owner, "kind"), text_of(owner, "uid"));
        owners.map(pair).collect()
    }

    /// Whether it has this owner.
    fn owned_by(&self, uid: &str) -> bool {
        self.owners().iter().any(|(_, owner)| *owner == uid)
    }

    /// Its finalizers.
    fn finalizers(&self) -> Vec<&str> {
        let held = self.at("/metadata/finalizers");
        let held = held.and_then(Value::as_array).into_iter().flatten();
        held.filter_map(Value::as_str).collect()
    }
}

fn entry<'a>(json: &'a Value, map: &str, key: &str) -> &'a str {
    let map = json.get("metadata").and_then(|metadata| metadata.get(map));
    map.map(|map| text_of(map, key)).unwrap_or_default()
}

fn text_of<'a>(value: &'a Value, key: &str) -> &'a str {
    let value = value.get(key).and_then(Value::as_str);
    value.unwrap_or_default()
}

impl Body for Value {
    fn json(&self) -> &Value {
        self
    }
}

impl Body for Object {
    fn json(&self) -> &Value {
        &self.body
    }
}

/// How many of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Shards.
    pub(super) shards: usize,
    /// Replicas of each.
    pub(super) replicas: usize,
}

impl Shape {
    /// What a spec asks for.
    pub(super) fn of(spec: &Value) -> Self {
        let number = |path: &str| {
            let number = spec.number(path).unwrap_or_default();
            usize::try_from(number).unwrap_or(usize::MAX)
        };
        Self {
            shards: number("/shards"),
            replicas: number("/replicasPerShard"),
        }
    }

    /// Nodes in all.
    pub(super) fn nodes(self) -> usize {
        self.shards.saturating_mul(self.replicas.saturating_add(1))
    }
}

/// What is.
#[derive(Clone, Debug, Default)]
pub(super) struct Scene(pub(super) Arc<Snapshot>);

impl Scene {
    /// The objects of a kind.
    pub(super) fn kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Object> {
        let objects = self.0.objects.iter().map(AsRef::as_ref);
        objects.filter(move |object: &&Object| object.kind == kind)
    }

    /// One object.
    pub(super) fn object(&self, kind: &str, name: &Name) -> Option<&Object> {
        let mut objects = self.0.objects.iter();
        let found = objects.find(|object| object.kind == kind && object.name == *name);
        found.map(AsRef::as_ref)
    }

    /// A cluster.
    pub(super) fn cluster(&self, name: &Name) -> Option<&Object> {
        self.object("ValkeyCluster", name)
    }

    /// A cluster that is not being deleted.
    pub(super) fn standing_cluster(&self, name: &Name) -> Option<&Object> {
        self.cluster(name).filter(|cluster| !cluster.deleting())
    }

    /// Every node of a cluster, those on their way out too.
    pub(super) fn nodes<'a>(&'a self, cluster: &'a Name) -> impl Iterator<Item = &'a Object> {
        self.kind("ValkeyNode").filter(|node| {
            node.name.namespace == cluster.namespace
                && node.text("/spec/clusterName") == cluster.name
        })
    }

    /// Every node of a cluster that is not being deleted.
    pub(super) fn staying<'a>(&'a self, cluster: &'a Name) -> impl Iterator<Item = &'a Object> {
        self.nodes(cluster).filter(|node| !node.deleting())
    }

    /// The node that a pod is stamped on.
    pub(super) fn node_of(&self, pod: &str) -> Option<&Object> {
        self.kind("ValkeyNode")
            .find(|node| !pod.is_empty() && node.annotation(STAMP) == pod)
    }

    /// A pod by uid.
    pub(super) fn pod(&self, uid: &str) -> Option<&Object> {
        self.kind("Pod").find(|pod| pod.uid() == uid)
    }

    /// The process of a pod.
    pub(super) fn process(&self, pod: &str) -> Option<&Process> {
        let mut processes = self.0.processes.iter();
        let found = processes.find(|process| !pod.is_empty() && process.pod == pod);
        found.map(AsRef::as_ref)
    }

    /// The process that has a node id.
    pub(super) fn by_id(&self, id: &str) -> Option<&Process> {
        let mut processes = self.0.processes.iter();
        let found = processes.find(|process| !id.is_empty() && process.id == id);
        found.map(AsRef::as_ref)
    }

    /// The process at an address: one that runs before one that ended.
    pub(super) fn at_address(&self, ip: &str) -> Option<&Process> {
        let here = || self.0.processes.iter().filter(|process| process.ip == ip);
        let running = here().find(|process| process.life != Life::Ended);
        running.or_else(|| here().next()).map(AsRef::as_ref)
    }

    /// The process that a command reached.
    pub(super) fn reached(&self, command: &Command) -> Option<&Process> {
        let pod = command.pod.as_deref().unwrap_or_default();
        self.process(pod).or_else(|| {
            let id = command.id.as_deref().unwrap_or_default();
            self.by_id(id)
        })
    }

    /// The processes of a cluster that run.
    pub(super) fn alive<'a>(&'a self, home: &'a Name) -> impl Iterator<Item = &'a Process> {
        let processes = self.0.processes.iter().map(AsRef::as_ref);
        processes
            .filter(move |process: &&Process| process.home == *home && process.life == Life::Alive)
    }

    /// The processes that run in a pod of a node, neither of which is being deleted.
    pub(super) fn standing<'a>(&'a self, home: &'a Name) -> impl Iterator<Item = &'a Process> {
        self.alive(home).filter(|process| self.stands(process))
    }

    /// Whether a process that runs is a part of its cluster, and is to stay.
    pub(super) fn stands(&self, process: &Process) -> bool {
        process.life == Life::Alive
            && self.pod(&process.pod).is_some_and(|pod| !pod.deleting())
            && self
                .node_of(&process.pod)
                .is_some_and(|node| !node.deleting())
    }

    /// What an id owns in the view of any other process that runs.
    pub(super) fn owned_in_views(&self, home: &Name, id: &str) -> Slots {
        let views = self.alive(home).filter(|process| process.id != id);
        let rows = views.filter_map(|process| process.row(id));
        rows.fold(Slots::default(), |all, row| all.with(&row.slots))
    }

    /// Whether nothing gets through from one address to another on the cluster bus.
    pub(super) fn bus_cut(&self, from: &str, to: &str) -> bool {
        let cut = |cut: &Cut| cut.bus && cut.from == from && cut.to == to;
        self.0.cuts.iter().any(cut)
    }

    /// Whether two processes hear each other on the bus.
    pub(super) fn hear_each_other(&self, one: &Process, other: &Process) -> bool {
        !self.bus_cut(&one.ip, &other.ip) && !self.bus_cut(&other.ip, &one.ip)
    }

    /// Whether no other process of its cluster hears a process.
    pub(super) fn cut_off(&self, process: &Process) -> bool {
        let mut others = self
            .alive(&process.home)
            .filter(|other| other.id != process.id);
        !others.any(|other| self.hear_each_other(process, other))
    }
}

impl Process {
    /// Its row of an id.
    pub(super) fn row(&self, id: &str) -> Option<&Row> {
        self.table.iter().find(|row| row.id == id)
    }

    /// What it says it owns.
    pub(super) fn own(&self) -> Slots {
        self.row(&self.id)
            .map(|row| row.slots.clone())
            .unwrap_or_default()
    }

    /// How many slots have an owner in its view.
    pub(super) fn assigned(&self) -> u32 {
        self.table.iter().map(|row| row.slots.len()).sum()
    }

    /// The id of the primary of its shard: its own, if it is one.
    pub(super) fn primary(&self) -> &str {
        match &self.role {
            Role::Primary => &self.id,
            Role::Replica { of, .. } => of,
        }
    }

    /// Whether its data is that of its shard.
    pub(super) fn is_synced(&self) -> bool {
        match self.role {
            Role::Primary => true,
            Role::Replica { synced, .. } => synced,
        }
    }

    /// Whether it is in step with its shard now.
    pub(super) fn is_linked(&self) -> bool {
        match self.role {
            Role::Primary => true,
            Role::Replica { linked, .. } => linked,
        }
    }

    /// Whether it is a primary.
    pub(super) fn is_primary(&self) -> bool {
        self.role == Role::Primary
    }

    /// Enough to know it by.
    pub(super) fn told(&self) -> String {
        let Self {
            id,
            ip,
            life,
            role,
            offset,
            epoch,
            ..
        } = self;
        let id = id.get(..8).unwrap_or(id);
        let role = match role {
            Role::Primary => "primary".to_owned(),
            Role::Replica { of, linked, synced } => {
                let of = of.get(..8).unwrap_or(of);
                format!("replica of {of} (linked {linked}, synced {synced})")
            }
        };
        format!(
            "{id} at {ip} ({life:?}, {role}, offset {offset}, epoch {epoch}, owns {})",
            self.own()
        )
    }
}

impl Command {
    /// Whether it begins with these words, in any case.
    pub(super) fn is(&self, words: &[&str]) -> bool {
        let mut pairs = words.iter().zip(&self.words);
        self.words.len() >= words.len() && pairs.all(|(a, b)| b.eq_ignore_ascii_case(a))
    }

    /// Whether one of its words is this, in any case.
    pub(super) fn says(&self, word: &str) -> bool {
        self.words
            .iter()
            .any(|said| said.eq_ignore_ascii_case(word))
    }

    /// A word by its place, empty where there is none.
    pub(super) fn word(&self, place: usize) -> &str {
        self.words.get(place).map_or("", String::as_str)
    }

    /// Whether it changes who is a member, who owns a slot, who is a primary, or data.
    pub(crate) fn changes_topology(&self) -> bool {
        const CLUSTER: [&str; 15] = [
            "MEET",
            "FORGET",
            "ADDSLOTS",
            "ADDSLOTSRANGE",
            "DELSLOTS",
            "DELSLOTSRANGE",
            "FLUSHSLOTS",
            "REPLICATE",
            "FAILOVER",
            "MIGRATESLOTS",
            "CANCELSLOTMIGRATIONS",
            "SETSLOT",
            "RESET",
            "BUMPEPOCH",
            "SET-CONFIG-EPOCH",
        ];
        const OTHER: [&str; 6] = [
            "REPLICAOF",
            "SLAVEOF",
            "FAILOVER",
            "FLUSHALL",
            "FLUSHDB",
            "SHUTDOWN",
        ];
        let among =
            |list: &[&str], word: &str| list.iter().any(|one| one.eq_ignore_ascii_case(word));
        if self.is(&["CLUSTER"]) {
            among(&CLUSTER, self.word(1))
        } else {
            among(&OTHER, self.word(0))
        }
    }

    /// Whether it is a pass over what is kept: ACL LOAD, CONFIG SET.
    pub(super) fn is_upkeep(&self) -> bool {
        self.is(&["ACL", "LOAD"]) || self.is(&["CONFIG", "SET"])
    }
}
