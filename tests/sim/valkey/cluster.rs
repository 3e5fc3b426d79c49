//! The CLUSTER commands (`clusterCommand`, `clusterCommandSpecial`).
//! Never checks permissions: that is done.

use std::net::IpAddr;

use super::ConnectionId;
use super::Value;
use super::client::Args;
use super::client::Client;
use super::client::Outcome;
use super::client::count;
use super::client::text;
use super::client::wrong_arity;
use super::disk;
use super::execute::word;
use super::id::Id;
use super::network::Network;
use super::network::Socket;
use super::process::Process;
use super::process::todo;
use super::slots;
use super::slots::Slots;
use super::slots::of_key;
use super::table::Row;
use super::table::flag;

const SYNTAX_ERROR: &str = "ERR syntax error";
const BAD_SLOT: &str = "ERR Invalid or out of range slot";

impl Process {
    pub(super) fn cluster_command(
        &mut self,
        net: &mut Network,
        connection: ConnectionId,
        sub: &str,
        args: &Args,
    ) -> Outcome {
        let done = match sub {
            "meet" => self.meet(net, args),
            "addslots" | "delslots" => self.change_slots(args, sub == "delslots", false),
            "addslotsrange" | "delslotsrange" => {
                self.change_slots(args, sub == "delslotsrange", true)
            }
            "flushslots" => self.flush_slots(),
            "setslot" => return self.set_slot(net, args),
            "bumpepoch" => {
                let bumped = self.bump_epoch();
                let word = if bumped { "BUMPED" } else { "STILL" };
                Ok(Value::Simple(format!("{word} {}", self.table.me.epoch)))
            }
            "forget" => self.forget(net, args),
            "replicate" => self.replicate_command(net, args),
            "reset" => self.reset_command(net, args),
            "failover" => self.failover_command(net, args),
            "set-config-epoch" => self.set_config_epoch(args),
            "saveconfig" => Ok(Value::ok()),
            "migrateslots" => self.migrate_slots(net, args),
            "cancelslotmigrations" => self.cancel_migrations(net),
            "flushslot" => self.flush_slot(net, args),
            _ => Ok(self.cluster_question(net, connection, sub, args)),
        };
        Outcome::Reply(done.unwrap_or_else(Value::Error))
    }

    fn cluster_question(
        &self,
        net: &Network,
        connection: ConnectionId,
        sub: &str,
        args: &Args,
    ) -> Value {
        let Some(client) = self.clients.get(&connection) else {
            return Value::Nil;
        };
        match sub {
            "myid" => Value::bulk(self.table.me.id.to_string()),
            "myshardid" => Value::bulk(self.table.me.shard.to_string()),
            "info" => client.verbatim(self.cluster_info()),
            "nodes" => client.verbatim(self.nodes()),
            "slots" => self.slots(connection),
            "shards" => self.shards(connection),
            "links" => self.links(connection),
            "keyslot" => Value::Integer(i64::from(of_key(word(args, 2)))),
            "countkeysinslot" => match slot(word(args, 2)) {
                Some(slot) => count(self.visible_count(slot)),
                None if text(word(args, 2)).parse::<i64>().is_ok() => {
                    Value::error("ERR Invalid slot")
                }
                None => Value::error("ERR value is not an integer or out of range"),
            },
            "getkeysinslot" => self.keys_in_slot(args),
            "count-failure-reports" => match self.known(word(args, 2)) {
                Ok(id) => {
                    let now = self.clock(net);
                    let since = now - self.node_timeout() * 2;
                    let reports = self.table.get(id).map(|row| {
                        let counting = row.reports.values().filter(|at| **at > since);
                        counting.count()
                    });
                    count(reports.unwrap_or(0))
                }
                Err(why) => Value::Error(why),
            },
            "replicas" | "slaves" => self.replicas_of(args),
            "getslotmigrations" => self.migrations(connection),
            _ => Value::Error(format!("ERR the model does not know 'cluster|{sub}'")),
        }
    }

    /// The id of a known node, or what Valkey says of an unknown one.
    fn known(&self, arg: &[u8]) -> Result<Id, String> {
        let name = text(arg);
        Id::parse(&name)
            .filter(|id| self.table.get(*id).is_some())
            .ok_or_else(|| format!("ERR Unknown node {name}"))
    }

    /// `CLUSTER NODES`
    fn nodes(&self) -> String {
        let mut nodes = String::new();
        for row in self.table.rows() {
            nodes += &self.node_line(row);
            nodes.push('\n');
        }
        nodes
    }

