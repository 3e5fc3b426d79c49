//! Machines that cannot hear each other, and machines that are emptied, under a cluster with keys and writers.
//! Never expects the operator to mend a wire: it has to leave alone what it cannot judge, and to finish afterwards.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use crate::all;
use crate::checker::evidence;
use crate::checker::evidence::Hits;
use crate::living::Living;
use crate::slow;
use crate::testbed::network::Cut;
use crate::testbed::network::Direction;
use crate::world::Wanted;
use crate::world::World;

/// Three times what Valkey needs to call a node failed.
const CUT: Duration = Duration::from_secs(15);

/// Between two looks that the operator is made to take.
const LOOK: Duration = Duration::from_millis(500);

/// So often it must have looked while something was cut.
const LOOKS_MIN: usize = 2;

const BUS: u16 = 16_379;
const CLIENT: u16 = 6379;

/// What cannot be taken back.
const DESTRUCTIVE: [&str; 6] = [
    "node deleted",
    "dead member forgotten",
    "shard lost, its slots start empty",
    "no quorum — issued TAKEOVER on replica",
    "issued FAILOVER FORCE on replica",
    "surviving process reset",
];

const WANTED: Wanted<'_> = Wanted {
    namespace: "machines",
    name: "c",
    shards: 3,
    replicas: 1,
};

/// What is lost between the pods of two machines, as the first of them sees it.
struct Partition {
    name: &'static str,
    fault: &'static str,
    direction: Direction,
    port: Option<u16>,
    /// Only with `ALL=1`.
    thorough: bool,
}

const PARTITIONS: &[Partition] = &[
    Partition {
        name: "two machines apart",
        fault: "F05",
        direction: Direction::Both,
        port: None,
        thorough: false,
    },
    Partition {
        name: "one machine that is not heard",
        fault: "F06",
        direction: Direction::Out,
        port: None,
        thorough: false,
    },
    Partition {
        name: "one machine that hears nothing",
        fault: "F06",
        direction: Direction::In,
        port: None,
        thorough: true,
    },
    Partition {
        name: "two machines without a bus",
        fault: "F06",
        direction: Direction::Both,
        port: Some(BUS),
        thorough: true,
    },
];

#[test]
fn a_cluster_outlives_its_wires_and_its_machines() {
    if !slow("a_cluster_outlives_its_wires_and_its_machines") {
        return;
    }
    let world = World::up();
    let office = office(&world);
    world.stage.kubectl(["cordon", &office]);
    let mut living = Living::born(&world, &WANTED);
    let machines = machines(&living);
    assert_eq!(machines.len(), 2, "{machines:?}");

    blind_operator(&mut living, &office);
    for partition in PARTITIONS.iter().filter(|it| all() || !it.thorough) {
        partition.strike(&mut living, &machines);
    }

    world.stage.kubectl(["uncordon", &office]);
    for machine in &machines {
        drain(&mut living, machine);
    }
    living.judged(world.log().expect("the log"));
}

/// Every machine of the testbed.
pub(crate) const MACHINES: [&str; 3] = ["node-1", "node-2", "node-3"];

/// A machine that can be lost without the operator.
pub(crate) fn without_operator(world: &World) -> &'static str {
    let office = office(world);
    let mut others = MACHINES.into_iter().filter(|machine| *machine != office);
    others.next().expect("the operator is on one of three")
}

/// The machine of the operator.
pub(crate) fn office(world: &World) -> String {
    let pods = world.stage.list("Pod", "valkey-operator").expect("listed");
    let place = pods.iter().find_map(|pod| pod["spec"]["nodeName"].as_str());
    place.expect("the operator runs").to_owned()
}

/// Those of the cluster's pods.
fn machines(living: &Living<'_>) -> BTreeSet<String> {
    let pods = living.formed.pods.iter();
    pods.filter_map(|pod| pod["spec"]["nodeName"].as_str())
        .map(str::to_owned)
        .collect()
}

/// F07: the operator reaches no pod, and everybody else does. It may do nothing at all to what it does not see.
fn blind_operator(living: &mut Living<'_>, office: &str) {
    let what = "an operator that reaches no pod";
    let before = said(living);
    let report = living.under_writers(what, &WANTED, |living| {
        living.watch.broken("F07", Hits::Operator);
        let cut = Cut {
            direction: Direction::Both,
            port: Some(CLIENT),
            peer: None,
        };
        let testbed = &living.world.stage.testbed;
        testbed.cut(office, &cut).expect("cut");
        keep_looking(living);
        let said = said(living).split_off(before.len());
        testbed.heal(office).expect("healed");
        assert_eq!(destructive(&said), Vec::<String>::new());
        assert!(looks(&said) >= LOOKS_MIN, "{what}: {said:?}");
    });
    assert!(report.lost.is_empty(), "{what}: {report:?}");
    assert_eq!(report.failures, 0, "{what}: {report:?}");
    assert!(living.gone(&WANTED).is_empty(), "{what}");
}

impl Partition {
    fn strike(&self, living: &mut Living<'_>, machines: &BTreeSet<String>) {
        let (here, there) = (machines.first(), machines.last());
        let (here, there) = (here.expect("a machine"), there.expect("another"));
        one_primary_on(living, there);
        let before = said(living);
        living.under_writers(self.name, &WANTED, |living| {
            living.watch.broken(self.fault, Hits::Everything);
            living.watch.cut(self.cuts(living, here, there));
            let testbed = &living.world.stage.testbed;
            for peer in addresses(living, there) {
                let cut = Cut {
                    direction: self.direction,
                    port: self.port,
                    peer: Some(peer.parse::<Ipv4Addr>().expect("an address")),
                };
                testbed.cut(here, &cut).expect("cut");
            }
            keep_looking(living);
            let noticed = suspicions(living);
            let said = said(living).split_off(before.len());
            testbed.heal(here).expect("healed");
            assert!(noticed > 0, "{}: nobody noticed", self.name);
            assert!(looks(&said) >= LOOKS_MIN, "{}: {said:?}", self.name);
            living.watch.cut(Vec::new());
            assert_eq!(destructive(&said), Vec::<String>::new(), "{}", self.name);
        });
        let gone = living.gone(&WANTED);
        assert!(gone.is_empty(), "{}: {gone:?}", self.name);
        wait_until_heard(living);
    }

