//! Watches: what each client was sent, and what it is still to be sent, when.
//! Never sends out of order; what lags holds back all that follows.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::Millis;
use super::faults::{Caller, Effect, Faults, Match, Subject, Verb};
use super::kinds::Kind;
use super::refusal::Refusal;
use super::selector::{Fields, Labels};
use super::store::{Change, Entry};

/// Between two bookmarks (`cacher.go`: about once a minute).
const BOOKMARK_PERIOD: Millis = 60_000;
/// A watch whose client names no timeout: half an hour, the API server's `--min-request-timeout`.
const TIMEOUT_DEFAULT: Millis = 1_800_000;

/// A watch, as the client's stream is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WatchId(pub(crate) u64);

/// What a client reads from its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchItem {
    /// One line of JSON, with its end.
    Line(Vec<u8>),
    /// The server closed the stream.
    End,
    /// The connection broke.
    Broken,
}

/// What a watch is to show.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) kind: Kind,
    pub(crate) namespace: Option<String>,
    pub(crate) labels: Labels,
    pub(crate) fields: Fields,
    /// Metadata only.
    pub(crate) partial: bool,
}

impl Scope {
    /// Whether an object is within.
    pub(crate) fn selects(&self, object: &Value) -> bool {
        self.labels.selects(object) && self.fields.selects(object)
    }
}

/// How a watch is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    pub(crate) caller: Caller,
    pub(crate) scope: Scope,
    pub(crate) bookmarks: bool,
    pub(crate) timeout: Option<Millis>,
    /// An event is sent so long after its write.
    pub(crate) latency: Millis,
}

#[derive(Debug)]
enum Frame {
    Event {
        change: Change,
        object: Arc<Value>,
        /// An object that left the selection is shown as it was, at the version at which it left.
        version: Option<u64>,
    },
    Bookmark {
        version: u64,
        /// It ends the events that a client asked to begin with.
        initial: bool,
    },
    Refused(Refusal),
    End,
    Broken,
}

#[derive(Debug)]
struct Queued {
    due: Millis,
    /// Held back until the store has come so far, or `due` is reached.
    version: Option<u64>,
    frame: Frame,
}

#[derive(Debug)]
struct Watch {
    opening: Opening,
    queue: VecDeque<Queued>,
    next_bookmark: Millis,
    closes: Millis,
    over: bool,
}

impl Watch {
    fn push(&mut self, due: Millis, frame: Frame) {
        self.push_held(due, None, frame);
    }

    fn push_held(&mut self, due: Millis, version: Option<u64>, frame: Frame) {
        self.queue.push_back(Queued {
            due,
            version,
            frame,
        });
    }

    fn finish(&mut self, due: Millis, frame: Frame) {
        self.push(due, frame);
        self.over = true;
    }

    fn fits(&self, of: &Match) -> bool {
        let Opening { caller, scope, .. } = &self.opening;
        of.caller.is_none_or(|one| one == *caller) && of.kind.is_none_or(|kind| kind == scope.kind)
    }

    /// What an entry of the history is to this watch: nothing, an event, or an event in disguise,
    /// because the selection is made by labels that change (`cacher.go`, `convertToWatchEvent`).
    fn frame(&self, entry: &Entry) -> Option<Frame> {
        let scope = &self.opening.scope;
        let inside =
            (scope.namespace.as_ref()).is_none_or(|namespace| *namespace == entry.key.namespace);
        if entry.key.kind != scope.kind || !inside {
            return None;
        }
        let was = entry.before.as_ref().filter(|before| scope.selects(before));
        let is = entry.change != Change::Deleted && scope.selects(&entry.object);
        match (was, is) {
            (None, false) => None,
            (None, true) => Some(event(Change::Added, &entry.object)),
            (Some(_), true) => Some(event(Change::Modified, &entry.object)),
            (Some(_), false) if entry.change == Change::Deleted => {
                Some(event(Change::Deleted, &entry.object))
            }
            (Some(before), false) => Some(Frame::Event {
                change: Change::Deleted,
                object: before.clone(),
                version: Some(entry.version),
            }),
        }
    }
}

fn event(change: Change, object: &Arc<Value>) -> Frame {
    Frame::Event {
        change,
        object: object.clone(),
        version: None,
    }
}

/// All watches.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    open: BTreeMap<WatchId, Watch>,
    opened: u64,
}

