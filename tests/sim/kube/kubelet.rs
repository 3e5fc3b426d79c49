//! The kubelets: from a pod that was placed to a process, and to its end.
//! Never restarts a container: the pods here have the restart policy `Never`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use serde_json::{Value, json};

use super::containers::{Containers, Exit, Files, Launch, Signal, StartFailure};
use super::faults::Caller;
use super::json;
use super::kinds::{Key, Kind};
use super::pool::{Pool, Reuse};
use super::status::{self, Setting, Word};
use super::volumes::{self, Missing};
use super::writes::{By, DeleteOptions, Part, Write, is_deleting};
use super::{Kube, Millis, Task};

/// The first pause after volumes that are not there (`nestedpendingoperations`), and the longest.
const MOUNT_RETRY: Millis = 500;
const MOUNT_RETRY_MAX: Millis = 122_000;
/// The first pause after an image that is not there (`imagePullBackOff`), and the longest.
const PULL_RETRY: Millis = 10_000;
const PULL_RETRY_MAX: Millis = 300_000;
/// How long `ErrImagePull` is what one sees before it is `ImagePullBackOff`.
const PULL_ERROR_SHOWN: Millis = 2_000;
/// A pod without all that its container needs is looked at again so late.
const CONFIG_RETRY: Millis = 10_000;

/// How far a pod has come on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It waits for its volumes.
    Volumes,
    /// It waits for its image.
    Image,
    /// Its image is there.
    Starting,
    Running,
    Over,
}

/// A pod as its host knows it, whatever the API server says.
#[derive(Debug)]
struct Local {
    key: Key,
    uid: String,
    host: String,
    pod: Arc<Value>,
    stage: Stage,
    /// When the stage goes on.
    due: Millis,
    attempts: u32,
    backing_off: bool,
    ip: Option<Ipv4Addr>,
    admitted: Millis,
    started: Option<Millis>,
    /// Whether the API server was told the present stage.
    reported: bool,
    kill: Kill,
    exit: Option<Exit>,
    files: Files,
    doom: Doom,
    probes_failed: u64,
}

/// How far the end of a process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kill {
    Not,
    /// It was asked to end; from then on it is forced to.
    At(Millis),
    Done,
}

/// Why a kubelet ends a pod that nobody deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Doom {
    No,
    /// Its probe fails.
    Unhealthy,
    /// Its host is too full.
    Evicted(String),
}

/// All kubelets, and what they share.
#[derive(Debug, Default)]
pub(super) struct Kubelets {
    pods: BTreeMap<String, Local>,
    running: BTreeSet<String>,
    images: BTreeSet<String>,
    pool: Pool,
}

impl Kubelets {
    /// The pods that run and have this ConfigMap or Secret in a volume.
    pub(super) fn users_of(&self, key: &Key) -> Vec<String> {
        let users = self.running.iter().filter(|uid| {
            let local = self.pods.get(*uid);
            local.is_some_and(|local| volumes::sources(&local.pod).contains(key))
        });
        users.cloned().collect()
    }
}

/// A process as its host knows it, for whoever moves packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) uid: String,
    pub(crate) key: Key,
    pub(crate) host: String,
    pub(crate) ip: Ipv4Addr,
}

impl Kube {
    /// Makes an image known: it can be pulled from now on.
    pub(crate) fn add_image(&mut self, image: &str) {
        self.kubelets.images.insert(image.to_owned());
    }

    /// The registry no longer has an image; where it was pulled it stays.
    pub(crate) fn remove_image(&mut self, image: &str) {
        self.kubelets.images.remove(image);
    }

    /// How many addresses pods have between them, and which comes next (fault F23).
    pub(crate) fn set_addresses(&mut self, size: u32, reuse: Reuse) {
        self.kubelets.pool.size = size;
        self.kubelets.pool.reuse = reuse;
    }

