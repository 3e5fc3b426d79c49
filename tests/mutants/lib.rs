//! Bugs of the past, each as an edit of today's code: a test of the tests.
//! Never applied to the working tree: `main.rs` edits a copy.
//!
//! A mutant that the code has grown away from fails `tests/it/mutants.rs`: find the place where the
//! bug would live now, or drop it with the reason in the commit.

/// A bug put back.
pub(crate) struct Mutant {
    /// What it is called.
    pub(crate) name: &'static str,
    /// What went wrong, and for whom: a row of the list of known bugs, or a rule that it breaks.
    pub(crate) story: &'static str,
    /// What brings it back.
    pub(crate) edits: &'static [Edit],
    /// Which tests of the simulator must notice; the words that the harness filters by.
    pub(crate) noticed_by: &'static [&'static str],
}

/// A change of one place.
pub(crate) struct Edit {
    /// The file, from the package's root.
    pub(crate) file: &'static str,
    /// Its text, which occurs once.
    pub(crate) text: &'static str,
    /// What takes its place.
    pub(crate) replacement: &'static str,
}

/// Random shapes, edits and faults.
const SWARM: &[&str] = &["swarm"];

/// An operator that ends at each of its writes; then the swarm.
const CRASH: &[&str] = &["crash", "swarm"];

/// Reads that are old; then the swarm.
const STALE: &[&str] = &["stale", "swarm"];

/// The suite of parsers and renderers.
const FORMS: &[&str] = &["forms"];

