//! Secrets as people make them, from real certificates, and what is said of each.
//! Never a certificate from a file; the one key that is in a file is of the kind that cannot be made here.

use std::collections::BTreeMap;

use rcgen::BasicConstraints;
use rcgen::Certificate;
use rcgen::CertificateParams;
use rcgen::DnType;
use rcgen::ExtendedKeyUsagePurpose;
use rcgen::IsCa;
use rcgen::Issuer;
use rcgen::KeyPair;
use rcgen::date_time_ymd;

use super::offer;
use crate::model::desired::TlsOffer;
use crate::model::name::ClusterRef;
use crate::model::tls::File;
use crate::model::tls::TlsError;
use crate::model::world::TlsSecret;

/// 2026-01-01.
const NOW: i64 = 1_767_225_600;
const SERVICE: &str = "c.ns.svc.cluster.local";
const WILDCARD: &str = "*.c.ns.svc.cluster.local";
const BOTH: [&str; 2] = [SERVICE, WILDCARD];

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Signed by itself, or by another.
fn authority(name: &str, by: Option<&Authority>) -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let certificate = match by {
        Some(by) => params.signed_by(&key, &by.issuer),
        None => params.self_signed(&key),
    };
    Authority {
        pem: certificate.unwrap().pem(),
        issuer: Issuer::new(params, key),
    }
}

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(
        names
            .iter()
            .map(|&name| name.to_owned())
            .collect::<Vec<_>>(),
    )
    .unwrap()
}

/// The three files, and all that is changed in one row of a table.
#[derive(Clone)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    authorities: Vec<u8>,
}

impl Files {
    fn of(certificate: &Certificate, key: &KeyPair, authorities: &str) -> Self {
        Self {
            certificate: certificate.pem().into_bytes(),
            key: key.serialize_pem().into_bytes(),
            authorities: authorities.into(),
        }
    }

    fn certificate(&self, certificate: impl Into<Vec<u8>>) -> Self {
        Self {
            certificate: certificate.into(),
            ..self.clone()
        }
    }

    fn key(&self, key: impl Into<Vec<u8>>) -> Self {
        Self {
            key: key.into(),
            ..self.clone()
        }
    }

    fn authorities(&self, authorities: impl Into<Vec<u8>>) -> Self {
        Self {
            authorities: authorities.into(),
            ..self.clone()
        }
    }

    fn offer(&self) -> Result<TlsOffer, TlsError> {
        let files = [
            ("tls.crt", &self.certificate),
            ("tls.key", &self.key),
            ("ca.crt", &self.authorities),
        ];
        judge(&TlsSecret::Holding(
            files
                .map(|(key, content)| (key, File::new(content.clone())))
                .into(),
        ))
    }

    fn error(&self) -> String {
        self.offer().unwrap_err().to_string()
    }

    fn flaw(&self) -> String {
        let flaw = self.offer().unwrap().flaw;
        flaw.map_or_else(|| "none".to_owned(), |flaw| flaw.to_string())
    }
}

fn judge(secret: &TlsSecret) -> Result<TlsOffer, TlsError> {
    let cluster = ClusterRef {
        namespace: "ns".into(),
        name: "c".into(),
    };
    offer(&cluster, "s", secret, NOW)
}

fn signed(params: &CertificateParams, by: &Authority) -> Files {
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &by.issuer).unwrap();
    Files::of(&certificate, &key, &by.pem)
}

