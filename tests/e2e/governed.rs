//! Edits of the menu and of running clusters that cannot be had, or only in part: nobody loses a node by them, the
//! reason is said, and what can be had is there at once.
//! Never judges a place by the operator's word: where a pod runs is read from the pod.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;

use crate::living::rolled;
use crate::machines;
use crate::slow;
use crate::thorough;
use crate::world::Formed;
use crate::world::Login;
use crate::world::Wanted;
use crate::world::World;
use crate::world::menu;

/// SHA-256 of `secret`.
const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// What an API server takes of annotations on one object.
const ANNOTATIONS_MAX: usize = 256 * 1024;

const SETTING: Wanted<'_> = Wanted {
    namespace: "governed",
    name: "setting",
    shards: 1,
    replicas: 1,
};

const SPREAD: Wanted<'_> = Wanted {
    namespace: "governed",
    name: "spread",
    shards: 3,
    replicas: 1,
};

fn config(name: &str, valkey: &Value) -> Value {
    menu(
        "ValkeyConfig",
        name,
        &json!({"baseRef": "standard", "valkey": valkey}),
    )
}

fn uids(pods: &[Value]) -> BTreeSet<&str> {
    let uids = pods.iter().map(|pod| pod["metadata"]["uid"].as_str());
    uids.flatten().collect()
}

#[test]
fn edits_that_cannot_be_had_cost_nobody_a_node() {
    if !slow("edits_that_cannot_be_had_cost_nobody_a_node") {
        return;
    }
    let world = World::up();
    world.namespace("governed");
    // Only who tolerates it gets to the third zone.
    world
        .stage
        .kubectl(["taint", "node", "node-3", "dedicated=valkey:NoSchedule"]);
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "data"}, "value": 1000});
    let pulled = json!({"repository": "valkey/valkey", "tag": "9.1.2", "version": "9.1.2",
        "pullSecrets": ["registry"]});
    world.apply_all(&[
        class,
        menu("ValkeyImage", "pulled", &pulled),
        scheduled(&["dedicated"]),
        config("set", &json!({"hz": "20"})),
        SETTING.manifest(&json!({"configRef": "set"})),
        spread(&json!({"team": "one", "stays": "yes"})),
    ]);
    let (before, spread) = (
        world.wait_until_formed(&SETTING),
        world.wait_until_formed(&SPREAD),
    );
    an_unknown_setting_costs_a_newcomer(&world, &before);
    copies_are_apart(&spread, &world);
    pods_are_as_the_menu_says(&spread);
    annotations_follow(&world, &spread);
}

/// The config of the cluster that is spread.
fn scheduled(tolerated: &[&str]) -> Value {
    let tolerations = tolerated
        .iter()
        .map(|key| json!({"key": key, "operator": "Exists"}));
    let scheduling =
        json!({"priorityClassName": "data", "tolerations": tolerations.collect::<Vec<_>>()});
    let spec = json!({"baseRef": "standard", "imageRef": "pulled", "scheduling": scheduling});
    menu("ValkeyConfig", "scheduled", &spec)
}

fn spread(annotations: &Value) -> Value {
    SPREAD.manifest(&json!({
        "configRef": "scheduled",
        "placement": {"zones": ["a", "b", "c"], "zoneSpread": "required"},
        "podAnnotations": annotations,
    }))
}

/// B21, B57: the newcomer ends, its last words are said, all old nodes stay, and the way back is the edit alone.
fn an_unknown_setting_costs_a_newcomer(world: &World, before: &Formed) {
    world.apply_all(&[config(
        "set",
        &json!({"hz": "20", "no-such-setting": "yes"}),
    )]);
    let last_words = "the newcomer's last words are said";
    world.wait_until_said(last_words, "governed", "setting", |_, because| {
        because.contains("no-such-setting")
    });
    let pods = world.pods("governed", "setting").expect("listed");
    let there = uids(&pods);
    assert!(
        there.is_superset(&uids(&before.pods)),
        "nobody was retired: {there:?}"
    );
    world.apply_all(&[config("set", &json!({"hz": "20"}))]);
    let after = world.wait_until_formed(&SETTING);
    assert_eq!(uids(&after.pods), uids(&before.pods));
    assert_eq!(after.ids(), before.ids());
}

