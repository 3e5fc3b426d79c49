//! A cluster that lives: it scales, rolls and heals under writers that know what was acknowledged.
//! Never judges by the operator's word: shapes and keys are asked of each Valkey process.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use serde_json::Value;
use serde_json::json;

use crate::checker::evidence::Hits;
use crate::ledger::Client;
use crate::ledger::Ledger;
use crate::ledger::Report;
use crate::ledger::slot;
use crate::slow;
use crate::stage::say;
use crate::testbed::machine::Signal;
use crate::testbed::pod::PodName;
use crate::trial::Judgement;
use crate::trial::judge;
use crate::watch::Watch;
use crate::world::Formed;
use crate::world::Wanted;
use crate::world::World;
use crate::world::menu;

/// Enough that every slot has one.
const KEYS: u32 = 20_000;

/// Writers have been at it for so long before anything happens.
const RUN_UP: Duration = Duration::from_secs(1);

/// A failover that goes wrong pauses writes for five seconds, an election takes six: planned work has
/// neither, on however busy a machine.
const GAP_PLANNED: Duration = Duration::from_secs(4);

const TOUR: Wanted<'_> = Wanted {
    namespace: "tour",
    name: "c",
    shards: 3,
    replicas: 1,
};

/// A cluster in its namespace, watched from its first moment, and what is asked of it.
pub(crate) struct Living<'a> {
    pub(crate) world: &'a World,
    pub(crate) formed: Formed,
    pub(crate) watch: Watch,
}

impl<'a> Living<'a> {
    pub(crate) fn born(world: &'a World, wanted: &Wanted<'_>) -> Self {
        world.namespace(wanted.namespace);
        let watch = Watch::start(&world.stage, wanted.namespace);
        config(world, wanted.namespace, "10");
        world.apply_all(&[manifest(wanted)]);
        let formed = world.wait_until_formed(wanted);
        let mut client = Client::at(addresses(&formed));
        for number in 0..KEYS {
            client.insist(&["SET", &key(number), "x"]);
        }
        Self {
            world,
            formed,
            watch,
        }
    }

    /// What the rules have against all that happened, and what the operator said meanwhile.
    pub(crate) fn judged(self, said: Vec<Value>) {
        let evidence = self.watch.stop(said);
        let judgement = judge(evidence);
        let Judgement {
            broken,
            writes,
            commands,
            looks,
        } = &judgement;
        say(&format!(
            "judged: {writes} writes, {commands} commands, {looks} looks"
        ));
        assert!(
            *writes > 0 && *commands > 0 && *looks > 0,
            "nothing was seen: {judgement:?}"
        );
        let told: Vec<String> = broken.values().map(ToString::to_string).collect();
        assert!(told.is_empty(), "{}", told.join("\n"));
    }

    /// Does something under writers and waits until the cluster is as it is wanted again.
    pub(crate) fn under_writers(
        &mut self,
        what: &str,
        wanted: &Wanted<'_>,
        act: impl FnOnce(&Self),
    ) -> Report {
        let ledger = Ledger::start(3, addresses(&self.formed));
        thread::sleep(RUN_UP);
        let start = Instant::now();
        act(self);
        self.formed = self.world.wait_until_formed(wanted);
        let took = start.elapsed();
        self.watch.at_rest();
        thread::sleep(RUN_UP);
        let report = ledger.stop(addresses(&self.formed));
        self.watch.ledger(&report);
        say(&format!(
            "{what}: {took:.1?}, {} writes, {} failed, longest gap {:.2?}, {} lost",
            report.writes,
            report.failures,
            report.longest_gap,
            report.lost.len()
        ));
        report
    }

    /// The same, of which no client may have lost anything.
    pub(crate) fn planned(&mut self, what: &str, wanted: &Wanted<'_>, act: impl FnOnce(&Self)) {
        let report = self.under_writers(what, wanted, act);
        assert!(report.lost.is_empty(), "{what}: {:?}", report.lost);
        let gap = report.longest_gap;
        assert!(gap < GAP_PLANNED, "{what}: no write for {gap:?}");
        let gone = self.gone(wanted);
        assert!(gone.is_empty(), "{what}: {gone:?}");
    }

    /// How many keys are gone, by the shard that they belonged to at first.
    pub(crate) fn gone(&self, wanted: &Wanted<'_>) -> BTreeMap<u32, u32> {
        let mut client = Client::at(addresses(&self.formed));
        let mut gone = BTreeMap::new();
        for key in (0..KEYS).map(key) {
            if client.insist(&["GET", &key]).is_none() {
                *gone.entry(share_of(slot(&key), wanted)).or_default() += 1;
            }
        }
        gone
    }

    /// Kills the processes of these roles in a shard.
    fn kill(&self, namespace: &str, shard: u64, roles: &[&str]) {
        for member in self.formed.members.iter().filter(|one| one.shard == shard) {
            let role = if member.is_primary() {
                "primary"
            } else {
                "replica"
            };
            if roles.contains(&role) {
                self.strike(namespace, &member.ip);
            }
        }
    }

    fn strike(&self, namespace: &str, ip: &str) {
        let pod = self.formed.pod(ip);
        let name = pod["metadata"]["name"].as_str().expect("a name");
        let uid = pod["metadata"]["uid"].as_str().expect("a uid").to_owned();
        let pod = PodName { namespace, name };
        self.watch.broken("F02", Hits::Pods(vec![uid]));
        let killed = self
            .world
            .stage
            .testbed
            .pod_signal(&pod, None, Signal::Kill);
        killed.expect("killed");
    }

