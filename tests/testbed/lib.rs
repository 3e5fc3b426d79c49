//! A whole Kubernetes on one machine, as a library for tests.
//!
//! ```ignore
//! #[path = "../testbed/lib.rs"]
//! mod testbed;
//!
//! let zones = ["a", "b", "c"].map(str::to_owned).to_vec();
//! let testbed = Testbed::up(&Options { nodes: 3, zones, ..Options::default() })?;
//! testbed.kubectl(["get", "nodes"])?;
//! let client = testbed.client()?; // inside a tokio runtime
//! testbed.cut("node-1", &Cut::both_ways())?;
//! ```
//!
//! It ends when it is dropped, and also when the test is killed. All calls block; none needs a
//! runtime but `client`. How the test reaches the API server and the pods from outside is written
//! in `network.rs`, what the testbed is made of in `machine.rs`. Never touches the machine's own
//! network but by one device and one route, never runs unasked.

#![allow(dead_code, reason = "each test program uses another part of it")]

pub(crate) mod cache;
pub(crate) mod command;
pub(crate) mod error;

pub(crate) mod binaries;
pub(crate) mod control;
pub(crate) mod image;
pub(crate) mod machine;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod operator;
mod pki;
pub(crate) mod pod;

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use serde_json::Value;
use serde_json::json;

use self::command::all_at_once;
use self::command::finish;
use self::command::make_directory;
use self::command::read;
use self::command::remove;
use self::command::say;
use self::command::wait_for_success;
use self::command::write;
use self::control::Part;
use self::error::Error;
use self::machine::Hold;
use self::machine::Machine;
use self::machine::Signal;
use self::network::Block;
use self::network::Cut;
use self::node::Node;
use self::pki::Pki;

/// Each takes about 150 MB of memory.
const NODES_MAX: u8 = 32;

/// Nodes are ready 10 s after the API server on two idle cores.
const READY_LIMIT: Duration = Duration::from_mins(3);

/// What a testbed is to be like.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Tells testbeds that run side by side apart.
    pub(crate) name: String,
    /// `node-1` and so on; without any, only the control plane runs.
    pub(crate) nodes: u8,
    /// Dealt to the nodes in turn; without any, nodes have no zone.
    pub(crate) zones: Vec<String>,
    /// So many pods have an address on each node, and one that is gone leaves its own to the next; by default 253.
    pub(crate) pod_addresses: u8,
    pub(crate) api_server_flags: Vec<String>,
    pub(crate) controller_manager_flags: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self {
            name: format!("test-{}-{count}", std::process::id()),
            nodes: 0,
            zones: Vec::new(),
            pod_addresses: network::POD_ADDRESSES_MAX,
            api_server_flags: Vec::new(),
            controller_manager_flags: Vec::new(),
        }
    }
}

/// A running Kubernetes.
pub(crate) struct Testbed {
    pub(crate) machine: Machine,
    pub(crate) nodes: Vec<Node>,
    pub(crate) block: Block,
    /// None for one that stays.
    hold: Option<Hold>,
}

impl Testbed {
    /// Starts a testbed and waits until its nodes are ready. Builds first what is not in the cache
    /// yet.
    pub(crate) fn up(options: &Options) -> Result<Self, Error> {
        let nodes = checked(options)?;
        let images = [image::pause()?, image::valkey()?];
        let start = Instant::now();
        let (machine, hold) = Machine::start(&options.name)?;
        let block = network::take_block(&machine)?;
        let testbed = Self {
            machine,
            nodes,
            block,
            hold: Some(hold),
        };
        testbed.start(options, &images)?;
        say(&format!(
            "{:?} is up with {} nodes after {:.1} s",
            options.name,
            testbed.nodes.len(),
            start.elapsed().as_secs_f32()
        ));
        Ok(testbed)
    }

