//! One valkey-server process: what it is made of, how it starts, lives through events and ends.
//! Never acts but on an event: a message, a command, a cron, a signal.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::net::IpAddr;

use super::CLOCK_AT_START;
use super::ConnectionId;
use super::Exit;
use super::Launch;
use super::Life;
use super::ProcessId;
use super::Signal;
use super::Switches;
use super::acl::Acl;
use super::bus::BusLink;
use super::client::Client;
use super::client::Pause;
use super::config::Config;
use super::data::Data;
use super::disk;
use super::failover::Election;
use super::id::Id;
use super::migration::Job;
use super::network::Cargo;
use super::network::Event;
use super::network::Network;
use super::network::Socket;
use super::network::Wake;
use super::replication::Op;
use super::replication::Replication;
use super::table::Row;
use super::table::Table;
use super::table::flag;

/// How much of a log is kept.
const LOG_MAX: usize = 500;

/// How often a cron comes.
const CRON: u64 = 100;

/// What is to be done before the process waits again (`CLUSTER_TODO_*`).
pub(super) mod todo {
    pub(in super::super) const UPDATE_STATE: u8 = 1;
    pub(in super::super) const FAILOVER: u8 = 1 << 1;
    pub(in super::super) const MANUAL_FAILOVER: u8 = 1 << 2;
    pub(in super::super) const BROADCAST: u8 = 1 << 3;
    pub(in super::super) const MIGRATION: u8 = 1 << 4;
}

/// What a socket is for.
#[derive(Debug)]
pub(super) enum Use {
    Bus(BusLink),
    /// To the own primary.
    Upstream,
    /// From a replica.
    Downstream,
    /// To the target of a slot migration, by the job's name.
    Export(Id),
    /// From the source of one.
    Import(Id),
}

/// An orderly end that has begun.
#[derive(Debug)]
struct Shutdown {
    /// When it waits for replicas no longer.
    until: i64,
    failover: bool,
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) id: ProcessId,
    pub(super) ip: IpAddr,
    pub(super) port: u16,
    pub(super) life: Life,
    pub(super) exit: Option<Exit>,
    pub(super) log: Vec<String>,
    pub(super) files: BTreeMap<String, String>,
    pub(super) config: Config,
    /// Two settings that every cron reads for every row.
    node_timeout: i64,
    ping_interval: i64,
    /// And one that every message carries.
    announced: Option<IpAddr>,
    pub(super) acl: Acl,
    pub(super) switches: Switches,
    pub(super) run_id: Id,
    pub(super) started: i64,
    pub(super) table: Table,
    pub(super) election: Election,
    pub(super) replication: Replication,
    pub(super) data: Data,
    /// Newest first.
    pub(super) jobs: Vec<Job>,
    pub(super) clients: BTreeMap<ConnectionId, Client>,
    pub(super) pause: Pause,
    pub(super) links: BTreeMap<Socket, Use>,
    pub(super) todo: u8,
    pub(super) iteration: u64,
    /// What its kernel has for it, while it stands still.
    parked: VecDeque<Event>,
    cron_parked: bool,
    terminated: bool,
    shutdown: Option<Shutdown>,
}

impl Process {
    /// A process that has read its files; what it says on stderr if it cannot start.
    pub(super) fn start(net: &mut Network, id: ProcessId, launch: Launch) -> Result<Self, String> {
        let Launch {
            ip,
            conf,
            files,
            nodes_conf,
        } = launch;
        let config = Config::read(&conf, &files)?;
        let acl = acl(&config, &files)?;
        check_start(&config)?;
        let clock = CLOCK_AT_START + i64::try_from(net.now).unwrap_or(0);
        // With TLS only, the other port is the one that the cluster speaks of.
        let port = [config.number("port"), config.number("tls-port")];
        let port = port.into_iter().find(|port| *port != 0).unwrap_or(0);
        let port = u16::try_from(port).unwrap_or(0);
        let bus_port = match u16::try_from(config.number("cluster-port")).unwrap_or(0) {
            0 => port + 10_000,
            port => port,
        };
        let table = if let Some(conf) = nodes_conf {
            disk::read(&conf, clock)?
        } else {
            let id = Id::random(&mut net.numbers);
            let shard = Id::random(&mut net.numbers);
            Table::new(Row::new(id, shard, flag::MYSELF | flag::PRIMARY, clock))
        };
        let mut process = Self {
            id,
            ip,
            port,
            life: Life::Running,
            exit: None,
            log: Vec::new(),
            files,
            config,
            node_timeout: 0,
            ping_interval: 0,
            announced: None,
            acl,
            switches: Switches::default(),
            run_id: Id::random(&mut net.numbers),
            started: clock,
            table,
            election: Election::default(),
            replication: Replication::new(Id::random(&mut net.numbers)),
            data: Data::default(),
            jobs: Vec::new(),
            clients: BTreeMap::new(),
            pause: Pause::default(),
            links: BTreeMap::new(),
            todo: 0,
            iteration: 0,
            parked: VecDeque::new(),
            cron_parked: false,
            terminated: false,
            shutdown: None,
        };
        process.table.me.port = port;
        process.table.me.bus_port = bus_port;
        process.apply_config();
        net.listen(id, ip, (port, bus_port));
        // The first cron comes at once.
        net.schedule(net.now + 1, Event::Cron(id));
        process.say("Ready to accept connections tcp".to_owned());
        Ok(process)
    }

