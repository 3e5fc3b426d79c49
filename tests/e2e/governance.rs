//! The shipped roles, held by real service accounts: each team does its job and nothing of the other's.
//! Never asks what would be allowed: each request is made, the refused ones with a valid object.

use std::path::Path;

use serde_json::Value;
use serde_json::json;

use super::slow;
use super::testbed::Options;
use super::testbed::Testbed;
use super::testbed::operator::install_kinds;
use super::turn;

/// Who asks, as the roles call them.
const TEAMS: [&str; 3] = ["platform-team", "product-team", "viewer"];

/// A request and which of `TEAMS` may make it.
struct Case {
    words: &'static [&'static str],
    manifest: Option<fn() -> Value>,
    allowed: [bool; 3],
}

const PLATFORM: [bool; 3] = [true, false, false];
const PRODUCT: [bool; 3] = [false, true, false];
const ALL: [bool; 3] = [true, true, true];
const NOBODY: [bool; 3] = [false, false, false];
const NOT_PRODUCT: [bool; 3] = [true, false, true];

const fn asks(words: &'static [&'static str], allowed: [bool; 3]) -> Case {
    Case {
        words,
        manifest: None,
        allowed,
    }
}

const fn makes(manifest: fn() -> Value, allowed: [bool; 3]) -> Case {
    Case {
        words: &["create", "--dry-run=server", "--filename", "-"],
        manifest: Some(manifest),
        allowed,
    }
}

const CASES: &[Case] = &[
    // The menu.
    makes(image, PLATFORM),
    makes(config, PLATFORM),
    makes(role, PLATFORM),
    asks(
        &[
            "label",
            "--dry-run=server",
            "valkeyconfig",
            "standard",
            "a=b",
        ],
        PLATFORM,
    ),
    asks(
        &["delete", "--dry-run=server", "valkeyimage", "valkey-9"],
        PLATFORM,
    ),
    asks(&["get", "valkeyimages"], ALL),
    asks(&["get", "valkeyconfigs"], ALL),
    asks(&["get", "valkeyrole", "app-readwrite"], ALL),
    // Clusters.
    makes(cluster, PRODUCT),
    asks(
        &[
            "patch",
            "--dry-run=server",
            "valkeycluster",
            "c",
            "--type=merge",
            "-p={\"spec\":{\"shards\":4}}",
        ],
        PRODUCT,
    ),
    asks(
        &["delete", "--dry-run=server", "valkeycluster", "c"],
        PRODUCT,
    ),
    asks(&["get", "valkeyclusters"], ALL),
    asks(&["get", "valkeyclusters", "--all-namespaces"], NOT_PRODUCT),
    asks(&["get", "valkeyclusters", "--namespace=other"], NOT_PRODUCT),
    // What the operator alone writes.
    makes(node, NOBODY),
    asks(
        &[
            "patch",
            "--dry-run=server",
            "valkeycluster",
            "c",
            "--subresource=status",
            "--type=merge",
            "-p={\"status\":{\"state\":\"Active\"}}",
        ],
        NOBODY,
    ),
    asks(
        &[
            "patch",
            "--dry-run=server",
            "valkeynode",
            "c-00000",
            "--type=merge",
            "-p={\"spec\":{\"lifecycle\":\"Leaving\"}}",
        ],
        NOBODY,
    ),
    asks(
        &["delete", "--dry-run=server", "valkeynode", "c-00000"],
        NOBODY,
    ),
    asks(&["delete", "--dry-run=server", "pod", "c-00000"], NOBODY),
    asks(&["get", "valkeynodes"], ALL),
    asks(&["get", "pods"], ALL),
    asks(&["get", "events"], ALL),
    // Passwords.
    asks(&["get", "secrets"], NOBODY),
    asks(&["get", "secret", "c-operator-auth"], NOBODY),
];

