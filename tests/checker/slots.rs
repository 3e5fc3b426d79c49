//! Sets of hash slots, as sorted ranges. Never the operator's own arithmetic: it is one of the things
//! that are checked.

use std::fmt;

/// All there are.
pub(crate) const SLOTS: u32 = 16384;

/// A set of slots: ascending ranges, both ends in, that neither touch nor overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slots(Vec<(u16, u16)>);

impl Slots {
    /// The set of all slots of these ranges, in any order. A range that ends before it begins is empty.
    pub(crate) fn of(ranges: impl IntoIterator<Item = (u16, u16)>) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().filter(|(a, b)| a <= b).collect();
        ranges.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
        for (start, end) in ranges {
            match merged.last_mut() {
                Some(last) if u32::from(start) <= u32::from(last.1) + 1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        Self(merged)
    }

    /// Every slot.
    pub(crate) fn all() -> Self {
        Self(vec![(0, 16383)])
    }

    /// The ranges, ascending.
    pub(crate) fn ranges(&self) -> &[(u16, u16)] {
        &self.0
    }

    /// How many.
    pub(crate) fn len(&self) -> u32 {
        let sizes = self.0.iter().map(|(a, b)| u32::from(b - a) + 1);
        sizes.sum()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it has this one.
    pub(crate) fn has(&self, slot: u16) -> bool {
        self.0.iter().any(|&(a, b)| (a..=b).contains(&slot))
    }

    /// What both have.
    pub(crate) fn common(&self, other: &Self) -> Self {
        let pairs = self
            .0
            .iter()
            .flat_map(|&(a, b)| other.0.iter().map(move |&(c, d)| (a.max(c), b.min(d))));
        Self::of(pairs)
    }

    /// Whether both have one.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let mut pairs = self
            .0
            .iter()
            .flat_map(|a| other.0.iter().map(move |b| (a, b)));
        pairs.any(|(a, b)| a.0 <= b.1 && b.0 <= a.1)
    }

    /// What either has.
    pub(crate) fn with(&self, other: &Self) -> Self {
        Self::of(self.0.iter().chain(&other.0).copied())
    }

    /// What this one has and the other has not.
    pub(crate) fn without(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        for &(start, end) in &self.0 {
            let mut next = u32::from(start);
            for &(a, b) in other.0.iter().filter(|&&(a, b)| a <= end && b >= start) {
                if u32::from(a) > next {
                    left.push((next, u32::from(a) - 1));
                }
                next = u32::from(b) + 1;
            }
            if next <= u32::from(end) {
                left.push((next, u32::from(end)));
            }
        }
        let narrow = |slot: u32| u16::try_from(slot).unwrap_or(u16::MAX);
        Self::of(left.into_iter().map(|(a, b)| (narrow(a), narrow(b))))
    }

    /// The slots of a command's arguments: pairs of first and last.
    pub(crate) fn of_pairs(words: &[String]) -> Self {
        let numbers: Vec<u16> = words.iter().filter_map(|word| word.parse().ok()).collect();
        let pairs = numbers.chunks_exact(2);
        Self::of(pairs.filter_map(|pair| Some((*pair.first()?, *pair.last()?))))
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (start, end)) in self.0.iter().enumerate() {
            let gap = if index > 0 { " " } else { "" };
            if start == end {
                write!(formatter, "{gap}{start}")?;
            } else {
                write!(formatter, "{gap}{start}-{end}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Slots;

    #[test]
    fn sets_are_cut_and_joined() {
        let set = |ranges: &[(u16, u16)]| Slots::of(ranges.iter().copied());
        assert_eq!(set(&[(5, 9), (0, 4), (20, 30)]), set(&[(0, 9), (20, 30)]));
        let (left, right) = (set(&[(0, 9), (20, 30)]), set(&[(5, 21), (30, 40)]));
        assert_eq!(left.common(&right), set(&[(5, 9), (20, 21), (30, 30)]));
        assert_eq!(left.without(&right), set(&[(0, 4), (22, 29)]));
        assert_eq!(left.with(&right).len(), 41);
        assert!(left.meets(&right) && !left.meets(&set(&[(10, 19)])));
        assert_eq!(Slots::all().without(&set(&[])), Slots::all());
        assert_eq!(Slots::all().without(&set(&[(1, 16383)])), set(&[(0, 0)]));
        assert_eq!(left.to_string(), "0-9 20-30");
    }
}
