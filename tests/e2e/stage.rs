//! A testbed of three nodes with the kinds and a menu, and what these tests ask of it.
//! Never beside another where something is timed or judged by what was seen at a moment.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read as _;
use std::io::Write as _;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use kube::Api;
use kube::api::ApiResource;
use kube::api::DynamicObject;
use kube::api::GroupVersionKind;
use kube::api::ListParams;
use serde_json::Value;
use serde_json::json;

use crate::census::Census;
use crate::testbed::Options;
use crate::testbed::Testbed;
use crate::testbed::operator;
use crate::turn;
use crate::turn::Turn;

/// A 3x1 cluster takes 5 s on two idle cores; the rest is a machine under load.
pub(crate) const LIMIT: Duration = Duration::from_mins(3);

/// Between two looks at a condition.
const POLL: Duration = Duration::from_millis(100);

const MENU: &str = include_str!("../../config/samples/menu.yaml");

/// One line for the person who waits, past the test harness, which keeps back what passing tests print.
pub(crate) fn say(line: &str) {
    // Nobody to tell is no reason to stop.
    if writeln!(std::io::stderr(), "e2e: {line}").is_err() {}
}

/// Looks until it has come.
pub(crate) fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<T, String>,
) -> T {
    let start = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) => assert!(
                start.elapsed() < limit,
                "{what}: not after {limit:?}: {seen}"
            ),
        }
        thread::sleep(POLL);
    }
}

pub(crate) struct Stage {
    pub(crate) testbed: Testbed,
    runtime: tokio::runtime::Runtime,
    client: kube::Client,
    _turn: Turn,
}

/// A cluster of these tests, always named `c`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) shards: usize,
    pub(crate) replicas: usize,
}

impl Shape {
    pub(crate) const USUAL: Self = Self {
        shards: 3,
        replicas: 1,
    };
    pub(crate) const SMALL: Self = Self {
        shards: 1,
        replicas: 1,
    };

    pub(crate) fn nodes(self) -> usize {
        self.shards * (1 + self.replicas)
    }
}

impl Stage {
    /// On a machine of its own: it takes no notice of others, and they none of it.
    pub(crate) fn up() -> Self {
        Self::on(turn::alone(), Options::default())
    }

    /// The same, with so few addresses for pods that each is somebody's again soon.
    pub(crate) fn with_pod_addresses(pod_addresses: u8) -> Self {
        let options = Options {
            pod_addresses,
            ..Options::default()
        };
        Self::on(turn::alone(), options)
    }

    /// Beside others of its kind: for tests that mostly wait.
    pub(crate) fn beside_others() -> Self {
        Self::on(turn::beside_others(), Options::default())
    }

    fn on(turn: Turn, options: Options) -> Self {
        let zones = ["a", "b", "c"].map(str::to_owned).to_vec();
        let options = Options {
            nodes: 3,
            zones,
            ..options
        };
        let testbed = Testbed::up(&options).expect("a testbed");
        operator::install_kinds(&testbed).expect("the kinds are installed");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let client = {
            let _entered = runtime.enter();
            testbed.client().expect("a client")
        };
        let stage = Self {
            testbed,
            runtime,
            client,
            _turn: turn,
        };
        stage.apply(MENU);
        stage
    }

    pub(crate) fn apply(&self, manifest: &str) {
        self.testbed
            .kubectl_with(["apply", "--filename", "-"], manifest)
            .expect("applied");
    }

    pub(crate) fn apply_cluster(&self, namespace: &str, shape: Shape) {
        self.apply_cluster_with(namespace, shape, &json!({}));
    }

