//! Active clusters in a few words, and what is decided in them. Never a reply, never a manifest.
//!
//! `3x1: a=0/3 b<a | c=1/3 d<c | e=2/3 f<e(unlinked)` is a cluster that should have three shards of one
//! replica each, and has them. Sections are shards, `s4:` begins one with another index, `else:` one of
//! ids that no node has, `stray:` one of pods without a node. Of each node
//!
//! - `=1/3` is the second third of the slots, `=0-99` these; `<a` makes it a replica of `a`;
//! - in brackets are `dead` (its container ended), `vanished` (its pod is gone), `hung=70` (silent to all
//!   for as many seconds), `mute` (silent to us alone), `starting`, `unschedulable`, `blind` (never met),
//!   `unnoticed` (nobody holds it for failing yet), `unlinked`, `unsynced`, `loading`, `at=9` (its
//!   offset), `notok`, `joining` or `joining=shard`, `leaving`, `ending` (its pod is being deleted),
//!   `deleting` (it is itself), `old` (outdated), `machine=lost`, `machine=gone`, `epoch=9`, `counts=9`,
//!   `locked` (it refuses the login), `sees=b<a` (it takes `b` for a replica of `a`),
//!   `knows=b` (its table has `b` besides), `unaware=b` (its table gives `b` no slots), `keys=9`,
//!   `mib=9` (of data), `max=9` (MiB), `moves=0-9>f`, `failed=2@5` (jobs, the last 5 s ago).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use expect_test::{Expect, expect};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{id, resolved, told};
use crate::api::cluster::{ClusterState, Placement, ZoneSpread};
use crate::api::node::{JoinType, Lifecycle, ValkeyNodeSpec};
use crate::decide::decide;
use crate::model::decision::{Action, Verdict};
use crate::model::desired::{Desired, Resolved, Shape, Sourced, TlsOffer};
use crate::model::name::{ConfigName, NodeName, Uid};
use crate::model::slots::{SLOT_COUNT, SlotRange, SlotSet};
use crate::model::tls::{File, Lapse, TlsError, TlsFiles, TlsFlaw};
use crate::model::topology::{
    Load, Member, MemberFlags, Migration, MigrationState, NodeView, Role,
};
use crate::model::why::Why;
use crate::model::world::{
    Host, Keeping, NodeFacts, PodFacts, PodPhase, PodSighting, PodTrouble, Sighting, TlsInUse,
    World,
};

/// Where all clocks stand.
const NOW: i64 = 1000;

/// One node in words.
struct Words {
    name: String,
    place: Place,
    slots: SlotSet,
    of: Option<String>,
    marks: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Shard(u32),
    Stray(u32),
    Nowhere,
}

impl Words {
    fn read(text: &str, place: Place) -> Self {
        let (head, marks) = text.split_once('(').unwrap_or((text, ")"));
        let marks = marks.strip_suffix(')').unwrap().split(',');
        let at = head.find(['=', '<']).unwrap_or(head.len());
        let (name, rest) = head.split_at(at);
        let slots = rest.strip_prefix('=').map(slots).unwrap_or_default();
        Self {
            name: name.to_owned(),
            place,
            slots,
            of: rest.strip_prefix('<').map(str::to_owned),
            marks: marks
                .map(str::to_owned)
                .filter(|mark| !mark.is_empty())
                .collect(),
        }
    }

    fn has(&self, mark: &str) -> bool {
        self.value(mark).is_some()
    }

    /// What is behind the mark's `=`.
    fn value(&self, mark: &str) -> Option<&str> {
        self.marks.iter().find_map(|one| {
            let (name, value) = one.split_once('=').unwrap_or((one, ""));
            (name == mark).then_some(value)
        })
    }

    fn number(&self, mark: &str) -> Option<i64> {
        self.value(mark).map(|value| value.parse().unwrap_or(0))
    }

    fn count(&self, mark: &str) -> u64 {
        u64::try_from(self.number(mark).unwrap_or(0)).unwrap()
    }

    fn is_gone(&self) -> bool {
        self.has("dead") || self.has("vanished")
    }

    fn answers(&self) -> bool {
        let silent = ["hung", "mute", "locked", "starting", "unschedulable"];
        self.place != Place::Nowhere && !self.is_gone() && !silent.iter().any(|mark| self.has(mark))
    }

    fn ip(&self) -> std::net::IpAddr {
        let last = self.name.bytes().fold(0_u8, u8::wrapping_add);
        std::net::Ipv4Addr::new(10, 0, 0, last).into()
    }

    /// The row that everyone has of it.
    fn row(&self) -> Option<Member> {
        let unlisted = ["starting", "unschedulable", "blind"];
        let failing = (self.is_gone() || self.has("hung")) && !self.has("unnoticed");
        (!unlisted.iter().any(|mark| self.has(mark))).then(|| Member {
            id: id(&self.name),
            ip: Some(self.ip()),
            flags: MemberFlags {
                primary: self.of.is_none(),
                suspected: failing,
                ..MemberFlags::default()
            },
            primary: self.of.as_deref().map(id),
            epoch: self.count("epoch"),
            connected: !failing,
            silent_seconds: self.number("hung").unwrap_or(0),
            slots: self.slots.clone(),
        })
    }
}

fn slots(text: &str) -> SlotSet {
    let range = match text.split_once('/') {
        Some((index, shards)) => {
            SlotRange::share(index.parse().unwrap(), shards.parse().unwrap()).unwrap()
        }
        None => range(text),
    };
    SlotSet::of(vec![range])
}

fn range(text: &str) -> SlotRange {
    let (start, end) = text.split_once('-').unwrap_or((text, text));
    SlotRange::new(start.parse().unwrap(), end.parse().unwrap()).unwrap()
}

fn read(text: &str) -> (Shape, Vec<Words>) {
    let (shape, text) = text.split_once(':').unwrap();
    let (shards, replicas) = shape.split_once('x').unwrap();
    let shape = Shape {
        shards: shards.parse().unwrap(),
        replicas: replicas.parse().unwrap(),
    };
    let mut nodes = Vec::new();
    let mut index = 0;
    for section in text
        .split('|')
        .map(str::trim)
        .filter(|section| !section.is_empty())
    {
        let (place, words) = match section.split_once(": ") {
            Some(("else", words)) => (Place::Nowhere, words),
            Some((stray, words)) if stray.starts_with("stray") => {
                (Place::Stray(stray[5..].trim().parse().unwrap()), words)
            }
            Some((shard, words)) => {
                index = shard.strip_prefix('s').unwrap().parse().unwrap();
                (Place::Shard(index), words)
            }
            None => (Place::Shard(index), section),
        };
        if matches!(place, Place::Shard(_)) {
            index += 1;
        }
        nodes.extend(
            words
                .split_whitespace()
                .map(|word| Words::read(word, place)),
        );
    }
    (shape, nodes)
}

/// The World of these words, and what is wanted in it.
pub(crate) fn world(text: &str) -> (World, Desired) {
    let (shape, words) = read(text);
    let rows: Vec<Member> = words.iter().filter_map(Words::row).collect();
    let (mut world, desired) = super::world(&format!("active {}x{}", shape.shards, shape.replicas));
    world.now = NOW;
    world.cluster.status.state = ClusterState::Active;
    for node in &words {
        let alive = |of: &String| words.iter().any(|one| one.name == *of && one.answers());
        let linked =
            node.of.as_ref().is_some_and(alive) && !node.has("unlinked") && !node.has("unsynced");
        let mut facts = facts(node);
        if node.answers() {
            facts.sighting = Sighting::Answered(view(node, &rows, linked));
        }
        let all = match node.place {
            Place::Shard(_) => &mut world.nodes,
            Place::Stray(_) => &mut world.strays,
            Place::Nowhere => continue,
        };
        all.insert(facts.name.clone(), facts);
    }
    (world, desired)
}

fn facts(node: &Words) -> NodeFacts {
    let uid = Uid::new(format!("pod-{}", node.name));
    let pending = node.has("starting") || node.has("unschedulable");
    let trouble = if node.has("dead") {
        Some(PodTrouble::Ended(
            "its container exited with code 137".into(),
        ))
    } else if node.has("unschedulable") {
        Some(PodTrouble::Unschedulable("0/3 nodes available".into()))
    } else {
        None
    };
    let pod = PodFacts {
        uid: uid.clone(),
        phase: match (node.has("dead"), pending) {
            (true, _) => PodPhase::Ended,
            (_, true) => PodPhase::Pending,
            (false, false) => PodPhase::Running,
        },
        ip: (!pending).then(|| node.ip()),
        host: match node.value("machine") {
            Some("lost") => Host::NotReady,
            Some("gone") => Host::Gone,
            Some(_) | None => Host::Ready,
        },
        deleting: node.has("ending"),
        trouble,
        annotations: BTreeMap::new(),
    };
    let shard_index = match node.place {
        Place::Shard(index) | Place::Stray(index) => index,
        Place::Nowhere => 0,
    };
    let resolved = resolved();
    NodeFacts {
        name: NodeName::new(&*node.name),
        uid: Uid::new(format!("node-{}", node.name)),
        spec: ValkeyNodeSpec {
            shard_index,
            image: if node.has("old") {
                "valkey:8"
            } else {
                "valkey:9"
            }
            .into(),
            lifecycle: if node.has("joining") {
                Lifecycle::Joining
            } else if node.has("leaving") {
                Lifecycle::Leaving
            } else {
                Lifecycle::Active
            },
            ..ValkeyNodeSpec::default()
        },
        deleting: node.has("deleting") || matches!(node.place, Place::Stray(_)),
        finalizer: true,
        foreign_finalizer: None,
        stamp: Some(uid),
        join: node.value("joining").and_then(JoinType::of),
        settings_digest: Some(resolved.settings_digest()),
        config_map: Keeping::Ours(()),
        pod: if node.has("vanished") {
            PodSighting::Absent
        } else {
            PodSighting::Present(pod)
        },
        sighting: sighting(node),
    }
}

