//! The rungs of Active, in the order of the contract's section 8.
//! Never lowers a guard that Creating kept: what is not on this list yet is left as it is.

use crate::decide::ladder::Rung;

/// An Active cluster is left alone: healing, scaling and rolls are not on the ladder yet.
pub(super) const ACTIVE: &[Rung] = &[];
