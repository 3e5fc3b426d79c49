//! The fast suite: artifacts and tidiness.
#![expect(clippy::expect_used, reason = "tests")]

mod artifacts;
mod tidy;
mod wire;
