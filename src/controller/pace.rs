//! When to look again: outcome in, pause out.
//! Never a fixed delay for all: an action is followed at once, a wait polls, an error backs off.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::core::Status;
use tokio::time::Instant;

use crate::act;
use crate::controller::Error;
use crate::model::decision::Action;
use crate::model::name::NodeName;
use crate::model::why::Why;

/// Half of Valkey's own step: its cluster cron runs every 100 ms.
const POLL_MIN: Duration = Duration::from_millis(50);
/// A wait that has lasted long is polled at this part of its length: its end is seen at most 5 %
/// late, which no fixed and no doubling pause gives.
const POLL_PART: u32 = 20;
/// A wait for gossip, elections or a sync.
const POLL_MAX: Duration = Duration::from_secs(1);
/// Within which a failover ends that goes well: it takes 10 to 100 ms.
const FAILOVER: Duration = Duration::from_millis(200);
/// A wait that a watch ends: the poll is only for a lost event.
const WATCHED_MAX: Duration = Duration::from_secs(10);
/// A wait for a person.
const PERSON_MAX: Duration = Duration::from_secs(30);
/// Nothing to do.
const IDLE: Duration = Duration::from_secs(10);
/// After the first error.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// After an error that repeats: whatever it was, its end is seen soon, and a thousand clusters are no
/// load at this pace.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// After a bug, and between nodes that die one after the other.
const BACK_OFF_MAX: Duration = Duration::from_mins(1);
/// As often the same two nodes are introduced at once. Who was told to forget a node takes none of its greetings
/// for a minute (`CLUSTER_BLACKLIST_TTL` in `cluster_legacy.c`).
const MEETS_MAX: u32 = 3;
/// How long a watch may take to show a node of ours before it is looked for at its source.
const UNSEEN_MAX: Duration = Duration::from_secs(1);
/// A member that just died looks alive until its peers miss it.
const NOTE_AFTER: Duration = Duration::from_secs(10);
/// How often a wait that does not change is said again.
const SAY_AGAIN: Duration = Duration::from_mins(1);

/// How far the stores are behind creates in a row.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Creating {
    /// The last tick made no node, or nothing is known of what became of it.
    No,
    /// The stores show the node that the last tick made.
    Seen,
    /// They do not yet; the watch wakes the cluster when they do, or this pause ends.
    Unseen(Duration),
}

/// The node that the last tick made, and all that there were beside it.
#[derive(Debug)]
struct Made {
    node: NodeName,
    beside: Vec<NodeName>,
    at: Instant,
}

/// How the ticks of one object have gone so far.
#[derive(Debug, Default)]
pub(super) struct Rhythm {
    last_action: Option<Action>,
    /// How often whom was introduced to whom since there was nothing to do.
    meets: BTreeMap<(NodeName, NodeName), u32>,
    made: Option<Made>,
    last_why: Option<Why>,
    waiting_since: Option<Instant>,
    said_at: Option<Instant>,
    last_notes: Vec<Why>,
    notes_since: Option<Instant>,
    noted_at: Option<Instant>,
    repeats: u32,
    failures: u32,
    /// How often nodes died after one was made.
    deaths: u32,
    /// No node was made since the last death: those that die at once are one blow.
    burying: bool,
    not_before: Option<Instant>,
}

