//! Hash slots and their arithmetic.
//! Never knows who owns them.

use std::fmt;

/// The slots of every Valkey cluster (`CLUSTER_SLOTS` in cluster.h).
pub const SLOT_COUNT: u32 = 16384;

/// An inclusive range of slots, `start <= end < SLOT_COUNT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotRange {
    start: u32,
    end: u32,
}

impl SlotRange {
    /// A range, or nothing where the numbers are none.
    #[must_use]
    pub fn new(start: u32, end: u32) -> Option<Self> {
        (start <= end && end < SLOT_COUNT).then_some(Self { start, end })
    }

    /// The contiguous share of shard `index` among `shards` equal ones (at most one slot apart).
    #[must_use]
    pub fn share(index: u32, shards: u32) -> Option<Self> {
        if index >= shards {
            return None;
        }
        let start = SLOT_COUNT.checked_mul(index)?.checked_div(shards)?;
        let end = SLOT_COUNT
            .checked_mul(index.checked_add(1)?)?
            .checked_div(shards)?;
        Self::new(start, end.checked_sub(1)?)
    }

    /// The first slot.
    #[must_use]
    pub fn start(self) -> u32 {
        self.start
    }

    /// The last slot.
    #[must_use]
    pub fn end(self) -> u32 {
        self.end
    }

    /// How many slots it holds, at least one.
    #[must_use]
    pub fn count(self) -> u32 {
        self.end - self.start + 1
    }
}

impl fmt::Display for SlotRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.start == self.end {
            write!(formatter, "{}", self.start)
        } else {
            write!(formatter, "{}-{}", self.start, self.end)
        }
    }
}

impl fmt::Display for SlotSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for range in &self.ranges {
            write!(formatter, "{between}{range}")?;
            between = " ";
        }
        Ok(())
    }
}

/// A set of slots, kept as sorted ranges that neither touch nor overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotSet {
    ranges: Vec<SlotRange>,
}

impl SlotSet {
    /// The set of all slots of these ranges, in any order, overlapping or not.
    #[must_use]
    pub fn of(mut ranges: Vec<SlotRange>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<SlotRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end + 1 => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        Self { ranges: merged }
    }

    /// The ranges, ascending.
    #[must_use]
    pub fn ranges(&self) -> &[SlotRange] {
        &self.ranges
    }

    /// How many slots it holds.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.ranges.iter().map(|range| range.count()).sum()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Adds all slots of another set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::of(self.ranges.iter().chain(&other.ranges).copied().collect())
    }

    /// All slots there are.
    #[must_use]
    pub fn all() -> Self {
        Self::of(SlotRange::new(0, SLOT_COUNT - 1).into_iter().collect())
    }

    /// The slots of this set that are not in another.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let gaps = self.ranges.iter().map(|range| other.missing_from(*range));
        Self {
            ranges: gaps.flat_map(|gaps| gaps.ranges).collect(),
        }
    }

    /// Its last slots, as many as asked for, or all.
    #[must_use]
    pub fn last(&self, count: u32) -> Self {
        let mut left = count;
        let mut taken = Vec::new();
        for range in self.ranges.iter().rev() {
            let part = left.min(range.count());
            if part == 0 {
                break;
            }
            taken.push(SlotRange {
                start: range.end + 1 - part,
                end: range.end,
            });
            left -= part;
        }
        taken.reverse();
        Self { ranges: taken }
    }

    /// The slots of `range` that are not in this set.
    #[must_use]
    pub fn missing_from(&self, range: SlotRange) -> Self {
        let mut gaps = Vec::new();
        let mut next = range.start;
        for held in &self.ranges {
            if held.end < next || held.start > range.end {
                continue;
            }
            if held.start > next {
                gaps.push(SlotRange {
                    start: next,
                    end: held.start - 1,
                });
            }
            next = held.end + 1;
        }
        if next <= range.end {
            gaps.push(SlotRange {
                start: next,
                end: range.end,
            });
        }
        Self { ranges: gaps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(u32, u32)]) -> SlotSet {
        SlotSet::of(
            ranges
                .iter()
                .filter_map(|&(start, end)| SlotRange::new(start, end))
                .collect(),
        )
    }

    #[test]
    fn shares_cover_every_slot_once_and_differ_by_one_at_most() {
        for shards in [1, 2, 3, 5, 6, 7, 10, 1000, SLOT_COUNT] {
            let shares: Vec<SlotRange> = (0..shards)
                .map(|index| SlotRange::share(index, shards).unwrap())
                .collect();
            assert_eq!(SlotSet::of(shares.clone()).count(), SLOT_COUNT);
            assert_eq!(
                shares.iter().map(|share| share.count()).sum::<u32>(),
                SLOT_COUNT
            );
            let sizes = shares.iter().map(|share| share.count());
            assert!(
                sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1,
                "{shards} shards"
            );
        }
        assert_eq!(SlotRange::share(3, 3), None);
        assert_eq!(SlotRange::share(0, SLOT_COUNT + 1), None);
    }

    #[test]
    fn sets_merge_what_touches() {
        assert_eq!(
            set(&[(5, 9), (0, 4), (20, 30), (25, 40)]),
            set(&[(0, 9), (20, 40)])
        );
        assert_eq!(set(&[(0, 4)]).union(&set(&[(3, 9), (11, 11)])).count(), 11);
    }

    #[test]
    fn sets_are_taken_apart() {
        let whole = set(&[(0, 9), (20, 29)]);
        assert_eq!(whole.minus(&set(&[(5, 22)])), set(&[(0, 4), (23, 29)]));
        assert_eq!(whole.minus(&whole), set(&[]));
        assert_eq!(whole.last(12), set(&[(8, 9), (20, 29)]));
        assert_eq!(whole.last(99), whole);
        assert_eq!(whole.last(0), set(&[]));
        assert_eq!(SlotSet::all().count(), SLOT_COUNT);
        assert_eq!(whole.to_string(), "0-9 20-29");
    }

    #[test]
    fn gaps_are_found_at_both_edges_and_between() {
        let range = SlotRange::new(10, 20).unwrap();
        assert_eq!(set(&[]).missing_from(range), set(&[(10, 20)]));
        assert_eq!(set(&[(0, 30)]).missing_from(range), set(&[]));
        assert_eq!(
            set(&[(0, 10), (15, 16), (20, 25)]).missing_from(range),
            set(&[(11, 14), (17, 19)])
        );
    }
}
