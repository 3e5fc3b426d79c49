//! Meeting, claiming, forgetting: the table and its texts.

use super::super::Dial;
use super::super::Peer;
use super::super::Value;
use super::stage::CONF;
use super::stage::Stage;

#[test]
fn a_process_alone_says_so() {
    let mut stage = Stage::strangers(1);
    let id = stage.id(0);
    assert_eq!(stage.text(0, "CLUSTER MYID"), id);
    assert_eq!(
        stage.text(0, "CLUSTER NODES"),
        format!("{id} :6379@16379 myself,master - 0 0 0 connected\n")
    );
    let info = stage.text(0, "CLUSTER INFO");
    let expected = "cluster_state:fail\r\ncluster_slots_assigned:0\r\ncluster_slots_ok:0\r\n\
        cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_nodes_pfail:0\r\n\
        cluster_nodes_fail:0\r\ncluster_voting_nodes_pfail:0\r\ncluster_voting_nodes_fail:0\r\n\
        cluster_known_nodes:1\r\ncluster_size:0\r\ncluster_current_epoch:0\r\ncluster_my_epoch:0\r\n\
        cluster_stats_messages_sent:0\r\ncluster_stats_messages_received:0\r\n\
        cluster_stats_bytes_sent:0\r\ncluster_stats_bytes_received:0\r\n\
        cluster_stats_pubsub_bytes_sent:0\r\ncluster_stats_pubsub_bytes_received:0\r\n\
        cluster_stats_module_bytes_sent:0\r\ncluster_stats_module_bytes_received:0\r\n\
        total_cluster_links_buffer_limit_exceeded:0\r\n";
    assert_eq!(info, expected);
    let replication = stage.text(0, "INFO replication");
    assert!(replication.starts_with("# Replication\r\nrole:master\r\nconnected_slaves:0\r\n"));
    assert!(replication.contains("master_repl_offset:0\r\nsecond_repl_offset:-1\r\n"));
}

/// Facts 2.1: until answered a row with a random id, which vanishes after the node timeout.
#[test]
fn a_meet_that_nobody_answers_leaves_no_trace() {
    let mut stage = Stage::strangers(1);
    stage.run(10);
    stage.good(0, "CLUSTER MEET 10.0.0.9 6379");
    let nodes = stage.text(0, "CLUSTER NODES");
    let row = nodes
        .lines()
        .find(|line| line.contains("handshake"))
        .unwrap();
    assert!(row.ends_with(" 10.0.0.9:6379@16379 handshake - 0 0 0 disconnected"));
    assert_eq!(stage.field(0, "cluster_known_nodes"), "2");
    let gone = stage.until(6000, "gone", |stage| {
        stage.field(0, "cluster_known_nodes") == "1"
    });
    assert!((5000..5300).contains(&gone), "{gone}");
    assert_eq!(
        stage.ask(0, "CLUSTER MEET localhost 6379"),
        Value::error("ERR Invalid node address specified: localhost:6379")
    );
}

/// Facts 2.1, 2.2: meeting through one seed meshes six nodes in about a second, slots spread by pings.
#[test]
fn a_cluster_forms() {
    let mut stage = Stage::cluster(3, 1);
    assert_eq!(stage.field(4, "cluster_size"), "3");
    assert_eq!(stage.field(4, "cluster_slots_ok"), "16384");
    let nodes = stage.text(3, "CLUSTER NODES");
    assert_eq!(nodes.lines().count(), 6);
    let (me, primary) = (stage.id(3), stage.id(0));
    assert!(nodes.contains(&format!(
        "{me} 10.0.0.4:6379@16379 myself,slave {primary} 0 0 "
    )));
    assert!(nodes.contains(&format!("{primary} 10.0.0.1:6379@16379 master - ")));
    assert!(nodes.contains(" connected 0-5460\n"));
    let shard = stage.text(0, "CLUSTER MYSHARDID");
    assert_eq!(stage.text(3, "CLUSTER MYSHARDID"), shard);
}