impl Rhythm {
    /// How long events must not start a tick yet.
    pub(super) fn pause_left(&self, now: Instant) -> Duration {
        self.not_before
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// Whether the stores have caught up with the node that the last tick made.
    pub(super) fn creating(&self, shown: impl Fn(&NodeName) -> bool, now: Instant) -> Creating {
        match &self.made {
            // One that was seen at its source and not by the watch: its event may be lost.
            Some(made) if !made.beside.iter().all(&shown) => Creating::No,
            Some(made) if shown(&made.node) => Creating::Seen,
            Some(made) if now.duration_since(made.at) < UNSEEN_MAX => Creating::Unseen(POLL_MIN),
            Some(_) | None => Creating::No,
        }
    }

    /// The next tick comes at once, unless the same action is decided again and again, or node
    /// after node dies.
    pub(super) fn acted(
        &mut self,
        action: &Action,
        why: &Why,
        made: Option<(&NodeName, Vec<NodeName>)>,
        now: Instant,
    ) -> Duration {
        self.failures = 0;
        self.made = made.map(|(node, beside)| Made {
            node: node.clone(),
            beside,
            at: now,
        });
        let again = self.last_action.as_ref() == Some(action);
        self.repeats = if again {
            self.repeats.saturating_add(1)
        } else {
            0
        };
        self.last_action = Some(action.clone());
        self.last_why = None;
        let longest = if matches!(why, Why::NodeDied { .. }) {
            Some(BACK_OFF_MAX)
        } else if matches!(why, Why::JoinEnded { .. }) {
            // The members of a cluster that serves are not to be out of sight for long.
            Some(WATCHED_MAX)
        } else {
            None
        };
        if matches!(action, Action::CreateNode(_, _)) {
            self.burying = false;
        }
        if let Some(longest) = longest {
            if std::mem::replace(&mut self.burying, true) {
                return Duration::ZERO;
            }
            self.deaths = self.deaths.saturating_add(1);
            let pause = doubled(Duration::from_millis(500), self.deaths - 1, longest);
            return if self.deaths > 1 {
                self.hold_back(pause, now)
            } else {
                Duration::ZERO
            };
        }
        if let Action::Meet { seed, newcomer } = action {
            let pair = (seed.clone(), newcomer.clone());
            *self.meets.entry(pair).or_default() += 1;
            if self.is_unheard() {
                return self.hold_back(POLL_MAX, now);
            }
        }
        if matches!(action, Action::Failover(_)) {
            // Only started by it, and started over by a second one.
            self.hold_back(FAILOVER, now)
        } else if matches!(action, Action::ForceFailover(_)) {
            self.hold_back(POLL_MAX, now)
        } else if again {
            // What has no effect is not tried forever at one pace.
            doubled(POLL_MIN, self.repeats, BACK_OFF_MAX)
        } else {
            Duration::ZERO
        }
    }

    /// Whether somebody was introduced again and again, and to no effect.
    fn is_unheard(&self) -> bool {
        self.meets.values().any(|times| *times > MEETS_MAX)
    }

    /// A node took one of its few steps.
    pub(super) fn stepped(&mut self) -> Duration {
        *self = Self::default();
        Duration::ZERO
    }

    /// Whether a wait is news, or old enough to be said again.
    pub(super) fn worth_saying(&mut self, why: &Why, now: Instant) -> bool {
        let news = self.last_why.as_ref() != Some(why);
        let old = self
            .said_at
            .is_none_or(|said| now.duration_since(said) >= SAY_AGAIN);
        if news || old {
            self.said_at = Some(now);
        }
        news || old
    }

    /// Whether what a person should know has lasted, and was not said for a minute.
    pub(super) fn worth_noting(&mut self, notes: &[Why], now: Instant) -> bool {
        if self.last_notes != notes {
            self.last_notes = notes.to_vec();
            self.notes_since = Some(now);
            self.noted_at = None;
        }
        let past = |at: Option<Instant>, pause| at.is_none_or(|at| now.duration_since(at) >= pause);
        let worth = !notes.is_empty()
            && past(self.notes_since, NOTE_AFTER)
            && past(self.noted_at, SAY_AGAIN);
        if worth {
            self.noted_at = Some(now);
        }
        worth
    }

    /// Polls, ever slower while the same reason stays.
    pub(super) fn waited(&mut self, why: &Why, now: Instant) -> Duration {
        self.failures = 0;
        self.repeats = 0;
        self.made = None;
        if self.last_why.as_ref() != Some(why) {
            self.waiting_since = None;
        }
        let since = *self.waiting_since.get_or_insert(now);
        self.last_why = Some(why.clone());
        self.last_action = None;
        let longest = longest_wait(why);
        // What a watch ends is polled for lost events only, and what did not change anything is not hurried.
        let shortest = if longest > POLL_MAX || self.is_unheard() {
            POLL_MAX
        } else {
            POLL_MIN
        };
        (now.duration_since(since) / POLL_PART).clamp(shortest, longest)
    }

    /// There is nothing to do.
    pub(super) fn idled(&mut self) -> Duration {
        *self = Self {
            last_notes: std::mem::take(&mut self.last_notes),
            notes_since: self.notes_since,
            noted_at: self.noted_at,
            ..Self::default()
        };
        IDLE
    }

    /// A conflict is retried at once with a fresh look; all else backs off, whatever wakes it.
    ///
    /// A namespace that is going never takes an object again: what is in it is asked for nothing more
    /// until its own deletion, which no pause holds back.
    pub(super) fn failed(&mut self, error: &Error, now: Instant) -> Duration {
        self.failures = self.failures.saturating_add(1);
        // A write that failed may have been made all the same.
        self.forget_writes();
        if refusal(error).is_some_and(act::in_terminating_namespace) {
            return self.hold_back(BACK_OFF_MAX, now);
        }
        let pause = doubled(RETRY_MIN, self.failures - 1, RETRY_MAX);
        if is_conflict(error) && self.failures == 1 {
            return Duration::ZERO;
        }
        self.hold_back(pause, now)
    }

    /// A panic is a bug: its object is left alone for longer.
    pub(super) fn panicked(&mut self, now: Instant) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.forget_writes();
        self.hold_back(
            doubled(Duration::from_secs(1), self.failures, BACK_OFF_MAX),
            now,
        )
    }

