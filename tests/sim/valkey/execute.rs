//! What the commands do that are no matter of the cluster: connections, settings, users, data.
//! Never reached by a command that its client may not run.

use super::ConnectionId;
use super::Value;
use super::acl::Acl;
use super::client::Args;
use super::client::Client;
use super::client::Outcome;
use super::client::count;
use super::client::text;
use super::client::wrong_arity;
use super::commands::Command;
use super::network::Network;
use super::process::Process;
use super::replication::Op;

const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX_ERROR: &str = "ERR syntax error";

impl Process {
    /// Runs a command that has passed everything.
    pub(super) fn execute(
        &mut self,
        net: &mut Network,
        connection: ConnectionId,
        command: &Command,
        args: &Args,
    ) -> Outcome {
        if let Some(sub) = command.name.strip_prefix("cluster|") {
            return self.cluster_command(net, connection, sub, args);
        }
        let value = match command.name {
            "quit" => return Outcome::Close(Value::ok()),
            "wait" => return self.wait(connection, args),
            "shutdown" => {
                self.end(net, 0);
                return Outcome::Gone;
            }
            "get" | "set" | "del" | "unlink" | "exists" | "incr" | "mget" | "strlen" => {
                self.key_command(net, connection, command.name, args)
            }
            "flushall" | "flushdb" => {
                self.flush(net);
                Value::ok()
            }
            "dbsize" => count(self.visible_keys()),
            "info" => self.info(net, connection, args),
            _ => return self.connection_command(net, connection, command, args),
        };
        Outcome::Reply(value)
    }

    fn connection_command(
        &mut self,
        net: &mut Network,
        connection: ConnectionId,
        command: &Command,
        args: &Args,
    ) -> Outcome {
        let value = match command.name {
            "ping" => match args.len() {
                1 => Value::Simple("PONG".to_owned()),
                2 => Value::Bulk(word(args, 1).to_vec()),
                _ => Value::Error(wrong_arity("ping")),
            },
            "echo" => Value::Bulk(word(args, 1).to_vec()),
            "auth" => self.auth(connection, args),
            "hello" => self.hello(connection, args),
            "reset" => {
                let user = self.acl.default_without_password();
                if let Some(client) = self.clients.get_mut(&connection) {
                    client.user = user;
                    client.protocol = 2;
                    client.readonly = false;
                    client.name.clear();
                }
                Value::Simple("RESET".to_owned())
            }
            "readonly" | "readwrite" => {
                if let Some(client) = self.clients.get_mut(&connection) {
                    client.readonly = command.name == "readonly";
                }
                Value::ok()
            }
            "asking" | "client|setinfo" | "client|no-evict" | "client|no-touch"
            | "config|resetstat" => Value::ok(),
            "select" => match text(word(args, 1)).as_str() {
                "0" => Value::ok(),
                index if index.parse::<i64>().is_ok() => {
                    Value::error("ERR DB index is out of range")
                }
                _ => Value::error("ERR value is not an integer or out of range"),
            },
            "client|setname" => {
                if let Some(client) = self.clients.get_mut(&connection) {
                    client.name = text(word(args, 1 + 1));
                }
                Value::ok()
            }
            "client|getname" => match self.clients.get(&connection) {
                Some(client) if !client.name.is_empty() => Value::bulk(client.name.clone()),
                Some(client) => client.nil(),
                None => Value::Nil,
            },
            "client|id" => Value::Integer(i64::try_from(connection.0).unwrap_or(0)),
            "command" | "acl|log" => Value::Array(Vec::new()),
            "time" => {
                let now = self.clock(net);
                let parts = [now / 1000, now % 1000 * 1000];
                Value::Array(parts.map(|part| Value::bulk(part.to_string())).into())
            }
            "role" => self.role(),
            _ => return self.admin_command(net, connection, command, args),
        };
        Outcome::Reply(value)
    }

    fn admin_command(
        &mut self,
        net: &mut Network,
        connection: ConnectionId,
        command: &Command,
        args: &Args,
    ) -> Outcome {
        let value = match command.name {
            "config|get" => self.config_get(connection, args),
            "config|set" => self.config_set(net, args),
            "acl|load" => return self.acl_load(net, connection),
            "acl|setuser" => {
                let rules: Vec<String> = args.iter().skip(3).map(|arg| text(arg)).collect();
                match self.acl.set(&text(word(args, 2)), &rules) {
                    Ok(()) => Value::ok(),
                    Err(why) => Value::Error(format!("ERR {why}")),
                }
            }
            "acl|list" => Value::Array(self.acl.list().into_iter().map(Value::bulk).collect()),
            "acl|users" => Value::Array(self.acl.names().into_iter().map(Value::bulk).collect()),
            "acl|whoami" => {
                let user = self.clients.get(&connection).and_then(|it| it.user.clone());
                Value::bulk(user.unwrap_or_default())
            }
            "bgsave" => {
                if self.replication.child.is_some() {
                    Value::error("ERR Another child process is active")
                } else {
                    Value::Simple("Background saving started".to_owned())
                }
            }
            "save" if self.switches.disk_full => Value::error("ERR"),
            "save" => Value::ok(),
            "debug" => self.debug(net, args),
            name => Value::Error(format!("ERR the model does not know '{name}'")),
        };
        Outcome::Reply(value)
    }

