//! Runs that once broke a rule, each by the name of what it showed.
//! Never drawn from a seed: they stay what they are when the swarm learns to do more.

use crate::kube::client::Moment;
use crate::plan::{
    Act, Edit, Fault, Garbling, Kept, Meddling, Millis, Plan, Refusal, Shape, Spoilt, Watched,
};
use crate::run::Outcome;
use crate::scenario::{self, edit, fault, kill, plan};

/// Runs it, and fails where a rule is broken.
fn holds(shape: (u32, u32), acts: &[(Millis, Act)]) -> Outcome {
    scenario::holds(&plan(shape, acts))
}

/// A request that is never answered held its cluster for as long as the connection lived: for ever, where
/// nobody closed it. Each has a deadline now.
#[test]
fn a_request_that_nobody_answers_holds_nobody_up() {
    let silence = Fault::Silence {
        lasts: 2_000,
        lost: true,
    };
    holds((1, 1), &[fault(0, silence), edit(1_000, Edit::Apply)]);
}

/// The store lacked a node whose event was lost, and had the one made after it: that was taken for all
/// there is, and the lost one was made again.
#[test]
fn a_lost_event_makes_no_second_node() {
    let lose = Fault::Lose {
        kind: Watched::Node,
    };
    holds((3, 0), &[fault(0, lose), edit(10, Edit::Apply)]);
}

/// Two operators at once made a node too many, and the cluster was called Active with it.
#[test]
fn a_node_too_many_goes_before_the_cluster_is_active() {
    let second = Fault::Second { lasts: 20_000 };
    holds((3, 1), &[fault(0, second), edit(300, Edit::Apply)]);
}

/// Nodes that had died together were buried one by one, with a pause that doubled in between.
#[test]
fn what_dies_together_is_buried_together() {
    holds(
        (3, 2),
        &[edit(0, Edit::Apply), fault(6_000, Fault::PowerCut)],
    );
}

/// A primary died before its replica had any of its data: no election could be won, and none was waited
/// for in vain but this.
#[test]
fn a_replica_without_data_is_no_heir() {
    let slow = Fault::SlowSync {
        by: 20_000,
        lasts: 30_000,
    };
    holds(
        (3, 1),
        &[edit(0, Edit::Apply), fault(4_500, slow), kill(6_500, 0)],
    );
}

/// A shard that scale-out was still building, and that nobody had met, was given slots of a shard that was
/// lost meanwhile, and waited for to agree with the others.
#[test]
fn a_shard_that_is_being_built_gets_no_orphaned_slots() {
    let shape = Shape {
        shards: 6,
        replicas: 0,
    };
    let kill = Fault::KillProcess {
        pick: 1,
        orderly: true,
    };
    holds(
        (5, 0),
        &[
            edit(0, Edit::Apply),
            edit(20_000, Edit::Reshape(shape)),
            edit(20_300, Edit::Pause),
            fault(32_000, kill),
        ],
    );
}

/// A cluster with TLS, and what happens to it.
fn holds_with_tls(shape: (u32, u32), acts: &[(Millis, Act)]) {
    let begin = [
        edit(0, Edit::Secure),
        edit(10, Edit::Certify),
        edit(20, Edit::Apply),
    ];
    holds(shape, &[&begin, acts].concat());
}

/// Edits made while Invalid are deferred, and a primary that dies meanwhile is replaced after.
#[test]
fn what_happens_while_invalid_is_made_up_for_after() {
    let shape = Shape {
        shards: 1,
        replicas: 0,
    };
    holds_with_tls(
        (3, 1),
        &[
            edit(40_000, Edit::Uncertify),
            edit(60_000, Edit::Reshape(shape)),
            kill(70_000, 0),
            edit(80_000, Edit::Certify),
        ],
    );
}

