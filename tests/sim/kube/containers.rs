//! What the kubelets ask of whoever runs the processes.
//! Never a process: that is another model's.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::Millis;

/// Paths in the container, with what is read there.
pub(crate) type Files = BTreeMap<String, String>;

/// A container to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    /// The pod's uid: what the container is called from now on.
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) host: String,
    pub(crate) ip: Ipv4Addr,
    pub(crate) image: String,
    /// Command and arguments, variables filled in.
    pub(crate) command: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) files: Files,
}

/// A container that could not be started: the pod fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartFailure {
    /// As the kubelet says it, like `StartError`.
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// What a process is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Term,
    Kill,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    /// 128 and the signal's number where one ended it.
    pub(crate) code: i32,
    /// `OOMKilled`; where it is left out, `Completed` or `Error`, by the code.
    pub(crate) reason: Option<String>,
    /// The last lines of its log (`FallbackToLogsOnError`).
    pub(crate) message: String,
}

/// Whoever runs the processes. A container is known by its pod's uid.
pub(crate) trait Containers {
    /// Starts a container.
    fn start(&mut self, now: Millis, launch: Launch) -> Result<(), StartFailure>;

    /// Sends a signal; none to a container that is not there is no error.
    fn signal(&mut self, now: Millis, uid: &str, signal: Signal);

    /// How a container ended, if it did. It is asked after everything that happens.
    fn exited(&mut self, now: Millis, uid: &str) -> Option<Exit>;

    /// The files of its volumes are now these.
    fn refresh(&mut self, now: Millis, uid: &str, files: Files);

    /// Whether its liveness probe is answered in time.
    fn answers_probe(&mut self, _now: Millis, _uid: &str) -> bool {
        true
    }
}
