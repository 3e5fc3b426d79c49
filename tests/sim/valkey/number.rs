//! Random numbers that are the same on every machine and in every version of every library.
//! Never seeded by anything but its caller.

/// Steele, Lea and Flood's splitmix64.
#[derive(Clone, Debug)]
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of the numbers below the limit, all as likely as matters here. Zero where the limit is zero.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next().checked_rem(limit).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::Numbers;

    #[test]
    fn the_stream_of_a_seed_is_known() {
        let mut numbers = Numbers::new(0);
        assert_eq!(numbers.next(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(numbers.next(), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(numbers.below(0), 0);
        assert!(numbers.below(7) < 7);
    }
}
