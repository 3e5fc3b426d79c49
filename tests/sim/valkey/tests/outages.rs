//! Failure detection, elections, failovers by hand, partitions.

use super::super::Answer;
use super::super::Signal;
use super::super::Value;
use super::stage::CONF;
use super::stage::Stage;

/// Facts 3.3: three shards, node timeout 5 s: promoted 6.1 to 7.6 s after SIGKILL, as far as it was measured.
#[test]
fn a_killed_primary_is_replaced_by_election() {
    let mut stage = Stage::cluster(3, 1);
    stage.fill(&[0, 1, 2], 60);
    stage.run(100);
    let keys = stage.truth(0).keys;
    stage.signal(0, Signal::Kill);
    let took = stage.until(9000, "promoted", |stage| stage.owns(3));
    assert!((5500..8800).contains(&took), "{took}");
    stage.until(1000, "ok", |stage| {
        (1..6).all(|index| stage.field(index, "cluster_state") == "ok")
    });
    assert_eq!(stage.truth(3).keys, keys);
    let dead = stage.id(0);
    let nodes = stage.text(1, "CLUSTER NODES");
    let line = nodes.lines().find(|line| line.starts_with(&dead)).unwrap();
    assert!(
        line.contains(" master,fail - ") && line.ends_with("disconnected"),
        "{line}"
    );
    assert_eq!(stage.repl(3, "role"), "master");
    assert_eq!(stage.field(1, "cluster_nodes_fail"), "1");
}

/// Facts 3.3: with two shards one dead primary is no majority; TAKEOVER repairs it.
#[test]
fn two_shards_need_a_takeover() {
    let mut stage = Stage::cluster(2, 1);
    stage.signal(0, Signal::Kill);
    stage.run(30_000);
    let dead = stage.id(0);
    let nodes = stage.text(1, "CLUSTER NODES");
    assert!(
        nodes.contains(&dead) && nodes.contains(" master,fail? - "),
        "{nodes}"
    );
    assert_eq!(stage.field(1, "cluster_state"), "fail");
    assert_eq!(stage.field(1, "cluster_slots_pfail"), "8192");
    stage.good(2, "CLUSTER FAILOVER FORCE");
    stage.run(6000);
    assert!(!stage.owns(2));
    stage.good(2, "CLUSTER FAILOVER TAKEOVER");
    assert!(stage.owns(2));
    let took = stage.until(8000, "ok", |stage| {
        (1..4).all(|index| stage.field(index, "cluster_state") == "ok")
    });
    assert!((4000..6500).contains(&took), "{took}");
}

/// Facts 3.1: 8 to 40 ms to promotion, the old primary a linked replica soon after; nothing lost.
#[test]
fn a_planned_failover_is_quick_and_loses_nothing() {
    for shards in [1, 2, 3] {
        let mut stage = Stage::cluster(shards, 1);
        let primaries: Vec<usize> = (0..shards).collect();
        stage.fill(&primaries, 60);
        stage.run(1000);
        let keys = stage.truth(0).keys;
        stage.good(shards, "CLUSTER FAILOVER");
        let took = stage.until(500, "promoted", |stage| stage.owns(shards));
        assert!(took <= 40, "{took}");
        stage.until(500, "the old one follows", |stage| {
            !stage.owns(0) && stage.is_linked(0)
        });
        assert_eq!(stage.truth(shards).keys, keys);
        assert_eq!(stage.truth(0).keys, keys);
    }
}

#[test]
fn a_failover_is_refused_in_valkeys_words() {
    let mut stage = Stage::cluster(3, 1);
    assert_eq!(
        stage.ask(0, "CLUSTER FAILOVER"),
        Value::error("ERR You should send CLUSTER FAILOVER to a replica")
    );
    assert_eq!(
        stage.ask(3, "CLUSTER FAILOVER NOW"),
        Value::error("ERR syntax error")
    );
    stage.signal(0, Signal::Kill);
    stage.run(100);
    assert_eq!(
        stage.ask(3, "CLUSTER FAILOVER"),
        Value::error("ERR Master is down or failed, please use CLUSTER FAILOVER FORCE")
    );
}

