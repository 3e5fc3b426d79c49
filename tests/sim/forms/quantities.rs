//! Kubernetes quantities: every spelling has the value that exact arithmetic gives it.
//! Never a quantity beyond what 128 bits hold: of those only the cap is asked.

use operator::model::quantity::Amount;

use super::dice::Dice;
use super::dice::alphabet;
use super::hold;
use super::same;

/// Billionths of a unit in each suffix: factor and power of ten.
const SUFFIXES: [(&str, i128); 16] = [
    ("n", 1),
    ("u", 1_000),
    ("m", 1_000_000),
    ("", 1_000_000_000),
    ("k", 1_000_000_000_000),
    ("M", 1_000_000_000_000_000),
    ("G", 1_000_000_000_000_000_000),
    ("T", 1_000_000_000_000_000_000_000),
    ("P", 1_000_000_000_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000_000_000_000),
    ("Ki", 1_000_000_000 << 10),
    ("Mi", 1_000_000_000 << 20),
    ("Gi", 1_000_000_000 << 30),
    ("Ti", 1_000_000_000 << 40),
    ("Pi", 1_000_000_000 << 50),
    ("Ei", 1_000_000_000 << 60),
];

/// Kubernetes caps a quantity here.
const CAP: i128 = i64::MAX as i128 * 1_000_000_000;

pub(super) fn form(dice: &mut Dice) -> Result<(), String> {
    match dice.below(4) {
        0 => noise(dice),
        1 => order(dice),
        _ => value(dice),
    }
}

/// A decimal number with a suffix, against integers.
fn drawn(dice: &mut Dice) -> (String, i128) {
    let digits = dice.between(1, 8);
    let number = i128::from(dice.next()) % 10_i128.pow(u32::try_from(digits).expect("small"));
    let places = if dice.once_in(2) { dice.below(7) } else { 0 };
    let tens = 10_i128.pow(u32::try_from(places).expect("small"));
    let decimal = match places {
        0 => number.to_string(),
        _ => format!("{}.{:0places$}", number / tens, number % tens),
    };
    if dice.once_in(5) {
        // An exponent in the place of a suffix.
        let power = u32::try_from(dice.below(7)).expect("small");
        let (sign, nanos) = if dice.once_in(2) {
            (
                "-",
                rounded_up(number * 1_000_000_000, tens * 10_i128.pow(power)),
            )
        } else {
            (
                "",
                rounded_up(number * 1_000_000_000 * 10_i128.pow(power), tens),
            )
        };
        let e = dice.of(&["e", "E"]);
        return (format!("{decimal}{e}{sign}{power}"), nanos);
    }
    let (suffix, factor) = *dice.of(&SUFFIXES);
    (
        format!("{decimal}{suffix}"),
        rounded_up(number * factor, tens).min(CAP),
    )
}

/// Anything finer than a billionth is one more billionth.
fn rounded_up(number: i128, by: i128) -> i128 {
    number / by + i128::from(number % by != 0)
}

fn parsed(text: &str) -> Result<Amount, String> {
    Amount::parse(text).ok_or_else(|| format!("{text:?} is not read"))
}

fn value(dice: &mut Dice) -> Result<(), String> {
    let (text, nanos) = drawn(dice);
    let amount = parsed(&text)?;
    same(&text, &amount, &parsed(&format!("{nanos}n"))?)?;
    same(&text, &parsed(&format!("+{text}"))?, &amount)?;
    same(&text, &parsed(&format!("00{text}"))?, &amount)?;
    hold(nanos == 0 || parsed(&format!("-{text}"))? < amount, || {
        format!("-{text} is not less")
    })?;
    let percent = *dice.of(&[0, 1, 33, 50, 75, 99, 100, 255]);
    let units = nanos * i128::from(percent) / 100 / 1_000_000_000;
    let wish = u64::try_from(units).ok().filter(|units| *units > 0);
    same(
        &format!("{percent} % of {text}"),
        &amount.percent(percent),
        &wish,
    )
}

fn order(dice: &mut Dice) -> Result<(), String> {
    let ((left, less), (right, more)) = (drawn(dice), drawn(dice));
    let found = parsed(&left)?.cmp(&parsed(&right)?);
    same(
        &format!("{left} beside {right}"),
        &found,
        &less.min(CAP).cmp(&more.min(CAP)),
    )
}

/// Text that is mostly no quantity: read exactly where the grammar takes it.
fn noise(dice: &mut Dice) -> Result<(), String> {
    let text = dice.text(&alphabet("0123456789..eE+-kKmMGTPinu _xä"), 0, 9);
    let wish = is_quantity(&text);
    hold(Amount::parse(&text).is_some() == wish, || {
        format!("{text:?} is {} a quantity", if wish { "" } else { "not" })
    })
}

/// The grammar of apimachinery's `resource.Quantity`, letter by letter.
fn is_quantity(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let tail = unsigned.trim_start_matches(|c: char| c.is_ascii_digit());
    let whole = unsigned.len() - tail.len();
    let (fraction, tail) = match tail.strip_prefix('.') {
        None => (0, tail),
        Some(after) => {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
            (after.len() - rest.len(), rest)
        }
    };
    if whole + fraction == 0 {
        return false;
    }
    if SUFFIXES.iter().any(|(suffix, _)| *suffix == tail) {
        return true;
    }
    let Some(exponent) = tail.strip_prefix(['e', 'E']) else {
        return false;
    };
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}
