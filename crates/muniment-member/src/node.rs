//! What commands and connections see of the thread that drives the consensus: where to put what
//! reaches it, how far the set is, and waiting for that.
//!
//! A thread that brings something takes the driver's turn itself unless another thread has the driver
//! ([`Node::help`]): waking a thread takes longer than most turns. While few threads wait, a thread that
//! has made a record which other members are to have before the client is answered does the same: see
//! [`Node::keep_back`].
//!
//! Invariant: a waiting thread is woken when what it waits for is there, when the leadership ends, or
//! by its own operation; the driver never waits for any of them.

use super::driver::{Driver, Event, Outcome, Request};
use super::inbox::{Inbox, KeptBack};
use super::initial_sync::SyncProgress;
use super::report::Heard;
use muniment_consensus::{
    Concern, InForce, MemberId, Members, Progress, Refusal, WaiterId, Waiters,
};
use muniment_op::{Interrupt, Lock, Sleep, Teller, question};
use muniment_storage::{Announcer, Store};
use muniment_value::{Code, Error, Result};
use muniment_wire::Stream;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Syncs the log when it is called. It has a thread of its own, so that a record which a majority is to
/// have waits for nothing but the sync.
#[derive(Default)]
pub struct Persister {
    wanted: Mutex<bool>,
    wake: Condvar,
}

impl Persister {
    /// There is something to sync.
    pub fn call(&self) {
        *self.wanted.lock() = true;
        self.wake.notify_one();
    }

