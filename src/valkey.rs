//! stub never
pub mod client;
