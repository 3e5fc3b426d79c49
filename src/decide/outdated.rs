//! Which nodes are outdated: whose template is another than what the live spec resolves to.
//! Never by how they are placed or spread now.

use crate::model::desired::Desired;
use crate::model::template::Template;
use crate::model::world::NodeFacts;

/// Tells which nodes are outdated. Nobody is while the menu does not resolve.
pub(super) struct Outdated<'a>(Option<Template<'a>>);

impl<'a> Outdated<'a> {
    /// By what is wanted now.
    pub(super) fn by(desired: &'a Desired) -> Self {
        Self(desired.menu.as_ref().ok().map(Template::wanted))
    }

    /// Whether a node made now would differ.
    pub(super) fn is(&self, node: &NodeFacts) -> bool {
        self.0
            .as_ref()
            .is_some_and(|wanted| *wanted != Template::of(node))
    }
}
