//! The four controllers' shared ground: what a tick needs, its rhythm, and the fence around it.
//! Never takes a decision and never makes an object of its own.

mod acl;
mod cluster;
mod node;
mod pace;
mod pass;
mod tls;

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use kube::Client;
use kube::runtime::controller::{Action, Config};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use crate::act::{Chance, Writer};
use crate::controller::pace::Rhythm;
use crate::model::chain;
use crate::model::desired::PodPolicy;
use crate::observe::{Reader, stores};
use crate::settings::Settings;
use crate::valkey::client::Connector;

/// Reconciles that run at once in one controller: at a start with a thousand clusters no more
/// than these dial their nodes.
const CONCURRENCY: u16 = 64;

/// All that the operator stands on. Whatever it learns or does goes through one of these.
pub struct Ground {
    /// To the API server.
    pub client: Client,
    /// To the Valkey processes.
    pub connector: Connector,
    /// Seconds since the Unix epoch.
    pub clock: Arc<dyn Fn() -> i64 + Send + Sync>,
    /// Passwords, node names and pauses come from here.
    pub chance: Chance,
}

/// Fills the stores, then runs the four controllers until the operator is told to stop.
pub async fn run(ground: Ground, settings: &Settings, stop: watch::Receiver<bool>) {
    let (stores, changes) = tokio::select! {
        biased;
        () = stopped(stop.clone()) => return,
        started = stores::start(&ground.client) => started,
    };
    info!("watches filled");
    let Ground {
        client,
        connector,
        clock,
        chance,
    } = ground;
    let reader = Reader::new(
        client.clone(),
        stores,
        connector.clone(),
        clock,
        settings.default_zone_spread,
    );
    let policy = PodPolicy {
        fixed_user: settings.fixed_user,
    };
    let writer = Writer::new(client, connector, policy, chance);
    tokio::join!(
        cluster::run(
            Context::new(reader.clone(), writer.clone()),
            changes.clusters,
            stop.clone()
        ),
        node::run(
            Context::new(reader.clone(), writer.clone()),
            changes.nodes,
            stop.clone()
        ),
        acl::run(reader.clone(), writer.clone(), stop.clone()),
        tls::run(reader, writer, stop),
    );
}

/// After which a request to the API server counts as unanswered: a client without such a limit lets
/// one lost connection hold up its cluster for minutes. A healthy server takes a tenth of a second.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What every tick is given.
struct Context<K> {
    reader: Reader,
    writer: Writer,
    rhythms: Mutex<BTreeMap<K, Rhythm>>,
}

/// Why a tick failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("failed to observe")]
    Observe(#[source] crate::observe::Error),
    #[error("failed to act")]
    Act(#[source] crate::act::Error),
}

impl<K: Ord + Clone> Context<K> {
    /// A context without memory of any tick.
    fn new(reader: Reader, writer: Writer) -> Self {
        Self {
            reader,
            writer,
            rhythms: Mutex::new(BTreeMap::new()),
        }
    }

    /// Changes one object's rhythm. It paces ticks; nothing is decided by it, and losing it with
    /// the process costs a shorter pause.
    fn rhythm<T>(&self, key: &K, change: impl FnOnce(&mut Rhythm) -> T) -> T {
        let mut rhythms = self.rhythms.lock().unwrap_or_else(PoisonError::into_inner);
        change(rhythms.entry(key.clone()).or_default())
    }

    fn forget(&self, key: &K) {
        self.rhythms
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
    }

    /// Runs one tick: not before the pause of the last one is over, unless its object is to go, and
    /// never beyond its own object, whatever it does.
    async fn guarded(
        &self,
        key: &K,
        deleting: bool,
        tick: impl Future<Output = Result<Duration, Error>>,
    ) -> Action {
        let pause = self.rhythm(key, |rhythm| rhythm.pause_left(Instant::now()));
        if !pause.is_zero() && !deleting {
            return Action::requeue(pause);
        }
        // On the heap: the runtime moves the future that holds it.
        match AssertUnwindSafe(Box::pin(tick)).catch_unwind().await {
            Ok(Ok(delay)) => Action::requeue(delay),
            Ok(Err(failure)) => {
                let delay = self.rhythm(key, |rhythm| rhythm.failed(&failure, Instant::now()));
                warn!(
                    error = chain::of(&failure),
                    ?delay,
                    "reconcile error, requeuing"
                );
                debug!(?failure, "reconcile error in full");
                Action::requeue(delay)
            }
            Err(panic) => {
                let delay = self.rhythm(key, |rhythm| rhythm.panicked(Instant::now()));
                error!(
                    error = panic_text(&*panic),
                    ?delay,
                    "a tick panicked, requeuing"
                );
                Action::requeue(delay)
            }
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("unknown")
}

fn config() -> Config {
    Config::default().concurrency(CONCURRENCY)
}

/// Ends when the process is asked to stop.
async fn stopped(mut stop: watch::Receiver<bool>) {
    // An error means that the sender is gone: the process is stopping too.
    stop.wait_for(|stop| *stop).await.ok();
}
