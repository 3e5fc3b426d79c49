//! Judges a real cluster by the checker's rules, from what was seen of it: see `watch.rs`.
//!
//! | Evidence | From |
//! |---|---|
//! | objects, exact at every moment; who wrote what | the API server's audit log, with bodies |
//! | processes, ten times a second | CLUSTER NODES, CLUSTER INFO, INFO, GETSLOTMIGRATIONS, once CONFIG GET |
//! | commands of the operator, and where one tick ends | its own log, a line an action |
//! | acknowledged writes that are lost | the writers' ledger |
//!
//! What a step is judged by lies between two looks, one that was over before it and one that began after it. What came to be
//! between them may have been there already, and what went may have been gone: the operator has the benefit of that doubt,
//! and only of that. Its own writes are another matter: what they end was there.
//!
//! Judged are S1 to S10, S12 (two looks in a row), S14 to S21, S23, L1 to L3 as far as that what was reached is kept (that it is
//! reached, the tests wait for), L10 and L11. Slots that hold keys (S4) are those of its shard where a process has any key at all.
//! Not judged: S11, for these writers do not WAIT; S13, for views agree and are acted upon between two looks; MEET in S1 and S16, for the log
//! does not say who was told, but tables that mix two clusters are seen; S22 by `idle.rs`, S24 by `deletion.rs`; L4 by `waits.rs`; L5,
//! L6, L7 and L9 by tests that compare or wait; L8, for the log does not say when a tick begins.
//! Never asks the operator what is true.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::audit;
use crate::checker::Checker;
use crate::checker::Rules;
use crate::checker::Violation;
use crate::checker::evidence::Actor;
use crate::checker::evidence::Command;
use crate::checker::evidence::Cut;
use crate::checker::evidence::Hits;
use crate::checker::evidence::Ledger;
use crate::checker::evidence::Life;
use crate::checker::evidence::Millis;
use crate::checker::evidence::Name;
use crate::checker::evidence::Object;
use crate::checker::evidence::Outcome;
use crate::checker::evidence::Process;
use crate::checker::evidence::Role;
use crate::checker::evidence::Snapshot;
use crate::checker::evidence::Step;
use crate::checker::evidence::Verb;
use crate::checker::evidence::What;
use crate::checker::evidence::Write;
use crate::checker::slots::Slots;
use crate::watch::slot_range;

/// The operator in a pod; beside the testbed it is an administrator that is not `kubectl`.
const OPERATOR: &str = "system:serviceaccount:valkey-operator:valkey-operator";

/// A line of the log comes so many microseconds after its command at the most: that is answered first, and all who should
/// know of it are told.
const LATE: i64 = 300_000;

/// Rules that this evidence cannot tell.
const UNTOLD: [&str; 1] = ["S13"];

/// The kinds, as the audit log calls them and as their objects do.
const KINDS: [(&str, &str); 9] = [
    ("configmaps", "ConfigMap"),
    ("pods", "Pod"),
    ("secrets", "Secret"),
    ("services", "Service"),
    ("valkeyclusters", "ValkeyCluster"),
    ("valkeyconfigs", "ValkeyConfig"),
    ("valkeyimages", "ValkeyImage"),
    ("valkeynodes", "ValkeyNode"),
    ("valkeyroles", "ValkeyRole"),
];

/// Something that was seen.
#[derive(Clone)]
pub(crate) struct Evidence {
    /// Microseconds since the epoch.
    pub(crate) at: i64,
    pub(crate) seen: Seen,
}

#[derive(Clone)]
pub(crate) enum Seen {
    /// An event of the audit log.
    Asked(Value),
    /// A line of the operator's log.
    Said(Value),
    /// Every process that ever was. It takes a while, and is at an end at the moment of its evidence.
    Look {
        /// As `Evidence::at`.
        begun: i64,
        processes: Vec<Arc<Process>>,
    },
    /// What the test did.
    Done(What),
    /// From now on this and nothing else is cut.
    Cut(Vec<Cut>),
    /// Another operator process begins.
    OperatorBegins,
    /// What the writers found.
    Ledger(Ledger),
}

/// What the rules say.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    /// The rules that were broken, each with its first story.
    pub(crate) broken: BTreeMap<&'static str, Violation>,
    /// How many writes, commands and looks were judged.
    pub(crate) writes: usize,
    pub(crate) commands: usize,
    pub(crate) looks: usize,
}