/// Of one that gives no account.
fn sighting(node: &Words) -> Sighting {
    if node.has("hung") || node.has("mute") {
        Sighting::Silent("connection refused".into())
    } else if node.has("locked") {
        Sighting::LockedOut("WRONGPASS".into())
    } else {
        Sighting::NotAsked
    }
}

fn view(node: &Words, rows: &[Member], linked: bool) -> NodeView {
    let mut members = if node.has("blind") {
        let seen = Words {
            marks: Vec::new(),
            name: node.name.clone(),
            place: node.place,
            slots: node.slots.clone(),
            of: None,
        };
        seen.row().into_iter().collect()
    } else {
        rows.to_vec()
    };
    let besides = node
        .value("knows")
        .map(|who| Words::read(who, Place::Nowhere));
    members.extend(besides.and_then(|who| who.row()));
    for row in &mut members {
        row.flags.myself = row.id == id(&node.name);
        if let Some((who, of)) = node.value("sees").and_then(|told| told.split_once('<'))
            && row.id == id(who)
        {
            row.flags.primary = false;
            row.primary = Some(id(of));
        }
        if node.value("unaware").is_some_and(|who| row.id == id(who)) {
            row.slots = SlotSet::default();
        }
    }
    let owned = members.iter().map(|row| &row.slots);
    let owned = owned.fold(SlotSet::default(), |all, slots| all.union(slots));
    let owned = owned.count();
    let size = members.iter().filter(|row| !row.slots.is_empty()).count();
    let offset = if node.has("unsynced") {
        1
    } else {
        node.number("at")
            .map_or(100, |at| u64::try_from(at).unwrap())
    };
    NodeView {
        id: id(&node.name),
        cluster_ok: !node.has("notok") && owned == SLOT_COUNT,
        slots_assigned: node
            .number("counts")
            .map_or(owned, |n| u32::try_from(n).unwrap()),
        known_nodes: u32::try_from(members.len()).unwrap(),
        size: u32::try_from(size).unwrap(),
        current_epoch: 9,
        my_epoch: node.count("epoch"),
        role: match node.of {
            Some(_) => Role::Replica { linked, offset },
            None => Role::Primary { offset },
        },
        members,
        loading: node.has("loading"),
        failing_over: node.has("pausing"),
        load: Load {
            keys: node.count("keys"),
            data_bytes: node.count("mib") << 20,
            used_bytes: node.count("mib") << 20,
            max_bytes: node.count("max") << 20,
        },
        clock: NOW,
        migrations: migrations(node),
    }
}

fn migrations(node: &Words) -> Vec<Migration> {
    let job = |slots: SlotRange, target: &str, state: MigrationState, ago: i64| Migration {
        outgoing: true,
        state,
        slots: SlotSet::of(vec![slots]),
        target: Some(id(target)),
        updated: NOW - ago,
        message: "out of memory".into(),
    };
    let mut jobs = Vec::new();
    if let Some((slots, target)) = node.value("moves").and_then(|told| told.split_once('>')) {
        jobs.push(job(range(slots), target, MigrationState::Running, 0));
    }
    if let Some((count, ago)) = node.value("failed").and_then(|told| told.split_once('@')) {
        let failed = job(
            range("0"),
            "x",
            MigrationState::Failed,
            ago.parse().unwrap(),
        );
        jobs.extend(vec![failed; count.parse().unwrap()]);
        jobs.push(job(range("0"), "x", MigrationState::Succeeded, 500));
    }
    jobs
}

#[expect(clippy::needless_pass_by_value, reason = "expect! reads best inline")]
fn check(text: &str, expected: Expect) {
    let (world, desired) = world(text);
    let decision = decide(&world, &desired);
    let mut line = told(&decision)
        .replace("ValkeyId(\"", "")
        .replace("Some(", "(");
    for note in &decision.notes {
        write!(line, "\nnote: {note}").unwrap();
    }
    expected.assert_eq(&line);
}

const WHOLE: &str = "a=0/3 b<a | c=1/3 d<c | e=2/3 f<e";

#[test]
fn a_whole_cluster_is_left_alone() {
    check(&format!("3x1: {WHOLE}"), expect!["pass"]);
    check("1x0: a=0/1", expect!["pass"]);
    check(
        "3x1: s0: a=0/3 b<a | s2: c=1/3 d<c | s7: e=2/3 f<e",
        expect!["pass"],
    );
}

#[test]
fn a_dead_primary_is_waited_for_while_its_replica_can_be_elected() {
    check(
        "3x1: a=0/3(dead) b<a | c=1/3 d<c | e=2/3 f<e",
        expect!["hold: primary id-a is dead, its replica b stands for election"],
    );
    check(
        "3x1: a=0/3(dead,unnoticed) b<a | c=1/3 d<c | e=2/3 f<e",
        expect!["hold: primary id-a is dead, its replica b stands for election"],
    );
    check(
        "3x1: a=0/3(vanished) b<a | c=1/3 d<c | e=2/3 f<e",
        expect!["take DeleteNode(a): node a is dead: its pod is gone"],
    );
    check(
        "3x1: a=0/3(hung=8) b<a | c=1/3 d<c | e=2/3 f<e",
        expect!["hold: primary id-a is dead, its replica b stands for election"],
    );
    // Of two the one that is further is named.
    check(
        "3x2: a=0/3(dead) b<a(at=7) x<a(at=9) | c=1/3 d<c y<c | e=2/3 f<e z<e",
        expect!["hold: primary id-a is dead, its replica x stands for election"],
    );
}

#[test]
fn elections_that_are_lost_for_a_minute_are_forced() {
    check(
        "3x1: a=0/3(hung=61) b<a | c=1/3 d<c | e=2/3 f<e",
        expect![
            "take ForceFailover(b): primary id-a is dead, and no election of its replica was won for a minute"
        ],
    );
    check(
        "3x1: a=0/3(dead,hung=61) b<a | c=1/3 d<c | e=2/3 f<e",
        expect![
            "take ForceFailover(b): primary id-a is dead, and no election of its replica was won for a minute"
        ],
    );
}

#[test]
fn another_shards_repair_goes_on_meanwhile() {
    check(
        "3x1: a=0/3(dead) b<a | c=1/3 | e=2/3 f<e",
        expect!["take CreateNode(shard (1), (Replica)): shard 1 has 1 of 2 nodes"],
    );
    check(
        "3x1: a=0/3(dead) b<a | c=1/3(dead) d<c | e=2/3 f<e",
        expect![
            "take Takeover(b): primary id-a is dead, and too few primaries are left to elect its replica"
        ],
    );
}

#[test]
fn without_a_quorum_the_furthest_replica_takes_over() {
    check(
        "1x1: a=0/1(dead) b<a",
        expect![
            "take Takeover(b): primary id-a is dead, and too few primaries are left to elect its replica"
        ],
    );
    check(
        "1x1: a=0/1(dead,unnoticed) b<a",
        expect![
            "take Takeover(b): primary id-a is dead, and too few primaries are left to elect its replica"
        ],
    );
    check(
        "1x2: a=0/1(dead) b<a(at=7) x<a(at=9)",
        expect![
            "take Takeover(x): primary id-a is dead, and too few primaries are left to elect its replica"
        ],
    );
    check(
        "1x2: a=0/1(dead) b<a x<a",
        expect![
            "take Takeover(b): primary id-a is dead, and too few primaries are left to elect its replica"
        ],
    );
    check(
        "1x2: a=0/1(dead) b<a(unsynced) x<a",
        expect![
            "take Takeover(x): primary id-a is dead, and too few primaries are left to elect its replica"
        ],
    );
}

