//! The certificates and kubeconfigs of one testbed, made anew for each.
//! Never reads or trusts a certificate from outside.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::path::PathBuf;

use rcgen::BasicConstraints;
use rcgen::CertificateParams;
use rcgen::DnType;
use rcgen::ExtendedKeyUsagePurpose;
use rcgen::IsCa;
use rcgen::Issuer;
use rcgen::KeyPair;
use rcgen::KeyUsagePurpose;
use serde_json::json;

use super::command::make_directory;
use super::command::write;
use super::error::Error;

pub(crate) struct Pki {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// Who a certificate is for.
pub(crate) struct Holder<'a> {
    /// Of the files: `{file}.crt`, `{file}.key`, `{file}.conf`.
    pub(crate) file: &'a str,
    pub(crate) common_name: &'a str,
    pub(crate) organization: &'a str,
    /// Host names and addresses, for a server.
    pub(crate) hosts: Vec<String>,
}

impl Pki {
    /// A new authority, and the key that signs service account tokens.
    pub(crate) fn new(directory: &Path) -> Result<Self, Error> {
        make_directory(directory)?;
        let failed = |source| Error::Certificate {
            subject: "the authority".to_owned(),
            source,
        };
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "testbed");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let certificate = params.self_signed(&key).map_err(failed)?;
        write(&directory.join("ca.crt"), certificate.pem())?;
        secret(&directory.join("ca.key"), &key.serialize_pem())?;
        let accounts = KeyPair::generate().map_err(failed)?;
        secret(&directory.join("accounts.key"), &accounts.serialize_pem())?;
        write(&directory.join("accounts.pub"), accounts.public_key_pem())?;
        Ok(Self {
            directory: directory.to_owned(),
            issuer: Issuer::new(params, key),
        })
    }

    pub(crate) fn issue(&self, holder: &Holder<'_>) -> Result<(), Error> {
        let failed = |source| Error::Certificate {
            subject: holder.common_name.to_owned(),
            source,
        };
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(holder.hosts.clone()).map_err(failed)?;
        params
            .distinguished_name
            .push(DnType::CommonName, holder.common_name);
        if !holder.organization.is_empty() {
            params
                .distinguished_name
                .push(DnType::OrganizationName, holder.organization);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        write(&self.file(holder.file, "crt"), certificate.pem())?;
        secret(&self.file(holder.file, "key"), &key.serialize_pem())
    }

    /// A client certificate with the kubeconfig that uses it; the path of the latter.
    pub(crate) fn kubeconfig(&self, server: &str, holder: &Holder<'_>) -> Result<PathBuf, Error> {
        self.issue(holder)?;
        let path = self.file(holder.file, "conf");
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "testbed", "cluster": {
                "server": server,
                "certificate-authority": self.file("ca", "crt"),
            }}],
            "users": [{"name": holder.file, "user": {
                "client-certificate": self.file(holder.file, "crt"),
                "client-key": self.file(holder.file, "key"),
            }}],
            "contexts": [{"name": "testbed", "context": {
                "cluster": "testbed",
                "user": holder.file,
            }}],
            "current-context": "testbed",
        });
        secret(&path, &config.to_string())?;
        Ok(path)
    }

    pub(crate) fn file(&self, name: &str, extension: &str) -> PathBuf {
        self.directory.join(format!("{name}.{extension}"))
    }
}

fn secret(path: &Path, text: &str) -> Result<(), Error> {
    write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(|source| Error::File {
        doing: "protect",
        path: path.to_owned(),
        source,
    })
}
