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
        match line.find(&told) {
            Some(at) if !told.is_empty() => line.truncate(at + told.len()),
            Some(_) | None => {
                line.push_str(": ");
                line.push_str(&told);
            }
        }
        cause = error.source();
    }
    line
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
    }
}
