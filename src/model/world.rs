//! All that one tick knows, as facts.
//! Never a Kubernetes object beyond the specs of our own kinds, never a guess: silence is kept as silence.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::api::cluster::{ValkeyClusterSpec, ValkeyClusterStatus, ZoneSpread};
use crate::api::config::ValkeyConfigSpec;
use crate::api::image::ValkeyImageSpec;
use crate::api::node::{JoinType, Lifecycle, ValkeyNodeSpec};
use crate::api::role::ValkeyRoleSpec;
use crate::model::name::{ClusterRef, NodeName, ShardIndex, Uid};
use crate::model::redacted::Redacted;
use crate::model::tls::{File, TlsFiles};
use crate::model::topology::NodeView;

/// One cluster, its menu and its nodes at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    /// Seconds since the Unix epoch.
    pub now: i64,
    /// The cluster's own object.
    pub cluster: ClusterFacts,
    /// What the platform team offers.
    pub menu: Menu,
    /// The objects that are kept in every state.
    pub kept: Kept,
    /// The Secret that `spec.tls` names, where the cluster has TLS.
    pub tls_secret: Option<TlsSecret>,
    /// Every `ValkeyNode` that belongs to the cluster, by name.
    pub nodes: BTreeMap<NodeName, NodeFacts>,
    /// Pods of the cluster that outlive their `ValkeyNode`, as nodes that are being deleted.
    pub strays: BTreeMap<NodeName, NodeFacts>,
    /// What a node had against the ACL file when it was last told to read it.
    pub acl_refusal: Option<String>,
    /// What a cluster gets that names no `zoneSpread`.
    pub default_zone_spread: ZoneSpread,
}

impl World {
    /// Whether the cluster was formed once: nodes become Active when it does.
    #[must_use]
    pub fn is_formed(&self) -> bool {
        let mut staying = self.nodes.values().filter(|node| !node.deleting);
        staying.any(|node| node.spec.lifecycle != Lifecycle::Joining)
    }
}

/// The `ValkeyCluster` itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFacts {
    /// Namespace and name.
    pub key: ClusterRef,
    /// Its uid.
    pub uid: Uid,
    /// What is asked for now.
    pub spec: ValkeyClusterSpec,
    /// What was last reported; the default where nothing was.
    pub status: ValkeyClusterStatus,
    /// It is being deleted.
    pub deleting: bool,
    /// It carries our cleanup finalizer.
    pub finalizer: bool,
    /// The pause annotation is set.
    pub paused: bool,
}

/// Every object of the menu, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Menu {
    /// The `ValkeyConfig`s.
    pub configs: BTreeMap<String, ValkeyConfigSpec>,
    /// The `ValkeyImage`s.
    pub images: BTreeMap<String, ValkeyImageSpec>,
    /// The `ValkeyRole`s.
    pub roles: BTreeMap<String, ValkeyRoleSpec>,
}

/// The objects that are kept in every state.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Kept {
    /// The headless Service.
    pub service: Keeping<()>,
    /// The auth Secret.
    pub auth: Keeping<Auth>,
    /// The ACL ConfigMap.
    pub acl: Keeping<AclInUse>,
    /// The Secret with the TLS material in use. A cluster without TLS has none.
    pub tls: Keeping<TlsInUse>,
}

/// The ACL that pods mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclInUse {
    /// Its ConfigMap's.
    pub uid: Uid,
    /// Of the text.
    pub digest: String,
}

/// The TLS material that pods mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsInUse {
    /// Its Secret's.
    pub uid: Uid,
    /// What they were given last.
    pub files: TlsFiles,
    /// The authorities before those: of nodes that have not loaded the files yet.
    pub former_authorities: File,
}

/// A user's TLS Secret, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsSecret {
    /// There is none by that name.
    Absent,
    /// It has no data at all.
    Empty,
    /// It has these of the keys that are asked for, and possibly others.
    Holding(BTreeMap<&'static str, File>),
}

/// Whether an object with a name of ours is there, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Keeping<T> {
    /// There is none.
    #[default]
    Absent,
    /// It is owned by this cluster.
    Ours(T),
    /// Somebody else made it: it is neither used nor changed.
    Foreign,
}

/// The passwords of the operator's own users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// Of `_momento_operator`, 128 hex characters.
    pub operator: Redacted<String>,
    /// Of `_momento_repl`, 128 hex characters.
    pub repl: Redacted<String>,
    /// The Secret carries our finalizer, so that no hand can lose the passwords.
    pub finalizer: bool,
}

/// One `ValkeyNode`, its ConfigMap, its pod and what the process in it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// The node's name, and so its pod's.
    pub name: NodeName,
    /// Its uid.
    pub uid: Uid,
    /// Its spec.
    pub spec: ValkeyNodeSpec,
    /// It is being deleted.
    pub deleting: bool,
    /// It carries our node finalizer.
    pub finalizer: bool,
    /// A finalizer that it carries and that is neither ours nor one of Kubernetes' own.
    pub foreign_finalizer: Option<String>,
    /// The uid of the one pod it ever had, stamped on it once the pod was made.
    pub stamp: Option<Uid>,
    /// Why it joined an Active cluster.
    pub join: Option<JoinType>,
    /// The digest of the user's settings that it was made with.
    pub settings_digest: Option<String>,
    /// Its ConfigMap exists.
    pub config_map: Keeping<()>,
    /// Its pod.
    pub pod: PodSighting,
    /// What the process answered.
    pub sighting: Sighting,
}

