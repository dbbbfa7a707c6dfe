//! Binding and accepting.
//!
//! Invariant: the accepting thread never waits for a client; whatever costs time happens in the
//! connection's own thread.

use crate::connection::{self, STACK};
use crate::ingress::Limiter;
use crate::log::Severity;
use crate::options::ServerOptions;
use crate::state::{ClientInfo, ConnShared, ServerState, disconnect_probe};
use muniment_value::{Code, Error, Result, doc};
use muniment_wire::Stream;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Refused connections that may wait for their error at a time.
const TURNING_AWAY: u64 = 32;
/// Backlog of the listening sockets.
const BACKLOG: i32 = 4096;

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Socket {
    fn fd(&self) -> RawFd {
        match self {
            Socket::Tcp(s) => s.as_raw_fd(),
            Socket::Unix(s) => s.as_raw_fd(),
        }
    }
}

/// Bound sockets.
pub struct Listener {
    sockets: Vec<Socket>,
    /// The TCP addresses, so that one that is named twice is bound once.
    bound: Vec<SocketAddr>,
    unix_path: Option<PathBuf>,
    port: u16,
}

fn bind_error(what: &str, e: &io::Error) -> Error {
    let code = if e.kind() == io::ErrorKind::AddrInUse {
        Code(9001)
    } else {
        Code::HostUnreachable
    };
    Error::new(code, format!("cannot listen on {what}: {e}"))
}

impl Listener {
    /// Binds every address.
    ///
    /// # Errors
    /// 9001 SocketException when one is in use, 6, 7 when it is none.
    pub fn bind(options: &ServerOptions) -> Result<Listener> {
        let mut listener = Listener {
            sockets: Vec::new(),
            bound: Vec::new(),
            unix_path: None,
            port: options.port,
        };
        for host in &options.bind_ip {
            if host.contains('/') {
                listener.bind_unix(PathBuf::from(host))?;
                continue;
            }
            listener.bind_tcp(host, options.ipv6)?;
        }
        if let Some(dir) = &options.unix_socket_prefix {
            let path = dir.join(format!("mongodb-{}.sock", listener.port));
            listener.bind_unix(path)?;
        }
        Ok(listener)
    }

    fn bind_tcp(&mut self, host: &str, ipv6: bool) -> Result<()> {
        let host = if host == "*" { "0.0.0.0" } else { host };
        let what = format!("{host}:{}", self.port);
        let addrs = (host, self.port)
            .to_socket_addrs()
            .map_err(|e| Error::new(Code::HostNotFound, format!("{what}: {e}")))?;
        let mut bound = false;
        for mut addr in addrs {
            if addr.is_ipv6() && !ipv6 {
                continue;
            }
            // The first bind of port 0 decides the port of all.
            addr.set_port(self.port);
            bound = true;
            if self.port != 0 && self.bound.contains(&addr) {
                continue;
            }
            let socket = TcpListener::bind(addr).map_err(|e| bind_error(&what, &e))?;
            set_backlog(socket.as_raw_fd());
            let _ = socket.set_nonblocking(true);
            if self.port == 0 {
                self.port = socket.local_addr().map_err(Error::from)?.port();
            }
            addr.set_port(self.port);
            self.bound.push(addr);
            self.sockets.push(Socket::Tcp(socket));
        }
        if bound {
            Ok(())
        } else {
            Err(Error::new(
                Code::HostNotFound,
                format!("{what} has no address to listen on (IPv6 needs --ipv6)"),
            ))
        }
    }

    fn bind_unix(&mut self, path: PathBuf) -> Result<()> {
        // Left behind by a process that was killed: nobody answers there.
        if path.exists() && std::os::unix::net::UnixStream::connect(&path).is_err() {
            let _ = std::fs::remove_file(&path);
        }
        let socket =
            UnixListener::bind(&path).map_err(|e| bind_error(&path.to_string_lossy(), &e))?;
        set_backlog(socket.as_raw_fd());
        let _ = socket.set_nonblocking(true);
        self.sockets.push(Socket::Unix(socket));
        self.unix_path = Some(path);
        Ok(())
    }

    /// The bound TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Removes the Unix socket's file.
    pub fn cleanup(&self) {
        if let Some(p) = &self.unix_path {
            let _ = std::fs::remove_file(p);
        }
    }

