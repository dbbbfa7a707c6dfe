//! TLS: sockets that speak it, and the certificates and keys that they use.
//!
//! An [`Endpoint`] is what a process has of certificates, keys and authorities. A [`Socket`] is a TCP
//! connection that uses it, either one that the process has opened or one that it has accepted. The protocol itself is
//! `rustls`' with the cryptography of `ring`.
//!
//! Must not: know messages, users or commands.

mod endpoint;
mod files;
#[doc(hidden)]
pub mod fuzzing;
mod names;
mod settings;
mod socket;
mod verify;

pub use endpoint::{Binding, Endpoint, Version};
pub use names::{Certificate, Membership};
pub use settings::{Mode, Protocol, Settings};
pub use socket::{Refused, Socket, greets};

use muniment_value::{Code, Error};

/// 140 InvalidSSLConfiguration.
fn invalid(why: impl std::fmt::Display) -> Error {
    Error::new(Code::InvalidSSLConfiguration, why.to_string())
}

#[cfg(test)]
mod tests;
