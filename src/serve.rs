//! `/healthz`, `/readyz` and `/metrics` over HTTP.
//! Never anything that changes the operator, and never a wait for it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::metrics::Metrics;

/// What `prometheus-client` writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Who asks for a page has asked within this.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection ends after this, whatever it does: probes and Prometheus open a new one.
const CONNECTION_MAX: Duration = Duration::from_mins(1);
/// Connections at once; the next waits.
const CONNECTIONS_MAX: usize = 32;
/// After a connection that could not be accepted, such as for want of file descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// Serves for as long as the process lives.
pub async fn run(listener: TcpListener, metrics: Metrics) -> Infallible {
    let places = std::sync::Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // Never closed: it has a place for the next, or waits for one.
        let place = places.clone().acquire_owned().await.ok();
        match listener.accept().await {
            Ok((stream, peer)) => {
                let metrics = metrics.clone();
                tokio::spawn(async move {
                    connection(TokioIo::new(stream), peer, metrics).await;
                    drop(place);
                });
            }
            Err(error) => {
                warn!(error = %error, "a connection was not accepted, will retry");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn connection(stream: TokioIo<tokio::net::TcpStream>, peer: SocketAddr, metrics: Metrics) {
    let answer = service_fn(move |request| {
        let response = answer(&request, &metrics);
        async move { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(stream, answer);
    match timeout(CONNECTION_MAX, served).await {
        Ok(Ok(())) | Err(_) => {}
        Ok(Err(error)) => debug!(%peer, error = %error, "a connection broke"),
    }
}

fn answer(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return page(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    match request.uri().path() {
        "/healthz" => page(StatusCode::OK, "ok\n"),
        "/readyz" if metrics.is_ready() => page(StatusCode::OK, "ok\n"),
        "/readyz" => page(
            StatusCode::SERVICE_UNAVAILABLE,
            "the watches are not filled yet\n",
        ),
        "/metrics" => match metrics.text() {
            Ok(text) => {
                let mut response = page(StatusCode::OK, text);
                let kind = header::HeaderValue::from_static(OPEN_METRICS);
                response.headers_mut().insert(header::CONTENT_TYPE, kind);
                response
            }
            Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        },
        _ => page(
            StatusCode::NOT_FOUND,
            "/healthz, /readyz and /metrics are served\n",
        ),
    }
}

fn page(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response
}
