//! What the operator logs, as the simulation hears it: lines of the story, and which decisions and errors
//! ever came up.
//! Never changes a run: it hears the same whether a story is wanted or not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};

use operator::model::name::ClusterRef;
use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::plan::Millis;

/// What was heard so far. Clones hear the same.
#[derive(Clone)]
pub(crate) struct Log {
    heard: Arc<Mutex<Heard>>,
    start: Instant,
}

/// The span in which an operator runs, its number in the field of this name: whatever it spawns is within
/// it, and so tells who speaks.
pub(crate) const OPERATOR_FIELD: &str = "operator";

#[derive(Default)]
struct Heard {
    said: Vec<Spoken>,
    seen: BTreeSet<String>,
    /// When what was decided of each cluster lately, the oldest first; nothing that was decided of its nodes alone.
    decided: BTreeMap<ClusterRef, VecDeque<(Millis, String)>>,
}

/// More decisions of a cluster than a look from outside can take.
const DECIDED_MAX: usize = 256;

/// The operator that a span belongs to.
#[derive(Clone, Copy)]
struct Speaker(u32);

/// An event, when it was, whose it is and what it is about.
struct Spoken {
    at: Millis,
    speaker: u32,
    about: String,
    said: Said,
}

/// One event of the operator's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// A line of its log.
    Line(String),
    /// A tick of a cluster, by namespace and name, begins.
    Begins(String, String),
    /// It ends.
    Ends(String, String),
    /// What it decided.
    Decided(String),
}

impl Log {
    /// A log of a run that begins now.
    pub(crate) fn start() -> Self {
        Self {
            heard: Arc::default(),
            start: Instant::now(),
        }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().expect("no panic with it in hand")
    }

    /// What was said before this moment, when and by whom. What was said in one millisecond comes in the
    /// order of what it is about: ticks that run at once are polled in an order that is not ours.
    pub(crate) fn take_said(&self, before: Millis) -> Vec<(Millis, u32, Said)> {
        let mut heard = self.heard();
        let (mut said, later): (Vec<_>, Vec<_>) = std::mem::take(&mut heard.said)
            .into_iter()
            .partition(|spoken| spoken.at < before);
        heard.said = later;
        said.sort_by(|one, other| {
            let key = |spoken: &Spoken| (spoken.at, spoken.speaker);
            key(one)
                .cmp(&key(other))
                .then_with(|| one.about.cmp(&other.about))
        });
        said.into_iter()
            .map(|spoken| (spoken.at, spoken.speaker, spoken.said))
            .collect()
    }

    /// What was decided of a cluster lately, the oldest first.
    pub(crate) fn decided(&self, cluster: &ClusterRef) -> Vec<(Millis, String)> {
        let heard = self.heard();
        let decided = heard.decided.get(cluster);
        decided.into_iter().flatten().cloned().collect()
    }

    /// What was decided last of each cluster before this moment.
    pub(crate) fn decided_last(&self, before: Millis) -> Vec<String> {
        let heard = self.heard();
        let last = |decided: &VecDeque<(Millis, String)>| {
            let last = decided.iter().rfind(|(at, _)| *at < before);
            last.map(|(_, verdict)| verdict.clone())
        };
        heard.decided.values().filter_map(last).collect()
    }

    /// How long the run has gone on.
    pub(crate) fn now(&self) -> Millis {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(Millis::MAX)
    }