    /// The testbed of that name, which some program has left running.
    pub(crate) fn attach(name: &str) -> Result<Self, Error> {
        let machine = Machine::attach(name)?;
        let path = machine.directory.join("state.json");
        let damaged = || Error::Refused(format!("{} is damaged or not complete", path.display()));
        let state: Value = serde_json::from_str(&read(&path)?).map_err(|_| damaged())?;
        let number = state
            .get("block")
            .and_then(Value::as_u64)
            .and_then(|number| u8::try_from(number).ok());
        let block = number.and_then(Block::of_number).ok_or_else(damaged)?;
        let zones = state
            .get("zones")
            .and_then(Value::as_array)
            .ok_or_else(damaged)?;
        let nodes = (1..=NODES_MAX).zip(zones).map(|(index, zone)| Node {
            name: format!("node-{index}"),
            index,
            zone: zone.as_str().map(str::to_owned),
        });
        Ok(Self {
            machine,
            nodes: nodes.collect(),
            block,
            hold: None,
        })
    }

    /// Lets the testbed run on when this program ends.
    pub(crate) fn let_stay(mut self) -> Result<(), Error> {
        self.hold.take().map_or(Ok(()), Hold::let_stay)
    }

    /// Ends it and waits until nothing is left of it. Dropping does the same, but cannot say what
    /// failed.
    pub(crate) fn down(mut self) -> Result<(), Error> {
        match self.hold.take() {
            Some(hold) => hold.end(),
            None => machine::end(&self.machine.name),
        }
    }

