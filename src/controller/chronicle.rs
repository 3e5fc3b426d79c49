//! What is told of one cluster over its ticks: waits that last, hand-overs, and what a roll or a scaling came to.
//! Never an input of a decision: losing it with the process costs a sentence.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::act::event;
use crate::model::decision::Action;
use crate::model::name::{NodeName, ShardIndex};
use crate::model::shards::Topology;
use crate::model::why::Why;
use crate::model::world::World;

/// A wait that ends sooner is a part of every step, and not told.
const WORTH_TELLING: Duration = Duration::from_secs(5);
/// The first time that what goes on is told again; each time after that twice as late.
const AGAIN_MIN: Duration = Duration::from_secs(10);
/// Well below the hour that Kubernetes keeps an Event.
const AGAIN_MAX: Duration = Duration::from_mins(10);

/// When to tell of what goes on.
#[derive(Debug)]
struct Repeat {
    next: Instant,
    pause: Duration,
}

impl Repeat {
    fn beginning(next: Instant) -> Self {
        Self {
            next,
            pause: AGAIN_MIN,
        }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now + self.pause;
            self.pause = (self.pause * 2).min(AGAIN_MAX);
        }
        due
    }
}

/// A reason, and whose: what it says beside is not what makes it another.
type Matter = (&'static str, Option<NodeName>);

/// A shard's primary, as far as it was seen.
#[derive(Clone, Debug)]
struct Seat {
    node: NodeName,
    offset: u64,
    seen: Instant,
    /// Since when nobody was seen there.
    vacant: Option<Instant>,
}

/// A hand-over that was asked for.
#[derive(Debug)]
struct Asked {
    replica: NodeName,
    at: Instant,
    behind: u64,
}

/// How a shard came to another primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Interruption {
    /// The operator asked for it; its last sight of the old primary's offset tells how far the replica was
    /// behind then.
    Planned { took: Duration, behind: u64 },
    /// Nobody was seen in its place for so long.
    Failure { took: Duration },
    /// Between two looks, so far apart.
    Unseen { within: Duration },
}

/// The receipt of a hand-over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HandOver {
    pub(super) shard: ShardIndex,
    pub(super) from: NodeName,
    pub(super) to: NodeName,
    pub(super) from_offset: u64,
    pub(super) to_offset: u64,
    pub(super) how: Interruption,
}

impl HandOver {
    /// The sentence of its receipt.
    pub(super) fn sentence(&self) -> String {
        let Self {
            shard,
            from,
            to,
            from_offset,
            to_offset,
            how,
        } = self;
        match how {
            Interruption::Planned { took, behind } => format!(
                "shard {shard} handed over from {from} to {to} within {} ms; {to} was {behind} bytes behind when it \
                 was asked and at an equal offset when it took over",
                took.as_millis()
            ),
            Interruption::Failure { took } => format!(
                "shard {shard} was seen without a primary for {} ms: {to} at offset {to_offset} took over from \
                 {from}, last seen at offset {from_offset}",
                took.as_millis()
            ),
            Interruption::Unseen { within } => format!(
                "shard {shard} passed from {from}, last seen at offset {from_offset}, to {to} at offset {to_offset} \
                 between two looks {} ms apart",
                within.as_millis()
            ),
        }
    }
}

/// What a row of actions came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Totals {
    /// The reason of its receipt.
    pub(super) reason: &'static str,
    took: Duration,
    made: u32,
    deleted: u32,
    handovers: u32,
    longest: Duration,
    slots: u32,
}

impl Totals {
    /// The line of its receipt.
    pub(super) fn sentence(&self) -> String {
        let Self {
            reason: _,
            took,
            made,
            deleted,
            handovers,
            longest,
            slots,
        } = self;
        format!(
            "after {:.1} s: {made} nodes made, {deleted} deleted, {slots} slots moved, {handovers} hand-overs, the \
             longest within {} ms",
            took.as_secs_f64(),
            longest.as_millis()
        )
    }

