//! What commands and connections see of the thread that drives the consensus: where to put what
//! reaches it, how far the set is, and waiting for that.
//!
//! Whoever brings something takes the driver's turn itself where nobody else has it ([`Node::help`]):
//! waking a thread takes longer than most turns. So does who has made a record that others are to
//! have before it is answered, when few are at it: see [`Node::keep_back`].
//!
//! Invariant: whoever waits is woken when what it waits for is there, when the leadership ends, or
//! by its own operation; the driver never waits for any of them.

use super::driver::{Driver, Event, Request};
use super::frame::Record;
use super::initial_sync::SyncProgress;
use super::report::{Heard, Report};
use muniment_query::Interrupt;
use muniment_repl::{
    Concern, InForce, MemberId, Members, Message, Progress, Refusal, WaiterId, Waiters,
};
use muniment_storage::Store;
use muniment_value::{Code, Error, Result};
use muniment_wire::Stream;
use parking_lot::{Condvar, Mutex};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::mpsc::SyncSender;
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Syncs the log when it is called, in a thread of its own: what a majority is to have waits for
/// nothing else.
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
                    self.wake.wait_for(&mut wanted, PAUSE);
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
        node.inbox.look.store(true, SeqCst);
        node.with_driver(Driver::turn_now);
        synced
    }
}

/// Where the answer to a request goes.
pub type Outcome = SyncSender<Result<(), Refusal>>;

/// How often who syncs looks whether it has to end.
const PAUSE: Duration = Duration::from_millis(200);
/// How often who waits asks its operation whether it may go on.
const LOOK: Duration = Duration::from_millis(20);

/// So many bytes of records may wait for the driver: other members' connections are not read beyond.
const MOST: usize = 64 << 20;

/// Where more wait for others than so many, the driver's thread serves them better, all at once.
const FEW: usize = 2;

/// Whether the calling thread is going to tell the driver of its record itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Own {
    No,
    /// It is, of the next one.
    Next,
    /// It is, of one that is made: of others after it the driver is told at once.
    Made,
}

thread_local! {
    static OWN: Cell<Own> = const { Cell::new(Own::No) };
}

/// While it lives the driver is not woken for the next record that the calling thread makes: that is
/// told at the latest when it goes.
pub struct KeptBack<'n> {
    node: &'n Node,
}

impl Drop for KeptBack<'_> {
    fn drop(&mut self) {
        if OWN.replace(Own::No) == Own::Made {
            self.node.inbox.look();
        }
    }
}

/// What reaches the driver.
#[derive(Default)]
pub struct Inbox {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    /// The driver took what was there.
    room: Condvar,
    /// The driver waits, or is about to.
    asleep: AtomicBool,
    /// The place of the newest record that the door made.
    appended: AtomicU64,
    /// Somebody is to be told of each record at once.
    eager: AtomicBool,
    /// The log is durable, or visible, further than the driver knows.
    look: AtomicBool,
    /// The driver's thread rests for longer than it may.
    sooner: AtomicBool,
    stop: AtomicBool,
}

/// What waits for the driver.
#[derive(Default)]
struct Waiting {
    events: Vec<Event>,
    /// The bytes of its records.
    bytes: usize,
}

impl Inbox {
    /// Puts something into it.
    pub fn put(&self, event: Event) {
        self.waiting.lock().events.push(event);
        self.wake.notify_one();
    }

    /// Puts a message of another member into it, when there is room for its records or nothing else
    /// is there, or the server `stops`. The driver is not woken: see [`Node::help`].
    pub fn put_message(&self, message: Message, records: Vec<Record>, stops: impl Fn() -> bool) {
        let bytes = records.iter().map(|r| r.payload.len()).sum::<usize>();
        let mut waiting = self.waiting.lock();
        let full = |w: &Waiting| w.bytes > 0 && w.bytes + bytes > MOST;
        while full(&waiting) && !self.is_stopped() && !stops() {
            self.room.wait_for(&mut waiting, PAUSE);
        }
        waiting.bytes += bytes;
        waiting.events.push(Event::Received(message, records));
    }

    /// Puts another member's word on itself into it, as [`Inbox::put_message`].
    pub fn put_report(&self, report: Report) {
        self.waiting.lock().events.push(Event::Report(report));
    }

    /// Wakes the driver.
    pub fn wake(&self) {
        self.call();
    }

    /// Somebody has put something into it that nobody has taken.
    pub fn has_news(&self) -> bool {
        self.look.load(SeqCst) || !self.waiting.lock().events.is_empty()
    }

