//! S2, S3, S8, S9, S13, S16. Never more truth than a case needs.

use super::super::evidence::Actor;
use super::super::evidence::Command;
use super::super::evidence::Cut;
use super::super::evidence::Export;
use super::super::evidence::Life;
use super::super::evidence::Name;
use super::super::evidence::Outcome;
use super::super::evidence::Process;
use super::super::evidence::Role;
use super::super::evidence::Row;
use super::super::evidence::What;
use super::super::slots::Slots;
use super::Run;
use super::broken;
use super::holds;
use serde_json::json;

/// Everybody holds `dead` for failed; what it owned is as it was.
fn dies(run: &mut Run, dead: &str) {
    run.process(dead).life = Life::Ended;
    run.breaks("F02", &[dead]);
    run.wait(20_000);
    holds(run.look());
}

/// In every view but its own, what one owned is another's.
fn superseded(run: &mut Run, old: &str, new: &str, slots: &Slots) {
    for node in ["a1", "b0", "b1", "c0", "c1"] {
        run.row(node, old).slots = Slots::default();
        run.row(node, new).slots = slots.clone();
    }
    run.process(new).role = Role::Primary;
}

fn cut_off(run: &mut Run, node: &str) {
    let ip = run.process(node).ip.clone();
    let others: Vec<String> = run.truth.processes.iter().map(|it| it.ip.clone()).collect();
    for other in others.into_iter().filter(|other| *other != ip) {
        for (from, to) in [(&ip, &other), (&other, &ip)] {
            run.truth.cuts.push(Cut {
                from: from.clone(),
                to: to.clone(),
                client: true,
                bus: true,
            });
        }
    }
}

#[test]
fn s2() {
    let mut run = Run::new(3, 1);
    holds(run.look());
    broken("S2", run.wait(10).tells("b0", "CLUSTER FORGET id-a0"));

    let mut run = Run::new(3, 1);
    let slots = run.process("a0").own();
    superseded(&mut run, "a0", "a1", &slots);
    run.process("a0").accepts = Slots::default();
    // It can be heard, and will learn that it is a replica now.
    broken("S2", run.tells("b0", "CLUSTER FORGET id-a0"));
    cut_off(&mut run, "a0");
    run.wait(1000);
    holds(run.tells("b0", "CLUSTER FORGET id-a0"));
}

#[test]
fn s3() {
    let mut run = Run::new(3, 1);
    dies(&mut run, "a0");
    broken("S3", run.tells("b0", "CLUSTER FORGET id-a0"));

    let mut run = Run::new(3, 1);
    dies(&mut run, "a0");
    let slots = run.row("b0", "a0").slots.clone();
    superseded(&mut run, "a0", "a1", &slots);
    holds(run.tells("b0", "CLUSTER FORGET id-a0"));

    let mut run = Run::new(3, 1);
    dies(&mut run, "a0");
    // What never synced cannot take over: there is nothing to wait for.
    run.process("a1").role = Role::Replica {
        of: "id-a0".to_owned(),
        linked: false,
        synced: false,
    };
    holds(run.tells("b0", "CLUSTER FORGET id-a0"));
}

#[test]
fn s8_quorum() {
    let mut run = Run::new(3, 1);
    dies(&mut run, "a0");
    broken("S8", run.tells("a1", "CLUSTER FAILOVER TAKEOVER"));

    let mut run = Run::new(3, 1);
    dies(&mut run, "a0");
    dies(&mut run, "b0");
    holds(run.tells("a1", "CLUSTER FAILOVER TAKEOVER"));

    // Two of three run, and neither hears the other nor the replica.
    let mut run = Run::new(3, 1);
    dies(&mut run, "a0");
    for node in ["b0", "c0"] {
        cut_off(&mut run, node);
    }
    holds(run.tells("a1", "CLUSTER FAILOVER TAKEOVER"));
    run.truth.cuts.clear();
    run.wait(1000);
    broken("S8", run.tells("a1", "CLUSTER FAILOVER TAKEOVER"));
}

