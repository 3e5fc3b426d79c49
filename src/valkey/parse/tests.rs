//! Replies that real servers gave, replies that are odd, and a great many that are broken.
//! Never asks a server: `tests/valkey/recordings.rs` did.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;
use crate::model::slots::SLOT_COUNT;

const A: &str = "8f72258009694105a4fa73f9dd24c7068e5f59fb";
const B: &str = "20f8bb0c4d4d4f9ab8d20f8bb0c4d4d4f9ab8d20";
const INFO: &str = "cluster_state:ok\r\ncluster_slots_assigned:16384\r\n\
    cluster_known_nodes:2\r\ncluster_size:1\r\ncluster_current_epoch:3\r\n\
    cluster_my_epoch:1\r\nsomething_new:9\r\n";
const PRIMARY: &str = "# Replication\r\nrole:master\r\nmaster_repl_offset:42\r\n";

fn view(nodes: &str) -> Result<NodeView, Error> {
    account(A, INFO, nodes, PRIMARY)
}

fn refusal(nodes: &str) -> String {
    view(nodes).unwrap_err().to_string()
}

fn set(ranges: &[(u32, u32)]) -> SlotSet {
    SlotSet::of(
        ranges
            .iter()
            .filter_map(|&(start, end)| SlotRange::new(start, end))
            .collect(),
    )
}

#[test]
fn a_plain_table_is_read() {
    let nodes = format!(
        "{A} 10.0.0.8:6379@16379 myself,master - 0 0 1 connected 0-5460 5462 6000-16383\n\
         {B} 10.0.0.9:6379@16379,c-1a2b3.c.ns.svc.cluster.local slave,fail? {A} 0 17 3 disconnected\n"
    );
    let view = view(&nodes).unwrap();
    assert!(view.cluster_ok);
    assert_eq!(
        (
            view.known_nodes,
            view.size,
            view.current_epoch,
            view.my_epoch
        ),
        (2, 1, 3, 1)
    );
    assert_eq!(view.role, Role::Primary { offset: 42 });
    assert_eq!(
        view.own_slots(),
        set(&[(0, 5460), (5462, 5462), (6000, 16383)])
    );
    let replica = view.member(&ValkeyId::new(B)).unwrap();
    assert_eq!(replica.ip, Some("10.0.0.9".parse().unwrap()));
    assert_eq!(replica.primary, Some(ValkeyId::new(A)));
    assert!(replica.flags.suspected && !replica.flags.failed && !replica.connected);
}

#[test]
fn a_server_tells_its_load_and_how_long_it_heard_nothing() {
    let nodes = format!(
        "{A} 10.0.0.8:6379@16379 myself,master - 0 0 1 connected\n\
         {B} 10.0.0.9:6379@16379 master,fail? - 1700000001000 1700000000400 3 connected\n\
         {C} 10.0.0.7:6379@16379 master,fail? - 1700000004000 0 3 connected\n",
        C = "c".repeat(40)
    );
    let server = format!(
        "{PRIMARY}server_time_usec:1700000061500000\r\nused_memory:3000\r\n\
         used_memory_dataset:2000\r\nmaxmemory:9000\r\nloading:1\r\n\
         paused_reason:failover_in_progress\r\ndb0:keys=17,expires=0,avg_ttl=0\r\n"
    );
    let view = account(A, INFO, &nodes, &server).unwrap();
    let silence: Vec<i64> = view.members.iter().map(|row| row.silent_seconds).collect();
    assert_eq!(silence, [0, 61, 57]);
    assert!(view.loading && view.failing_over);
    let load = Load {
        keys: 17,
        data_bytes: 2000,
        used_bytes: 3000,
        max_bytes: 9000,
    };
    assert_eq!((view.load, view.clock), (load, 1_700_000_061));
}

