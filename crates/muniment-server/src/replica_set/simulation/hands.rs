//! What stands in the place of a member's threads and sockets: it notes what is to be done, and the
//! simulator does it.

use super::bugs::Bugs;
use super::random::Random;
use muniment_consensus::{MemberId, Message};
use muniment_io::SimDisk;
use muniment_member::driver::Driver;
use muniment_member::node::Node;
use muniment_member::peer::{To, Way, Ways, put_behind};
use muniment_member::world::{Job, Mistake, World};
use muniment_member::{Lifecycle, ReplicaSet};
use muniment_storage::Store;
use muniment_value::{DocBuf, Error, Result};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// What waits on a way to another member.
#[derive(Default)]
pub struct Queue {
    pub messages: VecDeque<Message>,
    /// What the driver has not sent yet.
    pub given: VecDeque<Message>,
    pub report: Option<DocBuf>,
    pub connected: bool,
    /// The member wants the way no more.
    pub dropped: bool,
    pub trouble: Option<Error>,
    /// Nobody listens at the other end.
    pub refused: bool,
}

/// A way as the driver has it.
struct SimWay {
    host: String,
    queue: Arc<Mutex<Queue>>,
    fell: Arc<AtomicBool>,
}

impl Way for SimWay {
    fn host(&self) -> &str {
        &self.host
    }

    fn send(&self, message: Message) {
        let mut queue = self.queue.lock();
        // A member whose power has failed sends nothing more, although its code runs on for a while.
        if queue.connected && !self.fell.load(SeqCst) {
            put_behind(&mut queue.given, message);
        }
    }

    fn report(&self, report: DocBuf) {
        let mut queue = self.queue.lock();
        if queue.connected && !self.fell.load(SeqCst) {
            queue.report = Some(report);
        }
    }

    /// The simulator looks at what is there.
    fn flush(&self, _: &Arc<Store>) {
        let mut queue = self.queue.lock();
        let given = std::mem::take(&mut queue.given);
        if !self.fell.load(SeqCst) {
            queue.messages.extend(given);
        }
    }

    /// No member is delayed.
    fn set_delay(&self, _: u32) {}

    /// The simulator's network is never silent for that long without its ways falling.
    fn set_silence(&self, _: Duration) {}

    fn trouble(&self) -> Option<Error> {
        self.queue.lock().trouble.clone()
    }

    fn is_refused(&self) -> bool {
        self.queue.lock().refused
    }

    /// The simulator breaks what leads to a process that ends.
    fn probe(&self) {}
}

impl Drop for SimWay {
    fn drop(&mut self) {
        self.queue.lock().dropped = true;
    }
}

/// A way that was asked for.
pub struct NewWay {
    pub to: MemberId,
    pub greeting: Arc<Mutex<DocBuf>>,
    pub queue: Arc<Mutex<Queue>>,
}

/// What is to be done for a member.
#[derive(Default)]
pub struct Desk {
    pub driver: Option<Driver>,
    pub jobs: Vec<Job>,
    pub ways: Vec<NewWay>,
    /// The member is to be filled: the leader, and the place that the copy has to hold.
    pub fill: Option<(MemberId, u64)>,
}

/// See the module's head. A clone is the same.
#[derive(Clone)]
pub struct Hands {
    pub desk: Arc<Mutex<Desk>>,
    /// The power has failed in the middle of what runs: see `Member::fuse`.
    pub fell: Arc<AtomicBool>,
    pub disk: SimDisk,
    pub bugs: Bugs,
    random: Arc<Mutex<Random>>,
    /// Milliseconds that were waited for room on a full disk.
    pub waited: Arc<AtomicU64>,
    /// It was ended while it waited.
    pub ended: Arc<AtomicBool>,
}

impl Hands {
    pub fn new(disk: SimDisk, fell: Arc<AtomicBool>, bugs: Bugs, seed: u64) -> Hands {
        Hands {
            desk: Arc::default(),
            fell,
            disk,
            bugs,
            random: Arc::new(Mutex::new(Random::new(seed))),
            waited: Arc::default(),
            ended: Arc::default(),
        }
    }
}

impl Ways for Hands {
    fn to(&self, to: To, _: &Arc<Store>) -> Result<Box<dyn Way>> {
        let queue = Arc::<Mutex<Queue>>::default();
        self.desk.lock().ways.push(NewWay {
            to: to.id,
            greeting: to.greeting,
            queue: queue.clone(),
        });
        Ok(Box::new(SimWay {
            host: to.host,
            queue,
            fell: self.fell.clone(),
        }))
    }
}

impl World for Hands {
    fn drive(&self, _: &ReplicaSet, _: &Arc<Node>, driver: Driver) -> Result<()> {
        self.desk.lock().driver = Some(driver);
        Ok(())
    }

    fn fill(
        &self,
        _: &Arc<ReplicaSet>,
        _: &Arc<Node>,
        leader: MemberId,
        at_least: u64,
    ) -> Result<()> {
        self.desk.lock().fill = Some((leader, at_least));
        Ok(())
    }

    fn beside(&self, _: &str, job: Job) -> Result<()> {
        self.desk.lock().jobs.push(job);
        Ok(())
    }

    /// Nothing else can happen meanwhile in one thread: either there is room again at last, or the
    /// process is ended. What it says afterwards comes so much later.
    fn pause(&self, _: &Lifecycle, time: Duration) -> bool {
        let ends = self.fell.load(SeqCst) || self.random.lock().one_in(3);
        if ends {
            self.ended.store(true, SeqCst);
            return true;
        }
        let ms = self.waited.fetch_add(time.as_millis() as u64, SeqCst);
        if ms > 300 || self.random.lock().one_in(3) {
            self.disk.set_capacity(u64::MAX);
        }
        false
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.bugs.make(mistake)
    }
}
