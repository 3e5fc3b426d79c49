//! Connections to Valkey processes: one for each, kept while it is used, a deadline on every call.
//! Never sends a command that the operator's own user may not run, not even on connecting.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, FromRedisValue, Pipeline, RedisConnectionInfo, RedisError, ServerError,
    Value,
};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream,
};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::model::digest::sha256_hex;
use crate::model::redacted::Redacted;
use crate::model::tls::{Authorities, provider};
use crate::model::world::{Keeping, NodeFacts, World};
use crate::valkey::parse;

/// For connecting, TLS and login together. A pod on a healthy network takes milliseconds; one that
/// hangs still accepts connections, by its kernel, so that only this ends the wait for it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Longer than Valkey needs for any command of ours, a fifth of what it waits itself before it calls
/// a node failing, and what one hung node may cost a tick.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// For both where an API server, possibly far away, carries the bytes; nobody's tick waits for it.
const CARRIED_TIMEOUT: Duration = Duration::from_secs(10);
/// In bytes; a refusal is one line of some 100.
const LOGIN_REPLY_MAX: u64 = 4096;
/// A connection that nobody used for as long belongs to a pod that is gone, or to a cluster that
/// needs nothing.
const IDLE_MAX: Duration = Duration::from_mins(2);
/// How late an idle connection may be closed.
const SWEEP_PERIOD: Duration = Duration::from_secs(10);

/// What went wrong between us and a process.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection.
    #[error("failed to connect to {address}")]
    Connect {
        /// Where.
        address: IpAddr,
        /// Why not.
        source: Box<RedisError>,
    },
    /// It listens and does not take our password: it may be another cluster's.
    #[error("{address} refused the login: {refusal}")]
    Login {
        /// Where.
        address: IpAddr,
        /// Valkey's own words.
        refusal: String,
    },
    /// Valkey answered a command with an error.
    #[error("{address} refused {command}: {refusal}")]
    Refused {
        /// Which.
        command: &'static str,
        /// Where.
        address: IpAddr,
        /// Valkey's own words, its error code first.
        refusal: String,
    },
    /// A command was not answered, not in time, or with something of another type.
    #[error("{command} to {address} failed")]
    Call {
        /// Which.
        command: &'static str,
        /// Where.
        address: IpAddr,
        /// Why.
        source: Box<RedisError>,
    },
    /// A reply is not what Valkey is known to say.
    #[error("unreadable reply from {address}")]
    Reply {
        /// Where from.
        address: IpAddr,
        /// What is wrong with it.
        source: parse::Error,
    },
}

impl Error {
    /// Whether Valkey itself refused, in words that begin like this.
    pub(super) fn refused_with(&self, words: &str) -> bool {
        self.refusal()
            .is_some_and(|refusal| refusal.starts_with(words))
    }

    /// Whether the process knows no such user or password.
    #[must_use]
    pub fn is_locked_out(&self) -> bool {
        matches!(self, Self::Login { refusal, .. } if refusal.starts_with("WRONGPASS"))
    }

    /// What Valkey had against a command, in its words.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Refused { refusal, .. } => Some(refusal),
            Self::Connect { .. } | Self::Login { .. } | Self::Call { .. } | Self::Reply { .. } => {
                None
            }
        }
    }
}

/// Where a process listens, and as whom it is spoken to.
#[derive(Clone, Debug)]
pub struct Target<'a> {
    address: IpAddr,
    username: &'static str,
    password: &'a Redacted<String>,
    tls: Option<Tls<'a>>,
}

/// Whom a process has to prove to be.
#[derive(Clone, Debug)]
pub struct Tls<'a> {
    /// The name that its certificate must hold. It is never looked up, since the address is known: a
    /// DNS that fails keeps clients away, and not the operator.
    pub dns_name: String,
    /// PEM files with the authorities, one of which must have signed that certificate: those in use,
    /// and those before them.
    pub authorities: [&'a [u8]; 2],
}

