//! What a process believes of its cluster: a row for every node, itself included, and who owns which slot.
//! Never holds a slot for two nodes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::id::Id;
use super::message::KINDS;
use super::network::Socket;
use super::slots::Slots;

/// The flags of a row (`CLUSTER_NODE_*` in `cluster_legacy.h`).
pub(super) mod flag {
    pub(in super::super) const PRIMARY: u16 = 1;
    pub(in super::super) const REPLICA: u16 = 1 << 1;
    pub(in super::super) const PFAIL: u16 = 1 << 2;
    pub(in super::super) const FAIL: u16 = 1 << 3;
    pub(in super::super) const MYSELF: u16 = 1 << 4;
    pub(in super::super) const HANDSHAKE: u16 = 1 << 5;
    pub(in super::super) const NOADDR: u16 = 1 << 6;
    pub(in super::super) const MEET: u16 = 1 << 7;
    pub(in super::super) const MIGRATE_TO: u16 = 1 << 8;
    pub(in super::super) const NOFAILOVER: u16 = 1 << 9;
    pub(in super::super) const EXTENSIONS: u16 = 1 << 10;
    pub(in super::super) const LIGHT_PUBLISH: u16 = 1 << 11;
    pub(in super::super) const MULTI_MEET: u16 = 1 << 12;
    pub(in super::super) const MY_PRIMARY_FAIL: u16 = 1 << 13;
}

/// One node as a process believes it to be.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) id: Id,
    pub(super) shard: Id,
    pub(super) flags: u16,
    pub(super) epoch: u64,
    slots: Arc<Slots>,
    /// The same as ranges: they are asked for far more often than they change.
    ranges: Arc<[(u16, u16)]>,
    slot_count: u32,
    pub(super) primary: Option<Id>,
    /// None if it was never learnt, or is known to be wrong.
    pub(super) ip: Option<IpAddr>,
    pub(super) port: u16,
    pub(super) bus_port: u16,
    pub(super) hostname: String,
    pub(super) offset: u64,
    pub(super) created: i64,
    /// Zero while no ping is unanswered.
    pub(super) ping_sent: i64,
    pub(super) pong_received: i64,
    pub(super) data_received: i64,
    pub(super) meet_sent: i64,
    pub(super) failed: i64,
    pub(super) dialed: i64,
    pub(super) inbound_freed: i64,
    pub(super) orphaned: i64,
    pub(super) link: Option<Socket>,
    pub(super) inbound: Option<Socket>,
    /// Who called it failing, and until when that counts (`fail_reports`).
    pub(super) reports: BTreeMap<Id, i64>,
}

impl Row {
    pub(super) fn new(id: Id, shard: Id, flags: u16, now: i64) -> Self {
        Self {
            id,
            shard,
            flags,
            epoch: 0,
            slots: Arc::default(),
            ranges: Arc::default(),
            slot_count: 0,
            primary: None,
            ip: None,
            port: 0,
            bus_port: 0,
            hostname: String::new(),
            offset: 0,
            created: now,
            ping_sent: 0,
            pong_received: 0,
            data_received: 0,
            meet_sent: 0,
            failed: 0,
            dialed: 0,
            inbound_freed: now,
            orphaned: 0,
            link: None,
            inbound: None,
            reports: BTreeMap::new(),
        }
    }

    pub(super) fn has(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }

    pub(super) fn set(&mut self, flags: u16, on: bool) {
        if on {
            self.flags |= flags;
        } else {
            self.flags &= !flags;
        }
    }

    pub(super) fn is_primary(&self) -> bool {
        self.has(flag::PRIMARY)
    }

    pub(super) fn is_replica(&self) -> bool {
        self.has(flag::REPLICA)
    }

    /// A primary that owns a slot (`clusterNodeIsVotingPrimary`).
    pub(super) fn votes(&self) -> bool {
        self.is_primary() && self.slot_count > 0
    }

    /// `nodeInNormalState`
    pub(super) fn is_normal(&self) -> bool {
        !self.has(flag::HANDSHAKE | flag::MEET | flag::PFAIL | flag::FAIL)
    }

