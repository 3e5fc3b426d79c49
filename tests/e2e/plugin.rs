//! The built plugin against real clusters, as an administrator and as one who only looks.
//! Never a test of wording that a faster suite holds: exit codes, what is reached, and what may not be told.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use serde_json::json;

use crate::stage::say;
use crate::testbed::Testbed;
use crate::testbed::command::finish;
use crate::world::Wanted;
use crate::world::World;

/// How the plugin ended, and what it said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    fn json(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        serde_json::from_str(&self.out).expect("JSON")
    }
}

pub(crate) fn ask(world: &World, words: &[&str]) -> Said {
    run(&world.stage.testbed, words)
}

/// Runs the plugin from outside of the testbed, as a laptop would.
pub(crate) fn run(testbed: &Testbed, words: &[&str]) -> Said {
    let mut plugin = Command::new(env!("CARGO_BIN_EXE_kubectl-valkey"));
    plugin.env("KUBECONFIG", testbed.kubeconfig());
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
        plugin.env_remove(name);
    }
    let output = plugin.args(words).output().expect("the plugin runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

/// Every process of a cluster is reached through the API server, whether it speaks TLS or not.
pub(crate) fn reaches_every_process(world: &World, wanted: &Wanted<'_>) {
    let words = ["status", wanted.name, "-n", wanted.namespace, "-o", "json"];
    let status = ask(world, &words).json();
    let shards = status["shards"].as_array().expect("shards");
    let nodes: Vec<&Value> = shards
        .iter()
        .flat_map(|shard| shard["nodes"].as_array().expect("nodes"))
        .collect();
    assert_eq!(nodes.len(), wanted.nodes(), "{status:#}");
    for node in nodes {
        assert_eq!(node["process"], "answered", "{status:#}");
        assert_eq!(node["lag"].is_u64(), node["role"] == "replica", "{node}");
    }
    assert_eq!(status["slotsOwned"], 16_384, "{status:#}");
    assert_eq!(status["plan"]["next"], "nothing", "{status:#}");
    assert_eq!(status["lacking"], json!([]), "{status:#}");
}

/// Each question once, of a cluster that is at rest.
pub(crate) fn answers(world: &World, wanted: &Wanted<'_>) {
    reaches_every_process(world, wanted);
    let (name, namespace) = (wanted.name, wanted.namespace);
    let status = ask(world, &["status", name, "-n", namespace]);
    say(&format!("kubectl valkey status {name}:\n{}", status.out));
    assert!(
        !status.out.contains('\u{1b}'),
        "colour in a pipe: {status:?}"
    );
    let all = ask(world, &["status", "-A"]);
    assert!(
        all.out.contains(name) && all.out.contains("Active"),
        "{all:?}"
    );

    let plan = ask(world, &["plan", name, "-n", namespace]);
    assert!(plan.out.contains("nothing to do"), "{plan:?}");
    assert!(plan.out.contains("outdated nodes"), "{plan:?}");
    let converged = ask(world, &["wait", name, "-n", namespace, "--timeout", "0s"]);
    assert_eq!(converged.code, Some(0), "{converged:?}");

    let menu = ask(world, &["menu", "standard"]);
    assert!(menu.out.contains("valkey.maxmemory-policy"), "{menu:?}");
    let used = ask(world, &["menu", "standard", "--used-by", "-o", "json"]).json();
    assert!(used.to_string().contains(name), "{used}");
    let missing = ask(world, &["menu", "none"]);
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(
        missing.err.contains("ValkeyConfig \"none\" not found"),
        "{missing:?}"
    );

    let connect = ask(world, &["connect", name, "-n", namespace, "-o", "json"]).json();
    let snippet = &connect["snippets"][0];
    assert_eq!(snippet["client"], "valkey-cli");
    let code = snippet["code"].as_str().expect("code");
    let inside = world.stage.testbed.command(["sh", "-c", code]).output();
    let inside = inside.expect("the snippet runs");
    assert_eq!(
        String::from_utf8_lossy(&inside.stdout).trim(),
        "PONG",
        "{code}"
    );
}

/// A change that is held up and then made, permissions, and a report without a secret.
pub(crate) fn follows_a_change(world: &World, wanted: &Wanted<'_>) {
    let (name, namespace) = (wanted.name, wanted.namespace);
    let patch = |patch: &Value| {
        let words = [
            "patch",
            "valkeycluster",
            name,
            "-n",
            namespace,
            "--type=merge",
            "-p",
        ];
        let patch = patch.to_string();
        let words = words.into_iter().chain([patch.as_str()]);
        world.stage.testbed.kubectl(words).expect("patched");
    };
    let hash = "5".repeat(64);
    let pause =
        |value: Value| json!({"metadata": {"annotations": {"valkey.gomomento.com/paused": value}}});
    patch(&pause(json!("true")));
    patch(
        &json!({"spec": {"replicasPerShard": wanted.replicas + 1, "acl": [{
            "username": "app",
            "passwordHashes": [hash],
            "permissions": [{"roleRef": "app-readwrite", "keys": [{"pattern": "app:*"}]}],
        }]}}),
    );
    let held = ask(world, &["wait", name, "-n", namespace, "--timeout", "1s"]);
    assert_eq!(held.code, Some(3), "{held:?}");
    assert!(held.out.contains("paused"), "{held:?}");
    patch(&pause(Value::Null));
    let done = ask(world, &["wait", name, "-n", namespace, "--timeout", "2m"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let nodes = world.nodes(namespace, name).expect("nodes");
    assert_eq!(nodes.len(), wanted.shards * (wanted.replicas + 2));

    let can = |words: &[&str]| {
        let scope = ["-n", namespace, "--cluster", name];
        ask(world, &[words, &scope].concat())
    };
    let yes = can(&["can-i", "app", "set", "app:1"]);
    assert_eq!(yes.code, Some(0), "{yes:?}");
    assert!(yes.out.contains("+@write"), "{yes:?}");
    let no = can(&["can-i", "app", "flushall"]);
    assert_eq!(no.code, Some(1), "{no:?}");
    assert!(no.out.contains("-@dangerous"), "{no:?}");
    let who = can(&["who-can", "get", "other"]);
    assert!(
        who.out.contains("app  ") && who.out.contains("no"),
        "{who:?}"
    );
    reports_no_secret(world, wanted, &hash);
}

/// What a bug report holds, and what it must not.
fn reports_no_secret(world: &World, wanted: &Wanted<'_>, hash: &str) {
    let (name, namespace) = (wanted.name, wanted.namespace);
    let report = ask(world, &["report", name, "-n", namespace]);
    let document = report.json();
    assert_eq!(document["cluster"]["metadata"]["name"], name, "{report:?}");
    let template = "{{range .data}}{{. | base64decode}}\n{{end}}";
    let secret = format!("{name}-operator-auth");
    let words = [
        "get",
        "secret",
        &secret,
        "-n",
        namespace,
        "-o",
        "go-template",
        "--template",
        template,
    ];
    let secrets = world.stage.testbed.kubectl(words).expect("the Secret");
    let secrets: Vec<&str> = secrets.lines().filter(|line| line.len() > 8).collect();
    assert!(secrets.len() >= 2, "{secrets:?}");
    for secret in secrets.into_iter().chain([hash]) {
        assert!(!report.out.contains(secret), "a secret is told");
    }
}

/// Gives an account a role for the whole cluster, and the kubeconfig a context of its name.
fn become_known(world: &World, who: &str, role: &str) {
    let kubectl = |words: &[&str]| world.stage.kubectl(words);
    kubectl(&["create", "serviceaccount", who, "-n", "default"]);
    let (role, account) = (
        format!("--clusterrole={role}"),
        format!("--serviceaccount=default:{who}"),
    );
    kubectl(&["create", "clusterrolebinding", who, &role, &account]);
    let token = kubectl(&["create", "token", who, "-n", "default"]);
    let token = format!("--token={}", token.trim());
    kubectl(&["config", "set-credentials", who, &token]);
    let cluster = "jsonpath={.contexts[0].context.cluster}";
    let cluster = kubectl(&["config", "view", "-o", cluster]);
    let (cluster, user) = (format!("--cluster={cluster}"), format!("--user={who}"));
    kubectl(&["config", "set-context", who, &cluster, &user]);
}

/// The published roles are what the plugin needs: the first for what Kubernetes tells, both for a plan.
pub(crate) fn works_under_its_roles(world: &World, wanted: &Wanted<'_>) {
    let (name, namespace) = (wanted.name, wanted.namespace);
    let roles = concat!(env!("CARGO_MANIFEST_DIR"), "/config/rbac/roles.yaml");
    let roles = std::fs::read_to_string(roles).expect("the roles");
    world.stage.apply(&roles.replace("my-cluster", name));
    become_known(world, "asker", "valkey-plugin");
    let look = |words: &[&str]| {
        let scope = ["-n", namespace, "--context", "asker"];
        ask(world, &[words, &scope].concat())
    };
    let status = look(&["status", name, "-o", "json"]).json();
    let secret =
        format!("you may not get secrets \"{name}-operator-auth\" in namespace \"{namespace}\"");
    assert_eq!(status["lacking"], json!([secret]), "{status:#}");
    assert_eq!(look(&["plan", name]).code, Some(1));

    let role = format!("--clusterrole=valkey-plugin-{name}");
    let binding = ["create", "rolebinding", "asker", "-n", namespace, &role];
    let words = [&binding[..], &["--serviceaccount=default:asker"]].concat();
    world.stage.testbed.kubectl(words).expect("bound");
    let status = look(&["status", name, "-o", "json"]).json();
    assert_eq!(status["lacking"], json!([]), "{status:#}");
    assert_eq!(status["plan"]["next"], "nothing", "{status:#}");
    let plan = look(&["plan", name]);
    assert_eq!(plan.code, Some(0), "{plan:?}");
}

/// kubectl's own completion offers commands and clusters, by the script that is published beside the plugin.
pub(crate) fn is_completed_by_kubectl(world: &World, wanted: &Wanted<'_>) {
    let plugin = Path::new(env!("CARGO_BIN_EXE_kubectl-valkey"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy");
    let path = format!("{}:{script}", plugin.parent().expect("a folder").display());
    let completed = |words: &[&str]| {
        let kubectl = r#"PATH="$0:$PATH" exec kubectl __complete "$@""#;
        let line = ["sh", "-c", kubectl, &path, "valkey"];
        let mut shell = world.stage.testbed.command([&line[..], words].concat());
        finish(&mut shell).expect("completed")
    };
    let commands = completed(&["pl"]);
    assert!(commands.starts_with("plan\t"), "{commands}");
    let clusters = completed(&["-n", wanted.namespace, "status", wanted.name]);
    let first = format!("{}\n", wanted.name);
    assert!(clusters.starts_with(&first), "{clusters}");
}

/// Who only looks is shown what Kubernetes tells, and told what is missing.
pub(crate) fn says_what_is_missing(world: &World, wanted: &Wanted<'_>) {
    let kubectl = |words: &[&str]| world.stage.kubectl(words);
    let roles = concat!(env!("CARGO_MANIFEST_DIR"), "/config/rbac/roles.yaml");
    kubectl(&["apply", "--filename", roles]);
    become_known(world, "viewer", "valkey-viewer");

    let (name, namespace) = (wanted.name, wanted.namespace);
    let look = |words: &[&str]| {
        let scope = ["-n", namespace, "--context", "viewer"];
        ask(world, &[words, &scope].concat())
    };
    let status = look(&["status", name, "-o", "json"]).json();
    let lacking = status["lacking"].to_string();
    for refused in [
        format!("you may not get secrets \\\"{name}-operator-auth\\\""),
        "you may not list configmaps".to_owned(),
    ] {
        assert!(lacking.contains(&refused), "{refused}: {lacking}");
    }
    assert!(status["plan"].is_null(), "{status:#}");
    assert_eq!(
        status["shards"].as_array().map(Vec::len),
        Some(wanted.shards)
    );
    for words in [["plan", name], ["wait", name]] {
        let said = look(&words);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.err.contains("you may not get secrets"), "{said:?}");
    }
    for words in [["connect", name], ["menu", "standard"]] {
        let said = look(&words);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
}
