//! What is documented, alerted on and drawn, held equal to what is really told.
//! Never a list of its own: names come from the code.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use operator::act::event;
use operator::api::cluster::ClusterState;
use operator::metrics::{Cause, Metrics, Outcome, Reading};
use operator::model::desired::TlsOffer;
use operator::model::name::{NodeName, ValkeyId};
use operator::model::shards::Topology;
use operator::model::slots::SlotSet;
use operator::model::tls::{File, TlsFiles};
use operator::model::topology::{Load, Member, MemberFlags, NodeView, Role};
use operator::model::why::Why;
use operator::model::world::{NodeFacts, Sighting};
use serde_json::Value;
use strum::VariantNames as _;

use crate::artifacts::read;
use crate::wire;

/// Labels of each metric; histograms under the names of their parts too.
type Names = BTreeMap<String, BTreeSet<String>>;

const PRIMARY: &str = "c-aaaaa";
const REPLICA: &str = "c-bbbbb";

/// All numbers, each told at least once: of a cluster of one shard with a replica that is 5 bytes behind.
fn told() -> (Metrics, String) {
    let metrics = Metrics::default();
    metrics.reconciled("cluster", Outcome::Success, Duration::from_millis(3));
    metrics.acted("CreateNode");
    metrics.event("written");
    metrics.requested("GET");
    metrics.answered(200);
    metrics.handed_over(Cause::Planned, Duration::from_millis(180));
    metrics.definition("ValkeyNode", true);
    let (mut world, mut desired) = wire::world();
    world.now = 7;
    world.cluster.status.state = ClusterState::Active;
    let node = world.nodes.values().next().expect("a node").clone();
    world.nodes.clear();
    for name in [PRIMARY, REPLICA] {
        let named = NodeFacts {
            name: NodeName::new(name),
            sighting: Sighting::Answered(view(name)),
            ..node.clone()
        };
        world.nodes.insert(named.name.clone(), named);
    }
    desired.shape.replicas = 1;
    let file = || File::new(Vec::new());
    desired.tls = Some(Ok(TlsOffer {
        secret: "s".into(),
        files: TlsFiles {
            certificate: file(),
            key: file(),
            authorities: file(),
        },
        flaw: None,
        lapse: None,
        expires: 99,
    }));
    let key = world.cluster.key.clone();
    metrics.observed(
        &key,
        Reading::of(&world, &Topology::of(&world), &desired, Some(&Why::Paused)),
    );
    let page = metrics.text().expect("a page");
    (metrics, page)
}

fn view(of: &str) -> NodeView {
    let row = |name: &str| Member {
        id: ValkeyId::new(name),
        ip: None,
        flags: MemberFlags {
            myself: name == of,
            primary: name == PRIMARY,
            ..MemberFlags::default()
        },
        primary: (name == REPLICA).then(|| ValkeyId::new(PRIMARY)),
        epoch: 1,
        connected: true,
        silent_seconds: 0,
        slots: if name == PRIMARY {
            SlotSet::all()
        } else {
            SlotSet::default()
        },
    };
    NodeView {
        id: ValkeyId::new(of),
        cluster_ok: true,
        slots_assigned: 16384,
        known_nodes: 2,
        size: 1,
        current_epoch: 1,
        my_epoch: 1,
        role: if of == PRIMARY {
            Role::Primary { offset: 105 }
        } else {
            Role::Replica {
                linked: true,
                offset: 100,
            }
        },
        members: vec![row(PRIMARY), row(REPLICA)],
        loading: false,
        failing_over: false,
        load: Load {
            keys: 3,
            ..Load::default()
        },
        clock: 0,
        migrations: Vec::new(),
    }
}

/// Names and labels of a page.
fn names(page: &str) -> Names {
    let mut names = Names::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let known = names.entry(name.to_owned()).or_default();
        let labels = labels.trim_end_matches('}').split("\",");
        known.extend(labels.filter_map(|one| Some(one.split_once('=')?.0.to_owned())));
    }
    names
}