/// All of them.
pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "meet-before-stamp",
        story: "B43, B48: a node is introduced before its pod is written down, so that after a crash \
                a member exists that no node admits to (S16)",
        edits: &[
            Edit {
                file: "src/model/world.rs",
                text: "PodSighting::Present(pod) if self.stamp.as_ref() == Some(&pod.uid) => Some(pod),",
                replacement: "PodSighting::Present(pod) => Some(pod),",
            },
            Edit {
                file: "src/decide/bootstrap.rs",
                text: "if pod.phase != PodPhase::Running || pod.ip.is_none() || node.stamp.is_none() {",
                replacement: "if pod.phase != PodPhase::Running || pod.ip.is_none() {",
            },
        ],
        noticed_by: SWARM,
    },
    Mutant {
        name: "slots-without-consensus",
        story: "B46: slots are given while nodes disagree on how many are given already (S13)",
        edits: &[Edit {
            file: "src/decide/bootstrap.rs",
            text: "if least != most || most != owned.count() {",
            replacement: "if most > SLOT_COUNT {",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "stores-believed",
        story: "B91: what a stale store shows is acted upon without a second look: nodes too many, \
                a surplus one removed (L3)",
        edits: &[Edit {
            file: "src/controller/cluster.rs",
            text: "if !is_confirmed(context, &world, &thought, creating == Creating::Seen).await? {",
            replacement: "if false && !is_confirmed(context, &world, &thought, creating == Creating::Seen).await? {",
        }],
        noticed_by: STALE,
    },
    Mutant {
        name: "unseen-is-seen",
        story: "B91: creates in a row do not wait until the stores show the last (L3)",
        edits: &[Edit {
            file: "src/controller/pace.rs",
            text: "Some(made) if shown(&made.node) => Creating::Seen,",
            replacement: "Some(made) if shown(&made.node) || !made.node.as_str().is_empty() => Creating::Seen,",
        }],
        noticed_by: STALE,
    },
    Mutant {
        name: "others-unseen",
        story: "found here: the stores show the node made last, and not one whose event was lost before: \
                that one is made again (S18)",
        edits: &[Edit {
            file: "src/controller/pace.rs",
            text: "Some(made) if !made.beside.iter().all(&shown) => Creating::No,",
            replacement: "Some(made) if made.beside.iter().any(|node| node.as_str().is_empty()) => Creating::No,",
        }],
        noticed_by: STALE,
    },
    Mutant {
        name: "active-before-ok",
        story: "a cluster is called Active while a node still reports cluster_state fail (S18)",
        edits: &[Edit {
            file: "src/decide/bootstrap.rs",
            text: "if !view.cluster_ok {",
            replacement: "if !view.cluster_ok && want == 0 {",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "active-before-synced",
        story: "B16: a replica that is still empty counts (S18)",
        edits: &[Edit {
            file: "src/decide/bootstrap.rs",
            text: "if let Role::Replica { linked: false, .. } = view.role {",
            replacement: "if let Role::Replica { linked: false, offset: u64::MAX } = view.role {",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "active-on-one-table",
        story: "tables that differ from the nodes' own accounts are taken for the truth (S18)",
        edits: &[Edit {
            file: "src/decide/bootstrap.rs",
            text: "if !agrees {",
            replacement: "if !agrees && want == 0 {",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "active-status-first",
        story: "the cluster is called Active before its nodes are, and a crash between the two leaves \
                them Joining for ever (S18)",
        edits: &[Edit {
            file: "src/act/kubernetes.rs",
            text: "        join_all(flips)
            .await
            .into_iter()
            .collect::<Result<(), Error>>()?;
        self.patch_status(&world.cluster, &render::status::activation())
            .await",
            replacement: "        self.patch_status(&world.cluster, &render::status::activation())
            .await?;
        join_all(flips).await.into_iter().collect()",
        }],
        noticed_by: CRASH,
    },
    Mutant {
        name: "flip-error-dropped",
        story: "the answer to a node's activation is not looked at (S18)",
        edits: &[Edit {
            file: "src/act/kubernetes.rs",
            text: "            .collect::<Result<(), Error>>()?;
        self.patch_status",
            replacement: "            .collect::<Result<(), Error>>()
            .ok();
        self.patch_status",
        }],
        noticed_by: CRASH,
    },
    Mutant {
        name: "create-error-dropped",
        story: "a refused create counts as done: it is tried again at once, for ever, and nothing is \
                said (L11)",
        edits: &[Edit {
            file: "src/act/kubernetes.rs",
            text: r#"created.map_err(|source| failed::<K>("create", &object.name_any(), source))"#,
            replacement: "Ok(created.unwrap_or_else(|_| object.clone()))",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "release-needs-secret",
        story: "F18: a cluster whose auth Secret is gone can never be let go (L10)",
        edits: &[Edit {
            file: "src/act/kubernetes.rs",
            text: "        if let Keeping::Ours(auth) = &world.kept.auth
            && auth.finalizer
        {",
            replacement: "        let Keeping::Ours(auth) = &world.kept.auth else {
            return Err(Error::Menu);
        };
        if auth.finalizer {",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "secret-never-released",
        story: "B83: the auth Secret outlives its cluster, held by a finalizer that nobody takes off (S24)",
        edits: &[Edit {
            file: "src/act/kubernetes.rs",
            text: "            && auth.finalizer
        {",
            replacement: "            && !auth.finalizer
        {",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "second-pod",
        story: "B09: a node whose pod died gets another under the same name: it comes back empty, in \
                the place of a primary (S17)",
        edits: &[Edit {
            file: "src/decide/node.rs",
            text: "            if node.stamp.is_none() && node.spec.lifecycle == Lifecycle::Joining =>",
            replacement: "            if node.spec.lifecycle == Lifecycle::Joining =>",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "delete-by-name",
        story: "F22: what is deleted is whatever has the name by then (S23)",
        edits: &[Edit {
            file: "src/act/kubernetes.rs",
            text: "uid: Some(uid.as_str().to_owned()),
            resource_version: None,",
            replacement: "uid: Some(uid.as_str().to_owned()).filter(String::is_empty),
            resource_version: None,",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "heir-of-nothing",
        story: "F02: a replica is attached before it knows what its primary owns, and what it holds is deleted (S4)",
        edits: &[Edit {
            file: "src/decide/join.rs",
            text: "(told || primary.view.own_slots().is_empty())",
            replacement: "(told || !told)",
        }],
        noticed_by: &["regressions"],
    },
    Mutant {
        name: "acl-by-name",
        story: "F22: the ACL is written to whatever has its ConfigMap's name by then (S23)",
        edits: &[Edit {
            file: "src/act/upkeep.rs",
            text: "\"metadata\": {\"uid\": seen.as_str()}, \"data\"",
            replacement: "\"metadata\": {\"uid\": Some(seen.as_str()).filter(|uid| uid.is_empty())}, \"data\"",
        }],
        noticed_by: &["regressions"],
    },
    Mutant {
        name: "forget-before-vote",
        story: "B01: a dead primary is forgotten while its replica stands for election; the others no \
                longer know whose place it asks for (S3)",
        edits: &[Edit {
            file: "src/decide/bootstrap.rs",
            text: "&& rows.iter().any(|row| !row.slots.is_empty())",
            replacement: "&& rows.is_empty()",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "takeover-despite-quorum",
        story: "B06: a replica is made primary without a vote although a vote was possible (S8)",
        edits: &[Edit {
            file: "src/decide/bootstrap.rs",
            text: "voters > view.size / 2)",
            replacement: "voters > view.size * 2)",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "silence-is-death",
        story: "B19, F07: a node that does not answer the operator is replaced, whoever else it \
                answers (S4, S5, S15)",
        edits: &[Edit {
            file: "src/decide/bootstrap.rs",
            text: "            PodSighting::Present(_) => match node.locked_out() {",
            replacement: "            PodSighting::Present(_) if matches!(node.sighting, Sighting::Silent(_)) => {
                \"it does not answer\"
            }
            PodSighting::Present(_) => match node.locked_out() {",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "foreign-adopted",
        story: "O6: an object that somebody else made under our name is taken over (S23)",
        edits: &[Edit {
            file: "src/observe/kubernetes.rs",
            text: "Some(object) if owned_by(object.as_ref(), owner) => Keeping::Ours(content(&object)),",
            replacement: "Some(object) if owned_by(object.as_ref(), owner) || !owner.as_str().is_empty() => {
            Keeping::Ours(content(&object))
        }",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "foreign-pod-adopted",
        story: "O6: a pod that somebody else made under a node's name is taken for the node's (S23)",
        edits: &[Edit {
            file: "src/observe/kubernetes.rs",
            text: "Some(pod) if owned_by(pod, &uid) => pod",
            replacement: "Some(pod) if owned_by(pod, &uid) || !uid.as_str().is_empty() => pod",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "passwords-anew",
        story: "B63, O4: the auth Secret was deleted by hand; new passwords shut the operator out of \
                every running node (S20)",
        edits: &[Edit {
            file: "src/act/upkeep.rs",
            text: "if world.kept.auth == Keeping::Absent && world.nodes.is_empty() {",
            replacement: "if world.kept.auth == Keeping::Absent {",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "password-in-a-log-line",
        story: "B64: a password in clear in a line that everybody may read (S20)",
        edits: &[Edit {
            file: "src/act/upkeep.rs",
            text: "let secret = render::auth_secret::secret(cluster, &auth);",
            replacement: "info!(cluster_name, password = auth.repl.expose(), \"passwords made\");
                let secret = render::auth_secret::secret(cluster, &auth);",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "password-in-an-error",
        story: "B64: a refused login names the password that was refused (S20)",
        edits: &[Edit {
            file: "src/valkey/client.rs",
            text: "refusal: words(&error),",
            replacement: "refusal: format!(\"{} ({})\", words(&error), target.password.expose()),",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "deletion-waits-for-the-menu",
        story: "B81: a cluster whose config is gone cannot be deleted (L10)",
        edits: &[Edit {
            file: "src/decide.rs",
            text: "return ladder::climb(&[Level::Strict(DELETING)], scene);",
            replacement: "return ladder::climb(&[Level::Strict(COMMON), Level::Strict(DELETING)], scene);",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "acl-never-updated",
        story: "B61: an edit of the bindings never reaches a node (L1)",
        edits: &[Edit {
            file: "src/act/upkeep.rs",
            text: "Keeping::Ours(in_use) if in_use.digest != sha256_hex(&text) => {",
            replacement: "Keeping::Ours(in_use) if in_use.digest.is_empty() && in_use.digest != sha256_hex(&text) => {",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "acl-always-updated",
        story: "B93: the ACL file is written at every tick, also where nothing changed (S22)",
        edits: &[Edit {
            file: "src/act/upkeep.rs",
            text: "Keeping::Ours(in_use) if in_use.digest != sha256_hex(&text) => {",
            replacement: "Keeping::Ours(in_use) if in_use.digest != text => {",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "snapshot-ignored",
        story: "an edit of the shape while the cluster is being formed changes what is being formed, \
                half way (S18)",
        edits: &[Edit {
            file: "src/resolve.rs",
            text: ".filter(|_| cluster.status.state == ClusterState::Creating)",
            replacement: ".filter(|_| cluster.status.state == ClusterState::Updating)",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "no-back-off",
        story: "B81: what the API server refuses is asked for ten times a second, for ever (L11)",
        edits: &[Edit {
            file: "src/controller/pace.rs",
            text: "let pause = doubled(RETRY_MIN, self.failures - 1, RETRY_MAX);",
            replacement: "let pause = doubled(RETRY_MIN, 0, BACK_OFF_MAX);",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "node-without-owner",
        story: "B83: a node that no garbage collector will ever find (S24)",
        edits: &[Edit {
            file: "src/render/valkey_node.rs",
            text: "            ..owned_by_cluster(cluster, name.as_str().to_owned())",
            replacement: "            owner_references: None,
            ..owned_by_cluster(cluster, name.as_str().to_owned())",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "two-in-a-tick",
        story: "a tick makes two nodes, so that a crash between them is a state that no tick was \
                thought for (S1)",
        edits: &[Edit {
            file: "src/act.rs",
            text: "let made = self.create_node(cluster, resolved, *shard, *join).await?;",
            replacement: "self.create_node(cluster, resolved, *shard, *join).await?;
                let made = self.create_node(cluster, resolved, *shard, *join).await?;",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "menu-error-passed",
        story: "a tick that meets a reference which does not resolve goes on all the same (S19)",
        edits: &[Edit {
            file: "src/decide/bootstrap.rs",
            text: "Err(error) => Verdict::Hold(Why::Menu(error.clone())),",
            replacement: "Err(_) => Verdict::Pass,",
        }],
        noticed_by: SWARM,
    },
    Mutant {
        name: "settings-not-forced",
        story: "O2: a user's setting wins over one that the operator needs (S21)",
        edits: &[Edit {
            file: "src/resolve/forced.rs",
            text: "    settings.extend(FORCED.into_iter().map(own));
",
            replacement: "    for (name, value) in FORCED {
        settings.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
",
        }],
        noticed_by: FORMS,
    },
    Mutant {
        name: "settings-by-exact-name",
        story: "O1: `Port` is not `port`, so that it escapes the forced layer (S21)",
        edits: &[Edit {
            file: "src/resolve/forced.rs",
            text: "let lower = directive.to_ascii_lowercase();",
            replacement: "let lower = directive.to_owned();",
        }],
        noticed_by: FORMS,
    },
    Mutant {
        name: "values-bare",
        story: "B52, B53: a quote in a value breaks the file, and the server dies at its start",
        edits: &[Edit {
            file: "src/render/valkey_conf.rs",
            text: r#"'"' => text.push_str("\\\""),"#,
            replacement: r#"'"' => text.push('"'),"#,
        }],
        noticed_by: FORMS,
    },
    Mutant {
        name: "pattern-after-every-key",
        story: "B61: a pattern behind `~*` makes the whole ACL file invalid, and old rules stay for ever",
        edits: &[Edit {
            file: "src/render/users_acl.rs",
            text: "if patterns.iter().any(|key| is_all(&key)) {",
            replacement: "if patterns.iter().all(|key| is_all(&key)) {",
        }],
        noticed_by: FORMS,
    },
    Mutant {
        name: "moving-slots-break-the-parser",
        story: "B34: a slot that is being moved by hand makes the whole table unreadable",
        edits: &[Edit {
            file: "src/valkey/parse.rs",
            text: ".filter(|slots| !slots.starts_with('['))",
            replacement: ".filter(|slots| !slots.is_empty())",
        }],
        noticed_by: FORMS,
    },
    Mutant {
        name: "texts-compared",
        story: "B23: a quantity is rounded down where Kubernetes rounds up, so that equal ones differ",
        edits: &[Edit {
            file: "src/model/quantity.rs",
            text: "Some(ten) => (number / ten + i128::from(number % ten != 0)).min(cap),",
            replacement: "Some(ten) => (number / ten).min(cap),",
        }],
        noticed_by: FORMS,
    },
];
