//! The operator process.
fn main() {}
