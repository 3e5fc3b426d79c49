//! Every trouble that a running cluster can have, one after the other, on keys and under writers: ALL=1, TROUBLE=name
//! for some of them.
//! Never ends a trouble before the cluster is whole again, and never with a hand on a pod that the operator should have
//! replaced.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use serde_json::json;

use crate::all;
use crate::checker::evidence::Hits;
use crate::living::Living;
use crate::living::config;
use crate::living::manifest;
use crate::machines;
use crate::slow;
use crate::stage::say;
use crate::testbed::control::Part;
use crate::testbed::image;
use crate::testbed::machine::Signal;
use crate::testbed::pod::PodName;
use crate::world::Formed;
use crate::world::Member;
use crate::world::Wanted;
use crate::world::World;
use crate::world::menu;

const WANTED: Wanted<'_> = Wanted {
    namespace: "troubles",
    name: "c",
    shards: 3,
    replicas: 1,
};

/// An API server that is away for so long is away for more than one tick.
const AWAY: Duration = Duration::from_secs(20);

/// `CLUSTER_BLACKLIST_TTL`, and a heartbeat.
const BAN: Duration = Duration::from_secs(62);

/// So much is lost where packets are lost at all, and for so long.
const LOSS_ONE_IN: u16 = 10;
const LOSSY: Duration = Duration::from_secs(30);

/// Longer than `cluster-node-timeout`.
const JUMP: Duration = Duration::from_secs(8);

/// What may be gone when it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Costs {
    /// No acknowledged write, for nothing died.
    Nothing,
    /// What a primary had acknowledged and its replica did not have yet.
    Lag,
    /// The keys of one shard, of which every copy was struck.
    Shard,
}

