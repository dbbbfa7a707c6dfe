//! What a process has of certificates, keys and authorities.

use crate::files;
use crate::invalid;
use crate::names::{Certificate, Membership};
use crate::settings::{Mode, Protocol, Settings};
use crate::verify::{Any, AnyHost};
use muniment_value::{Error, Result};
use parking_lot::RwLock;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion,
};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use zeroize::Zeroizing;

/// A version that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// What the files said when they were read.
struct Loaded {
    /// `None` if there is no own certificate, so nothing can be accepted.
    server: Option<Offer>,
    client: Arc<ClientConfig>,
    own: Option<Certificate>,
    cluster: Option<Certificate>,
}

/// What a client is offered.
#[derive(Clone)]
pub(crate) struct Offer {
    pub config: Arc<ServerConfig>,
    /// The digest of the certificate.
    pub binding: Binding,
}

/// The SHA-256 of a server's certificate: what a connection of TLS can be told by from one to another server.
/// It is that of RFC 5929, `tls-server-end-point`, with one hash for all certificates.
pub type Binding = [u8; 32];

/// The digest of a certificate.
pub(crate) fn binding(certificate: &[u8]) -> Binding {
    Sha256::digest(certificate).into()
}

/// Certificates, keys and authorities. They can be read anew while sockets are
/// in use, which keep what they began with.
pub struct Endpoint {
    settings: Settings,
    mode: AtomicU8,
    loaded: RwLock<Loaded>,
    /// Accepted connections by version: 1.2 and 1.3.
    accepted: [AtomicU64; 2],
    /// Handshakes that failed.
    failed: AtomicU64,
}

/// Two are the same if their settings are.
impl PartialEq for Endpoint {
    fn eq(&self, other: &Endpoint) -> bool {
        self.settings == other.settings
    }
}

impl Eq for Endpoint {}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Reads the files of a process that opens and, if it has a certificate, accepts connections.
    ///
    /// # Errors
    /// 140 InvalidSSLConfiguration for files that cannot be read or do not fit together.
    pub fn new(mode: Mode, settings: Settings) -> Result<Endpoint> {
        let loaded = load(&settings)?;
        Ok(Endpoint {
            settings,
            mode: AtomicU8::new(mode as u8),
            loaded: RwLock::new(loaded),
            accepted: Default::default(),
            failed: AtomicU64::new(0),
        })
    }

    /// Which connections use TLS.
    pub fn mode(&self) -> Mode {
        let mode = self.mode.load(Relaxed);
        let mut all = Mode::ALL.into_iter().map(|(_, _, m)| m);
        all.find(|m| *m as u8 == mode).unwrap_or_default()
    }

    /// Sets which connections that are opened or accepted from now on use TLS.
    pub fn set_mode(&self, mode: Mode) {
        self.mode.store(mode as u8, Relaxed);
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Reads the files anew, for connections from now on.
    ///
    /// # Errors
    /// As [`Endpoint::new`]; then everything stays as it was.
    pub fn rotate(&self) -> Result<()> {
        let loaded = load(&self.settings)?;
        *self.loaded.write() = loaded;
        Ok(())
    }

    /// The certificate that clients are shown.
    pub fn own(&self) -> Option<Certificate> {
        self.loaded.read().own.clone()
    }

    /// The certificate that other members are shown.
    pub fn cluster(&self) -> Option<Certificate> {
        self.loaded.read().cluster.clone()
    }

    /// Whether a certificate is that of a member of the same cluster.
    pub fn is_of_member(&self, membership: &Membership) -> bool {
        let loaded = self.loaded.read();
        let own = loaded.cluster.as_ref().or(loaded.own.as_ref());
        own.is_some_and(|own| own.membership.is_of(membership))
    }

    fn expires(&self) -> Option<SystemTime> {
        let loaded = self.loaded.read();
        let both = [&loaded.own, &loaded.cluster];
        both.into_iter().flatten().map(|c| c.expires).min()
    }

    /// Checks that the own certificates are those of a member of a cluster.
    ///
    /// # Errors
    /// 140 if their owner's name has nothing that members have in common, or they are of two clusters.
    pub fn check_of_member(&self) -> Result<()> {
        let loaded = self.loaded.read();
        let own = loaded.own.as_ref().map(|c| &c.membership);
        let cluster = loaded.cluster.as_ref().map(|c| &c.membership).or(own);
        match (own, cluster) {
            (Some(own), Some(cluster)) if own.is_of(cluster) => Ok(()),
            (Some(own), Some(_)) if own.is_empty() => Err(invalid(
                "the owner of tlsCertificateKeyFile has neither organisation nor unit nor domain \
                 component, by which members of a cluster know each other",
            )),
            _ => Err(invalid(
                "the owners of tlsCertificateKeyFile and tlsClusterFile differ in organisation, unit or \
                 domain component, so that they are members of two clusters",
            )),
        }
    }

    /// When the first of the own certificates expires, in milliseconds since 1970.
    pub fn expires_ms(&self) -> Option<i64> {
        let since = self.expires()?.duration_since(SystemTime::UNIX_EPOCH);
        let ms = since.unwrap_or_default().as_millis();
        Some(i64::try_from(ms).unwrap_or(i64::MAX))
    }

    /// Whether one of the own certificates expires within this time.
    pub fn expires_within(&self, time: Duration) -> bool {
        self.expires()
            .is_some_and(|at| at <= SystemTime::now() + time)
    }

    /// How many connections were accepted in this version.
    pub fn accepted(&self, version: Version) -> u64 {
        let [tls12, tls13] = &self.accepted;
        match version {
            Version::Tls12 => tls12.load(Relaxed),
            Version::Tls13 => tls13.load(Relaxed),
        }
    }

    /// How many accepted connections have failed in their handshake.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    pub(crate) fn note_accepted(&self, version: Version) {
        let [tls12, tls13] = &self.accepted;
        match version {
            Version::Tls12 => tls12.fetch_add(1, Relaxed),
            Version::Tls13 => tls13.fetch_add(1, Relaxed),
        };
    }

    pub(crate) fn note_failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    pub(crate) fn offer(&self) -> Option<Offer> {
        self.loaded.read().server.clone()
    }

    pub(crate) fn client_config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.loaded.read().client)
    }
}