    fn auth(&mut self, connection: ConnectionId, args: &Args) -> Value {
        let (name, password) = match args.as_slice() {
            [_, password] if !self.acl.default_has_password() => {
                // The password is of no use, so that its length is not either.
                let _ = password.len();
                return Value::error(
                    "ERR AUTH <password> called without any password configured for the default \
                     user. Are you sure your configuration is correct?",
                );
            }
            [_, password] => ("default".to_owned(), text(password)),
            [_, name, password] => (text(name), text(password)),
            _ => return Value::error(SYNTAX_ERROR),
        };
        match self.login(connection, &name, &password) {
            Ok(()) => Value::ok(),
            Err(why) => Value::Error(why),
        }
    }

    fn login(
        &mut self,
        connection: ConnectionId,
        name: &str,
        password: &str,
    ) -> Result<(), String> {
        let user = self.acl.authenticate(name, password);
        let user = user.map_err(|why| why.trim_start_matches('-').to_owned())?;
        if let Some(client) = self.clients.get_mut(&connection) {
            client.user = Some(user);
        }
        Ok(())
    }

    fn hello(&mut self, connection: ConnectionId, args: &Args) -> Value {
        let words: Vec<String> = args.iter().map(|arg| text(arg)).collect();
        let version = match words.get(1) {
            None => None,
            Some(version) => match version.parse::<i64>() {
                Err(_) => {
                    return Value::error("ERR Protocol version is not an integer or out of range");
                }
                Ok(2) => Some(2),
                Ok(3) => Some(3),
                Ok(_) => return Value::error("NOPROTO unsupported protocol version"),
            },
        };
        let mut name = None;
        let mut rest = words.get(2..).unwrap_or_default();
        let mut login = None;
        while let Some(option) = rest.first() {
            rest = match (option.to_ascii_uppercase().as_str(), rest) {
                ("AUTH", [_, user, password, after @ ..]) => {
                    login = Some((user.clone(), password.clone()));
                    after
                }
                ("SETNAME", [_, given, after @ ..]) => {
                    name = Some(given.clone());
                    after
                }
                _ => return Value::Error(format!("ERR Syntax error in HELLO option '{option}'")),
            };
        }
        if let Some((user, password)) = login
            && let Err(why) = self.login(connection, &user, &password)
        {
            return Value::Error(why);
        }
        self.greet(connection, version, name)
    }