    fn node_line(&self, row: &Row) -> String {
        let mut address = format!(
            "{}:{}@{}",
            row.ip.map_or(String::new(), |ip| ip.to_string()),
            row.port,
            row.bus_port
        );
        if !row.hostname.is_empty() {
            address.push(',');
            address += &row.hostname;
        }
        disk::line(&self.table, row, &address)
    }

    fn keys_in_slot(&self, args: &Args) -> Value {
        let most = text(word(args, 3)).parse::<i64>();
        let (Ok(_), Ok(most)) = (text(word(args, 2)).parse::<i64>(), most) else {
            return Value::error("ERR value is not an integer or out of range");
        };
        let (Some(slot), Ok(most)) = (slot(word(args, 2)), usize::try_from(most)) else {
            return Value::error("ERR Invalid slot or number of keys");
        };
        let keys = self.data.keys(slot).into_iter().take(most);
        Value::Array(keys.map(Value::Bulk).collect())
    }

    fn replicas_of(&self, args: &Args) -> Value {
        let id = match self.known(word(args, 2)) {
            Ok(id) => id,
            Err(why) => return Value::Error(why),
        };
        if self.table.get(id).is_some_and(Row::is_replica) {
            return Value::error("ERR The specified node is not a master");
        }
        let lines = self.table.replicas(id).map(|row| self.node_line(row));
        Value::Array(lines.map(Value::bulk).collect())
    }

    /// `CLUSTER MEET`
    fn meet(&mut self, net: &mut Network, args: &Args) -> Result<Value, String> {
        let (ip, port) = (text(word(args, 2)), text(word(args, 3)));
        if args.len() > 5 {
            return Err(syntax(args));
        }
        let Ok(client_port) = port.parse::<i64>() else {
            return Err(format!("ERR Invalid base port specified: {port}"));
        };
        let bus_port = match args.get(4).map(|port| text(port)) {
            None => client_port.saturating_add(10_000),
            Some(port) => port
                .parse::<i64>()
                .map_err(|_| format!("ERR Invalid bus port specified: {port}"))?,
        };
        let in_range = |port: i64| u16::try_from(port).ok().filter(|port| *port > 0);
        let client_port = in_range(client_port).ok_or("ERR Port number is out of range")?;
        let bus_port = in_range(bus_port).ok_or("ERR Cluster bus port number is out of range")?;
        let Ok(address) = ip.parse::<IpAddr>() else {
            return Err(format!("ERR Invalid node address specified: {ip}:{port}"));
        };
        let under_way = self.table.others.values().any(|row| {
            row.has(flag::HANDSHAKE)
                && (row.ip, row.port, row.bus_port) == (Some(address), client_port, bus_port)
        });
        if !under_way {
            let mut row = self.handshake_row(net, flag::HANDSHAKE | flag::MEET);
            row.ip = Some(address);
            row.port = client_port;
            row.bus_port = bus_port;
            self.say(format!("Cluster meet {address}:{port} (user request)."));
            self.table.others.insert(row.id, row);
        }
        Ok(Value::ok())
    }

    /// `CLUSTER ADDSLOTS` and its kin: all or none.
    fn change_slots(&mut self, args: &Args, delete: bool, ranges: bool) -> Result<Value, String> {
        if ranges && !args.len().is_multiple_of(2) {
            let name = if delete {
                "cluster|delslotsrange"
            } else {
                "cluster|addslotsrange"
            };
            return Err(wrong_arity(name));
        }
        let assigned = self.table.assigned();
        let mut chosen = Slots::default();
        let given: Vec<u16> = if ranges {
            Vec::new()
        } else {
            let slots = args.iter().skip(2).map(|arg| slot(arg).ok_or(BAD_SLOT));
            slots.collect::<Result<Vec<u16>, &str>>()?
        };
        let mut spans: Vec<(u16, u16)> = given.into_iter().map(|slot| (slot, slot)).collect();
        let pairs = args
            .get(2..)
            .unwrap_or_default()
            .chunks(2)
            .filter(|_| ranges);
        spans.reserve(pairs.size_hint().0);
        let mut pairs = pairs;
        let mut span = spans.into_iter();
        loop {
            let (start, end) = match (span.next(), pairs.next()) {
                (Some(span), _) => span,
                (None, Some([start, end])) => {
                    let start = slot(start).ok_or(BAD_SLOT)?;
                    let end = slot(end).ok_or(BAD_SLOT)?;
                    if start > end {
                        return Err(format!(
                            "ERR start slot number {start} is greater than end slot number {end}"
                        ));
                    }
                    (start, end)
                }
                (None, _) => break,
            };
            for slot in start..=end {
                if assigned.contains(slot) != delete {
                    let state = if delete { "unassigned" } else { "busy" };
                    return Err(format!("ERR Slot {slot} is already {state}"));
                }
                if chosen.contains(slot) {
                    return Err(format!("ERR Slot {slot} specified multiple times"));
                }
                chosen.insert(slot);
            }
        }
        self.table
            .importing
            .retain(|slot, _| !chosen.contains(*slot));
        if delete {
            self.table.unassign(&chosen);
        } else {
            self.table.give(&chosen, self.table.me.id);
        }
        self.todo |= todo::UPDATE_STATE;
        Ok(Value::ok())
    }

