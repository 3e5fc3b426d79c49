//! A stage with the operator in it, deployed as a user would, and the truth of a cluster as `valkey-cli` tells it.
//! Never waits without a deadline, never fails without the operator's last reasons and the state of the pods.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use serde_json::Value;
use serde_json::json;
use sha2::Digest as _;
use sha2::Sha256;

use crate::stage::LIMIT;
use crate::stage::Stage;
use crate::testbed::command::feed;
use crate::testbed::operator;

/// Between two looks at a condition.
const POLL: Duration = Duration::from_millis(200);

/// Lines of the operator's log in a failure.
const REASONS_MAX: usize = 20;

const SLOTS: u32 = 16_384;

/// A testbed with the menu of the samples and the operator from its release manifest.
pub(crate) struct World {
    pub(crate) stage: Stage,
    /// A file of the authorities of the clusters, where they speak TLS.
    pub(crate) authorities: Option<PathBuf>,
    /// Who asks, where somebody is bound.
    pub(crate) login: Option<Login>,
}

/// A user and a password.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

/// Which cluster, and what it is to look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) shards: usize,
    pub(crate) replicas: usize,
}

impl Wanted<'_> {
    pub(crate) fn nodes(&self) -> usize {
        self.shards * (1 + self.replicas)
    }

    /// The manifest, with `more` in its spec.
    pub(crate) fn manifest(&self, more: &Value) -> Value {
        let mut spec = json!({
            "configRef": "standard",
            "shards": self.shards,
            "replicasPerShard": self.replicas,
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        json!({
            "apiVersion": "valkey.gomomento.com/v1alpha1",
            "kind": "ValkeyCluster",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": spec,
        })
    }
}

/// A manifest of the menu.
pub(crate) fn menu(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "valkey.gomomento.com/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    })
}

/// Of a password, as `passwordHashes` has it.
pub(crate) fn hash(password: &str) -> String {
    let digest = Sha256::digest(password.as_bytes());
    let hex = |hex: String, byte: &u8| format!("{hex}{byte:02x}");
    digest.iter().fold(String::new(), hex)
}

/// A formed cluster, as its own processes tell it.
#[derive(Debug)]
pub(crate) struct Formed {
    pub(crate) pods: Vec<Value>,
    pub(crate) members: Vec<Member>,
}

impl Formed {
    /// The pod of this address.
    pub(crate) fn pod(&self, ip: &str) -> &Value {
        let pod = self.pods.iter().find(|pod| pod["status"]["podIP"] == *ip);
        pod.expect("a pod")
    }

    pub(crate) fn ids(&self) -> BTreeSet<&str> {
        self.members
            .iter()
            .map(|member| member.id.as_str())
            .collect()
    }
}

/// What one process says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) shard: u64,
    pub(crate) id: String,
    pub(crate) ip: String,
    primary: Option<String>,
    slots: Vec<(u32, u32)>,
    /// Every id in its table.
    table: BTreeSet<String>,
}

impl Member {
    pub(crate) fn is_primary(&self) -> bool {
        self.primary.is_none()
    }
}

impl World {
    pub(crate) fn up() -> Self {
        Self::with_operator(Stage::up())
    }

    /// The same, with so many addresses for pods on each machine.
    pub(crate) fn with_pod_addresses(count: u8) -> Self {
        Self::with_operator(Stage::with_pod_addresses(count))
    }

    /// The same beside others: for tests that mostly wait.
    pub(crate) fn beside_others() -> Self {
        Self::with_operator(Stage::beside_others())
    }

    /// The same without an operator: the test runs one beside it.
    pub(crate) fn without_operator() -> Self {
        Self {
            stage: Stage::up(),
            authorities: None,
            login: None,
        }
    }

    fn with_operator(stage: Stage) -> Self {
        let binary = Path::new(env!("CARGO_BIN_EXE_valkey-operator"));
        operator::deploy(&stage.testbed, binary).expect("the operator is deployed");
        Self {
            stage,
            authorities: None,
            login: None,
        }
    }

