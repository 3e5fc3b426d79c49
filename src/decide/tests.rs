//! Worlds in a few words, and what is decided in them. Never a cluster object or a reply.

pub(crate) mod living;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use expect_test::{Expect, expect};

use crate::api::cluster::{ClusterState, ValkeyClusterSpec, ZoneSpread};
use crate::api::node::{Lifecycle, ValkeyNodeSpec};
use crate::decide::{decide, node};
use crate::model::decision::{Decision, Verdict};
use crate::model::desired::{Desired, MenuError, Resolved, Shape, Sourced};
use crate::model::name::{ClusterRef, ConfigName, NodeName, Uid, ValkeyId};
use crate::model::redacted::Redacted;
use crate::model::slots::{SLOT_COUNT, SlotRange, SlotSet};
use crate::model::topology::{
    Load, Member, MemberFlags, Migration, MigrationState, NodeView, Role,
};
use crate::model::world::{
    AclInUse, Auth, ClusterFacts, Host, Keeping, Kept, Menu, NodeFacts, PodFacts, PodPhase,
    PodSighting, PodTrouble, Sighting, World,
};

/// Reads a world from words: `target 3x1` and nodes parted by `|`, each
/// `NAME sSHARD` followed by any of
///
/// - `new`, `unstamped`, `pending`, `unschedulable`, `unpullable`, `ended`, `vanished`, `ending` (its pod is being deleted), `deleting`,
///   `silent`, `locked` (refuses the login) or `unasked` instead of a running pod that answers;
/// - `keys N`, `moves` (an export runs), `failed` (one failed just now);
/// - `slots A-B`, `of NAME` (replicates), `unlinked`, `notok`, `counts N` (its count of slots);
/// - `blind` (knows only itself), `handshakes NAME`, `lists ID:FLAGS` with flags joined by `+`.
fn world(words: &str) -> (World, Desired) {
    let mut parts = words.split('|').map(str::trim);
    let head: Vec<&str> = parts.next().unwrap().split_whitespace().collect();
    let (shards, replicas) = head[1].split_once('x').unwrap();
    let shape = Shape {
        shards: shards.parse().unwrap(),
        replicas: replicas.parse().unwrap(),
    };
    let nodes: Vec<Vec<&str>> = parts
        .map(|part| part.split_whitespace().collect())
        .collect();
    let mut facts: BTreeMap<NodeName, NodeFacts> =
        nodes.iter().map(|words| node_of(words)).collect();
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
    let world = World {
        now: 0,
        cluster: ClusterFacts {
            key: ClusterRef {
                namespace: "ns".into(),
                name: "c".into(),
            },
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
            auth: Keeping::Ours(auth()),
            acl: Keeping::Ours(AclInUse {
                uid: Uid::new("acl"),
                digest: String::new(),
            }),
            tls: Keeping::Absent,
        },
        tls_secret: None,
        nodes: facts,
        strays: BTreeMap::new(),
        acl_refusal: None,
        default_zone_spread: ZoneSpread::BestEffort,
    };
    (
        world,
        Desired {
            shape,
            menu: Ok(resolved()),
            tls: None,
        },
    )
}

fn auth() -> Auth {
    Auth {
        operator: Redacted::new("o".into()),
        repl: Redacted::new("r".into()),
        finalizer: true,
    }
}

