//! Operator processes: started, killed, run side by side.
//! Never anything but the whole operator, as `main` starts it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use operator::act::CHANCE_BYTES;
use operator::api::cluster::ZoneSpread;
use operator::controller::{self, Ground};
use operator::metrics::Metrics;
use operator::model::name::ClusterRef;
use operator::settings::Settings;
use operator::valkey::client::Connector;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{Instrument as _, info_span};

use crate::kube::client::{Gate, Moment, Switch};
use crate::kube::faults::Caller;
use crate::kube::rng::Rng;
use crate::pipes::Pipes;
use crate::plan::Millis;
use crate::valkey::CLOCK_AT_START;
use crate::world::World;

/// What all operators of a run share.
pub(crate) struct Operators {
    pub(crate) api: Gate<World>,
    pub(crate) pipes: Pipes,
    pub(crate) seed: u64,
    /// By so many seconds their clocks are ahead of the true time.
    pub(crate) wall: Arc<AtomicI64>,
    /// The first one's life, in which writes are counted.
    pub(crate) first: Option<Switch>,
}

/// One operator that was started.
pub(crate) struct Running {
    pub(crate) number: u32,
    pub(crate) switch: Switch,
    task: JoinHandle<()>,
    /// Dropped, it asks the operator to stop; that is not how a process is killed.
    _stop: watch::Sender<bool>,
}

impl Running {
    /// Kills it.
    pub(crate) fn kill(&self) {
        self.switch.turn_off();
        self.task.abort();
    }
}

impl Operators {
    /// When the first one wrote.
    pub(crate) fn first_writes(&self) -> Vec<Millis> {
        self.first.as_ref().map_or_else(Vec::new, Switch::writes)
    }

    /// Starts an operator, which ends at that write, if one is given.
    pub(crate) fn start(&mut self, number: u32, crash: Option<(usize, Moment)>) -> Running {
        let switch = Switch::default();
        if let Some((write, moment)) = crash {
            switch.crash_at(write, moment);
        }
        self.first.get_or_insert_with(|| switch.clone());
        let (stop, stopping) = watch::channel(false);
        let ground = Ground {
            client: self.api.client_within(
                Caller::Operator(number),
                &switch,
                controller::REQUEST_TIMEOUT,
            ),
            connector: Connector::simulated(6379, self.pipes.dial(number, &switch)),
            clock: self.clock(),
            chance: chance(self.seed, number),
            metrics: Metrics::default(),
        };
        let settings = Settings {
            default_zone_spread: ZoneSpread::BestEffort,
            fixed_user: true,
            serve_address: None,
            log: "debug".to_owned(),
        };
        let run = async move { controller::run(ground, &settings, stopping).await };
        Running {
            number,
            switch,
            task: tokio::task::spawn_local(run.instrument(info_span!("run", operator = number))),
            _stop: stop,
        }
    }

    /// Seconds since the Unix epoch, as operators read them.
    pub(crate) fn clock(&self) -> Arc<dyn Fn() -> i64 + Send + Sync> {
        let (api, wall) = (self.api.clone(), self.wall.clone());
        Arc::new(move || {
            let now = i64::try_from(api.now()).unwrap_or(i64::MAX);
            (CLOCK_AT_START + now) / 1000 + wall.load(Ordering::Relaxed)
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
