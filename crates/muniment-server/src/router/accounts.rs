//! Users and roles at a router: a copy of those in the configuration, in the router's own memory.
//!
//! The router asks for them, and is answered as soon as they have changed; so a change is in force here some
//! hundredths of a second after it is stored. While the configuration cannot be reached, the last copy holds.
//!
//! Invariant: before there is a copy nobody logs in, and the localhost exception does not hold.

use super::Router;
use super::forward::run;
use super::presence::Stops;
use crate::auth::{ROLES, USERS};
use crate::state::ServerState;
use muniment_exec::{DeleteStatement, OpContext, UpdateStatement};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// The pause after the configuration could not be asked.
const PAUSE: Duration = Duration::from_millis(200);

/// Whether there is a copy.
#[derive(Default)]
pub struct Accounts {
    known: AtomicBool,
    /// Held while users and roles are read for a login, so that an older answer does not undo a newer one.
    reads: Mutex<()>,
}

impl Accounts {
    /// Whether users and roles are known.
    ///
    /// # Errors
    /// 6 HostUnreachable if they are not.
    pub fn check(&self) -> Result<()> {
        match self.known.load(SeqCst) {
            true => Ok(()),
            false => Err(Error::new(
                Code::HostUnreachable,
                "this router has not been able to read users and roles from the configuration yet",
            )),
        }
    }

    /// Sees to it that a login can be judged. Where nobody is asked for credentials no copy is kept fresh, so users and
    /// roles are read, if the caller may wait for that.
    ///
    /// # Errors
    /// 6 HostUnreachable if they are not known; those of reading.
    pub fn ready(&self, server: &ServerState, router: &Router, waits: bool) -> Result<()> {
        match server.auth.required {
            true => self.check(),
            false if !waits => Err(Error::new(
                Code::HostUnreachable,
                "this router reads users and roles for each login, and a hello does not wait for that",
            )),
            false => {
                let _alone = self.reads.lock();
                renew(server, router, &mut String::new())
            }
        }
    }
}

/// Keeps the copy fresh until the server ends. On a server that is no router, or asks nobody for credentials, it
/// returns at once.
pub fn keep(server: &Arc<ServerState>) {
    let Some(router) = server.router.as_ref().filter(|_| server.auth.required) else {
        return;
    };
    let mut state = String::new();
    let mut pause = Duration::ZERO;
    while !server.lifecycle.wait_for_stop_for(pause) {
        pause = match renew(server, router, &mut state) {
            Ok(()) => Duration::ZERO,
            Err(_) => PAUSE,
        };
    }
}

fn renew(server: &ServerState, router: &Router, state: &mut String) -> Result<()> {
    let ask = doc! { "_clusterAccounts": 1, "since": state.as_str() };
    let reply = run(&Stops(server), router, &router.config, "admin", &ask, true)?;
    let reply = reply.as_doc();
    if let (Some(users), Some(roles)) = (reply.get_array("users"), reply.get_array("roles")) {
        // Roles first: a user whose role is not there yet may do less, and never more.
        copy(server, ROLES, roles)?;
        copy(server, USERS, users)?;
        state.clear();
        state.push_str(reply.get_str("state").unwrap_or_default());
        router.accounts.known.store(true, SeqCst);
    }
    Ok(())
}

/// Makes a collection hold these documents. Those that are the same already are left alone, so that connections
/// need not be judged again.
fn copy(server: &ServerState, namespace: &str, wanted: Doc<'_>) -> Result<()> {
    let op = OpContext::internal("accounts");
    let id = |d: Doc<'_>| d.get_str("_id").unwrap_or_default().to_string();
    let mut left: BTreeMap<String, DocBuf> = BTreeMap::new();
    for d in crate::auth::all(server, namespace, Doc::EMPTY)? {
        left.insert(id(d.as_doc()), d);
    }
    for d in wanted.values().filter_map(|v| v.as_doc()) {
        let before = left.remove(&id(d));
        if before.is_some_and(|before| before.as_doc().as_bytes() == d.as_bytes()) {
            continue;
        }
        let filter = doc! { "_id": id(d) };
        let statement = UpdateStatement {
            upsert: true,
            ..UpdateStatement::new(filter.as_doc(), Value::Document(d))
        };
        server.engine.update(&op, namespace, &statement)?;
    }
    for gone in left.into_keys() {
        let filter = doc! { "_id": gone };
        let statement = DeleteStatement {
            filter: filter.as_doc(),
            multi: false,
            hint: None,
            let_: Doc::EMPTY,
            collation: None,
        };
        let mut statements = std::iter::once(Ok(statement));
        let mut outcome = server
            .engine
            .delete_many(&op, namespace, &mut statements, true);
        if let Some(e) = outcome.errors.pop() {
            return Err(e.error);
        }
    }
    Ok(())
}
