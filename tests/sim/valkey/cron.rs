//! What a process does ten times a second, and once a second (`clusterCron`, `replicationCron`).
//! Never catches up: a process that stood still does each once.

use super::bus::Beat;
use super::id::Id;
use super::network::Network;
use super::process::Process;
use super::process::todo;
use super::table::Row;
use super::table::flag;

/// What the look at all rows found for replicas that may migrate.
#[derive(Default)]
struct Shards {
    orphans: usize,
    most: usize,
    mine: usize,
}

impl Process {
    /// Ten times a second.
    pub(super) fn cron(&mut self, net: &mut Network) {
        self.iteration += 1;
        self.expire_pauses(net);
        self.cluster_cron(net);
        if self.iteration.is_multiple_of(10) {
            self.replication_cron(net);
        }
    }

    fn cluster_cron(&mut self, net: &mut Network) {
        let now = self.clock(net);
        self.migration_cron(net);
        self.reconnect_all(net, now);
        if self.iteration.is_multiple_of(10) {
            self.ping_someone(net);
        }
        let mut shards = Shards::default();
        let mut changed = false;
        let ids: Vec<Id> = self.table.others.keys().copied().collect();
        for id in ids {
            changed |= self.look_after(net, id, now, &mut shards);
        }
        self.attach_if_possible(net);
        self.check_manual_timeout(net);
        if self.table.me.is_replica() {
            self.follow_manual();
            self.stand(net);
            if shards.orphans > 0
                && shards.most >= 2
                && shards.mine == shards.most
                && self.config.yes("cluster-allow-replica-migration")
            {
                self.migrate_replica(net, shards.most);
            }
        }
        if changed || !self.table.ok {
            self.update_state(net);
        }
    }

    /// `clusterNodeCronHandleReconnect` for every row.
    fn reconnect_all(&mut self, net: &mut Network, now: i64) {
        let interval = self.node_timeout() / 2;
        let rows = i64::try_from(self.table.count()).unwrap_or(0);
        let mut attempts = rows * 100 / interval.max(1) * 10;
        self.table.suspected = 0;
        let ids: Vec<Id> = self.table.others.keys().copied().collect();
        for id in ids {
            self.reconnect(net, id, now, &mut attempts);
        }
    }

    fn reconnect(&mut self, net: &mut Network, id: Id, now: i64, attempts: &mut i64) {
        let patience = self.handshake_timeout();
        let retry = self.node_timeout() / 2 / 10;
        let Some(row) = self.table.others.get_mut(&id) else {
            return;
        };
        if row.has(flag::NOADDR) {
            return;
        }
        self.table.suspected += usize::from(row.has(flag::PFAIL));
        if row.has(flag::HANDSHAKE) && now - row.created > patience {
            let peer = row.ip.map_or(String::new(), |ip| ip.to_string());
            let port = row.bus_port;
            self.say(format!("Clusterbus handshake timeout {peer}:{port}"));
            self.remove(net, id);
            return;
        }
        if let Some(link) = row.link
            && row.is_normal()
            && row.inbound.is_none()
            && now - row.inbound_freed > patience
            && now - row.meet_sent > patience
            && row.has(flag::MULTI_MEET)
        {
            row.set(flag::MEET, true);
            self.say(format!(
                "Sending MEET packet to node {id} () because there is no inbound link for it"
            ));
            self.send_ping(net, link, Beat::Meet);
        }
        let Some(row) = self.table.others.get_mut(&id) else {
            return;
        };
        if row.link.is_some() {
            return;
        }
        if row.inbound.is_none() && now - row.dialed < retry && *attempts == 0 {
            return;
        }
        row.dialed = now;
        *attempts -= 1;
        self.dial_bus(net, id);
    }

    /// Of five random rows the one heard from least recently.
    fn ping_someone(&mut self, net: &mut Network) {
        let count = u64::try_from(self.table.count()).unwrap_or(1);
        let mut oldest: Option<&Row> = None;
        for _ in 0..5 {
            let drawn = usize::try_from(net.numbers.below(count)).unwrap_or(0);
            let Some(row) = self.table.rows().nth(drawn) else {
                continue;
            };
            if row.link.is_none() || row.ping_sent != 0 || row.has(flag::MYSELF | flag::HANDSHAKE) {
                continue;
            }
            if oldest.is_none_or(|oldest| oldest.pong_received > row.pong_received) {
                oldest = Some(row);
            }
        }
        if let Some(link) = oldest.and_then(|row| row.link) {
            self.send_ping(net, link, Beat::Ping);
        }
    }