    /// A namespace that refuses every pod beyond the `restricted` profile.
    pub(crate) fn namespace(&self, name: &str) {
        let label = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        let metadata = json!({"name": name, "labels": label});
        let manifest = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        self.stage.apply(&manifest.to_string());
    }

    /// All of them in one request.
    pub(crate) fn apply_all(&self, manifests: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": manifests});
        self.stage.apply(&list.to_string());
    }

    /// Looks until it has come; what has been seen, heard and run in the namespace is told where it does not.
    pub(crate) fn until<T>(
        &self,
        what: &str,
        namespace: &str,
        mut look: impl FnMut() -> Result<T, String>,
    ) -> T {
        let start = Instant::now();
        loop {
            let seen = match look() {
                Ok(found) => return found,
                Err(seen) => seen,
            };
            let late = start.elapsed() > LIMIT;
            assert!(
                !late,
                "{what}: not after {LIMIT:?}: {seen}\n{}",
                self.account(namespace)
            );
            thread::sleep(POLL);
        }
    }

    /// The operator's last reasons and the pods of a namespace, for the reader of a failed test.
    pub(crate) fn account(&self, namespace: &str) -> String {
        let mut account = String::from("the operator said last:\n");
        let log = self.log().unwrap_or_else(|error| {
            account.push_str(&error);
            Vec::new()
        });
        let of_namespace = |line: &&Value| {
            let fields = &line["fields"];
            let failure = !fields["error"].is_null();
            failure || (fields["namespace"] == namespace && !fields["because"].is_null())
        };
        let reasons: Vec<&Value> = log.iter().filter(of_namespace).collect();
        let last = reasons.iter().rev().take(REASONS_MAX).rev();
        account.extend(last.map(|line| format!("  {} {}\n", line["timestamp"], line["fields"])));
        let words = ["get", "pods", "--output=wide", "--namespace", namespace];
        account.push_str(
            &self
                .stage
                .testbed
                .kubectl(words)
                .unwrap_or_else(|error| error.to_string()),
        );
        account
    }

    /// The operator's log, line by line.
    pub(crate) fn log(&self) -> Result<Vec<Value>, String> {
        let words = [
            "logs",
            "--namespace",
            "valkey-operator",
            "deployment/valkey-operator",
        ];
        let text = self
            .stage
            .testbed
            .kubectl(words)
            .map_err(|error| error.to_string())?;
        text.lines()
            .map(|line| serde_json::from_str(line).map_err(|error| format!("{line}: {error}")))
            .collect()
    }

    /// What was said of a cluster, as message and reason.
    pub(crate) fn said_of(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<(String, String)>, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut said = Vec::new();
        for line in self.log()? {
            let fields = &line["fields"];
            if fields["namespace"] == namespace && fields["cluster_name"] == name {
                said.push((text(&fields["message"]), text(&fields["because"])));
            }
        }
        Ok(said)
    }

    /// Waits until this reason is given for a cluster.
    pub(crate) fn wait_for_reason(&self, namespace: &str, name: &str, reason: &str) {
        let what = format!("{reason:?} is said of {namespace}/{name}");
        self.wait_until_said(&what, namespace, name, |_, because| because == reason);
    }

    /// Waits until something is said of a cluster, by its message and its reason.
    pub(crate) fn wait_until_said(
        &self,
        what: &str,
        namespace: &str,
        name: &str,
        is_meant: impl Fn(&str, &str) -> bool,
    ) {
        self.until(what, namespace, || {
            let said = self.said_of(namespace, name)?;
            let mut all = said.iter();
            if all.any(|(message, because)| is_meant(message, because)) {
                Ok(())
            } else {
                Err(format!("only {:?}", said.last()))
            }
        });
    }

    pub(crate) fn cluster(&self, namespace: &str, name: &str) -> Result<Value, String> {
        let cluster = self.stage.get("ValkeyCluster", namespace, name)?;
        cluster.ok_or_else(|| format!("there is no ValkeyCluster {namespace}/{name}"))
    }

    /// The nodes of a cluster by its name.
    pub(crate) fn nodes(&self, namespace: &str, name: &str) -> Result<Vec<Value>, String> {
        let mut nodes = self.stage.list("ValkeyNode", namespace)?;
        nodes.retain(|node| node["spec"]["clusterName"] == name);
        Ok(nodes)
    }