/// Facts 3.1: to a hung primary it is OK and times out; the election comes at some six seconds.
#[test]
fn a_failover_of_a_hung_primary_waits_for_the_election() {
    let mut stage = Stage::cluster(3, 1);
    stage.signal(0, Signal::Stop);
    stage.good(3, "CLUSTER FAILOVER");
    let took = stage.until(9000, "promoted", |stage| stage.owns(3));
    assert!((5000..8000).contains(&took), "{took}");
}

/// Claims 9: FORCE of a hung primary, without its FAIL flag: at once.
#[test]
fn force_replaces_a_hung_primary_at_once() {
    let mut stage = Stage::cluster(3, 1);
    stage.signal(0, Signal::Stop);
    stage.run(1000);
    stage.good(3, "CLUSTER FAILOVER FORCE");
    let took = stage.until(1000, "promoted", |stage| stage.owns(3));
    assert!(took <= 30, "{took}");
}

/// Fault F03: who wakes after its shard has failed over becomes a replica.
#[test]
fn a_primary_that_wakes_late_follows_the_new_one() {
    let mut stage = Stage::cluster(3, 1);
    stage.fill(&[0, 1, 2], 60);
    stage.signal(0, Signal::Stop);
    assert_eq!(stage.send(0, "PING"), Answer::Later, "its kernel has it");
    stage.until(9000, "promoted", |stage| stage.owns(3));
    stage.run(10_000);
    stage.signal(0, Signal::Continue);
    let took = stage.until(5000, "it follows", |stage| !stage.owns(0));
    assert!(took < 2000, "{took}");
    stage.until(10_000, "linked", |stage| stage.is_linked(0));
    assert!(!stage.answers().is_empty());
    stage.run(10_000);
    assert_eq!(stage.field(1, "cluster_nodes_fail"), "0");
    assert_eq!(stage.truth(0).keys, stage.truth(3).keys);
}

#[test]
fn a_short_hang_changes_nothing() {
    let mut stage = Stage::cluster(3, 1);
    let before = stage.field(1, "cluster_current_epoch");
    stage.signal(0, Signal::Stop);
    stage.run(3000);
    stage.signal(0, Signal::Continue);
    stage.run(10_000);
    assert!(stage.owns(0));
    assert_eq!(stage.field(1, "cluster_current_epoch"), before);
    assert_eq!(stage.field(0, "cluster_state"), "ok");
}

/// Facts 3.3: a replica that never synced does not stand for election.
#[test]
fn a_replica_without_data_is_not_elected() {
    let mut stage = Stage::cluster(3, 0);
    stage.fill(&[0, 1, 2], 30);
    let replica = stage.start(CONF);
    let process = stage.nodes[replica];
    stage.net.switches(stage.now, process).unwrap().sync_endless = true;
    let primary = stage.id(0);
    stage.good(0, "CLUSTER MEET 10.0.0.4 6379");
    stage.all_meet();
    stage.good(replica, &format!("CLUSTER REPLICATE {primary}"));
    stage.run(2000);
    stage.signal(0, Signal::Stop);
    stage.run(60_000);
    assert!(!stage.owns(replica));
    let log = stage.net.log(process).join("\n");
    assert!(
        log.contains("Disconnected from primary for longer than allowed"),
        "{log}"
    );
    stage.signal(0, Signal::Continue);
    stage.run(15_000);
    assert!(!stage.truth(0).keys.is_empty());
}

/// Facts 3.2, trap 2: plain FAILOVER onto a replica that never synced loses all, where both offsets are zero.
#[test]
fn a_planned_failover_to_an_empty_replica_loses_all() {
    let mut stage = Stage::strangers(2);
    stage.good(0, "CLUSTER MEET 10.0.0.2 6379");
    stage.good(0, "CLUSTER ADDSLOTSRANGE 0 16383");
    stage.good(0, "DEBUG POPULATE 500 key 10");
    stage.until(10_000, "ok", |stage| {
        stage.field(0, "cluster_state") == "ok"
    });
    let process = stage.nodes[1];
    stage.net.switches(stage.now, process).unwrap().sync_endless = true;
    let primary = stage.id(0);
    stage.good(1, &format!("CLUSTER REPLICATE {primary}"));
    stage.run(1500);
    stage.good(1, "CLUSTER FAILOVER");
    stage.until(2000, "promoted", |stage| stage.owns(1));
    stage.run(10_000);
    assert!(stage.truth(0).keys.is_empty() && stage.truth(1).keys.is_empty());
}

