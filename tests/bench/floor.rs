//! The floor: the operator is stopped once it has made all pods, and a driver that knows the end takes them there by the
//! shortest way that the contract's order leaves: all MEETs at once, ranges one by one with every node told, all replicas
//! at once.
//! Never stops before the operator's own rungs would call the cluster formed.

use std::net::IpAddr;
use std::time::Duration;
use std::time::Instant;

use futures::future::join_all;
use kube::runtime::reflector::ObjectRef;
use operator::model::decision::Action;
use operator::model::decision::Decision;
use operator::model::decision::Verdict;
use operator::model::name::ClusterRef;
use operator::model::redacted::Redacted;
use operator::model::slots::SlotRange;
use operator::model::topology::NodeView;
use operator::model::world::Keeping;
use operator::model::world::World;
use operator::valkey::client::Connector;
use operator::valkey::client::Target;

use crate::stage::Failure;
use crate::stage::Sample;
use crate::stage::Shape;
use crate::stage::Stage;
use crate::stage::done;

/// Valkey's own clock ticks every 100 ms; asking more often than this takes the processes' time away.
const POLL: Duration = Duration::from_millis(25);
/// A hint that did not help within one tick of Valkey's clock is given again.
const HINT_AGAIN: Duration = Duration::from_millis(100);
/// Ten times what it ever took.
const LIMIT: Duration = Duration::from_mins(1);

pub(crate) async fn measure(stage: &mut Stage<'_>, shape: Shape) -> Result<Sample, Failure> {
    stage.start_operator()?;
    let key = stage.create(shape, &[], &[]).await?;
    let reference = ObjectRef::new(&key.name).within(&key.namespace);
    stage
        .until("all pods to be made", |stage| {
            let stores = stage.reader.stores();
            let made = stores.nodes.state();
            let stamped = made.iter().filter(|node| {
                let annotations = node.metadata.annotations.as_ref();
                annotations.is_some_and(|held| held.contains_key(operator::api::ANNOTATION_POD_UID))
            });
            stamped.count() == shape.nodes() && stores.clusters.get(&reference).is_some()
        })
        .await?;
    stage.stop_operator();
    let running = stage.all_running(&key, shape.nodes()).await?;
    let mut driver = Driver {
        stage,
        key: &key,
        start: running.1,
        steps: Vec::new(),
    };
    driver.drive(shape).await?;
    let steps = driver.steps;
    let sample = done("floor", running, steps);
    stage.delete(&key).await?;
    Ok(sample)
}

/// A process and what it says.
struct Peer {
    address: IpAddr,
    shard: u32,
    view: NodeView,
}

