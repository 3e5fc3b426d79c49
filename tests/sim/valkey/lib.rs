//! Valkey 9.1 processes as a cluster sees them: bus, elections, replication, slots, keys.
//! Never opens a socket, never looks at a clock: time is what it is told.
