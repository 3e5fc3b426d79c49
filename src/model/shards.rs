//! The World read by shard: who owns which slots, who answers, and what became of those who do not.
//! Never decides; what cannot be known is told as unknown, and silence is neither death nor health.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::api::node::Lifecycle;
use crate::model::name::{ShardIndex, ValkeyId};
use crate::model::slots::SlotSet;
use crate::model::topology::{Member, Migration, NodeView, Role};
use crate::model::world::{Host, NodeFacts, PodPhase, PodSighting, Sighting, World};

/// As long as a kubelet's own probe waits for a hung process: whoever is silent to us and to a peer
/// for longer is given up.
pub const SILENT_SECONDS_MAX: i64 = 60;

/// A process that answered.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Its node.
    pub node: &'a NodeFacts,
    /// What it said.
    pub view: &'a NodeView,
}

impl Answer<'_> {
    /// Whether its data is its primary's: the link is up.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        matches!(self.view.role, Role::Replica { linked: true, .. }) && !self.view.loading
    }

    /// Whether it ever had its primary's data: Valkey says 1 or less of one that never synced.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        matches!(self.view.role, Role::Replica { offset: 2.., .. }) && !self.view.loading
    }
}

/// The one that is furthest in its shard's history; of equals the first by name.
#[must_use]
pub fn furthest<'a>(replicas: impl Iterator<Item = Answer<'a>>) -> Option<Answer<'a>> {
    replicas.max_by_key(|replica| (replica.view.offset(), Reverse(&replica.node.name)))
}

/// An id in somebody's table that no process which answered has.
#[derive(Clone, Debug)]
pub struct Stranger<'a> {
    /// The id.
    pub id: &'a ValkeyId,
    /// All rows of it, handshakes left out.
    pub rows: Vec<&'a Member>,
    /// The slots that are its own, after all claims are weighed.
    pub slots: SlotSet,
    /// The node at its address, if that does not answer.
    pub node: Option<&'a NodeFacts>,
    /// The replicas that name it as their primary.
    pub heirs: Vec<Answer<'a>>,
    /// What became of it.
    pub fate: Fate,
}

/// What became of somebody who does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its process is gone, or was silent for so long on a machine without a word that it counts as
    /// gone.
    Dead,
    /// Everyone who answers holds it for failing, and that is all that is known.
    Failing,
    /// Somebody who answers hears it.
    Heard,
}

impl Stranger<'_> {
    /// For how long those who list it have heard nothing of it; the shortest silence counts.
    #[must_use]
    pub fn silent_seconds(&self) -> i64 {
        let failing = self.rows.iter().filter(|row| row.flags.failing());
        failing.map(|row| row.silent_seconds).min().unwrap_or(0)
    }

    /// Whether it is alive and no pod of this cluster: its address is nobody's of ours.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        let connected = |row: &&Member| row.connected && !row.flags.failing();
        self.node.is_none()
            && self.fate == Fate::Heard
            && self.heirs.is_empty()
            && self.rows.iter().all(connected)
    }

    /// The replica that should take its place: of those that ever synced the one that is furthest,
    /// then one that stays, then the first by name.
    #[must_use]
    pub fn heir(&self) -> Option<Answer<'_>> {
        let synced = self.heirs.iter().filter(|heir| heir.has_synced());
        let best = synced.rev().max_by_key(|heir| {
            let stays = !heir.node.is_departing();
            (heir.view.offset(), stays)
        });
        best.copied()
    }
}

/// Whose the slots of a shard are.
#[derive(Clone, Copy, Debug)]
pub enum Primary<'a> {
    /// A process that answers; of a new shard one that owns nothing yet.
    Answers(Answer<'a>),
    /// An id that others tell of.
    Unheard(&'a ValkeyId),
    /// Nobody's.
    Nobody,
}

/// The nodes of one shard index and whoever owns slots for them.
#[derive(Clone, Debug)]
pub struct Shard<'a> {
    /// The index.
    pub index: ShardIndex,
    /// Its nodes, by name, whatever their state.
    pub nodes: Vec<&'a NodeFacts>,
    /// Its primary.
    pub primary: Primary<'a>,
    /// The primary's slots.
    pub slots: SlotSet,
}

