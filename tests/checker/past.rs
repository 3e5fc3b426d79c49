//! What the checker remembers of a run for more than one family of rules. Never judges.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::Rules;
use super::evidence::Actor;
use super::evidence::Fault;
use super::evidence::Goal;
use super::evidence::Hits;
use super::evidence::Life;
use super::evidence::Millis;
use super::evidence::Name;
use super::evidence::Process;
use super::evidence::Role;
use super::evidence::Step;
use super::evidence::What;
use super::evidence::Write;
use super::scene::Body as _;
use super::scene::INSTANCE;
use super::scene::SHARD_INDEX;
use super::scene::Scene;
use super::scene::Shape;
use super::slots::Slots;

/// Something that was broken on purpose, or by a hand.
pub(super) struct Felt {
    /// When.
    pub(super) at: Millis,
    /// When all was whole again; none while it may last.
    over: Option<Millis>,
    /// The pods that it hit, by uid, each with the slots of its shard, then.
    pub(super) pods: BTreeMap<String, Slots>,
    /// The slots of which a pod that it hit had the only copy.
    pub(super) lone: Slots,
    /// It may have hit anything.
    pub(super) everything: bool,
}

impl Felt {
    /// Whether it hit the shard of a slot.
    pub(super) fn reaches(&self, slot: u16) -> bool {
        self.everything || self.pods.values().any(|slots| slots.has(slot))
    }
}

/// A shard, by its cluster and the index that its nodes are scheduled for.
pub(super) type Shard = (Name, u64);

/// The memory.
pub(super) struct Past {
    /// What the rules are read with.
    pub(super) rules: Rules,
    /// When the step under judgement happened.
    pub(super) at: Millis,
    /// The truth just before it.
    pub(super) scene: Scene,
    /// That truth came with this step.
    pub(super) fresh: bool,
    /// When the tick under way began, by operator and cluster.
    ticks: BTreeMap<(u32, Name), Millis>,
    /// Since when a process has been in its state of life, by pod.
    lives: BTreeMap<String, (Life, Millis)>,
    /// Since when a process has been a primary, by pod.
    leads: BTreeMap<String, Millis>,
    /// When a process was seen first, by pod.
    first_seen: BTreeMap<String, Millis>,
    /// When a node was last seen with a pod stamped on it, by pod.
    stamped: BTreeMap<String, Millis>,
    /// The shard of each pod that was ever seen.
    shards: BTreeMap<String, Shard>,
    /// The uid of each cluster and node that was ever seen.
    pub(super) uids: BTreeSet<String>,
    /// All that can cost data or a role.
    pub(super) felt: Vec<Felt>,
    /// The ids of the faults since all was last whole.
    pub(super) troubles: BTreeSet<String>,
    /// When something was last broken or mended.
    pub(super) trouble_at: Millis,
    /// When a person edited each cluster's spec, and how many replicas it asked for before.
    edits: BTreeMap<Name, Vec<(Millis, usize)>>,
    /// When a person last edited the menu.
    menu_edit: Millis,
    /// When a hand last told a process of a cluster to change the topology.
    meddled: BTreeMap<Name, Millis>,
    /// What must come about, and since when.
    pub(super) stable: Option<(Goal, Millis)>,
    /// There is nothing to do.
    pub(super) calm: bool,
}

