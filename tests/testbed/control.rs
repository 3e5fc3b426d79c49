//! The control plane: etcd, API server, controller manager, scheduler and DNS, and what can befall
//! them.
//! Never runs a second copy of any of them.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::command::wait_for_success;
use super::command::write;
use super::error::Error;
use super::machine::Daemon;
use super::machine::Machine;
use super::machine::Signal;
use super::network::Block;
use super::pki::Holder;
use super::pki::Pki;

/// Twenty times what it takes on two idle cores.
const READY_LIMIT: Duration = Duration::from_mins(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Etcd,
    ApiServer,
    ControllerManager,
    Scheduler,
    Dns,
}

impl Part {
    pub(crate) const ALL: [Self; 5] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Dns,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Dns => "coredns",
        }
    }
}

pub(crate) fn issue(pki: &Pki, block: Block, kubeconfig: &Path) -> Result<(), Error> {
    let names = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "localhost",
    ];
    let addresses = [
        "127.0.0.1".to_owned(),
        block.gateway(),
        block.server_service(),
    ];
    pki.issue(&Holder {
        file: "server",
        common_name: "kube-apiserver",
        organization: "",
        hosts: names
            .map(str::to_owned)
            .into_iter()
            .chain(addresses)
            .collect(),
    })?;
    for (file, common_name, organization) in [
        ("admin", "admin", "system:masters"),
        // The parts of the control plane have names of their own, so that the audit log tells them
        // apart.
        ("controller-manager", "system:kube-controller-manager", ""),
        ("scheduler", "system:kube-scheduler", ""),
        ("proxy", "system:kube-proxy", ""),
        ("dns", "testbed:dns", "system:masters"),
        ("kubelet-client", "testbed:server", "system:masters"),
    ] {
        let holder = Holder {
            file,
            common_name,
            organization,
            hosts: Vec::new(),
        };
        pki.kubeconfig(&block.server(), &holder)?;
    }
    std::fs::copy(pki.file("admin", "conf"), kubeconfig)
        .map(drop)
        .map_err(|source| Error::File {
            doing: "write",
            path: kubeconfig.to_owned(),
            source,
        })
}

/// Starts etcd and the API server; they are not ready when this returns.
pub(crate) fn start_server(
    machine: &Machine,
    pki: &Pki,
    block: Block,
    flags: &[String],
) -> Result<(), Error> {
    let directory = machine.directory.display();
    launch(
        machine,
        Part::Etcd,
        vec![
            format!("--data-dir={directory}/etcd"),
            "--listen-client-urls=http://127.0.0.1:2379".to_owned(),
            "--advertise-client-urls=http://127.0.0.1:2379".to_owned(),
            "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
            // What is in it need not survive the machine.
            "--unsafe-no-fsync".to_owned(),
        ],
    )?;
    let policy = machine.directory.join("audit.json");
    write(&policy, audit_policy().to_string())?;
    let file = |name, extension| pki.file(name, extension).display().to_string();
    let mut words = vec![
        "--etcd-servers=http://127.0.0.1:2379".to_owned(),
        "--secure-port=6443".to_owned(),
        format!("--advertise-address={}", block.gateway()),
        format!("--service-cluster-ip-range={}", block.services()),
        format!("--tls-cert-file={}", file("server", "crt")),
        format!("--tls-private-key-file={}", file("server", "key")),
        format!("--client-ca-file={}", file("ca", "crt")),
        format!(
            "--kubelet-client-certificate={}",
            file("kubelet-client", "crt")
        ),
        format!("--kubelet-client-key={}", file("kubelet-client", "key")),
        // Else exec and logs look the node's name up in DNS.
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        format!("--service-account-key-file={}", file("accounts", "pub")),
        format!(
            "--service-account-signing-key-file={}",
            file("accounts", "key")
        ),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--service-account-extend-token-expiration=false".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement"
            .to_owned(),
        "--allow-privileged=true".to_owned(),
        format!("--audit-policy-file={}", policy.display()),
        format!(
            "--audit-log-path={}",
            machine.directory.join("audit.log").display()
        ),
    ];
    words.extend(flags.iter().cloned());
    launch(machine, Part::ApiServer, words)
}

