//! What every measurement stands on: the menu, an operator that can be stopped, clusters that come and go.
//! Never measures.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use kube::Client;
use kube::api::Api;
use kube::api::DeleteParams;
use kube::api::PostParams;
use operator::api::cluster::ValkeyCluster;
use operator::api::cluster::ZoneSpread;
use operator::decide;
use operator::model::decision::Decision;
use operator::model::name::ClusterRef;
use operator::model::world::PodPhase;
use operator::model::world::PodSighting;
use operator::model::world::World;
use operator::observe::Reader;
use operator::observe::Source;
use operator::observe::stores;
use operator::observe::stores::Changes;
use operator::resolve;
use operator::valkey::client::Connector;
use serde_json::json;

use crate::report;
use crate::testbed::Testbed;
use crate::testbed::command::say;
use crate::testbed::operator::Beside;
use crate::testbed::operator::beside;
use crate::testbed::operator::install_kinds;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Twenty pods start in 20 s on two idle cores; the rest is a machine under load.
const LIMIT: Duration = Duration::from_mins(3);

/// How long a wait sleeps at most when no event comes.
const SLEEP_MAX: Duration = Duration::from_millis(100);

pub(crate) const NAMESPACE: &str = "bench";

const MENU: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: bench}
---
apiVersion: valkey.gomomento.com/v1alpha1
kind: ValkeyImage
metadata: {name: valkey}
spec: {repository: valkey/valkey, tag: 9.1.2, version: 9.1.2}
---
apiVersion: valkey.gomomento.com/v1alpha1
kind: ValkeyConfig
metadata: {name: small}
spec:
  imageRef: valkey
  resources: {cpu: 20m, memory: 32Mi}
";

#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) shards: u32,
    pub(crate) replicas: u32,
}

impl Shape {
    pub(crate) fn nodes(self) -> usize {
        usize::try_from(self.shards * (1 + self.replicas)).unwrap_or(usize::MAX)
    }
}

/// One bootstrap, in seconds.
pub(crate) struct Sample {
    /// From the first pod seen Running to the last: about the age of the oldest process at the start.
    pub(crate) spread: f64,
    /// From the last pod seen Running to the end.
    pub(crate) took: f64,
    /// How far each step was, where the driver knows it.
    pub(crate) steps: Vec<(&'static str, f64)>,
}

pub(crate) struct Stage<'a> {
    pub(crate) testbed: &'a Testbed,
    pub(crate) client: Client,
    pub(crate) reader: Reader,
    pub(crate) connector: Connector,
    changes: Changes,
    operator: Option<Beside>,
    clusters: u32,
}