#[test]
fn migrations_are_read_in_both_protocols() {
    let flat = |state: &str, operation: &str| {
        let fields = [
            ("name", "1".repeat(40)),
            ("operation", operation.to_owned()),
            ("slot_ranges", "0-100 200".to_owned()),
            ("target_node", B.to_owned()),
            ("source_node", A.to_owned()),
            ("state", state.to_owned()),
            ("message", "Connection lost".to_owned()),
        ];
        let text = |text: &str| redis::Value::BulkString(text.as_bytes().to_vec());
        let mut flat: Vec<redis::Value> = fields
            .iter()
            .flat_map(|(field, value)| [text(field), text(value)])
            .collect();
        flat.extend([text("last_update_time"), redis::Value::Int(1_700_000_000)]);
        redis::Value::Array(flat)
    };
    let jobs = migrations(redis::Value::Array(vec![
        flat("waiting-to-pause", "EXPORT"),
        flat("cancelled", "EXPORT"),
        flat("success", "IMPORT"),
    ]))
    .unwrap();
    let states: Vec<_> = jobs.iter().map(|job| (job.state, job.outgoing)).collect();
    assert_eq!(
        states,
        [
            (MigrationState::Running, true),
            (MigrationState::Failed, true),
            (MigrationState::Succeeded, false)
        ]
    );
    assert_eq!(jobs[0].slots, set(&[(0, 100), (200, 200)]));
    assert_eq!(jobs[0].target, Some(ValkeyId::new(B)));
    assert_eq!(
        (jobs[0].updated, &*jobs[0].message),
        (1_700_000_000, "Connection lost")
    );
}

#[test]
fn odd_rows_are_read_as_far_as_they_go() {
    let nodes = format!(
        "{A} :6379@16379 myself,master - 0 0 0 connected 0-9 [10->-{B}] [11-<-{B}]\n\
         {B} :0@0 master,fail,noaddr - 1 2 3 disconnected\n"
    );
    let view = view(&nodes).unwrap();
    assert_eq!(view.own_slots(), set(&[(0, 9)]));
    assert_eq!(view.member(&view.id).unwrap().ip, None);
    let ghost = view.member(&ValkeyId::new(B)).unwrap();
    assert!(ghost.flags.no_address && ghost.flags.failed && ghost.ip.is_none());
    assert!(!ghost.flags.suspected);
}

#[test]
fn every_way_to_write_an_address_is_read() {
    for (address, expected) in [
        ("10.0.0.8:6379@16379", Some("10.0.0.8")),
        ("fd00::9:6379@16379", Some("fd00::9")),
        ("::1:6379@16379,host", Some("::1")),
        (
            "10.0.0.8:6379@16379,,availability-zone=a:b@c,shard-id=x",
            Some("10.0.0.8"),
        ),
        (
            "10.0.0.8:0@16379,c-1a2b3.c.ns.svc.cluster.local,tls-port=6379",
            Some("10.0.0.8"),
        ),
        ("some.name:6379@16379", None),
        (":6379@16379", None),
        (":0@0", None),
    ] {
        let view = view(&format!(
            "{A} {address} myself,master,nofailover - 0 0 0 connected\n"
        ));
        assert_eq!(
            view.unwrap().members[0].ip,
            expected.map(|ip| ip.parse().unwrap()),
            "{address}"
        );
    }
}

