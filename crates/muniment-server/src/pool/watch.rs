//! The thread that watches the workers of a pool.
//!
//! It notices workers that compute or block for long, in whose place another one is called, and has silent
//! connections give their buffers back.

use super::Common;
use super::post::Post;
use super::worker::Worker;
use crate::serving::IDLE_AFTER;
use std::collections::HashMap;
use std::fs;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// A worker that serves one connection for so long is no longer counted on.
pub(super) const LONG: Duration = Duration::from_millis(2);
/// The thread sleeps when nothing was served for so long.
const QUIET: Duration = Duration::from_millis(100);

/// The worker's state when it was last looked at.
#[derive(Default)]
struct Seen {
    turns: u64,
    /// How long the thread had run when its turn was first seen to be long.
    ran: Option<Duration>,
}

/// Watches until the pool ends.
pub(super) fn watch(common: &Common) {
    let mut seen: HashMap<*const Worker, Seen> = HashMap::new();
    let (mut busy, mut swept) = (Instant::now(), Instant::now());
    loop {
        let posts = common.posts.get().map_or(&[][..], Vec::as_slice);
        let posts: Vec<Arc<Post>> = posts.iter().filter_map(Weak::upgrade).collect();
        if posts.is_empty() {
            return;
        }
        let mut workers = 0;
        for post in &posts {
            let mut state = post.state.lock();
            if state.ends {
                return;
            }
            workers += state.workers.len();
            let (any, lost) = look_at(&state.workers, &mut seen);
            if any || !lost.is_empty() {
                busy = Instant::now();
            }
            for worker in &lost {
                state.counts(worker, false);
            }
            // Also when a thread could not be started before.
            if state.active == 0 {
                post.call(&mut state);
            }
        }
        if seen.len() > workers * 2 {
            seen.clear();
        }
        if swept.elapsed() >= IDLE_AFTER {
            swept = Instant::now();
            posts.iter().for_each(|post| post.sweep());
        }
        if busy.elapsed() < QUIET {
            drop(posts);
            thread::sleep(LONG);
            continue;
        }
        common.unwatched.store(true, SeqCst);
        // A worker that has just been told of an arrival may not have seen that yet.
        let rests = posts.iter().all(|post| post.waits.load(SeqCst));
        drop(posts);
        if rests {
            thread::park_timeout(IDLE_AFTER);
        } else {
            thread::sleep(LONG);
        }
        common.unwatched.store(false, SeqCst);
    }
}

/// Whether any worker has begun a turn since the last look, and those that are no longer to be counted on.
fn look_at(
    workers: &[Arc<Worker>],
    seen: &mut HashMap<*const Worker, Seen>,
) -> (bool, Vec<Arc<Worker>>) {
    let (mut any, mut lost) = (false, Vec::new());
    for worker in workers {
        let seen = seen.entry(Arc::as_ptr(worker)).or_default();
        let turns = worker.turns.load(Relaxed);
        if seen.turns != turns {
            *seen = Seen { turns, ran: None };
            any = true;
            continue;
        }
        let serves = worker.serves.load(Relaxed) && worker.counts.load(Relaxed);
        if serves && is_long(worker, seen) {
            lost.push(Arc::clone(worker));
        }
    }
    (any, lost)
}

/// Whether the turn of a worker takes long: its thread blocks, or has computed for long. One that waits for a
/// core is neither.
fn is_long(worker: &Worker, seen: &mut Seen) -> bool {
    let Some(now) = worker.thread.get().and_then(|(_, id)| Running::of(*id)) else {
        return true;
    };
    let first = *seen.ran.get_or_insert(now.ran);
    !now.runs || now.ran.saturating_sub(first) >= LONG
}

/// What the system says of a thread.
struct Running {
    /// It runs, or waits for a core.
    runs: bool,
    /// How long it has run since it began.
    ran: Duration,
}

impl Running {
    fn of(thread: i32) -> Option<Running> {
        let read = |what| fs::read_to_string(format!("/proc/self/task/{thread}/{what}")).ok();
        // The name is in parentheses and may have any characters; the state follows.
        let state = read("stat")?;
        let (_, state) = state.rsplit_once(") ")?;
        let ran = read("schedstat")?;
        let ran = ran.split_whitespace().next()?.parse().ok()?;
        Some(Running {
            runs: state.starts_with('R'),
            ran: Duration::from_nanos(ran),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::Running;
    use crate::pool::worker::thread_id;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    #[test]
    fn the_system_tells_a_thread_that_blocks_from_one_that_computes() {
        let (tell, told) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let blocks = std::thread::spawn(move || {
            tell.send(thread_id()).unwrap();
            ends.recv().unwrap_err();
        });
        let other = told.recv().unwrap();
        while Running::of(other).unwrap().runs {
            std::thread::yield_now();
        }
        let before = Running::of(thread_id()).unwrap();
        assert!(before.runs);
        let began = Instant::now();
        while Running::of(thread_id()).unwrap().ran - before.ran < Duration::from_millis(2) {
            assert!(began.elapsed() < Duration::from_secs(60));
        }
        drop(end);
        blocks.join().unwrap();
        assert!(Running::of(0).is_none());
    }
}
