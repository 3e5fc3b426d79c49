//! The operator beside the testbed with its log read line by line as it is written, so that it can be killed within
//! microseconds of what it says. Never leaves it running.

use std::io::BufRead as _;
use std::io::BufReader;
use std::process::Child;
use std::process::ChildStdout;
use std::process::Command;
use std::process::Stdio;
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

/// A running operator. It is read from while something is waited for; a pipe holds what it says meanwhile.
pub(crate) struct Followed {
    child: Child,
    out: BufReader<ChildStdout>,
    /// The last lines, for the reader of a failed test.
    heard: Vec<String>,
}

impl Followed {
    pub(crate) fn start(testbed: &Testbed) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_valkey-operator"))
            .env("KUBECONFIG", testbed.kubeconfig())
            .env("RUST_LOG", "info")
            .env_remove("DEFAULT_ZONE_SPREAD")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the operator's binary runs");
        let out = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
        Self {
            child,
            out,
            heard: Vec::new(),
        }
    }

    /// Reads on until a line answers. The operator speaks at least every 30 s, so the deadline is kept within that.
    pub(crate) fn listen<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut answer: impl FnMut(&Said) -> Option<T>,
    ) -> T {
        let start = Instant::now();
        loop {
            let mut line = String::new();
            let read = self.out.read_line(&mut line).expect("the pipe can be read");
            assert!(
                read > 0,
                "the operator ended before {what}; {}",
                self.last_words()
            );
            self.heard.push(line.trim_end().to_owned());
            let said = serde_json::from_str(&line)
                .map(Said)
                .expect("each line is JSON");
            if let Some(answer) = answer(&said) {
                return answer;
            }
            let late = start.elapsed() > limit;
            assert!(
                !late,
                "{what} did not come in {limit:?}; {}",
                self.last_words()
            );
        }
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
        if self.child.kill().is_err() {}
        if self.child.wait().is_err() {}
    }

    pub(crate) fn last_words(&self) -> String {
        let from = self.heard.len().saturating_sub(60);
        format!("its last words:\n{}", self.heard[from..].join("\n"))
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.kill();
    }
}