/// A pod started while somebody else's ConfigMap was under its name. Its process knew no user of the
/// operator and was waited for forever, also when the name was free again.
#[test]
fn a_newcomer_locked_against_the_operator_is_made_anew() {
    let cordon = Fault::Cordon { lasts: 5_000 };
    let squat = Edit::Squat(Kept::NodeConfigMap(0));
    holds(
        (1, 1),
        &[
            fault(0, cordon),
            edit(1_000, Edit::Apply),
            edit(3_000, squat),
        ],
    );
}

/// F20: under a later version of our kinds, whose fields this one does not know, every node is as good as before.
#[test]
fn fields_of_a_later_version_replace_no_node() {
    let widen = |kind| fault(20_000, Fault::Widen { kind });
    let acts = [&[edit(0, Edit::Apply)], &Watched::OURS.map(widen)[..]].concat();
    let outcome = holds((2, 1), &acts);
    assert!(!outcome.seen.contains("why Outdated"));
}

/// F13: a clock that is an hour ahead or behind makes nobody dead: neither a member to its peers nor a peer to the
/// operator.
#[test]
fn a_clock_that_jumps_kills_nobody() {
    let jump = |(at, pick, seconds)| {
        let lasts = 10_000;
        fault(
            at,
            Fault::ShiftClock {
                pick,
                seconds,
                lasts,
            },
        )
    };
    let jumps = [
        (20_000, Some(0), 3_600),
        (40_000, Some(1), -3_600),
        (60_000, None, 3_600),
        (80_000, None, -3_600),
    ];
    let acts = [&[edit(0, Edit::Apply)], &jumps.map(jump)[..]].concat();
    let outcome = holds((3, 1), &acts);
    for replaced in [
        "why NodeEnded",
        "why Hung",
        "action Takeover",
        "action Forget",
    ] {
        assert!(!outcome.seen.contains(replaced), "{replaced}");
    }
}

/// Two operators found the TLS Secret right again and made the same node each; while these had no pod nobody was asked,
/// and of the nodes too many a primary went, with its slots.
#[test]
fn of_nodes_too_many_no_primary_goes() {
    let acts = [
        edit(0, Edit::Secure),
        edit(1_849, Edit::Apply),
        edit(5_000, Edit::Certify),
        edit(15_837, Edit::Spoil(Spoilt::Keyless)),
        kill(17_778, 66),
        kill(22_083, 231),
        fault(36_504, Fault::Second { lasts: 100_000 }),
        edit(37_845, Edit::Certify),
    ];
    scenario::holds(&Plan {
        seed: 652,
        hosts: 5,
        ..plan((3, 2), &acts)
    });
}

/// A drained shard's primary had not heard yet that its slots were another's, and its replica was sent off; of the
/// primary itself it was said that facts contradict each other.
#[test]
fn no_replica_goes_before_its_primary_has_heard_that_it_is_drained() {
    let lose = Fault::LoseVotes {
        pick: 0,
        lasts: 7_000,
    };
    let shape = Shape {
        shards: 1,
        replicas: 1,
    };
    let acts = [
        edit(0, Edit::Apply),
        fault(20_000, lose),
        edit(21_000, Edit::Reshape(shape)),
    ];
    let outcome = holds((2, 1), &acts);
    assert!(!outcome.seen.contains("why Inconsistent"));
}

/// A primary that was reset by hand while the cluster formed gave up its slots, its peers took them for its own all the
/// same, and their different counts were waited for forever.
#[test]
fn who_was_reset_while_forming_takes_its_slots_back() {
    for (at, pick) in [(4_500, 1), (5_000, 0)] {
        let reset = Fault::Meddle {
            how: Meddling::Reset,
            pick,
            other: 0,
        };
        holds((2, 0), &[edit(0, Edit::Apply), fault(at, reset)]);
    }
}