    fn forget_writes(&mut self) {
        self.last_action = None;
        self.made = None;
    }

    fn hold_back(&mut self, pause: Duration, now: Instant) -> Duration {
        self.not_before = Some(now + pause);
        pause
    }
}

fn doubled(from: Duration, times: u32, most: Duration) -> Duration {
    from.saturating_mul(2_u32.saturating_pow(times.min(16)))
        .min(most)
}

#[expect(clippy::too_many_lines, reason = "one line a reason")]
fn longest_wait(why: &Why) -> Duration {
    match why {
        Why::Menu(_)
        | Why::Paused
        | Why::TlsInvalid(_)
        | Why::TlsUnusable { .. }
        | Why::TlsLapsed { .. }
        | Why::NameTaken { .. }
        | Why::PasswordsLost
        | Why::ForeignMember(_)
        | Why::PodForeign(_)
        | Why::ConfigMapForeign(_)
        | Why::DrainTooLarge { .. }
        | Why::AclRefused(_)
        | Why::Inconsistent(_) => PERSON_MAX,
        Why::Unschedulable { .. }
        | Why::PodWaiting { .. }
        | Why::PodStarting(_)
        | Why::MemberUnclear(_)
        | Why::NodesLeaving { .. } => WATCHED_MAX,
        Why::Deleting
        | Why::NothingLeft
        | Why::NotYetOurs
        | Why::NoSnapshot
        | Why::TlsValid
        | Why::ShardShort { .. }
        | Why::ShardOver { .. }
        | Why::NodeDied { .. }
        | Why::Silent { .. }
        | Why::NotMet { .. }
        | Why::Handshaking(_)
        | Why::StaleMember(_)
        | Why::MetElsewhere { .. }
        | Why::AwaitingElection { .. }
        | Why::NoQuorum(_)
        | Why::SlotsUnassigned(_)
        | Why::SlotsDisagree { .. }
        | Why::SlotsClaimedTwice(_)
        | Why::SlotsAstray(_)
        | Why::NotAttached { .. }
        | Why::PrimaryUnknown { .. }
        | Why::NotLinked(_)
        | Why::StateNotOk(_)
        | Why::TableDiffers { .. }
        | Why::ShardCount { .. }
        | Why::PrimaryUnproven(_)
        | Why::ElectionLost(_)
        | Why::ShardLost { .. }
        | Why::ClusterLost
        | Why::NeverSynced(_)
        | Why::PrimaryMissing(_)
        | Why::SlotsOrphaned(_)
        | Why::EpochLow(_)
        | Why::PrimaryLeaving(_)
        | Why::MemberDead(_)
        | Why::NodeEnded { .. }
        | Why::JoinEnded { .. }
        | Why::Hung(_)
        | Why::Survivor(_)
        | Why::JoinOutdated(_)
        | Why::Joined(_)
        | Why::NotKnownByAll(_)
        | Why::ShardLeaving(_)
        | Why::ShardsFew { .. }
        | Why::Unbalanced { .. }
        | Why::Migrating(_)
        | Why::MigrationFailed { .. }
        | Why::TargetUnready(_)
        | Why::Outdated(_)
        | Why::Lagging(_)
        | Why::FailingOver(_)
        | Why::ShardLarge { .. }
        | Why::Formed
        | Why::NodeStep(_) => POLL_MAX,
    }
}

