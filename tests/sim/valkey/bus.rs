//! The cluster bus: what is sent when, and what a received message changes (`clusterSendPing`,
//! `clusterProcessPacket` and what they call in `cluster_legacy.c`).
//! Never waits: whatever takes time is an event.

use std::net::IpAddr;
use std::sync::Arc;

use super::Port;
use super::id::Id;
use super::message::Body;
use super::message::BusMessage;
use super::message::Entry;
use super::message::Extensions;
use super::message::Gossip;
use super::message::Header;
use super::network::Cargo;
use super::network::Network;
use super::network::Socket;
use super::process::Process;
use super::process::Use;
use super::process::todo;
use super::slots::Slots;
use super::table::Row;
use super::table::flag;

/// One connection of the bus, as one of its two processes knows it (`clusterLink`).
#[derive(Debug)]
pub(super) struct BusLink {
    /// Unknown on an accepted one until its first message.
    pub(super) node: Option<Id>,
    pub(super) inbound: bool,
    pub(super) created: i64,
    /// Whether the other end reads extensions.
    extensions: bool,
}

/// Which of the three messages with gossip.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Beat {
    Ping,
    Pong,
    Meet,
}

/// What `clusterProcessPacket` knows of a message beside its content.
struct Received {
    socket: Socket,
    inbound: bool,
    /// The sender, if its row is known.
    sender: Option<Id>,
    /// Its flags before.
    was: u16,
    claims_primary: bool,
}

impl Process {
    /// Dials a node.
    pub(super) fn dial_bus(&mut self, net: &mut Network, id: Id) {
        let now = self.clock(net);
        let Some((ip, port)) = self
            .table
            .get(id)
            .and_then(|row| Some((row.ip?, row.bus_port)))
        else {
            return;
        };
        let socket = net.dial((self.id, self.ip), (ip, port), Port::Bus);
        let link = BusLink {
            node: Some(id),
            inbound: false,
            created: now,
            extensions: false,
        };
        self.links.insert(socket, Use::Bus(link));
        if let Some(row) = self.table.get_mut(id) {
            row.link = Some(socket);
        }
    }

    pub(super) fn bus_link(&self, socket: Socket) -> Option<&BusLink> {
        match self.links.get(&socket) {
            Some(Use::Bus(link)) => Some(link),
            _ => None,
        }
    }

    fn bus_link_mut(&mut self, socket: Socket) -> Option<&mut BusLink> {
        match self.links.get_mut(&socket) {
            Some(Use::Bus(link)) => Some(link),
            _ => None,
        }
    }

    /// `freeClusterLink`
    pub(super) fn free_bus(&mut self, net: &mut Network, socket: Socket) {
        let Some(Use::Bus(link)) = self.links.remove(&socket) else {
            return;
        };
        net.close(socket);
        let now = self.clock(net);
        if let Some(row) = link.node.and_then(|id| self.table.get_mut(id)) {
            if row.link == Some(socket) {
                row.link = None;
            } else if row.inbound == Some(socket) {
                row.inbound = None;
                row.inbound_freed = now;
            }
        }
    }

    /// `clusterLinkConnectHandler`
    pub(super) fn bus_open(&mut self, net: &mut Network, socket: Socket) {
        let Some(id) = self.bus_link(socket).and_then(|link| link.node) else {
            return;
        };
        let Some((before, meet)) = self
            .table
            .get(id)
            .map(|row| (row.ping_sent, row.has(flag::MEET)))
        else {
            return;
        };
        self.send_ping(net, socket, if meet { Beat::Meet } else { Beat::Ping });
        if before != 0
            && let Some(row) = self.table.get_mut(id)
        {
            row.ping_sent = before;
        }
    }

    /// `clusterAcceptHandler`, at the first message.
    fn accept_bus(&mut self, net: &Network, socket: Socket) {
        let link = BusLink {
            node: None,
            inbound: true,
            created: self.clock(net),
            extensions: false,
        };
        self.links.insert(socket, Use::Bus(link));
    }

