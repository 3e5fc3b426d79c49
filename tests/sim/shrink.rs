//! Cuts a failing run down to the fewest acts and the smallest shape that still break the same rule.
//! Never calls a run smaller that breaks another rule.

use crate::plan::{Cut, Plan, Shape};

/// Shapes to try, the smallest first.
const SHAPES: [Shape; 6] = [
    shape(1, 0),
    shape(1, 1),
    shape(2, 0),
    shape(2, 1),
    shape(3, 0),
    shape(3, 1),
];

const fn shape(shards: u32, replicas: u32) -> Shape {
    Shape { shards, replicas }
}

/// The smallest cut of a plan that still fails.
pub(crate) fn shrink(plan: &Plan, fails: impl Fn(&Cut) -> bool) -> Cut {
    let mut keep: Vec<usize> = (0..plan.acts.len()).collect();
    let cut = |keep: &[usize], shape| Cut {
        keep: Some(keep.to_vec()),
        shape,
    };
    let mut piece = keep.len() / 2;
    while piece > 0 {
        let mut start = 0;
        while start < keep.len() {
            let end = (start + piece).min(keep.len());
            let fewer: Vec<usize> = [&keep[..start], &keep[end..]].concat();
            if fails(&cut(&fewer, None)) {
                keep = fewer;
            } else {
                start = end;
            }
        }
        piece /= 2;
    }
    let smaller = SHAPES
        .into_iter()
        .filter(|shape| shape.nodes() < plan.shape.nodes());
    let shape = smaller
        .map(Some)
        .find(|shape| fails(&cut(&keep, *shape)))
        .flatten();
    cut(&keep, shape)
}

#[cfg(test)]
mod tests {
    use super::{Cut, shrink};
    use crate::plan::{Plan, Shape};

    #[test]
    fn what_a_failure_needs_is_what_stays() {
        let plan = Plan::draw(7);
        let last = plan.acts.len() - 1;
        let fails = |cut: &Cut| {
            let keep = cut.keep.as_ref().expect("a cut says what it keeps");
            let big = cut.shape.is_none_or(|shape| shape.shards > 1);
            keep.contains(&1) && keep.contains(&last) && big
        };
        let cut = shrink(&plan, fails);
        assert_eq!(cut.keep, Some(vec![1, last]));
        let shape = cut.shape.map_or(plan.shape, |shape| shape);
        assert!(
            shape == plan.shape
                || shape
                    == Shape {
                        shards: 2,
                        replicas: 0
                    }
        );
    }
}