/// Judges all that was seen of one namespace.
pub(crate) fn judge(mut evidence: Vec<Evidence>) -> Judgement {
    audit::complete(evidence.iter_mut().filter_map(|one| {
        let Seen::Asked(event) = &mut one.seen else {
            return None;
        };
        Some(event)
    }));
    let evidence = in_order(evidence);
    let begun = evidence.first().map_or(0, |one| one.at);
    let looks = evidence.iter().filter_map(|one| {
        let Seen::Look { begun, processes } = &one.seen else {
            return None;
        };
        Some(Look {
            begun: *begun,
            over: one.at,
            processes: processes.clone(),
        })
    });
    let rules = Rules {
        waived: BTreeSet::from(UNTOLD),
        ..Rules::default()
    };
    let mut trial = Trial {
        looks: looks.collect(),
        past: 0,
        objects: Objects::default(),
        cuts: Vec::new(),
        killed: BTreeSet::new(),
        checker: Checker::new(rules),
        operator: 0,
        judgement: Judgement::default(),
        now: 0,
        at: 0,
    };
    for one in evidence {
        trial.now = one.at;
        trial.at = Millis::try_from((trial.now - begun) / 1000).unwrap_or_default();
        trial.hear(one.seen);
    }
    if let Err(violation) = trial.checker.finish() {
        trial.judgement.note(violation);
    }
    trial.judgement
}

/// By their moments, but for one: an object is there from its version on, and its maker may hear of it later than
/// who watches it, and has made something for it already.
fn in_order(mut evidence: Vec<Evidence>) -> Vec<Evidence> {
    evidence.sort_by_key(|one| Reverse(one.made()));
    let mut next = i64::MAX;
    for one in &mut evidence {
        if one.made().is_some() {
            next = next.min(one.at);
            one.at = next;
        }
    }
    evidence.sort_by_key(|one| (one.at, one.made()));
    evidence
}

impl Evidence {
    /// The version that an object began with, where this is its creation.
    fn made(&self) -> Option<u64> {
        let Seen::Asked(event) = &self.seen else {
            return None;
        };
        let created = event["verb"] == "create" && event["objectRef"]["subresource"].is_null();
        let version = event["responseObject"]["metadata"]["resourceVersion"].as_str();
        version.filter(|_| created)?.parse().ok()
    }
}

/// Who was asked when one look was taken: each at some moment between the two, as `Evidence::at`.
struct Look {
    begun: i64,
    over: i64,
    processes: Vec<Arc<Process>>,
}

struct Trial {
    looks: Vec<Look>,
    /// How many looks are over.
    past: usize,
    objects: Objects,
    cuts: Vec<Cut>,
    /// Pods whose process the test has killed.
    killed: BTreeSet<String>,
    checker: Checker,
    operator: u32,
    judgement: Judgement,
    /// As `Evidence::at`.
    now: i64,
    at: Millis,
}

impl Judgement {
    fn note(&mut self, violation: Violation) {
        self.broken.entry(violation.rule).or_insert(violation);
    }
}

impl Trial {
    fn hear(&mut self, seen: Seen) {
        match seen {
            Seen::Asked(event) => {
                if let Some((by, write)) = self.objects.read(&event) {
                    let by = match by {
                        Actor::Operator(_) => Actor::Operator(self.operator),
                        other @ (Actor::User | Actor::Saboteur | Actor::Machinery) => other,
                    };
                    let truth = self.truth_of_a_step();
                    self.step(by, What::Write(write), Some(truth));
                }
                self.objects.take(&event);
            }
            Seen::Said(line) => self.listen(&line),
            Seen::Look { .. } => {
                self.past += 1;
                let truth = self.truth_of_a_look();
                self.step(Actor::Machinery, What::Look, Some(truth));
            }
            Seen::Done(what) => {
                if let What::Fault(fault) = &what
                    && let Hits::Pods(pods) = &fault.hits
                    && fault.id == "F02"
                {
                    self.killed.extend(pods.iter().cloned());
                }
                let truth = self.truth_of_a_step();
                self.step(Actor::Saboteur, what, Some(truth));
            }
            Seen::Cut(cuts) => self.cuts = cuts,
            Seen::OperatorBegins => self.operator += 1,
            Seen::Ledger(ledger) => {
                let mut truth = self.truth_of_a_look();
                truth.ledger = Some(ledger);
                self.step(Actor::Machinery, What::Look, Some(truth));
            }
        }
    }

