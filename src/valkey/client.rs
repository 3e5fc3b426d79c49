//! Connections to Valkey processes: one for each, kept while it is used, a deadline on every call.
//! Never sends a command that the operator's own user may not run, not even on connecting.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, FromRedisValue, IntoConnectionInfo as _,
    Pipeline, RedisConnectionInfo,
};

use crate::model::digest::sha256_hex;
use crate::model::redacted::Redacted;
use crate::valkey::parse;

/// A pod on a healthy network accepts in milliseconds; one that does not costs a tick this long.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Longer than Valkey needs for any command of ours, shorter than a tick may wait for the silent.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// A connection that nobody used for as long belongs to a pod that is gone.
const IDLE_MAX: Duration = Duration::from_mins(2);

/// Where a process listens, and as whom it is spoken to.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    address: IpAddr,
    username: &'static str,
    password: &'a Redacted<String>,
}

impl<'a> Target<'a> {
    /// Where it listens.
    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    /// A process, spoken to as the operator's own user.
    #[must_use]
    pub fn operator(address: IpAddr, password: &'a Redacted<String>) -> Self {
        Self {
            address,
            username: "_momento_operator",
            password,
        }
    }
}

/// What went wrong between us and a process.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection, or no login.
    #[error("failed to connect to {address}")]
    Connect {
        /// Where.
        address: IpAddr,
        /// Why not.
        source: Box<redis::RedisError>,
    },
    /// Valkey answered a command with an error.
    #[error("{address} refused {command}: {said}")]
    Refused {
        /// Who.
        address: IpAddr,
        /// What.
        command: &'static str,
        /// Its error code, and why.
        said: String,
    },
    /// A command was not answered, or not in time.
    #[error("{command} to {address} failed")]
    Call {
        /// Which.
        command: &'static str,
        /// Where.
        address: IpAddr,
        /// Why.
        source: Box<redis::RedisError>,
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
    /// Whether Valkey itself refused, with a text that begins like this after its error code.
    pub(super) fn refused_with(&self, text: &str) -> bool {
        let Self::Refused { said, .. } = self else {
            return false;
        };
        said.split_once(' ')
            .is_some_and(|(_code, said)| said.starts_with(text))
    }
}

/// What Valkey itself said, where it was Valkey that refused. An error of a pipeline has no detail of its own, and
/// prints the errors in it by their places.
fn refusal(error: &redis::RedisError) -> Option<String> {
    let errors = error.clone().into_server_errors()?;
    let said = errors.iter().map(|(_, error)| {
        let details = error.details().unwrap_or_default();
        format!("{} {details}", error.code())
    });
    Some(said.collect::<Vec<String>>().join("; "))
}

/// One process's connection is dropped on its first error, so that the next call dials anew.
struct Kept {
    connection: MultiplexedConnection,
    used: Instant,
}

/// Dials and keeps connections. Clones share them.
#[derive(Clone)]
pub struct Connector {
    port: u16,
    /// By address and the digest of the password: an address may pass to another cluster's pod.
    kept: Arc<Mutex<BTreeMap<(IpAddr, String), Kept>>>,
}

impl Connector {
    /// A connector to processes that listen on `port`.
    #[must_use]
    pub fn new(port: u16) -> Self {
        Self {
            port,
            kept: Arc::default(),
        }
    }

    /// The port that it dials.
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
        let key = (target.address, sha256_hex(target.password.expose()));
        let mut connection = match self.reuse(&key) {
            Some(connection) => connection,
            None => self.dial(target, key.clone()).await?,
        };
        let reply = pipeline.query_async(&mut connection).await;
        reply.map_err(|source: redis::RedisError| {
            let address = target.address;
            // A refusal leaves the connection as it was; anything else leaves it in doubt.
            if let Some(said) = refusal(&source) {
                return Error::Refused {
                    address,
                    command,
                    said,
                };
            }
            self.kept().remove(&key);
            Error::Call {
                command,
                address,
                source: Box::new(source),
            }
        })
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, BTreeMap<(IpAddr, String), Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reuse(&self, key: &(IpAddr, String)) -> Option<MultiplexedConnection> {
        let mut kept = self.kept();
        let kept = kept.get_mut(key)?;
        kept.used = Instant::now();
        Some(kept.connection.clone())
    }

    async fn dial(
        &self,
        target: &Target<'_>,
        key: (IpAddr, String),
    ) -> Result<MultiplexedConnection, Error> {
        let failed = |source| Error::Connect {
            address: target.address,
            source: Box::new(source),
        };
        let login = RedisConnectionInfo::default()
            .set_username(target.username)
            .set_password(target.password.expose())
            .set_skip_set_lib_name();
        let info = ConnectionAddr::Tcp(target.address.to_string(), self.port)
            .into_connection_info()
            .map_err(failed)?
            .set_redis_settings(login);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(CALL_TIMEOUT));
        let client = Client::open(info).map_err(failed)?;
        let connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(failed)?;
        let mut kept = self.kept();
        let now = Instant::now();
        kept.retain(|_, kept| now.duration_since(kept.used) < IDLE_MAX);
        kept.insert(
            key,
            Kept {
                connection: connection.clone(),
                used: now,
            },
        );
        Ok(connection)
    }
}
