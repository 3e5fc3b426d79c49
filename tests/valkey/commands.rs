//! Clusters formed, changed and refused by our commands alone, each account held against what other commands of
//! Valkey tell. Never decides: what is done when is the operator's to know.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::time::Instant;

use futures::future::join_all;
use operator::model::name::ValkeyId;
use operator::model::slots::SLOT_COUNT;
use operator::model::slots::SlotRange;
use operator::model::slots::SlotSet;
use operator::model::topology::Member;
use operator::model::topology::MigrationState;
use operator::model::topology::NodeView;
use operator::model::topology::Role;
use operator::valkey::client::Connector;
use operator::valkey::client::Error;
use operator::valkey::client::Target;

use crate::servers::PASSWORD;
use crate::servers::PORT;
use crate::servers::Server;
use crate::servers::all_see;
use crate::servers::eventually;
use crate::servers::nothing_was_denied;
use crate::servers::password;

/// Primaries that each own a share of the slots and know each other.
pub(crate) async fn primaries(connector: &Connector, servers: &[Server]) -> Vec<ValkeyId> {
    let password = password();
    let target = |server: &Server| Target::operator(server.ip(), &password);
    for server in &servers[1..] {
        connector
            .meet(&target(&servers[0]), server.ip())
            .await
            .unwrap();
    }
    all_see("every member", connector, servers, |view| {
        view.members.len() == servers.len()
            && view.members.iter().all(|member| !member.flags.handshake)
    })
    .await;
    let mut ids = Vec::new();
    let count = u32::try_from(servers.len()).unwrap();
    for (index, server) in (0..).zip(servers) {
        let range = SlotRange::share(index, count).unwrap();
        connector.add_slots(&target(server), range).await.unwrap();
        ids.push(server.view(connector).await.id);
    }
    // A claim is news that gossip takes seconds to spread; each owner's MEET brings it at once.
    for from in servers {
        let others = servers.iter().filter(|to| to.ip() != from.ip());
        let from = target(from);
        let told = join_all(others.map(|to| connector.meet(&from, to.ip()))).await;
        told.into_iter().for_each(Result::unwrap);
    }
    all_see("every slot", connector, servers, |view| {
        view.slots_assigned == SLOT_COUNT
    })
    .await;
    ids
}

/// Replicas of these primaries, in their order, with finished first syncs.
pub(crate) async fn replicas(
    connector: &Connector,
    seed: &Server,
    of: &[ValkeyId],
    servers: &[Server],
) {
    let password = password();
    let target = |server: &Server| Target::operator(server.ip(), &password);
    for (server, primary) in servers.iter().zip(of) {
        connector.meet(&target(seed), server.ip()).await.unwrap();
        let what = "a replica's knowledge of its primary";
        eventually(what, async || {
            match connector.replicate(&target(server), primary).await {
                Err(Error::Refused { refusal, .. }) => {
                    assert_eq!(refusal, format!("ERR Unknown node {primary}"));
                    Err(refusal)
                }
                told => {
                    told.unwrap();
                    Ok(())
                }
            }
        })
        .await;
    }
    all_see("every link", connector, servers, |view| {
        matches!(view.role, Role::Replica { linked: true, .. })
    })
    .await;
}

#[tokio::test]
async fn a_cluster_is_formed_by_our_commands_alone() {
    let connector = Connector::new(PORT);
    let primary_servers = [Server::start(), Server::start(), Server::start()];
    let replica_servers = [Server::start(), Server::start(), Server::start()];
    let all = || primary_servers.iter().chain(&replica_servers);

    for server in all() {
        let view = server.view(&connector).await;
        assert_eq!(view.id.as_str(), server.ask::<String>(&["CLUSTER", "MYID"]));
        assert_eq!(
            (
                view.cluster_ok,
                view.slots_assigned,
                view.known_nodes,
                view.size
            ),
            (false, 0, 1, 0)
        );
        assert_eq!(view.members.len(), 1);
        assert_eq!(view.role, Role::Primary { offset: 0 });
    }
    let start = Instant::now();
    let ids = primaries(&connector, &primary_servers).await;
    let agreed = start.elapsed();
    replicas(&connector, &primary_servers[0], &ids, &replica_servers).await;
    let linked = start.elapsed();
    let known = |view: &NodeView| {
        let replicas = view
            .members
            .iter()
            .filter(|member| member.primary.is_some());
        view.members.len() == 6 && replicas.count() == 3 && view.cluster_ok && view.size == 3
    };
    all_see("the whole cluster", &connector, all(), known).await;
    println!(
        "slots agreed after {agreed:?}, replicas linked after {linked:?}, ok after {:?}",
        start.elapsed()
    );

    for server in all() {
        eventually("one answer to two questions", async || {
            let (shards, view) = (told_by_shards(server), server.view(&connector).await);
            let account = told_by_account(&view);
            if account == shards {
                Ok(())
            } else {
                Err(format!("{account:?} {shards:?}"))
            }
        })
        .await;
        for member in &server.view(&connector).await.members {
            let holder = all().find(|server| member.ip == Some(server.ip())).unwrap();
            assert_eq!(
                member.id.as_str(),
                holder.ask::<String>(&["CLUSTER", "MYID"])
            );
        }
    }
    nothing_was_denied(all());
}