#[test]
fn what_is_not_a_table_is_refused_by_name() {
    let cut = format!("{A} 10.0.0.8:6379@16379 myself,master -");
    assert_eq!(refusal(""), "CLUSTER NODES is cut off");
    assert_eq!(
        refusal(&format!("{cut} 0 0 1 connected 0-54")),
        "CLUSTER NODES is cut off"
    );
    assert_eq!(
        refusal(&format!("{cut}\n")),
        format!("CLUSTER NODES has an unreadable ping time in {cut:?}")
    );
    for slots in [
        "16384",
        "5-3",
        "0-16384",
        "x",
        "-",
        "1-2-3",
        "+1",
        "1-+2",
        "",
        "4294967296",
    ] {
        let refusal = refusal(&format!("{cut} 0 0 1 connected {slots}\n"));
        assert!(refusal.contains("unreadable slots"), "{slots}: {refusal}");
    }
    for (line, field) in [
        (format!("{cut} 0 0 1 connect"), "link state"),
        (format!("{cut} 0 0 -1 connected"), "epoch"),
        (format!("{A} 10.0.0.8 myself - 0 0 1 connected"), "address"),
        (
            format!("{A} 10.0.0.8:1@1 myself {} 0 0 1 connected", &B[1..]),
            "primary",
        ),
        (
            format!("{}g 10.0.0.8:1@1 myself - 0 0 1 connected", &A[1..]),
            "id",
        ),
        (
            "vars currentEpoch 3 lastVoteEpoch 0".to_owned(),
            "pong time",
        ),
        (String::new(), "address"),
    ] {
        let refusal = refusal(&format!("{line}\n"));
        assert!(
            refusal.contains(&format!("unreadable {field} in")),
            "{line}: {refusal}"
        );
    }
    let long = format!("{cut} 0 0 1 connected {} x\n", "1 ".repeat(9000));
    assert!(refusal(&long).len() < 300);
}

#[test]
fn contradictions_are_refused() {
    let own = format!("{A} 10.0.0.8:1@1 myself,master - 0 0 1 connected 0-9\n");
    let other = format!("{B} 10.0.0.9:1@1 master - 0 0 1 connected 9-12\n");
    let none = "CLUSTER NODES has no line of its own node, or several";
    assert_eq!(refusal(&other), none);
    assert_eq!(refusal(&own.replace(A, B)), none);
    let second = other
        .replace("master", "myself,master")
        .replace("9-12", "10-12");
    assert_eq!(refusal(&format!("{own}{second}")), none);
    assert_eq!(
        refusal(&format!("{own}{own}")),
        "CLUSTER NODES tells of one node twice"
    );
    assert_eq!(
        refusal(&format!("{own}{other}")),
        "CLUSTER NODES tells of one slot twice"
    );
}

#[test]
fn a_missing_or_unreadable_field_is_named() {
    let nodes = format!("{A} :1@1 myself,master - 0 0 1 connected\n");
    let error = |info: &str, replication: &str| {
        account(A, info, &nodes, replication).map_err(|error| error.to_string())
    };
    for field in [
        "cluster_state",
        "cluster_slots_assigned",
        "cluster_known_nodes",
        "cluster_size",
        "cluster_current_epoch",
        "cluster_my_epoch",
    ] {
        let expected = Err(format!("CLUSTER INFO has no readable {field}"));
        let missing = INFO.replace(field, "cluster_other");
        assert_eq!(error(&missing, PRIMARY), expected);
        let changed = INFO.replace(&format!("{field}:"), &format!("{field}:?"));
        assert_eq!(error(&changed, PRIMARY), expected);
    }
    for (replication, field) in [
        ("", "role"),
        ("role:neither\r\n", "role"),
        ("role:master\r\n", "master_repl_offset"),
        (
            "role:slave\r\nmaster_link_status:sync\r\n",
            "master_link_status",
        ),
        (
            "role:slave\r\nmaster_link_status:up\r\nslave_repl_offset:x\r\n",
            "slave_repl_offset",
        ),
    ] {
        let expected = Err(format!("INFO replication has no readable {field}"));
        assert_eq!(error(INFO, replication), expected);
    }
}

#[test]
fn a_replica_that_never_synced_has_offset_nothing() {
    let replica = |link: &str, offset: &str| {
        let text =
            format!("role:slave\r\nmaster_link_status:{link}\r\nslave_repl_offset:{offset}\r\n");
        role(&Fields::of("INFO replication", &text))
    };
    assert_eq!(
        replica("up", "14"),
        Ok(Role::Replica {
            linked: true,
            offset: 14
        })
    );
    assert_eq!(
        replica("down", "-1"),
        Ok(Role::Replica {
            linked: false,
            offset: 0
        })
    );
}

