//! Who owns which slot, who is whose replica, and whether the cluster is up, in one process's eyes
//! (`clusterUpdateSlotsConfigWith`, `clusterSetPrimary`, `clusterUpdateState`, `clusterReset`).
//! Never asks another process.

use std::sync::Arc;

use super::id::Id;
use super::network::Network;
use super::process::Process;
use super::process::todo;
use super::slots;
use super::slots::Slots;
use super::table::FailReason;
use super::table::Row;
use super::table::flag;

/// How long a primary that starts does not call itself ready (`CLUSTER_WRITABLE_DELAY`).
const WRITABLE_DELAY: i64 = 2000;

/// What a claim takes from whom.
struct Taken {
    all: Slots,
    /// From this process, while it still holds keys of them.
    dirty: Slots,
    /// How many from the own shard's primary.
    ours: u32,
    exporting: bool,
    importing: bool,
}

impl Process {
    /// A node claims slots since an epoch: what is newly its own is rebound, and this process may lose its role
    /// by it.
    pub(super) fn claimed(
        &mut self,
        net: &mut Network,
        sender: Id,
        epoch: u64,
        slots: &Arc<Slots>,
    ) {
        if sender == self.table.me.id {
            return;
        }
        let Some(row) = self.table.get(sender) else {
            return;
        };
        let same_shard = row.shard == self.table.me.shard;
        let let_go = row.slots().without(slots);
        let still = row.slots().and(slots);
        let up = match self.table.me.primary {
            None if self.table.me.is_primary() => Some(self.table.me.id),
            primary => primary,
        };
        let taken = self.taken(sender, epoch, slots, up);
        if !taken.all.is_empty() {
            self.retarget_manual(sender, &taken.all, same_shard);
            self.table.give(&taken.all, sender);
            self.todo |= todo::UPDATE_STATE;
        }
        self.table.let_go = self.table.let_go.without(&still).or(&let_go);
        self.finish_manual(net, sender, epoch, slots);
        let claims = slots.count();
        let loses = self.follow_claim(net, sender, epoch, (claims, taken.ours, same_shard, up));
        if taken.exporting {
            self.exports_changed_owner(net);
        }
        if taken.importing {
            self.imports_changed_owner(net);
        }
        if loses {
            for slot in taken.dirty.iter() {
                self.say(format!(
                    "Deleting keys in dirty slot {slot} on node {} () in shard {}.",
                    self.table.me.id, self.table.me.shard
                ));
                self.delete_slot(net, slot);
            }
        }
    }

    /// An owner loses a slot to a greater epoch, or if it has granted it itself.
    fn taken(&self, sender: Id, epoch: u64, slots: &Slots, up: Option<Id>) -> Taken {
        let granted = self.granted_slots();
        let mut free = slots.clone();
        let mut taken = Taken {
            all: Slots::default(),
            dirty: Slots::default(),
            ours: 0,
            exporting: false,
            importing: false,
        };
        for row in self.table.rows() {
            if row.slot_count() == 0 {
                continue;
            }
            free = free.without(row.slots());
            if row.id == sender || !row.slots().meets(slots) {
                continue;
            }
            let overlap = row.slots().and(slots);
            let lost = if row.epoch < epoch {
                overlap
            } else {
                overlap.and(&granted)
            };
            if Some(row.id) == up {
                taken.ours = lost.count();
            }
            if row.id == self.table.me.id {
                let keys = lost.iter().filter(|slot| self.data.count(*slot) > 0);
                taken.dirty = Slots::of(keys.map(|slot| (slot, slot)));
            }
            taken.all = taken.all.or(&lost);
        }
        taken.all = taken.all.or(&free);
        taken.exporting = self.exported_slots().meets(&taken.all);
        taken.importing = self.imported_slots().meets(&taken.all);
        taken
    }

