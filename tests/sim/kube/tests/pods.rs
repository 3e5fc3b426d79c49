//! The life of a pod, from its creation to its end, and what can come between.
//! Never a real process: toys run here.

use serde_json::{Value, json};

use super::super::containers::Signal;
use super::super::hosts::{HostSpec, Processes};
use super::super::kinds::Kind;
use super::super::pool::Reuse;
use super::super::scheduler::amount;
use super::{Bench, config_map, pod};

fn status(bench: &Bench, name: &str) -> Value {
    bench.get(Kind::Pod, name).expect("the pod is there")["status"].clone()
}

fn waiting(bench: &Bench, name: &str) -> String {
    let status = status(bench, name);
    let waiting = &status["containerStatuses"][0]["state"]["waiting"];
    waiting["reason"].as_str().unwrap_or_default().to_owned()
}

fn scheduling(bench: &Bench, name: &str) -> String {
    let status = status(bench, name);
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let placed = conditions.iter().find(|one| one["type"] == "PodScheduled");
    let placed = placed.expect("it was tried");
    assert_eq!(
        (&placed["status"], &placed["reason"]),
        (&json!("False"), &json!("Unschedulable"))
    );
    placed["message"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_pod_starts_with_its_address_and_its_files() {
    let mut bench = Bench::with_hosts();
    bench.create(config_map("conf", "port 6379"));
    let mut object = pod("p");
    object["spec"]["volumes"] = json!([{"name": "conf", "configMap": {"name": "conf"}}]);
    object["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "conf", "mountPath": "/etc/valkey/conf"}]);
    bench.create(object);
    bench.run_for(10_000);
    let status = status(&bench, "p");
    assert_eq!(
        (&status["phase"], &status["podIP"]),
        (&json!("Running"), &json!("10.244.0.1"))
    );
    assert_eq!(status["containerStatuses"][0]["ready"], true);
    let launch = bench.toys.launched.first().expect("it was started");
    assert_eq!(
        launch.command,
        ["valkey-server", "--announce", "10.244.0.1"]
    );
    assert_eq!(
        launch.files.get("/etc/valkey/conf/k").map(String::as_str),
        Some("port 6379")
    );
    assert_eq!(bench.kube.running().len(), 1);
}

#[test]
fn a_deleted_pod_is_asked_to_end_and_then_removed() {
    let mut bench = Bench::with_hosts();
    bench.create(pod("p"));
    bench.run_for(10_000);
    let going = bench
        .kube
        .hand(bench.now)
        .delete(Kind::Pod, "default", "p")
        .expect("it is there");
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    assert!(bench.get(Kind::Pod, "p").is_some());
    bench.run_for(2000);
    assert!(bench.get(Kind::Pod, "p").is_none());
    let signals: Vec<Signal> = bench
        .toys
        .signals
        .iter()
        .map(|(_, _, signal)| *signal)
        .collect();
    assert_eq!(signals, [Signal::Term]);
    assert!(bench.kube.running().is_empty());
}

#[test]
fn a_process_that_does_not_listen_is_killed_after_its_grace() {
    let mut bench = Bench::with_hosts();
    bench.toys.stubborn = true;
    bench.create(pod("p"));
    bench.run_for(10_000);
    bench
        .kube
        .hand(bench.now)
        .delete(Kind::Pod, "default", "p")
        .expect("it is there");
    bench.run_for(29_000);
    assert!(bench.get(Kind::Pod, "p").is_some());
    bench.run_for(3000);
    assert!(bench.get(Kind::Pod, "p").is_none());
    let (term, kill) = (&bench.toys.signals[0], &bench.toys.signals[1]);
    assert_eq!(
        (term.2, kill.2, kill.0 - term.0),
        (Signal::Term, Signal::Kill, 30_000)
    );
}

#[test]
fn a_pod_that_is_removed_by_force_leaves_its_process_for_a_while() {
    let mut bench = Bench::with_hosts();
    bench.toys.stubborn = true;
    bench.create(pod("p"));
    bench.run_for(10_000);
    bench
        .kube
        .hand(bench.now)
        .force_delete(Kind::Pod, "default", "p")
        .expect("it is there");
    assert!(bench.get(Kind::Pod, "p").is_none());
    bench.create(pod("p"));
    bench.run_for(10_000);
    assert_eq!(bench.kube.running().len(), 2, "the old one has its grace");
    bench.run_for(30_000);
    assert_eq!(bench.kube.running().len(), 1);
}

#[test]
fn a_process_that_ends_ends_its_pod() {
    for (code, phase, reason) in [(1, "Failed", "Error"), (0, "Succeeded", "Completed")] {
        let mut bench = Bench::with_hosts();
        bench.create(pod("p"));
        bench.run_for(10_000);
        let uid = bench.toys.launched[0].uid.clone();
        bench.toys.end(&uid, code, "FATAL CONFIG FILE ERROR");
        bench.run_for(0);
        bench.run_for(2000);
        let status = status(&bench, "p");
        let end = &status["containerStatuses"][0]["state"]["terminated"];
        assert_eq!(status["phase"], phase);
        assert_eq!(
            (&end["exitCode"], &end["reason"]),
            (&json!(code), &json!(reason))
        );
        assert_eq!(end["message"].is_string(), code != 0);
        bench
            .kube
            .hand(bench.now)
            .delete(Kind::Pod, "default", "p")
            .expect("it is there");
        assert!(
            bench.get(Kind::Pod, "p").is_none(),
            "who is over has no grace"
        );
    }
}

#[test]
fn an_image_that_is_not_there_is_named_and_tried_again() {
    let mut bench = Bench::with_hosts();
    let mut object = pod("p");
    object["spec"]["containers"][0]["image"] = json!("valkey:typo");
    bench.create(object);
    let mut seen: Vec<String> = Vec::new();
    for _ in 0..600 {
        bench.run_for(100);
        let reason = waiting(&bench, "p");
        if seen.last() != Some(&reason) {
            seen.push(reason);
        }
    }
    let seen: Vec<&str> = seen.iter().map(String::as_str).collect();
    assert_eq!(
        seen,
        [
            "ContainerCreating",
            "ErrImagePull",
            "ImagePullBackOff",
            "ErrImagePull",
            "ImagePullBackOff",
            "ErrImagePull",
            "ImagePullBackOff",
        ]
    );
    assert_eq!(status(&bench, "p")["phase"], "Pending");
    bench.kube.add_image("valkey:typo");
    bench.run_for(60_000);
    assert_eq!(status(&bench, "p")["phase"], "Running");
}

#[test]
fn a_pod_waits_for_its_volumes_without_a_word() {
    let mut bench = Bench::with_hosts();
    let mut object = pod("p");
    object["spec"]["volumes"] = json!([
        {"name": "conf", "configMap": {"name": "conf"}},
        {"name": "auth", "secret": {"secretName": "auth", "items": [{"key": "a", "path": "b"}]}},
    ]);
    object["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "auth", "mountPath": "/etc/auth"}]);
    bench.create(object);
    bench.run_for(5000);
    assert_eq!(waiting(&bench, "p"), "ContainerCreating");
    bench.create(config_map("conf", ""));
    bench.run_for(5000);
    assert_eq!(waiting(&bench, "p"), "ContainerCreating");
    bench.create(
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "auth"},
        "stringData": {"a": "password", "b": "not asked for"}}),
    );
    bench.run_for(30_000);
    assert_eq!(status(&bench, "p")["phase"], "Running");
    let files: Vec<_> = bench.toys.launched[0].files.iter().collect();
    assert_eq!(files, [(&"/etc/auth/b".to_owned(), &"password".to_owned())]);
}

#[test]
fn files_follow_their_config_map_within_a_minute() {
    let mut bench = Bench::with_hosts();
    bench.create(config_map("acl", "1"));
    let mut object = pod("p");
    object["spec"]["volumes"] = json!([{"name": "acl", "configMap": {"name": "acl"}}]);
    object["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "acl", "mountPath": "/acl"}]);
    bench.create(object);
    bench.run_for(10_000);
    let changed = bench.now;
    let patch = json!({"data": {"k": "2"}});
    let patched = bench
        .kube
        .hand(changed)
        .patch(Kind::ConfigMap, "default", "acl", patch);
    patched.expect("it is there");
    bench.run_for(60_000);
    let (at, files) = bench.toys.refreshed.first().expect("they follow");
    assert!((changed..=changed + 60_000).contains(at));
    assert_eq!(files.get("/acl/k").map(String::as_str), Some("2"));
    assert_eq!(bench.toys.refreshed.len(), 1);
}

#[test]
fn a_pod_that_fits_nowhere_is_told_in_the_schedulers_words() {
    let mut bench = Bench::with_hosts();
    let mut big = pod("big");
    big["spec"]["containers"][0]["resources"] = json!({"requests": {"memory": "17Gi"}});
    bench.create(big);
    let mut choosy = pod("choosy");
    choosy["spec"]["nodeSelector"] = json!({"kubernetes.io/arch": "arm64"});
    bench.create(choosy);
    bench.run_for(1000);
    assert_eq!(
        scheduling(&bench, "big"),
        "0/3 nodes are available: 3 Insufficient memory. preemption: 0/3 nodes are available: 3 No \
         preemption victims found for incoming pod."
    );
    assert_eq!(
        scheduling(&bench, "choosy"),
        "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. preemption: \
         0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    );
    bench.kube.add_host(
        bench.now,
        &HostSpec {
            arch: "arm64".to_owned(),
            memory: "32Gi".to_owned(),
            ..HostSpec::new("h4", "a")
        },
    );
    bench.run_for(10_000);
    assert_eq!(status(&bench, "big")["phase"], "Running");
    assert_eq!(status(&bench, "choosy")["phase"], "Running");
}

#[test]
fn without_machines_nothing_can_be_placed() {
    let mut bench = Bench::new();
    bench.create(pod("p"));
    bench.run_for(1000);
    assert_eq!(
        scheduling(&bench, "p"),
        "no nodes available to schedule pods"
    );
}

#[test]
fn a_hard_spread_holds_back_and_a_soft_one_does_not() {
    for (hardness, placed) in [("DoNotSchedule", 1), ("ScheduleAnyway", 2)] {
        let mut bench = Bench::with_hosts();
        // Cordoned, but a domain all the same.
        for host in ["h2", "h3"] {
            let patch = json!({"spec": {"unschedulable": true}});
            bench
                .kube
                .hand(0)
                .patch(Kind::Node, "", host, patch)
                .expect("it is there");
        }
        for name in ["p1", "p2"] {
            let mut object = pod(name);
            object["spec"]["topologySpreadConstraints"] = json!([{
                "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": hardness,
                "labelSelector": {"matchLabels": {"app": "valkey"}}}]);
            bench.create(object);
        }
        bench.run_for(10_000);
        assert_eq!(bench.kube.running().len(), placed);
        if placed == 1 {
            let names = ["p1", "p2"].map(|name| status(&bench, name)["phase"].clone());
            let late = if names[0] == "Pending" { "p1" } else { "p2" };
            assert_eq!(
                scheduling(&bench, late),
                "0/3 nodes are available: 1 node(s) didn't match pod topology spread constraints, 2 \
                 node(s) were unschedulable. preemption: 0/3 nodes are available: 1 No preemption \
                 victims found for incoming pod, 2 Preemption is not helpful for scheduling."
            );
        }
    }
}

#[test]
fn pods_are_spread_over_hosts() {
    let mut bench = Bench::with_hosts();
    for name in ["p1", "p2", "p3"] {
        bench.create(pod(name));
    }
    bench.run_for(10_000);
    let mut hosts: Vec<String> = bench
        .kube
        .running()
        .into_iter()
        .map(|one| one.host)
        .collect();
    hosts.sort();
    assert_eq!(hosts, ["h1", "h2", "h3"]);
}

fn one_on_a_host() -> (Bench, String) {
    let mut bench = Bench::with_hosts();
    bench.create(pod("p"));
    bench.run_for(10_000);
    let host = bench.kube.running()[0].host.clone();
    (bench, host)
}

#[test]
fn a_lost_host_does_nothing_and_its_pods_stay() {
    let (mut bench, host) = one_on_a_host();
    bench.kube.lose_host(bench.now, &host, Processes::Alive);
    bench
        .kube
        .hand(bench.now)
        .delete(Kind::Pod, "default", "p")
        .expect("it is there");
    bench.run_for(60_000);
    assert!(
        bench.get(Kind::Pod, "p").is_some(),
        "nobody says that it ended"
    );
    assert!(bench.toys.signals.is_empty());
    let node = bench.kube.get(Kind::Node, "", &host).expect("it is there");
    assert_eq!(node["status"]["conditions"][0]["status"], "Unknown");
    bench.create(pod("q"));
    bench.run_for(10_000);
    let other = bench.get(Kind::Pod, "q").expect("it is there");
    assert_ne!(other["spec"]["nodeName"], host, "nothing new goes there");
    bench.kube.return_host(bench.now, &host);
    bench.run_for(10_000);
    assert!(bench.get(Kind::Pod, "p").is_none());
    let node = bench.kube.get(Kind::Node, "", &host).expect("it is there");
    assert_eq!(node["status"]["conditions"][0]["status"], "True");
    assert_eq!(node["spec"]["taints"], json!([]));
}

#[test]
fn pods_of_a_silent_host_are_evicted_after_five_minutes() {
    let (mut bench, host) = one_on_a_host();
    bench.kube.lose_host(bench.now, &host, Processes::Alive);
    bench.run_for(339_000);
    assert!(
        bench.get(Kind::Pod, "p").expect("it is there")["metadata"]
            .get("deletionTimestamp")
            .is_none()
    );
    bench.run_for(2000);
    assert!(
        bench.get(Kind::Pod, "p").expect("it stays")["metadata"]["deletionTimestamp"].is_string()
    );
}

#[test]
fn a_power_cut_is_reported_when_the_host_is_back() {
    let (mut bench, host) = one_on_a_host();
    bench.kube.lose_host(bench.now, &host, Processes::Dead);
    bench.run_for(5000);
    assert!(bench.kube.running().is_empty());
    assert_eq!(status(&bench, "p")["phase"], "Running", "nobody knows");
    bench.kube.return_host(bench.now, &host);
    bench.run_for(5000);
    let status = status(&bench, "p");
    assert_eq!(status["phase"], "Failed");
    assert_eq!(
        status["containerStatuses"][0]["state"]["terminated"]["exitCode"],
        137
    );
}

#[test]
fn pods_of_a_host_that_is_gone_are_collected() {
    let (mut bench, host) = one_on_a_host();
    bench.kube.delete_host(bench.now, &host);
    bench.run_for(30_000);
    assert!(bench.get(Kind::Pod, "p").is_some());
    bench.run_for(20_000);
    assert!(bench.get(Kind::Pod, "p").is_none());
}

#[test]
fn an_evicted_pod_stays_as_evidence() {
    let (mut bench, _) = one_on_a_host();
    let message = "The node was low on resource: ephemeral-storage. ";
    bench.kube.evict(bench.now, "default", "p", message);
    bench.run_for(5000);
    let status = status(&bench, "p");
    assert_eq!(status["phase"], "Failed");
    assert_eq!(
        (&status["reason"], &status["message"]),
        (&json!("Evicted"), &json!(message))
    );
    assert_eq!(bench.toys.signals[0].2, Signal::Kill);
}

#[test]
fn a_process_that_answers_no_probe_is_ended() {
    let mut bench = Bench::with_hosts();
    let mut object = pod("p");
    object["spec"]["containers"][0]["livenessProbe"] =
        json!({"exec": {"command": ["ping"]}, "periodSeconds": 10, "failureThreshold": 6});
    bench.create(object);
    bench.run_for(30_000);
    bench.toys.hung = true;
    bench.run_for(49_000);
    assert_eq!(status(&bench, "p")["phase"], "Running");
    bench.run_for(20_000);
    assert_eq!(
        status(&bench, "p")["phase"],
        "Succeeded",
        "it took its SIGTERM well"
    );
}

#[test]
fn addresses_come_back_late_or_at_once() {
    for (reuse, expected) in [
        (Reuse::RoundRobin, "10.244.0.2"),
        (Reuse::Lowest, "10.244.0.1"),
    ] {
        let mut bench = Bench::with_hosts();
        bench.kube.set_addresses(2, reuse);
        bench.create(pod("p"));
        bench.run_for(10_000);
        bench
            .kube
            .hand(bench.now)
            .delete(Kind::Pod, "default", "p")
            .expect("it is there");
        bench.run_for(5000);
        bench.create(pod("q"));
        bench.run_for(10_000);
        assert_eq!(status(&bench, "q")["podIP"], expected);
    }
}

#[test]
fn without_an_address_a_pod_waits() {
    let mut bench = Bench::with_hosts();
    bench.kube.set_addresses(1, Reuse::Lowest);
    bench.create(pod("p"));
    bench.run_for(10_000);
    bench.create(pod("q"));
    bench.run_for(10_000);
    assert_eq!(waiting(&bench, "q"), "ContainerCreating");
    bench
        .kube
        .hand(bench.now)
        .delete(Kind::Pod, "default", "p")
        .expect("it is there");
    bench.run_for(60_000);
    assert_eq!(status(&bench, "q")["podIP"], "10.244.0.1");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = || {
        let (mut bench, host) = one_on_a_host();
        bench.create(pod("q"));
        bench.run_for(700);
        bench.kube.lose_host(bench.now, &host, Processes::Alive);
        bench.run_for(60_000);
        bench.kube.return_host(bench.now, &host);
        bench
            .kube
            .hand(bench.now)
            .delete(Kind::Namespace, "", "default")
            .expect("it is there");
        bench.run_for(60_000);
        format!("{:?}", bench.kube.api.audit())
    };
    assert_eq!(run(), run());
}

#[test]
fn quantities_are_read_as_they_are_written() {
    for (text, thousandths) in [
        ("500m", 500),
        ("2", 2000),
        ("1.5", 1500),
        ("0.1", 100),
        ("1Ki", 1_024_000),
        ("1.5k", 1_500_000),
    ] {
        assert_eq!(amount(&json!(text)), thousandths, "{text}");
    }
}
