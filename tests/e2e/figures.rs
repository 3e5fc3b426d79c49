//! How long clients wait, and how long work takes, beside what Valkey needs by itself: both in one run, as ratios.
//! Never judges seconds, which are this machine's alone. Only with `ALL=1`.

use std::thread;
use std::time::Duration;
use std::time::Instant;

use serde_json::json;

use crate::checker::evidence::Row;
use crate::follow::Followed;
use crate::ledger::Client;
use crate::ledger::Ledger;
use crate::ledger::slot;
use crate::living::Living;
use crate::living::addresses;
use crate::living::manifest;
use crate::living::rolled;
use crate::stage::LIMIT;
use crate::stage::ask;
use crate::stage::say;
use crate::testbed::machine::Signal;
use crate::testbed::pod::PodName;
use crate::thorough;
use crate::watch::row;
use crate::world::Wanted;
use crate::world::World;
use crate::world::menu;

const WANTED: Wanted<'_> = Wanted {
    namespace: "figures",
    name: "c",
    shards: 3,
    replicas: 1,
};

/// Of each kind. What Valkey takes by itself differs by a factor of eight from one time to the next.
const ROUNDS: usize = 9;

const POLL: Duration = Duration::from_millis(10);

const RUN_UP: Duration = Duration::from_secs(1);

/// 300 MB in all: enough that moving them takes longer than Valkey's clock is coarse.
const FILL_KEYS: u32 = 30_000;
const FILL_BYTES: usize = 10_000;

/// What is measured, beside the least that it could be.
struct Figure {
    name: &'static str,
    ours: Vec<Duration>,
    floor: Vec<Duration>,
    goal: f64,
}

impl Figure {
    fn new(name: &'static str, goal: f64) -> Self {
        Self {
            name,
            ours: Vec::new(),
            floor: Vec::new(),
            goal,
        }
    }

    /// Against the longest that the floor took: what is by chance is not ours.
    fn ratio(&self) -> f64 {
        let longest = self.floor.iter().max().expect("a floor");
        median(&self.ours).as_secs_f64() / longest.as_secs_f64()
    }

    fn tell(&self) -> bool {
        let holds = self.ratio() <= self.goal;
        let verdict = if holds { "holds" } else { "MISSED" };
        say(&format!(
            "{}: {:.3?} beside {:.3?}: {:.2} x, goal {:.2} x, {verdict}; medians {:.2} x",
            self.name,
            self.ours,
            self.floor,
            self.ratio(),
            self.goal,
            median(&self.ours).as_secs_f64() / median(&self.floor).as_secs_f64(),
        ));
        holds
    }
}

fn median(samples: &[Duration]) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    *sorted.get(sorted.len() / 2).expect("samples")
}

/// A cluster whose operator can be stopped.
struct Bench<'a> {
    world: &'a World,
    living: Living<'a>,
    operator: Option<Followed>,
}

impl Bench<'_> {
    fn stop_operator(&mut self) {
        self.operator = None;
    }

    /// Starts it if it does not run, and waits until the cluster is whole.
    fn whole(&mut self, wanted: &Wanted<'_>) {
        if self.operator.is_none() {
            self.operator = Some(Followed::start(&self.world.stage.testbed));
        }
        self.living.formed = self.world.wait_until_formed(wanted);
    }

    fn operator(&mut self) -> &mut Followed {
        self.operator.as_mut().expect("it runs")
    }

    /// The longest that any client waits while this is done, and until all slots are served again.
    fn gap(&mut self, act: impl FnOnce(&mut Self)) -> Duration {
        let ledger = Ledger::start(3, addresses(&self.living.formed));
        thread::sleep(RUN_UP);
        act(self);
        let mut client = Client::at(addresses(&self.living.formed));
        let mut keys = (0..).map(|number: u32| format!("probe-{number}"));
        for part in 0..3 {
            let key = keys.find(|key| slot(key) * 3 / 16_384 == part);
            client.insist(&["SET", &key.expect("a key"), "x"]);
        }
        thread::sleep(RUN_UP);
        let report = ledger.stop(addresses(&self.living.formed));
        report.longest_gap
    }

    /// The addresses of a shard's primary and of its replica.
    fn pair(&self, shard: u64) -> (String, String) {
        let members = self.living.formed.members.iter();
        let (mut primary, mut replica) = (None, None);
        for member in members.filter(|member| member.shard == shard) {
            let place = if member.is_primary() {
                &mut primary
            } else {
                &mut replica
            };
            *place = Some(member.ip.clone());
        }
        (primary.expect("a primary"), replica.expect("a replica"))
    }

    fn signal(&self, ip: &str, signal: Signal) {
        let name = self.pod(ip);
        let pod = PodName {
            namespace: WANTED.namespace,
            name: &name,
        };
        let testbed = &self.world.stage.testbed;
        let sent = testbed.pod_signal(&pod, Some("valkey-server"), signal);
        sent.expect("signalled");
    }

    fn pod(&self, ip: &str) -> String {
        let name = self.living.formed.pod(ip)["metadata"]["name"].as_str();
        name.expect("a name").to_owned()
    }
}

