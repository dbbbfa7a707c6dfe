//! Reads certificates, keys and revocation lists.

use crate::invalid;
use muniment_value::Result;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs8KeyDer,
};
use std::path::Path;
use zeroize::Zeroizing;

/// A certificate with those that have issued it, and its private key.
pub type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    std::fs::read(path)
        .map(Zeroizing::new)
        .map_err(|e| invalid(format!("Can not read {}: {e}", path.display())))
}

/// The certificates of a file.
///
/// # Errors
/// 140 if the file cannot be read, or has none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    of_pem(path, &read(path)?)
}

fn of_pem(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<std::result::Result<_, _>>()
        .map_err(|e| invalid(format!("{}: {e}", path.display())))?;
    match all.is_empty() {
        true => Err(invalid(format!("{} has no certificate", path.display()))),
        false => Ok(all),
    }
}

/// The certificate and the key of a file, with the key's password if it has one.
///
/// # Errors
/// 140 if one of the two is not there or cannot be read, or the password is wrong or not given.
pub fn pair(path: &Path, password: Option<&str>) -> Result<Pair> {
    let pem = read(path)?;
    let certificates = of_pem(path, &pem)?;
    Ok((certificates, key(path, &pem, password)?))
}

fn key(path: &Path, pem: &[u8], password: Option<&str>) -> Result<PrivateKeyDer<'static>> {
    let text =
        std::str::from_utf8(pem).map_err(|_| invalid(format!("{} is not text", path.display())))?;
    if text.contains("Proc-Type: 4,ENCRYPTED") {
        return Err(invalid(format!(
            "{}: the private key is encrypted in the old format of OpenSSL, whose key is a single MD5; \
             rewrite it with: openssl pkcs8 -topk8 -v2 aes-256-cbc",
            path.display()
        )));
    }
    const LABEL: &str = "ENCRYPTED PRIVATE KEY";
    let Some(at) = text.find(&format!("-----BEGIN {LABEL}-----")) else {
        return PrivateKeyDer::from_pem_slice(pem)
            .map_err(|e| invalid(format!("{}: no usable private key: {e}", path.display())));
    };
    let Some(password) = password else {
        return Err(invalid(format!(
            "{}: the private key is encrypted, and no password is given \
             (tlsCertificateKeyFilePassword, or tlsClusterPassword for the cluster file)",
            path.display()
        )));
    };
    let end = format!("-----END {LABEL}-----");
    let rest = text.get(at..).unwrap_or_default();
    let len = rest.find(&end).map_or(rest.len(), |n| n + end.len());
    let one = rest.get(..len).unwrap_or_default();
    let (_, der) = pem_rfc7468::decode_vec(one.as_bytes())
        .map_err(|e| invalid(format!("{}: {e}", path.display())))?;
    let decrypted = pkcs8::EncryptedPrivateKeyInfoRef::try_from(der.as_slice())
        .map_err(|e| invalid(format!("{}: {e}", path.display())))?
        .decrypt(password)
        .map_err(|_| {
            invalid(format!(
                "{}: the private key cannot be decrypted with the password that is given",
                path.display()
            ))
        })?;
    Ok(PrivatePkcs8KeyDer::from(decrypted.as_bytes().to_vec()).into())
}

/// The revocation lists of a file.
///
/// # Errors
/// 140 if the file cannot be read, or has none.
pub fn revoked(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>> {
    let pem = read(path)?;
    let all: Vec<_> = CertificateRevocationListDer::pem_slice_iter(&pem)
        .collect::<std::result::Result<_, _>>()
        .map_err(|e| invalid(format!("{}: {e}", path.display())))?;
    match all.is_empty() {
        true => Err(invalid(format!(
            "{} has no revocation list",
            path.display()
        ))),
        false => Ok(all),
    }
}

/// The authorities of a file.
///
/// # Errors
/// 140 if the file cannot be read, or has none that can be used.
pub fn authorities(path: &Path) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store
            .add(certificate)
            .map_err(|e| invalid(format!("{}: {e}", path.display())))?;
    }
    Ok(store)
}

/// The authorities that this machine trusts.
///
/// # Errors
/// 140 if there are none.
pub fn system_authorities() -> Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(found.certs);
    match store.is_empty() {
        true => Err(invalid(
            "this machine has no certificates of authorities; name a file of them (tlsCAFile)",
        )),
        false => Ok(store),
    }
}