/// Facts 2.4, trap 4: forgetting a failed primary whose replica lives orphans its slots until a TAKEOVER.
#[test]
fn forgetting_a_failed_primary_too_early_orphans_its_slots() {
    let mut stage = Stage::cluster(3, 1);
    let dead = stage.id(0);
    stage.signal(0, Signal::Kill);
    stage.run(2000);
    stage.good(1, &format!("CLUSTER FORGET {dead}"));
    stage.run(20_000);
    assert_eq!(stage.field(1, "cluster_state"), "fail");
    assert_eq!(stage.field(1, "cluster_slots_assigned"), "10923");
    assert!(!stage.owns(3));
    stage.good(3, "CLUSTER FAILOVER TAKEOVER");
    stage.until(10_000, "ok", |stage| {
        (1..6).all(|index| stage.field(index, "cluster_state") == "ok")
    });
}

/// Fault F05: the minority's primary stops by itself, and follows when it is back.
#[test]
fn a_minority_stops_taking_writes() {
    let mut stage = Stage::cluster(3, 1);
    for other in 1..6 {
        stage.part(0, other);
    }
    let took = stage.until(9000, "stops", |stage| {
        stage.field(0, "cluster_state") == "fail"
    });
    assert!((4500..7700).contains(&took), "{took}");
    stage.until(4000, "replaced", |stage| stage.owns(3));
    stage.run(20_000);
    stage.net.heal_all(stage.now);
    stage.until(10_000, "it follows", |stage| {
        !stage.owns(0) && stage.is_linked(0)
    });
    stage.until(12_000, "all well", |stage| {
        (0..6).all(|index| {
            stage.field(index, "cluster_state") == "ok"
                && stage.field(index, "cluster_nodes_fail") == "0"
        })
    });
}

/// Fault F03 for a replica, and F22: nobody else changes.
#[test]
fn a_lost_replica_is_called_failed_and_clears_when_back() {
    let mut stage = Stage::cluster(3, 1);
    stage.signal(5, Signal::Stop);
    stage.until(9000, "failed", |stage| {
        stage.field(0, "cluster_nodes_fail") == "1"
    });
    assert_eq!(stage.field(0, "cluster_state"), "ok");
    stage.signal(5, Signal::Continue);
    stage.until(6000, "back", |stage| {
        (0..6).all(|index| stage.field(index, "cluster_nodes_fail") == "0")
    });
}

/// Facts 3.3: the rank decides between two replicas, and the other follows the winner.
#[test]
fn the_other_replica_follows_the_winner() {
    let mut stage = Stage::cluster(3, 2);
    stage.fill(&[0, 1, 2], 60);
    stage.run(1500);
    let keys = stage.truth(0).keys;
    stage.signal(0, Signal::Kill);
    stage.until(9000, "promoted", |stage| stage.owns(3) || stage.owns(6));
    let (winner, other) = if stage.owns(3) { (3, 6) } else { (6, 3) };
    stage.until(3000, "follows", |stage| {
        let id = stage.id(winner);
        stage.truth(other).replicates == Some(id) && stage.is_linked(other)
    });
    stage.run(1000);
    assert_eq!(stage.truth(winner).keys, keys);
    assert_eq!(stage.truth(other).keys, keys);
}

/// Facts 3.4 and claims 7: SIGTERM with `failover` promotes a replica that has everything.
#[test]
fn a_shutdown_may_hand_over() {
    let conf = format!("{CONF}shutdown-on-sigterm failover\n");
    let mut stage = Stage::cluster(3, 1);
    stage.good(0, "CONFIG SET shutdown-on-sigterm failover");
    stage.run(2000);
    stage.signal(0, Signal::Term);
    let took = stage.until(3000, "promoted", |stage| stage.owns(3));
    assert!(took < 1500, "{took}");
    let exit = stage.net.exit(stage.nodes[0]).unwrap();
    assert_eq!(exit.code, 0);
    assert!(
        exit.log
            .iter()
            .any(|line| line.starts_with("Perform auto failover to replica"))
    );
    // One shard: nobody is promoted.
    let mut stage = Stage::cluster(1, 1);
    stage.good(0, "CONFIG SET shutdown-on-sigterm failover");
    stage.run(2000);
    stage.signal(0, Signal::Term);
    stage.run(10_000);
    assert!(stage.net.exit(stage.nodes[0]).is_some());
    assert!(!stage.owns(1));
    assert!(conf.contains("failover"));
}