fn resolved() -> Resolved {
    let image = Sourced {
        value: "valkey:9".into(),
        config: ConfigName::new("standard"),
    };
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
        Some(PodTrouble::Waiting {
            reason: "ErrImagePull".into(),
            message: "no such".into(),
        })
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
        host: Host::Ready,
        deleting: has("ending"),
        trouble,
        annotations: BTreeMap::new(),
    };
    let facts = NodeFacts {
        name: name.clone(),
        uid: Uid::new(format!("node-{name}")),
        spec: ValkeyNodeSpec {
            shard_index: words[1].strip_prefix('s').unwrap().parse().unwrap(),
            lifecycle: Lifecycle::Joining,
            image: if has("mistaken") {
                "misspelt"
            } else {
                "valkey:9"
            }
            .into(),
            ..ValkeyNodeSpec::default()
        },
        deleting: has("deleting"),
        finalizer: !has("released"),
        foreign_finalizer: has("kept").then(|| "example.com/backup".to_owned()),
        stamp: (!has("new") && !has("unstamped")).then_some(uid),
        join: None,
        settings_digest: Some(resolved().settings_digest()),
        config_map: Keeping::Ours(()),
        pod: if has("new") || has("vanished") {
            PodSighting::Absent
        } else {
            PodSighting::Present(pod)
        },
        sighting: if has("silent") {
            Sighting::Silent("connection refused".into())
        } else if has("locked") {
            Sighting::LockedOut("WRONGPASS".into())
        } else if running && !has("unstamped") && !has("unasked") {
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
        flags: MemberFlags {
            primary: primary.is_none(),
            ..MemberFlags::default()
        },
        primary,
        epoch: 0,
        connected: true,
        silent_seconds: 0,
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
        let flags = MemberFlags {
            handshake: true,
            ..MemberFlags::default()
        };
        let mut row = row_of(&[name, "s0"]).unwrap();
        (row.id, row.flags) = (ValkeyId::new("random"), flags);
        members.push(row);
    }
    if let Some((name, flags)) = after(words, "lists").and_then(|listed| listed.split_once(':')) {
        let mut row = row_of(&[name, "s0"]).unwrap();
        row.flags.failed = flags.contains("fail");
        row.flags.suspected = flags.contains("suspected");
        row.connected = flags.contains("connected");
        row.silent_seconds = if flags.contains("hung") { 61 } else { 0 };
        if flags.contains("slots") {
            row.slots = SlotSet::of(SlotRange::share(0, 3).into_iter().collect());
        }
        members.retain(|member| member.id != row.id);
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
            Some(_) => Role::Replica {
                linked: !has("unlinked"),
                offset: 14,
            },
            None => Role::Primary { offset: 14 },
        },
        members,
        loading: false,
        failing_over: false,
        load: Load {
            keys: after(words, "keys").map_or(0, |keys| keys.parse().unwrap()),
            ..Load::default()
        },
        clock: 0,
        migrations: [
            ("moves", MigrationState::Running),
            ("failed", MigrationState::Failed),
        ]
        .into_iter()
        .filter(|(word, _)| has(word))
        .map(|(_, state)| Migration {
            outgoing: true,
            state,
            slots: SlotSet::default(),
            target: None,
            updated: 0,
            message: "no room".into(),
        })
        .collect(),
    }
}

fn told(decision: &Decision) -> String {
    let mut line = match &decision.verdict {
        Verdict::Take(action, why) => format!("take {action:?}: {why}"),
        Verdict::Hold(why) => format!("hold: {why}"),
        Verdict::Pass => "pass".to_owned(),
    };
    for nudge in &decision.nudges {
        write!(line, "\nnudge {} -> {}", nudge.from, nudge.to).unwrap();
    }
    line.replace("NodeName(\"", "")
        .replace("\")", "")
        .replace("ShardIndex", "shard ")
}

#[expect(clippy::needless_pass_by_value, reason = "expect! reads best inline")]
fn check(words: &str, expected: Expect) {
    let (world, desired) = world(words);
    expected.assert_eq(&told(&decide(&world, &desired)));
}

#[test]
fn a_new_cluster_is_made_ours_then_captured() {
    check(
        "unowned 3x1",
        expect!["take AddFinalizer: the cluster has no cleanup finalizer yet"],
    );
    check(
        "fresh 3x1",
        expect!["take Snapshot(Shape { shards: 3, replicas: 1 }): the spec is not captured yet"],
    );
    check(
        "paused 3x1",
        expect!["hold: the cluster is paused by annotation"],
    );
    check(
        "active 3x1",
        expect![
            "take Snapshot(Shape { shards: 3, replicas: 1 }): every node is gone and all data with them: the cluster starts empty"
        ],
    );
}

