//! Elections, votes and failovers by hand (`clusterHandleReplicaFailover` and its neighbours).
//! Never decides by anything that the real process cannot see.

use super::id::Id;
use super::message::Body;
use super::message::Header;
use super::network::Network;
use super::process::Process;
use super::process::todo;
use super::table::Row;
use super::table::flag;

/// A replica's attempt to become primary, and a failover by hand on either side.
#[derive(Debug, Default)]
pub(super) struct Election {
    /// When it may ask for votes; zero without an election.
    pub(super) at: i64,
    pub(super) votes: usize,
    asked: bool,
    rank: usize,
    primary_rank: usize,
    pub(super) epoch: u64,
    /// Why it does not stand, as last said.
    cannot: Option<&'static str>,
    said: i64,
    /// When a failover by hand is given up; zero without one.
    pub(super) manual_end: i64,
    can_start: bool,
    /// On a primary: for whom it has paused its clients.
    pub(super) replica: Option<Id>,
    /// On a replica: where its primary paused.
    pub(super) primary_offset: Option<u64>,
}

impl Process {
    /// Somebody has an epoch that makes this election hopeless.
    pub(super) fn election_overtaken(&mut self, sender: Id, epoch: u64) {
        if self.election.at != 0 && self.election.asked && epoch >= self.election.epoch {
            self.election.at = 0;
            self.todo |= todo::FAILOVER;
            self.say(format!(
                "Failover election in progress for epoch {}, but received a claim from node {sender} () \
                 with an equal or higher epoch {epoch}. Resetting the election since we cannot win an \
                 election in the past.",
                self.election.epoch
            ));
        }
    }

    /// `clusterSendFailoverAuthIfNeeded`
    pub(super) fn asked_for_vote(&mut self, net: &mut Network, replica: Id, request: &Header) {
        if !self.table.me.votes() {
            return;
        }
        if let Some(reason) = self.denial(replica, request) {
            self.say(format!("Failover auth denied to {replica} (){reason}"));
            return;
        }
        let later = self
            .table
            .rows()
            .find(|row| row.epoch > request.config_epoch && row.slots().meets(&request.slots));
        if let Some(later) = later {
            let slot = later.slots().and(&request.slots).first().unwrap_or(0);
            let said = format!(
                "Failover auth denied to {replica} (): slot {slot} epoch ({}) > reqConfigEpoch ({})",
                later.epoch, request.config_epoch
            );
            let update = super::bus::update(later, &self.table.let_go);
            self.say(said);
            self.post_to(net, replica, update);
            return;
        }
        self.table.last_vote_epoch = self.table.current_epoch;
        self.post_to(net, replica, Body::AuthAck);
        self.say(format!(
            "Failover auth granted to {replica} () for epoch {}",
            self.table.current_epoch
        ));
    }

    fn denial(&self, replica: Id, request: &Header) -> Option<String> {
        let (epoch, current) = (request.current_epoch, self.table.current_epoch);
        if !self.table.safe_to_join {
            return Some(": it is not safe to vote in this moment)".to_owned());
        }
        if epoch < current {
            return Some(format!(": reqEpoch ({epoch}) < curEpoch({current})"));
        }
        if self.table.last_vote_epoch == current {
            return Some(format!(": already voted for epoch {current}"));
        }
        let row = self.table.get(replica)?;
        if row.is_primary() {
            return Some(format!(" for epoch {epoch}: it is a primary node"));
        }
        let Some(primary) = row.primary.and_then(|id| self.table.get(id)) else {
            return Some(format!(" for epoch {epoch}: I don't know its primary"));
        };
        if !primary.has(flag::FAIL) && !request.force_ack {
            return Some(format!(" for epoch {epoch}: its primary is up"));
        }
        None
    }

    /// How many replicas of the same primary have more data, or as much and a smaller id
    /// (`clusterGetReplicaRank`).
    fn replica_rank(&self) -> usize {
        let Some(primary) = self.table.me.primary else {
            return 0;
        };
        let offset = self.replication.own_offset();
        let me = self.table.me.id;
        self.table
            .replicas(primary)
            .filter(|row| row.id != me && !row.has(flag::NOFAILOVER))
            .filter(|row| row.offset > offset || row.offset == offset && row.id < me)
            .count()
    }