    /// An administrator's kubeconfig, valid inside and outside of the testbed.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.machine.directory.join("kubeconfig")
    }

    /// An administrator's client. To be called in a tokio runtime.
    pub(crate) fn client(&self) -> Result<kube::Client, Error> {
        let path = self.kubeconfig();
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| Error::Kubeconfig {
            path: path.clone(),
            source,
        };
        // That there is one already, chosen by the test, is what is wanted.
        drop(rustls::crypto::ring::default_provider().install_default());
        let kubeconfig =
            kube::config::Kubeconfig::read_from(&path).map_err(|error| failed(error.into()))?;
        let config = futures::executor::block_on(kube::Config::from_custom_kubeconfig(
            kubeconfig,
            &kube::config::KubeConfigOptions::default(),
        ))
        .map_err(|error| failed(error.into()))?;
        kube::Client::try_from(config).map_err(|error| failed(error.into()))
    }

    pub(crate) fn kubectl<I, S>(&self, words: I) -> Result<String, Error>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        finish(self.command(["kubectl"]).args(words))
    }

    /// `kubectl` with a manifest on its standard input; `words` is for example `["apply", "-f",
    /// "-"]`.
    pub(crate) fn kubectl_with<I, S>(&self, words: I, manifest: &str) -> Result<String, Error>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        command::feed(self.command(["kubectl"]).args(words), manifest.as_bytes())
    }

    /// A command that will run inside: with names of the cluster resolved, `kubectl` and
    /// `valkey-cli` on its PATH.
    pub(crate) fn command<I, S>(&self, words: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        self.machine.inside(words)
    }

    /// Gives every node the image in the archive.
    pub(crate) fn load_image(&self, archive: &Path) -> Result<(), Error> {
        all_at_once(&self.nodes, |node| {
            node::load_image(&self.machine, node, archive)
        })
    }

    /// Gives an image that every node has a second name, as a newer version for an update.
    pub(crate) fn tag_image(&self, from: &str, to: &str) -> Result<(), Error> {
        all_at_once(&self.nodes, |node| {
            node::tag_image(&self.machine, node, from, to)
        })
    }

    pub(crate) fn node_pause(&self, node: &str) -> Result<(), Error> {
        node::pause(&self.machine, self.node(node)?)
    }

    pub(crate) fn node_resume(&self, node: &str) -> Result<(), Error> {
        node::resume(&self.machine, self.node(node)?)
    }

    pub(crate) fn node_kill(&self, node: &str) -> Result<(), Error> {
        node::kill(&self.machine, self.node(node)?)
    }

    pub(crate) fn node_start(&self, node: &str) -> Result<(), Error> {
        node::start_again(&self.machine, self.node(node)?)
    }

    /// Cuts the node's wire; cuts add up until `heal`.
    pub(crate) fn cut(&self, node: &str, cut: &Cut) -> Result<(), Error> {
        network::cut(&self.machine, &self.node(node)?.name, cut)
    }

    /// One packet in so many is lost on the node's wire, whichever way it goes, until `heal`.
    pub(crate) fn lose(&self, node: &str, one_in: u16) -> Result<(), Error> {
        network::lose(&self.machine, &self.node(node)?.name, one_in)
    }

    /// A disk of its own for what the node's pods write, so small that it can be filled. Waits until no pod is left on it.
    pub(crate) fn give_disk(&self, node: &str) -> Result<(), Error> {
        node::give_disk(&self.machine, self.node(node)?)
    }

    /// Fills that disk to the last byte.
    pub(crate) fn fill_disk(&self, node: &str) -> Result<(), Error> {
        node::fill_disk(&self.machine, self.node(node)?)
    }

    pub(crate) fn free_disk(&self, node: &str) -> Result<(), Error> {
        node::free_disk(&self.machine, self.node(node)?)
    }

    pub(crate) fn heal(&self, node: &str) -> Result<(), Error> {
        network::heal(&self.machine, &self.node(node)?.name)
    }

    pub(crate) fn pause(&self, part: Part) -> Result<(), Error> {
        control::pause(&self.machine, part)
    }

    pub(crate) fn resume(&self, part: Part) -> Result<(), Error> {
        control::resume(&self.machine, part)
    }

    pub(crate) fn kill(&self, part: Part) -> Result<(), Error> {
        control::kill(&self.machine, part)
    }

    pub(crate) fn start_again(&self, part: Part) -> Result<(), Error> {
        control::start_again(&self.machine, part)
    }

    /// Sends the signal to every process of the pod's containers, or to those with that process
    /// name.
    pub(crate) fn pod_signal(
        &self,
        pod: &pod::PodName<'_>,
        process: Option<&str>,
        signal: Signal,
    ) -> Result<(), Error> {
        pod::signal(self, pod, process, signal)
    }

    pub(crate) fn pod_exec<I, S>(&self, pod: &pod::PodName<'_>, words: I) -> Result<String, Error>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        let start = ["exec", "--namespace", pod.namespace, pod.name, "--"];
        finish(self.command(["kubectl"]).args(start).args(words))
    }

    /// What was asked of the API server since the start, but reads and heartbeats of Kubernetes
    /// itself.
    pub(crate) fn audit(&self) -> Result<Vec<Value>, Error> {
        let path = self.machine.directory.join("audit.log");
        let text = read(&path)?;
        // The last line may be half written.
        let lines = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        let parse = |line| {
            serde_json::from_str(line).map_err(|source| Error::Json {
                what: path.display().to_string(),
                source,
            })
        };
        lines.map(parse).collect()
    }

    fn node(&self, name: &str) -> Result<&Node, Error> {
        let found = self.nodes.iter().find(|node| node.name == name);
        found.ok_or_else(|| Error::Refused(format!("the testbed has no node {name:?}")))
    }

    fn start(&self, options: &Options, images: &[PathBuf]) -> Result<(), Error> {
        let (machine, block) = (&self.machine, self.block);
        let zones: Vec<_> = self.nodes.iter().map(|node| &node.zone).collect();
        let state = json!({"block": block.number(), "zones": zones});
        let gateway = block.gateway();
        let search = "search default.svc.cluster.local svc.cluster.local cluster.local";
        // Written into, not replaced: the file is mounted over the machine's own.
        write(
            &machine.directory.join("resolv.conf"),
            format!("nameserver {gateway}\n{search}\noptions ndots:5\n"),
        )?;
        let pki = Pki::new(&machine.directory.join("pki"))?;
        control::issue(&pki, block, &self.kubeconfig())?;
        control::start_server(machine, &pki, block, &options.api_server_flags)?;
        let count = u8::try_from(self.nodes.len()).unwrap_or(NODES_MAX);
        for node in &self.nodes {
            network::add_node(machine, block, &node.name, node.index, count)?;
        }
        thread::scope(|scope| {
            // Images are unpacked while the API server starts.
            let runtimes = scope.spawn(|| {
                all_at_once(&self.nodes, |node| {
                    node::start_runtime(machine, node)?;
                    images
                        .iter()
                        .try_for_each(|image| node::load_image(machine, node, image))
                })
            });
            control::wait_for_server(machine)?;
            control::start_others(machine, &pki, block, &options.controller_manager_flags)?;
            runtimes.join().unwrap_or_else(|_| {
                Err(Error::Refused(
                    "a thread of the testbed panicked".to_owned(),
                ))
            })
        })?;
        all_at_once(&self.nodes, |node| {
            node::start_agents(machine, node, &pki, block, options.pod_addresses)
        })?;
        self.wait_until_ready()?;
        write(&machine.directory.join("state.json"), state.to_string())
    }

    /// Waits until each node is ready and pods can be made.
    pub(crate) fn wait_until_ready(&self) -> Result<(), Error> {
        let account = ["get", "serviceaccount", "default", "--namespace", "default"];
        let what = "the default service account";
        wait_for_success(what, READY_LIMIT, || self.kubectl(account))?;
        if self.nodes.is_empty() {
            return Ok(());
        }
        let names = self.nodes.iter().map(|node| format!("node/{}", node.name));
        let start = ["wait", "--for=condition=Ready", "--timeout=10s"].map(str::to_owned);
        let words: Vec<_> = start.into_iter().chain(names).collect();
        wait_for_success("every node to be ready", READY_LIMIT, || {
            self.kubectl(&words)
        })
        .map(drop)
    }

    /// For the reader of a failed test; the testbed's own directory goes with it.
    fn keep_logs(&self) -> Result<(), Error> {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("target/testbed-logs")
            .join(&self.machine.name);
        remove(&kept)?;
        make_directory(&kept)?;
        let log = self.machine.directory.join("log/.");
        command::run([
            "cp".as_ref(),
            "-a".as_ref(),
            log.as_os_str(),
            kept.as_os_str(),
        ])?;
        say(&format!("the logs are kept in {}", kept.display()));
        Ok(())
    }
}