#[test]
fn a_mistake_that_was_put_right_is_not_waited_for() {
    check(
        "target 1x1 | a s0 | b s0 unpullable mistaken",
        expect!["take DeleteNode(b): b was still joining when what it is made of changed"],
    );
    // One that runs is a member, or will be.
    check(
        "target 1x1 | a s0 | b s0 mistaken",
        expect![[r#"
        take AssignSlots { primary: a, range: SlotRange { start: 0, end: 16383 } }: shard 0 has slots without an owner
        nudge a -> b"#]],
    );
}

#[test]
fn nodes_are_made_for_the_shard_that_has_fewest() {
    check(
        "target 3x1",
        expect!["take CreateNode(shard (0), None): shard 0 has 0 of 2 nodes"],
    );
    check(
        "target 3x1 | a s0 new",
        expect!["take CreateNode(shard (1), None): shard 1 has 0 of 2 nodes"],
    );
    check(
        "target 2x1 | a s0 new | b s1 pending | c s0",
        expect!["take CreateNode(shard (1), None): shard 1 has 1 of 2 nodes"],
    );
    check(
        "target 1x1 | a s0 deleting",
        expect!["take CreateNode(shard (0), None): shard 0 has 0 of 2 nodes"],
    );
}

#[test]
fn a_dead_node_is_deleted_before_anything_is_made() {
    check(
        "target 2x0 | a s0 vanished",
        expect![
            "take DeleteNode(a): node a is gone before the cluster was formed: its pod is gone"
        ],
    );
    check(
        "target 2x0 | a s0 ended | b s1 pending",
        expect![
            "take DeleteNode(a): node a is gone before the cluster was formed: its container exited with code 1"
        ],
    );
}

/// Its process may answer long enough to be counted, and the cluster be called Active on its last words.
#[test]
fn a_node_whose_pod_is_being_deleted_is_not_counted_on() {
    check(
        "target 3x0 | a s0 slots 0-5460 ending | b s1 slots 5461-10922 | c s2 slots 10923-16383",
        expect![
            "take DeleteNode(a): node a is gone before the cluster was formed: its pod is being deleted"
        ],
    );
}

#[test]
fn the_reason_that_needs_a_person_is_said_first() {
    check(
        "target 3x0 | a s0 pending | b s1 unpullable | c s2 unschedulable",
        expect!["hold: pod c cannot be scheduled: 0/3 nodes available"],
    );
    check(
        "target 2x0 | a s0 pending | b s1 unpullable",
        expect!["hold: pod b cannot start: ErrImagePull: no such"],
    );
    check(
        "target 2x0 | a s0 silent | b s1 unstamped",
        expect!["hold: node a does not answer: connection refused"],
    );
}

#[test]
fn a_process_with_settings_of_another_hand_is_made_anew_unless_it_was_met() {
    check(
        "target 2x0 | a s0 | b s1 locked blind",
        expect!["take DeleteNode(b): node b is gone before the cluster was formed: WRONGPASS"],
    );
    check(
        "target 2x0 | a s0 | b s1 locked",
        expect!["hold: node b does not answer: WRONGPASS"],
    );
    // The one who would know is out of reach.
    check(
        "target 2x0 | a s0 silent | b s1 locked blind",
        expect!["hold: node a does not answer: connection refused"],
    );
}

#[test]
fn nodes_are_met_one_a_tick_through_the_one_that_knows_most() {
    check(
        "target 3x0 | a s0 blind | b s1 blind | c s2 blind",
        expect!["take Meet { seed: a, newcomer: b }: a does not know b"],
    );
    check(
        "target 3x0 | a s0 blind | b s1 | c s2",
        expect!["take Meet { seed: b, newcomer: a }: b does not know a"],
    );
    check(
        "target 2x0 | a s0 blind handshakes b | b s1 blind",
        expect!["hold: b is being introduced"],
    );
}

#[test]
fn dead_strangers_are_forgotten_and_live_ones_left_alone() {
    check(
        "target 2x0 | a s0 lists z:suspected | b s1",
        expect![[
            r#"take Forget(ValkeyId("id-z): member id-z is dead and no node of this cluster"#
        ]],
    );
    check(
        "target 2x0 | a s0 lists z:connected | b s1",
        expect!["hold: member id-z is alive and no node of this cluster: it is left alone"],
    );
    check(
        "target 2x0 | a s0 lists z:gone | b s1",
        expect!["hold: member id-z is no node of this cluster and not proven dead yet"],
    );
}

#[test]
fn a_dead_primary_is_not_forgotten_while_its_replica_can_be_elected() {
    let voters = "| b s1 slots 5461-10921 | c s2 slots 10922-16383";
    let replica = "| r s0 of z lists z:fail+slots";
    check(
        &format!("target 3x1 {replica} {voters} | n s0 | o s1 of b | p s2 of c"),
        expect!["hold: primary id-z is dead, its replica r stands for election"],
    );
    check(
        &format!("target 3x1 {replica}+hung {voters} | n s0 | o s1 of b | p s2 of c"),
        expect![
            "take ForceFailover(r): primary id-z is dead, and no election of its replica was won for a minute"
        ],
    );
    // Without a majority there is nothing to wait for.
    check(
        "target 1x1 | r s0 of z lists z:fail+slots | n s0",
        expect![
            "take Takeover(r): primary id-z is dead, and too few primaries are left to elect its replica"
        ],
    );
    check(
        "target 1x1 | r s0 of z lists z:fail+slots | n s0 lists z:fail+slots",
        expect![
            "take Takeover(r): primary id-z is dead, and too few primaries are left to elect its replica"
        ],
    );
}

#[test]
fn slots_are_given_only_when_all_tell_the_same() {
    check(
        "target 2x0 | a s0 | b s1",
        expect![[r#"
        take AssignSlots { primary: a, range: SlotRange { start: 0, end: 8191 } }: shard 0 has slots without an owner
        nudge a -> b"#]],
    );
    check(
        "target 2x0 | a s0 slots 0-8191 | b s1",
        expect![[r#"
        take AssignSlots { primary: b, range: SlotRange { start: 8192, end: 16383 } }: shard 1 has slots without an owner
        nudge b -> a"#]],
    );
    check(
        "target 2x0 | a s0 slots 0-8191 | b s1 counts 0",
        expect!["hold: nodes tell between 0 and 8192 assigned slots"],
    );
    // Who was reset takes back what the others still take for its own.
    check(
        "target 2x0 | a s0 | b s1 slots 8192-16383 lists a:slots",
        expect![[r#"
        take AssignSlots { primary: a, range: SlotRange { start: 0, end: 5460 } }: shard 0 has slots without an owner
        nudge a -> b"#]],
    );
    check(
        "target 2x0 | a s0 slots 0-8191 | b s1 slots 8000-9000",
        expect!["hold: two nodes claim the same slots: 8000-8191"],
    );
    // A replica is no primary, even if its name comes first.
    check(
        "target 1x1 | a s0 of b | b s0",
        expect![[r#"
        take AssignSlots { primary: b, range: SlotRange { start: 0, end: 16383 } }: shard 0 has slots without an owner
        nudge b -> a"#]],
    );
}

#[test]
fn replicas_follow_the_primary_of_their_own_shard() {
    let slots = "| b s0 slots 0-8191 | d s1 slots 8192-16383";
    check(
        &format!("target 2x1 | a s0 {slots} | c s1"),
        expect!["take Replicate { replica: a, primary: b }: a does not replicate b"],
    );
    check(
        &format!("target 2x1 | a s0 of d {slots} | c s1 of d"),
        expect!["take Replicate { replica: a, primary: b }: a does not replicate b"],
    );
}

#[test]
fn slots_of_a_replica_to_be_go_to_its_primary() {
    check(
        "target 1x1 | a s0 slots 0-16382 | b s0 slots 16383-16383",
        expect![
            "take Migrate(Batch { source: b, target: a, slots: SlotSet { ranges: [SlotRange { start: 16383, end: 16383 }] } }): b is to be a replica and owns slots"
        ],
    );
    check(
        "target 1x1 | a s0 notok slots 0-16382 | b s0 slots 16383-16383",
        expect!["hold: a is not ready to be given slots"],
    );
    let much = "target 1x1 | a s0 slots 0-15999 | b s0 slots 16000-16383";
    check(
        &format!("{much} keys 100000"),
        expect![
            "take Migrate(Batch { source: b, target: a, slots: SlotSet { ranges: [SlotRange { start: 16192, end: 16383 }] } }): b is to be a replica and owns slots"
        ],
    );
    check(
        &format!("{much} moves"),
        expect!["hold: slots are on their way from b"],
    );
    check(
        &format!("{much} failed"),
        expect!["hold: the last 1 migrations from b failed, retrying smaller and later: no room"],
    );
}

#[test]
fn active_is_said_only_of_a_whole_cluster() {
    let shard = "target 1x1 | a s0 slots 0-16383";
    check(
        &format!("{shard} | b s0 of a"),
        expect!["take Activate([a, b]): every node reports the whole cluster healthy"],
    );
    check(
        &format!("{shard} | b s0 of a unlinked"),
        expect!["hold: replica b has not finished its first sync"],
    );
    check(
        &format!("{shard} | b s0 of a notok"),
        expect!["hold: b does not report cluster_state ok"],
    );
    check(
        "target 2x0 | a s0 slots 0-16383 | b s1",
        expect!["hold: 1 of 2 shards own slots"],
    );
    check(
        "target 1x0 | a s0 slots 0-16383 handshakes z",
        expect!["hold: a knows 2 members where the cluster has 1"],
    );
}

#[test]
fn deletion_waits_for_nobody_and_for_no_reference() {
    check(
        "deleting 1x1 | a s0 silent | b s0 deleting",
        expect!["take DeleteAllNodes: the cluster is being deleted"],
    );
    check(
        "deleting 1x1 | b s0 deleting",
        expect!["hold: node b is still being deleted"],
    );
    check(
        "deleting 1x1 | a s0 deleting | b s0 deleting",
        expect!["hold: 2 nodes are still being deleted, a among them"],
    );
    check(
        "deleting 1x1 | a s0 deleting kept | b s0 deleting released kept",
        expect![
            "hold: node b is kept from being deleted by finalizer example.com/backup, which is not the operator's"
        ],
    );
    check(
        "deleting 1x1 | b s0 deleting released",
        expect!["hold: node b is still being deleted"],
    );
    check(
        "deleting 1x1",
        expect!["take ReleaseCluster: no node is left"],
    );
    let (mut world, mut desired) = world("deleting 1x1");
    desired.menu = Err(MenuError::TooDeep);
    world.cluster.finalizer = false;
    assert_eq!(told(&decide(&world, &desired)), "pass");
}

#[test]
fn a_reference_that_does_not_resolve_allows_no_action() {
    let (world, mut desired) = world("fresh 1x0");
    desired.menu = Err(MenuError::ConfigNotFound("gold".into()));
    assert_eq!(
        told(&decide(&world, &desired)),
        "hold: ValkeyConfig \"gold\" not found"
    );
}

#[test]
fn taken_names_and_lost_passwords_stop_everything() {
    let (mut world, desired) = world("target 1x0 | a s0");
    world.kept.auth = Keeping::Absent;
    assert!(told(&decide(&world, &desired)).starts_with("hold: the auth Secret is gone"));
    world.kept.auth = Keeping::Foreign;
    assert_eq!(
        told(&decide(&world, &desired)),
        "hold: a Secret named \"c-operator-auth\" exists that this cluster did not make: \
         delete or rename it"
    );
}

#[test]
fn a_node_gets_one_config_map_and_one_pod_in_its_life() {
    let step = |words: &str, change: fn(&mut NodeFacts)| {
        let (_, mut node) = node_of(&words.split_whitespace().collect::<Vec<&str>>());
        change(&mut node);
        match node::decide(&node) {
            Verdict::Take(action, _) => format!("{action:?}"),
            Verdict::Hold(why) => why.to_string(),
            Verdict::Pass => "pass".into(),
        }
    };
    let same = |_: &mut NodeFacts| ();
    assert_eq!(
        step("a s0 new", |node| node.config_map = Keeping::Absent),
        "CreateConfigMap"
    );
    assert_eq!(step("a s0 new", same), "CreatePod");
    assert_eq!(step("a s0 unstamped", same), "Stamp(Uid(\"pod-a\"))");
    assert_eq!(step("a s0", same), "pass");
    assert_eq!(
        step("a s0", |node| node.config_map = Keeping::Absent),
        "CreateConfigMap"
    );
    assert_eq!(step("a s0 vanished", same), "pass");
    assert_eq!(
        step("a s0 new", |node| node.spec.lifecycle = Lifecycle::Active),
        "pass"
    );
    assert_eq!(step("a s0 deleting", same), "DeletePod(Uid(\"pod-a\"))");
    assert_eq!(step("a s0 new deleting", same), "ReleaseNode");
    let foreign = |node: &mut NodeFacts| node.pod = PodSighting::Foreign;
    assert!(step("a s0 new", foreign).starts_with("a pod named a exists"));
}

/// A cluster that was lost whole came up again with a newcomer of a shard that it should not have any more.
#[test]
fn a_node_of_a_shard_that_is_not_wanted_goes() {
    check(
        "target 1x0 | a s0 | b s1",
        expect!["take DeleteNode(b): shard 1 has 1 nodes, 0 are asked for"],
    );
    check(
        "target 1x0 | a s0 slots 0-99 | b s1 slots 100-16383",
        expect!["hold: 2 of 1 shards own slots"],
    );
}

/// Two operators at once made one node too many for a shard whose primary told nothing: the primary went, and its
/// slots with it.
#[test]
fn of_nodes_too_many_who_runs_and_tells_nothing_stays() {
    check(
        "target 1x1 | a s0 new | b s0 new | c s0 silent",
        expect!["take DeleteNode(b): shard 0 has 3 nodes, 2 are asked for"],
    );
    check(
        "target 1x1 | a s0 unasked | b s0 pending | c s0 unasked",
        expect!["take DeleteNode(b): shard 0 has 3 nodes, 2 are asked for"],
    );
}