    /// A line of the log is said; one that tells of an action is that action, and ends its tick.
    fn listen(&mut self, line: &Value) {
        let by = Actor::Operator(self.operator);
        let fields = &line["fields"];
        let field = |name: &str| fields[name].as_str().unwrap_or_default();
        let cluster = cluster_of(line);
        self.step(by, What::Log(line.to_string()), None);
        let truth = self.truth_of_a_line(field("message"));
        for command in commands(fields, &cluster, &truth, self.next()) {
            self.step(by, What::Command(command), Some(truth.clone()));
        }
        if ENDS_OF_TICKS.contains(&field("message")) {
            self.step(by, What::Tick(cluster), None);
        }
    }

    fn step(&mut self, by: Actor, what: What, truth: Option<Snapshot>) {
        match (&what, by) {
            (What::Write(_), Actor::Operator(_)) => self.judgement.writes += 1,
            (What::Command(_), _) => self.judgement.commands += 1,
            (What::Look, _) => self.judgement.looks += 1,
            _ => {}
        }
        let step = Step {
            at: self.at,
            by,
            what,
            truth: truth.map(Arc::new),
        };
        if let Err(violation) = self.checker.step(&step) {
            self.judgement.note(violation);
        }
    }

    /// The last look that was over so long ago.
    fn last(&self, age: i64) -> &[Arc<Process>] {
        let past = self.looks.get(..self.past).unwrap_or_default();
        let mut old = past.iter().rev().filter(|look| look.over + age <= self.now);
        old.next().map_or(&[], |look| &look.processes)
    }

    /// The next one that begins.
    fn next(&self) -> &[Arc<Process>] {
        let coming = self.looks.get(self.past..).unwrap_or_default();
        let next = coming.iter().find(|look| look.begun >= self.now);
        next.map_or(&[], |look| &look.processes)
    }

    fn truth_of_a_look(&self) -> Snapshot {
        let look = self.last(0).iter().map(|process| {
            let mut process = Process::clone(process);
            let next = find(self.next(), &process.pod);
            // Processes are not asked in one moment: what two of them accept counts if both still do next time.
            let still = next.map(|next| process.accepts.common(&next.accepts));
            process.accepts = still.unwrap_or_default();
            // On a busy machine anybody is silent for a moment.
            if process.life == Life::Hung && next.is_some_and(|next| next.life == Life::Alive) {
                process.life = Life::Alive;
            }
            process
        });
        self.snapshot(look)
    }

    /// Before a step whose moment is known.
    fn truth_of_a_step(&self) -> Snapshot {
        let before = self.last(0);
        self.truth_since(before, &claims(before, self.next()))
    }

    /// Before the command that a line of the log tells of.
    fn truth_of_a_line(&self, message: &str) -> Snapshot {
        let (before, next) = (self.last(LATE), self.next());
        // Those whose place a takeover gives to others had a vote until then, and are counted with those who have one.
        let claims = if message == TAKEOVER {
            BTreeMap::new()
        } else {
            claims(before, next)
        };
        let mut truth = self.truth_since(before, &claims);
        // No command ends a process: one that has ended next may have before it.
        for process in &mut truth.processes {
            if find(next, &process.pod).is_some_and(|next| next.life == Life::Ended) {
                Arc::make_mut(process).life = Life::Ended;
            }
        }
        truth
    }

    fn truth_since(&self, before: &[Arc<Process>], claims: &BTreeMap<&str, &Slots>) -> Snapshot {
        let next = self.next();
        let pieced = before
            .iter()
            .map(|before| between(before, find(next, &before.pod), claims));
        Snapshot {
            pieced: true,
            ..self.snapshot(pieced)
        }
    }

    fn snapshot(&self, processes: impl Iterator<Item = Process>) -> Snapshot {
        let ended = self.objects.ended();
        // What the kubelet has told, and whom the test has killed, is known before the next look.
        let processes = processes.map(|mut process| {
            if ended.contains(process.pod.as_str()) || self.killed.contains(&process.pod) {
                process.life = Life::Ended;
            }
            Arc::new(process)
        });
        Snapshot {
            objects: self.objects.0.values().cloned().collect(),
            processes: processes.collect(),
            cuts: self.cuts.clone(),
            ledger: None,
            pieced: false,
        }
    }
}

