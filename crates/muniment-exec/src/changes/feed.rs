//! The end of the log, read once for all who follow it.
//!
//! The newest entries stand in memory; whoever follows the log takes them from there, and reads the
//! log itself only where it is further behind. One thread waits for commits on behalf of all, and
//! wakes those whom an entry may concern: so a stream that nothing happens to costs nothing. The
//! thread ends when nobody has waited for a while.
//!
//! Invariant: what anybody is told of is on the disk. An event must not be one that a power cut takes
//! back.

use crate::changes::scope::Scope;
use muniment_storage::{LogEntries, LogEntry, Store, Timestamp, What};
use muniment_value::Result;
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Bytes of entries in memory, about.
const MOST_BYTES: usize = 16 << 20;
/// Entries that are handed out at once.
const AT_ONCE: usize = 256;
/// Entries that are read before those who wait are told of them.
const READ_AT_ONCE: usize = 4096;
/// After entries came, others are given this long to come: not every write is worth waking a thread.
const PAUSE: Duration = Duration::from_micros(500);
/// The thread ends when nobody has waited for so long.
const IDLE: Duration = Duration::from_secs(5);

/// The newest entries of the log.
#[derive(Default)]
pub(crate) struct Feed {
    ring: Mutex<Ring>,
    reader: Mutex<Option<LogEntries>>,
    waiters: Mutex<Waiters>,
}

#[derive(Default)]
struct Ring {
    /// All entries later than `after`, up to `until`.
    entries: VecDeque<(Arc<LogEntry>, usize)>,
    after: Timestamp,
    until: Timestamp,
    bytes: usize,
}

#[derive(Default)]
struct Waiters {
    all: HashMap<u64, Arc<Waiter>>,
    next: u64,
    /// The thread is there.
    pumped: bool,
}

struct Waiter {
    scope: Scope,
    called: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

/// What is known of the entries after a place.
pub(crate) enum Fetched {
    /// These, all up to the time.
    Entries(Vec<Arc<LogEntry>>, Timestamp),
    /// The place is further back than what is in memory.
    Behind,
}

impl Feed {
    /// Entries later than `after`; what is new in the log is read first.
    ///
    /// # Errors
    /// 301; the disk's.
    pub fn fetch(&self, store: &Store, after: Timestamp) -> Result<Fetched> {
        let found = self.ring.lock().fetch(after);
        match found {
            Fetched::Entries(entries, _) if entries.is_empty() => {}
            found => return Ok(found),
        }
        self.read(store)?;
        Ok(self.ring.lock().fetch(after))
    }

    /// What is not later than this is to be read from the log.
    pub fn after(&self) -> Timestamp {
        self.ring.lock().after
    }

    /// Reads what is new. The scopes of those who wait are not looked at.
    fn read(&self, store: &Store) -> Result<Vec<Arc<LogEntry>>> {
        let mut reader = self.reader.lock();
        let mut came = Vec::new();
        if reader.is_none() {
            let now = store.visible();
            *reader = Some(store.log_entries(now)?);
            // What is before it is read from the log itself.
            store.sync()?;
            *self.ring.lock() = Ring {
                after: now,
                until: now,
                ..Ring::default()
            };
            return Ok(came);
        }
        let Some(entries) = reader.as_mut() else {
            return Ok(came);
        };
        loop {
            match entries.next() {
                Ok(Some(entry)) => came.push(Arc::new(entry)),
                Ok(None) => break,
                Err(e) => {
                    // Begun anew by the next one; who is behind then reads the log itself.
                    *reader = None;
                    return Err(e);
                }
            }
            if came.len() >= READ_AT_ONCE {
                break;
            }
        }
        let until = entries.position();
        if !came.is_empty() {
            store.sync().inspect_err(|_| *reader = None)?;
        }
        let mut ring = self.ring.lock();
        for entry in &came {
            let bytes = size(entry);
            ring.bytes += bytes;
            ring.entries.push_back((entry.clone(), bytes));
        }
        ring.until = until.max(ring.until);
        while ring.bytes > MOST_BYTES {
            let Some((gone, bytes)) = ring.entries.pop_front() else {
                break;
            };
            ring.bytes -= bytes;
            ring.after = gone.at;
        }
        Ok(came)
    }