    /// Fault F16: the host is low on a resource, and this pod is in its way.
    pub(crate) fn evict(&mut self, now: Millis, namespace: &str, name: &str, message: &str) {
        let key = Key::new(Kind::Pod, namespace, name);
        let mut pods = self.kubelets.pods.values_mut();
        if let Some(local) = pods.find(|local| local.key == key && local.stage != Stage::Over) {
            local.doom = Doom::Evicted(message.to_owned());
            let uid = local.uid.clone();
            self.file(now, Task::Sync { key, uid });
        }
    }

    /// The processes that the hosts run, lost hosts included.
    pub(crate) fn running(&self) -> Vec<Placed> {
        let running = self.kubelets.running.iter();
        let locals = running.filter_map(|uid| self.kubelets.pods.get(uid));
        locals
            .filter_map(|local| {
                Some(Placed {
                    uid: local.uid.clone(),
                    key: local.key.clone(),
                    host: local.host.clone(),
                    ip: local.ip?,
                })
            })
            .collect()
    }

    /// Looks which containers ended; their kubelets see it a little later.
    pub(super) fn notice_exits(&mut self, now: Millis, containers: &mut dyn Containers) {
        let running = self.kubelets.running.iter();
        let exits = running.filter_map(|uid| {
            let exit = containers.exited(now, uid)?;
            Some((uid.clone(), exit))
        });
        let exits: Vec<(String, Exit)> = exits.collect();
        for (uid, exit) in exits {
            self.ended(now, &uid, exit);
        }
    }

    fn ended(&mut self, now: Millis, uid: &str, exit: Exit) {
        self.kubelets.running.remove(uid);
        let seen = now + self.rng.between(self.timing.relist);
        let Some(local) = self.kubelets.pods.get_mut(uid) else {
            return;
        };
        local.exit = Some(exit);
        local.stage = Stage::Over;
        local.reported = false;
        local.due = seen;
        let (key, uid) = (local.key.clone(), uid.to_owned());
        self.file(seen, Task::Sync { key, uid });
    }

    /// One look of a kubelet at a pod: it takes the next step, whatever led here.
    pub(super) fn sync(
        &mut self,
        now: Millis,
        key: &Key,
        uid: &str,
        containers: &mut dyn Containers,
    ) {
        let known = self.kubelets.pods.remove(uid);
        let Some(mut local) = known.or_else(|| self.admit(now, key, uid)) else {
            return;
        };
        let kept = if self.hosts.is_up(&local.host) {
            self.step(now, &mut local, containers).is_some()
        } else {
            !self.is_no_more(&local)
        };
        if kept {
            self.kubelets.pods.insert(uid.to_owned(), local);
        } else if let Some(ip) = local.ip {
            self.kubelets.pool.free(ip);
        }
    }

    /// Whether the last trace of a pod went with its host.
    fn is_no_more(&self, local: &Local) -> bool {
        let node = Key::new(Kind::Node, "", &local.host);
        local.stage == Stage::Over
            && self.api.store().get(&node).is_none()
            && self.current(&local.key, &local.uid).is_none()
    }

    /// A pod that its host sees for the first time.
    fn admit(&mut self, now: Millis, key: &Key, uid: &str) -> Option<Local> {
        let pod = self.current(key, uid)?;
        let host = json::text(&pod, "/spec/nodeName")?.to_owned();
        let phase = json::text_or_empty(&pod, "/status/phase");
        if matches!(phase, "Failed" | "Succeeded") && !is_deleting(&pod) {
            return None;
        }
        Some(Local {
            key: key.clone(),
            uid: uid.to_owned(),
            host,
            pod,
            stage: Stage::Volumes,
            due: now,
            attempts: 0,
            backing_off: false,
            ip: None,
            admitted: now,
            started: None,
            reported: false,
            kill: Kill::Not,
            exit: None,
            files: Files::new(),
            doom: Doom::No,
            probes_failed: 0,
        })
    }

    /// The very pod, as the API server has it.
    fn current(&self, key: &Key, uid: &str) -> Option<Arc<Value>> {
        let pod = self.api.store().get(key).cloned();
        pod.filter(|pod| json::text(pod, "/metadata/uid") == Some(uid))
    }

