//! Testbed.
fn main() {}