    fn flush_slots(&mut self) -> Result<Value, String> {
        if !self.data.is_empty() {
            return Err("ERR DB must be empty to perform CLUSTER FLUSHSLOTS.".to_owned());
        }
        let mine = Slots::clone(self.table.me.slots());
        self.table.unassign(&mine);
        self.todo |= todo::UPDATE_STATE;
        Ok(Value::ok())
    }

    fn flush_slot(&mut self, net: &mut Network, args: &Args) -> Result<Value, String> {
        let slot = slot(word(args, 2)).ok_or(BAD_SLOT)?;
        self.delete_slot(net, slot);
        Ok(Value::ok())
    }

    /// `CLUSTER FORGET`
    fn forget(&mut self, net: &mut Network, args: &Args) -> Result<Value, String> {
        let second = self.clock(net) / 1000;
        let name = text(word(args, 2));
        let id = match self.known(word(args, 2)) {
            Ok(id) => id,
            Err(why) => {
                let banned = Id::parse(&name).is_some_and(|id| self.table.is_banned(id, second));
                return if banned { Ok(Value::ok()) } else { Err(why) };
            }
        };
        if id == self.table.me.id {
            return Err("ERR I tried hard but I can't forget myself...".to_owned());
        }
        if self.table.me.primary == Some(id) {
            return Err("ERR Can't forget my master!".to_owned());
        }
        self.say(format!("Cluster forget {id} (user request)."));
        let time = self.config.number("cluster-blacklist-ttl");
        self.table.banned.insert(id, second + time);
        self.remove(net, id);
        self.todo |= todo::UPDATE_STATE;
        Ok(Value::ok())
    }

    /// `CLUSTER REPLICATE`
    fn replicate_command(&mut self, net: &mut Network, args: &Args) -> Result<Value, String> {
        if args.len() == 4 {
            let words =
                [text(word(args, 2)), text(word(args, 3))].map(|it| it.to_ascii_lowercase());
            if words != ["no", "one"] {
                return Err(syntax(args));
            }
            return Ok(self.replicate_no_one(net));
        }
        if args.len() != 3 {
            return Err(syntax(args));
        }
        let id = self.known(word(args, 2))?;
        if id == self.table.me.id {
            return Err("ERR Can't replicate myself".to_owned());
        }
        if self.table.get(id).is_some_and(Row::is_replica) {
            return Err("ERR I can only replicate a master, not a replica.".to_owned());
        }
        let me = &self.table.me;
        if me.is_primary() && (me.slot_count() > 0 || !self.data.is_empty()) {
            return Err(
                "ERR To set a master the node must be empty and without assigned slots.".to_owned(),
            );
        }
        if me.primary != Some(id) {
            self.replicate(net, id, true, true);
            self.todo |= todo::UPDATE_STATE | todo::BROADCAST;
        }
        Ok(Value::ok())
    }

    fn replicate_no_one(&mut self, net: &mut Network) -> Value {
        if self.table.me.is_replica() {
            self.becomes_primary(net, self.table.me.id);
            self.flush(net);
            self.table.migrating.clear();
            self.table.importing.clear();
            self.reset_manual_failover(net);
            self.table.me.shard = Id::random(&mut net.numbers);
            self.todo |= todo::UPDATE_STATE | todo::BROADCAST;
        }
        Value::ok()
    }

