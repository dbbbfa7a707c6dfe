//! A connection's socket: TCP, Unix or TLS.

use muniment_tls::{Endpoint, Socket};
use muniment_value::{Code, Error};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A TCP or Unix socket, or one that speaks TLS. Several threads may hold handles on it. At most one of them
/// reads and one writes at a time, and a write that is cut short has to be repeated with what is left
/// ([`muniment_tls::Socket`]).
#[derive(Debug)]
pub enum Stream {
    /// TCP, with `TCP_NODELAY`.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
    /// TCP, with TLS or with a server that offers it.
    Tls(Arc<Socket>),
}

impl Stream {
    /// Connects to `host:port`, or to the Unix socket at a path (recognised by its `/`).
    ///
    /// # Errors
    /// The socket's.
    pub fn connect(addr: &str, timeout: Option<Duration>) -> io::Result<Stream> {
        if addr.contains('/') {
            return UnixStream::connect(addr).map(Stream::Unix);
        }
        let mut last = io::Error::new(io::ErrorKind::NotFound, format!("no address for {addr}"));
        for a in addr.to_socket_addrs()? {
            let tried = match timeout {
                Some(t) => TcpStream::connect_timeout(&a, t),
                None => TcpStream::connect(a),
            };
            match tried {
                Ok(s) => return Stream::from_tcp(s),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Connects to the Unix socket of this file, if that needs no wait.
    ///
    /// # Errors
    /// The socket's; one of the kind `WouldBlock` if too many wait there to be accepted.
    pub fn connect_at_once(path: &Path) -> io::Result<Stream> {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
        use rustix::net::{connect, socket_with};
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        let socket = UnixStream::from(socket);
        socket.set_nonblocking(false)?;
        Ok(Stream::Unix(socket))
    }

    /// Whether the process at the other end of a Unix socket runs as the same user as this one, or as root.
    ///
    /// # Errors
    /// The socket's.
    pub fn is_of_own_user(&self) -> io::Result<bool> {
        let peer = rustix::net::sockopt::socket_peercred(self)?;
        Ok(peer.uid.is_root() || peer.uid == rustix::process::geteuid())
    }

    /// Wraps an accepted or connected TCP socket and sets `TCP_NODELAY`.
    ///
    /// # Errors
    /// The socket's.
    pub fn from_tcp(s: TcpStream) -> io::Result<Stream> {
        s.set_nodelay(true)?;
        Ok(Stream::Tcp(s))
    }

    /// An accepted TCP socket whose client may or has to use TLS. Others stay as they are.
    #[must_use]
    pub fn offering(self, tls: &Arc<Endpoint>) -> Stream {
        match self {
            Stream::Tcp(s) => Stream::Tls(Arc::new(Socket::accepted(s, Arc::clone(tls)))),
            other => other,
        }
    }

    /// Makes the handshake of TLS with the server of this name, within `limit`. A Unix socket stays as it is.
    ///
    /// # Errors
    /// The socket's; one of the kind `InvalidData` if the handshake fails.
    pub fn secured(self, tls: &Endpoint, name: &str, limit: Duration) -> io::Result<Stream> {
        match self {
            Stream::Tcp(s) => Ok(Stream::Tls(Arc::new(Socket::connect(s, tls, name, limit)?))),
            other => Ok(other),
        }
    }

    /// The socket that speaks TLS, or whose other side may.
    pub fn tls(&self) -> Option<&Socket> {
        match self {
            Stream::Tls(s) => Some(s),
            _ => None,
        }
    }

    /// Frees the memory that a silent connection does not need.
    pub fn shrink_idle(&self) {
        if let Stream::Tls(s) = self {
            s.shrink_idle();
        }
    }

    /// The TCP connection, with TLS or without.
    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Stream::Tcp(s) => Some(s),
            Stream::Unix(_) => None,
            Stream::Tls(s) => Some(s.tcp()),
        }
    }

    /// Waits until the socket has something to read, or has ended; false after `limit`.
    pub fn wait_for_bytes(&self, limit: Duration) -> bool {
        Stream::wait_for_any(std::iter::once(self), limit)
    }

    /// Waits until one of these sockets has something to read, or has ended; false after `limit`.
    pub fn wait_for_any<'s>(sockets: impl Iterator<Item = &'s Stream>, limit: Duration) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let limit = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        let sockets: Vec<_> = sockets.map(AsFd::as_fd).collect();
        let watched = sockets.iter().map(|fd| PollFd::new(fd, PollFlags::IN));
        poll(&mut watched.collect::<Vec<_>>(), Some(&limit)).is_ok_and(|n| n > 0)
    }

    /// Reads the bytes as they come from the network, without waiting: on a connection that nothing is read
    /// from any more.
    ///
    /// # Errors
    /// The socket's; one of the kind `WouldBlock` if there is nothing.
    pub fn receive_raw(&self, buf: &mut [u8]) -> io::Result<usize> {
        use rustix::net::{RecvFlags, recv};
        Ok(recv(self.as_fd(), buf, RecvFlags::DONTWAIT)?.0)
    }

    /// Reads, and waits for that no longer than the limit.
    ///
    /// # Errors
    /// The socket's; one of the kind `WouldBlock` after the limit.
    #[inline]
    pub fn receive(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => (&mut &*s).read(buf),
            Stream::Unix(s) => (&mut &*s).read(buf),
            Stream::Tls(s) => s.read(buf),
        }
    }

    /// Writes some, and waits for that no longer than the limit.
    ///
    /// # Errors
    /// The socket's; one of the kind `WouldBlock` after the limit.
    #[inline]
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => (&mut &*s).write(buf),
            Stream::Unix(s) => (&mut &*s).write(buf),
            Stream::Tls(s) => s.write(buf),
        }
    }

    /// A second handle on the socket.
    ///
    /// # Errors
    /// The socket's.
    pub fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Tcp(s) => Stream::Tcp(s.try_clone()?),
            Stream::Unix(s) => Stream::Unix(s.try_clone()?),
            Stream::Tls(s) => Stream::Tls(Arc::clone(s)),
        })
    }

    /// The longest wait of a read; `None` waits forever.
    ///
    /// # Errors
    /// The socket's.
    pub fn set_read_timeout(&self, t: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(s) => s.set_read_timeout(t),
            Stream::Unix(s) => s.set_read_timeout(t),
            Stream::Tls(s) => {
                s.set_read_timeout(t);
                Ok(())
            }
        }
    }

    /// The longest wait of a write; `None` waits forever.
    ///
    /// # Errors
    /// The socket's.
    pub fn set_write_timeout(&self, t: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(s) => s.set_write_timeout(t),
            Stream::Unix(s) => s.set_write_timeout(t),
            Stream::Tls(s) => {
                s.set_write_timeout(t);
                Ok(())
            }
        }
    }

    /// How long sent data may stay unacknowledged before the connection counts as lost (`TCP_USER_TIMEOUT`).
    /// Linux only: elsewhere the system's own limit of some minutes applies.
    ///
    /// # Errors
    /// The socket's.
    pub fn set_silence(&self, t: Duration) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        if let Some(s) = self.tcp() {
            let ms = u32::try_from(t.as_millis()).unwrap_or(u32::MAX);
            rustix::net::sockopt::set_tcp_user_timeout(s, ms)?;
        }
        #[cfg(not(target_os = "linux"))]
        let _ = t;
        Ok(())
    }

    /// True if the other side has closed the connection, or it has failed, and no data is left to be read
    /// before that.
    pub fn has_ended(&self) -> bool {
        use rustix::net::{RecvFlags, recv};
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut byte = [0_u8];
        let peeked = match self {
            Stream::Tcp(s) => recv(s, &mut byte, flags),
            Stream::Unix(s) => recv(s, &mut byte, flags),
            Stream::Tls(s) => return s.has_ended(),
        };
        match peeked {
            Ok((n, _)) => n == 0,
            Err(e) => !matches!(e, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
        }
    }

    /// Reads what there is without waiting.
    ///
    /// # Errors
    /// The socket's; one of the kind `WouldBlock` if there is nothing.
    #[inline]
    pub fn read_at_once(&self, buf: &mut [u8]) -> io::Result<usize> {
        use rustix::net::{RecvFlags, recv};
        let read = match self {
            Stream::Tcp(s) => recv(s, buf, RecvFlags::DONTWAIT),
            Stream::Unix(s) => recv(s, buf, RecvFlags::DONTWAIT),
            Stream::Tls(s) => return s.read_at_once(buf),
        };
        Ok(read?.0)
    }

    /// Writes as many of `bytes` as the system accepts without waiting; 0 if it accepts none.
    ///
    /// # Errors
    /// The socket's.
    pub fn write_at_once(&self, bytes: &[u8]) -> io::Result<usize> {
        use rustix::net::{SendFlags, send};
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = match self {
            Stream::Tcp(s) => send(s, bytes, flags),
            Stream::Unix(s) => send(s, bytes, flags),
            Stream::Tls(s) => return s.write_at_once(bytes),
        };
        match sent {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
            other => Ok(other?),
        }
    }

    /// Ends both directions, which also ends a read that is blocked on another handle.
    ///
    /// # Errors
    /// The socket's.
    pub fn shutdown(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(s) => s.shutdown(Shutdown::Both),
            Stream::Unix(s) => s.shutdown(Shutdown::Both),
            Stream::Tls(s) => s.shutdown(),
        }
    }

    /// Ends the sending direction; received data can still be read.
    ///
    /// # Errors
    /// The socket's.
    pub fn shutdown_write(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(s) => s.shutdown(Shutdown::Write),
            Stream::Unix(s) => s.shutdown(Shutdown::Write),
            Stream::Tls(s) => s.shutdown_write(),
        }
    }

    /// `address:port` of this side; `None` for a Unix socket.
    pub fn local(&self) -> Option<String> {
        self.tcp()?.local_addr().map(|a| a.to_string()).ok()
    }

    /// `address:port` of the other side; empty for a Unix socket.
    pub fn peer(&self) -> String {
        let peer = self.tcp().and_then(|s| s.peer_addr().ok());
        peer.map(|a| a.to_string()).unwrap_or_default()
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(s) => s.as_fd(),
            Stream::Unix(s) => s.as_fd(),
            Stream::Tls(s) => s.tcp().as_fd(),
        }
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Read for Stream {
    #[inline]
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.receive(buf)
    }
}

