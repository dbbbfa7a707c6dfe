//! Unix sockets between servers on one host, where the kernel has less to do for a message than over TCP.
//!
//! A server that has a Unix socket says so when a connection is proven ([`Spot`]). A caller that has come to it by TCP,
//! on this host and at the very port that the server listens on, connects there instead, and from then on at once
//! ([`Spots`]). A relay between the two has another port, so it is not left out.
//!
//! Invariants: what a server is, is learnt over TCP. Nothing is sent to a Unix socket that another user listens on, since
//! anybody may make a file in `/tmp`, and could pass on what proves a caller to be a member. A connection is used only if
//! the process there is the one that has told of it: a file may belong to another server by now, or to one that another
//! container calls by the same name. With TLS between members nothing of this is done.

use muniment_value::{Doc, DocBuf, Value, doc};
use muniment_wire::Stream;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The field of a reply that tells of a Unix socket.
pub const NEAR: &str = "near";

/// So many servers are remembered at most. Only those of one set are, so this is not reached unless its members are replaced
/// all the time.
const MOST: usize = 256;
/// For so long a Unix socket is left alone after it could not be used.
const REST: Duration = Duration::from_secs(60);
/// What was learnt counts for so long. A name may lead to another machine by then.
const FRESH: Duration = Duration::from_secs(60);

/// A server's Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The file.
    socket: String,
    /// The TCP port of the same server.
    port: u16,
    /// The process, as its `topologyVersion` has it.
    process: [u8; 12],
}

impl Spot {
    /// The Unix socket of a process that listens on this port, too. `None` if others cannot be told of the file.
    pub fn new(socket: &Path, port: u16, process: [u8; 12]) -> Option<Spot> {
        let socket = socket.to_str().filter(|_| socket.is_absolute())?.to_owned();
        Some(Spot {
            socket,
            port,
            process,
        })
    }

    /// As the field [`NEAR`] of a reply.
    pub fn to_doc(&self) -> DocBuf {
        doc! {
            "socket": self.socket.as_str(), "port": i32::from(self.port),
            "process": Value::ObjectId(self.process),
        }
    }

    /// What a reply tells.
    pub(crate) fn of(reply: Doc<'_>) -> Option<Spot> {
        let near = reply.get_doc(NEAR)?;
        let Some(Value::ObjectId(process)) = near.get("process") else {
            return None;
        };
        Some(Spot {
            socket: near
                .get_str("socket")
                .filter(|s| s.starts_with('/'))?
                .to_owned(),
            port: near
                .get("port")
                .and_then(|v| v.as_i64_exact())?
                .try_into()
                .ok()?,
            process,
        })
    }

    /// Whether a connection leads to this process on this host, and not through a relay.
    fn is_at_end_of(&self, stream: &Stream) -> bool {
        let Stream::Tcp(socket) = stream else {
            return false;
        };
        let (Ok(here), Ok(there)) = (socket.local_addr(), socket.peer_addr()) else {
            return false;
        };
        let ip = |a: SocketAddr| a.ip().to_canonical();
        let both_loopback = ip(here).is_loopback() && ip(there).is_loopback();
        there.port() == self.port && (both_loopback || ip(here) == ip(there))
    }
}

/// The Unix sockets that a caller knows, by what it would dial otherwise. All clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spots(Arc<Mutex<BTreeMap<String, Known>>>);

#[derive(Clone, Debug)]
struct Known {
    spot: Spot,
    /// When it was last told of.
    learnt: Instant,
    /// It is left alone until then.
    rests: Option<Instant>,
}

impl Spots {
    /// A connection to a server that is known to be near, and what that server has told.
    pub fn connect(&self, dialled: &str) -> Option<(Stream, Spot)> {
        self.connect_at(dialled, muniment_op::now())
    }

    fn connect_at(&self, dialled: &str, now: Instant) -> Option<(Stream, Spot)> {
        let known = self.0.lock().get(dialled).cloned()?;
        let spot = known.spot;
        if known.rests.is_some_and(|until| now < until) || now > known.learnt + FRESH {
            return None;
        }
        let stream = Stream::connect_at_once(Path::new(&spot.socket));
        match stream.and_then(|stream| Ok((stream.is_of_own_user()?, stream))) {
            Ok((true, stream)) => Some((stream, spot)),
            // Many wait to be accepted. They are not for long.
            Err(e) if e.kind() == ErrorKind::WouldBlock => None,
            _ => {
                self.fails(dialled, &spot);
                None
            }
        }
    }