    fn header(&self) -> Header {
        let me = &self.table.me;
        let primary = me
            .primary
            .and_then(|primary| self.table.get(primary))
            .unwrap_or(me);
        Header {
            sender: me.id,
            flags: me.flags,
            announced_ip: self.announced(),
            port: me.port,
            bus_port: me.bus_port,
            slots: Arc::clone(primary.slots()),
            primary: me.primary,
            current_epoch: self.table.current_epoch,
            config_epoch: primary.epoch,
            offset: self.replication.own_offset(),
            paused: me.is_primary() && self.election.manual_end != 0,
            force_ack: false,
        }
    }

    fn post(&mut self, net: &mut Network, socket: Socket, header: Header, body: Body) {
        if let Some(count) = self.table.sent.get_mut(body.kind()) {
            *count += 1;
        }
        self.table.bytes_sent += body.size();
        net.send(socket, Cargo::Bus(Box::new(BusMessage { header, body })));
    }

    pub(super) fn post_to(&mut self, net: &mut Network, id: Id, body: Body) {
        if let Some(socket) = self.table.get(id).and_then(|row| row.link) {
            let header = self.header();
            self.post(net, socket, header, body);
        }
    }

    /// `clusterBroadcastMessage`
    pub(super) fn broadcast(&mut self, net: &mut Network, body: &Body, force_ack: bool) {
        let sockets: Vec<Socket> = self
            .table
            .others
            .values()
            .filter(|row| !row.has(flag::HANDSHAKE))
            .filter_map(|row| row.link)
            .collect();
        for socket in sockets {
            let mut header = self.header();
            header.force_ack = force_ack;
            self.post(net, socket, header, body.clone());
        }
    }

    /// `clusterBroadcastPong`: to all, or to the other replicas of the own primary.
    pub(super) fn broadcast_pong(&mut self, net: &mut Network, shard_only: bool) {
        let (me, primary) = (self.table.me.id, self.table.me.primary);
        let in_shard = |row: &Row| {
            row.is_replica()
                && row.primary.is_some()
                && (row.primary == Some(me) || row.primary == primary)
        };
        let sockets: Vec<Socket> = self
            .table
            .others
            .values()
            .filter(|row| !row.has(flag::HANDSHAKE) && (!shard_only || in_shard(row)))
            .filter_map(|row| row.link)
            .collect();
        for socket in sockets {
            self.send_ping(net, socket, Beat::Pong);
        }
    }

    /// `clusterSendPing`
    pub(super) fn send_ping(&mut self, net: &mut Network, socket: Socket, kind: Beat) {
        let Some(link) = self.bus_link(socket) else {
            return;
        };
        let (node, inbound, reads) = (link.node, link.inbound, link.extensions);
        let now = self.clock(net);
        if !inbound && let Some(row) = node.and_then(|id| self.table.get_mut(id)) {
            match kind {
                Beat::Ping => row.ping_sent = now,
                Beat::Meet => row.meet_sent = now,
                Beat::Pong => {}
            }
        }
        let reads = reads
            || node
                .and_then(|id| self.table.get(id))
                .is_some_and(|row| row.has(flag::EXTENSIONS));
        let gossip = Gossip {
            entries: self.gossip(net, node),
            extensions: reads.then(|| self.extensions(now)),
        };
        let header = self.header();
        let body = match kind {
            Beat::Ping => Body::Ping(gossip),
            Beat::Pong => Body::Pong(gossip),
            Beat::Meet => Body::Meet(gossip),
        };
        self.post(net, socket, header, body);
    }

