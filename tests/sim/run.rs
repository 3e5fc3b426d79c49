//! One run of a plan, from the first moment to the last.
//! Never the same plan with another outcome: whatever differs between two runs of it is a fault of this room.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};
use tracing_subscriber::layer::SubscriberExt as _;

use crate::acts::{Stage, furnish, offer};
use crate::agenda::Agenda;
use crate::checker::evidence::{Actor, Goal, What};
use crate::checker::{Rules, Violation};
use crate::end;
use crate::kube::Kube;
use crate::kube::client::{Gate, Moment};
use crate::kube::faults::Effect;
use crate::ledger;
use crate::log::Log;
use crate::onlooker::Onlooker;
use crate::operators::{Operators, Running};
use crate::pipes::Pipes;
use crate::plan::{Act, Fault, Meddling, Millis, Part, Plan};
use crate::record::Record;
use crate::truth;
use crate::valkey::Net;
use crate::wish::Wish;
use crate::world::{Shared, World, take};

/// How long an event that was lost may be missed: the operator lists every kind anew so often.
const RELIST: Millis = 600_000;
/// The longest pause of an operator after errors, and of its watches, one after the other.
const PAUSES: Millis = 20_000;
/// The longest lag of a watch that the plans have, and what it takes to catch up.
const LAG: Millis = 25_000;
/// How often it is looked whether the goal is reached.
const LOOK: Millis = 1_000;
/// An operator that did nothing for as long has nothing to do.
const QUIET: Millis = 15_000;
/// For so long a member that a user told to forget another does not hear of it again (`CLUSTER_BLACKLIST_TTL` in
/// `cluster_legacy.c`), and the operator can only wait.
const BAN: Millis = 60_000;
/// What the operator knows of Secrets is not older.
const SECRETS_AGE: Millis = 6_000;
/// A killed operator is started again so much later, where nothing else is said.
const RESTART: Millis = 500;

/// What is asked of a run beyond its plan.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Keep the story.
    pub(crate) story: bool,
    /// The first operator ends at this write.
    pub(crate) crash: Option<(usize, Moment)>,
    /// Rules of the API server's misbehaviour, in force from the start.
    pub(crate) trouble: Vec<crate::kube::faults::Rule>,
    /// How long it has to stay quiet at the end: longer than the 30 seconds between two passes.
    pub(crate) calm: Millis,
    /// The plugin's plan is compared with the operator's decisions all the time, and not only in the end.
    pub(crate) compares: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            story: false,
            crash: None,
            trouble: Vec::new(),
            calm: 35_000,
            compares: true,
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The first rule that did not hold.
    pub(crate) violation: Option<Violation>,
    /// What happened, if it was to be kept.
    pub(crate) story: Vec<String>,
    /// Writes and commands of operators.
    pub(crate) actions: u64,
    /// How many of the plugin's plans were found to be the operator's decisions.
    pub(crate) agreed: u64,
    /// When the first operator wrote.
    pub(crate) writes: Vec<Millis>,
    /// Faults by id.
    pub(crate) faults: BTreeMap<&'static str, u64>,
    /// How often each rule of trouble hit.
    pub(crate) hits: Vec<u64>,
    /// How long it took.
    pub(crate) lasted: Millis,
    /// What it all ended in, names apart.
    pub(crate) end: String,
    /// Actions, reasons and errors that came up.
    pub(crate) seen: BTreeSet<String>,
    /// Two runs with the same are the same.
    pub(crate) fingerprint: u64,
    /// The Events that operators told.
    pub(crate) told: Vec<Value>,
}

/// Runs a plan in this thread.
pub(crate) fn run(plan: &Plan, options: &Options) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime needs nothing but memory");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let log = Log::start();
        let hears = tracing_subscriber::registry().with(log.clone());
        let _hears = tracing::subscriber::set_default(hears);
        drive(plan, options, log).await
    })
}

