//! Every edit and every fault, and how each fault ends: one place for each.
//! Never picks by chance: what is hit is told by the plan and by what is there.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::agenda::Agenda;
use crate::chains::Leaf;
use crate::checker::evidence::{Actor, Hits, What};
use crate::end;
use crate::hands::{self, Squatted};
use crate::kube::faults::{Effect, Match, Rule, Trouble, Verb};
use crate::kube::hosts::Processes;
use crate::kube::kinds::Kind;
use crate::kube::pool::Reuse;
use crate::plan::{Edit, Fault, Kept, Meddling, Millis, Part, Plan, Refusal, Shape, Watched};
use crate::truth;
use crate::valkey::{Life, Path, Peer, Port, ProcessId, Signal};
use crate::wish::{self, CERTIFICATE, CLUSTER, IMAGES, NAMESPACE, NEIGHBOURS, Wish};
use crate::world::World;

/// What is asked for, and what is broken until when.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) wish: Wish,
    healed: Millis,
    /// Properties that are not what they were.
    set: BTreeSet<u8>,
    repairs: Agenda<Repair>,
}

#[derive(Debug)]
enum Repair {
    Wake(ProcessId),
    Return(String),
    Heal(Vec<Path>),
    Sync,
    Mount((Millis, Millis)),
    Sense,
    Open,
    Speed,
    Losses,
    Clock(Option<ProcessId>),
    Back(Squatted),
    Login(IpAddr),
    Leave(ProcessId),
}

impl Stage {
    /// Before anything happens.
    pub(crate) fn new(wish: Wish, healed: Millis) -> Self {
        Self {
            wish,
            healed,
            set: BTreeSet::new(),
            repairs: Agenda::default(),
        }
    }

    /// When the next fault ends.
    pub(crate) fn next_repair(&self) -> Option<Millis> {
        self.repairs.next()
    }

    /// Ends the faults that last until now, or all.
    pub(crate) fn repair(&mut self, world: &mut World, all: bool) {
        let now = world.now();
        let until = if all { Millis::MAX } else { now };
        while let Some(repair) = self.repairs.take(until) {
            mend(world, now, repair);
        }
        if all {
            world.kube.api.faults.heal();
            world.net.heal_all(now);
            world.record.step(now, Actor::Saboteur, What::Healed, None);
        }
    }

    /// A person does something.
    pub(crate) fn edit(&mut self, world: &mut World, edit: Edit) {
        let now = world.now();
        world.record.note(now, &format!("edit {edit:?}"));
        match edit {
            Edit::Apply => self.wish.exists = true,
            Edit::Delete => {
                self.wish.exists = false;
                world.ledger.close();
                // There may be none.
                let hand = &mut world.kube.hand(now);
                hand.delete(Kind::ValkeyCluster, NAMESPACE, CLUSTER).ok();
                return;
            }
            Edit::Withdraw(part) => {
                let (kind, name) = part.key();
                world.kube.hand(now).delete(kind, "", name).ok();
                return;
            }
            Edit::Offer(part) => return offer(world, now, part),
            Edit::Bind(binding) => self.wish.binding = binding,
            Edit::Annotate(value) => self.wish.annotation = Some(value),
            Edit::Pause => self.wish.paused = true,
            Edit::Resume => self.wish.paused = false,
            Edit::Reshape(shape) => self.wish.shape = shape,
            Edit::Set { leaf, value } => {
                self.set.insert(leaf);
                let leaf = Leaf::numbered(leaf);
                return patch(world, leaf.object(), leaf.set(value));
            }
            Edit::PutBack { leaf } => {
                self.set.remove(&leaf);
                let leaf = Leaf::numbered(leaf);
                return patch(world, leaf.object(), leaf.put_back(&self.wish));
            }
            Edit::Fill { values } => {
                let truth = world.own_truth();
                return world.ledger.fill(&mut world.net, now, &truth, values);
            }
            Edit::Misspell => return spell(world, now, "no-such-tag"),
            Edit::Respell => return spell(world, now, "9.1.2"),
            Edit::Take(kept) => return take(world, now, kept),
            Edit::Squat(kept) => {
                if let Some(squatted) = hands::squat(world, now, kept) {
                    self.repairs.file(self.healed, Repair::Back(squatted));
                }
                return;
            }
            Edit::DeleteNamespace => {
                self.wish.exists = false;
                world.ledger.close();
                let hand = &mut world.kube.hand(now);
                hand.delete(Kind::Namespace, "", NAMESPACE).ok();
                return;
            }
            Edit::Secure => self.wish.secure = true,
            Edit::Certify => return certify(world, wish::certificate()),
            Edit::Spoil(spoilt) => return certify(world, wish::spoilt(spoilt)),
            Edit::Uncertify => {
                let hand = &mut world.kube.hand(now);
                hand.delete(Kind::Secret, NAMESPACE, CERTIFICATE).ok();
                return;
            }
        }
        self.ask(world);
    }