    /// A tenth of the rows but at least three, from a random place on, and all that are suspected.
    fn gossip(&self, net: &mut Network, to: Option<Id>) -> Vec<Entry> {
        let count = self.table.count();
        let wanted = (count / 10).max(3).min(count.saturating_sub(2));
        let start = net.numbers.below(count.try_into().unwrap_or(1));
        let start = usize::try_from(start).unwrap_or(0);
        let looked_at = (wanted + 2).min(count);
        let mut entries = Vec::with_capacity(wanted + self.table.suspected);
        let rows = || self.table.rows();
        for row in rows().skip(start).chain(rows()).take(looked_at) {
            let silent = row.link.is_none() && row.slot_count() == 0;
            if row.has(flag::MYSELF | flag::PFAIL | flag::HANDSHAKE | flag::NOADDR)
                || Some(row.id) == to
                || silent
                || entries.len() >= wanted
            {
                continue;
            }
            entries.push(entry(row));
        }
        if self.table.suspected > 0 {
            let suspected =
                |row: &&Row| row.has(flag::PFAIL) && !row.has(flag::HANDSHAKE | flag::NOADDR);
            let suspected = rows().filter(suspected).take(self.table.suspected);
            entries.extend(suspected.map(entry));
        }
        entries
    }

    fn extensions(&self, now: i64) -> Extensions {
        let second = now / 1000;
        let forgotten = self.table.banned.iter();
        Extensions {
            shard: self.table.me.shard,
            hostname: self.table.me.hostname.clone(),
            forgotten: forgotten
                .filter(|(_, until)| **until >= second)
                .map(|(id, until)| (*id, until - second))
                .collect(),
        }
    }

    /// `clusterProcessPacket`
    pub(super) fn bus_message(&mut self, net: &mut Network, socket: Socket, message: BusMessage) {
        if self.bus_link(socket).is_none() {
            self.accept_bus(net, socket);
        }
        let BusMessage { header, body } = message;
        if let Some(count) = self.table.received.get_mut(body.kind()) {
            *count += 1;
        }
        self.table.bytes_received += body.size();
        let received = self.identify(net, socket, &header);
        self.note_sender(net, &received, &header, &body);
        match body {
            Body::Ping(gossip) => {
                self.learn_own_address(socket, false);
                self.send_ping(net, socket, Beat::Pong);
                self.heartbeat(net, &received, &header, Beat::Ping, &gossip);
            }
            Body::Meet(gossip) => {
                self.learn_own_address(socket, true);
                self.met(net, &received, &header, &gossip);
                self.send_ping(net, socket, Beat::Pong);
                self.heartbeat(net, &received, &header, Beat::Meet, &gossip);
            }
            Body::Pong(gossip) => self.heartbeat(net, &received, &header, Beat::Pong, &gossip),
            Body::Fail(failing) => self.told_of_failure(net, &received, failing),
            Body::AuthRequest => {
                if let Some(sender) = received.sender {
                    self.asked_for_vote(net, sender, &header);
                }
            }
            Body::AuthAck => self.voted_for(&received, &header),
            Body::Update { node, epoch, slots } => {
                if received.sender.is_some() {
                    self.updated(net, node, epoch, &slots);
                }
            }
            Body::ManualFailoverStart => self.asked_to_hand_over(net, &received),
        }
    }

    /// `getNodeFromLinkAndMsg`
    fn identify(&mut self, net: &mut Network, socket: Socket, header: &Header) -> Received {
        let (node, inbound) = self
            .bus_link(socket)
            .map_or((None, true), |link| (link.node, link.inbound));
        let known = node.filter(|id| {
            let row = self.table.get(*id);
            row.is_some_and(|row| !row.has(flag::HANDSHAKE))
        });
        let sender = known.or_else(|| {
            let id = self.table.get(header.sender)?.id;
            if node.is_none() {
                self.bind_inbound(net, socket, id);
            }
            Some(id)
        });
        let row = sender.and_then(|id| self.table.get(id));
        Received {
            socket,
            inbound,
            sender,
            was: row.map_or(0, |row| row.flags),
            claims_primary: header.primary.is_none(),
        }
    }

    /// `setClusterNodeToInboundClusterLink`
    fn bind_inbound(&mut self, net: &mut Network, socket: Socket, id: Id) {
        if let Some(old) = self.table.get(id).and_then(|row| row.inbound) {
            self.free_bus(net, old);
        }
        if let Some(row) = self.table.get_mut(id) {
            row.inbound = Some(socket);
        }
        if let Some(link) = self.bus_link_mut(socket) {
            link.node = Some(id);
        }
    }

