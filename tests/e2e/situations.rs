//! Situations beside each other on one Kubernetes, each as its owner sees it: what `kubectl get`, the Events of
//! `kubectl describe`, `kubectl valkey status` and `kubectl valkey plan` say is kept in tests/fixtures/situations.
//! Never asks the operator's log: most owners may not read it.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use expect_test::expect_file;
use serde_json::Value;
use serde_json::json;

use crate::certificates::Authority;
use crate::certificates::LASTING;
use crate::certificates::Leaf;
use crate::machines;
use crate::machines::MACHINES;
use crate::slow;
use crate::stage::LIMIT;
use crate::stage::say;
use crate::testbed::machine::Signal;
use crate::testbed::pod::PodName;
use crate::transcript;
use crate::world::Wanted;
use crate::world::World;
use crate::world::menu;

/// Between two looks at what is said.
const POLL: Duration = Duration::from_millis(500);

/// The label of the machine that stops, and of those that do not.
const STOPS: [&str; 2] = ["yes", "no"];

/// Where no registry is, on whatever network.
const NO_REGISTRY: &str = "127.0.0.1:1/valkey";

/// One cluster `c` in a namespace of the situation's name.
struct Situation {
    name: &'static str,
    shards: usize,
    replicas: usize,
    /// More of its spec.
    spec: fn() -> Value,
    /// What is there besides, from the start.
    beside: fn() -> Vec<Value>,
    /// Whether it is formed before anything happens to it.
    formed: bool,
    /// What happens then.
    strike: fn(&Place<'_>),
    /// Whether that lasts for seconds only: then it happens last.
    brief: bool,
    /// Words that are said once it is there.
    sign: &'static str,
}

/// Where a situation is made.
struct Place<'a> {
    world: &'a World,
    wanted: Wanted<'static>,
}

/// A cluster of one node that waits from the first moment.
const STUCK: Situation = Situation {
    name: "",
    shards: 1,
    replicas: 0,
    spec: || json!({}),
    beside: Vec::new,
    formed: false,
    strike: |_| {},
    brief: false,
    sign: "",
};

/// A cluster of one node to which something happens.
const STRUCK: Situation = Situation {
    formed: true,
    ..STUCK
};

