//! What a server or a client is told about TLS.

use std::path::PathBuf;
use zeroize::Zeroizing;

/// Which connections use TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// None.
    #[default]
    Disabled,
    /// A client may choose; connections to other members do not use it.
    Allow,
    /// A client may choose; connections to other members use it.
    Prefer,
    /// All.
    Require,
}

impl Mode {
    /// The modes with the names of `--tlsMode`, and those of the older `--sslMode`.
    pub const ALL: [(&str, &str, Mode); 4] = [
        ("disabled", "disabled", Mode::Disabled),
        ("allowTLS", "allowSSL", Mode::Allow),
        ("preferTLS", "preferSSL", Mode::Prefer),
        ("requireTLS", "requireSSL", Mode::Require),
    ];

    /// The mode of this name, which may be the older one.
    pub fn from_name(name: &str) -> Option<Mode> {
        let mut all = Mode::ALL.into_iter();
        all.find(|(new, old, _)| *new == name || *old == name)
            .map(|(_, _, mode)| mode)
    }

    /// The name of `--tlsMode`.
    pub fn name(self) -> &'static str {
        let mut all = Mode::ALL.into_iter();
        all.find(|(_, _, mode)| *mode == self)
            .map_or("disabled", |(name, _, _)| name)
    }
}

/// A version of the protocol, as `--tlsDisabledProtocols` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TLS 1.0, which is never spoken.
    Tls10,
    /// TLS 1.1, which is never spoken.
    Tls11,
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

impl Protocol {
    /// The version of this name.
    pub fn from_name(name: &str) -> Option<Protocol> {
        Some(match name {
            "TLS1_0" => Protocol::Tls10,
            "TLS1_1" => Protocol::Tls11,
            "TLS1_2" => Protocol::Tls12,
            "TLS1_3" => Protocol::Tls13,
            _ => return None,
        })
    }
}

/// The files and rules of an [`Endpoint`](crate::Endpoint). All files are PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The own certificate, with those that have issued it, and its private key.
    pub certificate_key_file: Option<PathBuf>,
    /// The password of that key.
    pub certificate_key_password: Option<Zeroizing<String>>,
    /// As `certificate_key_file`, for connections that this process opens to other members.
    pub cluster_file: Option<PathBuf>,
    /// The password of that key.
    pub cluster_password: Option<Zeroizing<String>>,
    /// The authorities whose certificates are accepted.
    pub ca_file: Option<PathBuf>,
    /// The authorities for certificates of clients; those of `ca_file` if there are none.
    pub cluster_ca_file: Option<PathBuf>,
    /// Certificates that were revoked.
    pub crl_file: Option<PathBuf>,
    /// Clients need no certificate; one that has one is checked all the same.
    pub allow_connections_without_certificates: bool,
    /// Any certificate is accepted.
    pub allow_invalid_certificates: bool,
    /// A server's certificate may be for another host.
    pub allow_invalid_hostnames: bool,
    /// Versions that are not spoken.
    pub disabled: Vec<Protocol>,
}

/// Passwords are left out.
impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("certificate_key_file", &self.certificate_key_file)
            .field("cluster_file", &self.cluster_file)
            .field("ca_file", &self.ca_file)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_two_names() {
        assert_eq!(Mode::from_name("preferSSL"), Some(Mode::Prefer));
        assert_eq!(Mode::from_name("requireTLS"), Some(Mode::Require));
        assert_eq!(Mode::from_name("tls"), None);
        assert_eq!(Mode::Allow.name(), "allowTLS");
        assert!(Mode::Prefer < Mode::Require);
    }

    #[test]
    fn passwords_are_not_shown() {
        let settings = Settings {
            certificate_key_password: Some(Zeroizing::new("hush".to_string())),
            ..Settings::default()
        };
        assert!(!format!("{settings:?}").contains("hush"));
    }
}