fn load(settings: &Settings) -> Result<Loaded> {
    let provider = Arc::new(provider());
    let versions = versions(&settings.disabled)?;
    let revoked = match &settings.crl_file {
        Some(path) => files::revoked(path)?,
        None => Vec::new(),
    };
    let own = settings.certificate_key_file.as_deref();
    let own = own
        .map(|path| files::pair(path, password(&settings.certificate_key_password)))
        .transpose()?;
    let cluster = match &settings.cluster_file {
        Some(path) => Some(files::pair(path, password(&settings.cluster_password))?),
        None => None,
    };
    let parse = |pair: &Option<files::Pair>| {
        let first = pair.as_ref().and_then(|(chain, _)| chain.first());
        first.map(|der| Certificate::parse(der)).transpose()
    };
    let (own_names, cluster_names) = (parse(&own)?, parse(&cluster)?);
    let shown = cluster.or_else(|| own.as_ref().map(|(c, k)| (c.clone(), k.clone_key())));
    let client = client_config(settings, &provider, &versions, &revoked, shown)?;
    let server = match own {
        Some(pair) => {
            let shown = pair.0.first().map_or(&[][..], |der| der);
            let binding = binding(shown);
            let config = server_config(settings, &provider, &versions, revoked, pair)?;
            let config = Arc::new(config);
            Some(Offer { config, binding })
        }
        None => None,
    };
    Ok(Loaded {
        server,
        client: Arc::new(client),
        own: own_names,
        cluster: cluster_names,
    })
}

/// The cryptography, with the preferred suites first. Of those of version 1.2, ChaCha20 comes first: with AES-GCM
/// a connection of that version ends after 2^24 records, which a busy one reaches.
fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| match suite {
        SupportedCipherSuite::Tls13(_) => 0,
        SupportedCipherSuite::Tls12(suite) => match suite.common.confidentiality_limit {
            u64::MAX => 1,
            _ => 2,
        },
    });
    provider
}

fn password(given: &Option<Zeroizing<String>>) -> Option<&str> {
    given.as_ref().map(|p| p.as_str())
}

fn versions(disabled: &[Protocol]) -> Result<Vec<&'static SupportedProtocolVersion>> {
    let all = [
        (Protocol::Tls12, &rustls::version::TLS12),
        (Protocol::Tls13, &rustls::version::TLS13),
    ];
    let left = all.into_iter().filter(|(p, _)| !disabled.contains(p));
    let left: Vec<_> = left.map(|(_, version)| version).collect();
    match left.is_empty() {
        true => Err(invalid(
            "tlsDisabledProtocols leaves no version: TLS1_2 and TLS1_3 are those that are spoken",
        )),
        false => Ok(left),
    }
}

