//! Reads the end of the log once for all change streams.
//!
//! The newest entries stay in memory, and streams take them from there. A stream whose place is
//! older than all of these reads the log itself. One thread, the pump, waits for commits on behalf
//! of all streams and wakes those that an entry concerns, so that a stream to which nothing happens
//! costs nothing. While no stream waits, the pump reads nothing: a stream that is busy with earlier
//! entries reads the later ones when it asks again. The pump ends when no stream has waited for a
//! while.
//!
//! Invariants: an entry is handed out only when it is *kept*, because no event may be one that a
//! power cut or an election takes back. It is kept when it is on the disk or, with other members,
//! when the majority has it. An entry that concerns no stream waits for the journal's own flush.
//! The thread that reads an entry into memory makes sure that every stream that it concerns is
//! woken.
//!
//! Order of locks: `reader`, `waiters`, `ring`.

use crate::changes::scope::Scope;
use crate::operation::OpContext;
use muniment_op::{Interrupt, NeverInterrupted, Sleep};
use muniment_storage::{Awaited, CommitId, LogEntries, LogEntry, Store, Timestamp, What};
use muniment_value::Result;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The approximate bytes of entries that are kept in memory.
const MOST_BYTES: usize = 16 << 20;
/// The most entries that are handed out at once, and their approximate bytes.
const AT_ONCE: (usize, usize) = (256, 256 << 10);
/// The bytes that are read before the waiting streams are woken. They are few enough to be still in
/// the processor's cache when the streams make events from them.
const READ_AT_ONCE: usize = 256 << 10;
/// The pump pauses so long when it has read the newest entry. Entries that come meanwhile are
/// announced together, since not every write is worth waking a thread.
const PAUSE: Duration = Duration::from_micros(500);
/// Entries that concern no stream are synced when the last sync is this long ago. Usually the
/// journal's own flush has made them durable by then.
const FLUSH: Duration = Duration::from_millis(100);
/// The pump parks when no stream has waited for so long. That is much longer than a client takes to
/// get its answer and to ask again, so that a busy stream does not have to wake the pump each time.
const REST: Duration = Duration::from_millis(10);
/// The pump ends when no stream has waited for so long.
const IDLE: Duration = Duration::from_secs(5);
/// How often a waiting stream looks for itself if the system could not start the pump.
const ALONE: Duration = Duration::from_millis(200);

/// The newest entries of the log.
#[derive(Default)]
pub(crate) struct Feed {
    ring: Mutex<Ring>,
    reader: Mutex<Option<LogEntries>>,
    waiters: Mutex<Waiters>,
    /// Routers have asked whether something has happened up to here, as a timestamp. It is changed
    /// with `waiters` locked.
    asked: AtomicU64,
    /// The number of entries that were read from the log.
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
    /// Entries up to here are kept and may be handed out.
    kept: Timestamp,
    /// Entries up to here have been compared with what the waiting streams watch.
    looked: Timestamp,
    /// True if an entry that is not kept yet concerns a stream.
    wanted: bool,
    flushed: Option<Instant>,
    bytes: usize,
}

#[derive(Default)]
struct Waiters {
    all: HashMap<u64, Arc<Waiter>>,
    next: u64,
    /// The pump, while it runs.
    pump: Option<Thread>,
}

struct Waiter {
    scope: Scope,
    after: Timestamp,
    /// See [`Waits::told`].
    told: Timestamp,
    thread: Thread,
    called: AtomicBool,
}

/// What a stream waits for.
pub(crate) struct Waits<'w> {
    pub scope: &'w Scope,
    /// Entries up to here are known to the stream.
    pub after: Timestamp,
    /// The router that merges the stream with those of other shards was told of everything up to here.
    /// If it asks for more (see [`Feed::ask`]), the wait ends. The latest time if no router does.
    pub told: Timestamp,
}

#[cfg(test)]
impl<'w> Waits<'w> {
    /// What a stream waits for that no router merges.
    pub(crate) fn alone(scope: &'w Scope, after: Timestamp) -> Waits<'w> {
        Waits {
            scope,
            after,
            told: Timestamp::MAX,
        }
    }
}

/// The entries after a place, as far as memory has them.
pub(crate) enum Fetched {
    /// These entries, which are all entries up to the given time.
    Entries(Vec<Arc<LogEntry>>, Timestamp),
    /// The place is older than what is in memory, so the stream has to read the log itself.
    Behind,
}

impl Feed {
    /// Entries later than `after`, for a stream that watches `scope`. If memory has none, new
    /// entries are read from the log first.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected; the errors of the disk.
    pub(crate) fn fetch(&self, store: &Store, scope: &Scope, after: Timestamp) -> Result<Fetched> {
        let found = self.ring.lock().fetch(after);
        match found {
            Fetched::Entries(entries, _) if entries.is_empty() => {}
            found => return Ok(found),
        }
        self.read(store, Some(after))?;
        self.settle(store, Some(scope))?;
        Ok(self.ring.lock().fetch(after))
    }

