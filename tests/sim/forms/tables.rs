//! Replies about the cluster: whole ones are read as they were meant, damaged ones never panic and
//! never give a slot to a wrong node. Never a recorded reply: those are tested beside the parser.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;

use operator::model::name::ValkeyId;
use operator::model::slots::SlotRange;
use operator::model::slots::SlotSet;
use operator::model::topology::Load;
use operator::model::topology::Member;
use operator::model::topology::MemberFlags;
use operator::model::topology::NodeView;
use operator::model::topology::Role;
use operator::valkey::parse;

use super::dice::Dice;
use super::hold;
use super::same;

/// What CLUSTER MYID, CLUSTER INFO, CLUSTER NODES and INFO replication tell.
struct Replies {
    id: String,
    info: String,
    nodes: String,
    replication: String,
}

pub(super) fn form(dice: &mut Dice) -> Result<(), String> {
    let wish = view(dice);
    let mut replies = told(&wish, dice);
    if dice.below(100) < 40 {
        return whole(&replies, &wish);
    }
    let which = dice.below(8);
    let text = match which {
        0 => &mut replies.id,
        1 => &mut replies.info,
        2 => &mut replies.replication,
        _ => &mut replies.nodes,
    };
    *text = damaged(text, dice);
    broken(&replies)
}

fn whole(replies: &Replies, wish: &NodeView) -> Result<(), String> {
    match read(replies) {
        Ok(view) => same("the account", &view, wish),
        Err(error) => Err(format!("{error} in {}", replies.nodes)),
    }
}

fn read(replies: &Replies) -> Result<NodeView, parse::Error> {
    let Replies {
        id,
        info,
        nodes,
        replication,
    } = replies;
    parse::account(id, info, nodes, replication)
}

/// Whatever was done to them: each slot that is read is on the line of its owner, once.
fn broken(replies: &Replies) -> Result<(), String> {
    let view = match read(replies) {
        Ok(view) => view,
        Err(error) => {
            let words = error.to_string();
            return hold(!words.is_empty() && words.len() < 2000, || {
                format!("an error of {} bytes", words.len())
            });
        }
    };
    let lines: BTreeMap<&str, &str> = replies
        .nodes
        .lines()
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .collect();
    let mut owned = BTreeSet::new();
    hold(lines.len() == view.members.len(), || "lost a line".into())?;
    for member in &view.members {
        let line = lines.get(member.id.as_str());
        let line = line.ok_or_else(|| format!("{} is on no line", member.id))?;
        let told = simple(line).ok_or_else(|| format!("read slots from {line:?}"))?;
        for range in member.slots.ranges() {
            for slot in range.start()..=range.end() {
                hold(slot < 16384, || format!("slot {slot} is none"))?;
                hold(owned.insert(slot), || format!("slot {slot} has two owners"))?;
                hold(told.iter().any(|&(a, b)| a <= slot && slot <= b), || {
                    format!("slot {slot} is not in {line:?}")
                })?;
            }
        }
        // One range twice on one line does no harm.
        let every = told
            .iter()
            .filter_map(|&(start, end)| SlotRange::new(start, end))
            .collect();
        hold(SlotSet::of(every) == member.slots, || {
            format!("not all slots of {line:?}")
        })?;
    }
    hold(view.id.as_str() == replies.id, || "another id".into())
}

/// The ranges of a line behind its id, by the simplest reading.
fn simple(line: &str) -> Option<Vec<(u32, u32)>> {
    let words = line
        .split(' ')
        .skip(7)
        .filter(|word| !word.starts_with('['));
    words
        .map(|word| {
            let (start, end) = word.split_once('-').unwrap_or((word, word));
            let (start, end) = (start.parse().ok()?, end.parse().ok()?);
            (start <= end && end < 16384).then_some((start, end))
        })
        .collect()
}