fn is_conflict(error: &Error) -> bool {
    refusal(error).is_some_and(|status| status.code == 409)
}

/// What the API server had against a write.
fn refusal(error: &Error) -> Option<&Status> {
    let Error::Act(act::Error::Write { source, .. }) = error else {
        return None;
    };
    if let kube::Error::Api(status) = &**source {
        Some(status)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::name::{NodeName, ShardIndex};

    #[test]
    fn an_action_is_followed_at_once_and_a_repeated_one_is_not() {
        let (mut rhythm, now) = (Rhythm::default(), Instant::now());
        let create = |shard| Action::CreateNode(ShardIndex(shard), None);
        assert_eq!(
            rhythm.acted(&create(0), &Why::Formed, None, now),
            Duration::ZERO
        );
        assert_eq!(
            rhythm.acted(&create(1), &Why::Formed, None, now),
            Duration::ZERO
        );
        assert!(rhythm.acted(&create(1), &Why::Formed, None, now) >= POLL_MIN);
    }

    #[test]
    fn stores_serve_creates_in_a_row_only_once_they_show_the_last() {
        let (mut rhythm, now) = (Rhythm::default(), Instant::now());
        let (create, made) = (
            Action::CreateNode(ShardIndex(0), None),
            NodeName::new("made"),
        );
        let shows = |node: &NodeName| node.as_str() == "made";
        let nothing = |_: &NodeName| false;
        assert_eq!(rhythm.creating(shows, now), Creating::No);
        let beside = vec![NodeName::new("other")];
        rhythm.acted(&create, &Why::Formed, Some((&made, beside)), now);
        // The other one's event may be lost: what the stores show is not all there is.
        assert_eq!(rhythm.creating(shows, now), Creating::No);
        rhythm.acted(&create, &Why::Formed, Some((&made, Vec::new())), now);
        assert_eq!(rhythm.creating(nothing, now), Creating::Unseen(POLL_MIN));
        assert_eq!(rhythm.creating(nothing, now + UNSEEN_MAX), Creating::No);
        assert_eq!(rhythm.creating(shows, now), Creating::Seen);
        // What was made by a write that failed is found out by consistent reads alone.
        rhythm.panicked(now);
        assert_eq!(rhythm.creating(shows, now), Creating::No);
    }

    #[test]
    fn a_wait_polls_at_50_ms_and_slows_down_to_its_cap() {
        let (mut rhythm, start) = (Rhythm::default(), Instant::now());
        let why = Why::SlotsDisagree { least: 0, most: 1 };
        let mut poll = |after: u64| {
            let now = start + Duration::from_millis(after);
            rhythm.waited(&why, now).as_millis()
        };
        let polls = [0, 50, 1000, 2000, 5000, 60_000].map(&mut poll);
        assert_eq!(polls, [50, 50, 50, 100, 250, 1000]);
        let other = Why::NotLinked(NodeName::new("a"));
        let later = start + Duration::from_mins(2);
        assert_eq!(rhythm.waited(&other, later), POLL_MIN);
    }

    #[test]
    fn node_after_node_dying_backs_off_whatever_wakes_the_cluster() {
        let (mut rhythm, now) = (Rhythm::default(), Instant::now());
        let delete = |name: &str| Action::DeleteNode(NodeName::new(name));
        let died = Why::NodeDied {
            node: NodeName::new("a"),
            detail: String::new(),
        };
        let create = Action::CreateNode(ShardIndex(0), None);
        // Those that die together are buried together.
        for node in ["a", "b", "c"] {
            let pause = rhythm.acted(&delete(node), &died, None, now);
            assert_eq!(pause, Duration::ZERO);
            assert!(rhythm.pause_left(now).is_zero());
        }
        let mut dies_again = |node: &str| {
            rhythm.acted(&create, &Why::Formed, None, now);
            rhythm.acted(&delete(node), &died, None, now).as_secs()
        };
        let pauses: Vec<u64> = ["d", "e", "f"].map(&mut dies_again).into();
        assert_eq!(pauses, [1, 2, 4]);
        assert_eq!(rhythm.pause_left(now).as_secs(), 4);
        rhythm.idled();
        assert!(rhythm.pause_left(now).is_zero());
    }

    /// A user's FORGET cost 60 MEETs a second, until its ban ended after a minute.
    #[test]
    fn who_is_not_heard_is_introduced_once_a_second() {
        let (mut rhythm, start) = (Rhythm::default(), Instant::now());
        let [seed, newcomer] = ["a", "b"].map(NodeName::new);
        let why = Why::NotMet {
            seed: seed.clone(),
            newcomer: newcomer.clone(),
        };
        let meet = Action::Meet { seed, newcomer };
        let greeting = Why::Handshaking(NodeName::new("b"));
        let mut pauses = |now| {
            let met = rhythm.acted(&meet, &why, None, now);
            (met, rhythm.waited(&greeting, now))
        };
        for _ in 0..MEETS_MAX {
            assert_eq!(pauses(start), (Duration::ZERO, POLL_MIN));
        }
        assert_eq!(pauses(start), (POLL_MAX, POLL_MAX));
        assert_eq!(rhythm.pause_left(start), POLL_MAX);
        rhythm.idled();
        assert_eq!(rhythm.acted(&meet, &why, None, start), Duration::ZERO);
    }

    #[test]
    fn a_namespace_that_is_going_is_left_alone() {
        let (mut rhythm, now) = (Rhythm::default(), Instant::now());
        let status: Status = serde_json::from_value(serde_json::json!({
            "code": 403,
            "reason": "Forbidden",
            "details": {"causes": [{"reason": "NamespaceTerminating"}]},
        }))
        .unwrap();
        let refused = Error::Act(act::Error::Write {
            verb: "create",
            kind: "Pod",
            name: "p".to_owned(),
            source: Box::new(kube::Error::Api(Box::new(status))),
        });
        assert_eq!(rhythm.failed(&refused, now), BACK_OFF_MAX);
        assert_eq!(rhythm.pause_left(now), BACK_OFF_MAX);
    }

    #[test]
    fn what_lasts_is_noted_once_a_minute() {
        let (mut rhythm, start) = (Rhythm::default(), Instant::now());
        let notes = [Why::ForeignMember(crate::model::name::ValkeyId::new("z"))];
        let mut said = |after: u64| rhythm.worth_noting(&notes, start + Duration::from_secs(after));
        assert_eq!(
            [0, 9, 10, 11, 69, 70].map(&mut said),
            [false, false, true, false, false, true]
        );
        assert!(!rhythm.worth_noting(&[], start));
    }

    #[test]
    fn a_conflict_is_retried_at_once_and_then_like_any_error() {
        let (mut rhythm, now) = (Rhythm::default(), Instant::now());
        let conflict = || {
            let status = kube::core::Status {
                code: 409,
                ..kube::core::Status::default()
            };
            Error::Act(act::Error::Write {
                verb: "create",
                kind: "Pod",
                name: "p".to_owned(),
                source: Box::new(kube::Error::Api(Box::new(status))),
            })
        };
        assert_eq!(rhythm.failed(&conflict(), now), Duration::ZERO);
        assert_eq!(rhythm.failed(&conflict(), now), RETRY_MIN * 2);
    }
}
