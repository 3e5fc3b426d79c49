//! A `kube::Client` over the model: requests in, in virtual time, and the switch that ends an operator.
//! Never in the order of arrival: what comes in one millisecond is served in the next, sorted by content.
//!
//! ```text
//! let gate = Gate::new(world.clone());            // inside the runtime, its clock paused
//! let client = gate.client(Caller::Operator(1), &switch);
//! tokio::spawn(gate.clone().run());               // or call step() and next_due() from a driver
//! ```

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, Request, Response, header};
use http_body::Frame;
use kube::Client;
use kube::client::Body;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use tower::Layer as _;
use tower::timeout::TimeoutLayer;

use super::api::Answer;
use super::faults::Caller;
use super::target::{Call, Method};
use super::watch::{WatchId, WatchItem};
use super::{Kube, Millis};

/// What stands behind the clients: the model, and all that moves with it.
pub(crate) trait World: Send + 'static {
    fn kube(&mut self) -> &mut Kube;

    /// Lets everything happen that is due.
    fn advance(&mut self, now: Millis);

    /// When something is to happen by itself next.
    fn next_event(&self) -> Option<Millis>;

    /// Serves one request.
    fn request(&mut self, now: Millis, call: &Call) -> Answer {
        self.kube().request(now, call)
    }
}

/// When, beside a write, an operator ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The write never happens.
    BeforeEffect,
    /// It happens, and nobody hears of it.
    AfterEffect,
    /// It happens, its answer is heard, and nothing after that.
    AfterAnswer,
}

impl Moment {
    /// All three.
    pub(crate) const ALL: [Self; 3] = [Self::BeforeEffect, Self::AfterEffect, Self::AfterAnswer];
}

/// What becomes of a write that was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is done and answered.
    Go,
    /// It is not done, nor anything after it: the switch is off.
    Vanish,
    /// It is to be done, without an answer: the switch is off.
    Mute,
    /// It is to be done and answered, and whoever delivers the answer turns the switch off.
    Last,
}

/// The life of one operator: all that it asks, of whomever, ends with it. Its clones are one switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Switch(Arc<SwitchState>);

#[derive(Debug, Default)]
struct SwitchState {
    life: Mutex<Life>,
    ended: Notify,
}

#[derive(Debug, Default)]
struct Life {
    off: bool,
    /// When each was about to be done.
    writes: Vec<Millis>,
    crash: Option<(usize, Moment)>,
}

impl Switch {
    /// The operator ends at this write, counted from 1.
    pub(crate) fn crash_at(&self, write: usize, moment: Moment) {
        locked(&self.0.life).crash = Some((write, moment));
    }

    /// The operator no longer ends by itself.
    pub(crate) fn spare(&self) {
        locked(&self.0.life).crash = None;
    }

    /// When it wrote so far: to the API server and to processes.
    pub(crate) fn writes(&self) -> Vec<Millis> {
        locked(&self.0.life).writes.clone()
    }

    pub(crate) fn is_on(&self) -> bool {
        !locked(&self.0.life).off
    }

    /// The operator ends now.
    pub(crate) fn turn_off(&self) {
        locked(&self.0.life).off = true;
        self.0.ended.notify_waiters();
    }

    /// Counts a write that is about to be done. Every write asks, and does what it is told.
    pub(crate) fn count_write(&self, now: Millis) -> Fate {
        let fate = {
            let mut life = locked(&self.0.life);
            if life.off {
                return Fate::Vanish;
            }
            life.writes.push(now);
            match life.crash {
                Some((write, moment)) if write == life.writes.len() => match moment {
                    Moment::BeforeEffect => Fate::Vanish,
                    Moment::AfterEffect => Fate::Mute,
                    Moment::AfterAnswer => Fate::Last,
                },
                Some(_) | None => Fate::Go,
            }
        };
        if matches!(fate, Fate::Vanish | Fate::Mute) {
            self.turn_off();
        }
        fate
    }

    /// Returns when the operator has ended.
    pub(crate) async fn ended(&self) {
        loop {
            let ended = self.0.ended.notified();
            if !self.is_on() {
                return;
            }
            ended.await;
        }
    }
}

