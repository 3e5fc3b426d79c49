//! An API server in trouble, as the operator sees it: a proxy between the two refuses, keeps silent and breaks off, while
//! the operator rolls a cluster under writers and forms another. ALL=1.
//! Never touches anybody else's requests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::pending;
use http::Request;
use http::Response;
use http_body_util::BodyExt as _;
use http_body_util::Full;
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Bytes;
use hyper::body::Frame;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rand::RngExt as _;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::follow::Followed;
use crate::ledger::lock;
use crate::living::Living;
use crate::living::config;
use crate::stage::Shape;
use crate::stage::say;
use crate::thorough;
use crate::world::Wanted;
use crate::world::World;

const WANTED: Wanted<'_> = Wanted {
    namespace: "api",
    name: "c",
    shards: 3,
    replicas: 1,
};

/// What comes instead of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    /// One write in three is refused as a conflict, or one request in six, by chance and none of them a watch, with
    /// another status.
    Refused(u16),
    /// One write in four is never answered: it did not arrive, or it did.
    Silent {
        arrives: bool,
    },
    /// Every watch breaks off in the middle of a line, soon after it began.
    Cut,
    /// Every other watch is told that its past is forgotten.
    Expired,
}

/// F10 and F11.
const TROUBLES: [Trouble; 8] = [
    Trouble::Refused(409),
    Trouble::Refused(429),
    Trouble::Refused(500),
    Trouble::Refused(503),
    Trouble::Silent { arrives: false },
    Trouble::Silent { arrives: true },
    Trouble::Cut,
    Trouble::Expired,
];

/// How long a watch lives where it is cut.
const WATCH: Duration = Duration::from_millis(700);

type Body = UnsyncBoxBody<Bytes, Error>;

/// What is done now, and how often it was.
#[derive(Debug)]
struct Mood {
    trouble: Trouble,
    requests: u32,
    struck: u32,
    chance: SmallRng,
    /// Tells open watches that it is another now.
    turned: watch::Sender<()>,
}

impl Mood {
    /// What is to become of the next request.
    fn next(&mut self, is_write: bool, is_watch: bool) -> Trouble {
        self.requests += 1;
        let requests = self.requests;
        let every = |nth: u32| requests.is_multiple_of(nth);
        let strikes = match self.trouble {
            Trouble::None => false,
            Trouble::Refused(409) => is_write && every(3),
            // Never in step with the eight reads of a look.
            Trouble::Refused(_) => !is_watch && self.chance.random_ratio(1, 6),
            Trouble::Silent { .. } => is_write && every(4),
            Trouble::Cut => is_watch,
            Trouble::Expired => is_watch && every(2),
        };
        if !strikes {
            return Trouble::None;
        }
        self.struck += 1;
        self.trouble
    }
}

/// Between the operator and the API server.
struct Proxy {
    mood: Arc<Mutex<Mood>>,
    kubeconfig: PathBuf,
    _runtime: tokio::runtime::Runtime,
}

impl Proxy {
    fn start(world: &World) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let mood = Arc::new(Mutex::new(Mood {
            trouble: Trouble::None,
            requests: 0,
            struck: 0,
            chance: SmallRng::seed_from_u64(1),
            turned: watch::Sender::new(()),
        }));
        let (client, listener) = runtime.block_on(async {
            let client = world.stage.testbed.client().expect("a client");
            let listener = TcpListener::bind("127.0.0.1:0").await;
            (client, listener.expect("a port"))
        });
        let address = listener.local_addr().expect("an address");
        runtime.spawn(serve(listener, client, mood.clone()));
        Self {
            mood,
            kubeconfig: kubeconfig(world, address),
            _runtime: runtime,
        }
    }

    /// From now on, and each open watch begins again; tells how often the last trouble struck.
    fn set(&self, trouble: Trouble) -> u32 {
        let mut mood = lock(&self.mood);
        mood.trouble = trouble;
        mood.turned.send_replace(());
        std::mem::take(&mut mood.struck)
    }
}

fn kubeconfig(world: &World, address: SocketAddr) -> PathBuf {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "proxy",
        "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
        "clusters": [{"name": "proxy", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "proxy", "user": {}}],
    });
    let path = world
        .stage
        .testbed
        .machine
        .directory
        .join("kubeconfig-proxy");
    std::fs::write(&path, config.to_string()).expect("written");
    path
}