    /// Waits until there may be an entry of `scope` later than `after`.
    pub fn wait(
        self: &Arc<Self>,
        store: &Arc<Store>,
        scope: &Scope,
        after: Timestamp,
        timeout: Duration,
    ) {
        let waiter = Arc::new(Waiter {
            scope: scope.clone(),
            called: AtomicBool::new(false),
            lock: Mutex::default(),
            wake: Condvar::new(),
        });
        let me = {
            let mut waiters = self.waiters.lock();
            waiters.next += 1;
            let me = waiters.next;
            waiters.all.insert(me, waiter.clone());
            if !waiters.pumped {
                waiters.pumped = self.start(store);
            }
            me
        };
        // What came before it was in the list woke nobody.
        let missed = {
            let ring = self.ring.lock();
            let first = ring.entries.partition_point(|(e, _)| e.at <= after);
            let mut later = ring.entries.iter().skip(first);
            later.any(|(e, _)| scope.may_concern(e)) || ring.after > after
        };
        if !missed {
            let until = Instant::now() + timeout;
            let mut guard = waiter.lock.lock();
            while !waiter.called.load(SeqCst) {
                if waiter.wake.wait_until(&mut guard, until).timed_out() {
                    break;
                }
            }
        }
        self.waiters.lock().all.remove(&me);
    }

    /// Starts the thread that waits for commits; false if the system has none.
    fn start(self: &Arc<Self>, store: &Arc<Store>) -> bool {
        let (feed, store) = (Arc::downgrade(self), Arc::downgrade(store));
        std::thread::Builder::new()
            .name("changes".to_owned())
            .stack_size(1 << 20)
            .spawn(move || pump(&feed, &store))
            .is_ok()
    }

    /// Tells those whom the entries may concern.
    fn tell(&self, came: &[Arc<LogEntry>]) {
        let waiters = self.waiters.lock();
        for waiter in waiters.all.values() {
            let concerned = || came.iter().any(|e| waiter.scope.may_concern(e));
            if !waiter.called.load(SeqCst) && concerned() {
                let _guard = waiter.lock.lock();
                waiter.called.store(true, SeqCst);
                waiter.wake.notify_all();
            }
        }
    }
}

/// Waits for commits and wakes who wait for them, until nobody does or the store goes away.
fn pump(feed: &Weak<Feed>, store: &Weak<Store>) {
    let mut asked = Instant::now();
    let mut position = Timestamp::ZERO;
    loop {
        let (Some(feed), Some(store)) = (feed.upgrade(), store.upgrade()) else {
            return;
        };
        match feed.read(&store) {
            Ok(came) => {
                feed.tell(&came);
                position = feed.ring.lock().until;
                if !came.is_empty() {
                    std::thread::sleep(PAUSE);
                }
            }
            // Those who wait look again by themselves and are told why.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
        {
            let mut waiters = feed.waiters.lock();
            if !waiters.all.is_empty() {
                asked = Instant::now();
            } else if asked.elapsed() > IDLE || store.is_closed() {
                waiters.pumped = false;
                // What comes meanwhile is not kept for nobody.
                drop(waiters);
                *feed.reader.lock() = None;
                return;
            }
        }
        store.wait_past(position, Duration::from_millis(500));
    }
}

impl Ring {
    fn fetch(&self, after: Timestamp) -> Fetched {
        if after < self.after {
            return Fetched::Behind;
        }
        let first = self.entries.partition_point(|(e, _)| e.at <= after);
        let all: Vec<_> = self
            .entries
            .iter()
            .skip(first)
            .take(AT_ONCE)
            .map(|(e, _)| e.clone())
            .collect();
        let until = match all.last() {
            Some(last) if all.len() == AT_ONCE => last.at,
            _ => self.until.max(after),
        };
        Fetched::Entries(all, until)
    }
}

/// Bytes that an entry keeps in memory, about.
fn size(entry: &LogEntry) -> usize {
    let ops = entry.ops.iter().map(|op| {
        let what = match &op.what {
            What::Insert { doc } | What::Replace { doc } | What::Note { doc } => doc.len(),
            What::Update { id, diff } => id.len() + diff.len(),
            What::Delete { id } => id.len(),
        };
        200 + what + op.before.as_ref().map_or(0, |b| b.len())
    });
    200 + ops.sum::<usize>()
}