    /// Applies the cluster as it is wished for. One that is going is not applied: it would come back as
    /// it was asked for before, which is nobody's wish.
    pub(crate) fn ask(&self, world: &mut World) {
        let now = world.now();
        let there = world.kube.get(Kind::ValkeyCluster, NAMESPACE, CLUSTER);
        let going = there.is_some_and(|there| !there["metadata"]["deletionTimestamp"].is_null());
        if self.wish.exists && !going && end::namespace_stands(world) {
            let mut hand = world.kube.hand(now);
            let object = self.wish.cluster();
            let made = hand.apply(object);
            made.expect("a wish is always a valid object");
        }
    }

    /// Makes every wish good that was made wrong on purpose.
    pub(crate) fn put_right(&mut self, world: &mut World, shape: crate::plan::Shape) {
        let now = world.now();
        if world.kube.get(Kind::Namespace, "", NAMESPACE).is_none() {
            world.kube.hand(now).create_namespace(NAMESPACE);
        }
        for part in Part::ALL {
            offer(world, now, part);
        }
        if self.wish.secure {
            certify(world, wish::certificate());
        }
        self.wish.paused = false;
        self.wish.shape = shape;
        // What was set by a patch is not taken away by what is applied.
        for leaf in std::mem::take(&mut self.set) {
            self.edit(world, Edit::PutBack { leaf });
        }
        self.ask(world);
    }

    /// Breaks something.
    #[expect(clippy::too_many_lines, reason = "one arm a fault")]
    pub(crate) fn fault(&mut self, world: &mut World, fault: Fault) {
        let now = world.now();
        world.record.note(now, &format!("fault {fault:?}"));
        let truth = truth::snapshot(world);
        let hits = match fault {
            // These are done to operators, not to the world.
            Fault::Kill { .. } | Fault::KillAtWrite { .. } | Fault::Second { .. } => Hits::Operator,
            Fault::Refuse { how, one_in, lasts } => {
                refuse(world, now, (how, one_in, lasts));
                Hits::Operator
            }
            Fault::Lag { kind, by, lasts } => {
                let rule = Rule::during(events(kind), Effect::Lag { by }, now, now + lasts);
                world.kube.api.misbehave(rule);
                Hits::Operator
            }
            Fault::CutWatches { gone } => {
                if gone {
                    world.kube.api.compact();
                    world.kube.api.expire_watches(now, &Match::default());
                } else {
                    world.kube.api.cut_watches(now, &Match::default(), true);
                }
                Hits::Operator
            }
            Fault::Lose { kind } => {
                world
                    .kube
                    .api
                    .misbehave(Rule::once(events(kind), Effect::Lose));
                Hits::Operator
            }
            Fault::StaleLists { writes, lasts } => {
                let lists = Match::default().verb(Verb::List);
                let rule = Rule::during(lists, Effect::StaleList { writes }, now, now + lasts);
                world.kube.api.misbehave(rule);
                Hits::Operator
            }
            Fault::Silence { lasts, lost: false } => {
                world.kube.api.freeze(now, (now + lasts).min(self.healed));
                Hits::Operator
            }
            Fault::Silence { lasts, lost: true } => {
                let effect = Effect::Hang { applied: false };
                let rule = Rule::during(of_operators(), effect, now, now + lasts);
                world.kube.api.misbehave(rule);
                Hits::Operator
            }
            Fault::Blind { lasts } => {
                let paths = addresses(world).into_iter().flat_map(|ip| {
                    let (there, here) = (Peer::Pod(ip), Peer::Operator);
                    [(here, there), (there, here)].map(|(from, to)| Path {
                        from,
                        to,
                        port: Port::Client,
                    })
                });
                self.cut(world, paths.collect(), now + lasts);
                Hits::Operator
            }
            Fault::SlowSync { by, lasts } => {
                for (process, _) in alive(world) {
                    if let Some(switches) = world.net.switches(now, process) {
                        switches.sync_extra = by;
                    }
                }
                self.repairs.file(now + lasts, Repair::Sync);
                Hits::Everything
            }
            Fault::SlowMounts { lasts } => {
                let usual = world.kube.timing.propagation;
                world.kube.timing.propagation = (usual.1, usual.1 * 4);
                self.repairs.file(now + lasts, Repair::Mount(usual));
                Hits::Everything
            }
            Fault::Garble { how, lasts } => {
                world.garbled = Some(how);
                self.repairs.file(now + lasts, Repair::Sense);
                Hits::Operator
            }
            Fault::Cordon { lasts } => {
                hands::close(world, now, true);
                self.repairs.file(now + lasts, Repair::Open);
                Hits::Operator
            }
            Fault::SlowNetwork { by, lasts } => {
                world.net.set_delay(now, by);
                self.repairs.file(now + lasts, Repair::Speed);
                Hits::Everything
            }
            Fault::LossyNetwork { one_in, lasts } => {
                world.net.set_loss(now, one_in);
                self.repairs.file(now + lasts, Repair::Losses);
                Hits::Everything
            }
            Fault::ShiftClock {
                pick,
                seconds,
                lasts,
            } => self.shift_clock(world, pick, (seconds, lasts)),
            Fault::Widen { kind } => {
                hands::widen(world, now, kind_of(kind));
                Hits::Operator
            }
            Fault::Meddle { how, pick, other } => self.meddle(world, how, (pick, other)),
            Fault::DeletePod { .. }
            | Fault::KillProcess { .. }
            | Fault::Hang { .. }
            | Fault::LoseHost { .. }
            | Fault::Partition { .. }
            | Fault::SilentKubelet { .. }
            | Fault::OutOfMemory { .. }
            | Fault::Evict { .. }
            | Fault::LoseVotes { .. }
            | Fault::PowerCut => self.harm(world, now, fault),
        };
        world.record.fault(now, fault.id(), hits, truth);
    }

