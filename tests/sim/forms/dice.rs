//! What the forms draw from a seed.
//! Never draws from anywhere else.

use crate::kube::rng::Rng;

/// The stream of one seed.
pub(super) struct Dice(Rng);

impl Dice {
    /// A new stream.
    pub(super) fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    /// The next number.
    pub(super) fn next(&mut self) -> u64 {
        self.0.draw()
    }

    /// One of `0..count`; the bias of a remainder does no harm here.
    pub(super) fn below(&mut self, count: usize) -> usize {
        let count = u64::try_from(count.max(1)).expect("a usize is at most 64 bits");
        usize::try_from(self.next() % count).expect("below a usize")
    }

    /// One of `from..=to`.
    pub(super) fn between(&mut self, from: usize, to: usize) -> usize {
        from + self.below(to - from + 1)
    }

    /// True once in `times`.
    pub(super) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub(super) fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// A number below 2^32.
    pub(super) fn small(&mut self) -> u32 {
        u32::try_from(self.next() >> 32).expect("32 bits")
    }

    /// Text of characters from a list.
    pub(super) fn text(&mut self, alphabet: &[char], from: usize, to: usize) -> String {
        let length = self.between(from, to);
        (0..length).map(|_| *self.of(alphabet)).collect()
    }

    /// Some of these, in their order.
    pub(super) fn some<T: Clone>(&mut self, choices: &[T], once_in: usize) -> Vec<T> {
        choices
            .iter()
            .filter(|_| self.once_in(once_in))
            .cloned()
            .collect()
    }
}

/// The characters of a text, to draw from.
pub(super) fn alphabet(text: &str) -> Vec<char> {
    text.chars().collect()
}
