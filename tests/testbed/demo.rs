//! The demonstration: from nothing to an Active cluster with keys in it.
