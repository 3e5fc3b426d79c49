//! What was asked for, worked out from the menu: every value, or the exact reason why there is none.
//! Never reads anything, never fails: a reference that does not resolve is a value.

mod acl;
mod chain;
mod forced;
mod tls;

use crate::api::cluster::ClusterState;
use crate::api::cluster::Placement;
use crate::model::desired::Desired;
use crate::model::desired::MenuError;
use crate::model::desired::Resolved;
use crate::model::desired::Shape;
use crate::model::desired::TlsOffer;
use crate::model::tls::TlsError;
use crate::model::world::World;

/// What the cluster should be, by its own spec and the menu.
///
/// Where more than one thing is wrong, the first of this order is told, so that mending them one after
/// the other always moves forward: the chain from the cluster's config to its root (a missing config
/// before the depth), no image in it, the image itself, a username bound twice, a missing role.
#[must_use]
pub fn desired(world: &World) -> Desired {
    Desired {
        shape: shape(world),
        menu: menu(world),
        tls: tls(world),
    }
}

/// The config of a cluster's chain that names what an error is about, if one does: there it is mended.
#[must_use]
pub fn blamed<'a>(world: &'a World, error: &MenuError) -> Option<&'a str> {
    chain::blamed(&world.menu.configs, &world.cluster.spec.config_ref, error)
}

/// What the TLS Secret is worth, in a cluster that has one.
fn tls(world: &World) -> Option<Result<TlsOffer, TlsError>> {
    let name = &world.cluster.spec.tls.as_ref()?.secret_ref;
    let secret = world.tls_secret.as_ref()?;
    Some(tls::offer(&world.cluster.key, name, secret, world.now))
}

/// The snapshot's shape while it is being built, else the live one.
fn shape(world: &World) -> Shape {
    let cluster = &world.cluster;
    let target = cluster
        .status
        .target_spec
        .as_ref()
        .filter(|_| cluster.status.state == ClusterState::Creating)
        .unwrap_or(&cluster.spec);
    Shape {
        shards: target.shards,
        replicas: target.replicas_per_shard,
    }
}

/// Everything that comes from the menu.
fn menu(world: &World) -> Result<Resolved, MenuError> {
    let spec = &world.cluster.spec;
    let chain = chain::resolve(&world.menu.configs, &spec.config_ref)?;
    let image = world
        .menu
        .images
        .get(&chain.image_ref.value)
        .ok_or_else(|| MenuError::ImageNotFound(chain.image_ref.value.clone()))?;
    let users = acl::users(&world.menu.roles, &chain.acl, &spec.acl)?;
    let memory = chain.memory.as_ref().map(|memory| memory.value.0.as_str());
    Ok(Resolved {
        image: chain
            .image_ref
            .map(|_| format!("{}:{}", image.repository, image.tag)),
        node_settings: forced::layers(memory, &chain.settings, spec.tls.is_some()),
        user_settings: chain.settings,
        cpu: chain.cpu,
        memory: chain.memory,
        users,
        tolerations: chain.tolerations,
        priority_class: chain.priority_class,
        pull_secrets: image.pull_secrets.clone(),
        placement: spec.placement.as_ref().map(|placement| Placement {
            zone_spread: Some(placement.zone_spread.unwrap_or(world.default_zone_spread)),
            ..placement.clone()
        }),
    })
}

#[cfg(test)]
mod tests;
