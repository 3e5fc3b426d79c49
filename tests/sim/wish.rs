//! What people ask for: the menu and the cluster as objects, and what they have asked for last.
//! Never what came of it.

use serde_json::{Value, json};

use crate::kube::kinds::Kind;
use crate::plan::{Part, Shape, Spoilt};

/// Where the cluster is.
pub(crate) const NAMESPACE: &str = "team";
/// Where another of the same name may be.
pub(crate) const NEIGHBOURS: &str = "others";
/// What it is called.
pub(crate) const CLUSTER: &str = "cache";
/// The images that can be pulled: the one of the menu, and a later one.
pub(crate) const IMAGES: [&str; 2] = ["valkey/valkey:9.1.2", "valkey/valkey:9.1.3"];
/// Its TLS Secret.
pub(crate) const CERTIFICATE: &str = "certificate";

const VERSION: &str = "valkey.gomomento.com/v1alpha1";

/// What was asked for last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// There is to be a cluster.
    pub(crate) exists: bool,
    /// Of this shape.
    pub(crate) shape: Shape,
    /// With this binding; none with 0.
    pub(crate) binding: u8,
    /// With this annotation on its pods.
    pub(crate) annotation: Option<u8>,
    /// Left alone by the operator.
    pub(crate) paused: bool,
    /// Speaking TLS.
    pub(crate) secure: bool,
}

impl Wish {
    /// Nothing yet.
    pub(crate) fn new(shape: Shape) -> Self {
        Self {
            exists: false,
            shape,
            binding: 0,
            annotation: None,
            paused: false,
            secure: false,
        }
    }

    /// The cluster as an object.
    pub(crate) fn cluster(&self) -> Value {
        let mut annotations = json!({});
        if self.paused {
            annotations["valkey.gomomento.com/paused"] = json!("true");
        }
        let mut spec = json!({
            "configRef": "standard",
            "shards": self.shape.shards,
            "replicasPerShard": self.shape.replicas,
        });
        if self.binding > 0 {
            spec["acl"] = json!([{
                "username": format!("user-{}", self.binding),
                "passwordHashes": [format!("{:064x}", self.binding)],
                "permissions": [{"roleRef": "app", "keys": [{"pattern": "*"}]}],
            }]);
        }
        if self.secure {
            spec["tls"] = json!({"secretRef": CERTIFICATE});
        }
        if let Some(annotation) = self.annotation {
            spec["podAnnotations"] = json!({"team.example/build": annotation.to_string()});
        }
        json!({
            "apiVersion": VERSION,
            "kind": "ValkeyCluster",
            "metadata": {"name": CLUSTER, "namespace": NAMESPACE, "annotations": annotations},
            "spec": spec,
        })
    }
}

/// The TLS Secret: a certificate that signed itself, for the only cluster that there is.
pub(crate) fn certificate() -> Value {
    let (certificate, key) = (include_str!("tls.crt"), include_str!("tls.key"));
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": CERTIFICATE, "namespace": NAMESPACE},
        "stringData": {"tls.crt": certificate, "tls.key": key, "ca.crt": certificate},
    })
}

/// The same, and no good.
pub(crate) fn spoilt(how: Spoilt) -> Value {
    let mut secret = certificate();
    let data = &mut secret["stringData"];
    match how {
        Spoilt::Empty => *data = json!({}),
        Spoilt::Keyless => *data = json!({"tls.crt": data["tls.crt"], "ca.crt": data["ca.crt"]}),
        Spoilt::Scrawl => data["tls.crt"] = json!("no certificate"),
        Spoilt::Distrusted => data["ca.crt"] = json!("no certificate"),
    }
    secret
}

impl Part {
    /// Every one.
    pub(crate) const ALL: [Self; 4] = [Self::Image, Self::Config, Self::BaseConfig, Self::Role];

    /// Its kind and name.
    pub(crate) fn key(self) -> (Kind, &'static str) {
        match self {
            Self::Image => (Kind::ValkeyImage, "valkey"),
            Self::Config => (Kind::ValkeyConfig, "standard"),
            Self::BaseConfig => (Kind::ValkeyConfig, "base"),
            Self::Role => (Kind::ValkeyRole, "app"),
        }
    }

    /// The object.
    pub(crate) fn object(self) -> Value {
        let (kind, name) = self.key();
        let spec = match self {
            Self::Image => json!({
                "repository": "valkey/valkey", "tag": "9.1.2", "version": "9.1.2",
            }),
            Self::Config => json!({
                "baseRef": "base", "valkey": {"maxmemory-policy": "allkeys-lru"},
            }),
            Self::BaseConfig => json!({
                "imageRef": "valkey", "resources": {"cpu": "50m", "memory": "64Mi"},
            }),
            Self::Role => json!({
                "categories": [
                    {"name": "read", "access": "allow"},
                    {"name": "write", "access": "allow"},
                ],
                "commands": [{"name": "cluster", "subcommand": "slots", "access": "allow"}],
            }),
        };
        json!({
            "apiVersion": VERSION,
            "kind": kind.facts().name,
            "metadata": {"name": name},
            "spec": spec,
        })
    }
}