async fn serve(listener: TcpListener, client: kube::Client, mood: Arc<Mutex<Mood>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (client, mood) = (client.clone(), mood.clone());
        let answer = service_fn(move |request| answer(request, client.clone(), mood.clone()));
        tokio::spawn(async move {
            let served = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            // An operator that is killed, and a body that is cut, end the connection.
            if served.await.is_err() {}
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    client: kube::Client,
    mood: Arc<Mutex<Mood>>,
) -> Result<Response<Body>, Infallible> {
    let is_write = request.method() != http::Method::GET;
    let query = request.uri().query().unwrap_or_default();
    let is_watch = query.contains("watch=true");
    let (trouble, mut turned) = {
        let mut mood = lock(&mood);
        (mood.next(is_write, is_watch), mood.turned.subscribe())
    };
    match trouble {
        Trouble::Refused(status) => return Ok(refusal(status)),
        Trouble::Expired => return Ok(expired()),
        Trouble::Silent { arrives: false } => pending().await,
        Trouble::Silent { arrives: true } | Trouble::Cut | Trouble::None => {}
    }
    let response = pass_on(request, client).await;
    match trouble {
        Trouble::Silent { .. } => pending().await,
        Trouble::Cut => Ok(response.map(|body| cut(body, tokio::time::sleep(WATCH)))),
        Trouble::None if is_watch => {
            let turns = async move { if turned.changed().await.is_err() {} };
            Ok(response.map(|body| cut(body, turns)))
        }
        Trouble::None | Trouble::Refused(_) | Trouble::Expired => Ok(response),
    }
}

async fn pass_on(request: Request<Incoming>, client: kube::Client) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .expect("the operator sends whole bodies");
    let path = parts.uri.path_and_query().expect("a path").clone();
    let mut passed = Request::builder().method(parts.method).uri(path.as_str());
    for name in [
        http::header::CONTENT_TYPE,
        http::header::ACCEPT,
        http::header::USER_AGENT,
    ] {
        if let Some(value) = parts.headers.get(&name) {
            passed = passed.header(name, value);
        }
    }
    let passed = passed.body(kube::client::Body::from(body.to_bytes()));
    let answered = client.send(passed.expect("a request")).await;
    match answered {
        Ok(response) => response.map(|body| body.map_err(Error::other).boxed_unsync()),
        // The API server itself is away.
        Err(_) => refusal(503),
    }
}

/// Ends with an error where the API server would go on.
fn cut(body: Body, end: impl Future<Output = ()> + Send + 'static) -> Body {
    let frames = body.into_data_stream().map(|chunk| chunk.map(Frame::data));
    let broken = futures::stream::once(async { Err(Error::other("cut")) });
    StreamBody::new(frames.take_until(end).chain(broken)).boxed_unsync()
}

fn refusal(code: u16) -> Response<Body> {
    let reasons = BTreeMap::from([
        (409, "Conflict"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
    ]);
    let reason = reasons.get(&code).expect("a reason");
    let mut response = page(&status(code, reason));
    *response.status_mut() = http::StatusCode::from_u16(code).expect("a status");
    if code == 429 {
        let second = http::HeaderValue::from_static("1");
        response
            .headers_mut()
            .insert(http::header::RETRY_AFTER, second);
    }
    response
}

fn expired() -> Response<Body> {
    page(&json!({"type": "ERROR", "object": status(410, "Expired")}))
}

fn status(code: u16, reason: &str) -> serde_json::Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("{reason}, by a test"), "reason": reason, "code": code,
    })
}

fn page(body: &serde_json::Value) -> Response<Body> {
    let text = format!("{body}\n");
    let body = Full::new(Bytes::from(text)).map_err(Error::other);
    let mut response = Response::new(body.boxed_unsync());
    let kind = http::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, kind);
    response
}

#[test]
fn an_operator_outlives_the_troubles_of_its_api_server() {
    if !thorough("an_operator_outlives_the_troubles_of_its_api_server") {
        return;
    }
    let world = World::without_operator();
    let proxy = Proxy::start(&world);
    let operator = Followed::start_with(&proxy.kubeconfig);
    let mut living = Living::born(&world, &WANTED);
    for (number, trouble) in (1..).zip(TROUBLES) {
        let hz = (10 + number).to_string();
        let beside = format!("beside-{number}");
        let what = format!("a roll and a bootstrap under {trouble:?}");
        proxy.set(trouble);
        living.planned(&what, &WANTED, |living| {
            config(&world, WANTED.namespace, &hz);
            world.stage.apply_cluster(&beside, Shape::SMALL);
            world.stage.wait_until_formed(&beside, Shape::SMALL);
            living.wait_until_rolled(WANTED.namespace, &hz);
        });
        let struck = proxy.set(Trouble::None);
        say(&format!("{trouble:?} struck {struck} times"));
        assert!(struck > 0, "{trouble:?} never struck");
        let census = world.stage.census(&beside);
        assert_eq!(census.check(Shape::SMALL.nodes()), Ok(()), "{trouble:?}");
        world.stage.delete("Namespace", "", &beside);
    }
    living.judged(operator.heard());
}