    /// Whether keys of lost slots are to be deleted: unless this process becomes a replica.
    fn follow_claim(
        &mut self,
        net: &mut Network,
        sender: Id,
        epoch: u64,
        (claims, ours, same_shard, up): (u32, u32, bool, Option<Id>),
    ) -> bool {
        let me = &self.table.me;
        let demoted = ours > 0
            || me.primary != Some(sender)
                && claims == 0
                && me.slot_count() == 0
                && self.table.epoch_of(me) < epoch
                && same_shard;
        let empty = up
            .and_then(|id| self.table.get(id))
            .is_some_and(|row| row.slot_count() == 0);
        if !demoted || !empty {
            return true;
        }
        if same_shard || self.config.yes("cluster-allow-replica-migration") {
            self.say(format!(
                "Configuration change detected. Reconfiguring myself as a replica of node {sender} ()"
            ));
            self.replicate(net, sender, !same_shard, !same_shard);
            self.todo |= todo::UPDATE_STATE | todo::BROADCAST;
            return false;
        }
        if self.table.me.is_primary() && claims >= ours {
            self.say(format!(
                "My last slot was migrated to node {sender} (). I am now an empty primary."
            ));
            return true;
        }
        false
    }

    /// Slots that are being moved by hand follow a failover and heed another shard's claim.
    fn retarget_manual(&mut self, sender: Id, taken: &Slots, same_shard: bool) {
        if !same_shard {
            self.table
                .migrating
                .retain(|slot, _| !taken.contains(*slot));
        }
        let shard = self.table.get(sender).map(|row| row.shard);
        let shards: Vec<(u16, Id, bool)> = self
            .table
            .importing
            .iter()
            .filter(|(slot, from)| taken.contains(**slot) && **from != sender)
            .map(|(slot, from)| {
                let from_shard = self.table.get(*from).map(|row| row.shard);
                (*slot, sender, from_shard == shard)
            })
            .collect();
        for (slot, sender, same) in shards {
            if same {
                self.table.importing.insert(slot, sender);
            } else {
                self.table.importing.remove(&slot);
            }
        }
    }

    /// What a sender does not claim: a failover in the target's shard, and slots that came by hand.
    fn finish_manual(&mut self, _net: &mut Network, sender: Id, epoch: u64, slots: &Slots) {
        if self.table.migrating.is_empty() && self.table.importing.is_empty() {
            return;
        }
        let shard = self.table.get(sender).map(|row| row.shard);
        let moved: Vec<u16> = self
            .table
            .migrating
            .iter()
            .filter(|(slot, to)| !slots.contains(**slot) && **to != sender)
            .filter(|(_, to)| {
                self.table.get(**to).is_some_and(|row| {
                    (row.epoch < epoch || row.is_replica()) && Some(row.shard) == shard
                })
            })
            .map(|(slot, _)| *slot)
            .collect();
        for slot in moved {
            self.table.migrating.insert(slot, sender);
        }
        if !self.table.me.is_primary() {
            return;
        }
        let arrived: Vec<u16> = self
            .table
            .importing
            .iter()
            .filter(|(slot, from)| !slots.contains(**slot) && **from == sender)
            .map(|(slot, _)| *slot)
            .collect();
        for slot in arrived {
            self.table.importing.remove(&slot);
            if !self.table.me.slots().contains(slot) {
                self.table
                    .give(&Slots::of([(slot, slot)]), self.table.me.id);
                self.bump_epoch();
            }
            self.todo |= todo::UPDATE_STATE;
        }
    }

    /// `clusterBumpConfigEpochWithoutConsensus`: whether it was not the greatest already.
    pub(super) fn bump_epoch(&mut self) -> bool {
        let greatest = self.table.greatest_epoch();
        if self.table.me.epoch != 0 && self.table.me.epoch == greatest {
            return false;
        }
        self.table.current_epoch += 1;
        self.table.me.epoch = self.table.current_epoch;
        self.todo |= todo::BROADCAST;
        self.say(format!("New configEpoch set to {}", self.table.me.epoch));
        true
    }