struct Trouble {
    fault: &'static str,
    name: &'static str,
    costs: Costs,
    strike: fn(&Living<'_>),
}

const TROUBLES: &[Trouble] = &[
    Trouble {
        fault: "F01",
        name: "a primary's pod is deleted",
        costs: Costs::Nothing,
        strike: |living| {
            replaced(living, &primary(living, 0), |pod| {
                delete(living, pod, false);
            });
        },
    },
    Trouble {
        fault: "F01",
        name: "a primary's pod is deleted by force",
        costs: Costs::Lag,
        strike: |living| replaced(living, &primary(living, 1), |pod| delete(living, pod, true)),
    },
    Trouble {
        fault: "F01",
        name: "a replica's pod is deleted",
        costs: Costs::Nothing,
        strike: |living| {
            replaced(living, &replica(living, 2), |pod| {
                delete(living, pod, false);
            });
        },
    },
    Trouble {
        fault: "F02",
        name: "a primary is told to shut down",
        costs: Costs::Lag,
        strike: |living| {
            let primary = primary(living, 2);
            replaced(living, &primary, |_| {
                // Whoever ends does not answer.
                if living.world.ask(&primary.ip, "SHUTDOWN NOSAVE\n").is_err() {}
            });
        },
    },
    Trouble {
        fault: "F03",
        name: "a primary hangs for less than Valkey's timeout",
        costs: Costs::Nothing,
        strike: |living| {
            let before = pods(living);
            hang(living, &primary(living, 0), Duration::from_secs(3));
            assert_eq!(pods(living), before, "nothing is replaced for it");
        },
    },
    Trouble {
        fault: "F03",
        name: "a primary hangs until another is elected",
        costs: Costs::Lag,
        strike: |living| hang(living, &primary(living, 1), Duration::from_secs(20)),
    },
    Trouble {
        fault: "F03",
        name: "a primary hangs until it is given up",
        costs: Costs::Lag,
        strike: |living| {
            let primary = primary(living, 2);
            replaced(living, &primary, |_| {
                hang(living, &primary, Duration::from_secs(90));
            });
        },
    },
    Trouble {
        fault: "F04",
        name: "a machine is lost and comes back",
        costs: Costs::Lag,
        strike: lose_machine,
    },
    Trouble {
        fault: "F12",
        name: "the API server is away",
        costs: Costs::Nothing,
        strike: |living| away(living, Part::ApiServer),
    },
    Trouble {
        fault: "F12",
        name: "etcd is away",
        costs: Costs::Nothing,
        strike: |living| away(living, Part::Etcd),
    },
    Trouble {
        fault: "F13",
        name: "clocks jump by an hour and back",
        costs: Costs::Nothing,
        strike: shift_clocks,
    },
    Trouble {
        fault: "F14",
        name: "a roll of slow syncs",
        costs: Costs::Nothing,
        strike: slow_roll,
    },
    Trouble {
        fault: "F15",
        name: "a primary takes more memory than it may",
        costs: Costs::Lag,
        strike: |living| {
            let primary = primary(living, 0);
            replaced(living, &primary, |_| {
                let hoard = "EVAL \"return #string.rep('x', 1073741824)\" 0\n";
                // Whoever is killed does not answer.
                if living.world.ask(&primary.ip, hoard).is_err() {}
            });
        },
    },
    Trouble {
        fault: "F28",
        name: "a machine's wire loses one packet in ten",
        costs: Costs::Nothing,
        strike: lose_packets,
    },
    Trouble {
        fault: "F19",
        name: "what the operator keeps is deleted",
        costs: Costs::Nothing,
        strike: |living| {
            let stage = &living.world.stage;
            stage.delete("Service", WANTED.namespace, "c");
            stage.delete("ConfigMap", WANTED.namespace, "c-acl");
            let replica = name(living, &replica(living, 0));
            stage.delete("ConfigMap", WANTED.namespace, &format!("{replica}-config"));
        },
    },
    Trouble {
        fault: "F19",
        name: "a primary's ValkeyNode is deleted",
        costs: Costs::Nothing,
        strike: |living| {
            replaced(living, &primary(living, 1), |pod| {
                living
                    .world
                    .stage
                    .delete("ValkeyNode", WANTED.namespace, pod);
            });
        },
    },
    Trouble {
        fault: "F21",
        name: "a scale-out is taken back while slots move",
        costs: Costs::Nothing,
        strike: |living| {
            living.world.apply_all(&[manifest(&Wanted {
                shards: 4,
                ..WANTED
            })]);
            until_said(living, "slot migration started");
            living.world.apply_all(&[manifest(&WANTED)]);
        },
    },
    Trouble {
        fault: "F21",
        name: "a roll is taken back in the middle",
        costs: Costs::Nothing,
        strike: |living| {
            config(living.world, WANTED.namespace, "12");
            until_said(living, "completed join");
            config(living.world, WANTED.namespace, "11");
            living.wait_until_rolled(WANTED.namespace, "11");
        },
    },
    Trouble {
        fault: "F21",
        name: "a roll under a disruption budget that allows none",
        costs: Costs::Nothing,
        strike: |living| {
            // The operator deletes, and budgets rule evictions alone.
            living.world.apply_all(&[json!({
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "none", "namespace": WANTED.namespace},
                "spec": {
                    "maxUnavailable": 0,
                    "selector": {"matchLabels": {"app.kubernetes.io/instance": WANTED.name}},
                },
            })]);
            config(living.world, WANTED.namespace, "14");
            living.wait_until_rolled(WANTED.namespace, "14");
            config(living.world, WANTED.namespace, "11");
            living.wait_until_rolled(WANTED.namespace, "11");
        },
    },
    Trouble {
        fault: "F22",
        name: "a pod stays Terminating on a machine that hangs",
        costs: Costs::Lag,
        strike: stay_terminating,
    },
    Trouble {
        fault: "F24",
        name: "a user lets a replica take over",
        costs: Costs::Lag,
        strike: |living| by_hand(living, &replica(living, 0), "CLUSTER FAILOVER TAKEOVER"),
    },
    Trouble {
        fault: "F24",
        name: "a user lets everybody forget a replica",
        costs: Costs::Nothing,
        strike: |living| {
            let forgotten = replica(living, 1);
            for member in &living.formed.members {
                if member.id != forgotten.id {
                    by_hand(living, member, &format!("CLUSTER FORGET {}", forgotten.id));
                }
            }
            // What one forgot it lets others forget, and for so long nobody is taken in again.
            thread::sleep(BAN);
        },
    },
    Trouble {
        fault: "F24",
        name: "a user resets a replica",
        costs: Costs::Nothing,
        strike: |living| by_hand(living, &replica(living, 2), "CLUSTER RESET HARD"),
    },
    Trouble {
        fault: "F24",
        name: "a user gives a replica to another shard",
        costs: Costs::Nothing,
        strike: |living| {
            let other = primary(living, 1).id;
            by_hand(
                living,
                &replica(living, 0),
                &format!("CLUSTER REPLICATE {other}"),
            );
        },
    },
    Trouble {
        fault: "F25",
        name: "a whole shard is killed",
        costs: Costs::Shard,
        strike: |living| {
            let (primary, replica) = (primary(living, 1), replica(living, 1));
            let testbed = &living.world.stage.testbed;
            replaced(living, &primary, |_| {
                for member in [&primary, &replica] {
                    let name = name(living, member);
                    let pod = PodName {
                        namespace: WANTED.namespace,
                        name: &name,
                    };
                    testbed
                        .pod_signal(&pod, None, Signal::Kill)
                        .expect("killed");
                }
            });
        },
    },
    Trouble {
        fault: "F26",
        name: "a setting that Valkey does not know",
        costs: Costs::Nothing,
        strike: |living| bad_spec(living, &json!({"valkey": {"no-such": "1"}})),
    },
    Trouble {
        fault: "F26",
        name: "more processors than any machine has",
        costs: Costs::Nothing,
        strike: |living| bad_spec(living, &json!({"resources": {"cpu": "1000"}})),
    },
    Trouble {
        fault: "F26",
        name: "an image that no registry has",
        costs: Costs::Nothing,
        strike: |living| {
            let spec = json!({"repository": "valkey/vakley", "tag": "9.1.2", "version": "9.1.2"});
            living
                .world
                .apply_all(&[menu("ValkeyImage", "typo", &spec)]);
            bad_spec(living, &json!({"imageRef": "typo"}));
        },
    },
    // The last one, for the machine keeps its small disk.
    Trouble {
        fault: "F16",
        name: "the disk of a machine is full",
        costs: Costs::Lag,
        strike: fill_disk,
    },
];

