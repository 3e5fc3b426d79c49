//! The one pod of a node: a single Valkey container that is never restarted in place.
//! Never a readiness probe, a persistent volume or a right that the `restricted` profile forbids.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Affinity;
use k8s_openapi::api::core::v1::Capabilities;
use k8s_openapi::api::core::v1::ConfigMapVolumeSource;
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::api::core::v1::ContainerPort;
use k8s_openapi::api::core::v1::EmptyDirVolumeSource;
use k8s_openapi::api::core::v1::EnvVar;
use k8s_openapi::api::core::v1::EnvVarSource;
use k8s_openapi::api::core::v1::ExecAction;
use k8s_openapi::api::core::v1::KeyToPath;
use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::api::core::v1::NodeAffinity;
use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use k8s_openapi::api::core::v1::NodeSelectorTerm;
use k8s_openapi::api::core::v1::ObjectFieldSelector;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::core::v1::PodSecurityContext;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::api::core::v1::Probe;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::api::core::v1::SeccompProfile;
use k8s_openapi::api::core::v1::SecretKeySelector;
use k8s_openapi::api::core::v1::SecretVolumeSource;
use k8s_openapi::api::core::v1::SecurityContext;
use k8s_openapi::api::core::v1::TCPSocketAction;
use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use k8s_openapi::api::core::v1::Volume;
use k8s_openapi::api::core::v1::VolumeMount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::api;
use crate::api::LABEL_ZONE;
use crate::api::cluster::Placement;
use crate::api::cluster::ZoneSpread;
use crate::api::node::ValkeyNodeSpec;
use crate::model::desired::PodPolicy;
use crate::model::desired::Resolved;
use crate::model::name::ClusterRef;
use crate::model::name::ShardIndex;
use crate::model::template::Template;
use crate::model::world::ClusterFacts;
use crate::model::world::NodeFacts;
use crate::render::labels;
use crate::render::owned_by_node;
use crate::render::shard_labels;

/// The user and group of the process: that of the official image's `valkey`.
const USER: i64 = 999;

/// What a node takes beyond its `shutdown-timeout` to end: a hand-over vote (up to five seconds) and the dump
/// that a user's save points ask for.
const GRACE_BEYOND_SHUTDOWN_SECONDS: i64 = 20;

/// Valkey's own default: how long a primary waits for its replicas to catch up before it exits.
const SHUTDOWN_TIMEOUT_DEFAULT_SECONDS: i64 = 10;

/// More than a day is not a wish to be waited for.
const SHUTDOWN_TIMEOUT_MAX_SECONDS: i64 = 86_400;

/// Readable by whoever the process is.
const MODE_PUBLIC: i32 = 0o444;

/// Readable by root and by the pod's `fsGroup`, which the kubelet makes the owner of the file.
const MODE_GROUP: i32 = 0o440;

/// Where the name of a Kubernetes node is told.
const TOPOLOGY_HOST: &str = "kubernetes.io/hostname";

/// The pod of a node. What the node recorded when it was made comes from the node; annotations and scheduling
/// are the cluster's and the menu's of now.
#[must_use]
pub fn pod(
    cluster: &ClusterFacts,
    node: &NodeFacts,
    resolved: &Resolved,
    policy: PodPolicy,
) -> Pod {
    let name = node.name.as_str().to_owned();
    let annotations = Some(cluster.spec.pod_annotations.clone()).filter(|map| !map.is_empty());
    let placement = node.spec.placement.as_ref();
    let template = (api::LABEL_TEMPLATE.to_owned(), Template::of(node).digest());
    let mut metadata = owned_by_node(cluster, node, name.clone());
    metadata
        .labels
        .get_or_insert_default()
        .extend([template.clone()]);
    Pod {
        metadata: ObjectMeta {
            annotations,
            ..metadata
        },
        spec: Some(PodSpec {
            // A pod that dies is evidence: the operator replaces the member, the kubelet never restarts it.
            restart_policy: Some("Never".to_owned()),
            hostname: Some(name),
            subdomain: Some(cluster.key.service_name()),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            termination_grace_period_seconds: Some(grace_seconds(&node.spec)),
            security_context: Some(pod_security(policy)),
            containers: vec![container(&cluster.key, &node.spec)],
            volumes: Some(volumes(&cluster.key, node, policy)),
            affinity: placement.and_then(zone_affinity),
            node_selector: placement
                .map(|placement| placement.node_selector.clone())
                .filter(|selector| !selector.is_empty()),
            topology_spread_constraints: Some(spread(&cluster.key, &node.spec, &template)),
            tolerations: Some(tolerations(resolved)),
            priority_class_name: resolved.priority_class.clone(),
            image_pull_secrets: pull_secrets(resolved),
            ..PodSpec::default()
        }),
        status: None,
    }
}

