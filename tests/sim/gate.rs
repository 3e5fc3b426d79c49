//! The way out of one operator process: it counts what it writes, and ends it at a chosen write.
//! Never lets a dead process do anything more, or hear of anything.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

/// Where in a write a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Position {
    /// The write never happens.
    Before,
    /// It happens, and nobody hears the answer.
    Between,
    /// The answer is heard, and nothing comes of it.
    After,
}

impl Position {
    /// All three.
    pub(crate) const ALL: [Self; 3] = [Self::Before, Self::Between, Self::After];
}

/// One operator process, as the world outside sees it. Clones are the same process.
#[derive(Clone)]
pub(crate) struct Gate {
    number: u32,
    state: Arc<Mutex<State>>,
    dead: Arc<watch::Sender<bool>>,
}

#[derive(Default)]
struct State {
    writes: u32,
    crash: Option<(u32, Position)>,
}

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    /// It takes effect.
    pub(crate) done: bool,
    /// Its answer is heard.
    pub(crate) heard: bool,
}

impl Gate {
    /// A process with this number, that ends at that write, the first being 0.
    pub(crate) fn new(number: u32, crash: Option<(u32, Position)>) -> Self {
        let state = State {
            crash,
            ..State::default()
        };
        Self {
            number,
            state: Arc::new(Mutex::new(state)),
            dead: Arc::new(watch::Sender::new(false)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with a gate in hand")
    }

    /// Its number, from 0.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Whether it has ended.
    pub(crate) fn is_dead(&self) -> bool {
        *self.dead.borrow()
    }

    /// Ends it.
    pub(crate) fn kill(&self) {
        self.dead.send_replace(true);
    }

    /// Ends when it has ended.
    pub(crate) async fn died(&self) {
        let mut dead = self.dead.subscribe();
        // The sender lives as long as this.
        dead.wait_for(|dead| *dead).await.expect("it is there");
    }

    /// Lets it end at a write to come, counted from its start.
    pub(crate) fn crash_at(&self, write: u32, position: Position) {
        self.state().crash = Some((write, position));
    }

    /// Lets it live.
    pub(crate) fn spare(&self) {
        self.state().crash = None;
    }

    /// How many writes have come out of it.
    pub(crate) fn writes(&self) -> u32 {
        self.state().writes
    }

    /// A write comes to the gate.
    pub(crate) fn write(&self) -> Fate {
        let mut state = self.state();
        let number = state.writes;
        state.writes += 1;
        let position = match state.crash {
            Some((at, position)) if at == number => position,
            Some(_) | None => {
                return Fate {
                    done: true,
                    heard: true,
                };
            }
        };
        self.kill();
        Fate {
            done: position != Position::Before,
            heard: position == Position::After,
        }
    }
}
