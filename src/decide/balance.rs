//! The arithmetic of balance: who should own how many slots, and which batch moves next.
//! Never moves anything and never asks who answers: counts in, a plan out.

use std::collections::BTreeMap;

use crate::model::name::{NodeName, ShardIndex};
use crate::model::slots::SLOT_COUNT;
use crate::model::topology::{Load, Migration, MigrationState, NodeView};
use crate::model::why::Why;

/// Keys that one batch moves: at its end the source deletes them in its main thread, about a tenth
/// of a second for as many.
const BATCH_KEYS_MAX: u64 = 50_000;
/// Bytes that one batch moves: about half a second on an idle machine.
const BATCH_BYTES_MAX: u64 = 50 << 20;
/// The longest pause after migrations that fail again and again.
const PAUSE_SECONDS_MAX: i64 = 60;

/// What each shard that stays should own: equal shares, one slot apart at most; who has most already
/// gets the odd ones, so that as little moves as can be.
pub(super) fn shares(have: &BTreeMap<ShardIndex, u32>) -> BTreeMap<ShardIndex, u32> {
    let shards = u32::try_from(have.len()).unwrap_or(u32::MAX).max(1);
    let (share, odd) = (SLOT_COUNT / shards, SLOT_COUNT % shards);
    let mut ranked: Vec<(ShardIndex, u32)> =
        have.iter().map(|(index, slots)| (*index, *slots)).collect();
    ranked.sort_by_key(|&(index, slots)| (std::cmp::Reverse(slots), index));
    let ranks = ranked.into_iter().zip(0..);
    ranks
        .map(|((index, _), rank)| (index, share + u32::from(rank < odd)))
        .collect()
}

/// How many slots of a source may move at once. Empty ones cost nothing and go together.
pub(super) fn batch(load: Load, slots: u32, failures: u32) -> u32 {
    let of = |limit: u64, held: u64| {
        if held == 0 {
            return u64::from(slots);
        }
        let part = u128::from(slots) * u128::from(limit) / u128::from(held);
        u64::try_from(part).unwrap_or(u64::MAX)
    };
    let most = if load.keys == 0 {
        u64::from(slots)
    } else {
        of(BATCH_KEYS_MAX, load.keys).min(of(BATCH_BYTES_MAX, load.data_bytes))
    };
    let halved = most.min(u64::from(slots)) >> failures.min(32);
    u32::try_from(halved).unwrap_or(u32::MAX).max(1)
}

/// How often in a row migrations of a source failed; while the pause after the last one is not over, that.
pub(super) fn failures(source: &NodeName, view: &NodeView) -> Result<u32, Why> {
    let failed = |job: &&Migration| job.state == MigrationState::Failed;
    let ended = view
        .migrations
        .iter()
        .filter(|job| job.outgoing && job.state != MigrationState::Running);
    let Some(newest) = ended.clone().next().filter(failed) else {
        return Ok(0);
    };
    let failures = u32::try_from(ended.take_while(failed).count()).unwrap_or(u32::MAX);
    let pause = 1_i64
        .checked_shl(failures.min(16))
        .unwrap_or(PAUSE_SECONDS_MAX);
    if view.clock >= newest.updated + pause.min(PAUSE_SECONDS_MAX) {
        return Ok(failures);
    }
    Err(Why::MigrationFailed {
        source: source.clone(),
        failures,
        message: newest.message.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares_of(have: &[u32]) -> Vec<u32> {
        let have = (0..).map(ShardIndex).zip(have.iter().copied()).collect();
        shares(&have).into_values().collect()
    }

    #[test]
    fn shares_differ_by_one_and_move_little() {
        assert_eq!(shares_of(&[16384]), [16384]);
        assert_eq!(shares_of(&[5461, 5462, 5461]), [5461, 5462, 5461]);
        assert_eq!(shares_of(&[5461, 5461, 5462, 0]), [4096; 4]);
        assert_eq!(shares_of(&[0, 16384, 0]), [5461, 5462, 5461]);
        for shards in 1..40 {
            let shares = shares_of(&vec![7; shards]);
            assert_eq!(shares.iter().sum::<u32>(), SLOT_COUNT);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(most - least <= 1);
        }
    }

    #[test]
    fn batches_are_sized_by_keys_and_bytes_and_halved_by_failures() {
        let load = |keys, data_bytes| Load {
            keys,
            data_bytes,
            ..Load::default()
        };
        assert_eq!(batch(load(0, 60 << 20), 5461, 0), 5461);
        assert_eq!(batch(load(20_000, 5 << 20), 5461, 0), 5461);
        assert_eq!(batch(load(500_000, 100 << 20), 5000, 0), 500);
        assert_eq!(batch(load(500_000, 1000 << 20), 5000, 0), 250);
        assert_eq!(batch(load(500_000, 1000 << 20), 5000, 2), 62);
        assert_eq!(batch(load(500_000, 1000 << 20), 5000, 99), 1);
        assert_eq!(batch(load(u64::MAX, u64::MAX), 1, 0), 1);
    }
}
