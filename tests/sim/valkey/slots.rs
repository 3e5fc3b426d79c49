//! Sets of hash slots, and the slot of a key.
//! Never holds a slot past 16383.

use std::fmt::Write as _;

/// How many slots there are.
pub(super) const COUNT: u16 = 16384;

const WORDS: usize = COUNT as usize / 64;

/// Some of the slots, a bit for each.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Slots {
    words: [u64; WORDS],
}

impl Default for Slots {
    fn default() -> Self {
        Self { words: [0; WORDS] }
    }
}

impl std::fmt::Debug for Slots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text())
    }
}

impl Slots {
    pub(super) fn of(ranges: impl IntoIterator<Item = (u16, u16)>) -> Self {
        let mut slots = Self::default();
        for (start, end) in ranges {
            for slot in start..=end {
                slots.insert(slot);
            }
        }
        slots
    }

    pub(super) fn contains(&self, slot: u16) -> bool {
        self.words
            .get(usize::from(slot / 64))
            .is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    pub(super) fn insert(&mut self, slot: u16) {
        if let Some(word) = self.words.get_mut(usize::from(slot / 64)) {
            *word |= 1 << (slot % 64);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    pub(super) fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    pub(super) fn first(&self) -> Option<u16> {
        self.iter().next()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (0..).zip(&self.words).flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit: u16 = rest.trailing_zeros().try_into().ok()?;
                rest &= rest.checked_sub(1)?;
                Some(index * 64 + bit)
            })
        })
    }

    /// As inclusive ranges, in order. Whole words are passed at once: sets are mostly few long ranges.
    pub(super) fn ranges(&self) -> Vec<(u16, u16)> {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for (base, word) in (0..).step_by(64).zip(&self.words) {
            let mut rest = *word;
            let mut at = base;
            while rest != 0 {
                let gap = rest.trailing_zeros();
                rest >>= gap;
                let run = rest.trailing_ones();
                rest = rest.checked_shr(run).unwrap_or(0);
                // At most 64 each.
                let [gap, run] = [gap, run].map(|bits| u16::try_from(bits).unwrap_or(0));
                let start = at + gap;
                at = start + run;
                match ranges.last_mut() {
                    Some((_, end)) if *end + 1 == start => *end = at - 1,
                    _ => ranges.push((start, at - 1)),
                }
            }
        }
        ranges
    }

    /// As `0-5 7`.
    pub(super) fn text(&self) -> String {
        text(&self.ranges())
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    pub(super) fn or(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    pub(super) fn without(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }

    pub(super) fn meets(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    fn zip(&self, other: &Self, join: impl Fn(u64, u64) -> u64) -> Self {
        let mut joined = self.clone();
        for (word, with) in joined.words.iter_mut().zip(&other.words) {
            *word = join(*word, *with);
        }
        joined
    }
}

/// Ranges in the words of CLUSTER NODES.
pub(super) fn text(ranges: &[(u16, u16)]) -> String {
    let mut text = String::new();
    for (start, end) in ranges {
        if !text.is_empty() {
            text.push(' ');
        }
        // Writing to a String cannot fail.
        if start == end {
            write!(text, "{start}").ok();
        } else {
            write!(text, "{start}-{end}").ok();
        }
    }
    text
}

/// The slot of a key: of what is between its first `{` and the next `}`, if that is anything (`keyHashSlot` in
/// cluster.c).
pub(crate) fn of_key(key: &[u8]) -> u16 {
    let tag = || {
        let open = key.iter().position(|byte| *byte == b'{')?;
        let rest = key.get(open + 1..)?;
        let close = rest.iter().position(|byte| *byte == b'}')?;
        rest.get(..close).filter(|tag| !tag.is_empty())
    };
    crc16(tag().unwrap_or(key)) % COUNT
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc: u16, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                crc << 1 ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::Slots;
    use super::of_key;

    #[test]
    fn ranges_come_back() {
        let ranges = vec![
            (0, 5460),
            (5462, 5462),
            (6000, 6063),
            (6080, 6143),
            (16000, 16383),
        ];
        let slots = Slots::of(ranges.clone());
        assert_eq!(slots.ranges(), ranges);
        assert_eq!(slots.count(), 5461 + 1 + 64 + 64 + 384);
        assert_eq!(slots.text(), "0-5460 5462 6000-6063 6080-6143 16000-16383");
        let whole = Slots::of([(0, 16383)]);
        assert_eq!(whole.ranges(), [(0, 16383)]);
        assert!(slots.without(&slots).is_empty());
        assert!(slots.meets(&Slots::of([(5460, 5461)])));
        assert_eq!(slots.first(), Some(0));
    }

    #[test]
    fn a_key_has_its_slot() {
        assert_eq!(of_key(b"foo"), 12182);
        assert_eq!(of_key(b"{foo}bar"), 12182);
        assert_eq!(of_key(b"123456789"), 0x31c3);
    }
}
