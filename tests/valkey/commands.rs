//! Every command of ours against real servers: what it does, and what it says where it is refused.

use std::time::Duration;
use std::time::Instant;

use operator::model::chain;
use operator::model::name::ValkeyId;
use operator::model::redacted::Redacted;
use operator::model::slots::SLOT_COUNT;
use operator::model::slots::SlotRange;
use operator::model::topology::NodeView;
use operator::model::topology::Role;
use operator::valkey::client::Target;

use crate::servers::Servers;
use crate::servers::until;

const ALL: [usize; 6] = [0, 1, 2, 3, 4, 5];

/// Rounds with the nudge, and as many without.
const ROUNDS: u32 = 3;

fn is_linked(role: &Role) -> bool {
    matches!(role, Role::Replica { linked: true, .. })
}

/// The ids that servers say of themselves.
async fn ids(servers: &Servers, of: &[usize]) -> Vec<ValkeyId> {
    let accounts = servers.accounts(of).await;
    accounts.into_iter().map(|view| view.id).collect()
}

#[tokio::test]
async fn a_cluster_is_formed_and_tended_by_our_commands_alone() {
    let mut servers = Servers::start(6).await;
    lone(&servers).await;
    servers.meet_through_the_first().await;
    nudged_agreement_is_faster(&servers).await;
    replicas_are_made(&servers).await;
    dead_replica_is_forgotten(&mut servers).await;
    for _ in 0..100 {
        servers.accounts(&ALL[..5]).await;
    }
    for index in &ALL[..5] {
        let connections = servers.operator_connections(*index);
        assert!(connections.len() <= 2, "{index}: {connections:?}");
    }
    servers.nothing_was_denied();
}

async fn lone(servers: &Servers) {
    let view = servers.account(0).await.unwrap();
    assert_eq!(
        (view.known_nodes, view.slots_assigned, view.size),
        (1, 0, 0)
    );
    assert_eq!((view.current_epoch, view.my_epoch), (0, 0));
    assert!(!view.cluster_ok);
    assert_eq!(view.role, Role::Primary { offset: 0 });
    let row = view.member(&view.id).unwrap();
    assert!(row.flags.myself && row.flags.primary && row.connected && row.primary.is_none());
    assert_eq!(row.ip, Some(servers.address(0)));
    assert!(view.own_slots().is_empty());
}

/// Three owners claim piece after piece of their shares. In every second round each owner then meets everybody
/// again, which makes it send its news at once.
async fn nudged_agreement_is_faster(servers: &Servers) {
    let mut took = [Duration::ZERO; 2];
    for round in 0..2 * ROUNDS {
        let nudge = round % 2 == 1;
        let begin = Instant::now();
        for owner in 0..3 {
            let piece = SlotRange::share(owner * 2 * ROUNDS + round, 3 * 2 * ROUNDS).unwrap();
            let target = servers.target(owner as usize);
            servers.connector.add_slots(&target, piece).await.unwrap();
            if nudge {
                for other in ALL.iter().filter(|other| **other != owner as usize) {
                    let met = servers.connector.meet(&target, servers.address(*other));
                    met.await.unwrap();
                }
            }
        }
        let pieces = (0..3).flat_map(|owner| (0..=round).map(move |r| owner * 2 * ROUNDS + r));
        let expected: u32 = pieces
            .map(|p| SlotRange::share(p, 3 * 2 * ROUNDS).unwrap().count())
            .sum();
        let agree = |view: &NodeView| view.slots_assigned == expected;
        servers.agree("all know all owners", &ALL, agree).await;
        took[usize::from(nudge)] += begin.elapsed();
    }
    let [plain, nudged] = took.map(|took| took / ROUNDS);
    assert!(
        nudged * 2 < plain,
        "{nudged:?} with the nudge, {plain:?} without"
    );
    let all = |view: &NodeView| view.slots_assigned == SLOT_COUNT;
    servers.agree("every slot has an owner", &ALL, all).await;
}

async fn replicas_are_made(servers: &Servers) {
    let ids = ids(servers, &ALL).await;
    for (index, primary) in (3..6).zip(&ids) {
        let target = servers.target(index);
        let replicate = servers.connector.replicate(&target, primary);
        replicate.await.unwrap();
    }
    servers
        .agree("replicas are linked", &ALL[3..], |view| {
            is_linked(&view.role)
        })
        .await;
    servers
        .agree("all know all replicas, and all is well", &ALL, |view| {
            let rows = (0..3).all(|index| {
                let replica = view.member(&ids[index + 3]);
                replica.is_some_and(|row| row.primary.as_ref() == Some(&ids[index]))
            });
            rows && view.cluster_ok && view.size == 3 && view.known_nodes == 6
        })
        .await;
    for view in servers.accounts(&ALL[..3]).await {
        assert_eq!(view.my_epoch, view.member(&view.id).unwrap().epoch);
        assert!(matches!(view.role, Role::Primary { .. }));
        assert!(view.own_slots().count() >= SLOT_COUNT / 3);
    }
}