/// What the World lacks, so that a process cannot be spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing is known of {0}")]
pub struct Missing(pub &'static str);

impl<'a> Target<'a> {
    /// The process of a node, which has this address.
    pub fn of(world: &'a World, node: &NodeFacts, address: IpAddr) -> Result<Self, Missing> {
        let Keeping::Ours(auth) = &world.kept.auth else {
            return Err(Missing("the password"));
        };
        let plain = Self::operator(address, &auth.operator);
        if world.cluster.spec.tls.is_none() {
            return Ok(plain);
        }
        let Keeping::Ours(tls) = &world.kept.tls else {
            return Err(Missing("the authorities that sign for nodes"));
        };
        Ok(plain.over_tls(Tls {
            dns_name: world.cluster.key.host_of(&node.name),
            authorities: [
                tls.files.authorities.expose(),
                tls.former_authorities.expose(),
            ],
        }))
    }

    /// A process, spoken to as the operator's own user.
    #[must_use]
    pub fn operator(address: IpAddr, password: &'a Redacted<String>) -> Self {
        Self {
            address,
            username: "_momento_operator",
            password,
            tls: None,
        }
    }

    /// The same, through TLS.
    #[must_use]
    pub fn over_tls(self, tls: Tls<'a>) -> Self {
        Self {
            tls: Some(tls),
            ..self
        }
    }

    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    fn key(&self) -> Key {
        let Self {
            address,
            username: _,
            password,
            tls,
        } = self;
        let mut credentials = password.expose().clone();
        if let Some(Tls {
            dns_name,
            authorities,
        }) = tls
        {
            credentials.push_str(dns_name);
            for file in authorities {
                credentials.push_str(&String::from_utf8_lossy(file));
            }
        }
        (*address, sha256_hex(&credentials))
    }
}

/// Dials and keeps connections. Clones share them.
#[derive(Clone)]
pub struct Connector {
    port: u16,
    wire: Wire,
    shelf: Arc<Mutex<Shelf>>,
}

/// What connections are made of.
#[derive(Clone)]
enum Wire {
    /// TCP, or TLS over it.
    Network,
    /// What somebody else dials.
    Dialed {
        /// How.
        dial: Dial,
        /// Whether processes with TLS are spoken to through TLS.
        tls: bool,
        /// For connecting, and for each command.
        patience: Duration,
    },
}

/// Opens a byte stream to an address.
pub type Dial =
    Arc<dyn Fn(SocketAddr) -> BoxFuture<'static, io::Result<DuplexStream>> + Send + Sync>;

/// By address and a digest of the credentials: an address may pass to another cluster's pod.
type Key = (IpAddr, String);

#[derive(Default)]
struct Shelf {
    kept: BTreeMap<Key, Kept>,
    /// How many were ever dialed, so that each has a number.
    dialed: u64,
    /// A task closes idle connections, and ends with the last one.
    swept: bool,
}

#[derive(Clone)]
struct Kept {
    connection: MultiplexedConnection,
    used: Instant,
    number: u64,
}

impl Connector {
    /// A connector to processes that listen on `port`.
    #[must_use]
    pub fn new(port: u16) -> Self {
        Self::over(port, Wire::Network)
    }

    /// A connector that dials processes of a simulation. It speaks to them without TLS.
    #[must_use]
    pub fn simulated(port: u16, dial: Dial) -> Self {
        let wire = Wire::Dialed {
            dial,
            tls: false,
            patience: CALL_TIMEOUT,
        };
        Self::over(port, wire)
    }

    /// A connector whose byte streams are carried by somebody else, such as the API server. A
    /// process with TLS is held to its name all the same.
    #[must_use]
    pub fn through(port: u16, dial: Dial) -> Self {
        let wire = Wire::Dialed {
            dial,
            tls: true,
            patience: CARRIED_TIMEOUT,
        };
        Self::over(port, wire)
    }

    fn over(port: u16, wire: Wire) -> Self {
        Self {
            port,
            wire,
            shelf: Arc::default(),
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Sends commands in one round trip and reads all their replies.
    pub(super) async fn call<T: FromRedisValue>(
        &self,
        target: &Target<'_>,
        command: &'static str,
        pipeline: &Pipeline,
    ) -> Result<T, Error> {
        let key = target.key();
        let failed = |source| call_error(command, target.address, source);
        if let Some(mut kept) = self.reuse(&key) {
            let reply = pipeline.query_async(&mut kept.connection).await;
            let Err(error) = reply else {
                return reply.map_err(failed);
            };
            self.forget_broken(&key, kept.number, &error);
            // The process may have closed it since the last use, as one with a `timeout` of its own
            // does: that says nothing of the process, and no command of ours does harm twice.
            if !error.is_connection_dropped() {
                return Err(failed(error));
            }
        }
        let mut kept = self.dial(target, key.clone()).await?;
        let reply = pipeline.query_async(&mut kept.connection).await;
        reply.map_err(|error| {
            self.forget_broken(&key, kept.number, &error);
            failed(error)
        })
    }

    async fn login(&self, target: &Target<'_>) -> Result<MultiplexedConnection, Error> {
        let address = SocketAddr::new(target.address, self.port);
        match &self.wire {
            Wire::Network => {
                let stream = tcp(address).await;
                let stream = stream.map_err(|error| connect_error(target.address, error))?;
                converse(stream, target, true, CALL_TIMEOUT).await
            }
            Wire::Dialed {
                dial,
                tls,
                patience,
            } => {
                let stream = dial(address).await;
                let stream = stream.map_err(|error| connect_error(target.address, error))?;
                converse(stream, target, *tls, *patience).await
            }
        }
    }

    fn reuse(&self, key: &Key) -> Option<Kept> {
        let mut shelf = lock(&self.shelf);
        let kept = shelf.kept.get_mut(key)?;
        kept.used = Instant::now();
        Some(kept.clone())
    }

    /// A refusal leaves a connection as it was; anything else leaves it in doubt.
    fn forget_broken(&self, key: &Key, number: u64, error: &RedisError) {
        if refusal(error).is_some() {
            return;
        }
        let mut shelf = lock(&self.shelf);
        // Somebody else may have dialed anew meanwhile.
        if shelf
            .kept
            .get(key)
            .is_some_and(|kept| kept.number == number)
        {
            shelf.kept.remove(key);
        }
    }

    async fn dial(&self, target: &Target<'_>, key: Key) -> Result<Kept, Error> {
        let late = |_| connect_error(target.address, io::Error::from(io::ErrorKind::TimedOut));
        let limit = match &self.wire {
            Wire::Network => CONNECT_TIMEOUT,
            Wire::Dialed { patience, .. } => *patience,
        };
        let connection = timeout(limit, self.login(target)).await.map_err(late)??;
        let mut shelf = lock(&self.shelf);
        shelf.dialed += 1;
        let kept = Kept {
            connection,
            used: Instant::now(),
            number: shelf.dialed,
        };
        shelf.kept.insert(key, kept.clone());
        if !shelf.swept {
            shelf.swept = true;
            tokio::spawn(sweep_until_empty(Arc::downgrade(&self.shelf)));
        }
        Ok(kept)
    }
}

/// Nothing that is done under the lock can leave the shelf half changed.
fn lock(shelf: &Mutex<Shelf>) -> MutexGuard<'_, Shelf> {
    shelf.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn sweep_until_empty(shelf: Weak<Mutex<Shelf>>) {
    loop {
        sleep(SWEEP_PERIOD).await;
        match shelf.upgrade() {
            Some(shelf) if lock(&shelf).sweep(Instant::now()) => {}
            Some(_) | None => return,
        }
    }
}

impl Shelf {
    /// Closes what is idle; whether any is left to come back for.
    fn sweep(&mut self, now: Instant) -> bool {
        self.kept
            .retain(|_, kept| now.duration_since(kept.used) < IDLE_MAX);
        self.swept = !self.kept.is_empty();
        self.swept
    }
}

async fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Logs in over a byte stream, through TLS if the process has it and `speaks_tls`.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    target: &Target<'_>,
    speaks_tls: bool,
    patience: Duration,
) -> Result<MultiplexedConnection, Error> {
    match target.tls.as_ref().filter(|_| speaks_tls) {
        Some(tls) => {
            let stream = through_tls(stream, tls).await;
            let stream = stream.map_err(|error| connect_error(target.address, error))?;
            speak(log_in(target, stream).await?, target, patience).await
        }
        None => speak(log_in(target, stream).await?, target, patience).await,
    }
}

/// Not left to the library, which would keep to itself what Valkey said, and would not hear what a
/// full server says before it is asked.
async fn log_in<S: AsyncRead + AsyncWrite + Unpin>(
    target: &Target<'_>,
    mut stream: S,
) -> Result<S, Error> {
    let mut auth = redis::cmd("AUTH");
    auth.arg(target.username).arg(target.password.expose());
    // Who hung up may have said why.
    let sent = async {
        stream.write_all(&auth.get_packed_command()).await?;
        stream.flush().await
    }
    .await;
    let mut reply = Vec::new();
    let mut reader = BufReader::new(&mut stream).take(LOGIN_REPLY_MAX);
    let read = reader.read_until(b'\n', &mut reply).await;
    if reply.is_empty() {
        sent.and(read)
            .map_err(|error| connect_error(target.address, error))?;
    }
    let reply = redis::parse_redis_value(&reply);
    let reply = reply.map_err(|error| connect_error(target.address, error))?;
    if let Value::ServerError(error) = reply {
        return Err(Error::Login {
            address: target.address,
            refusal: words(&error),
        });
    }
    Ok(stream)
}

async fn through_tls<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    tls: &Tls<'_>,
) -> io::Result<TlsStream<S>> {
    let name = ServerName::try_from(tls.dns_name.clone()).map_err(io::Error::other)?;
    let config = client_config(tls)?;
    TlsConnector::from(config).connect(name, stream).await
}

fn client_config(tls: &Tls<'_>) -> io::Result<Arc<ClientConfig>> {
    let [current, _former] = tls.authorities;
    let authorities = Authorities::read(&tls.authorities)
        .or_else(|| Authorities::read(&[current]))
        .ok_or_else(|| io::Error::other("the authorities cannot be read"))?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let config = config
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(authorities));
    Ok(Arc::new(config.with_no_client_auth()))
}

