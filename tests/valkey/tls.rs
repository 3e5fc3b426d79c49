//! Servers that speak TLS, in the settings of their pods: who they are held to be, and how they change
//! their certificates while they serve.
//! Never trusts more than the operator is told to trust.

use std::fs;
use std::io::BufRead as _;
use std::io::BufReader;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use operator::model::redacted::Redacted;
use operator::model::slots::SlotRange;
use operator::model::topology::NodeView;
use operator::model::topology::Role;
use operator::valkey::client::Connector;
use operator::valkey::client::Error;
use operator::valkey::client::Target;
use operator::valkey::client::Tls;

use crate::certificates::Authority;
use crate::certificates::LASTING;
use crate::certificates::Leaf;
use crate::connections::ONE_DEADLINE;
use crate::servers::LIMIT;
use crate::servers::PORT;
use crate::servers::Server;
use crate::servers::eventually;
use crate::servers::login;
use crate::servers::password;
use crate::tls_client::connect;

const SERVICE: &str = "c.ns.svc.cluster.local";

/// The directory that every pod of a cluster has, as one Secret fills it.
struct Mounted {
    directory: PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.directory).ok();
    }
}

impl Mounted {
    fn new(test: &str, leaf: &Leaf, authorities: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("valkey-tls-{test}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let mounted = Self { directory };
        mounted.update(leaf, authorities);
        mounted
    }

    fn update(&self, leaf: &Leaf, authorities: &str) {
        for (name, content) in [
            ("tls.crt", leaf.certificate.as_str()),
            ("tls.key", &leaf.key),
            ("ca.crt", authorities),
        ] {
            fs::write(self.directory.join(name), content).unwrap();
        }
    }

    /// The operator's own settings, with these paths.
    fn paths(&self) -> [(&'static str, String); 3] {
        operator::api::TLS_PATHS.map(|(name, path)| {
            let file = path.rsplit('/').next().unwrap();
            (name, self.directory.join(file).display().to_string())
        })
    }
}

/// One server, by its host name.
struct Member {
    server: Server,
    host: String,
}

impl Member {
    fn start(number: u8, mounted: &Mounted) -> Self {
        let host = format!("c-0000{number}.{SERVICE}");
        let (port, paths) = (PORT.to_string(), mounted.paths());
        let mut settings = vec![
            ("port", "0"),
            ("tls-port", port.as_str()),
            ("tls-cluster", "yes"),
            ("tls-replication", "yes"),
            ("tls-auth-clients", "no"),
            ("cluster-announce-hostname", host.as_str()),
            ("cluster-preferred-endpoint-type", "hostname"),
            ("enable-debug-command", "yes"),
        ];
        settings.extend(paths.iter().map(|(name, path)| (*name, path.as_str())));
        let server = Server::start_with(&settings);
        Self { server, host }
    }

    fn target<'a>(
        &self,
        password: &'a Redacted<String>,
        authorities: &'a str,
        former: &'a str,
    ) -> Target<'a> {
        Target::operator(self.server.ip(), password).over_tls(Tls {
            dns_name: self.host.clone(),
            authorities: [authorities.as_bytes(), former.as_bytes()],
        })
    }

    async fn load(&self, connector: &Connector, target: &Target<'_>, mounted: &Mounted) {
        let paths = mounted.paths();
        let paths = paths.each_ref().map(|(name, path)| (*name, path.as_str()));
        connector.config_set(target, &paths).await.unwrap();
    }

    /// What an administrator is answered, who trusts these alone; the first line.
    fn ask(&self, authorities: &str, command: &str) -> String {
        let stream = connect(self.server.address, &self.host, authorities, LIMIT).unwrap();
        let (user, password) = login("admin").unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        for said in [format!("AUTH {user} {password}"), command.to_owned()] {
            let sent = format!("{said}\r\n");
            stream.get_mut().write_all(sent.as_bytes()).unwrap();
            line.clear();
            stream.read_line(&mut line).unwrap();
        }
        line.trim_end().to_owned()
    }
}

