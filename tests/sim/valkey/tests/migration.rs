//! Slots that move with their keys.

use super::super::Answer;
use super::super::Signal;
use super::super::Value;
use super::stage::Stage;

/// What GETSLOTMIGRATIONS tells of the newest job: its fields in order.
fn newest(stage: &mut Stage, index: usize) -> Vec<String> {
    let Value::Array(jobs) = stage.ask(index, "CLUSTER GETSLOTMIGRATIONS") else {
        panic!();
    };
    let Some(Value::Array(fields)) = jobs.first() else {
        panic!("no job");
    };
    let text = |value: &Value| {
        let words = value.text().map(str::to_owned);
        words.unwrap_or_else(|| format!("{value:?}"))
    };
    fields.iter().map(text).collect()
}

fn field(stage: &mut Stage, index: usize, name: &str) -> String {
    let fields = newest(stage, index);
    let at = fields.iter().position(|field| field == name).unwrap();
    fields[at + 1].clone()
}

fn state(stage: &mut Stage, index: usize) -> String {
    field(stage, index, "state")
}

fn keys(stage: &mut Stage, index: usize) -> u32 {
    stage.truth(index).keys.values().sum()
}

/// Facts 1.2: nothing shows until the claim, then all see it; keys arrive at the target and its replica.
#[test]
fn slots_move_with_their_keys() {
    let mut stage = Stage::cluster(3, 1);
    stage.fill(&[0, 1, 2], 300);
    stage.run(100);
    let before = keys(&mut stage, 0);
    let target = stage.id(1);
    stage.good(
        0,
        &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 1999 2000 2500 NODE {target}"),
    );
    let took = stage.until(1000, "success", |stage| state(stage, 0) == "success");
    assert!(took < 200, "{took}");
    let fields = newest(&mut stage, 0);
    let names: Vec<&String> = fields.iter().step_by(2).collect();
    assert_eq!(
        names,
        [
            "name",
            "operation",
            "slot_ranges",
            "target_node",
            "source_node",
            "create_time",
            "last_update_time",
            "last_ack_time",
            "state",
            "message",
            "cow_size",
            "remaining_repl_size"
        ]
    );
    assert_eq!(fields[3], "EXPORT");
    assert_eq!(fields[5], "0-1999 2000-2500");
    assert_eq!(state(&mut stage, 1), "success");
    assert_eq!(field(&mut stage, 1, "operation"), "IMPORT");
    assert_eq!(newest(&mut stage, 4).len(), 20, "a replica names no nodes");
    assert_eq!(state(&mut stage, 4), "success");
    stage.run(100);
    for index in 0..6 {
        let nodes = stage.text(index, "CLUSTER NODES");
        assert!(nodes.contains(" connected 0-2500 5461-10921"), "{nodes}");
    }
    let all: u32 = (0..3).map(|index| keys(&mut stage, index)).sum();
    assert_eq!(all, 300);
    assert!(keys(&mut stage, 0) < before);
    assert_eq!(stage.truth(1).keys, stage.truth(4).keys);
    assert_eq!(stage.truth(0).keys, stage.truth(3).keys);
    assert_eq!(stage.ask(0, "CLUSTER COUNTKEYSINSLOT 0"), Value::Integer(0));
}

/// Facts 1.1: what is refused at once.
#[test]
fn bad_migrations_are_refused() {
    let mut stage = Stage::cluster(3, 1);
    let (me, other, third) = (stage.id(0), stage.id(1), stage.id(2));
    let nobody = "0123456789012345678901234567890123456789";
    for (words, why) in [
        (
            format!("SLOTSRANGE 6000 6001 NODE {third}"),
            "Slots are not served by this node.",
        ),
        (
            format!("SLOTSRANGE 5460 5461 NODE {third}"),
            "Requested slots span multiple shards",
        ),
        (
            format!("SLOTSRANGE 0 5 3 8 NODE {other}"),
            "Slot range 3-8 overlaps with previous range 0-5.",
        ),
        (
            format!("SLOTSRANGE 0 5 NODE {other} SLOTSRANGE 3 8 NODE {third}"),
            "Slot ranges in migrations overlap",
        ),
        (
            format!("SLOTSRANGE 5 1 NODE {other}"),
            "Start slot number 5 is greater than end slot number 1.",
        ),
        (
            format!("SLOTSRANGE 0 16384 NODE {other}"),
            "Invalid or out of range slot",
        ),
        (
            format!("SLOTSRANGE 0-1 NODE {other}"),
            "No slot ranges specified",
        ),
        (
            format!("SLOTSRANGE 0 NODE {other}"),
            "Invalid or out of range slot",
        ),
        (
            format!("SLOTSRANGE 0 5 NODE {me}"),
            "Target node can not be this node.",
        ),
        (
            format!("SLOTSRANGE 0 5 NODE {nobody}"),
            "Unknown node name: 0123456789012345678901234567890123456789",
        ),
        (
            "SLOTSRANGE 0 5 NODE abc".to_owned(),
            "Invalid node name: abc",
        ),
    ] {
        let said = stage.ask(0, &format!("CLUSTER MIGRATESLOTS {words}"));
        assert_eq!(said, Value::Error(format!("ERR {why}")), "{words}");
    }
    assert_eq!(
        stage.ask(
            3,
            &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 5 NODE {other}")
        ),
        Value::error("ERR Slot migration can only be used on primary nodes.")
    );
    assert_eq!(
        stage.ask(0, "CLUSTER CANCELSLOTMIGRATIONS"),
        Value::error("ERR No migrations ongoing")
    );
}

