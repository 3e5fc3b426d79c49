//! What answers look like, wide, in 60 columns and as JSON. Never a colour: what goes to no terminal
//! has none.

use expect_test::{Expect, expect};

use super::connect::Connect;
use super::plan::Plan;
use super::status::Status;
use super::wait::Waited;
use super::{Error, Shown, Words, complaint, duration};
use crate::decide::tests::living::world;
use crate::model::name::{ClusterRef, NodeName};
use crate::observe::visit::{Place, Refusal, Sight};

fn refusal() -> Refusal {
    Refusal {
        verb: "get",
        resource: "secrets".into(),
        name: Some("c-operator-auth".into()),
        namespace: Some("shop".into()),
    }
}

fn sight(words: &str) -> Sight {
    let (mut world, _) = world(words);
    world.cluster.key = ClusterRef {
        namespace: "shop".into(),
        name: "cache".into(),
    };
    Sight {
        world,
        lacking: Vec::new(),
    }
}

fn place(node: &NodeName) -> Place {
    Place {
        host: Some(format!("host-of-{node}")),
        zone: Some("zone-1".into()),
    }
}

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[expect(clippy::needless_pass_by_value, reason = "expected texts are written in place")]
fn check(shown: &impl Shown, width: usize, expected: Expect) {
    let text = plain(&shown.text(width));
    let longest = text.lines().map(|line| line.chars().count()).max();
    assert!(longest <= Some(width), "{longest:?} in {width}:\n{text}");
    expected.assert_eq(&text);
}

const AT_REST: &str = "2x1: a=0/2(at=900,keys=12,mib=3,max=48) b<a(at=880) | c=1/2(at=70,keys=4,mib=1,max=48) d<c(at=70)";

#[test]
fn a_cluster_at_rest() {
    let status = Status::of(&sight(AT_REST), place);
    check(&status, 120, expect![[""]]);
    check(&status, 60, expect![[""]]);
}

#[test]
fn a_cluster_in_need() {
    let status = Status::of(&sight("2x1: a=0/2(hung=70) b<a | c=1/2 d<c(joining,unlinked)"), place);
    check(&status, 120, expect![[""]]);
}

#[test]
fn what_may_not_be_read_is_said() {
    let mut sight = sight("1x0: a=0/1(starting)");
    sight.lacking.push(refusal());
    let status = Status::of(&sight, place);
    check(&status, 60, expect![[""]]);
    let json = serde_json::to_string_pretty(&status).unwrap();
    expect![[""]].assert_eq(&json);
    let error = Error::Refused {
        what: "a plan",
        refusals: sight.lacking,
    };
    expect![[""]].assert_eq(&complaint(&error));
}

#[test]
fn a_plan_says_what_is_next_and_why() {
    let plan = Plan::of(&sight("2x1: a=0/2 b<a | c=1/2").world);
    check(&plan, 100, expect![[""]]);
    check(&plan, 60, expect![[""]]);
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(json["next"], "act");
    assert_eq!(json["because"], "shard 1 has 1 of 2 nodes");
    assert_eq!(json["passed"][0]["rung"], "finalizer");
    let passed = json["passed"].as_array().unwrap().iter();
    assert!(passed.into_iter().all(|one| one["clear"] != ""));
}

#[test]
fn active_is_not_converged() {
    let converged = |words: &str| plain(&Waited::of(&sight(words).world).text(80));
    expect![[""]].assert_eq(&converged(AT_REST));
    expect![[""]].assert_eq(&converged("1x1: a=0/1"));
}

#[test]
fn clients_are_told_the_seed() {
    check(&Connect::of(&sight(AT_REST).world), 160, expect![[""]]);
    let mut secure = sight(AT_REST).world;
    secure.cluster.spec.tls = Some(crate::api::cluster::Tls {
        secret_ref: "cache-tls".into(),
    });
    let secure = plain(&Connect::of(&secure).text(160));
    assert!(secure.contains("-n shop -o go-template="), "{secure}");
    assert!(secure.contains("--tls --cacert ca.crt"), "{secure}");
    assert!(secure.contains("rediss://"), "{secure}");
}

#[test]
fn words_are_as_documented() {
    use clap::CommandFactory as _;
    Words::command().debug_assert();
    assert_eq!(duration("90s").map(|time| time.as_secs()), Ok(90));
    assert_eq!(duration("10m").map(|time| time.as_secs()), Ok(600));
    assert_eq!(duration("7").map(|time| time.as_secs()), Ok(7));
    assert!(duration("soon").is_err() && duration("").is_err());
}
