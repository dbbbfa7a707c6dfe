//! Activities, each of which has a thread. One of them runs at a time: it has the baton until it rests.

use super::bugs::Bug;
use super::worker::{Job, Worker};
use super::world::{MS, What, World};
use crate::replica_set::simulation::random::DAY_MS;
use muniment_op::{Mistake, Simulated, lives_in};
use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Instant;

/// A fibre whose process has ended and that goes on to rest this often will not end by itself.
const MOST_RESTS: u64 = 5_000;

/// Has a thread run a fibre, which begins when it gets the baton. `ended` is called after it.
pub fn give(
    worker: &Arc<Worker>,
    (world, fibre): (&Arc<World>, u64),
    job: Job,
    ended: impl FnOnce() + Send + 'static,
) {
    let here = Arc::new(Here {
        world: Arc::clone(world),
        fibre,
        worker: Arc::clone(worker),
    });
    worker.take(Box::new(move || {
        lives_in(Some(here.clone()));
        HERE.with(|h| *h.borrow_mut() = Some(here));
        let done = catch_unwind(AssertUnwindSafe(job));
        HERE.with(|h| *h.borrow_mut() = None);
        lives_in(None);
        ended();
        if let Err(panic) = done {
            resume_unwind(panic);
        }
    }));
}

thread_local! {
    static HERE: RefCell<Option<Arc<Here>>> = const { RefCell::new(None) };
}

/// The fibre that the calling thread runs, if it runs one.
pub fn here() -> Option<Arc<Here>> {
    HERE.with(|h| h.borrow().clone())
}

/// A fibre as it sees itself.
pub struct Here {
    pub world: Arc<World>,
    pub fibre: u64,
    worker: Arc<Worker>,
}

impl Here {
    /// Rests until a time, unless it is woken.
    pub fn rest(&self, until: Option<u64>) {
        {
            let mut inner = self.world.lock();
            let now = inner.now();
            let gone = inner.is_gone(self.fibre);
            let fibre = inner.fibres.get_mut(&self.fibre).unwrap();
            fibre.rests += 1;
            if gone {
                fibre.dead_rests += 1;
                if fibre.dead_rests > MOST_RESTS && !std::thread::panicking() {
                    drop(inner);
                    let where_it_rests = Backtrace::force_capture();
                    println!("it goes on after the end of its process: {where_it_rests}");
                    resume_unwind(Box::new("it does not end"));
                }
                return;
            }
            let what = What::Resume(self.fibre, fibre.rests);
            if let Some(until) = until {
                inner.at(until.saturating_sub(now), what);
            }
        }
        self.worker.yields();
    }

    /// Rests for so long.
    pub fn sleep(&self, time: u64) {
        let until = self.world.lock().now() + time;
        self.rest(Some(until));
    }

    /// Whether the process that the fibre runs in has ended.
    pub fn is_dead(&self) -> bool {
        self.world.lock().is_dead(self.fibre)
    }
}

/// The simulator's own thread, which never waits for a fibre.
pub struct Scheduler(pub Arc<World>);

impl Simulated for Scheduler {
    fn now(&self) -> Instant {
        self.0.time.instant()
    }

    fn wall_ms(&self) -> i64 {
        DAY_MS + (self.0.time.now() / MS) as i64
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.0.bug == Some(Bug::Made(mistake))
    }

    fn park(&self, _: Option<Instant>) {
        panic!("the simulator waits");
    }
}

impl Simulated for Here {
    fn now(&self) -> Instant {
        self.world.time.instant()
    }

    fn wall_ms(&self) -> i64 {
        DAY_MS + (self.world.time.now() / MS) as i64
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.world.bug == Some(Bug::Made(mistake))
    }

    /// What it waits for is not known, so it looks again and again.
    fn park(&self, until: Option<Instant>) {
        let until = until.map(|at| self.world.time.of_up(at));
        let look = {
            let mut inner = self.world.lock();
            let now = inner.now();
            let fibre = inner.fibres.get_mut(&self.fibre).unwrap();
            let pause = 1000_u64 << fibre.looks.min(6);
            fibre.looks += 1;
            let jitter = inner.random.below(pause);
            now + pause + jitter
        };
        self.rest(Some(until.map_or(look, |until| until.min(look))));
    }
}