/// An account of a random cluster: mostly small, once in a while as large as it gets.
fn view(dice: &mut Dice) -> NodeView {
    let (count, ranges) = match dice.below(400) {
        0 => (dice.between(100, 1000), dice.between(1, 16)),
        1 => (dice.between(1, 3), dice.between(1000, 8000)),
        _ => (dice.between(1, 12), dice.between(0, 4)),
    };
    let ids: Vec<ValkeyId> = (0..count).map(|_| id(dice)).collect();
    let myself = dice.below(count);
    let mut cuts: Vec<u32> = (0..count * ranges).map(|_| dice.small() % 16384).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let mut slots: Vec<Vec<SlotRange>> = vec![Vec::new(); count];
    for pair in cuts.windows(2) {
        if !dice.once_in(5) {
            slots[dice.below(count)].extend(SlotRange::new(pair[0], pair[1] - 1));
        }
    }
    let members: Vec<Member> = slots
        .into_iter()
        .enumerate()
        .map(|(index, slots)| member(&ids, (index, myself), slots, dice))
        .collect();
    let offset = dice.next() >> 20;
    NodeView {
        id: ids[myself].clone(),
        cluster_ok: dice.once_in(2),
        slots_assigned: dice.small() % 16385,
        known_nodes: dice.small() % 1000,
        size: dice.small() % 1000,
        current_epoch: dice.next() >> 30,
        my_epoch: dice.next() >> 30,
        role: if dice.once_in(2) {
            Role::Primary { offset }
        } else {
            let linked = dice.once_in(2);
            Role::Replica { linked, offset }
        },
        members,
        loading: false,
        failing_over: false,
        load: Load::default(),
        clock: 0,
        migrations: Vec::new(),
    }
}

fn member(
    ids: &[ValkeyId],
    (index, myself): (usize, usize),
    slots: Vec<SlotRange>,
    dice: &mut Dice,
) -> Member {
    let primary = dice.once_in(3).then(|| dice.of(ids).clone());
    let mut flags = MemberFlags {
        myself: index == myself,
        primary: primary.is_none(),
        ..MemberFlags::default()
    };
    for flag in [
        &mut flags.suspected,
        &mut flags.failed,
        &mut flags.handshake,
        &mut flags.no_address,
    ] {
        *flag = dice.once_in(8);
    }
    Member {
        id: ids[index].clone(),
        ip: address(dice),
        flags,
        primary,
        epoch: dice.next() >> 20,
        connected: dice.once_in(2),
        silent_seconds: 0,
        slots: SlotSet::of(slots),
    }
}

fn id(dice: &mut Dice) -> ValkeyId {
    let hex = |dice: &mut Dice| format!("{:016x}", dice.next());
    let text: String = (0..3).map(|_| hex(dice)).collect();
    ValkeyId::new(&text[..40])
}

fn address(dice: &mut Dice) -> Option<IpAddr> {
    match dice.below(8) {
        0 => None,
        1 => Some(Ipv6Addr::from(u128::from(dice.next()) << 64 | u128::from(dice.next())).into()),
        _ => Some(Ipv4Addr::from(dice.small()).into()),
    }
}

