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

    /// Longest wait of a read; `None` waits for ever.
    ///
    /// # Errors
    /// The socket's.
    pub fn set_read_timeout(&self, t: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(s) => s.set_read_timeout(t),
            Stream::Unix(s) => s.set_read_timeout(t),
        }
    }

    /// Longest wait of a write; `None` waits for ever.
    ///
    /// # Errors
    /// The socket's.
    pub fn set_write_timeout(&self, t: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(s) => s.set_write_timeout(t),
            Stream::Unix(s) => s.set_write_timeout(t),
        }
    }

    /// Ends both directions, which wakes a read that another handle is in.
    ///
    /// # Errors
    /// The socket's.
    pub fn shutdown(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(s) => s.shutdown(Shutdown::Both),
            Stream::Unix(s) => s.shutdown(Shutdown::Both),
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
