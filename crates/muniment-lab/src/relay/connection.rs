//! One connection through the relay: the socket from the client, which connected, the socket to the
//! server, and what is under way between them.
//!
//! Invariants: bytes leave in the order in which they came and each once; no more than [`WINDOW`]
//! bytes are under way in a direction (beyond that its source is not read, and waits as a TCP
//! sender does); an end or a reset takes as long as bytes do. A connection does not decide when it is
//! called: the [`engine`](super::engine) does.

use super::Figures;
use super::conditions::{Both, Direction};
use super::line::{Line, Piece, Wire, nanos};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

/// Bytes under way in one direction of a connection: 45 ms at 1.4 GB/s.
pub(super) const WINDOW: usize = 64 << 20;
/// Where a source that had filled the window is read again.
const LOW: usize = WINDOW / 4 * 3;
/// Bytes that are read or written in one turn, so that a bulk transfer does not keep the other
/// connections waiting long.
pub(super) const TURN: usize = 128 << 10;
/// How far ahead a wire with a bandwidth may be filled, ns; the rest waits at its sender.
pub(super) const QUEUE: u64 = 2_000_000;

/// The relay's time.
#[derive(Clone, Copy)]
pub(super) struct Clock(Instant);

impl Clock {
    /// It is 0 now.
    pub(super) fn new() -> Clock {
        Clock(Instant::now())
    }

    /// Nanoseconds since it was made.
    pub(super) fn now(self) -> u64 {
        nanos(self.0.elapsed())
    }
}

/// A socket.
struct Side {
    stream: Option<TcpStream>,
    /// False while it is being connected.
    connected: bool,
    readable: bool,
    writable: bool,
    /// There is nothing more to be read.
    ended: bool,
}

impl Side {
    fn of(stream: Option<TcpStream>) -> Side {
        Side {
            connected: stream.is_some(),
            stream,
            readable: false,
            writable: false,
            ended: false,
        }
    }

    /// Has it closed with a reset; should this fail, it is closed all the same.
    fn reset(&self) {
        if let Some(s) = &self.stream {
            let _ = rustix::net::sockopt::set_socket_linger(s, Some(RESET));
        }
    }

    /// Tells the other side that nothing more comes, unless that has gone meanwhile.
    fn end(&self) {
        if let Some(s) = &self.stream {
            let _ = s.shutdown(Shutdown::Write);
        }
    }
}

/// How reading went.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Took {
    /// There may be more.
    More,
    /// There is no more, or no room for it.
    Enough,
    /// The wire has enough to do.
    Busy,
}

/// How giving on went.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Gave {
    /// The next piece is due then.
    Next(u64),
    /// There is none, or its receiver has no room.
    Waits,
    /// The server has to be connected to next.
    Open,
    /// The connection is over.
    Over,
}

/// One connection.
pub(super) struct Connection {
    /// The link it belongs to.
    pub link: usize,
    /// Directions that wait for their turn to be read.
    pub queued: Both<bool>,
    /// Directions for which a timer is set.
    pub armed: Both<bool>,
    /// By the direction whose source it is.
    sides: Both<Side>,
    lines: Both<Line>,
    /// The window has been filled, and has not been emptied enough since.
    full: Both<bool>,
    /// The receiver of the bytes is gone: they go nowhere.
    lost: Both<bool>,
    /// The end has been given on.
    done: Both<bool>,
    /// When the client would know that it is connected if it had connected over the whole way (the
    /// relay itself is connected at once).
    established: u64,
}

impl Connection {
    /// A connection that came at `now` and asks for its other half.
    pub(super) fn new(
        link: usize,
        stream: TcpStream,
        now: u64,
        wires: &mut Both<Wire>,
    ) -> Connection {
        let trip = wires.out.conditions.delay + wires.back.conditions.delay;
        let mut lines: Both<Line> = Both::default();
        lines.out.push(wires.out.carry(now, 0, trip), Piece::Open);
        Connection {
            link,
            queued: Both::default(),
            armed: Both::default(),
            sides: Both {
                out: Side::of(Some(stream)),
                back: Side::of(None),
            },
            lines,
            full: Both::default(),
            lost: Both::default(),
            done: Both::default(),
            established: now + nanos(trip),
        }
    }

