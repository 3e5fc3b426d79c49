//! S18, S19. Never a cluster of more nodes than a case needs.

use std::sync::Arc;

use serde_json::json;

use super::super::evidence::Actor;
use super::super::evidence::Life;
use super::super::evidence::Process;
use super::super::evidence::Role;
use super::super::slots::Slots;
use super::OPERATOR;
use super::Run;
use super::broken;
use super::holds;
use super::owned;

/// A cluster that is as it should be, and is not called Active yet.
fn forming() -> Run {
    let mut run = Run::new(2, 1);
    let spec = run.body("ValkeyCluster", "c")["spec"].clone();
    run.edit(
        "ValkeyCluster",
        "c",
        "/status",
        json!({ "state": "Creating", "targetSpec": spec }),
    );
    run
}

fn activate(run: &mut Run) -> Result<(), super::super::Violation> {
    run.wait(1000).tick("c");
    run.wait(10);
    run.patches(
        OPERATOR,
        ("ValkeyCluster", "c"),
        "/status/state",
        json!("Active"),
    )
}

#[test]
fn s18() {
    holds(activate(&mut forming()));
    let spoils: [fn(&mut Run); 8] = [
        |run| run.process("b1").state_ok = false,
        |run| run.row("b1", "a0").slots = Slots::of([(0, 5)]),
        |run| {
            run.process("b1").role = Role::Replica {
                of: "id-b0".to_owned(),
                linked: false,
                synced: true,
            };
        },
        |run| run.process("a1").life = Life::Ended,
        |run| run.remove("ValkeyNode", "a1"),
        |run| run.edit("ValkeyNode", "a1", "/spec/lifecycle", json!("Joining")),
        |run| run.edit("ValkeyCluster", "c", "/status/targetSpec/shards", json!(3)),
        |run| {
            run.edit(
                "ValkeyCluster",
                "c",
                "/status/targetSpec/replicasPerShard",
                json!(2),
            );
        },
    ];
    for spoil in spoils {
        let mut run = forming();
        spoil(&mut run);
        broken("S18", activate(&mut run));
    }
}

#[test]
fn s18_what_broke_after_the_look() {
    let mut run = forming();
    run.tick("c");
    run.process("b1").state_ok = false;
    run.wait(50);
    holds(run.look());
    run.wait(50);
    holds(run.patches(
        OPERATOR,
        ("ValkeyCluster", "c"),
        "/status/state",
        json!("Active"),
    ));

    let mut run = forming();
    run.tick("c");
    run.process("b1").state_ok = false;
    run.wait(5000).tick("c");
    let told = run.patches(
        OPERATOR,
        ("ValkeyCluster", "c"),
        "/status/state",
        json!("Active"),
    );
    broken("S18", told);
}

/// One more replica of shard 0, in step.
fn one_more(run: &mut Run) {
    run.add_node("c", "a2", 0);
    let replica = run.process("a1").clone();
    run.truth.processes.push(Arc::new(Process {
        pod: "pod-a2".to_owned(),
        ip: "10.0.0.9".to_owned(),
        id: "id-a2".to_owned(),
        ..replica
    }));
    run.introduce();
}

#[test]
fn s18_a_replica_too_many_on_the_way_back() {
    let back = |run: &mut Run| {
        let target = json!({ "shards": 2, "replicasPerShard": 1 });
        let status = json!({ "state": "Creating", "targetSpec": target });
        run.edit("ValkeyCluster", "c", "/status", status);
    };
    // It was there before.
    let mut run = Run::new(2, 1);
    one_more(&mut run);
    holds(run.look());
    back(&mut run);
    holds(activate(&mut run));
    // It makes up for nobody.
    let mut run = Run::new(2, 1);
    one_more(&mut run);
    holds(run.look());
    back(&mut run);
    run.remove("ValkeyNode", "b1");
    broken("S18", activate(&mut run));
    // It was made on the way.
    let mut run = Run::new(2, 1);
    holds(run.look());
    back(&mut run);
    holds(run.look());
    one_more(&mut run);
    broken("S18", activate(&mut run));
    // A cluster that never was Active has none.
    let mut run = forming();
    one_more(&mut run);
    broken("S18", activate(&mut run));
}

#[test]
fn s19_invalid() {
    let mut run = Run::new(3, 1);
    run.edit("ValkeyCluster", "c", "/status/state", json!("Invalid"));
    holds(run.patches(
        OPERATOR,
        ("ConfigMap", "c-acl"),
        "/data/users.acl",
        json!("user default on"),
    ));
    // The other operator may have said it after this one looked.
    holds(run.tells("a1", "CLUSTER FAILOVER"));
    broken("S19", run.wait(3000).tells("a1", "CLUSTER FAILOVER"));
    // A node's own tick has it from the stores, and only so late.
    let mut metadata = owned("ValkeyNode", "node-a0", "c");
    metadata["uid"] = json!("p1");
    let pod = json!({ "metadata": metadata, "spec": { "hostname": "a0" } });
    let made = |after: u64| {
        let mut run = Run::new(3, 1);
        run.edit("ValkeyCluster", "c", "/status/state", json!("Invalid"));
        run.edit("ValkeyNode", "a0", "/spec/lifecycle", json!("Joining"));
        holds(run.look());
        run.wait(after).creates(OPERATOR, "Pod", "a0", &pod)
    };
    holds(made(1000));
    broken("S19", made(6000));
}

#[test]
fn s19_unresolved() {
    let mut run = Run::new(3, 1);
    run.remove("ValkeyImage", "v9");
    holds(run.look());
    // The stores may show it still.
    holds(run.wait(1000).tells("a1", "CLUSTER FAILOVER"));
    broken("S19", run.wait(5000).tells("a1", "CLUSTER FAILOVER"));
    run.edit(
        "ValkeyCluster",
        "c",
        "/metadata/deletionTimestamp",
        json!("now"),
    );
    holds(run.wait(1000).deletes(OPERATOR, "ValkeyNode", "a0"));
}

#[test]
fn s19_every_reference() {
    let binding = json!([{ "username": "u", "permissions": [{ "roleRef": "r", "keys": [] }] }]);
    let twice = json!([
        { "username": "u", "permissions": [] },
        { "username": "u", "permissions": [] },
    ]);
    let cases = [
        ("/spec/configRef", json!("missing")),
        ("/spec/acl", binding),
        ("/spec/acl", twice),
    ];
    for (pointer, value) in cases {
        let mut run = Run::new(3, 1);
        run.edit("ValkeyCluster", "c", pointer, value);
        holds(run.look());
        broken("S19", run.wait(9000).tells("a1", "CLUSTER FAILOVER"));
    }
    let mut run = Run::new(3, 1);
    run.edit(
        "ValkeyConfig",
        "standard",
        "/spec/baseRef",
        json!("standard"),
    );
    holds(run.look());
    broken("S19", run.wait(9000).tells("a1", "CLUSTER FAILOVER"));
    // A person may do as he likes.
    holds(run.deletes(Actor::User, "Pod", "a0"));
}