impl<'a> Stage<'a> {
    pub(crate) async fn set(testbed: &'a Testbed) -> Result<Self, Failure> {
        install_kinds(testbed)?;
        testbed.kubectl_with(["apply", "--filename", "-"], MENU)?;
        let client = testbed.client()?;
        let (stores, changes) = stores::start(&client).await;
        let connector = Connector::new(6379);
        let clock = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(0))
        };
        let reader = Reader::new(
            client.clone(),
            stores,
            connector.clone(),
            Arc::new(clock),
            ZoneSpread::BestEffort,
        );
        Ok(Self {
            testbed,
            client,
            reader,
            connector,
            changes,
            operator: None,
            clusters: 0,
        })
    }

    pub(crate) fn start_operator(&mut self) -> Result<(), Failure> {
        if self.operator.is_none() {
            let binary = Path::new(env!("CARGO_BIN_EXE_valkey-operator"));
            let log = std::env::var("RUST_LOG").unwrap_or_else(|_| "info".to_owned());
            self.operator = Some(beside(self.testbed, binary, &[("RUST_LOG", &log)])?);
        }
        Ok(())
    }

    pub(crate) fn stop_operator(&mut self) {
        self.operator = None;
    }

    /// Copies the operator's log to where the samples are: the testbed's directory goes with it.
    pub(crate) fn keep_log(&self) -> Result<(), Failure> {
        if let Some(operator) = &self.operator {
            let directory = report::directory()?;
            std::fs::copy(&operator.log, directory.join("operator.log"))?;
        }
        Ok(())
    }

    /// Asks for a cluster of a new name. With a node selector that no node has, its pods stay unscheduled.
    pub(crate) async fn create(
        &mut self,
        shape: Shape,
        node_selector: &[(&str, &str)],
        annotations: &[(&str, &str)],
    ) -> Result<ClusterRef, Failure> {
        self.clusters += 1;
        let name = format!("c{}", self.clusters);
        let selector: std::collections::BTreeMap<_, _> = node_selector.iter().copied().collect();
        let spec = json!({
            "configRef": "small",
            "shards": shape.shards,
            "replicasPerShard": shape.replicas,
            "placement": {"nodeSelector": selector},
        });
        let mut cluster = ValkeyCluster::new(&name, serde_json::from_value(spec)?);
        let annotations = annotations.iter();
        let annotations = annotations.map(|&(key, value)| (key.to_owned(), value.to_owned()));
        cluster.metadata.annotations = Some(annotations.collect());
        let api: Api<ValkeyCluster> = Api::namespaced(self.client.clone(), NAMESPACE);
        api.create(&PostParams::default(), &cluster).await?;
        Ok(ClusterRef {
            namespace: NAMESPACE.to_owned(),
            name,
        })
    }

    /// Deletes a cluster and waits until nothing runs any more.
    pub(crate) async fn delete(&mut self, key: &ClusterRef) -> Result<(), Failure> {
        self.start_operator()?;
        let api: Api<ValkeyCluster> = Api::namespaced(self.client.clone(), NAMESPACE);
        api.delete(&key.name, &DeleteParams::default()).await?;
        self.until("nothing to be left of a cluster", |stage| {
            let stores = stage.reader.stores();
            stores.pods.is_empty() && stores.nodes.is_empty() && stores.clusters.is_empty()
        })
        .await
    }

    /// Waits for a condition of the stores; looks with every event.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&Self) -> bool,
    ) -> Result<(), Failure> {
        let start = Instant::now();
        while !holds(self) {
            if start.elapsed() > LIMIT {
                return Err(format!("waited too long for {what}").into());
            }
            // An event or the time: either is a reason to look again.
            tokio::select! {
                _ = self.changes.clusters.recv() => {}
                _ = self.changes.nodes.recv() => {}
                () = tokio::time::sleep(SLEEP_MAX) => {}
            }
        }
        Ok(())
    }

    /// What Kubernetes shows of a cluster; no process is asked.
    pub(crate) async fn kubernetes_world(&self, key: &ClusterRef) -> Result<World, Failure> {
        let world = self.reader.kubernetes_world(key, Source::Stores).await?;
        world.ok_or_else(|| "the cluster is gone".into())
    }

    /// The same with what every process says, and what the operator would decide on it.
    pub(crate) async fn look(&self, key: &ClusterRef) -> Result<(World, Decision), Failure> {
        let world = self.reader.world(key, Source::Stores).await?;
        let world = world.ok_or("the cluster is gone")?;
        let decision = decide::decide(&world, &resolve::desired(&world));
        Ok((world, decision))
    }

    /// Waits until all pods run; returns when the first and the last were seen to.
    pub(crate) async fn all_running(
        &mut self,
        key: &ClusterRef,
        nodes: usize,
    ) -> Result<(Instant, Instant), Failure> {
        let (mut first, start) = (None, Instant::now());
        loop {
            let world = self.kubernetes_world(key).await?;
            let pods = world.nodes.values().filter(|node| {
                matches!(&node.pod, PodSighting::Present(pod)
                    if pod.phase == PodPhase::Running && pod.ip.is_some())
            });
            let running = pods.count();
            let now = Instant::now();
            if running > 0 {
                first.get_or_insert(now);
            }
            if running == nodes {
                return Ok((first.unwrap_or(now), now));
            }
            if start.elapsed() > LIMIT {
                return Err(format!("{running} of {nodes} pods run").into());
            }
            tokio::select! {
                _ = self.changes.clusters.recv() => {}
                () = tokio::time::sleep(SLEEP_MAX) => {}
            }
        }
    }
}

/// A measurement that ends now.
pub(crate) fn done(
    what: &str,
    (first, last): (Instant, Instant),
    steps: Vec<(&'static str, f64)>,
) -> Sample {
    let sample = Sample {
        spread: (last - first).as_secs_f64(),
        took: last.elapsed().as_secs_f64(),
        steps,
    };
    let steps: Vec<_> = sample.steps.iter().collect();
    say(&format!(
        "{what}: {:.2} s after the last pod, which ran {:.2} s after the first {steps:.2?}",
        sample.took, sample.spread
    ));
    sample
}
