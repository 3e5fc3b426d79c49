//! Turns replies into a `NodeView`.
//! Never asks the network, never guesses: an unknown field is passed over, a missing one is named.

use std::net::IpAddr;

use crate::model::name::ValkeyId;
use crate::model::slots::{SlotRange, SlotSet};
use crate::model::topology::{Member, MemberFlags, NodeView, Role};

/// What is wrong with a reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A field that Valkey always tells is missing or not of its form.
    #[error("{reply} has no readable {field}")]
    Field {
        /// The reply.
        reply: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A line of CLUSTER NODES is too short or has a field that is not of its form.
    #[error("CLUSTER NODES has an unreadable {field} in {line:?}")]
    Line {
        /// The field.
        field: &'static str,
        /// The line.
        line: String,
    },
    /// No line of CLUSTER NODES is the node's own.
    #[error("CLUSTER NODES has no line of its own node")]
    NoSelf,
}

/// Reads the replies of CLUSTER MYID, CLUSTER INFO, CLUSTER NODES and INFO replication.
pub fn account(id: &str, info: &str, nodes: &str, replication: &str) -> Result<NodeView, Error> {
    let members = members(nodes)?;
    let id = ValkeyId::new(id.trim());
    // The first row of an id is the one that is looked up.
    let own = members.iter().find(|member| member.id == id);
    if !own.is_some_and(|own| own.flags.myself) {
        return Err(Error::NoSelf);
    }
    let number = |field: &'static str| {
        lookup(info, field)
            .and_then(|value| value.parse::<u64>().ok())
            .ok_or(Error::Field {
                reply: "CLUSTER INFO",
                field,
            })
    };
    let small = |field: &'static str| {
        let wide = number(field)?;
        u32::try_from(wide).map_err(|_| Error::Field {
            reply: "CLUSTER INFO",
            field,
        })
    };
    Ok(NodeView {
        id,
        cluster_ok: lookup(info, "cluster_state") == Some("ok"),
        slots_assigned: small("cluster_slots_assigned")?,
        known_nodes: small("cluster_known_nodes")?,
        size: small("cluster_size")?,
        current_epoch: number("cluster_current_epoch")?,
        my_epoch: number("cluster_my_epoch")?,
        role: role(replication)?,
        members,
    })
}

/// The value of a `key:value` line.
fn lookup<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
        .map(str::trim)
}

fn role(replication: &str) -> Result<Role, Error> {
    let missing = |field| Error::Field {
        reply: "INFO replication",
        field,
    };
    let offset = |field: &'static str| {
        let value = lookup(replication, field).ok_or_else(|| missing(field))?;
        // A replica that never synced may tell -1.
        value
            .parse::<i64>()
            .map(|offset| offset.try_into().unwrap_or(0))
            .map_err(|_| missing(field))
    };
    match lookup(replication, "role") {
        Some("master") => Ok(Role::Primary {
            offset: offset("master_repl_offset")?,
        }),
        Some("slave") => Ok(Role::Replica {
            linked: lookup(replication, "master_link_status") == Some("up"),
            offset: offset("slave_repl_offset")?,
        }),
        Some(_) | None => Err(missing("role")),
    }
}

/// Reads a CLUSTER NODES reply; the form is in `clusterGenNodesDescription` of `cluster_legacy.c`.
fn members(nodes: &str) -> Result<Vec<Member>, Error> {
    nodes
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(member)
        .collect()
}

fn member(line: &str) -> Result<Member, Error> {
    let unreadable = |field| Error::Line {
        field,
        line: line.to_owned(),
    };
    let mut fields = line.split_ascii_whitespace();
    let mut next = |field| fields.next().ok_or_else(|| unreadable(field));
    let id = next("id")?;
    let address = next("address")?;
    let flags = next("flags")?;
    let primary = next("primary")?;
    let (_ping_sent, _pong_received) = (next("ping time")?, next("pong time")?);
    let epoch = next("epoch")?.parse().map_err(|_| unreadable("epoch"))?;
    let link = next("link state")?;
    if !is_id(id) || !(primary == "-" || is_id(primary)) {
        return Err(unreadable("id"));
    }
    let slots = fields
        // In brackets: a slot that is being moved by hand; it still belongs to its owner's range.
        .filter(|slots| !slots.starts_with('['))
        .map(|slots| range(slots).ok_or_else(|| unreadable("slots")))
        .collect::<Result<Vec<SlotRange>, Error>>()?;
    Ok(Member {
        id: ValkeyId::new(id),
        ip: ip(address),
        flags: member_flags(flags),
        primary: (primary != "-").then(|| ValkeyId::new(primary)),
        epoch,
        connected: link == "connected",
        slots: SlotSet::of(slots),
    })
}