impl<'a> Shard<'a> {
    fn new(index: ShardIndex) -> Self {
        Self {
            index,
            nodes: Vec::new(),
            primary: Primary::Nobody,
            slots: SlotSet::default(),
        }
    }

    /// The nodes that are to last: alive as far as is known, and not on their way out.
    pub fn staying(&self) -> impl Iterator<Item = &'a NodeFacts> + '_ {
        let nodes = self.nodes.iter().copied();
        nodes.filter(|node| !node.is_departing() && !node.is_dead())
    }

    /// Whether it is being taken apart: what has begun to leave leaves.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        let mut nodes = self.nodes.iter();
        self.slots.is_empty() && nodes.any(|node| node.spec.lifecycle == Lifecycle::Leaving)
    }

    /// The primary, if it answers.
    #[must_use]
    pub fn answering_primary(&self) -> Option<Answer<'a>> {
        match self.primary {
            Primary::Answers(answer) => Some(answer),
            Primary::Unheard(_) | Primary::Nobody => None,
        }
    }

    /// Whether this node is its primary.
    #[must_use]
    pub fn is_primary(&self, node: &NodeFacts) -> bool {
        self.answering_primary()
            .is_some_and(|primary| primary.node.name == node.name)
    }
}

/// What the accounts of one moment add up to.
#[derive(Clone, Debug)]
pub struct Topology<'a> {
    /// Every process that answered, strays too, by name.
    pub answers: Vec<Answer<'a>>,
    /// Everyone else that somebody lists, by id.
    pub strangers: BTreeMap<&'a ValkeyId, Stranger<'a>>,
    /// Every index that has a node or an owner of slots.
    pub shards: BTreeMap<ShardIndex, Shard<'a>>,
    /// Owners in a shard that has a greater one.
    pub second_owners: Vec<(Answer<'a>, SlotSet)>,
    /// The slots that somebody owns.
    pub owned: SlotSet,
}

/// Somebody's claim to slots.
struct Claim<'a> {
    epoch: u64,
    answer: Option<Answer<'a>>,
    id: &'a ValkeyId,
    slots: SlotSet,
}

impl<'a> Topology<'a> {
    /// Reads a World.
    #[must_use]
    pub fn of(world: &'a World) -> Self {
        let everyone = || world.nodes.values().chain(world.strays.values());
        let mut answers: Vec<Answer<'a>> = everyone()
            .filter_map(|node| {
                Some(Answer {
                    node,
                    view: node.view()?,
                })
            })
            .collect();
        answers.sort_by_key(|answer| &answer.node.name);
        let mut strangers = strangers(&answers);
        let mut owned = SlotSet::default();
        let mut owners: Vec<(Answer<'a>, SlotSet)> = Vec::new();
        for claim in claims(&answers, &strangers) {
            let slots = claim.slots.minus(&owned);
            owned = owned.union(&slots);
            if slots.is_empty() {
                continue;
            }
            match claim.answer {
                Some(answer) => owners.push((answer, slots)),
                None => {
                    if let Some(stranger) = strangers.get_mut(claim.id) {
                        stranger.slots = slots;
                    }
                }
            }
        }
        for stranger in strangers.values_mut() {
            let place = Place::of(stranger, world, &answers);
            stranger.node = place.node();
            stranger.fate = fate(stranger, place);
        }
        let mut topology = Self {
            answers,
            strangers,
            shards: BTreeMap::new(),
            second_owners: Vec::new(),
            owned,
        };
        topology.read_shards(world, owners);
        topology
    }

    fn read_shards(&mut self, world: &'a World, owners: Vec<(Answer<'a>, SlotSet)>) {
        for node in world.nodes.values() {
            let shard = shard_of(&mut self.shards, node.shard());
            shard.nodes.push(node);
        }
        for (answer, slots) in owners {
            let shard = shard_of(&mut self.shards, answer.node.shard());
            let second = if slots.count() > shard.slots.count() {
                let first = std::mem::replace(&mut shard.slots, slots);
                let first = (shard.primary, first);
                shard.primary = Primary::Answers(answer);
                match first {
                    (Primary::Answers(answer), slots) => Some((answer, slots)),
                    (Primary::Unheard(_) | Primary::Nobody, _) => None,
                }
            } else {
                Some((answer, slots))
            };
            self.second_owners.extend(second);
        }
        self.place_unheard();
        let Self {
            answers, shards, ..
        } = self;
        for shard in shards.values_mut() {
            if matches!(shard.primary, Primary::Nobody) {
                let empty = empty_primary(shard.index, answers);
                shard.primary = empty.map_or(Primary::Nobody, Primary::Answers);
            }
        }
    }