    /// What settings say of the own row (`clusterUpdateMyselfFlags` and its kin).
    pub(super) fn apply_config(&mut self) {
        self.node_timeout = self.config.number("cluster-node-timeout");
        self.ping_interval = match self.config.number("cluster-ping-interval") {
            0 => self.node_timeout / 2,
            interval => interval,
        };
        self.announced = self.config.text("cluster-announce-ip").parse().ok();
        let barred = self.config.yes("cluster-replica-no-failover");
        let me = &mut self.table.me;
        me.set(flag::NOFAILOVER, barred);
        me.flags |= flag::EXTENSIONS | flag::LIGHT_PUBLISH | flag::MULTI_MEET;
        self.config
            .text("cluster-announce-hostname")
            .clone_into(&mut me.hostname);
        me.ip = self.announced.or(me.ip);
    }

    /// Its wall clock.
    pub(super) fn clock(&self, net: &Network) -> i64 {
        CLOCK_AT_START + i64::try_from(net.now).unwrap_or(0) + self.switches.clock_shift
    }

    pub(super) fn node_timeout(&self) -> i64 {
        self.node_timeout
    }

    pub(super) fn announced(&self) -> Option<IpAddr> {
        self.announced
    }

    pub(super) fn ping_interval(&self) -> i64 {
        self.ping_interval
    }

    pub(super) fn handshake_timeout(&self) -> i64 {
        self.node_timeout().max(1000)
    }

    pub(super) fn say(&mut self, line: String) {
        if self.log.len() >= LOG_MAX {
            self.log.drain(..LOG_MAX / 2);
        }
        self.log.push(line);
    }

    /// Something is due. A process that stands still has it kept by its kernel.
    pub(super) fn event(&mut self, net: &mut Network, event: Event) {
        match (self.life, event) {
            (Life::Exited, _) => {}
            (Life::Stopped, Event::Cron(_)) => self.cron_parked = true,
            (Life::Stopped, event) => self.parked.push_back(event),
            (Life::Running, event) => {
                self.run(net, event);
                if self.life != Life::Exited {
                    self.before_sleep(net);
                }
            }
        }
    }

    fn run(&mut self, net: &mut Network, event: Event) {
        match event {
            Event::Cron(_) => self.run_cron(net),
            Event::Arrive(socket, cargo) => self.arrive(net, socket, cargo),
            Event::Wake(_, wake) => match wake {
                Wake::ChildDone(number) => self.child_done(net, number),
                Wake::Loaded(number) => self.loaded(net, number),
                Wake::Blocked(connection) => self.blocked_time_is_over(net, connection),
            },
            Event::Command(_, connection, args) => self.queue_command(net, connection, args),
            Event::HangUp(_, connection) => {
                self.clients.remove(&connection);
            }
        }
    }

    fn run_cron(&mut self, net: &mut Network) {
        if self.terminated && self.shutdown.is_none() {
            self.begin_shutdown(net);
        }
        self.go_on_with_shutdown(net);
        if self.life == Life::Exited {
            return;
        }
        self.cron(net);
        net.schedule(net.now + CRON, Event::Cron(self.id));
    }

    fn arrive(&mut self, net: &mut Network, socket: Socket, cargo: Cargo) {
        match cargo {
            Cargo::Open => match self.links.get(&socket) {
                Some(Use::Bus(_)) => self.bus_open(net, socket),
                Some(Use::Upstream) => self.upstream_open(net, socket),
                Some(Use::Export(name)) => self.export_open(net, *name),
                Some(Use::Downstream | Use::Import(_)) | None => {}
            },
            Cargo::Refused | Cargo::Closed => {
                self.closed(net, socket, matches!(cargo, Cargo::Refused));
            }
            Cargo::Bus(message) => self.bus_message(net, socket, *message),
            Cargo::Sync(message) => self.sync_message(net, socket, *message),
            Cargo::Job(message) => self.job_message(net, socket, *message),
        }
    }

