//! The kinds that the API server serves: one row each.
//! Never what an object of a kind means.

use std::fmt;

/// A kind. The order is that in which a namespace is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Namespace,
    Node,
    ValkeyConfig,
    ValkeyImage,
    ValkeyRole,
    ConfigMap,
    Event,
    Pod,
    Secret,
    Service,
    ValkeyCluster,
    ValkeyNode,
}

/// What the API server knows of a kind.
pub(crate) struct Facts {
    pub(crate) name: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) namespaced: bool,
    /// Whether status is written through its own path only.
    pub(crate) status: bool,
}

const OURS: &str = "valkey.gomomento.com";

const fn row(
    name: &'static str,
    plural: &'static str,
    (group, version): (&'static str, &'static str),
    namespaced: bool,
    status: bool,
) -> Facts {
    Facts {
        name,
        plural,
        group,
        version,
        namespaced,
        status,
    }
}

const CORE: (&str, &str) = ("", "v1");
const CUSTOM: (&str, &str) = (OURS, "v1alpha1");
const EVENTS: (&str, &str) = ("events.k8s.io", "v1");

static NAMESPACE: Facts = row("Namespace", "namespaces", CORE, false, true);
static NODE: Facts = row("Node", "nodes", CORE, false, true);
static CONFIG: Facts = row("ValkeyConfig", "valkeyconfigs", CUSTOM, false, true);
static IMAGE: Facts = row("ValkeyImage", "valkeyimages", CUSTOM, false, true);
static ROLE: Facts = row("ValkeyRole", "valkeyroles", CUSTOM, false, true);
static CONFIG_MAP: Facts = row("ConfigMap", "configmaps", CORE, true, false);
static EVENT: Facts = row("Event", "events", EVENTS, true, false);
static POD: Facts = row("Pod", "pods", CORE, true, true);
static SECRET: Facts = row("Secret", "secrets", CORE, true, false);
static SERVICE: Facts = row("Service", "services", CORE, true, true);
static CLUSTER: Facts = row("ValkeyCluster", "valkeyclusters", CUSTOM, true, true);
static VALKEY_NODE: Facts = row("ValkeyNode", "valkeynodes", CUSTOM, true, false);

impl Kind {
    /// Every kind.
    pub(crate) const ALL: [Self; 12] = [
        Self::Namespace,
        Self::Node,
        Self::ValkeyConfig,
        Self::ValkeyImage,
        Self::ValkeyRole,
        Self::ConfigMap,
        Self::Event,
        Self::Pod,
        Self::Secret,
        Self::Service,
        Self::ValkeyCluster,
        Self::ValkeyNode,
    ];

    /// Its row.
    pub(crate) fn facts(self) -> &'static Facts {
        match self {
            Self::Namespace => &NAMESPACE,
            Self::Node => &NODE,
            Self::ValkeyConfig => &CONFIG,
            Self::ValkeyImage => &IMAGE,
            Self::ValkeyRole => &ROLE,
            Self::ConfigMap => &CONFIG_MAP,
            Self::Event => &EVENT,
            Self::Pod => &POD,
            Self::Secret => &SECRET,
            Self::Service => &SERVICE,
            Self::ValkeyCluster => &CLUSTER,
            Self::ValkeyNode => &VALKEY_NODE,
        }
    }

    /// Whether it is defined by a `CustomResourceDefinition`.
    pub(crate) fn custom(self) -> bool {
        self.facts().group == OURS
    }

    /// As objects name it in `apiVersion`.
    pub(crate) fn api_version(self) -> String {
        let facts = self.facts();
        if facts.group.is_empty() {
            facts.version.to_owned()
        } else {
            format!("{}/{}", facts.group, facts.version)
        }
    }

    /// As refusals name it: `valkeynodes.valkey.gomomento.com`.
    pub(crate) fn resource(self) -> String {
        let facts = self.facts();
        if facts.group.is_empty() {
            facts.plural.to_owned()
        } else {
            format!("{}.{}", facts.plural, facts.group)
        }
    }

    /// The kind that an object says it is.
    pub(crate) fn named(api_version: &str, name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|kind| kind.facts().name == name && kind.api_version() == api_version)
    }

    /// The kind that a path leads to.
    pub(crate) fn routed(group: &str, version: &str, plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| {
            let facts = kind.facts();
            facts.plural == plural && facts.group == group && facts.version == version
        })
    }
}

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    /// Empty where the kind has no namespaces.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    /// The key of an object; the namespace is dropped where the kind has none.
    pub(crate) fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        let namespace = if kind.facts().namespaced {
            namespace
        } else {
            ""
        };
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plural, name) = (self.kind.facts().plural, &self.name);
        if self.namespace.is_empty() {
            write!(f, "{plural}/{name}")
        } else {
            write!(f, "{plural}/{}/{name}", self.namespace)
        }
    }
}