#[test]
fn a_living_cluster_survives_each_trouble() {
    let test = "a_living_cluster_survives_each_trouble";
    if !slow(test) {
        return;
    }
    let only = std::env::var("TROUBLE").ok();
    if !all() && only.is_none() {
        say(&format!("{test} is skipped: ALL is not 1"));
        return;
    }
    let only = only.unwrap_or_default();
    let world = World::up();
    let mut living = Living::born(&world, &WANTED);
    config(&world, WANTED.namespace, "11");
    living.wait_until_rolled(WANTED.namespace, "11");
    living.formed = world.wait_until_formed(&WANTED);
    for trouble in TROUBLES {
        let named = trouble.name.contains(&only) || trouble.fault == only;
        if named {
            trouble.come(&mut living);
        }
    }
    living.judged(world.log().expect("the log"));
}

impl Trouble {
    fn come(&self, living: &mut Living<'_>) {
        let what = format!("{}: {}", self.fault, self.name);
        let before = living.gone(&WANTED);
        let report = living.under_writers(&what, &WANTED, |living| {
            living.watch.broken(self.fault, Hits::Everything);
            (self.strike)(living);
        });
        let mut gone = living.gone(&WANTED);
        gone.retain(|shard, count| before.get(shard) != Some(count));
        match self.costs {
            Costs::Nothing => assert!(report.lost.is_empty(), "{what}: {report:?}"),
            // One writer a shard, which waits for each answer.
            Costs::Lag => assert!(report.lost.len() <= 2, "{what}: {report:?}"),
            Costs::Shard => {
                assert_eq!(gone.len(), 1, "{what}: {gone:?}");
                return;
            }
        }
        assert!(gone.is_empty(), "{what}: {gone:?}");
    }
}

fn member(living: &Living<'_>, shard: u64, primary: bool) -> Member {
    let mut members = living.formed.members.iter();
    let found = members.find(|one| one.shard == shard && one.is_primary() == primary);
    found.expect("each shard has both").clone()
}

fn primary(living: &Living<'_>, shard: u64) -> Member {
    member(living, shard, true)
}

fn replica(living: &Living<'_>, shard: u64) -> Member {
    member(living, shard, false)
}

