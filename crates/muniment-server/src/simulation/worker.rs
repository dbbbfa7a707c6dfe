//! The threads of fibres. One of them runs at a time: it has the baton until it gives it back.

use parking_lot::{Condvar, Mutex};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

/// What a fibre does.
pub type Job = Box<dyn FnOnce() + Send>;

/// The stack of a fibre, as that of a connection.
const STACK: usize = 16 << 20;

/// A thread that runs one fibre after the other.
pub struct Worker {
    slot: Mutex<Slot>,
    changed: Condvar,
}

#[derive(Default)]
struct Slot {
    /// The fibre has the baton.
    runs: bool,
    job: Option<Job>,
    quits: bool,
    panicked: bool,
}

impl Worker {
    /// Starts the thread.
    pub fn start() -> (Arc<Worker>, JoinHandle<()>) {
        let worker = Arc::new(Worker {
            slot: Mutex::default(),
            changed: Condvar::new(),
        });
        let own = Arc::clone(&worker);
        let thread = std::thread::Builder::new().stack_size(STACK);
        let thread = thread.spawn(move || own.serve()).unwrap();
        (worker, thread)
    }

    fn serve(self: Arc<Worker>) {
        loop {
            let mut slot = self.slot.lock();
            while !slot.runs {
                self.changed.wait(&mut slot);
            }
            if slot.quits {
                return;
            }
            let job = slot.job.take();
            drop(slot);
            if let Some(job) = job {
                let panicked = catch_unwind(AssertUnwindSafe(job)).is_err();
                self.slot.lock().panicked = panicked;
            }
            let mut slot = self.slot.lock();
            slot.runs = false;
            self.changed.notify_all();
        }
    }

    /// Gives a job to the thread, which is idle.
    pub fn take(&self, job: Job) {
        self.slot.lock().job = Some(job);
    }

    /// Lets the thread run until its fibre rests or ends. True if it has panicked.
    pub fn run(&self) -> bool {
        let mut slot = self.slot.lock();
        slot.runs = true;
        self.changed.notify_all();
        while slot.runs {
            self.changed.wait(&mut slot);
        }
        std::mem::take(&mut slot.panicked)
    }

    /// Ends the idle thread.
    pub fn quit(&self) {
        let mut slot = self.slot.lock();
        (slot.runs, slot.quits) = (true, true);
        self.changed.notify_all();
    }

    /// Gives the baton back, and waits for it.
    pub fn yields(&self) {
        let mut slot = self.slot.lock();
        slot.runs = false;
        self.changed.notify_all();
        while !slot.runs {
            self.changed.wait(&mut slot);
        }
    }
}