    /// Owners that do not answer go to the shard of their node or of their replicas; one of which
    /// nothing is left to the first shard without an owner.
    fn place_unheard(&mut self) {
        let owners = self.strangers.values().filter(|one| !one.slots.is_empty());
        let mut homeless = Vec::new();
        for stranger in owners {
            let heirs = stranger.heirs.iter().map(|heir| heir.node.shard());
            let home = stranger.node.map(NodeFacts::shard);
            match home.or_else(|| heirs.min()) {
                Some(index) => place(shard_of(&mut self.shards, index), stranger),
                None => homeless.push(stranger),
            }
        }
        homeless.sort_by_key(|one| one.slots.ranges().first().copied());
        for stranger in homeless {
            let taken = |index: &u32| {
                let shard = self.shards.get(&ShardIndex(*index));
                shard.is_some_and(|shard| !shard.slots.is_empty())
            };
            if let Some(index) = (0..=u32::MAX).find(|index| !taken(index)) {
                place(shard_of(&mut self.shards, ShardIndex(index)), stranger);
            }
        }
    }

    /// The unfinished migrations that bring slots to somebody.
    pub fn imports(&self, target: &ValkeyId) -> impl Iterator<Item = &Migration> {
        let exports = self.answers.iter().flat_map(|answer| answer.view.exports());
        exports.filter(move |job| job.target.as_ref() == Some(target))
    }

    /// Whether somebody moves slots from it or to it.
    #[must_use]
    pub fn moves_slots_of(&self, view: &NodeView) -> bool {
        view.exports().next().is_some() || self.imports(&view.id).next().is_some()
    }

    /// The slots that nobody owns.
    #[must_use]
    pub fn orphaned(&self) -> SlotSet {
        SlotSet::all().minus(&self.owned)
    }

    /// How many own slots.
    #[must_use]
    pub fn size(&self) -> usize {
        let strangers = self.strangers.values();
        self.answering_owners() + strangers.filter(|one| !one.slots.is_empty()).count()
    }

    fn answering_owners(&self) -> usize {
        let shards = self.shards.values();
        let answering = shards.filter(|shard| {
            !shard.slots.is_empty() && matches!(shard.primary, Primary::Answers(_))
        });
        answering.count() + self.second_owners.len()
    }

    /// Whether a majority of owners is there to elect a replica: they answer, or somebody who
    /// answers hears them.
    #[must_use]
    pub fn has_quorum(&self) -> bool {
        let heard = self.unheard_owners(|fate| fate == Fate::Heard);
        2 * (self.answering_owners() + heard) > self.size()
    }

    /// Whether those who do not answer may be a majority on the other side of a cut, and so go on
    /// serving or elect somebody there. Of a single shard that is its primary alone.
    #[must_use]
    pub fn may_have_quorum_elsewhere(&self) -> bool {
        2 * self.unheard_owners(|fate| fate != Fate::Dead) > self.size()
    }

    fn unheard_owners(&self, fate: impl Fn(Fate) -> bool) -> usize {
        let owners = self.strangers.values().filter(|one| !one.slots.is_empty());
        owners.filter(|one| fate(one.fate)).count()
    }

