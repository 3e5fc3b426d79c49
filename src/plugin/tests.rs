//! What answers look like, wide, in 60 columns and as JSON. Never a colour: what goes to no terminal
//! has none.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use serde_json::json;

use super::connect::Connect;
use super::plan::Plan;
use super::status::Status;
use super::wait::Waited;
use super::{COMPLETION, Error, Shown, Words, complaint, duration, in_time};
use crate::api::config::ValkeyConfigSpec;
use crate::api::image::ValkeyImageSpec;
use crate::decide::tests::living::world;
use crate::model::name::{ClusterRef, NodeName};
use crate::model::world::Menu;
use crate::observe::visit::{Place, Refusal, Sight};

fn refusal() -> Refusal {
    Refusal {
        verb: "get",
        resource: "secrets".into(),
        name: Some("c-operator-auth".into()),
        namespace: Some("shop".into()),
    }
}

fn config() -> ValkeyConfigSpec {
    serde_json::from_value(json!({"imageRef": "v9"})).unwrap()
}

fn image() -> ValkeyImageSpec {
    serde_json::from_value(json!({"repository": "valkey", "tag": "9", "version": "9"})).unwrap()
}

fn sight(words: &str) -> Sight {
    let (mut world, _) = world(words);
    world.cluster.key = ClusterRef {
        namespace: "shop".into(),
        name: "cache".into(),
    };
    world.menu = Menu {
        configs: [("standard".into(), config())].into(),
        images: [("v9".into(), image())].into(),
        roles: BTreeMap::new(),
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

#[expect(
    clippy::needless_pass_by_value,
    reason = "expected texts are written in place"
)]
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
    check(
        &status,
        120,
        expect![[r#"
        shop/cache  Active
        spec    config standard, shards 2, replicas per shard 1
        now     nothing to do
        slots   16384 of 16384 have an owner
        skew    the largest shard beside the mean: slots 100 %, keys 150 %, memory 150 %

        SHARD  SLOTS 0 TO 16383                  COUNT  RANGES
        0      ████████████████················  8192   0-8191
        1      ················████████████████  8192   8192-16383

        SHARD  NODE  ROLE     LIFECYCLE  OFFSET  LAG  KEYS  MEMORY        HOST       ZONE
        0      a     primary  Active     900          12    3.0Mi/48.0Mi  host-of-a  zone-1
        0      b     replica  Active     880     20   0     0B            host-of-b  zone-1
        1      c     primary  Active     70           4     1.0Mi/48.0Mi  host-of-c  zone-1
        1      d     replica  Active     70      0    0     0B            host-of-d  zone-1
    "#]],
    );
    check(
        &status,
        60,
        expect![[r#"
        shop/cache  Active
        spec    config standard, shards 2, replicas per shard 1
        now     nothing to do
        slots   16384 of 16384 have an owner
        skew    the largest shard beside the mean: slots 100 %, keys
                150 %, memory 150 %

        SHARD  SLOTS 0 TO 16383                  COUNT  RANGES
        0      ████████████████················  8192   0-8191
        1      ················████████████████  8192   8192-16383

        0  a
            role primary, lifecycle Active, offset 900, keys 12,
            memory 3.0Mi/48.0Mi, host host-of-a, zone zone-1
        0  b
            role replica, lifecycle Active, offset 880, lag 20, keys
            0, memory 0B, host host-of-b, zone zone-1
        1  c
            role primary, lifecycle Active, offset 70, keys 4,
            memory 1.0Mi/48.0Mi, host host-of-c, zone zone-1
        1  d
            role replica, lifecycle Active, offset 70, lag 0, keys
            0, memory 0B, host host-of-d, zone zone-1
    "#]],
    );
}

#[test]
fn a_cluster_in_need() {
    let status = Status::of(
        &sight("2x1: a=0/2(hung=70) b<a | c=1/2 d<c(joining,unlinked)"),
        place,
    );
    check(
        &status,
        120,
        expect![[r#"
        shop/cache  Active
        spec    config standard, shards 2, replicas per shard 1
        now     let b take over without a vote, because primary id-a is dead, and too few primaries are left to elect its
                replica
        slots   16384 of 16384 have an owner

        SHARD  SLOTS 0 TO 16383                  COUNT  RANGES
        0      ████████████████················  8192   0-8191
        1      ················████████████████  8192   8192-16383

        SHARD  NODE  ROLE              LIFECYCLE  OFFSET  LAG  KEYS  MEMORY  HOST       ZONE
        0      a                       Active                                host-of-a  zone-1
        0      b     replica, no link  Active     100          0     0B      host-of-b  zone-1
        1      c     primary           Active     100          0     0B      host-of-c  zone-1
        1      d     replica, no link  Joining    100     0    0     0B      host-of-d  zone-1

        node    a: its process: connection refused
    "#]],
    );
}

#[test]
fn what_may_not_be_read_is_said() {
    let mut sight = sight("1x0: a=0/1(starting)");
    sight.lacking.push(refusal());
    let status = Status::of(&sight, place);
    check(
        &status,
        60,
        expect![[r#"
        shop/cache  Active
        spec    config standard, shards 1, replicas per shard 0
        now     cannot be known by what you may read

        SHARD  NODE  LIFECYCLE  HOST       ZONE
        0      a     Active     host-of-a  zone-1

        node    a: its pod: pending

        lacking you may not get secrets "c-operator-auth" in
                namespace "shop"
    "#]],
    );
    let json = serde_json::to_string_pretty(&status).unwrap();
    expect![[r#"
        {
          "namespace": "shop",
          "name": "cache",
          "state": "Active",
          "config": "standard",
          "tls": false,
          "paused": false,
          "deleting": false,
          "wantedShards": 1,
          "wantedReplicas": 0,
          "shards": [
            {
              "index": 0,
              "slots": "",
              "slotCount": 0,
              "nodes": [
                {
                  "name": "a",
                  "role": "unknown",
                  "lifecycle": "Active",
                  "deleting": false,
                  "pod": "pending",
                  "process": "not asked",
                  "host": "host-of-a",
                  "zone": "zone-1"
                }
              ]
            }
          ],
          "lacking": [
            "you may not get secrets \"c-operator-auth\" in namespace \"shop\""
          ]
        }"#]]
    .assert_eq(&json);
    let error = Error::Refused {
        what: "a plan",
        refusals: sight.lacking,
    };
    expect![[r#"
        error: a plan needs more than you may read: you may not get secrets "c-operator-auth" in namespace "shop"
    "#]].assert_eq(&complaint(&error));
}

#[test]
fn a_plan_says_what_is_next_and_why() {
    let plan = Plan::of(&sight("2x1: a=0/2 b<a | c=1/2").world);
    check(
        &plan,
        100,
        expect![[r#"
            shop/cache  Active
            next    create a node of shard 1 that joins as replica
            why     shard 1 has 1 of 2 nodes

            PASSED            BECAUSE
            finalizer         the cluster carries the operator's finalizer
            paused            the cluster is not paused
            TLS validated     the cluster needs no TLS Secret, or has one that validates
            kept objects      its Service, Secrets and ConfigMap are its own
            TLS usable        the TLS material in use is there, where any is needed
            menu              its config, image and roles resolve
            newcomers apart   no newcomer is known to another cluster
            failed primary    every shard has a primary that lives, or needs no help to get one
            departed members  no member is dead or gone
        "#]],
    );
    check(
        &plan,
        60,
        expect![[r#"
            shop/cache  Active
            next    create a node of shard 1 that joins as replica
            why     shard 1 has 1 of 2 nodes

            finalizer
                the cluster carries the operator's finalizer
            paused
                the cluster is not paused
            TLS validated
                the cluster needs no TLS Secret, or has one that
                validates
            kept objects
                its Service, Secrets and ConfigMap are its own
            TLS usable
                the TLS material in use is there, where any is needed
            menu
                its config, image and roles resolve
            newcomers apart
                no newcomer is known to another cluster
            failed primary
                every shard has a primary that lives, or needs no help
                to get one
            departed members
                no member is dead or gone
        "#]],
    );
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
    expect![[r#"
        shop/cache  Active
        done    the cluster is what its spec asks for
    "#]]
    .assert_eq(&converged(AT_REST));
    expect![[r#"
        shop/cache  Active
        missing create a node of shard 0 that joins as replica, because shard 0 has 1 of
                2 nodes
    "#]]
    .assert_eq(&converged("1x1: a=0/1"));
}

#[test]
fn clients_are_told_the_seed() {
    check(
        &Connect::of(&sight(AT_REST).world),
        160,
        expect![[r#"
        shop/cache  Active
        seed    cache.shop.svc.cluster.local:6379
        users   none is bound: the cluster is open to whoever reaches it
        tls     no

        valkey-cli
          valkey-cli -c -h cache.shop.svc.cluster.local -p 6379 PING

        Python, valkey-py
          valkey.ValkeyCluster(host="cache.shop.svc.cluster.local", port=6379)

        Go, valkey-go
          valkey.NewClient(valkey.ClientOption{InitAddress: []string{"cache.shop.svc.cluster.local:6379"}})

        Java, Jedis
          new JedisCluster(new HostAndPort("cache.shop.svc.cluster.local", 6379), DefaultJedisClientConfig.builder().build())

        Node.js, iovalkey
          new Valkey.Cluster([{ host: "cache.shop.svc.cluster.local", port: 6379 }])

        Rust, redis
          ClusterClientBuilder::new(["redis://cache.shop.svc.cluster.local:6379"]).build()?
    "#]],
    );
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
    let docs = include_str!("../../docs/plugin.md");
    for command in Words::command().get_subcommands() {
        let name = command.get_name();
        let row = format!("| `{name}");
        let shown = !command.is_hide_set() && name != "completion";
        assert!(docs.contains(&row) || !shown, "{name}");
    }
    // What is shown there is what is printed.
    let text = plain(&Status::of(&sight(AT_REST), place).text(120));
    let lines = text.lines().map(|line| line.split_whitespace());
    for heading in ["SHARD SLOTS", "SHARD NODE", "spec", "now", "slots", "skew"] {
        let words: Vec<&str> = heading.split(' ').collect();
        let printed = lines
            .clone()
            .any(|line| line.take(words.len()).eq(words.iter().copied()));
        let shown = docs.lines().any(|line| {
            line.split_whitespace()
                .take(words.len())
                .eq(words.iter().copied())
        });
        assert!(printed && shown, "{heading}");
    }
    assert_eq!(duration("90s").map(|time| time.as_secs()), Ok(90));
    assert_eq!(duration("10m").map(|time| time.as_secs()), Ok(600));
    assert_eq!(duration("7").map(|time| time.as_secs()), Ok(7));
    assert!(duration("soon").is_err() && duration("").is_err());
}

#[tokio::test(start_paused = true)]
async fn a_completion_waits_for_nobody_who_does_not_answer() {
    let found = in_time(std::future::ready(Some(vec!["cache".to_owned()]))).await;
    assert_eq!(found, ["cache"]);
    let begun = tokio::time::Instant::now();
    assert!(in_time(std::future::pending()).await.is_empty());
    assert_eq!(begun.elapsed(), COMPLETION);
}
