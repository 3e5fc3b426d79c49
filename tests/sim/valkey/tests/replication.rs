//! Links, syncs, offsets and what is lost with a process.

use super::super::Answer;
use super::super::Signal;
use super::super::Told;
use super::super::Value;
use super::stage::CONF;
use super::stage::Stage;
use super::stage::value;

fn pair(conf: &str) -> Stage {
    let mut stage = Stage::empty();
    stage.start(conf);
    stage.start(conf);
    stage.good(0, "CLUSTER MEET 10.0.0.2 6379");
    stage.good(0, "CLUSTER ADDSLOTSRANGE 0 16383");
    stage.all_meet();
    stage.until(10_000, "ok", |stage| {
        stage.field(0, "cluster_state") == "ok"
    });
    stage
}

/// Facts 3.2: what a replica tells before, during and after its first sync.
#[test]
fn a_first_sync_is_told_step_by_step() {
    let mut stage = pair(&format!("{CONF}repl-diskless-sync-delay 5\n"));
    stage.fill(&[0], 100);
    let primary = stage.id(0);
    stage.good(1, &format!("CLUSTER REPLICATE {primary}"));
    stage.run(100);
    let info = stage.text(1, "INFO replication");
    assert!(info.starts_with(
        "# Replication\r\nrole:slave\r\nmaster_host:10.0.0.1\r\nmaster_port:6379\r\n\
         master_link_status:down\r\nmaster_last_io_seconds_ago:-1\r\nmaster_sync_in_progress:0\r\n\
         slave_read_repl_offset:1\r\nslave_repl_offset:1\r\n"
    ));
    assert!(info.contains("master_link_down_since_seconds:-1\r\n"));
    assert_eq!(value(&info, "master_repl_offset"), "0");
    let line = stage.repl(0, "slave0");
    assert!(
        line.starts_with("ip=10.0.0.2,port=6379,state=wait_bgsave,offset=0,lag=0,type=replica")
    );
    assert!(!stage.truth(1).replication.synced);
    let took = stage.until(8000, "linked", |stage| stage.is_linked(1));
    assert!((4500..6500).contains(&took), "{took}");
    assert_eq!(stage.ask(1, "DBSIZE"), Value::Integer(100));
    assert!(stage.truth(1).replication.synced);
    stage.run(2000);
    assert_eq!(
        stage.repl(1, "master_repl_offset"),
        stage.repl(0, "master_repl_offset")
    );
    assert_eq!(
        stage.repl(1, "master_replid"),
        stage.repl(0, "master_replid")
    );
}

/// The stream has the bytes of the real one: PING 14, SELECT 23, `SET a b` 27.
#[test]
fn offsets_are_bytes() {
    let mut stage = pair(CONF);
    let primary = stage.id(0);
    stage.good(1, &format!("CLUSTER REPLICATE {primary}"));
    stage.until(3000, "linked", |stage| stage.is_linked(1));
    stage.run(100);
    assert_eq!(stage.repl(0, "master_repl_offset"), "14");
    stage.good(0, "SET a b");
    assert_eq!(stage.repl(0, "master_repl_offset"), "64");
    stage.run(10);
    assert_eq!(stage.repl(1, "slave_repl_offset"), "64");
    let info = stage.text(0, "INFO replication");
    assert!(info.contains(
        "repl_backlog_active:1\r\nrepl_backlog_size:10485760\r\nrepl_backlog_first_byte_offset:1\r\n\
         repl_backlog_histlen:64\r\n"
    ));
}

#[test]
fn a_write_without_replicas_counts_one() {
    let mut stage = pair(CONF);
    stage.good(0, "SET a b");
    stage.good(0, "SET a c");
    assert_eq!(stage.repl(0, "master_repl_offset"), "2");
}