    /// Takes the next step; nothing where the host may forget the pod.
    fn step(
        &mut self,
        now: Millis,
        local: &mut Local,
        containers: &mut dyn Containers,
    ) -> Option<()> {
        let object = self.current(&local.key, &local.uid);
        let leaving = object.as_deref().is_none_or(is_deleting);
        if leaving || local.doom != Doom::No {
            self.put_down(now, local, object.as_deref(), containers);
        }
        if local.stage == Stage::Over {
            return self.farewell(now, local, object.as_deref());
        }
        if now < local.due || (leaving && local.stage != Stage::Running) {
            return Some(());
        }
        match local.stage {
            Stage::Volumes => self.mount(now, local),
            Stage::Image => self.pull(now, local),
            Stage::Starting => self.start(now, local, containers),
            Stage::Running if !local.reported => {
                local.reported = true;
                self.report(now, local, &Word::Running);
            }
            Stage::Running | Stage::Over => {}
        }
        Some(())
    }

    /// Ends a pod that is to go: SIGTERM, its grace, SIGKILL.
    fn put_down(
        &mut self,
        now: Millis,
        local: &mut Local,
        object: Option<&Value>,
        containers: &mut dyn Containers,
    ) {
        if local.stage == Stage::Over {
            return;
        }
        if local.stage != Stage::Running {
            local.stage = Stage::Over;
            local.reported = false;
            local.due = now;
            return;
        }
        let pod = object.unwrap_or(&local.pod);
        let granted = pod.pointer("/metadata/deletionGracePeriodSeconds");
        // A pod that was removed by force has no grace on record; its kubelet gives it its own.
        let own = pod.pointer("/spec/terminationGracePeriodSeconds");
        let grace = granted.or(own).and_then(Value::as_u64).unwrap_or(30);
        let evicted = matches!(local.doom, Doom::Evicted(_));
        let until = now + if evicted { 0 } else { grace * 1000 };
        let before = match local.kill {
            Kill::Not => {
                if !evicted {
                    containers.signal(now, &local.uid, Signal::Term);
                }
                None
            }
            Kill::At(before) => Some(before),
            Kill::Done => return,
        };
        let kill_at = before.map_or(until, |before| before.min(until));
        if kill_at <= now {
            local.kill = Kill::Done;
            containers.signal(now, &local.uid, Signal::Kill);
        } else if before != Some(kill_at) {
            local.kill = Kill::At(kill_at);
            let (key, uid) = (local.key.clone(), local.uid.clone());
            self.file(kill_at, Task::Sync { key, uid });
        }
    }

    /// Reports an end, and removes the object where that is wanted.
    fn farewell(&mut self, now: Millis, local: &mut Local, object: Option<&Value>) -> Option<()> {
        if now < local.due {
            return Some(());
        }
        let object = object?;
        if !local.reported {
            local.reported = true;
            let word = match (&local.doom, &local.exit) {
                (Doom::Evicted(message), exit) => Word::Evicted(exit.clone(), message.clone()),
                (Doom::No | Doom::Unhealthy, Some(exit)) => Word::Ended(exit.clone()),
                (Doom::No | Doom::Unhealthy, None) => Word::NeverRan,
            };
            self.report(now, local, &word);
        }
        if let Some(ip) = local.ip.take() {
            self.kubelets.pool.free(ip);
        }
        if !is_deleting(object) {
            return Some(());
        }
        let options = DeleteOptions {
            uid: Some(local.uid.clone()),
            grace_seconds: Some(0),
            ..DeleteOptions::default()
        };
        let key = local.key.clone();
        let by = By::new(now, Caller::Kubelet);
        let gone = self.write(&by, &Write::Delete { key, options });
        debug_assert!(gone.is_ok(), "the pod was there just now");
        None
    }

