//! The end of the log, read once for all who follow it.
//!
//! The newest entries stand in memory; whoever follows the log takes them from there, and reads the
//! log itself only where it is further behind. One thread waits for commits on behalf of all, and
//! wakes those whom an entry concerns, or whose operation has to end: so a stream that nothing happens
//! to costs nothing. While nobody waits it reads nothing, since who is busy with what came reads what
//! follows when it gets there; when nobody has waited for a while it ends.
//!
//! Invariants: what anybody is told of is *kept*, for an event must not be one that a power cut or an
//! election takes back: it is on the disk, or where there are other members the majority of them has
//! it. An entry that concerns nobody waits for the journal's own flush. Whoever reads an entry into
//! memory sees to it that all whom it concerns are woken.
//!
//! Locks in this order: `reader`, `waiters`, `ring`.

use crate::changes::scope::Scope;
use crate::cursor::TAIL_SLICE;
use crate::operation::OpContext;
use muniment_query::Interrupt;
use muniment_storage::{CommitId, LogEntries, LogEntry, Store, Timestamp, What};
use muniment_value::Result;
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Bytes of entries in memory, about.
const MOST_BYTES: usize = 16 << 20;
/// Entries that are handed out at once, and their bytes, about.
const AT_ONCE: (usize, usize) = (256, 256 << 10);
/// Bytes that are read before those who wait are told: so few that they are in the processor's cache
/// still when events are made of them.
const READ_AT_ONCE: usize = 256 << 10;
/// After the newest entries came, others are given this long to come: not every write is worth waking
/// a thread.
const PAUSE: Duration = Duration::from_micros(500);
/// What concerns nobody is taken for durable after this: the journal was flushed meanwhile, or is now.
const FLUSH: Duration = Duration::from_millis(100);
/// The thread sleeps when nobody has waited for so long: much longer than who answers a client and is
/// asked again takes.
const REST: Duration = Duration::from_millis(10);
/// And it ends when nobody has for so long.
const IDLE: Duration = Duration::from_secs(5);

/// The newest entries of the log.
#[derive(Default)]
pub(crate) struct Feed {
    ring: Mutex<Ring>,
    reader: Mutex<Option<LogEntries>>,
    waiters: Mutex<Waiters>,
    /// Entries that were read from the log.
    count: AtomicU64,
}

#[derive(Default)]
struct Ring {
    /// All entries later than `after`, up to `until`.
    entries: VecDeque<(Arc<LogEntry>, usize)>,
    after: Timestamp,
    until: Timestamp,
    /// The commit that was read last.
    commit: Option<CommitId>,
    /// Up to here they are kept, and may be handed out.
    kept: Timestamp,
    /// Up to here it is known whether they concern who waits.
    looked: Timestamp,
    /// One that is not kept yet does.
    wanted: bool,
    flushed: Option<Instant>,
    bytes: usize,
}

#[derive(Default)]
struct Waiters {
    all: HashMap<u64, Arc<Waiter>>,
    next: u64,
    /// The thread, if it is there.
    pump: Option<Thread>,
}

struct Waiter {
    scope: Scope,
    after: Timestamp,
    op: Arc<OpContext>,
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
    /// Entries later than `after`, for who watches `scope`; what is new in the log is read first.
    ///
    /// # Errors
    /// 301; the disk's.
    pub fn fetch(&self, store: &Store, scope: &Scope, after: Timestamp) -> Result<Fetched> {
        let found = self.ring.lock().fetch(after);
        match found {
            Fetched::Entries(entries, _) if entries.is_empty() => {}
            found => return Ok(found),
        }
        self.read(store, Some(after))?;
        self.settle(store, Some(scope))?;
        Ok(self.ring.lock().fetch(after))
    }

