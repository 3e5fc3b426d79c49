//! Whether the testbed is what the other tests take it for.
//! Never needs the operator.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use super::slow;
use super::testbed::Options;
use super::testbed::Testbed;
use super::testbed::command::Look;
use super::testbed::command::run;
use super::testbed::command::wait_for;
use super::testbed::command::wait_for_success;
use super::testbed::control::Part;
use super::testbed::error::Error;
use super::testbed::image;
use super::testbed::machine;
use super::testbed::machine::Signal;
use super::testbed::network::Cut;
use super::testbed::network::Direction;
use super::testbed::pod;
use super::testbed::pod::PodName;
use super::turn::alone;

/// What a test could not even try is told by its error.
type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Far above what anything here takes on a machine under load.
const LIMIT: Duration = Duration::from_mins(2);

const FIRST: PodName<'static> = PodName {
    namespace: "restricted",
    name: "first",
};
const SECOND: PodName<'static> = PodName {
    namespace: "restricted",
    name: "second",
};

#[test]
fn pods_run_break_and_go_without_a_trace() -> Outcome {
    if !slow("pods_run_break_and_go_without_a_trace") {
        return Ok(());
    }
    let _alone = alone();
    let testbed = Testbed::up(&Options {
        nodes: 3,
        zones: ["north", "south"].map(str::to_owned).to_vec(),
        api_server_flags: vec!["--event-ttl=2h".to_owned()],
        ..Options::default()
    })?;
    let name = testbed.machine.name.clone();
    let devices = run(["ip", "-oneline", "link"])?;
    assert!(devices.contains("vktestbed"), "{devices}");
    zones_are_dealt_in_turn(&testbed)?;
    pods_run_restricted_and_find_each_other(&testbed)?;
    a_second_testbed_runs_beside(&testbed)?;
    processes_stop_and_go_on(&testbed)?;
    wires_are_cut_and_healed(&testbed)?;
    the_control_plane_fails_and_returns(&testbed)?;
    the_audit_log_tells_who_wrote(&testbed)?;
    a_node_dies_and_returns(&testbed)?;
    testbed.down()?;
    assert_no_trace(&name)
}

/// The other tests' guarantee that nothing piles up: SIGKILL leaves no time to tidy.
#[test]
fn a_testbed_ends_with_its_killed_owner() -> Outcome {
    if !slow("a_testbed_ends_with_its_killed_owner") {
        return Ok(());
    }
    let _alone = alone();
    let name = format!("orphan-{}", std::process::id());
    let this_test = std::env::current_exe()?;
    let mut owner = Command::new(this_test)
        .args([
            "--exact",
            "testbed_itself::an_owner_that_waits",
            "--nocapture",
        ])
        .env("TESTBED_OWNER_OF", &name)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    // In the midst of the start, when programs run already.
    wait_for("the first process of the API server", LIMIT, || {
        let pid = machine::directory_of(&name).join("daemons/kube-apiserver.pid");
        Ok(if pid.exists() {
            Look::Came(())
        } else {
            Look::NotYet("no process".to_owned())
        })
    })?;
    owner.kill()?;
    owner.wait()?;
    wait_for("the end of the orphan", LIMIT, || {
        Ok(if machine::directory_of(&name).exists() {
            Look::NotYet("its directory is there".to_owned())
        } else {
            Look::Came(())
        })
    })?;
    assert_no_trace(&name)
}

/// Not a test but the program that the test above kills.
#[test]
fn an_owner_that_waits() -> Outcome {
    let Ok(name) = std::env::var("TESTBED_OWNER_OF") else {
        return Ok(());
    };
    let testbed = Testbed::up(&Options {
        name,
        nodes: 1,
        ..Options::default()
    })?;
    // It ends when the other test does.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    testbed.down()?;
    Ok(())
}

