//! The API server: requests in, answers out, every write remembered.
//! Never out of order: what is asked is done at once, and told to the watches in the order of the writes.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::Millis;
use super::apply::Owners;
use super::faults::{Caller, Effect, Faults, Match, Rule, Subject, Verb};
use super::json;
use super::kinds::{Key, Kind};
use super::refusal::Refusal;
use super::rng::Rng;
use super::selector::{Fields, Labels};
use super::store::{Change, Store};
use super::target::{Call, Method, Target};
use super::watch::{self, Opening, Scope, WatchId, WatchItem, Watches};
use super::writes::{By, DeleteOptions, Part, Propagation, Write, Written};

/// What a client gets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// A response, so long after the request was served.
    Full {
        after: Millis,
        status: u16,
        /// Seconds, as the header of this name.
        retry_after: Option<u64>,
        body: Vec<u8>,
    },
    /// The stream of a watch.
    Stream { after: Millis, watch: WatchId },
    /// The connection breaks after so long, or the client waits for ever.
    Nothing { broken_after: Option<Millis> },
    /// Nothing was done: the request is to be served at this time.
    Later { at: Millis },
}

/// How long things take when nothing is wrong.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    /// A read by name.
    pub(crate) get: Millis,
    /// A list that waits for the watch cache: since Kubernetes 1.31 until its next progress
    /// notification, which comes every 100 ms (`cacher.go`, `progressRequestPeriod`).
    pub(crate) list: Millis,
    /// A list that may be as old as the cache.
    pub(crate) cached_list: Millis,
    pub(crate) write: Millis,
    /// From a write to its event.
    pub(crate) event: Millis,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            get: 1,
            list: 100,
            cached_list: 2,
            write: 4,
            event: 3,
        }
    }
}

/// One request that wrote, or tried to.
#[derive(Clone, Debug)]
pub(crate) struct AuditRecord {
    pub(crate) at: Millis,
    pub(crate) caller: Caller,
    pub(crate) manager: String,
    pub(crate) verb: Verb,
    pub(crate) key: Key,
    pub(crate) part: Part,
    /// The object before; nothing where there was none.
    pub(crate) before: Option<Arc<Value>>,
    /// The object after; nothing where there is none.
    pub(crate) after: Option<Arc<Value>>,
    /// Whether the write was done. It may still have changed nothing.
    pub(crate) applied: bool,
    /// The HTTP status of the answer; 0 where there was none.
    pub(crate) code: u16,
    /// The reason of a refusal.
    pub(crate) reason: String,
    /// Whether a fault had its hand in it.
    pub(crate) faulted: bool,
}

impl AuditRecord {
    /// Whether the object is another than before.
    pub(crate) fn changed(&self) -> bool {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => !Arc::ptr_eq(before, after),
            (None, None) => false,
            (Some(_), None) | (None, Some(_)) => true,
        }
    }
}

/// A write, as the controllers of Kubernetes hear of it.
#[derive(Clone, Debug)]
pub(super) struct Notice {
    pub(super) key: Key,
    pub(super) change: Change,
    pub(super) before: Option<Arc<Value>>,
    pub(super) object: Arc<Value>,
}

/// The API server.
#[derive(Debug)]
pub(crate) struct Api {
    store: Store,
    watches: Watches,
    owners: Owners,
    audit: Vec<AuditRecord>,
    notices: Vec<Notice>,
    reads: u64,
    uids: u64,
    rng: Rng,
    /// The rules by which it misbehaves.
    pub(crate) faults: Faults,
    /// How fast it is.
    pub(crate) latencies: Latencies,
}

