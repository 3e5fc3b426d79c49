//! What is to happen later, in the order of time; of one moment, in the order in which it was filed.
//! Never loses one of two for the same moment.

use std::collections::BTreeMap;

use crate::plan::Millis;

/// Things to do, each with its time.
#[derive(Debug)]
pub(crate) struct Agenda<T> {
    entries: BTreeMap<(Millis, u64), T>,
    filed: u64,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            filed: 0,
        }
    }
}

impl<T> Agenda<T> {
    /// This is to be done then.
    pub(crate) fn file(&mut self, at: Millis, what: T) {
        self.filed += 1;
        self.entries.insert((at, self.filed), what);
    }

    /// When there is something to do next.
    pub(crate) fn next(&self) -> Option<Millis> {
        self.entries.keys().next().map(|(at, _)| *at)
    }

    /// The first that is due by now.
    pub(crate) fn take(&mut self, now: Millis) -> Option<T> {
        let first = self.entries.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Nothing of it is to be done.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::Agenda;

    #[test]
    fn two_things_of_one_moment_are_both_done() {
        let mut agenda = Agenda::default();
        for (at, what) in [(5, "a"), (10, "b")] {
            agenda.file(at, what);
        }
        assert_eq!((agenda.next(), agenda.take(4)), (Some(5), None));
        assert_eq!(agenda.take(5), Some("a"));
        agenda.file(10, "c");
        assert_eq!(
            [agenda.take(10), agenda.take(10), agenda.take(10)],
            [Some("b"), Some("c"), None]
        );
    }
}
