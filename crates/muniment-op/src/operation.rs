//! The reasons to end an operation: its deadline, a kill, the loss of its client.

use crate::client::Client;
use crate::interrupt::{Interrupt, stopped};
use crate::sleepers::Sleepers;
use muniment_value::{Code, Error, Result};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicI32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

/// An operation continues for this long after its beginning although its client has gone: what is short is
/// finished, and answered if the client has closed only its sending direction.
pub const GRACE: Duration = Duration::from_millis(10);

/// The only reason to stop that an operation may pass over. It does so while it waits until other members
/// have its writes, as long as this member leads.
const PASSED_OVER: Code = Code::InterruptedDueToReplStateChange;

/// One running operation: the reasons for which it has to end.
pub struct Operation {
    started: Instant,
    /// Microseconds after `started` when `maxTimeMS` runs out; `u64::MAX`: never.
    deadline: AtomicU64,
    killed: AtomicI32,
    client: Option<Arc<Client>>,
    /// The operation of which this one is a part.
    whole: Option<Arc<dyn Interrupt>>,
    sleepers: Sleepers,
}

impl Operation {
    /// An operation that began at `started`, with an optional limit on its duration.
    pub fn new(started: Instant, limit: Option<Duration>) -> Operation {
        Operation {
            started,
            deadline: AtomicU64::new(limit.map_or(u64::MAX, micros)),
            killed: AtomicI32::new(0),
            client: None,
            whole: None,
            sleepers: Sleepers::new(),
        }
    }

    /// Makes the operation end when this client has gone.
    #[must_use]
    pub fn of_client(self, client: Option<Arc<Client>>) -> Operation {
        Operation { client, ..self }
    }

    /// Makes the operation end when `whole` has to.
    #[must_use]
    pub fn part_of(self, whole: Option<Arc<dyn Interrupt>>) -> Operation {
        Operation { whole, ..self }
    }

    /// When the operation began.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// When `maxTimeMS` runs out.
    pub fn deadline(&self) -> Option<Instant> {
        match self.deadline.load(Relaxed) {
            u64::MAX => None,
            us => self.started.checked_add(Duration::from_micros(us)),
        }
    }

    /// Sets a new limit, from now on. A thread that already waits for the operation still uses the former
    /// one.
    pub fn limit(&self, left: Duration) {
        let until = crate::since(self.started).saturating_add(left);
        self.deadline.store(micros(until), Relaxed);
    }

    /// Asks the operation to stop: the next [`Interrupt::check`] fails with `code` (11601 Interrupted for
    /// killOp, 237 CursorKilled for killCursors on a pinned cursor, …), and its waits end. A later reason
    /// replaces only 11602, which the operation may pass over. Returns false if the code was not set.
    pub fn kill(&self, code: Code) -> bool {
        let replaces = |now| now == 0 || now == PASSED_OVER.0 && code != PASSED_OVER;
        let set = |now| replaces(now).then_some(code.0);
        let is_first = self.killed.fetch_update(SeqCst, SeqCst, set).is_ok();
        self.list().wake_all();
        is_first
    }

    /// Takes back a kill with this code.
    pub fn spare(&self, code: Code) {
        let _ = self.killed.compare_exchange(code.0, 0, SeqCst, Relaxed);
    }

    /// True if the operation was asked to stop.
    pub fn is_killed(&self) -> bool {
        self.killed.load(Relaxed) != 0
    }

    /// True if a thread of the operation waits for something at this moment.
    pub fn is_waiting(&self) -> bool {
        self.list().count() > 0
    }

    /// The only list that has the threads which wait on its behalf, so that a kill and the loss of the client
    /// both find them: the client's list if there is a client, otherwise the operation's own.
    fn list(&self) -> &Sleepers {
        match &self.client {
            Some(client) => &client.sleepers,
            None => &self.sleepers,
        }
    }

    /// Fails if the deadline has passed, the client has gone, or the whole must stop for a reason other than
    /// `but_for`.
    #[inline]
    fn check_limits(&self, but_for: Option<Code>) -> Result<()> {
        if self.deadline.load(Relaxed) != u64::MAX {
            self.check_deadline()?;
        }
        if self.client.as_ref().is_some_and(|client| client.is_gone()) {
            self.check_client()?;
        }
        match (&self.whole, but_for) {
            (Some(whole), None) => whole.check(),
            (Some(whole), Some(code)) => whole.check_but_for(code),
            (None, _) => Ok(()),
        }
    }

    fn check_deadline(&self) -> Result<()> {
        match self.deadline().is_some_and(|at| crate::now() >= at) {
            true => Err(Error::new(
                Code::MaxTimeMSExpired,
                "operation exceeded time limit",
            )),
            false => Ok(()),
        }
    }

    #[cold]
    fn check_client(&self) -> Result<()> {
        if crate::since(self.started) < GRACE {
            return Ok(());
        }
        self.kill(Code::ClientDisconnect);
        Err(stopped(Code::ClientDisconnect))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Interrupt for Operation {
    #[inline]
    fn check(&self) -> Result<()> {
        match self.killed.load(Relaxed) {
            0 => self.check_limits(None),
            killed => Err(stopped(Code(killed))),
        }
    }

    fn check_but_for(&self, code: Code) -> Result<()> {
        match self.killed.load(Relaxed) {
            killed if killed == 0 || killed == code.0 => self.check_limits(Some(code)),
            killed => Err(stopped(Code(killed))),
        }
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        show(self.list());
        if let Some(whole) = &self.whole {
            whole.sleepers(show);
        }
    }

    fn wakes_at(&self) -> Option<Instant> {
        let gone = self.client.as_ref().is_some_and(|client| client.is_gone());
        let grace = gone.then(|| self.started + GRACE);
        let whole = self.whole.as_ref().and_then(|whole| whole.wakes_at());
        let all = [self.deadline(), grace, whole];
        all.into_iter().flatten().min()
    }
}