fn find<'a>(look: &'a [Arc<Process>], pod: &str) -> Option<&'a Process> {
    let found = look.iter().find(|process| process.pod == pod);
    found.map(AsRef::as_ref)
}

/// What each running primary says that it owns next, by id. Whoever came in between may have got it later.
fn claims<'a>(before: &[Arc<Process>], next: &'a [Arc<Process>]) -> BTreeMap<&'a str, &'a Slots> {
    let stays = |one: &&Arc<Process>| find(before, &one.pod).is_some();
    let running = next.iter().filter(|one| one.life == Life::Alive);
    running
        .filter(stays)
        .filter_map(|one| {
            let own = one.table.iter().find(|row| row.id == one.id)?;
            Some((one.id.as_str(), &own.slots))
        })
        .collect()
}

/// A process between two looks, as good as it can have been for what the operator did then.
fn between(before: &Process, after: Option<&Process>, claims: &BTreeMap<&str, &Slots>) -> Process {
    let mut process = before.clone();
    process.accepts = Slots::default();
    for row in &mut process.table {
        let others = claims.iter().filter(|(id, _)| **id != row.id);
        let elsewhere = others.fold(Slots::default(), |all, (_, slots)| all.with(slots));
        row.slots = row.slots.without(&elsewhere);
    }
    let Some(after) = after.filter(|after| after.life == Life::Alive) else {
        return process;
    };
    process.life = Life::Alive;
    process.state_ok |= after.state_ok;
    process.exports.retain(|job| after.exports.contains(job));
    process.keyed = process.keyed.with(&after.keyed);
    match (&mut process.role, &after.role) {
        (
            Role::Replica { of, linked, synced },
            Role::Replica {
                of: same,
                linked: up,
                synced: full,
            },
        ) if of == same => {
            *linked |= up;
            *synced |= full;
            process.offset = process.offset.max(after.offset);
        }
        // Only one that is linked is let into its primary's place, and it has what it took over.
        (Role::Replica { linked, synced, .. }, Role::Primary) => {
            *linked = true;
            *synced |= !after.keyed.is_empty();
            process.offset = process.offset.max(after.offset);
        }
        // A newcomer that was attached.
        (role @ Role::Primary, Role::Replica { .. }) if before.keyed.is_empty() => {
            *role = after.role.clone();
            process.offset = after.offset;
        }
        _ => {}
    }
    process
}

const TAKEOVER: &str = "no quorum — issued TAKEOVER on replica";

/// The last lines of a tick that did something.
pub(crate) const ENDS_OF_TICKS: [&str; 24] = [
    "finalizer added",
    "all data lost, forming the cluster anew",
    "spec captured",
    "TLS Secret validation failed, setting cluster Invalid",
    "node created",
    "node deleted",
    "cluster meet issued",
    "shard lost, its slots start empty",
    "dead member forgotten",
    "slots assigned",
    "replica attached",
    TAKEOVER,
    "issued FAILOVER FORCE on replica",
    "failover to up-to-date replica for rolling upgrade",
    "orphaned slots assigned",
    "epoch bumped",
    "slot migration started",
    "completed join",
    "node leaves",
    "surviving process reset",
    "cluster formed, transitioning to Active",
    "all nodes deleted",
    "cluster released",
    "reconcile error, requeuing",
];

/// The cluster that a line of the log is about. One that tells of a failed tick says so in its span alone.
fn cluster_of(line: &Value) -> Name {
    let fields = &line["fields"];
    if let (Some(namespace), Some(name)) = (
        fields["namespace"].as_str(),
        fields["cluster_name"].as_str(),
    ) {
        return Name::new(namespace, name);
    }
    let reconciled = line["span"]["object.ref"].as_str().unwrap_or_default();
    let cluster = reconciled
        .split_once('/')
        .filter(|(kind, _)| kind.starts_with("ValkeyCluster."))
        .and_then(|(_, place)| place.rsplit_once('.'));
    cluster.map_or_else(Name::default, |(name, namespace)| {
        Name::new(namespace, name)
    })
}

