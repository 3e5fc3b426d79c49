//! The addresses of pods, and who gets which again when.
//! Never gives an address to two pods at once.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// Which of the free addresses a new pod gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// The one after the last given (`host-local`): one that was freed comes back late.
    #[default]
    RoundRobin,
    /// The lowest: one that was freed comes back at once (fault F23).
    Lowest,
}

/// The addresses of a cluster's pods.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) size: u32,
    pub(super) reuse: Reuse,
    taken: BTreeSet<u32>,
    last: u32,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            size: 4096,
            reuse: Reuse::default(),
            taken: BTreeSet::new(),
            last: 0,
        }
    }
}

/// 10.244.0.0.
const BASE: u32 = 0x0af4_0000;

impl Pool {
    /// An address; nothing if all are taken.
    pub(super) fn take(&mut self) -> Option<Ipv4Addr> {
        let after = match self.reuse {
            Reuse::RoundRobin => self.last,
            Reuse::Lowest => 0,
        };
        let mut candidates = (after + 1..=self.size).chain(1..=after.min(self.size));
        let free = candidates.find(|number| !self.taken.contains(number))?;
        self.taken.insert(free);
        self.last = free;
        Some(Ipv4Addr::from(BASE + free))
    }

    /// Gives an address back.
    pub(super) fn free(&mut self, address: Ipv4Addr) {
        self.taken.remove(&u32::from(address).wrapping_sub(BASE));
    }
}
