//! A TLS Secret through the rooms that have to do with it: what is kept, what is decided, what is said.
//! Never a server.

use operator::act::upkeep::{Upkeep, needed};
use operator::api::cluster::{ClusterState, Tls};
use operator::decide::decide;
use operator::model::decision::{Action, Verdict};
use operator::model::name::Uid;
use operator::model::tls::File;
use operator::model::world::{Keeping, TlsInUse, TlsSecret, World};
use operator::resolve;

use crate::certificates::{Authority, LASTING, Leaf};
use crate::wire;

fn secret(leaf: &Leaf, authorities: &str) -> TlsSecret {
    let file = |content: &str| File::new(content.as_bytes().to_vec());
    TlsSecret::Holding(
        [
            ("tls.crt", file(&leaf.certificate)),
            ("tls.key", file(&leaf.key)),
            ("ca.crt", file(authorities)),
        ]
        .into(),
    )
}

fn world() -> World {
    let (mut world, _) = wire::world();
    world.cluster.spec.tls = Some(Tls {
        secret_ref: "mine".into(),
    });
    world
}

/// What would be written of TLS material, and what is decided.
fn thought(world: &World) -> (Vec<Upkeep>, Verdict) {
    let desired = resolve::desired(world);
    let of_tls = |one: &Upkeep| matches!(one, Upkeep::CreateTls(_) | Upkeep::UpdateTls { .. });
    let kept = needed(world, &desired).into_iter().filter(of_tls).collect();
    (kept, decide(world, &desired).verdict)
}

#[test]
fn only_what_works_reaches_the_pods_and_the_last_that_did_stays() {
    let authority = Authority::new("authority");
    let service = "c.ns.svc.cluster.local";
    let (first, second) = (
        authority.certify(service, LASTING),
        authority.certify(service, LASTING),
    );
    let mut world = world();

    world.tls_secret = Some(secret(&first, &authority.pem));
    let (kept, _) = thought(&world);
    let [Upkeep::CreateTls(files)] = &kept[..] else {
        panic!("{kept:?}");
    };
    let in_use = files.clone();
    world.kept.tls = Keeping::Ours(TlsInUse {
        uid: Uid::new("tls"),
        files: in_use.clone(),
        former_authorities: File::new(Vec::new()),
    });
    assert_eq!(thought(&world).0, []);

    // A Secret that is written in two steps is half new in between: no verdict, and not used.
    let half = Leaf {
        certificate: second.certificate.clone(),
        key: first.key.clone(),
    };
    world.tls_secret = Some(secret(&half, &authority.pem));
    let (kept, verdict) = thought(&world);
    assert_eq!(kept, []);
    assert!(!matches!(verdict, Verdict::Take(Action::Invalidate(_), _)));

    world.tls_secret = Some(secret(&second, &authority.pem));
    let (kept, _) = thought(&world);
    let [Upkeep::UpdateTls { before, files, .. }] = &kept[..] else {
        panic!("{kept:?}");
    };
    assert_eq!(*before, in_use);
    assert_eq!(*files.certificate.expose(), second.certificate.as_bytes());

    // Broken, and mended: nothing of it reaches the pods.
    world.tls_secret = Some(TlsSecret::Absent);
    let (kept, verdict) = thought(&world);
    assert_eq!(kept, []);
    let Verdict::Take(Action::Invalidate(error), why) = verdict else {
        panic!("{verdict:?}");
    };
    let told = r#"TLS Secret "mine" not found in namespace "ns""#;
    assert_eq!(
        (error.to_string(), why.to_string()),
        (told.into(), told.into())
    );
    world.cluster.status.state = ClusterState::Invalid;
    world.cluster.status.message = Some(told.into());
    world.tls_secret = Some(secret(&first, &authority.pem));
    let (kept, verdict) = thought(&world);
    assert_eq!(kept, []);
    assert!(matches!(verdict, Verdict::Take(Action::Snapshot(_), _)));

    // An expired one works as well as any, as far as the operator is concerned.
    let expired = authority.certify(service, 2002);
    world.now = 1_800_000_000;
    world.tls_secret = Some(secret(&expired, &authority.pem));
    assert!(matches!(&thought(&world).0[..], [Upkeep::UpdateTls { .. }]));
}