    /// Waits until each node was made with this setting.
    pub(crate) fn wait_until_rolled(&self, namespace: &str, hz: &str) {
        let what = format!("hz is {hz}");
        self.world
            .until(&what, namespace, || rolled(self.world, namespace, hz));
    }
}

/// Whether each node was made with this setting.
pub(crate) fn rolled(world: &World, namespace: &str, hz: &str) -> Result<(), String> {
    let nodes = world.nodes(namespace, "c")?;
    let old = |node: &&Value| node["spec"]["valkeySettings"]["hz"] != *hz;
    nodes
        .iter()
        .find(old)
        .map_or(Ok(()), |node| Err(node["metadata"]["name"].to_string()))
}

pub(crate) fn addresses(formed: &Formed) -> Vec<String> {
    let members = formed.members.iter();
    members.map(|member| member.ip.clone()).collect()
}

/// The shard that a bootstrap gives a slot to.
pub(crate) fn share_of(slot: u32, wanted: &Wanted<'_>) -> u32 {
    let shards = u32::try_from(wanted.shards).expect("a small number");
    let begun = (1..shards).filter(|index| 16_384 * index / shards <= slot);
    u32::try_from(begun.count()).expect("a small number")
}

fn key(number: u32) -> String {
    format!("key-{number}")
}

pub(crate) fn manifest(wanted: &Wanted<'_>) -> Value {
    wanted.manifest(&json!({"configRef": wanted.namespace}))
}

/// A config for this namespace alone, so that its edits roll nobody else.
pub(crate) fn config(world: &World, namespace: &str, hz: &str) {
    let spec = json!({"baseRef": "standard", "valkey": {"hz": hz}});
    world.apply_all(&[menu("ValkeyConfig", namespace, &spec)]);
}

#[test]
fn planned_work_loses_no_acknowledged_write() {
    if !slow("planned_work_loses_no_acknowledged_write") {
        return;
    }
    let world = World::up();
    let mut living = Living::born(&world, &TOUR);
    let shapes = [
        ("scale-out", Wanted { shards: 4, ..TOUR }),
        ("scale-in", TOUR),
        (
            "a replica more",
            Wanted {
                replicas: 2,
                ..TOUR
            },
        ),
        ("a replica less", TOUR),
    ];
    for (what, wanted) in shapes {
        living.planned(what, &wanted, |_| world.apply_all(&[manifest(&wanted)]));
    }
    let roll = |living: &mut Living<'_>, what: &str, wanted: &Wanted<'_>, hz: &str| {
        living.planned(what, wanted, |living| {
            config(&world, wanted.namespace, hz);
            living.wait_until_rolled(wanted.namespace, hz);
        });
    };
    roll(&mut living, "a roll with a replica", &TOUR, "11");
    let alone = Wanted {
        replicas: 0,
        ..TOUR
    };
    living.planned("no replica", &alone, |_| {
        world.apply_all(&[manifest(&alone)]);
    });
    roll(&mut living, "a roll without a replica", &alone, "12");
    living.judged(world.log().expect("the log"));
}

#[test]
fn a_crash_costs_no_more_than_it_must() {
    if !slow("a_crash_costs_no_more_than_it_must") {
        return;
    }
    let world = World::up();
    let wanted = Wanted {
        namespace: "crash",
        ..TOUR
    };
    let mut living = Living::born(&world, &wanted);
    let act = |living: &mut Living<'_>, what: &str, shard: Option<u64>, roles: &[&str]| {
        let report = living.under_writers(what, &wanted, |living| {
            let shards = shard.map_or(0..3, |shard| shard..shard + 1);
            for shard in shards {
                living.kill("crash", shard, roles);
            }
            thread::sleep(RUN_UP);
        });
        (report, living.gone(&wanted))
    };
    let (report, gone) = act(&mut living, "a replica killed", Some(1), &["replica"]);
    assert!(
        report.lost.is_empty() && gone.is_empty(),
        "{report:?} {gone:?}"
    );

    let (report, gone) = act(&mut living, "a primary killed", Some(0), &["primary"]);
    // What was not replicated yet may be gone; what was there long before is not.
    assert!(
        gone.is_empty() && report.lost.len() < 3,
        "{report:?} {gone:?}"
    );

    let both = ["primary", "replica"];
    let (_, gone) = act(&mut living, "a whole shard killed", Some(1), &both);
    // Every key of that third, and no other.
    assert_eq!(gone.keys().collect::<Vec<_>>(), [&1], "{gone:?}");

    let (_, gone) = act(&mut living, "every pod killed", None, &both);
    assert_eq!(gone.values().sum::<u32>(), KEYS, "{gone:?}");
    living.judged(world.log().expect("the log"));
}

#[test]
fn a_single_shard_is_taken_over_without_a_vote() {
    if !slow("a_single_shard_is_taken_over_without_a_vote") {
        return;
    }
    let world = World::up();
    let wanted = Wanted {
        namespace: "single",
        shards: 1,
        ..TOUR
    };
    let mut living = Living::born(&world, &wanted);
    let report = living.under_writers("the only primary killed", &wanted, |living| {
        living.kill("single", 0, &["primary"]);
        thread::sleep(RUN_UP);
    });
    let gone = living.gone(&wanted);
    assert!(
        gone.is_empty() && report.lost.len() < 3,
        "{report:?} {gone:?}"
    );
    let said = world.said_of("single", "c").expect("the log");
    let taken = said
        .iter()
        .filter(|(message, _)| message == "no quorum — issued TAKEOVER on replica");
    assert_eq!(taken.count(), 1, "{said:?}");
    living.judged(world.log().expect("the log"));
}