/// Ranges with the ids of their owners and their owners' replicas, as an account tells them.
fn told_by_account(view: &NodeView) -> BTreeSet<(u32, u32, BTreeSet<String>)> {
    let group = |owner: &ValkeyId| {
        let of_it =
            |member: &&Member| member.id == *owner || member.primary.as_ref() == Some(owner);
        view.members
            .iter()
            .filter(of_it)
            .map(|member| member.id.to_string())
            .collect()
    };
    let ranges = |member: &Member| member.slots.ranges().to_vec();
    let owned = view.members.iter().flat_map(|member| {
        ranges(member)
            .into_iter()
            .map(|range| (range.start(), range.end(), group(&member.id)))
    });
    owned.collect()
}

/// The same, as CLUSTER SHARDS tells it. CLUSTER SLOTS leaves out a replica whose offset is not known yet.
fn told_by_shards(server: &Server) -> BTreeSet<(u32, u32, BTreeSet<String>)> {
    let shards: Vec<BTreeMap<String, redis::Value>> = server.ask(&["CLUSTER", "SHARDS"]);
    let mut told = BTreeSet::new();
    for shard in shards {
        let slots: Vec<u32> = redis::from_redis_value(shard["slots"].clone()).unwrap();
        let nodes: Vec<BTreeMap<String, String>> =
            redis::from_redis_value(shard["nodes"].clone()).unwrap();
        let ids: BTreeSet<String> = nodes.iter().map(|node| node["id"].clone()).collect();
        told.extend(
            slots
                .chunks(2)
                .map(|range| (range[0], range[1], ids.clone())),
        );
    }
    told
}

#[tokio::test]
async fn a_dead_replica_is_forgotten() {
    let connector = Connector::new(PORT);
    let password = password();
    let target = |server: &Server| Target::operator(server.ip(), &password);
    let owner = [Server::start()];
    let mut others = [Server::start(), Server::start()];
    let ids = primaries(&connector, &owner).await;
    replicas(
        &connector,
        &owner[0],
        &[ids[0].clone(), ids[0].clone()],
        &others,
    )
    .await;
    let gone = others[1].view(&connector).await.id;
    others[1].kill();
    let living = [&owner[0], &others[0]];
    for server in living {
        connector.forget(&target(server), &gone).await.unwrap();
        connector.forget(&target(server), &gone).await.unwrap();
    }
    all_see("that it is forgotten", &connector, living, |view| {
        view.member(&gone).is_none()
    })
    .await;
    let unknown = ValkeyId::new("0".repeat(40));
    connector
        .forget(&target(&owner[0]), &unknown)
        .await
        .unwrap();
    nothing_was_denied(living);
}

