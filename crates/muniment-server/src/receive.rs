//! The memory that messages take while they are received.
//!
//! A message of up to [`LARGE`] bytes takes no more than any connection does. For a larger one there has
//! to be room before more of it is read: its sender waits meanwhile, since the server does not take what it
//! sends. Room is booked for a message as a whole, so that all messages that are being read can come to
//! their end. Memory itself grows with the bytes that have come.
//!
//! Invariant: while a connection waits for room, another one that has room and sends next to nothing loses
//! it.

use crate::front_door::{FrontDoor, Stranger};
use crate::state::{ConnShared, ServerState};
use muniment_exec::Waiting;
use muniment_op::{Account, Interrupt, Refused, Share, Sleepers};
use muniment_value::{Code, Error};
use muniment_wire::Stream;
use std::cell::{Cell, RefCell};
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Bytes of a message that are not booked.
pub const LARGE: usize = 64 << 10;
/// A client that has sent the beginning of a message larger than [`LARGE`] must go on within this.
/// Smaller ones may take as long as they like: their memory is that of any connection.
const STALLED_AFTER: Duration = Duration::from_secs(30);
/// The same while other connections wait for the room that it has.
const IN_THE_WAY: Duration = Duration::from_secs(2);
/// How long a message waits for room that other messages have, since these come to their end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it waits for memory that is held otherwise, as by open transactions, one of which may be the
/// waiting client's own.
const PATIENCE_WITH_OTHERS: Duration = Duration::from_secs(10);

/// How fast the bytes of a message or a reply go through, while others wait for its memory.
pub struct Pace {
    /// When the last byte went through.
    last: Instant,
    since: Instant,
    bytes: usize,
}

impl Pace {
    /// While others wait, at least [`Pace::LEAST`] bytes have to go through in this time.
    const WINDOW: Duration = Duration::from_secs(5);
    const LEAST: usize = 256 << 10;

    /// Begins to measure now.
    pub fn new() -> Pace {
        let now = Instant::now();
        Pace {
            last: now,
            since: now,
            bytes: 0,
        }
    }

    /// Notes bytes that went through. True if they are too slow, and `is_in_the_way`, which is asked once in
    /// a while, says that others wait.
    pub fn moves(&mut self, bytes: usize, is_in_the_way: impl FnOnce() -> bool) -> bool {
        let now = Instant::now();
        self.bytes += bytes;
        if bytes > 0 {
            self.last = now;
        }
        if now.duration_since(self.since) < Pace::WINDOW {
            return false;
        }
        let slow = self.bytes < Pace::LEAST;
        (self.since, self.bytes) = (now, 0);
        slow && is_in_the_way()
    }

    /// How long nothing has gone through.
    pub fn stalls(&self) -> Duration {
        self.last.elapsed()
    }
}

/// A client whose message waits for room.
struct Sender<'s>(&'s ServerState, &'s ConnShared);

impl Interrupt for Sender<'_> {
    fn check(&self) -> muniment_value::Result<()> {
        match self.0.is_stopping() || self.1.remote.is_gone() {
            true => Err(Error::new(Code::ClientDisconnect, "nobody waits for it")),
            false => Ok(()),
        }
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        show(&self.0.stops);
        show(self.1.remote.sleepers());
    }
}

/// What a connection's messages take of the memory for messages.
pub struct Received {
    server: Arc<ServerState>,
    /// Bytes since the last whole message.
    bytes: Cell<usize>,
    /// Bytes that may come without asking.
    room: Cell<usize>,
    /// What comes first is thrown away.
    skip: Cell<usize>,
    pace: RefCell<Option<Pace>>,
    too_slow: Cell<bool>,
    share: RefCell<Share>,
    /// Looks at the first bytes, until the client is known to speak MongoDB's protocol.
    door: RefCell<Option<FrontDoor>>,
    stranger: Cell<Option<Stranger>>,
}

impl Received {
    /// Nothing was received yet.
    pub fn new(server: &Arc<ServerState>) -> Received {
        Received {
            server: Arc::clone(server),
            bytes: Cell::new(0),
            room: Cell::new(LARGE),
            skip: Cell::new(0),
            pace: RefCell::new(None),
            too_slow: Cell::new(false),
            share: RefCell::new(Share::new(&server.engine.memory, Account::Messages)),
            door: RefCell::new(Some(FrontDoor::default())),
            stranger: Cell::new(None),
        }
    }

    /// Bytes since the last whole message.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// True while there is room for a large message.
    pub fn is_large(&self) -> bool {
        self.room.get() > LARGE
    }

    /// The protocol that the client speaks, if that is not MongoDB's.
    pub fn stranger(&self) -> Option<Stranger> {
        self.stranger.get()
    }

    /// Looks at the first bytes of the connection.
    #[cold]
    fn look(&self, door: &mut Option<FrontDoor>, bytes: &[u8]) -> io::Result<()> {
        let Some(d) = door else { return Ok(()) };
        if let Some(stranger) = d.look(bytes) {
            self.stranger.set(Some(stranger));
            return Err(io::ErrorKind::InvalidData.into());
        }
        if d.is_passed() {
            *door = None;
        }
        Ok(())
    }

