//! What is so, whoever can see it.
//! Never changes anything.

use super::KnownTruth;
use super::Life;
use super::ProcessTruth;
use super::ReplicationTruth;
use super::Truth;
use super::network::Network;
use super::process::Process;
use super::table::Row;

/// The whole truth.
pub(super) fn truth(net: &Network, processes: &[Process]) -> Truth {
    let mut truth = without_tables(net, processes);
    for (told, process) in truth.processes.iter_mut().zip(processes) {
        told.known = process.table.others.values().map(known).collect();
    }
    truth
}

/// What is so of each process, and not what it believes of the others.
pub(super) fn without_tables(net: &Network, processes: &[Process]) -> Truth {
    Truth {
        processes: processes
            .iter()
            .map(|process| of(net, process, processes))
            .collect(),
    }
}

fn of(net: &Network, process: &Process, all: &[Process]) -> ProcessTruth {
    let me = &process.table.me;
    let replication = &process.replication;
    let primary = me.is_primary();
    ProcessTruth {
        id: process.id,
        ip: process.ip,
        life: process.life,
        node_id: me.id.to_string(),
        shard_id: me.shard.to_string(),
        replicates: me.primary.map(|id| id.to_string()),
        slots: me.ranges().to_vec(),
        writable: process.life == Life::Running
            && primary
            && process.table.ok
            && !process.pause.is_on(process.clock(net)),
        cluster_ok: process.table.ok,
        config_epoch: process.table.epoch_of(me),
        current_epoch: process.table.current_epoch,
        known: Vec::new(),
        replication: ReplicationTruth {
            history: replication.history.to_string(),
            offset: replication.offset,
            linked: primary || replication.is_linked(),
            synced: primary || replication.is_synced(),
            replicas: replication
                .online()
                .filter_map(|id| {
                    let holder = |it: &&Process| it.table.me.id == id && it.life != Life::Exited;
                    all.iter().find(holder).map(|process| process.id)
                })
                .collect(),
        },
        keys: process.data.counts(),
        migrating: process
            .jobs
            .iter()
            .filter_map(|job| job.open_ranges().cloned())
            .collect(),
    }
}

fn known(row: &Row) -> KnownTruth {
    KnownTruth {
        id: row.id.to_string(),
        ip: row.ip,
        flags: row.flag_words(),
        replicates: row.primary.map(|id| id.to_string()),
        slots: row.ranges().to_vec(),
    }
}