#[test]
fn nonsense_is_refused_before_anything_starts() {
    let refused = |options: Options| match Testbed::up(&options) {
        Err(Error::Refused(reason)) => reason,
        Err(error) => error.to_string(),
        Ok(_) => "it started".to_owned(),
    };
    let named = |name: &str| Options {
        name: name.to_owned(),
        ..Options::default()
    };
    for name in ["", "..", "a/b", "-a", "Ä", &"a".repeat(31)] {
        assert!(
            refused(named(name)).starts_with("a name is 1 to 30"),
            "{name:?}"
        );
    }
    let many = Options {
        nodes: 33,
        ..Options::default()
    };
    assert_eq!(refused(many), "a testbed has at most 32 nodes");
    for pod_addresses in [0, 254] {
        let addresses = Options {
            pod_addresses,
            ..Options::default()
        };
        assert_eq!(refused(addresses), "a node has 1 to 253 pod addresses");
    }
    let zone = Options {
        zones: vec![String::new()],
        ..Options::default()
    };
    assert!(refused(zone).starts_with("a zone is 1 to 63"));
    let flag = Options {
        api_server_flags: vec!["rm".to_owned()],
        ..Options::default()
    };
    assert!(refused(flag).starts_with("a flag starts with --"));
}

fn zones_are_dealt_in_turn(testbed: &Testbed) -> Outcome {
    let zone = r"--output=jsonpath={.items[*].metadata.labels.topology\.kubernetes\.io/zone}";
    assert_eq!(
        testbed.kubectl(["get", "nodes", zone])?,
        "north south north"
    );
    Ok(())
}

fn pods_run_restricted_and_find_each_other(testbed: &Testbed) -> Outcome {
    let refused = testbed.kubectl_with(["apply", "-f", "-"], &manifest("runAsUser: 0"));
    assert!(refused.is_err_and(|error| error.to_string().contains("violates PodSecurity")));
    testbed.kubectl_with(["apply", "-f", "-"], &manifest("runAsUser: 999"))?;
    wait_until_ready(testbed)?;
    assert!(testbed.pod_exec(&FIRST, ["id"])?.starts_with("uid=999"));
    let log = ["logs", "--namespace", FIRST.namespace, FIRST.name];
    assert!(
        testbed
            .kubectl(log)?
            .contains("Ready to accept connections")
    );
    // By the name of a pod, and by the address of a Service, from a pod on another node.
    for host in [
        "second.pods.restricted.svc.cluster.local",
        "any.restricted.svc",
    ] {
        // The node hears of a new Service a moment after its pods are ready.
        wait_for_success(host, LIMIT, || ping_from(testbed, &FIRST, host))?;
    }
    let memory = testbed.pod_exec(
        &FIRST,
        ["cat", "/sys/fs/cgroup/memory/memory.limit_in_bytes"],
    );
    let memory = memory.or_else(|_| testbed.pod_exec(&FIRST, ["cat", "/sys/fs/cgroup/memory.max"]));
    assert_eq!(memory?.trim(), (64 << 20).to_string());
    // And from this very process, which is outside.
    let address = address_of(testbed, &SECOND)?;
    let cli = image::valkey_programs()?.join("valkey-cli");
    let ping = run([
        cli.as_os_str(),
        "-h".as_ref(),
        address.as_ref(),
        "ping".as_ref(),
    ])?;
    assert_eq!(ping.trim(), "PONG");
    let runtime = tokio::runtime::Runtime::new()?;
    let _entered = runtime.enter();
    let client = testbed.client()?;
    let version = runtime.block_on(client.apiserver_version())?;
    assert_eq!(version.git_version, "v1.36.3");
    Ok(())
}

fn a_second_testbed_runs_beside(testbed: &Testbed) -> Outcome {
    let second = Testbed::up(&Options::default())?;
    assert_ne!(second.block, testbed.block);
    assert!(second.kubectl(["get", "namespace", "restricted"]).is_err());
    let taken = Testbed::up(&Options {
        name: second.machine.name.clone(),
        ..Options::default()
    });
    assert!(taken.is_err_and(|error| error.to_string().ends_with("runs already")));
    second.down()?;
    assert_eq!(ping_from(testbed, &FIRST, "any.restricted.svc")?, "PONG");
    Ok(())
}

