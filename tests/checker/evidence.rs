//! What a feeder tells the checker: steps, each with the truth as it was the moment before.
//! Never a type of the operator or of a model: the simulator and a real cluster fill in the same.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::slots::Slots;

/// Milliseconds since the run began.
pub(crate) type Millis = u64;

/// A namespace and a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    /// Empty for what has none.
    pub(crate) namespace: String,
    /// The name.
    pub(crate) name: String,
}

impl Name {
    /// Both in a row.
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// When.
    pub(crate) at: Millis,
    /// Who did it.
    pub(crate) by: Actor,
    /// What it was.
    pub(crate) what: What,
    /// The truth just before it; none where nothing can have changed since the last one that was given.
    /// What a step did is seen in the truth of the next: end a run with a [`What::Look`].
    pub(crate) truth: Option<Arc<Snapshot>>,
}

/// Who does things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Actor {
    /// An operator process, numbered from 0: a restarted one has a new number.
    Operator(u32),
    /// Whoever breaks things on purpose.
    Saboteur,
    /// A person: edits of the spec and of the menu, and any hand on what the operator keeps.
    User,
    /// Kubernetes itself and what runs in pods.
    Machinery,
}

/// What can happen.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// The operator begins to look at a cluster. Where a feeder never says so, ticks are told apart by
    /// pauses.
    Tick(Name),
    /// The operator is done with a cluster for now.
    TickEnd(Name),
    /// A write to the Kubernetes API, whether it was taken or not.
    Write(Write),
    /// A command to a Valkey process, whether it was answered or not. Reads need not be told.
    Command(Command),
    /// A line that the operator logged.
    Log(String),
    /// Something is broken on purpose.
    Fault(Fault),
    /// All that was broken is whole again.
    Healed,
    /// From here on no fault and no edit follows: the goal must be reached in its bound.
    Stable(Goal),
    /// From here on there is nothing to do: nothing may be written (S22).
    Calm,
    /// Nothing happened: the truth alone.
    Look,
}

/// A request that would change an object.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// How.
    pub(crate) verb: Verb,
    /// Of which kind, as in `kind:`; events of every group are `Event`.
    pub(crate) kind: String,
    /// Which object; the name that was asked for where the object is not there.
    pub(crate) name: Name,
    /// `status`, or empty.
    pub(crate) subresource: String,
    /// The object as it was, if there was one.
    pub(crate) before: Option<Arc<Value>>,
    /// The object as it is now, if there is one. Of a refused write: what was sent.
    pub(crate) after: Option<Arc<Value>>,
    /// What came of it.
    pub(crate) outcome: Outcome,
}

/// How an object is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was done, and the sender was told so.
    Done,
    /// It was not done; the status code or Valkey's words.
    Refused(String),
    /// No answer reached the sender. Whether it was done all the same.
    Unanswered {
        /// It was.
        done: bool,
    },
}

impl Outcome {
    /// Whether the world changed by it.
    pub(crate) fn took_effect(&self) -> bool {
        matches!(self, Self::Done | Self::Unanswered { done: true })
    }
}

/// A command that reached a process, or was sent towards it.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    /// The address it was sent to.
    pub(crate) ip: String,
    /// The uid of the pod that had the address, if any.
    pub(crate) pod: Option<String>,
    /// The node id of the process there, if any.
    pub(crate) id: Option<String>,
    /// The words, `CLUSTER` first; without passwords.
    pub(crate) words: Vec<String>,
    /// What came of it.
    pub(crate) outcome: Outcome,
}

/// Something broken on purpose.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// Its id in the list of faults, such as `F02`.
    pub(crate) id: String,
    /// What it hits.
    pub(crate) hits: Hits,
}

/// What a fault can cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hits {
    /// The operator or its way to the API server or to the pods: no data, no role.
    Operator,
    /// These pods, by uid.
    Pods(Vec<String>),
    /// Anything.
    Everything,
}

/// What must come about once faults and edits have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The declared state, kept from then on (L1, with L2 and L3 as its parts).
    Declared,
    /// The same, after a wrong spec was put right (L6).
    PutRight,
    /// The same, under faults that go on: reached once (L7).
    UnderFaults,
}