#[test]
fn each_team_does_its_job_and_nothing_of_the_others() {
    if !slow("each_team_does_its_job_and_nothing_of_the_others") {
        return;
    }
    let _turn = turn::beside_others();
    let options = Options {
        nodes: 0,
        ..Options::default()
    };
    let testbed = Testbed::up(&options).expect("a testbed");
    install_kinds(&testbed).expect("the kinds are installed");
    for file in ["config/rbac/roles.yaml", "config/samples/menu.yaml"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let file = file.display().to_string();
        kubectl(&testbed, &["apply", "--filename", &file]);
    }
    employ(&testbed);
    let objects = [namespaced(cluster(), "shop"), namespaced(node(), "shop")];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let made = testbed.kubectl_with(["create", "--filename", "-"], &list.to_string());
    made.expect("made");
    let wrong: Vec<String> = TEAMS
        .iter()
        .enumerate()
        .flat_map(|(index, team)| CASES.iter().map(move |case| (index, *team, case)))
        .filter_map(|(index, team, case)| judged(&testbed, team, case, case.allowed[index]))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A service account of each team, bound as the roles' file says, and its token for kubectl.
fn employ(testbed: &Testbed) {
    for namespace in ["shop", "other"] {
        kubectl(testbed, &["create", "namespace", namespace]);
    }
    for team in TEAMS {
        kubectl(
            testbed,
            &["create", "serviceaccount", team, "--namespace=shop"],
        );
        let token = kubectl(testbed, &["create", "token", team, "--namespace=shop"]);
        let token = format!("--token={}", token.trim());
        kubectl(testbed, &["config", "set-credentials", team, &token]);
        let (kind, namespace) = match team {
            "product-team" => ("rolebinding", "--namespace=shop"),
            _ => ("clusterrolebinding", "--namespace="),
        };
        bind(testbed, kind, team, &format!("valkey-{team}"), namespace);
    }
    bind(
        testbed,
        "clusterrolebinding",
        "product-team",
        "valkey-menu-viewer",
        "--namespace=",
    );
}

fn bind(testbed: &Testbed, kind: &str, team: &str, role: &str, namespace: &str) {
    let name = format!("{team}-{role}");
    let role = format!("--clusterrole={role}");
    let subject = format!("--serviceaccount=shop:{team}");
    kubectl(
        testbed,
        &["create", kind, &name, &role, &subject, namespace],
    );
}

/// What is wrong with the answer, if anything.
fn judged(testbed: &Testbed, team: &str, case: &Case, allowed: bool) -> Option<String> {
    let user = format!("--user={team}");
    let words = ["--namespace=shop", &user].into_iter();
    let words = words.chain(case.words.iter().copied());
    let answer = match case.manifest {
        Some(manifest) => testbed.kubectl_with(words, &manifest().to_string()),
        None => testbed.kubectl(words),
    };
    let refused = answer
        .as_ref()
        .is_err_and(|error| error.to_string().contains("Forbidden"));
    let right = if allowed { answer.is_ok() } else { refused };
    let what = case.manifest.map(|manifest| manifest()["kind"].to_string());
    (!right).then(|| {
        format!(
            "{team}: {} {}: allowed {allowed}, got {answer:?}",
            case.words.join(" "),
            what.unwrap_or_default()
        )
    })
}

fn kubectl(testbed: &Testbed, words: &[&str]) -> String {
    testbed.kubectl(words).expect("kubectl succeeds")
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "valkey.gomomento.com/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    })
}

fn namespaced(mut object: Value, namespace: &str) -> Value {
    let name = match object["kind"].as_str() {
        Some("ValkeyNode") => "c-00000",
        _ => "c",
    };
    object["metadata"] = json!({"name": name, "namespace": namespace});
    object
}

fn image() -> Value {
    object(
        "ValkeyImage",
        "new",
        &json!({"repository": "valkey/valkey", "tag": "9", "version": "9"}),
    )
}

fn config() -> Value {
    object("ValkeyConfig", "new", &json!({"baseRef": "standard"}))
}

fn role() -> Value {
    object("ValkeyRole", "new", &json!({}))
}

fn cluster() -> Value {
    object(
        "ValkeyCluster",
        "new",
        &json!({"configRef": "standard", "shards": 1, "replicasPerShard": 0}),
    )
}

fn node() -> Value {
    object(
        "ValkeyNode",
        "c-fffff",
        &json!({"clusterName": "c", "image": "none:none", "shardIndex": 0}),
    )
}