    /// Faults of pods and machines.
    #[expect(clippy::too_many_lines, reason = "one arm a fault")]
    fn harm(&mut self, world: &mut World, now: Millis, fault: Fault) -> Hits {
        match fault {
            Fault::DeletePod { pick, force } => {
                let pods = named(world, Kind::Pod);
                let Some((name, uid)) = picked(&pods, pick) else {
                    return Hits::Pods(Vec::new());
                };
                let mut hand = world.kube.hand(now);
                let deleted = if force {
                    hand.force_delete(Kind::Pod, NAMESPACE, name)
                } else {
                    hand.delete(Kind::Pod, NAMESPACE, name)
                };
                deleted.expect("it is there");
                Hits::Pods(vec![uid.clone()])
            }
            Fault::KillProcess { pick, orderly } => {
                let signal = if orderly { Signal::Term } else { Signal::Kill };
                signal_one(world, pick, signal).0
            }
            Fault::Hang { pick, lasts } => {
                let (hits, process) = signal_one(world, pick, Signal::Stop);
                if let Some(process) = process {
                    self.repairs.file(now + lasts, Repair::Wake(process));
                }
                hits
            }
            Fault::LoseHost { pick, lasts } => {
                self.lose_host(world, (pick, lasts), Processes::Dead)
            }
            Fault::SilentKubelet { pick, lasts } => {
                self.lose_host(world, (pick, lasts), Processes::Alive)
            }
            Fault::OutOfMemory { pick } => {
                let (hits, process) = signal_one(world, pick, Signal::Kill);
                if let Some(process) = process {
                    world.pods.is_out_of_memory(process);
                }
                hits
            }
            Fault::Evict { pick } => {
                let pods = named(world, Kind::Pod);
                let Some((name, uid)) = picked(&pods, pick) else {
                    return Hits::Pods(Vec::new());
                };
                let message = "The node was low on resource: memory.";
                world.kube.evict(now, NAMESPACE, name, message);
                Hits::Pods(vec![uid.clone()])
            }
            Fault::LoseVotes { pick, lasts } => {
                let Some((replica, primary)) = hands::pair(world, pick) else {
                    return Hits::Pods(Vec::new());
                };
                let all = addresses(world);
                let paths = around(replica, &all, false, true);
                self.cut(world, paths, now + lasts);
                world.net.signal(now, primary, Signal::Kill);
                Hits::Everything
            }
            Fault::Partition {
                pick,
                one_way,
                bus_only,
                lasts,
            } => {
                let all = addresses(world);
                let Some(cut_off) = picked(&all, pick).copied() else {
                    return Hits::Pods(Vec::new());
                };
                let paths = around(cut_off, &all, one_way, bus_only);
                self.cut(world, paths, now + lasts);
                Hits::Everything
            }
            Fault::PowerCut => {
                for (process, _) in alive(world) {
                    world.net.signal(now, process, Signal::Kill);
                }
                Hits::Everything
            }
            Fault::Kill { .. }
            | Fault::KillAtWrite { .. }
            | Fault::Second { .. }
            | Fault::Refuse { .. }
            | Fault::Lag { .. }
            | Fault::CutWatches { .. }
            | Fault::Lose { .. }
            | Fault::StaleLists { .. }
            | Fault::Silence { .. }
            | Fault::Blind { .. }
            | Fault::SlowSync { .. }
            | Fault::Garble { .. }
            | Fault::Meddle { .. }
            | Fault::Cordon { .. }
            | Fault::SlowNetwork { .. }
            | Fault::LossyNetwork { .. }
            | Fault::ShiftClock { .. }
            | Fault::Widen { .. }
            | Fault::SlowMounts { .. } => Hits::Operator,
        }
    }

