//! What is left: S24. Never judges while the garbage collector may still be at work.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::Checker;
use super::Verdict;
use super::evidence::Millis;
use super::evidence::Name;
use super::evidence::Object;
use super::evidence::Step;
use super::evidence::Verb;
use super::lifecycle::written;
use super::past::Past;
use super::scene::Body as _;
use super::scene::INSTANCE;

/// Labels by which everything of a cluster can be found.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// What the family remembers.
#[derive(Default)]
pub(super) struct Memory {
    /// The clusters that are there, by uid.
    there: BTreeMap<String, Name>,
    /// The owners of their nodes, by the nodes' uid.
    nodes: BTreeMap<String, String>,
    /// The clusters that are gone, by uid, and since when.
    gone: BTreeMap<String, (Name, Millis)>,
}

/// S24: after deletion nothing is left: every kind listed, by owner and by label.
///
/// So that it can be: whatever is made has an owner and the cluster's label. A pod whose machine is lost may
/// stay in its deletion for ever.
pub(super) fn nothing_is_left_behind(checker: &mut Checker, step: &Step) -> Verdict {
    let Checker { past, garbage, .. } = checker;
    if past.fresh {
        leftovers(past, garbage)?;
    }
    let made = written(step).filter(|write| {
        write.verb == Verb::Create && write.outcome.took_effect() && write.kind != "Event"
    });
    let Some((write, object)) = made.and_then(|it| Some((it, it.after.as_deref()?))) else {
        return Ok(());
    };
    let told = || format!("{} {} was made without", write.kind, write.name);
    let owners = object.owners();
    if !owners.iter().any(|(_, uid)| past.uids.contains(*uid)) {
        return Err(format!("{} an owner that is there", told()));
    }
    if object.label(INSTANCE).is_empty() || object.label(MANAGED_BY) != "valkey-operator" {
        return Err(format!("{} the labels of its cluster", told()));
    }
    Ok(())
}

fn leftovers(past: &Past, garbage: &mut Memory) -> Verdict {
    let scene = &past.scene;
    for node in scene.kind("ValkeyNode") {
        if !garbage.nodes.contains_key(node.uid())
            && let Some((_, owner)) = node.owners().first()
        {
            garbage
                .nodes
                .insert(node.uid().to_owned(), (*owner).to_owned());
        }
    }
    let there: BTreeMap<String, Name> = scene
        .kind("ValkeyCluster")
        .map(|cluster| (cluster.uid().to_owned(), cluster.name.clone()))
        .collect();
    for (uid, name) in &garbage.there {
        if !there.contains_key(uid) {
            garbage.gone.insert(uid.clone(), (name.clone(), past.at));
        }
    }
    garbage.there = there;
    for (cluster, (name, since)) in &garbage.gone {
        if since + past.rules.collection > past.at {
            continue;
        }
        let nodes: BTreeSet<&str> = garbage
            .nodes
            .iter()
            .filter(|(_, owner)| *owner == cluster)
            .map(|(node, _)| node.as_str())
            .collect();
        let named_again = garbage.there.values().any(|there| there == name);
        // A pod that nobody confirms the end of waits for its machine, not for us.
        let waits = |object: &Object| object.kind == "Pod" && object.deleting();
        for object in scene.0.objects.iter().filter(|object| !waits(object)) {
            let owned = object
                .owners()
                .iter()
                .any(|(_, uid)| uid == cluster || nodes.contains(uid));
            let labelled = !named_again
                && object.name.namespace == name.namespace
                && object.label(INSTANCE) == name.name
                && object.label(MANAGED_BY) == "valkey-operator";
            if owned || labelled {
                let seconds = (past.at - since) / 1000;
                return Err(format!(
                    "{} {} is left {seconds} s after its cluster {name} was deleted",
                    object.kind, object.name
                ));
            }
        }
    }
    garbage
        .gone
        .retain(|_, (_, since)| *since + past.rules.collection > past.at);
    Ok(())
}
