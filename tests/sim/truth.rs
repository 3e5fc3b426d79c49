//! What the checker is told: the world as it is, in the checker's words.
//! Never what an operator believes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::checker::evidence::{
    Actor, Command, Cut, Export, Life, Name, Object, Outcome, Process, Role, Row, Verb, Write,
};
use crate::checker::slots::Slots;
use crate::kube::api::AuditRecord;
use crate::kube::faults;
use crate::kube::kinds::Kind;
use crate::kube::writes::Part;
use crate::valkey::{self, KnownTruth, ProcessTruth};
use crate::world::World;

pub(crate) use crate::checker::evidence::Snapshot;

/// Who wrote.
pub(crate) fn actor(caller: faults::Caller) -> Actor {
    match caller {
        faults::Caller::Operator(number) => Actor::Operator(number),
        faults::Caller::Hand => Actor::User,
        faults::Caller::Kubelet | faults::Caller::Scheduler | faults::Caller::Controllers => {
            Actor::Machinery
        }
    }
}

/// A write as the API server's audit has it.
pub(crate) fn write(record: AuditRecord) -> Write {
    let verb = match record.verb {
        faults::Verb::Create => Verb::Create,
        faults::Verb::Update => Verb::Update,
        faults::Verb::Delete => Verb::Delete,
        faults::Verb::Get
        | faults::Verb::List
        | faults::Verb::Watch
        | faults::Verb::Patch
        | faults::Verb::Apply => Verb::Patch,
    };
    let outcome = match record.code {
        0 => Outcome::Unanswered {
            done: record.applied,
        },
        code if code >= 300 && record.applied => Outcome::Unanswered { done: true },
        code if code >= 300 => Outcome::Refused(format!("{code} {}", record.reason)),
        _ => Outcome::Done,
    };
    Write {
        verb,
        kind: record.key.kind.facts().name.to_owned(),
        name: Name::new(&record.key.namespace, &record.key.name),
        subresource: if record.part == Part::Status {
            "status"
        } else {
            ""
        }
        .to_owned(),
        before: record.before,
        after: record.after,
        outcome,
    }
}

/// A command on its way; what comes of it is not known yet.
pub(crate) fn command(truth: &Snapshot, to: IpAddr, words: &[Vec<u8>]) -> Command {
    let ip = to.to_string();
    // An address may have passed to a later one.
    let mut there = truth.processes.iter().rev();
    let process = there.find(|process| process.ip == ip && process.life != Life::Ended);
    Command {
        pod: process.map(|process| process.pod.clone()),
        id: process.map(|process| process.id.clone()),
        ip,
        words: words
            .iter()
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect(),
        outcome: Outcome::Unanswered { done: false },
    }
}

/// The whole truth of now, and what became of every acknowledged write.
pub(crate) fn with_ledger(world: &mut World) -> Arc<Snapshot> {
    let now = world.now();
    let mut snapshot = Snapshot::clone(&snapshot(world));
    let truth = world.own_truth();
    snapshot.ledger = Some(world.ledger.read(&mut world.net, now, &truth));
    Arc::new(snapshot)
}

/// The whole truth of now, the clients left out.
pub(crate) fn snapshot(world: &mut World) -> Arc<Snapshot> {
    let now = world.now();
    let truth = world.net.truth(now);
    let pods: BTreeMap<_, _> = world
        .pods
        .containers
        .iter()
        .filter_map(|(uid, container)| Some((container.process?, (uid, container))))
        .collect();
    let processes = truth.processes.into_iter().filter_map(|process| {
        let (uid, container) = pods.get(&process.id)?;
        let cluster = container
            .name
            .rsplit_once('-')
            .map_or("", |(cluster, _)| cluster);
        let home = Name::new(&container.namespace, cluster);
        Some(Arc::new(as_evidence(process, home, (*uid).clone())))
    });
    let objects = world.kube.api.store().all().filter_map(|(key, body)| {
        let watched = match key.kind {
            Kind::Namespace | Kind::Node | Kind::Event => false,
            Kind::ValkeyConfig
            | Kind::ValkeyImage
            | Kind::ValkeyRole
            | Kind::ConfigMap
            | Kind::Pod
            | Kind::Secret
            | Kind::Service
            | Kind::ValkeyCluster
            | Kind::ValkeyNode => true,
        };
        watched.then(|| {
            Arc::new(Object {
                kind: key.kind.facts().name.to_owned(),
                name: Name::new(&key.namespace, &key.name),
                body: body.clone(),
            })
        })
    });
    Arc::new(Snapshot {
        objects: objects.collect(),
        processes: processes.collect(),
        cuts: cuts(world),
        ledger: None,
        pieced: false,
    })
}

fn cuts(world: &World) -> Vec<Cut> {
    let name = |peer: valkey::Peer| match peer {
        valkey::Peer::Operator => "operator".to_owned(),
        valkey::Peer::Client(number) => format!("client {number}"),
        valkey::Peer::Pod(ip) => ip.to_string(),
    };
    let cuts = world.net.cuts().map(|path| Cut {
        from: name(path.from),
        to: name(path.to),
        client: path.port == valkey::Port::Client,
        bus: path.port == valkey::Port::Bus,
    });
    cuts.collect()
}

fn as_evidence(truth: ProcessTruth, home: Name, pod: String) -> Process {
    let slots = Slots::of(truth.slots.iter().copied());
    let role = match &truth.replicates {
        None => Role::Primary,
        Some(of) => Role::Replica {
            of: of.clone(),
            linked: truth.replication.linked,
            synced: truth.replication.synced,
        },
    };
    let own = Row {
        id: truth.node_id.clone(),
        ip: truth.ip.to_string(),
        connected: true,
        primary: truth.replicates.clone(),
        epoch: truth.config_epoch,
        slots: slots.clone(),
        ..Row::default()
    };
    Process {
        home,
        pod,
        ip: truth.ip.to_string(),
        life: match truth.life {
            valkey::Life::Running => Life::Alive,
            valkey::Life::Stopped => Life::Hung,
            valkey::Life::Exited => Life::Ended,
        },
        id: truth.node_id,
        role,
        accepts: if truth.writable {
            slots
        } else {
            Slots::default()
        },
        state_ok: truth.cluster_ok,
        table: std::iter::once(own)
            .chain(truth.known.iter().map(row))
            .collect(),
        offset: truth.replication.offset,
        epoch: truth.current_epoch,
        keyed: Slots::of(truth.keys.keys().map(|slot| (*slot, *slot))),
        exports: truth
            .migrating
            .iter()
            .map(|slots| Export {
                target: String::new(),
                slots: Slots::of(slots.iter().copied()),
            })
            .collect(),
        settings: None,
    }
}

fn row(known: &KnownTruth) -> Row {
    let has = |flag: &str| known.flags.split(',').any(|one| one == flag);
    Row {
        id: known.id.clone(),
        ip: known.ip.map(|ip| ip.to_string()).unwrap_or_default(),
        suspected: has("fail?"),
        failed: has("fail"),
        handshake: has("handshake"),
        connected: true,
        primary: known.replicates.clone(),
        epoch: 0,
        slots: Slots::of(known.slots.iter().copied()),
    }
}