    /// The pods of a cluster by its label.
    pub(crate) fn pods(&self, namespace: &str, name: &str) -> Result<Vec<Value>, String> {
        let mut pods = self.stage.list("Pod", namespace)?;
        pods.retain(|pod| pod["metadata"]["labels"]["app.kubernetes.io/instance"] == name);
        Ok(pods)
    }

    pub(crate) fn wait_for_state(&self, namespace: &str, name: &str, state: &str) {
        self.until(&format!("{namespace}/{name} is {state}"), namespace, || {
            let cluster = self.cluster(namespace, name)?;
            if cluster["status"]["state"] == state {
                Ok(())
            } else {
                Err(cluster.to_string())
            }
        });
    }

    /// Waits until the cluster is Active in Kubernetes and whole in the words of each Valkey process.
    pub(crate) fn wait_until_formed(&self, wanted: &Wanted<'_>) -> Formed {
        let what = format!("{wanted:?} is formed");
        self.until(&what, wanted.namespace, || self.formed(wanted))
    }

    pub(crate) fn formed(&self, wanted: &Wanted<'_>) -> Result<Formed, String> {
        let (namespace, name) = (wanted.namespace, wanted.name);
        let status = &self.cluster(namespace, name)?["status"];
        if status["state"] != "Active" || !status["targetSpec"].is_null() {
            return Err(format!("the status is {status}"));
        }
        // Nodes before pods: a node that is stamped already has its pod.
        let nodes = self.nodes(namespace, name)?;
        let pods = self.pods(namespace, name)?;
        if nodes.len() != wanted.nodes() || pods.len() != wanted.nodes() {
            return Err(format!(
                "there are {} nodes and {} pods",
                nodes.len(),
                pods.len()
            ));
        }
        let mut members = Vec::new();
        for node in &nodes {
            let node_name = &node["metadata"]["name"];
            let pod = pods
                .iter()
                .find(|pod| pod["metadata"]["name"] == *node_name);
            let pod = pod.ok_or_else(|| format!("{node_name} has no pod"))?;
            let stamp = &node["metadata"]["annotations"]["valkey.gomomento.com/pod-uid"];
            if *stamp != pod["metadata"]["uid"] || node["spec"]["lifecycle"] != "Active" {
                return Err(format!("{node} does not match its pod"));
            }
            members.push(self.member(node, pod, wanted)?);
        }
        whole(&members, wanted)?;
        Ok(Formed { pods, members })
    }

    fn member(&self, node: &Value, pod: &Value, wanted: &Wanted<'_>) -> Result<Member, String> {
        let ip = pod["status"]["podIP"]
            .as_str()
            .ok_or_else(|| format!("no address: {pod}"))?;
        let told = self.ask(ip, "CLUSTER INFO\nINFO replication\nCLUSTER NODES\n")?;
        let lines: BTreeSet<&str> = told.lines().map(str::trim_end).collect();
        let must_say = [
            "cluster_state:ok".to_owned(),
            format!("cluster_slots_assigned:{SLOTS}"),
            format!("cluster_slots_ok:{SLOTS}"),
            "cluster_slots_pfail:0".to_owned(),
            format!("cluster_known_nodes:{}", wanted.nodes()),
            format!("cluster_size:{}", wanted.shards),
        ];
        if let Some(missing) = must_say.iter().find(|line| !lines.contains(line.as_str())) {
            return Err(format!("{ip} does not say {missing}: {told}"));
        }
        let rows: Vec<Vec<&str>> = told
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter(|words| words.len() >= 8 && words[0].len() == 40)
            .collect();
        let own = rows.iter().find(|row| row[2].contains("myself"));
        let own = own.ok_or_else(|| format!("{ip} does not know itself: {told}"))?;
        let is_replica = own[2].contains("slave");
        let link = if is_replica {
            "master_link_status:up".to_owned()
        } else {
            format!("connected_slaves:{}", wanted.replicas)
        };
        if !lines.contains(link.as_str()) {
            return Err(format!("{ip} does not say {link}: {told}"));
        }
        Ok(Member {
            shard: node["spec"]["shardIndex"].as_u64().unwrap_or_default(),
            id: own[0].to_owned(),
            ip: ip.to_owned(),
            primary: is_replica.then(|| own[3].to_owned()),
            slots: own[8..]
                .iter()
                .map(|range| slots(range))
                .collect::<Result<_, _>>()?,
            table: rows.iter().map(|row| row[0].to_owned()).collect(),
        })
    }