    /// The number of entries that were read from the log.
    #[cfg(test)]
    pub(crate) fn entries_read(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Entries up to this time are not in memory. A stream that needs them reads the log itself.
    pub(crate) fn after(&self) -> Timestamp {
        self.ring.lock().after
    }

    /// Reads new entries from the log into memory. Returns true if there were any. `asked` is the
    /// place of the stream that asks, or `None` for the pump.
    fn read(&self, store: &Store, asked: Option<Timestamp>) -> Result<bool> {
        let mut reader = self.reader.lock();
        let until = self.ring.lock().until;
        let ahead = |at: Timestamp| at > until;
        if asked.is_none_or(ahead) && self.oldest(asked).is_some_and(ahead) {
            // Every stream is ahead of the reader. A new reader at the log's end need not read what
            // lies between; a stream that needs that later reads the log itself. But nothing would
            // be gained if the new reader began no later than this one has come.
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
            // Entries up to `after` count as kept, and streams read them from the log themselves.
            // So they have to be on the disk.
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
            // The entries between these streams' places and `after` are not in memory, so nothing
            // would wake the streams for them later. They are woken now and read the log.
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
                    // The next call begins a new reader. A stream whose place is before that reader
                    // reads the log itself.
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

    /// The oldest place among those of the waiting streams and of the stream that asks.
    fn oldest(&self, asked: Option<Timestamp>) -> Option<Timestamp> {
        let waiters = self.waiters.lock();
        let all = waiters.all.values().map(|w| w.after);
        all.chain(asked).min()
    }

    /// Makes the entries that concern a stream durable (with other members, it only looks how much
    /// the majority has), and wakes the waiting streams that kept entries concern. `scope` is what
    /// the asking stream watches, or `None` for the pump.
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
                || ring.kept < self.asked()
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
        // Entries that are not kept yet have to stay in memory, even if that exceeds the limit.
        while ring.bytes > MOST_BYTES {
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

    /// Wakes the streams that a router merges, if they have not come so far: the majority has
    /// everything up to this time.
    pub(crate) fn ask(&self, up_to: Timestamp) {
        let waiters = self.waiters.lock();
        self.asked.fetch_max(up_to.0, SeqCst);
        let late = waiters.all.values();
        let late = late.filter(|w| w.told < up_to);
        late.for_each(|w| w.call());
    }

    /// Routers have asked whether something has happened up to here.
    pub(crate) fn asked(&self) -> Timestamp {
        Timestamp(self.asked.load(SeqCst))
    }

    /// Waits until there may be an entry that the stream waits for, the operation has to end, or the
    /// time is `until`.
    pub(crate) fn wait(
        self: &Arc<Self>,
        store: &Arc<Store>,
        waits: &Waits<'_>,
        op: &Arc<OpContext>,
        until: Instant,
    ) {
        let (scope, after) = (waits.scope, waits.after);
        let sleep = Sleep::begin(&**op);
        let waiter = Arc::new(Waiter {
            scope: scope.clone(),
            after,
            told: waits.told,
            thread: sleep.thread().clone(),
            called: AtomicBool::new(false),
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
                // Without a pump, no thread wakes this one. It returns early and its stream looks
                // again.
                None => until = until.min(Instant::now() + ALONE),
            }
            // Entries that were read before the waiter was in the list did not wake it, so it looks
            // for them here. If a majority has to have them, only kept ones count: the thread that
            // learns that the majority has the others wakes the waiter.
            let ring = self.ring.lock();
            let until = match store.majority() {
                Some(_) => ring.kept,
                None => ring.until,
            };
            let mut told = ring.later(after).take_while(|(e, _)| e.at <= until);
            let missed = told.any(|(e, _)| scope.may_concern(e));
            let asked = self.asked() > waits.told;
            (me, missed || asked || ring.after > after)
        };
        let waits = || !waiter.called.load(SeqCst) && op.check().is_ok();
        while !missed && waits() && Instant::now() < until {
            sleep.park(Some(until));
        }
        self.waiters.lock().all.remove(&me);
    }

    fn waiting(&self) -> Vec<Arc<Waiter>> {
        self.waiters.lock().all.values().cloned().collect()
    }

    /// Starts the pump; `None` if the system cannot start a thread.
    fn start(self: &Arc<Self>, store: &Arc<Store>) -> Option<Thread> {
        let (feed, store) = (Arc::downgrade(self), Arc::downgrade(store));
        let pump = std::thread::Builder::new()
            .name("changes".to_owned())
            .stack_size(1 << 20)
            .spawn(move || pump(&feed, &store));
        pump.ok().map(|pump| pump.thread().clone())
    }

    /// True if the pump may end: no stream is waiting, or the store is closed. The reader is then
    /// dropped too, so that entries that no stream needs are not read into memory.
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

/// A new reader, and the entries that it has read.
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

/// The place at which a reader begins if no waiting stream needs older entries. Everything before
/// it is kept once `read` has synced the store. With other members it is kept already, because the
/// majority has it.
fn begins_at(store: &Store) -> Result<Timestamp> {
    Ok(match store.majority() {
        // No stream can read what the log no longer holds.
        Some(p) => store.visible().min(p.at).max(store.log_begins_after()?),
        None => store.visible(),
    })
}

/// Reads from a place up to `now`, so that the streams there need not each read it for themselves.
/// `None` if the log does not reach back so far or cannot be read, or if that is more than half of
/// what memory may hold.
fn read_from(store: &Store, at: Timestamp, now: Timestamp) -> Result<Option<(Timestamp, Begun)>> {
    if at < store.log_begins_after()? {
        return Ok(None);
    }
    let mut begun = Begun::of(store.log_entries(at)?);
    while begun.entries.position() < now {
        // The streams then read the log themselves, and each reports the error to its client.
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
    fn call(&self) {
        self.called.store(true, SeqCst);
        self.thread.unpark();
    }
}

/// Wakes the waiting streams if the pump panics. Each then looks for itself, and the next one that
/// waits starts another pump.
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

/// The pump's thread: waits for commits and wakes the streams that wait for them, until no stream
/// has waited for [`IDLE`] or the store goes away.
fn pump(feed: &Weak<Feed>, weak_store: &Weak<Store>) {
    let _end = End(feed.clone());
    let mut asked = Instant::now();
    loop {
        let (Some(feed), Some(store)) = (feed.upgrade(), weak_store.upgrade()) else {
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
            // While it is parked, the pump keeps neither the feed nor the store alive. A stream
            // that begins to wait unparks it.
            drop((feed, store));
            std::thread::park_timeout(IDLE);
            continue;
        }
        let came = feed.read(&store, None);
        let settled = came.and_then(|came| feed.settle(&store, None).map(|()| came));
        match settled {
            Ok(true) if store.visible() <= feed.ring.lock().until => std::thread::sleep(PAUSE),
            Ok(_) => {}
            // The waiting streams look for themselves, and each reports the error to its client.
            Err(_) => {
                feed.waiting().iter().for_each(|w| w.call());
                std::thread::sleep(FLUSH);
            }
        }
        let (until, kept, full) = {
            let ring = feed.ring.lock();
            let full = store.majority().is_some() && ring.is_full();
            (ring.until, ring.kept, full)
        };
        // Entries that are not kept yet are checked again soon.
        let end = Instant::now() + if until > kept { FLUSH } else { IDLE };
        let moved = store.moved();
        let past = |time, is_awaited| match is_awaited {
            true => Awaited::past(time),
            false => Timestamp::MAX,
        };
        let awaited = Awaited::Either(past(until, !full), past(kept, until > kept));
        // The pump keeps neither of them alive while it waits.
        drop((feed, store));
        let has_more = || {
            weak_store.upgrade().map_or(Some(()), |store| {
                let more = !full && store.visible() > until;
                let kept = until > kept && store.majority().is_some_and(|p| p.at > kept);
                (more || kept || store.is_closed()).then_some(())
            })
        };
        // It is never interrupted.
        let _ = moved.wait_for_until(awaited, &NeverInterrupted, end, has_more);
    }
}

impl Ring {
    /// The entries later than `after`.
    fn later(&self, after: Timestamp) -> impl Iterator<Item = &(Arc<LogEntry>, usize)> + Clone {
        let first = self.entries.partition_point(|(e, _)| e.at <= after);
        self.entries.range(first..)
    }

    /// True if there is no room for more entries until the oldest ones are kept.
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

/// The approximate bytes that an entry keeps in memory.
fn size(entry: &LogEntry) -> usize {
    let ops = entry.ops.iter().map(|op| {
        let what = match &op.what {
            What::Insert { doc } | What::Replace { doc } | What::Note { doc } => doc.len(),
            What::Update { id, diff } => id.len() + diff.len(),
            What::Delete { id } => id.len(),
        };
        200 + what + op.before.as_ref().map_or(0, |b| b.len())
    });
    200 + entry.weight + ops.sum::<usize>()
}
