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

mod data;
mod foreign;
mod garbage;
mod lifecycle;
pub(crate) mod liveness;
mod membership;
mod migration;
mod past;
mod quiet;
mod rolls;
mod scene;
mod secrecy;
mod settings;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use self::evidence::Millis;
use self::evidence::Name;
use self::evidence::Step;
use self::past::Past;

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
    /// Slot migrations that the declared state takes.
    pub(crate) batches: Millis,
    /// Rules that are not to be judged, such as those that two operators at once may break.
    pub(crate) waived: BTreeSet<&'static str>,
    /// Clusters that are not to be judged by L1 to L7: what they wait for never comes.
    pub(crate) left_out: BTreeSet<Name>,
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
            batches: 0,
            waived: BTreeSet::new(),
            left_out: BTreeSet::new(),
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
        let Self { rule, story, .. } = self;
        write!(formatter, "{rule} at {seconds}.{millis:03} s: {story}")
    }
}

/// Whether a rule holds, or what was seen.
type Verdict = Result<(), String>;

/// One rule.
type Law = fn(&mut Checker, &Step) -> Verdict;

/// Every rule but L1 to L3, L6 and L7, which are one function, and L5 and L9, which compare two runs.
const LAWS: &[(&str, Law)] = &[
    ("S1", lifecycle::one_action_a_tick),
    ("S2", membership::no_living_owner_is_forgotten),
    ("S3", membership::no_candidate_loses_its_primary),
    ("S4", lifecycle::no_last_copy_is_let_go),
    ("S5", lifecycle::replace_before_retire),
    ("S6", rolls::one_failover_a_roll),
    ("S7", rolls::one_shard_in_motion),
    ("S8", membership::takeover_is_the_last_resort),
    ("S9", membership::a_planned_failover_is_safe),
    ("S10", data::planned_work_loses_nothing),
    ("S11", data::waited_writes_survive_one_fault),
    ("S12", data::one_writer_a_slot),
    ("S13", membership::slots_are_free_when_given),
    ("S14", migration::one_job_a_source),
    ("S15", lifecycle::only_the_drained_leave),
    ("S16", membership::commands_reach_their_own),
    ("S17", lifecycle::one_pod_in_a_life),
    ("S18", status::active_means_active),
    ("S19", status::no_action_on_sand),
    ("S20", secrecy::passwords_are_kept),
    ("S21", settings::forced_settings_hold),
    ("S22", quiet::nothing_to_do_is_nothing_done),
    ("S23", foreign::what_is_foreign_is_left_alone),
    ("S24", garbage::nothing_is_left_behind),
    ("L4", liveness::a_mended_menu_unblocks),
    ("L8", liveness::a_tick_ends),
    ("L10", liveness::deletion_ends),
    ("L11", liveness::refusals_slow_it_down),
];

/// Judges a run, step by step.
pub(crate) struct Checker {
    past: Past,
    membership: membership::Memory,
    lifecycle: lifecycle::Memory,
    rolls: rolls::Memory,
    data: data::Memory,
    status: status::Memory,
    secrecy: secrecy::Memory,
    settings: settings::Memory,
    garbage: garbage::Memory,
    liveness: liveness::Memory,
}

impl Checker {
    /// A checker that has seen nothing.
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            past: Past::new(rules),
            membership: membership::Memory::default(),
            lifecycle: lifecycle::Memory::default(),
            rolls: rolls::Memory::default(),
            data: data::Memory::default(),
            status: status::Memory::default(),
            secrecy: secrecy::Memory::default(),
            settings: settings::Memory::default(),
            garbage: garbage::Memory::default(),
            liveness: liveness::Memory::default(),
        }
    }

    /// The numbers that the rules are read with: a feeder may change them between two steps.
    pub(crate) fn rules(&mut self) -> &mut Rules {
        &mut self.past.rules
    }

    /// Judges one step. Steps come in the order of time. Every rule sees every step, also after one that did
    /// not hold; the first that does not is told.
    pub(crate) fn step(&mut self, step: &Step) -> Result<(), Violation> {
        self.past.note(step);
        let mut first = Ok(());
        for (rule, law) in LAWS {
            let verdict = law(self, step);
            first = first.and(self.told(rule, verdict));
        }
        match liveness::the_declared_state_comes(self, step) {
            Ok(()) => first,
            Err((rule, story)) => first.and(self.told(rule, Err(story))),
        }
    }

    fn told(&self, rule: &'static str, verdict: Verdict) -> Result<(), Violation> {
        let waived = self.past.rules.waived.contains(rule);
        let at = self.past.at;
        match verdict {
            Err(story) if !waived => Err(Violation { rule, at, story }),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Whether every cluster has reached its declared state since all is stable: a feeder need not go on.
    pub(crate) fn is_settled(&self) -> bool {
        liveness::settled(&self.past, &self.liveness)
    }

    /// Judges what must have come about by the end. The last step should have been a look.
    pub(crate) fn finish(&self) -> Result<(), Violation> {
        let owed = liveness::owed(&self.past, &self.liveness);
        let waived = |violation: &Violation| self.past.rules.waived.contains(violation.rule);
        match owed {
            Err(violation) if !waived(&violation) => Err(violation),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// When a cluster was first seen Active: what L9 compares.
    pub(crate) fn active_at(&self, cluster: &Name) -> Option<Millis> {
        liveness::active_at(&self.liveness, cluster)
    }

    /// A cluster's end state, names and chance left out: what L5 compares.
    pub(crate) fn portrait(&self, cluster: &Name) -> String {
        liveness::portrait(&self.past.scene, cluster)
    }
}