    /// What any message tells of its sender.
    fn note_sender(
        &mut self,
        net: &mut Network,
        received: &Received,
        header: &Header,
        body: &Body,
    ) {
        let now = self.clock(net);
        let extends = matches!(body, Body::Ping(_) | Body::Pong(_) | Body::Meet(_));
        let Some(link) = self.bus_link_mut(received.socket) else {
            return;
        };
        link.extensions |= extends;
        let reads = link.extensions;
        let Some(row) = received.sender.and_then(|id| self.table.get_mut(id)) else {
            return;
        };
        row.flags |= if reads { flag::EXTENSIONS } else { 0 };
        let copied = flag::LIGHT_PUBLISH | flag::MULTI_MEET | flag::MY_PRIMARY_FAIL;
        row.flags = row.flags & !copied | header.flags & copied;
        row.data_received = now;
        if row.has(flag::HANDSHAKE) {
            return;
        }
        row.offset = header.offset;
        let newer = received.claims_primary && header.config_epoch > row.epoch;
        if newer {
            row.epoch = header.config_epoch;
        }
        let id = row.id;
        self.table.current_epoch = self.table.current_epoch.max(header.current_epoch);
        if newer {
            self.election_overtaken(id, header.config_epoch);
        }
        if self.election.manual_end != 0
            && self.table.me.primary == Some(id)
            && header.paused
            && self.election.primary_offset.is_none()
        {
            self.election.primary_offset = Some(header.offset);
            self.todo |= todo::MANUAL_FAILOVER;
            self.say(format!(
                "Received replication offset for paused primary manual failover: {}",
                header.offset
            ));
        }
    }

    /// A MEET says at which address one was found; a PING only if one knows none.
    fn learn_own_address(&mut self, socket: Socket, meet: bool) {
        let accepted = self.bus_link(socket).is_some();
        if accepted
            && (meet || self.table.me.ip.is_none())
            && self.announced().is_none()
            && self.table.me.ip != Some(self.ip)
        {
            self.table.me.ip = Some(self.ip);
            self.say(format!("IP address for this node updated to {}", self.ip));
        }
    }

    fn met(&mut self, net: &mut Network, received: &Received, header: &Header, gossip: &Gossip) {
        let now = self.clock(net);
        let Some(sender) = received.sender else {
            let unknown = self
                .bus_link(received.socket)
                .is_some_and(|link| link.node.is_none());
            if unknown {
                let ip = header.announced_ip.or(net.peer_ip(received.socket));
                let extensions = self
                    .bus_link(received.socket)
                    .is_some_and(|link| link.extensions);
                let mut row = self.handshake_row(net, flag::HANDSHAKE);
                row.set(flag::EXTENSIONS, extensions);
                row.ip = ip;
                row.port = header.port;
                row.bus_port = header.bus_port;
                let id = row.id;
                self.table.others.insert(id, row);
                self.bind_inbound(net, received.socket, id);
            }
            self.gossiped(net, received, gossip);
            return;
        };
        // It thinks that it is not known: a new connection and a PING will show it that it is.
        let stale = self
            .table
            .get(sender)
            .filter(|row| now - row.created > self.handshake_timeout())
            .and_then(|row| row.link);
        if let Some(link) = stale {
            self.free_bus(net, link);
        }
    }

    /// A row with a random id, as a node has it until it answers.
    pub(super) fn handshake_row(&self, net: &mut Network, flags: u16) -> Row {
        let id = Id::random(&mut net.numbers);
        let shard = Id::random(&mut net.numbers);
        Row::new(id, shard, flags, self.clock(net))
    }