/// The replies that a server with this view gives, odd but true parts included.
fn told(view: &NodeView, dice: &mut Dice) -> Replies {
    let mut nodes = String::new();
    for member in &view.members {
        row(&mut nodes, member, dice);
    }
    let state = if view.cluster_ok { "ok" } else { "fail" };
    let mut info = [
        format!("cluster_state:{state}"),
        format!("cluster_slots_assigned:{}", view.slots_assigned),
        format!("cluster_slots_ok:{}", dice.small()),
        format!("cluster_known_nodes:{}", view.known_nodes),
        format!("cluster_size:{}", view.size),
        format!("cluster_current_epoch:{}", view.current_epoch),
        format!("cluster_my_epoch:{}", view.my_epoch),
        format!("cluster_size_of_something_new:{}", dice.small()),
    ];
    let turn = dice.below(info.len());
    info.rotate_left(turn);
    let mut replication = match &view.role {
        Role::Primary { offset } => vec![
            "role:master".to_owned(),
            "connected_slaves:0".to_owned(),
            format!("master_repl_offset:{offset}"),
        ],
        Role::Replica { linked, offset } => vec![
            "role:slave".to_owned(),
            format!("master_link_status:{}", if *linked { "up" } else { "down" }),
            // A replica that never synced tells -1.
            match offset {
                0 => "slave_repl_offset:-1".to_owned(),
                offset => format!("slave_repl_offset:{offset}"),
            },
            format!("master_repl_offset:{}", dice.small()),
        ],
    };
    let turn = dice.below(replication.len());
    replication.rotate_left(turn);
    Replies {
        id: view.id.as_str().to_owned(),
        info: info.join("\r\n") + "\r\n",
        nodes,
        replication: format!("# Replication\r\n{}\r\n", replication.join("\r\n")),
    }
}

/// One line, as `clusterGenNodesDescription` writes it.
fn row(nodes: &mut String, member: &Member, dice: &mut Dice) {
    let flags = &member.flags;
    let mut named: Vec<&str> = [
        (flags.myself, "myself"),
        (flags.primary, "master"),
        (!flags.primary, "slave"),
        (flags.suspected, "fail?"),
        (flags.failed, "fail"),
        (flags.handshake, "handshake"),
        (flags.no_address, "noaddr"),
        (dice.once_in(9), "nofailover"),
    ]
    .into_iter()
    .filter_map(|(set, name)| set.then_some(name))
    .collect();
    if named.is_empty() {
        named.push("noflags");
    }
    let ip = member.ip.map(|ip| ip.to_string()).unwrap_or_default();
    let more = *dice.of(&[
        "",
        "",
        ",",
        ",c-1a2b3.c.ns.svc",
        ",,availability-zone=a:b@c",
    ]);
    let primary = member.primary.as_ref().map_or("-", ValkeyId::as_str);
    let (sent, received) = (dice.small(), dice.small());
    let link = if member.connected {
        "connected"
    } else {
        "disconnected"
    };
    write!(
        nodes,
        "{} {ip}:6379@16379{more} {} {primary} {sent} {received} {} {link}",
        member.id,
        named.join(","),
        member.epoch
    )
    .expect("a String takes all");
    for range in member.slots.ranges() {
        write!(nodes, " {range}").expect("a String takes all");
    }
    if flags.myself && dice.once_in(3) {
        let (slot, other) = (dice.small() % 16384, id(dice));
        let arrow = *dice.of(&["->-", "-<-"]);
        write!(nodes, " [{slot}{arrow}{other}]").expect("a String takes all");
    }
    nodes.push('\n');
}

/// What a reply is written with, and what it never holds.
const ODD: &[u8] = b"0123456789abcdef -:,@[]<>\n\r\0?+\xff";

/// One to four damages of the kinds that a cut, a bug or a mix-up of replies could do.
fn damaged(text: &str, dice: &mut Dice) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..dice.between(1, 4) {
        if bytes.is_empty() {
            break;
        }
        let (length, at) = (bytes.len(), dice.below(bytes.len()));
        let to = (at + dice.below(60)).min(length);
        match dice.below(9) {
            0 => bytes[at] = *dice.of(ODD),
            1 => bytes.truncate(at),
            2 => drop(bytes.drain(at..to)),
            3 => bytes.insert(at, *dice.of(b" 09-\n")),
            4 => bytes.extend_from_within(at..to),
            5 => bytes[at..to].reverse(),
            6 => bytes[at] ^= 1 << dice.below(8),
            7 => {
                let line = text.lines().nth(dice.below(5)).unwrap_or("16384");
                bytes.extend(line.bytes().chain(*b"\n"));
            }
            _ => {
                let copy = bytes[at..to].to_vec();
                bytes.splice(at..at, copy);
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
