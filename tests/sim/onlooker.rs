//! Somebody who asks the plugin for its plan while the operator works: it has to be what the operator decides.
//! Never anything but lists and questions, as a person with kubectl sends them.
//!
//! Both look when they like, and the world moves between their looks. So a plan has to be one of the decisions
//! around it: the last before the look, those during it, the first after it. One that is none of them is odd; what
//! is odd again and again is another decision than the operator's. Nobody looks while watches may still be
//! behind: the operator decides on them, and the plugin on live lists.

use operator::decide;
use operator::model::name::ClusterRef;
use operator::observe::visit::Visitor;
use operator::plugin::plan::Plan;
use operator::resolve;
use operator::valkey::client::Connector;

use crate::kube::client::Switch;
use crate::kube::faults::Caller;
use crate::log::Log;
use crate::operators::Operators;
use crate::plan::Millis;
use crate::wish::{CLUSTER, NAMESPACE};

/// Its number among those who speak to processes: no operator's.
const NUMBER: u32 = u32::MAX;

/// As often in a row a plan may be none of the operator's decisions, since the world moves.
const ODD_MAX: u32 = 2;

/// Looks and compares.
pub(crate) struct Onlooker {
    visitor: Visitor,
    cluster: ClusterRef,
    log: Log,
    pending: Option<Look>,
    odd: u32,
    /// How many plans were found to be the operator's.
    pub(crate) agreed: u64,
}

/// A plan and when it was made.
struct Look {
    begun: Millis,
    ended: Millis,
    verdict: String,
    sentence: String,
}

impl Onlooker {
    /// Beside the operators of a run.
    pub(crate) fn new(operators: &Operators, log: &Log) -> Self {
        let switch = Switch::default();
        let client = operators.api.client(Caller::Hand, &switch);
        let connector = Connector::simulated(6379, operators.pipes.dial(NUMBER, &switch));
        Self {
            visitor: Visitor::with_connector(client, connector, operators.clock()),
            cluster: ClusterRef {
                namespace: NAMESPACE.to_owned(),
                name: CLUSTER.to_owned(),
            },
            log: log.clone(),
            pending: None,
            odd: 0,
            agreed: 0,
        }
    }

    /// Compares the last look, if the operator decided since, and looks again; what is wrong, if anything.
    pub(crate) async fn look(&mut self) -> Result<(), String> {
        self.compare()?;
        if self.pending.is_none() {
            self.pending = self.plan().await?;
        }
        Ok(())
    }

    /// What the plugin says now.
    async fn plan(&self) -> Result<Option<Look>, String> {
        let begun = self.log.now();
        let visit = self.visitor.visit(NAMESPACE).await;
        let visit = visit.map_err(|error| format!("no visit: {error:?}"))?;
        let sight = visit.sight(&self.cluster).await;
        let sight = sight.map_err(|error| format!("no sight: {error:?}"))?;
        let Some(sight) = sight else {
            return Ok(None);
        };
        if let Some(gap) = sight.gaps().next() {
            return Err(format!("refused where everything is allowed: {gap}"));
        }
        let desired = resolve::desired(&sight.world);
        Ok(Some(Look {
            begun,
            ended: self.log.now(),
            verdict: format!("{:?}", decide::decide(&sight.world, &desired).verdict),
            sentence: Plan::of(&sight.world).sentence(),
        }))
    }

    fn compare(&mut self) -> Result<(), String> {
        let Some(look) = &self.pending else {
            return Ok(());
        };
        let decided = self.log.decided(&self.cluster);
        let before = decided.iter().rfind(|(at, _)| *at < look.begun);
        let during = decided
            .iter()
            .filter(|(at, _)| (look.begun..=look.ended).contains(at));
        let after = decided.iter().find(|(at, _)| *at > look.ended);
        let around = before.into_iter().chain(during).chain(after);
        let agrees = around.clone().any(|(_, verdict)| *verdict == look.verdict);
        // Who is told to forget a node is introduced to it again and again, and forgets it in between.
        let introduces = |verdict: &str| {
            let steps = ["Meet", "Handshaking", "NotKnownByAll"];
            steps.iter().any(|step| verdict.contains(step))
        };
        let greets =
            introduces(&look.verdict) && around.clone().any(|(_, verdict)| introduces(verdict));
        // Only the operator that was told by a node what is wrong with its ACL file knows it.
        let knows_more = before
            .into_iter()
            .chain(after)
            .any(|(_, verdict)| verdict.contains("AclRefused"));
        if agrees || knows_more || greets {
            self.agreed += u64::from(agrees);
            self.odd = 0;
            self.pending = None;
            return Ok(());
        }
        if after.is_none() {
            return Ok(());
        }
        self.odd += 1;
        let story = format!(
            "the plugin's plan at {}-{} ms: {} ({}), and the operator decided {before:?} before and {after:?} after it",
            look.begun, look.ended, look.sentence, look.verdict
        );
        self.pending = None;
        if self.odd > ODD_MAX {
            Err(story)
        } else {
            Ok(())
        }
    }

    /// Whether the operator waits, in whichever cluster, for what only comes late: files follow their ConfigMap, and a
    /// roll that needs them is not at its end; a death is told late by whose clock was put back, who counts no silence
    /// until it has caught up (`node_delay` in `clusterCron`, `cluster_legacy.c`).
    pub(crate) fn waits(&self) -> bool {
        let late = ["Hold(AclRefused(", "Hold(MemberUnclear("];
        let waits = |verdict: &String| late.iter().any(|wait| verdict.starts_with(wait));
        self.log.decided_last(self.log.now()).iter().any(waits)
    }

    /// What the plugin says where there is nothing to do any more, and the wish is there.
    pub(crate) async fn at_rest(&self) -> Result<(), String> {
        let look = self.plan().await?.ok_or("the plugin finds no cluster")?;
        if look.sentence == "nothing to do" {
            Ok(())
        } else {
            Err(format!("at rest the plugin says: {}", look.sentence))
        }
    }
}