    /// Entries that were read from the log.
    #[cfg(test)]
    pub fn entries_read(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// What is not later than this is to be read from the log.
    pub fn after(&self) -> Timestamp {
        self.ring.lock().after
    }

    /// Reads what is new; true if anything was. `asked`: the place of who asks.
    fn read(&self, store: &Store, asked: Option<Timestamp>) -> Result<bool> {
        let mut reader = self.reader.lock();
        let until = self.ring.lock().until;
        let ahead = |at: Timestamp| at > until;
        if asked.is_none_or(ahead) && self.oldest(asked).is_some_and(ahead) {
            // Whoever needs what lies between is behind, and reads the log itself. A reader that
            // would begin no further than this one is gains nothing.
            if ahead(begins_at(store)?) {
                *reader = None;
            }
        }
        let Some(entries) = reader.as_mut() else {
            let now = begins_at(store)?;
            let begun = match self.oldest(asked).filter(|at| *at < now) {
                Some(at) => read_from(store, at, now)?,
                None => None,
            };
            let (after, begun) = match begun {
                Some(begun) => begun,
                None => (now, Begun::of(store.log_entries(now)?)),
            };
            // What is before it is read from the log itself.
            if store.majority().is_none() {
                store.sync()?;
            }
            self.count.fetch_add(begun.came.len() as u64, Relaxed);
            let any = !begun.came.is_empty();
            let waiters = self.waiters.lock();
            *self.ring.lock() = Ring {
                until: after.max(begun.entries.position()),
                commit: Some(begun.entries.commit()),
                entries: begun.came.into(),
                bytes: begun.bytes,
                after,
                kept: after,
                looked: after,
                ..Ring::default()
            };
            // What lies between their place and this one is not in memory, and would wake nobody.
            let behind = waiters.all.values().filter(|w| w.after < after);
            behind.for_each(|w| w.call());
            drop(waiters);
            *reader = Some(begun.entries);
            return Ok(any);
        };
        if store.majority().is_some() && self.ring.lock().is_full() {
            return Ok(false);
        }
        let mut came = Vec::new();
        let mut bytes = 0;
        loop {
            match entries.next() {
                Ok(Some(entry)) => {
                    let size = size(&entry);
                    bytes += size;
                    came.push((Arc::new(entry), size));
                }
                Ok(None) => break,
                Err(e) => {
                    // Begun anew by the next one; who is behind then reads the log itself.
                    *reader = None;
                    return Err(e);
                }
            }
            if bytes >= READ_AT_ONCE {
                break;
            }
        }
        let (until, commit) = (entries.position(), entries.commit());
        let any = !came.is_empty();
        self.count.fetch_add(came.len() as u64, Relaxed);
        let mut ring = self.ring.lock();
        ring.commit = Some(commit);
        ring.bytes += bytes;
        ring.entries.extend(came);
        ring.until = until.max(ring.until);
        Ok(any)
    }

    /// The oldest place of those who wait, and of who asks.
    fn oldest(&self, asked: Option<Timestamp>) -> Option<Timestamp> {
        let waiters = self.waiters.lock();
        let all = waiters.all.values().map(|w| w.after);
        all.chain(asked).min()
    }

    /// Makes durable what concerns somebody, unless others have to have it, and wakes those whom it
    /// does. `scope`: who asks.
    fn settle(&self, store: &Store, scope: Option<&Scope>) -> Result<()> {
        let majority = store.majority();
        let (until, commit) = {
            let waiters = self.waiters.lock();
            let mut ring = self.ring.lock();
            let flushed = ring.flushed.is_some_and(|at| at.elapsed() < FLUSH);
            let concerns = |e: &LogEntry| {
                let who_asks = scope.is_some_and(|s| s.may_concern(e));
                let waits = |w: &Arc<Waiter>| e.at > w.after && w.scope.may_concern(e);
                who_asks || (e.at > ring.looked && waiters.all.values().any(waits))
            };
            let wanted = ring.wanted
                || majority.is_none() && ring.later(ring.kept).any(|(e, _)| concerns(e));
            ring.looked = ring.until;
            ring.wanted = wanted;
            if ring.until == ring.kept || (majority.is_none() && flushed && !wanted) {
                return Ok(());
            }
            (ring.until, ring.commit)
        };
        let kept = match (majority, commit) {
            (Some(majority), _) => until.min(majority.at),
            (None, Some(commit)) => {
                store.sync_up_to(commit)?;
                until
            }
            (None, None) => until,
        };
        let waiters = self.waiters.lock();
        let mut ring = self.ring.lock();
        let before = ring.kept;
        ring.kept = ring.kept.max(kept);
        ring.wanted = ring.wanted && ring.until > ring.kept;
        ring.flushed = Some(Instant::now());
        for waiter in waiters.all.values().filter(|w| !w.called.load(SeqCst)) {
            let from = before.max(waiter.after);
            let mut told = ring.later(from).take_while(|(e, _)| e.at <= ring.kept);
            if told.any(|(e, _)| waiter.scope.may_concern(e)) {
                waiter.call();
            }
        }
        // What has to stay in memory until it is kept may be more.
        while ring.bytes > MOST_BYTES && ring.entries.len() > 1 {
            let kept = ring.kept;
            let first = ring.entries.front().filter(|(e, _)| e.at <= kept);
            let Some((at, bytes)) = first.map(|(e, bytes)| (e.at, *bytes)) else {
                break;
            };
            ring.entries.pop_front();
            ring.bytes -= bytes;
            ring.after = at;
        }
        Ok(())
    }

    /// Waits until there may be an entry of `scope` later than `after`, or the operation has to end,
    /// at the latest until `until`.
    pub fn wait(
        self: &Arc<Self>,
        store: &Arc<Store>,
        scope: &Scope,
        after: Timestamp,
        op: &Arc<OpContext>,
        until: Instant,
    ) {
        let waiter = Arc::new(Waiter {
            scope: scope.clone(),
            after,
            op: op.clone(),
            called: AtomicBool::new(false),
            lock: Mutex::default(),
            wake: Condvar::new(),
        });
        let mut until = until;
        let (me, missed) = {
            let mut waiters = self.waiters.lock();
            waiters.next += 1;
            let me = waiters.next;
            waiters.all.insert(me, waiter.clone());
            if waiters.pump.is_none() {
                waiters.pump = self.start(store);
            }
            match &waiters.pump {
                Some(pump) => pump.unpark(),
                // Nobody calls: it has to look for itself.
                None => until = until.min(Instant::now() + TAIL_SLICE),
            }
            // What came before it was in the list woke nobody. But whoever learns that the majority
            // has it will.
            let ring = self.ring.lock();
            let until = match store.majority() {
                Some(_) => ring.kept,
                None => ring.until,
            };
            let mut told = ring.later(after).take_while(|(e, _)| e.at <= until);
            let missed = told.any(|(e, _)| scope.may_concern(e));
            (me, missed || ring.after > after)
        };
        if !missed {
            waiter.wait(until);
        }
        self.waiters.lock().all.remove(&me);
    }

    fn waiting(&self) -> Vec<Arc<Waiter>> {
        self.waiters.lock().all.values().cloned().collect()
    }

    /// Calls those whose operations were killed, have no time left or no client any more: one thread
    /// asks for all, since a thread that wakes costs more than the question.
    fn call_ended(&self) {
        let all = self.waiting();
        let ended = all.iter().filter(|w| w.op.check().is_err());
        ended.for_each(|w| w.call());
    }

    /// Starts the thread that waits for commits; `None` if the system has none.
    fn start(self: &Arc<Self>, store: &Arc<Store>) -> Option<Thread> {
        let (feed, store) = (Arc::downgrade(self), Arc::downgrade(store));
        let pump = std::thread::Builder::new()
            .name("changes".to_owned())
            .stack_size(1 << 20)
            .spawn(move || pump(&feed, &store));
        pump.ok().map(|pump| pump.thread().clone())
    }

    /// The thread may end, unless somebody has begun to wait. What comes is not kept for nobody.
    fn ends(&self, store: &Store) -> bool {
        let mut reader = self.reader.lock();
        let mut waiters = self.waiters.lock();
        let ends = waiters.all.is_empty() || store.is_closed();
        if ends {
            *reader = None;
            waiters.pump = None;
        }
        ends
    }
}

/// A reader, and what it has read.
struct Begun {
    entries: LogEntries,
    came: Vec<(Arc<LogEntry>, usize)>,
    bytes: usize,
}

impl Begun {
    fn of(entries: LogEntries) -> Begun {
        Begun {
            entries,
            came: Vec::new(),
            bytes: 0,
        }
    }
}

/// Where a reader begins that nobody who waits is behind of: all before it is kept.
fn begins_at(store: &Store) -> Result<Timestamp> {
    Ok(match store.majority() {
        // What is older than the log is of no use to anybody.
        Some(p) => store.visible().min(p.at).max(store.log_begins_after()?),
        None => store.visible(),
    })
}

/// Reads from a place on to `now`, so that all who are there need not do so each for itself; `None`
/// if that is more than is kept in memory.
fn read_from(store: &Store, at: Timestamp, now: Timestamp) -> Result<Option<(Timestamp, Begun)>> {
    if at < store.log_begins_after()? {
        return Ok(None);
    }
    let mut begun = Begun::of(store.log_entries(at)?);
    while begun.entries.position() < now {
        // Whoever is there reads the log itself, and is told of what is wrong with it.
        let Ok(Some(entry)) = begun.entries.next() else {
            return Ok(None);
        };
        let size = size(&entry);
        begun.bytes += size;
        begun.came.push((Arc::new(entry), size));
        if begun.bytes > MOST_BYTES / 2 {
            return Ok(None);
        }
    }
    Ok(Some((at, begun)))
}

impl Waiter {
    fn wait(&self, until: Instant) {
        let mut guard = self.lock.lock();
        while !self.called.load(SeqCst) {
            if self.wake.wait_until(&mut guard, until).timed_out() {
                break;
            }
        }
    }

