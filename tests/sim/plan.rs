//! A run before it is run: what a seed stands for, in words that can be printed and cut down.
//! Never looks at a world: what an act hits is picked when its time comes, by the number it carries.

use std::fmt;
use std::str::FromStr;

use crate::chains::Leaf;
use crate::kube::client::Moment;
use crate::kube::rng::Rng;

/// Milliseconds since the run began.
pub(crate) type Millis = u64;

/// A whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// What everything within the models is drawn from.
    pub(crate) seed: u64,
    /// Machines to run pods on, spread over three zones.
    pub(crate) hosts: u32,
    /// What the cluster is to be.
    pub(crate) shape: Shape,
    /// Another cluster shares the machines and a few addresses, of which the freed ones come back at once;
    /// see `addresses_come_back`.
    pub(crate) neighbour: bool,
    /// What happens, in the order of time.
    pub(crate) acts: Vec<(Millis, Act)>,
    /// When every fault ends and the last wish is made.
    pub(crate) healed: Millis,
}

/// What lasts long outlasts every wait of a minute.
const LONG: Millis = 100_000;
/// How far a clock may jump, in seconds.
const HOUR: i64 = 3_600;
/// By now most clusters that nobody disturbs are formed.
const FORMED: Millis = 15_000;

/// Shards, and replicas of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) shards: u32,
    pub(crate) replicas: u32,
}

impl Shape {
    /// How many nodes that is.
    pub(crate) fn nodes(self) -> u32 {
        self.shards * (1 + self.replicas)
    }

    fn is_large(self) -> bool {
        self.shards > 3 || self.nodes() > 6
    }

    fn halved(self) -> Self {
        let shards = self.shards / 2;
        Self { shards, ..self }
    }
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// A person does it.
    Edit(Edit),
    /// It is broken on purpose.
    Fault(Fault),
}

/// What people do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// The cluster is applied.
    Apply,
    /// The cluster is deleted.
    Delete,
    /// A part of the menu is taken away; what is made of it stays.
    Withdraw(Part),
    /// It is there again.
    Offer(Part),
    /// The cluster gets another binding, by number, or with 0 none.
    Bind(u8),
    /// A pod annotation with this value.
    Annotate(u8),
    /// The pause annotation is set.
    Pause,
    /// And taken off.
    Resume,
    /// The cluster asks for another shape.
    Reshape(Shape),
    /// The image becomes one that nobody can pull.
    Misspell,
    /// And the right one again.
    Respell,
    /// A client writes more than usual: values of some KiB, so many.
    Fill { values: u8 },
    /// A property is set to one of its values.
    Set { leaf: u8, value: u8 },
    /// And put back.
    PutBack { leaf: u8 },
    /// Somebody deletes what the operator keeps (F19).
    Take(Kept),
    /// Somebody puts an object of his own in its place; what was there comes back in the end.
    Squat(Kept),
    /// The namespace is deleted (F30).
    DeleteNamespace,
    /// The cluster is to speak TLS: said before it is applied.
    Secure,
    /// Its TLS Secret is there and validates.
    Certify,
    /// The Secret is gone (F18).
    Uncertify,
    /// The Secret is there and is no good (F18).
    Spoil(Spoilt),
}

/// What is wrong with a TLS Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoilt {
    /// Nothing is in it.
    Empty,
    /// It was written by half.
    Keyless,
    /// It does not hold a certificate.
    Scrawl,
    /// It validates, and nobody would trust whom.
    Distrusted,
}

/// Parts of the menu, and the reason why a cluster without one waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Image,
    Config,
    BaseConfig,
    Role,
}

/// What the operator keeps or makes; of nodes the one by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Service,
    Auth,
    AclConfigMap,
    NodeConfigMap(u8),
    Node(u8),
    Pod(u8),
}

