//! The nouns that all rooms share: plain data with value equality.
//! Never holds a client, a socket, a clock or a lock.

pub mod chain;
pub mod decision;
pub mod desired;
pub mod digest;
pub mod name;
pub mod quantity;
pub mod redacted;
pub mod shards;
pub mod slots;
pub mod template;
pub mod tls;
pub mod topology;
pub mod why;
pub mod world;
