//! The replies in `tests/fixtures/valkey-9.1`, had again from real servers in the same plights.
//! Never rewrites them but with `UPDATE_EXPECT=1`, as `make bless` does.

use std::fs;
use std::net::IpAddr;
use std::net::Ipv6Addr;
use std::net::SocketAddr;
use std::path::Path;

use operator::model::topology::NodeView;
use operator::model::topology::Role;
use operator::valkey::client::Connector;
use operator::valkey::client::Target;

use crate::commands::primaries;
use crate::commands::replicas;
use crate::servers::PORT;
use crate::servers::Server;
use crate::servers::all_see;
use crate::servers::eventually;
use crate::servers::next_address;
use crate::servers::password;

/// Everything that takes a node timeout takes a fifth of ours here.
const FAST: [(&str, &str); 1] = [("cluster-node-timeout", "1000")];

fn keep(name: &str, server: &Server) {
    let protocol = if name.ends_with("resp3") { "3" } else { "2" };
    let replies = server.record(protocol);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/valkey-9.1");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), replies).unwrap();
    }
}

fn flagged(
    view: &NodeView,
    flag: impl Fn(&operator::model::topology::MemberFlags) -> bool,
) -> bool {
    view.members.iter().any(|member| flag(&member.flags))
}

#[tokio::test]
async fn alone_and_introduced_to_nobody() {
    let connector = Connector::new(PORT);
    let server = Server::start();
    keep("alone.resp2", &server);
    connector
        .meet(&Target::operator(server.ip(), &password()), next_address())
        .await
        .unwrap();
    all_see("a handshake", &connector, [&server], |view| {
        flagged(view, |flags| flags.handshake)
    })
    .await;
    keep("handshake.resp2", &server);
}

#[tokio::test]
async fn formed_then_failed() {
    let connector = Connector::new(PORT);
    let mut owners = [(); 3].map(|()| Server::start_with(&FAST));
    let others = [(); 3].map(|()| Server::start_with(&FAST));
    let ids = primaries(&connector, &owners).await;
    replicas(&connector, &owners[0], &ids, &others).await;
    all_see(
        "the whole cluster",
        &connector,
        owners.iter().chain(&others),
        |view| {
            view.cluster_ok
                && view.members.len() == 6
                && view
                    .members
                    .iter()
                    .filter(|member| member.primary.is_some())
                    .count()
                    == 3
                && view
                    .members
                    .iter()
                    .all(|member| member.connected && member.ip.is_some())
                && !matches!(view.role, Role::Primary { offset: 0 })
        },
    )
    .await;
    keep("formed-primary.resp2", &owners[1]);
    keep("formed-primary.resp3", &owners[1]);
    keep("formed-replica.resp2", &others[0]);
    owners[2].kill();
    all_see("a failure", &connector, &owners[..1], |view| {
        let failed = view.members.iter().find(|member| member.flags.failed);
        failed.is_some_and(|member| member.slots.is_empty() && !member.connected)
    })
    .await;
    keep("failed.resp2", &owners[0]);
}

#[tokio::test]
async fn a_suspicion_that_nobody_can_confirm() {
    let connector = Connector::new(PORT);
    let mut servers = [(); 2].map(|()| Server::start_with(&FAST));
    primaries(&connector, &servers).await;
    // In its first two seconds a server has not counted the voters, and its own suspicion is enough for it.
    all_see("a cluster that serves", &connector, &servers, |view| {
        view.cluster_ok
    })
    .await;
    servers[1].kill();
    all_see("a suspicion", &connector, &servers[..1], |view| {
        flagged(view, |flags| flags.suspected)
    })
    .await;
    keep("suspected.resp2", &servers[0]);
}