    /// What PING, PONG and MEET have in common.
    fn heartbeat(
        &mut self,
        net: &mut Network,
        received: &Received,
        header: &Header,
        kind: Beat,
        gossip: &Gossip,
    ) {
        if let Some(row) = received.sender.and_then(|id| self.table.get_mut(id)) {
            row.set(flag::MEET, false);
        }
        if !received.inbound && !self.check_name(net, received, header) {
            return;
        }
        if let Some(row) = received.sender.and_then(|id| self.table.get_mut(id)) {
            row.set(flag::NOFAILOVER, header.flags & flag::NOFAILOVER != 0);
            let normal = !row.has(flag::HANDSHAKE);
            if kind == Beat::Ping && normal {
                self.follow_address(net, received, header);
            }
        }
        if kind == Beat::Pong && !received.inbound {
            self.alive(net, received.socket);
        }
        if received.sender.is_some() && !self.follow_role(net, received, header) {
            return;
        }
        self.follow_slots(net, received, header);
        let Some(sender) = received.sender else {
            return;
        };
        self.resolve_collision(sender, header.config_epoch);
        self.gossiped(net, received, gossip);
        self.extended(net, sender, gossip.extensions.as_ref());
    }

    /// Whether a dialed node is who it was taken for. A handshake ends here.
    fn check_name(&mut self, net: &mut Network, received: &Received, header: &Header) -> bool {
        let Some(id) = self.bus_link(received.socket).and_then(|link| link.node) else {
            return false;
        };
        let Some(row) = self.table.get(id) else {
            return false;
        };
        if row.has(flag::HANDSHAKE) {
            if received.sender.is_some() {
                // Known already: the handshake's row is not needed, only the address.
                self.follow_address(net, received, header);
                self.remove(net, id);
                return false;
            }
            self.rename(received.socket, id, header);
            return true;
        }
        if id == header.sender {
            return true;
        }
        self.mistaken(net, received.socket, id);
        false
    }

    fn rename(&mut self, socket: Socket, id: Id, header: &Header) {
        let Some(mut row) = self.table.others.remove(&id) else {
            return;
        };
        row.id = header.sender;
        row.set(flag::HANDSHAKE, false);
        row.flags |= header.flags & (flag::PRIMARY | flag::REPLICA);
        let inbound = row.inbound;
        self.table.others.insert(row.id, row);
        for socket in [Some(socket), inbound].into_iter().flatten() {
            if let Some(link) = self.bus_link_mut(socket) {
                link.node = Some(header.sender);
            }
        }
    }

    /// Somebody else answers at a node's address: the node has none any more.
    fn mistaken(&mut self, net: &mut Network, socket: Socket, id: Id) {
        self.say(format!(
            "PONG contains mismatching sender ID. About node {id} ()"
        ));
        if let Some(row) = self.table.get_mut(id) {
            row.set(flag::NOADDR, true);
            row.ip = None;
            row.port = 0;
            row.bus_port = 0;
        }
        self.free_bus(net, socket);
        if self.table.get(id).is_some_and(|row| !row.has(flag::FAIL)) {
            self.mark_failing(net, id);
            self.broadcast(net, &Body::Fail(id), false);
        }
        self.todo |= todo::UPDATE_STATE;
    }

    /// `nodeUpdateAddressIfNeeded`
    fn follow_address(&mut self, net: &mut Network, received: &Received, header: &Header) {
        let ip = header.announced_ip.or(net.peer_ip(received.socket));
        let Some((id, ip)) = received.sender.zip(ip) else {
            return;
        };
        let Some(row) = self.table.get_mut(id) else {
            return;
        };
        let same = (row.ip, row.port, row.bus_port) == (Some(ip), header.port, header.bus_port);
        if row.link == Some(received.socket) || same {
            return;
        }
        self.readdress(net, id, ip, (header.port, header.bus_port));
    }

    fn readdress(&mut self, net: &mut Network, id: Id, ip: IpAddr, ports: (u16, u16)) {
        let Some(row) = self.table.get_mut(id) else {
            return;
        };
        row.ip = Some(ip);
        (row.port, row.bus_port) = ports;
        row.set(flag::NOADDR, false);
        if let Some(link) = row.link {
            self.free_bus(net, link);
        }
        self.todo |= todo::UPDATE_STATE;
        self.say(format!(
            "Address updated for node {id} (), now {ip}:{}",
            ports.0
        ));
        if self.table.me.primary == Some(id) {
            self.attach(net, ip, ports.0, false);
        }
    }

