//! What makes a node outdated: a difference, by value, between what it was made of and what the
//! live spec resolves to. Never our own defaults or forced settings: an operator's upgrade rolls
//! nothing.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::api::cluster::Placement;
use crate::model::desired::{Desired, Resolved};
use crate::model::quantity::Amount;
use crate::model::world::NodeFacts;

/// Tells which nodes are outdated. Nobody is while the menu does not resolve.
pub(super) struct Outdated<'a> {
    wanted: Option<(&'a Resolved, String)>,
}

impl<'a> Outdated<'a> {
    /// By what is wanted now.
    pub(super) fn by(desired: &'a Desired) -> Self {
        let resolved = desired.menu.as_ref().ok();
        Self {
            wanted: resolved.map(|resolved| (resolved, resolved.settings_digest())),
        }
    }

    /// Whether a node made now would differ.
    pub(super) fn is(&self, node: &NodeFacts) -> bool {
        let Some((resolved, digest)) = &self.wanted else {
            return false;
        };
        let spec = &node.spec;
        let sourced = |wanted: &Option<crate::model::desired::Sourced<Quantity>>| {
            wanted
                .as_ref()
                .and_then(|wanted| amount(Some(&wanted.value)))
        };
        spec.image != resolved.image.value
            || node.settings_digest.as_ref() != Some(digest)
            || amount(spec.cpu.as_ref()) != sourced(&resolved.cpu)
            || amount(spec.memory.as_ref()) != sourced(&resolved.memory)
            || place(spec.placement.as_ref()) != place(resolved.placement.as_ref())
    }
}

fn amount(quantity: Option<&Quantity>) -> Option<Amount> {
    Amount::parse(&quantity?.0)
}

/// Where a pod may run: zones in any order, and the labels of its machine. How it is spread is only
/// a wish.
fn place(placement: Option<&Placement>) -> (BTreeSet<&String>, BTreeSet<(&String, &String)>) {
    let zones = placement.into_iter().flat_map(|placement| &placement.zones);
    let labels = placement
        .into_iter()
        .flat_map(|placement| &placement.node_selector);
    (zones.collect(), labels.collect())
}