/// A held job can be looked at, written past, and cancelled.
#[test]
fn a_migration_under_way_is_cancelled() {
    let mut stage = Stage::cluster(3, 1);
    stage.fill(&[0, 1, 2], 300);
    let before = stage.truth(0).keys;
    let target_before = stage.truth(1).keys;
    let process = stage.nodes[0];
    stage
        .net
        .switches(stage.now, process)
        .unwrap()
        .migration_held = true;
    let target = stage.id(1);
    stage.good(
        0,
        &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 2500 NODE {target}"),
    );
    stage.until(1000, "held", |stage| state(stage, 0) == "waiting-to-pause");
    assert_eq!(state(&mut stage, 1), "waiting-for-paused");
    assert_eq!(state(&mut stage, 4), "occurring-on-primary");
    assert!(keys(&mut stage, 1) > target_before.values().sum());
    let visible = i64::from(target_before.values().sum::<u32>());
    assert_eq!(stage.ask(1, "DBSIZE"), Value::Integer(visible));
    assert_eq!(
        stage.ask(
            0,
            &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 0 NODE {target}")
        ),
        Value::error("ERR I am already migrating slot 0.")
    );
    assert_eq!(
        stage.ask(0, &format!("CLUSTER SETSLOT 9 MIGRATING {target}")),
        Value::error("ERR Slot export in progress.")
    );
    stage.good(0, "CLUSTER CANCELSLOTMIGRATIONS");
    stage.run(100);
    assert_eq!(state(&mut stage, 0), "cancelled");
    assert_eq!(state(&mut stage, 1), "failed");
    assert_eq!(state(&mut stage, 4), "failed");
    assert_eq!(stage.truth(0).keys, before);
    assert_eq!(stage.truth(1).keys, target_before);
    assert_eq!(stage.truth(4).keys, target_before);
}

/// Facts 1.3: each end may die.
#[test]
fn a_migration_fails_with_either_end() {
    for victim in [0, 1] {
        let mut stage = Stage::cluster(3, 1);
        stage.fill(&[0, 1, 2], 300);
        stage.run(1500);
        let process = stage.nodes[0];
        stage
            .net
            .switches(stage.now, process)
            .unwrap()
            .migration_held = true;
        let target = stage.id(1);
        stage.good(
            0,
            &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 2500 NODE {target}"),
        );
        stage.until(1000, "held", |stage| state(stage, 0) == "waiting-to-pause");
        stage.signal(victim, Signal::Kill);
        stage.run(10);
        let (witness, words) = if victim == 1 {
            (
                0,
                "Connection lost to target. Check CLUSTER GETSLOTMIGRATIONS on the target node for more information.",
            )
        } else {
            (
                1,
                "Connection lost to source. Check CLUSTER GETSLOTMIGRATIONS on the source node for more information.",
            )
        };
        assert_eq!(state(&mut stage, witness), "failed");
        assert_eq!(field(&mut stage, witness, "message"), words);
        stage.until(9000, "promoted", |stage| stage.owns(victim + 3));
        stage.run(1000);
        if victim == 1 {
            assert_eq!(state(&mut stage, 4), "failed");
            assert_eq!(
                field(&mut stage, 4, "message"),
                "A failover occurred during slot import"
            );
        }
        let heirs = if victim == 0 { [3, 1, 2] } else { [0, 4, 2] };
        let all: u32 = heirs.iter().map(|index| keys(&mut stage, *index)).sum();
        assert_eq!(all, 300);
    }
}

/// Facts 1.2: a target that never claims: the source is paused for twice the failover timeout, then fails.
#[test]
fn a_target_that_never_claims_pauses_the_source() {
    let mut stage = Stage::cluster(3, 1);
    let process = stage.nodes[1];
    stage
        .net
        .switches(stage.now, process)
        .unwrap()
        .migration_unclaimed = true;
    let target = stage.id(1);
    stage.good(
        0,
        &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 100 NODE {target}"),
    );
    stage.until(1000, "granted", |stage| {
        state(stage, 0) == "failover-granted"
    });
    assert_eq!(state(&mut stage, 1), "failover-granted");
    let key = (0..100)
        .map(|n| format!("k{n}"))
        .find(|key| (200..5000).contains(&super::super::slots::of_key(key.as_bytes())));
    assert_eq!(
        stage.send(0, &format!("SET {} 1", key.unwrap())),
        Answer::Later
    );
    let took = stage.until(12_000, "over", |stage| !stage.answers().is_empty());
    assert!((9500..10_300).contains(&took), "{took}");
}

