//! A fingerprint of text, to compare contents without keeping them.
//! Never used where a secret could be guessed from it.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The SHA-256 of a text in 64 lowercase hex characters.
#[must_use]
pub fn sha256_hex(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

/// Bytes as lowercase hex characters.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a String cannot fail.
        write!(hex, "{byte:02x}").ok();
    }
    hex
}