    /// What the poller said of a socket. True if connecting to the server has failed.
    pub(super) fn told(&mut self, side: Direction, readable: bool, writable: bool) -> bool {
        let s = self.sides.of_mut(side);
        s.readable |= readable;
        s.writable |= writable;
        if s.connected || !writable {
            return false;
        }
        s.connected = true;
        let error = s.stream.as_ref().map(TcpStream::take_error);
        !matches!(error, Some(Ok(None)))
    }

    /// Connecting to the server has begun.
    pub(super) fn opening(&mut self, stream: TcpStream) {
        self.lines.out.pop();
        self.sides.back.stream = Some(stream);
    }

    /// The server cannot be connected to.
    pub(super) fn refused(&mut self, now: u64, wires: &mut Both<Wire>) {
        self.sides.back.stream = None;
        self.gone(Direction::Out, now, wires);
    }

    /// The receiver of this direction's bytes is gone: the sender learns that when a reset has come
    /// back to it.
    fn gone(&mut self, d: Direction, now: u64, wires: &mut Both<Wire>) {
        *self.lost.of_mut(d) = true;
        self.lines.of_mut(d).clear();
        let back = d.other();
        // A reset follows even where the way back has ended: it tells a sender that goes on sending
        // that its receiver is gone.
        self.sides.of_mut(back).ended = true;
        self.enter(back, now, Piece::Reset, wires);
    }

    fn enter(&mut self, d: Direction, now: u64, piece: Piece, wires: &mut Both<Wire>) {
        let trip = wires.out.conditions.delay + wires.back.conditions.delay;
        let size = match &piece {
            Piece::Bytes(b, _) => b.len(),
            _ => 0,
        };
        let wire = wires.of_mut(d);
        let mut due = wire.carry(now, size, trip);
        if d == Direction::Out {
            // The client cannot have sent anything before it would know that it is connected.
            due = due.max(self.established + nanos(wire.conditions.delay));
        }
        self.lines.of_mut(d).push(due, piece);
    }

    /// When the first piece of a direction is due.
    pub(super) fn due(&self, d: Direction) -> Option<u64> {
        self.lines.of(d).due()
    }

    /// Nothing of a direction comes out before `moment`.
    pub(super) fn not_before(&mut self, d: Direction, moment: u64) {
        self.lines.of_mut(d).not_before(moment);
    }

    /// Whether a source that was not read because of a full window is worth reading again; says so
    /// once.
    pub(super) fn has_room_again(&mut self, d: Direction) -> bool {
        *self.full.of(d) && self.lines.of(d).bytes() <= LOW && {
            *self.full.of_mut(d) = false;
            true
        }
    }

    /// Reads once from the source of a direction.
    pub(super) fn take(
        &mut self,
        d: Direction,
        clock: Clock,
        wires: &mut Both<Wire>,
        scratch: &mut [u8],
    ) -> Took {
        let side = self.sides.of_mut(d);
        if !side.readable || side.ended {
            return Took::Enough;
        }
        if self.lines.of(d).bytes() >= WINDOW {
            *self.full.of_mut(d) = true;
            return Took::Enough;
        }
        let wire = wires.of(d);
        if wire.backlog(clock.now()) > QUEUE {
            return Took::Busy;
        }
        let grain = wire.grain(scratch.len());
        let (Some(stream), Some(room)) = (&mut side.stream, scratch.get_mut(..grain)) else {
            return Took::Enough;
        };
        let piece = match stream.read(room) {
            Ok(0) => {
                side.ended = true;
                Piece::End
            }
            Ok(_) if *self.lost.of(d) => return Took::More,
            Ok(n) => Piece::Bytes(room.get(..n).unwrap_or_default().to_vec(), 0),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                side.readable = false;
                return Took::Enough;
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => return Took::More,
            Err(_) => {
                side.ended = true;
                Piece::Reset
            }
        };
        self.enter(d, clock.now(), piece, wires);
        Took::More
    }

