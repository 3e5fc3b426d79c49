//! A node: a network namespace with a containerd, a kubelet and a kube-proxy of its own, and what
//! can befall it.
//! Never shares a store or a socket with another node.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use super::command::Look;
use super::command::make_directory;
use super::command::run;
use super::command::wait_for;
use super::command::wait_for_success;
use super::command::write;
use super::error::Error;
use super::image;
use super::machine::Daemon;
use super::machine::Machine;
use super::network;
use super::network::Block;
use super::pki::Holder;
use super::pki::Pki;

/// A containerd answers within a second; the rest is a machine under load.
const START_LIMIT: Duration = Duration::from_mins(1);

/// The processes of a node end at once when they are killed.
const END_LIMIT: Duration = Duration::from_secs(30);

/// Some ten small pods write as much, and a test fills the rest in no time.
const DISK_BYTES: u32 = 32 << 20;

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// From 1.
    pub(crate) index: u8,
    pub(crate) zone: Option<String>,
}

impl Node {
    fn daemon(&self, part: &str) -> String {
        format!("{part}-{}", self.name)
    }

    fn directory(&self, machine: &Machine) -> PathBuf {
        machine.directory.join("nodes").join(&self.name)
    }

    fn socket(&self, machine: &Machine) -> PathBuf {
        self.directory(machine).join("containerd.sock")
    }
}

/// Starts the container runtime; needs no API server.
pub(crate) fn start_runtime(machine: &Machine, node: &Node) -> Result<(), Error> {
    let directory = node.directory(machine);
    make_directory(&directory.join("cni"))?;
    let config = directory.join("containerd.toml");
    write(&config, containerd_config(&directory))?;
    machine.launch(&Daemon {
        name: &node.daemon("containerd"),
        cgroup: &format!("{}/daemons", node.name),
        network: Some(&node.name),
        words: ["containerd", "--config"]
            .map(str::to_owned)
            .into_iter()
            .chain([config.display().to_string()])
            .collect(),
    })?;
    wait_for_runtime(machine, node)
}

pub(crate) fn load_image(machine: &Machine, node: &Node, archive: &Path) -> Result<(), Error> {
    let archive = archive.display().to_string();
    ctr(machine, node, &["images", "import", "--local", &archive]).map(drop)
}

/// Gives an image that the node has a second name.
pub(crate) fn tag_image(machine: &Machine, node: &Node, from: &str, to: &str) -> Result<(), Error> {
    ctr(machine, node, &["images", "tag", "--force", from, to]).map(drop)
}

/// Starts the kubelet and the proxy; needs the API server.
pub(crate) fn start_agents(
    machine: &Machine,
    node: &Node,
    pki: &Pki,
    block: Block,
    pod_addresses: u8,
) -> Result<(), Error> {
    let directory = node.directory(machine);
    let address = block.node(node.index);
    let kubeconfig = pki.kubeconfig(
        &block.server(),
        &Holder {
            file: &node.name,
            common_name: &format!("system:node:{}", node.name),
            organization: "system:nodes",
            hosts: vec![node.name.clone(), address.clone()],
        },
    )?;
    write(
        &directory.join("cni/pods.conflist"),
        pod_network(&directory, block, node.index, pod_addresses).to_string(),
    )?;
    let config = directory.join("kubelet.json");
    write(
        &config,
        kubelet_config(machine, node, pki, block).to_string(),
    )?;
    let mut words = vec![
        "kubelet".to_owned(),
        format!("--config={}", config.display()),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--root-dir={}/kubelet", directory.display()),
        format!("--cert-dir={}/kubelet/pki", directory.display()),
        format!("--hostname-override={}", node.name),
        format!("--node-ip={address}"),
    ];
    if let Some(zone) = &node.zone {
        words.push(format!("--node-labels=topology.kubernetes.io/zone={zone}"));
    }
    machine.launch(&Daemon {
        name: &node.daemon("kubelet"),
        cgroup: &format!("{}/daemons", node.name),
        network: Some(&node.name),
        words,
    })?;
    machine.launch(&Daemon {
        name: &node.daemon("kube-proxy"),
        cgroup: &format!("{}/daemons", node.name),
        network: Some(&node.name),
        words: vec![
            "kube-proxy".to_owned(),
            format!("--kubeconfig={}", pki.file("proxy", "conf").display()),
            format!("--hostname-override={}", node.name),
            // The nftables mode stops at its IPv6 table where the kernel has none.
            "--proxy-mode=iptables".to_owned(),
            format!("--cluster-cidr={}", block.pods()),
            // Only the machine's first network namespace may set it.
            "--conntrack-max-per-core=0".to_owned(),
        ],
    })
}

