//! The mechanisms of logins: which are enabled, how often they stretch passwords, and how often they were used.

use muniment_auth::scram::Mechanism;
use muniment_value::{DocBuf, Error, Result, doc};
use parking_lot::RwLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// The mechanism of clients with certificates.
pub const MONGODB_X509: &str = "MONGODB-X509";

/// The mechanisms, sorted as serverStatus lists them.
const ALL: [&str; 3] = [MONGODB_X509, "SCRAM-SHA-1", "SCRAM-SHA-256"];

/// The mechanisms that clients may log in with (`authenticationMechanisms`).
pub struct Mechanisms(RwLock<Vec<&'static str>>);

impl Default for Mechanisms {
    fn default() -> Mechanisms {
        Mechanisms(RwLock::new(ALL.to_vec()))
    }
}

impl Mechanisms {
    /// Their names.
    pub fn names(&self) -> Vec<&'static str> {
        self.0.read().clone()
    }

    /// Sets them by their names, with commas between them.
    ///
    /// # Errors
    /// 2 BadValue for one that is not known.
    pub fn set(&self, text: &str) -> Result<()> {
        let mut chosen = Vec::new();
        for name in text.split(',').map(str::trim) {
            let known = ALL.into_iter().find(|known| *known == name);
            chosen.push(known.ok_or_else(|| {
                Error::bad_value(format!(
                    "authenticationMechanisms: '{name}' is none of {}",
                    ALL.join(", ")
                ))
            })?);
        }
        *self.0.write() = chosen;
        Ok(())
    }
}

/// How often passwords are stretched that are set from now on.
pub struct Iterations {
    /// `scramIterationCount`.
    pub sha1: AtomicI64,
    /// `scramSHA256IterationCount`.
    pub sha256: AtomicI64,
}

impl Default for Iterations {
    fn default() -> Iterations {
        let of = |mechanism: Mechanism| AtomicI64::new(mechanism.default_iterations().into());
        Iterations {
            sha1: of(Mechanism::Sha1),
            sha256: of(Mechanism::Sha256),
        }
    }
}

impl Iterations {
    /// Those of a mechanism.
    pub fn of(&self, mechanism: Mechanism) -> u32 {
        let of = match mechanism {
            Mechanism::Sha1 => &self.sha1,
            Mechanism::Sha256 => &self.sha256,
        };
        u32::try_from(of.load(Relaxed)).unwrap_or(u32::MAX)
    }
}

/// Logins that were tried and that succeeded, for serverStatus.
#[derive(Default)]
pub struct Figures {
    all: [[AtomicU64; 3]; 3],
}

impl Figures {
    fn of(&self, mechanism: &str) -> Option<&[AtomicU64; 3]> {
        self.all
            .get(ALL.iter().position(|name| *name == mechanism)?)
    }

    /// A login was tried, or came with a hello.
    pub fn tried(&self, mechanism: &str, with_hello: bool) {
        if let Some([tried, _, speculative]) = self.of(mechanism) {
            let counter = if with_hello { speculative } else { tried };
            counter.fetch_add(1, Relaxed);
        }
    }

    /// A login has succeeded.
    pub fn succeeded(&self, mechanism: &str) {
        if let Some([_, succeeded, _]) = self.of(mechanism) {
            succeeded.fetch_add(1, Relaxed);
        }
    }

    /// `security.authentication.mechanisms` of serverStatus.
    pub fn to_doc(&self) -> DocBuf {
        let mut d = DocBuf::new();
        for (mechanism, of) in ALL.into_iter().zip(&self.all) {
            let [tried, succeeded, speculative] = of;
            d.append(
                mechanism,
                doc! {
                    "speculativeAuthenticate": doc! { "received": speculative.load(Relaxed) as i64 },
                    "authenticate": doc! {
                        "received": tried.load(Relaxed) as i64,
                        "successful": succeeded.load(Relaxed) as i64,
                    },
                },
            );
        }
        d
    }
}