    /// The door made a record. Called while it is held, so it costs next to nothing.
    pub fn appended(&self, index: u64) {
        self.appended.store(index, SeqCst);
        if OWN.get() == Own::Next {
            OWN.set(Own::Made);
            return;
        }
        if self.eager.load(Relaxed) && self.asleep.load(SeqCst) {
            self.call();
        }
    }

    /// The door made a record that the driver does not know.
    pub fn has_more(&self, told: u64) -> bool {
        self.eager.load(Relaxed) && self.appended.load(SeqCst) > told
    }

    /// The log became durable, or what is in it visible.
    pub fn look(&self) {
        self.look.store(true, SeqCst);
        self.call();
    }

    /// The driver's thread is to see again how long it may rest. Whatever turns others take, this stays
    /// until it has ([`Inbox::rests`]).
    pub fn sooner(&self) {
        self.sooner.store(true, SeqCst);
        self.call();
    }

    /// The driver's thread sees how long it may rest. Called by who has the driver, as
    /// [`Inbox::sooner`].
    pub fn rests(&self) {
        self.sooner.store(false, SeqCst);
    }

    /// The driver's thread has been called by [`Inbox::sooner`].
    pub fn is_called_sooner(&self) -> bool {
        self.sooner.load(SeqCst)
    }

    /// The driver ends.
    pub fn stop(&self) {
        self.stop.store(true, SeqCst);
        self.call();
        self.room.notify_all();
    }

    /// True once it has to.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(SeqCst)
    }

    /// Whether the driver wants to hear of each record at once: where there are other members.
    pub fn set_eager(&self, eager: bool) {
        self.eager.store(eager, SeqCst);
    }

    fn call(&self) {
        drop(self.waiting.lock());
        self.wake.notify_one();
    }

    /// Waits until something came, or until `until`. `told`: the place of the newest record that the
    /// driver knows.
    pub fn wait(&self, told: u64, until: Instant) {
        let mut waiting = self.waiting.lock();
        loop {
            self.asleep.store(true, SeqCst);
            let new = self.eager.load(Relaxed) && self.appended.load(SeqCst) > told;
            let called = [&self.look, &self.sooner, &self.stop];
            let called = called.iter().any(|flag| flag.load(SeqCst));
            if new || called || !waiting.events.is_empty() || Instant::now() >= until {
                self.asleep.store(false, SeqCst);
                return;
            }
            self.wake.wait_until(&mut waiting, until);
        }
    }

    /// What came. Who has the driver takes it, so that it stays in order.
    pub fn take(&self) -> Vec<Event> {
        self.look.store(false, SeqCst);
        let came = std::mem::take(&mut *self.waiting.lock()).events;
        self.room.notify_all();
        came
    }
}

/// How far the set is, and who waits for it.
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

/// Somebody waits for a write to be acknowledged.
pub struct Wait {
    id: WaiterId,
    parked: Arc<Parked>,
}

impl Wait {
    /// What came of it, once.
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
    /// The driver while it runs. Who has it may take a turn.
    pub driver: Mutex<Option<Driver>>,
    /// What was heard of the others.
    pub heard: Mutex<Heard>,
    /// Why others cannot be reached.
    pub troubles: Mutex<BTreeMap<MemberId, Error>>,
    tracked: Mutex<Tracked>,
    committed: AtomicU64,
    /// Configurations up to here are in force.
    applied: AtomicU64,
    /// The member's data is being copied.
    syncing: AtomicBool,
    /// See [`Node::leads_meanwhile`]; 0: nobody.
    heard_leader: AtomicU64,
    /// See [`Node::leading_term`]; 0: it does not.
    leading: AtomicU64,
    /// How far the copy is.
    pub progress: Mutex<SyncProgress>,
    /// Where from.
    source: Mutex<Option<Stream>>,
}

