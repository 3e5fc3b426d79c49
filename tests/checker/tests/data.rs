//! S10, S11, S12. Never a lost write that nobody acknowledged.

use super::super::evidence::Actor;
use super::super::evidence::Cut;
use super::super::evidence::Fault;
use super::super::evidence::Hits;
use super::super::evidence::Ledger;
use super::super::evidence::Lost;
use super::super::evidence::What;
use super::super::slots::Slots;
use super::Run;
use super::broken;
use super::holds;

fn loses(run: &mut Run, slot: u16, waited: bool) {
    let key = format!("key:{slot}");
    run.truth.ledger = Some(Ledger {
        acknowledged: 10,
        lost: vec![Lost { key, slot, waited }],
    });
}

#[test]
fn s10() {
    let mut run = Run::new(3, 1);
    loses(&mut run, 7, false);
    broken("S10", run.look());
    // A fault of the operator's own is no excuse.
    let mut run = Run::new(3, 1);
    let (id, hits) = ("F08".to_owned(), Hits::Operator);
    holds(run.step(Actor::Saboteur, What::Fault(Fault { id, hits })));
    loses(&mut run, 7, false);
    broken("S10", run.look());
    // Nor is one of another shard.
    let mut run = Run::new(3, 1);
    run.breaks("F02", &["b0"]);
    loses(&mut run, 7, false);
    broken("S10", run.look());
    let mut run = Run::new(3, 1);
    run.breaks("F02", &["a0"]);
    loses(&mut run, 7, false);
    holds(run.look());
}

#[test]
fn s11() {
    let mut run = Run::new(3, 1);
    run.breaks("F02", &["a0"]);
    loses(&mut run, 7, true);
    broken("S11", run.look());
    let mut run = Run::new(3, 1);
    run.breaks("F02", &["a0", "b0"]);
    loses(&mut run, 7, true);
    broken("S11", run.look());
    // There was no replica any more.
    let mut run = Run::new(3, 0);
    run.breaks("F02", &["a0"]);
    loses(&mut run, 7, true);
    holds(run.look());
    let mut run = Run::new(3, 1);
    run.breaks("F02", &["a0"]);
    run.wait(500).breaks("F02", &["a1"]);
    loses(&mut run, 7, true);
    holds(run.look());
}

#[test]
fn s12() {
    let two_writers = |run: &mut Run| run.process("a1").accepts = Slots::of([(9, 9)]);
    let mut run = Run::new(3, 1);
    two_writers(&mut run);
    broken("S12", run.look());
    // After a fault it may last as long as a node takes to notice.
    let mut run = Run::new(3, 1);
    run.breaks("F05", &["a0"]);
    two_writers(&mut run);
    holds(run.look());
    holds(run.wait(7000).look());
    broken("S12", run.wait(1).look());
    let mut run = Run::new(3, 1);
    run.breaks("F05", &["a0"]);
    two_writers(&mut run);
    holds(run.look());
    run.process("a1").accepts = Slots::default();
    holds(run.wait(7000).look());
    two_writers(&mut run);
    holds(run.wait(7000).look());
}

#[test]
fn s12_one_shard_cut_in_two() {
    let mut run = Run::new(1, 1);
    run.breaks("F05", &["a0"]);
    run.process("a1").accepts = Slots::all();
    for node in ["a0", "a1"] {
        for row in &mut run.process(node).table {
            row.slots = Slots::default();
        }
        run.row(node, node).slots = Slots::all();
    }
    let cut = |from: &str, to: &str| Cut {
        from: from.to_owned(),
        to: to.to_owned(),
        client: false,
        bus: true,
    };
    run.truth.cuts = vec![cut("10.0.0.1", "10.0.0.2")];
    holds(run.look());
    holds(run.wait(90_000).look());
    run.truth.cuts.clear();
    broken("S12", run.wait(1).look());
}