impl Api {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            store: Store::new(),
            watches: Watches::default(),
            owners: Owners::default(),
            audit: Vec::new(),
            notices: Vec::new(),
            reads: 0,
            uids: 0,
            rng: Rng::new(seed),
            faults: Faults::default(),
            latencies: Latencies::default(),
        }
    }

    /// The objects, as they are.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The watches that are open.
    pub(crate) fn watches(&self) -> &Watches {
        &self.watches
    }

    /// Every request that wrote or tried to, in the order of serving.
    pub(crate) fn audit(&self) -> &[AuditRecord] {
        &self.audit
    }

    /// The same, handed out and forgotten.
    pub(crate) fn drain_audit(&mut self) -> Vec<AuditRecord> {
        std::mem::take(&mut self.audit)
    }

    /// Reads served so far, watches included.
    pub(crate) fn reads(&self) -> u64 {
        self.reads
    }

    /// Adds a fault.
    pub(crate) fn misbehave(&mut self, rule: Rule) -> usize {
        self.faults.add(rule)
    }

    /// Fault F12: the server, or its etcd, stands still until then. Nothing is lost.
    pub(crate) fn freeze(&mut self, now: Millis, until: Millis) {
        for effect in [Effect::Pause { until }, Effect::Stall { until }] {
            self.misbehave(Rule::during(Match::default(), effect, now, until));
        }
    }

    /// Ends watches: cleanly, or as a broken connection. How many is given.
    pub(crate) fn cut_watches(&mut self, now: Millis, of: &Match, broken: bool) -> usize {
        self.watches.cut(now, of, broken)
    }

    /// Ends watches with an ERROR event of code 410: they must list again. How many is given.
    pub(crate) fn expire_watches(&mut self, now: Millis, of: &Match) -> usize {
        let refusal = Refusal::too_old(self.store.version(), self.store.version());
        self.watches.expire(now, of, &refusal)
    }

    /// Forgets the history now: a watch or a page of a list that resumes behind it is gone.
    pub(crate) fn compact(&mut self) {
        self.store.compact();
    }

    /// What a client reads next from its watch, if it is due.
    pub(crate) fn poll_watch(&mut self, now: Millis, watch: WatchId) -> Option<WatchItem> {
        self.watches.poll(now, watch, self.store.version())
    }

    /// Forgets a watch whose client is gone.
    pub(crate) fn close_watch(&mut self, watch: WatchId) {
        self.watches.close(watch);
    }

    pub(super) fn owners(&mut self) -> &mut Owners {
        &mut self.owners
    }

    pub(super) fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    pub(super) fn next_uid(&mut self) -> String {
        self.uids += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.uids)
    }

    /// Five letters as `generateName` appends them.
    pub(super) fn name_suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let last = LETTERS.len() as u64 - 1;
        let mut letter = || {
            let at = usize::try_from(self.rng.between((0, last))).unwrap_or_default();
            LETTERS.get(at).copied().map_or('x', char::from)
        };
        (0..5).map(|_| letter()).collect()
    }

    pub(super) fn commit(&mut self, now: Millis, key: &Key, object: Value) -> Arc<Value> {
        let object = self.store.put(key, object);
        self.publish(now);
        object
    }

    pub(super) fn remove(&mut self, now: Millis, key: &Key, last: Value) -> Arc<Value> {
        let last = self.store.remove(key, last);
        self.publish(now);
        last
    }

    fn publish(&mut self, now: Millis) {
        let Some(entry) = self.store.last() else {
            return;
        };
        self.watches.publish(now, entry, &mut self.faults);
        self.notices.push(Notice {
            key: entry.key.clone(),
            change: entry.change,
            before: entry.before.clone(),
            object: entry.object.clone(),
        });
    }

    /// Does a write and remembers it, whoever makes it.
    pub(super) fn write(&mut self, by: &By, write: &Write) -> Result<Written, Refusal> {
        let result = self.recorded(by, write, true);
        self.answered(&result, false);
        result
    }

    /// Does a write, or not, and opens its record.
    fn recorded(&mut self, by: &By, write: &Write, apply: bool) -> Result<Written, Refusal> {
        let mut key = write.key();
        let before = self.store.get(&key).cloned();
        let result = if apply {
            self.perform(by, write)
        } else {
            Err(Refusal::internal())
        };
        if let Ok(written) = &result {
            json::text_or_empty(&written.object, "/metadata/name").clone_into(&mut key.name);
        }
        self.audit.push(AuditRecord {
            at: by.now,
            caller: by.caller,
            manager: by.manager.clone(),
            verb: write.verb(),
            part: write.part(),
            before,
            after: self.store.get(&key).cloned(),
            key,
            applied: result.is_ok(),
            code: 0,
            reason: String::new(),
            faulted: false,
        });
        result
    }

    /// Completes the record of the write made last.
    fn answered(&mut self, result: &Result<Written, Refusal>, faulted: bool) {
        let Some(record) = self.audit.last_mut() else {
            return;
        };
        record.faulted = faulted;
        match result {
            Ok(written) => record.code = if written.created { 201 } else { 200 },
            Err(refusal) => {
                record.code = refusal.code;
                refusal.reason.clone_into(&mut record.reason);
            }
        }
    }

    /// Serves a request.
    pub(super) fn request(&mut self, now: Millis, call: &Call) -> Answer {
        let target = match Target::of(call) {
            Ok(target) => target,
            Err(refusal) => return refused(self.latencies.get, &refusal),
        };
        let effect = self.faults.of_request(
            now,
            &Subject {
                caller: call.caller,
                verb: target.verb,
                kind: target.kind,
                name: target.name.as_deref(),
                status: target.is_status(),
            },
        );
        if let Some(Effect::Pause { until }) = effect
            && until > now
        {
            return Answer::Later { at: until };
        }
        let answer = if target.verb.writes() {
            self.request_write(now, call, &target, effect.as_ref())
        } else {
            self.reads += 1;
            self.request_read(now, call, &target, effect.as_ref())
        };
        answer.unwrap_or_else(|refusal| {
            let after = if target.verb.writes() {
                self.latencies.write
            } else {
                self.latencies.get
            };
            delayed(refused(after, &refusal), effect.as_ref())
        })
    }

    fn request_write(
        &mut self,
        now: Millis,
        call: &Call,
        target: &Target,
        effect: Option<&Effect>,
    ) -> Result<Answer, Refusal> {
        let write = Self::parse(call, target)?;
        let by = By {
            manager: target
                .parameter("fieldManager")
                .unwrap_or("unknown")
                .to_owned(),
            ..By::new(now, call.caller)
        };
        let (apply, instead) = match effect {
            Some(Effect::Answer { trouble, applied }) => {
                let refusal = trouble.refusal(&write.key());
                (*applied, Some(refused(self.latencies.write, &refusal)))
            }
            Some(Effect::Hang { applied }) => (*applied, Some(nothing(None))),
            Some(Effect::Break { after, applied }) => (*applied, Some(nothing(Some(*after)))),
            Some(
                Effect::Delay { .. }
                | Effect::Pause { .. }
                | Effect::Stall { .. }
                | Effect::StaleList { .. }
                | Effect::GoneEvent
                | Effect::Lose
                | Effect::Double
                | Effect::Lag { .. }
                | Effect::LagWrites { .. },
            )
            | None => (true, None),
        };
        let result = self.recorded(&by, &write, apply);
        self.answered(&result, effect.is_some());
        if let Some(instead) = instead {
            if let (Some(record), Answer::Full { status, .. }) = (self.audit.last_mut(), &instead) {
                record.code = *status;
            } else if let Some(record) = self.audit.last_mut() {
                record.code = 0;
            }
            return Ok(instead);
        }
        let answer = written(self.latencies.write, target, &write, &result?);
        Ok(delayed(answer, effect))
    }

    fn parse(call: &Call, target: &Target) -> Result<Write, Refusal> {
        let part = match target.subresource.as_deref() {
            None => Part::Main,
            Some("status") => Part::Status,
            Some("eviction") if call.method == Method::Post => return eviction(call, target),
            Some(_) => return Err(Refusal::no_such_path()),
        };
        let key = target.key();
        if target.verb == Verb::Delete {
            return Ok(Write::Delete {
                key,
                options: delete_options(call, target)?,
            });
        }
        let body = decoded(&call.body)?;
        let merge = call
            .content_type
            .starts_with("application/merge-patch+json");
        match target.verb {
            Verb::Create if target.name.is_some() => Err(Refusal::method_not_allowed()),
            Verb::Create => Ok(Write::Create {
                kind: target.kind,
                namespace: target.namespace.clone().unwrap_or_default(),
                body,
            }),
            Verb::Update => Ok(Write::Update { key, part, body }),
            Verb::Patch if merge => Ok(Write::Merge {
                key,
                part,
                patch: body,
            }),
            Verb::Apply => Ok(Write::Apply {
                key,
                part,
                body,
                force: target.parameter("force") == Some("true"),
            }),
            Verb::Patch | Verb::Get | Verb::List | Verb::Watch | Verb::Delete => {
                Err(Refusal::unsupported_media(&call.content_type))
            }
        }
    }

    fn request_read(
        &mut self,
        now: Millis,
        call: &Call,
        target: &Target,
        effect: Option<&Effect>,
    ) -> Result<Answer, Refusal> {
        match effect {
            Some(Effect::Answer { trouble, .. }) => return Err(trouble.refusal(&target.key())),
            Some(Effect::Hang { .. }) => return Ok(nothing(None)),
            Some(Effect::Break { after, .. }) => return Ok(nothing(Some(*after))),
            Some(
                Effect::Delay { .. }
                | Effect::Pause { .. }
                | Effect::Stall { .. }
                | Effect::StaleList { .. }
                | Effect::GoneEvent
                | Effect::Lose
                | Effect::Double
                | Effect::Lag { .. }
                | Effect::LagWrites { .. },
            )
            | None => {}
        }
        let answer = match target.verb {
            Verb::Get => self.get(target)?,
            Verb::Watch => self.watch(now, call.caller, target, effect)?,
            Verb::List | Verb::Create | Verb::Update | Verb::Patch | Verb::Apply | Verb::Delete => {
                self.list(target, effect)?
            }
        };
        Ok(delayed(answer, effect))
    }

    fn get(&self, target: &Target) -> Result<Answer, Refusal> {
        let key = target.key();
        let object = self.store.get(&key);
        let object = object.ok_or_else(|| Refusal::not_found(key.kind, &key.name))?;
        Ok(full(self.latencies.get, 200, one(target.partial, object)))
    }

    fn scope(target: &Target) -> Result<Scope, Refusal> {
        let selector = |name: &str| target.parameter(name).unwrap_or_default();
        let (labels, fields) = (selector("labelSelector"), selector("fieldSelector"));
        let wrong = |text: &str| Refusal::bad_request(format!("unable to parse: {text}"));
        Ok(Scope {
            kind: target.kind,
            namespace: target.namespace.clone(),
            labels: Labels::parse(labels).ok_or_else(|| wrong(labels))?,
            fields: Fields::parse(fields).ok_or_else(|| wrong(fields))?,
            partial: target.partial,
        })
    }

    fn list(&self, target: &Target, effect: Option<&Effect>) -> Result<Answer, Refusal> {
        let scope = Self::scope(target)?;
        let (limit, asked) = (target.number("limit")?, target.number("resourceVersion")?);
        let current = self.store.version();
        if let Some(asked) = asked.filter(|asked| *asked > current) {
            return Err(Refusal::too_new(asked, current));
        }
        let page = target.parameter("continue").map(Page::read).transpose()?;
        let exact = target.parameter("resourceVersionMatch") == Some("Exact");
        let cached = asked.is_some() || limit.is_some();
        let version = match (&page, effect, asked) {
            (Some(page), _, _) => page.version,
            (None, _, Some(asked)) if exact => asked,
            (None, Some(Effect::StaleList { writes }), _) if cached => {
                // Not older than the client demands.
                (self.store.version_before(*writes)).max(asked.unwrap_or_default())
            }
            (None, _, _) => current,
        };
        let objects = self.objects(&scope, version, page.as_ref())?;
        let latency = if cached {
            self.latencies.cached_list
        } else {
            self.latencies.list
        };
        let limit = limit
            .filter(|limit| *limit > 0)
            .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let cut = limit.filter(|limit| *limit < objects.len());
        let shown = objects
            .get(..cut.unwrap_or(objects.len()))
            .unwrap_or_default();
        let next = cut.and(shown.last()).map(|(key, _)| Page {
            version,
            after: (key.namespace.clone(), key.name.clone()),
        });
        let remaining = cut.map(|cut| objects.len() - cut);
        Ok(full(
            latency,
            200,
            many(&scope, version, shown, next, remaining),
        ))
    }

    /// What is selected, as it was at a version, from a page on.
    fn objects(
        &self,
        scope: &Scope,
        version: u64,
        page: Option<&Page>,
    ) -> Result<Vec<(Key, Arc<Value>)>, Refusal> {
        let (kind, namespace) = (scope.kind, scope.namespace.as_deref());
        let fits = |key: &Key, object: &Value| {
            let unseen = page
                .is_none_or(|page| (&key.namespace, &key.name) > (&page.after.0, &page.after.1));
            unseen && scope.selects(object)
        };
        if version == self.store.version() {
            let all = self.store.list(kind, namespace);
            let selected = all.filter(|(key, object)| fits(key, object));
            return Ok(selected
                .map(|(key, object)| (key.clone(), object.clone()))
                .collect());
        }
        let then = self.store.list_at(kind, namespace, version);
        let then = then.map_err(|gone| page.map_or(gone, |_| Refusal::page_too_old()))?;
        Ok(then
            .into_iter()
            .filter(|(key, object)| fits(key, object))
            .collect())
    }

    fn watch(
        &mut self,
        now: Millis,
        caller: Caller,
        target: &Target,
        effect: Option<&Effect>,
    ) -> Result<Answer, Refusal> {
        let scope = Self::scope(target)?;
        let from = target.number("resourceVersion")?.unwrap_or_default();
        let initial = target.parameter("sendInitialEvents") == Some("true");
        let opening = Opening {
            caller,
            bookmarks: target.parameter("allowWatchBookmarks") == Some("true"),
            timeout: target
                .number("timeoutSeconds")?
                .map(|seconds| seconds * 1000),
            latency: self.latencies.event,
            scope,
        };
        let (scope, latency) = (opening.scope.clone(), self.latencies.get);
        let watch = self.watches.open(now, opening);
        let answer = Answer::Stream {
            after: latency,
            watch,
        };
        let kept = self.store.compacted();
        if effect == Some(&Effect::GoneEvent) || (from != 0 && from < kept) {
            // Once a version was understood, all that is wrong is said in the stream
            // (`cacher.go`, `newErrWatcher`).
            self.watches
                .refuse(now, watch, Refusal::too_old(from, kept));
            return Ok(answer);
        }
        if initial || from == 0 {
            let version = self.store.version();
            let objects = self.objects(&scope, version, None)?;
            let objects: Vec<Arc<Value>> = objects.into_iter().map(|(_, object)| object).collect();
            let bookmark = initial.then_some(version);
            self.watches.begin_with(now, watch, &objects, bookmark);
            return Ok(answer);
        }
        let missed = self.store.since(from);
        self.watches.catch_up(now, watch, missed, &mut self.faults);
        Ok(answer)
    }
}

