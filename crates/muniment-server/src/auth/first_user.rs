//! The localhost exception: while there is no user, a client on the server's own host may create the first
//! one.

use super::store;
use crate::connections::{ConnShared, address_of};
use crate::state::ServerState;
use muniment_value::doc;
use std::sync::atomic::Ordering::SeqCst;

/// Whether the exception holds for a connection. It ends for good with the first user.
pub fn exception(server: &ServerState, conn: &ConnShared) -> bool {
    let auth = &server.auth;
    if auth.had_users.load(SeqCst) || !is_local(&conn.peer) {
        return false;
    }
    if server
        .router
        .as_ref()
        .is_some_and(|router| router.accounts.check().is_err())
    {
        return false;
    }
    // What cannot be read may hold users.
    let has = store::any(server).unwrap_or(true);
    if has {
        auth.had_users.store(true, SeqCst);
    } else if !auth.told_of_none.swap(true, SeqCst) {
        server.log.info(
            "ACCESS",
            20_248,
            &format!("conn{}", conn.id),
            "There is no user yet, so a client on this host may create the first one, in the database admin",
            &doc! {},
        );
    }
    !has
}

/// Whether a peer's address is of this host. The clients of a Unix socket have none.
fn is_local(peer: &str) -> bool {
    peer.is_empty() || address_of(peer).is_some_and(|ip| ip.to_canonical().is_loopback())
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
