//! A few threads for all connections.
//!
//! The connections are divided among *posts*, one for each core that they may use. At each post one worker at
//! a time waits for the sockets of its connections, takes those for which something has arrived, and serves
//! one after another: it reads without waiting, runs whole messages on the spot and sends each reply. No
//! other thread is woken for that. Another worker takes the post over
//! - when the operation of the worker waits, which [`muniment_op::Blocks`] announces;
//! - when the worker computes or blocks for longer than [`watch::LONG`], which a watching thread notices.
//!
//! The worker that was replaced finishes its command and its reply. So there are as many threads as operations
//! that wait, and a few more. A thread that has nothing to do for [`post::SPARE`] ends. A connection that has
//! been ready for longer than [`post::BACKLOG`] moves to a post that has nothing to do.
//!
//! While no more than [`CROWD`] connections are active, each busy one gets a thread of its own, which waits in
//! its `read`: with few threads, the system's scheduler does as well, and saves the system call that waits for
//! many sockets.
//!
//! A connection is always with one worker or with none ([`entry::Entry::state`]). Invariants: as long as no
//! worker of a post serves, one waits for the sockets; an arrival that is told while a worker has the
//! connection makes that worker look again; the client's end is told once, and then read after the last bytes.
//!
//! Order of locks: `state`, `Entry::served`.

mod entry;
mod poller;
mod post;
mod watch;
mod worker;

use crate::connections::ConnShared;
use crate::options::ServerOptions;
use crate::serving::{self, Served};
use crate::state::ServerState;
use muniment_logger::{Logger, guarded};
use parking_lot::Mutex;
use post::Post;
use std::io;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, Release, SeqCst},
};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Connections that had a message in the same one of these spans are active at the same time.
const SPAN: Duration = Duration::from_millis(SPAN_MS);
const SPAN_MS: u64 = 20;
/// While no more connections are active, each busy one has a thread of its own. With more, they take turns.
const CROWD: usize = 64;

/// The posts.
pub struct Pool {
    posts: Vec<Arc<Post>>,
    watch: Mutex<Option<JoinHandle<()>>>,
}

/// What all posts know.
struct Common {
    began: Instant,
    log: Arc<Logger>,
    /// The connections that have a thread of their own.
    stay: AtomicUsize,
    /// A connection's own thread gives it back when this has changed.
    recall: AtomicU64,
    /// So many connections are active that none has a thread of its own.
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
