//! A bootstrap under each fault: it ends Active in the right shape, and never with a node too many.
//! Never waits for luck: each fault strikes at what the operator says it just did.

use std::thread;
use std::time::Duration;

use crate::all;
use crate::follow::ACTIVATION;
use crate::follow::Followed;
use crate::follow::Said;
use crate::slow;
use crate::stage::LIMIT;
use crate::stage::Shape;
use crate::stage::Stage;
use crate::stage::say;
use crate::stage::until;
use crate::testbed::control::Part;
use crate::testbed::machine::Signal;
use crate::testbed::pod::PodName;

/// Longer than `cluster-node-timeout` and than the operator's own deadlines for one answer.
const PAUSE: Duration = Duration::from_secs(5);

/// Shorter than `cluster-node-timeout`.
const HICCUP: Duration = Duration::from_secs(3);

const CREATED: &str = "node created";
const POD: &str = "creating Pod for node";
const STAMP: &str = "pod recorded";
const MEET: &str = "cluster meet issued";
const SLOTS: &str = "slots assigned";
const REPLICA: &str = "replica attached";

/// What strikes a cluster, given where and what was just said of it.
struct Fault {
    name: &'static str,
    /// The messages it strikes after, one cluster each; without `ALL=1` the first only.
    after: &'static [&'static str],
    /// How many nodes it costs at the most.
    costs: usize,
    strike: fn(&Stage, &str, &Said),
}

const FAULTS: &[Fault] = &[
    Fault {
        name: "api-killed",
        after: &[CREATED, SLOTS],
        costs: 0,
        strike: kill_api_server,
    },
    Fault {
        name: "api-paused",
        after: &[POD, MEET],
        costs: 0,
        strike: |stage, _, _| pause(stage, Part::ApiServer),
    },
    Fault {
        name: "etcd-paused",
        after: &[CREATED, REPLICA],
        costs: 0,
        strike: |stage, _, _| pause(stage, Part::Etcd),
    },
    Fault {
        name: "process-killed",
        after: &[MEET, SLOTS, REPLICA],
        costs: 1,
        strike: kill_process,
    },
    Fault {
        name: "process-stopped",
        after: &[MEET, SLOTS],
        costs: 0,
        strike: stop_process,
    },
    Fault {
        name: "node-deleted",
        after: &[CREATED, STAMP, MEET, SLOTS],
        costs: 1,
        strike: |stage, namespace, said| stage.delete("ValkeyNode", namespace, said.node()),
    },
    Fault {
        name: "pod-deleted",
        after: &[STAMP, MEET, SLOTS],
        costs: 1,
        strike: |stage, namespace, said| stage.delete("Pod", namespace, said.node()),
    },
    Fault {
        name: "service-deleted",
        after: &[CREATED, SLOTS],
        costs: 0,
        strike: |stage, namespace, _| stage.delete("Service", namespace, "c"),
    },
    Fault {
        name: "acl-deleted",
        after: &[CREATED, SLOTS],
        costs: 0,
        strike: |stage, namespace, _| stage.delete("ConfigMap", namespace, "c-acl"),
    },
    Fault {
        name: "config-deleted",
        after: &[POD, MEET],
        costs: 0,
        strike: |stage, namespace, said| {
            stage.delete("ConfigMap", namespace, &format!("{}-config", said.node()));
        },
    },
];

#[test]
fn a_bootstrap_survives_each_fault() {
    if !slow("a_bootstrap_survives_each_fault") {
        return;
    }
    let stage = Stage::beside_others();
    let mut operator = Followed::start(&stage.testbed);
    let only = std::env::var("FAULT").unwrap_or_default();
    for fault in FAULTS.iter().filter(|fault| fault.name.contains(&only)) {
        let moments = if all() { fault.after.len() } else { 1 };
        for &after in fault.after.iter().take(moments) {
            let namespace = format!("{}-{}", fault.name, after.replace(' ', "-").to_lowercase());
            run(&stage, &mut operator, fault, after, &namespace);
        }
    }
}

fn run(stage: &Stage, operator: &mut Followed, fault: &Fault, after: &str, namespace: &str) {
    stage.apply_cluster(namespace, Shape::USUAL);
    let said = operator.hear(namespace, after, LIMIT);
    (fault.strike)(stage, namespace, &said);
    operator.hear(namespace, ACTIVATION, LIMIT);
    stage.wait_until_formed(namespace, Shape::USUAL);
    until(
        &format!("what is kept of {namespace} is there"),
        LIMIT,
        || kept(stage, namespace),
    );
    let census = stage.census(namespace);
    let words = operator.last_words();
    assert_eq!(
        census.check(Shape::USUAL.nodes()),
        Ok(()),
        "{namespace}; {words}"
    );
    let lost = census.deleted.len();
    assert!(
        lost <= fault.costs,
        "{namespace}: {lost} nodes were lost: {census:?}; {words}"
    );
    say(&format!("{namespace}: formed, {lost} nodes were replaced"));
    stage.delete("Namespace", "", namespace);
}

/// The objects that are there in every state.
fn kept(stage: &Stage, namespace: &str) -> Result<(), String> {
    let nodes = stage.list("ValkeyNode", namespace)?;
    let name = |node: &serde_json::Value| node["metadata"]["name"].as_str().map(str::to_owned);
    let configs = nodes
        .iter()
        .filter_map(name)
        .map(|name| ("ConfigMap", format!("{name}-config")));
    let cluster = [
        ("Service", "c".to_owned()),
        ("Secret", "c-operator-auth".to_owned()),
        ("ConfigMap", "c-acl".to_owned()),
    ];
    for (kind, name) in cluster.into_iter().chain(configs) {
        if stage.get(kind, namespace, &name)?.is_none() {
            return Err(format!("there is no {kind} {name}"));
        }
    }
    Ok(())
}

fn kill_api_server(stage: &Stage, _: &str, _: &Said) {
    stage.testbed.kill(Part::ApiServer).expect("killed");
    stage
        .testbed
        .start_again(Part::ApiServer)
        .expect("started again");
}

fn pause(stage: &Stage, part: Part) {
    stage.testbed.pause(part).expect("paused");
    // The length of the fault; nothing is waited for.
    thread::sleep(PAUSE);
    stage.testbed.resume(part).expect("resumed");
}

fn signal(stage: &Stage, namespace: &str, said: &Said, signal: Signal) {
    let pod = PodName {
        namespace,
        name: said.node(),
    };
    stage
        .testbed
        .pod_signal(&pod, Some("valkey-server"), signal)
        .expect("signalled");
}

fn kill_process(stage: &Stage, namespace: &str, said: &Said) {
    signal(stage, namespace, said, Signal::Kill);
}

fn stop_process(stage: &Stage, namespace: &str, said: &Said) {
    signal(stage, namespace, said, Signal::Stop);
    // The length of the fault; nothing is waited for.
    thread::sleep(HICCUP);
    signal(stage, namespace, said, Signal::Continue);
}
