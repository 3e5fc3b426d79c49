//! What hardly any seed reaches, and for each a run that does.
//! Never a run without a story: one that nobody understands is not mended when it no longer gets there.

use crate::chains::Leaf;
use crate::kube::client::Moment;
use crate::plan::{Edit, Fault, Garbling, Kept, Meddling, Millis, Plan, Shape};
use crate::scenario::{edit, fault, holds, kill, plan};

/// A run, and the names that have to come up in it.
pub(crate) struct KeptRun {
    pub(crate) names: &'static [&'static str],
    plan: Plan,
}

/// As long as an edit or a fault after which nothing more happens needs to show what comes of it.
const LONG: Millis = 100_000;
/// By now every cluster here is formed.
const FORMED: Millis = 20_000;

/// All of them.
pub(crate) fn kept() -> Vec<KeptRun> {
    let kept = [silent(), lost(), moved(), rolled(), mistaken(), meddled()];
    kept.into_iter().flatten().collect()
}

fn of(names: &'static [&'static str], plan: Plan) -> KeptRun {
    KeptRun { names, plan }
}

/// Processes that do not answer, or not as they should.
fn silent() -> Vec<KeptRun> {
    let blind = Fault::Blind { lasts: 20_000 };
    let garble = Fault::Garble {
        how: Garbling::Text,
        lasts: 20_000,
    };
    let hang = Fault::Hang {
        pick: 0,
        lasts: LONG,
    };
    let lock_out = meddling(Meddling::LockOut, 0);
    vec![
        // The operator reaches no pod: what it has open stays silent, and what it dials.
        of(
            &["error Call", "error Connect"],
            until(40_000, plan((1, 1), &[apply(), fault(FORMED, blind)])),
        ),
        // Processes tell nothing in place of their account.
        of(
            &["error Reply"],
            until(40_000, plan((1, 1), &[apply(), fault(FORMED, garble)])),
        ),
        // Somebody turns the operator's user off, and the next operator cannot log in.
        of(
            &["error Login"],
            plan(
                (1, 1),
                &[
                    apply(),
                    fault(FORMED, lock_out),
                    fault(21_000, Fault::Kill { pause: 0 }),
                ],
            ),
        ),
        // A process hangs for longer than anybody waits for it.
        of(
            &["why Hung"],
            until(LONG, plan((3, 1), &[apply(), fault(FORMED, hang)])),
        ),
    ]
}

/// Primaries that die, and nodes that go.
fn lost() -> Vec<KeptRun> {
    let lose_votes = Fault::LoseVotes {
        pick: 0,
        lasts: LONG,
    };
    let slow_sync = Fault::SlowSync {
        by: 20_000,
        lasts: 30_000,
    };
    let silent_kubelet = Fault::SilentKubelet {
        pick: 0,
        lasts: LONG,
    };
    vec![
        // The only copy of a shard is lost: its successor claims the slots anew.
        of(
            &["action BumpEpoch"],
            plan((2, 0), &[apply(), kill(FORMED, 0)]),
        ),
        // A primary dies, and for more than a minute nobody hears its replica ask for votes.
        of(
            &["why ElectionLost", "action ForceFailover"],
            until(120_000, plan((3, 1), &[apply(), fault(FORMED, lose_votes)])),
        ),
        // A primary dies while its replica waits for its first sync.
        of(
            &["why NeverSynced"],
            plan((3, 1), &[apply(), fault(4_500, slow_sync), kill(6_500, 0)]),
        ),
        // The machine of a replica is lost to Kubernetes alone: its node is deleted, its process lives on.
        of(
            &["why Survivor", "action Reset"],
            Plan {
                hosts: 2,
                ..plan(
                    (1, 1),
                    &[
                        apply(),
                        fault(FORMED, silent_kubelet),
                        edit(70_000, Edit::Take(Kept::Node(1))),
                    ],
                )
            },
        ),
    ]
}

