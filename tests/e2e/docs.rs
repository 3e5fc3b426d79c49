//! Every command of the documentation, run as it stands there: a page that is wrong fails.
//! Never checks what a command prints, which is other tests' work; what was moved in has arrived.

use std::fs;
use std::path::Path;

use crate::slow;
use crate::testbed::command::finish;
use crate::testbed::image;
use crate::world::Wanted;
use crate::world::World;

/// In the order of a reader. What is made with `make` is the gate itself.
const PAGES: [&str; 4] = [
    "README.md",
    "docs/troubleshooting.md",
    "docs/moving-in.md",
    "docs/operations.md",
];

/// A server of nobody's operator, as the page on moving in has it.
const OLD: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: old, namespace: demo}
spec:
  selector: {matchLabels: {app: old}}
  template:
    metadata: {labels: {app: old}}
    spec:
      containers:
        - name: valkey
          image: docker.io/valkey/valkey:9.1.2
          command: [valkey-server, --protected-mode, "no", --dir, /tmp]
---
apiVersion: v1
kind: Service
metadata: {name: old, namespace: demo}
spec:
  selector: {app: old}
  ports: [{port: 6379}]
"#;

/// What it holds.
const KEYS: usize = 500;

/// The cluster that the pages speak of.
const SAMPLE: Wanted<'_> = Wanted {
    namespace: "demo",
    name: "my-cluster",
    shards: 3,
    replicas: 1,
};

#[test]
fn every_command_of_the_docs_runs() {
    if !slow("every_command_of_the_docs_runs") {
        return;
    }
    let world = World::beside_others();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for file in ["menu.yaml", "cluster.yaml"] {
        let manifest = fs::read_to_string(root.join("config/samples").join(file));
        world.stage.apply(&manifest.expect("a sample"));
    }
    world.wait_until_formed(&SAMPLE);
    // Under the name that the manifest has, which no registry serves.
    let made = image::operator(Path::new(env!("CARGO_BIN_EXE_valkey-operator"))).expect("an image");
    let released = format!(
        "docker.io/library/valkey-operator:{}",
        env!("CARGO_PKG_VERSION")
    );
    let tagged = world.stage.testbed.tag_image(&made.name, &released);
    tagged.expect("tagged");
    fill_old(&world);
    let plugin = Path::new(env!("CARGO_BIN_EXE_kubectl-valkey"));
    let programs = plugin.parent().expect("a folder").display();
    for page in PAGES {
        let text = fs::read_to_string(root.join(page)).expect("a page");
        let blocks = commands(&text);
        assert!(!blocks.is_empty(), "{page} has no command");
        for block in blocks {
            let script = format!("PATH={programs}:$PATH; cd {}; {block}", root.display());
            let mut shell = world.stage.testbed.command(["bash", "-euc", &script]);
            finish(&mut shell).unwrap_or_else(|error| panic!("{page}: {error}"));
        }
        if page == "docs/moving-in.md" {
            has_moved_in(&world);
        }
    }
}

fn fill_old(world: &World) {
    world.stage.apply(OLD);
    let old = ["-n", SAMPLE.namespace, "deployment/old"];
    let kubectl = |words: &[&str]| world.stage.kubectl(words);
    kubectl(&[&["rollout", "status", "--timeout=2m"], &old[..]].concat());
    let fill = format!("for i = 1, {KEYS} do redis.call('SET', 'key-' .. i, i) end");
    kubectl(
        &[
            &["exec"],
            &old[..],
            &["--", "valkey-cli", "EVAL", &fill, "0"],
        ]
        .concat(),
    );
}

/// Every key of the old server is in the cluster.
fn has_moved_in(world: &World) {
    let formed = world.wait_until_formed(&SAMPLE);
    let primaries = formed.members.iter().filter(|member| member.is_primary());
    let counts = primaries.map(|member| {
        let told = world.ask(&member.ip, "DBSIZE\n").expect("answered");
        told.trim().parse::<usize>().expect("a number")
    });
    assert_eq!(counts.sum::<usize>(), KEYS);
}

/// The blocks that a shell is meant to read.
fn commands(page: &str) -> Vec<&str> {
    let starts = page.split("```sh\n").skip(1);
    let blocks = starts.filter_map(|rest| rest.split_once("```").map(|(block, _)| block));
    blocks.filter(|block| !block.starts_with("make ")).collect()
}
