//! What all fibres share: time, what is to happen, processes, connections.

use super::bugs::Bug;
use super::course::Course;
use super::oracle::Oracle;
use super::worker::{Job, Worker};
use crate::connections::ConnShared;
use crate::replica_set::simulation::random::{Random, Time};
use crate::state::ServerState;
use muniment_value::DocBuf;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A millisecond.
pub const MS: u64 = 1000;

/// What happens.
#[derive(Debug)]
pub enum What {
    /// A fibre goes on, if it still rests for this time.
    Resume(u64, u64),
    /// A request arrives.
    Deliver(u64, Vec<u8>),
    /// A reply arrives.
    Reply(u64, DocBuf),
    /// A connection breaks.
    Break(u64),
    /// A member's driver takes a turn: the member, and its run.
    Turn(usize, u64),
    Due(usize, u64),
    Sync(usize, u64),
    Start(usize),
    Fault,
    Heal,
    Crash(usize, u64),
    /// A member connects to another one of its set.
    Connect(u64),
    /// What waits on a way between members is sent.
    Serve(u64),
    /// A frame arrives.
    Arrive(u64),
}

/// A server: a member of a set, or a router.
pub struct Process {
    pub host: String,
    /// Counts its starts.
    pub run: u64,
    /// `None` while it is not up.
    pub state: Option<Arc<ServerState>>,
    pub conn: Arc<ConnShared>,
    /// Its power has failed in the middle of something.
    pub fell: Arc<AtomicBool>,
}

/// A connection between servers.
pub struct Line {
    pub from: (usize, u64),
    pub to: (usize, u64),
    /// The fibre that uses it.
    pub user: u64,
    pub reply: Option<DocBuf>,
    pub ended: bool,
}

/// A fibre as the scheduler sees it.
pub struct Fibre {
    pub job: Option<Job>,
    pub worker: Option<Arc<Worker>>,
    /// The process that it runs in, and its run.
    pub place: Option<(usize, u64)>,
    /// Counts its rests.
    pub rests: u64,
    pub dead_rests: u64,
    /// How often it has looked for what it waits for.
    pub looks: u32,
    /// It changes where documents live.
    pub moves: bool,
}

/// How rough the network is.
#[derive(Clone, Copy, Default)]
pub struct Rough {
    pub delay: u64,
    /// Of a thousand messages so many are lost, with their connections.
    pub loss: u64,
    /// Of ten moves so many meet with a fault.
    pub aimed: u64,
    /// One in so many replies is lost between a router and its client.
    pub unheard: u64,
}

/// See the module's head.
pub struct World {
    pub time: Arc<Time>,
    /// The mistake that all servers make.
    pub bug: Option<Bug>,
    inner: Mutex<Inner>,
}

pub struct Inner {
    time: Arc<Time>,
    pub random: Random,
    pub queue: BTreeMap<(u64, u64), What>,
    number: u64,
    pub processes: Vec<Process>,
    /// The members of each set.
    pub sets: Vec<Vec<usize>>,
    pub lines: BTreeMap<u64, Line>,
    /// Servers that cannot reach each other; the lower number is first.
    pub cut: BTreeSet<(usize, usize)>,
    pub fibres: BTreeMap<u64, Fibre>,
    pub rough: Rough,
    /// After so many messages of moves something goes wrong.
    pub aim: Option<u64>,
    /// Nothing breaks from here on.
    pub calm: bool,
    /// The run is over: all fibres end.
    pub ends: bool,
    pub failure: Option<String>,
    pub course: Course,
    pub oracle: Oracle,
    pub traced: bool,
}

impl World {
    pub fn new(seed: u64, bug: Option<Bug>) -> Arc<World> {
        let time = Time::new();
        Arc::new(World {
            inner: Mutex::new(Inner {
                time: Arc::clone(&time),
                random: Random::new(seed ^ 0xc1u64 << 40),
                queue: BTreeMap::new(),
                number: 0,
                processes: Vec::new(),
                sets: Vec::new(),
                lines: BTreeMap::new(),
                cut: BTreeSet::new(),
                fibres: BTreeMap::new(),
                rough: Rough::default(),
                aim: None,
                calm: true,
                ends: false,
                failure: None,
                course: Course::default(),
                oracle: Oracle::default(),
                traced: std::env::var_os("MUNIMENT_TRACE").is_some(),
            }),
            time,
            bug,
        })
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, Inner>> {
        self.inner.try_lock()
    }
}

impl Inner {
    /// Microseconds since the begin.
    pub fn now(&self) -> u64 {
        self.time.now()
    }

