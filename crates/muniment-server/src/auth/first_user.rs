//! The localhost exception: while there is no user, a client on the server's own host may create the first
//! one.

use super::store;
use crate::connections::ConnShared;
use crate::state::ServerState;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::SeqCst;

/// Whether the exception holds for a connection. It ends for good with the first user.
pub fn exception(server: &ServerState, conn: &ConnShared) -> bool {
    let auth = &server.auth;
    if auth.had_users.load(SeqCst) || !is_local(&conn.peer) {
        return false;
    }
    // What cannot be read may hold users.
    let has = store::any(server).unwrap_or(true);
    if has {
        auth.had_users.store(true, SeqCst);
    }
    !has
}

/// Whether a peer's address is of this host. The clients of a Unix socket have none.
fn is_local(peer: &str) -> bool {
    peer.is_empty() || address(peer).is_some_and(|ip| ip.to_canonical().is_loopback())
}

/// The address of a peer, `address:port`.
pub fn address(peer: &str) -> Option<IpAddr> {
    peer.parse::<SocketAddr>().ok().map(|a| a.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_host_is_local() {
        for (peer, local) in [
            ("", true),
            ("127.0.0.1:5000", true),
            ("127.8.0.1:5000", true),
            ("[::1]:5000", true),
            ("[::ffff:127.0.0.1]:5000", true),
            ("10.0.0.1:5000", false),
            ("[2001:db8::1]:5000", false),
            ("nonsense", false),
        ] {
            assert_eq!(is_local(peer), local, "{peer}");
        }
    }
}