    /// How many failed primaries' shards come before this one's (`clusterGetFailedPrimaryRank`).
    fn primary_rank(&self, now: i64) -> usize {
        let valid = self.node_timeout() * self.config.number("cluster-replica-validity-factor");
        self.table
            .others
            .values()
            .filter(|row| row.has(flag::FAIL) && row.votes())
            .filter(|row| self.table.replicas(row.id).next().is_some())
            .filter(|row| valid == 0 || now - row.failed <= valid)
            .filter(|row| row.shard < self.table.me.shard)
            .count()
    }

    /// `myselfIsBestRankedReplica`
    fn is_best_ranked(&self) -> bool {
        let all_agree = || {
            self.table.me.primary.is_some_and(|primary| {
                self.table
                    .replicas(primary)
                    .all(|row| row.has(flag::MY_PRIMARY_FAIL))
            })
        };
        self.election.manual_end == 0
            && self.replication.own_offset() != 0
            && self.election.rank == 0
            && self.election.primary_rank == 0
            && all_agree()
    }

    /// How long this replica has not heard from its primary, beyond what it takes to call one failed.
    fn data_age(&self, now: i64) -> i64 {
        let age = (now / 1000 - self.replication.last_heard(now / 1000)) * 1000;
        let timeout = self.node_timeout();
        if age > timeout { age - timeout } else { age }
    }

    /// `clusterHandleReplicaFailover`
    pub(super) fn stand(&mut self, net: &mut Network) {
        self.todo &= !todo::FAILOVER;
        let now = self.clock(net);
        let manual = self.election.manual_end != 0 && self.election.can_start;
        let failed = self
            .table
            .me
            .primary
            .and_then(|id| self.table.get(id))
            .map(|row| row.has(flag::FAIL));
        let barred = || self.config.yes("cluster-replica-no-failover");
        let stands = failed.is_some_and(|failed| manual || failed && !barred());
        if self.table.me.is_primary() || !stands {
            self.election.cannot = None;
            return;
        }
        let timeout = self.node_timeout();
        let factor = self.config.number("cluster-replica-validity-factor");
        let allowed = self.config.number("repl-ping-replica-period") * 1000 + timeout * factor;
        if factor != 0 && self.data_age(now) > allowed && !manual {
            self.cannot(
                now,
                "Disconnected from primary for longer than allowed. Please check the \
                 'cluster-replica-validity-factor' configuration option.",
            );
            return;
        }
        let vote_time = (timeout * 2).max(2000);
        let mut age = now - self.election.at;
        if age > vote_time * 2 {
            self.schedule_election(net, now);
            if self.election.at == now {
                age = 0;
            }
            self.broadcast_pong(net, true);
            if now < self.election.at {
                return;
            }
        }
        self.rerank(now);
        if now < self.election.at {
            self.cannot(now, "Waiting the delay before I can start a new failover.");
        } else if age > vote_time {
            self.cannot(now, "Failover attempt expired.");
        } else if !self.election.asked {
            self.ask_for_votes(net);
        } else if self.election.votes >= self.quorum() {
            self.win(net);
        } else {
            self.cannot(now, "Waiting for votes, but majority still not reached.");
        }
    }

    fn election_delay(&self) -> i64 {
        (self.node_timeout() / 30).min(500)
    }

    fn schedule_election(&mut self, net: &mut Network, now: i64) {
        let delay = self.election_delay();
        let random = net.numbers.below(u64::try_from(delay).unwrap_or(0));
        let rank = self.replica_rank();
        let primary_rank = self.primary_rank(now);
        let by_rank = |rank: usize| i64::try_from(rank).unwrap_or(0) * delay;
        let election = &mut self.election;
        election.at = now + delay + i64::try_from(random).unwrap_or(0);
        election.at += by_rank(rank) * 2 + by_rank(primary_rank);
        election.votes = 0;
        election.asked = false;
        election.rank = rank;
        election.primary_rank = primary_rank;
        if self.replication.own_offset() == 0 {
            election.at += 500;
        }
        if election.manual_end != 0 {
            election.at = now;
            election.rank = 0;
            election.primary_rank = 0;
        } else if self.is_best_ranked() {
            self.election.at = now;
        }
        self.say(format!(
            "Start of election delayed for {} milliseconds (rank #{}, primary rank #{}, offset {}).",
            self.election.at - now,
            self.election.rank,
            self.election.primary_rank,
            self.replication.own_offset()
        ));
    }

