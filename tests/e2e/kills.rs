//! The operator is killed in the midst of planned work, under writers: the next one goes on, and no client notices.
//! Never kills at a moment of luck: each time right after the operator said what it just did.

use std::time::Duration;
use std::time::Instant;

use serde_json::Value;

use crate::all;
use crate::follow::Followed;
use crate::living::Living;
use crate::living::config;
use crate::living::manifest;
use crate::living::rolled;
use crate::slow;
use crate::stage::LIMIT;
use crate::stage::say;
use crate::trial::ENDS_OF_TICKS;
use crate::world::Wanted;
use crate::world::World;

/// How long the log may be silent before the cluster is looked at.
const LISTEN: Duration = Duration::from_millis(500);

const JOINED: &str = "completed join";
const CREATED: &str = "node created";
const DELETED: &str = "node deleted";
const FAILOVER: &str = "failover to up-to-date replica for rolling upgrade";
const FORGOTTEN: &str = "dead member forgotten";
const LEAVES: &str = "node leaves";
const MEET: &str = "cluster meet issued";
const MIGRATION: &str = "slot migration started";
const REPLICA: &str = "replica attached";

const START: Wanted<'_> = Wanted {
    namespace: "kills",
    name: "c",
    shards: 3,
    replicas: 1,
};

/// An operator that is killed again and again, and all that its processes said.
struct Mortal<'a> {
    world: &'a World,
    operator: Followed,
    said: Vec<Value>,
    kills: usize,
}

impl<'a> Mortal<'a> {
    fn born(world: &'a World) -> Self {
        let operator = Followed::start(&world.stage.testbed);
        Self {
            world,
            operator,
            said: Vec::new(),
            kills: 0,
        }
    }

    fn kill(&mut self, living: &Living<'_>) {
        self.operator.kill();
        self.said.extend(self.operator.heard());
        living.watch.operator_begins();
        self.operator = Followed::start(&self.world.stage.testbed);
        self.kills += 1;
    }

    /// Kills after each of these messages in turn, or, where all are to be tried, after every action until the end.
    fn kill_after(
        &mut self,
        living: &Living<'_>,
        messages: &[&str],
        mut done: impl FnMut() -> Result<(), String>,
    ) {
        if !all() {
            for message in messages {
                self.operator.hear(START.namespace, message, LIMIT);
                self.kill(living);
            }
            return;
        }
        let end = Instant::now() + LIMIT;
        loop {
            let said = self.operator.next(LISTEN);
            let acted = |said: &crate::follow::Said| {
                said.namespace() == START.namespace && ENDS_OF_TICKS.contains(&said.message())
            };
            if said.as_ref().is_some_and(acted) {
                self.kill(living);
            } else if said.is_none() {
                match done() {
                    Ok(()) => return,
                    Err(why) => assert!(Instant::now() < end, "{why}"),
                }
            }
        }
    }
}

#[test]
fn an_operator_killed_in_planned_work_loses_no_acknowledged_write() {
    if !slow("an_operator_killed_in_planned_work_loses_no_acknowledged_write") {
        return;
    }
    let world = World::without_operator();
    let mut operator = Mortal::born(&world);
    let mut living = Living::born(&world, &START);
    let more = Wanted { shards: 4, ..START };
    let shapes: [(&str, Wanted<'_>, &[&str]); 2] = [
        ("scale-out", more, &[CREATED, MEET, REPLICA, MIGRATION]),
        ("scale-in", START, &[MIGRATION, LEAVES, DELETED]),
    ];
    let twice = Wanted {
        replicas: 2,
        ..START
    };
    let replicas: [(&str, Wanted<'_>, &[&str]); 2] = [
        ("a replica more", twice, &[CREATED, JOINED]),
        ("a replica less", START, &[DELETED]),
    ];
    let replicas = replicas.into_iter().filter(|_| all());
    for (what, wanted, messages) in shapes.into_iter().chain(replicas) {
        living.planned(what, &wanted, |living| {
            world.apply_all(&[manifest(&wanted)]);
            let done = || world.formed(&wanted).map(drop);
            operator.kill_after(living, messages, done);
        });
    }
    living.planned("a roll", &START, |living| {
        config(&world, START.namespace, "11");
        let done = || rolled(&world, START.namespace, "11");
        operator.kill_after(living, &[JOINED, FAILOVER, FORGOTTEN], done);
        living.wait_until_rolled(START.namespace, "11");
    });
    say(&format!(
        "{} kills (ALL=1: after every action)",
        operator.kills
    ));
    let mut said = std::mem::take(&mut operator.said);
    said.extend(operator.operator.heard());
    living.judged(said);
}