/// Slots that cannot move.
fn moved() -> Vec<KeptRun> {
    let lose_votes = Fault::LoseVotes {
        pick: 1,
        lasts: 3_000,
    };
    let small = Leaf::edit("/spec/valkey/maxmemory", r#""8kb""#);
    vec![
        // Slots are to go to a replica that took over while the bus of its pod was cut: not everyone knows yet.
        of(
            &["why MigrationFailed"],
            plan(
                (2, 1),
                &[
                    apply(),
                    fault(FORMED, lose_votes),
                    edit(22_500, reshape(1, 1)),
                ],
            ),
        ),
        // Two shards are to be one, which has no room for the data of both.
        of(
            &["why DrainTooLarge"],
            plan(
                (2, 0),
                &[
                    apply(),
                    edit(FORMED, small),
                    edit(60_000, Edit::Fill { values: 64 }),
                    edit(61_000, reshape(1, 0)),
                ],
            ),
        ),
    ]
}

/// Rolls that have to wait.
fn rolled() -> Vec<KeptRun> {
    let (roll, _) = Leaf::roll();
    let slow = Fault::SlowNetwork {
        by: 1_500,
        lasts: 40_000,
    };
    let fill = |second: Millis| edit(second * 1_000, Edit::Fill { values: 255 });
    let begin = [apply(), edit(FORMED, roll), fault(FORMED + 1, slow)];
    let written_much = [&begin[..], &[34, 35, 36, 37].map(fill)].concat();
    vec![
        // Over a slow network more is written than the successor has, and then its hand-over takes seconds.
        of(
            &["why Lagging", "why FailingOver"],
            until(60_000, plan((1, 0), &written_much)),
        ),
        // A roll is undone after nodes have got an ACL file of another hand that they refuse.
        of(
            &["why AclRefused"],
            until(
                138_000,
                plan(
                    (1, 0),
                    &[
                        apply(),
                        edit(15_000, roll),
                        edit(28_000, Edit::Squat(Kept::AclConfigMap)),
                    ],
                ),
            ),
        ),
    ]
}

/// Objects that are lost or taken while an operator is away.
fn mistaken() -> Vec<KeptRun> {
    let meet_newcomer = Fault::Meddle {
        how: Meddling::Meet,
        pick: 233,
        other: 48,
    };
    let after_its_pod = Fault::KillAtWrite {
        writes: 8,
        moment: Moment::AfterEffect,
    };
    vec![
        // A hand introduces a newcomer to a stranger before the operator introduces it to its own.
        of(
            &["rung newcomers apart", "why MetElsewhere"],
            Plan {
                seed: 9_235,
                hosts: 5,
                ..until(
                    40_027,
                    plan(
                        (1, 0),
                        &[
                            edit(2_748, Edit::Apply),
                            edit(27_473, Edit::Set { leaf: 22, value: 3 }),
                            fault(30_399, meet_newcomer),
                        ],
                    ),
                )
            },
        ),
        // The operator dies before it has recorded a node's pod, and somebody puts his own in its place.
        of(
            &["why PodForeign"],
            plan(
                (1, 0),
                &[
                    apply(),
                    fault(10, after_its_pod),
                    edit(500, Edit::Squat(Kept::Pod(0))),
                ],
            ),
        ),
        // Somebody replaces the passwords, takes his own away again, and a new operator finds none.
        of(
            &["why PasswordsLost"],
            plan(
                (1, 1),
                &[
                    apply(),
                    edit(FORMED, Edit::Squat(Kept::Auth)),
                    edit(25_000, Edit::Take(Kept::Auth)),
                    fault(26_000, Fault::Kill { pause: 0 }),
                ],
            ),
        ),
    ]
}

/// Hands on the topology.
fn meddled() -> Vec<KeptRun> {
    let slow = Fault::SlowNetwork {
        by: 1_000,
        lasts: FORMED,
    };
    vec![
        // A process of nobody's cluster is met.
        of(
            &["why ForeignMember"],
            plan(
                (2, 1),
                &[apply(), fault(FORMED, meddling(Meddling::Meet, 0))],
            ),
        ),
        // While slots are given out over a slow network, a node that is to be a replica claims one of them. Its
        // primary gets it back, once it serves.
        of(
            &[
                "why SlotsClaimedTwice",
                "why SlotsAstray",
                "why TargetUnready",
            ],
            until(
                FORMED,
                plan(
                    (1, 1),
                    &[
                        apply(),
                        fault(1, slow),
                        fault(7_000, meddling(Meddling::SetSlot, 1)),
                    ],
                ),
            ),
        ),
    ]
}

const fn apply() -> (Millis, crate::plan::Act) {
    edit(0, Edit::Apply)
}

const fn reshape(shards: u32, replicas: u32) -> Edit {
    Edit::Reshape(Shape { shards, replicas })
}

const fn meddling(how: Meddling, pick: u8) -> Fault {
    let other = 0;
    Fault::Meddle { how, pick, other }
}

/// The same, healed so late.
fn until(healed: Millis, plan: Plan) -> Plan {
    Plan { healed, ..plan }
}

#[test]
fn each_comes_by_what_it_is_kept_for() {
    for KeptRun { names, plan } in kept() {
        println!("kept for {names:?}");
        let outcome = holds(&plan);
        for name in names {
            assert!(outcome.seen.contains(*name), "{name} does not come up");
        }
        let again = holds(&plan);
        assert_eq!(outcome.fingerprint, again.fingerprint);
    }
}