/// Facts 1.1: what is not refused but fails a moment later.
#[test]
fn unwilling_targets_fail_the_job() {
    let mut stage = Stage::cluster(3, 1);
    let replica = stage.id(4);
    stage.good(
        0,
        &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 5 NODE {replica}"),
    );
    stage.run(50);
    assert_eq!(state(&mut stage, 0), "failed");
    assert_eq!(
        field(&mut stage, 0, "message"),
        "Received error during handshake to target: -ERR Slot migration can only be used on primary \
         nodes.\r\n"
    );
    let dead = stage.id(5);
    stage.signal(5, Signal::Kill);
    stage.good(
        0,
        &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 5 NODE {dead}"),
    );
    stage.run(50);
    assert_eq!(
        field(&mut stage, 0, "message"),
        "Unable to connect to target node: Connection refused"
    );
    let hung = stage.id(2);
    stage.signal(2, Signal::Stop);
    stage.good(
        0,
        &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 5 NODE {hung}"),
    );
    let took = stage.until(70_000, "timed out", |stage| state(stage, 0) == "failed");
    assert!((60_000..63_000).contains(&took), "{took}");
    assert_eq!(
        field(&mut stage, 0, "message"),
        "Timed out after too long with no interaction"
    );
}

/// Claims 2: without its last slot a primary stays one, unless replica migration is on.
#[test]
fn a_drained_primary_stays_or_follows() {
    for follows in [false, true] {
        let mut stage = Stage::cluster(3, 1);
        let word = if follows { "yes" } else { "no" };
        for index in 0..6 {
            stage.good(
                index,
                &format!("CONFIG SET cluster-allow-replica-migration {word}"),
            );
        }
        stage.fill(&[0, 1, 2], 100);
        let target = stage.id(1);
        stage.good(
            2,
            &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 10922 16383 NODE {target}"),
        );
        stage.until(2000, "moved", |stage| !stage.owns(2));
        stage.run(3000);
        let expected = follows.then_some(target);
        assert_eq!(stage.truth(2).replicates, expected);
        if follows {
            assert_eq!(stage.truth(5).replicates, expected);
            stage.until(9000, "synced", |stage| {
                stage.is_linked(2) && stage.is_linked(5)
            });
            assert_eq!(stage.truth(2).keys, stage.truth(1).keys);
        } else {
            assert!(stage.truth(2).keys.is_empty());
            assert_eq!(stage.field(2, "cluster_size"), "2");
            assert_eq!(stage.field(2, "cluster_state"), "ok");
        }
    }
}

/// Facts 1.3: FLUSHALL on either end.
#[test]
fn a_flush_fails_a_migration() {
    let mut stage = Stage::cluster(3, 1);
    let process = stage.nodes[0];
    stage
        .net
        .switches(stage.now, process)
        .unwrap()
        .migration_held = true;
    let target = stage.id(1);
    stage.good(
        0,
        &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 2500 NODE {target}"),
    );
    stage.until(1000, "held", |stage| state(stage, 0) == "waiting-to-pause");
    stage.good(1, "FLUSHALL");
    stage.run(50);
    assert_eq!(field(&mut stage, 1, "message"), "Data was flushed");
    assert_eq!(state(&mut stage, 0), "failed");
}

/// Writes during a migration reach the target.
#[test]
fn live_writes_follow() {
    let mut stage = Stage::cluster(3, 1);
    let process = stage.nodes[2];
    stage
        .net
        .switches(stage.now, process)
        .unwrap()
        .migration_held = true;
    let target = stage.id(0);
    stage.good(2, "SET foo old");
    stage.good(
        2,
        &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 12000 12500 NODE {target}"),
    );
    stage.run(4);
    stage.good(2, "SET foo new");
    stage.good(2, "SET {foo}gone x");
    stage.until(1000, "held", |stage| state(stage, 2) == "waiting-to-pause");
    stage.ask(2, "DEL {foo}gone");
    stage.good(2, "SET {foo}late 1");
    stage
        .net
        .switches(stage.now, process)
        .unwrap()
        .migration_held = false;
    stage.until(1000, "success", |stage| state(stage, 2) == "success");
    assert_eq!(stage.ask(0, "GET foo"), Value::bulk("new"));
    assert_eq!(stage.ask(0, "GET {foo}late"), Value::bulk("1"));
    assert_eq!(stage.ask(0, "GET {foo}gone"), Value::Nil);
    assert_eq!(
        stage.ask(2, "GET foo"),
        Value::error("MOVED 12182 10.0.0.1:6379")
    );
}