fn is_id(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `<ip>:<port>@<bus>[,<hostname>[,...]]`; a node that was never met and a ghost have no address.
fn ip(address: &str) -> Option<IpAddr> {
    let (address, _bus) = address.split_once('@')?;
    let (ip, _port) = address.rsplit_once(':')?;
    ip.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

fn member_flags(flags: &str) -> MemberFlags {
    let mut read = MemberFlags::default();
    for flag in flags.split(',') {
        match flag {
            "myself" => read.myself = true,
            "master" => read.primary = true,
            "fail?" => read.suspected = true,
            "fail" => read.failed = true,
            "handshake" => read.handshake = true,
            "noaddr" => read.no_address = true,
            _ => {}
        }
    }
    read
}

fn range(text: &str) -> Option<SlotRange> {
    let (start, end) = text.split_once('-').unwrap_or((text, text));
    SlotRange::new(start.parse().ok()?, end.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "8f72258009694105a4fa73f9dd24c7068e5f59fb";
    const B: &str = "20f8bb0c4d4d4f9ab8d20f8bb0c4d4d4f9ab8d20";
    const INFO: &str = "cluster_state:ok\r\ncluster_slots_assigned:16384\r\n\
        cluster_known_nodes:2\r\ncluster_size:1\r\ncluster_current_epoch:3\r\n\
        cluster_my_epoch:1\r\nsomething_new:9\r\n";
    const PRIMARY: &str = "# Replication\r\nrole:master\r\nmaster_repl_offset:42\r\n";

    fn view(nodes: &str) -> Result<NodeView, Error> {
        account(A, INFO, nodes, PRIMARY)
    }

    #[test]
    fn a_plain_table_is_read() {
        let nodes = format!(
            "{A} 10.0.0.8:6379@16379 myself,master - 0 0 1 connected 0-5460 5462 6000-16383\n\
             {B} 10.0.0.9:6379@16379,c-1a2b3.c.ns.svc.cluster.local slave,fail? {A} 0 17 3 \
             disconnected\n"
        );
        let view = view(&nodes).unwrap();
        assert!(view.cluster_ok);
        assert_eq!(
            (
                view.known_nodes,
                view.size,
                view.current_epoch,
                view.my_epoch
            ),
            (2, 1, 3, 1)
        );
        assert_eq!(view.role, Role::Primary { offset: 42 });
        assert_eq!(view.own_slots().count(), 5461 + 1 + 10384);
        let replica = view.member(&ValkeyId::new(B)).unwrap();
        assert_eq!(replica.ip, Some("10.0.0.9".parse().unwrap()));
        assert_eq!(replica.primary, Some(ValkeyId::new(A)));
        assert!(replica.flags.suspected && !replica.flags.failed && !replica.connected);
    }

    #[test]
    fn odd_rows_are_read_as_far_as_they_go() {
        let nodes = format!(
            "{A} :6379@16379 myself,master - 0 0 0 connected 0-9 [10->-{B}] [11-<-{B}]\n\
             {B} :0@0 master,fail,noaddr - 1 2 3 disconnected\n"
        );
        let view = view(&nodes).unwrap();
        assert_eq!(view.own_slots().count(), 10);
        let ghost = view.member(&ValkeyId::new(B)).unwrap();
        assert!(ghost.flags.no_address && ghost.flags.failed && ghost.ip.is_none());
        let six =
            format!("{A} fd00::9:6379@16379,,az=x myself,master,nofailover - 0 0 0 connected\n");
        assert_eq!(
            self::view(&six).unwrap().members[0].ip,
            Some("fd00::9".parse().unwrap())
        );
    }

    #[test]
    fn what_is_not_a_table_is_refused_by_name() {
        let refused = |nodes: &str| view(nodes).unwrap_err().to_string();
        assert_eq!(refused(""), "CLUSTER NODES has no line of its own node");
        assert_eq!(
            refused(&format!("{A} 10.0.0.8:6379@16379 myself,master -")),
            format!(
                "CLUSTER NODES has an unreadable ping time in \
                 \"{A} 10.0.0.8:6379@16379 myself,master -\""
            )
        );
        for slots in ["16384", "5-3", "0-16384", "x", "-", "1-2-3"] {
            let line = format!("{A} 10.0.0.8:6379@16379 myself,master - 0 0 1 connected {slots}");
            assert!(refused(&line).contains("unreadable slots"), "{slots}");
        }
        let missing = account(
            A,
            "cluster_state:ok\r\n",
            &format!("{A} :1@1 myself,master - 0 0 1 connected"),
            PRIMARY,
        );
        assert_eq!(
            missing.unwrap_err().to_string(),
            "CLUSTER INFO has no readable cluster_slots_assigned"
        );
    }

    #[test]
    fn a_replica_that_never_synced_has_offset_nothing() {
        let replica = |link: &str, offset: &str| {
            role(&format!(
                "role:slave\r\nmaster_link_status:{link}\r\nslave_repl_offset:{offset}\r\n"
            ))
        };
        assert_eq!(
            replica("up", "14"),
            Ok(Role::Replica {
                linked: true,
                offset: 14
            })
        );
        assert_eq!(
            replica("down", "-1"),
            Ok(Role::Replica {
                linked: false,
                offset: 0
            })
        );
        assert!(replica("up", "many").is_err());
    }
}
