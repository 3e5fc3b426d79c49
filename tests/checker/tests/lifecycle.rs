//! S1, S4, S5, S14, S15, S17. Never a case that two rules of these judge alike.

use serde_json::Value;
use serde_json::json;

use super::super::evidence::Actor;
use super::super::evidence::Export;
use super::super::evidence::Life;
use super::super::evidence::Role;
use super::super::slots::Slots;
use super::OPERATOR;
use super::Run;
use super::broken;
use super::holds;
use super::owned;

fn node(name: &str) -> Value {
    let mut metadata = owned("ValkeyCluster", "uid-c", "c");
    metadata["uid"] = json!(format!("node-{name}"));
    let spec = json!({
        "clusterName": "c",
        "shardIndex": 0,
        "lifecycle": "Joining",
        "valkeySettings": super::objects::settings(),
    });
    json!({ "metadata": metadata, "spec": spec })
}

#[test]
fn s1_two_nodes() {
    let mut run = Run::new(1, 1);
    run.edit("ValkeyCluster", "c", "/status/state", json!("Creating"));
    run.tick("c");
    holds(run.creates(OPERATOR, "ValkeyNode", "x", &node("x")));
    run.tick("c");
    holds(run.creates(OPERATOR, "ValkeyNode", "y", &node("y")));
    broken("S1", run.creates(OPERATOR, "ValkeyNode", "z", &node("z")));
}

#[test]
fn s1_without_told_ticks() {
    let mut run = Run::new(1, 1);
    run.edit("ValkeyCluster", "c", "/status/state", json!("Creating"));
    holds(run.creates(OPERATOR, "ValkeyNode", "x", &node("x")));
    holds(
        run.wait(20)
            .creates(OPERATOR, "ValkeyNode", "y", &node("y")),
    );
    broken(
        "S1",
        run.wait(2).creates(OPERATOR, "ValkeyNode", "z", &node("z")),
    );
}

#[test]
fn s1_fan_out_and_gossip() {
    let mut run = Run::new(3, 1);
    run.tick("c");
    for node in ["a0", "a1", "b0"] {
        holds(run.tells(node, "CLUSTER FORGET id-gone"));
    }
    // Between members it is a hint: gossip would bring them together anyway.
    holds(run.tells("a0", "CLUSTER MEET 10.0.0.3 6379"));
    holds(run.tells("a0", "ACL LOAD"));
    holds(run.patches(
        OPERATOR,
        ("ConfigMap", "c-acl"),
        "/data/users.acl",
        json!("user default on"),
    ));
    broken("S1", run.tells("a0", "CLUSTER FORGET id-other"));
}

#[test]
fn s1_a_stranger_is_an_action() {
    let mut run = Run::new(2, 0);
    run.process("a0").table.retain(|row| row.id == "id-a0");
    run.process("b0").table.retain(|row| row.id == "id-b0");
    holds(run.look());
    run.tick("c");
    holds(run.tells("a0", "CLUSTER MEET 10.0.0.2 6379"));
    broken("S1", run.tells("b0", "CLUSTER MEET 10.0.0.1 6379"));
}

#[test]
fn s1_activation_and_deletion() {
    let mut run = Run::new(1, 1);
    run.edit("ValkeyCluster", "c", "/status/state", json!("Creating"));
    for node in ["a0", "a1"] {
        run.edit("ValkeyNode", node, "/spec/lifecycle", json!("Joining"));
    }
    run.tick("c");
    for node in ["a0", "a1"] {
        let active = json!("Active");
        holds(run.patches(OPERATOR, ("ValkeyNode", node), "/spec/lifecycle", active));
    }
    run.edit("ValkeyCluster", "c", "/status/state", json!("Active"));
    run.tick("c");
    for (node, expected) in [("a0", true), ("a1", false)] {
        let leaving = json!("Leaving");
        let told = run.patches(OPERATOR, ("ValkeyNode", node), "/spec/lifecycle", leaving);
        if expected {
            holds(told);
        } else {
            broken("S1", told);
        }
    }
    run.edit(
        "ValkeyCluster",
        "c",
        "/metadata/deletionTimestamp",
        json!("now"),
    );
    run.tick("c");
    for node in ["a0", "a1"] {
        holds(run.deletes(OPERATOR, "ValkeyNode", node));
    }
}

/// Of S4 alone: S5 and S15 would be broken as well.
fn copies(run: &mut Run) {
    for rule in ["S5", "S15"] {
        run.checker.rules().waived.insert(rule);
    }
}

/// The operator looks and a process dies, the one a moment before the other.
fn looks_and_dies(run: &mut Run, node: &str, looks_first: bool) {
    for looks in [looks_first, !looks_first] {
        run.wait(10);
        if looks {
            run.tick("c");
        } else {
            run.breaks("F02", &[node]);
            run.process(node).life = Life::Ended;
        }
    }
    run.wait(10);
}