    /// A dialed node answered.
    fn alive(&mut self, net: &mut Network, socket: Socket) {
        let now = self.clock(net);
        let Some(id) = self.bus_link(socket).and_then(|link| link.node) else {
            return;
        };
        let Some(row) = self.table.get_mut(id) else {
            return;
        };
        row.pong_received = now;
        row.ping_sent = 0;
        if row.has(flag::PFAIL) {
            row.set(flag::PFAIL, false);
            self.todo |= todo::UPDATE_STATE;
        } else if row.has(flag::FAIL) {
            self.clear_failure(net, id);
        }
    }

    /// `clusterProcessGossipSection`
    fn gossiped(&mut self, net: &mut Network, received: &Received, gossip: &Gossip) {
        let link_node = self.bus_link(received.socket).and_then(|link| link.node);
        let sender = link_node.or(received.sender);
        for entry in &gossip.entries {
            if entry.id == self.table.me.id {
                continue;
            }
            if self.table.others.contains_key(&entry.id) {
                self.gossiped_known(net, sender, entry);
            } else if sender.is_some() {
                self.gossiped_unknown(net, entry);
            }
        }
    }

    fn gossiped_known(&mut self, net: &mut Network, sender: Option<Id>, entry: &Entry) {
        let now = self.clock(net);
        let bad = entry.flags & (flag::FAIL | flag::PFAIL) != 0;
        if let Some(sender) = sender {
            let votes = self.table.get(sender).is_some_and(Row::votes);
            if bad {
                if votes {
                    self.report(entry.id, sender, now);
                }
                self.mark_failing_if_agreed(net, entry.id);
            } else if let Some(row) = self.table.get_mut(entry.id) {
                row.reports.remove(&sender);
            }
        }
        let timeout = self.node_timeout();
        let Some(row) = self.table.get_mut(entry.id) else {
            return;
        };
        if bad {
            return;
        }
        if row.is_normal() && row.ping_sent == 0 {
            row.reports.retain(|_, at| *at > now - timeout * 2);
            let pong = entry.pong_received * 1000;
            if row.reports.is_empty() && pong <= now + 500 && pong > row.pong_received {
                row.pong_received = pong;
            }
        }
        let same = (row.ip, row.port, row.bus_port) == (entry.ip, entry.port, entry.bus_port);
        if row.has(flag::FAIL | flag::PFAIL) && entry.flags & flag::NOADDR == 0 && !same {
            let Some(ip) = entry.ip else {
                return;
            };
            self.readdress(net, entry.id, ip, (entry.port, entry.bus_port));
        }
    }

    fn report(&mut self, failing: Id, sender: Id, now: i64) {
        if let Some(row) = self.table.get_mut(failing)
            && !row.has(flag::FAIL)
        {
            row.reports.insert(sender, now / 1000 * 1000 + 1000);
        }
    }

    fn gossiped_unknown(&mut self, net: &mut Network, entry: &Entry) {
        let now = self.clock(net);
        if entry.flags & flag::NOADDR != 0 || self.table.is_banned(entry.id, now / 1000) {
            return;
        }
        let shard = Id::random(&mut net.numbers);
        let mut row = Row::new(entry.id, shard, entry.flags & !flag::MYSELF, now);
        row.ip = entry.ip;
        row.port = entry.port;
        row.bus_port = entry.bus_port;
        self.table.others.insert(row.id, row);
    }

    /// `clusterProcessPingExtensions`
    fn extended(&mut self, net: &mut Network, sender: Id, extensions: Option<&Extensions>) {
        let Some(extensions) = extensions else {
            if let Some(row) = self.table.get_mut(sender) {
                row.hostname.clear();
            }
            return;
        };
        let second = self.clock(net) / 1000;
        for (id, seconds) in &extensions.forgotten {
            let mine = self.table.me.primary == Some(*id);
            if self.table.others.contains_key(id) && !mine {
                self.table.banned.insert(*id, second + seconds);
                self.remove(net, *id);
                self.todo |= todo::UPDATE_STATE;
            }
        }
        if let Some(row) = self.table.get_mut(sender)
            && row.hostname != extensions.hostname
        {
            row.hostname.clone_from(&extensions.hostname);
        }
        self.move_to_shard(sender, extensions.shard);
    }

