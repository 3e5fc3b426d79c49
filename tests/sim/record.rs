//! What is kept of a run: the checker's verdict, counts, and the story if one is wanted.
//! Never changes what happens: a run without a story is the same run.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::checker::evidence::{Actor, Fault, Hits, Name, Outcome, Snapshot, Step, What};
use crate::checker::{Checker, Rules, Violation};
use crate::log::{Log, Said};
use crate::plan::Millis;

/// The record of one run.
pub(crate) struct Record {
    checker: Checker,
    log: Log,
    /// The first rule that did not hold.
    pub(crate) violation: Option<Violation>,
    /// What happened, line by line, if it is wanted.
    pub(crate) story: Option<Vec<String>>,
    /// Writes and commands of operators.
    pub(crate) actions: u64,
    /// When an operator last did something.
    pub(crate) acted: Millis,
    /// Faults that were injected, by id.
    pub(crate) faults: BTreeMap<&'static str, u64>,
    /// A digest of all steps: two runs with the same are the same.
    pub(crate) fingerprint: u64,
    /// The last decision, whatever it is about: one that does not change is told once.
    decided: String,
}

impl Record {
    /// A record of a run whose operators log into `log`.
    pub(crate) fn new(rules: Rules, log: Log, story: bool) -> Self {
        Self {
            checker: Checker::new(rules),
            log,
            violation: None,
            story: story.then(Vec::new),
            actions: 0,
            acted: 0,
            faults: BTreeMap::new(),
            fingerprint: 0xcbf2_9ce4_8422_2325,
            decided: String::new(),
        }
    }

    /// Something happened. What the operator logged before comes first.
    pub(crate) fn step(&mut self, at: Millis, by: Actor, what: What, truth: Option<Arc<Snapshot>>) {
        self.hear(at);
        if let (Actor::Operator(_), What::Write(_) | What::Command(_)) = (by, &what) {
            self.actions += 1;
            // A pass comes each 30 seconds, whether there is anything to do or not.
            let passes = matches!(&what, What::Command(command) if !command.changes_topology());
            if !passes {
                self.acted = at;
            }
        }
        if !matches!(what, What::Look) {
            let text = told(by, &what);
            self.note(at, &text);
        }
        self.judge(&Step {
            at,
            by,
            what,
            truth,
        });
    }

    /// Takes up what was logged since the last step.
    pub(crate) fn hear(&mut self, at: Millis) {
        for (at, speaker, said) in self.log.take_said(at) {
            let by = Actor::Operator(speaker);
            let what = match said {
                // The decision says as much.
                Said::Line(line) if line.starts_with("DEBUG waiting") => continue,
                Said::Line(line) => {
                    if line.contains("a tick panicked") {
                        self.break_rule("panic", at, line.clone());
                    }
                    self.note(at, &format!("operator {speaker}: {line}"));
                    What::Log(line)
                }
                Said::Begins(namespace, cluster) => What::Tick(Name::new(&namespace, &cluster)),
                Said::Ends(namespace, cluster) => What::TickEnd(Name::new(&namespace, &cluster)),
                Said::Decided(verdict) => {
                    let decided = format!("operator {speaker}: decided {verdict}");
                    if self.decided != decided {
                        self.note(at, &decided);
                        self.decided = decided;
                    }
                    continue;
                }
            };
            self.judge(&Step {
                at,
                by,
                what,
                truth: None,
            });
        }
    }

    /// A fault was injected.
    pub(crate) fn fault(&mut self, at: Millis, id: &'static str, hits: Hits, truth: Arc<Snapshot>) {
        *self.faults.entry(id).or_default() += 1;
        let fault = Fault {
            id: id.to_owned(),
            hits,
        };
        self.step(at, Actor::Saboteur, What::Fault(fault), Some(truth));
    }

    /// So much longer may what must come about take.
    pub(crate) fn allow(&mut self, longer: Millis) {
        self.checker.rules().grace = longer;
    }

    /// The end of the run.
    pub(crate) fn finish(&mut self, at: Millis) {
        self.hear(at);
        if let Err(violation) = self.checker.finish() {
            self.violation.get_or_insert(violation);
        }
    }

    /// Something that no rule of the checker's is about, and that must not be.
    pub(crate) fn break_rule(&mut self, rule: &'static str, at: Millis, story: String) {
        self.violation.get_or_insert(Violation { rule, at, story });
    }

    /// A line of the story.
    pub(crate) fn note(&mut self, at: Millis, text: &str) {
        for byte in text.bytes().chain(at.to_le_bytes()) {
            self.fingerprint = (self.fingerprint ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if let Some(story) = &mut self.story {
            story.push(format!("{:>4}.{:03} {text}", at / 1000, at % 1000));
        }
    }

    fn judge(&mut self, step: &Step) {
        if self.violation.is_some() {
            return;
        }
        if let Err(violation) = self.checker.step(step) {
            self.note(step.at, &format!("BROKEN {violation}"));
            self.violation = Some(violation);
        }
    }
}

/// A step in a line.
fn told(by: Actor, what: &What) -> String {
    let outcome = |outcome: &Outcome| match outcome {
        Outcome::Done => String::new(),
        Outcome::Refused(words) => format!(": refused: {words}"),
        Outcome::Unanswered { done } => format!(": no answer, done: {done}"),
    };
    let text = match what {
        What::Tick(name) => format!("looks at {name}"),
        What::TickEnd(name) => format!("is done with {name}"),
        What::Write(write) => format!(
            "{:?} {} {}{}{}",
            write.verb,
            write.kind,
            write.name,
            if write.subresource.is_empty() {
                ""
            } else {
                "/status"
            },
            outcome(&write.outcome)
        ),
        What::Command(command) => format!(
            "to {}: {}{}",
            command.ip,
            command.words.join(" "),
            outcome(&command.outcome)
        ),
        What::Log(line) => line.clone(),
        What::Fault(fault) => format!("{} hits {:?}", fault.id, fault.hits),
        What::Healed => "all is whole again".to_owned(),
        What::Stable(goal) => format!("nothing more is done from outside: {goal:?}"),
        What::Calm => "there is nothing to do".to_owned(),
        What::Look => "looks".to_owned(),
    };
    format!("{by:?} {text}")
}