    fn shift_clock(
        &mut self,
        world: &mut World,
        pick: Option<u8>,
        (seconds, lasts): (i64, Millis),
    ) -> Hits {
        let now = world.now();
        let all = alive(world);
        let Some(pick) = pick else {
            set_clock(world, None, seconds);
            self.repairs.file(now + lasts, Repair::Clock(None));
            return Hits::Operator;
        };
        let Some((process, uid)) = picked(&all, pick) else {
            return Hits::Pods(Vec::new());
        };
        set_clock(world, Some(*process), seconds);
        self.repairs
            .file(now + lasts, Repair::Clock(Some(*process)));
        Hits::Pods(vec![uid.clone()])
    }

    /// A hand on the topology. What it cannot do costs nothing.
    fn meddle(&mut self, world: &mut World, how: Meddling, picks: (u8, u8)) -> Hits {
        let now = world.now();
        let all = alive(world);
        let chosen = |pick| picked(&all, pick).map(|(process, _)| *process);
        let (Some(one), Some(other)) = (chosen(picks.0), chosen(picks.1)) else {
            return Hits::Operator;
        };
        if how == Meddling::Meet {
            self.repairs
                .file(self.healed, Repair::Leave(hands::stranger(world)));
        }
        let Some(ip) = hands::meddle(world, how, (one, other)) else {
            return Hits::Operator;
        };
        if how == Meddling::LockOut {
            self.repairs.file(self.healed.max(now), Repair::Login(ip));
        }
        Hits::Everything
    }

    fn lose_host(
        &mut self,
        world: &mut World,
        (pick, lasts): (u8, Millis),
        processes: Processes,
    ) -> Hits {
        let now = world.now();
        let nodes = world.kube.list(Kind::Node, None, "");
        let hosts: Vec<String> = nodes.into_iter().map(name_of).collect();
        if let Some(host) = picked(&hosts, pick) {
            world.kube.lose_host(now, host, processes);
            self.repairs.file(now + lasts, Repair::Return(host.clone()));
        }
        Hits::Everything
    }

    fn cut(&mut self, world: &mut World, paths: Vec<Path>, until: Millis) {
        let now = world.now();
        for path in &paths {
            world.net.cut(now, *path);
        }
        self.repairs.file(until, Repair::Heal(paths));
    }
}

fn signal_one(world: &mut World, pick: u8, signal: Signal) -> (Hits, Option<ProcessId>) {
    let all = alive(world);
    let Some((process, uid)) = picked(&all, pick) else {
        return (Hits::Pods(Vec::new()), None);
    };
    let now = world.now();
    world.net.signal(now, *process, signal);
    (Hits::Pods(vec![uid.clone()]), Some(*process))
}