    /// `more` goes into the spec.
    pub(crate) fn apply_cluster_with(&self, namespace: &str, shape: Shape, more: &Value) {
        let mut spec = json!({
            "configRef": "standard",
            "shards": shape.shards,
            "replicasPerShard": shape.replicas,
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
            {
                "apiVersion": "valkey.gomomento.com/v1alpha1",
                "kind": "ValkeyCluster",
                "metadata": {"name": "c", "namespace": namespace},
                "spec": spec,
            },
        ]});
        self.apply(&list.to_string());
    }

    pub(crate) fn kubectl<I, S>(&self, words: I) -> String
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.testbed.kubectl(words).expect("kubectl succeeds")
    }

    fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let (group, version) = if kind.starts_with("Valkey") {
            ("valkey.gomomento.com", "v1alpha1")
        } else {
            ("", "v1")
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        if matches!(kind, "Namespace") {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        }
    }

    pub(crate) fn get(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, String> {
        let api = self.api(kind, namespace);
        let found = self
            .runtime
            .block_on(api.get_opt(name))
            .map_err(|error| error.to_string())?;
        Ok(found.map(|object| serde_json::to_value(object).expect("an object is JSON")))
    }

    pub(crate) fn list(&self, kind: &str, namespace: &str) -> Result<Vec<Value>, String> {
        let api = self.api(kind, namespace);
        let found = self.runtime.block_on(api.list(&ListParams::default()));
        let found = found.map_err(|error| error.to_string())?.items.into_iter();
        Ok(found
            .map(|object| serde_json::to_value(object).expect("an object is JSON"))
            .collect())
    }

    /// Asks for the deletion and does not wait for it.
    pub(crate) fn delete(&self, kind: &str, namespace: &str, name: &str) {
        let words = ["delete", kind, name, "--wait=false", "--ignore-not-found"];
        let words = words.into_iter().chain(["--namespace", namespace]);
        self.testbed.kubectl(words).expect("deletion is asked for");
    }

    /// The audit log's events that speak of this.
    pub(crate) fn audit(&self, text: &str) -> Vec<Value> {
        let path = self.testbed.machine.directory.join("audit.log");
        let log = std::fs::read_to_string(path).expect("the audit log can be read");
        // The last line may be half written.
        let lines = log
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        let lines = lines.filter(|line| line.contains(text));
        lines
            .map(|line| serde_json::from_str(line).expect("each line is JSON"))
            .collect()
    }

    pub(crate) fn census(&self, namespace: &str) -> Census {
        let events = self.audit(&format!("\"namespace\":\"{namespace}\""));
        Census::of(&events, namespace)
    }

    pub(crate) fn wait_for_state(&self, namespace: &str, state: &str) {
        until(&format!("{namespace}/c is {state}"), LIMIT, || {
            let cluster = self
                .get("ValkeyCluster", namespace, "c")?
                .ok_or("it is gone")?;
            if cluster["status"]["state"] == state {
                Ok(())
            } else {
                Err(cluster.to_string())
            }
        });
    }

    pub(crate) fn wait_until_gone(&self, kind: &str, namespace: &str, name: &str) {
        until(&format!("{kind} {namespace}/{name} is gone"), LIMIT, || {
            self.get(kind, namespace, name)?
                .map_or(Ok(()), |object| Err(object.to_string()))
        });
    }

    /// Active in Kubernetes, and whole in the words of each Valkey process.
    pub(crate) fn formed(&self, namespace: &str, shape: Shape) -> Result<(), String> {
        let cluster = self
            .get("ValkeyCluster", namespace, "c")?
            .ok_or("there is no cluster")?;
        let status = &cluster["status"];
        if status["state"] != "Active" || !status["targetSpec"].is_null() {
            return Err(format!("the status is {status}"));
        }
        let nodes = self.list("ValkeyNode", namespace)?;
        let pods = self.list("Pod", namespace)?;
        if nodes.len() != shape.nodes() || pods.len() != shape.nodes() {
            return Err(format!(
                "there are {} nodes and {} pods",
                nodes.len(),
                pods.len()
            ));
        }
        let mut shards: BTreeMap<u64, Vec<Member>> = BTreeMap::new();
        for node in &nodes {
            let name = &node["metadata"]["name"];
            let pod = pods.iter().find(|pod| pod["metadata"]["name"] == *name);
            let pod = pod.ok_or_else(|| format!("{name} has no pod"))?;
            let stamp = &node["metadata"]["annotations"]["valkey.gomomento.com/pod-uid"];
            if *stamp != pod["metadata"]["uid"] || node["spec"]["lifecycle"] != "Active" {
                return Err(format!("{node} does not match its pod"));
            }
            let member = member(pod["status"]["podIP"].as_str().unwrap_or_default(), shape)?;
            let index = node["spec"]["shardIndex"].as_u64().unwrap_or_default();
            shards.entry(index).or_default().push(member);
        }
        if shards.len() != shape.shards {
            return Err(format!("there are {} shard indices", shards.len()));
        }
        shards
            .values()
            .try_for_each(|members| whole(members, shape.replicas))
    }

    pub(crate) fn wait_until_formed(&self, namespace: &str, shape: Shape) {
        let what = format!("{namespace}/c is formed");
        until(&what, LIMIT, || self.formed(namespace, shape));
    }
}