impl Write for Stream {
    #[inline]
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.send(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.write_vectored(bufs),
            Stream::Unix(s) => s.write_vectored(bufs),
            Stream::Tls(s) => s.write(bufs.iter().find(|b| !b.is_empty()).map_or(&[], |b| b)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket's error as a client reports it: 89 NetworkTimeout or 9001 SocketException.
pub fn socket_error(e: &io::Error) -> Error {
    let code = match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Code::NetworkTimeout,
        _ => Code::SocketException,
    };
    Error::new(code, e.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn write_at_once_does_not_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let near = Stream::connect(&address, None).unwrap();
        let mut far = listener.accept().unwrap().0;
        let bytes = vec![7; 1 << 20];
        let mut sent = 0;
        // No thread reads, so the system accepts only so much.
        while let n @ 1.. = near.write_at_once(&bytes).unwrap() {
            sent += n;
        }
        drop(near);
        let mut came = Vec::new();
        far.read_to_end(&mut came).unwrap();
        assert_eq!(came, vec![7; sent]);
    }

    #[test]
    fn the_end_of_the_other_side_is_seen_without_reading() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let near = Stream::connect(&address, None).unwrap();
        near.set_silence(Duration::from_secs(1)).unwrap();
        let mut far = listener.accept().unwrap().0;
        assert!(!near.has_ended());
        far.write_all(b"x").unwrap();
        drop(far);
        // The data that it has sent comes before its end.
        std::thread::sleep(Duration::from_millis(20));
        assert!(!near.has_ended());
        near.try_clone().unwrap().read_exact(&mut [0]).unwrap();
        while !near.has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