/// The door between clients and model.
pub(crate) struct Gate<W> {
    world: Arc<Mutex<W>>,
    desk: Arc<Mutex<Desk>>,
    wake: Arc<Notify>,
    origin: Instant,
}

impl<W> Clone for Gate<W> {
    fn clone(&self) -> Self {
        Self {
            world: self.world.clone(),
            desk: self.desk.clone(),
            wake: self.wake.clone(),
            origin: self.origin,
        }
    }
}

#[derive(Default)]
struct Desk {
    queued: Vec<Queued>,
    /// By time, and by the order of serving within it.
    answers: BTreeMap<(Millis, u64), Delivery>,
    streams: BTreeMap<WatchId, Stream>,
    served: u64,
}

struct Queued {
    since: Millis,
    /// Of a write that was counted before and put off.
    fate: Option<Fate>,
    call: Call,
    switch: Switch,
    reply: oneshot::Sender<Reply>,
}

struct Delivery {
    content: Content,
    switch: Switch,
    /// The operator ends with this answer.
    last: bool,
    reply: oneshot::Sender<Reply>,
}

enum Content {
    Full {
        status: u16,
        retry_after: Option<u64>,
        body: Vec<u8>,
    },
    Stream(WatchId),
    Broken,
}

struct Stream {
    lines: UnboundedSender<Result<Vec<u8>, io::Error>>,
    switch: Switch,
}

type Reply = Result<Response<ReplyBody>, io::Error>;

impl<W: World> Gate<W> {
    /// A door to this world; its time begins now.
    pub(crate) fn new(world: Arc<Mutex<W>>) -> Self {
        Self {
            world,
            desk: Arc::default(),
            wake: Arc::default(),
            origin: Instant::now(),
        }
    }

    /// The virtual time.
    pub(crate) fn now(&self) -> Millis {
        let since = self.origin.elapsed().as_millis();
        Millis::try_from(since).unwrap_or(Millis::MAX)
    }

    /// A client that works as long as its switch is on.
    pub(crate) fn client(&self, caller: Caller, switch: &Switch) -> Client {
        self.client_within(caller, switch, Duration::MAX)
    }

    /// The same with a deadline on every request.
    pub(crate) fn client_within(
        &self,
        caller: Caller,
        switch: &Switch,
        deadline: Duration,
    ) -> Client {
        let (gate, switch) = (self.clone(), switch.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (gate, switch) = (gate.clone(), switch.clone());
            async move {
                let call = read(caller, request).await?;
                gate.ask_until_told(&call, &switch).await
            }
        });
        Client::new(TimeoutLayer::new(deadline).layer(service), "default")
    }

    /// Asks as the default client of kube does: 429, 503 and 504 are retried.
    async fn ask_until_told(&self, call: &Call, switch: &Switch) -> Reply {
        let mut attempt = 0;
        loop {
            let response = self.ask(call.clone(), switch).await?;
            let Some(pause) = retry_pause(&response, call, attempt) else {
                return Ok(response);
            };
            attempt += 1;
            sleep(pause).await;
        }
    }

    async fn ask(&self, call: Call, switch: &Switch) -> Reply {
        let (reply, answer) = oneshot::channel();
        if switch.is_on() {
            locked(&self.desk).queued.push(Queued {
                since: self.now(),
                fate: None,
                call,
                switch: switch.clone(),
                reply,
            });
            self.wake.notify_one();
            if let Ok(answer) = answer.await {
                return answer;
            }
        }
        // Nobody answers any more.
        let never: Infallible = std::future::pending().await;
        match never {}
    }

    /// Something was done to the world by another hand: the driver looks again.
    pub(crate) fn nudge(&self) {
        self.wake.notify_one();
    }

    /// Drives the world for ever: as long as something asks, or is due by itself.
    pub(crate) async fn run(self) {
        loop {
            let now = self.now();
            self.step(now);
            let due = self.next_due(now);
            let due = due.map_or_else(
                || Instant::now() + Duration::from_hours(24),
                |due| self.origin + Duration::from_millis(due),
            );
            tokio::select! {
                biased;
                () = self.wake.notified() => {}
                () = sleep_until(due) => {}
            }
        }
    }

    /// When `step` has something to do next, after `now`.
    pub(crate) fn next_due(&self, now: Millis) -> Option<Millis> {
        let mut world = locked(&self.world);
        let desk = locked(&self.desk);
        let mut due = world.next_event();
        let mut sooner = |other: Option<Millis>| {
            due = match (due, other) {
                (Some(due), Some(other)) => Some(due.min(other)),
                (due, other) => due.or(other),
            };
        };
        sooner(desk.queued.iter().map(|queued| queued.since + 1).min());
        sooner(desk.answers.keys().next().map(|(at, _)| *at));
        let watches = world.kube().api.watches();
        sooner(
            desk.streams
                .keys()
                .filter_map(|watch| watches.next_due(*watch))
                .min(),
        );
        due.map(|due| due.max(now + 1))
    }

    /// Moves the world to `now`, serves what was asked before, delivers what is due.
    pub(crate) fn step(&self, now: Millis) {
        let mut world = locked(&self.world);
        world.advance(now);
        let mut desk = locked(&self.desk);
        desk.serve(now, &mut *world);
        desk.deliver(now);
        desk.pump(now, world.kube());
    }
}