    /// What others told since may change the delay.
    fn rerank(&mut self, now: i64) {
        if self.election.asked || self.election.manual_end != 0 || self.election.at == now {
            return;
        }
        let delay = self.election_delay();
        let change = |new: usize, old: usize| {
            i64::try_from(new).unwrap_or(0) - i64::try_from(old).unwrap_or(0)
        };
        let rank = self.replica_rank();
        self.election.at += change(rank, self.election.rank) * delay * 2;
        self.election.rank = rank;
        let rank = self.primary_rank(now);
        self.election.at += change(rank, self.election.primary_rank) * delay;
        self.election.primary_rank = rank;
        if self.is_best_ranked() {
            self.election.at = now;
        }
    }

    fn ask_for_votes(&mut self, net: &mut Network) {
        self.table.current_epoch += 1;
        self.election.epoch = self.table.current_epoch;
        self.say(format!(
            "Starting a failover election for epoch {}, node config epoch is {}",
            self.election.epoch,
            self.table.epoch_of(&self.table.me)
        ));
        let force = self.election.manual_end != 0 || self.is_best_ranked();
        self.broadcast(net, &Body::AuthRequest, force);
        self.election.asked = true;
        self.todo |= todo::UPDATE_STATE;
    }

    fn win(&mut self, net: &mut Network) {
        self.say("Failover election won: I'm the new primary.".to_owned());
        if self.table.me.epoch < self.election.epoch {
            self.table.me.epoch = self.election.epoch;
            self.todo |= todo::BROADCAST;
            self.say(format!(
                "configEpoch set to {} after successful failover",
                self.table.me.epoch
            ));
        }
        self.replace_primary(net);
    }

    /// `clusterFailoverReplaceYourPrimary`
    pub(super) fn replace_primary(&mut self, net: &mut Network) {
        let Some(old) = self.table.me.primary.filter(|_| self.table.me.is_replica()) else {
            return;
        };
        self.say(format!(
            "Setting myself to primary in shard {} after failover; my old primary is {old} ()",
            self.table.me.shard
        ));
        let slots = self.table.get(old).map(|row| row.slots().clone());
        self.becomes_primary(net, self.table.me.id);
        if let Some(slots) = slots {
            self.table.give(&slots, self.table.me.id);
        }
        self.update_state(net);
        self.todo |= todo::BROADCAST;
        self.reset_manual_failover(net);
        self.verify_data(net);
        self.election.at = 0;
    }

    fn cannot(&mut self, now: i64, why: &'static str) {
        let aged = why.starts_with("Disconnected");
        let silence = if aged { 10_000 } else { 1000 };
        if self.election.cannot == Some(why) && now - self.election.said < silence {
            return;
        }
        self.election.cannot = Some(why);
        self.election.said = now;
        self.say(format!("Currently unable to failover: {why}"));
        if why.starts_with("Waiting for votes") || why.starts_with("Failover attempt") {
            self.say(format!(
                "Needed quorum: {}. Number of votes received so far: {}",
                self.quorum(),
                self.election.votes
            ));
        }
    }

    /// CLUSTER FAILOVER on a replica, its preconditions met.
    pub(super) fn fail_over(&mut self, net: &mut Network, force: bool, takeover: bool) {
        let now = self.clock(net);
        self.reset_manual_failover(net);
        self.election.manual_end = now + self.config.number("cluster-manual-failover-timeout");
        if takeover {
            self.say("Taking over the primary (user request).".to_owned());
            self.bump_epoch();
            self.replace_primary(net);
        } else if force {
            self.say("Forced failover user request accepted (user request).".to_owned());
            self.manual_can_start();
            self.todo |= todo::MANUAL_FAILOVER;
        } else {
            self.say("Manual failover user request accepted (user request).".to_owned());
            if let Some(primary) = self.table.me.primary {
                self.post_to(net, primary, Body::ManualFailoverStart);
            }
        }
    }

