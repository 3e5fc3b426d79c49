//! A ladder is a list of questions in order of priority; the first that does not pass decides.
//! Never lets one rung call another.

use crate::model::decision::{Decision, Verdict};
use crate::model::desired::Desired;
use crate::model::world::World;

/// What every rung is asked about.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    /// What is.
    pub(super) world: &'a World,
    /// What is wanted.
    pub(super) desired: &'a Desired,
}

/// A named question.
pub(super) struct Rung {
    name: &'static str,
    ask: fn(Scene<'_>) -> Verdict,
}

impl Rung {
    /// Names a question.
    pub(super) const fn new(name: &'static str, ask: fn(Scene<'_>) -> Verdict) -> Self {
        Self { name, ask }
    }
}

/// Climbs ladders one after the other: the first Take or Hold wins, the passes are kept.
pub(super) fn climb(ladders: &[&[Rung]], scene: Scene<'_>) -> Decision {
    let mut passed = Vec::new();
    for rung in ladders.iter().copied().flatten() {
        match (rung.ask)(scene) {
            Verdict::Pass => passed.push(rung.name),
            verdict @ (Verdict::Take(_, _) | Verdict::Hold(_)) => {
                return Decision {
                    verdict,
                    passed,
                    nudges: Vec::new(),
                };
            }
        }
    }
    Decision {
        verdict: Verdict::Pass,
        passed,
        nudges: Vec::new(),
    }
}