#[test]
fn s4_deletion() {
    let mut run = Run::new(1, 1);
    copies(&mut run);
    holds(run.deletes(OPERATOR, "ValkeyNode", "a0"));
    run.process("a1").keyed = Slots::of([(1, 16383)]);
    broken("S4", run.wait(1000).deletes(OPERATOR, "Pod", "a0"));
    // A replica that never synced is no copy, whatever it holds.
    let mut run = Run::new(1, 1);
    copies(&mut run);
    run.process("a1").role = Role::Replica {
        of: "id-a0".to_owned(),
        linked: false,
        synced: false,
    };
    broken("S4", run.deletes(OPERATOR, "ValkeyNode", "a0"));
    // Nor is one that is on its way out.
    let mut run = Run::new(1, 1);
    copies(&mut run);
    run.edit(
        "ValkeyNode",
        "a1",
        "/metadata/deletionTimestamp",
        json!("now"),
    );
    broken("S4", run.deletes(OPERATOR, "ValkeyNode", "a0"));
    // What hits the other copy after the look cannot be known, what did before it can.
    let retired = |looks_first| {
        let mut run = Run::new(1, 1);
        copies(&mut run);
        run.checker.rules().waived.insert("S5");
        holds(run.look());
        looks_and_dies(&mut run, "a1", looks_first);
        run.deletes(OPERATOR, "ValkeyNode", "a0")
    };
    holds(retired(true));
    broken("S4", retired(false));
}

#[test]
fn s4_exceptions() {
    let mut run = Run::new(1, 0);
    copies(&mut run);
    broken("S4", run.deletes(OPERATOR, "ValkeyNode", "a0"));
    run.process("a0").life = Life::Ended;
    holds(run.wait(1000).deletes(OPERATOR, "ValkeyNode", "a0"));
    let mut run = Run::new(1, 0);
    run.edit(
        "ValkeyCluster",
        "c",
        "/metadata/deletionTimestamp",
        json!("now"),
    );
    holds(run.deletes(OPERATOR, "ValkeyNode", "a0"));
}

#[test]
fn s4_commands() {
    let mut run = Run::new(1, 1);
    holds(run.look());
    holds(run.tells("a1", "CLUSTER RESET HARD"));
    let mut run = Run::new(1, 0);
    broken("S4", run.tells("a0", "CLUSTER RESET HARD"));
}

#[test]
fn s5() {
    let mut run = Run::new(1, 1);
    run.checker.rules().waived.insert("S15");
    broken("S5", run.deletes(OPERATOR, "ValkeyNode", "a1"));
    // Its successor is in step, but Joining still.
    let mut run = Run::new(1, 2);
    run.edit("ValkeyCluster", "c", "/spec/replicasPerShard", json!(1));
    run.edit("ValkeyNode", "a2", "/spec/lifecycle", json!("Joining"));
    broken("S5", run.deletes(OPERATOR, "ValkeyNode", "a1"));
    run.edit("ValkeyNode", "a2", "/spec/lifecycle", json!("Active"));
    holds(run.wait(1000).deletes(OPERATOR, "ValkeyNode", "a1"));
    let mut run = Run::new(1, 1);
    run.process("a1").life = Life::Ended;
    holds(run.deletes(OPERATOR, "ValkeyNode", "a1"));
    // What hits its successor after the look cannot be known, what did before it can.
    let replaced = |looks_first| {
        let mut run = Run::new(1, 2);
        run.edit("ValkeyCluster", "c", "/spec/replicasPerShard", json!(1));
        holds(run.look());
        looks_and_dies(&mut run, "a2", looks_first);
        run.deletes(OPERATOR, "ValkeyNode", "a1")
    };
    holds(replaced(true));
    broken("S5", replaced(false));
}

#[test]
fn s14() {
    let batch = "CLUSTER MIGRATESLOTS SLOTSRANGE 0 9 NODE id-b0";
    holds(Run::new(3, 1).tells("a0", batch));
    let mut run = Run::new(3, 1);
    run.process("a0").exports.push(Export {
        target: "id-c0".to_owned(),
        slots: Slots::of([(20, 30)]),
    });
    broken("S14", run.tells("a0", batch));
    let mut run = Run::new(3, 1);
    let both = format!("{batch} SLOTSRANGE 10 19 NODE id-c0");
    broken("S14", run.tells("a0", &both));
    let mut run = Run::new(3, 1);
    holds(run.look());
    run.process("b0").life = Life::Hung;
    // Nobody can know yet.
    holds(run.wait(500).tells("a0", batch));
    broken("S14", run.wait(5000).tells("a0", batch));
    broken("S14", Run::new(3, 1).tells("a1", batch));
}