/// What is broken; `pick` chooses among what is there, `lasts` is in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// F08: the operator is killed, and started again so much later.
    Kill { pause: Millis },
    /// F08: the same at the write so many from now.
    KillAtWrite { writes: usize, moment: Moment },
    /// F09: a second operator runs beside the first.
    Second { lasts: Millis },
    /// F10: the API server answers one of so many requests with an error.
    Refuse {
        how: Refusal,
        one_in: u64,
        lasts: Millis,
    },
    /// F11: the events of a kind come late.
    Lag {
        kind: Watched,
        by: Millis,
        lasts: Millis,
    },
    /// F11: every watch is cut, and the history is gone if so said.
    CutWatches { gone: bool },
    /// F11: an event of a kind is lost, and nobody says so.
    Lose { kind: Watched },
    /// F11: lists for the stores are older by so many writes.
    StaleLists { writes: u64, lasts: Millis },
    /// F12: the API server answers nothing, until it is over or never.
    Silence { lasts: Millis, lost: bool },
    /// F01: a pod is deleted, with or without its grace.
    DeletePod { pick: u8, force: bool },
    /// F02: a process is killed, or ends in order.
    KillProcess { pick: u8, orderly: bool },
    /// F03: a process hangs.
    Hang { pick: u8, lasts: Millis },
    /// F04: a machine is lost, and comes back or not.
    LoseHost { pick: u8, lasts: Millis },
    /// F05, F06: a pod is cut off from the others, both ways or one, on the bus alone or on all ports.
    Partition {
        pick: u8,
        one_way: bool,
        bus_only: bool,
        lasts: Millis,
    },
    /// F07: the operator reaches no pod.
    Blind { lasts: Millis },
    /// F07: what processes tell the operator makes no sense.
    Garble { how: Garbling, lasts: Millis },
    /// F13: a wall clock jumps by so many seconds, and back: that of a process, or without one the operator's.
    ShiftClock {
        pick: Option<u8>,
        seconds: i64,
        lasts: Millis,
    },
    /// F14: first syncs take so much longer.
    SlowSync { by: Millis, lasts: Millis },
    /// F15: the kernel kills a process for its memory.
    OutOfMemory { pick: u8 },
    /// F16: a kubelet evicts a pod.
    Evict { pick: u8 },
    /// F20: the objects of a kind have fields that no schema of ours has.
    Widen { kind: Watched },
    /// F22: a pod's object lingers, since its kubelet is silent.
    SilentKubelet { pick: u8, lasts: Millis },
    /// F24: somebody changes the topology by hand.
    Meddle { how: Meddling, pick: u8, other: u8 },
    /// F25: everything dies at once.
    PowerCut,
    /// F26: no machine takes a new pod.
    Cordon { lasts: Millis },
    /// F27: mounted files follow their ConfigMap late.
    SlowMounts { lasts: Millis },
    /// F28: every message between processes takes so long.
    SlowNetwork { by: Millis, lasts: Millis },
    /// F28: one of so many messages between processes is lost, and sent again.
    LossyNetwork { one_in: u64, lasts: Millis },
    /// F29: a primary dies, and nobody hears its replica ask for votes.
    LoseVotes { pick: u8, lasts: Millis },
}

/// What a reply is instead of what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Garbling {
    /// An error.
    Refusal,
    /// A reply of another type.
    Type,
    /// No reply at all, only bytes.
    Bytes,
    /// A text that tells nothing, where one is told.
    Text,
}

impl Garbling {
    /// Every one.
    pub(crate) const ALL: [Self; 4] = [Self::Refusal, Self::Type, Self::Bytes, Self::Text];
}

/// What a hand does to the topology: to one process, sometimes about another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meddling {
    Failover,
    Takeover,
    Forget,
    Reset,
    AddSlot,
    /// One that another owns already.
    SetSlot,
    Replicate,
    /// A process that is no part of any cluster of ours is met.
    Meet,
    /// The operator's user is turned off.
    LockOut,
}

/// How the API server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Conflict,
    TooMany,
    Internal,
    Unavailable,
    /// Broken off before or after it took effect.
    Broken {
        done: bool,
    },
}

/// Kinds whose events may go astray.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    Cluster,
    Node,
    Pod,
    ConfigMap,
    Service,
    Config,
    Image,
    Role,
}

impl Watched {
    /// Every one.
    pub(crate) const ALL: [Self; 8] = [
        Self::Cluster,
        Self::Node,
        Self::Pod,
        Self::ConfigMap,
        Self::Service,
        Self::Config,
        Self::Image,
        Self::Role,
    ];

    /// Those whose schema is ours.
    pub(crate) const OURS: [Self; 5] = [
        Self::Cluster,
        Self::Node,
        Self::Config,
        Self::Image,
        Self::Role,
    ];
}