fn name(living: &Living<'_>, member: &Member) -> String {
    let name = living.formed.pod(&member.ip)["metadata"]["name"].as_str();
    name.expect("a name").to_owned()
}

/// The names of all pods.
fn pods(living: &Living<'_>) -> BTreeSet<String> {
    let pods = living.world.pods(WANTED.namespace, WANTED.name);
    let pods = pods.expect("listed");
    let names = pods
        .iter()
        .filter_map(|pod| pod["metadata"]["name"].as_str());
    names.map(str::to_owned).collect()
}

/// Does something to a member's pod, and waits until that is gone.
fn replaced(living: &Living<'_>, member: &Member, strike: impl FnOnce(&str)) {
    let name = name(living, member);
    strike(&name);
    let what = format!("{name} is replaced");
    living.world.until(&what, WANTED.namespace, || {
        let nodes = living.world.nodes(WANTED.namespace, WANTED.name)?;
        let there = nodes.iter().any(|node| node["metadata"]["name"] == name);
        if there {
            Err("it is there".to_owned())
        } else {
            Ok(())
        }
    });
}

fn delete(living: &Living<'_>, pod: &str, by_force: bool) {
    let mut words = vec![
        "delete",
        "pod",
        "--wait=false",
        "--namespace",
        WANTED.namespace,
        pod,
    ];
    if by_force {
        words.extend(["--grace-period=0", "--force"]);
    }
    let deleted = living.world.stage.testbed.kubectl(words);
    deleted.expect("deleted");
}

fn hang(living: &Living<'_>, member: &Member, time: Duration) {
    let name = name(living, member);
    let pod = PodName {
        namespace: WANTED.namespace,
        name: &name,
    };
    let testbed = &living.world.stage.testbed;
    let signal = |signal| testbed.pod_signal(&pod, Some("valkey-server"), signal);
    signal(Signal::Stop).expect("stopped");
    // The length of the fault; nothing is waited for.
    thread::sleep(time);
    // A pod that was given up is gone.
    if let Err(error) = signal(Signal::Continue) {
        say(&format!("{name}: {error}"));
    }
}

/// The machine of a replica that is not the operator's.
fn machine(living: &Living<'_>) -> String {
    let office = machines::office(living.world);
    let mut pods = living.formed.pods.iter();
    let pod = pods.find(|pod| pod["spec"]["nodeName"] != *office);
    let machine = pod.and_then(|pod| pod["spec"]["nodeName"].as_str());
    machine.expect("a machine without the operator").to_owned()
}

/// As when its power is cut; its pods are found on it when it is back.
fn lose_machine(living: &Living<'_>) {
    let machine = machine(living);
    let testbed = &living.world.stage.testbed;
    testbed.node_kill(&machine).expect("killed");
    wait_until_elsewhere(living, &machine);
    testbed.node_start(&machine).expect("started");
}

/// Waits until the cluster is whole without this machine.
fn wait_until_elsewhere(living: &Living<'_>, machine: &str) {
    let what = format!("the cluster is whole without {machine}");
    living.world.until(&what, WANTED.namespace, || {
        let nodes = living.world.nodes(WANTED.namespace, WANTED.name)?;
        let pods = living.world.pods(WANTED.namespace, WANTED.name)?;
        let active = nodes.iter().filter(|node| {
            let name = &node["metadata"]["name"];
            let pod = pods.iter().find(|pod| pod["metadata"]["name"] == *name);
            let elsewhere = pod.is_some_and(|pod| pod["spec"]["nodeName"] != *machine);
            elsewhere && node["spec"]["lifecycle"] == "Active"
        });
        let active = active.count();
        if active == WANTED.nodes() {
            Ok(())
        } else {
            Err(format!("{active} are Active elsewhere"))
        }
    });
}

/// A lossy wire is slow, and nobody on it is dead.
fn lose_packets(living: &Living<'_>) {
    let before = pods(living);
    let machine = machine(living);
    let testbed = &living.world.stage.testbed;
    testbed.lose(&machine, LOSS_ONE_IN).expect("lossy");
    // The length of the fault; nothing is waited for.
    thread::sleep(LOSSY);
    testbed.heal(&machine).expect("healed");
    assert_eq!(pods(living), before, "nothing is replaced for it");
}

