//! The background threads of the server. Each has work that must not wait for that of the others: resident
//! memory, idle cursors, transactions and copies that are too old, TTL passes, sessions, and the figures that
//! an operator has to see.

use crate::heap;
use crate::own_collections;
use crate::server::log_damages;
use crate::startup;
use crate::state::ServerState;
use muniment_exec::{OpGuard, OpStart};
use muniment_logger::Severity;
use muniment_op::Interrupt;
use muniment_value::{Code, DocBuf, doc};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The longest time of a transaction on a cluster's configuration. Routers make short ones there, and another router
/// waits for that of one that has ended.
const OF_ROUTERS: Duration = Duration::from_secs(5);

/// Bytes in memory that no account in the ledger has: the program, stacks, small allocations.
const UNKNOWN: usize = 64 << 20;

/// The work of a thread, which continues until the server ends.
type Job = fn(&Arc<ServerState>);

/// The threads and their names.
pub const THREADS: [(&str, Job); 12] = [
    ("memory", crate::memory::keep_to_goal),
    ("housekeeping", keep_house),
    ("expiry", end_what_is_old),
    ("accounts", crate::router::keep_accounts),
    ("router", crate::router::keep_presence),
    ("cursors", crate::router::keep_cursors),
    ("balancer", crate::router::balancer::keep),
    ("transactions", crate::distributed::keep_going),
    ("ranges", crate::moving::keep),
    ("ttl", expire_documents),
    ("sessions", keep_sessions),
    ("watch", crate::watch::keep_watch),
];

/// Ends idle cursors, drops old views, and gives back memory that is not used. It waits for nothing.
fn keep_house(server: &Arc<ServerState>) {
    let mut giving = GivingBack::default();
    // Damages that were logged at the start are not logged again.
    let mut damages = server.engine.store.damages();
    let mut told = Instant::now();
    while !server.lifecycle.wait_for_stop_for(Duration::from_secs(1)) {
        let any = guarded(server, "CursorMonitor", || server.engine.cursors.tick());
        let requests = server.metrics.totals().requests;
        match giving.next(requests, any == Some(true)) {
            Give::All => heap::purge(),
            Give::Old if holds_too_much(server) => heap::purge(),
            Give::Old => heap::decay(),
            Give::Nothing => {}
        }
        if told.elapsed() >= Duration::from_secs(86_400) {
            told = Instant::now();
            startup::repeat_expiry(&server.log, server.trust.tls.as_deref());
        }
        let limit = server.parameters.greeting_secs.load(Relaxed).max(1) as u64;
        let silent = server.connections.end_silent(Duration::from_secs(limit));
        server.connections.slow.fetch_add(silent as u64, Relaxed);
        log_damages(&server.engine.store, &server.log, &mut damages);
        server.balancer.check(server.is_writable());
        let window = server.parameters.snapshot_window_secs.load(Relaxed);
        server
            .snapshots
            .tick(Duration::from_secs(window.max(0) as u64));
    }
}

/// What of the allocator's free memory the system gets.
#[derive(Debug, PartialEq, Eq)]
enum Give {
    Nothing,
    /// What has been free for a while.
    Old,
    All,
}

/// Decides when free memory goes back to the system.
struct GivingBack {
    requests: u64,
    left: u8,
}

impl Default for GivingBack {
    /// A server that nobody has asked anything yet has memory to give back that its start took.
    fn default() -> GivingBack {
        GivingBack {
            requests: 0,
            left: GivingBack::PURGES,
        }
    }
}

impl GivingBack {
    /// How many idle seconds in a row purge. One is not always enough: the allocator skips a heap that another
    /// thread purges at the same moment, and that thread may have begun before the last memory was freed.
    const PURGES: u8 = 2;

    /// To be called once a second, with the number of requests so far, and whether idle cursors have freed
    /// memory since the last call.
    fn next(&mut self, requests: u64, freed: bool) -> Give {
        let idle = std::mem::replace(&mut self.requests, requests) == requests;
        if !idle || freed {
            self.left = GivingBack::PURGES;
        }
        match (idle, self.left) {
            (false, _) => Give::Old,
            (true, 0) => Give::Nothing,
            (true, _) => {
                self.left -= 1;
                Give::All
            }
        }
    }
}

/// Runs the TTL passes. They have a thread of their own, because a large pass takes long, and any on a slow
/// disk.
fn expire_documents(server: &Arc<ServerState>) {
    let mut last = Instant::now();
    while !server.lifecycle.wait_for_stop_for(Duration::from_secs(1)) {
        let every = server.parameters.ttl_sleep_secs.load(Relaxed).max(1) as u64;
        if last.elapsed() >= Duration::from_secs(every) {
            if server.parameters.ttl_enabled.load(Relaxed) && server.is_writable() {
                ttl_pass(server);
            }
            last = Instant::now();
        }
    }
}