async fn dead_replica_is_forgotten(servers: &mut Servers) {
    let dead = servers.account(5).await.unwrap().id;
    let living = &ALL[..5];
    servers.kill(5);
    servers
        .agree("all agree that it failed", living, |view| {
            view.member(&dead)
                .is_some_and(|row| row.flags.failed && !row.connected)
        })
        .await;
    for index in living {
        let target = servers.target(*index);
        servers.connector.forget(&target, &dead).await.unwrap();
    }
    servers
        .agree("nobody lists it", living, |view| {
            view.member(&dead).is_none() && view.cluster_ok
        })
        .await;
    let stranger = ValkeyId::new("0123456789abcdef0123456789abcdef01234567");
    for index in living {
        let target = servers.target(*index);
        // Forgotten already, and never known.
        servers.connector.forget(&target, &dead).await.unwrap();
        servers.connector.forget(&target, &stranger).await.unwrap();
    }
    let own = servers.account(0).await.unwrap().id;
    let refused = servers.connector.forget(&servers.target(0), &own).await;
    let error = chain::of(&refused.unwrap_err());
    assert!(
        error.contains("I tried hard but I can't forget myself"),
        "{error}"
    );
}

#[tokio::test]
async fn a_replica_takes_over_where_no_vote_can_be_won() {
    let mut servers = Servers::start(3).await;
    servers.meet_through_the_first().await;
    let ids = ids(&servers, &[0, 1, 2]).await;
    let every = SlotRange::share(0, 1).unwrap();
    let first = servers.target(0);
    servers.connector.add_slots(&first, every).await.unwrap();
    for index in [1, 2] {
        let target = servers.target(index);
        let replicate = servers.connector.replicate(&target, &ids[0]);
        replicate.await.unwrap();
    }
    servers
        .agree("replicas are linked", &[1, 2], |view| is_linked(&view.role))
        .await;
    servers
        .agree("all is well", &[0, 1, 2], |view| view.cluster_ok)
        .await;

    servers.kill(0);
    let target = servers.target(1);
    servers.connector.takeover(&target).await.unwrap();
    servers
        .agree("the replica is the primary", &[1, 2], |view| {
            let row = view.member(&ids[1]);
            row.is_some_and(|row| row.flags.primary && row.slots.count() == SLOT_COUNT)
        })
        .await;
    servers
        .agree("the other replica follows", &[2], |view| {
            is_linked(&view.role)
        })
        .await;
    let view = servers.account(1).await.unwrap();
    assert!(matches!(view.role, Role::Primary { .. }) && view.my_epoch > 0);

    // Nobody is left that names it as its primary: now it may be forgotten.
    for index in [1, 2] {
        let target = servers.target(index);
        servers.connector.forget(&target, &ids[0]).await.unwrap();
    }
    servers
        .agree("all is well without the dead", &[1, 2], |view| {
            view.cluster_ok && view.known_nodes == 2 && view.member(&ids[0]).is_none()
        })
        .await;
    servers.nothing_was_denied();
}

#[tokio::test]
async fn a_refusal_is_readable_and_holds_no_password() {
    let servers = Servers::start(2).await;
    servers.meet_through_the_first().await;
    let ids = ids(&servers, &[0, 1]).await;
    let (connector, first, second) = (&servers.connector, servers.target(0), servers.target(1));
    let range = SlotRange::new(5, 9).unwrap();
    connector.add_slots(&first, range).await.unwrap();
    let overlapping = SlotRange::new(9, 20).unwrap();
    let stranger = ValkeyId::new("0123456789abcdef0123456789abcdef01234567");
    let before = servers.account(0).await.unwrap();
    let connections = servers.operator_connections(0);
    let refused = [
        (
            connector.add_slots(&first, overlapping).await,
            "CLUSTER ADDSLOTSRANGE",
            "Slot 9 is already busy",
        ),
        (
            connector.replicate(&second, &stranger).await,
            "CLUSTER REPLICATE",
            "Unknown node 0123",
        ),
        (
            connector.replicate(&second, &ids[1]).await,
            "CLUSTER REPLICATE",
            "Can't replicate myself",
        ),
        (
            connector.replicate(&first, &ids[1]).await,
            "CLUSTER REPLICATE",
            "the node must be empty",
        ),
        (
            connector.takeover(&first).await,
            "CLUSTER FAILOVER TAKEOVER",
            "to a replica",
        ),
    ];
    for (result, command, said) in refused {
        let error = chain::of(&result.unwrap_err());
        assert!(error.contains(command) && error.contains(said), "{error}");
        assert!(error.contains("127."), "{error}");
        assert!(!error.contains(servers.auth.operator.expose()), "{error}");
    }
    let after = servers.account(0).await.unwrap();
    assert_eq!(after.own_slots(), before.own_slots(), "all or none");
    assert_eq!(
        servers.operator_connections(0),
        connections,
        "a refusal costs none"
    );
    servers.nothing_was_denied();
}