impl Fault {
    /// Its number in the list of faults.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::DeletePod { .. } => "F01",
            Self::KillProcess { .. } => "F02",
            Self::Hang { .. } => "F03",
            Self::LoseHost { .. } => "F04",
            Self::Partition { one_way: false, .. } => "F05",
            Self::Partition { one_way: true, .. } => "F06",
            Self::Blind { .. } | Self::Garble { .. } => "F07",
            Self::Kill { .. } | Self::KillAtWrite { .. } => "F08",
            Self::Second { .. } => "F09",
            Self::Refuse { .. } => "F10",
            Self::Lag { .. }
            | Self::CutWatches { .. }
            | Self::Lose { .. }
            | Self::StaleLists { .. } => "F11",
            Self::Silence { .. } => "F12",
            Self::ShiftClock { .. } => "F13",
            Self::SlowSync { .. } => "F14",
            Self::OutOfMemory { .. } => "F15",
            Self::Evict { .. } => "F16",
            Self::Widen { .. } => "F20",
            Self::SilentKubelet { .. } => "F22",
            Self::Meddle { .. } => "F24",
            Self::PowerCut => "F25",
            Self::Cordon { .. } => "F26",
            Self::SlowMounts { .. } => "F27",
            Self::SlowNetwork { .. } | Self::LossyNetwork { .. } => "F28",
            Self::LoseVotes { .. } => "F29",
        }
    }
}

impl Plan {
    /// What a seed stands for in the swarm.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut draw = Draw {
            rng: Rng::new(seed),
            long: false,
        };
        let shape = draw.shape();
        // A large one takes as long as five others.
        let shape = if shape.is_large() && !seed.is_multiple_of(4) {
            shape.halved()
        } else {
            shape
        };
        // Half of the runs leave the cluster alone until it is formed, and then change it.
        let living = draw.yes();
        let from = if living { FORMED } else { 0 };
        draw.long = draw.between(0, 11) == 0;
        let healed = from + draw.between(5_000, 60_000);
        let mut acts = Vec::new();
        for turn in 0..draw.between(3, 8) {
            let at = draw.between(from, healed);
            if living && turn == 0 || draw.between(0, 3) == 0 {
                acts.extend(draw.change(at, healed));
            } else {
                acts.push((at, Act::Edit(draw.edit(shape))));
            }
        }
        // A few kinds of trouble at a time: all at once hide each other.
        acts.extend(
            (0..draw.between(0, 6)).map(|_| (draw.between(from, healed), Act::Fault(draw.fault()))),
        );
        acts.push((draw.between(0, 3_000), Act::Edit(Edit::Apply)));
        if draw.between(0, 4) == 0 {
            acts.extend(draw.tls(from, healed));
        }
        let healed = if draw.long { healed + LONG } else { healed };
        // What is asked of TLS is asked before the cluster is.
        acts.sort_by_key(|(at, act)| (*at, *act != Act::Edit(Edit::Secure)));
        Self {
            seed,
            hosts: u32::try_from(draw.between(1, 5)).unwrap_or(1),
            shape,
            neighbour: draw.between(0, 9) == 0,
            acts,
            healed,
        }
    }

    /// Whether another cluster's pod gets a freed address at once.
    ///
    /// Not over a slow network, where that is beyond any promise: of its own accord Valkey meets again a
    /// member that does not dial back (its pull request 4286). To a dead member's address such a link is up
    /// before the first answer tells that somebody else is there, and who is met believes it: two clusters
    /// are one.
    pub(crate) fn addresses_come_back(&self) -> bool {
        let slow = |(_, act): &(Millis, Act)| matches!(act, Act::Fault(Fault::SlowNetwork { .. }));
        self.neighbour && !self.acts.iter().any(slow)
    }

    /// The same without some of its acts, or smaller.
    pub(crate) fn cut(mut self, cut: &Cut) -> Self {
        if let Some(keep) = &cut.keep {
            let kept = self.acts.iter().enumerate();
            let kept = kept.filter(|(index, _)| keep.contains(index));
            self.acts = kept.map(|(_, act)| *act).collect();
        }
        self.shape = cut.shape.unwrap_or(self.shape);
        self
    }
}

/// What is left of a plan that was cut down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The acts that stay, by their place; all without it.
    pub(crate) keep: Option<Vec<usize>>,
    /// Another shape.
    pub(crate) shape: Option<Shape>,
}

/// How a run is named on a command line: `12`, or `12:3x1:0,4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replay {
    pub(crate) seed: u64,
    pub(crate) cut: Cut,
}

impl fmt::Display for Replay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.seed)?;
        if self.cut == Cut::default() {
            return Ok(());
        }
        match self.cut.shape {
            Some(Shape { shards, replicas }) => write!(formatter, ":{shards}x{replicas}")?,
            None => formatter.write_str(":")?,
        }
        let Some(keep) = &self.cut.keep else {
            return Ok(());
        };
        let keep: Vec<String> = keep.iter().map(usize::to_string).collect();
        write!(formatter, ":{}", keep.join(","))
    }
}

