//! Operator processes: started, killed, run side by side.
//! Never anything but the whole operator, as `main` starts it.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use operator::act::CHANCE_BYTES;
use operator::api::cluster::ZoneSpread;
use operator::controller::{self, Ground};
use operator::model::name::ClusterRef;
use operator::settings::Settings;
use operator::valkey::client::Connector;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::instrument::WithSubscriber as _;

use crate::gate::{Gate, Position};
use crate::kube::rng::Rng;
use crate::log::Log;
use crate::pipes::Pipes;
use crate::plan::Millis;
use crate::server::Server;
use crate::valkey::CLOCK_AT_START;
use crate::world::Shared;

/// What all operators of a run share.
#[derive(Clone)]
pub(crate) struct Operators {
    pub(crate) world: Shared,
    pub(crate) server: Server,
    pub(crate) pipes: Pipes,
    pub(crate) log: Log,
    pub(crate) seed: u64,
    /// The first one's gate.
    pub(crate) first: Option<Gate>,
}

/// One operator that was started.
pub(crate) struct Running {
    pub(crate) gate: Gate,
    task: JoinHandle<()>,
    /// Dropped, it asks the operator to stop; that is not how a process is killed.
    _stop: watch::Sender<bool>,
}

impl Running {
    /// Kills it.
    pub(crate) fn kill(&self) {
        self.gate.kill();
        self.task.abort();
    }
}

impl Operators {
    /// How many writes came out of the first one.
    pub(crate) fn first_writes(&self) -> u32 {
        self.first.as_ref().map_or(0, Gate::writes)
    }

    /// Starts an operator, which ends at that write, if one is given.
    pub(crate) fn start(&mut self, number: u32, crash: Option<(u32, Position)>) -> Running {
        let gate = Gate::new(number, crash);
        self.first.get_or_insert_with(|| gate.clone());
        let (stop, stopping) = watch::channel(false);
        let ground = Ground {
            client: Client::new(self.server.service(gate.clone()), "default"),
            connector: Connector::simulated(6379, self.pipes.dial(gate.clone())),
            clock: self.clock(),
            chance: chance(self.seed, number),
        };
        let settings = Settings {
            default_zone_spread: ZoneSpread::BestEffort,
            fixed_user: true,
            log: "debug".to_owned(),
        };
        let run = async move { controller::run(ground, &settings, stopping).await };
        Running {
            gate,
            task: tokio::spawn(run.with_subscriber(self.log.of(number))),
            _stop: stop,
        }
    }

    fn clock(&self) -> Arc<dyn Fn() -> i64 + Send + Sync> {
        let start = tokio::time::Instant::now();
        let begun = self.world.lock().now();
        Arc::new(move || {
            let passed = start.elapsed() + Duration::from_millis(begun);
            CLOCK_AT_START / 1000 + i64::try_from(passed.as_secs()).unwrap_or(0)
        })
    }
}

/// Each cluster has a stream of its own, so that what one draws does not hang on when another does.
fn chance(seed: u64, operator: u32) -> operator::act::Chance {
    let streams = std::sync::Mutex::new(std::collections::BTreeMap::<ClusterRef, Rng>::new());
    Arc::new(move |cluster: &ClusterRef| {
        let mut streams = streams.lock().expect("no panic with it in hand");
        let stream = streams.entry(cluster.clone()).or_insert_with(|| {
            let name = cluster.to_string();
            let sum = name.bytes().fold(seed, |sum, byte| {
                sum.wrapping_mul(31).wrapping_add(u64::from(byte))
            });
            Rng::new(sum ^ (u64::from(operator) << 48))
        });
        let mut bytes = [0; CHANCE_BYTES];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&stream.draw().to_le_bytes());
        }
        bytes
    })
}

/// Milliseconds as a duration.
pub(crate) fn millis(millis: Millis) -> Duration {
    Duration::from_millis(millis)
}
