//! What lies between processes: addresses, sockets, paths that may be cut, and the order of all that is due.
//! Never looks into what it carries.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::net::IpAddr;

use super::ConnectionId;
use super::Millis;
use super::Path;
use super::Peer;
use super::Port;
use super::ProcessId;
use super::Told;
use super::Value;
use super::message::BusMessage;
use super::migration::JobMessage;
use super::number::Numbers;
use super::replication::SyncMessage;

/// A message takes a moment even on an idle machine.
const DELAY: Millis = 1;

/// After a path is whole again, until the kernels have sent again what was lost on it.
const RETRANSMISSION: Millis = 200;

/// One end of a TCP connection between two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Socket {
    link: u64,
    dialer: bool,
}

impl Socket {
    fn other(self) -> Self {
        Self {
            dialer: !self.dialer,
            ..self
        }
    }
}

/// What comes out of a socket.
#[derive(Debug)]
pub(super) enum Cargo {
    /// To the dialer: somebody's kernel accepted.
    Open,
    /// To the dialer: nobody listens there.
    Refused,
    /// The other end was closed.
    Closed,
    Bus(Box<BusMessage>),
    Sync(Box<SyncMessage>),
    Job(Box<JobMessage>),
}

/// What a process has asked to be woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    /// A snapshot for replicas, or for a slot migration, is written.
    ChildDone(u64),
    /// A received snapshot is loaded.
    Loaded(u64),
    /// A blocked client's time is over.
    Blocked(ConnectionId),
}

/// Something that is due.
#[derive(Debug)]
pub(super) enum Event {
    /// Ten times a second.
    Cron(ProcessId),
    Arrive(Socket, Cargo),
    Wake(ProcessId, Wake),
    /// A client's bytes reach its process.
    Command(ProcessId, ConnectionId, Vec<Vec<u8>>),
    /// A client's end of a connection is closed.
    HangUp(ProcessId, ConnectionId),
}

#[derive(Debug)]
struct End {
    /// None while nobody accepted.
    process: Option<ProcessId>,
    ip: IpAddr,
    closed: bool,
    /// When the last of what was sent to it arrives.
    arrival: Millis,
}

#[derive(Debug)]
struct Link {
    dialer: End,
    acceptor: End,
    port: Port,
}

impl Link {
    fn end(&self, socket: Socket) -> &End {
        if socket.dialer {
            &self.dialer
        } else {
            &self.acceptor
        }
    }

    fn end_mut(&mut self, socket: Socket) -> &mut End {
        if socket.dialer {
            &mut self.dialer
        } else {
            &mut self.acceptor
        }
    }
}

/// A pod's network.
#[derive(Debug)]
struct Host {
    /// None when its program has ended.
    process: Option<ProcessId>,
    client_port: u16,
    bus_port: u16,
}

/// A client's connection as the kernels see it.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) from: Peer,
    pub(super) ip: IpAddr,
    pub(super) process: ProcessId,
}

#[derive(Debug)]
pub(super) struct Network {
    pub(super) now: Millis,
    pub(super) numbers: Numbers,
    pub(super) delay: Millis,
    /// One message in so many is lost; none with 0.
    pub(super) loss: u64,
    queue: BTreeMap<(Millis, u64), Event>,
    queued: u64,
    links: BTreeMap<u64, Link>,
    linked: u64,
    hosts: BTreeMap<IpAddr, Host>,
    cuts: BTreeSet<Path>,
    /// What the kernels will send again when its path is whole.
    held: Vec<Event>,
    pub(super) wires: BTreeMap<ConnectionId, Wire>,
    wired: u64,
    answers: Vec<(ConnectionId, Told)>,
    held_answers: Vec<(ConnectionId, Told)>,
}

