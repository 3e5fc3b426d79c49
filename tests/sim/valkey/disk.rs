//! `nodes.conf`: what a process remembers of its cluster on its volume (`clusterSaveConfig`, `clusterLoadConfig`).
//! Never holds a handshake.

use std::fmt::Write as _;

use super::NodesConf;
use super::id::Id;
use super::slots;
use super::slots::Slots;
use super::table::Row;
use super::table::Table;
use super::table::flag;

/// The file as it is now: it is written at every change.
pub(super) fn write(table: &Table) -> NodesConf {
    let mut text = String::new();
    for row in table.rows().filter(|row| !row.has(flag::HANDSHAKE)) {
        let address = format!(
            "{}:{}@{},{},tls-port=0,shard-id={}",
            row.ip.map_or(String::new(), |ip| ip.to_string()),
            row.port,
            row.bus_port,
            row.hostname,
            row.shard
        );
        text += &line(table, row, &address);
        text.push('\n');
    }
    // Writing to a String cannot fail.
    writeln!(
        text,
        "vars currentEpoch {} lastVoteEpoch {}",
        table.current_epoch, table.last_vote_epoch
    )
    .ok();
    NodesConf { text }
}

/// A line of CLUSTER NODES or of the file (`clusterGenNodeDescription`).
pub(super) fn line(table: &Table, row: &Row, address: &str) -> String {
    let connected = row.link.is_some() || row.has(flag::MYSELF);
    let mut line = format!(
        "{} {address} {} {} {} {} {} {}",
        row.id,
        row.flag_words(),
        row.primary.map_or("-".to_owned(), |id| id.to_string()),
        row.ping_sent,
        row.pong_received,
        table.epoch_of(row),
        if connected {
            "connected"
        } else {
            "disconnected"
        },
    );
    if row.slot_count() > 0 {
        line.push(' ');
        line += &slots::text(row.ranges());
    }
    if row.has(flag::MYSELF) {
        let moving = table.migrating.iter().map(|(slot, id)| (slot, "->-", id));
        let coming = table.importing.iter().map(|(slot, id)| (slot, "-<-", id));
        let mut open: Vec<_> = moving.chain(coming).collect();
        open.sort();
        for (slot, arrow, id) in open {
            write!(line, " [{slot}{arrow}{id}]").ok();
        }
    }
    line
}

/// What a process that starts on the volume knows.
pub(super) fn read(conf: &NodesConf, now: i64) -> Result<Table, String> {
    let broken =
        || "Unrecoverable error: corrupted cluster config file \"nodes.conf\".\n".to_owned();
    let mut rows = Vec::new();
    let mut vars = (0, 0);
    for line in conf.text.lines().filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["vars", "currentEpoch", current, "lastVoteEpoch", voted] = words[..] {
            vars = (
                current.parse().map_err(|_| broken())?,
                voted.parse().map_err(|_| broken())?,
            );
            continue;
        }
        rows.push(row(&words, now).ok_or_else(broken)?);
    }
    let mine = rows
        .iter()
        .position(|(row, _)| row.has(flag::MYSELF))
        .ok_or_else(broken)?;
    let (me, my_slots) = rows.remove(mine);
    let id = me.id;
    let mut table = Table::new(me);
    (table.current_epoch, table.last_vote_epoch) = vars;
    let mut owned = vec![(id, my_slots)];
    for (row, slots) in rows {
        owned.push((row.id, slots));
        table.others.insert(row.id, row);
    }
    for (id, slots) in owned.iter().filter(|(_, slots)| !slots.is_empty()) {
        table.give(slots, *id);
    }
    Ok(table)
}

fn row(words: &[&str], now: i64) -> Option<(Row, Slots)> {
    let [
        id,
        address,
        flags,
        primary,
        ping,
        pong,
        epoch,
        _,
        slots @ ..,
    ] = words
    else {
        return None;
    };
    let mut fields = address.split(',');
    let (ip, ports) = fields.next()?.rsplit_once(':')?;
    let (port, bus_port) = ports.split_once('@')?;
    let hostname = fields.next().unwrap_or_default();
    let shard = fields
        .find_map(|field| field.strip_prefix("shard-id="))
        .and_then(Id::parse)?;
    let mut row = Row::new(Id::parse(id)?, shard, read_flags(flags), now);
    row.ip = ip.parse().ok();
    row.port = port.parse().ok()?;
    row.bus_port = bus_port.parse().ok()?;
    hostname.clone_into(&mut row.hostname);
    row.primary = Id::parse(primary);
    row.ping_sent = if *ping == "0" { 0 } else { now };
    row.pong_received = if *pong == "0" { 0 } else { now };
    row.failed = if row.has(flag::FAIL) { now } else { 0 };
    if row.primary.is_none() {
        row.epoch = epoch.parse().ok()?;
    }
    let ranges = slots
        .iter()
        .filter(|slots| !slots.starts_with('['))
        .map(|slots| {
            let (start, end) = slots.split_once('-').unwrap_or((slots, slots));
            Some((start.parse().ok()?, end.parse().ok()?))
        })
        .collect::<Option<Vec<(u16, u16)>>>()?;
    Some((row, Slots::of(ranges)))
}

fn read_flags(words: &str) -> u16 {
    words.split(',').fold(0, |flags, word| {
        flags
            | match word {
                "myself" => flag::MYSELF,
                "master" => flag::PRIMARY,
                "slave" => flag::REPLICA,
                "fail?" => flag::PFAIL,
                "fail" => flag::FAIL,
                "noaddr" => flag::NOADDR | flag::FAIL,
                "nofailover" => flag::NOFAILOVER,
                _ => 0,
            }
    })
}
