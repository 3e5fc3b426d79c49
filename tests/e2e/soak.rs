//! Faults of every kind, one after the other and two at a time, on one cluster under load: `make soak`, MINUTES=n.
//! Never judges but at rest: between two faults the cluster is whole again, and each key that every replica had is there,
//! or a shard is gone of which every copy was struck in one fault, and that shard is named.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use rand::RngExt as _;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::Value;

use crate::ledger::Client;
use crate::ledger::slot;
use crate::living::Living;
use crate::living::addresses;
use crate::living::config;
use crate::living::share_of;
use crate::slow;
use crate::stage::say;
use crate::testbed::control::Part;
use crate::testbed::machine::Signal;
use crate::testbed::pod::PodName;
use crate::world::Wanted;
use crate::world::World;

/// From one fault to the next, if the cluster is whole by then.
const APART: Duration = Duration::from_mins(1);

/// The second of two faults comes so many seconds after the first, at the most.
const TOGETHER_S: u64 = 9;

/// How long what hangs, hangs.
const HANGS_S: [u64; 3] = [3, 8, 20];

const KEYS: u32 = 2_000;

const WANTED: Wanted<'_> = Wanted {
    namespace: "soak",
    name: "c",
    shards: 3,
    replicas: 1,
};

/// As a machine that burns: nothing is waited for.
const AT_ONCE: [&str; 4] = [
    "--grace-period=0",
    "--force",
    "--wait=false",
    "--ignore-not-found",
];

const HANG: &str = "process hangs";
const SETTINGS: &str = "settings changed";

/// What can strike; all of it comes again.
const FAULTS: [&str; 9] = [
    "pod deleted",
    "pod deleted by force",
    "process killed",
    HANG,
    "node deleted",
    "operator deleted",
    "API server killed",
    "etcd hangs",
    SETTINGS,
];

struct Soak<'a> {
    living: Living<'a>,
    random: StdRng,
    /// The number that every replica has, of each key.
    kept: BTreeMap<String, u32>,
    rounds: u32,
    /// The shards that a copy was struck of since the cluster was last whole, and how many.
    struck: BTreeMap<u64, BTreeSet<String>>,
    lost_shards: u32,
}

#[test]
fn a_soak_of_faults_loses_nothing_that_every_replica_had() {
    let minutes = std::env::var("MINUTES").ok();
    let minutes = minutes.filter(|_| slow("a_soak_of_faults_loses_nothing_that_every_replica_had"));
    let Some(minutes) = minutes else {
        say("the soak is skipped: it runs for MINUTES=n, which is not said");
        return;
    };
    let minutes = minutes.parse().expect("MINUTES is a number");
    let end = Instant::now() + Duration::from_mins(minutes);
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    say(&format!("SEED={seed}"));
    let world = World::up();
    let mut soak = Soak {
        living: Living::born(&world, &WANTED),
        random: StdRng::seed_from_u64(seed),
        kept: BTreeMap::new(),
        rounds: 0,
        struck: BTreeMap::new(),
        lost_shards: 0,
    };
    // Hours of looks would fill the memory.
    soak.living.watch.close();
    while Instant::now() < end {
        soak.round();
    }
    say(&format!(
        "{} rounds, {} shards lost with all their copies",
        soak.rounds, soak.lost_shards
    ));
}

impl Soak<'_> {
    fn round(&mut self) {
        self.rounds += 1;
        self.write();
        let begun = Instant::now();
        let count = self.random.random_range(1..=2);
        let mut random = StdRng::seed_from_u64(self.random.random());
        let faults: Vec<(&str, u64)> = (0..count)
            .map(|nth| {
                let fault = FAULTS[random.random_range(0..FAULTS.len())];
                (fault, nth * random.random_range(0..=TOGETHER_S))
            })
            .collect();
        let what = format!("round {}: {faults:?}", self.rounds);
        let (mut struck, mut doomed) = (BTreeMap::new(), BTreeSet::new());
        let rounds = self.rounds;
        self.living.under_writers(&what, &WANTED, |living| {
            for (fault, pause) in &faults {
                // The moment is what is chosen here; nothing is waited for.
                thread::sleep(Duration::from_secs(*pause));
                if let Some((shard, pod)) = strike(living, &mut random, fault, rounds) {
                    if *fault != HANG {
                        doomed.insert(pod.clone());
                    }
                    let copies: &mut BTreeSet<String> = struck.entry(shard).or_default();
                    copies.insert(pod);
                }
            }
            wait_until_gone(living, &doomed);
            if faults.iter().any(|(fault, _)| *fault == SETTINGS) {
                living.wait_until_rolled(WANTED.namespace, &hz(rounds));
            }
        });
        self.struck = struck;
        self.read();
        thread::sleep(APART.saturating_sub(begun.elapsed()));
    }

    /// Every key gets this round's number, which every replica then has.
    fn write(&mut self) {
        let mut client = Client::at(addresses(&self.living.formed));
        let number = self.rounds;
        for key in (0..KEYS).map(|key| format!("soak-{key}")) {
            client.keep(&key, &number.to_string());
            self.kept.insert(key, number);
        }
    }

    /// Each key is there, or its whole shard was struck.
    fn read(&mut self) {
        let mut client = Client::at(addresses(&self.living.formed));
        let mut gone: BTreeMap<u64, u32> = BTreeMap::new();
        for (key, number) in &self.kept {
            let found = client.insist(&["GET", key]);
            if found.and_then(|found| found.parse().ok()) != Some(*number) {
                let shard = u64::from(share_of(slot(key), &WANTED));
                *gone.entry(shard).or_default() += 1;
            }
        }
        for (shard, count) in gone {
            let copies = self.struck.get(&shard).map_or(0, BTreeSet::len);
            assert!(
                copies > WANTED.replicas,
                "{count} keys of shard {shard} are gone, {copies} of its copies were struck"
            );
            say(&format!("shard {shard} was lost with all its copies"));
            self.lost_shards += 1;
        }
    }
}