    /// Names of actions, reasons, rungs and errors that came up, each as `kind Name`.
    pub(crate) fn take_seen(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.heard().seen)
    }
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for Log {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.is_span()
            || *metadata.level() <= Level::DEBUG && metadata.target().starts_with("operator")
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut number = Number(None);
        attributes.record(&mut number);
        let Some(span) = context.span(id) else { return };
        let around = span.parent();
        let around = around.and_then(|around| around.extensions().get::<Speaker>().copied());
        if let Some(speaker) = number.0.map(Speaker).or(around) {
            span.extensions_mut().insert(speaker);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        let at = self.now();
        let mut heard = self.heard();
        heard.seen.extend(line.seen);
        // A node's controller runs many ticks at once, a cluster's one.
        let is_of_a_node = event.metadata().target().ends_with("::node");
        let about = if is_of_a_node {
            line.node
        } else if line.cluster.is_empty() {
            line.fields.clone()
        } else {
            line.cluster.clone()
        };
        let said = match line.message.as_str() {
            "tick begins" => Said::Begins(line.namespace, line.cluster),
            "tick ends" => Said::Ends(line.namespace, line.cluster),
            "decided" if is_of_a_node => Said::Decided(line.verdict),
            "decided" => {
                let cluster = ClusterRef {
                    namespace: line.namespace,
                    name: line.cluster,
                };
                let decided = heard.decided.entry(cluster).or_default();
                decided.push_back((at, line.verdict.clone()));
                if decided.len() > DECIDED_MAX {
                    decided.pop_front();
                }
                Said::Decided(line.verdict)
            }
            message => {
                let level = event.metadata().level();
                Said::Line(format!("{level} {message}{}", line.fields))
            }
        };
        let span = context.event_span(event);
        let speaker = span.and_then(|span| span.extensions().get::<Speaker>().copied());
        let speaker = speaker.map_or(0, |Speaker(number)| number);
        heard.said.push(Spoken {
            at,
            speaker,
            about,
            said,
        });
    }
}

/// The number of an operator, if a span has it.
struct Number(Option<u32>);

impl Visit for Number {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == OPERATOR_FIELD {
            self.0 = u32::try_from(value).ok();
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
    namespace: String,
    cluster: String,
    node: String,
    verdict: String,
    seen: BTreeSet<String>,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "namespace" => value.clone_into(&mut self.namespace),
            "cluster_name" => value.clone_into(&mut self.cluster),
            "rung" => drop(self.seen.insert(format!("rung {value}"))),
            _ => {}
        }
        write!(self.fields, " {}={value:?}", field.name()).expect("memory takes it");
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => write!(self.message, "{value:?}").expect("memory takes it"),
            "verdict" => {
                self.verdict = format!("{value:?}");
                self.decided();
            }
            "passed" => {}
            "notes" => {
                let text = format!("{value:?}");
                self.seen
                    .extend(names(&text).map(|name| format!("why {name}")));
            }
            "failure" => self.failed(&format!("{value:?}")),
            name => {
                if name == "node" {
                    self.node = format!("{value:?}");
                }
                write!(self.fields, " {name}={value:?}").expect("memory takes it");
            }
        }
    }
}

impl Line {
    /// `Take(AddFinalizer, NotYetOurs)`, `Hold(Menu(ConfigNotFound("a")))`, `Pass`.
    fn decided(&mut self) {
        let mut names = names(&self.verdict);
        match names.next().as_deref() {
            Some("Take") => {
                let names: Vec<String> = names.collect();
                self.seen
                    .extend(names.first().map(|name| format!("action {name}")));
                self.seen
                    .extend(names.iter().skip(1).map(|name| format!("why {name}")));
            }
            Some("Hold") => self.seen.extend(names.map(|name| format!("why {name}"))),
            Some(_) | None => {}
        }
    }

    /// `Act(Write { verb: ..., source: Api(...) })`
    fn failed(&mut self, failure: &str) {
        self.seen
            .extend(names(failure).map(|name| format!("error {name}")));
    }
}

/// The names of variants and types in a Debug text, in their order, quoted text left out.
fn names(text: &str) -> impl Iterator<Item = String> {
    let outside = text.split('"').step_by(2).collect::<Vec<_>>().join("_");
    let words: Vec<String> = outside
        .split(|character: char| !character.is_alphanumeric())
        .filter(|word| word.starts_with(|first: char| first.is_uppercase()))
        .map(str::to_owned)
        .collect();
    words.into_iter()
}