    /// `updateShardId`
    pub(super) fn move_to_shard(&mut self, id: Id, shard: Id) {
        let Some(row) = self.table.get(id) else {
            return;
        };
        if row.is_replica()
            && self
                .table
                .top(id)
                .is_some_and(|primary| primary.shard != shard)
        {
            return;
        }
        if let Some(row) = self.table.get_mut(id) {
            row.shard = shard;
        }
        if self.table.me.primary == Some(id) {
            self.table.me.shard = shard;
        }
    }

    /// `clusterDelNode`
    pub(super) fn remove(&mut self, net: &mut Network, id: Id) {
        let Some(row) = self.table.get(id) else {
            return;
        };
        let sockets = [row.link, row.inbound];
        let slots = Slots::clone(row.slots());
        if !slots.is_empty() {
            self.table.unassign(&slots);
        }
        self.table.migrating.retain(|_, to| *to != id);
        self.table.importing.retain(|_, from| *from != id);
        for socket in sockets.into_iter().flatten() {
            self.free_bus(net, socket);
        }
        self.table.others.remove(&id);
        for row in self.table.others.values_mut() {
            row.reports.remove(&id);
            if row.primary == Some(id) {
                row.primary = None;
            }
        }
        if self.table.me.primary == Some(id) {
            self.table.me.primary = None;
        }
    }

    fn told_of_failure(&mut self, net: &mut Network, received: &Received, failing: Id) {
        let known = self
            .table
            .others
            .get(&failing)
            .is_some_and(|row| !row.has(flag::FAIL));
        if let Some(sender) = received.sender
            && known
        {
            self.say(format!(
                "FAIL message received from {sender} () about {failing} ()"
            ));
            self.mark_failing(net, failing);
        }
    }

    fn updated(&mut self, net: &mut Network, id: Id, epoch: u64, slots: &Arc<Slots>) {
        let Some(row) = self.table.get(id).filter(|row| row.epoch < epoch) else {
            return;
        };
        if row.is_replica() {
            self.becomes_primary(net, id);
        }
        if let Some(row) = self.table.get_mut(id) {
            row.epoch = epoch;
        }
        self.claimed(net, id, epoch, slots);
    }

    fn asked_to_hand_over(&mut self, net: &mut Network, received: &Received) {
        let mine = received.sender.filter(|id| {
            let row = self.table.get(*id);
            row.is_some_and(|row| row.primary == Some(self.table.me.id))
        });
        let Some(replica) = mine else {
            return;
        };
        self.begin_hand_over(net, replica);
        self.send_ping(net, received.socket, Beat::Ping);
    }

    fn voted_for(&mut self, received: &Received, header: &Header) {
        let votes = received
            .sender
            .and_then(|id| self.table.get(id))
            .is_some_and(Row::votes);
        if votes && header.current_epoch >= self.election.epoch {
            self.election.votes += 1;
            self.todo |= todo::FAILOVER;
        }
    }

    /// Whether the message is to be read on: a stale one about a lost role is not.
    fn follow_role(&mut self, net: &mut Network, received: &Received, header: &Header) -> bool {
        let Some(sender) = received.sender else {
            return true;
        };
        let Some(primary) = header.primary else {
            if received.was & flag::REPLICA != 0 {
                self.becomes_primary(net, sender);
            }
            return true;
        };
        let claimed = self.table.get(primary).map(|row| row.id);
        if received.was & flag::PRIMARY != 0
            && !self.loses_primacy(net, sender, claimed, header.config_epoch)
        {
            return false;
        }
        if let Some(primary) = claimed
            && self
                .table
                .get(sender)
                .is_some_and(|row| row.primary != claimed)
        {
            if let Some(row) = self.table.get_mut(sender) {
                row.primary = claimed;
            }
            self.follow_chain(net);
            if let Some(shard) = self.table.get(primary).map(|row| row.shard) {
                self.move_to_shard(sender, shard);
            }
        }
        true
    }