/// Two of three machines are emptied, so that the first of them, with a small disk by then, gets the pods of the second.
/// When that disk is full, a failover gives every node something to write down, and whoever cannot ends.
fn fill_disk(living: &Living<'_>) {
    let world = living.world;
    let testbed = &world.stage.testbed;
    let office = machines::office(world);
    let others = machines::MACHINES.into_iter().filter(|it| *it != office);
    let others: Vec<&str> = others.collect();
    let [full, other] = others.as_slice() else {
        panic!("{others:?}");
    };
    empty(living, full);
    testbed.give_disk(full).expect("a disk");
    world.stage.kubectl(["uncordon", full]);
    let formed = empty(living, other);
    let before = pods_on(living, full);
    assert!(!before.is_empty(), "{full} has no pod");
    testbed.fill_disk(full).expect("filled");
    let mut members = formed.members.iter();
    let replica = members.find(|member| !member.is_primary());
    let replica = replica.expect("a replica");
    by_hand(living, replica, "CLUSTER FAILOVER");
    world.until("all of them are replaced", WANTED.namespace, || {
        let left = &pods_on(living, full) & &before;
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?} run"))
        }
    });
    testbed.free_disk(full).expect("freed");
    world.stage.kubectl(["uncordon", other]);
}

/// Drains a machine, which is closed from then on, and waits until the cluster is whole without it.
fn empty(living: &Living<'_>, machine: &str) -> Formed {
    living.world.drain(machine);
    living.world.wait_until_formed(&WANTED)
}

/// The names of the pods on a machine.
fn pods_on(living: &Living<'_>, machine: &str) -> BTreeSet<String> {
    let pods = living.world.pods(WANTED.namespace, WANTED.name);
    let pods = pods.expect("listed");
    let here = pods
        .iter()
        .filter(|pod| pod["spec"]["nodeName"] == *machine && pod["status"]["phase"] == "Running");
    let names = here.filter_map(|pod| pod["metadata"]["name"].as_str());
    names.map(str::to_owned).collect()
}

/// Longer than any tick, and the clients notice nothing.
fn away(living: &Living<'_>, part: Part) {
    let testbed = &living.world.stage.testbed;
    testbed.pause(part).expect("paused");
    // The length of the fault; nothing is waited for.
    thread::sleep(AWAY);
    testbed.resume(part).expect("resumed");
}

/// A primary's clock goes ahead, another's back, and each is right again after: nobody is dead for that.
fn shift_clocks(living: &Living<'_>) {
    let world = living.world;
    let testbed = &world.stage.testbed;
    let archive = image::valkey_with_clock().expect("an image");
    testbed.load_image(&archive).expect("loaded");
    let (_, tag) = image::VALKEY_WITH_CLOCK.rsplit_once(':').expect("a tag");
    let spec = json!({"repository": "valkey/valkey", "tag": tag, "version": "9.1.2"});
    let settings = json!({"baseRef": "standard", "imageRef": "clock", "valkey": {"hz": "15"}});
    world.apply_all(&[
        menu("ValkeyImage", "clock", &spec),
        menu("ValkeyConfig", WANTED.namespace, &settings),
    ]);
    living.wait_until_rolled(WANTED.namespace, "15");
    let formed = world.wait_until_formed(&WANTED);
    let before = pods(living);
    let primaries = formed.members.iter().filter(|member| member.is_primary());
    for (primary, seconds) in primaries.zip([3600, -3600]) {
        for moved_by in [seconds, 0] {
            move_clock(world, &formed, primary, moved_by);
            world.wait_until_formed(&WANTED);
            // The length of the fault; nothing is waited for.
            thread::sleep(JUMP);
        }
    }
    assert_eq!(pods(living), before, "nothing is replaced for it");
    config(world, WANTED.namespace, "11");
    living.wait_until_rolled(WANTED.namespace, "11");
}