#[test]
fn figures_hold_beside_their_floors() {
    if !thorough("figures_hold_beside_their_floors") {
        return;
    }
    let world = World::without_operator();
    let operator = Followed::start(&world.stage.testbed);
    let mut bench = Bench {
        living: Living::born(&world, &WANTED),
        world: &world,
        operator: Some(operator),
    };
    let mut figures = Vec::from(crashes(&mut bench));
    figures.push(drains(&mut bench));
    figures.push(rolls(&mut bench));
    figures.extend(scales(&mut bench));
    let missed = figures.iter().filter(|figure| !figure.tell()).count();
    assert_eq!(missed, 0, "goals are missed");
}

/// P4 and P5: a primary is killed, with the operator and without.
fn crashes(bench: &mut Bench<'_>) -> [Figure; 2] {
    let mut gap = Figure::new("P4, crash, longest gap", 1.02);
    let mut heal = Figure::new("P5, from promotion to a linked replica", 1.3);
    for shard in (0..).take(WANTED.shards).cycle().take(ROUNDS) {
        let (primary, heir) = bench.pair(shard);
        let mut healed = Duration::ZERO;
        gap.ours.push(bench.gap(|bench| {
            bench.signal(&primary, Signal::Kill);
            wait_for(&heir, &["role:master"]);
            let promoted = Instant::now();
            wait_for(&heir, &["connected_slaves:1", "state=online"]);
            healed = promoted.elapsed();
        }));
        heal.ours.push(healed);
        bench.whole(&WANTED);

        let (primary, heir) = bench.pair(shard);
        bench.stop_operator();
        gap.floor.push(bench.gap(|bench| {
            bench.signal(&primary, Signal::Kill);
            wait_for(&heir, &["role:master"]);
        }));
        // It makes the pod, and the rest is done by hand.
        bench.operator = Some(Followed::start(&bench.world.stage.testbed));
        let created = "creating Pod for node";
        let said = bench.operator().hear(WANTED.namespace, created, LIMIT);
        let begun = Instant::now();
        bench.stop_operator();
        join_by_hand(bench.world, said.node(), &heir);
        heal.floor.push(begun.elapsed());
        bench.whole(&WANTED);
    }
    [gap, heal]
}

/// As fast as it goes: the process is met once it answers, and attached once it knows its primary.
fn join_by_hand(world: &World, node: &str, primary: &str) {
    let ip = until("the pod to answer", || {
        let pod = world.stage.get("Pod", WANTED.namespace, node)?;
        let pod = pod.ok_or("no pod")?;
        let ip = pod["status"]["podIP"].as_str().ok_or("no address")?;
        ask(ip, "PING").map(|_| ip.to_owned())
    });
    let id = own(primary).id;
    tell(primary, &format!("CLUSTER MEET {ip} 6379"));
    until("it to know its primary", || {
        let met = table(&ip).into_iter().find(|row| row.id == id);
        let met = met.filter(|row| !row.handshake);
        met.map_or_else(|| Err("not yet".to_owned()), |_| Ok(()))
    });
    tell(&ip, &format!("CLUSTER REPLICATE {id}"));
    wait_for(primary, &["connected_slaves:1", "state=online"]);
}

/// P6: a primary's pod is evicted, beside a process that is told to end.
fn drains(bench: &mut Bench<'_>) -> Figure {
    let mut gap = Figure::new("P6, eviction of a primary, longest gap", 1.3);
    for shard in (0..).take(WANTED.shards).cycle().take(ROUNDS) {
        let (primary, heir) = bench.pair(shard);
        gap.ours.push(bench.gap(|bench| {
            let (namespace, name) = (WANTED.namespace, bench.pod(&primary));
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
            let eviction = json!({
                "apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": name, "namespace": namespace},
            });
            let words = ["create", "--raw", &path, "--filename", "-"];
            let testbed = &bench.world.stage.testbed;
            let asked = testbed.kubectl_with(words, &eviction.to_string());
            asked.expect("evicted");
            wait_for(&heir, &["role:master"]);
        }));
        bench.whole(&WANTED);

        let (primary, heir) = bench.pair(shard);
        bench.stop_operator();
        gap.floor.push(bench.gap(|bench| {
            bench.signal(&primary, Signal::Terminate);
            wait_for(&heir, &["role:master"]);
        }));
        bench.whole(&WANTED);
    }
    gap
}

/// P7: a roll of all nodes by an edit of their resources, beside a hand-over by hand in each shard.
fn rolls(bench: &mut Bench<'_>) -> Figure {
    let mut gap = Figure::new("P7, roll, longest gap", 3.0);
    for hz in ["11", "12", "13"] {
        gap.floor.push(bench.gap(|bench| {
            for shard in (0..).take(WANTED.shards) {
                let (_, replica) = bench.pair(shard);
                tell(&replica, "CLUSTER FAILOVER");
                wait_for(&replica, &["role:master"]);
            }
        }));
        bench.whole(&WANTED);

        let begun = Instant::now();
        gap.ours.push(bench.gap(|bench| {
            roomy_config(bench.world, hz);
            until("the roll", || rolled(bench.world, WANTED.namespace, hz));
            bench.whole(&WANTED);
        }));
        let nodes = u32::try_from(WANTED.nodes()).expect("a small number");
        say(&format!("P7: {:.2?} a node", begun.elapsed() / nodes));
    }
    gap
}