/// A replica was on its way when the TLS Secret broke, and joined on the way back: the cluster was called Active in the
/// shape that it had without it.
#[test]
fn who_joins_on_the_way_back_counts() {
    let lose = Fault::LoseHost {
        pick: 21,
        lasts: 29_370,
    };
    let acts = [
        edit(0, Edit::Secure),
        edit(706, Edit::Apply),
        edit(5_000, Edit::Certify),
        fault(19_109, lose),
        edit(48_969, Edit::Set { leaf: 9, value: 3 }),
        edit(57_792, Edit::Spoil(Spoilt::Empty)),
        edit(59_329, Edit::Certify),
        edit(63_146, Edit::PutBack { leaf: 9 }),
    ];
    scenario::holds(&Plan {
        seed: 1735,
        hosts: 4,
        ..plan((1, 3), &acts)
    });
}

/// An operator died while it called a cluster Active, with half of the nodes told, and an edit had made them outdated: as
/// long as a pod started nobody was asked, and a primary was taken for a newcomer and sent off with the last copy.
#[test]
fn a_cluster_that_is_half_active_is_asked() {
    let broken = Fault::Refuse {
        how: Refusal::Broken { done: true },
        one_in: 2,
        lasts: 6_461,
    };
    let crash = Fault::KillAtWrite {
        writes: 9,
        moment: Moment::BeforeEffect,
    };
    let acts = [
        edit(118, Edit::Apply),
        fault(3_419, broken),
        edit(7_563, Edit::Set { leaf: 22, value: 0 }),
        fault(13_568, crash),
        edit(16_013, Edit::Annotate(202)),
        edit(18_994, Edit::PutBack { leaf: 22 }),
    ];
    scenario::holds(&Plan {
        seed: 6525,
        hosts: 2,
        ..plan((3, 1), &acts)
    });
}

/// A primary that was shut down had one replica elected while the operator had the other take over: what the first said as
/// a replica was old news to all who knew its epoch as a primary, and they were waited for, for ever.
#[test]
fn an_elected_replica_that_comes_too_late_is_heard_again() {
    let lost = Fault::LoseHost {
        pick: 65,
        lasts: 2_886,
    };
    let grow = Edit::Reshape(Shape {
        shards: 2,
        replicas: 2,
    });
    let shutdown = Fault::KillProcess {
        pick: 198,
        orderly: true,
    };
    let acts = [
        edit(712, Edit::Apply),
        fault(28_990, Fault::PowerCut),
        fault(36_410, lost),
        edit(36_699, grow),
        fault(43_972, shutdown),
    ];
    let outcome = scenario::holds(&Plan {
        seed: 638,
        hosts: 1,
        healed: 56_374,
        ..plan((1, 2), &acts)
    });
    let bumped = "operator 0: decided Take(BumpEpoch";
    assert!(outcome.story.iter().any(|line| line.contains(bumped)));
}

/// A pod got the address of one that had died in another cluster, which still looked for it there: the newcomer was met by
/// that cluster first and by its own a moment later, and the two became one, with the slots of either.
#[test]
fn a_newcomer_that_another_cluster_met_first_is_replaced() {
    let partition = Fault::Partition {
        pick: 246,
        one_way: false,
        bus_only: false,
        lasts: 4_915,
    };
    let lossy = Fault::LossyNetwork {
        one_in: 3,
        lasts: 8_649,
    };
    let acts = [
        edit(414, Edit::Apply),
        edit(12_449, Edit::Set { leaf: 22, value: 0 }),
        fault(15_562, partition),
        fault(21_254, lossy),
    ];
    scenario::holds(&Plan {
        seed: 10_727,
        hosts: 4,
        neighbour: true,
        healed: 52_011,
        ..plan((1, 3), &acts)
    });
}

