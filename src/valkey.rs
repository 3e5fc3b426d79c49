//! Speaks to Valkey processes: connections, the few commands that are used, replies as values.
//! Never knows what a cluster should be.

pub mod client;
pub mod command;
pub mod parse;