    /// Accepts until `waker` is woken and the server ends.
    pub fn run(&self, server: &Arc<ServerState>, waker: &Waker) {
        let mut fds: Vec<libc::pollfd> = self
            .sockets
            .iter()
            .map(Socket::fd)
            .chain([waker.read.as_raw_fd()])
            .map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        let turning_away = Arc::new(AtomicU64::new(0));
        let ingress = &server.parameters.ingress;
        let mut limiter = Limiter::new(Instant::now());
        let mut queue = VecDeque::new();
        loop {
            let timeout = match queue.is_empty() {
                true => -1,
                false => limiter.wait(ingress).as_millis() as libc::c_int + 1,
            };
            // SAFETY: the vector is ours and its length is given.
            let n = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout) };
            if n < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            if let Some(signal) = waker.drain() {
                server.request_stop(&format!("got signal {signal}"));
            }
            if server.is_stopping() {
                return;
            }
            for s in &self.sockets {
                while let Some(stream) = accept(s, server) {
                    queue.push_back(stream);
                    while let Some(stream) = next_of(&mut queue, &mut limiter, server) {
                        admit(server, stream, &turning_away);
                    }
                }
            }
            while let Some(stream) = next_of(&mut queue, &mut limiter, server) {
                admit(server, stream, &turning_away);
            }
        }
    }
}

/// The connection whose turn it is. Those that came beyond the queue's length are closed.
fn next_of(
    queue: &mut VecDeque<Stream>,
    limiter: &mut Limiter,
    server: &ServerState,
) -> Option<Stream> {
    let ingress = &server.parameters.ingress;
    if !queue.is_empty() && limiter.take(ingress, Instant::now()) {
        return queue.pop_front();
    }
    let depth = usize::try_from(ingress.queue_depth.load(Ordering::Relaxed)).unwrap_or(0);
    while queue.len() > depth {
        queue.pop_back();
        server.rejected_connections.fetch_add(1, Ordering::Relaxed);
    }
    None
}

fn set_backlog(fd: RawFd) {
    // SAFETY: calling listen again only changes the backlog.
    unsafe { libc::listen(fd, BACKLOG) };
}

fn accept(socket: &Socket, server: &ServerState) -> Option<Stream> {
    let accepted = match socket {
        Socket::Tcp(l) => l.accept().and_then(|(s, _)| {
            s.set_nonblocking(false)?;
            keep_alive(s.as_raw_fd());
            Stream::from_tcp(s)
        }),
        Socket::Unix(l) => l.accept().and_then(|(s, _)| {
            s.set_nonblocking(false)?;
            Ok(Stream::Unix(s))
        }),
    };
    match accepted {
        Ok(s) => Some(s),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
        Err(e) if e.kind() == io::ErrorKind::Interrupted => None,
        Err(e) => {
            server.log.log(
                Severity::Warning,
                "NETWORK",
                23023,
                "listener",
                "Error accepting new connection on local endpoint",
                Some(&doc! { "error": e.to_string() }),
            );
            // Out of file descriptors: give the others a moment instead of spinning.
            std::thread::sleep(std::time::Duration::from_millis(5));
            None
        }
    }
}

/// Finds out about half-open connections: two minutes of silence, then probes.
fn keep_alive(fd: RawFd) {
    for (level, name, value) in [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 120),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 10),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 6),
    ] {
        let value: libc::c_int = value;
        // SAFETY: the value lives on the stack and its size is given.
        unsafe {
            libc::setsockopt(
                fd,
                level,
                name,
                std::ptr::from_ref(&value).cast(),
                std::mem::size_of::<libc::c_int>() as libc::socklen_t,
            );
        }
    }
}