/// A pod that was struck looks well for a moment, and its node is replaced.
fn wait_until_gone(living: &Living<'_>, doomed: &BTreeSet<String>) {
    living
        .world
        .until("what was struck is replaced", WANTED.namespace, || {
            let pods = living.world.pods(WANTED.namespace, WANTED.name)?;
            let mut names = pods
                .iter()
                .filter_map(|pod| pod["metadata"]["name"].as_str());
            let left = names.find(|name| doomed.contains(*name));
            left.map_or(Ok(()), |name| Err(format!("{name} is there")))
        });
}

/// The setting of a round.
fn hz(round: u32) -> String {
    (10 + round % 90).to_string()
}

/// Strikes, and tells of which shard which pod; nothing where it strikes what is under the cluster.
fn strike(
    living: &Living<'_>,
    random: &mut StdRng,
    fault: &str,
    round: u32,
) -> Option<(u64, String)> {
    let hang = Duration::from_secs(HANGS_S[random.random_range(0..HANGS_S.len())]);
    if strikes_the_ground(living, fault, hang, round) {
        return None;
    }
    let pods = living.world.pods(WANTED.namespace, WANTED.name);
    let mut pods = pods.expect("listed");
    pods.retain(|pod| pod["status"]["phase"] == "Running");
    let pod = pods.get(random.random_range(0..pods.len().max(1)))?;
    strike_pod(living, fault, hang, pod)
}

/// Whether the fault is one of the operator, the API server or the spec.
fn strikes_the_ground(living: &Living<'_>, fault: &str, hang: Duration, round: u32) -> bool {
    let world = living.world;
    let testbed = &world.stage.testbed;
    match fault {
        "operator deleted" => {
            let words = ["delete", "pod", "--namespace=valkey-operator"];
            let which = ["--selector=app=valkey-operator"];
            let words = words.into_iter().chain(which).chain(AT_ONCE);
            testbed.kubectl(words).expect("deleted");
        }
        "API server killed" => {
            testbed.kill(Part::ApiServer).expect("killed");
            testbed.start_again(Part::ApiServer).expect("started again");
        }
        "etcd hangs" => {
            testbed.pause(Part::Etcd).expect("paused");
            thread::sleep(hang);
            testbed.resume(Part::Etcd).expect("resumed");
        }
        SETTINGS => config(world, WANTED.namespace, &hz(round)),
        _ => return false,
    }
    true
}

fn strike_pod(
    living: &Living<'_>,
    fault: &str,
    hang: Duration,
    pod: &Value,
) -> Option<(u64, String)> {
    let stage = &living.world.stage;
    let namespace = WANTED.namespace;
    let name = pod["metadata"]["name"].as_str()?;
    let shard = pod["metadata"]["labels"]["valkey.gomomento.com/shard-index"].as_str()?;
    let process = PodName { namespace, name };
    let signal = |signal| {
        let sent = stage
            .testbed
            .pod_signal(&process, Some("valkey-server"), signal);
        // It may have ended meanwhile, which is another fault.
        if let Err(error) = sent {
            say(&format!("{name}: {error}"));
        }
    };
    match fault {
        "pod deleted" => stage.delete("Pod", namespace, name),
        "pod deleted by force" => {
            let words = ["delete", "pod", name, "--namespace", namespace];
            let words = words.into_iter().chain(AT_ONCE);
            stage.testbed.kubectl(words).expect("deleted");
        }
        HANG => {
            signal(Signal::Stop);
            thread::sleep(hang);
            signal(Signal::Continue);
        }
        "node deleted" => stage.delete("ValkeyNode", namespace, name),
        "process killed" => signal(Signal::Kill),
        other => panic!("nobody knows the fault {other:?}"),
    }
    Some((shard.parse().ok()?, name.to_owned()))
}
