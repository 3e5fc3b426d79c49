//! Replies of real servers, kept as they came, and what our parser makes of them and of their ruins.
//! Run with `UPDATE_EXPECT=1` to have them told again.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use operator::model::name::ValkeyId;
use operator::model::slots::SLOT_COUNT;
use operator::model::slots::SlotRange;
use operator::model::topology::Member;
use operator::model::topology::NodeView;
use operator::model::topology::Role;
use operator::valkey::parse;

use crate::servers::Servers;
use crate::servers::until;

/// The four commands of an account.
const ASKED: [&[&str]; 4] = [
    &["CLUSTER", "MYID"],
    &["CLUSTER", "INFO"],
    &["CLUSTER", "NODES"],
    &["INFO", "replication"],
];

/// How many ruins are read.
const MUTATIONS: u32 = 100_000;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/valkey-9.1")
}

/// A server's four replies in one file, each below its command.
fn record(servers: &Servers, index: usize, name: &str) {
    let mut admin = servers.admin(index);
    let replies = ASKED.map(|words| format!("> {}\n{}\n", words.join(" "), admin.call(words)));
    fs::create_dir_all(folder()).unwrap();
    fs::write(folder().join(format!("{name}.txt")), replies.concat()).unwrap();
}

fn replies(name: &str) -> [String; 4] {
    let text = fs::read_to_string(folder().join(format!("{name}.txt"))).unwrap();
    let mut rest = text.as_str();
    let mut replies = ASKED.map(|words| {
        let head = format!("> {}\n", words.join(" "));
        let at = rest.find(&head).unwrap();
        rest = &rest[at + head.len()..];
        rest
    });
    // Each ends where the next begins.
    for index in 0..3 {
        let next = format!("\n> {}\n", ASKED[index + 1].join(" "));
        replies[index] = &replies[index][..replies[index].find(&next).unwrap()];
    }
    replies.map(str::to_owned)
}

fn read([id, info, nodes, replication]: &[String; 4]) -> Result<NodeView, parse::Error> {
    parse::account(id, info, nodes, replication)
}

fn view(name: &str) -> NodeView {
    read(&replies(name)).unwrap()
}

fn others(view: &NodeView) -> impl Iterator<Item = &Member> {
    view.members.iter().filter(|member| !member.flags.myself)
}

/// A view with exactly one other row of a kind.
fn one(name: &str, kind: impl Fn(&Member) -> bool) -> Member {
    let view = view(name);
    let mut found = others(&view).filter(|member| kind(member));
    let member = found.next().unwrap().clone();
    assert_eq!(found.next(), None, "{name}");
    member
}

#[tokio::test]
async fn recorded_replies_are_read() {
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        record_all().await;
    }
    let lone = view("lone");
    assert_eq!(
        (lone.known_nodes, lone.size, lone.slots_assigned),
        (1, 0, 0)
    );
    assert!(!lone.cluster_ok && others(&lone).count() == 0);

    let handshake = one("handshake", |member| member.flags.handshake);
    assert!(!handshake.flags.failed && handshake.ip.is_some() && handshake.slots.is_empty());

    let primary = view("primary");
    assert!(primary.cluster_ok && matches!(primary.role, Role::Primary { offset: 1.. }));
    assert_eq!((primary.known_nodes, primary.size), (4, 2));
    assert_eq!(primary.slots_assigned, SLOT_COUNT);
    assert_eq!(primary.own_slots().count(), SLOT_COUNT / 2);
    assert!(
        primary
            .members
            .iter()
            .all(|member| member.connected && member.ip.is_some())
    );

    let replica = view("replica");
    assert!(matches!(
        replica.role,
        Role::Replica {
            linked: true,
            offset: 1..
        }
    ));
    let own = replica.member(&replica.id).unwrap();
    assert_eq!(own.primary.as_ref(), Some(&primary.id));
    assert!(!own.flags.primary && own.slots.is_empty());

    let unlinked = view("replica-never-linked");
    assert!(matches!(
        unlinked.role,
        Role::Replica {
            linked: false,
            offset: 0..=1
        }
    ));

    // In brackets is what is moved by hand: it stays its owner's.
    for name in ["migrating", "importing"] {
        assert!(replies(name)[2].contains(if name == "migrating" {
            "[0->-"
        } else {
            "[0-<-"
        }));
        assert_eq!(view(name).own_slots().count(), SLOT_COUNT / 2, "{name}");
    }

    let suspected = one("suspected", |member| member.flags.suspected);
    assert!(!suspected.flags.failed && suspected.ip.is_some());
    let failed = one("failed", |member| member.flags.failed);
    assert!(!failed.flags.suspected && !failed.connected && failed.ip.is_some());
    let ghost = one("no-address", |member| member.flags.no_address);
    assert!(ghost.ip.is_none() && !ghost.connected);
}