/// A fresh primary had its slots and was written to, but was not a full member yet when the operator no longer reached
/// anybody and an edit outdated it: it was taken for a newcomer that nobody would miss, and the writes were lost.
#[test]
fn a_fresh_primary_that_fell_silent_is_not_sent_off() {
    let crash = Fault::KillProcess {
        pick: 161,
        orderly: false,
    };
    let blind = Fault::Blind { lasts: 26_466 };
    let acts = [
        edit(932, Edit::Apply),
        fault(19_117, crash),
        fault(21_497, blind),
        edit(27_484, Edit::Set { leaf: 4, value: 0 }),
    ];
    scenario::holds(&Plan {
        seed: 15_101,
        hosts: 2,
        healed: 42_402,
        ..plan((2, 0), &acts)
    });
}

/// A hand gave a slot to a replica-to-be that an edit had outdated; it did not move back at once, and the roll took its owner
/// for a replica and deleted it.
#[test]
fn an_outdated_replica_that_was_given_a_slot_stays_until_it_moved() {
    let cordon = Fault::Cordon { lasts: 2_303 };
    let given = Fault::Meddle {
        how: Meddling::SetSlot,
        pick: 200,
        other: 46,
    };
    let acts = [
        edit(1_888, Edit::Apply),
        edit(17_780, Edit::Delete),
        fault(17_802, cordon),
        edit(18_072, Edit::Set { leaf: 13, value: 0 }),
        edit(19_767, Edit::Set { leaf: 14, value: 3 }),
        fault(26_509, given),
    ];
    scenario::holds(&Plan {
        seed: 12_131,
        hosts: 1,
        neighbour: true,
        healed: 27_406,
        ..plan((1, 0), &acts)
    });
}

/// A successor had its primary's data before it heard of its slots, and was cut off as that died: it took over none of
/// them, and its cluster told of a loss that there was not.
#[test]
fn a_replica_knows_what_it_would_inherit() {
    let lose = Fault::LoseVotes {
        pick: 180,
        lasts: 965,
    };
    let acts = [
        edit(2_952, Edit::Apply),
        edit(50_756, Edit::Set { leaf: 16, value: 2 }),
        fault(52_278, lose),
    ];
    scenario::holds(&Plan {
        seed: 20_321,
        hosts: 2,
        healed: 65_209,
        ..plan((2, 0), &acts)
    });
}

/// The same in a cluster of one shard: nobody who answered knew an owner, and the last copy was deleted for one of which
/// nothing was left.
#[test]
fn a_last_copy_that_never_heard_of_slots_is_not_taken_for_nothing() {
    let reshaped = Shape {
        shards: 2,
        replicas: 1,
    };
    let shutdown = Fault::KillProcess {
        pick: 118,
        orderly: true,
    };
    let acts = [
        edit(2_801, Edit::Apply),
        fault(15_364, Fault::Blind { lasts: 3_521 }),
        edit(16_015, Edit::Reshape(reshaped)),
        edit(17_166, Edit::Take(Kept::Pod(222))),
        fault(21_070, shutdown),
    ];
    scenario::holds(&Plan {
        seed: 26_238,
        healed: 25_977,
        ..plan((1, 1), &acts)
    });
}

/// While a look waited for a node that hung, somebody put his own ConfigMap in the place of the ACL's: the new
/// users were written into it.
#[test]
fn what_took_the_name_of_the_acl_is_not_written_to() {
    let hang = Fault::Hang {
        pick: 246,
        lasts: 23_899,
    };
    let acts = [
        edit(1_957, Edit::Apply),
        fault(9_356, hang),
        edit(19_598, Edit::Bind(2)),
        edit(21_305, Edit::Squat(Kept::AclConfigMap)),
    ];
    scenario::holds(&Plan {
        seed: 23_315,
        hosts: 2,
        healed: 24_801,
        ..plan((1, 1), &acts)
    });
}

