//! Watches one namespace while a test goes on: what the API server was asked, and several times a second what each
//! Valkey process says of itself and of the others.
//! Never changes anything and never judges: `trial.rs` does, afterwards.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::io::Seek as _;
use std::io::SeekFrom;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::checker::evidence::Cut;
use crate::checker::evidence::Export;
use crate::checker::evidence::Fault;
use crate::checker::evidence::Goal;
use crate::checker::evidence::Hits;
use crate::checker::evidence::Ledger;
use crate::checker::evidence::Life;
use crate::checker::evidence::Lost;
use crate::checker::evidence::Name;
use crate::checker::evidence::Process;
use crate::checker::evidence::Role;
use crate::checker::evidence::Row;
use crate::checker::evidence::What;
use crate::checker::slots::Slots;
use crate::ledger::Report;
use crate::ledger::slot;
use crate::stage::Stage;
use crate::trial::Evidence;
use crate::trial::Objects;
use crate::trial::Seen;

/// Between two looks at the processes: an operator that waits looks again after 50 ms at the soonest.
const PAUSE: Duration = Duration::from_millis(100);

/// A process that says nothing for so long hangs, or is cut off.
const SILENCE: Duration = Duration::from_secs(2);

/// A watch that goes on until it is stopped.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    watcher: JoinHandle<Vec<Evidence>>,
    /// What the test itself has to tell.
    told: Mutex<Vec<Evidence>>,
}

impl Watch {
    pub(crate) fn start(stage: &Stage, namespace: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let mut watcher = Watcher {
            namespace: namespace.to_owned(),
            audit: stage.testbed.machine.directory.join("audit.log"),
            read: 0,
            objects: Objects::default(),
            seen: Vec::new(),
            known: BTreeMap::new(),
        };
        let watcher = thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let begun = Instant::now();
                watcher.look();
                thread::sleep(PAUSE.saturating_sub(begun.elapsed()));
            }
            // What was done last is in the log by now.
            watcher.look();
            watcher.seen
        });
        Self {
            stop,
            watcher,
            told: Mutex::new(Vec::new()),
        }
    }

    /// The test breaks something, now.
    pub(crate) fn broken(&self, fault: &str, hits: Hits) {
        let id = fault.to_owned();
        self.tell(Seen::Done(What::Fault(Fault { id, hits })));
    }

    /// From now on this and nothing else is cut.
    pub(crate) fn cut(&self, cuts: Vec<Cut>) {
        self.tell(Seen::Cut(cuts));
    }

    /// All is whole, and nothing is done from outside: what is now must stay.
    pub(crate) fn at_rest(&self) {
        self.tell(Seen::Done(What::Healed));
        self.tell(Seen::Done(What::Stable(Goal::Declared)));
    }

    /// Another operator process begins.
    pub(crate) fn operator_begins(&self) {
        self.tell(Seen::OperatorBegins);
    }

    /// What the writers found in the end.
    pub(crate) fn ledger(&self, report: &Report) {
        let lost = report.lost.keys().map(|key| Lost {
            key: key.clone(),
            slot: u16::try_from(slot(key)).expect("a slot"),
            waited: false,
        });
        self.tell(Seen::Ledger(Ledger {
            acknowledged: report.writes,
            lost: lost.collect(),
        }));
    }

    /// Looks no more: nobody will ask what was seen.
    pub(crate) fn close(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends the watch; `said` are the lines of the operator's log.
    pub(crate) fn stop(self, said: Vec<Value>) -> Vec<Evidence> {
        self.close();
        let mut evidence = self.watcher.join().expect("the watcher ends");
        let told = self.told.into_inner();
        evidence.extend(told.unwrap_or_else(PoisonError::into_inner));
        evidence.extend(said.into_iter().map(|line| Evidence {
            at: moment(&line["timestamp"]),
            seen: Seen::Said(line),
        }));
        evidence
    }

    fn tell(&self, seen: Seen) {
        let at = now();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.push(Evidence { at, seen });
    }
}

/// Microseconds, as the log of the API server and that of the operator count them.
fn now() -> i64 {
    Timestamp::now().as_microsecond()
}

fn moment(text: &Value) -> i64 {
    let moment: Result<Timestamp, _> = text.as_str().unwrap_or_default().parse();
    moment.expect("a moment").as_microsecond()
}

