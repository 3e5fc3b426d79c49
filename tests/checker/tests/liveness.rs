//! L1 to L11. Never waits for real.

use serde_json::Value;
use serde_json::json;

use super::super::evidence::Actor;
use super::super::evidence::Fault;
use super::super::evidence::Goal;
use super::super::evidence::Hits;
use super::super::evidence::Name;
use super::super::evidence::Outcome;
use super::super::evidence::Role;
use super::super::evidence::Row;
use super::super::evidence::Verb;
use super::super::evidence::What;
use super::super::liveness::beside_a_stuck_one;
use super::super::slots::Slots;
use super::OPERATOR;
use super::Run;
use super::broken;
use super::holds;
use super::owned;
use super::write;

/// More than a 3x1 cluster's bound of 60 + 15 x 6 ticks.
const LONG: u64 = 151_000;

fn stable(run: &mut Run, goal: Goal) {
    holds(run.step(Actor::Machinery, What::Stable(goal)));
}

/// Whether a spoiled cluster is left so: in its bound, and beyond.
fn comes_too_late(rule: &str, goal: Goal, spoil: fn(&mut Run)) {
    let mut run = Run::new(3, 1);
    spoil(&mut run);
    stable(&mut run, goal);
    holds(run.wait(LONG - 2000).look());
    assert!(!run.checker.is_settled());
    broken(rule, run.checker.finish());
    broken(rule, run.wait(2000).look());
}

#[test]
fn a_declared_state_settles() {
    let mut run = Run::new(3, 1);
    stable(&mut run, Goal::Declared);
    assert!(run.checker.is_settled());
    holds(run.wait(LONG).look());
    holds(run.checker.finish());
}

#[test]
fn l1() {
    let spoils: [fn(&mut Run); 6] = [
        |run| run.edit("ValkeyCluster", "c", "/status/state", json!("Creating")),
        |run| run.edit("ValkeyNode", "a0", "/spec/lifecycle", json!("Joining")),
        |run| run.add_node("c", "x", 0),
        |run| run.remove("Service", "c"),
        |run| {
            run.edit(
                "ValkeyCluster",
                "c",
                "/spec/podAnnotations",
                json!({ "x": "1" }),
            );
        },
        |run| {
            let binding = json!([{ "username": "u", "passwordHashes": ["h"], "permissions": [] }]);
            run.edit("ValkeyCluster", "c", "/spec/acl", binding);
        },
    ];
    for spoil in spoils {
        comes_too_late("L1", Goal::Declared, spoil);
    }
}

#[test]
fn l1_kept() {
    let mut run = Run::new(3, 1);
    stable(&mut run, Goal::Declared);
    run.edit("ValkeyCluster", "c", "/status/state", json!("Creating"));
    broken("L1", run.wait(1000).look());
}

#[test]
fn l1_leaves_out_who_is_held_back() {
    let held: [fn(&mut Run); 3] = [
        |run| {
            let pointer = "/metadata/annotations/valkey.gomomento.com~1paused";
            run.edit("ValkeyCluster", "c", pointer, json!("true"));
        },
        |run| run.remove("ValkeyImage", "v9"),
        |run| {
            run.checker.rules().left_out.insert(Name::new("ns", "c"));
        },
    ];
    for hold in held {
        let mut run = Run::new(3, 1);
        hold(&mut run);
        run.remove("Service", "c");
        stable(&mut run, Goal::Declared);
        holds(run.wait(LONG).look());
        holds(run.checker.finish());
    }
}

#[test]
fn l2() {
    let spoils: [fn(&mut Run); 4] = [
        |run| run.process("b1").state_ok = false,
        |run| run.row("b1", "a0").slots = Slots::of([(0, 5)]),
        |run| {
            run.process("b1").table.push(Row {
                id: "ghost".to_owned(),
                ..Row::default()
            });
        },
        |run| run.row("b1", "a0").failed = true,
    ];
    for spoil in spoils {
        comes_too_late("L2", Goal::Declared, spoil);
    }
}

#[test]
fn l3() {
    comes_too_late("L3", Goal::Declared, |run| {
        run.process("b1").role = Role::Replica {
            of: "id-a0".to_owned(),
            linked: true,
            synced: true,
        };
    });
    comes_too_late("L3", Goal::Declared, |run| {
        run.process("b1").role = Role::Replica {
            of: "id-b0".to_owned(),
            linked: false,
            synced: true,
        };
    });
}

/// A cluster that waits for an image.
fn waiting() -> Run {
    let mut run = Run::new(3, 1);
    run.edit("ValkeyCluster", "c", "/status/state", json!("Creating"));
    run.truth.processes.clear();
    run.remove("ValkeyNode", "b1");
    run.remove("ValkeyImage", "v9");
    holds(run.look());
    run
}

#[test]
fn l4() {
    let mend = |run: &mut Run| {
        run.put_menu(
            "ValkeyImage",
            "v9",
            &json!({ "repository": "r", "tag": "t" }),
        );
        holds(run.wait(60_000).look());
        run.wait(1000);
    };
    let mut run = waiting();
    mend(&mut run);
    holds(run.look());
    broken("L4", run.wait(3000).look());

    // One that serves has more to do first.
    let mut run = Run::new(3, 1);
    run.edit("ValkeyCluster", "c", "/status/state", json!("Creating"));
    run.remove("ValkeyNode", "b1");
    run.remove("ValkeyImage", "v9");
    holds(run.look());
    mend(&mut run);
    holds(run.wait(3000).look());

    let mut run = waiting();
    mend(&mut run);
    let metadata = owned("ValkeyCluster", "uid-c", "c");
    let spec = json!({ "clusterName": "c", "shardIndex": 1, "lifecycle": "Joining",
        "valkeySettings": super::objects::settings() });
    let node = json!({ "metadata": metadata, "spec": spec });
    holds(run.creates(OPERATOR, "ValkeyNode", "x", &node));
    holds(run.wait(3000).look());
}