/// Stops every process of the node where it stands, as a hung machine does: it neither works nor
/// closes connections.
pub(crate) fn pause(machine: &Machine, node: &Node) -> Result<(), Error> {
    freeze(machine, node, true)
}

pub(crate) fn resume(machine: &Machine, node: &Node) -> Result<(), Error> {
    freeze(machine, node, false)
}

/// Ends every process of the node at once, containers included, and takes it off the network, as a
/// power failure does.
pub(crate) fn kill(machine: &Machine, node: &Node) -> Result<(), Error> {
    network::set_plugged(machine, &node.name, false)?;
    freeze(machine, node, false)?;
    wait_for(&format!("the end of {}", node.name), END_LIMIT, || {
        let pids = processes(machine, node);
        if pids.is_empty() {
            return Ok(Look::Came(()));
        }
        // One of them may have ended in between; the next look decides.
        let kill = ["kill", "-KILL"]
            .map(str::to_owned)
            .into_iter()
            .chain(pids.clone());
        drop(run(kill));
        Ok(Look::NotYet(format!("processes {}", pids.join(" "))))
    })
}

/// Starts a node that was killed; its containers are gone, its images and its kubelet's files are
/// not.
pub(crate) fn start_again(machine: &Machine, node: &Node) -> Result<(), Error> {
    // A starting machine has nothing mounted.
    let directory = node.directory(machine).display().to_string();
    let unmount = "grep -o \" $1/[^ ]*\" /proc/mounts | sort --reverse \
                   | xargs --no-run-if-empty umount --lazy";
    machine.run(["bash", "-c", unmount, "bash", &directory])?;
    network::set_plugged(machine, &node.name, true)?;
    machine.start_again(&node.daemon("containerd"))?;
    wait_for_runtime(machine, node)?;
    machine.start_again(&node.daemon("kubelet"))?;
    machine.start_again(&node.daemon("kube-proxy"))
}

/// Mounts a small file system where the kubelet keeps what pods write, once the last pod has left nothing there.
pub(crate) fn give_disk(machine: &Machine, node: &Node) -> Result<(), Error> {
    let place = pods_directory(machine, node).display().to_string();
    wait_for(&format!("no pod on {}", node.name), END_LIMIT, || {
        let left = machine.run(["find", &place, "-mindepth", "1", "-maxdepth", "1"])?;
        Ok(if left.is_empty() {
            Look::Came(())
        } else {
            Look::NotYet(left)
        })
    })?;
    let size = format!("size={DISK_BYTES}");
    let mount = ["mount", "-t", "tmpfs", "-o", &size, "tmpfs", &place];
    machine.run(mount).map(drop)
}

pub(crate) fn fill_disk(machine: &Machine, node: &Node) -> Result<(), Error> {
    let fill = "fallocate --length \"$(df --output=avail --block-size=1 \"$1\" | tail -n 1)\" \"$1/filler\"";
    let place = pods_directory(machine, node).display().to_string();
    machine.run(["bash", "-c", fill, "bash", &place]).map(drop)
}

pub(crate) fn free_disk(machine: &Machine, node: &Node) -> Result<(), Error> {
    let filler = pods_directory(machine, node).join("filler");
    machine.run(["rm".as_ref(), filler.as_os_str()]).map(drop)
}

fn pods_directory(machine: &Machine, node: &Node) -> PathBuf {
    node.directory(machine).join("kubelet/pods")
}

/// The process ids, as seen from outside, of one container of the node.
pub(crate) fn container_processes(machine: &Machine, node: &Node, container: &str) -> Vec<String> {
    let mut pids = Vec::new();
    for cgroup in tree(&tracking_cgroup(machine, node)) {
        if cgroup
            .components()
            .any(|part| part.as_os_str() == container)
        {
            pids.extend(pids_of(&cgroup));
        }
    }
    pids
}

fn processes(machine: &Machine, node: &Node) -> Vec<String> {
    tree(&tracking_cgroup(machine, node))
        .iter()
        .flat_map(|cgroup| pids_of(cgroup))
        .collect()
}

fn pids_of(cgroup: &Path) -> Vec<String> {
    // A control group that is gone has no processes.
    let list = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    list.lines().map(str::to_owned).collect()
}

