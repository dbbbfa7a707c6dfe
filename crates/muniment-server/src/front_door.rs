//! Recognises clients that speak another protocol than MongoDB's by their first bytes, and answers them in
//! their own protocol, so that they fail at once and see the reason.
//!
//! Without this, a TLS client would wait forever: its first record looks like the header of a message of some
//! megabytes, so the server would wait for the rest of it.

use muniment_value::{Code, Error};
use muniment_wire::Stream;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How many bytes tell the protocol: the header of a MongoDB message up to the middle of `responseTo`, which
/// is 0 in a client's messages.
const TELLING: usize = 11;

/// How long the server reads on after it has answered. If the connection closes while a client's bytes are
/// unread, the system drops the answer.
const FAREWELL: Duration = Duration::from_millis(500);

/// The other protocols that are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranger {
    /// A request of HTTP.
    Http,
    /// The greeting of TLS, with the version of its record.
    Tls([u8; 2]),
}

impl Stranger {
    /// The protocol of a connection's first bytes; `None` if it may be MongoDB's.
    fn of(first: &[u8]) -> Option<Stranger> {
        const METHODS: [&[u8]; 10] = [
            b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC",
            b"PRI ",
        ];
        match first {
            [22, 3, minor, ..] if muniment_tls::greets(first) == Some(true) => {
                Some(Stranger::Tls([3, *minor]))
            }
            _ if METHODS.iter().any(|m| first.starts_with(m)) => Some(Stranger::Http),
            _ => None,
        }
    }

    /// The error for the log.
    pub fn error(self) -> Error {
        match self {
            Stranger::Http => Error::new(
                Code::ProtocolError,
                "Client sent an HTTP request over a native MongoDB connection",
            ),
            Stranger::Tls(_) => Error::new(
                Code::SSLHandshakeFailed,
                "SSL handshake received but server is started without SSL support: start it with \
                 --tlsMode and --tlsCertificateKeyFile, or connect without TLS",
            ),
        }
    }

    fn answer(self) -> Vec<u8> {
        match self {
            Stranger::Http => {
                let text = "It looks like you are trying to access MongoDB over HTTP on the native \
                            driver port.\r\n";
                format!(
                    "HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\n\
                     Content-Length: {}\r\n\r\n{text}",
                    text.len()
                )
                .into_bytes()
            }
            // A record with a fatal alert: handshake_failure.
            Stranger::Tls([major, minor]) => vec![21, major, minor, 0, 2, 2, 40],
        }
    }

    /// Answers, and waits a moment until the client has taken the answer.
    pub fn turn_back(self, stream: &Stream) {
        let _ = stream.set_write_timeout(Some(FAREWELL));
        let Ok(mut s) = stream.try_clone() else {
            return;
        };
        if std::io::Write::write_all(&mut s, &self.answer()).is_ok() {
            farewell(stream);
        }
    }
}

/// How many connections may wait at a time until their clients have taken what was sent to them.
const FAREWELLS: usize = 16;

/// Ends the sending direction, and waits a moment until the client has taken what was sent. If many connections
/// wait for that already, it waits for nothing: each of them has a thread.
pub fn farewell(stream: &Stream) {
    static WAITING: AtomicUsize = AtomicUsize::new(0);
    let _ = stream.shutdown_write();
    if WAITING.fetch_add(1, Relaxed) < FAREWELLS {
        drain(stream);
    }
    WAITING.fetch_sub(1, Relaxed);
}

/// Reads and drops bytes until the client ends the connection, for a moment.
fn drain(stream: &Stream) {
    let until = Instant::now() + FAREWELL;
    let mut rest = [0; 1024];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || !stream.wait_for_bytes(left) {
            return;
        }
        // These are no messages, and may be no TLS any more.
        match stream.receive_raw(&mut rest) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// Looks at the first bytes of a connection.
#[derive(Default)]
pub struct FrontDoor {
    first: [u8; TELLING],
    seen: usize,
}

impl FrontDoor {
    /// Takes the next bytes. Returns the sender's protocol if it is not MongoDB's.
    pub fn look(&mut self, bytes: &[u8]) -> Option<Stranger> {
        for (to, from) in self.first.iter_mut().skip(self.seen).zip(bytes) {
            *to = *from;
            self.seen += 1;
        }
        Stranger::of(self.first.get(..self.seen).unwrap_or_default())
    }

    /// Whether enough bytes were seen to know that the client speaks MongoDB's protocol.
    pub fn is_passed(&self) -> bool {
        self.seen == TELLING
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::{FrontDoor, Stranger};

    #[test]
    fn strangers_are_told_by_their_first_bytes() {
        for (first, wanted) in [
            (&b"GET / HTTP/1.1"[..], Some(Stranger::Http)),
            (b"POST /x", Some(Stranger::Http)),
            (b"PRI * HTTP/2.0", Some(Stranger::Http)),
            (b"GE", None),
            (
                &[22, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3, 9],
                Some(Stranger::Tls([3, 1])),
            ),
            (
                &[22, 3, 3, 0, 60, 1, 0, 0, 56, 3, 3, 9],
                Some(Stranger::Tls([3, 3])),
            ),
            (&[22, 3, 1, 2, 0, 1, 0, 1], None),
            // Two messages of MongoDB's, of 790 and 66,326 bytes, with the request id 257.
            (&[22, 3, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0xDD, 7, 0, 0], None),
            (&[22, 3, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0xDD, 7, 0, 0], None),
        ] {
            assert_eq!(FrontDoor::default().look(first), wanted, "{first:?}");
            // The result is the same if the bytes come one by one.
            let mut door = FrontDoor::default();
            let found = first.iter().find_map(|b| door.look(&[*b]));
            assert_eq!(found, wanted, "{first:?}");
        }
    }
}
