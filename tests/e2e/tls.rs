//! A TLS cluster from its first Secret through a broken one to another authority's, under writers that check
//! every member's name. Never trusts the operator's word for what a pod presents.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use serde_json::Value;
use serde_json::json;

use crate::certificates::Authority;
use crate::certificates::LASTING;
use crate::certificates::Leaf;
use crate::ledger::Ledger;
use crate::ledger::Secure;
use crate::plugin;
use crate::slow;
use crate::stage::say;
use crate::testbed::pod::PodName;
use crate::tls_client::connect;
use crate::world::Formed;
use crate::world::Wanted;
use crate::world::World;

pub(crate) const WANTED: Wanted<'_> = Wanted {
    namespace: "tls",
    name: "c",
    shards: 3,
    replicas: 1,
};

pub(crate) const SERVICE: &str = "c.tls.svc.cluster.local";

/// For one connection.
const LIMIT: Duration = Duration::from_secs(5);

/// What users name theirs after their cluster, as the published example does.
pub(crate) const SECRET: &str = "c-tls";

pub(crate) fn secret(leaf: &Leaf, authorities: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": WANTED.namespace},
        "type": "kubernetes.io/tls",
        "stringData": {
            "tls.crt": leaf.certificate,
            "tls.key": leaf.key,
            "ca.crt": authorities,
        },
    })
}

/// A cluster, and who is who in it.
pub(crate) struct Stay<'a> {
    world: &'a World,
    /// Host names and addresses.
    pub(crate) hosts: BTreeMap<String, SocketAddr>,
}

impl<'a> Stay<'a> {
    pub(crate) fn of(world: &'a World, formed: &Formed) -> Self {
        let hosts = formed.pods.iter().map(|pod| {
            let name = pod["metadata"]["name"].as_str().expect("a name");
            let ip = pod["status"]["podIP"].as_str().expect("an address");
            let ip = ip.parse().expect("an address");
            (format!("{name}.{SERVICE}"), SocketAddr::new(ip, 6379))
        });
        Self {
            world,
            hosts: hosts.collect(),
        }
    }

    /// What a client of these pods is told.
    pub(crate) fn secure(&self, authorities: &str) -> Secure {
        let hosts = self.hosts.iter();
        let addresses = hosts.map(|(host, at)| (host.clone(), at.ip()));
        Secure::new(authorities.to_owned(), addresses.collect())
    }

    pub(crate) fn update(&self, leaf: &Leaf, authorities: &str) {
        self.world.apply_all(&[secret(leaf, authorities)]);
    }

    /// Waits until every pod has the material in use, as its own process tells.
    pub(crate) fn wait_until_loaded(&self, what: &str, serials: &Serials) {
        self.world.until(what, WANTED.namespace, || {
            for (host, address) in &self.hosts {
                let told = Serials::of(self.world, *address)?;
                if told != *serials {
                    return Err(format!("{host} has {told:?} and not {serials:?}"));
                }
            }
            Ok(())
        });
    }

