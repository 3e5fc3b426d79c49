//! An error with all its causes in one line. Never the place where one is handled.

use std::error::Error;

/// The message and each cause, joined by `: `. What an error quotes of its cause is said once: some append all of it
/// in the form for programmers.
#[must_use]
pub fn of(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let told = error.to_string();
        if let Some(end) = quoted_until(&line, &told) {
            line.truncate(end);
        } else {
            line.push_str(": ");
            line.push_str(&told);
        }
        cause = error.source();
    }
    line
}

/// Where a quote of the cause ends, if the line ends with one: a word of it by chance is none.
fn quoted_until(line: &str, cause: &str) -> Option<usize> {
    let end = line.rfind(cause)? + cause.len();
    let rest = line.get(end..)?;
    let is_quote = !cause.is_empty() && (rest.is_empty() || rest.starts_with(" ("));
    is_quote.then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Told(String, #[source] Option<Box<Told>>);

    #[test]
    fn a_cause_that_is_quoted_is_said_once() {
        let chain = |words: &[&str]| {
            let mut cause = None;
            for word in words.iter().rev() {
                cause = Some(Box::new(Told((*word).to_owned(), cause)));
            }
            of(&cause.unwrap())
        };
        assert_eq!(chain(&["failed to act", "no"]), "failed to act: no");
        let quoting = [
            "failed",
            "ApiError: no pods (Status { code: 403 })",
            "no pods",
        ];
        assert_eq!(chain(&quoting), "failed: ApiError: no pods");
        let by_chance = ["failed to read \"timeout-test\" (Pod)", "timeout"];
        assert_eq!(
            chain(&by_chance),
            "failed to read \"timeout-test\" (Pod): timeout"
        );
        let also_quoted = [
            "failed to read \"timeout-test\": timeout (Elapsed)",
            "timeout",
        ];
        assert_eq!(
            chain(&also_quoted),
            "failed to read \"timeout-test\": timeout"
        );
    }
}