struct Watcher {
    namespace: String,
    audit: PathBuf,
    /// How much of the audit log has been read.
    read: u64,
    objects: Objects,
    seen: Vec<Evidence>,
    known: BTreeMap<String, Known>,
}

/// A process that was spoken to, or is to be.
struct Known {
    home: Name,
    pod: String,
    ip: String,
    link: Option<redis::Connection>,
    last: Option<Process>,
    /// The primary whose data it once had in full.
    synced_with: String,
}

impl Watcher {
    fn look(&mut self) {
        self.read_on();
        for pod in self.objects.pods(&self.namespace) {
            let (uid, ip) = (text(&pod["metadata"]["uid"]), text(&pod["status"]["podIP"]));
            if ip.is_empty() || self.known.contains_key(&uid) {
                continue;
            }
            let cluster = text(&pod["metadata"]["labels"]["app.kubernetes.io/instance"]);
            let known = Known {
                home: Name::new(&self.namespace, &cluster),
                pod: uid.clone(),
                ip,
                link: None,
                last: None,
                synced_with: String::new(),
            };
            self.known.insert(uid, known);
        }
        let there = self.objects.running(&self.namespace);
        let begun = now();
        thread::scope(|scope| {
            for known in self.known.values_mut() {
                let runs = there.contains(&known.pod);
                scope.spawn(move || known.ask(runs));
            }
        });
        let last = self.known.values().filter_map(|known| known.last.clone());
        let processes = last.map(Arc::new).collect();
        self.seen.push(Evidence {
            at: now(),
            seen: Seen::Look { begun, processes },
        });
    }

    fn read_on(&mut self) {
        // It goes with the testbed, where a test fails before it stops its watch.
        let Ok(mut log) = File::open(&self.audit) else {
            return;
        };
        log.seek(SeekFrom::Start(self.read))
            .expect("the audit log can be read on");
        let mut more = Vec::new();
        log.read_to_end(&mut more)
            .expect("the audit log can be read");
        // The last line may be half written.
        let whole = more.iter().rposition(|byte| *byte == b'\n');
        let Some(end) = whole else {
            return;
        };
        self.read += u64::try_from(end + 1).expect("a small file");
        for line in more[..end].split(|byte| *byte == b'\n') {
            let event: Value = serde_json::from_slice(line).expect("each line is JSON");
            let place = &event["objectRef"]["namespace"];
            let elsewhere = place.as_str().is_some_and(|place| place != self.namespace);
            if elsewhere || event["level"] != "RequestResponse" {
                continue;
            }
            self.objects.take(&event);
            self.seen.push(Evidence {
                at: moment(&event["stageTimestamp"]),
                seen: Seen::Asked(event),
            });
        }
    }
}

impl Known {
    fn ask(&mut self, runs: bool) {
        if !runs {
            self.link = None;
            self.lives(Life::Ended);
            return;
        }
        let told = match self.link.take() {
            Some(link) => Ok(link),
            None => connect(&self.ip),
        };
        let told = told.and_then(|mut link| Ok((Told::by(&mut link)?, link)));
        match told {
            Ok((told, link)) => {
                let settings = self.last.as_ref().and_then(|last| last.settings.clone());
                let mut process = self.read(&told);
                self.link = Some(link);
                process.settings = settings.or_else(|| self.settings());
                self.last = Some(process);
            }
            // It is busy loading, or says what it is not asked: it lives all the same.
            Err(error) if !error.is_io_error() => {}
            Err(error) if error.is_timeout() => self.lives(Life::Hung),
            Err(_) => self.lives(Life::Ended),
        }
    }

    fn lives(&mut self, life: Life) {
        if let Some(last) = &mut self.last {
            last.life = life;
        }
    }

    fn settings(&mut self) -> Option<Arc<BTreeMap<String, String>>> {
        let mut asked = redis::cmd("CONFIG");
        let link = self.link.as_mut()?;
        let found = asked.arg("GET").arg("*").query(link).ok();
        found.map(Arc::new)
    }