/// Where the pods of each shard run.
fn places(pods: &[Value]) -> BTreeMap<String, Vec<String>> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in pods {
        let shard = pod["metadata"]["labels"]["valkey.gomomento.com/shard-index"].to_string();
        let machine = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        places.entry(shard).or_default().push(machine.to_owned());
    }
    places
}

/// Each machine is a zone of its own here.
fn copies_are_apart(formed: &Formed, world: &World) {
    let places = places(&formed.pods);
    for (shard, machines) in &places {
        let distinct: BTreeSet<_> = machines.iter().collect();
        assert_eq!(
            distinct.len(),
            machines.len(),
            "{shard}: {places:?}\n{}",
            world.account("governed")
        );
    }
    let machines: BTreeSet<_> = places.values().flatten().collect();
    assert_eq!(machines.len(), 3, "all zones are used: {places:?}");
}

fn pods_are_as_the_menu_says(formed: &Formed) {
    for pod in &formed.pods {
        let spec = &pod["spec"];
        assert_eq!(
            spec["imagePullSecrets"],
            json!([{"name": "registry"}]),
            "{spec}"
        );
        assert_eq!(spec["priorityClassName"], "data", "{spec}");
        assert_eq!(pod["metadata"]["annotations"]["team"], "one");
    }
}

fn annotation(world: &World, key: &str) -> Result<BTreeSet<String>, String> {
    let pods = world.pods("governed", "spread")?;
    let values = pods.iter().map(|pod| {
        pod["metadata"]["annotations"][key]
            .as_str()
            .unwrap_or_default()
    });
    Ok(values.map(str::to_owned).collect())
}

fn wait_for_annotation(world: &World, key: &str, value: &str) {
    world.until(&format!("{key}={value}"), "governed", || {
        let found = annotation(world, key)?;
        if found == BTreeSet::from([value.to_owned()]) {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    });
}

/// B85: changed in place, others' kept, removed ones left; what no API server takes is said and stops nothing else.
fn annotations_follow(world: &World, before: &Formed) {
    let selector = "app.kubernetes.io/instance=spread";
    let words = [
        "annotate",
        "pods",
        "--selector",
        selector,
        "foreign=kept",
        "--namespace",
        "governed",
    ];
    world.stage.kubectl(words);
    world.apply_all(&[spread(&json!({"team": "two"}))]);
    wait_for_annotation(world, "team", "two");
    let half = "x".repeat(ANNOTATIONS_MAX / 2);
    let large = json!({"large": half, "larger": half, "team": "three"});
    // Too long to be remembered by a client too.
    let manifest = spread(&large).to_string();
    let apply = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--filename",
        "-",
    ];
    world
        .stage
        .testbed
        .kubectl_with(apply, &manifest)
        .expect("the cluster takes them");
    world.until("what is too large is said", "governed", || {
        let log = world.log()?;
        let refused = log
            .iter()
            .filter(|line| line["fields"]["message"] == "change refused, will retry next tick");
        let mut said = refused.map(|line| line["fields"]["error"].to_string());
        let said = said.next_back();
        let said = said.ok_or("nothing is said")?;
        if said.contains("annotations") && said.len() < 4096 {
            Ok(())
        } else {
            Err(said)
        }
    });
    let manifest = spread(&json!({"team": "four"})).to_string();
    world
        .stage
        .testbed
        .kubectl_with(apply, &manifest)
        .expect("applied");
    wait_for_annotation(world, "team", "four");
    for (key, value) in [("foreign", "kept"), ("stays", "yes")] {
        assert_eq!(
            annotation(world, key),
            Ok(BTreeSet::from([value.to_owned()])),
            "{key}"
        );
    }
    // Nor do tolerations make a node outdated.
    world.apply_all(&[scheduled(&["dedicated", "other"])]);
    let after = world.wait_until_formed(&SPREAD);
    assert_eq!(uids(&after.pods), uids(&before.pods), "no pod was replaced");
}