impl Watches {
    /// Opens a watch.
    pub(super) fn open(&mut self, now: Millis, opening: Opening) -> WatchId {
        self.opened += 1;
        let id = WatchId(self.opened);
        let closes = now + opening.timeout.unwrap_or(TIMEOUT_DEFAULT);
        self.open.insert(
            id,
            Watch {
                opening,
                queue: VecDeque::new(),
                next_bookmark: now + BOOKMARK_PERIOD,
                closes,
                over: false,
            },
        );
        id
    }

    /// A watch begins with objects that are there already.
    pub(super) fn begin_with(
        &mut self,
        now: Millis,
        id: WatchId,
        objects: &[Arc<Value>],
        bookmark: Option<u64>,
    ) {
        let Some(watch) = self.open.get_mut(&id) else {
            return;
        };
        for object in objects {
            watch.push(now, event(Change::Added, object));
        }
        if let Some(version) = bookmark {
            watch.push(
                now,
                Frame::Bookmark {
                    version,
                    initial: true,
                },
            );
        }
    }

    /// A watch begins with what was written since; faults reach these events too.
    pub(super) fn catch_up<'a>(
        &mut self,
        now: Millis,
        id: WatchId,
        entries: impl Iterator<Item = &'a Entry>,
        faults: &mut Faults,
    ) {
        if let Some(watch) = self.open.get_mut(&id) {
            for entry in entries {
                tell(watch, now, entry, faults);
            }
        }
    }

    /// A watch says at once that its history is gone, and ends.
    pub(super) fn refuse(&mut self, now: Millis, id: WatchId, refusal: Refusal) {
        if let Some(watch) = self.open.get_mut(&id) {
            watch.push(now, Frame::Refused(refusal));
            watch.finish(now, Frame::End);
        }
    }

    /// Tells every watch of a write.
    pub(super) fn publish(&mut self, now: Millis, entry: &Entry, faults: &mut Faults) {
        for watch in self.open.values_mut().filter(|watch| !watch.over) {
            tell(watch, now, entry, faults);
        }
    }

    /// Ends the watches that fit: cleanly, or as a connection that breaks. What they were still to
    /// be sent is sent no more; the client finds it again from where it is.
    pub(super) fn cut(&mut self, now: Millis, of: &Match, broken: bool) -> usize {
        let mut count = 0;
        for watch in self.open.values_mut() {
            if watch.over || !watch.fits(of) {
                continue;
            }
            watch.queue.clear();
            let end = if broken { Frame::Broken } else { Frame::End };
            watch.finish(now, end);
            count += 1;
        }
        count
    }

    /// Ends the watches that fit with an ERROR event of code 410.
    pub(super) fn expire(&mut self, now: Millis, of: &Match, refusal: &Refusal) -> usize {
        let mut count = 0;
        for watch in self.open.values_mut() {
            if watch.over || !watch.fits(of) {
                continue;
            }
            watch.queue.clear();
            watch.push(now, Frame::Refused(refusal.clone()));
            watch.finish(now, Frame::End);
            count += 1;
        }
        count
    }

    /// Forgets a watch whose client is gone.
    pub(super) fn close(&mut self, id: WatchId) {
        self.open.remove(&id);
    }

    /// Whether a watch is still known.
    pub(crate) fn is_open(&self, id: WatchId) -> bool {
        self.open.contains_key(&id)
    }

    /// When a watch has something to say next, as far as time alone brings it.
    pub(crate) fn next_due(&self, id: WatchId) -> Option<Millis> {
        let watch = self.open.get(&id)?;
        let first = watch.queue.front().map(|queued| queued.due);
        if watch.over {
            return first;
        }
        let bookmark = watch.opening.bookmarks.then_some(watch.next_bookmark);
        let dues = [first, bookmark, Some(watch.closes)];
        dues.into_iter().flatten().min()
    }

    /// The next thing that a client reads, if it is due; the store is at `version`.
    pub(super) fn poll(&mut self, now: Millis, id: WatchId, version: u64) -> Option<WatchItem> {
        let watch = self.open.get_mut(&id)?;
        if !watch.over && watch.closes <= now {
            watch.queue.retain(|queued| queued.due <= now);
            watch.finish(now, Frame::End);
        }
        if !watch.over && watch.opening.bookmarks && watch.next_bookmark <= now {
            watch.next_bookmark = now + BOOKMARK_PERIOD;
            let initial = false;
            watch.push(now, Frame::Bookmark { version, initial });
        }
        let first = watch.queue.front()?;
        let released = first.version.is_some_and(|held| held <= version);
        if first.due > now && !released {
            return None;
        }
        let first = watch.queue.pop_front()?;
        let item = wire(&watch.opening.scope, first.frame);
        if matches!(item, WatchItem::End | WatchItem::Broken) {
            self.open.remove(&id);
        }
        Some(item)
    }
}