#[tokio::test]
async fn a_replica_takes_over_where_nobody_can_vote() {
    let connector = Connector::new(PORT);
    let password = password();
    let mut owner = [Server::start()];
    let heirs = [Server::start()];
    let ids = primaries(&connector, &owner).await;
    replicas(&connector, &owner[0], &ids, &heirs).await;
    let both = || owner.iter().chain(&heirs);
    all_see("a cluster that serves", &connector, both(), |view| {
        view.cluster_ok
    })
    .await;
    owner[0].ask::<()>(&["SET", "key", "value"]);
    let Role::Primary { offset: written } = owner[0].view(&connector).await.role else {
        panic!("the owner is no primary")
    };
    all_see("the key", &connector, &heirs, |view| match view.role {
        Role::Replica { offset, .. } => offset >= written,
        Role::Primary { .. } => false,
    })
    .await;

    let heir = &heirs[0];
    let target = Target::operator(heir.ip(), &password);
    assert_eq!(
        refusal(connector.forget(&target, &ids[0]).await),
        "CLUSTER FORGET: ERR Can't forget my master!"
    );
    owner[0].kill();
    all_see("the suspicion", &connector, &heirs, |view| {
        let owner = view.member(&ids[0]).map(|member| &member.flags);
        owner.is_some_and(|flags| flags.suspected && !flags.failed)
            && matches!(view.role, Role::Replica { linked: false, .. })
    })
    .await;
    connector.takeover(&target).await.unwrap();
    all_see("the new primary", &connector, &heirs, |view| {
        let whole = view.own_slots().count() == SLOT_COUNT;
        matches!(view.role, Role::Primary { .. }) && whole && view.cluster_ok
    })
    .await;
    assert_eq!(heir.ask::<String>(&["GET", "key"]), "value");
    connector.forget(&target, &ids[0]).await.unwrap();
    let view = heir.view(&connector).await;
    assert_eq!((view.members.len(), view.known_nodes), (1, 1));
    nothing_was_denied(&heirs);
}

#[tokio::test]
async fn slots_move_with_their_keys_and_the_move_is_told() {
    let connector = Connector::new(PORT);
    let password = password();
    let target = |server: &Server| Target::operator(server.ip(), &password);
    let servers = [Server::start(), Server::start()];
    let ids = primaries(&connector, &servers).await;
    let [a, b] = &servers;
    all_see("a cluster that serves", &connector, &servers, |view| {
        view.cluster_ok
    })
    .await;
    // `foo` is in slot 12182, which the second one owns.
    b.ask::<()>(&["SET", "foo", "bar"]);
    let moving = SlotSet::of(
        [(12_000, 12_100), (12_182, 12_182)]
            .into_iter()
            .filter_map(|(start, end)| SlotRange::new(start, end))
            .collect(),
    );
    connector
        .migrate_slots(&target(b), &moving, &ids[0])
        .await
        .unwrap();
    let job = eventually("the end of the move", async || {
        let view = b.view(&connector).await;
        let job = view.migrations.first().cloned().ok_or("no job")?;
        if job.state == MigrationState::Running {
            Err(format!("{job:?}"))
        } else {
            Ok(job)
        }
    })
    .await;
    assert_eq!(job.state, MigrationState::Succeeded);
    assert!(job.outgoing && job.slots == moving && job.updated > 1_700_000_000);
    assert_eq!(job.target.as_ref(), Some(&ids[0]));
    assert_eq!(a.ask::<String>(&["GET", "foo"]), "bar");
    let arrived = a.view(&connector).await;
    assert!(!arrived.migrations[0].outgoing, "{:?}", arrived.migrations);
    assert_eq!(
        (arrived.load.keys, arrived.own_slots().count()),
        (1, 8192 + 102)
    );
    assert!(arrived.clock > 1_700_000_000 && arrived.load.data_bytes > 0 && !arrived.loading);

    // Promised, and failed: the target is nobody's primary.
    let unwilling = refusal(connector.migrate_slots(&target(b), &moving, &ids[0]).await);
    assert_eq!(
        unwilling,
        "CLUSTER MIGRATESLOTS: ERR Slots are not served by this node."
    );
    nothing_was_denied(&servers);
}