#[test]
fn users_that_nodes_refuse_change_nothing_and_hold_what_needs_a_new_node() {
    if !thorough("users_that_nodes_refuse_change_nothing_and_hold_what_needs_a_new_node") {
        return;
    }
    let mut world = World::up();
    world.namespace("users");
    let wanted = Wanted {
        namespace: "users",
        name: "c",
        shards: 1,
        replicas: 1,
    };
    let known = ["cluster", "info", "ping"];
    let binding = json!([{"username": "app", "passwordHashes": [HASH],
        "permissions": [{"roleRef": "reader", "keys": [{"pattern": "*"}]}]}]);
    let manifest = |replicas| {
        let wanted = Wanted { replicas, ..wanted };
        wanted.manifest(&json!({"configRef": "users", "acl": binding}))
    };
    world.login = Some(Login {
        user: "app".to_owned(),
        password: "secret".to_owned(),
    });
    world.apply_all(&[
        role(&known),
        config("users", &json!({"hz": "20"})),
        manifest(1),
    ]);
    let before = world.wait_until_formed(&wanted);
    let ip = &before.members[0].ip;
    let may = |words: &str| {
        let told = world.ask(ip, words).expect("answered");
        !told.contains("NOPERM")
    };
    assert!(may("GET k\n") && !may("SET k v\n"));

    world.apply_all(&[role(&["cluster", "info", "ping", "no-such-command", "set"])]);
    wait_for_the_refusal(&world);
    world.apply_all(&[config("users", &json!({"hz": "21"})), manifest(2)]);
    wait_until_new_nodes_wait(&world);
    assert!(
        may("GET k\n") && !may("SET k v\n"),
        "the old rules are kept"
    );
    let pods = world.pods("users", "c").expect("listed");
    let there = uids(&pods);
    assert_eq!(there, uids(&before.pods), "nobody was made and nobody went");

    world.apply_all(&[role(&["cluster", "info", "ping", "set"])]);
    world.until("the new rules are in force", "users", || {
        if may("SET k v\n") {
            Ok(())
        } else {
            Err("NOPERM".to_owned())
        }
    });
    let more = Wanted {
        replicas: 2,
        ..wanted
    };
    world.until("all nodes are made anew", "users", || {
        rolled(&world, "users", "21")
    });
    world.wait_until_formed(&more);
}

/// What the user may do: to read, and these commands.
fn role(commands: &[&str]) -> Value {
    let allow = |name: &&str| json!({"name": name, "access": "allow"});
    let commands: Vec<Value> = commands.iter().map(allow).collect();
    let categories = json!([{"name": "read", "access": "allow"}]);
    menu(
        "ValkeyRole",
        "reader",
        &json!({"categories": categories, "commands": commands}),
    )
}

fn wait_for_the_refusal(world: &World) {
    world.until("the refusal is said", "users", || {
        let log = world.log()?;
        let said = log.iter().find(|line| {
            let fields = &line["fields"];
            fields["message"] == "ACL LOAD failed, will retry next tick"
                && fields["error"].to_string().contains("no-such-command")
        });
        said.map(drop).ok_or_else(|| "nothing is said".to_owned())
    });
}

fn wait_until_new_nodes_wait(world: &World) {
    let begin = "new nodes wait for an ACL file that running ones accept";
    world.wait_until_said("new nodes wait", "users", "c", |_, because| {
        because.starts_with(begin)
    });
}