const SITUATIONS: &[Situation] = &[
    Situation {
        name: "config-missing",
        spec: || json!({"configRef": "nowhere"}),
        sign: "not found",
        ..STUCK
    },
    Situation {
        name: "image-missing",
        spec: || json!({"configRef": "imageless"}),
        beside: || vec![config("imageless", &json!({"imageRef": "unpublished"}))],
        sign: "not found",
        ..STUCK
    },
    Situation {
        name: "role-missing",
        spec: || json!({"acl": bound_to("unwritten")}),
        sign: "not found",
        ..STUCK
    },
    Situation {
        name: "user-bound-twice",
        spec: || json!({"configRef": "bound", "acl": bound_to("app-readwrite")}),
        beside: || {
            let spec = json!({"imageRef": "valkey-9", "acl": bound_to("app-readwrite")});
            vec![config("bound", &spec)]
        },
        sign: "duplicate",
        ..STUCK
    },
    Situation {
        name: "image-not-pulled",
        spec: || json!({"configRef": "unpublished-image"}),
        beside: || {
            let spec = json!({"repository": NO_REGISTRY, "tag": "9.1.2", "version": "9.1.2"});
            vec![
                menu("ValkeyImage", "unpublished-image", &spec),
                config(
                    "unpublished-image",
                    &json!({"imageRef": "unpublished-image"}),
                ),
            ]
        },
        sign: "cannot start",
        ..STUCK
    },
    Situation {
        name: "no-machine-has-room",
        spec: || json!({"configRef": "huge"}),
        beside: || vec![config("huge", &json!({"resources": {"cpu": "1000"}}))],
        sign: "cannot be scheduled",
        ..STUCK
    },
    Situation {
        name: "setting-not-known",
        spec: || json!({"configRef": "mistaken"}),
        beside: || vec![config("mistaken", &json!({"valkey": {"no-such": "1"}}))],
        sign: "NodeDied",
        ..STUCK
    },
    Situation {
        name: "tls-secret-missing",
        spec: tls,
        sign: "not found",
        ..STUCK
    },
    Situation {
        name: "tls-secret-without-authority",
        spec: tls,
        beside: || {
            let (_, leaf) = certified("tls-secret-without-authority", LASTING);
            let files = json!({"tls.crt": leaf.certificate, "tls.key": leaf.key});
            vec![secret("tls-secret-without-authority", &files)]
        },
        sign: "missing required key",
        ..STUCK
    },
    Situation {
        name: "tls-key-of-another-certificate",
        spec: tls,
        beside: || {
            let namespace = "tls-key-of-another-certificate";
            let (authority, leaf) = certified(namespace, LASTING);
            let (_, other) = certified(namespace, LASTING);
            let files =
                json!({"tls.crt": leaf.certificate, "tls.key": other.key, "ca.crt": authority});
            vec![secret(namespace, &files)]
        },
        sign: "TlsUnusable",
        ..STUCK
    },
    Situation {
        name: "tls-certificate-expired",
        spec: tls,
        beside: || {
            let (authority, leaf) = certified("tls-certificate-expired", 2002);
            let files =
                json!({"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": authority});
            vec![secret("tls-certificate-expired", &files)]
        },
        sign: "expired",
        ..STRUCK
    },
    Situation {
        name: "name-taken",
        beside: || {
            let metadata = json!({"name": "c", "namespace": "name-taken"});
            let spec = json!({"ports": [{"port": 80}]});
            vec![json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})]
        },
        sign: "did not make",
        ..STUCK
    },
    Situation {
        name: "quota-used-up",
        beside: || {
            let metadata = json!({"name": "none", "namespace": "quota-used-up"});
            let spec = json!({"hard": {"pods": "0"}});
            vec![
                json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}),
            ]
        },
        sign: "exceeded quota",
        ..STUCK
    },
    Situation {
        name: "paused",
        strike: |place| {
            let paused = json!({"valkey.gomomento.com/paused": "true"});
            place.patch(
                &json!({"metadata": {"annotations": paused}, "spec": {"replicasPerShard": 1}}),
            );
        },
        sign: "Paused",
        ..STRUCK
    },
    Situation {
        name: "passwords-lost",
        strike: |place| {
            let words = ["patch", "secret", "c-operator-auth", "--type=merge"];
            place.kubectl(&[&words[..], &["-p", r#"{"metadata":{"finalizers":null}}"#]].concat());
            place.kubectl(&["delete", "secret", "c-operator-auth"]);
            // Whoever has nothing to do does not look for it.
            place.patch(&json!({"spec": {"replicasPerShard": 1}}));
        },
        sign: "PasswordsLost",
        ..STRUCK
    },
    Situation {
        name: "newcomer-without-room",
        spec: || json!({"configRef": "growing"}),
        beside: || vec![config("growing", &json!({}))],
        strike: |place| {
            let grown = config("growing", &json!({"resources": {"cpu": "1000"}}));
            place.world.apply_all(&[grown]);
        },
        sign: "cannot be scheduled",
        ..STRUCK
    },
    Situation {
        name: "drain-too-large",
        shards: 2,
        strike: |place| {
            let fill = "local v = string.rep('x', 1048576) for i = 1, 30 do redis.call('SET', KEYS[1] .. i, v) end";
            // One for each half of the slots.
            for tag in ["{a}", "{b}"] {
                place.ask(&format!("EVAL \"{fill}\" 1 {tag}\n"));
            }
            place.patch(&json!({"spec": {"shards": 1}}));
        },
        sign: "does not fit",
        ..STRUCK
    },
    Situation {
        name: "replica-syncing",
        strike: |place| {
            place
                .ask("EVAL \"for i = 1, 600 do redis.call('SET', KEYS[1] .. i, 'x') end\" 1 {a}\n");
            // Microseconds that the copy of each key takes.
            place.ask("CONFIG SET rdb-key-save-delay 1000000\n");
            place.patch(&json!({"spec": {"replicasPerShard": 1}}));
        },
        sign: "NotLinked",
        ..STRUCK
    },
    Situation {
        name: "deletion-held",
        strike: |place| {
            let node = place.pod();
            let held = r#"[{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/backup"}]"#;
            place.kubectl(&["patch", "valkeynode", &node, "--type=json", "-p", held]);
            place.kubectl(&["delete", "valkeycluster", "c", "--wait=false"]);
        },
        sign: "NodesLeaving",
        ..STRUCK
    },
    Situation {
        name: "stranger-in-the-cluster",
        beside: || vec![stranger()],
        strike: |place| {
            let ip = place.address_of("stranger");
            place.ask(&format!("CLUSTER MEET {ip} 6379\n"));
        },
        sign: "ForeignMember",
        ..STRUCK
    },
    Situation {
        name: "rules-refused",
        spec: || json!({"acl": bound_to("edited")}),
        beside: || vec![role("edited", "get")],
        strike: |place| place.world.apply_all(&[role("edited", "no-such")]),
        sign: "AclRefused",
        ..STRUCK
    },
    Situation {
        name: "primary-hangs",
        replicas: 1,
        strike: |place| {
            let primary = place.primary();
            let pod = PodName {
                namespace: place.wanted.namespace,
                name: &primary,
            };
            let testbed = &place.world.stage.testbed;
            let stopped = testbed.pod_signal(&pod, Some("valkey-server"), Signal::Stop);
            stopped.expect("stopped");
        },
        brief: true,
        sign: "PrimaryUnproven",
        ..STRUCK
    },
    Situation {
        name: "machine-silent",
        brief: true,
        sign: "PodStarting",
        ..STUCK
    },
];

fn config(name: &str, more: &Value) -> Value {
    let mut spec = json!({"baseRef": "standard"});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    menu("ValkeyConfig", name, &spec)
}

fn role(name: &str, command: &str) -> Value {
    menu(
        "ValkeyRole",
        name,
        &json!({"commands": [{"name": command, "access": "allow"}]}),
    )
}

fn bound_to(role: &str) -> Value {
    let permission = json!({"roleRef": role, "keys": [{"pattern": "*"}]});
    let hash = "0".repeat(64);
    json!([{"username": "app", "passwordHashes": [hash], "permissions": [permission]}])
}

fn tls() -> Value {
    json!({"tls": {"secretRef": "c-tls"}})
}

/// An authority, and a certificate by it for the cluster of a namespace.
fn certified(namespace: &str, last_year: i32) -> (String, Leaf) {
    let authority = Authority::new(namespace);
    let leaf = authority.certify(&format!("c.{namespace}.svc.cluster.local"), last_year);
    (authority.pem, leaf)
}

fn secret(namespace: &str, files: &Value) -> Value {
    let metadata = json!({"name": "c-tls", "namespace": namespace});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": files})
}

/// A Valkey process that no cluster made.
fn stranger() -> Value {
    let command = [
        "valkey-server",
        "--cluster-enabled",
        "yes",
        "--dir",
        "/tmp",
        "--protected-mode",
        "no",
    ];
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "stranger", "namespace": "stranger-in-the-cluster"},
        "spec": {"containers": [{"name": "valkey", "image": "docker.io/valkey/valkey:9.1.2", "command": command}]},
    })
}