    /// The process of a node, if it answered.
    #[must_use]
    pub fn answer(&self, node: &NodeFacts) -> Option<Answer<'a>> {
        let mut answers = self.answers.iter();
        answers
            .find(|answer| answer.node.name == node.name)
            .copied()
    }

    /// The linked replicas of a primary.
    pub fn linked_replicas(&self, primary: Answer<'a>) -> impl Iterator<Item = Answer<'a>> + '_ {
        let replicates = move |answer: &Answer<'a>| answer.view.primary() == Some(&primary.view.id);
        let answers = self.answers.iter().copied().filter(replicates);
        answers.filter(Answer::is_linked)
    }
}

fn shard_of<'s, 'a>(
    shards: &'s mut BTreeMap<ShardIndex, Shard<'a>>,
    index: ShardIndex,
) -> &'s mut Shard<'a> {
    shards.entry(index).or_insert_with(|| Shard::new(index))
}

/// An owner that answers keeps its place: the other is an earlier life of the shard.
fn place<'a>(shard: &mut Shard<'a>, stranger: &Stranger<'a>) {
    if stranger.slots.count() > shard.slots.count() && !matches!(shard.primary, Primary::Answers(_))
    {
        shard.primary = Primary::Unheard(stranger.id);
        shard.slots = stranger.slots.clone();
    }
}

/// Of a shard without an owner: whom the others replicate already, else the one that has been there
/// longest as far as can be told, else the first by name.
fn empty_primary<'a>(index: ShardIndex, answers: &[Answer<'a>]) -> Option<Answer<'a>> {
    let members = || answers.iter().filter(|one| one.node.shard() == index);
    let primaries = members().rev().filter(|one| {
        let primary = matches!(one.view.role, Role::Primary { .. });
        primary && !one.node.is_departing() && !one.node.is_dead()
    });
    let named = |one: &Answer<'_>| members().any(|by| by.view.primary() == Some(&one.view.id));
    let best = primaries.max_by_key(|one| {
        let active = one.node.spec.lifecycle == Lifecycle::Active;
        (named(one), active)
    });
    best.copied()
}

fn strangers<'a>(answers: &[Answer<'a>]) -> BTreeMap<&'a ValkeyId, Stranger<'a>> {
    let known: BTreeSet<&ValkeyId> = answers.iter().map(|answer| &answer.view.id).collect();
    let mut strangers: BTreeMap<&ValkeyId, Stranger<'a>> = BTreeMap::new();
    let rows = answers.iter().flat_map(|answer| &answer.view.members);
    for row in rows.filter(|row| !row.flags.handshake && !known.contains(&row.id)) {
        let stranger = strangers.entry(&row.id).or_insert_with(|| Stranger {
            id: &row.id,
            rows: Vec::new(),
            slots: SlotSet::default(),
            node: None,
            heirs: Vec::new(),
            fate: Fate::Heard,
        });
        stranger.rows.push(row);
    }
    for answer in answers {
        if let Some(primary) = answer.view.primary()
            && let Some(stranger) = strangers.get_mut(primary)
        {
            stranger.heirs.push(*answer);
        }
    }
    strangers
}

/// All claims, the one that wins first: in Valkey the greater epoch does.
fn claims<'a>(
    answers: &[Answer<'a>],
    strangers: &BTreeMap<&'a ValkeyId, Stranger<'a>>,
) -> Vec<Claim<'a>> {
    let primaries = answers
        .iter()
        .filter(|answer| answer.view.primary().is_none());
    let own = primaries.filter_map(|answer| {
        let row = answer.view.member(&answer.view.id)?;
        Some(Claim {
            epoch: row.epoch,
            answer: Some(*answer),
            id: &answer.view.id,
            slots: row.slots.clone(),
        })
    });
    let told = strangers.values().map(|stranger| Claim {
        epoch: stranger.rows.iter().map(|row| row.epoch).max().unwrap_or(0),
        answer: None,
        id: stranger.id,
        slots: stranger
            .rows
            .iter()
            .fold(SlotSet::default(), |all, row| all.union(&row.slots)),
    });
    let mut claims: Vec<Claim<'a>> = own.chain(told).collect();
    claims.sort_by_key(|claim| {
        (
            std::cmp::Reverse(claim.epoch),
            claim.answer.is_none(),
            claim.id,
        )
    });
    claims
}