    fn reset_command(&mut self, net: &mut Network, args: &Args) -> Result<Value, String> {
        let hard = match (
            args.len(),
            text(word(args, 2)).to_ascii_lowercase().as_str(),
        ) {
            (2, _) | (3, "soft") => false,
            (3, "hard") => true,
            (3, _) => return Err(SYNTAX_ERROR.to_owned()),
            _ => return Err(syntax(args)),
        };
        if self.table.me.is_primary() && !self.data.is_empty() {
            return Err(
                "ERR CLUSTER RESET can't be called with master nodes containing keys".to_owned(),
            );
        }
        self.reset(net, hard);
        Ok(Value::ok())
    }

    fn failover_command(&mut self, net: &mut Network, args: &Args) -> Result<Value, String> {
        let mut force = false;
        let mut takeover = false;
        for option in args.iter().skip(2) {
            match text(option).to_ascii_lowercase().as_str() {
                "force" => force = true,
                "takeover" => takeover = true,
                _ => return Err(SYNTAX_ERROR.to_owned()),
            }
        }
        force |= takeover;
        if self.table.me.is_primary() {
            return Err("ERR You should send CLUSTER FAILOVER to a replica".to_owned());
        }
        let Some(primary) = self.table.me.primary.and_then(|id| self.table.get(id)) else {
            return Err("ERR I'm a replica but my master is unknown to me".to_owned());
        };
        if !force && (primary.has(flag::FAIL) || primary.link.is_none()) {
            return Err(
                "ERR Master is down or failed, please use CLUSTER FAILOVER FORCE".to_owned(),
            );
        }
        self.fail_over(net, force, takeover);
        Ok(Value::ok())
    }

    fn set_config_epoch(&mut self, args: &Args) -> Result<Value, String> {
        let Ok(epoch) = text(word(args, 2)).parse::<i64>() else {
            return Err("ERR value is not an integer or out of range".to_owned());
        };
        let Ok(number) = u64::try_from(epoch) else {
            return Err(format!("ERR Invalid config epoch specified: {epoch}"));
        };
        if !self.table.others.is_empty() {
            return Err(
                "ERR The user can assign a config epoch only when the node does not know any other \
                 node."
                    .to_owned(),
            );
        }
        if self.table.me.epoch != 0 {
            return Err("ERR Node config epoch is already non-zero".to_owned());
        }
        self.table.me.epoch = number;
        self.table.current_epoch = self.table.current_epoch.max(number);
        self.todo |= todo::UPDATE_STATE;
        Ok(Value::ok())
    }

    /// `CLUSTER SETSLOT`, which goes through the replicas first.
    fn set_slot(&mut self, net: &mut Network, args: &Args) -> Outcome {
        if let Err(why) = self.check_set_slot(args) {
            return Outcome::Reply(Value::Error(why));
        }
        let replicas = self.replication.online().count();
        if replicas > 0 {
            return Outcome::Replicate {
                replicas,
                time: 2000,
            };
        }
        Outcome::Reply(self.apply_set_slot(net, args))
    }

    /// The replicas have it.
    pub(super) fn finish_set_slot(&mut self, net: &mut Network, connection: ConnectionId) -> Value {
        match self.waiting_args(connection) {
            Some(args) => self.apply_set_slot(net, &args),
            None => Value::ok(),
        }
    }

    fn check_set_slot(&self, args: &Args) -> Result<(), String> {
        if self.table.me.is_replica() {
            return Err("ERR Please use SETSLOT only with masters.".to_owned());
        }
        if !self.imported_slots().is_empty() {
            return Err("ERR Slot import in progress.".to_owned());
        }
        if !self.exported_slots().is_empty() {
            return Err("ERR Slot export in progress.".to_owned());
        }
        let slot = slot(word(args, 2)).ok_or(BAD_SLOT)?;
        let mine = self.table.me.slots().contains(slot);
        let action = text(word(args, 3)).to_ascii_lowercase();
        let name = text(word(args, 4));
        let node = Id::parse(&name).and_then(|id| self.table.get(id));
        match (action.as_str(), args.len()) {
            ("stable", 4..) => return Ok(()),
            ("migrating", 5..) if !mine => {
                return Err(format!("ERR I'm not the owner of hash slot {slot}"));
            }
            ("importing", 5..) if mine => {
                return Err(format!("ERR I'm already the owner of hash slot {slot}"));
            }
            ("migrating" | "importing", 5..) if node.is_none() => {
                return Err(format!("ERR I don't know about node {name}"));
            }
            ("node", 5..) if node.is_none() => return Err(format!("ERR Unknown node {name}")),
            ("migrating" | "importing", 5..) if name == self.table.me.id.to_string() => {
                return Err("ERR Target node is myself".to_owned());
            }
            ("migrating" | "importing" | "node", 5..) => {}
            _ => {
                return Err(
                    "ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP"
                        .to_owned(),
                );
            }
        }
        if node.is_some_and(Row::is_replica) {
            return Err("ERR Target node is not a master".to_owned());
        }
        let other = node.is_some_and(|row| row.id != self.table.me.id);
        if action == "node" && mine && other && self.data.count(slot) > 0 {
            return Err(format!(
                "ERR Can't assign hashslot {slot} to a different node while I still hold keys for this \
                 hash slot."
            ));
        }
        Ok(())
    }