impl Node {
    /// For the member `id`, before its driver begins.
    pub fn new(id: MemberId, members: Members, committed: u64) -> Node {
        Node {
            id,
            inbox: Inbox::default(),
            persister: Persister::default(),
            driver: Mutex::new(None),
            heard: Mutex::default(),
            troubles: Mutex::default(),
            committed: AtomicU64::new(committed),
            applied: AtomicU64::new(0),
            syncing: AtomicBool::new(false),
            heard_leader: AtomicU64::new(0),
            leading: AtomicU64::new(0),
            progress: Mutex::default(),
            source: Mutex::new(None),
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

    /// Takes the driver's turn for what is in the inbox, in the calling thread, which need not wait for
    /// another one to wake up. Where somebody has the driver, that one does this, too, before it rests.
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

    /// The calling thread is about to make a record and to wait for others to have it; it then tells the
    /// driver itself ([`Node::wait`]). `None` where many wait: one turn for all of them costs less.
    ///
    /// What it makes must follow soon, and not be followed by much that it does before it waits.
    pub fn keep_back(&self) -> Option<KeptBack<'_>> {
        if self.tracked.lock().parked.len() > FEW {
            return None;
        }
        OWN.set(Own::Next);
        Some(KeptBack { node: self })
    }

    /// Tells the driver that there may be a record that it does not know, or not as visible yet.
    fn tell(&self) {
        let own = OWN.get() == Own::Made;
        if own {
            OWN.set(Own::Next);
        }
        // What else came might hold the caller up: it is the driver's thread's.
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

    /// Has the calling thread take a turn, if nobody has the driver; what comes after it is the driver's
    /// thread's.
    fn with_driver<T>(&self, turn: impl FnOnce(&mut Driver) -> T) -> Option<T> {
        let mut driver = self.driver.try_lock()?;
        let turned = driver.as_mut().filter(|d| !d.has_ended()).map(turn);
        drop(driver);
        // Who came meanwhile found the driver taken.
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

    /// Who was heard to lead last since the copy began.
    pub fn leads_meanwhile(&self) -> Option<MemberId> {
        Some(self.heard_leader.load(SeqCst)).filter(|id| *id != 0)
    }

    /// One is under way: this member takes no part in anything.
    pub fn is_syncing(&self) -> bool {
        self.syncing.load(SeqCst)
    }

    /// The copy comes from there: who ends does not wait for it.
    pub fn syncs_from(&self, source: Stream) {
        *self.source.lock() = Some(source);
        if self.inbox.is_stopped() {
            self.stop();
        }
    }

    /// It came to nothing.
    pub fn end_sync(&self) {
        self.source.lock().take();
        self.syncing.store(false, SeqCst);
    }

    /// Ends the threads of this member.
    pub fn stop(&self) {
        self.inbox.stop();
        self.persister.call();
        if let Some(source) = &*self.source.lock() {
            // It may have ended by itself.
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

    /// The configuration that is in force at a place of the log that is committed; `None` where the
    /// driver has not come so far yet, or is further.
    pub fn in_force_at(&self, index: u64) -> Option<Arc<InForce>> {
        let t = self.tracked.lock();
        let in_force = t.members.in_force();
        let known = self.applied.load(SeqCst) >= index && in_force.index <= index;
        known.then(|| Arc::clone(in_force))
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
        request: impl FnOnce(SyncSender<T>) -> Request,
        interrupt: &dyn Interrupt,
    ) -> Result<T> {
        let (to, from) = std::sync::mpsc::sync_channel(1);
        self.ask(request(to));
        loop {
            match from.recv_timeout(LOOK) {
                Ok(answer) => return Ok(answer),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => interrupt.check()?,
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(Error::new(
                        Code::ShutdownInProgress,
                        "replication is being shut down",
                    ));
                }
            }
        }
    }

    /// Waits until the write at this place of the log is acknowledged as `concern` asks; false if
    /// it was not by `until`.
    ///
    /// # Errors
    /// 189 PrimarySteppedDown; 79 and 100 when the configuration changes so that it never can be;
    /// what `interrupt` says.
    pub fn wait(
        &self,
        index: u64,
        concern: &Concern,
        until: Option<Instant>,
        interrupt: &dyn Interrupt,
    ) -> Result<bool> {
        let Some(waiting) = self.begin_wait(index, concern)? else {
            return Ok(true);
        };
        // The driver heard of the write when it was in the log, if at all, and not yet when it was
        // visible.
        self.tell();
        let ended = loop {
            if let Some(end) = waiting.end() {
                return end.map(|()| true);
            }
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                break Ok(false);
            }
            if let Err(e) = interrupt.check() {
                break Err(e);
            }
            let left = until.map_or(LOOK, |until| until - now);
            std::thread::park_timeout(left.min(LOOK));
        };
        self.give_up(&waiting);
        // It may have been woken in between.
        match waiting.end() {
            Some(end) => end.map(|()| true),
            None => ended,
        }
    }

    /// Begins to wait as [`Node::wait`] does; `None` if the write is acknowledged already. The calling
    /// thread is woken when there is an end. It has to see to it that the driver looks.
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
            // Before anything else: who leads no more may have another record at this place.
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

    /// Waits no more.
    pub fn give_up(&self, waiting: &Wait) {
        let mut t = self.tracked.lock();
        t.waiters.leave(waiting.id);
        t.parked.remove(&waiting.id);
    }

    /// Somebody waits for what the set cannot give without those members.
    pub fn waits_for(&self, those: impl Fn(MemberId) -> bool) -> bool {
        let t = self.tracked.lock();
        t.waiters.need(&t.members, those)
    }

    /// Somebody waits for what is durable at others, or has begun to since this was last asked.
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
    }

    /// The leadership begins or ends; who waits then is told that it does not know.
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

/// 189.
fn stepped_down() -> Error {
    Error::new(
        Code::PrimarySteppedDown,
        "Primary stepped down while waiting for replication",
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use bytes::Bytes;
    use muniment_repl::Body;

    fn put(inbox: &Inbox, bytes: &Bytes) {
        let message = Message {
            from: 1,
            to: 2,
            term: 1,
            body: Body::Append {
                index: 0,
                log_term: 0,
                commit: 0,
                entries: Vec::new(),
            },
        };
        let record = Record {
            index: 1,
            term: 1,
            at: Default::default(),
            payload: bytes.clone(),
        };
        inbox.put_message(message, vec![record], || false);
    }

    /// What is sent faster than it is stored waits in the sender, but for one message, however long.
    #[test]
    fn records_wait_for_room() {
        let inbox = Inbox::default();
        let (half, all) = (
            Bytes::from(vec![0; MOST / 2]),
            Bytes::from(vec![0; MOST * 2]),
        );
        put(&inbox, &all);
        assert_eq!(inbox.take().len(), 1);
        put(&inbox, &half);
        put(&inbox, &half);
        std::thread::scope(|s| {
            let third = s.spawn(|| put(&inbox, &half));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!third.is_finished());
            assert_eq!(inbox.take().len(), 2);
            third.join().unwrap();
            assert_eq!(inbox.take().len(), 1);
            // Who ends waits for nobody.
            put(&inbox, &all);
            let last = s.spawn(|| put(&inbox, &half));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!last.is_finished());
            inbox.stop();
            last.join().unwrap();
        });
    }

    /// What happens to a driver that rests: whether it hears of it.
    fn wakes(node: &Node, what: impl FnOnce()) -> bool {
        let told = node.inbox.appended.load(SeqCst);
        node.inbox.take();
        std::thread::scope(|s| {
            let driver = s.spawn(|| {
                let until = Instant::now() + Duration::from_secs(60);
                node.inbox.wait(told, until);
            });
            while !node.inbox.asleep.load(SeqCst) || node.inbox.waiting.is_locked() {
                std::thread::yield_now();
            }
            what();
            let patience = Instant::now() + Duration::from_millis(100);
            while !driver.is_finished() && Instant::now() < patience {
                std::thread::yield_now();
            }
            let woken = driver.is_finished();
            node.inbox.look();
            woken
        })
    }

    /// Others take turns, too, and what they take must not be what the driver's thread is called by.
    #[test]
    fn who_rests_too_long_is_called_whatever_others_take() {
        let members = Members::new(1, muniment_repl::Position::default(), Arc::default());
        let node = Node::new(1, members, 0);
        assert!(wakes(&node, || {
            node.inbox.sooner();
            node.inbox.take();
        }));
        node.inbox.take();
        let began = Instant::now();
        node.inbox.wait(0, began + Duration::from_secs(60));
        assert!(began.elapsed() < Duration::from_secs(60));
        node.inbox.rests();
        assert!(!wakes(&node, || ()));
    }

    /// The driver hears of a record that is kept back when its command is over, and of any other at
    /// once.
    #[test]
    fn one_record_is_kept_back_until_its_command_is_over() {
        let in_force = Arc::new(InForce::default());
        let members = Members::new(1, muniment_repl::Position::default(), in_force);
        let node = Node::new(1, members, 0);
        node.inbox.set_eager(true);
        assert!(wakes(&node, || node.inbox.appended(1)));
        let kept = node.keep_back().unwrap();
        assert!(!wakes(&node, || node.inbox.appended(2)));
        assert!(wakes(&node, || node.inbox.appended(3)));
        assert!(wakes(&node, || drop(kept)));
        // Nothing was made.
        let kept = node.keep_back().unwrap();
        assert!(!wakes(&node, || drop(kept)));
        // Somebody has the driver.
        let busy = node.driver.lock();
        let kept = node.keep_back().unwrap();
        assert!(!wakes(&node, || node.inbox.appended(4)));
        assert!(wakes(&node, || node.tell()));
        assert!(!wakes(&node, || drop(kept)));
        drop(busy);
        node.set_leads(true);
        let concern = Concern {
            w: muniment_repl::W::Members(2),
            journaled: false,
        };
        let many: Vec<_> = (0..=FEW)
            .map(|_| node.begin_wait(9, &concern).unwrap().unwrap())
            .collect();
        assert!(node.keep_back().is_none());
        many.iter().for_each(|w| node.give_up(w));
        assert!(node.keep_back().is_some());
    }
}