/// Words of a text that are names of metrics.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = ["valkey_operator_", "valkey_cluster_", "valkey_node_"];
    words
        .filter(|word| ours.iter().any(|prefix| word.starts_with(prefix)))
        .collect()
}

/// The first cells of the tables of a page, each a name in backticks.
pub(crate) fn rows(page: &str) -> BTreeSet<&str> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("| `"));
    lines
        .filter_map(|line| Some(line.split_once('`')?.0))
        .collect()
}

#[test]
fn a_healthy_cluster_is_told_in_numbers() {
    let (metrics, page) = told();
    for line in [
        "valkey_cluster_healthy{namespace=\"ns\",cluster=\"c\"} 1",
        "valkey_cluster_healthy_timestamp_seconds{namespace=\"ns\",cluster=\"c\"} 7",
        "valkey_cluster_slots_covered{namespace=\"ns\",cluster=\"c\"} 16384",
        "valkey_cluster_waiting{namespace=\"ns\",cluster=\"c\",reason=\"Paused\"} 1",
        "valkey_node_replication_lag_bytes{namespace=\"ns\",cluster=\"c\",shard=\"0\",node=\"c-bbbbb\"} 5",
        "valkey_operator_clusters{state=\"Active\"} 1",
    ] {
        assert!(
            page.lines().any(|one| one.starts_with(line)),
            "{line}\n{page}"
        );
    }
    let (world, desired) = wire::world();
    let key = world.cluster.key.clone();
    // Not healthy any more: the last time stays.
    metrics.observed(
        &key,
        Reading::of(&world, &Topology::of(&world), &desired, None),
    );
    let later = metrics.text().expect("a page");
    assert!(
        later.contains("valkey_cluster_healthy{namespace=\"ns\",cluster=\"c\"} 0"),
        "{later}"
    );
    assert!(
        later
            .contains("valkey_cluster_healthy_timestamp_seconds{namespace=\"ns\",cluster=\"c\"} 7"),
        "{later}"
    );
    metrics.forget(&key);
    let gone = metrics.text().expect("a page");
    assert!(!gone.contains("cluster=\"c\""), "{gone}");
}

#[test]
fn docs_list_each_metric_and_no_other() {
    let (_, page) = told();
    let names = names(&page);
    let parts = |name: &str| {
        let histogram = ["_bucket", "_sum", "_count"];
        let mut bases = histogram.iter().filter_map(|part| name.strip_suffix(part));
        let whole = bases.find(|base| names.contains_key(&format!("{base}_bucket")));
        whole.unwrap_or(name).to_owned()
    };
    let told: BTreeSet<String> = names.keys().map(|name| parts(name)).collect();
    let docs = read("docs/monitoring.md");
    let listed = rows(&docs)
        .into_iter()
        .filter(|row| row.starts_with("valkey_"));
    let listed: BTreeSet<String> = listed.map(str::to_owned).collect();
    assert_eq!(listed, told);
}

#[test]
fn docs_list_each_reason_of_an_event_and_no_other() {
    let docs = read("docs/monitoring.md");
    let listed: BTreeSet<&str> = rows(&docs)
        .into_iter()
        .filter(|row| !row.starts_with("valkey_"))
        .collect();
    let told: BTreeSet<&str> = Why::VARIANTS
        .iter()
        .chain(&event::REASONS)
        .copied()
        .collect();
    assert_eq!(listed, told);
}

/// Metrics of an expression, each with the labels that its selector names.
fn selectors(expression: &str) -> Vec<(&str, Vec<&str>)> {
    let found = metrics_in(expression).into_iter().flat_map(|name| {
        expression.match_indices(name).filter_map(move |(at, _)| {
            let rest = &expression[at + name.len()..];
            if rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
                return None;
            }
            let inside = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            let labels = inside.map_or("", |(inside, _)| inside).split(',');
            let labels = labels.filter_map(|one| Some(one.split(['=', '!']).next()?.trim()));
            Some((name, labels.filter(|label| !label.is_empty()).collect()))
        })
    });
    found.collect()
}

