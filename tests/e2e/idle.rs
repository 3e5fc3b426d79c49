//! An Active cluster that is left alone is left alone by the operator too.
//! Never trusts a counter of ours: the API server's audit log and the processes' own statistics tell.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::slow;
use crate::stage::say;
use crate::world::Formed;
use crate::world::Wanted;
use crate::world::World;

/// Six passes of the ACL controller, which is the slowest of all that repeats.
const IDLE: Duration = Duration::from_mins(3);

/// With `LONG=1`, as the first release is judged by.
const IDLE_LONG: Duration = Duration::from_mins(5);

/// The looks of the operator, its logins, the kubelet's probe, and what a replica tells its primary.
const HARMLESS: &[&str] = &[
    "acl|load",
    "auth",
    "client|setinfo",
    "client|setname",
    "cluster|getslotmigrations",
    "cluster|info",
    "cluster|myid",
    "cluster|nodes",
    "hello",
    "info",
    "ping",
    "replconf",
];

const OPERATOR: &str = "system:serviceaccount:valkey-operator:valkey-operator";

#[test]
fn an_idle_cluster_is_written_to_by_nobody() {
    if !slow("an_idle_cluster_is_written_to_by_nobody") {
        return;
    }
    let world = World::beside_others();
    world.namespace("idle");
    let wanted = Wanted {
        namespace: "idle",
        name: "c",
        shards: 3,
        replicas: 1,
    };
    world.apply_all(&[wanted.manifest(&json!({}))]);
    let formed = world.wait_until_formed(&wanted);
    // What activation still started is over once an Active tick was followed by another.
    world.until("two active ticks", "idle", || {
        let ticks = count(&world, "active tick")?;
        if ticks >= 2 {
            Ok(())
        } else {
            Err(format!("{ticks}"))
        }
    });
    let written = writes(&world);
    assert!(
        !written.is_empty(),
        "the audit log knows nothing of the bootstrap"
    );
    let commands = statistics(&world, &formed);
    let said = ["active tick", "ACL reconcile tick", "TLS reconcile tick"];
    let heartbeats = said.map(|message| count(&world, message).expect("a log"));
    let long = std::env::var("LONG").is_ok_and(|value| value == "1");
    let time = if long { IDLE_LONG } else { IDLE };
    say(&format!("leaving a cluster alone for {} s", time.as_secs()));
    // The time itself is what is tried.
    thread::sleep(time);
    let since = writes(&world).split_off(written.len());
    assert_eq!(since, Vec::<String>::new(), "written while idle");
    for (ip, before, after) in zip(&commands, &statistics(&world, &formed)) {
        let grown = after
            .iter()
            .filter(|(command, calls)| before.get(*command) != Some(*calls));
        let names: Vec<&str> = grown.map(|(command, _)| command.as_str()).collect();
        let harmful = names.iter().find(|command| !HARMLESS.contains(command));
        assert_eq!(harmful, None, "sent to {ip} while idle, of {names:?}");
        for look in ["cluster|nodes", "acl|load"] {
            assert!(
                names.contains(&look),
                "{ip} was not even looked at: {names:?}"
            );
        }
    }
    for (message, before) in said.iter().zip(heartbeats) {
        let after = count(&world, message).expect("a log");
        assert!(after > before, "the operator stopped saying {message:?}");
    }
    assert_eq!(world.wait_until_formed(&wanted).ids(), formed.ids());
}

fn count(world: &World, message: &str) -> Result<usize, String> {
    let log = world.log()?;
    Ok(log
        .iter()
        .filter(|line| line["fields"]["message"] == message)
        .count())
}

/// What the operator asked the API server to change, in its order.
fn writes(world: &World) -> Vec<String> {
    let events = world.stage.testbed.audit().expect("an audit log");
    let by_operator = |event: &&Value| event["user"]["username"] == OPERATOR;
    let is_write = |event: &&Value| {
        let verb = event["verb"].as_str().unwrap_or_default();
        !["get", "list", "watch"].contains(&verb)
    };
    let told = |event: &Value| format!("{} {}", event["verb"], event["requestURI"]);
    events
        .iter()
        .filter(by_operator)
        .filter(is_write)
        .map(told)
        .collect()
}

type Calls = BTreeMap<String, u64>;

/// How often each command was called on each node so far.
fn statistics(world: &World, formed: &Formed) -> BTreeMap<String, Calls> {
    let of = |ip: &str| -> Calls {
        let text = world.ask(ip, "INFO commandstats\n").expect("answered");
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix("cmdstat_"));
        lines
            .map(|line| {
                let (command, rest) = line.split_once(":calls=").expect("a command and its calls");
                let calls = rest.split(',').next().and_then(|calls| calls.parse().ok());
                (command.to_owned(), calls.expect("a number"))
            })
            .collect()
    };
    formed
        .members
        .iter()
        .map(|member| (member.ip.clone(), of(&member.ip)))
        .collect()
}

fn zip<'a>(
    before: &'a BTreeMap<String, Calls>,
    after: &'a BTreeMap<String, Calls>,
) -> impl Iterator<Item = (&'a str, &'a Calls, &'a Calls)> {
    before
        .iter()
        .map(|(ip, calls)| (ip.as_str(), calls, after.get(ip).expect("the same nodes")))
}