fn processes_stop_and_go_on(testbed: &Testbed) -> Outcome {
    let processes = pod::processes(testbed, &SECOND)?;
    assert!(
        processes
            .iter()
            .any(|process| process.name == "valkey-server"),
        "{processes:?}"
    );
    testbed.pod_signal(&SECOND, Some("valkey-server"), Signal::Stop)?;
    assert!(!second_answers(testbed)?);
    testbed.pod_signal(&SECOND, Some("valkey-server"), Signal::Continue)?;
    assert!(second_answers(testbed)?);
    assert!(
        testbed
            .pod_signal(&SECOND, Some("nobody"), Signal::Kill)
            .is_err()
    );
    let node = node_of(testbed, &SECOND)?;
    testbed.node_pause(&node)?;
    assert!(!second_answers(testbed)?);
    testbed.node_resume(&node)?;
    assert!(second_answers(testbed)?);
    Ok(())
}

fn wires_are_cut_and_healed(testbed: &Testbed) -> Outcome {
    let node = node_of(testbed, &SECOND)?;
    let cut = |direction, port| Cut {
        direction,
        port,
        peer: None,
    };
    for lost in [
        cut(Direction::Both, None),
        cut(Direction::In, None),
        cut(Direction::Out, None),
        cut(Direction::In, Some(6379)),
        cut(Direction::Out, Some(6379)),
    ] {
        testbed.cut(&node, &lost)?;
        assert!(!second_answers(testbed)?, "{lost:?}");
        testbed.heal(&node)?;
        assert!(second_answers(testbed)?, "{lost:?}");
    }
    // All packets of one are lost.
    testbed.lose(&node, 1)?;
    assert!(!second_answers(testbed)?);
    testbed.heal(&node)?;
    assert!(second_answers(testbed)?);
    testbed.cut(&node, &cut(Direction::Both, Some(16379)))?;
    assert!(second_answers(testbed)?);
    testbed.heal(&node)?;
    Ok(())
}

fn the_control_plane_fails_and_returns(testbed: &Testbed) -> Outcome {
    let ask = ["--request-timeout=2s", "get", "--raw=/readyz"];
    testbed.pause(Part::ApiServer)?;
    assert!(testbed.kubectl(ask).is_err());
    testbed.resume(Part::ApiServer)?;
    wait_for_success("an answer after the pause", LIMIT, || testbed.kubectl(ask))?;
    let write = [
        "--request-timeout=2s",
        "label",
        "namespace",
        "default",
        "written=yes",
    ];
    for part in [Part::Etcd, Part::ApiServer] {
        testbed.kill(part)?;
        assert!(testbed.kubectl(write).is_err(), "{part:?}");
        testbed.start_again(part)?;
        testbed.kubectl(["get", "pod", "--namespace", FIRST.namespace, FIRST.name])?;
    }
    testbed.kill(Part::Dns)?;
    assert!(ping_from(testbed, &FIRST, "second.pods.restricted.svc.cluster.local").is_err());
    testbed.start_again(Part::Dns)?;
    wait_for_success("a name after the restart of DNS", LIMIT, || {
        ping_from(testbed, &FIRST, "second.pods.restricted.svc.cluster.local")
    })?;
    Ok(())
}

fn the_audit_log_tells_who_wrote(testbed: &Testbed) -> Outcome {
    let events = testbed.audit()?;
    let wrote = |event: &&serde_json::Value| {
        let text = |pointer| event.pointer(pointer).and_then(serde_json::Value::as_str);
        text("/userAgent").is_some_and(|agent| agent.starts_with("kubectl/"))
            && text("/verb") == Some("create")
            && text("/objectRef/resource") == Some("pods")
            && text("/objectRef/name") == Some("first")
            && event.pointer("/responseStatus/code") == Some(&201.into())
    };
    assert_eq!(events.iter().filter(wrote).count(), 1);
    Ok(())
}

fn a_node_dies_and_returns(testbed: &Testbed) -> Outcome {
    let node = node_of(testbed, &SECOND)?;
    testbed.node_kill(&node)?;
    assert!(!second_answers(testbed)?);
    assert!(pod::processes(testbed, &SECOND).is_err());
    testbed.node_start(&node)?;
    // restartPolicy Always: the kubelet starts what it finds dead.
    wait_for_success("the pod after the restart of its node", LIMIT, || {
        ping_from(testbed, &FIRST, "second.pods.restricted.svc.cluster.local")
    })?;
    testbed.wait_until_ready()?;
    Ok(())
}