    /// Syncs whenever it is called, until the inbox is stopped.
    pub fn run(&self, node: &Node, store: &Store) {
        while !node.inbox.is_stopped() {
            {
                let mut wanted = self.wanted.lock();
                if !*wanted {
                    self.wake.wait(&mut wanted);
                }
            }
            if !self.is_called() {
                continue;
            }
            if !Persister::sync(node, store) {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Whether it was called since it was last asked.
    pub fn is_called(&self) -> bool {
        std::mem::take(&mut *self.wanted.lock())
    }

    /// Syncs the log; false if that failed.
    pub fn sync(node: &Node, store: &Store) -> bool {
        // The log keeps the error for those who wait for it; the driver sees no progress.
        let synced = store.sync().is_ok();
        node.inbox.note_look();
        node.with_driver(Driver::turn_now);
        synced
    }
}

/// How long after a failed sync the next one is tried.
const PAUSE: Duration = Duration::from_millis(200);

/// For so long after a copy has failed its source is not taken again.
const AVOIDED: Duration = Duration::from_secs(60);

/// While more threads than this wait for other members, the driver's thread serves them, since one turn for
/// all of them costs less than a turn in each.
const FEW: usize = 2;

/// How far the set is, and which threads wait for it.
struct Tracked {
    members: Members,
    committed: u64,
    /// This member leads, and takes writes.
    leads: bool,
    waiters: Waiters,
    /// Somebody has begun to wait for what is durable.
    wanted: bool,
    parked: HashMap<WaiterId, Arc<Parked>>,
}

struct Parked {
    thread: Thread,
    end: Mutex<Option<Result<()>>>,
}

impl Parked {
    fn wake(&self, end: Result<()>) {
        *self.end.lock() = Some(end);
        self.thread.unpark();
    }
}

/// A thread's wait for a write to be acknowledged.
pub struct Wait {
    id: WaiterId,
    parked: Arc<Parked>,
}

impl Wait {
    /// How the wait ended; given only once, and `None` before the end.
    pub fn end(&self) -> Option<Result<()>> {
        self.parked.end.lock().take()
    }
}

/// See the module's head.
pub struct Node {
    /// This member.
    pub id: MemberId,
    /// What reaches the driver.
    pub inbox: Inbox,
    /// Has the log synced.
    pub persister: Persister,
    /// The driver while it runs. The thread that holds the lock may take a turn.
    pub driver: Lock<Option<Driver>>,
    /// What was heard of the others.
    pub heard: Mutex<Heard>,
    /// Another member has reported, or the driver has to end.
    pub reported: muniment_op::Event,
    /// Why others cannot be reached.
    pub troubles: Mutex<BTreeMap<MemberId, Error>>,
    /// The last number of a request.
    tokens: AtomicU64,
    tracked: Mutex<Tracked>,
    committed: AtomicU64,
    /// Configurations up to here are in force.
    applied: AtomicU64,
    /// The version of the configuration that is in force.
    config_version: AtomicU64,
    /// The newest configuration that another member has told of, if it is newer than the one in force.
    ahead: Mutex<Option<Arc<InForce>>>,
    /// A check is under way whether this member takes another number: see `driver/renumber.rs`.
    pub(super) renumbering: AtomicBool,
    /// The member's data is being copied.
    syncing: AtomicBool,
    /// How many threads are about to lock what is written: see [`Node::while_still`].
    pub locking: AtomicU32,
    /// See [`Node::is_full`].
    full: AtomicBool,
    /// See [`Node::leads_meanwhile`]; 0: nobody.
    heard_leader: AtomicU64,
    /// See [`Node::leading_term`]; 0: this member does not lead.
    leading: AtomicU64,
    /// How far the set is has changed: what is committed, in force, and led.
    pub moved: muniment_op::Event,
    /// How far the copy is.
    pub progress: Mutex<SyncProgress>,
    /// The connection that the copy comes from.
    source: Mutex<Option<Stream>>,
    /// Members from which a copy has failed, and when.
    avoided: Mutex<BTreeMap<MemberId, Instant>>,
}

impl Node {
    /// A node for the member `id`, before its driver begins.
    pub fn new(id: MemberId, members: Members, committed: u64) -> Node {
        Node {
            id,
            inbox: Inbox::default(),
            persister: Persister::default(),
            driver: Lock::new(None),
            heard: Mutex::default(),
            reported: muniment_op::Event::new(),
            troubles: Mutex::default(),
            committed: AtomicU64::new(committed),
            applied: AtomicU64::new(0),
            config_version: AtomicU64::new(members.in_force().config.version),
            ahead: Mutex::new(None),
            renumbering: AtomicBool::new(false),
            syncing: AtomicBool::new(false),
            locking: AtomicU32::new(0),
            full: AtomicBool::new(false),
            heard_leader: AtomicU64::new(0),
            leading: AtomicU64::new(0),
            moved: muniment_op::Event::new(),
            progress: Mutex::default(),
            source: Mutex::new(None),
            avoided: Mutex::default(),
            tokens: AtomicU64::new(0),
            tracked: Mutex::new(Tracked {
                members,
                committed,
                leads: false,
                waiters: Waiters::new(),
                wanted: false,
                parked: HashMap::new(),
            }),
        }
    }

    /// Takes the driver's turn for what is in the inbox, in the calling thread, which so need not wait for
    /// another one to wake up. If another thread has the driver, that thread does this before it rests.
    pub fn help(&self) {
        while self.inbox.has_news() {
            let Some(mut driver) = self.driver.try_lock() else {
                return;
            };
            match driver.as_mut() {
                Some(driver) if !driver.has_ended() => driver.turn_now(),
                _ => return,
            }
        }
    }

    /// The calling thread is about to make a record, with this announcer, and to wait for others to have
    /// it; it then tells the driver itself ([`Node::wait`]). `None` while many wait: one turn for all of
    /// them costs less.
    ///
    /// The thread must make the record soon, and begin to wait soon after: until then the other members are
    /// not sent it.
    pub fn keep_back<'n>(&'n self, announcer: &'n Announcer) -> Option<KeptBack<'n>> {
        if self.tracked.lock().parked.len() > FEW {
            return None;
        }
        Some(KeptBack::begin(&self.inbox, announcer))
    }

    /// Tells the driver that there may be a record that it does not know yet, or not yet as visible. Where
    /// `kept_back` has one, the calling thread has the driver send it.
    fn tell(&self, kept_back: Option<&KeptBack<'_>>) {
        let own = kept_back.is_some_and(KeptBack::take);
        // What else came could hold the caller up, so that is left to the driver's thread.
        let sends = |driver: &mut Driver| {
            let nothing_else = !self.inbox.has_news();
            if nothing_else {
                driver.turn_for_log();
            }
            nothing_else
        };
        if !own || self.with_driver(sends) != Some(true) {
            self.inbox.look();
        }
    }

    /// Has the calling thread take a turn, if no other thread has the driver. What comes meanwhile is left to
    /// the driver's thread.
    fn with_driver<T>(&self, turn: impl FnOnce(&mut Driver) -> T) -> Option<T> {
        let mut driver = self.driver.try_lock()?;
        let turned = driver.as_mut().filter(|d| !d.has_ended()).map(turn);
        drop(driver);
        // A thread that brought something meanwhile found the driver taken, and left it in the inbox.
        if self.inbox.has_news() {
            self.inbox.wake();
        }
        turned
    }

    /// A copy of another member's data begins; false if one is under way.
    pub fn begin_sync(&self) -> bool {
        self.heard_leader.store(0, SeqCst);
        !self.syncing.swap(true, SeqCst)
    }

    /// While a copy was under way this member was heard to lead.
    pub fn heard_leading(&self, member: MemberId) {
        self.heard_leader.store(member, SeqCst);
    }

    /// The member that was last heard to lead since the copy began.
    pub fn leads_meanwhile(&self) -> Option<MemberId> {
        Some(self.heard_leader.load(SeqCst)).filter(|id| *id != 0)
    }

    /// The member's disk is full, or has room again.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, SeqCst);
    }

    /// The member's disk is full, and has been for some time.
    pub fn is_full(&self) -> bool {
        self.full.load(SeqCst)
    }

    /// A copy is under way: this member takes no part in anything.
    pub fn is_syncing(&self) -> bool {
        self.syncing.load(SeqCst)
    }

    /// The copy comes from this connection. [`Node::stop`] shuts it down, so that the end of the server does
    /// not wait for the copy.
    pub fn syncs_from(&self, source: Stream) {
        *self.source.lock() = Some(source);
        if self.inbox.is_stopped() {
            self.stop();
        }
    }

    /// A copy from this member has failed: for a while another one is to be the source.
    pub fn avoid(&self, source: MemberId) {
        self.avoided.lock().insert(source, Instant::now());
    }

    /// Whether a copy from this member has failed a short time ago.
    pub fn avoids(&self, source: MemberId) -> bool {
        let avoided = self.avoided.lock();
        avoided
            .get(&source)
            .is_some_and(|at| at.elapsed() < AVOIDED)
    }

    /// The copy has ended without success.
    pub fn end_sync(&self) {
        self.source.lock().take();
        self.syncing.store(false, SeqCst);
    }

    /// Ends the threads of this member.
    pub fn stop(&self) {
        self.inbox.stop();
        self.reported.notify_all();
        self.persister.call();
        if let Some(source) = &*self.source.lock() {
            // Shutting down fails if the connection has ended by itself, which is just as well.
            let _ = source.shutdown();
        }
    }

    /// The term in which this member leads, also while it takes no writes; `None` if it does not.
    pub fn leading_term(&self) -> Option<u64> {
        Some(self.leading.load(SeqCst)).filter(|term| *term != 0)
    }

    /// The commit point.
    pub fn committed(&self) -> u64 {
        self.committed.load(SeqCst)
    }

    /// Notes what another member has reported.
    pub fn hear(&self, note: impl FnOnce(&mut Heard)) {
        note(&mut self.heard.lock());
        self.reported.notify_all();
    }

    /// The configuration that is in force at a committed place of the log; `None` if the driver has not come
    /// so far yet, or if the configuration in force now came later.
    pub fn in_force_at(&self, index: u64) -> Option<Arc<InForce>> {
        let t = self.tracked.lock();
        let in_force = t.members.in_force();
        let known = self.applied.load(SeqCst) >= index && in_force.index <= index;
        known.then(|| Arc::clone(in_force))
    }

    /// Another member has told of this configuration.
    pub fn hear_of(&self, in_force: &InForce) {
        let version = in_force.config.version;
        let mut ahead = self.ahead.lock();
        if ahead.as_ref().is_none_or(|a| a.config.version < version) {
            *ahead = Some(Arc::new(in_force.clone()));
        }
    }

    /// The newest configuration that this member knows of. Other members learn from it where this one is.
    pub fn newest(&self) -> Arc<InForce> {
        let mine = Arc::clone(self.members().in_force());
        let newer = |a: &&Arc<InForce>| a.config.version > mine.config.version;
        let ahead = self.ahead.lock();
        ahead.as_ref().filter(newer).map_or(mine, Arc::clone)
    }

    /// The version of the configuration that is in force.
    pub fn config_version(&self) -> u64 {
        self.config_version.load(SeqCst)
    }

    /// The members as this one knows them.
    pub fn members(&self) -> Members {
        self.tracked.lock().members.clone()
    }

    /// Asks the driver for something.
    pub fn ask(&self, request: Request) {
        self.inbox.put(Event::Ask(request));
    }

    /// Asks the driver for something and waits for the answer.
    ///
    /// # Errors
    /// What `interrupt` says while it waits; 91 when the driver has ended.
    pub fn ask_and_wait<T>(
        &self,
        request: impl FnOnce(Teller<T>) -> Request,
        interrupt: &dyn Interrupt,
    ) -> Result<T> {
        let (teller, answer) = question();
        self.ask(request(teller));
        answer
            .wait(interrupt)?
            .ok_or_else(|| Error::new(Code::ShutdownInProgress, "replication is being shut down"))
    }

    /// As [`Node::ask_and_wait`], for a request that bears a number: when nobody waits for it any longer it
    /// is taken back.
    ///
    /// # Errors
    /// As [`Node::ask_and_wait`].
    pub fn ask_or_take_back(
        &self,
        request: impl FnOnce(u64, Outcome) -> Request,
        interrupt: &dyn Interrupt,
    ) -> Result<Result<(), Refusal>> {
        let token = self.token();
        let answer = self.ask_and_wait(|outcome| request(token, outcome), interrupt);
        if answer.is_err() {
            self.ask(Request::TakeBack(token));
        }
        answer
    }

    /// A number for a request.
    pub fn token(&self) -> u64 {
        self.tokens.fetch_add(1, Relaxed) + 1
    }

    /// Waits until the write at this place of the log is acknowledged as `concern` asks; false if
    /// it was not by `until`. The driver is told of the record that `kept_back` has.
    ///
    /// # Errors
    /// 189 PrimarySteppedDown; 79 and 100 when the configuration changes so that it never can be;
    /// what `interrupt` says.
    pub fn wait(
        &self,
        index: u64,
        concern: &Concern,
        until: Option<Instant>,
        kept_back: Option<&KeptBack<'_>>,
        interrupt: &dyn Interrupt,
    ) -> Result<bool> {
        let Some(waiting) = self.begin_wait(index, concern)? else {
            return Ok(true);
        };
        let sleep = Sleep::begin(interrupt);
        // If the driver heard of the write at all, it was when the write came into the log, and not when it
        // became visible.
        self.tell(kept_back);
        let ended = loop {
            if let Some(end) = waiting.end() {
                return end.map(|()| true);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                break Ok(false);
            }
            // While this member leads, a step down that interrupts operations is no reason to give up: the
            // write is made already, and can still be acknowledged.
            let stop = match self.leads() {
                true => interrupt.check_but_for(Code::InterruptedDueToReplStateChange),
                false => interrupt.check(),
            };
            if let Err(e) = stop {
                break Err(e);
            }
            sleep.park(until);
        };
        self.give_up(&waiting);
        // It may have been woken in between.
        match waiting.end() {
            Some(end) => end.map(|()| true),
            None => ended,
        }
    }

    /// Begins to wait as [`Node::wait`] does; `None` if the write is acknowledged already. The calling
    /// thread is woken when the wait ends. It has to tell the driver itself that there may be a new record.
    ///
    /// # Errors
    /// 189 PrimarySteppedDown.
    pub fn begin_wait(&self, index: u64, concern: &Concern) -> Result<Option<Wait>> {
        let parked = Arc::new(Parked {
            thread: std::thread::current(),
            end: Mutex::new(None),
        });
        let id = {
            let mut t = self.tracked.lock();
            let t = &mut *t;
            // This is checked before anything else: a member that leads no more may have another record at
            // this place, and what acknowledges that one says nothing about the write.
            if !t.leads {
                return Err(stepped_down());
            }
            t.wanted |= concern.waits_for_disks();
            let progress = Progress {
                members: &t.members,
                committed: t.committed,
            };
            let Some(id) = t.waiters.wait(index, concern, progress) else {
                return Ok(None);
            };
            t.parked.insert(id, Arc::clone(&parked));
            id
        };
        Ok(Some(Wait { id, parked }))
    }

    /// Ends a wait before there is an answer.
    pub fn give_up(&self, waiting: &Wait) {
        let mut t = self.tracked.lock();
        t.waiters.leave(waiting.id);
        t.parked.remove(&waiting.id);
    }

    /// A thread waits for a write concern that the set cannot satisfy without those members.
    pub fn waits_for(&self, those: impl Fn(MemberId) -> bool) -> bool {
        let t = self.tracked.lock();
        t.waiters.need(&t.members, those)
    }

    /// A thread waits for what is durable at others, or has begun to since this was last asked.
    pub fn take_wanted(&self) -> bool {
        let mut t = self.tracked.lock();
        std::mem::take(&mut t.wanted) || t.waiters.wait_for_disks()
    }

    /// The set is so far now, and this member leads in this term, if it does.
    pub fn publish(&self, members: &Members, committed: u64, applied: u64, leading: Option<u64>) {
        self.leading.store(leading.unwrap_or(0), SeqCst);
        self.committed.store(committed, SeqCst);
        let mut t = self.tracked.lock();
        self.applied.store(applied, SeqCst);
        let version = members.in_force().config.version;
        self.config_version.store(version, SeqCst);
        let t = &mut *t;
        t.committed = committed;
        if Arc::ptr_eq(t.members.in_force(), members.in_force()) {
            t.members.clone_from(members);
        } else {
            t.members = members.clone();
            let progress = Progress {
                members: &t.members,
                committed,
            };
            for (id, e) in t.waiters.hopeless(progress) {
                if let Some(p) = t.parked.remove(&id) {
                    p.wake(Err(e));
                }
            }
        }
        let progress = Progress {
            members: &t.members,
            committed,
        };
        for id in t.waiters.satisfied(progress) {
            if let Some(p) = t.parked.remove(&id) {
                p.wake(Ok(()));
            }
        }
        self.moved.notify_all();
    }

    /// How far the set is, for those that wait until it is further: what is committed, what is in force,
    /// and the term in which this member leads.
    pub fn place(&self) -> (u64, u64, Option<u64>) {
        let applied = self.applied.load(SeqCst);
        (self.committed(), applied, self.leading_term())
    }

    /// How many threads wait until what they wrote is acknowledged.
    pub fn waiting(&self) -> usize {
        self.tracked.lock().parked.len()
    }

    fn leads(&self) -> bool {
        self.tracked.lock().leads
    }

    /// The leadership begins or ends. When it ends, threads that wait for an acknowledgement get 189: whether
    /// their writes last is not known.
    pub fn set_leads(&self, leads: bool) {
        let mut t = self.tracked.lock();
        let t = &mut *t;
        t.leads = leads;
        if leads {
            return;
        }
        for id in t.waiters.drain() {
            if let Some(p) = t.parked.remove(&id) {
                p.wake(Err(stepped_down()));
            }
        }
    }
}

/// 189 PrimarySteppedDown.
fn stepped_down() -> Error {
    Error::new(
        Code::PrimarySteppedDown,
        "Primary stepped down while waiting for replication",
    )
}

#[cfg(test)]
impl Node {
    /// The only member of a set that knows no configuration, for tests.
    pub(crate) fn alone() -> Node {
        let in_force = Arc::new(InForce::default());
        Node::new(1, Members::new(1, Default::default(), in_force), 0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::super::inbox::tests::{make, wakes};
    use super::*;
    use muniment_op::Operation;

    /// A thread that cannot have the driver tells it of its record once, and while many threads wait none
    /// keeps a record back.
    #[test]
    fn the_driver_is_told_of_what_was_kept_back() {
        let node = Node::alone();
        node.inbox.set_eager(true);
        let announcer = Announcer::default();
        let busy = node.driver.lock();
        let kept = node.keep_back(&announcer).unwrap();
        assert!(!wakes(&node.inbox, || make(&node.inbox, &announcer, 1)));
        assert!(wakes(&node.inbox, || node.tell(Some(&kept))));
        assert!(!wakes(&node.inbox, || drop(kept)));
        assert!(wakes(&node.inbox, || node.tell(None)));
        drop(busy);
        node.set_leads(true);
        let concern = Concern {
            w: muniment_consensus::W::Members(2),
            journaled: false,
        };
        let many: Vec<_> = (0..=FEW)
            .map(|_| node.begin_wait(9, &concern).unwrap().unwrap())
            .collect();
        assert!(node.keep_back(&announcer).is_none());
        many.iter().for_each(|w| node.give_up(w));
        assert!(node.keep_back(&announcer).is_some());
    }

    /// Nothing but the kill wakes what waits for other members, for the driver, or for room.
    #[test]
    fn a_kill_ends_each_wait_of_a_member() {
        let node = Node::alone();
        node.set_leads(true);
        let concern = Concern {
            w: muniment_consensus::W::Members(2),
            journaled: false,
        };
        let ends = |what: &str, wait: &(dyn Fn(&Operation) -> Result<()> + Sync)| {
            let op = Operation::new(Instant::now(), None);
            std::thread::scope(|s| {
                let waits = s.spawn(|| (wait(&op).unwrap_err().code(), Instant::now()));
                while !op.is_waiting() {
                    assert!(!waits.is_finished(), "{what} did not wait");
                    std::thread::yield_now();
                }
                let killed = Instant::now();
                op.kill(Code::Interrupted);
                let (code, ended) = waits.join().unwrap();
                println!("{what}: {:?}", ended.saturating_duration_since(killed));
                assert_eq!(code, Code::Interrupted, "{what}");
            });
        };
        ends("write concern", &|op| {
            node.wait(9, &concern, None, None, op).map(drop)
        });
        assert_eq!(node.waiting(), 0);
        // While the member leads this reason to stop is passed over, and it hides no other.
        ends("write concern, after a step down", &|op| {
            op.kill(Code::InterruptedDueToReplStateChange);
            node.wait(9, &concern, None, None, op).map(drop)
        });
        ends("driver's answer", &|op| {
            node.ask_and_wait(Request::StepUp, op).map(drop)
        });
        ends("commit point", &|op| {
            node.moved.wait(op, || node.committed() > 0)
        });
    }
}