impl Situation {
    fn wanted(&self) -> Wanted<'static> {
        Wanted {
            namespace: self.name,
            name: "c",
            shards: self.shards,
            replicas: self.replicas,
        }
    }

    /// With its cluster on machines that stop, or that do not.
    fn manifests(&self, stops: &str) -> Vec<Value> {
        let metadata = json!({"name": self.name});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        let mut spec = (self.spec)();
        spec["placement"] = json!({"nodeSelector": {"stops": stops}});
        let cluster = self.wanted().manifest(&spec);
        [vec![namespace], (self.beside)(), vec![cluster]].concat()
    }

    /// Takes its cluster from rest into the situation. What the cluster went through before is not a part of it.
    fn begin(&self, world: &World) {
        let place = Place {
            world,
            wanted: self.wanted(),
        };
        if self.formed {
            place.kubectl(&["delete", "events", "--all"]);
        }
        (self.strike)(&place);
    }

    /// What is said is what is kept, now or before long: it comes and goes with the operator's pauses.
    fn is_told(&self, world: &World) {
        let kept = self.kept();
        let expected = fs::read_to_string(&kept).unwrap_or_default();
        let blessing = std::env::var("UPDATE_EXPECT").is_ok_and(|value| value == "1");
        let (start, mut before) = (Instant::now(), String::new());
        let told = loop {
            let told = transcript::of(world, self.name).expect("asked");
            let is_there = told.contains(self.sign);
            let done = told == expected || (blessing && told == before);
            if (is_there && done) || start.elapsed() > LIMIT {
                break told;
            }
            before = told;
            thread::sleep(POLL);
        };
        say(&format!(
            "{} is told after {:.1?}",
            self.name,
            start.elapsed()
        ));
        assert!(
            told.contains(self.sign),
            "{}: no {:?}:\n{told}",
            self.name,
            self.sign
        );
        expect_file![kept].assert_eq(&told);
    }

    fn kept(&self) -> PathBuf {
        let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/situations");
        fixtures.join(format!("{}.txt", self.name))
    }
}