#[tokio::test]
async fn a_failover_changes_places_and_loses_nothing() {
    let connector = Connector::new(PORT);
    let password = password();
    let target = |server: &Server| Target::operator(server.ip(), &password);
    let mut owners = [Server::start(), Server::start(), Server::start()];
    let heirs = [Server::start()];
    let ids = primaries(&connector, &owners).await;
    replicas(&connector, &owners[0], &ids, &heirs).await;
    let all = || owners.iter().chain(&heirs);
    let heir = heirs[0].view(&connector).await.id;
    // Without it nobody votes.
    all_see("the replica", &connector, all(), |view| {
        let row = view.member(&heir);
        view.cluster_ok && row.is_some_and(|row| row.primary.as_ref() == Some(&ids[0]))
    })
    .await;
    assert_eq!(
        refusal(connector.failover(&target(&owners[0])).await),
        "CLUSTER FAILOVER: ERR You should send CLUSTER FAILOVER to a replica"
    );
    connector.failover(&target(&heirs[0])).await.unwrap();
    all_see("the new primary", &connector, all(), |view| {
        view.member(&heir)
            .is_some_and(|row| row.slots.count() > 5000)
    })
    .await;
    all_see("the old one's link", &connector, &owners[..1], |view| {
        matches!(view.role, Role::Replica { linked: true, .. }) && !view.failing_over
    })
    .await;

    // Back, by force: its primary is not asked.
    let back = target(&owners[0]);
    connector.failover_force(&back).await.unwrap();
    all_see("the first primary", &connector, &owners, |view| {
        view.member(&ids[0])
            .is_some_and(|row| row.slots.count() > 5000)
    })
    .await;
    owners[2].kill();
    all_see("silence", &connector, &owners[..1], |view| {
        let row = view.member(&ids[2]);
        row.is_some_and(|row| row.flags.failed && row.silent_seconds >= 4)
    })
    .await;
    nothing_was_denied([&owners[0], &heirs[0]]);
}

#[tokio::test]
async fn a_fresh_primary_claims_what_was_lost_with_the_greatest_epoch() {
    let connector = Connector::new(PORT);
    let password = password();
    let target = |server: &Server| Target::operator(server.ip(), &password);
    let mut servers = [Server::start(), Server::start(), Server::start()];
    let ids = primaries(&connector, &servers).await;
    let lost = servers[0].view(&connector).await.own_slots();
    servers[0].kill();
    let fresh = Server::start();
    for server in &servers[1..] {
        connector.forget(&target(server), &ids[0]).await.unwrap();
    }
    connector
        .meet(&target(&servers[1]), fresh.ip())
        .await
        .unwrap();
    let living = || servers[1..].iter().chain([&fresh]);
    all_see("that nobody has them", &connector, living(), |view| {
        view.members.len() == 3 && view.slots_assigned == SLOT_COUNT - lost.count()
    })
    .await;
    connector
        .add_slot_set(&target(&fresh), &lost)
        .await
        .unwrap();
    connector.bump_epoch(&target(&fresh)).await.unwrap();
    connector.bump_epoch(&target(&fresh)).await.unwrap();
    let view = fresh.view(&connector).await;
    let greatest = view.members.iter().map(|row| row.epoch).max();
    assert_eq!(greatest, Some(view.my_epoch));
    all_see("the claim", &connector, living(), |other| {
        other.member(&view.id).is_some_and(|row| row.slots == lost)
    })
    .await;
    nothing_was_denied(living());
}

#[tokio::test]
async fn a_process_that_is_reset_knows_nobody_and_is_nobody() {
    let connector = Connector::new(PORT);
    let password = password();
    let target = |server: &Server| Target::operator(server.ip(), &password);
    let owner = [Server::start()];
    let replica = [Server::start()];
    let ids = primaries(&connector, &owner).await;
    replicas(&connector, &owner[0], &ids, &replica).await;
    let id = replica[0].view(&connector).await.id;
    connector.reset(&target(&replica[0])).await.unwrap();
    let view = replica[0].view(&connector).await;
    assert!(view.id != id && view.members.len() == 1, "{view:?}");
    all_see("a cluster that serves", &connector, &owner, |view| {
        view.cluster_ok
    })
    .await;
    owner[0].ask::<()>(&["SET", "key", "value"]);
    let told = refusal(connector.reset(&target(&owner[0])).await);
    assert!(
        told.starts_with("CLUSTER RESET HARD: ERR CLUSTER RESET can't be called"),
        "{told}"
    );
    nothing_was_denied(owner.iter().chain(&replica));
}

/// A refusal, without the address that it begins with.
fn refusal(told: Result<(), Error>) -> String {
    let error = told.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(!format!("{error:?} {error}").contains(PASSWORD));
    let (_, refusal) = error
        .to_string()
        .split_once(" refused ")
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    refusal
}