#[test]
fn wait_counts_who_has_it() {
    let mut stage = pair(CONF);
    let primary = stage.id(0);
    stage.good(1, &format!("CLUSTER REPLICATE {primary}"));
    stage.until(3000, "linked", |stage| stage.is_linked(1));
    stage.good(0, "SET a b");
    assert_eq!(stage.send(0, "WAIT 1 1000"), Answer::Later);
    stage.run(20);
    let told: Vec<Told> = stage.answers().into_iter().map(|(_, told)| told).collect();
    assert_eq!(told, [Told::Reply(Value::Integer(1))]);
    stage.signal(1, Signal::Stop);
    stage.good(0, "SET a c");
    assert_eq!(stage.send(0, "WAIT 1 300"), Answer::Later);
    stage.run(299);
    assert!(stage.answers().is_empty());
    stage.run(2);
    let told: Vec<Told> = stage.answers().into_iter().map(|(_, told)| told).collect();
    assert_eq!(told, [Told::Reply(Value::Integer(0))]);
}

#[test]
fn a_broken_link_goes_on_where_it_was() {
    let mut stage = pair(CONF);
    let primary = stage.id(0);
    stage.good(1, &format!("CLUSTER REPLICATE {primary}"));
    stage.until(3000, "linked", |stage| stage.is_linked(1));
    let history = stage.repl(1, "master_replid");
    let replica = stage.nodes[1];
    stage.net.break_replication(stage.now, replica);
    assert!(!stage.is_linked(1));
    stage.good(0, "SET a b");
    stage.until(100, "linked again", |stage| stage.is_linked(1));
    assert_eq!(stage.repl(1, "master_replid"), history);
    stage.run(10);
    assert_eq!(stage.truth(1).keys.len(), 1);
}

#[test]
fn a_replica_without_the_password_stays_unlinked() {
    let mut stage = pair(CONF);
    let primary = stage.id(0);
    stage.good(1, "CONFIG SET primaryuser nobody primaryauth wrong");
    stage.good(1, &format!("CLUSTER REPLICATE {primary}"));
    stage.run(5000);
    assert!(!stage.is_linked(1));
    stage.good(1, "CONFIG SET primaryauth \"\"");
    stage.good(1, "CONFIG SET primaryauth ");
    stage.until(3000, "linked", |stage| stage.is_linked(1));
}

#[test]
fn slow_and_endless_syncs() {
    let mut stage = pair(CONF);
    let primary = stage.id(0);
    let replica = stage.nodes[1];
    stage.net.switches(stage.now, replica).unwrap().sync_extra = 3000;
    stage.good(1, &format!("CLUSTER REPLICATE {primary}"));
    stage.run(1000);
    assert_eq!(stage.repl(1, "master_sync_in_progress"), "1");
    let took = stage.until(5000, "linked", |stage| stage.is_linked(1));
    assert!((1900..2300).contains(&took), "{took}");
    let other = stage.start(CONF);
    stage.good(0, "CLUSTER MEET 10.0.0.3 6379");
    stage.all_meet();
    let process = stage.nodes[other];
    stage.net.switches(stage.now, process).unwrap().sync_endless = true;
    stage.good(other, &format!("CLUSTER REPLICATE {primary}"));
    stage.run(120_000);
    assert!(!stage.is_linked(other));
    assert!(!stage.truth(other).replication.synced);
}

/// Facts 7: a primary that is back within the node timeout without its data empties its replicas.
#[test]
fn a_primary_that_restarts_at_once_loses_all() {
    let mut stage = Stage::cluster(3, 1);
    stage.fill(&[0, 1, 2], 60);
    let conf = stage.net.nodes_conf(stage.nodes[0]);
    let id = stage.id(0);
    stage.signal(0, Signal::Kill);
    stage.run(500);
    let ip = stage.ip(0);
    let again = stage.start_at(ip, CONF, conf);
    assert_eq!(stage.id(again), id);
    stage.until(10_000, "linked", |stage| stage.is_linked(3));
    stage.run(5000);
    assert!(stage.truth(3).keys.is_empty());
    assert!(stage.truth(again).keys.is_empty());
    assert_eq!(stage.field(1, "cluster_state"), "ok");
}