/// Speaks Valkey's protocol over a byte stream. All that the library would send on connecting is
/// forbidden to our user.
async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    target: &Target<'_>,
    patience: Duration,
) -> Result<MultiplexedConnection, Error> {
    let silent = RedisConnectionInfo::default().set_skip_set_lib_name();
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(patience));
    let spoken = MultiplexedConnection::new_with_config(&silent, stream, config).await;
    let (connection, driver) = spoken.map_err(|error| connect_error(target.address, error))?;
    tokio::spawn(driver);
    Ok(connection)
}

fn connect_error(address: IpAddr, source: impl Into<RedisError>) -> Error {
    Error::Connect {
        address,
        source: Box::new(source.into()),
    }
}

pub(super) fn call_error(command: &'static str, address: IpAddr, source: RedisError) -> Error {
    match refusal(&source) {
        Some(refusal) => Error::Refused {
            command,
            address,
            refusal,
        },
        None => Error::Call {
            command,
            address,
            source: Box::new(source),
        },
    }
}

/// What Valkey said, if the error is one that it sent; of several in one round trip the first.
fn refusal(error: &RedisError) -> Option<String> {
    let errors = error.clone().into_server_errors()?;
    let (_, first) = errors.first()?;
    Some(words(first))
}

fn words(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn what_nobody_uses_is_closed() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let connector = Connector::new(listener.local_addr().unwrap().port());
        let (closed, mut closings) = mpsc::unbounded_channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                stream.write_all(b"+OK\r\n").unwrap();
                // To the end: until the connector closes it.
                stream.read_to_end(&mut Vec::new()).ok();
                closed.send(()).unwrap();
            }
        });
        let password = Redacted::new(String::from("secret"));
        let target = Target::operator(Ipv4Addr::LOCALHOST.into(), &password);
        // On a busy machine a login may take too long.
        let mut failures = 0;
        while let Err(error) = connector.dial(&target, target.key()).await {
            failures += 1;
            assert!(failures < 30, "{error}");
        }
        let used = lock(&connector.shelf).kept[&target.key()].used;
        let sweep = |idle| lock(&connector.shelf).sweep(used + idle);
        assert!(sweep(IDLE_MAX / 2));
        assert!(connector.reuse(&target.key()).is_some());
        let used = lock(&connector.shelf).kept[&target.key()].used;
        assert!(!lock(&connector.shelf).sweep(used + IDLE_MAX));
        assert!(connector.reuse(&target.key()).is_none());
        for _ in 0..=failures {
            let closing = timeout(Duration::from_mins(1), closings.recv());
            closing.await.expect("it is closed").unwrap();
        }
    }

    #[tokio::test]
    async fn what_is_said_before_hanging_up_is_heard() {
        let dial: Dial = Arc::new(|_| {
            Box::pin(async {
                let (ours, mut theirs) = tokio::io::duplex(64);
                theirs.write_all(b"-ERR max number of clients\r\n").await?;
                Ok(ours)
            })
        });
        let connector = Connector::through(6379, dial);
        let password = Redacted::new(String::from("secret"));
        let target = Target::operator(Ipv4Addr::LOCALHOST.into(), &password);
        let error = connector.dial(&target, target.key()).await.err().unwrap();
        assert_eq!(
            error.to_string(),
            "127.0.0.1 refused the login: ERR max number of clients"
        );
    }

    #[test]
    fn a_target_never_shows_its_password() {
        let password = Redacted::new(String::from("secret"));
        let target = Target::operator(Ipv4Addr::LOCALHOST.into(), &password);
        assert!(!format!("{target:?} {:?}", target.key()).contains("secret"));
    }
}
