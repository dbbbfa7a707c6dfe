//! A connection's socket: TCP or Unix.

use muniment_value::{Code, Error};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A TCP or Unix socket.
#[derive(Debug)]
pub enum Stream {
    /// TCP, with `TCP_NODELAY`.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
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

    /// Wraps an accepted or connected TCP socket and sets `TCP_NODELAY`.
    ///
    /// # Errors
    /// The socket's.
    pub fn from_tcp(s: TcpStream) -> io::Result<Stream> {
        s.set_nodelay(true)?;
        Ok(Stream::Tcp(s))
    }

    /// A second handle on the socket.
    ///
    /// # Errors
    /// The socket's.
    pub fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Tcp(s) => Stream::Tcp(s.try_clone()?),
            Stream::Unix(s) => Stream::Unix(s.try_clone()?),
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
        }
    }

    /// How long sent data may stay unacknowledged before the connection counts as lost (`TCP_USER_TIMEOUT`).
    /// Linux only: elsewhere the system's own limit of some minutes applies.
    ///
    /// # Errors
    /// The socket's.
    pub fn set_silence(&self, t: Duration) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        if let Stream::Tcp(s) = self {
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
        }
    }

    /// `address:port` of this side; `None` for a Unix socket.
    pub fn local(&self) -> Option<String> {
        match self {
            Stream::Tcp(s) => s.local_addr().map(|a| a.to_string()).ok(),
            Stream::Unix(_) => None,
        }
    }

    /// `address:port` of the other side; empty for a Unix socket.
    pub fn peer(&self) -> String {
        match self {
            Stream::Tcp(s) => s.peer_addr().map(|a| a.to_string()).unwrap_or_default(),
            Stream::Unix(_) => String::new(),
        }
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Stream::Tcp(s) => s.as_raw_fd(),
            Stream::Unix(s) => s.as_raw_fd(),
        }
    }
}

impl Read for Stream {
    #[inline]
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.read(buf),
            Stream::Unix(s) => s.read(buf),
        }
    }
}

impl Write for Stream {
    #[inline]
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.write(buf),
            Stream::Unix(s) => s.write(buf),
        }
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.write_vectored(bufs),
            Stream::Unix(s) => s.write_vectored(bufs),
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