    fn report(&mut self, now: Millis, local: &Local, word: &Word) {
        let Some(pod) = self.current(&local.key, &local.uid) else {
            return;
        };
        let setting = Setting {
            now,
            pod: &pod,
            host_address: self.hosts.address(&local.host),
            ip: local.ip.map(|ip| ip.to_string()),
            admitted: local.admitted,
            started: local.started,
        };
        let body = json!({"status": status::compose(&setting, word)});
        let (key, part) = (local.key.clone(), Part::Status);
        let by = By::new(now, Caller::Kubelet);
        let written = self.write(&by, &Write::Update { key, part, body });
        debug_assert!(written.is_ok(), "the pod was there just now");
    }

    fn again(&mut self, local: &mut Local, at: Millis) {
        local.due = at;
        let (key, uid) = (local.key.clone(), local.uid.clone());
        self.file(at, Task::Sync { key, uid });
    }

    fn wait(&mut self, now: Millis, local: &Local, reason: &str, message: &str) {
        self.report(
            now,
            local,
            &Word::Waiting(reason.to_owned(), message.to_owned()),
        );
    }

    /// Volumes, sandbox and address. What is missing keeps the pod in `ContainerCreating`.
    fn mount(&mut self, now: Millis, local: &mut Local) {
        if local.attempts == 0 {
            self.wait(now, local, "ContainerCreating", "");
        }
        let mounted = volumes::files(self.api.store(), &local.pod);
        let address = mounted.ok().and_then(|files| {
            local.files = files;
            self.kubelets.pool.take()
        });
        if address.is_none() {
            let pause = back_off(MOUNT_RETRY, MOUNT_RETRY_MAX, local.attempts);
            local.attempts += 1;
            return self.again(local, now + pause);
        }
        local.ip = address;
        local.attempts = 0;
        local.stage = Stage::Image;
        let ready = now + self.rng.between(self.timing.sandbox);
        self.again(local, ready);
    }

    fn pull(&mut self, now: Millis, local: &mut Local) {
        let image = json::text_or_empty(&local.pod, "/spec/containers/0/image").to_owned();
        if self.kubelets.images.contains(&image) {
            local.stage = Stage::Starting;
            let mut ready = now + self.rng.between(self.timing.start);
            if self.hosts.pulls(&local.host, &image) {
                ready += self.rng.between(self.timing.pull);
            }
            return self.again(local, ready);
        }
        let failure = format!(
            "failed to pull and unpack image \"{image}\": failed to resolve reference \
             \"{image}\": {image}: not found"
        );
        if local.backing_off {
            local.backing_off = false;
            let message = format!("Back-off pulling image \"{image}\": ErrImagePull: {failure}");
            self.wait(now, local, "ImagePullBackOff", &message);
            let pause = back_off(PULL_RETRY, PULL_RETRY_MAX, local.attempts);
            local.attempts += 1;
            return self.again(local, now + pause);
        }
        local.backing_off = true;
        self.wait(now, local, "ErrImagePull", &failure);
        self.again(local, now + PULL_ERROR_SHOWN);
    }

    fn start(&mut self, now: Millis, local: &mut Local, containers: &mut dyn Containers) {
        match self.launch(now, local, containers) {
            Err(Missing(what)) => {
                self.wait(now, local, "CreateContainerConfigError", &what);
                self.again(local, now + CONFIG_RETRY);
            }
            Ok(Err(StartFailure { reason, message })) => {
                local.exit = Some(Exit {
                    code: 128,
                    reason: Some(reason),
                    message,
                });
                local.stage = Stage::Over;
                self.again(local, now);
            }
            Ok(Ok(())) => {
                local.stage = Stage::Running;
                local.started = Some(now);
                self.kubelets.running.insert(local.uid.clone());
                let seen = now + self.rng.between(self.timing.relist);
                self.again(local, seen);
                self.file_probe(now, local);
                // Content that changed between mount and start is caught up with.
                let uid = local.uid.clone();
                self.file_within(now, self.timing.propagation, Task::Refresh { uid });
            }
        }
    }