    fn closed(&mut self, net: &mut Network, socket: Socket, refused: bool) {
        match self.links.get(&socket) {
            Some(Use::Bus(_)) => self.free_bus(net, socket),
            Some(Use::Upstream) => self.upstream_closed(net, refused),
            Some(Use::Downstream) => self.drop_replica(net, socket),
            Some(Use::Export(name) | Use::Import(name)) => {
                let name = *name;
                self.links.remove(&socket);
                net.close(socket);
                self.job_closed(net, name, refused);
            }
            None => net.close(socket),
        }
    }

    pub(super) fn signal(&mut self, net: &mut Network, signal: Signal) {
        match (signal, self.life) {
            (_, Life::Exited)
            | (Signal::Stop, Life::Stopped)
            | (Signal::Continue, Life::Running) => {}
            (Signal::Kill, _) => self.end(net, 137),
            (Signal::Stop, Life::Running) => self.life = Life::Stopped,
            (Signal::Term, _) => {
                self.terminated = true;
                self.say("Received SIGTERM scheduling shutdown...".to_owned());
            }
            (Signal::Continue, Life::Stopped) => {
                self.life = Life::Running;
                for event in std::mem::take(&mut self.parked) {
                    self.event(net, event);
                }
                if std::mem::take(&mut self.cron_parked) {
                    self.event(net, Event::Cron(self.id));
                }
            }
        }
    }

    pub(super) fn end(&mut self, net: &mut Network, code: i32) {
        self.life = Life::Exited;
        self.exit = Some(Exit {
            at: net.now,
            code,
            log: self.log.clone(),
        });
        self.parked.clear();
        self.clients.clear();
        net.ended(self.id, self.ip);
    }

    /// `prepareForShutdown`
    fn begin_shutdown(&mut self, net: &mut Network) {
        let now = self.clock(net);
        let options = self.config.text("shutdown-on-sigterm").to_owned();
        let has = |word| options.split(' ').any(|option| option == word);
        self.say("User requested shutdown...".to_owned());
        let timeout = self.config.number("shutdown-timeout") * 1000;
        let waits = !has("now") && timeout != 0 && !self.replication.all_caught_up();
        self.shutdown = Some(Shutdown {
            until: if waits { now + timeout } else { now },
            failover: has("failover"),
        });
        if waits {
            self.want_acks();
            self.pause.shutdown = true;
            self.say("Waiting for replicas before shutting down.".to_owned());
        }
    }

    /// `finishShutdown`, once replicas have caught up or were waited for long enough.
    fn go_on_with_shutdown(&mut self, net: &mut Network) {
        let now = self.clock(net);
        let Some(shutdown) = &self.shutdown else {
            return;
        };
        let (over, failover) = (now >= shutdown.until, shutdown.failover);
        if !over && !self.replication.all_caught_up() {
            return;
        }
        if failover && self.table.me.is_primary() {
            match self.replication.best_replica() {
                Some(replica) => {
                    self.say(format!(
                        "Perform auto failover to replica {replica} on shutdown."
                    ));
                    self.feed(net, Op::Failover(replica), 123);
                }
                None => self.say(
                    "Unable to find a replica to perform the auto failover on shutdown.".to_owned(),
                ),
            }
        }
        self.say("Saving the cluster configuration file before exiting.".to_owned());
        self.say("Valkey is now ready to exit, bye bye...".to_owned());
        self.end(net, 0);
    }
}

fn acl(config: &Config, files: &BTreeMap<String, String>) -> Result<Acl, String> {
    let path = config.text("aclfile");
    if path.is_empty() {
        return Ok(Acl::open());
    }
    if config.has_users {
        return Err(
            "Configuring Valkey with users defined in valkey.conf and at the same setting an ACL file \
             path is invalid. This setup is very likely to lead to configuration errors and security \
             holes, please define either an ACL file or declare users directly in your valkey.conf, \
             but not both.\n"
                .to_owned(),
        );
    }
    Acl::load(path, files.get(path))
        .map_err(|errors| format!("Aborting Valkey startup because of ACL errors: {errors}\n"))
}

/// What a process looks at before it listens, beyond the file's grammar.
fn check_start(config: &Config) -> Result<(), String> {
    let fatal = |why: &str| {
        Err(format!(
            "\n*** FATAL CONFIG FILE ERROR (Version 9.1.2) ***\n{why}\n"
        ))
    };
    if !config.text("replicaof").is_empty() && config.yes("cluster-enabled") {
        return fatal("replicaof directive not allowed in cluster mode");
    }
    if config.text("bind").is_empty() {
        return Err("Configured to not listen anywhere, exiting.\n".to_owned());
    }
    if config.number("port") > 55_535 {
        return Err(
            "Valkey port number too high. Cluster communication port is 10,000 port numbers higher \
             than your Valkey port. Your Valkey port number must be 55535 or less.\n"
                .to_owned(),
        );
    }
    Ok(())
}
