//! A part of a pool's connections, with the workers that serve them one at a time.

use super::entry::{ENDED, Entry, IDLE, READY, SERVED};
use super::poller::Poller;
use super::worker::{Worker, thread_id};
use super::{Common, SPAN};
use crate::connection::STACK;
use crate::connections::ConnShared;
use crate::serving::{self, IDLE_AFTER, Served, Turn, release_thread};
use muniment_logger::{Seldom, Severity, guarded};
use muniment_op::{Blocks, works_for};
use muniment_value::doc;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Connections that have been ready for so long go to a post that has nothing to do.
pub(super) const BACKLOG: Duration = Duration::from_millis(1);
/// A thread without work ends after so long.
pub(super) const SPARE: Duration = Duration::from_secs(10);
/// A connection is busy if it was served so often in one span.
const BUSY: u32 = 3;
/// A connection keeps its own thread until it has been silent for so long.
const SILENT: Duration = Duration::from_millis(100);
/// A worker handles so many messages of one connection before it looks after the others.
const AT_ONCE: usize = 16;

/// How a connection is served.
enum Way {
    /// By this post.
    Here,
    /// By this post, and then by a thread of its own.
    Alone,
    /// By another post, which has nothing to do.
    To(Arc<Post>),
}

#[derive(Default)]
pub(super) struct State {
    ready: VecDeque<Arc<Entry>>,
    /// Since when the first of them waits.
    since: Option<Instant>,
    /// So many connections are served before the sockets are asked again. Otherwise a client that sends
    /// without a pause would keep its post from all others.
    round: usize,
    /// A worker waits for the sockets.
    polls: bool,
    /// The workers that serve or wait for sockets. One whose operation waits is none of them.
    pub(super) active: usize,
    spare: Vec<Arc<Worker>>,
    pub(super) workers: Vec<Arc<Worker>>,
    pub(super) entries: HashMap<u64, Arc<Entry>>,
    span: u32,
    span_began: Option<Instant>,
    /// The connections that had a message in this span and in the last one, without those that have a thread
    /// of their own.
    distinct: (usize, usize),
    pub(super) ends: bool,
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
    pub(super) fn counts(&mut self, worker: &Worker, counts: bool) -> bool {
        let changes = worker.counts.swap(counts, Relaxed) != counts;
        match (changes, counts) {
            (true, true) => self.active += 1,
            (true, false) => self.active -= 1,
            (false, _) => {}
        }
        changes
    }
}

/// A part of the connections, with the workers that serve them one at a time.
pub(super) struct Post {
    pub(super) common: Arc<Common>,
    poller: Poller,
    pub(super) state: Mutex<State>,
    ended: Condvar,
    /// The connections that were served in the last span, or are served in this one.
    pub(super) active: AtomicUsize,
    /// When a connection was last served, in milliseconds of the clock.
    pub(super) used: AtomicU64,
    /// A worker waits for the sockets, so the post has nothing to do.
    pub(super) waits: AtomicBool,
}

impl Post {
    pub(super) fn start(common: &Arc<Common>) -> io::Result<Arc<Post>> {
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
    pub(super) fn take(&self, shared: &Arc<ConnShared>, served: Box<Served>) -> io::Result<()> {
        self.watches(&Entry::new(shared, served, IDLE, self.common.now_ms()))
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
        let moved = Entry::new(&entry.shared, served, READY, self.common.now_ms());
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
    pub(super) fn end(&self, until: Instant) {
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
            let _ = me.thread.set((thread::current(), thread_id()));
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

    /// Makes another worker active.
    pub(super) fn call(self: &Arc<Post>, state: &mut State) {
        if let Some(worker) = state.spare.pop() {
            state.counts(&worker, true);
            worker.call();
        } else if let Err(e) = self.spawn(state) {
            self.log_threadless(&e, state.workers.len());
        }
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
                    self.serve(me, &entry, matches!(way, Way::Alone));
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
            return Way::Alone;
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
        let turn = self.guarded(entry, &mut served, serve_ready);
        me.serves.store(false, Relaxed);
        entry.last.store(self.common.now_ms(), Relaxed);
        entry.awake.store(true, Relaxed);
        if turn == Turn::Waits && stays {
            *entry.served.lock() = Some(served);
            self.stay(entry);
        } else {
            self.give_back(entry, served, turn);
        }
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

    /// Gives a connection a thread of its own until it is silent or others become active.
    ///
    /// The thread is a new one, which the system starts on the core that has the least to do. A thread that
    /// was woken instead would start beside the one that woke it, and all of them on the same core.
    fn stay(self: &Arc<Post>, entry: &Arc<Entry>) {
        let (post, its) = (Arc::clone(self), Arc::clone(entry));
        let thread = thread::Builder::new().name(format!("conn{}", entry.shared.id));
        self.common.stay.fetch_add(1, Relaxed);
        let spawned = thread.stack_size(STACK).spawn(move || post.stayed(&its));
        let mut state = self.state.lock();
        match spawned {
            Ok(_) => {
                // It is counted among those that have a thread.
                let (now, before) = state.distinct;
                state.distinct = (now.saturating_sub(1), before.saturating_sub(1));
            }
            Err(e) => {
                self.log_threadless(&e, state.workers.len());
                drop(state);
                self.common.stay.fetch_sub(1, Relaxed);
                if let Some(served) = entry.served.lock().take() {
                    self.give_back(entry, served, Turn::Waits);
                }
            }
        }
    }

    /// The life of a connection's own thread.
    fn stayed(self: &Arc<Post>, entry: &Arc<Entry>) {
        let Some(mut served) = entry.served.lock().take() else {
            return;
        };
        let (socket, number) = (&entry.shared.stream, entry.shared.id);
        let recall = self.common.recall.load(Acquire);
        let watched = self.poller.remove(socket).is_ok();
        served.waits(Some(SILENT));
        let mut turn = self.guarded(entry, &mut served, |served| {
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
        entry.last.store(self.common.now_ms(), Relaxed);
        // What has arrived meanwhile is reported.
        if watched && self.poller.add(socket, number).is_err() {
            turn = Turn::Ends;
        }
        self.give_back(entry, served, turn);
        self.nudge();
    }

    /// Has the waiting worker look, if a connection became ready in another thread.
    fn nudge(&self) {
        let state = self.state.lock();
        if !state.ready.is_empty() && state.polls {
            self.poller.wake();
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
    pub(super) fn sweep(self: &Arc<Post>) {
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
            self.nudge();
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
