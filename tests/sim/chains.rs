//! Sim-D: every property that people may set, set to something else and put back, while a cluster is
//! formed and while it is Active: it has to end as if nobody had touched it.
//! Never held to a schema: some values are wrong on purpose, as after an edit of the kinds by hand.

use serde_json::{Value, json};

use crate::kube::kinds::Kind;
use crate::plan::{Act, Edit, Millis, Part, Plan, Shape};
use crate::run::{Options, run};
use crate::suite::{Job, count, hold};
use crate::wish::{CLUSTER, NAMESPACE, Wish};

/// A property: of what, where, and four values for it, as JSON.
pub(crate) struct Leaf {
    of: Option<Part>,
    pointer: &'static str,
    values: [&'static str; 4],
}

const fn of_cluster(pointer: &'static str, values: [&'static str; 4]) -> Leaf {
    Leaf {
        of: None,
        pointer,
        values,
    }
}

const fn of(part: Part, pointer: &'static str, values: [&'static str; 4]) -> Leaf {
    Leaf {
        of: Some(part),
        pointer,
        values,
    }
}

/// Valid, at the edge, odd, and wrong ones of each.
const LEAVES: &[Leaf] = &[
    of_cluster(
        "/spec/configRef",
        [r#""base""#, r#""missing""#, r#""""#, "5"],
    ),
    of_cluster("/spec/shards", ["2", "3", "0", r#""x""#]),
    of_cluster("/spec/replicasPerShard", ["0", "2", "-1", r#""x""#]),
    of_cluster(
        "/spec/acl",
        [
            r#"[{"username":"a","passwordHashes":["1111111111111111111111111111111111111111111111111111111111111111"],"permissions":[{"roleRef":"app","keys":[{"pattern":"*"}]}]}]"#,
            r#"[{"username":"a","passwordHashes":["1111111111111111111111111111111111111111111111111111111111111111"],"permissions":[{"roleRef":"missing","keys":[{"pattern":"*"}]}]}]"#,
            "[]",
            "5",
        ],
    ),
    of_cluster(
        "/spec/placement/zones",
        [r#"["a"]"#, r#"["c","b","a"]"#, r#"["nowhere"]"#, "[]"],
    ),
    of_cluster(
        "/spec/placement/zoneSpread",
        [r#""required""#, r#""bestEffort""#, r#""odd""#, "1"],
    ),
    of_cluster(
        "/spec/placement/nodeSelector",
        ["{}", r#"{"no":"where"}"#, r#"{"":""}"#, "1"],
    ),
    of_cluster(
        "/spec/podAnnotations",
        [r#"{"a":"b"}"#, r#"{"a":""}"#, "{}", "1"],
    ),
    of(
        Part::Image,
        "/spec/repository",
        [r#""valkey/valkey""#, r#""elsewhere""#, r#""""#, "1"],
    ),
    of(
        Part::Image,
        "/spec/tag",
        [r#""9.1.3""#, r#""missing""#, r#""""#, "1"],
    ),
    of(
        Part::Image,
        "/spec/version",
        [r#""9.1.3""#, r#""9""#, r#""""#, "1"],
    ),
    of(
        Part::Config,
        "/spec/baseRef",
        [r#""base""#, r#""missing""#, r#""standard""#, "1"],
    ),
    of(
        Part::Config,
        "/spec/imageRef",
        [r#""valkey""#, r#""missing""#, r#""""#, "1"],
    ),
    of(
        Part::Config,
        "/spec/valkey/maxmemory-policy",
        [r#""noeviction""#, r#""allkeys-lru""#, r#""odd""#, "1"],
    ),
    of(
        Part::Config,
        "/spec/valkey/maxmemory",
        [r#""32mb""#, r#""8kb""#, r#""x""#, "1"],
    ),
    of(
        Part::Config,
        "/spec/valkey/no-such-setting",
        [r#""yes""#, r#""""#, r#""a b""#, "1"],
    ),
    // Forced by the operator, under either name.
    of(
        Part::Config,
        "/spec/valkey/cluster-node-timeout",
        [r#""1000""#, r#""15000""#, r#""x""#, "1"],
    ),
    of(
        Part::Config,
        "/spec/valkey/masteruser",
        [r#""other""#, r#""""#, r#""a b""#, "1"],
    ),
    of(
        Part::Config,
        "/spec/scheduling/priorityClassName",
        [r#""high""#, r#""""#, r#""no such""#, "1"],
    ),
    of(
        Part::Image,
        "/spec/pullSecrets",
        [r#"["key"]"#, "[]", r#"[""]"#, "1"],
    ),
    of(
        Part::BaseConfig,
        "/spec/imageRef",
        [r#""valkey""#, r#""missing""#, r#""""#, "1"],
    ),
    of(
        Part::BaseConfig,
        "/spec/resources/cpu",
        [r#""100m""#, r#""0.05""#, r#""1000""#, r#""x""#],
    ),
    of(
        Part::BaseConfig,
        "/spec/resources/memory",
        [r#""96Mi""#, r#""67108864""#, r#""1Ti""#, r#""x""#],
    ),
    of(
        Part::BaseConfig,
        "/spec/acl",
        ["[]", "null", r#"[{"username":"b"}]"#, "1"],
    ),
    of(
        Part::Role,
        "/spec/categories",
        [
            r#"[{"name":"all","access":"allow"}]"#,
            "[]",
            r#"[{"name":"nosuch","access":"deny"}]"#,
            "1",
        ],
    ),
    of(
        Part::Role,
        "/spec/commands",
        [
            r#"[{"name":"get","access":"allow"}]"#,
            "[]",
            r#"[{"name":"get","subcommand":"x","access":"odd"}]"#,
            "1",
        ],
    ),
];

impl Leaf {
    /// The property by its number.
    pub(crate) fn numbered(leaf: u8) -> &'static Self {
        &LEAVES[usize::from(leaf)]
    }

    /// The numbers of all.
    pub(crate) fn numbers() -> impl Iterator<Item = u8> {
        (0..LEAVES.len()).map(|number| u8::try_from(number).expect("a short table"))
    }

    /// An edit that makes every node outdated, and the one that takes it back.
    pub(crate) fn roll() -> (Edit, Edit) {
        let tag = |leaf: &u8| Self::numbered(*leaf).pointer == "/spec/tag";
        let leaf = Self::numbers().find(tag).expect("the table has it");
        (Edit::Set { leaf, value: 0 }, Edit::PutBack { leaf })
    }

    /// The edit that sets a property to one of its values.
    pub(crate) fn edit(pointer: &str, value: &str) -> Edit {
        let is_meant = |leaf: &u8| Self::numbered(*leaf).pointer == pointer;
        let leaf = Self::numbers().find(is_meant).expect("the table has it");
        let mut values = Self::numbered(leaf).values.iter();
        let value = values.position(|one| *one == value);
        let value = value.expect("the property has that value");
        Edit::Set {
            leaf,
            value: u8::try_from(value).expect("there are four"),
        }
    }

    /// Whether nodes are made of it: another value makes them outdated.
    pub(crate) fn makes_nodes(&self) -> bool {
        ["/spec/tag", "/spec/repository"].contains(&self.pointer)
            || ["/spec/valkey/", "/spec/resources/", "/spec/placement/"]
                .iter()
                .any(|made_of| self.pointer.starts_with(made_of))
    }

    /// The object's kind, namespace and name.
    pub(crate) fn object(&self) -> (Kind, &'static str, &'static str) {
        match self.of {
            None => (Kind::ValkeyCluster, NAMESPACE, CLUSTER),
            Some(part) => {
                let (kind, name) = part.key();
                (kind, "", name)
            }
        }
    }

    /// A merge patch to one of its values.
    pub(crate) fn set(&self, value: u8) -> Value {
        let value = self.values[usize::from(value)];
        self.patch(serde_json::from_str(value).expect("the table holds JSON"))
    }

    /// A merge patch back to what it was.
    pub(crate) fn put_back(&self, wish: &Wish) -> Value {
        let object = match self.of {
            None => wish.cluster(),
            Some(part) => part.object(),
        };
        let before = object.pointer(self.pointer);
        self.patch(before.cloned().unwrap_or(Value::Null))
    }

    fn patch(&self, value: Value) -> Value {
        let keys = self.pointer.trim_start_matches('/').rsplit('/');
        keys.fold(value, |inner, key| json!({key: inner}))
    }
}

const SHAPES: [Shape; 3] = [shape(1, 1), shape(2, 0), shape(3, 1)];

const fn shape(shards: u32, replicas: u32) -> Shape {
    Shape { shards, replicas }
}

fn plan(shape: Shape, acts: &[(Millis, Edit)]) -> Plan {
    Plan {
        seed: 1,
        hosts: 3,
        neighbour: false,
        shape,
        acts: acts
            .iter()
            .map(|(at, edit)| (*at, Act::Edit(*edit)))
            .collect(),
        healed: 60_000,
    }
}

/// Each value at each time is tried at each submission on one shape of so many: THIN=1 tries all on all.
const THIN: usize = SHAPES.len();

#[test]
fn what_is_put_back_leaves_no_trace() {
    let thin = count("THIN", THIN);
    let mut jobs = Vec::new();
    for (number, shape) in SHAPES.into_iter().enumerate() {
        let undisturbed = run(&plan(shape, &[(100, Edit::Apply)]), &Options::default());
        assert_eq!(undisturbed.violation, None, "undisturbed");
        let values = Leaf::numbers().flat_map(|leaf| (0..4).map(move |value| (leaf, value)));
        let chains = values.flat_map(|(leaf, value)| {
            let chains = chains(shape, (leaf, value)).into_iter();
            chains.map(move |chain| (leaf, value, chain))
        });
        let tried = chains.skip(number % thin).step_by(thin);
        jobs.extend(tried.map(|(leaf, value, (when, plan))| {
            let leaf = Leaf::numbered(leaf);
            let (of, pointer, value) = (leaf.of, leaf.pointer, leaf.values[usize::from(value)]);
            Job {
                name: format!("{of:?} {pointer} {value} of {shape:?} {when}"),
                plan,
                options: Options {
                    compares: false,
                    ..Options::default()
                },
                end: Some(undisturbed.end.clone()),
            }
        }));
    }
    hold("chains", &jobs);
}

/// One value of one property, set and put back at four times.
fn chains(shape: Shape, (leaf, value): (u8, u8)) -> [(&'static str, Plan); 4] {
    let (set, back) = (Edit::Set { leaf, value }, Edit::PutBack { leaf });
    let (roll, rest) = Leaf::roll();
    let grow = Edit::Reshape(Shape {
        shards: shape.shards + 1,
        ..shape
    });
    let all: [(&str, &[(Millis, Edit)]); 4] = [
        ("while it is formed", &[(300, set), (20_000, back)]),
        ("while it is Active", &[(20_000, set), (50_000, back)]),
        (
            "while it rolls",
            &[
                (20_000, roll),
                (23_000, set),
                (50_000, back),
                (50_000, rest),
            ],
        ),
        (
            "while it grows",
            &[(20_000, grow), (22_000, set), (50_000, back)],
        ),
    ];
    all.map(|(when, edits)| {
        let acts = [&[(100, Edit::Apply)], edits].concat();
        (when, plan(shape, &acts))
    })
}
