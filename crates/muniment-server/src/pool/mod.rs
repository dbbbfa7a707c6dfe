//! A few threads for all connections.
//!
//! The connections are divided among *posts*, one for each core that they may use. At each post one worker at
//! a time waits for the sockets of its connections, takes those for which something has arrived, and serves
//! one after another: it reads without waiting, runs whole messages on the spot and sends each reply. No
//! other thread is woken for that. Another worker takes the post over
//! - when the operation of the worker waits, which [`Blocks`] announces;
//! - when the worker computes or blocks for longer than [`watch::LONG`], which a watching thread notices.
//!
//! The worker that was replaced finishes its command and its reply. So there are as many threads as operations
//! that wait, and a few more. A thread that has nothing to do for [`SPARE`] ends. A connection that has been
//! ready for longer than [`BACKLOG`] moves to a post that has nothing to do.
//!
//! While no more than [`CROWD`] connections are active, a worker stays with each busy one and waits in its
//! `read`, as if each had a thread of its own: with few threads, the system's scheduler does as well, and
//! saves the system call that waits for many sockets.
//!
//! A connection is always with one worker or with none ([`Entry::state`]). Invariants: as long as no worker of
//! a post serves, one waits for the sockets; an arrival that is told while a worker has the connection makes
//! that worker look again; the client's end is told once, and then read after the last bytes.
//!
//! Order of locks: `state`, `Entry::served`.

mod poller;
mod watch;

use crate::connection::STACK;
use crate::connections::ConnShared;
use crate::options::ServerOptions;
use crate::serving::{self, IDLE_AFTER, Served, Turn, release_thread};
use crate::state::ServerState;
use muniment_logger::{Logger, Seldom, Severity, guarded};
use muniment_op::{Blocks, works_for};
use muniment_value::doc;
use parking_lot::{Condvar, Mutex, MutexGuard};
use poller::Poller;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Connections that have been ready for so long go to a post that has nothing to do.
const BACKLOG: Duration = Duration::from_millis(1);
/// A thread without work ends after so long.
const SPARE: Duration = Duration::from_secs(10);
/// Connections that had a message in the same one of these spans are active at the same time.
const SPAN: Duration = Duration::from_millis(SPAN_MS);
const SPAN_MS: u64 = 5;
/// A connection is busy if it was served so often in one span.
const BUSY: u32 = 3;
/// While no more connections are active, a worker stays with each busy one. With more, they take turns.
const CROWD: usize = 24;
/// A worker stays with a connection until it has been silent for so long.
const SILENT: Duration = Duration::from_millis(20);
/// A worker handles so many messages of one connection before it looks after the others.
const AT_ONCE: usize = 16;

/// No worker has the connection, and nothing has arrived for it.
const IDLE: u8 = 0;
/// It waits for a worker.
const READY: u8 = 1;
/// A worker has it.
const SERVED: u8 = 2;
/// A worker has it, and more has arrived.
const AGAIN: u8 = 3;
/// It has ended.
const ENDED: u8 = 4;

/// A connection of the pool.
struct Entry {
    shared: Arc<ConnShared>,
    /// Whether a worker has the connection; only that one takes `served`.
    state: AtomicU8,
    served: Mutex<Option<Box<Served>>>,
    /// The client has closed its end, or sent urgent data.
    odd: AtomicBool,
    /// The last span in which it had a message.
    span: AtomicU32,
    /// The connection has not given its buffers back, and when it had its last message, in milliseconds of
    /// the pool's clock.
    awake: AtomicBool,
    last: AtomicU64,
    /// How often it was served in that span.
    times: AtomicU32,
}

/// How a connection is served.
enum Way {
    /// By this post.
    Here,
    /// By a worker that stays with it.
    Stay,
    /// By another post, which has nothing to do.
    To(Arc<Post>),
}