impl Place<'_> {
    fn kubectl(&self, words: &[&str]) -> String {
        let scope = ["-n", self.wanted.namespace];
        let words = words.iter().chain(&scope);
        let told = self.world.stage.testbed.kubectl(words);
        told.expect("kubectl succeeds")
    }

    fn patch(&self, patch: &Value) {
        let patch = patch.to_string();
        self.kubectl(&["patch", "valkeycluster", "c", "--type=merge", "-p", &patch]);
    }

    /// The name of one of its pods.
    fn pod(&self) -> String {
        let pods = self.world.pods(self.wanted.namespace, "c").expect("listed");
        let name = pods[0]["metadata"]["name"].as_str();
        name.expect("a name").to_owned()
    }

    fn address_of(&self, pod: &str) -> String {
        self.world.until(
            &format!("{pod} has an address"),
            self.wanted.namespace,
            || {
                let address = self.kubectl(&["get", "pod", pod, "-o", "jsonpath={.status.podIP}"]);
                if address.is_empty() {
                    Err("none".to_owned())
                } else {
                    Ok(address)
                }
            },
        )
    }

    /// One command to the cluster, sent on to whoever has its key.
    fn ask(&self, command: &str) {
        let ip = self.address_of(&self.pod());
        let told = self.world.valkey_cli(&["-c", "-e", "-h", &ip], command);
        told.expect("answered");
    }

    /// The name of the only primary's pod.
    fn primary(&self) -> String {
        let formed = self.world.wait_until_formed(&self.wanted);
        let primary = formed.members.iter().find(|member| member.is_primary());
        let pod = formed.pod(&primary.expect("a primary").ip);
        pod["metadata"]["name"].as_str().expect("a name").to_owned()
    }
}

#[test]
fn an_owner_is_told_what_goes_on_and_what_to_do() {
    if !slow("an_owner_is_told_what_goes_on_and_what_to_do") {
        return;
    }
    let only = std::env::var("SITUATION").unwrap_or_default();
    let world = World::up();
    let named = |situation: &&Situation| situation.name.contains(&only);
    let (brief, lasting): (Vec<_>, Vec<_>) =
        SITUATIONS.iter().filter(named).partition(|one| one.brief);
    let of_start = lasting.iter().chain(brief.iter().filter(|one| one.formed));
    let machine = machines::without_operator(&world);
    let [yes, no] = STOPS;
    for other in MACHINES {
        let stops = if other == machine { yes } else { no };
        let label = format!("stops={stops}");
        world.stage.kubectl(["label", "node", other, &label]);
    }
    let manifests = of_start.clone().flat_map(|one| one.manifests(no));
    world.apply_all(&manifests.collect::<Vec<_>>());
    for situation in of_start.filter(|one| one.formed) {
        world.wait_for_state(situation.name, "c", "Active");
    }
    for situation in &lasting {
        situation.begin(&world);
    }
    for situation in &lasting {
        situation.is_told(&world);
    }
    for situation in brief {
        if situation.formed {
            situation.begin(&world);
        } else {
            world.stage.testbed.node_pause(machine).expect("paused");
            world.apply_all(&situation.manifests(yes));
        }
        situation.is_told(&world);
    }
    world.stage.testbed.node_resume(machine).expect("resumed");
}