    fn apply_set_slot(&mut self, net: &mut Network, args: &Args) -> Value {
        let (Some(slot), node) = (slot(word(args, 2)), Id::parse(&text(word(args, 4)))) else {
            return Value::error(BAD_SLOT);
        };
        match (text(word(args, 3)).to_ascii_lowercase().as_str(), node) {
            ("migrating", Some(node)) => {
                self.table.migrating.insert(slot, node);
            }
            ("importing", Some(node)) => {
                self.table.importing.insert(slot, node);
            }
            ("node", Some(node)) => self.assign_slot(net, slot, node),
            _ => {
                self.table.migrating.remove(&slot);
                self.table.importing.remove(&slot);
            }
        }
        self.todo |= todo::UPDATE_STATE;
        Value::ok()
    }

    fn assign_slot(&mut self, net: &mut Network, slot: u16, node: Id) {
        if self.data.count(slot) == 0 {
            self.table.migrating.remove(&slot);
        }
        let me = self.table.me.id;
        let mine = self.table.me.slots().contains(slot);
        self.table.give(&Slots::of([(slot, slot)]), node);
        let empty = mine && self.table.me.slot_count() == 0;
        if empty && self.config.yes("cluster-allow-replica-migration") {
            self.replicate(net, node, true, true);
            self.todo |= todo::BROADCAST;
        }
        if node == me && self.table.importing.remove(&slot).is_some() {
            self.bump_epoch();
            self.todo |= todo::BROADCAST;
        }
    }

    /// `CLUSTER SLOTS`
    fn slots(&self, connection: ConnectionId) -> Value {
        let mut ranges: Vec<(u16, u16, &Row)> = Vec::new();
        for row in self.table.rows().filter(|row| row.slot_count() > 0) {
            ranges.extend(row.ranges().iter().map(|&(start, end)| (start, end, row)));
        }
        ranges.sort_by_key(|(start, ..)| *start);
        let entry = |(start, end, row): (u16, u16, &Row)| {
            let mut entry = vec![
                Value::Integer(i64::from(start)),
                Value::Integer(i64::from(end)),
                self.slots_node(connection, row),
            ];
            let replicas = self
                .table
                .replicas(row.id)
                .filter(|row| !row.has(flag::FAIL) && self.offset_of(row) > 0);
            entry.extend(replicas.map(|row| self.slots_node(connection, row)));
            Value::Array(entry)
        };
        Value::Array(ranges.into_iter().map(entry).collect())
    }

    fn offset_of(&self, row: &Row) -> u64 {
        if row.has(flag::MYSELF) {
            self.replication.own_offset()
        } else {
            row.offset
        }
    }

    fn slots_node(&self, connection: ConnectionId, row: &Row) -> Value {
        let ip = Value::bulk(row.ip.map_or(String::new(), |ip| ip.to_string()));
        let kind = self.config.text("cluster-preferred-endpoint-type");
        let host = match row.hostname.as_str() {
            "" => "?".to_owned(),
            name => name.to_owned(),
        };
        let mut more = Vec::new();
        if kind != "ip" {
            more.push((Value::bulk("ip"), ip.clone()));
        }
        if kind != "hostname" && !row.hostname.is_empty() {
            more.push((Value::bulk("hostname"), Value::bulk(row.hostname.clone())));
        }
        let client = self.clients.get(&connection);
        let preferred = match kind {
            "hostname" => Value::bulk(host),
            "unknown-endpoint" => client.map_or(Value::Nil, Client::nil),
            _ => ip,
        };
        Value::Array(vec![
            preferred,
            Value::Integer(i64::from(row.port)),
            Value::bulk(row.id.to_string()),
            client.map_or(Value::Nil, |client| client.map(more)),
        ])
    }