/// A thread of the pool.
#[derive(Default)]
struct Worker {
    /// The thread and the system's number of it, as soon as it runs.
    thread: OnceLock<(Thread, i32)>,
    /// It was called from the spare ones.
    called: AtomicBool,
    /// It counts among the active ones. Changed only under the lock of the post's state.
    counts: AtomicBool,
    /// How often it has begun to serve or to wait for sockets.
    turns: AtomicU64,
    /// It serves a connection.
    serves: AtomicBool,
    /// It waits for the sockets.
    polls: AtomicBool,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Arc<Entry>>,
    /// Since when the first of them waits.
    since: Option<Instant>,
    /// So many connections are served before the sockets are asked again. Otherwise a client that sends
    /// without a pause would keep its post from all others.
    round: usize,
    /// A worker waits for the sockets.
    polls: bool,
    /// The workers that serve or wait for sockets. One whose operation waits is none of them.
    active: usize,
    spare: Vec<Arc<Worker>>,
    workers: Vec<Arc<Worker>>,
    entries: HashMap<u64, Arc<Entry>>,
    span: u32,
    span_began: Option<Instant>,
    /// The connections that had a message in this span and in the last one, without those with which a worker
    /// stays.
    distinct: (usize, usize),
    ends: bool,
}

impl State {
    /// The next connection to serve, unless the sockets have to be asked first.
    fn next(&mut self) -> Option<Arc<Entry>> {
        if self.round == 0 && !self.polls {
            return None;
        }
        self.round = self.round.saturating_sub(1);
        self.ready.pop_front()
    }

    /// Counts a worker among the active ones, or no longer. Returns whether that is a change.
    fn counts(&mut self, worker: &Worker, counts: bool) -> bool {
        let changes = worker.counts.swap(counts, Relaxed) != counts;
        match (changes, counts) {
            (true, true) => self.active += 1,
            (true, false) => self.active -= 1,
            (false, _) => {}
        }
        changes
    }
}

/// The posts.
pub struct Pool {
    posts: Vec<Arc<Post>>,
    watch: Mutex<Option<JoinHandle<()>>>,
}

/// What all posts know.
struct Common {
    began: Instant,
    log: Arc<Logger>,
    /// The workers that stay with one connection.
    stay: AtomicUsize,
    /// Workers that stay with a connection give it back when this has changed.
    recall: AtomicU64,
    /// So many connections are active that no worker stays with one.
    crowded: AtomicBool,
    posts: OnceLock<Vec<Weak<Post>>>,
    watch: OnceLock<Thread>,
    /// The watching thread sleeps.
    unwatched: AtomicBool,
}

impl Common {
    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Wakes the watching thread, if it sleeps. To be called after [`Post::waits`] was changed, at which that
    /// thread looks once more before it sleeps.
    fn watch(&self) {
        if self.unwatched.load(SeqCst)
            && let Some(watch) = self.watch.get()
        {
            watch.unpark();
        }
    }

    /// About how many connections are active.
    fn active(&self) -> usize {
        let now = self.now_ms();
        let of = |post: Arc<Post>| match now.saturating_sub(post.used.load(Relaxed)) > 2 * SPAN_MS {
            true => 0,
            false => post.active.load(Relaxed),
        };
        let posts = self.posts.get().map_or(&[][..], Vec::as_slice);
        let active: usize = posts.iter().filter_map(Weak::upgrade).map(of).sum();
        active + self.stay.load(Relaxed)
    }

    /// Looks how many connections are active. Returns whether a worker may stay with one.
    fn look(&self) -> bool {
        let active = self.active();
        let crowded = self.crowded.load(Relaxed);
        // Fewer have to be active before workers stay again, so that this does not change all the time.
        let now = active > if crowded { CROWD / 2 } else { CROWD };
        if now && !crowded {
            self.recall.fetch_add(1, Release);
        }
        if now != crowded {
            self.crowded.store(now, Relaxed);
        }
        !now
    }
}

/// A part of the connections, with the workers that serve them one at a time.
struct Post {
    common: Arc<Common>,
    poller: Poller,
    state: Mutex<State>,
    ended: Condvar,
    /// The connections that were served in the last span, or are served in this one.
    active: AtomicUsize,
    /// When a connection was last served, in milliseconds of the clock.
    used: AtomicU64,
    /// A worker waits for the sockets, so the post has nothing to do.
    waits: AtomicBool,
}

impl Pool {
    /// The pool that the options ask for, if any.
    ///
    /// # Errors
    /// Those of [`Pool::start`].
    pub fn for_options(
        options: &ServerOptions,
        log: &Arc<Logger>,
    ) -> io::Result<Option<Arc<Pool>>> {
        match options.workers {
            0 => Ok(None),
            workers => Ok(Some(Arc::new(Pool::start(workers, log)?))),
        }
    }