/// The truth at one moment, which the operator cannot see.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Every object of interest: clusters, nodes, pods, what is kept, the menu.
    pub(crate) objects: Vec<Arc<Object>>,
    /// Every Valkey process that ever ran and is not known to have ended long ago.
    pub(crate) processes: Vec<Arc<Process>>,
    /// What cannot reach what.
    pub(crate) cuts: Vec<Cut>,
    /// What the clients know; none where nobody asked now.
    pub(crate) ledger: Option<Ledger>,
    /// It was pieced together from two looks for one step: that is judged by it, and nothing is learnt from it.
    pub(crate) pieced: bool,
}

/// A Kubernetes object.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// Its kind.
    pub(crate) kind: String,
    /// Its name.
    pub(crate) name: Name,
    /// The whole of it.
    pub(crate) body: Arc<Value>,
}

/// A Valkey process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    /// The cluster it was started for.
    pub(crate) home: Name,
    /// The uid of its pod, also when that object is gone.
    pub(crate) pod: String,
    /// Its address.
    pub(crate) ip: String,
    /// Whether it runs.
    pub(crate) life: Life,
    /// Its node id.
    pub(crate) id: String,
    /// Its part in replication.
    pub(crate) role: Role,
    /// The slots that it would take a write for, now.
    pub(crate) accepts: Slots,
    /// `cluster_state:ok`.
    pub(crate) state_ok: bool,
    /// Its table, its own row included.
    pub(crate) table: Vec<Row>,
    /// Its replication offset.
    pub(crate) offset: u64,
    /// `cluster_current_epoch`.
    pub(crate) epoch: u64,
    /// The slots of which it holds a key.
    pub(crate) keyed: Slots,
    /// Slot migrations that it is the source of, unfinished.
    pub(crate) exports: Vec<Export>,
    /// Directives in force, by lower-case name; none where nobody asked.
    pub(crate) settings: Option<Arc<BTreeMap<String, String>>>,
}

/// Whether a process runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Life {
    /// It does.
    #[default]
    Alive,
    /// It hangs, and may wake.
    Hung,
    /// It does not any more.
    Ended,
}

/// A process's part in replication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// A primary.
    #[default]
    Primary,
    /// A replica.
    Replica {
        /// The id of its primary.
        of: String,
        /// `master_link_status:up`.
        linked: bool,
        /// It finished its first sync with a primary of this shard.
        synced: bool,
    },
}

/// A row of a process's table.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "Valkey's own flags, each independent"
)]
pub(crate) struct Row {
    /// The member's id.
    pub(crate) id: String,
    /// Its address, empty where there is none.
    pub(crate) ip: String,
    /// `fail?`
    pub(crate) suspected: bool,
    /// `fail`
    pub(crate) failed: bool,
    /// `handshake`
    pub(crate) handshake: bool,
    /// `connected`
    pub(crate) connected: bool,
    /// The id of its primary.
    pub(crate) primary: Option<String>,
    /// Its configuration epoch.
    pub(crate) epoch: u64,
    /// What it owns in this view.
    pub(crate) slots: Slots,
}

/// An unfinished slot migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    /// The id that the slots go to.
    pub(crate) target: String,
    /// Which.
    pub(crate) slots: Slots,
}

/// One direction of one link, cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// An address, or `operator`.
    pub(crate) from: String,
    /// An address.
    pub(crate) to: String,
    /// The port that clients use is cut.
    pub(crate) client: bool,
    /// The cluster bus is cut.
    pub(crate) bus: bool,
}

/// What clients know of their acknowledged writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// How many writes were acknowledged.
    pub(crate) acknowledged: u64,
    /// Those that are nowhere any more.
    pub(crate) lost: Vec<Lost>,
}

/// An acknowledged write that is nowhere any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// The key.
    pub(crate) key: String,
    /// Its slot.
    pub(crate) slot: u16,
    /// It was acknowledged by every replica (`WAIT`).
    pub(crate) waited: bool,
}