async fn drive(plan: &Plan, options: &Options, log: Log) -> Outcome {
    let record = Record::new(rules(plan, options), log.clone(), options.story);
    let mut world = World::new(Net::new(plan.seed), Kube::new(plan.seed), record);
    furnish(&mut world, plan);
    for rule in &options.trouble {
        world.kube.api.misbehave(rule.clone());
    }
    let world = Shared::new(Mutex::new(world));
    let api = Gate::new(world.clone());
    tokio::spawn(api.clone().run());
    tokio::spawn(clients(world.clone(), api.clone()));
    let wall = take(&world).operator_clock.clone();
    let mut operators = Operators {
        first: None,
        wall,
        pipes: Pipes::start(&world, &api),
        api,
        seed: plan.seed,
    };
    let mut play = Play {
        start: Instant::now(),
        stage: Stage::new(Wish::new(plan.shape), plan.healed),
        running: vec![operators.start(0, options.crash)],
        started: 1,
        lossy: options
            .trouble
            .iter()
            .any(|rule| rule.effect == Effect::Lose),
        due: Agenda::default(),
        operators,
        world,
    };
    play.acts(plan).await;
    play.heal(plan).await;
    let mut onlooker = Onlooker::new(&play.operators, &log);
    play.settle(plan, options, &mut onlooker).await;
    play.outcome(&log, onlooker.agreed)
}

/// Writes all the time.
async fn clients(world: Shared, api: Gate<World>) {
    loop {
        sleep(Duration::from_millis(ledger::BEAT)).await;
        let world = &mut *take(&world);
        let now = world.now();
        if end::is_given_up(world) {
            world.ledger.close();
        } else {
            let truth = world.own_truth();
            world.ledger.write(&mut world.net, now, &truth);
        }
        api.nudge();
    }
}

fn rules(plan: &Plan, options: &Options) -> Rules {
    let lag = |(_, act): &(Millis, Act)| match act {
        Act::Fault(Fault::Lose { .. }) => RELIST,
        Act::Fault(fault) if is_of_the_api(*fault) => LAG,
        Act::Fault(_) | Act::Edit(_) => 2_000,
    };
    let troubled = !options.trouble.is_empty() || options.crash.is_some();
    let least = if troubled { LAG } else { 0 };
    // Two operators do not know of each other: each of them moves one shard at a time.
    let second = |(_, act): &(Millis, Act)| matches!(act, Act::Fault(Fault::Second { .. }));
    let waived = plan.acts.iter().any(second).then_some("S7");
    Rules {
        waived: waived.into_iter().collect(),
        batches: 20,
        cache_lag: plan
            .acts
            .iter()
            .map(lag)
            .max()
            .unwrap_or_default()
            .max(least),
        ..Rules::default()
    }
}

/// By how much a process's clock is put back at the most. A primary that was among a minority by the later time
/// takes part again only when its clock says that the time-out has passed since (`clusterUpdateState` in
/// `cluster_legacy.c`); until then it holds nobody for failing, either.
fn set_back(plan: &Plan) -> Millis {
    let of = |&(_, act): &(Millis, Act)| match act {
        Act::Fault(Fault::ShiftClock {
            pick: Some(_),
            seconds,
            ..
        }) => u64::try_from(seconds).unwrap_or(0) * 1_000,
        Act::Fault(_) | Act::Edit(_) => 0,
    };
    plan.acts.iter().map(of).max().unwrap_or(0)
}

/// Whether a user makes a member forget another.
fn bans(plan: &Plan) -> bool {
    let forgets = |act: Act| {
        let Act::Fault(Fault::Meddle { how, .. }) = act else {
            return false;
        };
        how == Meddling::Forget
    };
    plan.acts.iter().any(|&(_, act)| forgets(act))
}

/// Whether it holds up what goes between the operator and the API server.
fn is_of_the_api(fault: Fault) -> bool {
    matches!(fault.id(), "F08" | "F10" | "F11" | "F12")
}

/// What is to be done to operators later.
#[derive(Clone, Copy, Debug)]
enum Later {
    Start,
    Kill(u32),
}

struct Play {
    start: Instant,
    stage: Stage,
    world: Shared,
    operators: Operators,
    running: Vec<Running>,
    started: u32,
    /// Events are lost beside those of the plan.
    lossy: bool,
    due: Agenda<Later>,
}

impl Play {
    async fn acts(&mut self, plan: &Plan) {
        {
            let mut world = take(&self.world);
            for part in Part::ALL {
                offer(&mut world, 0, part);
            }
        }
        for (at, act) in &plan.acts {
            self.wait_until((*at).min(plan.healed)).await;
            if take(&self.world).record.violation.is_some() {
                return;
            }
            self.act(*act);
        }
        self.wait_until(plan.healed).await;
    }

    fn act(&mut self, act: Act) {
        let mut world = take(&self.world);
        match act {
            Act::Edit(edit) => self.stage.edit(&mut world, edit),
            Act::Fault(fault) => {
                self.stage.fault(&mut world, fault);
                drop(world);
                self.fault(fault);
            }
        }
    }

