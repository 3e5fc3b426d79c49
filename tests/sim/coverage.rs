//! Which actions, reasons and errors of the operator came up in any run.
//! Never satisfied by silence: what is not reached must be excused by name.

use std::collections::BTreeSet;
use std::sync::Mutex;

static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// These came up.
pub(crate) fn add(seen: &BTreeSet<String>) {
    let mut all = SEEN.lock().expect("no panic with it in hand");
    all.extend(seen.iter().cloned());
}
