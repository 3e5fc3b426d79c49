//! The four controllers' shared ground: what a tick needs, its rhythm, and the fence around it.
//! Never takes a decision and never makes an object of its own.

mod acl;
mod chronicle;
mod cluster;
mod node;
mod pace;
mod pass;
mod telling;
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
use tokio::time::{Instant, timeout};
use tracing::{debug, error, info, warn};

use crate::act::event;
use crate::act::{Chance, Writer};
use crate::controller::pace::Rhythm;
use crate::controller::telling::Telling;
use crate::metrics::{Metrics, Outcome};
use crate::model::chain;
use crate::model::desired::PodPolicy;
use crate::observe::definitions::{self, Compared};
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
    /// The numbers of what is done.
    pub metrics: Metrics,
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
        metrics,
    } = ground;
    metrics.now_ready();
    let counted = metrics.clone();
    let (teller, scribe) = event::scribe(
        client.clone(),
        clock.clone(),
        Arc::new(move |outcome: event::Outcome| counted.event(outcome.into())),
    );
    let telling = Telling::new(teller, metrics, stores.clone());
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
    let tools = |name| Tools {
        name,
        reader: reader.clone(),
        writer: writer.clone(),
        telling: telling.clone(),
    };
    let (clusters, nodes) = (Context::new(tools("cluster")), Context::new(tools("node")));
    let (acls, certificates) = (tools("acl"), tools("tls"));
    drop(telling);
    let scribe = tokio::spawn(scribe.run());
    tokio::join!(
        cluster::run(clusters, changes.clusters, stop.clone()),
        node::run(nodes, changes.nodes, stop.clone()),
        acl::run(acls, stop.clone()),
        tls::run(certificates, stop),
    );
    // With the controllers every teller is gone.
    match timeout(LAST_WORDS, scribe).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => error!(error = chain::of(&error), "the scribe of Events panicked"),
        Err(_) => warn!("the last Events are left unwritten"),
    }
}

/// How long a stop waits for Events that are not written yet.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Says which of the five kinds are served in an older definition than this release's: what it lacks
/// is refused or dropped by the API server.
pub async fn compare_definitions(client: Client, metrics: Metrics) {
    for Compared { kind, lacks } in definitions::compare(&client).await {
        let outdated = match lacks {
            Ok(Some(lacks)) if lacks.is_empty() => false,
            Ok(Some(lacks)) => {
                let lacks = lacks.into_iter().collect::<Vec<_>>().join(", ");
                warn!(
                    kind,
                    lacks,
                    "the served CRD is older than the operator: apply this release's crds.json"
                );
                true
            }
            Ok(None) => {
                warn!(
                    kind,
                    "the CRD is not served: apply this release's crds.json"
                );
                true
            }
            Err(error) => {
                let error = chain::of(&error);
                warn!(kind, error, "the served CRD could not be compared");
                continue;
            }
        };
        metrics.definition(&kind, outdated);
    }
}

/// After which a request to the API server counts as unanswered: a client without such a limit lets
/// one lost connection hold up its cluster for minutes. A healthy server takes a tenth of a second.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What a controller works with, and its name, as numbers have it.
struct Tools {
    name: &'static str,
    reader: Reader,
    writer: Writer,
    telling: Arc<Telling>,
}

/// What every tick is given.
struct Context<K> {
    tools: Tools,
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
    fn new(tools: Tools) -> Self {
        Self {
            tools,
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
        let begun = Instant::now();
        // On the heap: the runtime moves the future that holds it.
        let ended = AssertUnwindSafe(Box::pin(tick)).catch_unwind().await;
        let outcome = match &ended {
            Ok(Ok(_)) => Outcome::Success,
            Ok(Err(_)) => Outcome::Error,
            Err(_) => Outcome::Panic,
        };
        self.tools
            .telling
            .reconciled(self.tools.name, outcome, begun.elapsed());
        match ended {
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