/// It was attached before it heard what its primary owns.
#[test]
fn s8_quorum_of_a_replica_that_does_not_know_what_its_primary_owns() {
    // One of two is no majority.
    let mut run = Run::new(2, 1);
    dies(&mut run, "a0");
    run.row("a1", "a0").slots = Slots::default();
    holds(run.tells("a1", "CLUSTER FAILOVER TAKEOVER"));

    // Two of three are.
    let mut run = Run::new(3, 1);
    dies(&mut run, "a0");
    run.row("a1", "a0").slots = Slots::default();
    broken("S8", run.tells("a1", "CLUSTER FAILOVER TAKEOVER"));

    // Nobody knows of more slots: its own view stays the measure.
    let mut run = Run::new(2, 1);
    dies(&mut run, "a0");
    for node in ["a1", "b0", "b1"] {
        run.row(node, "a0").slots = Slots::default();
    }
    broken("S8", run.tells("a1", "CLUSTER FAILOVER TAKEOVER"));
}

#[test]
fn s8_quorum_that_came_too_late_to_be_seen() {
    let mut run = Run::new(3, 1);
    dies(&mut run, "a0");
    dies(&mut run, "b0");
    run.tick("c");
    let slots = run.process("b0").accepts.clone();
    superseded(&mut run, "b0", "b1", &slots);
    holds(run.wait(100).look());
    holds(run.wait(100).tells("a1", "CLUSTER FAILOVER TAKEOVER"));

    run.wait(100).tick("c");
    broken("S8", run.tells("a1", "CLUSTER FAILOVER TAKEOVER"));
}

#[test]
fn s8_offset() {
    let two_dead = |run: &mut Run| {
        dies(run, "a0");
        dies(run, "b0");
    };
    let mut run = Run::new(3, 2);
    two_dead(&mut run);
    run.process("a2").offset = 1001;
    broken("S8", run.tells("a1", "CLUSTER FAILOVER TAKEOVER"));

    let mut run = Run::new(3, 2);
    two_dead(&mut run);
    run.process("a2").offset = 999;
    holds(run.tells("a1", "CLUSTER FAILOVER TAKEOVER"));
}

#[test]
fn s8_twice() {
    let mut run = Run::new(1, 2);
    dies(&mut run, "a0");
    holds(run.tells("a1", "CLUSTER FAILOVER TAKEOVER"));
    holds(run.wait(500).tells("a1", "CLUSTER FAILOVER TAKEOVER"));
    run.checker.rules().waived.insert("S6");
    broken("S8", run.wait(500).tells("a2", "CLUSTER FAILOVER TAKEOVER"));

    let mut run = Run::new(1, 2);
    run.checker.rules().waived.insert("S6");
    dies(&mut run, "a0");
    holds(run.tells("a1", "CLUSTER FAILOVER TAKEOVER"));
    dies(&mut run, "a1");
    holds(run.tells("a2", "CLUSTER FAILOVER TAKEOVER"));
}

#[test]
fn s9() {
    holds(Run::new(3, 1).tells("a1", "CLUSTER FAILOVER"));
    let replica = |linked, synced| Role::Replica {
        of: "id-a0".to_owned(),
        linked,
        synced,
    };
    for role in [replica(false, true), replica(true, false)] {
        let mut run = Run::new(3, 1);
        run.process("a1").role = role;
        broken("S9", run.tells("a1", "CLUSTER FAILOVER"));
    }
    let mut run = Run::new(3, 1);
    run.process("a0").offset = 1_000_000;
    broken("S9", run.tells("a1", "CLUSTER FAILOVER"));

    let export = |target: &str| Export {
        target: target.to_owned(),
        slots: Slots::of([(5461, 5461)]),
    };
    let mut run = Run::new(3, 1);
    run.process("b0").exports = vec![export("id-a0")];
    broken("S9", run.tells("a1", "CLUSTER FAILOVER"));
    let mut run = Run::new(3, 1);
    run.process("b0").exports = vec![export("id-c0")];
    holds(run.tells("a1", "CLUSTER FAILOVER"));
}