#[tokio::test]
async fn a_server_is_held_to_its_name_and_its_authority() {
    let connector = Connector::new(PORT);
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let mounted = Mounted::new("held", &old.certify(SERVICE, LASTING), &old.pem);
    let member = Member::start(0, &mounted);

    let password = password();
    let by = |authorities| member.target(&password, authorities, "");
    let view = connector.account(&by(&old.pem)).await.unwrap();
    assert_eq!(view.members.len(), 1);
    let plain = Target::operator(member.server.ip(), &password);
    let error = connector.account(&plain).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    let other_name = plain.over_tls(Tls {
        dns_name: "d-00000.d.ns.svc.cluster.local".to_owned(),
        authorities: [old.pem.as_bytes(), b""],
    });
    for target in [other_name, by(&new.pem), by("")] {
        let error = connector.account(&target).await.unwrap_err();
        assert!(matches!(error, Error::Connect { .. }), "{error:?}");
        let told = operator::model::chain::of(&error);
        assert!(
            told.contains("certificate") || told.contains("authorities"),
            "{told}"
        );
    }
}

/// The kind of a lock-out: who refuses an old certificate can never tell its holder to load the new one.
#[tokio::test]
async fn no_certificate_shuts_the_operator_out() {
    let connector = Connector::new(PORT);
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let mounted = Mounted::new("shut", &old.certify(SERVICE, 2002), &old.pem);
    let member = Member::start(0, &mounted);
    let password = password();

    // One that has expired.
    let target = member.target(&password, &old.pem, "");
    connector.account(&target).await.unwrap();
    assert!(connect(member.server.address, &member.host, &old.pem, LIMIT).is_err());
    mounted.update(&old.certify(SERVICE, LASTING), &old.pem);
    member.load(&connector, &target, &mounted).await;
    assert!(connect(member.server.address, &member.host, &old.pem, LIMIT).is_ok());

    // One by an authority that was replaced in one step.
    mounted.update(&new.certify(SERVICE, LASTING), &new.pem);
    let target = member.target(&password, &new.pem, &old.pem);
    member.load(&connector, &target, &mounted).await;
    assert!(connect(member.server.address, &member.host, &new.pem, LIMIT).is_ok());
    // What cannot be read of the former ones does not matter.
    let target = member.target(&password, &new.pem, "-----BEGIN CERTIFICATE-----");
    connector.account(&target).await.unwrap();

    // Files that do not fit each other change nothing.
    let mismatch = Leaf {
        key: old.certify(SERVICE, LASTING).key,
        ..old.certify(SERVICE, LASTING)
    };
    mounted.update(&mismatch, &old.pem);
    let paths = mounted.paths();
    let paths = paths.each_ref().map(|(name, path)| (*name, path.as_str()));
    let error = connector.config_set(&target, &paths).await.unwrap_err();
    assert!(error.refusal().is_some(), "{error:?}");
    assert!(connect(member.server.address, &member.host, &new.pem, LIMIT).is_ok());
}

/// Its kernel still accepts connections, which is all that the kubelet's probe asks.
#[tokio::test]
async fn a_hung_server_is_silent_after_one_deadline() {
    let connector = Connector::new(PORT);
    let authority = Authority::new("authority");
    let mounted = Mounted::new("hung", &authority.certify(SERVICE, LASTING), &authority.pem);
    let member = Member::start(0, &mounted);
    let password = password();
    let target = member.target(&password, &authority.pem, "");
    connector.account(&target).await.unwrap();
    member.server.hang();
    // First on the connection that there is, then on one that cannot be made.
    for _ in 0..2 {
        let start = Instant::now();
        let error = connector.account(&target).await.unwrap_err();
        assert!(
            matches!(error, Error::Call { .. } | Error::Connect { .. }),
            "{error:?}"
        );
        assert!(start.elapsed() < ONE_DEADLINE, "{:?}", start.elapsed());
    }
    member.server.wake();
    connector.account(&target).await.unwrap();
}

