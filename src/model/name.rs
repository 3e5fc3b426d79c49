//! Names and ids that must not be confused, each a type of its own.
//! Never validates: what comes from the API server or from Valkey is kept as it came.

use std::fmt;

/// A newtype over text, ordered and printed as its text.
macro_rules! text {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Wraps the text as it is.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}

text! {
    /// The name of a `ValkeyNode`, and so of its pod and its host name: `{cluster}-{5 hex}`.
    NodeName
}
text! {
    /// The name of a `ValkeyConfig`.
    ConfigName
}
text! {
    /// The uid that the API server gave to an object.
    Uid
}
text! {
    /// The 40 hex characters by which a Valkey process is known in its cluster.
    ValkeyId
}

/// A `ValkeyCluster`, by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterRef {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ClusterRef {
    /// The headless Service, and the subdomain of every pod.
    #[must_use]
    pub fn service_name(&self) -> String {
        self.name.clone()
    }

    /// The Secret with the passwords of the operator's own users.
    #[must_use]
    pub fn auth_secret_name(&self) -> String {
        format!("{}-operator-auth", self.name)
    }

    /// The `ConfigMap` with `users.acl`.
    #[must_use]
    pub fn acl_config_map_name(&self) -> String {
        format!("{}-acl", self.name)
    }

    /// The Secret with the TLS material in use. Not `{cluster}-tls`: that is what users call theirs.
    #[must_use]
    pub fn tls_secret_name(&self) -> String {
        format!("{}-operator-tls", self.name)
    }

    /// The host name of the headless Service.
    #[must_use]
    pub fn service_host(&self) -> String {
        format!("{}.{}.svc.cluster.local", self.name, self.namespace)
    }

    /// The host name of a node's pod.
    #[must_use]
    pub fn host_of(&self, node: &NodeName) -> String {
        format!("{node}.{}", self.service_host())
    }

    /// The node with five random hex characters behind its cluster's name.
    #[must_use]
    pub fn node_name(&self, suffix: &str) -> NodeName {
        NodeName(format!("{}-{suffix}", self.name))
    }
}

impl NodeName {
    /// The `ConfigMap` with the node's `valkey.conf`.
    #[must_use]
    pub fn config_map_name(&self) -> String {
        format!("{self}-config")
    }
}

impl fmt::Display for ClusterRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// The shard that a node is scheduled for, from 0: the operator's own count, not Valkey's shard id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardIndex(pub u32);

impl fmt::Display for ShardIndex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