/// Who is at a stranger's address.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// A process with another id: the stranger's is gone.
    Another,
    /// A node of ours that does not answer.
    Silent(&'a NodeFacts),
    /// A node of ours whose process is gone.
    Ended(&'a NodeFacts),
    /// Nobody of ours.
    Nobody,
}

impl<'a> Place<'a> {
    fn of(stranger: &Stranger<'_>, world: &'a World, answers: &[Answer<'_>]) -> Self {
        let addresses: Vec<IpAddr> = stranger.rows.iter().filter_map(|row| row.ip).collect();
        let here = |node: &&NodeFacts| {
            let ip = pod_ip(node);
            ip.is_some_and(|ip| addresses.contains(&ip))
        };
        if answers.iter().any(|answer| here(&answer.node)) {
            return Self::Another;
        }
        let everyone = || {
            world
                .nodes
                .values()
                .chain(world.strays.values())
                .filter(here)
        };
        let silent = everyone().find(|node| !node.is_dead());
        match (silent, everyone().next()) {
            (Some(silent), _) => Self::Silent(silent),
            (None, Some(ended)) => Self::Ended(ended),
            (None, None) => Self::Nobody,
        }
    }

    fn node(self) -> Option<&'a NodeFacts> {
        match self {
            Self::Silent(node) | Self::Ended(node) => Some(node),
            Self::Another | Self::Nobody => None,
        }
    }
}

/// The address of a node's pod, once its process may have started.
fn pod_ip(node: &NodeFacts) -> Option<IpAddr> {
    match &node.pod {
        PodSighting::Present(pod) if pod.phase != PodPhase::Pending => pod.ip,
        PodSighting::Present(_) | PodSighting::Absent | PodSighting::Foreign => None,
    }
}

/// A container that was seen to end is dead at once if a replica of ours names it; where nobody does,
/// its address may have passed to a stranger that lives. A pod that vanished was not seen to end, so
/// its replicas have to have lost it, or all its peers to miss it.
fn fate(stranger: &Stranger<'_>, place: Place<'_>) -> Fate {
    let failing = stranger.rows.iter().all(|row| row.flags.failing());
    let cut_off = stranger.rows.iter().all(|row| !row.connected);
    match place {
        Place::Ended(_) | Place::Another if !stranger.heirs.is_empty() => Fate::Dead,
        Place::Ended(_) | Place::Another if failing || cut_off => Fate::Dead,
        Place::Nobody if failing || has_hung_up(stranger) => Fate::Dead,
        Place::Silent(node) if failing => {
            let long = stranger.silent_seconds() >= SILENT_SECONDS_MAX;
            if long && host(node) == Host::NotReady {
                Fate::Dead
            } else {
                Fate::Failing
            }
        }
        Place::Another | Place::Silent(_) | Place::Ended(_) | Place::Nobody => Fate::Heard,
    }
}

/// Whether it had replicas and none is connected to it. A cut does not end a connection for a minute,
/// the end of a process does at once.
fn has_hung_up(stranger: &Stranger<'_>) -> bool {
    let mut heirs = stranger.heirs.iter();
    !stranger.heirs.is_empty()
        && heirs.all(|heir| matches!(heir.view.role, Role::Replica { linked: false, .. }))
}

fn host(node: &NodeFacts) -> Host {
    match &node.pod {
        PodSighting::Present(pod) => pod.host,
        PodSighting::Absent | PodSighting::Foreign => Host::Unknown,
    }
}

/// Whether a node was asked and kept silent.
#[must_use]
pub fn is_silent(node: &NodeFacts) -> bool {
    matches!(node.sighting, Sighting::Silent(_) | Sighting::LockedOut(_))
}

/// Whether the machine of a node reports trouble or nothing.
#[must_use]
pub fn is_on_lost_machine(node: &NodeFacts) -> bool {
    matches!(host(node), Host::NotReady | Host::Gone)
}
