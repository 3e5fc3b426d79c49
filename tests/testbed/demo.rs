//! The demonstration: from nothing to an Active cluster with keys in it, by the files that a user
//! has.
//! Never does for the operator what the operator is for.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use super::operator_binary;
use super::testbed::Options;
use super::testbed::Testbed;
use super::testbed::command::Look;
use super::testbed::command::feed;
use super::testbed::command::say;
use super::testbed::command::wait_for;
use super::testbed::error::Error;
use super::testbed::image;
use super::testbed::machine;
use super::testbed::operator;

const NAMESPACE: &str = "demo";
const CLUSTER: &str = "my-cluster";

/// Enough that each shard gets hundreds.
const KEYS: usize = 2000;

/// Ten times what it takes on two idle cores.
const ACTIVE_LIMIT: Duration = Duration::from_mins(5);

/// Often enough that nobody takes waiting for a hang.
const HEARTBEAT: Duration = Duration::from_secs(5);

pub(super) fn run(name: &str) -> Result<(), Error> {
    let start = Instant::now();
    let binary = operator_binary()?;
    let made_now = !machine::runs(name);
    let testbed = if made_now {
        say("starting a Kubernetes of 3 nodes in 3 zones (about 15 s when everything is built)");
        // Not while the nodes start: what the first start builds would wait for one another.
        image::operator(&binary)?;
        Testbed::up(&Options {
            name: name.to_owned(),
            nodes: 3,
            zones: ["a", "b", "c"].map(|zone| format!("zone-{zone}")).to_vec(),
            ..Options::default()
        })?
    } else {
        say(&format!("{name:?} is up already"));
        Testbed::attach(name)?
    };
    let outcome = fill(&testbed, &binary);
    if made_now {
        // It stays whatever came of it, so that one can look.
        testbed.let_stay()?;
    }
    outcome?;
    say(&format!(
        "done after {} s; {}",
        start.elapsed().as_secs(),
        next_steps(name)
    ));
    Ok(())
}

fn fill(testbed: &Testbed, binary: &Path) -> Result<(), Error> {
    say("deploying the operator from crds/crds.json and deploy/operator.yaml");
    operator::deploy(testbed, binary)?;
    say(
        "applying config/samples: an image, a configuration, a cluster of 3 shards, 1 replica each",
    );
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/samples");
    testbed.kubectl(["apply".as_ref(), "--filename".as_ref(), samples.as_os_str()])?;
    let applied = Instant::now();
    wait_until_active(testbed)?;
    say(&format!(
        "the cluster is Active {:.1} s after apply",
        applied.elapsed().as_secs_f32()
    ));
    let slots = client(testbed, "CLUSTER INFO\n")?;
    let slots = slots
        .lines()
        .find(|line| line.starts_with("cluster_slots_ok"))
        .unwrap_or("");
    say(&format!("Valkey's own account: {}", slots.trim()));
    let (written, read, complaint) = write_and_read(testbed)?;
    say(&format!(
        "{written} keys written and {read} read back through a cluster-aware client"
    ));
    let kinds = "valkeyclusters,valkeynodes,valkeyimages,valkeyconfigs,pods";
    let listing = testbed.kubectl(["get", kinds, "--namespace", NAMESPACE])?;
    say(&format!(
        "kubectl get {kinds} --namespace {NAMESPACE}\n\n{listing}"
    ));
    if written == KEYS && read == KEYS {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "of {KEYS} keys {written} were written and {read} read back; Valkey says: {complaint}"
    )))
}

fn wait_until_active(testbed: &Testbed) -> Result<(), Error> {
    let start = Instant::now();
    let said = Cell::new(Duration::ZERO);
    let waited = wait_for("an Active cluster", ACTIVE_LIMIT, || {
        let get = ["get", "valkeycluster", CLUSTER, "--namespace", NAMESPACE];
        let state =
            testbed.kubectl(get.into_iter().chain(["--output=jsonpath={.status.state}"]))?;
        if state == "Active" {
            return Ok(Look::Came(()));
        }
        if start.elapsed() >= said.get() + HEARTBEAT {
            said.set(start.elapsed());
            let pods = [
                "get",
                "pods",
                "--namespace",
                NAMESPACE,
                "--output=jsonpath={.items[*].status.phase}",
            ];
            let phases = testbed.kubectl(pods)?;
            let running = phases
                .split(' ')
                .filter(|phase| *phase == "Running")
                .count();
            say(&format!(
                "the cluster is {state:?}, {running} of 6 pods run"
            ));
        }
        Ok(Look::NotYet(state))
    });
    waited.inspect_err(|_| {
        let logs = [
            "logs",
            "deployment/valkey-operator",
            "--namespace",
            "valkey-operator",
        ];
        match testbed.kubectl(logs.into_iter().chain(["--tail=20"])) {
            Ok(log) => say(&format!("the operator's last words:\n{log}")),
            Err(error) => say(&format!("the operator's log could not be read: {error}")),
        }
    })
}

/// How many were written, how many had the right value, and the first reply that was not as it
/// should be.
fn write_and_read(testbed: &Testbed) -> Result<(usize, usize, String), Error> {
    let lines = |line: &dyn Fn(usize) -> String| (0..KEYS).map(line).collect::<String>();
    let sets = lines(&|number| format!("SET key:{number} value:{number}\n"));
    let replies = client(testbed, &sets)?;
    let written = replies.lines().filter(|reply| *reply == "OK").count();
    let odd = replies
        .lines()
        .find(|reply| *reply != "OK")
        .unwrap_or_default();
    let gets = lines(&|number| format!("GET key:{number}\n"));
    let values = client(testbed, &gets)?;
    let expected = (0..KEYS).map(|number| format!("value:{number}"));
    let read = values
        .lines()
        .zip(expected)
        .filter(|(reply, value)| reply == value)
        .count();
    Ok((written, read, odd.to_owned()))
}

/// The replies, without the client's remarks on where it found the slots.
fn client(testbed: &Testbed, commands: &str) -> Result<String, Error> {
    let host = format!("{CLUSTER}.{NAMESPACE}.svc.cluster.local");
    let mut client = testbed.command(["valkey-cli", "-c", "-h", &host]);
    let replies = feed(&mut client, commands.as_bytes())?;
    let remark = |line: &&str| line.starts_with("-> Redirected");
    Ok(replies
        .lines()
        .filter(|line| !remark(line))
        .collect::<Vec<_>>()
        .join("\n"))
}

fn next_steps(name: &str) -> String {
    let named = if name == super::NAME {
        String::new()
    } else {
        format!(" --name {name}")
    };
    format!(
        "the demo stays up. What to try next:

  make shell               a shell with kubectl and valkey-cli in it, and in that:
    kubectl get valkeyclusters,valkeynodes -A
    valkey-cli -c -h {CLUSTER}.{NAMESPACE}.svc.cluster.local
    kubectl -n {NAMESPACE} get pods -o wide        one pod of each shard in each of two zones
    kubectl -n {NAMESPACE} delete valkeycluster {CLUSTER}
                           and nothing of it is left; kubectl apply -f config/samples
    kubectl -n valkey-operator logs deployment/valkey-operator --follow
  cargo run --example testbed --{named} node kill node-1
                           a machine dies; with node start node-1 it comes back
  cargo run --example testbed --{named} help
                           what else can go wrong
  make down                ends it without a trace
"
    )
}
