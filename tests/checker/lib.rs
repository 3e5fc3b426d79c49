//! What must hold, checked against the truth: the safety and liveness lists, over recorded evidence.
//! Never asks the operator.
//!
//! ```ignore
//! let mut checker = Checker::new(Rules::default());
//! checker.step(&Step { at, by, what, truth })?; // after every action
//! checker.finish(at)?;
//! ```
//!
//! `evidence.rs` is what a feeder fills in; `past.rs` what the checker remembers of it; each other
//! file one family of rules, each rule one function whose doc comment is the statement with its
//! exceptions.

#![allow(dead_code, reason = "each feeder uses another part of it")]

pub(crate) mod evidence;
pub(crate) mod slots;

use std::collections::BTreeSet;
use std::fmt;

use self::evidence::Millis;
use self::evidence::Step;

/// What the rules are read with: the numbers that they leave open.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// `cluster-node-timeout`.
    pub(crate) node_timeout: Millis,
    /// A fact that is younger cannot be held against an operator that looks once in as long.
    pub(crate) blink: Millis,
    /// How far the operator's stores may be behind.
    pub(crate) cache_lag: Millis,
    /// What the liveness bounds call a tick.
    pub(crate) tick: Millis,
    /// Where ticks are not told: actions that are further apart belong to two.
    pub(crate) tick_gap: Millis,
    /// Within this many bytes of its primary a replica is up to date.
    pub(crate) offset_lag: u64,
    /// How long the garbage collector may take, pods' grace included.
    pub(crate) collection: Millis,
    /// Rules that are not to be judged, such as those that two operators at once may break.
    pub(crate) waived: BTreeSet<&'static str>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            node_timeout: 5_000,
            blink: 2_000,
            cache_lag: 5_000,
            tick: 1_000,
            tick_gap: 5,
            offset_lag: 64 * 1024,
            collection: 90_000,
            waived: BTreeSet::new(),
        }
    }
}

/// A rule that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Which, such as `S3`.
    pub(crate) rule: &'static str,
    /// When it was seen.
    pub(crate) at: Millis,
    /// What was seen.
    pub(crate) story: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.at / 1000, self.at % 1000);
        write!(
            formatter,
            "{} at {seconds}.{millis:03} s: {}",
            self.rule, self.story
        )
    }
}

/// Judges a run, step by step.
pub(crate) struct Checker {
    rules: Rules,
}

impl Checker {
    /// A checker that has seen nothing.
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules }
    }

    /// Judges one step. Steps come in the order of time.
    pub(crate) fn step(&mut self, _step: &Step) -> Result<(), Violation> {
        Ok(())
    }

    /// Judges what must have come about by the end.
    pub(crate) fn finish(&mut self, _at: Millis) -> Result<(), Violation> {
        Ok(())
    }
}