#[tokio::test]
async fn a_replica_of_a_primary_that_refuses_it() {
    let connector = Connector::new(PORT);
    let owner = [Server::start()];
    let replica = Server::start_with(&[("primaryuser", "nobody")]);
    let ids = primaries(&connector, &owner).await;
    let password = password();
    connector
        .meet(&Target::operator(owner[0].ip(), &password), replica.ip())
        .await
        .unwrap();
    let target = Target::operator(replica.ip(), &password);
    eventually("a replica", async || {
        connector
            .replicate(&target, &ids[0])
            .await
            .map_err(|error| error.to_string())
    })
    .await;
    let view = replica.view(&connector).await;
    assert!(
        matches!(
            view.role,
            Role::Replica {
                linked: false,
                offset: 0..=1
            }
        ),
        "{view:?}"
    );
    keep("replica-unsynced.resp2", &replica);
}

#[tokio::test]
async fn a_member_whose_id_is_gone() {
    let connector = Connector::new(PORT);
    let servers = [(); 2].map(|()| Server::start_with(&FAST));
    connector
        .meet(
            &Target::operator(servers[0].ip(), &password()),
            servers[1].ip(),
        )
        .await
        .unwrap();
    all_see("both members", &connector, &servers, |view| {
        view.members.len() == 2 && !flagged(view, |flags| flags.handshake)
    })
    .await;
    servers[1].ask::<()>(&["CLUSTER", "RESET", "HARD"]);
    all_see("a ghost", &connector, &servers[..1], |view| {
        flagged(view, |flags| flags.no_address)
    })
    .await;
    keep("noaddr.resp2", &servers[0]);
}

#[tokio::test]
async fn slots_that_are_moved_by_hand() {
    let connector = Connector::new(PORT);
    let owner = [Server::start()];
    let other = Server::start();
    let ids = primaries(&connector, &owner).await;
    connector
        .meet(&Target::operator(owner[0].ip(), &password()), other.ip())
        .await
        .unwrap();
    let id = eventually("both members", async || {
        let view = other.view(&connector).await;
        let here = view
            .member(&ids[0])
            .is_some_and(|member| member.slots.count() > 0);
        let there = owner[0].view(&connector).await.member(&view.id).is_some();
        if here && there {
            Ok(view.id)
        } else {
            Err(format!("{view:?}"))
        }
    })
    .await;
    for slot in ["7", "16000"] {
        owner[0].ask::<()>(&["CLUSTER", "SETSLOT", slot, "MIGRATING", id.as_str()]);
        other.ask::<()>(&["CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0].as_str()]);
    }
    keep("moving-by-hand.resp2", &owner[0]);
    keep("importing-by-hand.resp2", &other);
    assert!(other.view(&connector).await.own_slots().is_empty());
}

#[tokio::test]
async fn names_and_ipv6() {
    // There is one such loopback address, so that ports tell the servers apart, here and beside another run.
    let localhost = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let first = 12_000 + u16::try_from(std::process::id() % 4000).unwrap() * 2;
    let start = |port: u16, name: &str, extra: &[(&str, &str)]| {
        let settings = [&[("cluster-announce-hostname", name)], extra].concat();
        Server::start_at(SocketAddr::new(localhost, port), &settings)
    };
    let a = start(first, "c-1a2b3.c.ns.svc.cluster.local", &[]);
    let more = [
        ("cluster-replica-no-failover", "yes"),
        ("availability-zone", "zone-a"),
    ];
    let b = start(first + 1, "c-4d5e6.c.ns.svc.cluster.local", &more);
    a.ask::<()>(&["CLUSTER", "MEET", "::1", &b.address.port().to_string()]);
    let connectors = [(&a, Connector::new(first)), (&b, Connector::new(first + 1))];
    for (server, connector) in &connectors {
        eventually("both members and their names", async || {
            let view = server.view(connector).await;
            let addressed = view
                .members
                .iter()
                .all(|member| member.ip.is_some() && !member.flags.handshake);
            let nodes: String = server.ask(&["CLUSTER", "NODES"]);
            let named = nodes.matches(".c.ns.svc.cluster.local").count() == 2;
            let flagged = nodes.contains("nofailover");
            if addressed && named && flagged {
                Ok(())
            } else {
                Err(nodes)
            }
        })
        .await;
    }
    keep("hostname-ipv6.resp2", &b);
}