impl NodeFacts {
    /// Its own account, if it answered.
    #[must_use]
    pub fn view(&self) -> Option<&NodeView> {
        match &self.sighting {
            Sighting::Answered(view) => Some(view),
            Sighting::NotAsked | Sighting::Silent(_) | Sighting::LockedOut(_) => None,
        }
    }

    /// Its pod, if it is the one that was stamped.
    #[must_use]
    pub fn stamped_pod(&self) -> Option<&PodFacts> {
        match &self.pod {
            PodSighting::Present(pod) if self.stamp.as_ref() == Some(&pod.uid) => Some(pod),
            PodSighting::Present(_) | PodSighting::Absent | PodSighting::Foreign => None,
        }
    }

    /// What Valkey said to a login of the operator's, if its process will never let the operator in.
    #[must_use]
    pub fn locked_out(&self) -> Option<&str> {
        match &self.sighting {
            Sighting::LockedOut(refusal) => Some(refusal),
            Sighting::NotAsked | Sighting::Answered(_) | Sighting::Silent(_) => None,
        }
    }

    /// Whether its one pod ended or vanished, or waits for a machine that no longer reports: such a
    /// node never comes back, or cannot say when.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        match &self.pod {
            PodSighting::Absent | PodSighting::Foreign => self.stamp.is_some(),
            PodSighting::Present(pod) => {
                pod.end().is_some() || self.stamp.as_ref().is_some_and(|stamp| *stamp != pod.uid)
            }
        }
    }

    /// Whether it is on its way out, by whatever hand: it counts for nothing that is to last.
    #[must_use]
    pub fn is_departing(&self) -> bool {
        let pod_deleting = match &self.pod {
            PodSighting::Present(pod) => pod.deleting,
            PodSighting::Absent | PodSighting::Foreign => false,
        };
        self.deleting || pod_deleting || self.spec.lifecycle == Lifecycle::Leaving
    }

    /// The shard that it is scheduled for.
    #[must_use]
    pub fn shard(&self) -> ShardIndex {
        ShardIndex(self.spec.shard_index)
    }
}

/// Whether a pod of the node's name is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodSighting {
    /// There is none.
    Absent,
    /// It is owned by this node.
    Present(PodFacts),
    /// Somebody else's pod has the name.
    Foreign,
}

/// A pod, as far as anything is decided by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// Its uid.
    pub uid: Uid,
    /// Where it is in its life.
    pub phase: PodPhase,
    /// Its address.
    pub ip: Option<IpAddr>,
    /// The machine that it is bound to.
    pub host: Host,
    /// It is being deleted.
    pub deleting: bool,
    /// Why it does not run, in the words of the scheduler, the kubelet or the container's end.
    pub trouble: Option<PodTrouble>,
    /// All its annotations.
    pub annotations: BTreeMap<String, String>,
}

impl PodFacts {
    /// Why its process is no more or never was, if that is so.
    #[must_use]
    pub fn end(&self) -> Option<&str> {
        match (self.phase, self.host, &self.trouble) {
            (PodPhase::Ended, _, Some(PodTrouble::Ended(detail))) => Some(detail),
            (PodPhase::Ended, _, _) => Some("its pod ended"),
            (_, Host::Gone, _) => Some("its machine is gone"),
            // Scheduled just before the machine was known to be lost: nothing that may be missed ran.
            (PodPhase::Pending, Host::NotReady, _) => {
                Some("it was to start on a machine that no longer reports")
            }
            (PodPhase::Pending | PodPhase::Running, _, _) => None,
        }
    }
}

/// What Kubernetes says of the machine of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Host {
    /// The pod is bound to none, or nothing is known of machines yet.
    #[default]
    Unknown,
    /// Its kubelet reports.
    Ready,
    /// Its kubelet is silent or reports trouble.
    NotReady,
    /// There is no such machine any more.
    Gone,
}

/// A pod's phase; both ways of ending are one, since neither is ever restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
    /// Not all containers were started.
    Pending,
    /// The container was started.
    Running,
    /// Succeeded or Failed.
    Ended,
}

/// What the end of a container is told in, before its code.
pub const CONTAINER_EXITED: &str = "its container exited with code ";

/// Why a pod does not run, each with the source's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodTrouble {
    /// The scheduler found no place.
    Unschedulable(String),
    /// The kubelet cannot start the container.
    Waiting {
        /// The kubelet's reason, such as `ImagePullBackOff`.
        reason: String,
        /// Its message, possibly empty.
        message: String,
    },
    /// The container or the pod ended.
    Ended(String),
}

/// What came back when a pod was asked for its account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// It was not asked: it has no running, stamped pod.
    NotAsked,
    /// It answered.
    Answered(NodeView),
    /// It did not, or not with an account; why.
    Silent(String),
    /// It knows no user or password of the operator's; Valkey's words. As silent as any other, but no
    /// wait ends it.
    LockedOut(String),
}