/// A roll waited for files that follow their ConfigMap late. A neighbour was looked at after it, and that it had nothing
/// to do was taken for the end.
#[test]
fn a_roll_that_waits_for_files_is_not_at_its_end_whatever_its_neighbour_does() {
    let acts = [
        edit(33_883, Edit::Apply),
        edit(37_122, Edit::Set { leaf: 16, value: 2 }),
        edit(40_168, Edit::Squat(Kept::AclConfigMap)),
    ];
    let outcome = scenario::holds(&Plan {
        seed: 24_183,
        hosts: 5,
        neighbour: true,
        healed: 154_064,
        ..plan((1, 0), &acts)
    });
    assert!(outcome.seen.contains("why AclRefused"));
}

/// A newcomer that nobody had met was given a slot by a hand, and its shard was not wanted any more: it was introduced
/// to all members in one tick, and again in the next, when its first handshake was not over.
#[test]
fn a_stranger_with_a_slot_is_introduced_to_one_member_at_a_time() {
    let add_slot = Fault::Meddle {
        how: Meddling::AddSlot,
        pick: 175,
        other: 115,
    };
    let more = Edit::Reshape(Shape {
        shards: 2,
        replicas: 1,
    });
    let acts = [
        edit(2_378, Edit::Apply),
        edit(31_215, more),
        edit(35_062, Edit::Set { leaf: 16, value: 3 }),
        fault(35_076, add_slot),
    ];
    scenario::holds(&Plan {
        seed: 20_941,
        hosts: 4,
        healed: 73_803,
        ..plan((1, 1), &acts)
    });
}

/// Who would know a member that locks the operator out was out of reach, and the member was taken for one that nobody
/// had met: the only owner of half of the slots was deleted.
#[test]
fn a_locked_node_that_somebody_silent_may_know_is_waited_for() {
    let internal = Fault::Refuse {
        how: Refusal::Internal,
        one_in: 1,
        lasts: 5_230,
    };
    let lossy = Fault::LossyNetwork {
        one_in: 3,
        lasts: 29_594,
    };
    let lose_host = Fault::LoseHost {
        pick: 79,
        lasts: 19_616,
    };
    let lock_out = Fault::Meddle {
        how: Meddling::LockOut,
        pick: 190,
        other: 189,
    };
    let fewer = Edit::Reshape(Shape {
        shards: 2,
        replicas: 0,
    });
    let acts = [
        edit(206, fewer),
        edit(285, Edit::Apply),
        fault(3_960, lossy),
        edit(6_184, fewer),
        fault(6_369, internal),
        fault(8_049, Fault::Blind { lasts: 4_831 }),
        fault(10_236, lose_host),
        fault(12_755, lock_out),
    ];
    scenario::holds(&Plan {
        seed: 45_542,
        hosts: 3,
        healed: 14_157,
        ..plan((2, 1), &acts)
    });
}

/// Of two operators one read a node, and its pod a second later: the other one had made the pod, recorded it and deleted
/// both meanwhile. A pod that there had been was taken for one that there had never been, and made again.
#[test]
fn a_pod_that_came_and_went_while_its_node_was_looked_at_is_not_made_again() {
    let busy = Fault::Refuse {
        how: Refusal::TooMany,
        one_in: 4,
        lasts: 23_634,
    };
    let garble = Fault::Garble {
        how: Garbling::Refusal,
        lasts: 2_881,
    };
    let more = Edit::Reshape(Shape {
        shards: 2,
        replicas: 0,
    });
    let acts = [
        edit(0, Edit::Secure),
        edit(0, Edit::Certify),
        edit(1_469, Edit::Apply),
        edit(25_429, more),
        fault(27_217, busy),
        fault(29_833, Fault::Second { lasts: 23_739 }),
        edit(31_666, Edit::Set { leaf: 16, value: 0 }),
        edit(31_829, Edit::Spoil(Spoilt::Scrawl)),
        fault(31_919, garble),
        edit(35_323, Edit::Certify),
        edit(36_006, Edit::PutBack { leaf: 16 }),
    ];
    scenario::holds(&Plan {
        seed: 15_708,
        hosts: 4,
        neighbour: true,
        healed: 42_523,
        ..plan((1, 0), &acts)
    });
}