fn mend(world: &mut World, now: Millis, repair: Repair) {
    world.record.note(now, &format!("repair {repair:?}"));
    match repair {
        Repair::Wake(process) => world.net.signal(now, process, Signal::Continue),
        Repair::Return(host) => world.kube.return_host(now, &host),
        Repair::Heal(paths) => {
            for path in paths {
                world.net.heal(now, path);
            }
        }
        Repair::Sync => {
            for (process, _) in alive(world) {
                if let Some(switches) = world.net.switches(now, process) {
                    switches.sync_extra = 0;
                }
            }
        }
        Repair::Mount(usual) => world.kube.timing.propagation = usual,
        Repair::Sense => world.garbled = None,
        Repair::Open => hands::close(world, now, false),
        Repair::Speed => world.net.set_delay(now, 1),
        Repair::Losses => world.net.set_loss(now, 0),
        Repair::Clock(process) => set_clock(world, process, 0),
        Repair::Back(squatted) => hands::give_back(world, now, &squatted),
        Repair::Login(ip) => {
            world.by_hand(ip, &["ACL", "LOAD"]);
        }
        Repair::Leave(stranger) => world.net.signal(now, stranger, Signal::Kill),
    }
}

/// Sets a process's clock, or the operator's, so far from the true time.
fn set_clock(world: &mut World, process: Option<ProcessId>, seconds: i64) {
    let now = world.now();
    match process {
        None => world.operator_clock.store(seconds, Ordering::Relaxed),
        Some(process) => {
            if let Some(switches) = world.net.switches(now, process) {
                switches.clock_shift = seconds * 1000;
            }
        }
    }
}

/// Puts a TLS Secret in the place of the one that is there. Nothing where the namespace is going.
fn certify(world: &mut World, secret: Value) {
    if !end::namespace_stands(world) {
        return;
    }
    let now = world.now();
    let mut hand = world.kube.hand(now);
    // It may not be there.
    hand.delete(Kind::Secret, NAMESPACE, CERTIFICATE).ok();
    let made = hand.create(secret);
    made.expect("the name is free, and the Secret a valid object");
}

fn patch(world: &mut World, (kind, namespace, name): (Kind, &str, &str), patch: Value) {
    let now = world.now();
    // It may not be there.
    world
        .kube
        .hand(now)
        .patch(kind, namespace, name, patch)
        .ok();
}

/// Puts a part of the menu there, as it should be.
pub(crate) fn offer(world: &mut World, now: Millis, part: Part) {
    let made = world.kube.hand(now).apply(part.object());
    made.expect("the menu is always valid");
}

fn spell(world: &mut World, now: Millis, tag: &str) {
    let patch = json!({"spec": {"tag": tag}});
    let (kind, name) = Part::Image.key();
    // It may be withdrawn.
    world.kube.hand(now).patch(kind, "", name, patch).ok();
}

fn take(world: &mut World, now: Millis, kept: Kept) {
    let Some((kind, name)) = hands::found(world, kept) else {
        return;
    };
    let name = &name;
    let truth = truth::snapshot(world);
    let deleted = world.kube.hand(now).delete(kind, NAMESPACE, name);
    deleted.expect("it is there");
    let pods = named(world, Kind::Pod).into_iter();
    let hit: Vec<String> = pods
        .filter(|(pod, _)| matches!(kind, Kind::ValkeyNode | Kind::Pod) && pod == name)
        .map(|(_, uid)| uid)
        .collect();
    if !hit.is_empty() {
        world.record.fault(now, "F19", Hits::Pods(hit), truth);
    }
}

fn refuse(world: &mut World, now: Millis, (how, one_in, lasts): (Refusal, u64, Millis)) {
    let answer = |trouble| Effect::Answer {
        trouble,
        applied: false,
    };
    let effect = match how {
        Refusal::Conflict => answer(Trouble::Conflict),
        Refusal::TooMany => answer(Trouble::TooMany(1)),
        Refusal::Internal => answer(Trouble::Internal),
        Refusal::Unavailable => answer(Trouble::Unavailable),
        Refusal::Broken { done } => Effect::Break {
            after: 50,
            applied: done,
        },
    };
    // Only writes meet conflicts.
    let mut of = of_operators();
    if how == Refusal::Conflict {
        of.verbs = vec![Verb::Create, Verb::Patch, Verb::Update, Verb::Apply];
    }
    // One in so many, by a row of rules that each hit once and let so many pass before.
    for turn in 0..40 {
        world.kube.api.misbehave(Rule {
            of: of.clone(),
            effect: effect.clone(),
            from: now,
            until: now + lasts,
            skip: turn * one_in,
            count: 1,
        });
    }
}