#[test]
fn a_lost_zone_is_made_up_for_where_the_placement_allows_it() {
    if !thorough("a_lost_zone_is_made_up_for_where_the_placement_allows_it") {
        return;
    }
    let world = World::up();
    world.namespace("governed");
    let lost = machines::without_operator(&world);
    let strict = Wanted {
        namespace: "governed",
        name: "strict",
        shards: 1,
        replicas: 2,
    };
    let placed = |wanted: &Wanted<'_>, how: &str| {
        wanted.manifest(&json!({"placement": {"zones": ["a", "b", "c"], "zoneSpread": how}}))
    };
    world.apply_all(&[placed(&SPREAD, "bestEffort"), placed(&strict, "required")]);
    copies_are_apart(&world.wait_until_formed(&SPREAD), &world);
    copies_are_apart(&world.wait_until_formed(&strict), &world);
    world.stage.testbed.node_kill(lost).expect("killed");
    // Two zones are enough for two copies, and better than none.
    world.until("the copies are in two zones", "governed", || {
        made_up_for(&world, lost)
    });
    // Three copies in three zones cannot be had in two: the third waits, in the scheduler's words.
    let quoted = |_: &str, because: &str| because.contains("topology spread constraints");
    world.wait_until_said("the third copy waits", "governed", "strict", quoted);
    let state = world.cluster("governed", "strict").expect("read")["status"]["state"].clone();
    assert_eq!(state, "Active", "it serves");
    world.stage.testbed.node_start(lost).expect("started");
    copies_are_apart(&world.wait_until_formed(&strict), &world);
}

#[test]
fn a_roll_waits_for_room_in_a_zone_and_goes_on() {
    if !thorough("a_roll_waits_for_room_in_a_zone_and_goes_on") {
        return;
    }
    let world = World::beside_others();
    world.namespace("governed");
    let wanted = Wanted {
        namespace: "governed",
        name: "c",
        shards: 1,
        replicas: 2,
    };
    let zones = json!({"zones": ["a", "b", "c"], "zoneSpread": "required"});
    let placed = wanted.manifest(&json!({"configRef": "own", "placement": zones}));
    world.apply_all(&[config("own", &json!({"hz": "10"})), placed]);
    let before = world.wait_until_formed(&wanted);
    copies_are_apart(&before, &world);
    world.stage.kubectl(["cordon", "node-2"]);
    world.apply_all(&[config("own", &json!({"hz": "11"}))]);
    let waits = world.until("a newcomer finds no room", "governed", || {
        let pods = world.pods("governed", "c")?;
        let mut waiting = pods.iter().filter(|pod| {
            let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|condition| condition["reason"] == "Unschedulable")
        });
        let waiting = waiting.next().ok_or("all have a place")?;
        let name = waiting["metadata"]["name"].as_str();
        name.map(str::to_owned).ok_or_else(|| "no name".to_owned())
    });
    world.wait_until_said("the scheduler is quoted", "governed", "c", |_, because| {
        because.contains(&waits) && because.contains("nodes are available")
    });
    let state = world.cluster("governed", "c").expect("read")["status"]["state"].clone();
    assert_eq!(state, "Active", "it serves");
    let pods = world.pods("governed", "c").expect("listed");
    let running = pods
        .iter()
        .filter(|pod| pod["status"]["phase"] == "Running");
    assert!(
        running.count() >= wanted.nodes(),
        "a copy has gone too early"
    );
    world.stage.kubectl(["uncordon", "node-2"]);
    world.until("the roll is done", "governed", || {
        rolled(&world, "governed", "11")
    });
    copies_are_apart(&world.wait_until_formed(&wanted), &world);
}

/// All copies are there, those of each shard apart, and all know all. Pods of a lost machine stay listed until it is back.
fn made_up_for(world: &World, lost: &str) -> Result<(), String> {
    let mut pods = world.pods("governed", "spread")?;
    pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let places = places(&pods);
    let apart =
        |machines: &Vec<String>| machines.iter().collect::<BTreeSet<_>>().len() == machines.len();
    let gone = places.values().flatten().any(|machine| machine == lost);
    if gone || pods.len() != SPREAD.nodes() || !places.values().all(apart) {
        return Err(format!("{places:?}"));
    }
    for pod in &pods {
        let ip = pod["status"]["podIP"].as_str().ok_or("no address")?;
        let told = world.ask(ip, "CLUSTER INFO\n")?;
        let nodes = format!("cluster_known_nodes:{}", SPREAD.nodes());
        for line in ["cluster_state:ok", "cluster_slots_ok:16384", &nodes] {
            if !told.contains(line) {
                return Err(told);
            }
        }
    }
    Ok(())
}