    /// `CLUSTER SHARDS`
    fn shards(&self, connection: ConnectionId) -> Value {
        let Some(client) = self.clients.get(&connection) else {
            return Value::Nil;
        };
        let mut shards: Vec<(Id, Vec<&Row>)> = Vec::new();
        for row in self.table.rows().filter(|row| !row.has(flag::HANDSHAKE)) {
            match shards.iter_mut().find(|(shard, _)| *shard == row.shard) {
                Some((_, rows)) => rows.push(row),
                None => shards.push((row.shard, vec![row])),
            }
        }
        let shard = |(shard, rows): (Id, Vec<&Row>)| {
            let ranges = rows
                .iter()
                .find(|row| row.slot_count() > 0)
                .map_or(&[][..], |row| row.ranges());
            let ends = ranges.iter().flat_map(|&(start, end)| [start, end]);
            let slots = ends.map(|slot| Value::Integer(i64::from(slot))).collect();
            let nodes = rows
                .iter()
                .map(|row| client.map(self.shard_node(row)))
                .collect();
            client.map(vec![
                (Value::bulk("slots"), Value::Array(slots)),
                (Value::bulk("nodes"), Value::Array(nodes)),
                (Value::bulk("id"), Value::bulk(shard.to_string())),
            ])
        };
        Value::Array(shards.into_iter().map(shard).collect())
    }

    fn shard_node(&self, row: &Row) -> Vec<(Value, Value)> {
        let bulk = |key: &str, value: String| (Value::bulk(key), Value::bulk(value));
        let number = |key: &str, value: i64| (Value::bulk(key), Value::Integer(value));
        let ip = row.ip.map_or(String::new(), |ip| ip.to_string());
        let endpoint = self.endpoint(row);
        let endpoint = endpoint.rsplit_once(':').map_or("", |(host, _)| host);
        let offset = self.offset_of(row);
        let health = match (row.has(flag::FAIL), row.is_replica() && offset == 0) {
            (true, _) => "fail",
            (false, true) => "loading",
            (false, false) => "online",
        };
        let role = if row.is_replica() {
            "replica"
        } else {
            "master"
        };
        let mut fields = vec![bulk("id", row.id.to_string())];
        if row.port != 0 {
            fields.push(number("port", i64::from(row.port)));
        }
        fields.push(bulk("ip", ip));
        fields.push(bulk("endpoint", endpoint.to_owned()));
        if !row.hostname.is_empty() {
            fields.push(bulk("hostname", row.hostname.clone()));
        }
        fields.push(bulk("role", role.to_owned()));
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        fields.push(number("replication-offset", offset));
        fields.push(bulk("health", health.to_owned()));
        fields
    }

    /// `CLUSTER LINKS`
    fn links(&self, connection: ConnectionId) -> Value {
        let Some(client) = self.clients.get(&connection) else {
            return Value::Nil;
        };
        let describe = |id: Id, socket: Socket, direction: &str| {
            let created = self.bus_link(socket).map_or(0, |link| link.created);
            let events = if direction == "to" { "rw" } else { "r" };
            let bulk = |key: &str, value: String| (Value::bulk(key), Value::bulk(value));
            let number = |key: &str, value: i64| (Value::bulk(key), Value::Integer(value));
            client.map(vec![
                bulk("direction", direction.to_owned()),
                bulk("node", id.to_string()),
                number("create-time", created),
                bulk("events", events.to_owned()),
                number("send-buffer-allocated", 0),
                number("send-buffer-used", 0),
            ])
        };
        let mut links = Vec::new();
        for row in self.table.others.values() {
            links.extend(row.link.map(|socket| describe(row.id, socket, "to")));
            links.extend(row.inbound.map(|socket| describe(row.id, socket, "from")));
        }
        Value::Array(links)
    }
}

pub(super) fn slot(arg: &[u8]) -> Option<u16> {
    let number: i64 = text(arg).parse().ok()?;
    u16::try_from(number)
        .ok()
        .filter(|slot| *slot < slots::COUNT)
}

/// `addReplySubcommandSyntaxError`
fn syntax(args: &Args) -> String {
    let sub: String = text(word(args, 1)).chars().take(128).collect();
    format!("ERR unknown subcommand or wrong number of arguments for '{sub}'. Try CLUSTER HELP.")
}