#[test]
fn s15_slots() {
    let mut run = Run::new(2, 1);
    run.checker.rules().waived.insert("S5");
    holds(run.look());
    broken("S15", run.wait(10).deletes(OPERATOR, "ValkeyNode", "a0"));
    // Drained, but for the view of one.
    let drained = |run: &mut Run| {
        for node in ["a0", "a1", "b0", "b1"] {
            run.row(node, "a0").slots = Slots::default();
        }
        run.process("a0").accepts = Slots::default();
        for node in ["a0", "a1"] {
            run.process(node).keyed = Slots::default();
        }
    };
    let mut run = Run::new(2, 1);
    drained(&mut run);
    run.row("b1", "a0").slots = Slots::of([(7, 7)]);
    run.checker.rules().waived.insert("S5");
    broken("S15", run.deletes(OPERATOR, "ValkeyNode", "a0"));
    let mut run = Run::new(2, 1);
    drained(&mut run);
    holds(run.deletes(OPERATOR, "ValkeyNode", "a0"));
    let mut run = Run::new(2, 1);
    drained(&mut run);
    run.process("a0").exports.push(Export {
        target: "id-b0".to_owned(),
        slots: Slots::of([(7, 7)]),
    });
    broken("S15", run.deletes(OPERATOR, "ValkeyNode", "a0"));
    // Nobody can have asked it yet.
    let started = |phase: &str| {
        let mut run = Run::new(2, 1);
        drained(&mut run);
        run.row("a0", "a0").slots = Slots::of([(7, 7)]);
        run.edit("Pod", "a0", "/status/phase", json!(phase));
        run.checker.rules().waived.insert("S5");
        run.deletes(OPERATOR, "ValkeyNode", "a0")
    };
    holds(started("Pending"));
    broken("S15", started("Running"));
}

#[test]
fn s15_drains() {
    let all = "CLUSTER MIGRATESLOTS SLOTSRANGE 0 5460 NODE id-b0";
    broken("S15", Run::new(3, 1).tells("a0", all));
    let mut run = Run::new(3, 1);
    run.edit("ValkeyCluster", "c", "/spec/shards", json!(2));
    holds(run.tells("a0", all));
    // One slot stays: nothing is drained.
    let most = "CLUSTER MIGRATESLOTS SLOTSRANGE 0 5459 NODE id-b0";
    holds(Run::new(3, 1).tells("a0", most));
    // It was just met, and has not heard what the others own.
    let mut run = Run::new(3, 1);
    run.edit("ValkeyCluster", "c", "/spec/shards", json!(2));
    for other in ["b0", "c0"] {
        run.row("a0", other).slots = Slots::default();
    }
    holds(run.tells("a0", all));
}

#[test]
fn s17() {
    let pod = |uid: &str| {
        let mut metadata = owned("ValkeyNode", "node-a0", "c");
        metadata["uid"] = json!(uid);
        json!({ "metadata": metadata, "spec": { "hostname": "a0" } })
    };
    let mut run = Run::new(1, 0);
    run.edit("ValkeyNode", "a0", "/spec/lifecycle", json!("Joining"));
    holds(run.creates(OPERATOR, "Pod", "a0", &pod("p1")));
    broken(
        "S17",
        run.wait(1000).creates(OPERATOR, "Pod", "a0", &pod("p2")),
    );
    // Somebody takes the pod: nothing but the stamp tells that there was one.
    let taken = |stamp: &str| {
        let mut run = Run::new(1, 0);
        run.edit("ValkeyNode", "a0", "/spec/lifecycle", json!("Joining"));
        run.edit(
            "ValkeyNode",
            "a0",
            "/metadata/annotations/valkey.gomomento.com~1pod-uid",
            json!(stamp),
        );
        holds(run.creates(OPERATOR, "Pod", "a0", &pod("p1")));
        run.edit("Pod", "a0", "/metadata/uid", json!("p1"));
        holds(run.deletes(Actor::User, "Pod", "a0"));
        run.wait(1000).creates(OPERATOR, "Pod", "a0", &pod("p2"))
    };
    holds(taken(""));
    broken("S17", taken("p1"));
    // It may have been Joining when its own tick looked.
    let mut run = Run::new(1, 0);
    holds(run.look());
    holds(run.wait(1000).creates(OPERATOR, "Pod", "a0", &pod("p1")));
    let mut run = Run::new(1, 0);
    holds(run.look());
    broken(
        "S17",
        run.wait(3000).creates(OPERATOR, "Pod", "a0", &pod("p1")),
    );
    let mut run = Run::new(1, 0);
    run.edit(
        "ValkeyCluster",
        "c",
        "/spec/podAnnotations",
        json!({ "x": "1" }),
    );
    holds(run.patches(
        OPERATOR,
        ("Pod", "a0"),
        "/metadata/annotations/x",
        json!("1"),
    ));
    broken(
        "S17",
        run.patches(OPERATOR, ("Pod", "a0"), "/spec/hostname", json!("z")),
    );
    holds(run.patches(Actor::User, ("Pod", "a0"), "/spec/hostname", json!("y")));
}
