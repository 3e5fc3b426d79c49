//! Cut paths, shifted clocks, hung kernels.

use super::super::Answer;
use super::super::Dial;
use super::super::Net;
use super::super::Path;
use super::super::Peer;
use super::super::Port;
use super::super::Signal;
use super::super::Told;
use super::super::Value;
use super::stage::Stage;

fn operator_to(stage: &Stage, index: usize) -> Path {
    Path {
        from: Peer::Operator,
        to: Peer::Pod(stage.ip(index)),
        port: Port::Client,
    }
}

#[test]
fn a_cut_operator_hears_nothing_and_catches_up() {
    let mut stage = Stage::cluster(1, 0);
    let connection = stage.connection(0);
    let there = operator_to(&stage, 0);
    stage.net.cut(stage.now, there);
    let ip = stage.ip(0);
    let dial = stage.net.connect(stage.now, Peer::Operator, ip, 6379);
    assert_eq!(dial, Dial::Silent);
    assert!(matches!(
        stage.net.connect(stage.now, Peer::Client(1), ip, 6379),
        Dial::Open(_)
    ));
    assert_eq!(stage.send(0, "SET foo 1"), Answer::Later);
    stage.run(1000);
    assert!(stage.truth(0).keys.is_empty());
    stage.net.heal(stage.now, there);
    stage.run(300);
    assert_eq!(stage.answers(), [(connection, Told::Reply(Value::ok()))]);
    let back = Path {
        from: there.to,
        to: there.from,
        port: Port::Client,
    };
    stage.net.cut(stage.now, back);
    assert_eq!(stage.send(0, "SET foo 2"), Answer::Later);
    assert_eq!(stage.truth(0).keys.len(), 1);
    stage.net.heal_all(stage.now);
    assert_eq!(stage.answers(), [(connection, Told::Reply(Value::ok()))]);
}

/// Fault F06: with the bus cut one way only, both are suspected in the end, and nothing else is touched.
#[test]
fn a_one_way_cut_of_the_bus_heals() {
    let mut stage = Stage::cluster(3, 1);
    let (from, to) = (Peer::Pod(stage.ip(0)), Peer::Pod(stage.ip(1)));
    stage.net.cut(
        stage.now,
        Path {
            from,
            to,
            port: Port::Bus,
        },
    );
    stage.run(20_000);
    let nodes = stage.text(1, "CLUSTER NODES");
    assert!(nodes.contains("fail?"), "{nodes}");
    assert_eq!(stage.field(2, "cluster_nodes_fail"), "0");
    stage.net.heal_all(stage.now);
    stage.until(12_000, "healed", |stage| {
        (0..6).all(|index| !stage.text(index, "CLUSTER NODES").contains("fail"))
    });
    assert!(stage.owns(0) && stage.owns(1) && stage.owns(2));
}

/// Fault F13: a clock that jumps makes its process suspect everybody for a moment, and nobody fails over.
#[test]
fn a_jumping_clock_causes_no_failover() {
    let mut stage = Stage::cluster(3, 1);
    let process = stage.nodes[0];
    stage.net.switches(stage.now, process).unwrap().clock_shift = 3_600_000;
    stage.run(10_000);
    stage.net.switches(stage.now, process).unwrap().clock_shift = -3_600_000;
    stage.run(20_000);
    assert!(stage.owns(0) && stage.owns(1) && stage.owns(2));
    assert_eq!(stage.field(1, "cluster_state"), "ok");
}

/// Fault F25 and facts 7: all restart with their files and the same addresses.
#[test]
fn all_restart_with_their_files() {
    let mut stage = Stage::cluster(3, 1);
    let confs: Vec<_> = stage
        .nodes
        .iter()
        .map(|process| stage.net.nodes_conf(*process))
        .collect();
    for index in 0..6 {
        stage.signal(index, Signal::Kill);
    }
    stage.run(1000);
    for (index, conf) in confs.into_iter().enumerate() {
        let ip = stage.ip(index);
        stage.start_at(ip, super::stage::CONF, conf);
    }
    stage.until(20_000, "ok", |stage| {
        (6..12).all(|index| stage.field(index, "cluster_state") == "ok")
            && (9..12).all(|index| stage.is_linked(index))
    });
    for index in 0..6 {
        assert_eq!(stage.id(index), stage.id(index + 6));
    }
}

/// Facts 7: a new address with the old file: the others follow, the replica links again.
#[test]
fn a_node_that_moves_is_followed() {
    let mut stage = Stage::cluster(3, 1);
    let conf = stage.net.nodes_conf(stage.nodes[3]);
    let old = stage.ip(3);
    stage.signal(3, Signal::Kill);
    stage.net.withdraw(stage.now, old);
    stage.run(300);
    let new = "10.0.1.9".parse().unwrap();
    let moved = stage.start_at(new, super::stage::CONF, conf);
    stage.until(5000, "followed", |stage| {
        stage
            .text(0, "CLUSTER NODES")
            .contains("10.0.1.9:6379@16379 slave")
    });
    stage.until(15_000, "linked", |stage| stage.is_linked(moved));
}

/// The operator's connections live in futures that threads may pass on.
#[test]
fn a_world_may_be_sent() {
    fn may_be_sent<T: Send>(_: &T) {}
    may_be_sent(&Net::new(1));
}

/// Facts 5.4: with save points and a full disk a replica aborts at the next write, a primary refuses.
#[test]
fn a_full_disk_kills_a_replica() {
    let mut stage = Stage::cluster(1, 1);
    for index in [0, 1] {
        let args = ["CONFIG", "SET", "save", "900 1"].map(|word| word.as_bytes().to_vec());
        let connection = stage.connection(index);
        stage.net.command(stage.now, connection, &args);
    }
    let process = stage.nodes[1];
    stage.net.switches(stage.now, process).unwrap().disk_full = true;
    stage.good(0, "SET a 1");
    stage.run(10);
    assert_eq!(stage.net.exit(process).unwrap().code, 134);
}

/// One seed is one world.
#[test]
fn a_seed_is_a_world() {
    let tell = || {
        let mut stage = Stage::cluster(3, 1);
        stage.signal(0, Signal::Kill);
        stage.run(20_000);
        stage.views()
    };
    assert_eq!(tell(), tell());
}

#[test]
fn processes_that_never_answer_are_waited_for_by_nobody() {
    let mut stage = Stage::cluster(3, 1);
    assert!(stage.net.next_event().is_some());
    stage.net.set_delay(stage.now, 40);
    stage.run(20_000);
    assert_eq!(stage.field(0, "cluster_state"), "ok");
    let connection = stage.connection(0);
    stage.net.hang_up(stage.now, connection);
    let args = [b"PING".to_vec()];
    assert_eq!(
        stage.net.command(stage.now, connection, &args),
        Answer::Closed
    );
}