#[test]
fn two_shards_cannot_elect_and_two_of_three_lost_cannot_either() {
    check(
        "2x1: a=0/2(dead) b<a | c=1/2 d<c",
        expect![
            "take Takeover(b): primary id-a is dead, and too few primaries are left to elect its replica"
        ],
    );
    check(
        "2x1: a=0/2(hung=8) b<a | c=1/2 d<c",
        expect![
            "take Takeover(b): primary id-a is dead, and too few primaries are left to elect its replica"
        ],
    );
    check(
        "3x1: a=0/3(dead) b<a | c=1/3(dead) d<c | e=2/3 f<e",
        expect![
            "take Takeover(b): primary id-a is dead, and too few primaries are left to elect its replica"
        ],
    );
    check(
        "1x1: a=0/1(vanished,unnoticed) b<a",
        expect![
            "take Takeover(b): primary id-a is dead, and too few primaries are left to elect its replica"
        ],
    );
    check(
        "1x1: a=0/1(vanished) b<a",
        expect![
            "take Takeover(b): primary id-a is dead, and too few primaries are left to elect its replica"
        ],
    );
    check(
        "1x1: a=0/1(hung=61,machine=lost) b<a",
        expect![
            "take Takeover(b): primary id-a is dead, and too few primaries are left to elect its replica"
        ],
    );
    check(
        "1x1: a=0/1(hung=8,machine=gone) b<a",
        expect![
            "take Takeover(b): primary id-a is dead, and too few primaries are left to elect its replica"
        ],
    );
}

#[test]
fn nobody_takes_over_from_whom_might_serve_elsewhere() {
    // One shard is its own majority.
    check(
        "1x1: a=0/1(hung=8) b<a",
        expect!["hold: the primary of shard 0 does not answer and is not proven dead"],
    );
    check(
        "1x1: a=0/1(hung=8,machine=lost) b<a",
        expect!["hold: the primary of shard 0 does not answer and is not proven dead"],
    );
    check(
        "1x1: a=0/1(mute) b<a",
        expect!["hold: the primary of shard 0 does not answer and is not proven dead"],
    );
    check(
        "2x1: a=0/2(mute) b<a | c=1/2 d<c",
        expect!["hold: the primary of shard 0 does not answer and is not proven dead"],
    );
    // Two of three may be on the other side of a cut.
    check(
        "3x1: a=0/3(hung=8) b<a | c=1/3(hung=8) d<c | e=2/3 f<e",
        expect!["hold: the primary of shard 0 does not answer and is not proven dead"],
    );
    // Out of the operator's sight alone.
    check(
        "3x1: a=0/3(mute) b<a | c=1/3(mute) d<c | e=2/3 f<e",
        expect!["hold: the primary of shard 0 does not answer and is not proven dead"],
    );
    check(
        "3x1: a=0/3(mute) b<a(mute) | c=1/3(mute) d<c(mute) | e=2/3(mute) f<e(mute)",
        expect!["hold: node a does not answer: connection refused"],
    );
}

#[test]
fn a_hung_process_is_given_up_after_a_minute_unless_it_is_the_last_copy() {
    check(
        "1x1: a=0/1(hung=61) b<a",
        expect![
            "take DeleteNode(a): a has been silent to the operator and to its peers for a minute"
        ],
    );
    check(
        "1x0: a=0/1(mute)",
        expect!["hold: node a does not answer: connection refused"],
    );
    check(
        "3x0: a=0/3(hung=61) | c=1/3 | e=2/3",
        expect!["hold: the primary of shard 0 does not answer and is not proven dead"],
    );
    check(
        "3x1: a=0/3 b<a(hung=61) | c=1/3 d<c | e=2/3 f<e",
        expect![
            "take DeleteNode(b): b has been silent to the operator and to its peers for a minute"
        ],
    );
    check(
        "3x1: a=0/3 b<a(hung=59) | c=1/3 d<c | e=2/3 f<e",
        expect!["hold: node b does not answer: connection refused"],
    );
    check(
        "3x1: a=0/3 b<a(mute) | c=1/3 d<c | e=2/3 f<e",
        expect!["hold: node b does not answer: connection refused"],
    );
    check(
        "3x1: a=0/3 b<a(hung=61,machine=lost) | c=1/3 d<c | e=2/3 f<e",
        expect![
            "take DeleteNode(b): b has been silent to the operator and to its peers for a minute"
        ],
    );
    check(
        "3x1: a=0/3 b<a(hung=59,machine=lost) | c=1/3 d<c | e=2/3 f<e",
        expect!["hold: node b does not answer: connection refused"],
    );
    check(
        "3x1: a=0/3 b<a(hung=61,deleting) x<a | c=1/3 d<c | e=2/3 f<e",
        expect!["take Forget(id-b): member id-b is dead and not needed any more"],
    );
    check(
        "3x1: a=0/3 b(mute,blind) | c=1/3 d<c | e=2/3 f<e",
        expect![
            "take DeleteNode(b): b has been silent to the operator and to its peers for a minute"
        ],
    );
    check(
        "3x1: a=0/3 b(mute,blind,joining=replica) | c=1/3 d<c | e=2/3 f<e",
        expect!["hold: node b does not answer: connection refused"],
    );
    // The waker: superseded, and still silent.
    check(
        "3x1: a(hung=20) b=0/3 | c=1/3 d<c | e=2/3 f<e",
        expect!["hold: node a does not answer: connection refused"],
    );
}

