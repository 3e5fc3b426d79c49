//! Adds the cluster's bindings to its config's and looks up the roles that they name.
//! Never renders a rule.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::api::acl::AclBinding;
use crate::api::role::ValkeyRoleSpec;
use crate::model::desired::Grant;
use crate::model::desired::MenuError;
use crate::model::desired::User;

/// Every user, the config's before the cluster's, each in its written order.
pub(super) fn users(
    roles: &BTreeMap<String, ValkeyRoleSpec>,
    of_config: &[AclBinding],
    of_cluster: &[AclBinding],
) -> Result<Vec<User>, MenuError> {
    let bindings = || of_config.iter().chain(of_cluster);
    let mut usernames = BTreeSet::new();
    if let Some(twice) = bindings().find(|binding| !usernames.insert(&binding.username)) {
        return Err(MenuError::DuplicateUser(twice.username.clone()));
    }
    bindings().map(|binding| user(roles, binding)).collect()
}

/// One user with the roles of its permissions.
fn user(roles: &BTreeMap<String, ValkeyRoleSpec>, binding: &AclBinding) -> Result<User, MenuError> {
    let grants = binding
        .permissions
        .iter()
        .map(|permission| match roles.get(&permission.role_ref) {
            Some(role) => Ok(Grant {
                permission: permission.clone(),
                role: role.clone(),
            }),
            None => Err(MenuError::RoleNotFound {
                role: permission.role_ref.clone(),
                username: binding.username.clone(),
            }),
        })
        .collect::<Result<_, _>>()?;
    Ok(User {
        binding: binding.clone(),
        grants,
    })
}
