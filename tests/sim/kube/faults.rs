//! How the API server misbehaves: a list of rules that a test or a seed writes.
//! Never anything by itself: without rules every answer is the right one.

use super::Millis;
use super::kinds::Kind;
use super::refusal::Refusal;

/// Who makes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Caller {
    /// An operator, by its incarnation.
    Operator(u32),
    /// A person with kubectl.
    Hand,
    Kubelet,
    Scheduler,
    /// The controllers of Kubernetes itself: garbage, namespaces, lost hosts.
    Controllers,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Apply,
    Delete,
}

impl Verb {
    /// Whether it changes anything.
    pub(crate) fn writes(self) -> bool {
        match self {
            Self::Get | Self::List | Self::Watch => false,
            Self::Create | Self::Update | Self::Patch | Self::Apply | Self::Delete => true,
        }
    }
}

/// Which requests, or which events of which watches, a rule is about. What is left out is any.
#[derive(Clone, Debug, Default)]
pub(crate) struct Match {
    pub(crate) caller: Option<Caller>,
    /// Operators only, whichever.
    pub(crate) operators: bool,
    /// Empty means every verb. The events of a watch go by the verb `Watch`.
    pub(crate) verbs: Vec<Verb>,
    pub(crate) kind: Option<Kind>,
    /// The object's name: of a request that has one, or of the object of an event.
    pub(crate) name: Option<String>,
    /// Whether it is about the status.
    pub(crate) status: Option<bool>,
}

impl Match {
    pub(crate) fn kind(kind: Kind) -> Self {
        Self {
            kind: Some(kind),
            ..Self::default()
        }
    }

    pub(crate) fn verb(mut self, verb: Verb) -> Self {
        self.verbs.push(verb);
        self
    }

    fn fits(&self, subject: &Subject<'_>) -> bool {
        self.caller.is_none_or(|caller| caller == subject.caller)
            && (!self.operators || matches!(subject.caller, Caller::Operator(_)))
            && (self.verbs.is_empty() || self.verbs.contains(&subject.verb))
            && self.kind.is_none_or(|kind| kind == subject.kind)
            && self.status.is_none_or(|status| status == subject.status)
            && (self.name.as_deref()).is_none_or(|name| subject.name == Some(name))
    }
}

/// What a rule is tried on.
pub(crate) struct Subject<'a> {
    pub(crate) caller: Caller,
    pub(crate) verb: Verb,
    pub(crate) kind: Kind,
    pub(crate) name: Option<&'a str>,
    pub(crate) status: bool,
}

/// The answers of a server in trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// 409, as after a write that came between.
    Conflict,
    /// 409, as of a create that was done before.
    AlreadyExists,
    /// 429 with a Retry-After of so many seconds.
    TooMany(u32),
    /// 500.
    Internal,
    /// 503.
    Unavailable,
    /// 504.
    TimedOut,
    /// 410 as an HTTP status. The watch of a real server says it in its stream: see `GoneEvent`.
    Gone,
}

impl Trouble {
    pub(super) fn refusal(self, key: &super::kinds::Key) -> Refusal {
        match self {
            Self::Conflict => Refusal::modified(key.kind, &key.name),
            Self::AlreadyExists => Refusal::already_exists(key),
            Self::TooMany(seconds) => Refusal::too_many(seconds),
            Self::Internal => Refusal::internal(),
            Self::Unavailable => Refusal::unavailable(),
            Self::TimedOut => Refusal::timed_out(),
            Self::Gone => Refusal::too_old(1, 2),
        }
    }
}

/// What goes wrong. `applied` says whether the write has its effect nevertheless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// A request is answered so.
    Answer { trouble: Trouble, applied: bool },
    /// A request is never answered.
    Hang { applied: bool },
    /// The connection breaks after so long, without an answer.
    Break { after: Millis, applied: bool },
    /// A request is not looked at before this time.
    Pause { until: Millis },
    /// The answer comes so much later. What a read answers is as old as that.
    Delay { by: Millis },
    /// A list is as it was so many writes ago, and says so by its resourceVersion. Only one that may
    /// be: `resourceVersion` or `limit` is in the request. A list without both is consistent.
    StaleList { writes: u64 },
    /// A watch begins with an ERROR event of code 410, and ends.
    GoneEvent,
    /// An event is not sent, and nobody says so: only a list heals it.
    Lose,
    /// An event is sent twice.
    Double,
    /// An event, and all after it, comes so much later.
    Lag { by: Millis },
    /// An event, and all after it, comes no sooner than this.
    Stall { until: Millis },
    /// An event, and all after it, comes after so many further writes, or after so long.
    LagWrites { writes: u64, at_most: Millis },
}

impl Effect {
    /// Whether it is about an event of a running watch, not about a request.
    fn of_event(&self) -> bool {
        match self {
            Self::Lose
            | Self::Double
            | Self::Lag { .. }
            | Self::Stall { .. }
            | Self::LagWrites { .. } => true,
            Self::Answer { .. }
            | Self::Pause { .. }
            | Self::Hang { .. }
            | Self::Break { .. }
            | Self::Delay { .. }
            | Self::StaleList { .. }
            | Self::GoneEvent => false,
        }
    }
}

/// One fault: what happens to what, when, how often.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) of: Match,
    pub(crate) effect: Effect,
    /// From when on.
    pub(crate) from: Millis,
    /// Until when, this time not included.
    pub(crate) until: Millis,
    /// So many of what fits pass before the first is hit.
    pub(crate) skip: u64,
    /// So many are hit.
    pub(crate) count: u64,
}

impl Rule {
    /// A rule that hits the next one that fits.
    pub(crate) fn once(of: Match, effect: Effect) -> Self {
        Self {
            of,
            effect,
            from: 0,
            until: Millis::MAX,
            skip: 0,
            count: 1,
        }
    }

    /// A rule that hits all that fit in this time.
    pub(crate) fn during(of: Match, effect: Effect, from: Millis, until: Millis) -> Self {
        Self {
            of,
            effect,
            from,
            until,
            skip: 0,
            count: u64::MAX,
        }
    }
}

/// The rules, in the order in which they are tried.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    rules: Vec<Rule>,
    hits: Vec<u64>,
}

impl Faults {
    /// Adds a rule; the number is what `hits` counts it under.
    pub(crate) fn add(&mut self, rule: Rule) -> usize {
        self.rules.push(rule);
        self.hits.push(0);
        self.rules.len() - 1
    }

    /// From now on no rule hits; what was hit stays counted.
    pub(crate) fn heal(&mut self) {
        for rule in &mut self.rules {
            rule.count = 0;
        }
    }

    /// How often each rule hit, in the order in which they were added.
    pub(crate) fn hits(&self) -> &[u64] {
        &self.hits
    }

    /// What goes wrong with a request: the first rule that fits decides.
    pub(super) fn of_request(&mut self, now: Millis, subject: &Subject<'_>) -> Option<Effect> {
        self.first(now, subject, false)
    }

    /// What goes wrong with an event.
    pub(super) fn of_event(&mut self, now: Millis, subject: &Subject<'_>) -> Option<Effect> {
        self.first(now, subject, true)
    }

    fn first(&mut self, now: Millis, subject: &Subject<'_>, event: bool) -> Option<Effect> {
        for (rule, hits) in self.rules.iter_mut().zip(&mut self.hits) {
            let on = rule.count > 0 && rule.from <= now && now < rule.until;
            if !on || rule.effect.of_event() != event || !rule.of.fits(subject) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.count = rule.count.saturating_sub(1);
            *hits += 1;
            return Some(rule.effect.clone());
        }
        None
    }
}