#[test]
fn slots_are_claimed_all_or_none() {
    let mut stage = Stage::strangers(1);
    for (words, error) in [
        (
            "ADDSLOTSRANGE 5 1",
            "start slot number 5 is greater than end slot number 1",
        ),
        ("ADDSLOTSRANGE 0 16384", "Invalid or out of range slot"),
        ("ADDSLOTSRANGE 0 5 5 7", "Slot 5 specified multiple times"),
        (
            "ADDSLOTSRANGE 0 5 7",
            "wrong number of arguments for 'cluster|addslotsrange' command",
        ),
        ("DELSLOTSRANGE 100 100", "Slot 100 is already unassigned"),
    ] {
        let said = stage.ask(0, &format!("CLUSTER {words}"));
        assert_eq!(said, Value::Error(format!("ERR {error}")), "{words}");
    }
    stage.good(0, "CLUSTER ADDSLOTSRANGE 0 5460");
    assert_eq!(
        stage.ask(0, "CLUSTER ADDSLOTSRANGE 5460 5461"),
        Value::error("ERR Slot 5460 is already busy")
    );
    stage.good(0, "CLUSTER ADDSLOTS 6000 6002");
    let nodes = stage.text(0, "CLUSTER NODES");
    assert!(nodes.ends_with(" connected 0-5460 6000 6002\n"), "{nodes}");
    assert_eq!(
        stage.ask(0, "CLUSTER NOSUCH"),
        Value::error("ERR unknown subcommand 'NOSUCH'. Try CLUSTER HELP.")
    );
}

/// Facts 2.4: one FORGET on one node removes a dead node everywhere in about half a second.
#[test]
fn a_dead_node_is_forgotten_by_all() {
    let mut stage = Stage::cluster(3, 1);
    let dead = stage.id(5);
    stage.signal(5, super::super::Signal::Kill);
    stage.run(1000);
    stage.good(0, &format!("CLUSTER FORGET {dead}"));
    let took = stage.until(3000, "forgotten", |stage| {
        (0..5).all(|index| index == 2 || !stage.text(index, "CLUSTER NODES").contains(&dead))
    });
    assert!(took < 2500, "{took}");
    assert_eq!(stage.ask(0, &format!("CLUSTER FORGET {dead}")), Value::ok());
    let nobody = "0123456789012345678901234567890123456789";
    assert_eq!(
        stage.ask(0, &format!("CLUSTER FORGET {nobody}")),
        Value::Error(format!("ERR Unknown node {nobody}"))
    );
    let me = stage.id(0);
    assert_eq!(
        stage.ask(0, &format!("CLUSTER FORGET {me}")),
        Value::error("ERR I tried hard but I can't forget myself...")
    );
    assert_eq!(
        stage.ask(3, &format!("CLUSTER FORGET {me}")),
        Value::error("ERR Can't forget my master!")
    );
}

/// Facts 2.4, trap 5: a forgotten node that still runs comes back again and again.
#[test]
fn a_live_forgotten_node_comes_back() {
    let mut stage = Stage::cluster(3, 1);
    let id = stage.id(5);
    stage.good(0, &format!("CLUSTER FORGET {id}"));
    stage.until(3000, "forgotten", |stage| {
        !stage.text(1, "CLUSTER NODES").contains(&id)
    });
    let took = stage.until(12_000, "back", |stage| {
        stage.text(0, "CLUSTER NODES").contains(&id)
    });
    assert!(took > 2000, "{took}");
    stage.run(70_000);
    stage.until(12_000, "it stays", |stage| {
        (0..5).all(|index| stage.text(index, "CLUSTER NODES").contains(&id))
    });
}

/// Facts 2.5: HARD gives a new id; the peers keep the old one without an address.
#[test]
fn a_reset_node_leaves_a_ghost() {
    let mut stage = Stage::cluster(3, 1);
    let old = stage.id(5);
    stage.good(5, "CLUSTER RESET HARD");
    assert_ne!(stage.id(5), old);
    assert_eq!(stage.field(5, "cluster_known_nodes"), "1");
    stage.until(10_000, "a ghost", |stage| {
        let nodes = stage.text(0, "CLUSTER NODES");
        let line = nodes.lines().find(|line| line.starts_with(&old)).unwrap();
        line.contains(" :0@0 slave,fail,noaddr ")
    });
    assert_eq!(
        stage.ask(0, "CLUSTER RESET"),
        Value::ok(),
        "a primary without keys may be reset"
    );
}

/// Facts 7: an address that passed to another cluster's process.
#[test]
fn a_stranger_at_a_known_address_is_not_taken_in() {
    let mut stage = Stage::cluster(3, 1);
    let dead = stage.id(5);
    stage.signal(5, super::super::Signal::Kill);
    let ip = stage.ip(5);
    stage.net.withdraw(stage.now, ip);
    let stranger = stage.start_at(ip, CONF, None);
    stage.until(3000, "a ghost", |stage| {
        let nodes = stage.text(0, "CLUSTER NODES");
        nodes
            .lines()
            .any(|line| line.starts_with(&dead) && line.contains(",fail,noaddr "))
    });
    stage.run(20_000);
    assert_eq!(stage.field(stranger, "cluster_known_nodes"), "1");
    let new = stage.id(stranger);
    assert!(!stage.text(0, "CLUSTER NODES").contains(&new));
}