    /// A primary says that it is a replica now. False if that is old news.
    fn loses_primacy(
        &mut self,
        net: &mut Network,
        sender: Id,
        claimed: Option<Id>,
        epoch: u64,
    ) -> bool {
        let Some(row) = self.table.get(sender) else {
            return true;
        };
        let slots = Slots::clone(row.slots());
        let same_shard = claimed
            .and_then(|id| self.table.get(id))
            .filter(|primary| primary.shard == row.shard);
        if let Some(primary) = same_shard {
            if self.table.epoch_of(row) > epoch || self.table.epoch_of(primary) > epoch {
                self.say(format!("Ignore stale message from {sender} ()"));
                return false;
            }
            if primary.is_replica() {
                let id = primary.id;
                self.table.give(&slots, id);
                for slot in self
                    .table
                    .migrating
                    .values_mut()
                    .chain(self.table.importing.values_mut())
                {
                    if *slot == sender {
                        *slot = id;
                    }
                }
                self.becomes_primary(net, id);
                if let Some(primary) = self.table.get_mut(id) {
                    primary.epoch = epoch;
                }
            }
        } else if !slots.is_empty() {
            self.table.unassign(&slots);
        }
        if let Some(row) = self.table.get_mut(sender) {
            row.set(flag::PRIMARY | flag::MIGRATE_TO, false);
            row.set(flag::REPLICA, true);
        }
        self.todo |= todo::UPDATE_STATE;
        true
    }

    /// A replica of a replica becomes one of its primary.
    fn follow_chain(&mut self, net: &mut Network) {
        let above = self
            .table
            .me
            .primary
            .and_then(|primary| self.table.get(primary)?.primary)
            .filter(|above| *above != self.table.me.id);
        let Some(above) = above else {
            return;
        };
        self.say(format!(
            "I'm a sub-replica! Reconfiguring myself as a replica of {above}"
        ));
        let other_shard = self
            .table
            .get(above)
            .is_some_and(|row| row.shard != self.table.me.shard);
        self.replicate(net, above, true, other_shard);
        self.todo |= todo::UPDATE_STATE | todo::BROADCAST;
    }

    fn follow_slots(&mut self, net: &mut Network, received: &Received, header: &Header) {
        let Some(sender) = received.sender.filter(|_| received.claims_primary) else {
            return;
        };
        if received.was & flag::REPLICA == 0 && !self.table.differs(sender, &header.slots) {
            self.table.share(sender, &header.slots);
            return;
        }
        self.claimed(net, sender, header.config_epoch, &header.slots);
        // The other way round: it claims what we know a later owner of.
        let later = self.table.rows().find(|row| {
            row.id != sender && row.epoch > header.config_epoch && row.slots().meets(&header.slots)
        });
        if let Some(later) = later {
            let update = update(later, &self.table.let_go);
            self.post_to(net, sender, update);
        }
        self.table.share(sender, &header.slots);
    }

    /// `clusterHandleConfigEpochCollision`: the greater id stays.
    fn resolve_collision(&mut self, sender: Id, claimed: u64) {
        let Some(row) = self.table.get(sender) else {
            return;
        };
        let me = &self.table.me;
        if !me.is_primary()
            || !row.is_primary()
            || claimed != me.epoch
            || row.epoch != me.epoch
            || sender <= me.id
        {
            return;
        }
        self.table.current_epoch += 1;
        self.table.me.epoch = self.table.current_epoch;
        self.todo |= todo::BROADCAST;
        self.say(format!(
            "configEpoch collision with node {sender} (). configEpoch set to {}",
            self.table.me.epoch
        ));
    }
}

/// What `clusterSendUpdate` tells of a row.
pub(super) fn update(row: &Row, let_go: &Slots) -> Body {
    Body::Update {
        node: row.id,
        epoch: row.epoch,
        slots: Arc::new(row.slots().without(let_go)),
    }
}

fn entry(row: &Row) -> Entry {
    Entry {
        id: row.id,
        flags: row.flags,
        ip: row.ip,
        port: row.port,
        bus_port: row.bus_port,
        pong_received: row.pong_received / 1000,
    }
}