    /// The part of a fault that hits operators.
    fn fault(&mut self, fault: Fault) {
        let now = take(&self.world).now();
        match fault {
            Fault::Kill { pause } => {
                for running in self.running.drain(..) {
                    running.kill();
                }
                self.due.file(now + pause, Later::Start);
            }
            Fault::KillAtWrite { writes, moment } => {
                if let Some(Running { switch, .. }) = self.running.first() {
                    switch.crash_at(switch.writes().len() + writes, moment);
                }
            }
            Fault::Second { lasts } => {
                let number = self.begin();
                self.due.file(now + lasts, Later::Kill(number));
            }
            Fault::Refuse { .. }
            | Fault::Lag { .. }
            | Fault::CutWatches { .. }
            | Fault::Lose { .. }
            | Fault::StaleLists { .. }
            | Fault::Silence { .. }
            | Fault::DeletePod { .. }
            | Fault::KillProcess { .. }
            | Fault::Hang { .. }
            | Fault::LoseHost { .. }
            | Fault::Partition { .. }
            | Fault::Blind { .. }
            | Fault::SlowSync { .. }
            | Fault::SilentKubelet { .. }
            | Fault::PowerCut
            | Fault::Garble { .. }
            | Fault::OutOfMemory { .. }
            | Fault::Evict { .. }
            | Fault::Meddle { .. }
            | Fault::Cordon { .. }
            | Fault::SlowNetwork { .. }
            | Fault::LossyNetwork { .. }
            | Fault::ShiftClock { .. }
            | Fault::Widen { .. }
            | Fault::LoseVotes { .. }
            | Fault::SlowMounts { .. } => {}
        }
    }

    fn begin(&mut self) -> u32 {
        let number = self.started;
        self.started += 1;
        self.running.push(self.operators.start(number, None));
        number
    }

    /// Waits, and meanwhile ends what was to last until then and starts who died.
    async fn wait_until(&mut self, until: Millis) {
        loop {
            let now = take(&self.world).now();
            self.tend(now);
            // Whatever was done to the world has to be told to its watches.
            self.operators.api.nudge();
            if now >= until {
                return;
            }
            let dues = [self.stage.next_repair(), self.due.next(), Some(until)];
            let next = dues
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(until)
                .max(now + 1);
            let died = self.running.iter().map(|running| running.switch.ended());
            let died: Vec<_> = died.map(Box::pin).collect();
            let next = sleep_until(self.start + Duration::from_millis(next));
            if died.is_empty() {
                next.await;
            } else {
                tokio::select! {
                    biased;
                    _ = futures::future::select_all(died) => {}
                    () = next => {}
                }
            }
        }
    }

    fn tend(&mut self, now: Millis) {
        let before = self.running.len();
        self.running.retain(|running| {
            let lives = running.switch.is_on();
            if !lives {
                running.kill();
            }
            lives
        });
        if before > 0 && self.running.is_empty() {
            self.due.file(now + RESTART, Later::Start);
        }
        while let Some(later) = self.due.take(now) {
            match later {
                Later::Start if self.running.is_empty() => {
                    self.begin();
                }
                Later::Start => {}
                Later::Kill(number) => {
                    let (gone, stay) = std::mem::take(&mut self.running)
                        .into_iter()
                        .partition(|running: &Running| running.number == number);
                    self.running = stay;
                    gone.iter().for_each(Running::kill);
                    if self.running.is_empty() {
                        self.begin();
                    }
                }
            }
        }
        self.stage.repair(&mut take(&self.world), false);
    }

    /// Ends every fault, and makes the last wish.
    async fn heal(&mut self, plan: &Plan) {
        self.due.clear();
        for running in &self.running {
            running.switch.spare();
        }
        // One operator stays; if none lives one is started.
        let rest = self.running.split_off(self.running.len().min(1));
        rest.iter().for_each(Running::kill);
        if self.running.is_empty() {
            self.begin();
        }
        {
            let mut world = take(&self.world);
            self.stage.repair(&mut world, true);
            self.stage.put_right(&mut world, plan.shape);
        }
        let grace = self.grace(plan);
        take(&self.world).record.allow(grace + set_back(plan));
        // A cluster that is still going is asked for again once it is gone.
        let last = take(&self.world).now() + 60 * LOOK + grace;
        loop {
            let (now, going) = {
                let world = take(&self.world);
                (world.now(), end::is_going(&world))
            };
            if !self.stage.wish.exists || !going || now > last {
                break;
            }
            self.wait_until(now + LOOK).await;
        }
        let mut world = take(&self.world);
        self.stage.put_right(&mut world, plan.shape);
        let now = world.now();
        let truth = truth::snapshot(&mut world);
        world
            .record
            .step(now, Actor::User, What::Stable(Goal::Declared), Some(truth));
    }