    fn is_empty(&self) -> bool {
        self.made + self.deleted + self.handovers + self.slots == 0
    }
}

#[derive(Debug)]
struct Work {
    began: Instant,
    totals: Totals,
}

/// One cluster's.
#[derive(Debug, Default)]
pub(super) struct Chronicle {
    standing: BTreeMap<Matter, Repeat>,
    paused: bool,
    refused: Option<Repeat>,
    failing: Option<Repeat>,
    failing_nodes: BTreeMap<NodeName, Repeat>,
    seats: BTreeMap<ShardIndex, Seat>,
    asked: Option<Asked>,
    work: Option<Work>,
}

impl Chronicle {
    /// Those of what is waited for, or goes on, that are to be told now.
    pub(super) fn due<'a>(
        &mut self,
        standing: impl Iterator<Item = &'a Why>,
        now: Instant,
    ) -> Vec<&'a Why> {
        let mut before = std::mem::take(&mut self.standing);
        let mut due = Vec::new();
        for why in standing {
            let matter = (why.name(), why.node().cloned());
            let first = if why.needs_a_hand() {
                now
            } else {
                now + WORTH_TELLING
            };
            let known = before.remove(&matter);
            let mut repeat = known.unwrap_or_else(|| Repeat::beginning(first));
            if repeat.is_due(now) {
                due.push(why);
            }
            self.standing.insert(matter, repeat);
        }
        due
    }

    /// Whether a pause ended with this look.
    pub(super) fn resumed(&mut self, paused: bool) -> bool {
        std::mem::replace(&mut self.paused, paused) && !paused
    }

    /// Whether the refusal of an ACL file, or its end, is to be told.
    pub(super) fn refused(&mut self, refused: bool, now: Instant) -> bool {
        repeated(&mut self.refused, refused, now, Duration::ZERO)
    }

    /// Whether a tick's failure is to be told: those that pass with the next tick are not.
    pub(super) fn failed(&mut self, failed: bool, now: Instant) -> bool {
        repeated(&mut self.failing, failed, now, WORTH_TELLING)
    }

    /// The same of a node's tick that failed.
    pub(super) fn node_failed(&mut self, node: &NodeName, now: Instant) -> bool {
        let first = Repeat::beginning(now + WORTH_TELLING);
        let repeat = self.failing_nodes.entry(node.clone()).or_insert(first);
        repeat.is_due(now)
    }

    /// A node fails no more, if it did.
    pub(super) fn node_well(&mut self, node: &NodeName) {
        self.failing_nodes.remove(node);
    }

    /// Looks who is primary, and gives a receipt for each shard where that is another than before.
    pub(super) fn looked(&mut self, topology: &Topology<'_>, now: Instant) -> Vec<HandOver> {
        let owning = topology.shards.values().filter(|one| !one.slots.is_empty());
        let mut seats = std::mem::take(&mut self.seats);
        let mut receipts = Vec::new();
        for shard in owning {
            let before = seats.remove(&shard.index);
            let Some(primary) = shard.answering_primary() else {
                if let Some(mut seat) = before {
                    seat.vacant.get_or_insert(now);
                    self.seats.insert(shard.index, seat);
                }
                continue;
            };
            let seat = Seat {
                node: primary.node.name.clone(),
                offset: primary.view.offset(),
                seen: now,
                vacant: None,
            };
            if let Some(before) = before.filter(|before| before.node != seat.node) {
                receipts.push(HandOver {
                    shard: shard.index,
                    from: before.node.clone(),
                    to: seat.node.clone(),
                    from_offset: before.offset,
                    to_offset: seat.offset,
                    how: self.interruption(&before, &seat.node, now),
                });
            }
            self.seats.insert(shard.index, seat);
        }
        if let Some(work) = &mut self.work {
            for receipt in &receipts {
                work.totals.handovers += 1;
                work.totals.longest = work.totals.longest.max(receipt.how.length());
            }
        }
        receipts
    }

    fn interruption(&mut self, before: &Seat, to: &NodeName, now: Instant) -> Interruption {
        if let Some(asked) = self.asked.take_if(|asked| asked.replica == *to) {
            return Interruption::Planned {
                took: now.duration_since(asked.at),
                behind: asked.behind,
            };
        }
        match before.vacant {
            Some(vacant) => Interruption::Failure {
                took: now.duration_since(vacant),
            },
            None => Interruption::Unseen {
                within: now.duration_since(before.seen),
            },
        }
    }

    /// An action was taken.
    pub(super) fn acted(&mut self, world: &World, action: &Action, why: &Why, now: Instant) {
        let work = self.work.get_or_insert(Work {
            began: now,
            totals: Totals {
                reason: event::REPAIR_COMPLETED,
                took: Duration::ZERO,
                made: 0,
                deleted: 0,
                handovers: 0,
                longest: Duration::ZERO,
                slots: 0,
            },
        });
        let totals = &mut work.totals;
        let scaling = matches!(
            why,
            Why::ShardsFew { .. } | Why::ShardLeaving(_) | Why::Unbalanced { .. }
        );
        if matches!(why, Why::Outdated(_)) {
            totals.reason = event::ROLL_COMPLETED;
        } else if scaling && totals.reason != event::ROLL_COMPLETED {
            totals.reason = event::SCALING_COMPLETED;
        }
        match action {
            Action::CreateNode(_, _) => totals.made += 1,
            Action::DeleteNode(_) => totals.deleted += 1,
            Action::Migrate(batch) => totals.slots += batch.slots.count(),
            Action::Failover(replica) => {
                self.asked = Some(Asked {
                    replica: replica.clone(),
                    at: now,
                    behind: behind(world, replica),
                });
            }
            // Whoever gets them has nothing of the one before.
            Action::AdoptSlots { primary, .. } => {
                if let Some(node) = world.nodes.get(primary) {
                    self.seats.remove(&node.shard());
                }
            }
            Action::AddFinalizer
            | Action::Snapshot(_)
            | Action::Invalidate(_)
            | Action::Meet { .. }
            | Action::Forget(_)
            | Action::AssignSlots { .. }
            | Action::Replicate { .. }
            | Action::Takeover(_)
            | Action::ForceFailover(_)
            | Action::BumpEpoch(_)
            | Action::CompleteJoin(_)
            | Action::Leave(_)
            | Action::Reset(_)
            | Action::Activate(_)
            | Action::DeleteAllNodes
            | Action::ReleaseCluster => {}
        }
    }

    /// There is nothing left to do, or the cluster was formed: what it came to, if that is worth a line.
    pub(super) fn completed(&mut self, formed: bool, now: Instant) -> Option<Totals> {
        let Work { began, mut totals } = self.work.take()?;
        totals.took = now.duration_since(began);
        if formed {
            totals.reason = event::CLUSTER_FORMED;
        }
        (!totals.is_empty()).then_some(totals)
    }
}

impl Interruption {
    /// How long, at most.
    pub(super) fn length(&self) -> Duration {
        match self {
            Self::Planned { took, .. } | Self::Failure { took } => *took,
            Self::Unseen { within } => *within,
        }
    }
}

fn repeated(state: &mut Option<Repeat>, goes_on: bool, now: Instant, after: Duration) -> bool {
    if !goes_on {
        *state = None;
        return false;
    }
    let repeat = state.get_or_insert_with(|| Repeat::beginning(now + after));
    repeat.is_due(now)
}

/// How far a replica is behind its primary, bytes, as far as both were seen.
fn behind(world: &World, replica: &NodeName) -> u64 {
    let Some(view) = world.nodes.get(replica).and_then(|node| node.view()) else {
        return 0;
    };
    let mut views = world.nodes.values().filter_map(|node| node.view());
    let primary = views.find(|one| view.primary() == Some(&one.id));
    primary.map_or(0, |primary| primary.offset().saturating_sub(view.offset()))
}