#[tokio::test]
async fn an_acl_file_is_loaded_or_refused_as_a_whole() {
    let servers = Servers::start(1).await;
    let target = servers.target(0);
    let bob =
        "user bob on #5ff860bf1190596c7188ab851db691f0f3169c453936e9e1eba2f9a47f7a0018 ~* +get\n";
    let good = format!("{}{bob}", servers.acl());
    servers.write_acl(0, &good);
    servers.connector.acl_load(&target).await.unwrap();
    let mut admin = servers.admin(0);
    assert!(admin.call(&["ACL", "LIST"]).contains("user bob"));

    for (line, said) in [
        (
            "user eve on +nosuchcommand",
            "Unknown command or category name",
        ),
        ("user eve on #0123456789", "hash"),
        ("nonsense", "should start with user keyword"),
    ] {
        servers.write_acl(0, &format!("{}{line}\n", servers.acl()));
        let refused = servers.connector.acl_load(&target).await;
        let error = chain::of(&refused.unwrap_err());
        assert!(
            error.contains("ACL LOAD") && error.contains(said),
            "{error}"
        );
        for secret in [&servers.auth.operator, &servers.auth.repl] {
            assert!(!error.contains(secret.expose()), "{error}");
        }
        let users = admin.call(&["ACL", "LIST"]);
        assert!(
            users.contains("user bob") && !users.contains("user eve"),
            "{users}"
        );
    }
    servers.write_acl(0, &servers.acl());
    servers.connector.acl_load(&target).await.unwrap();
    assert!(!admin.call(&["ACL", "LIST"]).contains("user bob"));
    servers.account(0).await.unwrap();
    servers.nothing_was_denied();
}

#[tokio::test]
async fn a_wrong_password_is_told_and_not_repeated() {
    let servers = Servers::start(1).await;
    let wrong = Redacted::new("c3".repeat(64));
    let target = Target::operator(servers.address(0), &wrong);
    let error = servers.connector.account(&target).await.unwrap_err();
    let said = format!("{} {error:?} {target:?}", chain::of(&error));
    assert!(said.contains("failed to connect to 127."), "{said}");
    assert!(!said.contains(wrong.expose()), "{said}");
    // The right one still has its own connection.
    servers.account(0).await.unwrap();
    assert_eq!(servers.operator_connections(0).len(), 1);
}

/// One call may dial and then ask; each has its deadline, and a busy machine adds its own.
const PATIENCE: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_hung_server_costs_a_deadline_and_nothing_after() {
    let servers = Servers::start(1).await;
    servers.pause(0);
    // Over the kept connection, over a new one, and from a connector that never had one.
    let fresh = servers.another_connector();
    for connector in [&servers.connector, &servers.connector, &fresh] {
        let begin = Instant::now();
        let error = connector.account(&servers.target(0)).await.unwrap_err();
        assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
        assert!(chain::of(&error).contains("127."), "{error}");
    }
    servers.resume(0);
    until("it answers again", async || {
        servers.account(0).await.is_ok()
    })
    .await;
    until("it has dropped what was given up", async || {
        servers.operator_connections(0).len() == 1
    })
    .await;
    servers.nothing_was_denied();
}

#[tokio::test]
async fn a_server_that_comes_back_is_dialled_anew() {
    let mut servers = Servers::start(1).await;
    let id = servers.account(0).await.unwrap().id;
    servers.kill(0);
    let begin = Instant::now();
    let error = servers.account(0).await.unwrap_err();
    assert!(begin.elapsed() < PATIENCE, "{error}");
    servers.start_again(0);
    until("it answers again", async || {
        servers.account(0).await.is_ok()
    })
    .await;
    assert_eq!(servers.account(0).await.unwrap().id, id);

    // And where nobody looked while it was away.
    servers.kill(0);
    servers.start_again(0);
    let mut lost = 0;
    until("it answers again", async || {
        let answered = servers.account(0).await;
        lost += u32::from(matches!(
            &answered,
            Err(operator::valkey::client::Error::Call { .. })
        ));
        answered.is_ok()
    })
    .await;
    assert!(lost <= 1, "{lost} calls were lost");
    servers.nothing_was_denied();
}