/// Where a list goes on.
struct Page {
    version: u64,
    /// Namespace and name of the last object shown.
    after: (String, String),
}

impl Page {
    fn read(token: &str) -> Result<Self, Refusal> {
        let mut parts = token.splitn(3, '/');
        let mut part = || {
            parts
                .next()
                .ok_or_else(|| Refusal::bad_request("continue key"))
        };
        let version = part()?.parse();
        Ok(Self {
            version: version.map_err(|_| Refusal::bad_request("continue key is not valid"))?,
            after: (part()?.to_owned(), part()?.to_owned()),
        })
    }

    fn token(&self) -> String {
        format!("{}/{}/{}", self.version, self.after.0, self.after.1)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<T> {
    kind: String,
    api_version: String,
    metadata: ListMeta,
    items: Vec<T>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#continue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining_item_count: Option<usize>,
}

fn many(
    scope: &Scope,
    version: u64,
    shown: &[(Key, Arc<Value>)],
    next: Option<Page>,
    remaining_item_count: Option<usize>,
) -> Vec<u8> {
    let metadata = ListMeta {
        resource_version: version.to_string(),
        r#continue: next.map(|page| page.token()),
        remaining_item_count,
    };
    if scope.partial {
        encoded(&List {
            kind: "PartialObjectMetadataList".to_owned(),
            api_version: "meta.k8s.io/v1".to_owned(),
            metadata,
            items: shown
                .iter()
                .map(|(_, object)| watch::partial(object))
                .collect(),
        })
    } else {
        encoded(&List {
            kind: format!("{}List", scope.kind.facts().name),
            api_version: scope.kind.api_version(),
            metadata,
            items: shown.iter().map(|(_, object)| object.as_ref()).collect(),
        })
    }
}

fn one(partial: bool, object: &Value) -> Vec<u8> {
    if partial {
        encoded(&watch::partial(object))
    } else {
        encoded(object)
    }
}

fn encoded(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("a JSON value is written without fail")
}

fn decoded(body: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::bad_request(error.to_string()))
}

fn full(after: Millis, status: u16, body: Vec<u8>) -> Answer {
    Answer::Full {
        after,
        status,
        retry_after: None,
        body,
    }
}

fn refused(after: Millis, refusal: &Refusal) -> Answer {
    Answer::Full {
        after,
        status: refusal.code,
        retry_after: refusal.retry_after(),
        body: encoded(&refusal.body()),
    }
}

fn nothing(broken_after: Option<Millis>) -> Answer {
    Answer::Nothing { broken_after }
}

/// A deletion that left nothing is answered by a Status, but for pods, whose last state is given.
fn written(after: Millis, target: &Target, write: &Write, written: &Written) -> Answer {
    let status = if written.created { 201 } else { 200 };
    let deletion = write.verb() == Verb::Delete;
    if deletion && written.gone && target.kind != Kind::Pod {
        let facts = target.kind.facts();
        let body = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": target.name, "group": facts.group, "kind": facts.plural,
                "uid": written.object["metadata"]["uid"]},
        });
        return full(after, status, encoded(&body));
    }
    full(after, status, one(target.partial, &written.object))
}