/// What one Valkey process says of itself.
#[derive(Debug)]
struct Member {
    id: String,
    /// The id of its primary, if it is a replica with a link that is up.
    primary: Option<String>,
    slots: bool,
}

fn member(ip: &str, shape: Shape) -> Result<Member, String> {
    let info = ask(ip, "CLUSTER INFO")?;
    let (nodes, shards) = (shape.nodes(), shape.shards);
    let wanted = [
        "cluster_state:ok".to_owned(),
        "cluster_slots_assigned:16384".to_owned(),
        "cluster_slots_ok:16384".to_owned(),
        format!("cluster_known_nodes:{nodes}"),
        format!("cluster_size:{shards}"),
    ];
    let lines: BTreeSet<&str> = info.lines().collect();
    if let Some(missing) = wanted.iter().find(|line| !lines.contains(line.as_str())) {
        return Err(format!("{ip} does not say {missing}: {info}"));
    }
    let table = ask(ip, "CLUSTER NODES")?;
    let own = table
        .lines()
        .find(|line| line.contains("myself"))
        .ok_or("no line of its own")?;
    let words: Vec<&str> = own.split_whitespace().collect();
    let is_replica = words.get(2).is_some_and(|flags| flags.contains("slave"));
    let linked = ask(ip, "INFO replication")?.contains("master_link_status:up");
    if is_replica && !linked {
        return Err(format!("the replica at {ip} is not linked"));
    }
    Ok(Member {
        id: words.first().copied().unwrap_or_default().to_owned(),
        primary: words.get(3).filter(|_| is_replica).map(|&id| id.to_owned()),
        slots: words.len() > 8,
    })
}

/// One primary with slots, and its replicas.
fn whole(members: &[Member], replicas: usize) -> Result<(), String> {
    let primary = members
        .iter()
        .find(|member| member.primary.is_none() && member.slots);
    let primary = primary.ok_or_else(|| format!("no primary among {members:?}"))?;
    let linked = members
        .iter()
        .filter(|member| member.primary.as_ref() == Some(&primary.id));
    if linked.count() == replicas && members.len() == replicas + 1 {
        Ok(())
    } else {
        Err(format!("wrong shard: {members:?}"))
    }
}

/// One command to a Valkey process without a password; its reply as text.
pub(crate) fn ask(ip: &str, command: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{command} to {ip}: {error}");
    let address = format!("{ip}:6379")
        .parse()
        .map_err(|error| format!("{ip}: {error}"))?;
    let limit = Duration::from_secs(3);
    let mut stream = TcpStream::connect_timeout(&address, limit).map_err(failed)?;
    stream.set_read_timeout(Some(limit)).map_err(failed)?;
    // The server closes after QUIT, so that the reply ends with the stream.
    stream
        .write_all(format!("{command}\r\nQUIT\r\n").as_bytes())
        .map_err(failed)?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).map_err(failed)?;
    Ok(reply)
}