impl Desk {
    fn serve(&mut self, now: Millis, world: &mut impl World) {
        let (mut due, later): (Vec<Queued>, Vec<Queued>) = std::mem::take(&mut self.queued)
            .into_iter()
            .partition(|queued| queued.since < now);
        self.queued = later;
        due.sort_by(|one, other| one.call.cmp(&other.call));
        for queued in due {
            self.serve_one(now, world, queued);
        }
    }

    fn serve_one(&mut self, now: Millis, world: &mut impl World, queued: Queued) {
        let Queued {
            call,
            switch,
            reply,
            fate,
            ..
        } = queued;
        let fate = match (switch.is_on(), call.writes(), fate) {
            // What was told to be done without an answer is done after its operator's end.
            (_, _, Some(Fate::Mute)) => Fate::Mute,
            (false, _, _) => Fate::Vanish,
            (true, _, Some(fate)) => fate,
            (true, true, None) => switch.count_write(now),
            (true, false, None) => Fate::Go,
        };
        if fate == Fate::Vanish {
            return;
        }
        let answer = world.request(now, &call);
        if let Answer::Later { at } = answer {
            self.queued.push(Queued {
                since: at.saturating_sub(1),
                fate: Some(fate),
                call,
                switch,
                reply,
            });
            return;
        }
        if fate == Fate::Mute {
            return;
        }
        let (after, content) = match answer {
            Answer::Full {
                after,
                status,
                retry_after,
                body,
            } => (
                after,
                Content::Full {
                    status,
                    retry_after,
                    body,
                },
            ),
            Answer::Stream { after, watch } => (after, Content::Stream(watch)),
            Answer::Nothing {
                broken_after: Some(after),
            } => (after, Content::Broken),
            Answer::Nothing { broken_after: None } | Answer::Later { .. } => return,
        };
        self.served += 1;
        let delivery = Delivery {
            content,
            switch,
            last: fate == Fate::Last,
            reply,
        };
        self.answers.insert((now + after, self.served), delivery);
    }

    fn deliver(&mut self, now: Millis) {
        while let Some(entry) = self.answers.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let Delivery {
                content,
                switch,
                last,
                reply,
            } = entry.remove();
            if !switch.is_on() {
                continue;
            }
            let answer = match content {
                Content::Full {
                    status,
                    retry_after,
                    body,
                } => Ok(response(status, retry_after, ReplyBody::Once(Some(body)))),
                Content::Stream(watch) => {
                    let (lines, received) = unbounded_channel();
                    let body = ReplyBody::Lines(received, switch.clone());
                    let switch = switch.clone();
                    self.streams.insert(watch, Stream { lines, switch });
                    Ok(response(200, None, body))
                }
                Content::Broken => Err(io::Error::from(io::ErrorKind::ConnectionReset)),
            };
            // Whoever asked may have stopped waiting.
            reply.send(answer).ok();
            if last {
                switch.turn_off();
            }
        }
    }

    /// Sends what is due to each stream, in the order in which the watches were opened.
    fn pump(&mut self, now: Millis, kube: &mut Kube) {
        self.streams.retain(|watch, stream| {
            if !stream.switch.is_on() || stream.lines.is_closed() {
                kube.api.close_watch(*watch);
                return false;
            }
            while let Some(item) = kube.api.poll_watch(now, *watch) {
                let line = match item {
                    WatchItem::Line(line) => Ok(line),
                    WatchItem::End => return false,
                    WatchItem::Broken => Err(io::Error::from(io::ErrorKind::ConnectionReset)),
                };
                let broken = line.is_err();
                // A stream whose reader is gone is closed at the next round.
                stream.lines.send(line).ok();
                if broken {
                    return false;
                }
            }
            true
        });
    }
}