#[test]
fn l5() {
    let portrait = |run: &mut Run| {
        holds(run.look());
        run.checker.portrait(&Name::new("ns", "c"))
    };
    let wish = portrait(&mut Run::new(3, 1));
    // Another node of the shard is its primary: chance.
    let mut run = Run::new(3, 1);
    let slots = std::mem::take(&mut run.process("a0").accepts);
    run.process("a1").accepts = slots;
    run.process("a1").role = Role::Primary;
    run.process("a0").role = Role::Replica {
        of: "id-a1".to_owned(),
        linked: true,
        synced: true,
    };
    run.introduce();
    assert_eq!(portrait(&mut run), wish);
    let mut run = Run::new(3, 1);
    run.edit("ValkeyNode", "a1", "/spec/lifecycle", json!("Joining"));
    assert_ne!(portrait(&mut run), wish);
    let mut run = Run::new(3, 1);
    run.row("a0", "a0").slots = Slots::of([(0, 5)]);
    assert_ne!(portrait(&mut run), wish);
}

#[test]
fn l6() {
    comes_too_late("L6", Goal::PutRight, |run| {
        run.edit("ValkeyNode", "a0", "/spec/lifecycle", json!("Joining"));
    });
}

#[test]
fn l7() {
    let spoil = |run: &mut Run| run.edit("ValkeyCluster", "c", "/status/state", json!("Creating"));
    let mut run = Run::new(3, 1);
    spoil(&mut run);
    stable(&mut run, Goal::UnderFaults);
    // A fault in between changes nothing of what must come.
    run.wait(60_000).breaks("F02", &["b1"]);
    broken("L7", run.wait(LONG).look());
    let mut run = Run::new(3, 1);
    stable(&mut run, Goal::UnderFaults);
    spoil(&mut run);
    holds(run.wait(LONG).look());
}

#[test]
fn l8() {
    let lasts = |run: &mut Run, millis| {
        run.tick("c");
        let end = What::TickEnd(Name::new("ns", "c"));
        run.wait(millis).step(OPERATOR, end)
    };
    holds(lasts(&mut Run::new(3, 1), 5000));
    broken("L8", lasts(&mut Run::new(3, 1), 5001));
    // The API server was out of order.
    let mut run = Run::new(3, 1);
    let (id, hits) = ("F12".to_owned(), Hits::Operator);
    holds(run.step(Actor::Saboteur, What::Fault(Fault { id, hits })));
    holds(lasts(&mut run, 9000));
}

#[test]
fn l9() {
    holds(beside_a_stuck_one(10_000, 12_000));
    broken("L9", beside_a_stuck_one(10_000, 12_001));
    let mut run = Run::new(3, 1);
    holds(run.look());
    assert_eq!(run.checker.active_at(&Name::new("ns", "c")), Some(100_000));
}

#[test]
fn l10() {
    let deleting = || {
        let mut run = Run::new(3, 1);
        run.edit(
            "ValkeyCluster",
            "c",
            "/metadata/deletionTimestamp",
            json!("now"),
        );
        holds(run.look());
        run
    };
    let mut run = deleting();
    holds(run.wait(20_000).look());
    broken("L10", run.wait(1).look());
    let mut run = deleting();
    run.remove("ValkeyCluster", "c");
    holds(run.wait(20_001).look());
    // What is broken stops the clock.
    let mut run = deleting();
    run.wait(15_000).breaks("F10", &[]);
    holds(run.wait(30_000).look());
    holds(run.step(Actor::Saboteur, What::Healed));
    holds(run.wait(20_000).look());
    broken("L10", run.wait(1).look());
    // Somebody else holds it.
    let mut run = deleting();
    run.edit(
        "ValkeyNode",
        "a0",
        "/metadata/finalizers",
        json!(["theirs"]),
    );
    holds(run.wait(60_000).look());
}

/// Tries a refused write, with these pauses between.
fn tries(pauses: &[u64]) -> Result<(), super::super::Violation> {
    let mut run = Run::new(3, 1);
    let mut told = Ok(());
    for pause in [0].iter().chain(pauses) {
        let pod: Value = json!({ "metadata": owned("ValkeyNode", "node-x", "c") });
        let mut refused = write(Verb::Create, "Pod", "x", None, Some(pod));
        refused.outcome = Outcome::Refused("403".to_owned());
        told = told.and(run.wait(*pause).step(OPERATOR, What::Write(refused)));
    }
    told
}

#[test]
fn l11() {
    broken("L11", tries(&[100; 6]));
    holds(tries(&[100; 5]));
    broken("L11", tries(&[0; 6]));
    holds(tries(&[
        0, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 60_000, 60_000,
    ]));
    holds(tries(&[60_000; 20]));
    // Slower once, and then ever the same.
    broken("L11", tries(&[100, 200, 200, 200, 200, 200, 200]));
}

#[test]
fn l11_success_is_a_new_start() {
    let mut run = Run::new(3, 1);
    let attempt = |outcome: &Outcome, run: &mut Run| {
        let pod = json!({ "metadata": owned("ValkeyNode", "node-a0", "c") });
        let mut made = write(Verb::Create, "Event", "x", None, Some(pod));
        made.outcome = outcome.clone();
        run.wait(100).step(OPERATOR, What::Write(made))
    };
    let refused = Outcome::Refused("500".to_owned());
    for _ in 0..4 {
        for _ in 0..4 {
            holds(attempt(&refused, &mut run));
        }
        holds(attempt(&Outcome::Done, &mut run));
    }
}