/// The names of authorities that clients are told take so many bytes at most.
const MOST_NAMES: usize = 8 << 10;

type Revoked = [CertificateRevocationListDer<'static>];

fn client_config(
    settings: &Settings,
    provider: &Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
    revoked: &Revoked,
    shown: Option<files::Pair>,
) -> Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(versions)
        .map_err(invalid)?
        .dangerous()
        .with_custom_certificate_verifier(server_verifier(settings, provider, revoked)?);
    let mut config = match shown {
        Some((chain, key)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(unusable)?,
        None => builder.with_no_client_auth(),
    };
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

fn server_verifier(
    settings: &Settings,
    provider: &Arc<CryptoProvider>,
    revoked: &Revoked,
) -> Result<Arc<dyn ServerCertVerifier>> {
    if settings.allow_invalid_certificates {
        return Ok(Arc::new(Any(Arc::clone(provider))));
    }
    let roots = match &settings.ca_file {
        Some(path) => files::authorities(path)?,
        None => match files::system_authorities() {
            Ok(roots) => roots,
            // A server that opens no connections needs none.
            Err(_) if settings.certificate_key_file.is_some() => return Ok(none(provider)),
            Err(e) => return Err(e),
        },
    };
    let mut builder =
        WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(provider));
    if !revoked.is_empty() {
        builder = builder
            .with_crls(revoked.iter().cloned())
            .only_check_end_entity_revocation()
            .enforce_revocation_expiration();
    }
    let strict = builder.build().map_err(invalid)?;
    Ok(match settings.allow_invalid_hostnames {
        true => Arc::new(AnyHost(strict)),
        false => strict,
    })
}

/// Refuses every server, for want of an authority.
fn none(provider: &Arc<CryptoProvider>) -> Arc<dyn ServerCertVerifier> {
    Arc::new(crate::verify::Nobody(Any(Arc::clone(provider))))
}

fn server_config(
    settings: &Settings,
    provider: &Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
    revoked: Vec<CertificateRevocationListDer<'static>>,
    (chain, key): files::Pair,
) -> Result<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(versions)
        .map_err(invalid)?;
    let authorities = settings
        .cluster_ca_file
        .as_ref()
        .or(settings.ca_file.as_ref());
    let builder = match authorities {
        _ if settings.allow_invalid_certificates => {
            builder.with_client_cert_verifier(Arc::new(Any(Arc::clone(provider))))
        }
        // Without an authority no certificate of a client could be checked, so none is asked for.
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots: Arc<RootCertStore> = files::authorities(path)?.into();
            let names: usize = roots
                .subjects()
                .iter()
                .map(|name| name.as_ref().len())
                .sum();
            let mut verifier =
                WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
            // Clients are told which authorities count, unless that would be too much for a message.
            if names > MOST_NAMES {
                verifier = verifier.clear_root_hint_subjects();
            }
            if !revoked.is_empty() {
                verifier = verifier
                    .with_crls(revoked)
                    .only_check_end_entity_revocation()
                    .enforce_revocation_expiration();
            }
            if settings.allow_connections_without_certificates {
                verifier = verifier.allow_unauthenticated();
            }
            builder.with_client_cert_verifier(verifier.build().map_err(invalid)?)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
    config.ignore_client_order = true;
    // A connection lasts long, and a ticket would keep a certificate in force that was revoked since.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

fn unusable(e: rustls::Error) -> Error {
    match e {
        rustls::Error::InconsistentKeys(_) => {
            invalid("a private key does not belong to the certificate in its file")
        }
        e => invalid(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With AES-GCM a connection of version 1.2 ends after 2^24 records.
    #[test]
    fn suites_without_a_limit_come_first_in_each_version() {
        let suites = provider().cipher_suites;
        let limits: Vec<_> = suites
            .iter()
            .map(|suite| match suite {
                SupportedCipherSuite::Tls13(_) => (3, 0),
                SupportedCipherSuite::Tls12(s) => (2, s.common.confidentiality_limit),
            })
            .collect();
        let first_of_1_2 = limits.iter().find(|(version, _)| *version == 2);
        assert_eq!(first_of_1_2, Some(&(2, u64::MAX)));
        assert!(
            limits.is_sorted_by(|a, b| a.0 > b.0 || (a.0 == b.0 && a.1 >= b.1)),
            "{limits:?}"
        );
    }
}
