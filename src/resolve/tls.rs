//! Whether the TLS Secret does: the contract's six verdicts in their order, then what goes beyond.
//! Never refuses for a date: that is a warning.

use std::time::Duration;

use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::ServerName;
use rustls::pki_types::UnixTime;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::pem::SectionKind;
use rustls::sign::CertifiedKey;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use crate::api;
use crate::model::desired::TlsOffer;
use crate::model::name::ClusterRef;
use crate::model::tls::Authorities;
use crate::model::tls::File;
use crate::model::tls::Lapse;
use crate::model::tls::TlsError;
use crate::model::tls::TlsFiles;
use crate::model::tls::TlsFlaw;
use crate::model::world::TlsSecret;

/// Judges the Secret of a cluster.
pub(super) fn offer(
    cluster: &ClusterRef,
    name: &str,
    secret: &TlsSecret,
    now: i64,
) -> Result<TlsOffer, TlsError> {
    let secret_name = || name.to_owned();
    let data = match secret {
        TlsSecret::Absent => {
            return Err(TlsError::NotFound {
                secret: secret_name(),
                namespace: cluster.namespace.clone(),
            });
        }
        TlsSecret::Empty => return Err(TlsError::NoData(secret_name())),
        TlsSecret::Holding(data) => data,
    };
    let file = |key: &'static str| -> Result<File, TlsError> {
        data.get(key).cloned().ok_or_else(|| TlsError::MissingKey {
            secret: secret_name(),
            key,
        })
    };
    let files = TlsFiles {
        certificate: file(api::TLS_KEY_CERTIFICATE)?,
        key: file(api::TLS_KEY_PRIVATE_KEY)?,
        authorities: file(api::TLS_KEY_AUTHORITIES)?,
    };
    let chain = chain(files.certificate.expose()).ok_or_else(|| TlsError::NotPem(secret_name()))?;
    let (leaf, intermediates) = chain
        .split_first()
        .ok_or_else(|| TlsError::NotX509(secret_name()))?;
    let (_, certificate) =
        X509Certificate::from_der(leaf).map_err(|_| TlsError::NotX509(secret_name()))?;
    let service = cluster.service_host();
    for name in [service.clone(), format!("*.{service}")] {
        if !has_san(&certificate, &name) {
            return Err(TlsError::MissingSan {
                secret: secret_name(),
                name,
            });
        }
    }
    let flaw = flaw(cluster, &files, (leaf, intermediates), &certificate, now).err();
    Ok(TlsOffer {
        secret: secret_name(),
        lapse: lapse(&certificate, now),
        expires: certificate.validity().not_after.timestamp(),
        files,
        flaw,
    })
}

/// The certificates of a PEM file; nothing where it is none.
fn chain(file: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(file);
    let sections: Vec<_> = sections.collect::<Result<_, _>>().ok()?;
    let certificates = sections
        .iter()
        .filter(|(kind, _)| *kind == SectionKind::Certificate);
    let certificates = certificates.map(|(_, der)| CertificateDer::from(der.clone()));
    (!sections.is_empty()).then(|| certificates.collect())
}

/// Names are compared as DNS does.
fn has_san(certificate: &X509Certificate<'_>, name: &str) -> bool {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else {
        return false;
    };
    let mut names = extension.value.general_names.iter();
    names.any(|one| matches!(one, GeneralName::DNSName(dns) if dns.eq_ignore_ascii_case(name)))
}

/// What would keep nodes from each other, or the operator from them.
fn flaw(
    cluster: &ClusterRef,
    files: &TlsFiles,
    (leaf, intermediates): (&CertificateDer<'static>, &[CertificateDer<'static>]),
    certificate: &X509Certificate<'_>,
    now: i64,
) -> Result<(), TlsFlaw> {
    let key = PrivateKeyDer::from_pem_slice(files.key.expose()).map_err(|_| TlsFlaw::NoKey)?;
    let key = any_supported_type(&key).map_err(|_| TlsFlaw::NoKey)?;
    CertifiedKey::new(vec![leaf.clone()], key)
        .keys_match()
        .map_err(|_| TlsFlaw::OtherKey)?;
    let authorities =
        Authorities::read(&[files.authorities.expose()]).ok_or(TlsFlaw::NoAuthority)?;
    let usages = certificate.extended_key_usage().ok().flatten();
    if let Some(usages) = usages {
        for (allowed, usage) in [
            (usages.value.server_auth, "serverAuth"),
            (usages.value.client_auth, "clientAuth"),
        ] {
            if !allowed {
                return Err(TlsFlaw::Usage(usage));
            }
        }
    }
    let untrusted = |error: &dyn std::error::Error| TlsFlaw::Untrusted(error.to_string());
    let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now).unwrap_or(0)));
    // As good as any node's: the wildcard stands for one label.
    let name = cluster.host_of(&cluster.node_name("00000"));
    let name = ServerName::try_from(name).map_err(|error| untrusted(&error))?;
    authorities
        .verify_server_cert(leaf, intermediates, &name, &[], now)
        .map_err(|error| untrusted(&error))?;
    authorities
        .verify_client(leaf, intermediates, now)
        .map_err(|error| untrusted(&error))
}

fn lapse(certificate: &X509Certificate<'_>, now: i64) -> Option<Lapse> {
    let validity = certificate.validity();
    let (begin, end) = (validity.not_before, validity.not_after);
    if now > end.timestamp() {
        Some(Lapse::Expired(end.to_string()))
    } else if now < begin.timestamp() {
        Some(Lapse::NotYetValid(begin.to_string()))
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