    /// Gives on what is due in a direction through which something passes.
    pub(super) fn give(
        &mut self,
        d: Direction,
        clock: Clock,
        wires: &mut Both<Wire>,
        figures: &mut Figures,
    ) -> Gave {
        let mut turn = 0;
        loop {
            let now = clock.now();
            let line = self.lines.of_mut(d);
            let Some(due) = line.due() else {
                return Gave::Waits;
            };
            if due > now {
                return Gave::Next(due);
            }
            if turn >= TURN {
                return Gave::Next(now);
            }
            let side = self.sides.of_mut(d.other());
            match line.front() {
                None => return Gave::Waits,
                Some(Piece::Open) => return Gave::Open,
                // A socket that is not connected yet cannot be reset or ended.
                Some(_) if !side.connected => return Gave::Waits,
                Some(Piece::Reset) => {
                    side.reset();
                    return Gave::Over;
                }
                Some(Piece::End) => {
                    side.end();
                    line.pop();
                    *self.done.of_mut(d) = true;
                    if *self.done.of(d.other()) {
                        return Gave::Over;
                    }
                }
                Some(Piece::Bytes(..)) => match self.write(d, due, now, wires, figures) {
                    Some(n) => turn += n,
                    None => return Gave::Waits,
                },
            }
        }
    }

    /// Writes what is left of the bytes that were due first in a direction, as far as their receiver
    /// takes them: how many those were, or `None` if it has no room.
    fn write(
        &mut self,
        d: Direction,
        due: u64,
        now: u64,
        wires: &mut Both<Wire>,
        figures: &mut Figures,
    ) -> Option<usize> {
        let line = self.lines.of_mut(d);
        let side = self.sides.of_mut(d.other());
        let Some(Piece::Bytes(bytes, given)) = line.front() else {
            return None;
        };
        let stream = side.stream.as_mut().filter(|_| side.writable)?;
        if *given == 0 {
            figures.lateness.record(now - due);
        }
        match stream.write(bytes.get(*given..).unwrap_or_default()) {
            Ok(n) => {
                *given += n;
                *figures.bytes.of_mut(d) += n as u64;
                if *given == bytes.len() {
                    line.pop();
                }
                Some(n)
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                side.writable = false;
                None
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => Some(0),
            Err(_) => {
                self.gone(d, now, wires);
                Some(0)
            }
        }
    }
}

/// A linger time of nothing: the kernel sends a reset.
const RESET: std::time::Duration = std::time::Duration::ZERO;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::conditions::Conditions;
    use super::super::measure::ANY;
    use super::*;
    use std::net::TcpListener;
    use std::time::Duration;

    #[test]
    fn a_handshake_under_way_does_not_occupy_the_wire() {
        let c = Conditions {
            bandwidth: Some(1_000_000_000),
            ..Conditions::delayed(Duration::from_secs(50))
        };
        let mut wires = Both {
            out: Wire::new(c, 1),
            back: Wire::new(c, 2),
        };
        let listener = TcpListener::bind(ANY).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, clock) = (listener.accept().unwrap().0, Clock::new());
        let mut all = Connection::new(0, stream, clock.now(), &mut wires);
        client.write_all(&[7; 1000]).unwrap();
        assert!(!all.told(Direction::Out, true, true));
        let took = all.take(Direction::Out, clock, &mut wires, &mut [0; 4096]);
        assert_eq!(took, Took::More);
        // The wire is free for other connections, although these bytes come out three ways later.
        assert_eq!(wires.out.backlog(clock.now() + 10_000_000), 0);
        all.lines.out.pop();
        let due = all.due(Direction::Out).unwrap();
        assert!((150_000_000_000..151_000_000_000).contains(&due), "{due}");
    }
}
