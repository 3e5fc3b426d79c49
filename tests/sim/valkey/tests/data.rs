//! Keys: who takes them, where clients are sent, who sees them.

use super::super::Answer;
use super::super::Dial;
use super::super::Peer;
use super::super::Signal;
use super::super::Told;
use super::super::Value;
use super::stage::Stage;

#[test]
fn keys_are_taken_by_their_owner_only() {
    let mut stage = Stage::cluster(3, 1);
    // `foo` has slot 12182.
    assert_eq!(
        stage.ask(0, "SET foo bar"),
        Value::error("MOVED 12182 10.0.0.3:6379")
    );
    stage.good(2, "SET foo bar");
    assert_eq!(stage.ask(2, "GET foo"), Value::bulk("bar"));
    assert_eq!(stage.ask(2, "GET {foo}none"), Value::Nil);
    assert_eq!(stage.ask(2, "INCR {foo}n"), Value::Integer(1));
    assert_eq!(stage.ask(2, "INCR {foo}n"), Value::Integer(2));
    assert_eq!(
        stage.ask(2, "INCR foo"),
        Value::error("ERR value is not an integer or out of range")
    );
    assert_eq!(stage.ask(2, "DEL foo {foo}n {foo}none"), Value::Integer(2));
    assert_eq!(
        stage.ask(2, "DEL foo bar"),
        Value::error("CROSSSLOT Keys in request don't hash to the same slot")
    );
    assert_eq!(stage.ask(2, "DBSIZE"), Value::Integer(0));
    assert_eq!(stage.ask(0, "CLUSTER KEYSLOT foo"), Value::Integer(12182));
}

#[test]
fn replicas_read_for_who_asks_for_it() {
    let mut stage = Stage::cluster(3, 1);
    stage.good(2, "SET foo bar");
    stage.run(10);
    assert_eq!(
        stage.ask(5, "GET foo"),
        Value::error("MOVED 12182 10.0.0.3:6379")
    );
    stage.good(5, "READONLY");
    assert_eq!(stage.ask(5, "GET foo"), Value::bulk("bar"));
    assert_eq!(
        stage.ask(5, "SET foo x"),
        Value::error("MOVED 12182 10.0.0.3:6379")
    );
    assert_eq!(
        stage.ask(5, "FLUSHALL"),
        Value::error("READONLY You can't write against a read only replica.")
    );
    assert_eq!(
        stage.ask(5, "WAIT 1 10"),
        Value::error(
            "ERR WAIT cannot be used with replica instances. Please also note that if a replica is \
             configured to be writable (which is not the default) writes to replicas are just local \
             and are not propagated."
        )
    );
    stage.good(2, "FLUSHALL");
    stage.run(10);
    assert!(stage.truth(5).keys.is_empty());
}

#[test]
fn a_cluster_that_is_down_takes_nothing() {
    let mut stage = Stage::strangers(1);
    assert_eq!(
        stage.ask(0, "SET foo bar"),
        Value::error("CLUSTERDOWN Hash slot not served")
    );
    stage.good(0, "CLUSTER ADDSLOTSRANGE 0 16382");
    stage.run(6000);
    assert_eq!(
        stage.ask(0, "SET foo bar"),
        Value::error("CLUSTERDOWN The cluster is down")
    );
    stage.good(0, "CONFIG SET cluster-require-full-coverage no");
    stage.until(6000, "ok", |stage| stage.field(0, "cluster_state") == "ok");
    stage.good(0, "SET foo bar");
}

#[test]
fn commands_of_a_hung_process_are_kept_by_its_kernel() {
    let mut stage = Stage::cluster(3, 1);
    stage.signal(2, Signal::Stop);
    let ip = stage.ip(2);
    let Dial::Open(other) = stage.net.connect(stage.now, Peer::Client(1), ip, 6379) else {
        panic!("its kernel accepts");
    };
    assert_eq!(stage.send_on(other, "SET foo 1"), Answer::Later);
    assert_eq!(stage.send_on(other, "GET foo"), Answer::Later);
    stage.run(2000);
    assert!(stage.answers().is_empty());
    stage.signal(2, Signal::Continue);
    let told = stage.answers();
    let ok = Told::Reply(Value::ok());
    let one = Told::Reply(Value::bulk("1"));
    assert_eq!(told, [(other, ok), (other, one)]);
    stage.signal(2, Signal::Stop);
    assert_eq!(stage.send_on(other, "GET foo"), Answer::Later);
    stage.signal(2, Signal::Kill);
    assert!(stage.answers().contains(&(other, Told::Closed)));
    assert_eq!(stage.send_on(other, "GET foo"), Answer::Closed);
    let refused = stage.net.connect(stage.now, Peer::Client(1), ip, 6379);
    assert_eq!(refused, Dial::Refused);
}

