//! The addresses of a testbed and the wires between its parts.
//!
//! Each testbed has one block 10.N.0.0/16, with a free N between 130 and 249: nodes in 10.N.0.0/24
//! on one bridge, Services in 10.N.16.0/20, the pods of node i in 10.N.(128+i).0/24. The machine
//! outside has one network device into the testbed and one route to that block, so that a test
//! reaches the API server and every pod by the very addresses that are used inside. Device and
//! route vanish with the testbed's namespace. Service addresses are answered on nodes and in pods
//! only.
//!
//! Never takes a block that the machine's routes or another testbed use.

use super::command::run;
use super::command::say;
use super::error::Error;
use super::machine::Machine;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block(u8);

const BLOCKS: std::ops::RangeInclusive<u8> = 130..=249;

/// Of 256 the network, the node's own end and the broadcast are no pod's.
pub(crate) const POD_ADDRESSES_MAX: u8 = 253;

impl Block {
    pub(crate) fn of_number(number: u8) -> Option<Self> {
        BLOCKS.contains(&number).then_some(Self(number))
    }

    pub(crate) fn number(self) -> u8 {
        self.0
    }

    /// Of the bridge: the API server, DNS, and every node's way out.
    pub(crate) fn gateway(self) -> String {
        format!("10.{}.0.1", self.0)
    }

    pub(crate) fn server(self) -> String {
        format!("https://{}:6443", self.gateway())
    }

    pub(crate) fn node(self, index: u8) -> String {
        format!("10.{}.0.{}", self.0, index.saturating_add(10))
    }

    pub(crate) fn services(self) -> String {
        format!("10.{}.16.0/20", self.0)
    }

    /// The first Service address is the API server's.
    pub(crate) fn server_service(self) -> String {
        format!("10.{}.16.1", self.0)
    }

    pub(crate) fn pods(self) -> String {
        format!("10.{}.128.0/17", self.0)
    }

    pub(crate) fn pods_of(self, index: u8) -> String {
        format!("10.{}.{}.0/24", self.0, index.saturating_add(128))
    }

    /// The last of so many addresses for pods; the node's own end comes before them.
    pub(crate) fn last_pod_of(self, index: u8, addresses: u8) -> String {
        let last = addresses.saturating_add(1);
        format!("10.{}.{}.{last}", self.0, index.saturating_add(128))
    }

    fn whole(self) -> String {
        format!("10.{}.0.0/16", self.0)
    }

    fn outside_device(self) -> String {
        format!("vktestbed{}", self.0)
    }

    fn outside_address(self) -> String {
        format!("10.{}.255.2", self.0)
    }

    fn inside_address(self) -> String {
        format!("10.{}.255.1", self.0)
    }
}

/// Takes a free block and connects the machine outside with it.
pub(crate) fn take_block(machine: &Machine) -> Result<Block, Error> {
    let used = [
        run(["ip", "-4", "-oneline", "route", "show", "table", "all"])?,
        run(["ip", "-4", "-oneline", "address", "show"])?,
    ]
    .concat();
    for number in BLOCKS {
        let block = Block(number);
        if used.contains(&format!(" 10.{number}.")) || used.contains(&format!("\n10.{number}.")) {
            continue;
        }
        // The name of the device is the claim: of two testbeds that start together, one fails here
        // and tries the next.
        match machine.give_device(&block.outside_device(), "outside") {
            Ok(()) => return connect(machine, block).map(|()| block),
            Err(Error::Failed { output, .. }) if output.contains("File exists") => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::Refused(
        "no block 10.N.0.0/16 is free on this machine".to_owned(),
    ))
}

fn connect(machine: &Machine, block: Block) -> Result<(), Error> {
    let device = block.outside_device();
    let (here, there) = (block.outside_address(), block.inside_address());
    machine.run([
        "ip",
        "address",
        "add",
        &format!("{there}/30"),
        "dev",
        "outside",
    ])?;
    machine.run(["ip", "link", "set", "outside", "up"])?;
    run([
        "ip",
        "address",
        "add",
        &format!("{here}/30"),
        "dev",
        &device,
    ])?;
    run(["ip", "link", "set", &device, "up"])?;
    run([
        "ip",
        "route",
        "add",
        &block.whole(),
        "via",
        &there,
        "dev",
        &device,
    ])?;
    machine.run(["ip", "link", "add", "bridge", "type", "bridge"])?;
    let gateway = format!("{}/24", block.gateway());
    machine.run(["ip", "address", "add", &gateway, "dev", "bridge"])?;
    machine.run(["ip", "link", "set", "bridge", "up"])?;
    say(&format!(
        "network {} is reached through device {device}",
        block.whole()
    ));
    Ok(())
}

/// A network namespace for the node, with an address on the bridge and routes to every other node's
/// pods.
pub(crate) fn add_node(
    machine: &Machine,
    block: Block,
    node: &str,
    index: u8,
    nodes: u8,
) -> Result<(), Error> {
    let device = node_device(node);
    let address = format!("{}/24", block.node(index));
    let gateway = block.gateway();
    let inside = |words: &[&str]| machine.run(["ip", "-netns", node].iter().chain(words));
    machine.run(["ip", "netns", "add", node])?;
    let pair = [
        "ip", "link", "add", &device, "type", "veth", "peer", "name", "eth0",
    ];
    machine.run(pair.into_iter().chain(["netns", node]))?;
    machine.run(["ip", "link", "set", &device, "master", "bridge", "up"])?;
    inside(&["address", "add", &address, "dev", "eth0"])?;
    inside(&["link", "set", "eth0", "up"])?;
    inside(&["link", "set", "lo", "up"])?;
    inside(&["route", "add", "default", "via", &gateway])?;
    for other in (1..=nodes).filter(|other| *other != index) {
        inside(&[
            "route",
            "add",
            &block.pods_of(other),
            "via",
            &block.node(other),
        ])?;
    }
    machine.run([
        "ip",
        "route",
        "add",
        &block.pods_of(index),
        "via",
        &block.node(index),
    ])?;
    let forward = "net.ipv4.ip_forward=1";
    machine
        .run([
            "nsenter",
            &format!("--net=/run/netns/{node}"),
            "sysctl",
            "-qw",
            forward,
        ])
        .map(drop)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// What comes to the node is lost.
    In,
    /// What the node sends is lost.
    Out,
    Both,
}

/// What is lost on a node's wire; everything, where neither port nor peer is given.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub(crate) direction: Direction,
    /// A TCP port of either end.
    pub(crate) port: Option<u16>,
    /// The address of a pod or of another node.
    pub(crate) peer: Option<std::net::Ipv4Addr>,
}

