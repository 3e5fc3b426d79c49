//! A Kubernetes operator that turns a ten-line `ValkeyCluster` into a sharded, replicated, secured
//! in-memory Valkey cluster.
//!
//! Four rooms in a row and one beside: `observe` reads the world, `resolve` works out what is
//! wanted, `decide` picks one action, `act` carries it out with the objects that `render` makes.
//! They share the nouns of `model` and never know each other. ARCHITECTURE.md has the map.

pub mod api;
pub mod model;

pub mod resolve;

pub mod decide;

pub mod render;

pub mod valkey;

pub mod observe;

pub mod act;

pub mod controller;

pub mod metrics;
pub mod serve;
pub mod settings;
pub mod telemetry;

pub mod plugin;