    /// On a primary: one of its replicas asks to take over.
    pub(super) fn begin_hand_over(&mut self, net: &mut Network, replica: Id) {
        let now = self.clock(net);
        let timeout = self.config.number("cluster-manual-failover-timeout");
        self.reset_manual_failover(net);
        self.election.manual_end = now + timeout;
        self.election.replica = Some(replica);
        self.pause.failover = now + timeout * 2;
        self.say(format!(
            "Manual failover requested by replica {replica} ()."
        ));
    }

    /// `manualFailoverCanStart`
    fn manual_can_start(&mut self) {
        if self.election.at != 0 {
            self.election.at = 0;
            self.say(format!(
                "Failover election in progress for epoch {}, but received a new manual failover. \
                 Resetting the election.",
                self.election.epoch
            ));
        }
        self.election.can_start = true;
    }

    /// `resetManualFailover`
    pub(super) fn reset_manual_failover(&mut self, net: &mut Network) {
        if self.election.replica.is_some() {
            self.pause.failover = 0;
            self.resume_paused(net);
        }
        self.election.manual_end = 0;
        self.election.can_start = false;
        self.election.replica = None;
        self.election.primary_offset = None;
    }

    pub(super) fn check_manual_timeout(&mut self, net: &mut Network) {
        if self.election.manual_end != 0 && self.election.manual_end < self.clock(net) {
            self.say("Manual failover timed out.".to_owned());
            self.reset_manual_failover(net);
        }
    }

    /// `clusterHandleManualFailover`
    pub(super) fn follow_manual(&mut self) {
        if self.election.manual_end == 0 || self.election.can_start {
            return;
        }
        let Some(offset) = self.election.primary_offset else {
            return;
        };
        if offset == self.replication.own_offset() {
            self.manual_can_start();
            self.say(
                "All primary replication stream processed, manual failover can start.".to_owned(),
            );
            self.todo |= todo::FAILOVER;
        }
    }

    /// `clusterHandleReplicaMigration`: a shard with replicas to spare gives one to an orphaned primary.
    pub(super) fn migrate_replica(&mut self, net: &mut Network, most: usize) {
        let now = self.clock(net);
        let barrier = usize::try_from(self.config.number("cluster-migration-barrier")).unwrap_or(1);
        let Some(primary) = self.table.me.primary.filter(|_| self.table.ok) else {
            return;
        };
        let working = |row: &&Row| !row.has(flag::FAIL | flag::PFAIL);
        if self.table.replicas(primary).filter(working).count() <= barrier {
            return;
        }
        let mut candidate = self.table.me.id;
        let mut target = None;
        let mut orphans = Vec::new();
        for row in self.table.rows() {
            let replicas = if row.is_primary() {
                self.table.working_replicas(row.id)
            } else {
                0
            };
            let orphan = row.is_primary()
                && !row.has(flag::FAIL)
                && row.has(flag::MIGRATE_TO)
                && replicas == 0;
            orphans.push((row.id, orphan));
            if orphan && row.slot_count() > 0 {
                target = target.or(Some(row.id));
            }
            if replicas == most {
                let least = self.table.replicas(row.id).map(|row| row.id).min();
                candidate = least.map_or(candidate, |least| candidate.min(least));
            }
        }
        for (id, orphan) in orphans {
            if let Some(row) = self.table.get_mut(id) {
                row.orphaned = match (orphan, row.orphaned) {
                    (false, _) => 0,
                    (true, 0) => now,
                    (true, since) => since,
                };
            }
        }
        let since = target
            .and_then(|id| self.table.get(id))
            .map(|row| row.orphaned);
        if let (Some(target), Some(since)) = (target, since)
            && candidate == self.table.me.id
            && now - since > 5000
        {
            self.say(format!("Migrating to orphaned primary {target} ()"));
            self.replicate(net, target, true, true);
            self.todo |= todo::BROADCAST;
        }
    }
}
