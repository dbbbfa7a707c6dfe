//! By what the members of a set know each other, and whether they speak TLS.

use crate::key::Keys;
use muniment_tls::{Certificate, Endpoint, Mode};
use std::sync::Arc;

/// What members show each other, and what they accept (`--clusterAuthMode`). The modes between the first and
/// the last are for the change from one to the other, member by member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterAuth {
    /// They show that they know a key, and accept that alone.
    #[default]
    KeyFile,
    /// They show that they know a key, and accept certificates as well.
    SendKeyFile,
    /// They show their certificate, and accept keys as well.
    SendX509,
    /// They show their certificate, and accept that alone.
    X509,
}

impl ClusterAuth {
    /// The modes with their names.
    pub const ALL: [(&str, ClusterAuth); 4] = [
        ("keyFile", ClusterAuth::KeyFile),
        ("sendKeyFile", ClusterAuth::SendKeyFile),
        ("sendX509", ClusterAuth::SendX509),
        ("x509", ClusterAuth::X509),
    ];

    /// The mode of this name.
    pub fn from_name(name: &str) -> Option<ClusterAuth> {
        let mut all = ClusterAuth::ALL.into_iter();
        all.find(|(n, _)| *n == name).map(|(_, mode)| mode)
    }

    /// Whether the own certificate is shown instead of a key.
    pub fn sends_certificate(self) -> bool {
        matches!(self, ClusterAuth::SendX509 | ClusterAuth::X509)
    }

    /// Whether a certificate is accepted.
    pub fn takes_certificate(self) -> bool {
        self != ClusterAuth::KeyFile
    }

    /// Whether a key is accepted.
    pub fn takes_key(self) -> bool {
        self != ClusterAuth::X509
    }
}

/// See the module's head.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// The keys by which members know each other.
    pub keys: Option<Arc<Keys>>,
    /// Certificates and keys of TLS.
    pub tls: Option<Arc<Endpoint>>,
    /// What members show each other.
    pub by: ClusterAuth,
}

impl Trust {
    /// Whether a caller has to prove that it is a member.
    pub fn is_asked(&self) -> bool {
        self.keys.is_some() || self.by.takes_certificate()
    }

    /// The certificates and keys for connections to other members, if these are to use TLS.
    pub fn tls_to_others(&self) -> Option<&Endpoint> {
        let tls = self.tls.as_deref();
        tls.filter(|tls| tls.mode() >= Mode::Prefer)
    }

    /// Whether a certificate, which was checked when the connection began, is a member's.
    pub fn knows(&self, shown: Option<&Certificate>) -> bool {
        let Some(tls) = self.tls.as_ref().filter(|_| self.by.takes_certificate()) else {
            return false;
        };
        // Where any certificate is accepted, anybody can make one with the names of a member.
        !tls.settings().allow_invalid_certificates
            && shown.is_some_and(|c| !c.is_expired() && tls.is_of_member(&c.membership))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_go_from_keys_to_certificates() {
        let rows = ClusterAuth::ALL
            .map(|(_, m)| (m.sends_certificate(), m.takes_certificate(), m.takes_key()));
        assert_eq!(
            rows,
            [
                (false, false, true),
                (false, true, true),
                (true, true, true),
                (true, true, false),
            ]
        );
        // In the order of the names, each mode is accepted by that before it and that after it.
        for ((_, a), (_, b)) in ClusterAuth::ALL
            .into_iter()
            .zip(ClusterAuth::ALL.into_iter().skip(1))
        {
            let accepts = |sender: ClusterAuth, by: ClusterAuth| match sender.sends_certificate() {
                true => by.takes_certificate(),
                false => by.takes_key(),
            };
            assert!(accepts(a, b) && accepts(b, a));
        }
        assert_eq!(ClusterAuth::from_name("x509"), Some(ClusterAuth::X509));
        assert_eq!(ClusterAuth::from_name("x"), None);
    }

    #[test]
    fn without_anything_nothing_is_asked() {
        let trust = Trust::default();
        assert!(!trust.is_asked() && trust.tls_to_others().is_none() && !trust.knows(None));
        let by = ClusterAuth::X509;
        assert!(Trust { by, ..trust }.is_asked());
    }
}