fn assert_no_trace(name: &str) -> Outcome {
    let devices = run(["ip", "-oneline", "address"])?;
    let mounts = fs::read_to_string("/proc/mounts")?;
    assert!(
        !mounts.contains(&machine::directory_of(name).display().to_string()),
        "{mounts}"
    );
    assert!(!machine::directory_of(name).exists());
    let find = [
        "find",
        "/sys/fs/cgroup",
        "-name",
        &format!("valkey-testbed-{name}"),
    ];
    assert_eq!(run(find)?, "");
    for entry in fs::read_dir("/proc")?.flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        assert!(!line.contains(&format!("/{name}/")), "{line:?} still runs");
    }
    let others = machine::running().len();
    let left = devices.matches("vktestbed").count();
    // One address each, of IPv4 and IPv6, for those that other tests run meanwhile.
    assert!(left <= 4 * others, "{devices}");
    assert!(Path::new("/run").exists());
    Ok(())
}

fn second_answers(testbed: &Testbed) -> Result<bool, Box<dyn std::error::Error>> {
    let address = address_of(testbed, &SECOND)?;
    let ping = ["timeout", "2", "valkey-cli", "-h", &address, "ping"];
    let output = testbed.command(ping).output();
    Ok(output.is_ok_and(|output| output.stdout == b"PONG\n"))
}

fn ping_from(testbed: &Testbed, pod: &PodName<'_>, host: &str) -> Result<String, Error> {
    let pong = testbed.pod_exec(pod, ["timeout", "5", "valkey-cli", "-h", host, "ping"])?;
    Ok(pong.trim().to_owned())
}

fn address_of(testbed: &Testbed, pod: &PodName<'_>) -> Result<String, Error> {
    let address = "--output=jsonpath={.status.podIP}";
    testbed.kubectl([
        "get",
        "pod",
        "--namespace",
        pod.namespace,
        pod.name,
        address,
    ])
}

fn node_of(testbed: &Testbed, pod: &PodName<'_>) -> Result<String, Error> {
    let node = "--output=jsonpath={.spec.nodeName}";
    testbed.kubectl(["get", "pod", "--namespace", pod.namespace, pod.name, node])
}

fn wait_until_ready(testbed: &Testbed) -> Outcome {
    let start = [
        "wait",
        "--for=condition=Ready",
        "pod",
        "--all",
        "--timeout=10s",
    ];
    let words: Vec<_> = start
        .into_iter()
        .chain(["--namespace", FIRST.namespace])
        .collect();
    wait_for_success("two ready pods", LIMIT, || testbed.kubectl(&words))?;
    Ok(())
}

/// Two pods on two nodes in a namespace that allows the restricted profile only.
fn manifest(user: &str) -> String {
    let pod = |name: &str, node: &str| {
        format!(
            r#"
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: restricted, labels: {{app: valkey}}}}
spec:
  hostname: {name}
  subdomain: pods
  nodeSelector: {{kubernetes.io/hostname: {node}}}
  securityContext:
    {user}
    runAsNonRoot: true
    fsGroup: 999
    seccompProfile: {{type: RuntimeDefault}}
  containers:
  - name: valkey
    image: valkey/valkey:9.1.2
    command: [valkey-server, --dir, /data, --bind, 0.0.0.0, --protected-mode, "no"]
    resources: {{limits: {{cpu: 100m, memory: 64Mi}}}}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {{drop: [ALL]}}
    volumeMounts: [{{name: data, mountPath: /data}}]
  volumes: [{{name: data, emptyDir: {{}}}}]
"#
        )
    };
    format!(
        r"
apiVersion: v1
kind: Namespace
metadata: {{name: restricted, labels: {{pod-security.kubernetes.io/enforce: restricted}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: pods, namespace: restricted}}
spec: {{clusterIP: None, selector: {{app: valkey}}, ports: [{{port: 6379}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: any, namespace: restricted}}
spec: {{selector: {{app: valkey}}, ports: [{{port: 6379}}]}}
{}{}",
        pod("first", "node-1"),
        pod("second", "node-2")
    )
}
