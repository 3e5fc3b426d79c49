//! The Helm chart on a real Kubernetes: what it installs, and what an upgrade and an uninstall leave alone. ALL=1, for
//! Helm and the release before are compiled first.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::testbed::binaries;
use crate::testbed::command::run;
use crate::testbed::image;
use crate::testbed::operator::install_kinds;
use crate::thorough;
use crate::world::Wanted;
use crate::world::World;

const WANTED: Wanted<'_> = Wanted {
    namespace: "charted",
    name: "c",
    shards: 2,
    replicas: 1,
};

const RELEASE: &str = "valkey-operator";

/// Helm by the testbed's kubeconfig, with nothing of the user's own.
struct Helm<'a> {
    world: &'a World,
    program: PathBuf,
}

impl Helm<'_> {
    fn run(&self, words: &[&str]) -> String {
        let testbed = &self.world.stage.testbed;
        let own = testbed.machine.directory.join("helm");
        let mut helm = Command::new(&self.program);
        helm.args(words).args(["--namespace", RELEASE]);
        helm.env("KUBECONFIG", testbed.kubeconfig());
        for home in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            helm.env(home, &own);
        }
        let output = helm.output().expect("helm starts");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "helm {words:?}: {told}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Installs or upgrades to this chart with the operator of this binary.
    fn release(&self, chart: &Path, binary: &Path) {
        let image = image::operator(binary).expect("an image");
        let testbed = &self.world.stage.testbed;
        testbed.load_image(&image.archive).expect("loaded");
        let (repository, tag) = image.name.rsplit_once(':').expect("a tag");
        let chart = chart.display().to_string();
        self.run(&[
            "upgrade",
            "--install",
            RELEASE,
            &chart,
            "--create-namespace",
            // The kinds may be there already, applied by hand.
            "--take-ownership",
            "--wait",
            "--timeout=3m",
            "--set",
            &format!("image.repository={repository},image.tag={tag}"),
        ]);
    }
}

#[test]
fn the_chart_installs_upgrades_and_goes_without_a_cluster_noticing() {
    if !thorough("the_chart_installs_upgrades_and_goes_without_a_cluster_noticing") {
        return;
    }
    let world = World::without_operator();
    let helm = Helm {
        world: &world,
        program: binaries::program("helm").expect("helm"),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let chart = root.join("deploy/chart");
    is_the_release(&helm, root, &chart);

    let (before, binary) = release_before(root);
    helm.release(&before, &binary);
    world.namespace(WANTED.namespace);
    world.apply_all(&[WANTED.manifest(&serde_json::json!({}))]);
    let first = uids(&world);

    helm.release(&chart, Path::new(env!("CARGO_BIN_EXE_valkey-operator")));
    // It has looked at everything, and found nothing to do.
    world.wait_until_formed(&WANTED);
    let looked = |message: &str, _: &str| message == "active tick";
    let (namespace, name) = (WANTED.namespace, WANTED.name);
    world.wait_until_said("a look at the cluster", namespace, name, looked);
    assert_eq!(uids(&world), first, "an upgrade replaces no pod");

    helm.run(&["uninstall", RELEASE, "--wait"]);
    assert_eq!(uids(&world), first, "an uninstall takes no cluster with it");
    install_kinds(&world.stage.testbed)
        .expect("the kinds are still there, and may be applied by hand");
    assert_eq!(uids(&world), first);
}

/// The pods of the formed cluster.
fn uids(world: &World) -> BTreeMap<String, String> {
    let formed = world.wait_until_formed(&WANTED);
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let named = formed.pods.iter().map(|pod| {
        let metadata = &pod["metadata"];
        (text(&metadata["name"]), text(&metadata["uid"]))
    });
    named.collect()
}

/// Every object that the chart renders is that of the release manifest or of the CRDs, and none is missing but the
/// Namespace, which is Helm's to make.
fn is_the_release(helm: &Helm<'_>, root: &Path, chart: &Path) {
    let chart = chart.display().to_string();
    let mut rendered = objects(helm.world, &helm.run(&["template", RELEASE, &chart]));
    for (key, object) in &mut rendered {
        if key.starts_with("CustomResourceDefinition") {
            let annotations = object["metadata"]["annotations"].as_object_mut();
            let kept = annotations.and_then(|all| all.remove("helm.sh/resource-policy"));
            assert_eq!(kept, Some("keep".into()), "{key}");
            object["metadata"]
                .as_object_mut()
                .expect("an object")
                .remove("annotations");
        }
    }
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("a file");
    let mut released = objects(helm.world, &read("deploy/operator.yaml"));
    released.extend(objects(helm.world, &read("crds/crds.json")));
    let namespace = released.remove("Namespace/valkey-operator");
    assert!(namespace.is_some());
    assert_eq!(rendered, released);
}

/// The objects of a file of any form, as they would be sent.
fn objects(world: &World, text: &str) -> BTreeMap<String, Value> {
    let words = [
        "create",
        "--dry-run=client",
        "--output=json",
        "--filename=-",
    ];
    let told = world.stage.testbed.kubectl_with(words, text);
    let told = told.expect("objects");
    let documents = serde_json::Deserializer::from_str(&told).into_iter::<Value>();
    let objects = documents.flat_map(|document| {
        let document = document.expect("JSON");
        match document["items"].as_array() {
            Some(items) => items.clone(),
            None => vec![document],
        }
    });
    let named = objects.map(|object| {
        let kind = object["kind"].as_str().expect("a kind");
        let name = object["metadata"]["name"].as_str().expect("a name");
        (format!("{kind}/{name}"), object)
    });
    named.collect()
}

/// The chart and the operator of the commit before this one.
fn release_before(root: &Path) -> (PathBuf, PathBuf) {
    let place = root.join("target/release-before");
    if place.exists() {
        fs::remove_dir_all(&place).expect("removed");
    }
    fs::create_dir_all(&place).expect("made");
    let (root, sources) = (root.display(), place.display());
    let unpack = format!("git -C {root} archive HEAD~1 | tar -x -C {sources}");
    run(["sh", "-c", &unpack]).expect("the sources of the commit before");
    let build = format!(
        "cd {sources} && CARGO_TARGET_DIR={root}/target/before cargo build --quiet --bin valkey-operator"
    );
    run(["sh", "-c", &build]).expect("the operator of the commit before");
    let binary = format!("{root}/target/before/debug/valkey-operator");
    (place.join("deploy/chart"), PathBuf::from(binary))
}