/// Two primaries with half of the slots each, and a replica of each.
async fn record_all() {
    let mut servers = Servers::start(4).await;
    record(&servers, 0, "lone");
    // Nobody answers at the second's address.
    servers.kill(1);
    let (seed, nobody) = (servers.target(0), servers.address(1));
    servers.connector.meet(&seed, nobody).await.unwrap();
    record(&servers, 0, "handshake");
    servers.start_again(1);
    until("the killed one answers", async || {
        servers.account(1).await.is_ok()
    })
    .await;
    servers.meet_through_the_first().await;
    let ids: Vec<ValkeyId> = servers
        .accounts(&[0, 1, 2, 3])
        .await
        .into_iter()
        .map(|v| v.id)
        .collect();
    for index in 0..2_u32 {
        let share = SlotRange::share(index, 2).unwrap();
        let target = servers.target(index as usize);
        servers.connector.add_slots(&target, share).await.unwrap();
    }
    servers
        .agree("all know all owners", &[0, 1, 2, 3], |view| {
            view.slots_assigned == SLOT_COUNT && view.cluster_ok
        })
        .await;
    // It cannot link to what hangs.
    servers.pause(0);
    let replica = servers.target(2);
    servers
        .connector
        .replicate(&replica, &ids[0])
        .await
        .unwrap();
    record(&servers, 2, "replica-never-linked");
    servers.resume(0);
    let replica = servers.target(3);
    servers
        .connector
        .replicate(&replica, &ids[1])
        .await
        .unwrap();
    servers
        .agree("replicas are linked", &[2, 3], |view| {
            matches!(
                view.role,
                Role::Replica {
                    linked: true,
                    offset: 1..
                }
            )
        })
        .await;
    servers
        .agree("all is well", &[0, 1, 2, 3], |view| {
            let settled = others(view).all(|member| member.connected && !member.flags.suspected);
            view.cluster_ok && view.size == 2 && settled
        })
        .await;
    record(&servers, 0, "primary");
    record(&servers, 2, "replica");
    record_moving(&servers, &ids);
    record_dead(&mut servers, &ids[3]).await;
}

fn record_moving(servers: &Servers, ids: &[ValkeyId]) {
    let mut source = servers.admin(0);
    let mut target = servers.admin(1);
    let (from, to) = (ids[0].as_str(), ids[1].as_str());
    assert_eq!(
        target.call(&["CLUSTER", "SETSLOT", "0", "IMPORTING", from]),
        "OK"
    );
    assert_eq!(
        source.call(&["CLUSTER", "SETSLOT", "0", "MIGRATING", to]),
        "OK"
    );
    record(servers, 0, "migrating");
    record(servers, 1, "importing");
    for mut server in [source, target] {
        assert_eq!(server.call(&["CLUSTER", "SETSLOT", "0", "STABLE"]), "OK");
    }
}