impl Network {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            now: 0,
            numbers: Numbers::new(seed),
            delay: DELAY,
            loss: 0,
            queue: BTreeMap::new(),
            queued: 0,
            links: BTreeMap::new(),
            linked: 0,
            hosts: BTreeMap::new(),
            cuts: BTreeSet::new(),
            held: Vec::new(),
            wires: BTreeMap::new(),
            wired: 0,
            answers: Vec::new(),
            held_answers: Vec::new(),
        }
    }

    pub(super) fn schedule(&mut self, at: Millis, event: Event) {
        self.queued += 1;
        self.queue.insert((at, self.queued), event);
    }

    pub(super) fn next_event(&self) -> Option<Millis> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next event that is due until then; the time becomes its time.
    pub(super) fn pop(&mut self, until: Millis) -> Option<Event> {
        let entry = self.queue.first_entry()?;
        if entry.key().0 > until {
            return None;
        }
        self.now = self.now.max(entry.key().0);
        Some(entry.remove())
    }

    pub(super) fn wake(&mut self, process: ProcessId, after: Millis, wake: Wake) {
        self.schedule(self.now + after, Event::Wake(process, wake));
    }

    pub(super) fn listen(&mut self, process: ProcessId, ip: IpAddr, ports: (u16, u16)) {
        self.hosts.insert(
            ip,
            Host {
                process: Some(process),
                client_port: ports.0,
                bus_port: ports.1,
            },
        );
    }

    /// Whose process has this address now, and its client port.
    pub(super) fn listener(&self, ip: IpAddr) -> Option<(Option<ProcessId>, u16)> {
        let host = self.hosts.get(&ip)?;
        Some((host.process, host.client_port))
    }

    pub(super) fn withdraw(&mut self, ip: IpAddr) -> Option<ProcessId> {
        self.hosts.remove(&ip)?.process
    }

    /// Closes all that a process had open.
    pub(super) fn ended(&mut self, process: ProcessId, ip: IpAddr) {
        if let Some(host) = self.hosts.get_mut(&ip)
            && host.process == Some(process)
        {
            host.process = None;
        }
        let sockets: Vec<Socket> = self
            .links
            .iter()
            .flat_map(|(link, ends)| {
                let of = |dialer| Socket {
                    link: *link,
                    dialer,
                };
                [(of(true), &ends.dialer), (of(false), &ends.acceptor)]
            })
            .filter(|(_, end)| end.process == Some(process) && !end.closed)
            .map(|(socket, _)| socket)
            .collect();
        for socket in sockets {
            self.close(socket);
        }
        let connections: Vec<ConnectionId> = self
            .wires
            .iter()
            .filter(|(_, wire)| wire.process == process)
            .map(|(connection, _)| *connection)
            .collect();
        for connection in connections {
            self.answer(connection, Told::Closed);
        }
    }

    /// Begins a connection. What comes of it comes out of the socket.
    pub(super) fn dial(
        &mut self,
        from: (ProcessId, IpAddr),
        to: (IpAddr, u16),
        port: Port,
    ) -> Socket {
        self.linked += 1;
        let socket = Socket {
            link: self.linked,
            dialer: true,
        };
        let (to_ip, to_port) = to;
        let host = self.hosts.get(&to_ip);
        let acceptor = host.and_then(|host| {
            let listens = match port {
                Port::Client => host.client_port,
                Port::Bus => host.bus_port,
            };
            host.process.filter(|_| listens == to_port)
        });
        let answers = host.is_some();
        self.links.insert(
            socket.link,
            Link {
                dialer: End {
                    process: Some(from.0),
                    ip: from.1,
                    closed: false,
                    arrival: 0,
                },
                acceptor: End {
                    process: acceptor,
                    ip: to_ip,
                    closed: acceptor.is_none(),
                    arrival: 0,
                },
                port,
            },
        );
        if answers {
            let cargo = if acceptor.is_some() {
                Cargo::Open
            } else {
                Cargo::Refused
            };
            self.schedule(self.now + self.delay, Event::Arrive(socket, cargo));
        }
        socket
    }

    pub(super) fn send(&mut self, socket: Socket, cargo: Cargo) {
        let to = socket.other();
        let at = self.arrival(to);
        self.schedule(at, Event::Arrive(to, cargo));
    }

    /// When a message arrives that is sent now. What is lost is sent again, and all that follows on the same
    /// connection waits for it.
    fn arrival(&mut self, to: Socket) -> Millis {
        let lost = self.loss > 0 && self.numbers.below(self.loss) == 0;
        let again = if lost { RETRANSMISSION } else { 0 };
        let at = self.now + self.delay + again;
        let Some(link) = self.links.get_mut(&to.link) else {
            return at;
        };
        let end = link.end_mut(to);
        end.arrival = end.arrival.max(at);
        end.arrival
    }

    /// Closes one end; the other hears of it.
    pub(super) fn close(&mut self, socket: Socket) {
        let Some(link) = self.links.get_mut(&socket.link) else {
            return;
        };
        link.end_mut(socket).closed = true;
        if link.dialer.closed && link.acceptor.closed {
            self.links.remove(&socket.link);
        } else {
            self.send(socket, Cargo::Closed);
        }
    }

    /// The address at the socket's other end.
    pub(super) fn peer_ip(&self, socket: Socket) -> Option<IpAddr> {
        Some(self.links.get(&socket.link)?.end(socket.other()).ip)
    }

    /// Whom an arrival is for, now that its time has come. None if its end is closed, or if its path is cut:
    /// then it is kept.
    pub(super) fn deliver(&mut self, socket: Socket, cargo: Cargo) -> Option<(ProcessId, Cargo)> {
        let link = self.links.get(&socket.link)?;
        let end = link.end(socket);
        let (process, ip) = (end.process?, end.ip);
        if end.closed {
            return None;
        }
        let from = link.end(socket.other()).ip;
        let port = link.port;
        let path = |from, to| Path {
            from: Peer::Pod(from),
            to: Peer::Pod(to),
            port,
        };
        // To connect takes packets both ways.
        let both = matches!(cargo, Cargo::Open | Cargo::Refused);
        if self.is_cut(&path(from, ip)) || both && self.is_cut(&path(ip, from)) {
            self.held.push(Event::Arrive(socket, cargo));
            return None;
        }
        Some((process, cargo))
    }

    fn is_cut(&self, path: &Path) -> bool {
        !self.cuts.is_empty() && self.cuts.contains(path)
    }

    pub(super) fn cuts(&self) -> impl Iterator<Item = &Path> {
        self.cuts.iter()
    }

    pub(super) fn cut(&mut self, path: Path) {
        self.cuts.insert(path);
    }

    /// Heals one path, or all.
    pub(super) fn heal(&mut self, path: Option<&Path>) {
        match path {
            Some(path) => {
                self.cuts.remove(path);
            }
            None => self.cuts.clear(),
        }
        for event in std::mem::take(&mut self.held) {
            if !self.is_orphan(&event) {
                self.schedule(self.now + RETRANSMISSION, event);
            }
        }
        for (connection, told) in std::mem::take(&mut self.held_answers) {
            let sender = self.wires.get(&connection).map(|wire| wire.ip);
            if sender.is_some_and(|ip| self.hosts.contains_key(&ip)) {
                self.answer(connection, told);
            }
        }
    }

    /// Whether the kernel that would send it again is gone with its pod.
    fn is_orphan(&self, event: &Event) -> bool {
        match event {
            Event::Arrive(socket, _) => self
                .peer_ip(*socket)
                .is_none_or(|ip| !self.hosts.contains_key(&ip)),
            Event::Cron(_) | Event::Wake(..) | Event::Command(..) | Event::HangUp(..) => false,
        }
    }

    /// A client's connection to a pod whose path is whole.
    pub(super) fn wire(&mut self, from: Peer, ip: IpAddr, process: ProcessId) -> ConnectionId {
        self.wired += 1;
        let connection = ConnectionId(self.wired);
        self.wires.insert(connection, Wire { from, ip, process });
        connection
    }

    /// Whether packets travel from a client to a pod and back.
    pub(super) fn is_whole(&self, from: Peer, ip: IpAddr) -> (bool, bool) {
        let path = |from, to| Path {
            from,
            to,
            port: Port::Client,
        };
        (
            !self.is_cut(&path(from, Peer::Pod(ip))),
            !self.is_cut(&path(Peer::Pod(ip), from)),
        )
    }

    pub(super) fn hold(&mut self, event: Event) {
        self.held.push(event);
    }

    /// Tells a client, if the path is whole; else when it is.
    pub(super) fn answer(&mut self, connection: ConnectionId, told: Told) {
        let Some(wire) = self.wires.get(&connection) else {
            return;
        };
        if !self.is_whole(wire.from, wire.ip).1 {
            self.held_answers.push((connection, told));
            return;
        }
        if told == Told::Closed {
            self.wires.remove(&connection);
        }
        self.answers.push((connection, told));
    }

    /// The reply to a connection, if there is one that nobody took: the oldest.
    pub(super) fn take_answer(&mut self, connection: ConnectionId) -> Option<Value> {
        let index = self.answers.iter().position(|(to, _)| *to == connection)?;
        match self.answers.remove(index) {
            (_, Told::Reply(value)) => Some(value),
            closed => {
                self.answers.insert(index, closed);
                None
            }
        }
    }

    pub(super) fn take_answers(&mut self) -> Vec<(ConnectionId, Told)> {
        std::mem::take(&mut self.answers)
    }
}