#[test]
fn s13() {
    let unowned = |run: &mut Run| {
        for node in ["a0", "a1", "b0", "b1"] {
            run.row(node, "a0").slots = Slots::of([(0, 99)]);
        }
    };
    let mut run = Run::new(2, 1);
    unowned(&mut run);
    holds(run.tells("a0", "CLUSTER ADDSLOTSRANGE 100 8191"));
    let mut run = Run::new(2, 1);
    unowned(&mut run);
    broken("S13", run.tells("a0", "CLUSTER ADDSLOTSRANGE 99 8191"));
    // All but one know of the first hundred.
    let mut run = Run::new(2, 1);
    unowned(&mut run);
    run.row("b1", "a0").slots = Slots::default();
    broken("S13", run.tells("a0", "CLUSTER ADDSLOTSRANGE 100 8191"));
    // A reset node takes back what another still takes for its own.
    let mut run = Run::new(2, 1);
    run.row("a0", "a0").slots = Slots::default();
    holds(run.tells("a0", "CLUSTER ADDSLOTSRANGE 0 8191"));
    // That one is on its way out.
    let mut run = Run::new(2, 1);
    unowned(&mut run);
    run.row("b1", "a0").slots = Slots::default();
    run.edit(
        "ValkeyNode",
        "b1",
        "/metadata/deletionTimestamp",
        json!("now"),
    );
    holds(run.tells("a0", "CLUSTER ADDSLOTSRANGE 100 8191"));
}

/// A process of a new node, whom nobody knows yet.
fn newcomer(run: &mut Run) {
    run.add_node("c", "x", 0);
    let old = run.process("a0").clone();
    run.truth.processes.push(std::sync::Arc::new(Process {
        pod: "pod-x".to_owned(),
        ip: "10.0.0.99".to_owned(),
        id: "id-x".to_owned(),
        accepts: Slots::default(),
        keyed: Slots::default(),
        table: vec![Row {
            id: "id-x".to_owned(),
            ..Row::default()
        }],
        ..old
    }));
}

#[test]
fn s16_stamp() {
    let mut run = Run::new(1, 0);
    newcomer(&mut run);
    holds(run.look());
    run.tick("c");
    holds(run.wait(10).tells("a0", "CLUSTER MEET 10.0.0.99 6379"));

    let mut run = Run::new(1, 0);
    newcomer(&mut run);
    run.edit("ValkeyNode", "x", "/metadata/annotations", json!({}));
    holds(run.look());
    run.tick("c");
    broken(
        "S16",
        run.wait(10).tells("a0", "CLUSTER MEET 10.0.0.99 6379"),
    );
}

#[test]
fn s16_address_reused() {
    let other = |run: &mut Run| {
        run.add_cluster("d", 1, 0, "d");
        let ip = run.process("da0").ip.clone();
        format!("CLUSTER MEET {ip} 6379")
    };
    let mut run = Run::new(1, 0);
    let meet = other(&mut run);
    holds(run.look());
    run.wait(10).tick("c");
    broken("S16", run.wait(10).tells("a0", &meet));

    // The address changed hands after the tick had looked at it.
    let mut run = Run::new(1, 0);
    run.tick("c");
    run.wait(10);
    let meet = other(&mut run);
    holds(run.tells("a0", &meet));
}

#[test]
fn s16_tables() {
    let mut run = Run::new(1, 0);
    run.add_cluster("d", 1, 0, "d");
    holds(run.look());
    run.process("a0").table.push(Row {
        id: "id-da0".to_owned(),
        handshake: true,
        ..Row::default()
    });
    holds(run.look());
    run.row("a0", "da0").handshake = false;
    broken("S16", run.look());

    // Of a newcomer that is true only when one of its own knows it.
    let row = |id: &str| Row {
        id: id.to_owned(),
        ..Row::default()
    };
    let mut run = Run::new(1, 0);
    run.add_cluster("d", 1, 0, "d");
    newcomer(&mut run);
    run.process("x").table.push(row("id-da0"));
    run.process("da0").table.push(row("id-x"));
    holds(run.look());
    run.process("a0").table.push(row("id-x"));
    broken("S16", run.look());
}

#[test]
fn commands_of_a_person_are_his_own() {
    let mut run = Run::new(3, 1);
    holds(run.look());
    let command = Command {
        ip: "10.0.0.3".to_owned(),
        pod: Some("pod-b0".to_owned()),
        id: Some("id-b0".to_owned()),
        words: ["CLUSTER", "FORGET", "id-a0"].map(str::to_owned).to_vec(),
        outcome: Outcome::Done,
    };
    holds(run.step(Actor::User, What::Command(command)));
    assert_eq!(Name::new("ns", "c").to_string(), "ns/c");
}