/// Facts 3.1: writes wait while a failover by hand is under way, and are sent on to the new primary.
#[test]
fn writes_wait_for_a_planned_failover() {
    let mut stage = Stage::cluster(3, 1);
    stage.good(5, "CLUSTER FAILOVER");
    stage.run(2);
    assert_eq!(stage.send(2, "SET foo bar"), Answer::Later);
    let ip = stage.ip(2);
    let Dial::Open(other) = stage.net.connect(stage.now, Peer::Client(1), ip, 6379) else {
        panic!();
    };
    assert_eq!(stage.send_on(other, "GET foo"), Answer::Reply(Value::Nil));
    // Also between the new primary's election and the word of it.
    stage.until(1000, "promoted", |stage| {
        let (old, new) = (stage.truth(2), stage.truth(5));
        assert!(!old.writable, "{old:?}");
        new.writable
    });
    stage.run(100);
    let told: Vec<Told> = stage.answers().into_iter().map(|(_, told)| told).collect();
    assert_eq!(
        told,
        [Told::Reply(Value::error("MOVED 12182 10.0.0.6:6379"))]
    );
}

#[test]
fn limits_of_memory_disk_and_replicas_are_told() {
    let mut stage = Stage::strangers(1);
    stage.good(0, "CLUSTER ADDSLOTSRANGE 0 16383");
    stage.until(8000, "ok", |stage| stage.field(0, "cluster_state") == "ok");
    stage.good(0, "CONFIG SET maxmemory 100");
    stage.good(0, "SET a 1");
    stage.good(0, "SET b 1");
    assert_eq!(
        stage.ask(0, "SET c 1"),
        Value::error("OOM command not allowed when used memory > 'maxmemory'.")
    );
    stage.good(0, "CONFIG SET maxmemory 0 min-replicas-to-write 1");
    assert_eq!(
        stage.ask(0, "SET c 1"),
        Value::error("NOREPLICAS Not enough good replicas to write.")
    );
    stage.good(0, "CONFIG SET min-replicas-to-write 0");
    let process = stage.nodes[0];
    stage.net.switches(stage.now, process).unwrap().disk_full = true;
    stage.good(0, "SET c 1");
    let args = ["CONFIG", "SET", "save", "900 1"].map(|word| word.as_bytes().to_vec());
    let connection = stage.connection(0);
    let set = stage.net.command(stage.now, connection, &args);
    assert_eq!(set, Answer::Reply(Value::ok()));
    for words in ["SET c 1", "PING"] {
        let said = stage.text(0, words);
        assert!(
            said.starts_with("MISCONF Valkey is configured to save RDB"),
            "{said}"
        );
    }
    stage.net.switches(stage.now, process).unwrap().disk_full = false;
    stage
        .net
        .switches(stage.now, process)
        .unwrap()
        .out_of_memory = true;
    assert_eq!(stage.send(0, "SET c 1"), Answer::Later);
    assert_eq!(stage.net.exit(process).unwrap().code, 137);
}

/// Facts 2.6: the tables that clients read.
#[test]
fn slots_and_shards_are_tables() {
    let mut stage = Stage::cluster(3, 1);
    stage.run(2000);
    let Value::Array(slots) = stage.ask(0, "CLUSTER SLOTS") else {
        panic!();
    };
    let node = |stage: &mut Stage, index: usize| {
        Value::Array(vec![
            Value::bulk(stage.ip(index).to_string()),
            Value::Integer(6379),
            Value::bulk(stage.id(index)),
            Value::Array(Vec::new()),
        ])
    };
    let first = Value::Array(vec![
        Value::Integer(0),
        Value::Integer(5460),
        node(&mut stage, 0),
        node(&mut stage, 3),
    ]);
    assert_eq!(slots.len(), 3);
    assert_eq!(slots[0], first);
    let Value::Array(shards) = stage.ask(0, "CLUSTER SHARDS") else {
        panic!();
    };
    assert_eq!(shards.len(), 3);
    let text = format!("{shards:?}");
    assert!(
        text.contains("\"role\", \"replica\", \"replication-offset\", :"),
        "{text}"
    );
    assert!(text.contains("\"health\", \"online\""), "{text}");
    let Value::Array(links) = stage.ask(0, "CLUSTER LINKS") else {
        panic!();
    };
    assert_eq!(links.len(), 10);
}
