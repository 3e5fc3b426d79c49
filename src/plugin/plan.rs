//! `plan`: the operator's own decision on what is there now, in words.
//! Never a second opinion: it is the very function that the operator calls.

use serde::Serialize;

use crate::api::cluster::ClusterState;
use crate::decide;
use crate::model::decision::{Action, Decision, Verdict};
use crate::model::why::Why;
use crate::model::world::World;
use crate::plugin::print::{Cell, Table, said};
use crate::plugin::{Shown, name_of};
use crate::resolve;

/// What the operator does next, or waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    namespace: String,
    name: String,
    state: ClusterState,
    next: Next,
    /// What it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<String>,
    /// Why it does it, or what it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<String>,
    /// What a person can do about it, where there is something.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'static str>,
    /// The questions that come before, and why none of them has an answer to act on.
    passed: Vec<Passed>,
    /// What a person should know, whatever is done.
    notes: Vec<String>,
}

/// What a tick would end in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Next {
    /// An action.
    Act,
    /// Nothing can be done before something else happens.
    Wait,
    /// There is nothing to do.
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Passed {
    rung: &'static str,
    clear: &'static str,
}

impl Plan {
    /// The operator's decision on this World.
    #[must_use]
    pub fn of(world: &World) -> Self {
        let desired = resolve::desired(world);
        let Decision {
            verdict,
            rung: _,
            passed,
            nudges: _,
            notes,
        } = decide::decide(world, &desired);
        let (next, action, why) = match verdict {
            Verdict::Take(action, why) => (Next::Act, Some(words(&action)), Some(why)),
            Verdict::Hold(why) => (Next::Wait, None, Some(why)),
            Verdict::Pass => (Next::Nothing, None, None),
        };
        let passed = passed.into_iter().map(|rung| Passed {
            rung,
            clear: decide::clear(rung).unwrap_or_default(),
        });
        Self {
            namespace: world.cluster.key.namespace.clone(),
            name: world.cluster.key.name.clone(),
            state: world.cluster.status.state,
            next,
            action,
            because: why.as_ref().map(ToString::to_string),
            remedy: why.as_ref().and_then(Why::remedy),
            passed: passed.collect(),
            notes: notes
                .iter()
                .map(|why| why.advised(&why.to_string()))
                .collect(),
        }
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.next == Next::Nothing
    }

    /// What is done or waited for, in one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let because = self.because.as_deref().unwrap_or_default();
        match (self.next, &self.action) {
            (Next::Act, Some(action)) => format!("{action}, because {because}"),
            (Next::Act | Next::Wait, _) => format!("waits: {because}"),
            (Next::Nothing, _) => "nothing to do".to_owned(),
        }
    }

    /// What a person can do about it and should know besides.
    pub(super) fn advice(&self, width: usize) -> String {
        let remedy = self.remedy.map(|remedy| said("do", remedy, width));
        let notes = self.notes.iter().map(|note| said("note", note, width));
        remedy.into_iter().chain(notes).collect()
    }
}

impl Shown for Plan {
    fn text(&self, width: usize) -> String {
        let mut text = name_of(&self.namespace, &self.name, self.state);
        let nothing = "nothing to do";
        match self.next {
            Next::Act => {
                let action = self.action.as_deref().unwrap_or_default();
                text.push_str(&said("next", action, width));
                text.push_str(&said(
                    "why",
                    self.because.as_deref().unwrap_or_default(),
                    width,
                ));
            }
            Next::Wait => {
                let because = self.because.as_deref().unwrap_or_default();
                text.push_str(&said("waits", because, width));
            }
            Next::Nothing => text.push_str(&said("next", nothing, width)),
        }
        text.push_str(&self.advice(width));
        text.push('\n');
        let mut table = Table::new(&["PASSED", "BECAUSE"]);
        for Passed { rung, clear } in &self.passed {
            table.row(vec![Cell::from(*rung), Cell::from(*clear)]);
        }
        text.push_str(&table.text(width));
        text
    }
}

/// An action as an instruction.
#[must_use]
pub fn words(action: &Action) -> String {
    match action {
        Action::AddFinalizer => "put the operator's finalizer on the cluster".to_owned(),
        Action::Snapshot(shape) => format!(
            "capture the spec and form a cluster of {} shards with {} replicas each",
            shape.shards, shape.replicas
        ),
        Action::Invalidate(_) => "set the cluster's state to Invalid".to_owned(),
        Action::CreateNode(shard, None) => format!("create a node of shard {shard}"),
        Action::CreateNode(shard, Some(join)) => {
            format!(
                "create a node of shard {shard} that joins as {}",
                join.as_str()
            )
        }
        Action::DeleteNode(node) => format!("delete node {node}"),
        Action::Meet { seed, newcomer } => format!("introduce {newcomer} to {seed}"),
        Action::Forget(member) => format!("make every node forget member {member}"),
        Action::AssignSlots { primary, range } => format!("give slots {range} to {primary}"),
        Action::Replicate { replica, primary } => format!("make {replica} a replica of {primary}"),
        Action::Takeover(replica) => format!("let {replica} take over without a vote"),
        Action::ForceFailover(replica) => format!("let {replica} stand for election now"),
        Action::Failover(replica) => format!("let {replica} change places with its primary"),
        Action::AdoptSlots { primary, slots } => {
            format!("give slots {slots}, which nobody owns, to {primary}")
        }
        Action::BumpEpoch(node) => format!("give the claims of {node} the greatest epoch"),
        Action::Migrate(batch) => format!(
            "move {} slots from {} to {}: {}",
            batch.slots.count(),
            batch.source,
            batch.target,
            batch.slots
        ),
        Action::CompleteJoin(node) => format!("turn {node} Active"),
        Action::Leave(node) => format!("turn {node} Leaving"),
        Action::Reset(node) => format!("reset the surviving process of {node}"),
        Action::Activate(_) => "turn the cluster Active".to_owned(),
        Action::DeleteAllNodes => "delete every node".to_owned(),
        Action::ReleaseCluster => "let go of the cluster".to_owned(),
    }
}