fn tell(watch: &mut Watch, now: Millis, entry: &Entry, faults: &mut Faults) {
    let Some(frame) = watch.frame(entry) else {
        return;
    };
    let subject = Subject {
        caller: watch.opening.caller,
        verb: Verb::Watch,
        kind: entry.key.kind,
        name: Some(&entry.key.name),
        status: false,
    };
    let due = now + watch.opening.latency;
    match faults.of_event(now, &subject) {
        Some(Effect::Lose) => {}
        Some(Effect::Double) => {
            if let Frame::Event {
                change,
                object,
                version,
            } = &frame
            {
                let again = Frame::Event {
                    change: *change,
                    object: object.clone(),
                    version: *version,
                };
                watch.push(due, again);
            }
            watch.push(due, frame);
        }
        Some(Effect::Lag { by }) => watch.push(due + by, frame),
        Some(Effect::Stall { until }) => watch.push(due.max(until), frame),
        Some(Effect::LagWrites { writes, at_most }) => {
            watch.push_held(due + at_most, Some(entry.version + writes), frame);
        }
        None
        | Some(
            Effect::Answer { .. }
            | Effect::Pause { .. }
            | Effect::Hang { .. }
            | Effect::Break { .. }
            | Effect::Delay { .. }
            | Effect::StaleList { .. }
            | Effect::GoneEvent,
        ) => watch.push(due, frame),
    }
}

#[derive(Serialize)]
struct Line<'a, T> {
    r#type: &'a str,
    object: T,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Partial<'a> {
    kind: &'a str,
    api_version: &'a str,
    metadata: &'a Value,
}

fn wire(scope: &Scope, frame: Frame) -> WatchItem {
    let bytes = match frame {
        Frame::End => return WatchItem::End,
        Frame::Broken => return WatchItem::Broken,
        Frame::Event {
            change,
            object,
            version,
        } => {
            let object = match version {
                Some(version) => {
                    let mut left = Value::clone(&object);
                    left["metadata"]["resourceVersion"] = Value::from(version.to_string());
                    Arc::new(left)
                }
                None => object,
            };
            event_line(scope, change, &object)
        }
        Frame::Bookmark { version, initial } => bookmark_line(scope, version, initial),
        Frame::Refused(refusal) => line("ERROR", &refusal.body()),
    };
    WatchItem::Line(bytes)
}

fn event_line(scope: &Scope, change: Change, object: &Value) -> Vec<u8> {
    let word = match change {
        Change::Added => "ADDED",
        Change::Modified => "MODIFIED",
        Change::Deleted => "DELETED",
    };
    if scope.partial {
        line(word, &partial(object))
    } else {
        line(word, object)
    }
}

fn bookmark_line(scope: &Scope, version: u64, initial: bool) -> Vec<u8> {
    let (kind, api_version) = if scope.partial {
        (
            "PartialObjectMetadata".to_owned(),
            "meta.k8s.io/v1".to_owned(),
        )
    } else {
        (scope.kind.facts().name.to_owned(), scope.kind.api_version())
    };
    let mut object = json!({"kind": kind, "apiVersion": api_version,
        "metadata": {"resourceVersion": version.to_string(), "creationTimestamp": null}});
    if initial {
        object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    line("BOOKMARK", &object)
}

/// An object as its metadata alone.
pub(super) fn partial(object: &Value) -> impl Serialize {
    Partial {
        kind: "PartialObjectMetadata",
        api_version: "meta.k8s.io/v1",
        metadata: &object["metadata"],
    }
}

fn line(word: &str, object: &impl Serialize) -> Vec<u8> {
    let line = Line {
        r#type: word,
        object,
    };
    let mut bytes = serde_json::to_vec(&line).expect("a JSON value is written without fail");
    bytes.push(b'\n');
    bytes
}
