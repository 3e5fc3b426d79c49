//! An error with all its causes in one line. Never the place where one is handled.

use std::error::Error;

/// The message and each cause, joined by `: `.
#[must_use]
pub fn of(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    line
}
