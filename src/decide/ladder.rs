//! A ladder is a list of questions in order of priority; the first that does not pass decides.
//! Never lets one rung call another.

use crate::api::node::JoinType;
use crate::model::decision::{Action, Decision, Verdict};
use crate::model::desired::Desired;
use crate::model::name::ShardIndex;
use crate::model::shards::Topology;
use crate::model::why::Why;
use crate::model::world::World;

/// What every rung is asked about.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    /// What is.
    pub(super) world: &'a World,
    /// What is wanted.
    pub(super) desired: &'a Desired,
    /// What is, by shard.
    pub(super) topology: &'a Topology<'a>,
}

impl Scene<'_> {
    /// One more node of a shard, unless it could not start: it would end at the ACL file that running
    /// nodes refuse, while these keep the rules that they have.
    pub(super) fn newcomer(self, shard: ShardIndex, join: JoinType, why: Why) -> Verdict {
        match &self.world.acl_refusal {
            Some(refusal) => Verdict::Hold(Why::AclRefused(refusal.clone())),
            None => Verdict::Take(Action::CreateNode(shard, Some(join)), why),
        }
    }
}

/// A named question.
pub(super) struct Rung {
    pub(super) name: &'static str,
    /// What it means that it passed.
    pub(super) clear: &'static str,
    ask: fn(Scene<'_>) -> Verdict,
}

impl Rung {
    /// Names a question.
    pub(super) const fn new(
        name: &'static str,
        clear: &'static str,
        ask: fn(Scene<'_>) -> Verdict,
    ) -> Self {
        Self { name, clear, ask }
    }
}

/// Rungs of one priority.
#[derive(Clone, Copy)]
pub(super) enum Level {
    /// Each waits for the one above.
    Strict(&'static [Rung]),
    /// A wait stops what is below this level, but no rung of it: one shard's election is no reason
    /// to leave another shard without its replica.
    Open(&'static [Rung]),
}

/// Climbs level after level: the first Take or Hold wins, the passes are kept.
pub(super) fn climb(levels: &[Level], scene: Scene<'_>) -> Decision {
    let mut passed = Vec::new();
    for level in levels {
        let (rungs, open) = match level {
            Level::Strict(rungs) => (rungs, false),
            Level::Open(rungs) => (rungs, true),
        };
        let mut held = None;
        for rung in *rungs {
            match (rung.ask)(scene) {
                Verdict::Pass => passed.push(rung.name),
                verdict @ Verdict::Hold(_) if open => {
                    held.get_or_insert((verdict, rung.name));
                }
                verdict @ (Verdict::Take(_, _) | Verdict::Hold(_)) => {
                    return decision(verdict, Some(rung.name), passed);
                }
            }
        }
        if let Some((verdict, rung)) = held {
            return decision(verdict, Some(rung), passed);
        }
    }
    decision(Verdict::Pass, None, passed)
}

fn decision(verdict: Verdict, rung: Option<&'static str>, passed: Vec<&'static str>) -> Decision {
    Decision {
        verdict,
        rung,
        passed,
        nudges: Vec::new(),
        notes: Vec::new(),
    }
}