#[test]
fn the_six_verdicts_in_their_order() {
    let said = |secret: &TlsSecret| judge(secret).unwrap_err().to_string();
    assert_eq!(
        said(&TlsSecret::Absent),
        r#"TLS Secret "s" not found in namespace "ns""#
    );
    assert_eq!(said(&TlsSecret::Empty), r#"TLS Secret "s" has no data"#);
    let mut held = BTreeMap::new();
    for (missing, next) in [
        ("tls.crt", "tls.crt"),
        ("tls.key", "tls.key"),
        ("ca.crt", "ca.crt"),
    ] {
        assert_eq!(
            said(&TlsSecret::Holding(held.clone())),
            format!(r#"TLS Secret "s" missing required key "{missing}""#)
        );
        held.insert(next, File::new(Vec::new()));
    }

    let ca = authority("ca", None);
    let good = signed(&params(&BOTH), &ca);
    let not_pem = r#"TLS Secret "s": tls.crt is not valid PEM"#;
    for broken in [
        "",
        "hello",
        "-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n",
    ] {
        assert_eq!(good.certificate(broken).error(), not_pem, "{broken:?}");
    }
    let half = &good.certificate[..good.certificate.len() / 2];
    assert_eq!(good.certificate(half).error(), not_pem);
    let not_x509 = r#"TLS Secret "s": tls.crt is not a valid X.509 certificate"#;
    let nonsense = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    assert_eq!(good.certificate(nonsense).error(), not_x509);
    assert_eq!(good.certificate(good.key.clone()).error(), not_x509);
}

#[test]
fn both_names_are_asked_for_the_service_first() {
    let ca = authority("ca", None);
    let missing = |name: &str| format!(r#"TLS cert in Secret "s" missing SAN "{name}""#);
    let common_name = |mut params: CertificateParams| {
        params.distinguished_name.push(DnType::CommonName, SERVICE);
        params
    };
    let rows: [(&[&str], &str); 5] = [
        (&[], SERVICE),
        (&[WILDCARD], SERVICE),
        (&[SERVICE], WILDCARD),
        (
            &["d.ns.svc.cluster.local", "*.d.ns.svc.cluster.local"],
            SERVICE,
        ),
        (&[SERVICE, "*.ns.svc.cluster.local"], WILDCARD),
    ];
    for (names, name) in rows {
        // What a common name says has long ceased to count.
        let files = signed(&common_name(params(names)), &ca);
        assert_eq!(files.error(), missing(name), "{names:?}");
    }
    let loud = ["C.NS.svc.cluster.local", "*.c.ns.SVC.cluster.local", "else"];
    assert_eq!(signed(&params(&loud), &ca).flaw(), "none");
}

#[test]
fn what_works_is_offered_as_it_is() {
    let ca = authority("ca", None);
    let files = signed(&params(&BOTH), &ca);
    let offer = files.offer().unwrap();
    assert_eq!((offer.flaw, offer.lapse), (None, None));
    assert_eq!(*offer.files.certificate.expose(), files.certificate);
    assert_eq!(*offer.files.key.expose(), files.key);
    assert_eq!(*offer.files.authorities.expose(), files.authorities);

    // A chain, whose intermediate is in tls.crt.
    let middle = authority("middle", Some(&ca));
    let chained = signed(&params(&BOTH), &middle);
    let with_middle = [&chained.certificate[..], middle.pem.as_bytes()].concat();
    let chained = chained.authorities(ca.pem.clone());
    assert_eq!(chained.certificate(with_middle).flaw(), "none");
    assert!(
        chained.flaw().contains("UnknownIssuer"),
        "{}",
        chained.flaw()
    );

    // A bundle, in either order, and words between.
    let other = authority("other", None);
    for bundle in [[&ca, &other], [&other, &ca]] {
        let bundle = format!("old and new\r\n{}\r\n{}", bundle[0].pem, bundle[1].pem);
        assert_eq!(files.authorities(bundle).flaw(), "none");
    }

    // One that signed itself, as `openssl req -x509` makes it: an authority of its own.
    for is_ca in [IsCa::NoCa, IsCa::Ca(BasicConstraints::Unconstrained)] {
        let (key, mut own) = (KeyPair::generate().unwrap(), params(&BOTH));
        own.is_ca = is_ca;
        let certificate = own.self_signed(&key).unwrap();
        let files = Files::of(&certificate, &key, &certificate.pem());
        assert_eq!(files.flaw(), "none");
    }

    // The usual kinds of keys.
    let mut keys = vec![KeyPair::from_pem(include_str!("rsa.key")).unwrap()];
    for kind in [&rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
        keys.push(KeyPair::generate_for(kind).unwrap());
    }
    for key in keys {
        let certificate = params(&BOTH).signed_by(&key, &ca.issuer).unwrap();
        assert_eq!(Files::of(&certificate, &key, &ca.pem).flaw(), "none");
    }
}

#[test]
fn what_would_not_work_is_no_verdict_and_is_not_used() {
    let ca = authority("ca", None);
    let files = signed(&params(&BOTH), &ca);
    let no_key = "tls.key holds no private key of a supported kind";
    let no_authority = "ca.crt holds no certificate, or one that cannot be read";
    assert_eq!(files.key("").flaw(), no_key);
    assert_eq!(files.key(files.certificate.clone()).flaw(), no_key);
    assert_eq!(
        files.key(signed(&params(&BOTH), &ca).key).flaw(),
        "tls.key does not belong to the certificate in tls.crt"
    );
    assert_eq!(files.authorities("").flaw(), no_authority);
    let nonsense = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    let half_good = format!("{}{nonsense}", ca.pem);
    assert_eq!(files.authorities(half_good).flaw(), no_authority);

    // By its name alone it could be the one.
    let foreign = files.authorities(authority("ca", None).pem).flaw();
    let untrusted =
        "the certificate in tls.crt is not trusted by ca.crt: invalid peer certificate: ";
    assert!(foreign.starts_with(untrusted), "{foreign}");

    let usages = [
        (ExtendedKeyUsagePurpose::ServerAuth, "clientAuth"),
        (ExtendedKeyUsagePurpose::ClientAuth, "serverAuth"),
    ];
    for (usage, missing) in usages {
        let mut params = params(&BOTH);
        params.extended_key_usages = vec![usage];
        assert_eq!(
            signed(&params, &ca).flaw(),
            format!(
                "the certificate in tls.crt may not be used for {missing}, which every node needs"
            )
        );
    }
}

#[test]
fn a_date_is_a_warning_and_nothing_more() {
    let ca = authority("ca", None);
    let lapse = |begin: (i32, u8, u8), end: (i32, u8, u8)| {
        let mut params = params(&BOTH);
        params.not_before = date_time_ymd(begin.0, begin.1, begin.2);
        params.not_after = date_time_ymd(end.0, end.1, end.2);
        let offer = signed(&params, &ca).offer().unwrap();
        assert_eq!(offer.flaw, None);
        offer.lapse.map(|lapse| lapse.to_string())
    };
    assert_eq!(lapse((2025, 1, 1), (2026, 1, 1)), None);
    assert_eq!(
        lapse((2025, 1, 1), (2025, 12, 31)).unwrap(),
        "expired at Dec 31 00:00:00 2025 +00:00"
    );
    assert_eq!(
        lapse((2026, 1, 2), (2027, 1, 1)).unwrap(),
        "is not valid before Jan  2 00:00:00 2026 +00:00"
    );
}

#[test]
fn nothing_of_a_secret_is_shown() {
    let ca = authority("ca", None);
    let files = signed(&params(&BOTH), &ca);
    let shown = format!("{:?}", files.offer().unwrap());
    assert!(
        !shown.contains("BEGIN") && !shown.contains("45, 45"),
        "{shown}"
    );
    assert!(shown.contains("***"), "{shown}");
}