struct Driver<'a, 'b> {
    stage: &'a Stage<'b>,
    key: &'a ClusterRef,
    start: Instant,
    steps: Vec<(&'static str, f64)>,
}

impl Driver<'_, '_> {
    async fn drive(&mut self, shape: Shape) -> Result<(), Failure> {
        let (password, peers) = self.answering(shape.nodes()).await?;
        if peers.iter().any(|peer| peer.view.known_nodes > 1) {
            return Err("the operator was stopped too late".into());
        }
        let wire = Wire {
            connector: &self.stage.connector,
            password: &password,
        };
        let everybody = pairs(peers.len(), |_, _| true);
        wire.introduce(&peers, &everybody).await?;
        let acquainted = |_: &Decision, peers: &[Peer]| {
            pairs(peers.len(), |from, to| {
                let row = peers[to].view.member(&peers[from].view.id);
                row.is_none_or(|row| row.flags.handshake)
            })
        };
        self.hint_until("met", &wire, acquainted).await?;
        let primary = |shard| peers.iter().position(|peer| peer.shard == shard);
        let mut assigned = 0;
        for shard in 0..shape.shards {
            let owner = primary(shard).ok_or("a shard without a node")?;
            let range = SlotRange::share(shard, shape.shards).ok_or("no such shard")?;
            let target = wire.target(&peers[owner]);
            wire.connector.add_slots(&target, range).await?;
            assigned += range.end() - range.start() + 1;
            let told = pairs(peers.len(), |from, to| from == owner && to != owner);
            wire.introduce(&peers, &told).await?;
            let agreed = |_: &Decision, peers: &[Peer]| {
                pairs(peers.len(), |from, to| {
                    from == owner && peers[to].view.slots_assigned != assigned
                })
            };
            let step = if shard == 0 { "first range" } else { "range" };
            self.hint_until(step, &wire, agreed).await?;
        }
        let attached = peers.iter().enumerate().filter_map(|(index, peer)| {
            let primary = primary(peer.shard).filter(|primary| *primary != index)?;
            Some((wire.target(peer), &peers[primary].view.id))
        });
        let attached = attached.map(|(target, primary)| async move {
            wire.connector.replicate(&target, primary).await
        });
        join_all(attached)
            .await
            .into_iter()
            .collect::<Result<(), _>>()?;
        self.step("attached");
        let formed = |decision: &Decision, peers: &[Peer]| {
            // Who was attached to whom is told to all, until the operator would call it formed.
            let formed = matches!(decision.verdict, Verdict::Take(Action::Activate(_), _));
            pairs(peers.len(), |from, to| {
                let row = peers[to].view.member(&peers[from].view.id);
                let own = peers[from].view.member(&peers[from].view.id);
                !formed && row.map(|row| &row.primary) != own.map(|own| &own.primary)
            })
        };
        loop {
            self.hint_until("told", &wire, formed).await?;
            let (_, decision) = self.stage.look(self.key).await?;
            if matches!(decision.verdict, Verdict::Take(Action::Activate(_), _)) {
                self.step("formed");
                return Ok(());
            }
            self.in_time()?;
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until every process answers.
    async fn answering(&mut self, nodes: usize) -> Result<(Redacted<String>, Vec<Peer>), Failure> {
        loop {
            let (world, _) = self.stage.look(self.key).await?;
            let peers = peers(&world);
            if let Keeping::Ours(auth) = &world.kept.auth
                && peers.len() == nodes
            {
                self.step("answered");
                return Ok((auth.operator.clone(), peers));
            }
            self.in_time()?;
            tokio::time::sleep(POLL).await;
        }
    }

    /// Looks until nobody lacks anything; who lacks something is told again.
    async fn hint_until(
        &mut self,
        step: &'static str,
        wire: &Wire<'_>,
        lacking: impl Fn(&Decision, &[Peer]) -> Vec<(usize, usize)>,
    ) -> Result<(), Failure> {
        let mut hinted = Instant::now();
        loop {
            let (world, decision) = self.stage.look(self.key).await?;
            let peers = peers(&world);
            let lacking = lacking(&decision, &peers);
            if lacking.is_empty() {
                self.step(step);
                return Ok(());
            }
            if hinted.elapsed() >= HINT_AGAIN {
                wire.introduce(&peers, &lacking).await?;
                hinted = Instant::now();
            }
            self.in_time()?;
            tokio::time::sleep(POLL).await;
        }
    }

    fn step(&mut self, step: &'static str) {
        self.steps.push((step, self.start.elapsed().as_secs_f64()));
    }

    fn in_time(&self) -> Result<(), Failure> {
        if self.start.elapsed() < LIMIT {
            return Ok(());
        }
        let last = self.steps.last().map(|(step, _)| *step);
        Err(format!("the driver came no further than {last:?}").into())
    }
}

/// Every process that answered, in the order of the nodes' names.
fn peers(world: &World) -> Vec<Peer> {
    let peers = world.nodes.values().filter_map(|node| {
        Some(Peer {
            address: node.stamped_pod()?.ip?,
            shard: node.spec.shard_index,
            view: node.view()?.clone(),
        })
    });
    peers.collect()
}

/// Who is to speak to whom.
fn pairs(count: usize, chosen: impl Fn(usize, usize) -> bool) -> Vec<(usize, usize)> {
    let all = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
    all.filter(|&(from, to)| from != to && chosen(from, to))
        .collect()
}

#[derive(Clone, Copy)]
struct Wire<'a> {
    connector: &'a Connector,
    password: &'a Redacted<String>,
}

impl Wire<'_> {
    fn target(&self, peer: &Peer) -> Target<'_> {
        Target::operator(peer.address, self.password)
    }

    async fn introduce(&self, peers: &[Peer], pairs: &[(usize, usize)]) -> Result<(), Failure> {
        let sent = pairs.iter().map(|&(from, to)| async move {
            let target = self.target(&peers[from]);
            self.connector.meet(&target, peers[to].address).await
        });
        join_all(sent)
            .await
            .into_iter()
            .collect::<Result<(), _>>()?;
        Ok(())
    }
}