    /// A Unix socket could not be used. It is left alone for some time.
    pub fn fails(&self, dialled: &str, spot: &Spot) {
        if let Some(known) = self.0.lock().get_mut(dialled)
            && known.spot == *spot
        {
            known.rests = Some(muniment_op::now() + REST);
        }
    }

    /// A connection that was made over TCP has told this.
    pub fn learn(&self, dialled: &str, stream: &Stream, told: Option<Spot>) {
        let told = told.filter(|spot| spot.is_at_end_of(stream));
        let mut known = self.0.lock();
        let Some(spot) = told else {
            known.remove(dialled);
            return;
        };
        let before = known.remove(dialled).filter(|known| known.spot == spot);
        if known.len() >= MOST {
            known.clear();
        }
        let learnt = Known {
            spot,
            learnt: muniment_op::now(),
            rests: before.and_then(|known| known.rests),
        };
        known.insert(dialled.to_owned(), learnt);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    fn spot(socket: &Path, port: u16, process: u8) -> Spot {
        Spot::new(socket, port, [process; 12]).unwrap()
    }

    #[test]
    fn a_reply_tells_what_it_was_given() {
        let here = spot(Path::new("/tmp/a.sock"), 27017, 7);
        let reply = doc! { "near": here.to_doc() };
        assert_eq!(Spot::of(reply.as_doc()), Some(here));
        assert_eq!(Spot::new(Path::new("a.sock"), 27017, [7; 12]), None);
        let process = Value::ObjectId([7; 12]);
        for near in [
            doc! {},
            doc! { "socket": "a.sock", "port": 1, "process": process },
            doc! { "socket": "/a.sock", "port": 65_536, "process": process },
            doc! { "socket": "/a.sock", "port": -1, "process": process },
            doc! { "socket": "/a.sock", "port": 1, "process": "7" },
        ] {
            assert_eq!(Spot::of(doc! { "near": near }.as_doc()), None);
        }
    }

    #[test]
    fn only_a_server_that_was_come_to_straight_is_near() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let _near = UnixListener::bind(&path).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let dialled = format!("127.0.0.1:{port}");
        let stream = Stream::connect(&dialled, None).unwrap();
        let spots = Spots::default();
        assert!(spots.connect(&dialled).is_none());
        // There is a relay in between.
        spots.learn(&dialled, &stream, Some(spot(&path, port ^ 1, 1)));
        assert!(spots.connect(&dialled).is_none());
        let first = spot(&path, port, 1);
        spots.learn(&dialled, &stream, Some(first.clone()));
        let (_, found) = spots.connect(&dialled).unwrap();
        assert_eq!(found, first);
        // The name may lead elsewhere by then.
        let later = muniment_op::now() + FRESH + Duration::from_secs(1);
        assert!(spots.connect_at(&dialled, later).is_none());
        // Another process was there.
        spots.fails(&dialled, &first);
        spots.learn(&dialled, &stream, Some(first.clone()));
        assert!(spots.connect(&dialled).is_none());
        spots.learn(&dialled, &stream, Some(spot(&path, port, 2)));
        assert!(spots.connect(&dialled).is_some());
        // It tells of none any more.
        spots.learn(&dialled, &stream, None);
        assert!(spots.connect(&dialled).is_none());
    }

    #[test]
    fn a_socket_that_nobody_serves_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        drop(UnixListener::bind(&path).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let dialled = format!("127.0.0.1:{port}");
        let stream = Stream::connect(&dialled, None).unwrap();
        let spots = Spots::default();
        spots.learn(&dialled, &stream, Some(spot(&path, port, 1)));
        assert!(spots.connect(&dialled).is_none());
        let _now = UnixListener::bind(dir.path().join("other.sock")).unwrap();
        assert!(spots.connect(&dialled).is_none());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stream = Stream::connect(&address.to_string(), None).unwrap();
        let spots = Spots::default();
        for i in 0..3 * MOST {
            let told = spot(Path::new("/s.sock"), address.port(), 1);
            spots.learn(&format!("host{i}:1"), &stream, Some(told));
            assert!(spots.0.lock().len() <= MOST);
        }
    }
}
