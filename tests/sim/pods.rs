//! The containers that kubelets start, as Valkey processes.
//! Never invents a setting: a process gets the files and arguments that its pod has.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::kube::containers::{self, Containers, Files, Launch, StartFailure};
use crate::valkey::{self, Life, Net, ProcessId};

/// Lines of a container's log that its pod tells.
const LAST_LINES: usize = 20;

/// A container that was started.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    /// Its process, if it came so far.
    pub(crate) process: Option<ProcessId>,
    /// Its address.
    pub(crate) ip: IpAddr,
    /// Its namespace, and the cluster by the pod's name.
    pub(crate) namespace: String,
    /// The pod's name.
    pub(crate) name: String,
    refused: Option<containers::Exit>,
    out_of_memory: bool,
}

/// Which pod runs which process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pods {
    /// By the pod's uid, the ended ones too.
    pub(crate) containers: BTreeMap<String, Container>,
}

impl Pods {
    /// A process was killed for its memory.
    pub(crate) fn is_out_of_memory(&mut self, process: ProcessId) {
        for container in self.containers.values_mut() {
            container.out_of_memory |= container.process == Some(process);
        }
    }
}

/// The container runtime of every host.
pub(crate) struct Runtime<'a> {
    pub(crate) net: &'a mut Net,
    pub(crate) pods: &'a mut Pods,
}

impl Containers for Runtime<'_> {
    fn start(&mut self, now: u64, launch: Launch) -> Result<(), StartFailure> {
        let Launch {
            uid,
            name,
            namespace,
            ip,
            command,
            files,
            ..
        } = launch;
        let conf = configuration(&command, &files);
        let ip = IpAddr::V4(ip);
        let started = self.net.start(
            now,
            valkey::Launch {
                ip,
                conf,
                files,
                nodes_conf: None,
            },
        );
        let (process, refused) = match started {
            Ok(process) => (Some(process), None),
            Err(message) => (
                None,
                Some(containers::Exit {
                    code: 1,
                    reason: None,
                    message,
                }),
            ),
        };
        let container = Container {
            process,
            ip,
            namespace,
            name,
            refused,
            out_of_memory: false,
        };
        self.pods.containers.insert(uid, container);
        Ok(())
    }

    fn signal(&mut self, now: u64, uid: &str, signal: containers::Signal) {
        let Some(process) = self.process(uid) else {
            return;
        };
        let signal = match signal {
            containers::Signal::Term => valkey::Signal::Term,
            containers::Signal::Kill => valkey::Signal::Kill,
        };
        self.net.signal(now, process, signal);
    }

    fn exited(&mut self, _now: u64, uid: &str) -> Option<containers::Exit> {
        let container = self.pods.containers.get(uid)?;
        if container.refused.is_some() {
            return container.refused.clone();
        }
        let exit = self.net.exit(container.process?)?;
        let from = exit.log.len().saturating_sub(LAST_LINES);
        Some(containers::Exit {
            code: exit.code,
            reason: container.out_of_memory.then(|| "OOMKilled".to_owned()),
            message: exit.log[from..].join("\n"),
        })
    }

    fn refresh(&mut self, _now: u64, uid: &str, files: Files) {
        if let Some(process) = self.process(uid)
            && let Some(mounted) = self.net.files(process)
        {
            *mounted = files;
        }
    }

    fn answers_probe(&mut self, now: u64, uid: &str) -> bool {
        let process = self.process(uid);
        process.is_some_and(|process| self.net.life(now, process) == Some(Life::Running))
    }
}

impl Runtime<'_> {
    fn process(&self, uid: &str) -> Option<ProcessId> {
        self.pods.containers.get(uid)?.process
    }
}

/// `valkey-server FILE --directive value ...`: the file, then the arguments as further lines.
fn configuration(command: &[String], files: &Files) -> String {
    let mut words = command.iter().skip(1).peekable();
    let mut conf = String::new();
    if let Some(path) = words.next_if(|word| !word.starts_with("--")) {
        conf.push_str(files.get(path).map_or("", String::as_str));
    }
    for word in words {
        match word.strip_prefix("--") {
            Some(directive) => conf.extend(["\n", directive]),
            None => conf.extend([" ", word]),
        }
    }
    conf.push('\n');
    conf
}
