//! The names that Valkey gives to nodes, shards, histories and jobs.
//! Never equal for two things, unless one was copied from the other.

use std::fmt;

use super::number::Numbers;

/// 40 hexadecimal digits, as numbers: they are compared all the time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id(u64, u64, u32);

impl Id {
    /// The name of no history.
    pub(super) const ZERO: Self = Self(0, 0, 0);

    pub(super) fn random(numbers: &mut Numbers) -> Self {
        let [_, _, _, _, last @ ..] = numbers.next().to_be_bytes();
        Self(numbers.next(), numbers.next(), u32::from_be_bytes(last))
    }

    /// What is not 40 hexadecimal digits is no id.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let part = |range| u64::from_str_radix(text.get(range)?, 16).ok();
        let last = part(32..40).filter(|_| digits)?;
        Some(Self(part(0..16)?, part(16..32)?, u32::try_from(last).ok()?))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Written all the time, and the formatting of numbers is slow.
        let halves = [self.0.to_be_bytes(), self.1.to_be_bytes()];
        let last = self.2.to_be_bytes();
        let bytes = halves.as_flattened().iter().chain(&last);
        let mut text = [0; 40];
        for (digits, byte) in text.chunks_exact_mut(2).zip(bytes) {
            digits.copy_from_slice(&[byte >> 4, byte & 15].map(digit));
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

fn digit(number: u8) -> u8 {
    match number {
        0..=9 => b'0' + number,
        _ => b'a' + (number - 10),
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Id;

    #[test]
    fn ids_come_back_and_keep_their_order() {
        let texts = [
            "00000000000000010000000000000000000000ff",
            "0f00000000000000ffffffffffffffff00000000",
            "ff00000000000000000000000000000000000001",
        ];
        let ids = texts.map(|text| Id::parse(text).unwrap());
        assert_eq!(ids.map(|id| id.to_string()), texts);
        assert!(ids.is_sorted());
        assert_eq!(Id::parse("+0000000000000010000000000000000000000ff"), None);
    }
}