    fn others_wait(&self) -> bool {
        self.server.waiting_messages.load(Relaxed) > 0
    }

    /// Makes room for a message of so many bytes, or for what it is unpacked to; false if the server
    /// ends or the client has gone meanwhile. Everything that a `member` of the set sends is taken: there
    /// are few members, and what they send is what the set is for. A message that is to be unpacked may
    /// take more than the limit: if it never fits, it waits until it is the only one.
    ///
    /// # Errors
    /// If there is no room for long, or never can be.
    pub fn make_room(
        &self,
        shared: &ConnShared,
        bytes: usize,
        packed: bool,
        member: bool,
    ) -> Result<bool, Refused> {
        let mut share = self.share.borrow_mut();
        let ledger = Arc::clone(share.ledger());
        let in_force = || self.server.parameters.memory.in_force.load(Relaxed);
        // The limit of all memory may be lower for the moment than it was set to.
        let never = |refused: Refused| match refused.total {
            true => refused.asked > in_force(),
            false => refused.asked > refused.limit,
        };
        let mut hold = || match share.try_hold(bytes) {
            Err(refused) if packed && never(refused) => share.try_hold_alone(bytes),
            held => held,
        };
        let mut waiting = None;
        let end = Instant::now() + PATIENCE;
        let mut left_with_others = PATIENCE_WITH_OTHERS;
        while let Err(refused) = hold() {
            if member {
                share.holds(bytes);
                break;
            }
            let began = Instant::now();
            let until = match refused.total {
                true => end.min(began + left_with_others),
                false => end,
            };
            if never(refused) && !packed || began >= until {
                return Err(refused);
            }
            waiting.get_or_insert_with(|| Waiting::begin(&self.server.waiting_messages));
            let whose = Sender(&self.server, shared);
            // Which limit refuses the message decides how long it waits, and may change without any thread being
            // woken.
            let until = until.min(began + PATIENCE_WITH_OTHERS);
            let held = ledger.wait_for_room(&whose, until, || match hold() {
                Err(now) if now.total == refused.total => Err(now),
                _ => Ok(()),
            });
            if held.is_err() && whose.check().is_err() {
                return Ok(false);
            }
            if refused.total {
                left_with_others = left_with_others.saturating_sub(began.elapsed());
            }
        }
        self.room.set(bytes.max(LARGE));
        *self.pace.borrow_mut() = Some(Pace::new());
        Ok(true)
    }

    /// The message is given up, and `skip` bytes of it are still to come.
    pub fn skips(&self, skip: usize) {
        self.skip.set(skip);
        self.forget();
    }

    /// Why a message has not come to its end, if that takes too long by now.
    pub fn is_too_slow(&self) -> bool {
        let pace = self.pace.borrow();
        let patience = match self.others_wait() {
            true => IN_THE_WAY,
            false => STALLED_AFTER,
        };
        self.too_slow.get() || pace.as_ref().is_some_and(|p| p.stalls() > patience)
    }

    /// The message was handled; `capacity` bytes are kept for the next one. True when they should
    /// be given back.
    pub fn done(&self, capacity: usize) -> bool {
        self.bytes.set(0);
        let large = self.room.replace(LARGE) > LARGE;
        if large {
            *self.pace.borrow_mut() = None;
        }
        let mut share = self.share.borrow_mut();
        capacity > LARGE && share.holds(capacity)
            || share.is_pressed()
            || share.booked() > 0 && self.others_wait()
    }

    /// All buffers were given back.
    pub fn forget(&self) {
        self.bytes.set(0);
        self.room.set(LARGE);
        *self.pace.borrow_mut() = None;
        self.share.borrow_mut().holds(0);
    }

    /// How many of `wanted` bytes may be read now.
    fn may_read(&self, wanted: usize) -> io::Result<usize> {
        match self.skip.get() {
            0 => {}
            skip => return Ok(wanted.min(skip)),
        }
        match self.room.get().saturating_sub(self.bytes.get()) {
            0 => Err(io::ErrorKind::OutOfMemory.into()),
            room => Ok(wanted.min(room)),
        }
    }

    fn came(&self, n: usize) -> io::Result<()> {
        let skip = self.skip.get();
        if skip > 0 {
            self.skip.set(skip.saturating_sub(n));
            return Ok(());
        }
        self.bytes.set(self.bytes.get() + n);
        if self.is_large()
            && let Some(pace) = &mut *self.pace.borrow_mut()
            && pace.moves(n, || self.others_wait())
        {
            self.too_slow.set(true);
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

/// A shared socket, of which a connection reads no more than there is room for: beyond it an error of
/// the kind `OutOfMemory` asks for some.
pub struct Socket(pub Arc<Stream>, pub Rc<Received>);

impl Read for Socket {
    #[inline]
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = self.1.may_read(buf.len())?;
        let buf = buf.get_mut(..most).unwrap_or_default();
        let n = match &*self.0 {
            Stream::Tcp(s) => (&mut &*s).read(buf),
            Stream::Unix(s) => (&mut &*s).read(buf),
        }?;
        let door = &mut *self.1.door.borrow_mut();
        if door.is_some() {
            self.1.look(door, buf.get(..n).unwrap_or_default())?;
        }
        self.1.came(n)?;
        Ok(n)
    }
}