/// The four replies of one account, as a real server sent them.
struct Recording {
    name: String,
    replies: [String; 4],
}

impl Recording {
    fn account(&self) -> NodeView {
        let [id, info, nodes, replication] = &self.replies;
        account(id, info, nodes, replication)
            .unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

/// The recordings of Valkey 9.1, by name. Each file is what came through the socket.
fn recordings() -> BTreeMap<String, Recording> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/valkey-9.1");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let bytes = fs::read(&path).unwrap();
            let mut parser = redis::Parser::new();
            let mut rest = bytes.as_slice();
            let replies = [(); 4].map(|()| {
                let reply = parser.parse_value(&mut rest).unwrap();
                redis::from_redis_value::<String>(reply).unwrap()
            });
            assert!(rest.is_empty(), "{name} holds more than four replies");
            (name.clone(), Recording { name, replies })
        })
        .collect()
}

fn recorded(name: &str) -> NodeView {
    recordings()[name].account()
}

#[test]
fn a_recorded_newcomer_is_read() {
    let alone = recorded("alone.resp2");
    assert_eq!(
        (alone.members.len(), alone.slots_assigned, alone.cluster_ok),
        (1, 0, false)
    );
    assert_eq!(alone.members[0].ip, None);

    let introduced = recorded("handshake.resp2");
    let handshakes = introduced
        .members
        .iter()
        .filter(|member| member.flags.handshake);
    assert_eq!((handshakes.count(), introduced.known_nodes), (1, 2));

    let unsynced = recorded("replica-unsynced.resp2").role;
    assert!(matches!(
        unsynced,
        Role::Replica {
            linked: false,
            offset: 0..=1
        }
    ));
}

#[test]
fn a_recorded_cluster_is_read() {
    // The same moment in both protocols.
    for name in ["formed-primary.resp2", "formed-primary.resp3"] {
        let view = recorded(name);
        assert_eq!(
            (view.members.len(), view.size, view.cluster_ok),
            (6, 3, true),
            "{name}"
        );
        let slots: u32 = view.members.iter().map(|member| member.slots.count()).sum();
        assert_eq!(slots, SLOT_COUNT, "{name}");
        assert!(matches!(view.role, Role::Primary { offset: 1.. }), "{name}");
        assert!(
            view.members
                .iter()
                .all(|member| member.ip.is_some() && member.connected)
        );
    }
    let replica = recorded("formed-replica.resp2");
    assert!(matches!(
        replica.role,
        Role::Replica {
            linked: true,
            offset: 1..
        }
    ));
    let own = replica.member(&replica.id).unwrap();
    let primary = replica.member(own.primary.as_ref().unwrap()).unwrap();
    assert!(primary.flags.primary && primary.slots.count() > 5000);

    let named = recorded("hostname-ipv6.resp2");
    assert!(
        named
            .members
            .iter()
            .all(|member| member.ip.is_some_and(|ip| ip.is_ipv6()))
    );
    let told = &recordings()["hostname-ipv6.resp2"].replies[2];
    assert!(told.contains(",c-1a2b3.c.ns.svc.cluster.local") && told.contains("nofailover"));
}

#[test]
fn recorded_trouble_is_read() {
    let flagged = |name: &str, flag: fn(&MemberFlags) -> bool| {
        let members = recorded(name).members;
        let mut flagged = members.into_iter().filter(|member| flag(&member.flags));
        let found = flagged.next().unwrap();
        assert_eq!(flagged.next(), None, "{name}");
        found
    };
    let suspect = flagged("suspected.resp2", |flags| flags.suspected);
    assert!(!suspect.flags.failed && !suspect.slots.is_empty());
    let dead = flagged("failed.resp2", |flags| flags.failed);
    assert!(!dead.flags.suspected && dead.slots.is_empty() && !dead.connected);
    let ghost = flagged("noaddr.resp2", |flags| flags.no_address);
    assert_eq!(ghost.ip, None);
}

