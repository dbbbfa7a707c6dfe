//! The limits of the ledger, as the parameters set them, and their defaults.

use crate::heap;
use crate::options::{ServerOptions, memory_limit};
use crate::parameters::Parameters;
use crate::state::ServerState;
use muniment_op::{Account, Ledger};
use muniment_value::{DocBuf, KeyLimits, doc};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Resident memory is kept below its goal by this margin, because it may grow between two looks.
const MARGIN: usize = 64 << 20;
/// The ledger may always give out this much, whatever else is resident, so that ordinary commands still run.
const LEAST: usize = 32 << 20;
/// The pauses between two looks at the resident memory: while it is above half of the goal, and otherwise.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_AT_LITTLE: Duration = Duration::from_millis(500);
/// The cache gives up memory in steps of one in this many parts, and takes it back only after this long.
const CACHE_STEPS: usize = 16;
const CACHE_WAIT: Duration = Duration::from_secs(20);

/// The largest document and the space around it: a cursor must be able to hold one.
const ONE_DOCUMENT: usize = 20 << 20;
/// The largest message and the free rest of its buffer.
const ONE_MESSAGE: usize = 64 << 20;

/// The accounts' limits as the parameters set them; 0 for the default.
#[derive(Debug, Default)]
pub struct MemoryLimits {
    /// munimentMemoryLimitBytes.
    pub total: AtomicI64,
    /// The limit of all accounts together that is in force.
    pub in_force: AtomicUsize,
    /// munimentQueryMemoryBudgetBytes.
    pub stages: AtomicI64,
    /// munimentTransactionMemoryBytes.
    pub transactions: AtomicI64,
    /// munimentWriteMemoryBytes.
    pub writes: AtomicI64,
    /// munimentStreamMemoryBytes.
    pub streams: AtomicI64,
    /// munimentScriptMemoryBytes.
    pub scripts: AtomicI64,
    /// munimentMessageMemoryBytes.
    pub messages: AtomicI64,
    /// indexMaxNumGeneratedKeysPerDocument.
    pub keys: AtomicI64,
    /// munimentIndexMaxKeyBytesPerDocument.
    pub key_bytes: AtomicI64,
}

impl ServerOptions {
    /// The cache in bytes: as given, else a quarter of the memory.
    pub fn cache(&self) -> u64 {
        self.cache_bytes
            .unwrap_or_else(|| (memory_limit() / 4).max(64 << 20))
    }
}

/// How much all accounts together may hold beside a cache of this many bytes. With what the allocator keeps
/// and the process itself takes, that stays below a quarter of the cache and 100 MB.
fn total(cache: u64) -> usize {
    usize::try_from(cache / 8).map_or(usize::MAX, |eighth| eighth.saturating_add(48 << 20))
}

/// The goal for the resident memory of a process with a cache of this many bytes: five quarters of the cache
/// and 100 MB.
fn goal(cache: u64) -> usize {
    usize::try_from(cache / 4 * 5).map_or(usize::MAX, |bytes| bytes.saturating_add(100_000_000))
}

/// By how many bytes the block cache and the ledger stay below their limits.
#[derive(Debug, PartialEq, Eq)]
struct Reduction {
    cache: usize,
    ledger: usize,
}

/// Divides a reduction by `less` bytes between the two. The block cache gives up to half of itself first,
/// since that costs only time. Then the ledger gives out less, which makes sorts spill and large commands
/// fail. At last the cache gives up all but an eighth.
fn shared_out(less: usize, cache: usize, ledger: usize) -> Reduction {
    let first = less.min(cache / 2);
    let from_ledger = (less - first).min(ledger.saturating_sub(LEAST));
    let last = (less - first - from_ledger).min(cache / 8 * 3);
    Reduction {
        cache: first + last,
        ledger: from_ledger,
    }
}