    fn greet(
        &mut self,
        connection: ConnectionId,
        version: Option<u8>,
        name: Option<String>,
    ) -> Value {
        let role = if self.replication.has_target() {
            "replica"
        } else {
            "master"
        };
        let Some(client) = self.clients.get_mut(&connection) else {
            return Value::Nil;
        };
        if client.user.is_none() {
            return Value::error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                 HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
                 select the RESP protocol version at the same time",
            );
        }
        client.protocol = version.unwrap_or(client.protocol);
        client.name = name.unwrap_or_else(|| client.name.clone());
        let bulk = |key: &str, value: &str| (Value::bulk(key), Value::bulk(value));
        let number = |key: &str, value: i64| (Value::bulk(key), Value::Integer(value));
        let lua = client.map(vec![
            bulk("name", "lua"),
            number("ver", 1),
            bulk("path", "lua"),
            (Value::bulk("args"), Value::Array(Vec::new())),
        ]);
        client.map(vec![
            bulk("server", "valkey"),
            bulk("version", "9.1.2"),
            number("proto", i64::from(client.protocol)),
            number("id", i64::try_from(connection.0).unwrap_or(0)),
            bulk("mode", "cluster"),
            bulk("role", role),
            (Value::bulk("modules"), Value::Array(vec![lua])),
        ])
    }

    fn role(&self) -> Value {
        let offset = i64::try_from(self.replication.offset).unwrap_or(0);
        match self.replication.target() {
            None => Value::Array(vec![
                Value::bulk("master"),
                Value::Integer(offset),
                Value::Array(self.replication.role_lines()),
            ]),
            Some((ip, port)) => Value::Array(vec![
                Value::bulk("slave"),
                Value::bulk(ip.to_string()),
                Value::Integer(i64::from(port)),
                Value::bulk(self.replication.state_word()),
                Value::Integer(if self.replication.is_linked() {
                    offset
                } else {
                    -1
                }),
            ]),
        }
    }

    fn config_get(&self, connection: ConnectionId, args: &Args) -> Value {
        let patterns: Vec<String> = args.iter().skip(2).map(|arg| text(arg)).collect();
        let found = self.config.get(&patterns).into_iter();
        let pairs = found
            .map(|(name, value)| (Value::bulk(name), Value::bulk(value)))
            .collect();
        match self.clients.get(&connection) {
            Some(client) => client.map(pairs),
            None => Value::Nil,
        }
    }

    fn config_set(&mut self, net: &mut Network, args: &Args) -> Value {
        let words: Vec<String> = args.iter().skip(2).map(|arg| text(arg)).collect();
        if !words.len().is_multiple_of(2) {
            return Value::error(SYNTAX_ERROR);
        }
        let pairs: Vec<(String, String)> = words
            .chunks(2)
            .filter_map(|pair| Some((pair.first()?.clone(), pair.last()?.clone())))
            .collect();
        match self.config.set(&pairs, self.replication.is_loading()) {
            Ok(()) => {
                self.apply_config();
                self.update_state(net);
                Value::ok()
            }
            Err(why) => Value::Error(why),
        }
    }

    fn acl_load(&mut self, net: &mut Network, connection: ConnectionId) -> Outcome {
        let path = self.config.text("aclfile").to_owned();
        if path.is_empty() {
            return Outcome::Reply(Value::error(
                "ERR This instance is not configured to use an ACL file. You may want to specify users \
                 via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a \
                 Valkey configuration file set) in order to store users in the Valkey configuration.",
            ));
        }
        let acl = match Acl::load(&path, self.files.get(&path)) {
            Ok(acl) => acl,
            Err(why) => return Outcome::Reply(Value::Error(format!("ERR {why}"))),
        };
        self.acl = acl;
        let gone: Vec<ConnectionId> = self
            .clients
            .iter()
            .filter(|(_, client)| {
                let user = client.user.as_ref();
                user.is_some_and(|user| !self.acl.knows(user))
            })
            .map(|(connection, _)| *connection)
            .collect();
        let own = gone.contains(&connection);
        for other in gone.into_iter().filter(|other| *other != connection) {
            self.close_client(net, other);
        }
        if own {
            return Outcome::Close(Value::ok());
        }
        Outcome::Reply(Value::ok())
    }

    /// The switches that `DEBUG` has in a real process.
    fn debug(&mut self, net: &mut Network, args: &Args) -> Value {
        if self.config.text("enable-debug-command") == "no" {
            return Value::error(
                "ERR DEBUG command not allowed. If the enable-debug-command option is set to \
                 \"local\", you can run it from a local connection, otherwise you need to set this \
                 option in the configuration file, and then restart the server.",
            );
        }
        let words: Vec<String> = args
            .iter()
            .skip(1)
            .map(|arg| text(arg).to_ascii_lowercase())
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["slotmigration", "prevent-pause", on] => self.switches.migration_held = *on != "0",
            ["slotmigration", "prevent-failover", on] => {
                self.switches.migration_unclaimed = *on != "0";
            }
            ["populate", many, prefix, size] => {
                let (many, size) = (many.parse().unwrap_or(0), size.parse().unwrap_or(0));
                for number in 0..many {
                    let key = format!("{prefix}:{number}");
                    let mut value = format!("value:{number}").into_bytes();
                    value.resize(size, 0);
                    self.data.set(key.as_bytes(), &value);
                }
            }
            ["clusterlink", "kill", direction, node] => self.kill_links(net, direction, node),
            _ => return Value::error("ERR the model does not know this DEBUG"),
        }
        Value::ok()
    }

    fn kill_links(&mut self, net: &mut Network, direction: &str, node: &str) {
        let row = super::id::Id::parse(node).and_then(|id| self.table.others.get(&id));
        let Some((to, from)) = row.map(|row| (row.link, row.inbound)) else {
            return;
        };
        let links = match direction {
            "to" => [to, None],
            "from" => [None, from],
            _ => [to, from],
        };
        for socket in links.into_iter().flatten() {
            self.free_bus(net, socket);
        }
    }

    fn key_command(
        &mut self,
        net: &mut Network,
        connection: ConnectionId,
        name: &str,
        args: &Args,
    ) -> Value {
        let keys = args.get(1..).unwrap_or_default();
        let key = word(args, 1);
        let nil = || {
            self.clients
                .get(&connection)
                .map_or(Value::Nil, Client::nil)
        };
        match name {
            "get" => self.data.get(key).cloned().map_or_else(nil, Value::Bulk),
            "mget" => Value::Array(
                keys.iter()
                    .map(|key| self.data.get(key).cloned().map_or_else(nil, Value::Bulk))
                    .collect(),
            ),
            "strlen" => count(self.data.get(key).map_or(0, Vec::len)),
            "exists" => count(
                keys.iter()
                    .filter(|key| self.data.get(key).is_some())
                    .count(),
            ),
            "set" => {
                let plain = args.len() == 3;
                if !plain {
                    return Value::error("ERR the model knows no options of SET");
                }
                self.data.set(key, word(args, 2));
                self.propagate(net, args, Op::Set(key.to_vec(), word(args, 2).to_vec()));
                Value::ok()
            }
            "incr" => self.incr(net, args),
            _ => self.del(net, args),
        }
    }

    fn incr(&mut self, net: &mut Network, args: &Args) -> Value {
        let key = word(args, 1);
        let old = match self.data.get(key).map(|value| text(value)) {
            None => Ok(0),
            Some(value) => value.parse::<i64>(),
        };
        let Ok(old) = old else {
            return Value::error(NOT_AN_INTEGER);
        };
        let Some(new) = old.checked_add(1) else {
            return Value::error("ERR increment or decrement would overflow");
        };
        let value = new.to_string().into_bytes();
        self.data.set(key, &value);
        self.propagate(net, args, Op::Set(key.to_vec(), value));
        Value::Integer(new)
    }

    fn del(&mut self, net: &mut Network, args: &Args) -> Value {
        let keys = args.get(1..).unwrap_or_default();
        let deleted: Vec<Vec<u8>> = keys
            .iter()
            .filter(|key| self.data.delete(key))
            .cloned()
            .collect();
        let number = deleted.len();
        if number > 0 {
            self.propagate(net, args, Op::Delete(deleted));
        }
        count(number)
    }

    /// To the replicas, and to the targets of migrations of the key's slot.
    fn propagate(&mut self, net: &mut Network, args: &Args, op: Op) {
        self.feed_exports(net, &op);
        self.feed(net, op, size(args));
    }

    /// `FLUSHALL`
    pub(super) fn flush(&mut self, net: &mut Network) {
        self.data.clear();
        self.jobs_flushed(net);
        self.feed(net, Op::FlushAll, 18);
    }

    /// The keys of a slot that is no longer owned.
    pub(super) fn delete_slot(&mut self, net: &mut Network, slot: u16) {
        for key in self.data.keys(slot) {
            self.data.delete(&key);
            let size = size(&vec![b"UNLINK".to_vec(), key.clone()]);
            self.feed(net, Op::Delete(vec![key]), size);
        }
    }

    fn wait(&mut self, connection: ConnectionId, args: &Args) -> Outcome {
        if self.replication.has_target() {
            return Outcome::Reply(Value::error(
                "ERR WAIT cannot be used with replica instances. Please also note that if a replica \
                 is configured to be writable (which is not the default) writes to replicas are just \
                 local and are not propagated.",
            ));
        }
        let replicas = text(word(args, 1)).parse::<i64>();
        let time = text(word(args, 2)).parse::<i64>();
        let (Ok(replicas), Ok(time)) = (replicas, time) else {
            return Outcome::Reply(Value::error(NOT_AN_INTEGER));
        };
        let Ok(time) = u64::try_from(time) else {
            return Outcome::Reply(Value::error("ERR timeout is negative"));
        };
        let replicas = usize::try_from(replicas).unwrap_or(0);
        let written = self.clients.get(&connection).map_or(0, Client::written);
        let acked = self.replication.acked(written);
        if acked >= replicas {
            return Outcome::Reply(count(acked));
        }
        Outcome::Wait { replicas, time }
    }
}

pub(super) fn word(args: &Args, index: usize) -> &[u8] {
    args.get(index).map_or(&[], Vec::as_slice)
}

/// How many bytes a command has in the stream.
pub(super) fn size(args: &Args) -> u64 {
    let digits = |number: usize| number.to_string().len();
    let bytes: usize = args
        .iter()
        .map(|arg| 1 + digits(arg.len()) + 2 + arg.len() + 2)
        .sum();
    u64::try_from(1 + digits(args.len()) + 2 + bytes).unwrap_or(0)
}
