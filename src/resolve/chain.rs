//! Walks a config to its root and keeps what the first config that sets a field says.
//! Never looks at images or roles.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::api::acl::AclBinding;
use crate::api::config::ValkeyConfigSpec;
use crate::model::desired::MenuError;
use crate::model::desired::Sourced;
use crate::model::name::ConfigName;
use crate::resolve::forced::canonical;

/// How many configs a chain may have. The published limit; the tenth may not inherit any more.
const DEPTH_MAX: usize = 10;

/// What a chain says.
#[derive(Debug)]
pub(super) struct Chain {
    /// The image's name.
    pub(super) image_ref: Sourced<String>,
    /// The first `resources.cpu`.
    pub(super) cpu: Option<Sourced<Quantity>>,
    /// The first `resources.memory`.
    pub(super) memory: Option<Sourced<Quantity>>,
    /// The merged `valkey` map by canonical names.
    pub(super) settings: BTreeMap<String, Sourced<String>>,
    /// The first `acl`, whole.
    pub(super) acl: Vec<AclBinding>,
    /// The first `scheduling.tolerations`, whole.
    pub(super) tolerations: Vec<Toleration>,
    /// The first `scheduling.priorityClassName`.
    pub(super) priority_class: Option<String>,
}

/// Resolves the chain that begins at a config.
pub(super) fn resolve(
    configs: &BTreeMap<String, ValkeyConfigSpec>,
    selected: &str,
) -> Result<Chain, MenuError> {
    let chain = walk(configs, selected)?;
    let root = chain.last().map_or(selected, |(name, _)| *name);
    let image_ref = first(&chain, |config| config.image_ref.clone())
        .ok_or_else(|| MenuError::NoImage(root.to_owned()))?;
    Ok(Chain {
        image_ref,
        cpu: first(&chain, |config| config.resources.as_ref()?.cpu.clone()),
        memory: first(&chain, |config| config.resources.as_ref()?.memory.clone()),
        settings: settings(&chain),
        acl: value(first(&chain, |config| config.acl.clone())).unwrap_or_default(),
        tolerations: value(first(&chain, |config| {
            config.scheduling.as_ref()?.tolerations.clone()
        }))
        .unwrap_or_default(),
        priority_class: value(first(&chain, |config| {
            config.scheduling.as_ref()?.priority_class_name.clone()
        })),
    })
}

/// The configs from the selected one to its root. A circle is a chain that is too long.
fn walk<'a>(
    configs: &'a BTreeMap<String, ValkeyConfigSpec>,
    selected: &'a str,
) -> Result<Vec<(&'a str, &'a ValkeyConfigSpec)>, MenuError> {
    let mut chain = Vec::new();
    let mut next = Some(selected);
    while let Some(name) = next {
        if chain.len() == DEPTH_MAX {
            return Err(MenuError::TooDeep);
        }
        let config = configs
            .get(name)
            .ok_or_else(|| MenuError::ConfigNotFound(name.to_owned()))?;
        chain.push((name, config));
        next = config.base_ref.as_deref();
    }
    Ok(chain)
}

/// The config that names what an error is about.
pub(super) fn blamed<'a>(
    configs: &'a BTreeMap<String, ValkeyConfigSpec>,
    selected: &'a str,
    error: &MenuError,
) -> Option<&'a str> {
    let next =
        |(_, config): &(&str, &'a ValkeyConfigSpec)| found(configs, config.base_ref.as_deref()?);
    let mut chain = std::iter::successors(found(configs, selected), next).take(DEPTH_MAX);
    let blamed = match error {
        MenuError::ConfigNotFound(name) => {
            chain.find(|(_, spec)| spec.base_ref.as_ref() == Some(name))
        }
        MenuError::ImageNotFound(name) => {
            chain.find(|(_, spec)| spec.image_ref.as_ref() == Some(name))
        }
        // Users are those of one config; who is not among them is the cluster's own.
        MenuError::RoleNotFound { username, .. } => chain
            .find(|(_, spec)| spec.acl.is_some())
            .filter(|(_, spec)| {
                let mut bindings = spec.acl.iter().flatten();
                bindings.any(|binding| binding.username == *username)
            }),
        MenuError::NoImage(name) => chain.find(|(config, _)| config == name),
        // It begins with the first.
        MenuError::TooDeep => chain.next(),
        MenuError::DuplicateUser(_) => None,
    };
    blamed.map(|(name, _)| name)
}

fn found<'a>(
    configs: &'a BTreeMap<String, ValkeyConfigSpec>,
    name: &str,
) -> Option<(&'a str, &'a ValkeyConfigSpec)> {
    let (name, spec) = configs.get_key_value(name)?;
    Some((name, spec))
}

/// The field of the first config that sets it.
fn first<T>(
    chain: &[(&str, &ValkeyConfigSpec)],
    field: impl Fn(&ValkeyConfigSpec) -> Option<T>,
) -> Option<Sourced<T>> {
    chain.iter().find_map(|(name, config)| {
        Some(Sourced {
            value: field(config)?,
            config: ConfigName::new(*name),
        })
    })
}

/// The value alone, where nobody asks where it came from.
fn value<T>(sourced: Option<Sourced<T>>) -> Option<T> {
    sourced.map(|sourced| sourced.value)
}

/// The maps of all configs, merged key by key: the child's value wins, however either of them spells the
/// directive. Of two spellings within one map the last in byte order wins (`masterauth` before
/// `primaryauth`, capitals before small letters), as it would in a file with its lines sorted.
fn settings(chain: &[(&str, &ValkeyConfigSpec)]) -> BTreeMap<String, Sourced<String>> {
    let mut merged = BTreeMap::new();
    for (name, config) in chain.iter().rev() {
        for (directive, value) in &config.valkey {
            let config = ConfigName::new(*name);
            merged.insert(
                canonical(directive),
                Sourced {
                    value: value.clone(),
                    config,
                },
            );
        }
    }
    merged
}
