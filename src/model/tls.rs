//! A node's TLS material, the authorities it is checked by, and what is wrong with a Secret that
//! does not do.
//! Never shows a key, never asks a clock: the moment of a check is told.

use std::sync::Arc;

use rustls::CertificateError;
use rustls::DigitallySignedStruct;
use rustls::Error;
use rustls::RootCertStore;
use rustls::SignatureScheme;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::danger::ServerCertVerified;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::ServerName;
use rustls::pki_types::UnixTime;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::ParsedCertificate;
use rustls::server::WebPkiClientVerifier;

use crate::model::redacted::Redacted;

/// The content of one file. Not all of them are secrets, but none is for a log.
pub type File = Redacted<Vec<u8>>;

/// What a node speaks TLS with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// `tls.crt`: its certificate, then those that lead to an authority.
    pub certificate: File,
    /// `tls.key`: the certificate's private key.
    pub key: File,
    /// `ca.crt`: the authorities that it trusts.
    pub authorities: File,
}

/// Why a cluster is Invalid. The texts are the contract's: users search for them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// There is no such Secret.
    #[error("TLS Secret {secret:?} not found in namespace {namespace:?}")]
    NotFound {
        /// Its name.
        secret: String,
        /// Where it should be.
        namespace: String,
    },
    /// It is empty.
    #[error("TLS Secret {0:?} has no data")]
    NoData(String),
    /// One of the three keys is missing.
    #[error("TLS Secret {secret:?} missing required key {key:?}")]
    MissingKey {
        /// The Secret.
        secret: String,
        /// The first that is missing.
        key: &'static str,
    },
    /// The certificate is not in a form that Valkey reads.
    #[error("TLS Secret {0:?}: tls.crt is not valid PEM")]
    NotPem(String),
    /// It is PEM of something else.
    #[error("TLS Secret {0:?}: tls.crt is not a valid X.509 certificate")]
    NotX509(String),
    /// Clients that check names would refuse it.
    #[error("TLS cert in Secret {secret:?} missing SAN {name:?}")]
    MissingSan {
        /// The Secret.
        secret: String,
        /// The first name that is missing.
        name: String,
    },
}

/// Why material that validates would still keep nodes from each other, or the operator from them:
/// nodes go on with what they have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsFlaw {
    /// The key cannot be read or used.
    #[error("tls.key holds no private key of a supported kind")]
    NoKey,
    /// The key is another certificate's.
    #[error("tls.key does not belong to the certificate in tls.crt")]
    OtherKey,
    /// There is nobody to trust.
    #[error("ca.crt holds no certificate, or one that cannot be read")]
    NoAuthority,
    /// The certificate names what it may be used for, and this is missing. A node is a server to
    /// its clients and peers, and a client of its peers.
    #[error("the certificate in tls.crt may not be used for {0}, which every node needs")]
    Usage(&'static str),
    /// Whoever trusts `ca.crt` alone does not trust the certificate.
    #[error("the certificate in tls.crt is not trusted by ca.crt: {0}")]
    Untrusted(String),
}

/// A date of the certificate that has passed, or has not come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lapse {
    /// It ended then.
    #[error("expired at {0}")]
    Expired(String),
    /// It begins then.
    #[error("is not valid before {0}")]
    NotYetValid(String),
}

/// Those who may sign for a node.
///
/// A date that has passed, or has not come, is no reason to refuse a certificate: a node that is cut
/// off by its own could never be told to load the next one.
#[derive(Debug)]
pub struct Authorities {
    certificates: Vec<CertificateDer<'static>>,
    servers: Arc<WebPkiServerVerifier>,
    provider: Arc<CryptoProvider>,
}

impl Authorities {
    /// Reads the certificates of PEM files; nothing where there is none, or one that is unreadable.
    #[must_use]
    pub fn read(files: &[&[u8]]) -> Option<Self> {
        let provider = provider();
        let found = files
            .iter()
            .flat_map(|file| CertificateDer::pem_slice_iter(file));
        let certificates: Vec<_> = found.collect::<Result<_, _>>().ok()?;
        let roots = Arc::new(roots(&certificates)?);
        let servers = WebPkiServerVerifier::builder_with_provider(roots, provider.clone());
        Some(Self {
            certificates,
            servers: servers.build().ok()?,
            provider,
        })
    }

    /// Whether they let a certificate's holder be a client of nodes.
    pub fn verify_client(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        if self.certificates.contains(certificate) {
            return Ok(());
        }
        let roots = roots(&self.certificates)
            .ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
                .build()
                .map_err(|error| Error::General(error.to_string()))?;
        whatever_the_date(now, |now| {
            clients.verify_client_cert(certificate, intermediates, now)
        })
        .map(drop)
    }
}

/// The one that the operator speaks TLS by.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(certificates: &[CertificateDer<'static>]) -> Option<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate.clone()).ok()?;
    }
    Some(roots)
}

/// Checks once more at the date in question, where a date is all that is wrong.
fn whatever_the_date<T>(
    now: UnixTime,
    check: impl Fn(UnixTime) -> Result<T, Error>,
) -> Result<T, Error> {
    let checked = check(now);
    if let Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) =
        checked
    {
        check(not_after)
    } else if let Err(Error::InvalidCertificate(CertificateError::NotValidYetContext {
        not_before,
        ..
    })) = checked
    {
        check(not_before)
    } else {
        checked
    }
}

impl ServerCertVerifier for Authorities {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // One that is its own authority needs no chain, and would be refused for being one.
        if self.certificates.contains(end_entity) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        whatever_the_date(now, |now| {
            self.servers.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            )
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.servers
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.servers
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.servers.supported_verify_schemes()
    }
}