/// The body of an answer.
pub(crate) enum ReplyBody {
    Once(Option<Vec<u8>>),
    /// A watch: silent for ever once its reader's switch is off.
    Lines(UnboundedReceiver<Result<Vec<u8>, io::Error>>, Switch),
}

impl http_body::Body for ReplyBody {
    type Data = <Body as http_body::Body>::Data;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, io::Error>>> {
        let frame = |bytes: Vec<u8>| Frame::data(bytes.into());
        match &mut *self {
            Self::Once(body) => Poll::Ready(body.take().map(|body| Ok(frame(body)))),
            Self::Lines(_, switch) if !switch.is_on() => Poll::Pending,
            Self::Lines(lines, switch) => match lines.poll_recv(task) {
                // The end of a stream that was closed because its reader is no more.
                Poll::Ready(None) if !switch.is_on() => Poll::Pending,
                Poll::Ready(line) => Poll::Ready(line.map(|line| line.map(frame))),
                Poll::Pending => Poll::Pending,
            },
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read(caller: Caller, request: Request<Body>) -> Result<Call, io::Error> {
    let (head, body) = request.into_parts();
    let method = match head.method.as_str() {
        "GET" => Method::Get,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "PATCH" => Method::Patch,
        "DELETE" => Method::Delete,
        other => return Err(io::Error::other(format!("method {other} is not known"))),
    };
    let text = |headers: &HeaderMap, name| {
        let value = headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let target = head.uri.path_and_query().map(ToString::to_string);
    let body = body.collect_bytes().await.map_err(io::Error::other)?;
    Ok(Call {
        caller,
        method,
        target: target.unwrap_or_default(),
        body: body.to_vec(),
        accept: text(&head.headers, header::ACCEPT),
        content_type: text(&head.headers, header::CONTENT_TYPE),
    })
}

fn response(status: u16, retry_after: Option<u64>, body: ReplyBody) -> Response<ReplyBody> {
    let mut builder = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(seconds) = retry_after {
        builder = builder.header(header::RETRY_AFTER, seconds);
    }
    builder
        .body(body)
        .expect("a status and two headers are valid")
}

/// The limits of `kube::client::retry::RetryPolicy::server_retry`, which every default client has.
const RETRY_MIN: Duration = Duration::from_millis(5);
const RETRY_MAX: Duration = Duration::from_secs(1000);
const RETRIES: u32 = 15;

/// How long the default client waits before it asks again; nothing where it does not. Its jitter,
/// up to twice the pause, is drawn from what is asked, so that it is the same in every run.
fn retry_pause<B>(response: &Response<B>, call: &Call, attempt: u32) -> Option<Duration> {
    let retried = matches!(response.status().as_u16(), 429 | 503 | 504);
    if !retried || attempt >= RETRIES {
        return None;
    }
    let base = RETRY_MIN.saturating_mul(1 << attempt).min(RETRY_MAX);
    let jitter = base.mul_f64(2.0 * fraction(call, attempt));
    let pause = base + jitter.min(RETRY_MAX.saturating_sub(base));
    let asked = response.headers().get(header::RETRY_AFTER);
    let asked = asked.and_then(|value| value.to_str().ok()?.parse().ok());
    let asked = asked.map(Duration::from_secs);
    Some(asked.filter(|asked| pause <= *asked).unwrap_or(pause))
}

/// FNV-1a over a request, as a number from 0 to 1.
fn fraction(call: &Call, attempt: u32) -> f64 {
    let bytes = call.target.bytes().chain(call.body.iter().copied());
    let hash = bytes
        .chain(attempt.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    let upper = u32::try_from(hash >> 32).unwrap_or(u32::MAX);
    f64::from(upper) / f64::from(u32::MAX)
}