/// The commands that a line of the log tells of.
fn commands(
    fields: &Value,
    cluster: &Name,
    truth: &Snapshot,
    next: &[Arc<Process>],
) -> Vec<Command> {
    let field = |name: &str| fields[name].as_str().unwrap_or_default();
    let process = |node: &str| {
        let name = Name::new(&cluster.namespace, node);
        let mut objects = truth.objects.iter();
        let pod = objects.find(|object| object.kind == "Pod" && object.name == name)?;
        let uid = pod.body["metadata"]["uid"].as_str()?;
        find(&truth.processes, uid)
    };
    let ranges = || {
        let ranges = field("slots").split(' ').filter_map(slot_range);
        ranges.flat_map(|(first, last)| [first.to_string(), last.to_string()])
    };
    let mut words: Vec<String> = vec!["CLUSTER".to_owned()];
    match field("message") {
        "dead member forgotten" | "shard lost, its slots start empty" => {
            words.extend(["FORGET".to_owned(), field("member").to_owned()]);
            let lists = |one: &&Arc<Process>| {
                one.life == Life::Alive
                    && one.table.iter().any(|row| row.id == field("member"))
                    && !matches!(&one.role, Role::Replica { of, .. } if of == field("member"))
            };
            let told = truth.processes.iter().filter(lists);
            return told.map(|one| command(one, words.clone())).collect();
        }
        "slots assigned" | "orphaned slots assigned" => {
            words.push("ADDSLOTSRANGE".to_owned());
            words.extend(ranges());
        }
        "replica attached" => {
            // Whom it follows is seen in the next look.
            let pod = process(field("node")).map(|process| process.pod.as_str());
            let then = pod.and_then(|pod| find(next, pod));
            let Some(Role::Replica { of, .. }) = then.map(|then| &then.role) else {
                return Vec::new();
            };
            words.extend(["REPLICATE".to_owned(), of.clone()]);
        }
        TAKEOVER => {
            words.extend(["FAILOVER", "TAKEOVER"].map(str::to_owned));
        }
        "issued FAILOVER FORCE on replica" => {
            words.extend(["FAILOVER", "FORCE"].map(str::to_owned));
        }
        "failover to up-to-date replica for rolling upgrade" => {
            words.push("FAILOVER".to_owned());
        }
        "epoch bumped" => words.push("BUMPEPOCH".to_owned()),
        "surviving process reset" => words.extend(["RESET", "HARD"].map(str::to_owned)),
        "slot migration started" => {
            let Some(target) = process(field("target_node")) else {
                return Vec::new();
            };
            words.extend(["MIGRATESLOTS", "SLOTSRANGE"].map(str::to_owned));
            words.extend(ranges());
            words.extend(["NODE".to_owned(), target.id.clone()]);
        }
        _ => return Vec::new(),
    }
    let told = process(field("node")).map(|process| command(process, words));
    told.into_iter().collect()
}

fn command(to: &Process, words: Vec<String>) -> Command {
    Command {
        ip: to.ip.clone(),
        pod: Some(to.pod.clone()),
        id: Some(to.id.clone()),
        words,
        outcome: Outcome::Done,
    }
}