#[test]
fn a_shard_without_any_copy_gets_a_fresh_primary_and_its_slots() {
    check(
        "3x1: a=0/3(dead) b<a(dead) | c=1/3 d<c | e=2/3 f<e",
        expect![
            "take Forget(id-a): shard 0 lost every copy of its data with its primary id-a: its slots start empty"
        ],
    );
    check(
        "3x0: a=0/3(vanished) | c=1/3 | e=2/3",
        expect![
            "take Forget(id-a): shard 0 lost every copy of its data with its primary id-a: its slots start empty"
        ],
    );
    check(
        "3x1: a=0/3(dead) b<a(unsynced) | c=1/3 d<c | e=2/3 f<e",
        expect!["take DeleteNode(b): b never had the data of its dead primary"],
    );
    check(
        "3x1: a=0/3(dead) b<a(mute) | c=1/3 d<c | e=2/3 f<e",
        expect!["hold: the primary of shard 0 does not answer and is not proven dead"],
    );
    check(
        "3x1: | s1: c=1/3 d<c | e=2/3 f<e | else: a=0/3(dead)",
        expect![
            "take Forget(id-a): shard 0 lost every copy of its data with its primary id-a: its slots start empty"
        ],
    );
    // Forgotten.
    check(
        "3x1: | s1: c=1/3 d<c | e=2/3 f<e",
        expect!["take CreateNode(shard (0), (Primary)): shard 0 has no primary"],
    );
    check(
        "3x1: x(starting,joining=primary) | s1: c=1/3 d<c | e=2/3 f<e",
        expect!["hold: pod x is not running yet"],
    );
    check(
        "3x1: x(unschedulable,joining=primary,old) | s1: c=1/3 d<c | e=2/3 f<e",
        expect!["take DeleteNode(x): x was still joining when what it is made of changed"],
    );
    check(
        "3x1: x(blind,joining=primary) | s1: c=1/3 d<c | e=2/3 f<e",
        expect!["take Meet { seed: c, newcomer: x }: c does not know x"],
    );
    check(
        "3x1: x(joining=primary) | s1: c=1/3 d<c | e=2/3 f<e",
        expect![[r#"
            take AdoptSlots { primary: x, slots: SlotSet { ranges: [SlotRange { start: 0, end: 5460 }] } }: shard 0 gets slots that nobody owns
            nudge x -> c
            nudge x -> d
            nudge x -> e
            nudge x -> f"#]],
    );
    check(
        "3x1: x(joining=primary) | s1: c=1/3 d<c | e=2/3 f<e(counts=16384)",
        expect!["hold: nodes tell between 10923 and 16384 assigned slots"],
    );
}

#[test]
fn a_fresh_primarys_claim_is_made_the_greatest_before_it_counts() {
    check(
        "3x1: x=0/3(joining=primary) | s1: c=1/3(epoch=2) d<c | e=2/3(epoch=3) f<e",
        expect!["take BumpEpoch(x): the claims of x do not have the greatest epoch"],
    );
    // Of two fresh ones neither has to outbid the other.
    check(
        "3x0: x=0/3(joining=primary,epoch=4) | y=1/3(joining=primary,epoch=5) | e=2/3(epoch=3)",
        expect!["take CompleteJoin(x): x has all that its shard has"],
    );
    check(
        "3x1: x=0/3(joining=primary,epoch=4,notok) | s1: c=1/3(epoch=2) d<c | e=2/3(epoch=3) f<e",
        expect!["take CreateNode(shard (0), (Replica)): shard 0 has 1 of 2 nodes"],
    );
    check(
        "3x1: x=0/3(joining=primary,epoch=4) | s1: c=1/3(epoch=2) d<c | e=2/3(epoch=3) f<e(counts=9)",
        expect!["take CreateNode(shard (0), (Replica)): shard 0 has 1 of 2 nodes"],
    );
    check(
        "3x1: x=0/3(joining=primary,epoch=4) | s1: c=1/3(epoch=2) d<c | e=2/3(epoch=3) f<e",
        expect!["take CompleteJoin(x): x has all that its shard has"],
    );
    check(
        "3x1: x=0/3(epoch=4) | s1: c=1/3 d<c | e=2/3 f<e",
        expect!["take CreateNode(shard (0), (Replica)): shard 0 has 1 of 2 nodes"],
    );
}

#[test]
fn two_lost_shards_share_what_nobody_owns() {
    check(
        "3x0: | s2: e=2/3",
        expect!["take CreateNode(shard (0), (Primary)): shard 0 has no primary"],
    );
    check(
        "3x0: x(joining=primary) | s2: e=2/3",
        expect![[r#"
        take AdoptSlots { primary: x, slots: SlotSet { ranges: [SlotRange { start: 0, end: 5460 }] } }: shard 0 gets slots that nobody owns
        nudge x -> e"#]],
    );
    check(
        "3x0: x=0/3(joining=primary,epoch=4) | s2: e=2/3",
        expect!["take CreateNode(shard (1), (Primary)): shard 1 has no primary"],
    );
}

#[test]
fn slots_that_a_hand_took_away_are_given_back() {
    check(
        "3x0: a=0-100 | c=1/3 | e=2/3",
        expect![[r#"
        take AdoptSlots { primary: a, slots: SlotSet { ranges: [SlotRange { start: 101, end: 5460 }] } }: shard 0 gets slots that nobody owns
        nudge a -> c
        nudge a -> e"#]],
    );
    // The others believe in an owner that was reset until somebody claims its slots.
    let (mut world, desired) = world("3x0: a | c=1/3 | e=2/3");
    for node in world.nodes.values_mut() {
        let Sighting::Answered(view) = &mut node.sighting else {
            panic!("all answer");
        };
        view.slots_assigned = view.members.iter().map(|row| row.slots.count()).sum();
        if view.id.as_str() != "id-a" {
            let row = view
                .members
                .iter_mut()
                .find(|row| row.id.as_str() == "id-a");
            row.unwrap().slots = SlotSet::of(SlotRange::share(0, 3).into_iter().collect());
            view.slots_assigned = SLOT_COUNT;
        }
    }
    let expected = expect![[r#"
        take AdoptSlots { primary: a, slots: SlotSet { ranges: [SlotRange { start: 0, end: 5460 }] } }: shard 0 gets slots that nobody owns
        nudge a -> c
        nudge a -> e"#]];
    expected.assert_eq(&told(&decide(&world, &desired)));
}

#[test]
fn a_cluster_of_which_nothing_is_left_is_formed_anew() {
    check(
        "3x1: a(dead) b(vanished) | c(vanished) d(vanished)",
        expect!["take DeleteNode(a): node a is dead: its container exited with code 137"],
    );
    check(
        "3x1: a(vanished,deleting)",
        expect![
            "take Snapshot(Shape { shards: 3, replicas: 1 }): every node is gone and all data with them: the cluster starts empty"
        ],
    );
    check(
        "3x1:",
        expect![
            "take Snapshot(Shape { shards: 3, replicas: 1 }): every node is gone and all data with them: the cluster starts empty"
        ],
    );
    check(
        "1x1: a=0/1(dead) b<a(unsynced)",
        expect!["take DeleteNode(b): b never had the data of its dead primary"],
    );
    // Whoever is only silent may have everything.
    check(
        "1x1: a(dead) b<a(mute)",
        expect!["take DeleteNode(a): node a is dead: its container exited with code 137"],
    );
    check(
        "1x0: a(mute,machine=lost)",
        expect!["hold: node a does not answer: connection refused"],
    );
}

#[test]
fn only_the_dead_are_forgotten() {
    check(
        "1x1: a=0/1 b<a | else: z(dead)",
        expect!["take Forget(id-z): member id-z is dead and not needed any more"],
    );
    check(
        "1x1: a=0/1 b<a | else: z",
        expect![[r#"
            hold: member id-z is alive and no node of this cluster: it is left alone"#]],
    );
    // It may wake; its node is there.
    check(
        "3x1: a=0/3 b<a z<a(hung=20) | c=1/3 d<c | e=2/3 f<e",
        expect!["hold: node z does not answer: connection refused"],
    );
    check(
        "3x1: a(dead) b=0/3 | c=1/3 d<c | e=2/3 f<e",
        expect!["take Forget(id-a): member id-a is dead and not needed any more"],
    );
    check(
        "3x1: a(vanished) b=0/3 | c=1/3 d<c | e=2/3 f<e",
        expect!["take Forget(id-a): member id-a is dead and not needed any more"],
    );
    check(
        "3x1: b=0/3 | c=1/3 d<c | e=2/3 f<e | stray0: a(mute)",
        expect!["take CreateNode(shard (0), (Replica)): shard 0 has 1 of 2 nodes"],
    );
    check(
        "3x1: b=0/3 x<b | c=1/3 d<c | e=2/3 f<e | stray0: a(hung=8)",
        expect!["take Forget(id-a): member id-a is dead and not needed any more"],
    );
    // A live replica still names it.
    check(
        "3x1: a(dead) b=0/3 x<a | c=1/3 d<c | e=2/3 f<e",
        expect!["take Replicate { replica: x, primary: b }: x does not replicate b"],
    );
}

#[test]
fn nodes_that_ended_are_cleared_away_once_nobody_lists_them() {
    check(
        "1x1: a=0/1 b<a x(dead,blind)",
        expect!["take DeleteNode(x): node x is dead: its container exited with code 137"],
    );
    check(
        "1x1: a=0/1 b<a x(vanished,blind)",
        expect!["take DeleteNode(x): node x is dead: its pod is gone"],
    );
    check("1x1: a=0/1 b<a x(dead,blind,deleting)", expect!["pass"]);
}

#[test]
fn a_process_that_outlives_its_node_is_no_member() {
    check(
        "1x1: a=0/1 b<a | stray0: x<a(machine=lost)",
        expect!["take Reset(x): the process of x outlived its node"],
    );
    check("1x1: a=0/1 b<a | stray0: x<a", expect!["pass"]);
    check(
        "1x1: a=0/1 b<a | stray0: x(machine=lost,blind)",
        expect!["pass"],
    );
    // Its slots first.
    check(
        "1x1: b<x | stray0: x=0/1(machine=lost)",
        expect!["take Failover(b): primary x is on its way out"],
    );
}

#[test]
fn a_primary_whose_machine_is_lost_hands_over_while_it_can() {
    check(
        "1x1: a=0/1(ending,machine=lost) b<a",
        expect!["take Failover(b): primary a is on its way out"],
    );
    check(
        "1x1: a=0/1(ending,machine=lost) b<a x<a",
        expect!["take Failover(b): primary a is on its way out"],
    );
    check(
        "1x1: a=0/1(ending) b<a x<a",
        expect!["hold: primary a is on its way out"],
    );
    check(
        "1x0: a=0/1(ending)",
        expect!["take CreateNode(shard (0), (Replica)): shard 0 has 0 of 1 nodes"],
    );
}

#[test]
fn a_missing_replica_is_made_met_attached_synced_and_counted() {
    check(
        "1x1: a=0/1",
        expect!["take CreateNode(shard (0), (Replica)): shard 0 has 1 of 2 nodes"],
    );
    check(
        "1x1: a=0/1 b<a(dead,blind)",
        expect!["take DeleteNode(b): node b is dead: its container exited with code 137"],
    );
    check(
        "1x1: a=0/1 b<a(ending)",
        expect!["take CreateNode(shard (0), (Replica)): shard 0 has 1 of 2 nodes"],
    );
    check(
        "1x1: a=0/1 x(starting,joining=replica)",
        expect!["hold: pod x is not running yet"],
    );
    // Scheduled to a machine that was lost a moment later.
    check(
        "1x1: a=0/1 x(starting,joining=replica,machine=lost)",
        expect![
            "take DeleteNode(x): node x ended before it had joined: it was to start on a machine that no longer reports"
        ],
    );
    check(
        "1x1: a=0/1 x(unschedulable,joining=replica)",
        expect!["hold: pod x cannot be scheduled: 0/3 nodes available"],
    );
    check(
        "1x1: a=0/1 x(blind,joining=replica)",
        expect!["take Meet { seed: a, newcomer: x }: a does not know x"],
    );
    check(
        "1x1: a=0/1 x(joining=replica)",
        expect!["take Replicate { replica: x, primary: a }: x does not replicate a"],
    );
    check(
        "1x1: a=0/1 x<a(joining=replica,unsynced)",
        expect!["hold: replica x has not finished its first sync"],
    );
    check(
        "1x1: a=0/1 x<a(joining=replica)",
        expect!["take CompleteJoin(x): x has all that its shard has"],
    );
    check(
        "1x1: a=0/1(joining=replica) x<a",
        expect!["take CompleteJoin(a): a has all that its shard has"],
    );
    // A hand attached it elsewhere.
    check(
        "2x1: a=0/2 b<c | c=1/2 d<c",
        expect!["take Replicate { replica: b, primary: a }: b does not replicate a"],
    );
}

#[test]
fn who_takes_its_primary_for_a_replica_is_told_first() {
    check(
        "1x1: b=0/1 c<a(sees=b<a) | else: a(dead)",
        expect![[r"
            hold: c does not know b as a primary yet
            nudge b -> c"]],
    );
}

#[test]
fn a_newcomer_with_settings_of_another_hand_is_made_anew() {
    check(
        "1x1: a=0/1 x(locked,blind,joining=replica)",
        expect!["take DeleteNode(x): node x ended before it had joined: WRONGPASS"],
    );
    // A member may be let in again by whoever shut it, and has data.
    check(
        "1x1: a=0/1 x<a(locked,joining=replica)",
        expect!["hold: node x does not answer: WRONGPASS"],
    );
    check(
        "1x1: a=0/1 x<a(locked)",
        expect!["hold: node x does not answer: WRONGPASS"],
    );
}

#[test]
fn a_bad_spec_never_blocks_its_own_correction() {
    check(
        "1x1: a=0/1 x(unschedulable,joining=replica,old)",
        expect!["take DeleteNode(x): x was still joining when what it is made of changed"],
    );
    check(
        "1x1: a=0/1 x(dead,blind,joining=replica)",
        expect![
            "take DeleteNode(x): node x ended before it had joined: its container exited with code 137"
        ],
    );
    check(
        "1x1: a=0/1 b<a x(unschedulable,joining=replica,old)",
        expect!["take DeleteNode(x): x was still joining when what it is made of changed"],
    );
    check(
        "1x1: a=0/1(joining=replica,old) b<a",
        expect!["take CompleteJoin(a): a has all that its shard has"],
    );
}

#[test]
fn planned_work_waits_for_a_whole_cluster() {
    check(
        "2x1: a=0/2 b<a | c=1/2 d<c(notok) y<c",
        expect!["hold: d does not report cluster_state ok"],
    );
    check(
        "2x1: a=0/2 b<a | c=1/2 d<c(counts=9) y<c",
        expect!["hold: nodes tell between 9 and 16384 assigned slots"],
    );
    check(
        "2x1: a=0/2 b<a | c=1/2 d<c(mute) y<c",
        expect!["hold: node d does not answer: connection refused"],
    );
}

#[test]
fn a_shard_is_added_whole_before_it_gets_a_slot() {
    check(
        &format!("4x1: {WHOLE}"),
        expect!["take CreateNode(shard (3), (Shard)): the cluster has 3 of 4 shards"],
    );
    check(
        &format!("4x1: {WHOLE} | x(starting,joining=shard)"),
        expect!["take CreateNode(shard (3), (Shard)): shard 3 has 1 of 2 nodes"],
    );
    check(
        &format!("4x1: {WHOLE} | x(blind,joining=shard) y(starting,joining=shard)"),
        expect!["take Meet { seed: a, newcomer: x }: a does not know x"],
    );
    check(
        &format!("4x1: {WHOLE} | x(joining=shard) y(blind,joining=shard)"),
        expect!["take Meet { seed: x, newcomer: y }: x does not know y"],
    );
    check(
        &format!("4x1: {WHOLE} | x(joining=shard) y(joining=shard)"),
        expect!["take Replicate { replica: y, primary: x }: y does not replicate x"],
    );
    check(
        &format!("4x1: {WHOLE} | x(joining=shard) y<x(joining=shard,unsynced)"),
        expect!["hold: replica y has not finished its first sync"],
    );
    check(
        &format!("4x1: {WHOLE} | x(joining=shard) y<x(joining=shard)"),
        expect!["take CompleteJoin(y): y has all that its shard has"],
    );
    check(
        &format!("4x1: {WHOLE} | x(joining=shard,notok) y<x"),
        expect!["hold: x does not report cluster_state ok"],
    );
    check(
        &format!("4x1: {WHOLE} | x(joining=shard) y<x"),
        expect!["take CompleteJoin(x): x has all that its shard has"],
    );
    // The lowest index that is free, and several at once.
    check(
        "4x0: a=0/3 | s2: c=1/3 | s3: e=2/3",
        expect!["take CreateNode(shard (1), (Shard)): the cluster has 3 of 4 shards"],
    );
    check(
        "5x0: a=0/3 | c=1/3 | e=2/3 | x(starting,joining=shard)",
        expect!["take CreateNode(shard (4), (Shard)): the cluster has 4 of 5 shards"],
    );
}

#[test]
fn slots_move_in_batches_from_each_source_at_once() {
    check(
        "2x0: a=0/1 | x",
        expect![
            "take Migrate(Batch { source: a, target: x, slots: SlotSet { ranges: [SlotRange { start: 8192, end: 16383 }] } }): shard 0 has more than its share of slots, shard 1 has less"
        ],
    );
    check(
        "4x0: a=0/3 | c=1/3 | e=2/3 | x",
        expect![
            "take Migrate(Batch { source: a, target: x, slots: SlotSet { ranges: [SlotRange { start: 4096, end: 5460 }] } }): shard 0 has more than its share of slots, shard 3 has less"
        ],
    );
    check(
        "4x0: a=0/3(moves=4000-5460>x) | c=1/3 | e=2/3 | x",
        expect![
            "take Migrate(Batch { source: c, target: x, slots: SlotSet { ranges: [SlotRange { start: 9557, end: 10921 }] } }): shard 1 has more than its share of slots, shard 3 has less"
        ],
    );
    check(
        "4x0: a=0/3(moves=4096-5460>x) | c=1/3(moves=9000-10365>x) | e=2/3(moves=15000-16364>x) | x",
        expect!["hold: slots are on their way from a"],
    );
    check(
        "2x0: a=0/1(keys=1000000,mib=100) | x",
        expect![
            "take Migrate(Batch { source: a, target: x, slots: SlotSet { ranges: [SlotRange { start: 15565, end: 16383 }] } }): shard 0 has more than its share of slots, shard 1 has less"
        ],
    );
    check(
        "2x0: a=0/1(keys=1000,mib=4000) | x",
        expect![
            "take Migrate(Batch { source: a, target: x, slots: SlotSet { ranges: [SlotRange { start: 16180, end: 16383 }] } }): shard 0 has more than its share of slots, shard 1 has less"
        ],
    );
    // Not before it serves, knows the owner and has its replicas.
    check(
        "2x0: a=0/1 | x(notok)",
        expect!["hold: x does not report cluster_state ok"],
    );
    check(
        "2x0: a=0/1 | x(blind)",
        expect!["hold: nodes tell between 0 and 16384 assigned slots"],
    );
    // Within one slot nothing moves.
    check(
        "2x0: a=0-8190 | c=8191-16383",
        expect![
            "take Migrate(Batch { source: c, target: a, slots: SlotSet { ranges: [SlotRange { start: 16383, end: 16383 }] } }): shard 1 has more than its share of slots, shard 0 has less"
        ],
    );
    check("2x0: a=0-8191 | c=8192-16383", expect!["pass"]);
}

#[test]
fn failed_migrations_are_tried_smaller_and_later() {
    check(
        "2x0: a=0/1(keys=1000000,mib=100,failed=1@1) | x",
        expect![
            "hold: the last 1 migrations from a failed, retrying smaller and later: out of memory"
        ],
    );
    check(
        "2x0: a=0/1(keys=1000000,mib=100,failed=1@2) | x",
        expect![
            "take Migrate(Batch { source: a, target: x, slots: SlotSet { ranges: [SlotRange { start: 15975, end: 16383 }] } }): shard 0 has more than its share of slots, shard 1 has less"
        ],
    );
    check(
        "2x0: a=0/1(keys=1000000,mib=100,failed=9@59) | x",
        expect![
            "hold: the last 9 migrations from a failed, retrying smaller and later: out of memory"
        ],
    );
    check(
        "2x0: a=0/1(keys=1000000,mib=100,failed=9@60) | x",
        expect![
            "take Migrate(Batch { source: a, target: x, slots: SlotSet { ranges: [SlotRange { start: 16383, end: 16383 }] } }): shard 0 has more than its share of slots, shard 1 has less"
        ],
    );
}

#[test]
fn a_shard_too_many_is_drained_over_those_that_stay() {
    check(
        "2x0: a=0/3 | c=1/3 | e=2/3",
        expect![
            "take Migrate(Batch { source: c, target: a, slots: SlotSet { ranges: [SlotRange { start: 8191, end: 10921 }] } }): shard 1 has more than its share of slots, shard 0 has less"
        ],
    );
    check(
        "2x0: a=0-99 | c=100-9999 | e=10000-16383",
        expect![
            "take Migrate(Batch { source: a, target: e, slots: SlotSet { ranges: [SlotRange { start: 0, end: 99 }] } }): shard 0 has more than its share of slots, shard 2 has less"
        ],
    );
    check(
        "2x0: a=0/3 | c=1/3 | e=10923-12000 | s5: g=12001-16383",
        expect![[r#"
            take AdoptSlots { primary: e, slots: SlotSet { ranges: [SlotRange { start: 10922, end: 10922 }] } }: shard 2 gets slots that nobody owns
            nudge e -> a
            nudge e -> c
            nudge e -> g"#]],
    );
    // It does not fit.
    check(
        "1x0: a=0/2(mib=80,max=100,keys=9) | c=1/2(mib=30,max=100,keys=9)",
        expect![
            "hold: a drain of 30 MiB does not fit into the 20 MiB that are free below maxmemory in the shards that stay"
        ],
    );
    // A roll may be what makes the room.
    check(
        "1x0: a=0/2(mib=80,max=100,keys=9,old) | c=1/2(mib=30,max=100,keys=9)",
        expect!["take CreateNode(shard (0), (Replica)): a is outdated"],
    );
    check(
        "1x0: a=0/2(mib=60,max=100,keys=9) | c=1/2(mib=30,max=100,keys=9)",
        expect![
            "take Migrate(Batch { source: c, target: a, slots: SlotSet { ranges: [SlotRange { start: 8192, end: 16383 }] } }): shard 1 has more than its share of slots, shard 0 has less"
        ],
    );
}

#[test]
fn a_drained_shard_leaves_replicas_first() {
    check(
        "1x1: a=0/1 b<a | c d<c",
        expect!["take Leave(d): shard 1 is not wanted any more and owns no slot"],
    );
    check(
        "1x1: a=0/1 b<a | c d<c(leaving)",
        expect!["take DeleteNode(d): shard 1 is not wanted any more and owns no slot"],
    );
    check(
        "1x1: a=0/1 b<a | c(leaving) d<c(leaving)",
        expect!["take DeleteNode(d): shard 1 is not wanted any more and owns no slot"],
    );
    check(
        "1x1: a=0/1 b<a | c(leaving) d<c(leaving,deleting)",
        expect!["take DeleteNode(c): shard 1 is not wanted any more and owns no slot"],
    );
    check("1x1: a=0/1 b<a | c(leaving,deleting)", expect!["pass"]);
    check(
        "1x1: a=0/1(moves=0-9>c) b<a | c d<c",
        expect!["hold: slots are on their way from c"],
    );
    // It has not heard yet that its slots are another's.
    check(
        "1x1: a=0/1(epoch=9) b<a | c=8192-16383 d<c",
        expect!["hold: not every member knows c for what it is yet"],
    );
    // What began to leave leaves, and another comes.
    check(
        "2x1: a=0/1 b<a | c d<c(leaving)",
        expect!["take DeleteNode(d): shard 1 is not wanted any more and owns no slot"],
    );
    // A shard that was never finished.
    check(
        "1x1: a=0/1 b<a | x(joining=shard,blind) y(joining=shard,starting)",
        expect!["take Leave(y): shard 1 is not wanted any more and owns no slot"],
    );
    // An undone drain goes back.
    check(
        "2x0: a=0-16000 | c=16001-16383",
        expect![
            "take Migrate(Batch { source: a, target: c, slots: SlotSet { ranges: [SlotRange { start: 8192, end: 16000 }] } }): shard 0 has more than its share of slots, shard 1 has less"
        ],
    );
}

#[test]
fn a_roll_replaces_one_node_after_the_other() {
    check(
        "2x1: a=0/2(old) b<a(old) | c=1/2(old) d<c(old)",
        expect!["take CreateNode(shard (0), (Replica)): a is outdated"],
    );
    check(
        "2x1: a=0/2(old) b<a(old) x(starting,joining=replica) | c=1/2(old) d<c(old)",
        expect!["hold: pod x is not running yet"],
    );
    check(
        "2x1: a=0/2(old) b<a(old) x<a | c=1/2(old) d<c(old)",
        expect!["take DeleteNode(b): b is outdated"],
    );
    check(
        "2x1: a=0/2(old) b<a(deleting) x<a | c=1/2(old) d<c(old)",
        expect!["take CreateNode(shard (0), (Replica)): a is outdated"],
    );
    check(
        "2x1: a=0/2(old) x<a y<a(at=99) | c=1/2(old) d<c(old)",
        expect!["take Failover(x): a is outdated"],
    );
    check(
        "2x1: a<x(old) x=0/2 y<x | c=1/2(old) d<c(old)",
        expect!["take DeleteNode(a): a is outdated"],
    );
    check(
        "2x1: x=0/2 y<x | c=1/2(old) d<c(old)",
        expect!["take CreateNode(shard (1), (Replica)): c is outdated"],
    );
    check(
        "2x1: x=0/2 y<x | c=1/2 d<c(old)",
        expect!["take CreateNode(shard (1), (Replica)): d is outdated"],
    );
    // The shard in motion first.
    check(
        "2x1: a=0/2(old) b<a | c=1/2(old) d<c y<c",
        expect!["take Failover(d): c is outdated"],
    );
    // Not while another shard is not whole.
    check(
        "2x1: a=0/2(old) b<a(old) | c=1/2 d<c(unlinked)",
        expect!["hold: replica d has not finished its first sync"],
    );
}

#[test]
fn without_replicas_the_successor_has_the_data_before_the_primary_goes() {
    check(
        "1x0: a=0/1(old)",
        expect!["take CreateNode(shard (0), (Replica)): a is outdated"],
    );
    check(
        "1x0: a=0/1(old) x<a(joining=replica,unsynced)",
        expect!["hold: replica x has not finished its first sync"],
    );
    check(
        "1x0: a=0/1(old) x<a",
        expect!["take Failover(x): a is outdated"],
    );
    check(
        "1x0: a<x(old) x=0/1",
        expect!["take DeleteNode(a): a is outdated"],
    );
    check("1x0: x=0/1", expect!["pass"]);
}

/// By value, against what was recorded when the node was made.
#[test]
fn only_what_makes_a_node_what_it_is_makes_it_outdated() {
    let sourced = |text: &str| Sourced {
        value: text.to_owned(),
        config: ConfigName::new("c"),
    };
    let quantity = |text: &str| {
        Some(Sourced {
            value: Quantity(text.to_owned()),
            config: ConfigName::new("c"),
        })
    };
    let place = |zones: [&str; 2], label: &str, zone_spread| {
        Some(Placement {
            zones: zones.map(str::to_owned).to_vec(),
            zone_spread: Some(zone_spread),
            node_selector: BTreeMap::from([("disk".to_owned(), label.to_owned())]),
        })
    };
    let made = || Resolved {
        cpu: quantity("1000m"),
        memory: quantity("1Gi"),
        placement: place(["a", "b"], "fast", ZoneSpread::BestEffort),
        ..resolved()
    };
    let rolls = |wanted: Resolved| {
        let (mut world, mut desired) = world("1x0: a=0/1");
        world.cluster.spec.pod_annotations = BTreeMap::from([("new".into(), "1".into())]);
        let node = world.nodes.get_mut(&NodeName::new("a")).unwrap();
        node.spec.cpu = Some(Quantity("1000m".into()));
        node.spec.memory = Some(Quantity("1Gi".into()));
        node.spec.placement = made().placement;
        node.settings_digest = Some(made().settings_digest());
        desired.menu = Ok(wanted);
        let verdict = decide(&world, &desired).verdict;
        matches!(verdict, Verdict::Take(Action::CreateNode(_, _), _))
    };
    let ours = BTreeMap::from([("cluster-node-timeout".to_owned(), "7".to_owned())]);
    let theirs = BTreeMap::from([("hz".to_owned(), sourced("20"))]);
    let spread = ZoneSpread::BestEffort;
    #[rustfmt::skip]
    let table = [
        ("nothing", made(), false),
        ("image", Resolved { image: sourced("valkey:10"), ..made() }, true),
        ("cpu", Resolved { cpu: quantity("2"), ..made() }, true),
        ("cpu in another spelling", Resolved { cpu: quantity("1"), ..made() }, false),
        ("no cpu", Resolved { cpu: None, ..made() }, true),
        ("memory", Resolved { memory: quantity("1G"), ..made() }, true),
        ("memory in another spelling", Resolved { memory: quantity("1024Mi"), ..made() }, false),
        ("a setting", Resolved { user_settings: theirs, ..made() }, true),
        ("a default of ours", Resolved { node_settings: ours, ..made() }, false),
        ("zones", Resolved { placement: place(["a", "c"], "fast", spread), ..made() }, true),
        ("zones in another order", Resolved { placement: place(["b", "a"], "fast", spread), ..made() }, false),
        ("nodeSelector", Resolved { placement: place(["a", "b"], "slow", spread), ..made() }, true),
        ("zoneSpread", Resolved { placement: place(["a", "b"], "fast", ZoneSpread::Required), ..made() }, false),
        ("no placement", Resolved { placement: None, ..made() }, true),
        ("scheduling", Resolved { priority_class: Some("high".into()), pull_secrets: vec!["s".into()], ..made() }, false),
    ];
    for (what, wanted, expected) in table {
        assert_eq!(rolls(wanted), expected, "{what}");
    }
}

#[test]
fn no_node_is_made_that_would_end_at_its_acl_file() {
    let refused = |text: &str| {
        let (mut world, desired) = world(text);
        world.acl_refusal = Some("ERR unknown command".into());
        told(&decide(&world, &desired))
    };
    for (what, text) in [
        ("a roll", "1x0: a=0/1(old)"),
        ("a hand-over", "1x0: a=0/1(old) x<a"),
        ("a replica more", "1x1: a=0/1"),
        ("a shard more", "2x0: a=0/1"),
        ("a shard without a copy", "3x0: | s2: e=2/3"),
    ] {
        assert_eq!(
            refused(text),
            "hold: new nodes wait for an ACL file that running ones accept: ERR unknown command",
            "{what}"
        );
    }
    // What needs no new node goes on.
    let told = refused("1x0: a=0/1 x<a");
    assert!(told.starts_with("take DeleteNode"), "{told}");
}

#[test]
fn a_newcomer_counts_once_every_member_knows_it() {
    let unknown = |text: &str, newcomer: &str| {
        let (mut world, desired) = world(text);
        let node = world.nodes.get_mut(&NodeName::new("c")).unwrap();
        let Sighting::Answered(view) = &mut node.sighting else {
            panic!("c answers")
        };
        view.members.retain(|row| row.id != id(newcomer));
        told(&decide(&world, &desired))
    };
    let expected = "hold: not every member knows x for what it is yet\nnudge x -> c";
    assert_eq!(
        unknown("2x0: a=0/2 x<a(joining=replica) | c=1/2", "x"),
        expected
    );
    assert_eq!(
        unknown("3x0: a=0/2 | c=1/2 | x(joining=shard)", "x"),
        expected
    );
    // It would get no vote.
    assert_eq!(
        unknown("2x0: a=0/2(old) x<a | c=1/2", "x"),
        "hold: not every member knows x for what it is yet\nnudge x -> c"
    );
}

#[test]
fn nobody_is_attached_before_it_knows_what_its_primary_owns() {
    check(
        "1x1: a=0/1 x(joining=replica,unaware=a)",
        expect![[r#"
        hold: x does not know a as a primary yet
        nudge a -> x"#]],
    );
}

#[test]
fn a_stranger_to_all_with_a_slot_is_introduced_to_one() {
    check(
        "2x0: a=0/2 | c=1/2 | s2: x=7-7(blind,joining=shard)",
        expect![[r#"
            hold: not every member knows x for what it is yet
            nudge x -> a"#]],
    );
    // A handshake that has not ended makes it no member.
    let (mut world, desired) = world("2x0: a=0/2 | c=1/2 | s2: x=7-7(blind,joining=shard)");
    let node = world.nodes.get_mut(&NodeName::new("x")).unwrap();
    let Sighting::Answered(view) = &mut node.sighting else {
        panic!("x answers")
    };
    let mut passing = view.members.first().unwrap().clone();
    passing.id = id("passing");
    passing.slots = SlotSet::default();
    passing.flags = MemberFlags {
        handshake: true,
        ..MemberFlags::default()
    };
    view.members.push(passing);
    assert_eq!(
        told(&decide(&world, &desired)),
        "hold: not every member knows x for what it is yet\nnudge x -> a"
    );
}

#[test]
fn a_hand_over_waits_for_a_near_replica_and_for_moves() {
    check(
        "1x0: a=0/1(old,at=9000000) x<a(at=100)",
        expect!["hold: no up-to-date replica of a is near enough to take its place"],
    );
    check(
        "1x0: a=0/1(old,pausing) x<a",
        expect!["hold: a is handing over to a replica"],
    );
}

#[test]
fn replicas_beyond_the_target_go_last_name_first() {
    check(
        "1x1: a=0/1 b<a x<a",
        expect!["take DeleteNode(x): shard 0 has 3 nodes where 2 are wanted"],
    );
    check(
        "1x0: a=0/1 b<a",
        expect!["take DeleteNode(b): shard 0 has 2 nodes where 1 are wanted"],
    );
    // The primary stays whatever its name.
    check(
        "1x1: x=0/1 a<x b<x",
        expect!["take DeleteNode(b): shard 0 has 3 nodes where 2 are wanted"],
    );
    check(
        "1x1: a=0/1 b<a(old) x<a y<a",
        expect!["take DeleteNode(b): b is outdated"],
    );
}

#[test]
fn an_outdated_newcomer_goes_only_where_it_cannot_have_data() {
    // It may have got slots before it fell silent.
    check(
        "2x0: a=0/2 | x(joining=primary,mute,old)",
        expect!["hold: node x does not answer: connection refused"],
    );
    check(
        "2x0: a=0/2(mute) | x(joining=primary,mute,old)",
        expect!["hold: node a does not answer: connection refused"],
    );
    check(
        "1x1: a=0/1(dead) x<a(joining=replica,mute,old)",
        expect!["take DeleteNode(a): node a is dead: its container exited with code 137"],
    );
    check(
        "2x1: a=0/2(mute) x<a(joining=replica,mute,old) | c=1/2 d<c",
        expect!["hold: the primary of shard 0 does not answer and is not proven dead"],
    );
    check(
        "2x0: a=0/2 | x(blind,joining=primary,mute,old)",
        expect!["take DeleteNode(x): x was still joining when what it is made of changed"],
    );
    check(
        "1x1: a=0/1 x<a(joining=replica,mute,old)",
        expect!["take DeleteNode(x): x was still joining when what it is made of changed"],
    );
}

#[test]
fn a_newcomer_that_another_cluster_met_first_is_replaced() {
    check(
        "1x1: a=0/1 x(blind,joining=replica,knows=z)",
        expect![[r#"
            take DeleteNode(x): member id-z of another cluster met x before its own did
            note: member id-z is alive and no node of this cluster: it is left alone"#]],
    );
    check(
        "2x0: a=0/2 | x(blind,joining=primary,knows=z)",
        expect![[r#"
            take DeleteNode(x): member id-z of another cluster met x before its own did
            note: member id-z is alive and no node of this cluster: it is left alone"#]],
    );
    // Its own met it, or are known to it.
    check(
        "1x1: a=0/1 x(joining=replica,knows=z)",
        expect![[r#"
            take Replicate { replica: x, primary: a }: x does not replicate a
            note: member id-z is alive and no node of this cluster: it is left alone"#]],
    );
    check(
        "1x1: a=0/1 x(blind,joining=replica,knows=a)",
        expect!["take Meet { seed: a, newcomer: x }: a does not know x"],
    );
    // Whom another of its own knows is no reason.
    check(
        "1x1: a=0/1 x(blind,joining=replica,knows=z) | else: z(dead)",
        expect!["take Meet { seed: a, newcomer: x }: a does not know x"],
    );
    // Who may have data is never given up for it.
    check(
        "1x1: a=0/1(dead) x<a(joining=replica,knows=z)",
        expect![[r#"
            take Takeover(x): primary id-a is dead, and too few primaries are left to elect its replica
            note: member id-z is alive and no node of this cluster: it is left alone"#]],
    );
    check(
        "1x1: a=0/1 x(blind,knows=z)",
        expect![[r#"
            take Meet { seed: a, newcomer: x }: a does not know x
            note: member id-z is alive and no node of this cluster: it is left alone"#]],
    );
}

#[test]
fn foreign_members_are_left_alone_and_said() {
    check(
        "1x0: a=0/1 | else: z",
        expect![[r#"
            hold: member id-z is alive and no node of this cluster: it is left alone"#]],
    );
    check(
        "2x0: a=0/2 | else: z=1/2",
        expect![[r#"
        hold: the primary of shard 1 does not answer and is not proven dead
        note: member id-z is alive and no node of this cluster: it is left alone"#]],
    );
}

/// What is decided in a formed cluster that is Creating again.
fn again(text: &str, expected: &Expect) {
    let (mut world, desired) = world(text);
    world.cluster.status.state = ClusterState::Creating;
    world.cluster.status.target_spec = Some(world.cluster.spec.clone());
    expected.assert_eq(&told(&decide(&world, &desired)));
}

#[test]
fn a_formed_cluster_passes_through_creating_with_its_repairs() {
    again(
        "1x1: a=0/1(dead) b<a",
        &expect![
            "take Takeover(b): primary id-a is dead, and too few primaries are left to elect its replica"
        ],
    );
    again(
        "1x1: a=0/1",
        &expect!["take CreateNode(shard (0), Some(Replica)): shard 0 has 1 of 2 nodes"],
    );
    again(
        "1x1: a=0/1 b<a",
        &expect!["take Activate([]): every node reports the whole cluster healthy"],
    );
}

/// What had not moved yet was waited for, for ever: its shard had an owner all the same.
#[test]
fn a_primary_that_dies_while_its_slots_move_to_its_successor_is_given_up() {
    check(
        "3x0: a=6-5460(dead) b=0-5 | c=1/3 | d=2/3",
        expect![
            "take Forget(id-a): shard 0 lost every copy of its data with its primary id-a: its slots start empty"
        ],
    );
    check(
        "3x0: a=6-5460(mute) b=0-5 | c=1/3 | d=2/3",
        expect!["hold: the primary of shard 0 does not answer and is not proven dead"],
    );
}

/// A newcomer had the data of a primary that died a moment ago, and went because a newer spec would have made
/// it otherwise: the last copy went with it.
#[test]
fn a_newcomer_with_the_last_copy_stays() {
    check(
        "3x0: a=0/3(dead,unnoticed,old) b<a(joining,old) | c=1/3 | d=2/3",
        expect!["hold: primary id-a is dead, its replica b stands for election"],
    );
    check(
        "3x0: a=0/3 b<a(joining,old) | c=1/3 | d=2/3",
        expect!["take DeleteNode(b): b was still joining when what it is made of changed"],
    );
    // Nor does one go that a hand gave slots.
    check(
        "3x0: a=1-5460 b=0-0(joining,old) | c=1/3 | d=2/3",
        expect![
            "take Migrate(Batch { source: b, target: a, slots: SlotSet { ranges: [SlotRange { start: 0, end: 0 }] } }): shard 0 has more than its share of slots, shard 0 has less"
        ],
    );
    // A replica that another should replace waits for it too.
    check(
        "1x1: a=1-16383 b<a(old) x=0-0(joining,failed=1@1)",
        expect!["hold: x is to be a replica and owns slots"],
    );
    // Nor while they do not move.
    check(
        "3x0: a=1-5460 b=0-0(joining,old,failed=1@1) | c=1/3 | d=2/3",
        expect!["hold: b is to be a replica and owns slots"],
    );
}

/// A shard that was being added is met and given slots once the cluster is Active; waiting for it here
/// would be waiting for ever.
#[test]
fn whoever_joins_or_leaves_does_not_hold_up_the_way_back() {
    again(
        &format!("3x1: {WHOLE} | s3: g(joining=shard,blind) h(joining=shard,starting)"),
        &expect!["take Activate([]): every node reports the whole cluster healthy"],
    );
    again(
        &format!("3x1: {WHOLE} | s3: g(leaving) h<g(leaving)"),
        &expect!["take Activate([]): every node reports the whole cluster healthy"],
    );
    // A shard that was emptied meanwhile is no part of what is Active.
    again(
        "3x0: a=0-8191 | c=8192-16383 | e",
        &expect![
            "take Snapshot(Shape { shards: 2, replicas: 0 }): every node reports the whole cluster healthy"
        ],
    );
    // A replica that joined meanwhile is.
    let (mut world, mut desired) = world("1x2: a=0/1 b<a c<a");
    world.cluster.status.state = ClusterState::Creating;
    desired.shape.replicas = 1;
    world.cluster.status.target_spec = Some(world.cluster.spec.clone());
    let expected = expect![
        "take Snapshot(Shape { shards: 1, replicas: 2 }): every node reports the whole cluster healthy"
    ];
    expected.assert_eq(&told(&decide(&world, &desired)));
    // A formed cluster that is out of sight is not formed anew.
    again(
        "1x1: a(mute) b(mute)",
        &expect!["hold: node a does not answer: connection refused"],
    );
}

/// The error that a TLS cluster's Secret gives, and the offer of one that validates.
fn verdict() -> TlsError {
    TlsError::NoData("s".into())
}

fn offered(flaw: Option<TlsFlaw>) -> TlsOffer {
    let file = || File::new(Vec::new());
    TlsOffer {
        secret: "s".into(),
        files: TlsFiles {
            certificate: file(),
            key: file(),
            authorities: file(),
        },
        flaw,
        lapse: None,
        expires: 0,
    }
}

#[test]
fn a_secret_that_does_not_validate_stops_everything_and_is_said_exactly() {
    for state in [
        ClusterState::Creating,
        ClusterState::Active,
        ClusterState::Updating,
        ClusterState::Invalid,
    ] {
        // Even with a primary to be replaced.
        let (mut world, mut desired) = world("1x1: a=0/1(dead) b<a");
        world.cluster.status.state = state;
        desired.tls = Some(Err(verdict()));
        let decision = decide(&world, &desired);
        let expected = Verdict::Take(Action::Invalidate(verdict()), Why::TlsInvalid(verdict()));
        assert_eq!(decision.verdict, expected);
        world.cluster.status.state = ClusterState::Invalid;
        world.cluster.status.message = Some("TLS Secret \"s\" has no data".into());
        let decision = decide(&world, &desired);
        assert_eq!(decision.verdict, Verdict::Hold(Why::TlsInvalid(verdict())));
        assert!(decision.nudges.is_empty());
    }
}

#[test]
fn a_secret_that_validates_again_leads_back_in_the_shape_that_was_formed() {
    let back = |text: &str, shards: u32, replicas: u32| {
        let (mut world, mut desired) = world(text);
        let status = &mut world.cluster.status;
        (status.state, status.message) = (ClusterState::Invalid, Some("some".into()));
        world.cluster.spec.shards = shards;
        world.cluster.spec.replicas_per_shard = replicas;
        desired.tls = Some(Ok(offered(None)));
        match decide(&world, &desired).verdict {
            Verdict::Take(Action::Snapshot(shape), Why::TlsValid) => {
                format!("{}x{}", shape.shards, shape.replicas)
            }
            other @ (Verdict::Take(_, _) | Verdict::Hold(_) | Verdict::Pass) => {
                format!("{other:?}")
            }
        }
    };
    let whole = format!("3x1: {WHOLE}");
    assert_eq!(back(&whole, 5, 2), "3x1");
    assert_eq!(back(&whole, 1, 0), "3x1");
    // A replica more in a roll, one less after a death: what is asked for decides.
    let uneven = "3x1: a=0/3 b<a x<a | c=1/3 d<c | e=2/3 f<e(dead,deleting)";
    assert_eq!(back(uneven, 3, 1), "3x1");
    assert_eq!(back(uneven, 3, 9), "3x2");
    // A shard on its way in or out is no part of it.
    let out = format!("3x1: {WHOLE} | s3: g(joining=shard)");
    assert_eq!(back(&out, 4, 1), "3x1");
    let leaving = format!("3x1: {WHOLE} | s3: g(leaving)");
    assert_eq!(back(&leaving, 3, 1), "3x1");
    // Nor is one whose nodes are complete and that waits for its slots.
    let empty = format!("3x1: {WHOLE} | s3: g h<g");
    assert_eq!(back(&empty, 4, 1), "3x1");
    // Nobody has to answer for it.
    assert_eq!(back("1x1: a(mute) b(mute)", 2, 2), "1x1");
    assert_eq!(back("1x0:", 2, 2), "2x2");

    let (mut world, mut desired) = super::world("target 2x1 | a s0 | b s1");
    desired.tls = Some(Ok(offered(None)));
    world.cluster.status.state = ClusterState::Invalid;
    world.cluster.spec.shards = 7;
    // One that was being formed goes on with what it was.
    let expected =
        expect!["take Snapshot(Shape { shards: 2, replicas: 1 }): the TLS Secret validates again"];
    expected.assert_eq(&told(&decide(&world, &desired)));
}

#[test]
fn what_would_not_work_is_said_and_stops_only_who_has_nothing_else() {
    let (mut world, mut desired) = world("1x1: a=0/1 b<a");
    desired.tls = Some(Ok(offered(Some(TlsFlaw::OtherKey))));
    let said = "nodes are not given TLS Secret \"s\": \
                tls.key does not belong to the certificate in tls.crt";
    assert_eq!(told(&decide(&world, &desired)), format!("hold: {said}"));
    let in_use = TlsInUse {
        uid: Uid::new("tls"),
        files: offered(None).files,
        former_authorities: File::new(Vec::new()),
    };
    world.kept.tls = Keeping::Ours(in_use);
    let decision = decide(&world, &desired);
    assert_eq!(told(&decision), "pass");
    assert_eq!(decision.notes.len(), 1);
    assert_eq!(decision.notes[0].to_string(), said);

    let lapse = Lapse::Expired("then".into());
    desired.tls = Some(Ok(TlsOffer {
        lapse: Some(lapse),
        ..offered(None)
    }));
    let decision = decide(&world, &desired);
    assert_eq!(told(&decision), "pass");
    assert_eq!(
        decision.notes[0].to_string(),
        "the certificate in TLS Secret \"s\" expired at then"
    );
    world.kept.tls = Keeping::Foreign;
    assert!(told(&decide(&world, &desired)).starts_with("hold: a Secret named \"c-operator-tls\""));
}
