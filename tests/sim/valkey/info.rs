//! INFO, CLUSTER INFO and what else is read as text or as a table.
//! Never changes anything.

use super::ConnectionId;
use super::Value;
use super::client::Args;
use super::client::text;
use super::message::KIND_NAMES;
use super::network::Network;
use super::process::Process;
use super::slots::Slots;
use super::table::Row;
use super::table::flag;

/// The sections of INFO without an argument, in their order.
const DEFAULT: [&str; 10] = [
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "replication",
    "cpu",
    "errorstats",
    "cluster",
    "keyspace",
];

impl Process {
    pub(super) fn info(&self, net: &Network, connection: ConnectionId, args: &Args) -> Value {
        let mut wanted: Vec<String> = args
            .iter()
            .skip(1)
            .map(|arg| text(arg).to_ascii_lowercase())
            .collect();
        let all = ["all", "everything", "default"];
        if wanted.is_empty() || wanted.iter().any(|section| all.contains(&section.as_str())) {
            wanted = DEFAULT.map(str::to_owned).into();
        }
        let sections: Vec<String> = DEFAULT
            .into_iter()
            .chain(["cluster_info"])
            .filter(|section| wanted.iter().any(|wanted| wanted == section))
            .map(|section| self.section(net, section))
            .collect();
        match self.clients.get(&connection) {
            Some(client) => client.verbatim(sections.join("\r\n")),
            None => Value::Nil,
        }
    }

    fn section(&self, net: &Network, section: &str) -> String {
        let mut lines = Vec::new();
        let title = match section {
            "server" => {
                self.server_lines(net, &mut lines);
                "Server"
            }
            "clients" => {
                lines.push(format!("connected_clients:{}", self.clients.len()));
                let blocked = self.clients.values().filter(|it| it.is_blocked()).count();
                lines.push(format!("maxclients:{}", self.config.text("maxclients")));
                lines.push(format!("blocked_clients:{blocked}"));
                let paused = self.pause.reason(self.clock(net));
                lines.push(format!("paused_reason:{paused}"));
                "Clients"
            }
            "memory" => {
                lines.push(format!("used_memory:{}", self.data.bytes()));
                lines.push(format!("used_memory_dataset:{}", self.data.bytes()));
                lines.push(format!("maxmemory:{}", self.config.text("maxmemory")));
                lines.push(format!(
                    "maxmemory_policy:{}",
                    self.config.text("maxmemory-policy")
                ));
                "Memory"
            }
            "persistence" => {
                self.persistence_lines(&mut lines);
                "Persistence"
            }
            "stats" => "Stats",
            "replication" => {
                self.replication_lines(net, &mut lines);
                "Replication"
            }
            "cpu" => "CPU",
            "errorstats" => "Errorstats",
            "cluster" => {
                lines.push("cluster_enabled:1".to_owned());
                "Cluster"
            }
            "cluster_info" => return format!("# Cluster Info\r\n{}", self.cluster_info()),
            _ => {
                if self.visible_keys() > 0 {
                    lines.push(format!(
                        "db0:keys={},expires=0,avg_ttl=0,keys_with_volatile_items=0",
                        self.visible_keys()
                    ));
                }
                "Keyspace"
            }
        };
        join(title, &lines)
    }

    fn server_lines(&self, net: &Network, lines: &mut Vec<String>) {
        let uptime = (self.clock(net) - self.started) / 1000;
        lines.push("redis_version:7.2.4".to_owned());
        lines.push("server_name:valkey".to_owned());
        lines.push("valkey_version:9.1.2".to_owned());
        lines.push("valkey_release_stage:ga".to_owned());
        lines.push("server_mode:cluster".to_owned());
        lines.push(format!("process_id:{}", self.id.0));
        lines.push(format!("run_id:{}", self.run_id));
        lines.push(format!("tcp_port:{}", self.port));
        lines.push(format!("server_time_usec:{}", self.clock(net) * 1000));
        lines.push(format!("uptime_in_seconds:{uptime}"));
        lines.push(format!("uptime_in_days:{}", uptime / 86_400));
        lines.push(format!("hz:{}", self.config.text("hz")));
    }

    fn persistence_lines(&self, lines: &mut Vec<String>) {
        let loading = u8::from(self.replication.is_loading());
        let status = if self.is_disk_broken() { "err" } else { "ok" };
        lines.push(format!("loading:{loading}"));
        lines.push("async_loading:0".to_owned());
        lines.push(format!("rdb_last_bgsave_status:{status}"));
        lines.push("aof_enabled:0".to_owned());
        lines.push("aof_last_write_status:ok".to_owned());
        let forked = u8::from(self.is_migration_forked());
        lines.push(format!("slot_migration_fork_in_progress:{forked}"));
    }