    /// `clusterSetNodeAsPrimary`
    pub(super) fn becomes_primary(&mut self, net: &mut Network, id: Id) {
        let mine = id == self.table.me.id;
        let Some(row) = self.table.get_mut(id).filter(|row| !row.is_primary()) else {
            return;
        };
        if row.primary.is_some() && !mine {
            row.set(flag::MIGRATE_TO, true);
        }
        row.set(flag::REPLICA, false);
        row.set(flag::PRIMARY, true);
        row.primary = None;
        let shard = row.shard;
        self.say(format!(
            "Reconfiguring node {id} () as primary for shard {shard}"
        ));
        if mine {
            self.detach(net);
        }
        self.todo |= todo::UPDATE_STATE;
    }

    /// `clusterSetPrimary`: this process becomes a replica, of another node than so far.
    pub(super) fn replicate(&mut self, net: &mut Network, id: Id, close_slots: bool, full: bool) {
        let me = &mut self.table.me;
        if me.is_primary() {
            me.set(flag::PRIMARY | flag::MIGRATE_TO, false);
            me.set(flag::REPLICA, true);
        }
        if close_slots {
            self.table.migrating.clear();
            self.table.importing.clear();
        }
        self.table.me.primary = Some(id);
        let Some((shard, address)) = self
            .table
            .get(id)
            .map(|row| (row.shard, row.ip.map(|ip| (ip, row.port))))
        else {
            return;
        };
        self.table.me.shard = shard;
        match address {
            Some((ip, port)) => self.attach(net, ip, port, full),
            None => self.attach_nowhere(net, full),
        }
        self.reset_manual_failover(net);
        self.exports_changed_owner(net);
        self.imports_changed_owner(net);
        self.election.at = 0;
    }

    /// `markNodeAsFailing`
    pub(super) fn mark_failing(&mut self, net: &Network, id: Id) {
        let now = self.clock(net);
        let Some(row) = self.table.get_mut(id) else {
            return;
        };
        row.set(flag::FAIL, true);
        row.set(flag::PFAIL, false);
        row.failed = now;
        if self.table.me.primary == Some(id) {
            self.table.me.set(flag::MY_PRIMARY_FAIL, true);
            self.todo |= todo::FAILOVER;
        }
        self.todo |= todo::UPDATE_STATE;
    }

    /// `markNodeAsFailingIfNeeded`: with a majority of those who vote.
    pub(super) fn mark_failing_if_agreed(&mut self, net: &mut Network, id: Id) {
        let suspected = self
            .table
            .get(id)
            .is_some_and(|row| row.has(flag::PFAIL) && !row.has(flag::FAIL));
        if !suspected {
            return;
        }
        let (now, timeout) = (self.clock(net), self.node_timeout());
        let own = usize::from(self.table.me.votes());
        if self.table.reports(id, now, timeout) + own < self.quorum() {
            return;
        }
        self.say(format!("Marking node {id} () as failing (quorum reached)."));
        self.mark_failing(net, id);
        self.broadcast(net, &super::message::Body::Fail(id), false);
    }

    /// `clearNodeFailureIfNeeded`: a failed node answered.
    pub(super) fn clear_failure(&mut self, net: &Network, id: Id) {
        let (now, timeout) = (self.clock(net), self.node_timeout());
        let Some(row) = self.table.get_mut(id) else {
            return;
        };
        if !row.votes() || now - row.failed > timeout * 2 {
            row.set(flag::FAIL, false);
            self.todo |= todo::UPDATE_STATE;
            self.say(format!(
                "Clear FAIL state for node {id} (): is reachable again."
            ));
        }
    }

    pub(super) fn quorum(&self) -> usize {
        usize::try_from(self.table.size / 2 + 1).unwrap_or(usize::MAX)
    }

