//! The relay's thread: one loop over all links and connections, which sleeps until the next piece
//! is due or a socket reports something.
//!
//! The kernel wakes a sleeping thread a little late. The thread therefore plans to wake early, by a
//! margin that follows the recent lateness, and looks at the clock until the piece is due.
//!
//! The thread must not block anywhere but in the poller. One connection keeps the others waiting
//! for at most a turn.

use super::conditions::{Both, Conditions, Direction, What};
use super::connection::{Clock, Connection, Gave, QUEUE, TURN, Took};
use super::line::{Wire, nanos};
use super::poller::{Event, Poller, WOKEN};
use super::{Figures, Route};
use muniment_load::fail::{Context, Failure, Result};
use muniment_load::procs::thread_cpu_seconds;
use rustix::net;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender};

/// The longest time that the loop looks at the clock instead of sleeping, ns.
const MOST_LEAD: u64 = 100_000;
/// The number of timers or reads that are handled between two looks at the sockets.
const BATCH: usize = 64;
/// The time for which no connection is accepted after the system had no file left for one, ns.
const PAUSE: u64 = 50_000_000;
/// The number of connections that may wait to be accepted.
const BACKLOG: i32 = 4096;
/// A token with this bit belongs to a listener.
const LISTENER: u64 = 1 << 62;

/// An order to the relay's thread.
pub(super) enum Order {
    /// Changes a direction (or both) of a link (or all).
    Change {
        /// The link; `None` for all.
        link: Option<usize>,
        /// The direction; `None` for both.
        direction: Option<Direction>,
        /// The change.
        what: What,
        /// Gets the result once the change is in force.
        done: Sender<Result<()>>,
    },
    /// Asks for the figures so far.
    Figures(Sender<Figures>),
    /// Asks for the conditions of the links.
    Conditions(Sender<Vec<Both<Conditions>>>),
    /// Ends the thread.
    Stop,
}

/// Names a direction of a connection. The generation shows whether the slot holds another
/// connection by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    slot: u32,
    generation: u32,
    direction: Direction,
}

impl Key {
    fn token(self) -> u64 {
        let side = u64::from(self.direction == Direction::Back);
        u64::from(self.slot) | side << 32 | u64::from(self.generation) << 33
    }

    fn of(token: u64) -> Key {
        Key {
            slot: token as u32,
            generation: (token >> 33) as u32 & GENERATIONS,
            direction: match token >> 32 & 1 {
                0 => Direction::Out,
                _ => Direction::Back,
            },
        }
    }
}

/// The greatest generation, which must fit into a token.
const GENERATIONS: u32 = (1 << 28) - 1;

/// A thing that becomes due at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The first piece of a direction of a connection.
    Line(Key),
    /// A wire that was filled too far ahead has room again, so its sources are read again.
    Wire(usize, Direction),
    /// A listener whose accept failed tries again.
    Listener(usize),
}

/// A link: its addresses, its two wires and its listener.
struct Link {
    to: SocketAddr,
    address: SocketAddr,
    refuse: bool,
    wires: Both<Wire>,
    /// Directions of connections whose source is read again when the wire has room.
    waiting: Both<VecDeque<Key>>,
    listener: Option<TcpListener>,
    /// A bound socket that keeps the port while connections are refused.
    reserved: Option<OwnedFd>,
}

struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

/// The thread's state.
pub(super) struct Engine {
    poller: Poller,
    clock: Clock,
    links: Vec<Link>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    timers: BinaryHeap<Reverse<(u64, Timer)>>,
    ready: VecDeque<Key>,
    scratch: Vec<u8>,
    orders: Receiver<Order>,
    figures: Figures,
    /// The recent lateness of the kernel's wake-ups, ns; the thread plans to wake early by twice as
    /// much.
    lead: u64,
}

impl Engine {
    /// Makes the engine and listens for all routes.
    ///
    /// # Errors
    /// An address cannot be used.
    pub(super) fn new(
        poller: Poller,
        routes: &[Route],
        seed: u64,
        orders: Receiver<Order>,
    ) -> Result<Engine> {
        let mut links = Vec::new();
        for (i, r) in routes.iter().enumerate() {
            let what = format!("listening at {}", r.listen);
            let listener = listen(reserve(r.listen).context(&what)?).context(&what)?;
            poller
                .add(&listener, LISTENER | i as u64)
                .context("waiting for connections")?;
            let seed = seed.wrapping_add(2 * i as u64);
            links.push(Link {
                to: r.to,
                address: listener.local_addr().context(&what)?,
                refuse: r.refuse,
                wires: Both {
                    out: Wire::new(r.conditions.out, seed),
                    back: Wire::new(r.conditions.back, seed.wrapping_add(1)),
                },
                waiting: Both::default(),
                listener: Some(listener),
                reserved: None,
            });
        }
        Ok(Engine {
            poller,
            clock: Clock::new(),
            links,
            slots: Vec::new(),
            free: Vec::new(),
            timers: BinaryHeap::new(),
            ready: VecDeque::new(),
            scratch: vec![0; TURN],
            orders,
            figures: Figures::default(),
            lead: 0,
        })
    }