#[tokio::test]
async fn refusals_are_told_in_valkeys_words() {
    let connector = Connector::new(PORT);
    let password = password();
    let target = |server: &Server| Target::operator(server.ip(), &password);
    let servers = [Server::start(), Server::start()];
    let replica = [Server::start()];
    let ids = primaries(&connector, &servers).await;
    replicas(&connector, &servers[0], &ids[..1], &replica).await;
    let [a, b] = &servers;
    let unknown = ValkeyId::new("0".repeat(40));

    let own = a.view(&connector).await.own_slots().ranges()[0];
    assert_eq!(
        refusal(connector.add_slots(&target(a), own).await),
        "CLUSTER ADDSLOTSRANGE: ERR Slot 0 is already busy"
    );
    assert_eq!(
        refusal(connector.replicate(&target(a), &unknown).await),
        format!("CLUSTER REPLICATE: ERR Unknown node {unknown}")
    );
    assert_eq!(
        refusal(connector.replicate(&target(a), &ids[0]).await),
        "CLUSTER REPLICATE: ERR Can't replicate myself"
    );
    assert_eq!(
        refusal(connector.replicate(&target(a), &ids[1]).await),
        "CLUSTER REPLICATE: ERR To set a master the node must be empty and without assigned slots."
    );
    eventually("that the replica is known as one", async || {
        let id = replica[0].view(&connector).await.id;
        let known = b.view(&connector).await;
        let known = known
            .member(&id)
            .is_some_and(|member| member.primary.is_some());
        if known {
            Ok(())
        } else {
            Err("it is not".to_owned())
        }
    })
    .await;
    assert_eq!(
        refusal(connector.takeover(&target(a)).await),
        "CLUSTER FAILOVER TAKEOVER: ERR You should send CLUSTER FAILOVER to a replica"
    );
    let own = refusal(connector.forget(&target(a), &ids[0]).await);
    assert!(
        own.starts_with("CLUSTER FORGET: ERR I tried hard but I can't forget myself"),
        "{own}"
    );

    // Once more is no harm: every command may arrive twice.
    connector
        .replicate(&target(&replica[0]), &ids[0])
        .await
        .unwrap();
    connector.meet(&target(a), b.ip()).await.unwrap();
    connector.meet(&target(a), a.ip()).await.unwrap();

    nothing_was_denied(servers.iter().chain(&replica));
}

#[tokio::test]
async fn files_and_settings_are_taken_or_refused_whole() {
    let connector = Connector::new(PORT);
    let password = password();
    let server = Server::start();
    let target = Target::operator(server.ip(), &password);
    let file = server.directory.join("users.acl");
    let good = fs::read_to_string(&file).unwrap();
    let setting = |name: &str| server.ask::<Vec<String>>(&["CONFIG", "GET", name])[1].clone();

    fs::write(&file, format!("{good}user late on nopass -@all +ping\n")).unwrap();
    connector.acl_load(&target).await.unwrap();
    assert!(
        server
            .ask::<Vec<String>>(&["ACL", "USERS"])
            .contains(&"late".to_owned())
    );
    fs::write(
        &file,
        format!("{good}user wrong on nopass +nosuchcommand\n"),
    )
    .unwrap();
    let told = refusal(connector.acl_load(&target).await);
    assert!(
        told.starts_with("ACL LOAD: ERR ") && told.contains("nosuchcommand"),
        "{told}"
    );
    assert!(
        server
            .ask::<Vec<String>>(&["ACL", "USERS"])
            .contains(&"late".to_owned())
    );
    fs::write(&file, &good).unwrap();
    connector.acl_load(&target).await.unwrap();
    // The connection is the same: who stays in the file stays connected.
    assert_eq!(server.view(&connector).await.members.len(), 1);

    connector
        .config_set(&target, &[("hz", "11"), ("primaryauth", PASSWORD)])
        .await
        .unwrap();
    assert_eq!(setting("hz"), "11");
    let told = refusal(
        connector
            .config_set(&target, &[("hz", "12"), ("aclfile", PASSWORD)])
            .await,
    );
    assert_eq!(
        told,
        "CONFIG SET: ERR CONFIG SET failed (possibly related to argument 'aclfile') - can't set immutable config"
    );
    assert_eq!(setting("hz"), "11");
    nothing_was_denied([&server]);
}

/// `MSETEX` has no slot in the cluster mode of 9.1: whoever is asked takes it, and what it writes while its slot moves is
/// lost. `docs/limits.md` says so, and that a role should deny it, until a later Valkey lets this fail.
#[test]
fn msetex_is_taken_by_whoever_is_asked() {
    let owner_of_nothing = Server::start();
    let taken: i64 = owner_of_nothing.ask(&["MSETEX", "1", "key", "value"]);
    assert_eq!(taken, 1);
}