/// Facts 3.4: a hung replica delays the end by `shutdown-timeout`.
#[test]
fn a_shutdown_waits_for_a_hung_replica() {
    let mut stage = Stage::cluster(3, 1);
    stage.signal(3, Signal::Stop);
    stage.fill(&[0, 1, 2], 60);
    stage.signal(0, Signal::Term);
    stage.run(9900);
    assert!(stage.net.exit(stage.nodes[0]).is_none());
    stage.run(400);
    assert_eq!(stage.net.exit(stage.nodes[0]).unwrap().code, 0);
}

/// Claims 8: without the age check a replica that never synced is elected, and all is lost.
#[test]
fn a_validity_factor_of_zero_elects_the_empty() {
    let mut stage = Stage::cluster(3, 0);
    stage.fill(&[0, 1, 2], 30);
    let replica = stage.start(CONF);
    stage.good(replica, "CONFIG SET cluster-replica-validity-factor 0");
    let process = stage.nodes[replica];
    stage.net.switches(stage.now, process).unwrap().sync_endless = true;
    let primary = stage.id(0);
    stage.good(0, "CLUSTER MEET 10.0.0.4 6379");
    stage.all_meet();
    stage.good(replica, &format!("CLUSTER REPLICATE {primary}"));
    stage.run(2000);
    stage.signal(0, Signal::Stop);
    let took = stage.until(12_000, "promoted", |stage| stage.owns(replica));
    assert!((6000..10_000).contains(&took), "{took}");
    stage.signal(0, Signal::Continue);
    stage.net.switches(stage.now, process).unwrap().sync_endless = false;
    stage.until(20_000, "it follows", |stage| {
        !stage.owns(0) && stage.is_linked(0)
    });
    assert!(stage.truth(0).keys.is_empty() && stage.truth(replica).keys.is_empty());
}

/// Facts 2.7: with replica migration a primary that lost its only replica is given another's.
#[test]
fn an_orphaned_primary_is_given_a_replica() {
    for allowed in [false, true] {
        let mut stage = Stage::cluster(3, 1);
        let extra = stage.start(CONF);
        stage.good(0, "CLUSTER MEET 10.0.0.7 6379");
        stage.all_meet();
        let primary = stage.id(0);
        stage.good(extra, &format!("CLUSTER REPLICATE {primary}"));
        stage.until(3000, "linked", |stage| stage.is_linked(extra));
        let word = if allowed { "yes" } else { "no" };
        for index in 0..=extra {
            stage.good(
                index,
                &format!("CONFIG SET cluster-allow-replica-migration {word}"),
            );
        }
        stage.signal(5, Signal::Kill);
        stage.run(25_000);
        let orphan = Some(stage.id(2));
        let helped = [3, extra]
            .into_iter()
            .any(|index| stage.truth(index).replicates == orphan);
        assert_eq!(helped, allowed);
    }
}

/// Facts 3.3: after one TAKEOVER restored the quorum, the other shard's replica promotes itself.
#[test]
fn a_takeover_frees_the_next_election() {
    let mut stage = Stage::cluster(3, 1);
    stage.signal(0, Signal::Kill);
    stage.signal(1, Signal::Kill);
    stage.run(20_000);
    assert!(!stage.owns(3) && !stage.owns(4));
    stage.good(3, "CLUSTER FAILOVER TAKEOVER");
    let took = stage.until(10_000, "promoted", |stage| stage.owns(4));
    assert!(took < 6000, "{took}");
    stage.until(8000, "ok", |stage| {
        (2..6).all(|index| stage.field(index, "cluster_state") == "ok")
    });
}