    /// Starts a pool in which so many workers compute at a time.
    ///
    /// # Errors
    /// No file descriptor or no thread is left.
    fn start(workers: usize, log: &Arc<Logger>) -> io::Result<Pool> {
        let common = Arc::new(Common {
            began: Instant::now(),
            log: Arc::clone(log),
            stay: AtomicUsize::new(0),
            recall: AtomicU64::new(0),
            crowded: AtomicBool::new(false),
            posts: OnceLock::new(),
            watch: OnceLock::new(),
            unwatched: AtomicBool::new(false),
        });
        let mut pool = Pool {
            posts: Vec::new(),
            watch: Mutex::default(),
        };
        let begun = pool.begin(workers, common);
        if begun.is_err() {
            pool.end(Instant::now());
        }
        begun.map(|()| pool)
    }

    fn begin(&mut self, workers: usize, common: Arc<Common>) -> io::Result<()> {
        for _ in 0..workers.max(1) {
            self.posts.push(Post::start(&common)?);
        }
        let _ = common
            .posts
            .set(self.posts.iter().map(Arc::downgrade).collect());
        let watches = Arc::clone(&common);
        let watch = thread::Builder::new().name("pool-watch".into());
        let watch = watch.spawn(move || {
            while let Err(caught) = guarded(|| watch::watch(&watches)) {
                serving::log_panic_of(&watches.log, "pool-watch", &caught);
            }
        })?;
        let _ = common.watch.set(watch.thread().clone());
        *self.watch.lock() = Some(watch);
        Ok(())
    }

    /// Takes a connection that was just accepted.
    ///
    /// # Errors
    /// The socket's; the kernel's limit of watched sockets.
    pub fn take(&self, server: &Arc<ServerState>, shared: &Arc<ConnShared>) -> io::Result<()> {
        let served = Served::new(server, Arc::clone(shared), false)?;
        let least = self
            .posts
            .iter()
            .min_by_key(|p| p.state.lock().entries.len());
        match least {
            Some(post) => post.take(shared, Box::new(served)),
            None => Ok(()),
        }
    }

    /// Ends all threads, after all connections have ended; waits for them until `until`.
    pub fn end(&self, until: Instant) {
        self.posts.iter().for_each(|post| post.end(until));
        if let Some(watch) = self.watch.lock().take() {
            // It looks whether the posts have ended as soon as it is awake.
            watch.thread().unpark();
            let _ = watch.join();
        }
    }
}

impl Post {
    fn start(common: &Arc<Common>) -> io::Result<Arc<Post>> {
        let post = Arc::new(Post {
            common: Arc::clone(common),
            poller: Poller::new()?,
            state: Mutex::default(),
            ended: Condvar::new(),
            active: AtomicUsize::new(0),
            used: AtomicU64::new(0),
            waits: AtomicBool::new(false),
        });
        post.spawn(&mut post.state.lock())?;
        Ok(post)
    }

    /// Takes a connection.
    fn take(&self, shared: &Arc<ConnShared>, served: Box<Served>) -> io::Result<()> {
        self.watches(&self.entry(shared, served, IDLE))
    }

    fn entry(&self, shared: &Arc<ConnShared>, served: Box<Served>, state: u8) -> Arc<Entry> {
        Arc::new(Entry {
            shared: Arc::clone(shared),
            state: AtomicU8::new(state),
            served: Mutex::new(Some(served)),
            odd: AtomicBool::new(false),
            span: AtomicU32::new(0),
            awake: AtomicBool::new(true),
            last: AtomicU64::new(self.common.now_ms()),
            times: AtomicU32::new(0),
        })
    }

    /// Waits for the socket of a connection from now on.
    fn watches(&self, entry: &Arc<Entry>) -> io::Result<()> {
        let shared = &entry.shared;
        let mine = Arc::clone(entry);
        self.state.lock().entries.insert(shared.id, mine);
        let added = self.poller.add(&shared.stream, shared.id);
        if added.is_err() {
            self.state.lock().entries.remove(&shared.id);
        }
        added
    }

    /// Gives a connection for which something has arrived to a post that has nothing to do. Returns false if
    /// that cannot take it.
    fn move_to(&self, other: &Post, entry: &Arc<Entry>) -> bool {
        let Some(served) = entry.served.lock().take() else {
            return true;
        };
        // Nobody serves it until it is among those that are ready: a message may be in its buffer already.
        let moved = other.entry(&entry.shared, served, READY);
        if other.watches(&moved).is_err() {
            *entry.served.lock() = moved.served.lock().take();
            return false;
        }
        let _ = self.poller.remove(&entry.shared.stream);
        self.state.lock().entries.remove(&entry.shared.id);
        other.state.lock().ready.push_back(moved);
        other.poller.wake();
        true
    }