impl FromStr for Replay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no run: it is written like 12 or 12:3x1:0,4");
        let mut parts = text.splitn(3, ':');
        let seed = parts.next().and_then(|seed| seed.parse().ok());
        let shape = match parts.next() {
            None | Some("") => None,
            Some(shape) => {
                let (shards, replicas) = shape.split_once('x').ok_or_else(wrong)?;
                Some(Shape {
                    shards: shards.parse().map_err(|_| wrong())?,
                    replicas: replicas.parse().map_err(|_| wrong())?,
                })
            }
        };
        let keep = match parts.next() {
            None => None,
            Some("") => Some(Vec::new()),
            Some(keep) => {
                let keep = keep.split(',').map(|act| act.parse().map_err(|_| wrong()));
                Some(keep.collect::<Result<_, _>>()?)
            }
        };
        Ok(Self {
            seed: seed.ok_or_else(wrong)?,
            cut: Cut { keep, shape },
        })
    }
}

struct Draw {
    rng: Rng,
    /// Some of what is broken stays so for longer than a minute.
    long: bool,
}

impl Draw {
    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.rng.between((low, high))
    }

    fn pick(&mut self) -> u8 {
        u8::try_from(self.between(0, 255)).unwrap_or(0)
    }

    fn yes(&mut self) -> bool {
        self.between(0, 1) == 1
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        let index = self.between(0, of.len() as u64 - 1);
        of[usize::try_from(index).expect("a small number")]
    }

    /// Mostly small: what goes wrong with six nodes goes wrong with three, in a quarter of the time.
    fn shape(&mut self) -> Shape {
        let (shards, replicas) = self.one(&[
            (1, 0),
            (1, 0),
            (1, 1),
            (1, 1),
            (1, 1),
            (1, 1),
            (1, 2),
            (1, 2),
            (1, 3),
            (2, 0),
            (2, 0),
            (2, 0),
            (2, 1),
            (2, 1),
            (2, 1),
            (2, 1),
            (3, 0),
            (3, 0),
            (3, 0),
            (3, 0),
            (3, 1),
            (3, 1),
            (3, 1),
            (3, 1),
            (3, 2),
            (4, 1),
            (5, 0),
            (6, 0),
        ]);
        Shape { shards, replicas }
    }

    fn lasts(&mut self) -> Millis {
        if self.long && self.yes() {
            return LONG;
        }
        let longest = self.one(&[1_000, 5_000, 30_000]);
        self.between(100, longest)
    }

    fn edit(&mut self, shape: Shape) -> Edit {
        let part = self.one(&[Part::Image, Part::Config, Part::BaseConfig, Part::Role]);
        let kept = match self.between(0, 5) {
            0 => Kept::Service,
            1 => Kept::AclConfigMap,
            2 => Kept::NodeConfigMap(self.pick()),
            3 => Kept::Auth,
            4 => Kept::Pod(self.pick()),
            _ => Kept::Node(self.pick()),
        };
        match self.between(0, 18) {
            0 => Edit::Delete,
            1 | 2 => Edit::Apply,
            3 | 4 => Edit::Withdraw(part),
            5 | 6 => Edit::Offer(part),
            7 => Edit::Bind(self.pick() % 4),
            8 => Edit::Annotate(self.pick()),
            9 => Edit::Pause,
            10 => Edit::Resume,
            11..=13 => Edit::Reshape(self.near(shape)),
            14 => self.one(&[Edit::Misspell, Edit::Respell]),
            15 => Edit::Fill {
                values: self.one(&[8, 64]),
            },
            16 => Edit::Squat(kept),
            17 if self.yes() => Edit::DeleteNamespace,
            _ => Edit::Take(kept),
        }
    }

    /// A shape that is not far from another.
    fn near(&mut self, shape: Shape) -> Shape {
        let Shape { shards, replicas } = shape;
        match self.between(0, 4) {
            0 | 1 => Shape {
                shards: shards + 1,
                replicas,
            },
            2 => Shape {
                shards: (shards - 1).max(1),
                replicas,
            },
            3 => Shape {
                shards,
                replicas: replicas + 1,
            },
            _ => Shape {
                shards,
                replicas: replicas.saturating_sub(1),
            },
        }
    }

    /// A property is set, mostly one that nodes are made of, and perhaps put back later.
    fn change(&mut self, at: Millis, healed: Millis) -> Vec<(Millis, Act)> {
        let leaf = if self.between(0, 3) == 0 {
            self.leaf(|_| true)
        } else {
            self.leaf(Leaf::makes_nodes)
        };
        // The first value is a good one.
        let value = self.one(&[0, 0, 0, 1, 2, 3]);
        let mut acts = vec![(at, Act::Edit(Edit::Set { leaf, value }))];
        if self.yes() {
            let later = self.between(at, healed);
            acts.push((later, Act::Edit(Edit::PutBack { leaf })));
        }
        acts
    }

    /// The cluster speaks TLS, whose Secret may come late, be spoilt or be lost.
    fn tls(&mut self, from: Millis, healed: Millis) -> Vec<(Millis, Act)> {
        let late = self.one(&[0, 0, 5_000]);
        let mut edits = vec![(0, Edit::Secure), (late, Edit::Certify)];
        if self.yes() {
            let spoil = self.one(&[
                Edit::Uncertify,
                Edit::Spoil(Spoilt::Empty),
                Edit::Spoil(Spoilt::Keyless),
                Edit::Spoil(Spoilt::Scrawl),
                Edit::Spoil(Spoilt::Distrusted),
            ]);
            let at = self.between(from, healed);
            edits.extend([(at, spoil), (self.between(at, healed), Edit::Certify)]);
        }
        edits
            .into_iter()
            .map(|(at, edit)| (at, Act::Edit(edit)))
            .collect()
    }

    fn leaf(&mut self, which: fn(&Leaf) -> bool) -> u8 {
        let leaves: Vec<u8> = Leaf::numbers()
            .filter(|leaf| which(Leaf::numbered(*leaf)))
            .collect();
        self.one(&leaves)
    }

    fn fault(&mut self) -> Fault {
        let lasts = self.lasts();
        let kind = self.one(&Watched::ALL);
        match self.between(0, 32) {
            0 => Fault::Kill {
                pause: self.between(0, 5_000),
            },
            1..=3 => Fault::KillAtWrite {
                writes: usize::try_from(self.between(1, 30)).unwrap_or(1),
                moment: self.one(&Moment::ALL),
            },
            4 => Fault::Second { lasts },
            5 | 6 => {
                let done = self.yes();
                Fault::Refuse {
                    how: self.one(&[
                        Refusal::Conflict,
                        Refusal::TooMany,
                        Refusal::Internal,
                        Refusal::Unavailable,
                        Refusal::Broken { done },
                    ]),
                    one_in: self.between(1, 10),
                    lasts,
                }
            }
            7 | 8 => Fault::Lag {
                kind,
                by: self.one(&[200, 1_000, 5_000, 20_000]),
                lasts,
            },
            9 => Fault::CutWatches { gone: self.yes() },
            10 => Fault::Lose { kind },
            11 => Fault::StaleLists {
                writes: self.one(&[1, 5, 20]),
                lasts,
            },
            12 => Fault::Silence {
                lasts,
                lost: self.yes(),
            },
            13 => Fault::Blind { lasts },
            14 => Fault::SlowSync {
                by: self.lasts(),
                lasts,
            },
            15 => Fault::SlowMounts { lasts },
            16 => Fault::Garble {
                how: self.one(&Garbling::ALL),
                lasts,
            },
            17 => Fault::Cordon { lasts },
            18 => Fault::SlowNetwork {
                by: self.one(&[100, 500, 1_500]),
                lasts,
            },
            19 | 20 => self.meddle(),
            21 => Fault::LossyNetwork {
                one_in: self.one(&[3, 10, 50]),
                lasts,
            },
            22 => Fault::ShiftClock {
                pick: self.yes().then(|| self.pick()),
                seconds: self.one(&[-HOUR, -10, 10, HOUR]),
                lasts,
            },
            23 => Fault::Widen {
                kind: self.one(&Watched::OURS),
            },
            _ => self.pod_fault(lasts),
        }
    }

    fn meddle(&mut self) -> Fault {
        Fault::Meddle {
            how: self.one(&[
                Meddling::Failover,
                Meddling::Takeover,
                Meddling::Forget,
                Meddling::Reset,
                Meddling::AddSlot,
                Meddling::SetSlot,
                Meddling::Replicate,
                Meddling::Meet,
                Meddling::LockOut,
            ]),
            pick: self.pick(),
            other: self.pick(),
        }
    }

    fn pod_fault(&mut self, lasts: Millis) -> Fault {
        let pick = self.pick();
        match self.between(0, 10) {
            0 => Fault::DeletePod {
                pick,
                force: self.yes(),
            },
            1 | 2 => Fault::KillProcess {
                pick,
                orderly: self.yes(),
            },
            3 => Fault::Hang { pick, lasts },
            4 => Fault::LoseHost { pick, lasts },
            5 => Fault::Partition {
                pick,
                one_way: self.yes(),
                bus_only: self.yes(),
                lasts,
            },
            6 => Fault::SilentKubelet { pick, lasts },
            7 => Fault::OutOfMemory { pick },
            8 => Fault::Evict { pick },
            9 => Fault::LoseVotes { pick, lasts },
            _ => Fault::PowerCut,
        }
    }
}