/// Facts 7: MEET is believed, and the side with the lower epochs loses its keys.
#[test]
fn a_meet_of_a_foreign_process_merges_two_clusters() {
    let mut stage = Stage::cluster(3, 1);
    stage.fill(&[0, 1, 2], 30);
    let one = stage.start(CONF);
    stage.good(one, "CLUSTER ADDSLOTSRANGE 0 16383");
    for _ in 0..20 {
        stage.ask(one, "CLUSTER BUMPEPOCH");
    }
    stage.until(10_000, "ok", |stage| {
        stage.field(one, "cluster_state") == "ok"
    });
    stage.good(one, "SET foreign 1");
    let ip = stage.ip(one);
    stage.good(0, &format!("CLUSTER MEET {ip} 6379"));
    stage.run(30_000);
    assert_eq!(stage.field(one, "cluster_known_nodes"), "7");
    let all: u32 = (0..=one)
        .map(|index| stage.truth(index).keys.values().sum::<u32>())
        .sum();
    assert!(all < 61, "somebody's keys are gone: {all}");
}

/// Facts 2.3: a claim with a lower epoch than the dead owner's is undone, and the newcomer follows the dead.
#[test]
fn a_fresh_owner_needs_a_greater_epoch() {
    let mut stage = Stage::cluster(3, 0);
    let dead = stage.id(2);
    stage.signal(2, super::super::Signal::Kill);
    let newcomer = stage.start(CONF);
    let ip = stage.ip(newcomer);
    stage.until(10_000, "failed", |stage| {
        stage.field(0, "cluster_nodes_fail") == "1" && stage.field(1, "cluster_nodes_fail") == "1"
    });
    stage.good(0, &format!("CLUSTER FORGET {dead}"));
    stage.good(0, &format!("CLUSTER MEET {ip} 6379"));
    stage.until(5000, "met", |stage| {
        stage.field(newcomer, "cluster_known_nodes") == "3"
    });
    stage.good(newcomer, "CLUSTER ADDSLOTSRANGE 10922 16383");
    stage.until(15_000, "healed", |stage| {
        [0, 1, newcomer]
            .into_iter()
            .all(|index| stage.field(index, "cluster_state") == "ok")
    });
}

/// Facts 2.1 and claims 10: six meet through one in a second; a claim spreads in seconds, or at once where the
/// owner meets everybody.
#[test]
fn gossip_is_as_fast_as_it_is_slow() {
    let mut stage = Stage::strangers(6);
    stage.run(500);
    for index in 1..6 {
        let ip = stage.ip(index);
        stage.good(0, &format!("CLUSTER MEET {ip} 6379"));
    }
    let start = stage.now;
    stage.all_meet();
    let took = stage.now - start;
    assert!((100..2500).contains(&took), "{took}");
    let all_know = |stage: &mut Stage, slots: &str| {
        (0..6).all(|index| stage.field(index, "cluster_slots_assigned") == slots)
    };
    stage.good(0, "CLUSTER ADDSLOTSRANGE 0 99");
    let slow = stage.until(5000, "spread", |stage| all_know(stage, "100"));
    assert!((300..4000).contains(&slow), "{slow}");
    stage.good(0, "CLUSTER ADDSLOTSRANGE 100 199");
    for index in 1..6 {
        let ip = stage.ip(index);
        stage.good(0, &format!("CLUSTER MEET {ip} 6379"));
    }
    let quick = stage.until(5000, "spread", |stage| all_know(stage, "200"));
    assert!(quick <= 110, "{quick}");
    stage.run(10_000);
    stage.all_meet();
}

#[test]
fn nobody_answers_where_nobody_is() {
    let mut stage = Stage::strangers(1);
    let silent = stage
        .net
        .connect(0, Peer::Operator, "10.9.9.9".parse().unwrap(), 6379);
    assert_eq!(silent, Dial::Silent);
    let refused = stage
        .net
        .connect(0, Peer::Operator, "10.0.0.1".parse().unwrap(), 7000);
    assert_eq!(refused, Dial::Refused);
}
