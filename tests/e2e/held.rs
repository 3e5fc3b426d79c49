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
    let world = World::up();
    world.namespace("edits");
    let wanted = Wanted { namespace: "edits", name: "c", shards: 2, replicas: 1 };
    let place = json!({"placement": {"nodeSelector": {"disk": "fast"}}});
    world.apply_all(&[wanted.manifest(&place)]);
    // All nodes are made, no pod has a place.
    world.until("four nodes wait", "edits", || {
        let nodes = world.nodes("edits", "c")?.len();
        if nodes == wanted.nodes() { Ok(()) } else { Err(format!("{nodes} nodes")) }
    });
    let edited = Wanted { shards: 3, replicas: 0, ..wanted };
    world.apply_all(&[edited.manifest(&place)]);
    let label = "an edit that is read live meanwhile";
    let annotated = json!({"placement": place["placement"], "podAnnotations": {"seen": label}});
    world.apply_all(&[edited.manifest(&annotated)]);
    // This edit is carried out, so the operator has seen the others too.
    world.until("the pods are annotated", "edits", || {
        let pods = world.pods("edits", "c")?;
        let seen = |pod: &&Value| pod["metadata"]["annotations"]["seen"] == label;
        let seen = pods.iter().filter(seen).count();
        if seen == wanted.nodes() { Ok(()) } else { Err(format!("{seen} of {}", pods.len())) }
    });
    let cluster = world.cluster("edits", "c").expect("read");
    assert_eq!(cluster["status"]["state"], "Creating");
    shape_is(&cluster["status"]["targetSpec"], &wanted);
    shape_is(&cluster["spec"], &edited);
    assert_eq!(world.nodes("edits", "c").expect("listed").len(), wanted.nodes());
    let words = ["label", "nodes", "--all", "disk=fast"];
    world.stage.testbed.kubectl(words).expect("labelled");
    world.wait_for_state("edits", "c", "Active");
    let cluster = world.cluster("edits", "c").expect("read");
    assert_eq!(cluster["status"]["targetSpec"], Value::Null, "Active clears it");
    shape_is(&cluster["spec"], &edited);
    // Told by the log, for what an Active cluster does with the edit is not judged here.
    world.until("the activation is in the log", "edits", || {
        let said = world.said_of("edits", "c")?;
        let before = said.iter().position(|(message, _)| message == ACTIVATION).ok_or("not yet")?;
        let count = |wanted: &str| said[..before].iter().filter(|(message, _)| message == wanted).count();
        assert_eq!(count("node created"), wanted.nodes());
        assert_eq!(count("slots assigned"), wanted.shards);
        Ok(())
    });
}

fn shape_is(spec: &Value, wanted: &Wanted<'_>) {
    assert_eq!(spec["shards"], wanted.shards, "{spec}");
    assert_eq!(spec["replicasPerShard"], wanted.replicas, "{spec}");
}

#[test]
fn objects_of_others_are_not_touched_and_hold_the_cluster_until_they_are_gone() {
    if !slow("objects_of_others_are_not_touched_and_hold_the_cluster_until_they_are_gone") {
        return;
    }
    let world = World::up();
    world.namespace("taken");
    let data = json!({"operator-password": "eA==", "repl-password": "eA=="});
    let taken = [
        ("Service", "service", String::new(), json!({"spec": {"ports": [{"port": 80}]}})),
        ("ConfigMap", "acl", "-acl".to_owned(), json!({"data": {"users.acl": "user default off"}})),
        ("Secret", "auth", "-operator-auth".to_owned(), json!({"data": data})),
    ];
    let mut objects = Vec::new();
    for (kind, cluster, suffix, body) in &taken {
        let mut object = body.clone();
        object["apiVersion"] = json!("v1");
        object["kind"] = json!(kind);
        // Labels like ours make nothing ours.
        let labels = json!({"app.kubernetes.io/name": "valkey", "app.kubernetes.io/instance": cluster});
        let name = format!("{cluster}{suffix}");
        object["metadata"] = json!({"name": name, "namespace": "taken", "labels": labels});
        objects.push(object);
    }
    world.apply_all(&objects);
    let read = |kind: &str, name: &str| world.stage.get(kind, "taken", name).expect("read");
    let wanted = |name| Wanted { namespace: "taken", name, shards: 1, replicas: 1 };
    let name = |cluster: &str, suffix: &str| format!("{cluster}{suffix}");
    let before = taken.each_ref().map(|(kind, cluster, suffix, _)| read(kind, &name(cluster, suffix)));
    world.apply_all(&taken.each_ref().map(|(_, cluster, ..)| wanted(*cluster).manifest(&json!({}))));
    for (kind, cluster, suffix, _) in &taken {
        let name = name(cluster, suffix);
        let reason =
            format!("a {kind} named {name:?} exists that this cluster did not make: delete or rename it");
        world.wait_for_reason("taken", cluster, &reason);
    }
    for ((kind, cluster, suffix, _), before) in taken.iter().zip(&before) {
        assert!(before.is_some());
        assert_eq!(read(kind, &name(cluster, suffix)), *before, "it is as it was");
        assert_eq!(world.nodes("taken", cluster).expect("listed").len(), 0, "{cluster} is not begun");
        world.stage.delete(kind, "taken", &name(cluster, suffix));
    }
    for (kind, cluster, suffix, _) in &taken {
        world.wait_until_formed(&wanted(cluster));
        let made = read(kind, &name(cluster, suffix)).expect("made anew");
        assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "ValkeyCluster", "{made}");
    }
}
