//! Every command of the documentation, run as it stands there: a page that is wrong fails.
//! Never checks what a command prints, which is other tests' work.

use std::fs;
use std::path::Path;

use crate::slow;
use crate::testbed::command::finish;
use crate::testbed::image;
use crate::world::Wanted;
use crate::world::World;

/// In the order of a reader. What is made with `make` is the gate itself.
const PAGES: [&str; 2] = ["README.md", "docs/operations.md"];

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
    for page in PAGES {
        let text = fs::read_to_string(root.join(page)).expect("a page");
        let blocks = commands(&text);
        assert!(!blocks.is_empty(), "{page} has no command");
        for block in blocks {
            let script = format!("cd {} && {block}", root.display());
            let mut shell = world.stage.testbed.command(["bash", "-euc", &script]);
            finish(&mut shell).unwrap_or_else(|error| panic!("{page}: {error}"));
        }
    }
}

/// The blocks that a shell is meant to read.
fn commands(page: &str) -> Vec<&str> {
    let starts = page.split("```sh\n").skip(1);
    let blocks = starts.filter_map(|rest| rest.split_once("```").map(|(block, _)| block));
    blocks.filter(|block| !block.starts_with("make ")).collect()
}