/// How long the kubelet waits between SIGTERM and SIGKILL.
fn grace_seconds(node: &ValkeyNodeSpec) -> i64 {
    let shutdown_timeout = node
        .valkey_settings
        .get("shutdown-timeout")
        .and_then(|seconds| seconds.trim().parse().ok())
        .unwrap_or(SHUTDOWN_TIMEOUT_DEFAULT_SECONDS);
    shutdown_timeout.clamp(
        SHUTDOWN_TIMEOUT_DEFAULT_SECONDS,
        SHUTDOWN_TIMEOUT_MAX_SECONDS,
    ) + GRACE_BEYOND_SHUTDOWN_SECONDS
}

/// The pod's half of the `restricted` profile.
fn pod_security(policy: PodPolicy) -> PodSecurityContext {
    let user = policy.fixed_user.then_some(USER);
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: user,
        run_as_group: user,
        fs_group: user,
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            localhost_profile: None,
        }),
        ..PodSecurityContext::default()
    }
}

/// The Valkey process. It is the container's first process, so that it gets SIGTERM itself: the image's own
/// entry point, which would be one more thing between, is not used.
fn container(cluster: &ClusterRef, node: &ValkeyNodeSpec) -> Container {
    Container {
        name: api::CONTAINER_NAME.to_owned(),
        image: Some(node.image.clone()),
        command: Some(vec!["valkey-server".to_owned()]),
        args: Some(vec![
            format!("{}/{}", api::CONF_DIR, api::CONF_KEY),
            // An argument counts as a last line of the file: no setting overrides it. A node that was never met
            // does not know its own address.
            "--cluster-announce-ip".to_owned(),
            "$(POD_IP)".to_owned(),
        ]),
        env: Some(environment(cluster, node)),
        ports: Some(vec![
            container_port(api::PORT_NAME, api::PORT),
            container_port(api::BUS_PORT_NAME, api::BUS_PORT),
        ]),
        liveness_probe: Some(liveness(node)),
        // A process that dies at once leaves its last log lines as the reason: mostly a user's setting.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        resources: resources(node),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                add: None,
            }),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(mounts(node)),
        ..Container::default()
    }
}

/// Its own address, and what the probe that logs in needs.
fn environment(cluster: &ClusterRef, node: &ValkeyNodeSpec) -> Vec<EnvVar> {
    let mut environment = vec![pod_ip()];
    if node.tls_secret.is_none() {
        environment.push(probe_password(cluster));
    }
    environment
}

/// Whole volumes: a single file of one (subPath) would never be refreshed.
fn mounts(node: &ValkeyNodeSpec) -> Vec<VolumeMount> {
    let mut mounts = vec![
        mount("data", api::DATA_DIR, false),
        mount("conf", api::CONF_DIR, true),
        mount("acl", api::ACL_DIR, true),
        mount("auth", api::AUTH_DIR, true),
    ];
    if node.tls_secret.is_some() {
        mounts.push(mount("tls", api::TLS_DIR, true));
    }
    mounts
}

/// The address that the node announces.
fn pod_ip() -> EnvVar {
    EnvVar {
        name: "POD_IP".to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: None,
                field_path: "status.podIP".to_owned(),
            }),
            ..EnvVarSource::default()
        }),
    }
}

/// What `valkey-cli` logs in with: in the environment, not in the arguments that every `ps` shows.
fn probe_password(cluster: &ClusterRef) -> EnvVar {
    EnvVar {
        name: "VALKEYCLI_AUTH".to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: cluster.auth_secret_name(),
                key: api::AUTH_KEY_REPL.to_owned(),
                optional: None,
            }),
            ..EnvVarSource::default()
        }),
    }
}

/// A hung server becomes a dead pod after a minute. Any reply is life, errors too (loading, busy): without `-e`
/// `valkey-cli` fails only where it cannot connect, and the timeout ends it where nothing answers.
///
/// With TLS the kubelet only connects, which proves no more than that the process is there: the kernel accepts
/// for one that hangs. That one the operator gives up, once it is silent to it and to a peer for a minute.
fn liveness(node: &ValkeyNodeSpec) -> Probe {
    let (exec, tcp_socket) = if node.tls_secret.is_none() {
        let command = ["valkey-cli", "--user", api::USER_REPL, "ping"];
        let command = Some(command.map(str::to_owned).to_vec());
        (Some(ExecAction { command }), None)
    } else {
        let port = IntOrString::Int(i32::from(api::PORT));
        (None, Some(TCPSocketAction { port, host: None }))
    };
    Probe {
        exec,
        tcp_socket,
        period_seconds: Some(10),
        timeout_seconds: Some(5),
        failure_threshold: Some(6),
        ..Probe::default()
    }
}

/// Each resource is both request and limit.
fn resources(node: &ValkeyNodeSpec) -> Option<ResourceRequirements> {
    let amounts: BTreeMap<_, _> = [("cpu", &node.cpu), ("memory", &node.memory)]
        .into_iter()
        .filter_map(|(name, amount)| Some((name.to_owned(), amount.clone()?)))
        .collect();
    (!amounts.is_empty()).then(|| ResourceRequirements {
        requests: Some(amounts.clone()),
        limits: Some(amounts),
        claims: None,
    })
}

