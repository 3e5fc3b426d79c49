//! A TLS cluster with users through all that planned work and one eviction can do to it, under writers who check
//! every member's name and lose nothing that was acknowledged.
//! Never takes the operator's word for what a process presents or whom it lets in. Only with `ALL=1`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use serde_json::Value;
use serde_json::json;

use crate::certificates::Authority;
use crate::certificates::LASTING;
use crate::ledger::Ledger;
use crate::ledger::Secure;
use crate::ledger::lock;
use crate::living::config;
use crate::living::rolled;
use crate::stage::say;
use crate::testbed::machine::Signal;
use crate::testbed::pod::PodName;
use crate::thorough;
use crate::tls::SECRET;
use crate::tls::SERVICE;
use crate::tls::Serials;
use crate::tls::Stay;
use crate::tls::WANTED;
use crate::tls::secret;
use crate::tls::serial;
use crate::world::Formed;
use crate::world::Login;
use crate::world::Member;
use crate::world::Wanted;
use crate::world::World;
use crate::world::hash;
use crate::world::menu;

const USER: &str = "app";

/// Silent to the operator and to a peer for so long, a process counts as hung.
const HUNG_AFTER: Duration = Duration::from_mins(1);

fn login(password: &str) -> Login {
    Login {
        user: USER.to_owned(),
        password: password.to_owned(),
    }
}

/// The cluster with one user, who has these passwords.
fn manifest(wanted: &Wanted<'_>, passwords: &[&str]) -> Value {
    let hashes: Vec<String> = passwords.iter().map(|password| hash(password)).collect();
    let keys = json!([{"pattern": "*"}]);
    wanted.manifest(&json!({
        "configRef": wanted.namespace,
        "tls": {"secretRef": SECRET},
        "acl": [{"username": USER, "passwordHashes": hashes, "permissions": [{"roleRef": "all", "keys": keys}]}],
    }))
}

fn role() -> Value {
    let spec = json!({"categories": [{"name": "all", "access": "allow"}]});
    menu("ValkeyRole", "all", &spec)
}

#[test]
fn a_secured_cluster_lives_a_whole_life() {
    if !thorough("a_secured_cluster_lives_a_whole_life") {
        return;
    }
    let mut world = World::up();
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let (first, second) = (old.certify(SERVICE, LASTING), new.certify(SERVICE, LASTING));
    let bundle = format!("{}{}", new.pem, old.pem);
    let trusted = world.stage.testbed.machine.directory.join("bundle.crt");
    std::fs::write(&trusted, &bundle).expect("written");
    world.authorities = Some(trusted);
    world.login = Some(login("first"));
    world.namespace(WANTED.namespace);
    config(&world, WANTED.namespace, "10");
    world.apply_all(&[
        role(),
        secret(&first, &old.pem),
        manifest(&WANTED, &["first"]),
    ]);
    let formed = world.wait_until_formed(&WANTED);
    let secure = Arc::new(Stay::of(&world, &formed).secure(&bundle));
    log_in(&secure, "first");
    let ledger = Ledger::start_secure(3, secure.clone());
    let start = Instant::now();
    let told = |what: &str| say(&format!("secured: {what} after {:.1?}", start.elapsed()));

    scale(&world, &told);
    config(&world, WANTED.namespace, "11");
    world.until("each node is made anew", WANTED.namespace, || {
        rolled(&world, WANTED.namespace, "11")
    });
    let formed = world.wait_until_formed(&WANTED);
    told("a roll");
    evict_a_primary(&world, &formed);
    let formed = world.wait_until_formed(&WANTED);
    told("a primary lost");

    let stay = Stay::of(&world, &formed);
    stay.update(&first, &bundle);
    let loaded = Serials(serial(&first.certificate), serial(&new.pem));
    stay.wait_until_loaded("the bundle is loaded", &loaded);
    stay.update(&second, &bundle);
    let loaded = Serials(serial(&second.certificate), serial(&new.pem));
    stay.wait_until_loaded("the new certificate is loaded", &loaded);
    // From now on nobody is to need the old one.
    *lock(&secure.authorities) = new.pem.clone();
    stay.update(&second, &new.pem);
    told("another authority");

    world.apply_all(&[manifest(&WANTED, &["first", "second"])]);
    wait_until(&world, &formed, "second", true);
    log_in(&secure, "second");
    world.apply_all(&[manifest(&WANTED, &["second"])]);
    wait_until(&world, &formed, "first", false);
    world.login = Some(login("second"));
    assert_eq!(world.wait_until_formed(&WANTED).ids(), formed.ids());
    told("another password");

    let report = ledger.stop([]);
    say(&format!("secured: {report:?}"));
    assert!(report.lost.is_empty() && report.writes > 0, "{report:?}");
    assert_eq!(secure.unproven.load(Ordering::Relaxed), 0, "{report:?}");
    a_hung_replica_is_given_up(&world, &formed);
}

/// The kubelet's probe connects and is content: the operator has to see that nobody is there, and not before a
/// minute is over.
fn a_hung_replica_is_given_up(world: &World, formed: &Formed) {
    let replica = formed.members.iter().find(|member| !member.is_primary());
    let name = pod_of(formed, replica.expect("a replica"));
    let pod = PodName {
        namespace: WANTED.namespace,
        name,
    };
    let start = Instant::now();
    let hung = world.stage.testbed.pod_signal(&pod, None, Signal::Stop);
    hung.expect("stopped");
    world.until("it is given up", WANTED.namespace, || {
        let node = world.stage.get("ValkeyNode", WANTED.namespace, name)?;
        node.map_or(Ok(()), |_| Err(format!("{name} is still there")))
    });
    let took = start.elapsed();
    say(&format!(
        "secured: a hung process given up after {took:.1?}"
    ));
    assert!(took >= HUNG_AFTER, "{took:?}");
    world.wait_until_formed(&WANTED);
}

fn pod_of<'a>(formed: &'a Formed, member: &Member) -> &'a str {
    let name = formed.pod(&member.ip)["metadata"]["name"].as_str();
    name.expect("a name")
}

/// A shard more, and one less again.
fn scale(world: &World, told: &impl Fn(&str)) {
    let four = Wanted {
        shards: 4,
        ..WANTED
    };
    for wanted in [four, WANTED] {
        world.apply_all(&[manifest(&wanted, &["first"])]);
        world.wait_until_formed(&wanted);
        told(&format!("{} shards", wanted.shards));
    }
}

fn log_in(secure: &Secure, password: &str) {
    *lock(&secure.login) = Some(login(password));
}

/// As a drain does.
fn evict_a_primary(world: &World, formed: &Formed) {
    let primary = formed.members.iter().find(|member| member.is_primary());
    let name = pod_of(formed, primary.expect("a primary"));
    world.stage.delete("Pod", WANTED.namespace, name);
    world.stage.wait_until_gone("Pod", WANTED.namespace, name);
}

/// Waits until every process lets the user in with this password, or none does.
fn wait_until(world: &World, formed: &Formed, password: &str, welcome: bool) {
    let what = format!("{password:?} is taken: {welcome}");
    let login = login(password);
    world.until(&what, WANTED.namespace, || {
        for member in &formed.members {
            let told = world.ask_as(Some(&login), &member.ip, "PING\n")?;
            if told.contains("PONG") != welcome {
                return Err(format!("{}: {told}", member.ip));
            }
        }
        Ok(())
    });
}