pub(crate) fn wait_for_server(machine: &Machine) -> Result<(), Error> {
    let command = ["kubectl", "--request-timeout=5s", "get", "--raw", "/readyz"];
    wait_for_success("a ready API server", READY_LIMIT, || machine.run(command)).map(drop)
}

/// Starts what needs the API server.
pub(crate) fn start_others(
    machine: &Machine,
    pki: &Pki,
    block: Block,
    flags: &[String],
) -> Result<(), Error> {
    let file = |name, extension| pki.file(name, extension).display().to_string();
    let config = |name| {
        [
            "--kubeconfig",
            "--authentication-kubeconfig",
            "--authorization-kubeconfig",
        ]
        .map(|flag| format!("{flag}={}", file(name, "conf")))
        .to_vec()
    };
    let mut words = config("controller-manager");
    words.extend([
        "--leader-elect=false".to_owned(),
        "--use-service-account-credentials=true".to_owned(),
        format!(
            "--service-account-private-key-file={}",
            file("accounts", "key")
        ),
        format!("--root-ca-file={}", file("ca", "crt")),
        format!("--cluster-signing-cert-file={}", file("ca", "crt")),
        format!("--cluster-signing-key-file={}", file("ca", "key")),
    ]);
    words.extend(flags.iter().cloned());
    launch(machine, Part::ControllerManager, words)?;
    let mut words = config("scheduler");
    words.push("--leader-elect=false".to_owned());
    launch(machine, Part::Scheduler, words)?;
    let gateway = block.gateway();
    let corefile = machine.directory.join("Corefile");
    let dns_config = file("dns", "conf");
    write(
        &corefile,
        format!(
            ".:53 {{\n  bind {gateway}\n  errors\n  cache 5\n  \
             kubernetes cluster.local in-addr.arpa {{\n    kubeconfig {dns_config}\n    ttl 0\n  }}\n}}\n"
        ),
    )?;
    launch(
        machine,
        Part::Dns,
        vec!["-conf".to_owned(), corefile.display().to_string()],
    )
}

pub(crate) fn pause(machine: &Machine, part: Part) -> Result<(), Error> {
    machine.signal(part.name(), Signal::Stop)
}

pub(crate) fn resume(machine: &Machine, part: Part) -> Result<(), Error> {
    machine.signal(part.name(), Signal::Continue)
}

pub(crate) fn kill(machine: &Machine, part: Part) -> Result<(), Error> {
    machine.kill(part.name())
}

/// Starts a part that was killed, and waits until the API server is ready where it is that one or
/// under it.
pub(crate) fn start_again(machine: &Machine, part: Part) -> Result<(), Error> {
    machine.start_again(part.name())?;
    match part {
        Part::Etcd | Part::ApiServer => wait_for_server(machine),
        Part::ControllerManager | Part::Scheduler | Part::Dns => Ok(()),
    }
}

fn launch(machine: &Machine, part: Part, flags: Vec<String>) -> Result<(), Error> {
    let mut words = vec![part.name().to_owned()];
    words.extend(flags);
    machine.launch(&Daemon {
        name: part.name(),
        cgroup: "control",
        network: None,
        words,
    })
}

/// Everything that users and operators do, and what Kubernetes itself writes but its heartbeats.
fn audit_policy() -> serde_json::Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [
            {"level": "None", "resources": [
                {"group": "coordination.k8s.io", "resources": ["leases"]},
                {"group": "authentication.k8s.io"},
                {"group": "authorization.k8s.io"},
            ]},
            {"level": "None", "nonResourceURLs": ["/*"]},
            {"level": "None", "verbs": ["get", "list", "watch"], "userGroups": [
                "system:nodes", "system:serviceaccounts:kube-system",
            ]},
            {"level": "None", "verbs": ["get", "list", "watch"], "users": [
                "system:apiserver", "system:kube-controller-manager", "system:kube-scheduler",
                "system:kube-proxy", "testbed:dns",
            ]},
            // With the objects themselves, so that each can be told at any moment.
            {"level": "RequestResponse", "omitManagedFields": true,
             "verbs": ["create", "update", "patch", "delete"], "resources": [
                {"group": "valkey.gomomento.com"},
                {"group": "", "resources": [
                    "configmaps", "pods", "pods/eviction", "pods/status", "secrets", "services",
                ]},
            ]},
            {"level": "Metadata"},
        ],
    })
}