    /// Something happens after so long.
    pub fn at(&mut self, after: u64, what: What) {
        self.number += 1;
        self.queue.insert((self.now() + after, self.number), what);
    }

    /// A number that nothing else has.
    pub fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// A new fibre begins after so long.
    pub fn spawn(&mut self, place: Option<(usize, u64)>, after: u64, job: Job) -> u64 {
        let number = self.next_number();
        let fibre = Fibre {
            job: Some(job),
            worker: None,
            place,
            rests: 0,
            dead_rests: 0,
            looks: 0,
            moves: false,
        };
        self.fibres.insert(number, fibre);
        self.at(after, What::Resume(number, 0));
        number
    }

    /// Whether a set has several members, so that others may come to lead.
    pub fn has_elections(&self) -> bool {
        self.sets.iter().any(|members| members.len() > 1)
    }

    /// The server that leads a set, as far as the members know, with its term. Of a set with one member it is that one.
    pub fn leader(&self, set: usize) -> Option<(i64, usize)> {
        let up = |number: &usize| Some((*number, self.processes[*number].state.as_ref()?));
        if let [one] = self.sets[set].as_slice() {
            return up(one).map(|(number, _)| (0, number));
        }
        let leaders = self.sets[set].iter().filter_map(|number| {
            let (number, state) = up(number)?;
            let leads = state.is_writable().then_some(state.replica_set.as_ref()?);
            Some((leads?.member().term, number))
        });
        leaders.max()
    }

    /// A fibre that rests goes on at once.
    pub fn wake(&mut self, fibre: u64) {
        if let Some(f) = self.fibres.get_mut(&fibre) {
            f.looks = 0;
            let what = What::Resume(fibre, f.rests);
            self.at(0, what);
        }
    }

    /// Whether a process is up in this run.
    pub fn is_up(&self, (process, run): (usize, u64)) -> bool {
        let p = &self.processes[process];
        p.run == run && p.state.is_some() && !p.fell.load(SeqCst) && !self.ends
    }

    /// Whether the process that a fibre runs in has ended.
    pub fn is_dead(&self, fibre: u64) -> bool {
        let place = self.fibres.get(&fibre).and_then(|f| f.place);
        self.ends || place.is_some_and(|place| !self.is_up(place))
    }

    /// Whether that was noticed, and what ran in it is to end. A process that has just fallen has operations that nobody
    /// has ended yet.
    pub fn is_gone(&self, fibre: u64) -> bool {
        let place = self.fibres.get(&fibre).and_then(|f| f.place);
        let gone = |(process, run): (usize, u64)| {
            let p = &self.processes[process];
            p.run != run || p.state.is_none()
        };
        self.ends || place.is_some_and(gone)
    }

    pub fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cut.contains(&(a.min(b), a.max(b)))
    }

    /// How long a message is under way.
    pub fn delay(&mut self) -> u64 {
        let delay = self.rough.delay.max(100);
        100 + self.random.below(delay)
    }

    /// A message comes to a link that is cut. It is sent again until the link is healed, or its connection breaks.
    pub fn hold_up(&mut self, line: u64, message: What) {
        self.course.held_up += 1;
        let later = (1 + self.random.below(500)) * MS;
        match self.random.one_in(4) {
            true => self.at(later, What::Break(line)),
            false => self.at(later, message),
        }
    }

    pub fn fail(&mut self, why: String) {
        self.failure.get_or_insert(why);
    }

    pub fn trace(&self, what: impl FnOnce() -> String) {
        if self.traced {
            println!("{:9.3} {}", self.now() as f64 / 1000.0, what());
        }
    }

    /// A process ends: its connections break, and its fibres come to their ends.
    pub fn gone(&mut self, process: usize) {
        self.processes[process].state = None;
        let lines: Vec<u64> = (self.lines.iter())
            .filter(|(_, line)| line.to.0 == process || line.from.0 == process)
            .map(|(number, _)| *number)
            .collect();
        for line in lines {
            let soon = self.delay();
            self.at(soon, What::Break(line));
        }
        let fibres: Vec<u64> = (self.fibres.iter())
            .filter(|(_, f)| f.place.is_some_and(|(p, _)| p == process))
            .map(|(number, _)| *number)
            .collect();
        for fibre in fibres {
            self.wake(fibre);
        }
    }
}