fn delayed(mut answer: Answer, effect: Option<&Effect>) -> Answer {
    if let Some(Effect::Delay { by }) = effect {
        match &mut answer {
            Answer::Full { after, .. } | Answer::Stream { after, .. } => *after += by,
            Answer::Nothing { .. } | Answer::Later { .. } => {}
        }
    }
    answer
}

/// What `kubectl drain` asks for: a deletion, here without a budget that could forbid it.
fn eviction(call: &Call, target: &Target) -> Result<Write, Refusal> {
    let body = decoded(&call.body)?;
    let options = body.get("deleteOptions").cloned().unwrap_or_default();
    Ok(Write::Delete {
        key: target.key(),
        options: options_of(&options),
    })
}

fn delete_options(call: &Call, target: &Target) -> Result<DeleteOptions, Refusal> {
    let body = if call.body.is_empty() {
        Value::Null
    } else {
        decoded(&call.body)?
    };
    let mut options = options_of(&body);
    if let Some(seconds) = target.number("gracePeriodSeconds")? {
        options.grace_seconds = Some(seconds);
    }
    if target.parameter("propagationPolicy") == Some("Orphan") {
        options.propagation = Propagation::Orphan;
    }
    Ok(options)
}

fn options_of(body: &Value) -> DeleteOptions {
    let precondition = |name: &str| {
        let value = body.pointer("/preconditions")?.get(name)?.as_str()?;
        Some(value.to_owned())
    };
    DeleteOptions {
        uid: precondition("uid"),
        version: precondition("resourceVersion"),
        grace_seconds: body.get("gracePeriodSeconds").and_then(Value::as_u64),
        // Foreground deletion waits for those that an owner's deletion blocks on; here nobody does.
        propagation: if body.get("propagationPolicy") == Some(&Value::from("Orphan")) {
            Propagation::Orphan
        } else {
            Propagation::Background
        },
    }
}