    /// The same in the words of the checker.
    fn cuts(&self, living: &Living<'_>, here: &str, there: &str) -> Vec<evidence::Cut> {
        let mut cuts = Vec::new();
        for here in addresses(living, here) {
            for there in addresses(living, there) {
                let cut = |from: &String, to: &String| evidence::Cut {
                    from: from.clone(),
                    to: to.clone(),
                    client: self.port != Some(BUS),
                    bus: self.port != Some(CLIENT),
                };
                if self.direction != Direction::In {
                    cuts.push(cut(&here, &there));
                }
                if self.direction != Direction::Out {
                    cuts.push(cut(&there, &here));
                }
            }
        }
        cuts
    }
}

/// Lets replicas and primaries change places until one primary is on this machine, and two are on the other.
fn one_primary_on(living: &mut Living<'_>, machine: &str) {
    let here = addresses(living, machine);
    for _ in 0..WANTED.shards {
        let members = living.formed.members.iter();
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for primary in members.filter(|member| member.is_primary()) {
            let side = if here.contains(&primary.ip) {
                &mut near
            } else {
                &mut far
            };
            side.push(primary.shard);
        }
        let shard = match near.len() {
            0 => far.first(),
            1 => return,
            _ => near.first(),
        };
        let shard = *shard.expect("three primaries");
        let mut members = living.formed.members.iter();
        let replica = members.find(|member| member.shard == shard && !member.is_primary());
        let replica = replica.expect("a replica").ip.clone();
        living.watch.broken("F24", Hits::Everything);
        let told = living.world.ask(&replica, "CLUSTER FAILOVER\n");
        assert_eq!(told.expect("answered").trim(), "OK");
        living
            .world
            .until("they change places", WANTED.namespace, || {
                let told = living.world.ask(&replica, "ROLE\n")?;
                if told.starts_with("master") {
                    Ok(())
                } else {
                    Err(told)
                }
            });
        living.formed = living.world.wait_until_formed(&WANTED);
    }
}

/// Links that were cut without being closed carry nothing for some seconds more: what was lost is sent again ever later.
fn wait_until_heard(living: &Living<'_>) {
    let members = living.formed.members.iter();
    for primary in members.filter(|member| member.is_primary()) {
        let what = format!("{} hears its replica", primary.ip);
        living.world.until(&what, WANTED.namespace, || {
            let told = living.world.ask(&primary.ip, "INFO replication\n")?;
            let heard = ["lag=0,", "lag=1,"].iter().any(|lag| told.contains(lag));
            if heard { Ok(()) } else { Err(told) }
        });
    }
}

/// For as long as the cut lasts the operator is made to look again and again: left alone it looks twice a minute.
fn keep_looking(living: &Living<'_>) {
    let begun = Instant::now();
    for number in 0.. {
        if begun.elapsed() > CUT {
            break;
        }
        let seen = format!("seen={number}");
        let (namespace, name) = (WANTED.namespace, WANTED.name);
        living.world.stage.kubectl([
            "annotate",
            "--overwrite",
            "--namespace",
            namespace,
            "valkeycluster",
            name,
            &seen,
        ]);
        thread::sleep(LOOK);
    }
}

fn looks(said: &[(String, String)]) -> usize {
    let looks = said.iter().filter(|(message, _)| message == "active tick");
    looks.count()
}

/// How many rows of all tables are of a member that is held to have failed, or perhaps to have.
fn suspicions(living: &Living<'_>) -> usize {
    let members = living.formed.members.iter();
    let tables = members.map(|member| {
        let told = living.world.ask(&member.ip, "CLUSTER NODES\n");
        told.expect("answered").matches("fail").count()
    });
    tables.sum()
}

/// The addresses of the cluster's pods on a machine.
fn addresses(living: &Living<'_>, machine: &str) -> Vec<String> {
    let pods = living.formed.pods.iter();
    let here = pods.filter(|pod| pod["spec"]["nodeName"] == *machine);
    here.filter_map(|pod| pod["status"]["podIP"].as_str())
        .map(str::to_owned)
        .collect()
}

/// A machine is emptied as for its upgrade, and comes back.
fn drain(living: &mut Living<'_>, machine: &str) {
    let what = format!("drain of {machine}");
    let report = living.under_writers(&what, &WANTED, |living| {
        living.world.drain(machine);
    });
    assert!(!machines(living).contains(machine), "{what}");
    assert!(report.lost.is_empty(), "{what}: {report:?}");
    let gone = living.gone(&WANTED);
    assert!(gone.is_empty(), "{what}: {gone:?}");
    living.world.stage.kubectl(["uncordon", machine]);
}

fn said(living: &Living<'_>) -> Vec<(String, String)> {
    let said = living.world.said_of(WANTED.namespace, WANTED.name);
    said.expect("the log")
}

fn destructive(said: &[(String, String)]) -> Vec<String> {
    let done = said
        .iter()
        .filter(|(message, _)| DESTRUCTIVE.contains(&message.as_str()));
    done.map(|(message, because)| format!("{message}: {because}"))
        .collect()
}
