//! The operator process: settings, logs, one client, four controllers, a graceful stop.
//! Never decides anything about a cluster.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use operator::controller::{self, Ground};
use operator::metrics::Metrics;
use operator::model::chain;
use operator::serve;
use operator::settings::Settings;
use operator::telemetry;
use operator::valkey::client::Connector;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tower::timeout::TimeoutLayer;
use tower::util::{MapRequestLayer, MapResponseLayer};
use tracing::{error, info};

/// The port that the contract forces on every node.
const VALKEY_PORT: u16 = 6379;

/// The API server sends a bookmark about every minute on a watch where nothing happens.
const WATCH_SILENCE_MAX: Duration = Duration::from_secs(90);

#[tokio::main]
async fn main() -> ExitCode {
    let settings = Settings::from_environment();
    // A refused setting must still be logged, in the form of all other logs.
    let filter = settings
        .as_ref()
        .map_or("info", |settings| settings.log.as_str());
    if let Err(failure) = telemetry::start(filter) {
        // There is no log to say it in.
        return fail_without_log(&*failure);
    }
    let result = match settings {
        Ok(settings) => run(settings).await,
        Err(failure) => Err(failure.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            error!(error = chain::of(&*failure), "cannot run");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "the log itself could not be started")]
fn fail_without_log(failure: &(dyn std::error::Error + Send + Sync)) -> ExitCode {
    eprintln!("RUST_LOG is not a log filter: {failure}");
    ExitCode::FAILURE
}

async fn run(settings: Settings) -> Result<(), Box<dyn std::error::Error>> {
    info!(version = env!("CARGO_PKG_VERSION"), ?settings, "starting");
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| "a crypto provider is installed already")?;
    let stop = stop_on_signal()?;
    let metrics = Metrics::default();
    let client = client(&metrics).await?;
    if let Some(address) = settings.serve_address {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| ListenError { address, source })?;
        tokio::spawn(serve::run(listener, metrics.clone()));
    }
    tokio::spawn(controller::compare_definitions(
        client.clone(),
        metrics.clone(),
    ));
    let clock = || {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    };
    let ground = Ground {
        client,
        connector: Connector::new(VALKEY_PORT),
        clock: Arc::new(clock),
        chance: Arc::new(|_| rand::random()),
        metrics,
    };
    controller::run(ground, &settings, stop).await;
    info!("stopped");
    Ok(())
}

/// Another process has the port, or the machine has no such address.
#[derive(Debug, thiserror::Error)]
#[error("failed to listen on {address}")]
struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

/// A client that notices a server which is gone without a word, and counts what it asks.
async fn client(metrics: &Metrics) -> Result<Client, Box<dyn std::error::Error>> {
    let mut config = Config::infer().await?;
    config.connect_timeout = Some(controller::REQUEST_TIMEOUT);
    config.read_timeout = Some(WATCH_SILENCE_MAX);
    let builder = ClientBuilder::try_from(config)?;
    let deadline = TimeoutLayer::new(controller::REQUEST_TIMEOUT);
    let counted = metrics.clone();
    let requests = MapRequestLayer::new(move |request: Request<Body>| {
        counted.requested(request.method().as_str());
        request
    });
    let counted = metrics.clone();
    let responses = MapResponseLayer::new(move |response: Response<_>| {
        counted.answered(response.status().as_u16());
        response
    });
    let counting = builder.with_layer(&requests).with_layer(&responses);
    Ok(counting.with_layer(&deadline).build())
}

/// A flag that SIGTERM and SIGINT raise: ticks under way end, no new one starts.
fn stop_on_signal() -> Result<watch::Receiver<bool>, std::io::Error> {
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let (raise, stop) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        info!("stopping");
        raise.send_replace(true);
    });
    Ok(stop)
}
