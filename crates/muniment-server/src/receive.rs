//! The memory of messages that are being received.
//!
//! A message of up to [`LARGE`] bytes needs no more than any connection has. For a larger one there has to be
//! room before more of it is read; until then the server does not read on, and so its sender has to wait.
//! Room is booked for the whole message at once, so that every message whose reading has begun can be
//! completed. The memory itself grows only with the bytes that have arrived.
//!
//! Invariant: while a connection waits for room, another one that has room and sends next to nothing is
//! closed.

use crate::connections::ConnShared;
use crate::front_door::{FrontDoor, Stranger};
use crate::state::ServerState;
use muniment_exec::Waiting;
use muniment_op::{Account, Interrupt, Refused, Share, Sleepers};
use muniment_value::{Code, Error};
use muniment_wire::Stream;
use std::cell::{Cell, RefCell};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Messages of up to this many bytes are not booked.
pub const LARGE: usize = 64 << 10;
/// A client that has begun a message larger than [`LARGE`] must continue within this time. Smaller messages
/// may take as long as they like, since they take no more memory than any connection.
const STALLED_AFTER: Duration = Duration::from_secs(30);
/// The same limit while other connections wait for the room of this message.
const IN_THE_WAY: Duration = Duration::from_secs(2);
/// How long a message waits for room that other messages have. These will be complete in a while.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it waits for memory in other hands, such as open transactions, one of which may be that of the
/// waiting client.
const PATIENCE_WITH_OTHERS: Duration = Duration::from_secs(10);

/// How fast the bytes of a message or a reply are transferred while others wait for its memory.
pub struct Pace {
    /// When the last byte was transferred.
    last: Instant,
    since: Instant,
    bytes: usize,
}

impl Pace {
    /// While others wait, at least [`Pace::LEAST`] bytes have to be transferred in this time.
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

    /// Notes transferred bytes. Returns true if they are too slow and others wait for the memory, which
    /// `is_in_the_way` is asked once in each window.
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

    /// How long no byte was transferred.
    pub fn stalls(&self) -> Duration {
        self.last.elapsed()
    }
}

/// The interrupt of a message that waits for room: its client has gone, or the server ends.
struct Sender<'s>(&'s ServerState, &'s ConnShared);

impl Interrupt for Sender<'_> {
    fn check(&self) -> muniment_value::Result<()> {
        match self.0.lifecycle.is_stopping() || self.1.remote.is_gone() {
            true => Err(Error::new(Code::ClientDisconnect, "nobody waits for it")),
            false => Ok(()),
        }
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        show(&self.0.lifecycle.sleepers);
        show(self.1.remote.sleepers());
    }
}

/// The share of a connection's messages in the memory for messages.
pub struct Received {
    server: Arc<ServerState>,
    /// The bytes received since the last complete message.
    bytes: Cell<usize>,
    /// The bytes that may be received without asking for more room.
    room: Cell<usize>,
    /// So many of the next bytes are skipped.
    skip: Cell<usize>,
    pace: RefCell<Option<Pace>>,
    too_slow: Cell<bool>,
    share: RefCell<Share>,
    /// Looks at the first bytes, until the client is known to speak MongoDB's protocol.
    door: RefCell<Option<FrontDoor>>,
    stranger: Cell<Option<Stranger>>,
}

impl Received {
    /// The state of a connection that has received nothing yet.
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

    /// The bytes received since the last complete message.
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
        self.server.connections.waiting_messages.load(Relaxed) > 0
    }

    /// Makes room for a message of this many bytes, or for what it unpacks to. Returns false if the server
    /// ends or the client goes meanwhile. Everything that a `member` of the set sends is accepted: there are
    /// few members, and the set depends on what they send. A message that is to be unpacked may take more
    /// than the limit: if it can never fit, it waits until it is the only one.
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
        // The limit of all memory may be lower at the moment than the one that was set.
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
            waiting
                .get_or_insert_with(|| Waiting::begin(&self.server.connections.waiting_messages));
            let whose = Sender(&self.server, shared);
            // How long the message waits depends on which limit refuses it. Another limit may become the
            // refusing one without waking this thread, so it looks again from time to time.
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

    /// Gives the message up; `skip` bytes of it are still to come.
    pub fn skips(&self, skip: usize) {
        self.skip.set(skip);
        self.forget();
    }

    /// Whether the message that is being received takes too long to arrive.
    pub fn is_too_slow(&self) -> bool {
        let pace = self.pace.borrow();
        let patience = match self.others_wait() {
            true => IN_THE_WAY,
            false => STALLED_AFTER,
        };
        self.too_slow.get() || pace.as_ref().is_some_and(|p| p.stalls() > patience)
    }

    /// Called after a message was handled. `capacity` bytes are kept for the next one; returns true if they
    /// should be given back.
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

    /// Called after all buffers were given back.
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

/// A socket from which a connection reads no more bytes than there is room for. A read beyond that fails with
/// an error of the kind `OutOfMemory`, and the connection then asks for room.
pub struct Socket {
    stream: Arc<Stream>,
    /// What the connection is receiving.
    pub received: Received,
    /// Whether a read waits for bytes.
    pub waits: bool,
    /// There was nothing more at the last read that did not wait. Until the system tells of more, another
    /// read would find nothing.
    pub drained: bool,
    /// A read that brings fewer bytes than asked for may not be the last one: the client has closed its end,
    /// of which the system tells once and which is read after the last bytes, or has sent urgent data, before
    /// which a read stops.
    pub odd: bool,
}

impl Socket {
    /// The socket of a connection that has received nothing yet.
    pub fn new(stream: Arc<Stream>, received: Received, waits: bool) -> Socket {
        Socket {
            stream,
            received,
            waits,
            drained: false,
            odd: false,
        }
    }

    /// Reads what there is, or fails with an error of the kind `WouldBlock`.
    fn read_at_once(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.drained {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let read = self.stream.read_at_once(buf);
        self.drained = match &read {
            // A TCP socket gives all bytes that it has.
            Ok(n) => !self.odd && *n < buf.len() && matches!(&*self.stream, Stream::Tcp(_)),
            Err(e) => e.kind() == io::ErrorKind::WouldBlock,
        };
        read
    }
}

impl Read for Socket {
    #[inline]
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = self.received.may_read(buf.len())?;
        let buf = buf.get_mut(..most).unwrap_or_default();
        let n = match self.waits {
            false => self.read_at_once(buf),
            true => self.stream.receive(buf),
        }?;
        let door = &mut *self.received.door.borrow_mut();
        if door.is_some() {
            self.received.look(door, buf.get(..n).unwrap_or_default())?;
        }
        self.received.came(n)?;
        Ok(n)
    }
}
