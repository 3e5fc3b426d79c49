//! Sim-A: random shapes, edits and faults; then all is healed, and the wish has to come true.
//! Never a run that cannot be had again: what fails names its seed and the smallest cut of it.

use crate::plan::{Plan, Shape};
use crate::run::{Options, run};

#[test]
fn a_calm_bootstrap() {
    let plan = Plan::calm(
        1,
        Shape {
            shards: 3,
            replicas: 1,
        },
    );
    let options = Options {
        story: true,
        ..Options::default()
    };
    let start = std::time::Instant::now();
    let outcome = run(&plan, &options);
    for line in &outcome.story {
        println!("{line}");
    }
    println!("{:?} {:?}", outcome.violation, start.elapsed());
    assert_eq!(outcome.violation, None);
}