    /// `clusterUpdateState`
    pub(super) fn update_state(&mut self, net: &Network) {
        let now = self.clock(net);
        self.todo &= !todo::UPDATE_STATE;
        let table = &mut self.table;
        if table.first_update == 0 {
            table.first_update = now;
        }
        let starting = now - table.first_update < WRITABLE_DELAY;
        table.safe_to_join = !(table.me.is_primary() && !table.ok && starting);
        if !table.safe_to_join {
            return;
        }
        let covered: u32 = table
            .rows()
            .filter(|row| !row.has(flag::FAIL))
            .map(Row::slot_count)
            .sum();
        let full = covered == u32::from(slots::COUNT);
        let reachable = |row: &&Row| !row.has(flag::FAIL | flag::PFAIL);
        let voters = || table.rows().filter(|row| row.votes());
        let reached = voters().filter(reachable).count();
        let size = voters().count();
        table.size = u32::try_from(size).unwrap_or(0);
        let mut reason = FailReason::None;
        if !full && self.config.yes("cluster-require-full-coverage") {
            reason = FailReason::Coverage;
        }
        if reached < size / 2 + 1 {
            reason = FailReason::Minority;
            table.among_minority = now;
        }
        self.change_state(now, reason);
    }

    fn change_state(&mut self, now: i64, reason: FailReason) {
        let ok = reason == FailReason::None;
        let rejoin = self.node_timeout().clamp(500, 5000);
        let table = &mut self.table;
        if ok != table.ok {
            if ok && table.me.is_primary() && now - table.among_minority < rejoin {
                return;
            }
            table.ok = ok;
            let word = if ok { "ok" } else { "fail" };
            self.say(format!("Cluster state changed: {word}"));
        }
        if self.table.fail_reason != reason {
            self.table.fail_reason = reason;
            match reason {
                FailReason::None => {}
                FailReason::Coverage => self.say(
                    "Cluster is currently down: At least one hash slot is not served by any \
                     available node. Please check the 'cluster-require-full-coverage' \
                     configuration."
                        .to_owned(),
                ),
                FailReason::Minority => self.say(
                    "Cluster is currently down: I am part of a minority partition.".to_owned(),
                ),
            }
        }
    }

    /// `clusterReset`
    pub(super) fn reset(&mut self, net: &mut Network, hard: bool) {
        self.table.migrating.clear();
        self.table.importing.clear();
        self.reset_manual_failover(net);
        let all = Slots::of([(0, slots::COUNT - 1)]);
        self.table.unassign(&all);
        let others: Vec<Id> = self.table.others.keys().copied().collect();
        for id in others {
            self.remove(net, id);
        }
        self.table.banned.clear();
        self.exports_changed_owner(net);
        self.imports_changed_owner(net);
        if hard {
            self.table.current_epoch = 0;
            self.table.last_vote_epoch = 0;
            self.table.me.epoch = 0;
            self.table.me.id = Id::random(&mut net.numbers);
            self.say(format!("Node hard reset, now I'm {}", self.table.me.id));
        }
        self.table.me.shard = Id::random(&mut net.numbers);
        if self.table.me.is_replica() {
            self.becomes_primary(net, self.table.me.id);
            self.flush(net);
        }
        self.todo |= todo::UPDATE_STATE;
    }

    /// `verifyClusterConfigWithData`: keys of slots that this primary does not own.
    pub(super) fn verify_data(&mut self, net: &mut Network) {
        if !self.table.me.is_primary() {
            return;
        }
        for slot in self.data.slots() {
            if self.table.me.slots().contains(slot) || self.table.importing.contains_key(&slot) {
                continue;
            }
            if self.table.owner(slot).is_none() {
                self.say(format!(
                    "I have keys for unassigned slot {slot}. Taking responsibility for it."
                ));
                self.table
                    .give(&Slots::of([(slot, slot)]), self.table.me.id);
            } else {
                self.say(format!(
                    "I have keys for slot {slot}, but the slot is assigned to another node. \
                     Deleting keys in the slot."
                ));
                self.delete_slot(net, slot);
            }
        }
    }
}