/// Room for the data that is moved.
fn roomy_config(world: &World, hz: &str) {
    let spec = json!({
        "baseRef": "standard",
        "resources": {"cpu": "500m", "memory": "512Mi"},
        "valkey": {"hz": hz},
    });
    world.apply_all(&[menu("ValkeyConfig", WANTED.namespace, &spec)]);
}

/// P8: a shard more, with data, beside one job a source at once.
fn scales(bench: &mut Bench<'_>) -> [Figure; 2] {
    let mut time = Figure::new("P8, 3 to 4 shards with data, first move to balance", 1.5);
    let mut gap = Figure::new("P8, longest gap", 1.5);
    let value = "x".repeat(FILL_BYTES);
    let mut client = Client::at(addresses(&bench.living.formed));
    for number in 0..FILL_KEYS {
        client.insist(&["SET", &format!("fill-{number}"), &value]);
    }
    let more = Wanted {
        shards: 4,
        ..WANTED
    };
    let (anyone, _) = bench.pair(0);

    let mut took = Duration::ZERO;
    gap.ours.push(bench.gap(|bench| {
        bench.world.apply_all(&[manifest(&more)]);
        let first = "slot migration started";
        bench.operator().hear(WANTED.namespace, first, LIMIT);
        took = wait_for_balance(&anyone);
    }));
    time.ours.push(took);
    bench.whole(&more);
    bench.world.apply_all(&[manifest(&WANTED)]);
    bench.whole(&WANTED);

    let (anyone, _) = bench.pair(0);
    bench.world.apply_all(&[manifest(&more)]);
    for _ in 0..=more.replicas {
        let joined = "completed join";
        bench.operator().hear(WANTED.namespace, joined, LIMIT);
    }
    bench.stop_operator();
    gap.floor.push(bench.gap(|_| took = move_by_hand(&anyone)));
    time.floor.push(took);
    bench.whole(&more);
    [time, gap]
}

/// Every source gives its share in one job, all at once.
fn move_by_hand(anyone: &str) -> Duration {
    let rows = table(anyone);
    let newcomer = rows
        .iter()
        .find(|row| row.primary.is_none() && row.slots.is_empty())
        .expect("a shard without slots");
    wait_for_cluster(&newcomer.ip);
    let begun = Instant::now();
    for source in rows.iter().filter(|row| !row.slots.is_empty()) {
        let mut left = source.slots.len() - 4096;
        let mut words = Vec::new();
        for &(first, last) in source.slots.ranges() {
            let count = left.min(u32::from(last - first) + 1);
            if count > 0 {
                words.push(format!("{first} {}", u32::from(first) + count - 1));
            }
            left -= count;
        }
        let (slots, id) = (words.join(" "), &newcomer.id);
        tell(
            &source.ip,
            &format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slots} NODE {id}"),
        );
    }
    wait_for_balance(anyone);
    begun.elapsed()
}

/// Until each of four shards has as many slots.
fn wait_for_balance(anyone: &str) -> Duration {
    let begun = Instant::now();
    until("four equal shares", || {
        let shares: Vec<u32> = table(anyone)
            .iter()
            .map(|row| row.slots.len())
            .filter(|count| *count > 0)
            .collect();
        if shares == [4096; 4] {
            Ok(())
        } else {
            Err(format!("{shares:?}"))
        }
    });
    begun.elapsed()
}

fn wait_for_cluster(ip: &str) {
    until("its cluster to be ok", || {
        let told = ask(ip, "CLUSTER INFO")?;
        if told.contains("cluster_state:ok") {
            Ok(())
        } else {
            Err(told)
        }
    });
}

/// Until INFO replication says all of this.
fn wait_for(ip: &str, words: &[&str]) {
    until(&format!("{ip} to say {words:?}"), || {
        let told = ask(ip, "INFO replication")?;
        if words.iter().all(|word| told.contains(word)) {
            Ok(())
        } else {
            Err(told)
        }
    });
}

/// More often than other tests look: what is measured lasts a second.
fn until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) => assert!(begun.elapsed() < LIMIT, "{what}: not yet: {seen}"),
        }
        thread::sleep(POLL);
    }
}

fn table(ip: &str) -> Vec<Row> {
    let told = ask(ip, "CLUSTER NODES").expect("answered");
    told.lines().filter_map(row).collect()
}

fn own(ip: &str) -> Row {
    let told = ask(ip, "CLUSTER NODES").expect("answered");
    let mut lines = told.lines().filter(|line| line.contains("myself"));
    lines.find_map(row).expect("its own row")
}

fn tell(ip: &str, command: &str) {
    let told = ask(ip, command).expect("answered");
    assert!(told.starts_with("+OK"), "{command}: {told}");
}