    pub(super) fn slots(&self) -> &Arc<Slots> {
        &self.slots
    }

    /// Its slots as inclusive ranges, in order.
    pub(super) fn ranges(&self) -> &[(u16, u16)] {
        &self.ranges
    }

    pub(super) fn slot_count(&self) -> u32 {
        self.slot_count
    }

    fn own(&mut self, slots: Slots) {
        self.slot_count = slots.count();
        self.ranges = slots.ranges().into();
        self.slots = Arc::new(slots);
    }

    /// The flags in the words of CLUSTER NODES (`representClusterNodeFlags`).
    pub(super) fn flag_words(&self) -> String {
        const WORDS: [(u16, &str); 8] = [
            (flag::MYSELF, "myself"),
            (flag::PRIMARY, "master"),
            (flag::REPLICA, "slave"),
            (flag::PFAIL, "fail?"),
            (flag::FAIL, "fail"),
            (flag::HANDSHAKE, "handshake"),
            (flag::NOADDR, "noaddr"),
            (flag::NOFAILOVER, "nofailover"),
        ];
        let words: Vec<&str> = WORDS
            .iter()
            .filter(|(flag, _)| self.has(*flag))
            .map(|(_, word)| *word)
            .collect();
        if words.is_empty() {
            return "noflags".to_owned();
        }
        words.join(",")
    }
}

/// Why a cluster state is not ok.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailReason {
    None,
    Coverage,
    Minority,
}

/// All rows, and what is known of the cluster as a whole (`clusterState`).
#[derive(Debug)]
pub(super) struct Table {
    pub(super) me: Row,
    pub(super) others: BTreeMap<Id, Row>,
    pub(super) current_epoch: u64,
    pub(super) last_vote_epoch: u64,
    pub(super) ok: bool,
    pub(super) fail_reason: FailReason,
    pub(super) safe_to_join: bool,
    /// How many nodes vote.
    pub(super) size: u32,
    /// When the state was looked at for the first time, and when last among a minority.
    pub(super) first_update: i64,
    pub(super) among_minority: i64,
    /// Forgotten nodes, and until which second since 1970.
    pub(super) banned: BTreeMap<Id, i64>,
    /// Slots whose owner claims them no more (`owner_not_claiming_slot`).
    pub(super) let_go: Slots,
    pub(super) migrating: BTreeMap<u16, Id>,
    pub(super) importing: BTreeMap<u16, Id>,
    /// How many rows were suspected at the last cron.
    pub(super) suspected: usize,
    pub(super) sent: [u64; KINDS],
    pub(super) received: [u64; KINDS],
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
}

impl Table {
    pub(super) fn new(me: Row) -> Self {
        Self {
            me,
            others: BTreeMap::new(),
            current_epoch: 0,
            last_vote_epoch: 0,
            ok: false,
            fail_reason: FailReason::None,
            safe_to_join: false,
            size: 0,
            first_update: 0,
            among_minority: 0,
            banned: BTreeMap::new(),
            let_go: Slots::default(),
            migrating: BTreeMap::new(),
            importing: BTreeMap::new(),
            suspected: 0,
            sent: [0; KINDS],
            received: [0; KINDS],
            bytes_sent: 0,
            bytes_received: 0,
        }
    }

    pub(super) fn get(&self, id: Id) -> Option<&Row> {
        if id == self.me.id {
            Some(&self.me)
        } else {
            self.others.get(&id)
        }
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut Row> {
        if id == self.me.id {
            Some(&mut self.me)
        } else {
            self.others.get_mut(&id)
        }
    }

    /// All rows in the order of their ids.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        let before = self.others.range(..self.me.id);
        let after = self.others.range(self.me.id..);
        before
            .map(|(_, row)| row)
            .chain([&self.me])
            .chain(after.map(|(_, row)| row))
    }

    pub(super) fn count(&self) -> usize {
        self.others.len() + 1
    }