/// Refuses an expression over what is not told.
fn holds(names: &Names, expression: &str) {
    let selectors = selectors(expression);
    assert!(!selectors.is_empty(), "no metric in {expression:?}");
    for (name, labels) in selectors {
        let known = names.get(name);
        let known = known.unwrap_or_else(|| panic!("{name} in {expression:?} is not told"));
        for label in labels {
            assert!(
                known.contains(label),
                "{name} has no {label:?}: {expression:?}"
            );
        }
    }
}

#[test]
fn each_alert_is_about_what_is_told_and_leads_to_its_heading() {
    let (_, page) = told();
    let names = names(&page);
    let (alerts, docs) = (
        read("deploy/monitoring/alerts.yaml"),
        read("docs/monitoring.md"),
    );
    let rules: Vec<&str> = alerts.split("- alert: ").skip(1).collect();
    assert!(rules.len() > 5);
    for rule in rules {
        let alert = rule.lines().next().unwrap_or_default();
        let (_, rest) = rule.split_once("expr: ").expect("an expression");
        let (expression, _) = rest.split_once("labels:").expect("labels after it");
        holds(&names, expression);
        let anchor = format!("runbook_url: docs/monitoring.md#{}", alert.to_lowercase());
        assert!(
            rule.contains(&anchor),
            "{alert} does not lead to its heading"
        );
        assert!(
            docs.contains(&format!("\n### {alert}\n")),
            "{alert} has no heading"
        );
        let told: BTreeSet<&String> = selectors(expression)
            .iter()
            .flat_map(|(name, _)| &names[*name])
            .collect();
        for used in rule.split("$labels.").skip(1) {
            let end = used.find(|c: char| !c.is_alphanumeric() && c != '_');
            let label = used[..end.unwrap_or(used.len())].to_owned();
            assert!(told.contains(&label), "{alert} shows {label:?}");
        }
    }
    let headings = docs.lines().filter_map(|line| line.strip_prefix("### "));
    for heading in headings {
        assert!(
            alerts.contains(&format!("- alert: {heading}\n")),
            "no alert {heading}"
        );
    }
}

/// `promtool` plays them where everything is tried: here none is left out.
#[test]
fn each_alert_is_tried_where_it_fires_and_where_it_does_not() {
    let (alerts, trials) = (
        read("deploy/monitoring/alerts.yaml"),
        read("deploy/monitoring/alerts_test.yaml"),
    );
    let trials: Vec<&str> = trials.split("- alertname: ").skip(1).collect();
    for rule in alerts.split("- alert: ").skip(1) {
        let alert = rule.lines().next().unwrap_or_default();
        let of_alert = trials
            .iter()
            .filter(|trial| trial.lines().next() == Some(alert));
        let (fires, quiet): (Vec<&&str>, Vec<&&str>) =
            of_alert.partition(|trial| trial.contains("exp_labels:"));
        assert!(!fires.is_empty(), "{alert} is never seen to fire");
        assert!(!quiet.is_empty(), "{alert} is never seen quiet");
    }
}

#[test]
fn the_dashboard_draws_each_metric_of_clusters_and_nothing_that_is_not_told() {
    let (_, page) = told();
    let names = names(&page);
    let board: Value =
        serde_json::from_str(&read("deploy/monitoring/dashboard.json")).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let mut drawn = BTreeSet::new();
    for target in targets {
        let expression = target["expr"].as_str().expect("an expression");
        holds(&names, expression);
        drawn.extend(metrics_in(expression));
    }
    let left_out = names
        .keys()
        .filter(|name| !name.starts_with("valkey_operator_"));
    let left_out: Vec<&String> = left_out
        .filter(|name| !drawn.contains(name.as_str()))
        .collect();
    assert!(left_out.is_empty(), "not drawn: {left_out:?}");
}