    /// Another post that has nothing to do.
    fn idle_one(&self) -> Option<Arc<Post>> {
        let posts = self.common.posts.get()?.iter().filter_map(Weak::upgrade);
        posts
            .into_iter()
            .find(|p| p.waits.load(Relaxed) && !std::ptr::eq(&**p, self))
    }

    /// Ends all threads.
    fn end(&self, until: Instant) {
        let mut state = self.state.lock();
        state.ends = true;
        for worker in std::mem::take(&mut state.spare) {
            worker.call();
        }
        self.poller.wake();
        while !state.workers.is_empty() {
            if self.ended.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }

    /// Starts a worker, which counts as active at once.
    fn spawn(self: &Arc<Post>, state: &mut State) -> io::Result<()> {
        let (pool, worker) = (Arc::clone(self), Arc::new(Worker::default()));
        let me = Arc::clone(&worker);
        let thread = thread::Builder::new().name("worker".into());
        thread.stack_size(STACK).spawn(move || {
            let _ = me.thread.set((thread::current(), watch::thread_id()));
            // A bug in the pool must not leave a post at which no worker waits.
            while let Err(caught) = guarded(|| pool.work(&me)) {
                serving::log_panic_of(&pool.common.log, "worker", &caught);
                if me.polls.swap(false, Relaxed) {
                    pool.state.lock().polls = false;
                }
            }
        })?;
        state.counts(&worker, true);
        state.workers.push(worker);
        Ok(())
    }

    /// Makes another worker active. Returns false if the system has no thread.
    fn call(self: &Arc<Post>, state: &mut State) -> bool {
        if let Some(worker) = state.spare.pop() {
            state.counts(&worker, true);
            worker.call();
            return true;
        }
        let spawned = self.spawn(state);
        if let Err(e) = &spawned {
            self.log_threadless(e, state.workers.len());
        }
        spawned.is_ok()
    }

    /// Logs that no worker could be started, seldom if that happens often.
    fn log_threadless(&self, e: &io::Error, workers: usize) {
        static THREADLESS: Seldom = Seldom::new();
        if let Some(times) = THREADLESS.note() {
            let attr = doc! {
                "error": e.to_string(), "threads": workers as i64, "times": times as i64,
            };
            let msg = "Could not start a thread; connections wait for those that there are";
            self.common.log.log(
                Severity::Error,
                "NETWORK",
                7_340_026,
                "worker",
                msg,
                Some(&attr),
            );
        }
    }

    /// The life of a worker.
    fn work(self: &Arc<Post>, me: &Arc<Worker>) {
        works_for(Arc::new(Place {
            post: Arc::clone(self),
            worker: Arc::clone(me),
        }));
        loop {
            let mut state = self.state.lock();
            // The operation may have waited, or the watching thread no longer counted on this worker.
            state.counts(me, true);
            if state.ends && state.entries.is_empty() {
                break;
            }
            if let Some(entry) = state.next() {
                let way = self.look_around(&mut state, &entry);
                // Under the lock, under which arrivals are told: one that comes later is told to this worker.
                entry.state.store(SERVED, Release);
                drop(state);
                let goes = match &way {
                    Way::To(other) => self.move_to(other, &entry),
                    _ => false,
                };
                if !goes {
                    me.turns.fetch_add(1, Relaxed);
                    self.serve(me, &entry, matches!(way, Way::Stay));
                }
            } else if !state.polls {
                state.polls = true;
                me.polls.store(true, Relaxed);
                let patient = state.ready.is_empty();
                drop(state);
                self.poll(me, patient);
            } else if !self.rest(state, me) {
                return;
            }
        }
        self.leave(&mut self.state.lock(), me);
    }

    fn leave(&self, state: &mut State, me: &Arc<Worker>) {
        state.counts(me, false);
        state.workers.retain(|w| !Arc::ptr_eq(w, me));
        self.ended.notify_all();
    }

    /// Notes that a connection is to be served, and decides how.
    fn look_around(&self, state: &mut State, entry: &Entry) -> Way {
        let now = Instant::now();
        if state.span_began.is_none_or(|began| now - began > SPAN) {
            let long_ago = state.span_began.is_none_or(|began| now - began > SPAN * 2);
            state.distinct = (0, if long_ago { 0 } else { state.distinct.0 });
            state.span_began = Some(now);
            state.span = state.span.wrapping_add(1);
            self.used.store(self.common.now_ms(), Relaxed);
        }
        let is_new = entry.span.swap(state.span, Relaxed) != state.span;
        let before = if is_new { 0 } else { entry.times.load(Relaxed) };
        let times = before + 1;
        entry.times.store(times, Relaxed);
        if is_new {
            state.distinct.0 += 1;
            let active = state.distinct.0.max(state.distinct.1);
            self.active.store(active, Relaxed);
            // Others may have to make room.
            if self.common.stay.load(Relaxed) > 0 {
                self.common.look();
            }
        }
        if times >= BUSY && times % BUSY == 0 && self.common.look() {
            return Way::Stay;
        }
        match state.ready.is_empty() {
            true => state.since = None,
            false if now - *state.since.get_or_insert(now) > BACKLOG => {
                if let Some(other) = self.idle_one() {
                    state.since = None;
                    return Way::To(other);
                }
            }
            false => {}
        }
        Way::Here
    }

    /// Takes the connections for which something has arrived. If the worker is patient, it waits for that.
    fn poll(self: &Arc<Post>, me: &Worker, patient: bool) {
        let mut came: Vec<(u64, bool)> = Vec::new();
        let mut note = |number, odd| came.push((number, odd));
        if !patient {
            self.poller.wait(0, &mut note);
        } else {
            self.waits.store(true, SeqCst);
            if self.poller.wait(IDLE_AFTER.as_millis() as i32, &mut note) == 0 {
                release_thread();
                self.poller.wait(-1, &mut note);
            }
            self.waits.store(false, SeqCst);
            self.common.watch();
        }
        let mut state = self.state.lock();
        state.polls = false;
        me.polls.store(false, Relaxed);
        for (number, odd) in came {
            let Some(entry) = state.entries.get(&number).map(Arc::clone) else {
                continue;
            };
            if odd {
                entry.odd.store(true, Relaxed);
            }
            if entry.arrives() {
                state.ready.push_back(entry);
            }
        }
        state.round = state.ready.len();
    }

    /// Lets a worker sleep until it is called. Returns false if it ends instead.
    fn rest(&self, mut state: MutexGuard<'_, State>, me: &Arc<Worker>) -> bool {
        state.counts(me, false);
        state.spare.push(Arc::clone(me));
        drop(state);
        let began = Instant::now();
        thread::park_timeout(IDLE_AFTER);
        if !me.called.load(Acquire) {
            release_thread();
        }
        loop {
            if me.called.swap(false, AcqRel) {
                return true;
            }
            thread::park_timeout(SPARE);
            if began.elapsed() >= SPARE && !me.called.load(Acquire) {
                let mut state = self.state.lock();
                let spare = state.spare.len();
                state.spare.retain(|w| !Arc::ptr_eq(w, me));
                // Otherwise it has just been called.
                if state.spare.len() < spare {
                    self.leave(&mut state, me);
                    return false;
                }
            }
        }
    }

    /// Serves a connection for which something has arrived.
    fn serve(self: &Arc<Post>, me: &Worker, entry: &Arc<Entry>, stays: bool) {
        let Some(mut served) = entry.served.lock().take() else {
            return;
        };
        me.serves.store(true, Relaxed);
        served.is_ready(entry.odd.load(Relaxed));
        let mut turn = self.guarded(entry, &mut served, serve_ready);
        if turn == Turn::Waits && stays {
            turn = self.stay(me, entry, &mut served);
        }
        me.serves.store(false, Relaxed);
        entry.last.store(self.common.now_ms(), Relaxed);
        entry.awake.store(true, Relaxed);
        self.give_back(entry, served, turn);
    }

    /// Puts a connection back, for the next worker or until more arrives.
    fn give_back(self: &Arc<Post>, entry: &Arc<Entry>, served: Box<Served>, turn: Turn) {
        if turn == Turn::Ends {
            entry.state.store(ENDED, Relaxed);
            {
                let mut state = self.state.lock();
                state.entries.remove(&entry.shared.id);
                if state.ends {
                    self.poller.wake();
                }
            }
            let server = Arc::clone(served.server());
            if let Err(caught) = guarded(|| drop(served)) {
                serving::log_panic(&server, entry.shared.id, &caught);
            }
            serving::closed(&server, &entry.shared);
            return;
        }
        *entry.served.lock() = Some(served);
        let waits = turn == Turn::Waits
            && entry
                .state
                .compare_exchange(SERVED, IDLE, AcqRel, Acquire)
                .is_ok();
        if !waits {
            entry.state.store(READY, Release);
            self.state.lock().ready.push_back(Arc::clone(entry));
        }
    }

    /// Stays with a connection, as if it had a thread of its own, until it is silent or others become active.
    fn stay(self: &Arc<Post>, me: &Worker, entry: &Entry, served: &mut Served) -> Turn {
        let (socket, number) = (&entry.shared.stream, entry.shared.id);
        let recall = self.common.recall.load(Acquire);
        {
            let mut state = self.state.lock();
            state.counts(me, false);
            if state.active == 0 && !self.call(&mut state) {
                state.counts(me, true);
                return Turn::Waits;
            }
            // It is counted among those that stay.
            let (now, before) = state.distinct;
            state.distinct = (now.saturating_sub(1), before.saturating_sub(1));
        }
        let watched = self.poller.remove(socket).is_ok();
        self.common.stay.fetch_add(1, Relaxed);
        served.waits(Some(SILENT));
        let turn = self.guarded(entry, served, |served| {
            loop {
                match served.turn() {
                    Turn::Goes if self.common.recall.load(Acquire) == recall => {}
                    // Anything that is left in the connection's buffer is handled before it waits.
                    turn => return turn,
                }
            }
        });
        served.waits(None);
        self.common.stay.fetch_sub(1, Relaxed);
        self.state.lock().counts(me, true);
        // What has arrived meanwhile is reported.
        match watched.then(|| self.poller.add(socket, number)) {
            Some(Err(_)) => Turn::Ends,
            _ => turn,
        }
    }

    /// Runs something with a connection. A panic in it ends this connection and nothing else.
    fn guarded(
        &self,
        entry: &Entry,
        served: &mut Served,
        run: impl FnOnce(&mut Served) -> Turn,
    ) -> Turn {
        match guarded(|| run(served)) {
            Ok(turn) => turn,
            Err(caught) => {
                serving::log_panic(served.server(), entry.shared.id, &caught);
                Turn::Ends
            }
        }
    }

    /// Has silent connections give their buffers back, and ends those whose message takes too long to arrive.
    fn sweep(self: &Arc<Post>) {
        let awake: Vec<Arc<Entry>> = {
            let state = self.state.lock();
            let all = state.entries.values();
            all.filter(|e| e.awake.load(Relaxed)).cloned().collect()
        };
        let now = self.common.now_ms();
        for entry in &awake {
            let silent = now.saturating_sub(entry.last.load(Relaxed));
            let long = Duration::from_millis(silent) >= IDLE_AFTER;
            let free = long
                && entry
                    .state
                    .compare_exchange(IDLE, SERVED, AcqRel, Acquire)
                    .is_ok();
            let Some(mut served) = free.then(|| entry.served.lock().take()).flatten() else {
                continue;
            };
            let turn = self.guarded(entry, &mut served, Served::falls_silent);
            entry.awake.store(!served.is_idle(), Relaxed);
            let ends = turn == Turn::Ends;
            self.give_back(entry, served, if ends { turn } else { Turn::Waits });
            let state = self.state.lock();
            if !state.ready.is_empty() && state.polls {
                self.poller.wake();
            }
        }
    }
}

/// Handles the messages that have arrived, up to some.
fn serve_ready(served: &mut Served) -> Turn {
    for _ in 0..AT_ONCE {
        match served.turn() {
            Turn::Goes => {}
            turn => return turn,
        }
    }
    Turn::Goes
}

impl Entry {
    /// Something has arrived. Returns whether the connection has to be given to a worker.
    fn arrives(&self) -> bool {
        let change = |state| match state {
            IDLE => Some(READY),
            SERVED => Some(AGAIN),
            _ => None,
        };
        self.state.fetch_update(AcqRel, Acquire, change) == Ok(IDLE)
    }
}

impl Worker {
    fn call(&self) {
        self.called.store(true, Release);
        // A worker that sleeps has entered its thread.
        if let Some((thread, _)) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// A worker's place in its pool.
struct Place {
    post: Arc<Post>,
    worker: Arc<Worker>,
}

impl Blocks for Place {
    fn begins(&self) {
        let worker = &self.worker;
        let mut state = self.post.state.lock();
        if state.counts(worker, false) && state.active == 0 {
            self.post.call(&mut state);
        }
    }

    fn ends(&self) {
        // It counts again when it has served the connection. Until then another worker may be active.
    }
}