/// Ends sessions that are no longer used, and stores the ones that were used.
fn keep_sessions(server: &Arc<ServerState>) {
    let mut last_expiry = Instant::now();
    let mut last_refresh = Instant::now();
    while !server.lifecycle.wait_for_stop_for(Duration::from_secs(1)) {
        if last_expiry.elapsed() >= Duration::from_secs(60) {
            for gone in server.sessions.expire() {
                for id in &gone {
                    server.transactions.forget(server, id);
                }
                if !gone.is_empty() {
                    server.engine.cursors.kill_sessions(|id| gone.contains(id));
                }
            }
            last_expiry = Instant::now();
        }
        // During fsyncLock nothing can be written, and a member that knows no primary has no one to send its
        // sessions to.
        let set = server.replica_set.as_ref();
        let led = set.map_or(server.is_writable(), |set| set.member().leader.is_some());
        let still = server.engine.store.write_lock_depth() > 0 || !led;
        if last_refresh.elapsed() >= own_collections::REFRESH_EVERY && !still {
            refresh_sessions(server);
            last_refresh = Instant::now();
        }
    }
}

/// Ends transactions that have lasted too long, and copies of the data that no member fetches, until the
/// server ends. This has a thread of its own, because other jobs may wait for what such a transaction holds,
/// and writers on a full disk for the space of such a copy.
fn end_what_is_old(server: &Arc<ServerState>) {
    while !server.lifecycle.wait_for_stop_for(Duration::from_secs(1)) {
        end_old(server);
    }
}

/// Ends the transactions, copies and outputs that are too old now.
pub(crate) fn end_old(server: &Arc<ServerState>) {
    if let Some(set) = &server.replica_set {
        set.copies.expire();
    }
    server.transactions.let_go_of_idle(server);
    server.outputs.tick(&server.engine);
    let lifetime = server.parameters.transaction_lifetime_secs.load(Relaxed);
    let lifetime = Duration::from_secs(lifetime.max(1) as u64);
    let of_config = lifetime.min(OF_ROUTERS);
    for id in server.transactions.expired(lifetime, of_config) {
        // Running operations first: a commit that waits holds the transaction.
        server.engine.operations.kill_session(&id);
        server.transactions.kill(server, &id);
    }
}

/// True when the process has far more in memory than all accounts together. The allocator then holds the
/// rest.
fn holds_too_much(server: &ServerState) -> bool {
    let stats = server.engine.store.stats();
    let storage = usize::try_from(stats.cache_used + stats.memtable_bytes).unwrap_or(usize::MAX);
    let known = storage.saturating_add(server.engine.memory.total().used);
    let most = known.saturating_add(known / 8).saturating_add(UNKNOWN);
    heap::resident().is_some_and(|bytes| bytes > most)
}

/// Registers a job like a client's operation, so that a shutdown ends it, even while it waits for
/// fsyncUnlock.
fn begin<'s>(server: &'s ServerState, job: &'static str) -> OpGuard<'s> {
    server.engine.operations.begin(OpStart {
        command: job,
        ..OpStart::default()
    })
}

fn refresh_sessions(server: &Arc<ServerState>) {
    let op = begin(server, "refreshSessions");
    if server.lifecycle.is_stopping() {
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
            Some(&doc! { "error": server.log.error(&e) }),
        );
    }
}

fn ttl_pass(server: &Arc<ServerState>) {
    let op = begin(server, "ttl");
    if server.lifecycle.is_stopping() {
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
            for (namespace, e) in done.failed {
                ttl_failed(
                    server,
                    &doc! { "ns": namespace, "error": server.log.error(&e) },
                );
            }
        }
        Some(Err(e)) => ttl_failed(server, &doc! { "error": server.log.error(&e) }),
    }
}

fn ttl_failed(server: &ServerState, what: &DocBuf) {
    server.log.log(
        Severity::Error,
        "INDEX",
        22527,
        "TTLMonitor",
        "Error running TTL job",
        Some(what),
    );
}

/// Runs one job, and logs a panic in it, so that a bug in one job does not end the others.
fn guarded<T>(server: &ServerState, job: &str, run: impl FnOnce() -> T) -> Option<T> {
    match muniment_logger::guarded(run) {
        Ok(t) => Some(t),
        Err(caught) => {
            server.log.log(
                Severity::Error,
                "ASSERT",
                23081,
                job,
                "A background job panicked; this is a bug",
                Some(
                    &doc! { "what": server.log.text(&caught.message), "backtrace": caught.report },
                ),
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Give, GivingBack};

    #[test]
    fn memory_goes_back_after_the_start_and_the_last_request_and_after_cursors_freed_more() {
        let mut giving = GivingBack::default();
        for _ in 0..GivingBack::PURGES {
            assert_eq!(giving.next(0, false), Give::All);
        }
        assert_eq!(giving.next(0, false), Give::Nothing);
        assert_eq!(giving.next(5, false), Give::Old);
        assert_eq!(giving.next(9, true), Give::Old);
        for _ in 0..GivingBack::PURGES {
            assert_eq!(giving.next(9, false), Give::All);
        }
        assert_eq!(giving.next(9, false), Give::Nothing);
        for _ in 0..GivingBack::PURGES {
            assert_eq!(giving.next(9, giving.left == 0), Give::All);
        }
        assert_eq!(giving.next(9, false), Give::Nothing);
    }
}
