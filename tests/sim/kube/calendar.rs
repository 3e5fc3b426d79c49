//! Virtual milliseconds as the timestamps that objects carry.
//! Never asks what time it is.

use super::Millis;

/// The simulation begins at 2026-01-01T00:00:00Z.
const EPOCH_SECONDS: u64 = 1_767_225_600;

/// Seconds since the Unix epoch.
pub(crate) fn unix_seconds(now: Millis) -> u64 {
    EPOCH_SECONDS + now / 1000
}

/// RFC 3339 in whole seconds, as `metav1.Time` is written.
pub(crate) fn stamp(now: Millis) -> String {
    let seconds = unix_seconds(now);
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Days since 1970 as a date (Howard Hinnant, chrono-compatible low-level date algorithms).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}