    /// The address at which each link listens.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.links.iter().map(|l| l.address).collect()
    }

    /// Runs until it is told to stop, or until every handle that could tell it is gone.
    pub(super) fn run(mut self) {
        let mut events: Vec<Event> = Vec::new();
        loop {
            self.due();
            self.reads();
            let (time, sleeps_until) = self.until();
            // The wait fails only if the poller itself is broken. Ending the thread makes callers
            // learn that the relay has ended.
            let Ok(time_is_up) = self.poller.wait(time, &mut events) else {
                return;
            };
            if let (Some(planned), true, true) = (sleeps_until, time_is_up, events.is_empty()) {
                let now = self.clock.now();
                // The timer of an earlier wait can end this one too soon, which says nothing about
                // lateness.
                if let Some(late) = now.checked_sub(planned) {
                    self.lead = (self.lead * 7 + late.min(MOST_LEAD)) / 8;
                }
            }
            for e in events.drain(..) {
                match e.token {
                    WOKEN => {
                        if self.orders().is_none() {
                            return;
                        }
                    }
                    token if token & LISTENER != 0 => self.accept((token ^ LISTENER) as usize),
                    token => self.happened(Key::of(token), &e),
                }
            }
        }
    }

    /// How long to wait for sockets, and the planned time of waking if the wait is a sleep.
    fn until(&self) -> (Option<u64>, Option<u64>) {
        if !self.ready.is_empty() {
            return (Some(0), None);
        }
        let Some(Reverse((due, _))) = self.timers.peek() else {
            return (None, None);
        };
        let now = self.clock.now();
        // The margin is twice the average lateness, since sleeps vary.
        let wake = due.saturating_sub(self.lead * 2);
        match wake.saturating_sub(now) {
            0 => (Some(0), None),
            time => (Some(time), Some(wake)),
        }
    }

    fn connection(&mut self, k: Key) -> Option<(&mut Connection, &mut Both<Wire>)> {
        let slot = self.slots.get_mut(k.slot as usize)?;
        let c = slot.connection.as_mut()?;
        let same = slot.generation == k.generation;
        let wires = &mut self.links.get_mut(c.link)?.wires;
        same.then_some((c, wires))
    }

    /// Handles the timers that are due.
    fn due(&mut self) {
        for _ in 0..BATCH {
            let now = self.clock.now();
            let Some(Reverse((_, timer))) = self.timers.peek().filter(|t| t.0.0 <= now).copied()
            else {
                return;
            };
            self.timers.pop();
            match timer {
                Timer::Line(key) => {
                    if let Some((c, _)) = self.connection(key) {
                        *c.armed.of_mut(key.direction) = false;
                        self.give(key);
                    }
                }
                Timer::Wire(link, direction) => {
                    if let Some(l) = self.links.get_mut(link) {
                        let waiting = std::mem::take(l.waiting.of_mut(direction));
                        self.ready.extend(waiting);
                    }
                }
                Timer::Listener(link) => self.accept(link),
            }
        }
    }

    /// Reads once from each source that is ready to be read.
    fn reads(&mut self) {
        for _ in 0..BATCH.min(self.ready.len()) {
            let Some(key) = self.ready.pop_front() else {
                return;
            };
            let Some(slot) = self.slots.get_mut(key.slot as usize) else {
                continue;
            };
            let Some(c) = slot
                .connection
                .as_mut()
                .filter(|_| slot.generation == key.generation)
            else {
                continue;
            };
            let Some(link) = self.links.get_mut(c.link) else {
                continue;
            };
            let d = key.direction;
            match c.take(d, self.clock, &mut link.wires, &mut self.scratch) {
                Took::More => self.ready.push_back(key),
                Took::Enough => *c.queued.of_mut(d) = false,
                Took::Busy => {
                    let waiting = link.waiting.of_mut(d);
                    if waiting.is_empty() {
                        let now = self.clock.now();
                        let wire = link.wires.of(d);
                        let at = now + wire.backlog(now).saturating_sub(QUEUE / 2);
                        self.timers.push(Reverse((at, Timer::Wire(c.link, d))));
                    }
                    waiting.push_back(key);
                }
            }
            self.arm(key);
        }
    }

    /// Sets a direction's timer to the time at which its first piece is due, unless the timer is
    /// set already.
    fn arm(&mut self, key: Key) {
        let Some((c, _)) = self.connection(key) else {
            return;
        };
        let Some(due) = c.due(key.direction) else {
            return;
        };
        if !std::mem::replace(c.armed.of_mut(key.direction), true) {
            self.timers.push(Reverse((due, Timer::Line(key))));
        }
    }

    fn queue(&mut self, key: Key) {
        if let Some((c, _)) = self.connection(key)
            && !std::mem::replace(c.queued.of_mut(key.direction), true)
        {
            self.ready.push_back(key);
        }
    }

    /// Passes on the pieces that are due in a direction.
    fn give(&mut self, key: Key) {
        let d = key.direction;
        let Some(slot) = self.slots.get_mut(key.slot as usize) else {
            return;
        };
        let Some(c) = slot
            .connection
            .as_mut()
            .filter(|_| slot.generation == key.generation)
        else {
            return;
        };
        let Some(link) = self.links.get_mut(c.link) else {
            return;
        };
        // A cut direction is skipped here and handled when it heals.
        if link.wires.of(d).conditions.cut {
            return;
        }
        let gave = c.give(d, self.clock, &mut link.wires, &mut self.figures);
        let room = c.has_room_again(d);
        match gave {
            Gave::Next(due) => {
                if !std::mem::replace(c.armed.of_mut(d), true) {
                    self.timers.push(Reverse((due, Timer::Line(key))));
                }
            }
            Gave::Waits => {}
            Gave::Open => return self.open(key),
            Gave::Over => return self.remove(key),
        }
        if room {
            self.queue(key);
        }
        // If the receiver was found to be gone, the other direction now holds a reset for the
        // sender.
        self.arm(Key {
            direction: d.other(),
            ..key
        });
    }

    /// Connects to the server. A handshake takes both ways, so this waits while either is cut.
    fn open(&mut self, key: Key) {
        let now = self.clock.now();
        let Some(slot) = self.slots.get_mut(key.slot as usize) else {
            return;
        };
        let Some(c) = slot.connection.as_mut() else {
            return;
        };
        let Some(link) = self.links.get_mut(c.link) else {
            return;
        };
        if link.wires.back.conditions.cut {
            return;
        }
        let token = Key {
            direction: Direction::Back,
            ..key
        }
        .token();
        let opened = connect(link.to).and_then(|s| {
            self.poller.add(&s, token)?;
            Ok(s)
        });
        match opened {
            Ok(stream) => c.opening(stream),
            Err(_) => c.refused(now, &mut link.wires),
        }
        for direction in Direction::ALL {
            self.arm(Key { direction, ..key });
        }
    }

    fn remove(&mut self, key: Key) {
        if let Some(slot) = self.slots.get_mut(key.slot as usize) {
            slot.connection = None;
            slot.generation = (slot.generation + 1) & GENERATIONS;
            self.free.push(key.slot);
            self.figures.open -= 1;
        }
    }

    /// Handles an event of a connection's socket.
    fn happened(&mut self, key: Key, e: &Event) {
        let now = self.clock.now();
        let Some((c, wires)) = self.connection(key) else {
            return;
        };
        let failed = c.told(key.direction, e.readable, e.writable);
        if failed {
            c.refused(now, wires);
        }
        if e.readable {
            self.queue(key);
        }
        let into = Key {
            direction: key.direction.other(),
            ..key
        };
        if e.writable {
            self.arm(into);
        }
        if failed {
            self.arm(key);
        }
    }

    /// Accepts all waiting connections of a listener.
    fn accept(&mut self, index: usize) {
        loop {
            let now = self.clock.now();
            let Some(link) = self.links.get_mut(index) else {
                return;
            };
            let Some(listener) = &link.listener else {
                return;
            };
            let accepted = listener.accept().and_then(|(s, _)| {
                s.set_nonblocking(true)?;
                s.set_nodelay(true)?;
                Ok(s)
            });
            let stream = match accepted {
                Ok(s) => s,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::ConnectionAborted => continue,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => {
                    self.figures.trouble = Some(format!("accepting a connection: {e}"));
                    let again = Timer::Listener(index);
                    self.timers.push(Reverse((now + PAUSE, again)));
                    return;
                }
            };
            let slot = self.free.pop().unwrap_or_else(|| {
                self.slots.push(Slot {
                    generation: 0,
                    connection: None,
                });
                (self.slots.len() - 1) as u32
            });
            let Some(place) = self.slots.get_mut(slot as usize) else {
                return;
            };
            let key = Key {
                slot,
                generation: place.generation,
                direction: Direction::Out,
            };
            if let Err(e) = self.poller.add(&stream, key.token()) {
                self.figures.trouble = Some(format!("waiting for a connection: {e}"));
                self.free.push(slot);
                continue;
            }
            place.connection = Some(Connection::new(index, stream, now, &mut link.wires));
            self.figures.open += 1;
            self.figures.connections += 1;
            self.arm(key);
        }
    }

    /// Obeys the waiting orders; `None` if one of them was to stop.
    fn orders(&mut self) -> Option<()> {
        use std::sync::mpsc::TryRecvError;
        loop {
            // Answers that cannot be sent are dropped, because the caller has gone.
            match self.orders.try_recv() {
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => return Some(()),
                Ok(Order::Figures(to)) => {
                    self.figures.cpu_seconds = thread_cpu_seconds();
                    let _ = to.send(self.figures.clone());
                }
                Ok(Order::Conditions(to)) => {
                    let of = |l: &Link| Both {
                        out: l.wires.out.conditions,
                        back: l.wires.back.conditions,
                    };
                    let _ = to.send(self.links.iter().map(of).collect());
                }
                Ok(Order::Change {
                    link,
                    direction,
                    what,
                    done,
                }) => {
                    let _ = done.send(self.change(link, direction, what));
                }
            }
        }
    }

    fn change(
        &mut self,
        link: Option<usize>,
        direction: Option<Direction>,
        what: What,
    ) -> Result<()> {
        let links = match link {
            None => 0..self.links.len(),
            Some(i) if i < self.links.len() => i..i + 1,
            Some(i) => {
                return Err(Failure(format!(
                    "there is no link {}: there are 1 to {}",
                    i + 1,
                    self.links.len()
                )));
            }
        };
        for index in links {
            let Some(l) = self.links.get_mut(index) else {
                continue;
            };
            if let What::Refuse(refuse) = what {
                l.refuse = refuse;
            }
            for d in Direction::ALL {
                if direction.is_none_or(|only| only == d) {
                    l.wires.of_mut(d).conditions.change(what);
                }
            }
            l.listens(&self.poller, index)?;
            if what == What::Heal {
                self.healed(index, direction);
            }
        }
        Ok(())
    }

    /// Releases the pieces that a partition has held; they come out a delay after the heal.
    fn healed(&mut self, index: usize, direction: Option<Direction>) {
        let now = self.clock.now();
        let mut keys = Vec::new();
        for (slot, s) in self.slots.iter_mut().enumerate() {
            let Some(c) = s.connection.as_mut().filter(|c| c.link == index) else {
                continue;
            };
            let Some(l) = self.links.get(index) else {
                continue;
            };
            for d in Direction::ALL {
                if direction.is_none_or(|only| only == d) {
                    c.not_before(d, now + nanos(l.wires.of(d).conditions.delay));
                }
                keys.push(Key {
                    slot: slot as u32,
                    generation: s.generation,
                    direction: d,
                });
            }
        }
        for key in keys {
            self.arm(key);
        }
    }
}

