//! Certificates for tests: an authority, and what it issues, in a directory that is removed in the end.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use std::fs;
use std::path::{Path, PathBuf};

/// An authority.
pub struct Authority {
    dir: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// A new authority, whose own certificate is in `ca.pem`.
    #[expect(clippy::new_without_default, reason = "each one is another one")]
    pub fn new() -> Authority {
        let dir = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let name = dir.path().to_string_lossy().into_owned();
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::write(dir.path().join("ca.pem"), issuer.pem()).unwrap();
        Authority { dir, issuer }
    }

    /// A file of the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The authority's certificate.
    pub fn ca(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// Writes a certificate with its key into `NAME.pem`. Its owner has the common name `name` and the unit
    /// `unit` of an organisation; it is for `localhost` and its addresses.
    pub fn issue(&self, name: &str, unit: &str) -> PathBuf {
        self.issue_until(name, unit, 4000)
    }

    /// As [`Authority::issue`]; it expires with this year.
    pub fn issue_until(&self, name: &str, unit: &str, year: i32) -> PathBuf {
        let path = self.file(&format!("{name}.pem"));
        self.issue_into(&path, name, unit, year);
        path
    }

    /// As [`Authority::issue_until`], into this file.
    pub fn issue_into(&self, path: &Path, name: &str, unit: &str, year: i32) {
        let hosts = ["localhost", "127.0.0.1", "::1"];
        let mut params = CertificateParams::new(hosts.map(str::to_string)).unwrap();
        let owner = &mut params.distinguished_name;
        owner.push(DnType::CommonName, name);
        owner.push(DnType::OrganizationalUnitName, unit);
        owner.push(DnType::OrganizationName, "Muniment");
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(
            path,
            format!("{}{}", key.serialize_pem(), certificate.pem()),
        )
        .unwrap();
    }
}