    fn call(&self) {
        let _guard = self.lock.lock();
        self.called.store(true, SeqCst);
        self.wake.notify_all();
    }
}

/// However the thread ends, who waits then looks for itself and starts another.
struct End(Weak<Feed>);

impl Drop for End {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(feed) = self.0.upgrade()
        {
            feed.waiters.lock().pump = None;
            feed.waiting().iter().for_each(|w| w.call());
        }
    }
}

/// Waits for commits and wakes who wait for them, until nobody does or the store goes away.
fn pump(feed: &Weak<Feed>, store: &Weak<Store>) {
    let _end = End(feed.clone());
    let mut asked = Instant::now();
    let mut looked = asked;
    loop {
        let (Some(feed), Some(store)) = (feed.upgrade(), store.upgrade()) else {
            return;
        };
        let nobody = feed.waiters.lock().all.is_empty();
        if !nobody {
            asked = Instant::now();
        } else if asked.elapsed() > IDLE || store.is_closed() {
            if feed.ends(&store) {
                return;
            }
        } else if asked.elapsed() > REST {
            // It keeps nothing alive meanwhile. Who comes from here on wakes it.
            drop((feed, store));
            std::thread::park_timeout(IDLE);
            continue;
        }
        let came = feed.read(&store, None);
        let settled = came.and_then(|came| feed.settle(&store, None).map(|()| came));
        match settled {
            Ok(true) if store.visible() <= feed.ring.lock().until => std::thread::sleep(PAUSE),
            Ok(_) => {}
            // Those who wait look for themselves and are told why.
            Err(_) => {
                feed.waiting().iter().for_each(|w| w.call());
                std::thread::sleep(FLUSH);
            }
        }
        if looked.elapsed() >= TAIL_SLICE {
            looked = Instant::now();
            feed.call_ended();
        }
        let (until, kept, full) = {
            let ring = feed.ring.lock();
            let full = store.majority().is_some() && ring.is_full();
            (ring.until, ring.kept, full)
        };
        // What is not on the disk yet is looked at again soon.
        let wait = if until > kept { FLUSH } else { TAIL_SLICE };
        store.wait_until(wait, || {
            let more = !full && store.visible() > until;
            more || until > kept && store.majority().is_some_and(|p| p.at > kept)
        });
    }
}

impl Ring {
    /// The entries later than this.
    fn later(&self, after: Timestamp) -> impl Iterator<Item = &(Arc<LogEntry>, usize)> + Clone {
        let first = self.entries.partition_point(|(e, _)| e.at <= after);
        self.entries.range(first..)
    }

    /// There is no room for more until what is there is kept.
    fn is_full(&self) -> bool {
        let first = self.entries.front();
        self.bytes > 2 * MOST_BYTES && first.is_some_and(|(e, _)| e.at > self.kept)
    }

    fn fetch(&self, after: Timestamp) -> Fetched {
        if after < self.after {
            return Fetched::Behind;
        }
        let (mut all, mut bytes) = (Vec::new(), 0);
        for (entry, size) in self.later(after) {
            if entry.at > self.kept {
                break;
            }
            bytes += size;
            all.push(entry.clone());
            if all.len() == AT_ONCE.0 || bytes >= AT_ONCE.1 {
                return Fetched::Entries(all, entry.at);
            }
        }
        Fetched::Entries(all, self.kept.max(after))
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
