//! The keys of one process, by slot.
//! Never expires or evicts any.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::slots::Slots;
use super::slots::of_key;

/// What each key costs beside its name and value, as far as limits are concerned.
const OVERHEAD: u64 = 64;

type Keys = BTreeMap<(u16, Vec<u8>), Vec<u8>>;

/// All keys with their values. A copy costs nothing until one of the two is changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Data {
    keys: Arc<Keys>,
    bytes: u64,
}

impl Data {
    pub(super) fn get(&self, key: &[u8]) -> Option<&Vec<u8>> {
        self.keys.get(&(of_key(key), key.to_vec()))
    }

    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) {
        let old = Arc::make_mut(&mut self.keys).insert((of_key(key), key.to_vec()), value.to_vec());
        if let Some(old) = old {
            self.bytes = self.bytes.saturating_sub(cost(key, &old));
        }
        self.bytes += cost(key, value);
    }

    pub(super) fn delete(&mut self, key: &[u8]) -> bool {
        let old = Arc::make_mut(&mut self.keys).remove(&(of_key(key), key.to_vec()));
        if let Some(old) = &old {
            self.bytes = self.bytes.saturating_sub(cost(key, old));
        }
        old.is_some()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn of_slot(&self, slot: u16) -> impl Iterator<Item = (&(u16, Vec<u8>), &Vec<u8>)> {
        self.keys
            .range((slot, Vec::new())..)
            .take_while(move |((of, _), _)| *of == slot)
    }

    pub(super) fn count(&self, slot: u16) -> usize {
        self.of_slot(slot).count()
    }

    pub(super) fn keys(&self, slot: u16) -> Vec<Vec<u8>> {
        self.of_slot(slot)
            .map(|((_, key), _)| key.clone())
            .collect()
    }

    /// The slots that have keys.
    pub(super) fn slots(&self) -> Vec<u16> {
        self.counts().into_keys().collect()
    }

    pub(super) fn counts(&self) -> BTreeMap<u16, u32> {
        let mut counts: Vec<(u16, u32)> = Vec::new();
        for (slot, _) in self.keys.keys() {
            match counts.last_mut() {
                Some((last, count)) if last == slot => *count += 1,
                Some(_) | None => counts.push((*slot, 1)),
            }
        }
        counts.into_iter().collect()
    }

    /// How many keys are in some slots.
    pub(super) fn count_in(&self, slots: &Slots) -> usize {
        self.keys
            .keys()
            .filter(|(slot, _)| slots.contains(*slot))
            .count()
    }

    /// A copy of what is in some slots.
    pub(super) fn part(&self, slots: &Slots) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.keys
            .iter()
            .filter(|((slot, _), _)| slots.contains(*slot))
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect()
    }
}

fn cost(key: &[u8], value: &[u8]) -> u64 {
    u64::try_from(key.len() + value.len()).unwrap_or(0) + OVERHEAD
}