/// The path of Valkey's server, to be run on the machine itself as any program: a test of real
/// servers on loopback needs no Kubernetes. Built on first use.
pub(crate) fn valkey_server() -> Result<PathBuf, Error> {
    Ok(image::valkey_programs()?.join("valkey-server"))
}

/// The path of Valkey's client, as above.
pub(crate) fn valkey_cli() -> Result<PathBuf, Error> {
    Ok(image::valkey_programs()?.join("valkey-cli"))
}

impl Drop for Testbed {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else {
            return;
        };
        let kept = if thread::panicking() {
            self.keep_logs()
        } else {
            Ok(())
        };
        if let Err(error) = kept.and(hold.end()) {
            say(&format!(
                "the end of testbed {:?} was not clean: {error}",
                self.machine.name
            ));
        }
    }
}

/// The nodes that the options ask for.
fn checked(options: &Options) -> Result<Vec<Node>, Error> {
    machine::check_name(&options.name)?;
    if options.nodes > NODES_MAX {
        return Err(Error::Refused(format!(
            "a testbed has at most {NODES_MAX} nodes"
        )));
    }
    if !(1..=network::POD_ADDRESSES_MAX).contains(&options.pod_addresses) {
        return Err(Error::Refused(format!(
            "a node has 1 to {} pod addresses",
            network::POD_ADDRESSES_MAX
        )));
    }
    if let Some(zone) = options
        .zones
        .iter()
        .find(|zone| !machine::is_plain(zone, 63))
    {
        return Err(Error::Refused(format!(
            "a zone is 1 to 63 of a-z, 0-9 and '-', which {zone:?} is not"
        )));
    }
    let mut flags = options
        .api_server_flags
        .iter()
        .chain(&options.controller_manager_flags);
    if let Some(flag) = flags.find(|flag| !flag.starts_with("--") || flag.contains('\n')) {
        return Err(Error::Refused(format!(
            "a flag starts with --, which {flag:?} does not"
        )));
    }
    let zone_of = |index: u8| {
        let zones = options.zones.len();
        let position = usize::from(index).checked_sub(1)?.checked_rem(zones)?;
        options.zones.get(position).cloned()
    };
    let node = |index| Node {
        name: format!("node-{index}"),
        index,
        zone: zone_of(index),
    };
    Ok((1..=options.nodes).map(node).collect())
}