async fn record_dead(servers: &mut Servers, dead: &ValkeyId) {
    servers.kill(3);
    until("the first suspects it", async || {
        let view = servers.account(0).await.unwrap();
        view.member(dead).is_some_and(|row| {
            // The state may pass between two looks; the file is checked by whoever reads it.
            let suspected = row.flags.suspected;
            if suspected {
                record(servers, 0, "suspected");
            }
            suspected || row.flags.failed
        })
    })
    .await;
    servers
        .agree("all agree that it failed", &[0, 1, 2], |view| {
            view.member(dead).is_some_and(|row| row.flags.failed)
        })
        .await;
    record(servers, 0, "failed");
    // Another answers at its address.
    servers.replace(3);
    servers
        .agree("it has no address any more", &[0], |view| {
            view.member(dead).is_some_and(|row| row.flags.no_address)
        })
        .await;
    record(servers, 0, "no-address");
}

/// Numbers that look like chance and are the same in every run (xorshift64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }

    fn of<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// What a word of a reply might be taken for.
const WORDS: &[&str] = &[
    "",
    "-",
    "-1",
    "0",
    "16383",
    "16384",
    "0-16383",
    "16383-16384",
    "9-3",
    "18446744073709551616",
    "4294967296-4294967297",
    "[5->-",
    "[",
    "]:@",
    "@",
    ":",
    ":0@0",
    "[::1]:6379@16379",
    "fe80::1%eth0:1@2",
    "myself",
    "myself,master",
    "slave,fail?",
    "handshake",
    "noaddr",
    "connected",
    "ü€",
    "\0",
    "\r",
    "role:slave",
    "master_repl_offset:-9223372036854775809",
    "cluster_size:4294967296",
    "cluster_current_epoch:18446744073709551616",
    "0123456789abcdef0123456789abcdef0123456g",
];

/// Breaks a text in one place: a byte, a word or a line, changed, lost, doubled or moved.
fn ruin(text: &str, chance: &mut Chance) -> String {
    let separator = chance.of(&[" ", "\n", ":", ",", "-", ""]);
    let mut parts: Vec<&str> = text.split(separator).collect();
    let (at, other) = (chance.below(parts.len()), chance.below(parts.len()));
    match chance.below(6) {
        0 => {
            parts.remove(at);
        }
        1 => parts.insert(at, parts[other]),
        2 => parts.swap(at, other),
        3 => parts[at] = chance.of(WORDS),
        4 => parts.insert(at, chance.of(WORDS)),
        _ => parts.truncate(at),
    }
    parts.join(separator)
}

#[test]
fn no_ruin_of_a_reply_is_taken_for_more_than_it_is() {
    let names = [
        "lone",
        "handshake",
        "primary",
        "replica",
        "replica-never-linked",
        "migrating",
        "importing",
        "suspected",
        "failed",
        "no-address",
    ];
    let whole = names.map(replies);
    let mut chance = Chance(0x0dd5_1075);
    let mut accepted = 0_u32;
    for round in 0..MUTATIONS {
        let mut ruined = whole[chance.below(whole.len())].clone();
        for _ in 0..=chance.below(3) {
            let which = chance.below(4);
            ruined[which] = ruin(&ruined[which], &mut chance);
        }
        let Ok(view) = read(&ruined) else {
            continue;
        };
        accepted += 1;
        assert!(
            view.member(&view.id).is_some_and(|own| own.flags.myself),
            "{round}"
        );
        for member in &view.members {
            assert!(
                is_id(&member.id) && member.primary.iter().all(is_id),
                "{round}: {member:?}"
            );
            let mut next = 0;
            for range in member.slots.ranges() {
                let ordered = next <= range.start() && range.start() <= range.end();
                assert!(ordered && range.end() < SLOT_COUNT, "{round}: {range}");
                next = range.end() + 2;
            }
        }
    }
    // Neither all nor nothing: the ruins are neither beyond reading nor harmless.
    assert!(
        (MUTATIONS / 20..MUTATIONS / 20 * 19).contains(&accepted),
        "{accepted}"
    );
}

fn is_id(id: &ValkeyId) -> bool {
    id.as_str().len() == 40 && id.as_str().bytes().all(|byte| byte.is_ascii_hexdigit())
}
