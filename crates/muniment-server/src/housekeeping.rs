//! The one background thread of the server: TTL passes, cursor and session timeouts, the refresh of
//! the stored sessions.

use crate::heap;
use crate::log::Severity;
use crate::own_collections;
use crate::state::ServerState;
use muniment_exec::{OpGuard, OpStart};
use muniment_query::Interrupt;
use muniment_value::{Code, doc};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Runs until the server ends.
pub fn run(server: &Arc<ServerState>) {
    let mut last_ttl = Instant::now();
    let mut last_sessions = Instant::now();
    let mut last_refresh = Instant::now();
    let (mut requests, mut trimmed) = (0, 0);
    // What idle cursors let go of, some time after the last request.
    let mut freed = false;
    while !server.wait_for_stop_for(Duration::from_secs(1)) {
        let any = guarded(server, "CursorMonitor", || server.engine.cursors.tick());
        freed |= any == Some(true);
        let now = server.metrics.totals().requests;
        if now == requests && (now != trimmed || freed) {
            heap::purge();
            (trimmed, freed) = (now, false);
        }
        requests = now;
        let every = server.parameters.ttl_sleep_secs.load(Relaxed).max(1) as u64;
        if last_ttl.elapsed() >= Duration::from_secs(every) {
            if server.parameters.ttl_enabled.load(Relaxed) && server.is_writable() {
                ttl_pass(server);
            }
            last_ttl = Instant::now();
        }
        let window = server.parameters.snapshot_window_secs.load(Relaxed);
        server
            .snapshots
            .tick(Duration::from_secs(window.max(0) as u64));
        if last_sessions.elapsed() >= Duration::from_secs(60) {
            for id in server.sessions.expire() {
                server.transactions.forget(server, &id);
                server.engine.cursors.kill_session(&id);
            }
            last_sessions = Instant::now();
        }
        // Behind fsyncLock nothing can be written, and who is no primary writes nothing: the other
        // jobs must not wait with it.
        let still = server.engine.store.write_lock_depth() > 0 || !server.is_writable();
        if last_refresh.elapsed() >= own_collections::REFRESH_EVERY && !still {
            refresh_sessions(server);
            last_refresh = Instant::now();
        }
    }
}

/// Ends what has gone on for longer than it may, until the server ends: transactions, and copies of the
/// data that nobody fetches. In a thread of its own: other jobs may wait for what such a transaction
/// holds, and a full disk for the room that such a copy keeps.
pub fn end_what_is_old(server: &Arc<ServerState>) {
    while !server.wait_for_stop_for(Duration::from_secs(1)) {
        if let Some(set) = &server.replica_set {
            set.copies.expire();
        }
        let lifetime = server.parameters.transaction_lifetime_secs.load(Relaxed);
        let lifetime = Duration::from_secs(lifetime.max(1) as u64);
        for id in server.transactions.expired(lifetime) {
            // First what runs: a commit that waits holds the transaction.
            server.engine.operations.kill_session(&id);
            server.transactions.kill(server, &id);
        }
    }
}

/// A job is registered as what clients ask for is: a shutdown ends it, also where it waits for
/// fsyncUnlock.
fn begin<'s>(server: &'s ServerState, job: &'static str) -> OpGuard<'s> {
    server.engine.operations.begin(OpStart {
        command: job,
        ..OpStart::default()
    })
}

fn refresh_sessions(server: &Arc<ServerState>) {
    let op = begin(server, "refreshSessions");
    if server.is_stopping() {
        op.kill(Code::InterruptedAtShutdown);
    }
    let done = guarded(server, "LogicalSessionCacheRefresh", || {
        own_collections::refresh_sessions(server, &op)
    });
    if let Some(Err(e)) = done {
        server.log.log(
            Severity::Warning,
            "CONTROL",
            20712,
            "LogicalSessionCacheRefresh",
            "Sessions could not be written; will try again at the next refresh interval",
            Some(&doc! { "error": e.to_string() }),
        );
    }
}

fn ttl_pass(server: &Arc<ServerState>) {
    let op = begin(server, "ttl");
    if server.is_stopping() {
        op.kill(Code::InterruptedAtShutdown);
    }
    let pass = guarded(server, "TTLMonitor", || {
        op.check()?;
        server.engine.ttl_pass(&op)
    });
    match pass {
        None => {}
        Some(Ok(done)) => {
            server.metrics.ttl_passes.fetch_add(1, Relaxed);
            server.metrics.ttl_deleted.fetch_add(done.deleted, Relaxed);
        }
        Some(Err(e)) => server.log.log(
            Severity::Error,
            "INDEX",
            22527,
            "TTLMonitor",
            "Error running TTL job",
            Some(&doc! { "error": e.to_string() }),
        ),
    }
}

/// A bug in one job must not end the others.
fn guarded<T>(server: &ServerState, job: &str, run: impl FnOnce() -> T) -> Option<T> {
    match crate::guard::guarded(run) {
        Ok(t) => Some(t),
        Err(caught) => {
            server.log.log(
                Severity::Error,
                "ASSERT",
                23081,
                job,
                "A background job panicked; this is a bug",
                Some(&doc! { "what": caught.message, "backtrace": caught.report }),
            );
            None
        }
    }
}