/// A TCP port of the container.
fn container_port(name: &str, port: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: i32::from(port),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

/// A volume at a path.
fn mount(volume: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

/// The data that dies with the pod, and what it is configured with.
fn volumes(cluster: &ClusterRef, node: &NodeFacts, policy: PodPolicy) -> Vec<Volume> {
    let config_map = |volume: &str, name: String| Volume {
        name: volume.to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name,
            default_mode: Some(MODE_PUBLIC),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    };
    let mut volumes = vec![
        Volume {
            name: "data".to_owned(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        },
        config_map("conf", node.name.config_map_name()),
        config_map("acl", cluster.acl_config_map_name()),
        // This key alone: the operator's password has no business in the pod.
        secret(
            "auth",
            cluster.auth_secret_name(),
            &[api::AUTH_KEY_PRIMARYAUTH],
            policy,
        ),
    ];
    if let Some(name) = &node.spec.tls_secret {
        let keys = [
            api::TLS_KEY_CERTIFICATE,
            api::TLS_KEY_PRIVATE_KEY,
            api::TLS_KEY_AUTHORITIES,
        ];
        volumes.push(secret("tls", name.clone(), &keys, policy));
    }
    volumes
}

/// Keys of a Secret, as files of their names.
fn secret(volume: &str, name: String, keys: &[&str], policy: PodPolicy) -> Volume {
    let item = |key: &&str| KeyToPath {
        key: (*key).to_owned(),
        path: (*key).to_owned(),
        mode: None,
    };
    Volume {
        name: volume.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(name),
            // Without a group of ours the process may be anybody.
            default_mode: Some(if policy.fixed_user {
                MODE_GROUP
            } else {
                MODE_PUBLIC
            }),
            items: Some(keys.iter().map(item).collect()),
            optional: None,
        }),
        ..Volume::default()
    }
}

/// The zones that a pod may run in.
fn zone_affinity(placement: &Placement) -> Option<Affinity> {
    // No zones named is no restriction; the API server would refuse an empty list.
    let zones = Some(placement.zones.clone()).filter(|zones| !zones.is_empty())?;
    let in_zones = NodeSelectorRequirement {
        key: LABEL_ZONE.to_owned(),
        operator: "In".to_owned(),
        values: Some(zones),
    };
    Some(Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: vec![NodeSelectorTerm {
                    match_expressions: Some(vec![in_zones]),
                    match_fields: None,
                }],
            }),
            ..NodeAffinity::default()
        }),
        ..Affinity::default()
    })
}

/// How the members of a shard are kept apart: always by host, by zone where zones are named. Only those of one
/// template count: those that a roll replaces are about to go, and keeping clear of them would crowd the others.
fn spread(
    cluster: &ClusterRef,
    node: &ValkeyNodeSpec,
    template: &(String, String),
) -> Vec<TopologySpreadConstraint> {
    let shard = shard_labels(cluster, ShardIndex(node.shard_index));
    let constraint = |topology: &str, mandatory: bool, labels: &BTreeMap<String, String>| {
        let labels = labels.clone().into_iter().chain([template.clone()]);
        let otherwise = if mandatory {
            "DoNotSchedule"
        } else {
            "ScheduleAnyway"
        };
        TopologySpreadConstraint {
            max_skew: 1,
            topology_key: topology.to_owned(),
            when_unsatisfiable: otherwise.to_owned(),
            label_selector: Some(LabelSelector {
                match_labels: Some(labels.collect()),
                match_expressions: None,
            }),
            ..TopologySpreadConstraint::default()
        }
    };
    let mut constraints = vec![constraint(TOPOLOGY_HOST, false, &shard)];
    if let Some(placement) = node.placement.as_ref().filter(|p| !p.zones.is_empty()) {
        match placement.zone_spread.unwrap_or_default() {
            ZoneSpread::BestEffort => constraints.push(constraint(LABEL_ZONE, false, &shard)),
            ZoneSpread::Required => {
                constraints.push(constraint(LABEL_ZONE, true, &shard));
                constraints.push(constraint(LABEL_ZONE, false, &labels(cluster)));
            }
        }
    }
    constraints
}

/// The built-in arm64 toleration, then the menu's.
fn tolerations(resolved: &Resolved) -> Vec<Toleration> {
    let arm64 = Toleration {
        key: Some("kubernetes.io/arch".to_owned()),
        operator: Some("Equal".to_owned()),
        value: Some("arm64".to_owned()),
        effect: Some("NoSchedule".to_owned()),
        toleration_seconds: None,
    };
    [arm64]
        .into_iter()
        .chain(resolved.tolerations.iter().cloned())
        .collect()
}

/// What the image may be pulled with.
fn pull_secrets(resolved: &Resolved) -> Option<Vec<LocalObjectReference>> {
    let reference = |name: &String| LocalObjectReference { name: name.clone() };
    let references: Vec<_> = resolved.pull_secrets.iter().map(reference).collect();
    Some(references).filter(|references| !references.is_empty())
}
