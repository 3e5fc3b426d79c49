//! The byte streams between an operator and the Valkey processes: what is dialed, asked and answered.
//! Never serves in the order of arrival: what comes within a millisecond is sorted by what it is, since
//! the order in which the runtime polls concurrent requests differs from process to process.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use operator::valkey::client::Dial;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Notify, oneshot};

use crate::kube::client::{Gate, Switch};
use crate::valkey::resp::Decoder;
use crate::valkey::{self, ConnectionId};
use crate::world::{Shared, World, take};

/// How long everything is under way, and how much of it is served at once.
const TRAVEL: Duration = Duration::from_millis(1);
/// Bytes in a pipe before the writer has to wait; more than any account.
const PIPE_BYTES: usize = 1 << 20;

/// Carries what operators say to processes. Clones are the same carrier.
#[derive(Clone)]
pub(crate) struct Pipes {
    world: Shared,
    /// Told when processes may have more to say.
    clockwork: Gate<World>,
    inbox: Arc<Inbox>,
}

#[derive(Default)]
struct Inbox {
    letters: Mutex<Vec<Letter>>,
    came: Notify,
}

struct Letter {
    from: Sender,
    to: IpAddr,
    /// The connection and how many letters went before on it; zeros for a dial.
    place: (u64, u64),
    content: Content,
}

/// An operator, by its number, and its life.
#[derive(Clone)]
struct Sender(u32, Switch);

enum Content {
    Dial(u16, oneshot::Sender<io::Result<DuplexStream>>),
    Command(ConnectionId, Vec<Vec<u8>>),
    HangUp(ConnectionId),
}

impl Pipes {
    /// A carrier for a world, which runs for as long as its runtime.
    pub(crate) fn start(world: &Shared, clockwork: &Gate<World>) -> Self {
        let pipes = Self {
            world: world.clone(),
            clockwork: clockwork.clone(),
            inbox: Arc::default(),
        };
        tokio::spawn(pipes.clone().serve());
        pipes
    }

    /// What the operator's connector dials with.
    pub(crate) fn dial(&self, operator: u32, switch: &Switch) -> Dial {
        let (pipes, from) = (self.clone(), Sender(operator, switch.clone()));
        Arc::new(move |address: SocketAddr| {
            let (answer, answered) = oneshot::channel();
            pipes.post(Letter {
                from: from.clone(),
                to: address.ip(),
                place: (0, 0),
                content: Content::Dial(address.port(), answer),
            });
            let dialed = async move {
                match answered.await {
                    Ok(dialed) => dialed,
                    // Nobody answers: neither does this.
                    Err(_) => std::future::pending().await,
                }
            };
            dialed.boxed()
        })
    }

    fn post(&self, letter: Letter) {
        let mut letters = self.inbox.letters.lock().expect("no panic with it in hand");
        letters.push(letter);
        self.inbox.came.notify_one();
    }

    async fn serve(self) {
        loop {
            self.inbox.came.notified().await;
            tokio::time::sleep(TRAVEL).await;
            let mut letters = {
                let mut inbox = self.inbox.letters.lock().expect("no panic with it in hand");
                std::mem::take(&mut *inbox)
            };
            letters.sort_by_key(|letter| (letter.from.0, letter.to, letter.place));
            for letter in letters {
                self.deliver(letter);
            }
            self.clockwork.nudge();
        }
    }

    fn deliver(&self, letter: Letter) {
        let Letter {
            from, to, content, ..
        } = letter;
        if !from.1.is_on() {
            return;
        }
        let mut world = take(&self.world);
        match content {
            Content::Dial(port, answer) => {
                let dialed = match world.dial(to, port) {
                    valkey::Dial::Open(connection) => {
                        let (near, far) = tokio::io::duplex(PIPE_BYTES);
                        let (out, replies) = unbounded_channel();
                        world.listen(connection, from.1.clone(), out);
                        let line = Line {
                            pipes: self.clone(),
                            from,
                            to,
                            connection,
                        };
                        tokio::spawn(line.carry(far, replies));
                        Ok(near)
                    }
                    valkey::Dial::Refused => Err(io::ErrorKind::ConnectionRefused.into()),
                    valkey::Dial::Silent => return,
                };
                // Who no longer waits for it hangs up by dropping it.
                answer.send(dialed).ok();
            }
            Content::Command(connection, words) => {
                world.say((from.0, &from.1), to, connection, &words);
            }
            Content::HangUp(connection) => world.hang_up(connection),
        }
    }
}

/// One connection.
struct Line {
    pipes: Pipes,
    from: Sender,
    to: IpAddr,
    connection: ConnectionId,
}

impl Line {
    async fn carry(self, mut far: DuplexStream, mut replies: UnboundedReceiver<Vec<u8>>) {
        let mut decoder = Decoder::default();
        let mut bytes = vec![0; 4096];
        let mut sent = 0;
        loop {
            tokio::select! {
                biased;
                reply = replies.recv() => {
                    // The process closed it, or the operator did meanwhile.
                    let Some(reply) = reply else { return };
                    if far.write_all(&reply).await.is_err() {
                        break;
                    }
                }
                read = far.read(&mut bytes) => {
                    let length = read.unwrap_or(0);
                    if length == 0 {
                        break;
                    }
                    decoder.push(&bytes[..length]);
                    while let Some(words) = decoder.command().expect("the client library speaks RESP") {
                        self.post(sent, Content::Command(self.connection, words));
                        sent += 1;
                    }
                }
            }
        }
        self.post(sent, Content::HangUp(self.connection));
    }

    fn post(&self, sent: u64, content: Content) {
        self.pipes.post(Letter {
            from: self.from.clone(),
            to: self.to,
            place: (self.connection.0, sent),
            content,
        });
    }
}
