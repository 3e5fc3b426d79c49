//! The model held to what is known of Valkey 9.1: facts, one test for each that matters.
//! Never a real process: those are compared elsewhere.

mod data;
mod faults;
mod membership;
mod migration;
mod outages;
mod replication;
mod settings;
mod speed;
mod stage;