    fn launch(
        &mut self,
        now: Millis,
        local: &Local,
        containers: &mut dyn Containers,
    ) -> Result<Result<(), StartFailure>, Missing> {
        let (store, pod) = (self.api.store(), &local.pod);
        let ip = local.ip.unwrap_or(Ipv4Addr::UNSPECIFIED);
        let env = volumes::environment(store, pod, ip, self.hosts.address(&local.host))?;
        let launch = Launch {
            uid: local.uid.clone(),
            name: local.key.name.clone(),
            namespace: local.key.namespace.clone(),
            host: local.host.clone(),
            ip,
            image: json::text_or_empty(pod, "/spec/containers/0/image").to_owned(),
            command: volumes::command(pod, &env),
            env,
            files: local.files.clone(),
        };
        Ok(containers.start(now, launch))
    }

    /// The files of a container follow its volumes, all at once; what is gone leaves its files.
    pub(super) fn refresh(&mut self, now: Millis, uid: &str, containers: &mut dyn Containers) {
        let Some(local) = self.kubelets.pods.get_mut(uid) else {
            return;
        };
        if local.stage != Stage::Running || !self.hosts.is_up(&local.host) {
            return;
        }
        if let Ok(files) = volumes::files(self.api.store(), &local.pod)
            && files != local.files
        {
            local.files.clone_from(&files);
            containers.refresh(now, uid, files);
        }
    }

    fn file_probe(&mut self, now: Millis, local: &Local) {
        let probe = local.pod.pointer("/spec/containers/0/livenessProbe");
        if let Some(probe) = probe.filter(|probe| probe.is_object()) {
            let period = probe["periodSeconds"].as_u64().unwrap_or(10) * 1000;
            let uid = local.uid.clone();
            self.file(now + period, Task::Probe { uid });
        }
    }

    pub(super) fn probe(&mut self, now: Millis, uid: &str, containers: &mut dyn Containers) {
        let Some(mut local) = self.kubelets.pods.remove(uid) else {
            return;
        };
        if local.stage == Stage::Running {
            self.file_probe(now, &local);
            if self.hosts.is_up(&local.host) {
                let probe = &local.pod["spec"]["containers"][0]["livenessProbe"];
                let limit = probe["failureThreshold"].as_u64().unwrap_or(3);
                local.probes_failed = if containers.answers_probe(now, uid) {
                    0
                } else {
                    local.probes_failed + 1
                };
                if local.probes_failed >= limit && local.doom == Doom::No {
                    local.doom = Doom::Unhealthy;
                    let (key, uid) = (local.key.clone(), uid.to_owned());
                    self.file(now, Task::Sync { key, uid });
                }
            }
        }
        self.kubelets.pods.insert(uid.to_owned(), local);
    }

    /// The processes of a host end at once.
    pub(super) fn power_off(&mut self, now: Millis, host: &str, containers: &mut dyn Containers) {
        for local in self.kubelets.pods.values() {
            if local.host == host && local.stage == Stage::Running {
                containers.signal(now, &local.uid, Signal::Kill);
            }
        }
    }

    /// A kubelet that is back looks at everything that is, or should be, on its host.
    pub(super) fn resync(&mut self, now: Millis, host: &str) {
        let mut pods: BTreeMap<String, Key> = BTreeMap::new();
        for local in self.kubelets.pods.values_mut() {
            if local.host == host {
                local.reported = false;
                pods.insert(local.uid.clone(), local.key.clone());
            }
        }
        for (key, pod) in self.api.store().list(Kind::Pod, None) {
            if json::text(pod, "/spec/nodeName") == Some(host) {
                let uid = json::text_or_empty(pod, "/metadata/uid").to_owned();
                pods.insert(uid, key.clone());
            }
        }
        for (uid, key) in pods {
            self.file_within(now, self.timing.kubelet, Task::Sync { key, uid });
        }
    }
}

fn back_off(first: Millis, longest: Millis, attempts: u32) -> Millis {
    first.saturating_mul(1 << attempts.min(20)).min(longest)
}