    /// Pings and timeouts of one row; whether it became suspected.
    fn look_after(&mut self, net: &mut Network, id: Id, now: i64, shards: &mut Shards) -> bool {
        let timeout = self.node_timeout();
        let interval = self.ping_interval();
        let Some(row) = self.table.others.get(&id) else {
            return false;
        };
        if row.has(flag::NOADDR | flag::HANDSHAKE) {
            return false;
        }
        if self.table.me.is_replica() && row.is_primary() && !row.has(flag::FAIL) {
            self.count_shard(row, shards);
        }
        let ping_delay = now - row.ping_sent;
        let data_delay = now - row.data_received;
        let (ping_sent, pong_received) = (row.ping_sent, row.pong_received);
        if let Some(link) = row.link {
            let created = self.bus_link(link).map_or(now, |link| link.created);
            let half = timeout / 2;
            if now - created > timeout && ping_sent != 0 && ping_delay > half && data_delay > half {
                self.free_bus(net, link);
            } else if ping_sent == 0 && now - pong_received > interval || self.hands_over_to(id) {
                self.send_ping(net, link, Beat::Ping);
                return false;
            }
        }
        if ping_sent == 0 || ping_delay.min(data_delay) <= timeout {
            return false;
        }
        self.suspect(net, id)
    }

    /// Whether this primary has paused its clients for that replica, which is then told so all the time.
    fn hands_over_to(&self, id: Id) -> bool {
        self.election.manual_end != 0
            && self.table.me.is_primary()
            && self.election.replica == Some(id)
    }

    fn count_shard(&self, row: &Row, shards: &mut Shards) {
        let replicas = self.table.working_replicas(row.id);
        if replicas == 0 && row.slot_count() > 0 && row.has(flag::MIGRATE_TO) {
            shards.orphans += 1;
        }
        shards.most = shards.most.max(replicas);
        if self.table.me.primary == Some(row.id) {
            shards.mine = replicas;
        }
    }

    fn suspect(&mut self, net: &mut Network, id: Id) -> bool {
        let Some(row) = self.table.others.get_mut(&id) else {
            return false;
        };
        if row.has(flag::PFAIL | flag::FAIL) {
            return false;
        }
        row.set(flag::PFAIL, true);
        if self.table.me.votes() {
            self.mark_failing_if_agreed(net, id);
        } else {
            self.say(format!("NODE {id} () possibly failing."));
        }
        true
    }

    /// A replica whose primary had no address when it was told to follow it.
    fn attach_if_possible(&mut self, net: &mut Network) {
        if !self.table.me.is_replica() || self.replication.has_target() {
            return;
        }
        let target = self
            .table
            .me
            .primary
            .and_then(|id| self.table.get(id))
            .filter(|row| !row.has(flag::NOADDR))
            .and_then(|row| Some((row.ip?, row.port)));
        if let Some((ip, port)) = target {
            self.attach(net, ip, port, false);
            self.replication.holds_nothing();
        }
    }

    /// Before it waits for the next event (`clusterBeforeSleep`).
    pub(super) fn before_sleep(&mut self, net: &mut Network) {
        // What is done may give more to do; the real loop would come by again.
        for _ in 0..4 {
            let todo = std::mem::take(&mut self.todo);
            if todo & todo::UPDATE_STATE != 0 {
                self.update_state(net);
            }
            let replica = self.table.me.is_replica();
            if replica && self.election.manual_end != 0 {
                self.follow_manual();
            }
            let stand = todo::FAILOVER | todo::MANUAL_FAILOVER;
            if replica && (todo | self.todo) & stand != 0 {
                self.todo &= !stand;
                self.stand(net);
            }
            if todo & todo::MIGRATION != 0 {
                self.migration_cron(net);
            }
            if todo & todo::BROADCAST != 0 {
                self.broadcast_pong(net, false);
            }
            if self.todo == 0 {
                break;
            }
        }
        self.ask_acks(net);
    }
}
