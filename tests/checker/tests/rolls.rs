//! S6, S7. Never judges what a fault asked for.

use serde_json::Value;
use serde_json::json;

use super::super::evidence::Actor;
use super::super::evidence::Life;
use super::super::evidence::Role;
use super::super::evidence::What;
use super::OPERATOR;
use super::Run;
use super::broken;
use super::holds;
use super::owned;

/// Two nodes of shard 0 change places.
fn swap(run: &mut Run, up: &str, down: &str) {
    run.process(up).role = Role::Primary;
    run.process(down).role = Role::Replica {
        of: format!("id-{up}"),
        linked: true,
        synced: true,
    };
    let slots = std::mem::take(&mut run.process(down).accepts);
    run.process(up).accepts = slots;
    run.introduce();
}

#[test]
fn s6_failovers() {
    let mut run = Run::new(3, 3);
    holds(run.look());
    holds(run.tells("a1", "CLUSTER FAILOVER"));
    // The same again is no second one; another shard's is its own.
    holds(run.wait(1000).tells("a1", "CLUSTER FAILOVER"));
    holds(run.wait(1000).tells("b1", "CLUSTER FAILOVER"));
    // Nor is a repair.
    holds(run.wait(1000).tells("a2", "CLUSTER FAILOVER FORCE"));
    broken("S6", run.wait(1000).tells("a2", "CLUSTER FAILOVER"));
    // The next roll begins with an edit.
    run.wait(1000);
    holds(run.patches(
        Actor::User,
        ("ValkeyConfig", "standard"),
        "/spec/valkey/hz",
        json!("20"),
    ));
    // What was decided before the edit was known belongs to the roll before.
    holds(run.wait(1000).tells("a2", "CLUSTER FAILOVER"));
    holds(run.wait(9000).tells("a1", "CLUSTER FAILOVER"));
    broken("S6", run.wait(1000).tells("a3", "CLUSTER FAILOVER"));
}

#[test]
fn s6_roles() {
    let mut run = Run::new(3, 1);
    holds(run.look());
    swap(&mut run, "a1", "a0");
    holds(run.wait(1000).look());
    swap(&mut run, "a0", "a1");
    broken("S6", run.wait(1000).look());

    let mut run = Run::new(3, 1);
    holds(run.look());
    swap(&mut run, "a1", "a0");
    holds(run.wait(1000).look());
    run.breaks("F03", &["a1"]);
    swap(&mut run, "a0", "a1");
    holds(run.wait(1000).look());
}

/// A hand-over that an edit overtakes belongs to the roll before it; the one that the edit asks for is the first of its own.
#[test]
fn s6_roles_over_an_edit() {
    let edit = |run: &mut Run, hz| {
        let config = ("ValkeyConfig", "standard");
        holds(run.patches(Actor::User, config, "/spec/valkey/hz", json!(hz)));
    };
    let mut run = Run::new(3, 1);
    holds(run.look());
    holds(run.tells("a1", "CLUSTER FAILOVER"));
    edit(&mut run, "20");
    swap(&mut run, "a1", "a0");
    holds(run.wait(1000).look());
    swap(&mut run, "a0", "a1");
    holds(run.wait(1000).look());
    swap(&mut run, "a1", "a0");
    broken("S6", run.wait(1000).look());
}

/// A replica that took over under a fault takes no turn of the roll in which that is first seen.
#[test]
fn s6_roles_seen_late() {
    let mut run = Run::new(3, 1);
    holds(run.look());
    run.breaks("F06", &["a0"]);
    holds(run.wait(9000).step(Actor::Saboteur, What::Healed));
    let config = ("ValkeyConfig", "standard");
    holds(run.patches(Actor::User, config, "/spec/valkey/hz", json!("20")));
    swap(&mut run, "a1", "a0");
    holds(run.look());
    holds(run.wait(9000).tells("a0", "CLUSTER FAILOVER"));
    swap(&mut run, "a0", "a1");
    holds(run.wait(1000).look());
    // Long after the fault it is one too many.
    swap(&mut run, "a1", "a0");
    broken("S6", run.wait(9000).look());
}

/// A replica that takes the place of a dead primary takes no turn of the roll's.
#[test]
fn s6_repairs() {
    let mut run = Run::new(3, 2);
    holds(run.look());
    swap(&mut run, "a1", "a0");
    swap(&mut run, "a1", "a2");
    holds(run.wait(1000).look());
    run.process("a1").life = Life::Ended;
    swap(&mut run, "a2", "a1");
    holds(run.wait(1000).look());
}

fn newcomer(shard: u32, join: &str) -> Value {
    let mut metadata = owned("ValkeyCluster", "uid-c", "c");
    metadata["labels"]["valkey.gomomento.com/shard-index"] = json!(shard.to_string());
    metadata["labels"]["valkey.gomomento.com/join-type"] = json!(join);
    json!({ "metadata": metadata, "spec": {
        "clusterName": "c",
        "shardIndex": shard,
        "lifecycle": "Joining",
        "valkeySettings": super::objects::settings(),
    }})
}

fn surges(run: &mut Run, node: &str, shard: u32) -> Result<(), super::super::Violation> {
    let body = newcomer(shard, "replica");
    let told = run.creates(OPERATOR, "ValkeyNode", node, &body);
    run.put("ValkeyNode", node, body);
    run.wait(1000);
    told
}

#[test]
fn s7() {
    let mut run = Run::new(3, 1);
    holds(surges(&mut run, "x", 0));
    holds(surges(&mut run, "y", 0));
    broken("S7", surges(&mut run, "z", 1));

    // The first shard is as large as it should be again.
    let mut run = Run::new(3, 1);
    holds(surges(&mut run, "x", 0));
    run.remove("ValkeyNode", "a1");
    holds(surges(&mut run, "z", 1));

    // The target shrank, and what is too much of the first shard waits for its turn.
    let mut run = Run::new(3, 1);
    holds(surges(&mut run, "x", 0));
    run.remove("ValkeyNode", "a0");
    run.edit("ValkeyCluster", "c", "/spec/replicasPerShard", json!(0));
    holds(surges(&mut run, "z", 1));

    // The second shard lost a member: that is a repair.
    let mut run = Run::new(3, 1);
    holds(surges(&mut run, "x", 0));
    run.process("b1").life = Life::Ended;
    holds(surges(&mut run, "z", 1));

    let mut run = Run::new(3, 1);
    holds(surges(&mut run, "x", 0));
    holds(run.creates(OPERATOR, "ValkeyNode", "z", &newcomer(3, "shard")));
}