    fn replication_lines(&self, net: &Network, lines: &mut Vec<String>) {
        let second = self.clock(net) / 1000;
        let replica = self.replication.has_target();
        let role = if replica { "slave" } else { "master" };
        lines.push(format!("role:{role}"));
        if replica {
            self.replication.replica_lines(second, lines);
            lines.push(format!(
                "slave_priority:{}",
                self.config.text("replica-priority")
            ));
            let read_only = u8::from(self.config.yes("replica-read-only"));
            lines.push(format!("slave_read_only:{read_only}"));
            let announced = u8::from(self.config.yes("replica-announced"));
            lines.push(format!("replica_announced:{announced}"));
        }
        lines.push(format!(
            "connected_slaves:{}",
            self.replication.replica_count()
        ));
        let lag = self.config.number("min-replicas-max-lag");
        if self.config.number("min-replicas-to-write") > 0 && lag > 0 {
            let good = self.replication.good(second, lag);
            lines.push(format!("min_slaves_good_slaves:{good}"));
        }
        self.replication.lines(second, lines);
        lines.push("replicas_waiting_psync:0".to_owned());
        lines.push("master_failover_state:no-failover".to_owned());
        let limit = self.config.number("repl-backlog-size");
        self.replication.history_lines(limit, lines);
    }

    /// `genClusterInfoString`
    pub(super) fn cluster_info(&self) -> String {
        let table = &self.table;
        let slots = |with: fn(&&Row) -> bool| -> u32 {
            table.rows().filter(with).map(Row::slot_count).sum()
        };
        let nodes = |with: fn(&&Row) -> bool| table.rows().filter(with).count();
        let failed = slots(|row| row.has(flag::FAIL));
        let suspected = slots(|row| row.has(flag::PFAIL) && !row.has(flag::FAIL));
        let assigned = slots(|_| true);
        let mut lines = vec![
            format!("cluster_state:{}", if table.ok { "ok" } else { "fail" }),
            format!("cluster_slots_assigned:{assigned}"),
            format!("cluster_slots_ok:{}", assigned - failed - suspected),
            format!("cluster_slots_pfail:{suspected}"),
            format!("cluster_slots_fail:{failed}"),
            format!("cluster_nodes_pfail:{}", nodes(|row| row.has(flag::PFAIL))),
            format!("cluster_nodes_fail:{}", nodes(|row| row.has(flag::FAIL))),
            format!(
                "cluster_voting_nodes_pfail:{}",
                nodes(|row| row.has(flag::PFAIL) && row.votes())
            ),
            format!(
                "cluster_voting_nodes_fail:{}",
                nodes(|row| row.has(flag::FAIL) && row.votes())
            ),
            format!("cluster_known_nodes:{}", table.count()),
            format!("cluster_size:{}", table.size),
            format!("cluster_current_epoch:{}", table.current_epoch),
            format!("cluster_my_epoch:{}", table.epoch_of(&table.me)),
        ];
        for (counts, word) in [(&table.sent, "sent"), (&table.received, "received")] {
            let told = KIND_NAMES
                .iter()
                .zip(counts)
                .filter(|(_, count)| **count > 0);
            for (name, count) in told {
                lines.push(format!("cluster_stats_messages_{name}_{word}:{count}"));
            }
            let total: u64 = counts.iter().sum();
            lines.push(format!("cluster_stats_messages_{word}:{total}"));
        }
        lines.push(format!("cluster_stats_bytes_sent:{}", table.bytes_sent));
        lines.push(format!(
            "cluster_stats_bytes_received:{}",
            table.bytes_received
        ));
        for name in ["pubsub", "module"] {
            lines.push(format!("cluster_stats_{name}_bytes_sent:0"));
            lines.push(format!("cluster_stats_{name}_bytes_received:0"));
        }
        lines.push("total_cluster_links_buffer_limit_exceeded:0".to_owned());
        lines.join("\r\n") + "\r\n"
    }

    /// The keys that commands see: not those of slots that are being imported.
    pub(super) fn visible_keys(&self) -> usize {
        let hidden = self.imported_slots();
        if hidden.is_empty() {
            return self.data.len();
        }
        self.data.len() - self.data.count_in(&hidden)
    }

    pub(super) fn visible_count(&self, slot: u16) -> usize {
        if self.imported_slots().meets(&Slots::of([(slot, slot)])) {
            return 0;
        }
        self.data.count(slot)
    }
}

fn join(title: &str, lines: &[String]) -> String {
    let mut text = format!("# {title}\r\n");
    for line in lines {
        text += line;
        text += "\r\n";
    }
    text
}
