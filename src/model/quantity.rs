//! Kubernetes quantities by value: `1000m` is `1`, `1Gi` is `1073741824`.
//! Never keeps the text, never fails loudly: what is no quantity is nothing.

/// Parts of one unit. Kubernetes rounds anything finer up to the next of them.
const NANOS: i128 = 1_000_000_000;

/// Kubernetes caps a quantity here (`maxAllowed` in apimachinery's `resource` package).
const UNITS_MAX: i128 = i64::MAX as i128;

/// Digits after the point that are read at all.
const FRACTION_DIGITS_MAX: usize = 18;

/// What a quantity is worth, in billionths of its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(i128);

impl Amount {
    /// Reads a quantity: a decimal number, then a suffix (`n` `u` `m` `k` `M` `G` `T` `P` `E`, `Ki` to `Ei`) or a
    /// decimal exponent (`e3`, `E-3`).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let number_end = unsigned
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at_checked(number_end)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let nanos = scaled(whole, fraction, Scale::of(suffix)?);
        Some(Self(if negative { -nanos } else { nanos }))
    }

    /// The greatest whole number of units that is at most `percent` hundredths of the amount; nothing where that
    /// is less than one unit.
    #[must_use]
    pub fn percent(self, percent: u8) -> Option<u64> {
        // 128 bits hold the capped amount a hundred times over.
        let units = self
            .0
            .checked_mul(i128::from(percent))?
            .checked_div(100 * NANOS)?;
        u64::try_from(units).ok().filter(|units| *units > 0)
    }
}

/// What a suffix multiplies by.
#[derive(Clone, Copy)]
enum Scale {
    /// A power of ten.
    Ten(i32),
    /// A power of 1024.
    Kibi(u32),
}

impl Scale {
    /// The scale that a suffix names.
    fn of(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "n" => Self::Ten(-9),
            "u" => Self::Ten(-6),
            "m" => Self::Ten(-3),
            "" => Self::Ten(0),
            "k" => Self::Ten(3),
            "M" => Self::Ten(6),
            "G" => Self::Ten(9),
            "T" => Self::Ten(12),
            "P" => Self::Ten(15),
            "E" => Self::Ten(18),
            "Ki" => Self::Kibi(1),
            "Mi" => Self::Kibi(2),
            "Gi" => Self::Kibi(3),
            "Ti" => Self::Kibi(4),
            "Pi" => Self::Kibi(5),
            "Ei" => Self::Kibi(6),
            exponent => Self::Ten(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
        })
    }
}

/// `whole.fraction` times the scale in billionths, rounded up and capped.
fn scaled(whole: &str, fraction: &str, scale: Scale) -> i128 {
    let cap = UNITS_MAX * NANOS;
    // More digits than this cannot be told from a rounding by a billionth, even times 1024^6.
    let kept = fraction.get(..FRACTION_DIGITS_MAX).unwrap_or(fraction);
    let Ok(number) = format!("0{whole}{kept}").parse::<i128>() else {
        return cap;
    };
    let (factor, exponent) = match scale {
        Scale::Ten(exponent) => (1, exponent),
        Scale::Kibi(power) => (1024_i128.pow(power), 0),
    };
    // What turns the digits, read as one whole number, into billionths.
    let digits = i32::try_from(kept.len()).unwrap_or(i32::MAX);
    let power = 9_i32.saturating_sub(digits).saturating_add(exponent);
    let Some(number) = number.checked_mul(factor) else {
        return cap;
    };
    match 10_i128.checked_pow(power.unsigned_abs()) {
        Some(ten) if power >= 0 => number.saturating_mul(ten).min(cap),
        Some(ten) => (number / ten + i128::from(number % ten != 0)).min(cap),
        // Beyond every number that is not 0.
        None if number == 0 => 0,
        None if power >= 0 => cap,
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::Amount;

    fn nanos(text: &str) -> Option<i128> {
        Amount::parse(text).map(|amount| amount.0)
    }

    #[test]
    fn spellings_of_one_value_are_equal() {
        for (left, right) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("5.", "5"),
            ("1Ki", "1024"),
            ("1Mi", "1024Ki"),
            ("1Gi", "1073741824"),
            ("1.5Gi", "1536Mi"),
            ("1Ti", "1024Gi"),
            ("1Pi", "1024Ti"),
            ("1Ei", "1024Pi"),
            ("1k", "1000"),
            ("1M", "1e6"),
            ("1G", "1E9"),
            ("1T", "1e+12"),
            ("1P", "1000T"),
            ("1E", "1000P"),
            ("1500u", "1.5m"),
            ("1000n", "1u"),
            ("25e-1", "2.5"),
            ("+4", "4"),
            ("-4", "-4000m"),
            ("007", "7"),
            ("0.1n", "1n"),
            ("0.0000000000000000000001", "0"),
            ("1e30", "9223372036854775807"),
            ("1e999999999", "9223372036854775807"),
            (
                "99999999999999999999999999999999999999999999",
                "9223372036854775807",
            ),
            ("0e999999999", "0"),
            ("0e-999999999", "0"),
            ("1e-999999999", "1n"),
        ] {
            assert_eq!(nanos(left), nanos(right), "{left} and {right}");
            assert!(nanos(left).is_some(), "{left}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_nothing() {
        for text in [
            "",
            ".",
            "-",
            "+",
            "Gi",
            "1g",
            "1KI",
            "1ki",
            "1K",
            "1 Gi",
            " 1",
            "1 ",
            "1.2.3",
            "1e",
            "1e1.5",
            "--1",
            "0x10",
            "1_000",
            "1,5",
            "NaN",
            "inf",
            "1GiB",
            "1B",
            "ä",
            "1ä",
            "1e99999999999",
        ] {
            assert_eq!(nanos(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_percentage_is_whole_units_below() {
        for (text, percent, units) in [
            ("1Gi", 75, Some(805_306_368)),
            ("4", 75, Some(3)),
            ("3", 75, Some(2)),
            ("1500m", 75, Some(1)),
            ("1", 75, None),
            ("0", 75, None),
            ("-1Gi", 75, None),
            ("1e30", 100, Some(9_223_372_036_854_775_807)),
        ] {
            assert_eq!(
                Amount::parse(text).and_then(|a| a.percent(percent)),
                units,
                "{text}"
            );
        }
    }
}