/// Keeps the resident memory below its goal until the server ends. Free memory of the allocator goes back to
/// the system first. What is then still above the goal is in no account of the ledger (the allocator's own
/// loss, memtables beyond their share, buffers of compactions), so the cache and the ledger take less for as
/// long as that lasts.
pub fn keep_to_goal(server: &Arc<ServerState>) {
    let goal = goal(server.options.cache());
    let (ledger, store) = (&server.engine.memory, &server.engine.store);
    let cache = usize::try_from(store.stats().cache_capacity).unwrap_or(usize::MAX);
    let mut less = 0_usize;
    let (mut spared, mut since) = (0_usize, Instant::now());
    let mut pause = LOOK;
    while !server.lifecycle.wait_for_stop_for(pause) {
        let Some(mut resident) = heap::resident() else {
            return;
        };
        pause = match resident > goal / 2 || less > 0 {
            true => LOOK,
            false => LOOK_AT_LITTLE,
        };
        if resident + MARGIN > goal {
            heap::purge();
            resident = heap::resident().unwrap_or(resident);
        }
        less = match (resident + MARGIN).checked_sub(goal) {
            Some(above) => less + above / 2,
            // The reduction shrinks more slowly than it grew, so that it does not oscillate.
            None => less - less.min((goal - MARGIN - resident) / 8),
        };
        let total = server.parameters.memory.in_force.load(Relaxed);
        let give = shared_out(less, cache, total);
        less = give.cache + give.ledger;
        if ledger.total().limit != total - give.ledger {
            ledger.set_total(total - give.ledger);
        }
        // The cache gives up memory in few large steps and takes it back in even fewer, because each step
        // makes its own statistics less exact.
        let step = (cache / CACHE_STEPS).max(1);
        let steps = give.cache.div_ceil(step);
        if steps > spared || steps < spared && since.elapsed() >= CACHE_WAIT {
            (spared, since) = (steps, Instant::now());
            store.spare_cache((steps * step) as u64);
        }
    }
}

/// The value of a parameter, or the default if it is not set.
fn said(at: &AtomicI64, else_: usize) -> usize {
    match usize::try_from(at.load(Relaxed)) {
        Ok(bytes) if bytes > 0 => bytes,
        _ => else_,
    }
}

/// The limits of the keys that one document may have in one index.
pub fn key_limits(parameters: &Parameters) -> KeyLimits {
    let (p, most) = (&parameters.memory, KeyLimits::default());
    KeyLimits {
        keys: said(&p.keys, most.keys),
        bytes: said(&p.key_bytes, most.bytes),
    }
}

/// Sets all limits of the ledger.
pub fn apply(server: &ServerState) {
    let p = &server.parameters.memory;
    let ledger = &server.engine.memory;
    let total = said(&p.total, total(server.options.cache()));
    p.in_force.store(total, Relaxed);
    ledger.set_total(total);
    let half = total / 2;
    let stages = said(&p.stages, half);
    let messages = said(&p.messages, half.max(ONE_MESSAGE));
    let store = &server.engine.store;
    store.set_key_limits(key_limits(&server.parameters));
    for account in Account::ALL {
        let limit = match account {
            Account::Stages | Account::Commands => stages,
            Account::Cursors => (stages / 2).max(ONE_DOCUMENT),
            Account::Transactions => said(&p.transactions, half),
            Account::Writes => said(&p.writes, half),
            Account::Streams => said(&p.streams, half / 2),
            Account::Scripts => said(&p.scripts, half),
            Account::Messages | Account::Replies => messages,
            // The number of sessions is limited instead (maxSessions).
            Account::Sessions => usize::MAX,
        };
        ledger.set_limit(*account, limit);
    }
}

/// The section `muniment.memory` of `serverStatus`.
pub fn figures(ledger: &Ledger) -> DocBuf {
    let int = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let one = |f: muniment_op::ledger::Figures| {
        doc! {
            "usedBytes": int(f.used),
            "limitBytes": int(f.limit),
            "peakBytes": int(f.peak),
            "pressed": f.pressed as i64,
            "refused": f.refused as i64,
        }
    };
    let mut d = one(ledger.total());
    let mut accounts = DocBuf::new();
    for account in Account::ALL {
        accounts.append(account.name(), one(ledger.figures(*account)));
    }
    d.append("accounts", accounts);
    d
}

/// The limit of an account that is in force.
pub fn limit(server: &ServerState, account: Account) -> i64 {
    i64::try_from(server.engine.memory.figures(account).limit).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_gives_before_clients_are_refused() {
        const MB: usize = 1 << 20;
        let out = |less: usize| {
            let Reduction { cache, ledger } = shared_out(less * MB, 192 * MB, 80 * MB);
            (cache / MB, ledger / MB)
        };
        assert_eq!(out(0), (0, 0));
        assert_eq!(out(90), (90, 0));
        assert_eq!(out(120), (96, 24));
        assert_eq!(out(160), (96 + 16, 48));
        assert_eq!(out(1000), (192 / 8 * 7, 48));
        assert_eq!(
            shared_out(usize::MAX, 0, LEAST),
            Reduction {
                cache: 0,
                ledger: 0
            }
        );
    }
}
