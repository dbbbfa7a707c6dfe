//! One connection through the relay: the socket of the client, which connected, the socket to the
//! server, and the bytes under way between them.
//!
//! Invariants: bytes leave in the order in which they came, and each once. At most [`WINDOW`] bytes
//! are under way in a direction; beyond that the source is not read, so that it waits as a TCP
//! sender does. An end or a reset takes as long as bytes do. A connection does not decide when it
//! is called: the [`engine`](super::engine) does.

use super::Figures;
use super::conditions::{Both, Direction};
use super::line::{Line, Piece, Wire, nanos};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

/// The most bytes under way in one direction of a connection; enough for 45 ms at 1.4 GB/s.
pub(super) const WINDOW: usize = 64 << 20;
/// After the window was full, the source is read again once no more than this is under way.
const LOW: usize = WINDOW / 4 * 3;
/// The bytes that are read or written in one turn. The limit keeps a bulk transfer from delaying
/// other connections for long.
pub(super) const TURN: usize = 128 << 10;
/// How far ahead, in ns, a wire with a bandwidth may be filled; further bytes wait at their sender.
pub(super) const QUEUE: u64 = 2_000_000;

/// The relay's clock, which counts from the moment it was made.
#[derive(Clone, Copy)]
pub(super) struct Clock(Instant);

impl Clock {
    /// Makes a clock that begins at 0 now.
    pub(super) fn new() -> Clock {
        Clock(Instant::now())
    }

    /// Nanoseconds since the clock was made.
    pub(super) fn now(self) -> u64 {
        nanos(self.0.elapsed())
    }
}

/// One side of a connection: its socket and the state of it.
struct Side {
    stream: Option<TcpStream>,
    /// False until connecting has succeeded.
    connected: bool,
    readable: bool,
    writable: bool,
    /// The socket has been read to its end.
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

    /// Makes the socket close with a reset. If that fails, it closes with an ordinary end.
    fn reset(&self) {
        if let Some(s) = &self.stream {
            let _ = rustix::net::sockopt::set_socket_linger(s, Some(RESET));
        }
    }

    /// Tells the other side that no more bytes come; an error means that it has gone already.
    fn end(&self) {
        if let Some(s) = &self.stream {
            let _ = s.shutdown(Shutdown::Write);
        }
    }
}

/// The outcome of reading from a source.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Took {
    /// There may be more to read.
    More,
    /// There is nothing more to read now, or no room for it.
    Enough,
    /// The wire is filled as far ahead as is allowed.
    Busy,
}

/// The outcome of passing pieces on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Gave {
    /// The next piece is due at this time.
    Next(u64),
    /// No piece is left, or the receiver has no room.
    Waits,
    /// The next piece is the connection itself, so the server must be connected to.
    Open,
    /// The connection is over.
    Over,
}

pub(super) struct Connection {
    /// The link it belongs to.
    pub link: usize,
    /// Directions that are in the queue to be read.
    pub queued: Both<bool>,
    /// Directions for which a timer is set.
    pub armed: Both<bool>,
    /// The sides, each under the direction whose source it is.
    sides: Both<Side>,
    lines: Both<Line>,
    /// The window has been full and has not been emptied down to the low mark since.
    full: Both<bool>,
    /// The receiver is gone; bytes in this direction are dropped.
    lost: Both<bool>,
    /// The end of this direction has been passed on.
    done: Both<bool>,
    /// The time at which the client would know that it is connected if it had connected over the
    /// whole way; the relay itself accepts at once.
    established: u64,
}

impl Connection {
    /// Makes a connection that came at `now` and whose server has to be connected to.
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

    /// Notes what the poller reports about a socket. Returns true if connecting to the server has
    /// failed.
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

    /// Notes that connecting to the server has begun.
    pub(super) fn opening(&mut self, stream: TcpStream) {
        self.lines.out.pop();
        self.sides.back.stream = Some(stream);
    }

    /// Notes that the server cannot be connected to.
    pub(super) fn refused(&mut self, now: u64, wires: &mut Both<Wire>) {
        self.sides.back.stream = None;
        self.gone(Direction::Out, now, wires);
    }

    /// Notes that the receiver of this direction's bytes is gone. The sender learns that from a
    /// reset that takes the way back.
    fn gone(&mut self, d: Direction, now: u64, wires: &mut Both<Wire>) {
        *self.lost.of_mut(d) = true;
        self.lines.of_mut(d).clear();
        let back = d.other();
        // The reset is sent even if the way back has ended, since a sender that continues to send
        // must learn that its receiver is gone.
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
            // The client could not have sent anything before it knew that it was connected.
            due = due.max(self.established + nanos(wire.conditions.delay));
        }
        self.lines.of_mut(d).push(due, piece);
    }

    /// The time at which the first piece of a direction is due.
    pub(super) fn due(&self, d: Direction) -> Option<u64> {
        self.lines.of(d).due()
    }

    /// Delays all pieces of a direction until at least `moment`.
    pub(super) fn not_before(&mut self, d: Direction, moment: u64) {
        self.lines.of_mut(d).not_before(moment);
    }

    /// Whether a source that was not read because of a full window should be read again. It returns
    /// true once each time that the window was full.
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

    /// Passes on the pieces that are due in a direction, which must not be cut.
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
                // Ends and resets wait too, because a socket that is not connected yet cannot be
                // ended or reset.
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

    /// Writes the rest of the first piece of bytes as far as the receiver takes it. Returns the
    /// number of bytes written, or `None` if the receiver has no room.
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

/// With a linger time of zero, the kernel sends a reset on closing.
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
        // The bytes come out three ways later, but the wire is free for other connections at once.
        assert_eq!(wires.out.backlog(clock.now() + 10_000_000), 0);
        all.lines.out.pop();
        let due = all.due(Direction::Out).unwrap();
        assert!((150_000_000_000..151_000_000_000).contains(&due), "{due}");
    }
}