    /// Empties a machine of Valkey's pods, as for its upgrade; it is closed from then on.
    pub(crate) fn drain(&self, machine: &str) {
        self.stage.kubectl([
            "drain",
            machine,
            "--delete-emptydir-data",
            "--pod-selector=app.kubernetes.io/name=valkey",
            "--timeout=120s",
        ]);
    }

    /// What the process at this address answers to the commands, a line each.
    pub(crate) fn ask(&self, ip: &str, commands: &str) -> Result<String, String> {
        self.ask_as(self.login.as_ref(), ip, commands)
    }

    /// The same as somebody else.
    pub(crate) fn ask_as(
        &self,
        login: Option<&Login>,
        ip: &str,
        commands: &str,
    ) -> Result<String, String> {
        // Nobody answers for an address that is gone: not even a refusal comes.
        let mut words = vec!["-t", "2", "-h", ip];
        let authorities = self.authorities.as_ref().map(|path| path.to_string_lossy());
        if let Some(authorities) = &authorities {
            words.extend(["--tls", "--cacert", authorities]);
        }
        if let Some(Login { user, password }) = login {
            words.extend(["--no-auth-warning", "--user", user, "--pass", password]);
        }
        self.valkey_cli(&words, commands)
    }

    pub(crate) fn valkey_cli(&self, words: &[&str], commands: &str) -> Result<String, String> {
        let words = ["valkey-cli"].iter().chain(words);
        let mut command = self.stage.testbed.command(words);
        feed(&mut command, commands.as_bytes()).map_err(|error| error.to_string())
    }
}

fn slots(range: &str) -> Result<(u32, u32), String> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let number = |text: &str| {
        text.parse()
            .map_err(|error| format!("slots {range}: {error}"))
    };
    Ok((number(first)?, number(last)?))
}

/// Ids are exactly the members', all slots have one owner and equal shares, replicas follow their shard's primary.
fn whole(members: &[Member], wanted: &Wanted<'_>) -> Result<(), String> {
    let ids: BTreeSet<&String> = members.iter().map(|member| &member.id).collect();
    let mut next = 0;
    let mut ranges: Vec<_> = members
        .iter()
        .flat_map(|member| member.slots.clone())
        .collect();
    ranges.sort_unstable();
    for (first, last) in ranges {
        if first != next {
            return Err(format!("slot {next} has no owner or two: {members:?}"));
        }
        next = last + 1;
    }
    let mut shards: BTreeMap<u64, Vec<&Member>> = BTreeMap::new();
    for member in members {
        if member.table.iter().collect::<BTreeSet<_>>() != ids {
            return Err(format!("{member:?} knows others than {ids:?}"));
        }
        shards.entry(member.shard).or_default().push(member);
    }
    if next != SLOTS || ids.len() != wanted.nodes() || shards.len() != wanted.shards {
        return Err(format!(
            "{next} slots, {} ids, {} shards",
            ids.len(),
            shards.len()
        ));
    }
    let share = SLOTS / u32::try_from(wanted.shards).unwrap_or(u32::MAX);
    for shard in shards.values() {
        let primary = shard.iter().find(|member| member.primary.is_none());
        let primary = primary.ok_or_else(|| format!("no primary in {shard:?}"))?;
        let owned: u32 = primary
            .slots
            .iter()
            .map(|(first, last)| last - first + 1)
            .sum();
        let replicas = shard
            .iter()
            .filter(|member| member.primary.as_ref() == Some(&primary.id));
        if replicas.count() != wanted.replicas || !(share..=share + 1).contains(&owned) {
            return Err(format!("wrong shard: {shard:?}"));
        }
    }
    Ok(())
}