#[test]
fn recorded_moves_by_hand_change_no_owner() {
    assert_eq!(
        recorded("moving-by-hand.resp2").own_slots().count(),
        SLOT_COUNT
    );
    assert!(recorded("importing-by-hand.resp2").own_slots().is_empty());
    let recordings = recordings();
    assert!(recordings["moving-by-hand.resp2"].replies[2].contains("->-"));
    assert!(recordings["importing-by-hand.resp2"].replies[2].contains("-<-"));
}

/// What a table says by the simplest reading: the ranges on each line that begins with an id.
fn simple(nodes: &str) -> BTreeMap<&str, Vec<(u32, u32)>> {
    let mut owned: BTreeMap<&str, Vec<(u32, u32)>> = BTreeMap::new();
    for line in nodes.lines() {
        let mut words = line.split(' ');
        let id = words.next().unwrap_or_default();
        let ranges = words
            .skip(7)
            .filter(|word| !word.starts_with('['))
            .map(|word| {
                let (start, end) = word.split_once('-').unwrap_or((word, word));
                (start.parse().unwrap(), end.parse().unwrap())
            });
        owned.entry(id).or_default().extend(ranges);
    }
    owned
}

/// What a table is written with, and what it never holds.
const ODD: &[u8] = b"0123456789abcdef -:,@[]<>\n\r\0?\xff";

/// One to three small damages of the kinds that a cut, a bug or a mix-up of replies could do.
fn damaged(text: &str, random: &mut SmallRng) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..random.random_range(1..=3) {
        let length = bytes.len();
        let at = random.random_range(0..length);
        let to = (at + random.random_range(0..40)).min(length);
        match random.random_range(0..8) {
            0 => bytes[at] = ODD[random.random_range(0..ODD.len())],
            1 => bytes.truncate(at.max(1)),
            2 => drop(bytes.drain(at..to)),
            3 => bytes.insert(at, b"0 -\n9"[random.random_range(0..5)]),
            4 => bytes.extend_from_within(at..to),
            5 => bytes[at..to].reverse(),
            6 => bytes[at] ^= 1 << random.random_range(0..8),
            _ => {
                let copy = bytes[at..to].to_vec();
                bytes.splice(at..at, copy);
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn no_damage_makes_it_panic_or_give_a_slot_to_a_wrong_node() {
    let recordings: Vec<Recording> = recordings().into_values().collect();
    let mut random = SmallRng::seed_from_u64(34);
    let mut read = 0;
    for _ in 0..100_000 {
        let recording = &recordings[random.random_range(0..recordings.len())];
        let mut replies = recording.replies.clone();
        // Mostly the table: that is where the harm is.
        let which = [2, 2, 2, 2, 2, 0, 1, 3][random.random_range(0..8)];
        replies[which] = damaged(&replies[which], &mut random);
        let [id, info, nodes, replication] = &replies;
        let Ok(view) = account(id, info, nodes, replication) else {
            continue;
        };
        read += 1;
        let owned = simple(nodes);
        let mut seen: Vec<SlotRange> = Vec::new();
        assert_eq!(view.members.len(), owned.len(), "{nodes}");
        for member in &view.members {
            assert_eq!(member.slots, set(&owned[member.id.as_str()]), "{nodes}");
            assert!(
                member
                    .slots
                    .ranges()
                    .iter()
                    .all(|range| range.end() < SLOT_COUNT)
            );
            seen.extend(member.slots.ranges());
        }
        let total: u32 = seen.iter().map(|range| range.count()).sum();
        assert_eq!(SlotSet::of(seen).count(), total, "{nodes}");
    }
    assert!(read > 10_000, "hardly any damage was readable: {read}");
}