    fn read(&mut self, told: &Told) -> Process {
        let table: Vec<Row> = told.nodes.lines().filter_map(row).collect();
        let mut own = told.nodes.lines().filter(|line| line.contains("myself"));
        let own = own.next().and_then(row).unwrap_or_default();
        let field = |name: &str| field(&told.info, name);
        let number = |name: &str| field(name).parse().unwrap_or_default();
        let role = match &own.primary {
            None => Role::Primary,
            Some(primary) => {
                let linked = field("master_link_status") == "up";
                if linked {
                    self.synced_with.clone_from(primary);
                }
                Role::Replica {
                    of: primary.clone(),
                    linked,
                    synced: self.synced_with == *primary,
                }
            }
        };
        let state_ok = field("cluster_state") == "ok";
        let shard = own.primary.as_ref().map_or(&own.id, |primary| primary);
        let shard = table.iter().find(|row| row.id == *shard);
        let shard = shard.map(|row| row.slots.clone()).unwrap_or_default();
        let has_keys = !field("db0").is_empty();
        Process {
            home: self.home.clone(),
            pod: self.pod.clone(),
            ip: self.ip.clone(),
            life: Life::Alive,
            accepts: match role {
                Role::Primary if state_ok => own.slots.clone(),
                Role::Primary | Role::Replica { .. } => Slots::default(),
            },
            offset: match role {
                Role::Primary => number("master_repl_offset"),
                Role::Replica { .. } => number("slave_repl_offset"),
            },
            role,
            state_ok,
            epoch: number("cluster_current_epoch"),
            keyed: if has_keys { shard } else { Slots::default() },
            exports: told.jobs.iter().filter_map(export).collect(),
            id: own.id,
            table,
            settings: None,
        }
    }
}

/// What a process says of itself.
struct Told {
    /// CLUSTER INFO and INFO.
    info: String,
    nodes: String,
    jobs: Vec<BTreeMap<String, redis::Value>>,
}

impl Told {
    fn by(link: &mut redis::Connection) -> redis::RedisResult<Self> {
        let mut asked = redis::pipe();
        asked.cmd("CLUSTER").arg("INFO");
        asked.cmd("INFO").arg("replication").arg("keyspace");
        asked.cmd("CLUSTER").arg("NODES");
        asked.cmd("CLUSTER").arg("GETSLOTMIGRATIONS");
        let (cluster, info, nodes, jobs): (String, String, String, _) = asked.query(link)?;
        let info = cluster + &info;
        Ok(Self { info, nodes, jobs })
    }
}

fn connect(ip: &str) -> redis::RedisResult<redis::Connection> {
    let client = redis::Client::open(format!("redis://{ip}:6379"))?;
    let link = client.get_connection_with_timeout(SILENCE)?;
    link.set_read_timeout(Some(SILENCE))?;
    Ok(link)
}

fn field<'a>(info: &'a str, name: &str) -> &'a str {
    let mut lines = info.lines();
    let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_default().trim_end()
}

/// A line of CLUSTER NODES.
pub(crate) fn row(line: &str) -> Option<Row> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [id, place, flags, primary, _, _, epoch, link, slots @ ..] = words.as_slice() else {
        return None;
    };
    let has = |flag: &str| flags.split(',').any(|one| one == flag);
    Some(Row {
        id: (*id).to_owned(),
        ip: place.split(':').next().unwrap_or_default().to_owned(),
        suspected: has("fail?"),
        failed: has("fail"),
        handshake: has("handshake"),
        connected: *link == "connected",
        primary: (*primary != "-").then(|| (*primary).to_owned()),
        epoch: epoch.parse().ok()?,
        slots: Slots::of(slots.iter().filter_map(|range| slot_range(range))),
    })
}

/// `5` or `0-5460`; what a migration by hand leaves is neither.
pub(crate) fn slot_range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// An unfinished job of a source.
fn export(job: &BTreeMap<String, redis::Value>) -> Option<Export> {
    let field =
        |name: &str| -> Option<String> { redis::from_redis_value(job.get(name)?.clone()).ok() };
    let state = field("state")?;
    let ended = ["success", "failed", "cancelled"].contains(&state.as_str());
    let ranges = field("slot_ranges")?;
    (field("operation")? == "EXPORT" && !ended).then(|| {
        let target = field("target_node").unwrap_or_default();
        let slots = Slots::of(ranges.split(' ').filter_map(slot_range));
        Export { target, slots }
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