impl Past {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            at: 0,
            scene: Scene::default(),
            fresh: false,
            ticks: BTreeMap::new(),
            lives: BTreeMap::new(),
            leads: BTreeMap::new(),
            first_seen: BTreeMap::new(),
            stamped: BTreeMap::new(),
            shards: BTreeMap::new(),
            uids: BTreeSet::new(),
            felt: Vec::new(),
            troubles: BTreeSet::new(),
            trouble_at: 0,
            edits: BTreeMap::new(),
            menu_edit: 0,
            meddled: BTreeMap::new(),
            stable: None,
            calm: false,
        }
    }

    /// Takes a step in, before it is judged.
    pub(super) fn note(&mut self, step: &Step) {
        self.at = step.at;
        self.fresh = step.truth.as_ref().is_some_and(|truth| !truth.pieced);
        if let Some(truth) = &step.truth {
            self.scene = Scene(truth.clone());
            self.look();
        }
        match (&step.what, step.by) {
            (What::Tick(cluster), Actor::Operator(number)) => {
                self.ticks.insert((number, cluster.clone()), step.at);
            }
            (What::Fault(fault), _) => self.broken(fault),
            (What::Healed, _) => {
                for felt in &mut self.felt {
                    felt.over.get_or_insert(step.at);
                }
                self.troubles.clear();
                self.trouble_at = step.at;
            }
            (What::Stable(goal), _) => self.stable = Some((*goal, step.at)),
            (What::Calm, _) => self.calm = true,
            (What::Write(write), Actor::User | Actor::Saboteur) => self.touched(write),
            (What::Command(command), Actor::User | Actor::Saboteur)
                if command.changes_topology() =>
            {
                if let Some(process) = self.scene.reached(command) {
                    let home = process.home.clone();
                    self.meddled.insert(home, step.at);
                }
                let pods = command.pod.iter().cloned().collect();
                self.hit(pods, false, Some(step.at));
            }
            _ => {}
        }
    }

    fn look(&mut self) {
        let Self { scene, at, .. } = self;
        let processes = scene.0.processes.iter().filter(|_| self.fresh);
        for process in processes {
            if !self.first_seen.contains_key(&process.pod) {
                self.first_seen.insert(process.pod.clone(), *at);
            }
            if !process.is_primary() {
                self.leads.remove(&process.pod);
            } else if !self.leads.contains_key(&process.pod) {
                self.leads.insert(process.pod.clone(), *at);
            }
            match self.lives.get_mut(&process.pod) {
                Some((life, _)) if *life == process.life => {}
                Some(known) => *known = (process.life, *at),
                None => {
                    self.lives.insert(process.pod.clone(), (process.life, *at));
                }
            }
        }
        for object in &scene.0.objects {
            match object.kind.as_str() {
                "ValkeyNode" => {
                    remember(&mut self.uids, object.uid());
                    let pod = object.annotation(super::scene::STAMP);
                    match self.stamped.get_mut(pod) {
                        Some(seen) => *seen = *at,
                        None => drop(self.stamped.insert(pod.to_owned(), *at)),
                    }
                }
                "ValkeyCluster" => remember(&mut self.uids, object.uid()),
                "Pod" if !self.shards.contains_key(object.uid()) => {
                    let index = object.label(SHARD_INDEX).parse().unwrap_or_default();
                    let cluster = Name::new(&object.name.namespace, object.label(INSTANCE));
                    let uid = object.uid().to_owned();
                    self.shards.insert(uid, (cluster, index));
                }
                _ => {}
            }
        }
    }

    fn broken(&mut self, fault: &Fault) {
        self.troubles.insert(fault.id.clone());
        self.trouble_at = self.at;
        self.unsettle();
        match &fault.hits {
            Hits::Operator => {}
            Hits::Pods(pods) => self.hit(pods.iter().cloned().collect(), false, None),
            Hits::Everything => self.hit(BTreeSet::new(), true, None),
        }
    }

    /// A person's write: an edit of what is asked for, or a hand on what the operator keeps.
    fn touched(&mut self, write: &Write) {
        if !write.outcome.took_effect() {
            return;
        }
        self.unsettle();
        match write.kind.as_str() {
            "ValkeyCluster" => {
                let before = write.before.as_ref().and_then(|it| it.get("spec"));
                let before = before.map_or(0, |spec| Shape::of(spec).replicas);
                let edits = self.edits.entry(write.name.clone()).or_default();
                edits.push((self.at, before));
            }
            "ValkeyConfig" | "ValkeyImage" | "ValkeyRole" => self.menu_edit = self.at,
            "Pod" => {
                let uid = write.before.as_ref().map(|pod| pod.uid().to_owned());
                self.hit(uid.into_iter().collect(), false, Some(self.at));
            }
            "ValkeyNode" => {
                let stamp =
                    |node: &serde_json::Value| node.annotation(super::scene::STAMP).to_owned();
                let pod = write.before.as_deref().map(stamp);
                self.hit(pod.into_iter().collect(), false, Some(self.at));
            }
            _ => self.trouble_at = self.at,
        }
    }

    /// Whatever was at rest is so no longer.
    fn unsettle(&mut self) {
        self.calm = false;
        if self
            .stable
            .is_some_and(|(goal, _)| goal != Goal::UnderFaults)
        {
            self.stable = None;
        }
    }

    fn hit(&mut self, pods: BTreeSet<String>, everything: bool, over: Option<Millis>) {
        let pods: BTreeMap<String, Slots> = pods
            .into_iter()
            .map(|pod| {
                let slots = self.slots_of_shard(&pod);
                (pod, slots)
            })
            .collect();
        let lone = pods.iter().filter(|(pod, _)| !self.has_a_copy_beside(pod));
        let lone = lone.fold(Slots::default(), |all, (_, slots)| all.with(slots));
        self.felt.push(Felt {
            at: self.at,
            over,
            pods,
            lone,
            everything,
        });
    }

    /// The last fault hit the only copy that was to stay of these slots: the other was going by what was seen before.
    pub(super) fn cost(&mut self, slots: &Slots) {
        if let Some(felt) = self.felt.last_mut() {
            felt.lone = felt.lone.with(slots);
        }
    }

    /// Whether another process that lives, and is to stay, has the data of a pod's shard.
    fn has_a_copy_beside(&self, pod: &str) -> bool {
        let Some(process) = self.scene.process(pod) else {
            return false;
        };
        let has = |other: &Process| match &other.role {
            Role::Primary => !other.own().is_empty(),
            Role::Replica { synced, .. } => *synced,
        };
        let processes = self.scene.0.processes.iter();
        processes
            .filter(|other| other.pod != pod && self.scene.stands(other))
            .any(|other| other.primary() == process.primary() && has(other))
    }

    /// The slots of a pod's shard, in anybody's view.
    pub(super) fn slots_of_shard(&self, pod: &str) -> Slots {
        let Some(process) = self.scene.process(pod) else {
            return Slots::default();
        };
        let primary = process.primary();
        let seen = self.scene.owned_in_views(&process.home, primary);
        let owner = self.scene.by_id(primary);
        owner.map_or(seen.clone(), |owner| seen.with(&owner.own()))
    }

    /// Whether nothing was broken but the operator itself.
    pub(super) fn planned(&self) -> bool {
        self.felt.is_empty()
    }

    /// How often a shard was hit since a moment; nothing where it cannot be told.
    pub(super) fn hits_on(&self, shard: &Shard, since: Millis) -> Option<usize> {
        let felt = || self.felt.iter().filter(|felt| felt.at >= since);
        if felt().any(|felt| felt.everything) {
            return None;
        }
        Some(felt().filter(|felt| self.hit_shard(felt, shard)).count())
    }

    /// Whether a replica of a shard may still take over for what was broken there: a primary that was taken for dead
    /// stays so for twice the node timeout, and an election begun by then has to end.
    pub(super) fn is_shaken(&self, shard: &Shard) -> bool {
        let aftermath = 3 * self.rules.node_timeout;
        let lasts = |felt: &&Felt| felt.over.is_none_or(|over| self.at <= over + aftermath);
        let mut felt = self.felt.iter().filter(lasts);
        felt.any(|felt| felt.everything || self.hit_shard(felt, shard))
    }

    fn hit_shard(&self, felt: &Felt, shard: &Shard) -> bool {
        let mut pods = felt.pods.keys();
        pods.any(|pod| self.shard_of(pod) == Some(shard))
    }

    /// The shard of a pod, also when it is long gone.
    pub(super) fn shard_of(&self, pod: &str) -> Option<&Shard> {
        self.shards.get(pod)
    }

    /// Since when a process has been as alive as it is now.
    pub(super) fn living_since(&self, pod: &str) -> Millis {
        self.lives.get(pod).map_or(self.at, |(_, since)| *since)
    }

    /// Whether a process has been as alive as it is now for long enough to be known.
    pub(super) fn is_old_news(&self, pod: &str) -> bool {
        self.living_since(pod) + self.rules.blink <= self.at
    }

    /// Since when a process has been a primary without a break.
    pub(super) fn leading_since(&self, pod: &str) -> Millis {
        self.leads.get(pod).copied().unwrap_or(self.at)
    }

    /// What is younger cannot have been seen by the tick of this operator that is under way.
    pub(super) fn looked_at(&self, by: Actor, cluster: &Name) -> Millis {
        let number = match by {
            Actor::Operator(number) => number,
            Actor::Saboteur | Actor::User | Actor::Machinery => return self.at,
        };
        let tick = self.ticks.get(&(number, cluster.clone())).copied();
        tick.unwrap_or_else(|| self.at.saturating_sub(self.rules.blink))
    }

    /// Whether ticks are told of.
    pub(super) fn knows_ticks(&self) -> bool {
        !self.ticks.is_empty()
    }

    /// When a pod's process was first seen.
    pub(super) fn first_seen(&self, pod: &str) -> Option<Millis> {
        self.first_seen.get(pod).copied()
    }

    /// When a pod was last seen stamped on a node.
    pub(super) fn stamped_at(&self, pod: &str) -> Option<Millis> {
        self.stamped.get(pod).copied()
    }

    /// Whether what an operator does now may have been decided before it could know of the last edit: it reads
    /// clusters when it looks, and the menu from its stores.
    pub(super) fn may_not_know(&self, by: Actor, cluster: &Name) -> bool {
        let looked = self.looked_at(by, cluster);
        looked <= self.own_edit(cluster) || looked <= self.menu_edit + self.rules.cache_lag
    }

    /// Whether a hand changed the topology after this operator looked.
    pub(super) fn is_meddled_with(&self, by: Actor, cluster: &Name) -> bool {
        let meddled = self.meddled.get(cluster).copied();
        meddled.is_some_and(|at| at >= self.looked_at(by, cluster))
    }

    /// When a person last changed what a cluster should be.
    pub(super) fn edited_at(&self, cluster: &Name) -> Millis {
        self.own_edit(cluster).max(self.menu_edit)
    }

    fn own_edit(&self, cluster: &Name) -> Millis {
        let last = self.edits.get(cluster).and_then(|edits| edits.last());
        last.map_or(0, |(at, _)| *at)
    }

    /// How many replicas a cluster asks for, or asked for when this operator last looked, if that is less.
    pub(super) fn replicas_asked(&self, by: Actor, cluster: &Name) -> usize {
        let spec = self.scene.cluster(cluster);
        let spec = spec.and_then(|cluster| cluster.body.get("spec"));
        let now = spec.map_or(0, |spec| Shape::of(spec).replicas);
        let looked = self.looked_at(by, cluster);
        let edits = self.edits.get(cluster).into_iter().flatten();
        let unseen = edits.filter(|(at, _)| *at >= looked);
        unseen.map(|(_, before)| *before).fold(now, usize::min)
    }
}

fn remember(uids: &mut BTreeSet<String>, uid: &str) {
    if !uids.contains(uid) {
        uids.insert(uid.to_owned());
    }
}

/// The cluster that a write belongs to.
pub(super) fn cluster_of(write: &Write) -> Name {
    let namespace = &write.name.namespace;
    if write.kind == "ValkeyCluster" {
        return write.name.clone();
    }
    let bodies = [&write.before, &write.after];
    let told = bodies.into_iter().flatten().map(|body| {
        let instance = body.label(INSTANCE);
        let named = body.text("/spec/clusterName");
        if instance.is_empty() { named } else { instance }
    });
    let name = told.into_iter().find(|name| !name.is_empty());
    Name::new(namespace, name.unwrap_or_default())
}