    /// Who owns a slot.
    pub(super) fn owner(&self, slot: u16) -> Option<&Row> {
        [&self.me]
            .into_iter()
            .chain(self.others.values())
            .find(|row| row.slot_count > 0 && row.slots.contains(slot))
    }

    /// Every slot that somebody owns.
    pub(super) fn assigned(&self) -> Slots {
        self.rows()
            .filter(|row| row.slot_count > 0)
            .fold(Slots::default(), |all, row| all.or(&row.slots))
    }

    /// The replicas of a primary, itself never.
    pub(super) fn replicas(&self, primary: Id) -> impl Iterator<Item = &Row> {
        self.rows()
            .filter(move |row| row.is_replica() && row.primary == Some(primary))
    }

    /// `clusterCountNonFailingReplicas`
    pub(super) fn working_replicas(&self, primary: Id) -> usize {
        self.replicas(primary)
            .filter(|row| !row.has(flag::FAIL))
            .count()
    }

    /// The primary of a row's shard, as far as it can be followed (`clusterNodeGetPrimary`).
    pub(super) fn top(&self, id: Id) -> Option<&Row> {
        let mut row = self.get(id)?;
        for _ in 0..self.count() {
            let Some(next) = row.primary.and_then(|primary| self.get(primary)) else {
                break;
            };
            row = next;
            if row.id == id {
                break;
            }
        }
        Some(row)
    }

    /// The epoch of a row: a replica's is its primary's (`nodeEpoch`).
    pub(super) fn epoch_of(&self, row: &Row) -> u64 {
        row.primary
            .and_then(|primary| self.get(primary))
            .map_or(row.epoch, |primary| primary.epoch)
    }

    pub(super) fn greatest_epoch(&self) -> u64 {
        self.rows()
            .map(|row| row.epoch)
            .fold(self.current_epoch, u64::max)
    }

    /// Takes slots from whoever has them and gives them to a node.
    pub(super) fn give(&mut self, slots: &Slots, to: Id) {
        self.unassign(slots);
        let others_have_replicas = self
            .rows()
            .any(|row| row.is_replica() && row.primary.is_some());
        let Some(row) = self.get_mut(to) else {
            return;
        };
        // A primary's first slot makes it a place for migrating replicas, where there are any.
        if row.slot_count == 0 && others_have_replicas && !slots.is_empty() {
            row.set(flag::MIGRATE_TO, true);
        }
        let owned = row.slots.or(slots);
        row.own(owned);
    }

    /// Takes slots from whoever has them.
    pub(super) fn unassign(&mut self, slots: &Slots) {
        self.let_go = self.let_go.without(slots);
        for row in [&mut self.me].into_iter().chain(self.others.values_mut()) {
            if row.slot_count > 0 && row.slots.meets(slots) {
                let kept = row.slots.without(slots);
                row.own(kept);
            }
        }
    }

    /// A sender's claim is what its row says: from now on they share one set, so that the next comparison is
    /// one of addresses.
    pub(super) fn share(&mut self, id: Id, claimed: &Arc<Slots>) {
        if let Some(row) = self.get_mut(id)
            && *row.slots == **claimed
        {
            row.slots = Arc::clone(claimed);
        }
    }

    /// Whether a row has another set of slots than is claimed.
    pub(super) fn differs(&self, id: Id, claimed: &Arc<Slots>) -> bool {
        self.get(id)
            .is_some_and(|row| !Arc::ptr_eq(&row.slots, claimed) && *row.slots != **claimed)
    }

    /// The bans that still hold (`clusterBlacklistCleanup`).
    pub(super) fn is_banned(&mut self, id: Id, second: i64) -> bool {
        self.banned.retain(|_, until| *until >= second);
        self.banned.contains_key(&id)
    }

    /// Reports that still count.
    pub(super) fn reports(&mut self, id: Id, now: i64, node_timeout: i64) -> usize {
        let cutoff = now - node_timeout * 2;
        self.get_mut(id).map_or(0, |row| {
            row.reports.retain(|_, at| *at > cutoff);
            row.reports.len()
        })
    }
}