    /// Waits for the goal, and that nothing happens after it.
    async fn settle(&mut self, plan: &Plan, options: &Options, onlooker: &mut Onlooker) {
        let begun = take(&self.world).now();
        let lost = self.grace(plan);
        let quiet = QUIET + lost.min(LAG) + if bans(plan) { BAN } else { 0 };
        let ticks = 60 + 15 * Millis::from(plan.shape.nodes()) + 60;
        let bound = begun + lost + ticks * LOOK + set_back(plan);
        loop {
            let waits = onlooker.waits();
            {
                let mut world = take(&self.world);
                let now = world.now();
                let truth = truth::snapshot(&mut world);
                let reached = end::reached(&world, &truth, &self.stage.wish);
                world
                    .record
                    .step(now, Actor::Machinery, What::Look, Some(truth));
                if world.record.violation.is_some() {
                    return;
                }
                let acts = now < world.record.acted.max(begun) + quiet;
                match reached {
                    // Whoever acts for ever, though nothing is left to do, is caught at it after that.
                    Ok(()) if now <= bound && (acts || waits) => {}
                    Ok(()) => {
                        world.record.step(now, Actor::Machinery, What::Calm, None);
                        break;
                    }
                    Err(missing) if now > bound => {
                        return world.record.break_rule("L1", now, missing);
                    }
                    Err(_) => {}
                }
            }
            // Until then the operator may not have heard of what a live look shows.
            let is_told = take(&self.world).now() >= begun + lost + SECRETS_AGE;
            if options.compares
                && is_told
                && let Err(odd) = Box::pin(onlooker.look()).await
            {
                let mut world = take(&self.world);
                let now = world.now();
                return world.record.break_rule("plan", now, odd);
            }
            let now = take(&self.world).now();
            self.wait_until(now + LOOK).await;
        }
        let now = take(&self.world).now();
        self.wait_until(now + options.calm).await;
        let is_told = take(&self.world).now() >= begun + lost;
        if self.stage.wish.exists
            && is_told
            && let Err(odd) = Box::pin(onlooker.at_rest()).await
        {
            let mut world = take(&self.world);
            let now = world.now();
            return world.record.break_rule("plan", now, odd);
        }
        let mut world = take(&self.world);
        let now = world.now();
        let truth = truth::with_ledger(&mut world);
        if let Err(missing) = end::reached(&world, &truth, &self.stage.wish) {
            world
                .record
                .break_rule("L1", now, format!("reached, and lost again: {missing}"));
        }
        world
            .record
            .step(now, Actor::Machinery, What::Look, Some(truth));
        world.record.finish(now);
    }

    /// How much longer things may take after what was done to the API server: an event that was lost is
    /// made up for by the next list, one that is late comes late, and a pause after an error is sat out.
    fn grace(&self, plan: &Plan) -> Millis {
        let of = |(_, act): &(Millis, Act)| match act {
            Act::Fault(Fault::Lose { .. }) => RELIST,
            Act::Fault(Fault::Lag { by, .. }) => by + PAUSES,
            Act::Fault(fault) if matches!(fault.id(), "F10" | "F11" | "F12") => PAUSES,
            Act::Fault(_) | Act::Edit(_) => 0,
        };
        let longest = plan.acts.iter().map(of).max().unwrap_or(0);
        if self.lossy { RELIST } else { longest }
    }

    fn outcome(&mut self, log: &Log, agreed: u64) -> Outcome {
        let mut world = take(&self.world);
        let now = world.now();
        world.record.hear(now + 1);
        let truth = truth::snapshot(&mut world);
        Outcome {
            violation: world.record.violation.clone(),
            story: world.record.story.take().unwrap_or_default(),
            actions: world.record.actions,
            agreed,
            writes: self.operators.first_writes(),
            faults: world.record.faults.clone(),
            hits: world.kube.api.faults.hits().to_vec(),
            lasted: now,
            end: end::state(&truth),
            seen: log.take_seen(),
            fingerprint: world.record.fingerprint,
            told: std::mem::take(&mut world.events).into_all(),
        }
    }
}