    fn message(&self) -> Result<(String, String), String> {
        let status = &self.world.cluster(WANTED.namespace, WANTED.name)?["status"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok((text(&status["state"]), text(&status["message"])))
    }

    fn wait_until_invalid(&self, message: &str) {
        self.world.until(message, WANTED.namespace, || {
            let told = self.message()?;
            if told == ("Invalid".to_owned(), message.to_owned()) {
                Ok(())
            } else {
                Err(format!("{told:?}"))
            }
        });
    }
}

/// Serial numbers of the certificate and of the first authority.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Serials(pub(crate) String, pub(crate) String);

impl Serials {
    fn of(world: &World, address: SocketAddr) -> Result<Self, String> {
        let told = world.ask(&address.ip().to_string(), "INFO tls\n")?;
        let line = |name: &str| {
            let found = told.lines().find_map(|line| line.strip_prefix(name));
            found.map(number).ok_or_else(|| told.clone())
        };
        Ok(Self(
            line("tls_server_cert_serial:")?,
            line("tls_ca_cert_serial:")?,
        ))
    }
}

#[test]
fn a_tls_cluster_lives_through_its_secrets() {
    if !slow("a_tls_cluster_lives_through_its_secrets") {
        return;
    }
    let mut world = World::up();
    let start = Instant::now();
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let bundle = format!("{}{}", new.pem, old.pem);
    let trusted = world.stage.testbed.machine.directory.join("bundle.crt");
    std::fs::write(&trusted, &bundle).expect("written");
    world.authorities = Some(trusted);
    world.namespace(WANTED.namespace);
    world.apply_all(&[WANTED.manifest(&json!({"tls": {"secretRef": SECRET}}))]);
    let nobody = Stay {
        world: &world,
        hosts: BTreeMap::new(),
    };
    nobody.wait_until_invalid(r#"TLS Secret "c-tls" not found in namespace "tls""#);
    kept_without_a_node(&world);

    let (first, second) = (old.certify(SERVICE, LASTING), new.certify(SERVICE, LASTING));
    nobody.update(&first, &old.pem);
    let formed = world.wait_until_formed(&WANTED);
    let stay = Stay::of(&world, &formed);
    for (host, address) in &stay.hosts {
        connect(*address, host, &old.pem, LIMIT).expect("each pod proves its name");
    }
    reached_by_name(&world, &formed);
    plugin::reaches_every_process(&world, &WANTED);
    say(&format!("TLS: formed after {:.1?}", start.elapsed()));

    let secure = Arc::new(stay.secure(&bundle));
    let ledger = Ledger::start_secure(3, secure.clone());
    let patch = r#"{"data": {"ca.crt": null}}"#;
    let words = ["patch", "secret", SECRET, "--namespace", "tls", "-p", patch];
    world.stage.kubectl(words);
    stay.wait_until_invalid(r#"TLS Secret "c-tls" missing required key "ca.crt""#);
    say(&format!("TLS: Invalid after {:.1?}", start.elapsed()));

    // Mended, with the next authority beside the old one; then its first certificate.
    stay.update(&first, &bundle);
    let back = world.wait_until_formed(&WANTED);
    assert_eq!(back.ids(), formed.ids());
    let told = stay.message().expect("a status");
    assert_eq!(told, ("Active".into(), String::new()));
    say(&format!("TLS: back after {:.1?}", start.elapsed()));
    stay.wait_until_loaded(
        "the bundle is loaded",
        &Serials(serial(&first.certificate), serial(&new.pem)),
    );
    stay.update(&second, &bundle);
    stay.wait_until_loaded(
        "the new certificate is loaded",
        &Serials(serial(&second.certificate), serial(&new.pem)),
    );
    let report = ledger.stop([]);
    say(&format!(
        "TLS: all changed after {:.1?}: {report:?}",
        start.elapsed()
    ));
    assert!(report.lost.is_empty() && report.failures == 0, "{report:?}");
    assert_eq!(secure.unproven.load(Ordering::Relaxed), 0);
    for (host, address) in &stay.hosts {
        connect(*address, host, &new.pem, LIMIT).expect("each pod has the new certificate");
        assert!(connect(*address, host, &old.pem, LIMIT).is_err(), "{host}");
    }
    assert_eq!(uids(&world.wait_until_formed(&WANTED)), uids(&formed));
}

/// From a pod, through DNS: the Service first, then whoever has the slot by the name that it announces.
fn reached_by_name(world: &World, formed: &Formed) {
    let name = formed.pods[0]["metadata"]["name"].as_str().expect("a name");
    let pod = PodName {
        namespace: WANTED.namespace,
        name,
    };
    let client = "valkey-cli -c --tls --cacert /etc/valkey/tls/ca.crt -h";
    // One for each third of the slots.
    for key in ["hello", "c", "foo"] {
        let words = client.split(' ').chain([SERVICE, "SET", key, "value"]);
        let told = world.stage.testbed.pod_exec(&pod, words).expect("run");
        assert_eq!(told.trim(), "OK", "{key}");
    }
}

fn uids(formed: &Formed) -> Vec<&Value> {
    let pods = formed.pods.iter();
    pods.map(|pod| &pod["metadata"]["uid"]).collect()
}

/// While Invalid the cluster's own objects are kept, and no node is made.
fn kept_without_a_node(world: &World) {
    world.until("what is kept is made", WANTED.namespace, || {
        for (kind, name) in [
            ("Service", "c"),
            ("Secret", "c-operator-auth"),
            ("ConfigMap", "c-acl"),
        ] {
            let found = world.stage.get(kind, WANTED.namespace, name)?;
            found.ok_or_else(|| format!("there is no {kind} {name}"))?;
        }
        Ok(())
    });
    let nodes = world.nodes(WANTED.namespace, WANTED.name).expect("listed");
    assert!(nodes.is_empty(), "{nodes:?}");
}

pub(crate) fn serial(pem: &str) -> String {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM");
    number(
        &pem.parse_x509()
            .expect("a certificate")
            .raw_serial_as_string(),
    )
}

/// A number in hex, however it is written.
fn number(hex: &str) -> String {
    let digits = hex.trim().replace(':', "").to_uppercase();
    digits.trim_start_matches('0').to_owned()
}
