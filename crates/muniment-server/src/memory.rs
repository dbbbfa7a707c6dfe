//! The limits of the ledger: what the parameters say, and what they are where these say nothing.

use crate::heap;
use crate::options::{ServerOptions, memory_limit};
use crate::parameters::Parameters;
use crate::state::ServerState;
use muniment_op::{Account, Ledger};
use muniment_value::{DocBuf, KeyLimits, doc};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Resident memory is kept so far below its goal, because it may grow between two looks.
const MARGIN: usize = 64 << 20;
/// The ledger may always give out so much, whatever else is resident: ordinary commands go on.
const LEAST: usize = 32 << 20;
/// Time between two looks at the resident memory while it is more than half of the goal, and else.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_AT_LITTLE: Duration = Duration::from_millis(500);
/// The cache gives memory in steps of one of so many parts of it, and takes it back after so long.
const CACHE_STEPS: usize = 16;
const CACHE_WAIT: Duration = Duration::from_secs(20);

/// The largest document with what is around it: a cursor must be able to hold one.
const ONE_DOCUMENT: usize = 20 << 20;
/// The largest message with what its buffer leaves free.
const ONE_MESSAGE: usize = 64 << 20;

/// What parameters say of the accounts' limits; 0: nothing.
#[derive(Debug, Default)]
pub struct MemoryLimits {
    /// munimentMemoryLimitBytes.
    pub total: AtomicI64,
    /// The limit of all accounts together, as it follows from the parameters.
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
    /// The cache in bytes: as it was given, else a quarter of the memory there is.
    pub fn cache(&self) -> u64 {
        self.cache_bytes
            .unwrap_or_else(|| (memory_limit() / 4).max(64 << 20))
    }
}

/// What all accounts together may hold beside a cache of so many bytes: with what the allocator
/// keeps and the process itself takes, that stays below a quarter of the cache and 100 MB.
fn total(cache: u64) -> usize {
    usize::try_from(cache / 8).map_or(usize::MAX, |eighth| eighth.saturating_add(48 << 20))
}

/// The most that the process is to have in memory with a cache of so many bytes: five quarters of it and
/// 100 MB.
fn goal(cache: u64) -> usize {
    usize::try_from(cache / 4 * 5).map_or(usize::MAX, |bytes| bytes.saturating_add(100_000_000))
}

/// By how many bytes the block cache and the ledger stay below their limits.
#[derive(Debug, PartialEq, Eq)]
struct Reduction {
    cache: usize,
    ledger: usize,
}

/// How `less` bytes altogether are shared out between the two. The block cache gives half of itself, since that costs
/// time alone; then the ledger gives out less, which makes sorts spill and large commands fail; then the
/// cache gives what it has but an eighth.
fn shared_out(less: usize, cache: usize, ledger: usize) -> Reduction {
    let first = less.min(cache / 2);
    let from_ledger = (less - first).min(ledger.saturating_sub(LEAST));
    let last = (less - first - from_ledger).min(cache / 8 * 3);
    Reduction {
        cache: first + last,
        ledger: from_ledger,
    }
}

/// Keeps the resident memory below its goal until the server ends. What is free in the allocator goes
/// back to the system first. What is above the goal after that is held by nobody whom the ledger knows
/// (the allocator's own loss, what memtables take beyond their share, buffers of compactions), so others
/// take less for as long as that lasts.
pub fn keep_to_goal(server: &Arc<ServerState>) {
    let goal = goal(server.options.cache());
    let (ledger, store) = (&server.engine.memory, &server.engine.store);
    let cache = usize::try_from(store.stats().cache_capacity).unwrap_or(usize::MAX);
    let mut less = 0_usize;
    let (mut spared, mut since) = (0_usize, Instant::now());
    let mut pause = LOOK;
    while !server.wait_for_stop_for(pause) {
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
            // Slower than it went down, so that it does not swing.
            None => less - less.min((goal - MARGIN - resident) / 8),
        };
        let total = server.parameters.memory.in_force.load(Relaxed);
        let give = shared_out(less, cache, total);
        less = give.cache + give.ledger;
        if ledger.total().limit != total - give.ledger {
            ledger.set_total(total - give.ledger);
        }
        // In few steps, and back in fewer: each makes the cache's own measures a little less exact.
        let step = (cache / CACHE_STEPS).max(1);
        let steps = give.cache.div_ceil(step);
        if steps > spared || steps < spared && since.elapsed() >= CACHE_WAIT {
            (spared, since) = (steps, Instant::now());
            store.spare_cache((steps * step) as u64);
        }
    }
}

/// What a parameter says, or else what there is without it.
fn said(at: &AtomicI64, else_: usize) -> usize {
    match usize::try_from(at.load(Relaxed)) {
        Ok(bytes) if bytes > 0 => bytes,
        _ => else_,
    }
}

/// How much the keys may be that a document has in one index.
pub fn key_limits(parameters: &Parameters) -> KeyLimits {
    let (p, most) = (&parameters.memory, KeyLimits::default());
    KeyLimits {
        keys: said(&p.keys, most.keys),
        bytes: said(&p.key_bytes, most.bytes),
    }
}

/// Hands all limits to the ledger.
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
            // Their number is what is limited (maxSessions).
            Account::Sessions => usize::MAX,
        };
        ledger.set_limit(*account, limit);
    }
}

/// `serverStatus`'s `muniment.memory`.
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

/// The limit of an account as it is in force.
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
