//! The names that Valkey gives to nodes, shards, histories and jobs.
//! Never equal for two things, unless one was copied from the other.

use std::fmt;

use super::number::Numbers;

/// 40 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id([u8; 20]);

impl Id {
    /// The name of no history.
    pub(super) const ZERO: Self = Self([0; 20]);

    pub(super) fn random(numbers: &mut Numbers) -> Self {
        Self(numbers.bytes())
    }

    /// What is not 40 hexadecimal digits is no id.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 40 {
            return None;
        }
        let mut bytes = [0; 20];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).ok()?;
            *byte = u8::from_str_radix(pair, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 40];
        for (pair, byte) in text.chunks_mut(2).zip(self.0) {
            let digits = [byte >> 4, byte & 15].map(|half| DIGITS.get(usize::from(half)));
            for (place, digit) in pair.iter_mut().zip(digits) {
                *place = *digit.unwrap_or(&b'?');
            }
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
