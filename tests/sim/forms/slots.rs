//! Slot arithmetic against a plain map of 16384 yeses and noes. Never faster than it.

use operator::model::slots::SLOT_COUNT;
use operator::model::slots::SlotRange;
use operator::model::slots::SlotSet;

use super::dice::Dice;
use super::hold;
use super::same;

/// The plain map.
type Bits = Vec<bool>;

pub(super) fn form(dice: &mut Dice) -> Result<(), String> {
    let (left, right) = (ranges(dice), ranges(dice));
    let (set, other) = (SlotSet::of(left.clone()), SlotSet::of(right.clone()));
    let (bits, others) = (plain(&left), plain(&right));
    agrees("the set", &set, &bits)?;
    let both: Bits = bits.iter().zip(&others).map(|(a, b)| *a || *b).collect();
    agrees("the union", &set.union(&other), &both)?;
    let range = range(dice);
    let span = plain(&[range]);
    let missing: Bits = span.iter().zip(&bits).map(|(a, b)| *a && !*b).collect();
    agrees("the gaps", &set.missing_from(range), &missing)?;
    share(dice)
}

/// A set is its slots, as sorted ranges that neither touch nor overlap.
fn agrees(what: &str, set: &SlotSet, wish: &Bits) -> Result<(), String> {
    same(what, &plain(set.ranges()), wish)?;
    let count = wish.iter().map(|bit| u32::from(*bit)).sum::<u32>();
    same(what, &(set.count(), set.is_empty()), &(count, count == 0))?;
    let apart = set
        .ranges()
        .windows(2)
        .all(|pair| pair[0].end() + 1 < pair[1].start());
    hold(apart, || {
        format!("{what} has ranges that touch: {:?}", set.ranges())
    })
}

/// Shares are whole, apart and even.
fn share(dice: &mut Dice) -> Result<(), String> {
    let shards = match dice.below(3) {
        0 => 1 + dice.small() % 8,
        1 => 1 + dice.small() % SLOT_COUNT,
        _ => dice.small(),
    };
    let index = if dice.once_in(4) {
        dice.small()
    } else {
        dice.small() % shards.max(1)
    };
    let found = SlotRange::share(index, shards).map(|share| (share.start(), share.end() + 1));
    let (at, of) = (u64::from(index), u64::from(shards));
    let wish = (index < shards)
        .then(|| (16384 * at / of, 16384 * (at + 1) / of))
        .filter(|(start, end)| start < end)
        .map(|(start, end)| {
            (
                u32::try_from(start).expect("small"),
                u32::try_from(end).expect("small"),
            )
        });
    // Beyond one slot a shard, no share is as good as none.
    if shards > SLOT_COUNT && found.is_none() {
        return Ok(());
    }
    same(&format!("share {index} of {shards}"), &found, &wish)
}

fn plain(ranges: &[SlotRange]) -> Bits {
    let mut bits = vec![false; 16384];
    for range in ranges {
        let index = |slot: u32| usize::try_from(slot).expect("small");
        bits[index(range.start())..=index(range.end())].fill(true);
    }
    bits
}

fn ranges(dice: &mut Dice) -> Vec<SlotRange> {
    (0..dice.below(12)).map(|_| range(dice)).collect()
}

fn range(dice: &mut Dice) -> SlotRange {
    let edge = *dice.of(&[0, 1, 16382, 16383]);
    let start = if dice.once_in(6) {
        edge
    } else {
        dice.small() % 16384
    };
    let length = if dice.once_in(3) {
        dice.small() % 16384
    } else {
        dice.small() % 40
    };
    SlotRange::new(start, (start + length).min(16383)).expect("within")
}
