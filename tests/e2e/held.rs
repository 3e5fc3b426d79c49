//! What a person does while a cluster is being made: an edit of its shape, and objects that sit on its names.
//! Never lets the operator undo either: the edit waits in the spec, the object stays until its owner removes it.

use serde_json::Value;
use serde_json::json;

use crate::follow::ACTIVATION;
use crate::slow;
use crate::world::Wanted;
use crate::world::World;

#[test]
fn an_edit_of_the_shape_waits_until_the_cluster_is_active() {
    if !slow("an_edit_of_the_shape_waits_until_the_cluster_is_active") {
        return;
    }
    let world = World::beside_others();
    world.namespace("edits");
    let wanted = Wanted {
        namespace: "edits",
        name: "c",
        shards: 2,
        replicas: 1,
    };
    let place = json!({"placement": {"nodeSelector": {"disk": "fast"}}});
    world.apply_all(&[wanted.manifest(&place)]);
    // All nodes are made, no pod has a place.
    world.until("four nodes wait", "edits", || {
        let nodes = world.nodes("edits", "c")?.len();
        if nodes == wanted.nodes() {
            Ok(())
        } else {
            Err(format!("{nodes} nodes"))
        }
    });
    let edited = Wanted {
        shards: 3,
        replicas: 0,
        ..wanted
    };
    world.apply_all(&[edited.manifest(&place)]);
    let label = "an edit that is read live meanwhile";
    let annotated = json!({"placement": place["placement"], "podAnnotations": {"seen": label}});
    world.apply_all(&[edited.manifest(&annotated)]);
    // This edit is carried out, so the operator has seen the others too.
    world.until("the pods are annotated", "edits", || {
        let pods = world.pods("edits", "c")?;
        let seen = |pod: &&Value| pod["metadata"]["annotations"]["seen"] == label;
        let seen = pods.iter().filter(seen).count();
        if seen == wanted.nodes() {
            Ok(())
        } else {
            Err(format!("{seen} of {}", pods.len()))
        }
    });
    let cluster = world.cluster("edits", "c").expect("read");
    assert_eq!(cluster["status"]["state"], "Creating");
    shape_is(&cluster["status"]["targetSpec"], &wanted);
    shape_is(&cluster["spec"], &edited);
    assert_eq!(
        world.nodes("edits", "c").expect("listed").len(),
        wanted.nodes()
    );
    let words = ["label", "nodes", "--all", "disk=fast"];
    world.stage.testbed.kubectl(words).expect("labelled");
    world.wait_for_state("edits", "c", "Active");
    let cluster = world.cluster("edits", "c").expect("read");
    assert_eq!(
        cluster["status"]["targetSpec"],
        Value::Null,
        "Active clears it"
    );
    shape_is(&cluster["spec"], &edited);
    made_as(&world, &wanted);
}

/// Told by the log, for what an Active cluster does with the edit is not judged here.
fn made_as(world: &World, wanted: &Wanted<'_>) {
    world.until("the activation is in the log", "edits", || {
        let said = world.said_of("edits", "c")?;
        let end = said.iter().position(|(message, _)| message == ACTIVATION);
        let before = &said[..end.ok_or("not yet")?];
        let count = |wanted: &str| before.iter().filter(|(said, _)| said == wanted).count();
        assert_eq!(count("node created"), wanted.nodes());
        assert_eq!(count("slots assigned"), wanted.shards);
        Ok(())
    });
}

fn shape_is(spec: &Value, wanted: &Wanted<'_>) {
    assert_eq!(spec["shards"], wanted.shards, "{spec}");
    assert_eq!(spec["replicasPerShard"], wanted.replicas, "{spec}");
}

/// An object of somebody else with a name that a cluster needs.
struct Taken {
    kind: &'static str,
    cluster: &'static str,
    name: &'static str,
    object: Value,
}

impl Taken {
    /// Labels like ours make nothing ours.
    fn new(kind: &'static str, cluster: &'static str, name: &'static str, body: &Value) -> Self {
        let mut object = body.clone();
        object["apiVersion"] = json!("v1");
        object["kind"] = json!(kind);
        let labels =
            json!({"app.kubernetes.io/name": "valkey", "app.kubernetes.io/instance": cluster});
        object["metadata"] = json!({"name": name, "namespace": "taken", "labels": labels});
        Self {
            kind,
            cluster,
            name,
            object,
        }
    }

    fn wanted(&self) -> Wanted<'_> {
        Wanted {
            namespace: "taken",
            name: self.cluster,
            shards: 1,
            replicas: 1,
        }
    }

    fn read(&self, world: &World) -> Value {
        let read = world.stage.get(self.kind, "taken", self.name);
        read.expect("read").expect("it is there")
    }
}

#[test]
fn objects_of_others_are_not_touched_and_hold_the_cluster_until_they_are_gone() {
    if !slow("objects_of_others_are_not_touched_and_hold_the_cluster_until_they_are_gone") {
        return;
    }
    let world = World::beside_others();
    world.namespace("taken");
    let service = json!({"spec": {"ports": [{"port": 80}]}});
    let acl = json!({"data": {"users.acl": "user default off"}});
    let auth = json!({"data": {"operator-password": "eA==", "repl-password": "eA=="}});
    let taken = [
        Taken::new("Service", "service", "service", &service),
        Taken::new("ConfigMap", "acl", "acl-acl", &acl),
        Taken::new("Secret", "auth", "auth-operator-auth", &auth),
    ];
    world.apply_all(&taken.each_ref().map(|taken| taken.object.clone()));
    let before = taken.each_ref().map(|taken| taken.read(&world));
    let clusters = taken
        .each_ref()
        .map(|taken| taken.wanted().manifest(&json!({})));
    world.apply_all(&clusters);
    for Taken {
        kind,
        cluster,
        name,
        ..
    } in &taken
    {
        let reason = format!(
            "a {kind} named {name:?} exists that this cluster did not make: delete or rename it"
        );
        world.wait_for_reason("taken", cluster, &reason);
    }
    for (taken, before) in taken.iter().zip(&before) {
        assert_eq!(taken.read(&world), *before, "it is as it was");
        let nodes = world.nodes("taken", taken.cluster).expect("listed");
        assert_eq!(nodes.len(), 0, "{} is not begun", taken.cluster);
        world.stage.delete(taken.kind, "taken", taken.name);
    }
    for taken in &taken {
        world.wait_until_formed(&taken.wanted());
        let made = taken.read(&world);
        let owner = &made["metadata"]["ownerReferences"][0]["kind"];
        assert_eq!(owner, "ValkeyCluster", "{made}");
    }
}