impl Link {
    /// Makes the link listen or refuse, as its conditions ask.
    fn listens(&mut self, poller: &Poller, index: usize) -> Result<()> {
        let cut = self.wires.out.conditions.cut || self.wires.back.conditions.cut;
        let what = format!("listening at {}", self.address);
        if cut && self.refuse && self.listener.is_some() {
            self.listener = None;
            self.reserved = Some(reserve(self.address).context(&what)?);
        } else if self.listener.is_none() && !(cut && self.refuse) {
            let socket = match self.reserved.take() {
                Some(s) => s,
                None => reserve(self.address).context(&what)?,
            };
            let listener = listen(socket).context(&what)?;
            poller
                .add(&listener, LISTENER | index as u64)
                .context(&what)?;
            self.listener = Some(listener);
        }
        Ok(())
    }
}

/// Makes a socket that has the address and does not listen: the port stays taken, and connections
/// to it are refused.
fn reserve(address: SocketAddr) -> std::io::Result<OwnedFd> {
    let s = socket(family(address))?;
    net::sockopt::set_socket_reuseaddr(&s, true)?;
    net::bind(&s, &address)?;
    Ok(s)
}

fn listen(socket: OwnedFd) -> std::io::Result<TcpListener> {
    net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// Begins to connect without waiting for the result.
fn connect(to: SocketAddr) -> std::io::Result<TcpStream> {
    let s = socket(family(to))?;
    net::sockopt::set_tcp_nodelay(&s, true)?;
    match net::connect(&s, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(TcpStream::from(s)),
        Err(e) => Err(e.into()),
    }
}

fn socket(family: net::AddressFamily) -> std::io::Result<OwnedFd> {
    let flags = net::SocketFlags::NONBLOCK | net::SocketFlags::CLOEXEC;
    Ok(net::socket_with(
        family,
        net::SocketType::STREAM,
        flags,
        None,
    )?)
}

fn family(address: SocketAddr) -> net::AddressFamily {
    match address {
        SocketAddr::V4(_) => net::AddressFamily::INET,
        SocketAddr::V6(_) => net::AddressFamily::INET6,
    }
}