fn of_operators() -> Match {
    Match {
        operators: true,
        ..Match::default()
    }
}

fn events(kind: Watched) -> Match {
    Match::kind(kind_of(kind)).verb(Verb::Watch)
}

fn kind_of(kind: Watched) -> Kind {
    match kind {
        Watched::Cluster => Kind::ValkeyCluster,
        Watched::Node => Kind::ValkeyNode,
        Watched::Pod => Kind::Pod,
        Watched::ConfigMap => Kind::ConfigMap,
        Watched::Service => Kind::Service,
        Watched::Config => Kind::ValkeyConfig,
        Watched::Image => Kind::ValkeyImage,
        Watched::Role => Kind::ValkeyRole,
    }
}

/// The one of so many that a number stands for.
pub(crate) fn picked<T>(of: &[T], pick: u8) -> Option<&T> {
    of.get(usize::from(pick) % of.len().max(1))
}

/// Names and uids of a kind in the namespace.
pub(crate) fn named(world: &World, kind: Kind) -> Vec<(String, String)> {
    let objects = world.kube.list(kind, Some(NAMESPACE), "");
    objects
        .into_iter()
        .map(|object| (name_of(object), text(&object["metadata"]["uid"])))
        .collect()
}

fn name_of(object: &Value) -> String {
    text(&object["metadata"]["name"])
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Every process that runs, with its pod's uid, in the order of their start.
fn alive(world: &mut World) -> Vec<(ProcessId, String)> {
    let containers = world.pods.containers.iter();
    let mut started: Vec<(ProcessId, String)> = containers
        .filter_map(|(uid, container)| Some((container.process?, uid.clone())))
        .collect();
    started.sort();
    let now = world.now();
    let truth = world.net.truth_without_tables(now).processes.into_iter();
    let runs: BTreeSet<ProcessId> = truth
        .filter(|process| process.life == Life::Running)
        .map(|process| process.id)
        .collect();
    started.retain(|(process, _)| runs.contains(process));
    started
}

/// The addresses of processes that run.
fn addresses(world: &mut World) -> Vec<IpAddr> {
    let alive = alive(world);
    let ip = |(_, uid): &(ProcessId, String)| world.pods.containers[uid].ip;
    alive.iter().map(ip).collect()
}

fn around(cut_off: IpAddr, all: &[IpAddr], one_way: bool, bus_only: bool) -> Vec<Path> {
    let ports: &[Port] = if bus_only {
        &[Port::Bus]
    } else {
        &[Port::Bus, Port::Client]
    };
    let others = all.iter().filter(|ip| **ip != cut_off);
    let directions = others.flat_map(|other| {
        let (here, there) = (Peer::Pod(cut_off), Peer::Pod(*other));
        let ways = [(here, there), (there, here)];
        ways.into_iter().take(if one_way { 1 } else { 2 })
    });
    directions
        .flat_map(|(from, to)| {
            ports.iter().map(move |port| Path {
                from,
                to,
                port: *port,
            })
        })
        .collect()
}

/// The images that can be pulled, the machines, and the namespace.
pub(crate) fn furnish(world: &mut World, plan: &Plan) {
    let now = world.now();
    for image in IMAGES {
        world.kube.add_image(image);
    }
    for number in 0..plan.hosts {
        let zone = ["a", "b", "c"][usize::try_from(number % 3).unwrap_or(0)];
        let host = crate::kube::hosts::HostSpec::new(&format!("host-{number}"), zone);
        world.kube.add_host(now, &host);
    }
    world.kube.hand(now).create_namespace(NAMESPACE);
    if plan.neighbour {
        world.kube.hand(now).create_namespace(NEIGHBOURS);
        if plan.addresses_come_back() {
            let addresses = 2 * plan.shape.nodes() + 10;
            world.kube.set_addresses(addresses, Reuse::Lowest);
        }
        let shape = Shape {
            shards: 1,
            replicas: 1,
        };
        let mut object = Wish::new(shape).cluster();
        object["metadata"]["namespace"] = json!(NEIGHBOURS);
        let made = world.kube.hand(now).apply(object);
        made.expect("a wish is always a valid object");
    }
}