/// Two shards, the first with a replica.
async fn formed(connector: &Connector, targets: &[Target<'_>; 3], members: &[Member; 3]) {
    for other in &members[1..] {
        connector
            .meet(&targets[0], other.server.ip())
            .await
            .unwrap();
    }
    whole(connector, targets, "that they know each other", |view| {
        view.members.len() == 3 && view.members.iter().all(|row| !row.flags.handshake)
    })
    .await;
    for (index, target) in targets[..2].iter().enumerate() {
        let share = SlotRange::share(u32::try_from(index).unwrap(), 2).unwrap();
        connector.add_slots(target, share).await.unwrap();
    }
    let primary = connector.account(&targets[0]).await.unwrap().id;
    eventually("that the primary is known", async || {
        let told = connector.replicate(&targets[2], &primary).await;
        told.map_err(|error| format!("{error:?}"))
    })
    .await;
    whole(connector, targets, "that they serve", is_whole).await;
}

fn is_whole(view: &NodeView) -> bool {
    let linked = !matches!(view.role, Role::Replica { linked: false, .. });
    view.cluster_ok && linked && view.members.iter().all(|row| row.connected)
}

async fn whole(
    connector: &Connector,
    targets: &[Target<'_>; 3],
    what: &str,
    holds: impl Fn(&NodeView) -> bool,
) {
    eventually(what, async || {
        for target in targets {
            let view = connector.account(target).await;
            let view = view.map_err(|error| format!("{error:?}"))?;
            if !holds(&view) {
                return Err(format!("{view:#?}"));
            }
        }
        Ok(())
    })
    .await;
}

/// Breaks every link between the members: what they trust shows only when they make new ones.
async fn cut(
    connector: &Connector,
    targets: &[Target<'_>; 3],
    members: &[Member; 3],
    authorities: &str,
) {
    let view = connector.account(&targets[0]).await.unwrap();
    for member in members {
        for row in &view.members {
            let command = format!("DEBUG CLUSTERLINK KILL all {}", row.id);
            member.ask(authorities, &command);
        }
        member.ask(authorities, "CLIENT KILL TYPE primary");
    }
}

#[tokio::test]
async fn a_cluster_forms_by_names_and_changes_its_authority_by_a_bundle() {
    let connector = Connector::new(PORT);
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let bundle = format!("{}{}", old.pem, new.pem);
    let (old_leaf, new_leaf) = (old.certify(SERVICE, LASTING), new.certify(SERVICE, LASTING));
    let mounted = Mounted::new("rotation", &old_leaf, &old.pem);
    let members = [0, 1, 2].map(|number| Member::start(number, &mounted));
    let password = password();
    let by = |authorities| {
        members
            .each_ref()
            .map(|one| one.target(&password, authorities, ""))
    };
    formed(&connector, &by(&old.pem), &members).await;

    // The second half of the slots is the second member's, and clients are sent to its name.
    let moved = members[0].ask(&old.pem, "GET foo");
    assert_eq!(moved, format!("-MOVED 12182 {}:{PORT}", members[1].host));

    // At every step each node in turn, every link cut while half of them have it.
    for (leaf, authorities) in [
        (&old_leaf, &bundle),
        (&new_leaf, &bundle),
        (&new_leaf, &new.pem),
    ] {
        mounted.update(leaf, authorities);
        for (index, member) in members.iter().enumerate() {
            member.load(&connector, &by(&bundle)[index], &mounted).await;
            if index == 1 {
                cut(&connector, &by(&bundle), &members, &bundle).await;
                whole(
                    &connector,
                    &by(&bundle),
                    "that links are made anew",
                    is_whole,
                )
                .await;
            }
        }
        cut(&connector, &by(authorities), &members, authorities).await;
        whole(
            &connector,
            &by(authorities),
            "that all links are made anew",
            is_whole,
        )
        .await;
    }
    assert!(connect(members[0].server.address, &members[0].host, &old.pem, LIMIT).is_err());
}
