//! The fast suite: artifacts and tidiness.
#![expect(clippy::expect_used, clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod artifacts;
mod tidy;
