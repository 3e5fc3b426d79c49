//! The fast suite: needs nothing but the crate itself.
//! Never starts a process, never opens a socket.

mod artifacts;