fn tree(root: &Path) -> Vec<PathBuf> {
    let mut directories = vec![root.to_owned()];
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            directories.extend(tree(&entry.path()));
        }
    }
    directories
}

/// The node's control group in the hierarchy that can freeze, which has every process of the node.
fn tracking_cgroup(machine: &Machine, node: &Node) -> PathBuf {
    let roots = machine.cgroups();
    let freezer = roots
        .iter()
        .find(|root| root.join("freezer.state").exists() || root.join("cgroup.freeze").exists());
    let root = freezer
        .or_else(|| roots.first())
        .cloned()
        .unwrap_or_default();
    root.join(&node.name)
}

fn freeze(machine: &Machine, node: &Node, frozen: bool) -> Result<(), Error> {
    let cgroup = tracking_cgroup(machine, node);
    let version_1 = cgroup.join("freezer.state");
    if !version_1.exists() {
        write(
            &cgroup.join("cgroup.freeze"),
            if frozen { "1" } else { "0" },
        )?;
        let wanted = if frozen { "frozen 1" } else { "frozen 0" };
        return reads(&cgroup.join("cgroup.events"), wanted);
    }
    let wanted = if frozen { "FROZEN" } else { "THAWED" };
    write(&version_1, wanted)?;
    reads(&version_1, wanted)
}

fn reads(path: &Path, wanted: &str) -> Result<(), Error> {
    wait_for(
        &format!("{wanted} in {}", path.display()),
        END_LIMIT,
        || {
            let state = super::command::read(path)?;
            Ok(if state.contains(wanted) {
                Look::Came(())
            } else {
                Look::NotYet(state)
            })
        },
    )
}

fn wait_for_runtime(machine: &Machine, node: &Node) -> Result<(), Error> {
    let what = format!("an answer of containerd on {}", node.name);
    wait_for_success(&what, START_LIMIT, || ctr(machine, node, &["version"])).map(drop)
}

fn ctr(machine: &Machine, node: &Node, words: &[&str]) -> Result<String, Error> {
    let socket = node.socket(machine).display().to_string();
    let start = ["ctr", "--address", &socket, "--namespace", "k8s.io"];
    machine.run(start.iter().chain(words))
}

fn containerd_config(directory: &Path) -> String {
    let directory = directory.display();
    let pause = image::PAUSE;
    format!(
        r#"version = 3
root = "{directory}/containerd"
state = "{directory}/containerd-state"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
  address = "{directory}/containerd.sock"
[plugins.'io.containerd.internal.v1.opt']
  path = "{directory}/opt"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
  # Not every machine lets its root lower the score.
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{directory}/cni"
"#
    )
}

fn pod_network(directory: &Path, block: Block, node: u8, addresses: u8) -> serde_json::Value {
    let range = json!({
        "subnet": block.pods_of(node),
        "rangeEnd": block.last_pod_of(node, addresses),
    });
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "pods",
                "isGateway": true,
                "ipMasq": false,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": directory.join("cni-addresses"),
                    "ranges": [[range]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

fn kubelet_config(machine: &Machine, node: &Node, pki: &Pki, block: Block) -> serde_json::Value {
    let directory = node.directory(machine);
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", node.name),
        "enforceNodeAllocatable": ["pods"],
        "oomScoreAdj": 0,
        "failSwapOn": false,
        "authentication": {
            "anonymous": {"enabled": false},
            "x509": {"clientCAFile": pki.file("ca", "crt")},
            "webhook": {"enabled": false},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "clusterDNS": [block.gateway()],
        "clusterDomain": "cluster.local",
        "resolvConf": machine.directory.join("resolv.conf"),
        "containerRuntimeEndpoint": format!("unix://{}", node.socket(machine).display()),
        "tlsCertFile": pki.file(&node.name, "crt"),
        "tlsPrivateKeyFile": pki.file(&node.name, "key"),
        "podLogsDir": directory.join("pod-logs"),
        "volumePluginDir": directory.join("volume-plugins"),
        // Changes of ConfigMaps and Secrets reach the pods within seconds; the default is a minute.
        "syncFrequency": "5s",
        // The disk and the memory are the machine's, and no node's to defend.
        "evictionHard": {
            "nodefs.available": "1Mi",
            "imagefs.available": "1Mi",
            "memory.available": "50Mi",
        },
        // Images cannot be pulled a second time.
        "imageGCHighThresholdPercent": 100,
        "maxPods": 200,
    })
}