/// Gives a new connection its thread.
fn admit(server: &Arc<ServerState>, stream: Stream, turning_away: &Arc<AtomicU64>) {
    let open = server.open_connections.load(Ordering::Relaxed);
    if open as usize >= server.max_conns {
        server.rejected_connections.fetch_add(1, Ordering::Relaxed);
        if turning_away.fetch_add(1, Ordering::Relaxed) >= TURNING_AWAY {
            turning_away.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let (server, count) = (Arc::clone(server), Arc::clone(turning_away));
        let spawned = std::thread::Builder::new()
            .stack_size(128 << 10)
            .spawn(move || {
                connection::turn_away(&server, &stream);
                count.fetch_sub(1, Ordering::Relaxed);
            });
        if spawned.is_err() {
            turning_away.fetch_sub(1, Ordering::Relaxed);
        }
        return;
    }
    let id = server.created_connections.fetch_add(1, Ordering::Relaxed) + 1;
    let stream = Arc::new(stream);
    let shared = Arc::new(ConnShared {
        id,
        peer: stream.peer().into(),
        is_gone: disconnect_probe(&stream),
        stream,
        since: Instant::now(),
        client: Mutex::new(ClientInfo::default()),
        command: Mutex::new(Vec::new()),
        busy: AtomicBool::new(false),
        uuid: std::sync::OnceLock::new(),
    });
    server.connections.lock().insert(id, Arc::clone(&shared));
    let count = server.open_connections.fetch_add(1, Ordering::Relaxed) + 1;
    log_connection(server, &shared, 22943, "Connection accepted", count);
    let state = Arc::clone(server);
    let spawned = std::thread::Builder::new()
        .name(format!("conn{id}"))
        .stack_size(STACK)
        .spawn(move || {
            // A bug in the connection's own code must not leave its record behind.
            let served = crate::guard::guarded(|| connection::serve(&state, Arc::clone(&shared)));
            if let Err(caught) = served {
                state.log.log(
                    Severity::Error,
                    "ASSERT",
                    23081,
                    &format!("conn{id}"),
                    "A connection panicked; this is a bug",
                    Some(&doc! { "what": caught.message, "backtrace": caught.report }),
                );
            }
            let _ = shared.stream.shutdown();
            state.connections.lock().remove(&id);
            let left = state.open_connections.fetch_sub(1, Ordering::Relaxed) - 1;
            log_connection(&state, &shared, 22944, "Connection ended", left);
        });
    if let Err(e) = spawned {
        server.connections.lock().remove(&id);
        server.open_connections.fetch_sub(1, Ordering::Relaxed);
        server.rejected_connections.fetch_add(1, Ordering::Relaxed);
        server.log.log(
            Severity::Error,
            "NETWORK",
            4_615_611,
            "listener",
            "Could not start a thread for a connection",
            Some(&doc! { "error": e.to_string(), "connectionCount": count as i64 }),
        );
    }
}

fn log_connection(server: &ServerState, c: &ConnShared, id: u32, msg: &str, count: u64) {
    if server.log.quiet() {
        return;
    }
    server.log.info(
        "NETWORK",
        id,
        "listener",
        msg,
        &doc! {
            "remote": &*c.peer,
            "connectionId": c.id as i64,
            "connectionCount": count as i64,
        },
    );
}

/// Wakes the accepting thread: from any thread, and from a signal handler.
pub struct Waker {
    read: OwnedFd,
    write: OwnedFd,
}

impl Waker {
    /// A waker.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new() -> io::Result<Waker> {
        let mut fds = [0; 2];
        // SAFETY: two descriptors are written into the array; both are owned from here on.
        unsafe {
            if libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Waker {
                read: OwnedFd::from_raw_fd(fds[0]),
                write: OwnedFd::from_raw_fd(fds[1]),
            })
        }
    }

    /// The descriptor to write a byte to: the number of a signal, or 0.
    pub fn write_fd(&self) -> RawFd {
        self.write.as_raw_fd()
    }

    /// Wakes.
    pub fn wake(&self) {
        // SAFETY: one byte from the stack.
        unsafe { libc::write(self.write.as_raw_fd(), [0_u8].as_ptr().cast(), 1) };
    }

    /// Takes what was written; a signal's number if there is one.
    fn drain(&self) -> Option<i32> {
        let mut buf = [0_u8; 64];
        // SAFETY: the buffer is ours and its length is given.
        let n = unsafe { libc::read(self.read.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len()) };
        let n = usize::try_from(n).unwrap_or(0);
        buf.get(..n)?
            .iter()
            .find(|b| **b != 0)
            .map(|b| i32::from(*b))
    }
}