/// By so many seconds the clock of a member is wrong from now on.
fn move_clock(world: &World, formed: &Formed, member: &Member, seconds: i64) {
    let name = formed.pod(&member.ip)["metadata"]["name"].as_str();
    let pod = PodName {
        namespace: WANTED.namespace,
        name: name.expect("a name"),
    };
    let file = image::CLOCK_FILE;
    let write = format!("echo {seconds} > {file}.new && mv {file}.new {file}");
    let written = world.stage.testbed.pod_exec(&pod, ["sh", "-c", &write]);
    written.expect("written");
    let told = world.ask(&member.ip, "TIME\n").expect("answered");
    let time = told.lines().next().expect("seconds");
    let time: i64 = time.parse().expect("a number");
    let now = Timestamp::now().as_second();
    let wrong = time - now - seconds;
    assert!(wrong.abs() < 60, "{seconds}: {time} at {now}");
}

/// Every copy takes its time: a key each millisecond.
fn slow_roll(living: &Living<'_>) {
    for member in &living.formed.members {
        let told = living
            .world
            .ask(&member.ip, "CONFIG SET rdb-key-save-delay 1000\n");
        assert_eq!(told.expect("answered").trim(), "OK");
    }
    config(living.world, WANTED.namespace, "13");
    living.wait_until_rolled(WANTED.namespace, "13");
    living.world.wait_until_formed(&WANTED);
    config(living.world, WANTED.namespace, "11");
    living.wait_until_rolled(WANTED.namespace, "11");
}

/// A pod is deleted while its machine does nothing at all, and the machine wakes when others have its place.
fn stay_terminating(living: &Living<'_>) {
    let machine = machine(living);
    let testbed = &living.world.stage.testbed;
    testbed.node_pause(&machine).expect("paused");
    let pods = living.formed.pods.iter();
    let here = pods.filter(|pod| pod["spec"]["nodeName"] == *machine);
    for pod in here {
        delete(
            living,
            pod["metadata"]["name"].as_str().expect("a name"),
            false,
        );
    }
    wait_until_elsewhere(living, &machine);
    testbed.node_resume(&machine).expect("resumed");
}

fn by_hand(living: &Living<'_>, member: &Member, command: &str) {
    let told = living.world.ask(&member.ip, &format!("{command}\n"));
    assert_eq!(told.expect("answered").trim(), "OK", "{command}");
}

/// Waits until the operator says this anew.
fn until_said(living: &Living<'_>, message: &str) {
    let said = || -> Result<usize, String> {
        let said = living.world.said_of(WANTED.namespace, WANTED.name)?;
        Ok(said.iter().filter(|(said, _)| said == message).count())
    };
    let before = said().expect("the log");
    let what = format!("{message:?} is said");
    living.world.until(&what, WANTED.namespace, || {
        if said()? > before {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    });
}

/// A spec with which no pod runs, until it is put right: all others serve on, and nobody is replaced for it.
fn bad_spec(living: &Living<'_>, spec: &Value) {
    let before = pods(living);
    let mut bad = menu(
        "ValkeyConfig",
        WANTED.namespace,
        &json!({"baseRef": "standard", "valkey": {"hz": "11"}}),
    );
    for (key, value) in spec.as_object().into_iter().flatten() {
        match (bad["spec"][key].as_object_mut(), value.as_object()) {
            (Some(there), Some(more)) => there.extend(more.clone()),
            _ => bad["spec"][key] = value.clone(),
        }
    }
    living.world.apply_all(&[bad]);
    living
        .world
        .until("a newcomer that does not run", WANTED.namespace, || {
            let pods = living.world.pods(WANTED.namespace, WANTED.name)?;
            let new = pods.iter().find(|pod| {
                let name = pod["metadata"]["name"].as_str();
                name.is_some_and(|name| !before.contains(name))
            });
            let phase = new.map(|pod| pod["status"]["phase"].clone());
            match phase {
                Some(phase) if phase == "Failed" || phase == "Pending" => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
    // What it does next, and next.
    thread::sleep(AWAY);
    let now = pods(living);
    assert!(
        now.is_superset(&before),
        "of {before:?} only {now:?} are left"
    );
    config(living.world, WANTED.namespace, "11");
    living
        .world
        .until("the newcomer goes", WANTED.namespace, || {
            let now = pods(living);
            if now == before {
                Ok(())
            } else {
                Err(format!("{now:?}"))
            }
        });
}
