//! What a node is made of, as far as a user can ask for it.
//! Never our own defaults or forced settings: an operator's upgrade changes no template.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::api::cluster::Placement;
use crate::model::desired::Resolved;
use crate::model::digest::sha256_hex;
use crate::model::quantity::Amount;
use crate::model::world::NodeFacts;

/// Enough of a digest to tell templates apart, and few enough for a label.
const DIGEST_LENGTH: usize = 16;

/// Compared by value: `1000m` is `1`, and zones are in any order.
#[derive(Debug, PartialEq, Eq)]
pub struct Template<'a> {
    image: &'a str,
    settings_digest: Option<String>,
    cpu: Option<Amount>,
    memory: Option<Amount>,
    zones: BTreeSet<&'a String>,
    node_selector: BTreeSet<(&'a String, &'a String)>,
}

impl<'a> Template<'a> {
    /// What a node was made of.
    #[must_use]
    pub fn of(node: &'a NodeFacts) -> Self {
        let spec = &node.spec;
        Self::new(
            &spec.image,
            node.settings_digest.clone(),
            [spec.cpu.as_ref(), spec.memory.as_ref()],
            spec.placement.as_ref(),
        )
    }

    /// What a node is to be made of.
    #[must_use]
    pub fn wanted(resolved: &'a Resolved) -> Self {
        let sourced = [&resolved.cpu, &resolved.memory];
        Self::new(
            &resolved.image.value,
            Some(resolved.settings_digest()),
            sourced.map(|sourced| sourced.as_ref().map(|sourced| &sourced.value)),
            resolved.placement.as_ref(),
        )
    }

    /// How the zones are spread is left out: it is a wish for pods made later.
    fn new(
        image: &'a str,
        settings_digest: Option<String>,
        [cpu, memory]: [Option<&Quantity>; 2],
        placement: Option<&'a Placement>,
    ) -> Self {
        let amount = |quantity: Option<&Quantity>| Amount::parse(&quantity?.0);
        let placement = placement.into_iter();
        let labels = placement.clone().flat_map(|it| &it.node_selector);
        Self {
            image,
            settings_digest,
            cpu: amount(cpu),
            memory: amount(memory),
            zones: placement.flat_map(|it| &it.zones).collect(),
            node_selector: labels.collect(),
        }
    }

    /// The same for the same template, as the value of a label. Another text would set apart who is alike after an
    /// upgrade of the operator.
    #[must_use]
    pub fn digest(&self) -> String {
        let Self {
            image,
            settings_digest,
            cpu,
            memory,
            zones,
            node_selector,
        } = self;
        let text =
            format!("{image:?} {settings_digest:?} {cpu:?} {memory:?} {zones:?} {node_selector:?}");
        let mut digest = sha256_hex(&text);
        digest.truncate(DIGEST_LENGTH);
        digest
    }
}