/// Every object, as the audit log has it.
#[derive(Default)]
pub(crate) struct Objects(BTreeMap<(&'static str, Name), Arc<Object>>);

impl Objects {
    /// The pods of a namespace.
    pub(crate) fn pods<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Value> {
        let pods = self
            .0
            .values()
            .filter(move |object| object.kind == "Pod" && object.name.namespace == namespace);
        pods.map(|object| object.body.as_ref())
    }

    /// The uids of its pods that run.
    pub(crate) fn running(&self, namespace: &str) -> BTreeSet<String> {
        let running = self
            .pods(namespace)
            .filter(|pod| pod["status"]["phase"] == "Running" && !has_ended(pod));
        let uids = running.filter_map(|pod| pod["metadata"]["uid"].as_str());
        uids.map(str::to_owned).collect()
    }

    /// The uids of all pods that have ended.
    fn ended(&self) -> BTreeSet<&str> {
        let pods = self.0.values().filter(|object| object.kind == "Pod");
        let ended = pods.map(|pod| &*pod.body).filter(|pod| has_ended(pod));
        let uids = ended.filter_map(|pod| pod["metadata"]["uid"].as_str());
        uids.collect()
    }

    /// The write that an event is, and whose; nothing where it is none, or one of no interest.
    fn read(&self, event: &Value) -> Option<(Actor, Write)> {
        let asked = Asked::of(event)?;
        let verb = match (event["verb"].as_str()?, asked.subresource) {
            // It is the pod that goes.
            ("delete", _) | ("create", "eviction") => Verb::Delete,
            ("create", _) => Verb::Create,
            ("update", _) => Verb::Update,
            ("patch", _) => Verb::Patch,
            _ => return None,
        };
        let outcome = match event["responseStatus"]["code"].as_u64()? {
            200..300 => Outcome::Done,
            code => {
                let reason = event["responseStatus"]["reason"]
                    .as_str()
                    .unwrap_or_default();
                Outcome::Refused(format!("{code} {reason}"))
            }
        };
        let done = outcome == Outcome::Done;
        let before = self.0.get(&(asked.kind, asked.name.clone()));
        let after = match verb {
            _ if !done => Some(event["requestObject"].clone()),
            Verb::Delete => asked.left.cloned(),
            Verb::Create | Verb::Update | Verb::Patch => Some(event["responseObject"].clone()),
        };
        let write = Write {
            verb,
            kind: asked.kind.to_owned(),
            name: asked.name,
            subresource: asked.subresource.to_owned(),
            before: before.map(|object| object.body.clone()),
            after: after.filter(|after| !after.is_null()).map(Arc::new),
            outcome,
        };
        Some((actor(event), write))
    }

    /// Takes in what an event changed.
    pub(crate) fn take(&mut self, event: &Value) {
        let Some(asked) = Asked::of(event) else {
            return;
        };
        if !matches!(event["responseStatus"]["code"].as_u64(), Some(200..300)) {
            return;
        }
        let key = (asked.kind, asked.name.clone());
        if asked.subresource == "eviction" {
            // The answer does not show the pod, which is being deleted from now on.
            if let Some(pod) = self.0.get_mut(&key) {
                let mut body = Value::clone(&pod.body);
                body["metadata"]["deletionTimestamp"] = event["stageTimestamp"].clone();
                let going = Object {
                    body: Arc::new(body),
                    ..Object::clone(pod)
                };
                *pod = Arc::new(going);
            }
            return;
        }
        let Some(body) = asked.left else {
            self.0.remove(&key);
            return;
        };
        let version = |body: &Value| -> Option<u64> {
            body["metadata"]["resourceVersion"].as_str()?.parse().ok()
        };
        let known = self.0.get(&key).and_then(|known| version(&known.body));
        // Two answers may come in another order than what they tell of.
        if known > version(body) {
            return;
        }
        let object = Object {
            kind: asked.kind.to_owned(),
            name: asked.name,
            body: Arc::new(body.clone()),
        };
        self.0.insert(key, Arc::new(object));
    }
}

/// Whether the kubelet has told of a pod's end. The phase of one that is being deleted stays `Running` for a while after its
/// container has ended.
fn has_ended(pod: &Value) -> bool {
    let status = &pod["status"];
    let mut containers = status["containerStatuses"].as_array().into_iter().flatten();
    matches!(status["phase"].as_str(), Some("Failed" | "Succeeded"))
        || containers.any(|container| container["state"]["terminated"].is_object())
}

/// What an event is about.
struct Asked<'a> {
    kind: &'static str,
    name: Name,
    subresource: &'a str,
    /// The object as it stays; none where it went.
    left: Option<&'a Value>,
}

impl<'a> Asked<'a> {
    fn of(event: &'a Value) -> Option<Self> {
        let of = |field: &str| event["objectRef"][field].as_str().unwrap_or_default();
        let (_, kind) = KINDS.iter().find(|(plural, _)| *plural == of("resource"))?;
        let answer = &event["responseObject"];
        let metadata = &answer["metadata"];
        let name = match of("name") {
            "" => metadata["name"].as_str()?,
            name => name,
        };
        let is_object = metadata["uid"].is_string();
        let held = metadata["finalizers"]
            .as_array()
            .is_some_and(|held| !held.is_empty())
            || metadata["deletionGracePeriodSeconds"].as_u64() > Some(0);
        let goes = event["verb"] == "delete" || metadata["deletionTimestamp"].is_string();
        Some(Self {
            kind,
            name: Name::new(of("namespace"), name),
            subresource: of("subresource"),
            left: (is_object && (!goes || held)).then_some(answer),
        })
    }
}

fn actor(event: &Value) -> Actor {
    let user = event["user"]["username"].as_str().unwrap_or_default();
    let agent = event["userAgent"].as_str().unwrap_or_default();
    if user == OPERATOR || !user.starts_with("system:") && !agent.starts_with("kubectl/") {
        Actor::Operator(0)
    } else if agent.starts_with("kubectl/") {
        Actor::User
    } else {
        Actor::Machinery
    }
}

#[cfg(test)]
mod tests;