impl Cut {
    pub(crate) fn both_ways() -> Self {
        Self {
            direction: Direction::Both,
            port: None,
            peer: None,
        }
    }
}

/// Cuts the node's wire; cuts add up.
pub(crate) fn cut(machine: &Machine, node: &str, cut: &Cut) -> Result<(), Error> {
    let peer = cut.peer.map(|peer| peer.to_string());
    let port = cut.port.map(|port| port.to_string());
    let ends: &[&str] = match port {
        None => &[""],
        Some(_) => &["--dport", "--sport"],
    };
    for end in ends {
        for (passed_over, place, side) in [
            (Direction::Out, COME, "--source"),
            (Direction::In, GO, "--destination"),
        ] {
            if cut.direction == passed_over {
                continue;
            }
            let mut which = Vec::new();
            which.extend(peer.iter().flat_map(|peer| [side, peer]));
            which.extend(
                port.iter()
                    .flat_map(|port| ["--protocol", "tcp", *end, port]),
            );
            drop_packets(machine, node, place, &which)?;
        }
    }
    Ok(())
}

/// One packet in so many is lost on the node's wire, whichever way it goes.
pub(crate) fn lose(machine: &Machine, node: &str, one_in: u16) -> Result<(), Error> {
    let share = (1.0 / f32::from(one_in)).to_string();
    let which = [
        "--match",
        "statistic",
        "--mode",
        "random",
        "--probability",
        &share,
    ];
    for place in [COME, GO] {
        drop_packets(machine, node, place, &which)?;
    }
    Ok(())
}

/// What comes in on the wire. The raw table comes before connection tracking, so that established connections are hit as
/// well.
const COME: [&str; 5] = ["raw", "--append", "PREROUTING", "--in-interface", "eth0"];

/// What goes out on it.
const GO: [&str; 5] = [
    "mangle",
    "--append",
    "POSTROUTING",
    "--out-interface",
    "eth0",
];

fn drop_packets(
    machine: &Machine,
    node: &str,
    place: [&str; 5],
    which: &[&str],
) -> Result<(), Error> {
    let words = [&["--table"], &place[..], which, &["--jump", "DROP"]].concat();
    iptables(machine, node, &words)
}

/// Undoes every cut and loss of the node.
pub(crate) fn heal(machine: &Machine, node: &str) -> Result<(), Error> {
    for (table, chain) in [("raw", "PREROUTING"), ("mangle", "POSTROUTING")] {
        iptables(machine, node, &["--table", table, "--flush", chain])?;
    }
    Ok(())
}

/// Pulls the node's plug, or puts it back.
pub(crate) fn set_plugged(machine: &Machine, node: &str, plugged: bool) -> Result<(), Error> {
    let state = if plugged { "up" } else { "down" };
    machine
        .run(["ip", "link", "set", &node_device(node), state])
        .map(drop)
}

fn node_device(node: &str) -> String {
    format!("to-{node}")
}

fn iptables(machine: &Machine, node: &str, words: &[&str]) -> Result<(), Error> {
    let network = format!("--net=/run/netns/{node}");
    let start = ["nsenter", &network, "iptables", "--wait"];
    machine.run(start.iter().chain(words)).map(drop)
}
