//! `wait`: until a cluster is what its spec asks for now.
//! Never takes Active for it: a cluster stays Active while it is scaled or rolled.

use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::api::cluster::ClusterState;
use crate::model::world::World;
use crate::plugin::plan::Plan;
use crate::plugin::print::said;
use crate::plugin::{Desk, Error, Exit, Shown, name_of, whole};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// How a wait ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Waited {
    namespace: String,
    name: String,
    state: ClusterState,
    converged: bool,
    /// What was still to come.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
}

impl Waited {
    /// What one look tells.
    pub(crate) fn of(world: &World) -> Self {
        let missing = missing(world);
        Self {
            namespace: world.cluster.key.namespace.clone(),
            name: world.cluster.key.name.clone(),
            state: world.cluster.status.state,
            converged: missing.is_none(),
            missing,
        }
    }
}

/// What keeps a cluster from being what its spec asks for.
fn missing(world: &World) -> Option<String> {
    let cluster = &world.cluster;
    if cluster.deleting {
        return Some("the cluster is being deleted".to_owned());
    }
    let plan = Plan::of(world);
    if !plan.is_done() {
        return Some(plan.sentence());
    }
    if cluster.status.state != ClusterState::Active {
        return Some(format!("the state is {:?}", cluster.status.state));
    }
    let captured = cluster.status.target_spec.is_some();
    captured.then(|| "the captured spec is still being built".to_owned())
}

impl Shown for Waited {
    fn text(&self, width: usize) -> String {
        let name = name_of(&self.namespace, &self.name, self.state);
        let (word, words) = match &self.missing {
            None => ("done", "the cluster is what its spec asks for"),
            Some(missing) => ("missing", missing.as_str()),
        };
        format!("{name}{}", said(word, words, width))
    }
}

impl Desk {
    /// Looks until it has converged, or the time is up.
    pub(super) async fn wait(&self, name: Option<String>, limit: Duration) -> Result<Exit, Error> {
        let start = Instant::now();
        loop {
            let (_, sight) = self.sight(name.clone()).await?;
            whole("waiting", &sight)?;
            let waited = Waited::of(&sight.world);
            if waited.converged {
                self.show(&waited)?;
                return Ok(Exit::Done);
            }
            if start.elapsed() >= limit {
                self.show(&waited)?;
                return Ok(Exit::TimedOut);
            }
            sleep(LOOK).await;
        }
    }
}
