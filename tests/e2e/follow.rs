//! The operator beside the testbed with its log read line by line as it is written, so that it can be killed within
//! microseconds of what it says. Never leaves it running.

use std::io::BufRead as _;
use std::io::BufReader;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use serde_json::Value;

use crate::testbed::Testbed;

/// What the operator says of each of its writes.
pub(crate) const WRITES: &[&str] = &[
    "finalizer added",
    "creating headless Service",
    "creating auth Secret",
    "creating ACL ConfigMap",
    "updating ACL ConfigMap",
    "updating pod annotations",
    "spec captured",
    "node created",
    "node deleted",
    "creating ConfigMap for node",
    "creating Pod for node",
    "pod recorded",
    "cluster meet issued",
    "dead member forgotten",
    "slots assigned",
    "replica attached",
    ACTIVATION,
];

/// Lines shown of a log.
const LAST_WORDS: usize = 60;

/// The last write of a bootstrap.
pub(crate) const ACTIVATION: &str = "cluster formed, transitioning to Active";

/// One line of the log.
#[derive(Clone, Debug)]
pub(crate) struct Said(pub(crate) Value);

impl Said {
    pub(crate) fn message(&self) -> &str {
        self.0["fields"]["message"].as_str().unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.0["fields"]["namespace"].as_str().unwrap_or_default()
    }

    pub(crate) fn node(&self) -> &str {
        self.0["fields"]["node"].as_str().unwrap_or_default()
    }

    pub(crate) fn is_write(&self) -> bool {
        WRITES.contains(&self.message())
    }
}

/// A running operator.
pub(crate) struct Followed {
    child: Child,
    /// Lines as they come. A thread reads them: a pipe that nobody empties would stop the operator.
    lines: Receiver<String>,
    /// All of them, for the reader of a failed test.
    heard: Arc<Mutex<Vec<String>>>,
}

impl Followed {
    pub(crate) fn start(testbed: &Testbed) -> Self {
        Self::start_with(&testbed.kubeconfig())
    }

    pub(crate) fn start_with(kubeconfig: &Path) -> Self {
        // Dies with the test, however that ends.
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_valkey-operator")])
            .env("KUBECONFIG", kubeconfig)
            .env("RUST_LOG", "info")
            .env_remove("DEFAULT_ZONE_SPREAD")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the operator's binary runs");
        let out = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
        let (sender, lines) = channel();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&heard);
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                keep.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(line.clone());
                // The test may be over and nobody listen any more.
                sender.send(line).ok();
            }
        });
        Self {
            child,
            lines,
            heard,
        }
    }

    /// Listens until a line answers, from where the last listening ended.
    pub(crate) fn listen<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut answer: impl FnMut(&Said) -> Option<T>,
    ) -> T {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = match self.lines.recv_timeout(left) {
                Ok(line) => serde_json::from_str(&line)
                    .map(Said)
                    .expect("each line is JSON"),
                Err(error) => panic!(
                    "{what} did not come in {limit:?}: {error}; {}",
                    self.last_words()
                ),
            };
            if let Some(answer) = answer(&line) {
                return answer;
            }
        }
    }

    /// The next line, if one comes so soon.
    pub(crate) fn next(&mut self, limit: Duration) -> Option<Said> {
        let line = self.lines.recv_timeout(limit).ok()?;
        let said = serde_json::from_str(&line).expect("each line is JSON");
        Some(Said(said))
    }

    /// Every line so far.
    pub(crate) fn heard(&self) -> Vec<Value> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = heard.iter().map(|line| serde_json::from_str(line));
        lines.map(|line| line.expect("each line is JSON")).collect()
    }

    /// Reads on until this is said of the namespace.
    pub(crate) fn hear(&mut self, namespace: &str, message: &str, limit: Duration) -> Said {
        self.listen(&format!("{message:?} of {namespace}"), limit, |said| {
            (said.namespace() == namespace && said.message() == message).then(|| said.clone())
        })
    }

    /// As the kernel or a power failure would: nothing is finished, nothing is said.
    pub(crate) fn kill(&mut self) {
        // It may have ended by itself, which is no different.
        self.child.kill().ok();
        self.child.wait().ok();
    }

    pub(crate) fn last_words(&self) -> String {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let from = heard.len().saturating_sub(LAST_WORDS);
        format!("its last words:\n{}", heard[from..].join("\n"))
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.kill();
    }
}
