//! Binds the sockets and accepts connections.
//!
//! Invariant: the accepting thread never waits for a client; everything that takes time happens in the
//! connection's own thread.

use crate::connection::{self, STACK};
use crate::connections::{ClientInfo, ConnShared};
use crate::hangups::Hangups;
use crate::ingress::Limiter;
use crate::options::ServerOptions;
use crate::pool::Pool;
use crate::serving;
use crate::state::ServerState;
use muniment_logger::{Logger, Seldom, Severity, guarded};
use muniment_value::{Code, Error, Result, doc};
use muniment_wire::Stream;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// How many refused connections may wait for their error at a time.
const TURNING_AWAY: u64 = 32;

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
    /// The TCP addresses, so that an address which is named twice is bound once.
    bound: Vec<SocketAddr>,
    unix_path: Option<PathBuf>,
    missed: Vec<(String, Error)>,
    port: u16,
    backlog: i32,
    /// The permissions of the Unix socket's file.
    permissions: u32,
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
    /// 9001 SocketException when an address is in use; 6, 7 for one that is not valid.
    pub fn bind(options: &ServerOptions) -> Result<Listener> {
        let mut listener = Listener {
            sockets: Vec::new(),
            bound: Vec::new(),
            unix_path: None,
            missed: Vec::new(),
            port: options.port,
            backlog: options.listen_backlog,
            permissions: options.socket_permissions,
        };
        // A socket on `::` accepts IPv4 as well, so it has to be bound first.
        let mut hosts: Vec<&str> = options.bind_ip.iter().map(String::as_str).collect();
        hosts.sort_by_key(|host| *host != "::");
        for host in hosts {
            if host.contains('/') {
                listener.bind_unix(PathBuf::from(host))?;
                continue;
            }
            match listener.bind_tcp(host, options.ipv6) {
                Err(e) if e.code() == Code::HostNotFound => listener.missed.push((host.into(), e)),
                bound => bound?,
            }
        }
        // As in mongod, it suffices if one address can be bound.
        if listener.sockets.is_empty()
            && let Some((_, e)) = listener.missed.pop()
        {
            return Err(e);
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
            // With port 0, the first socket chooses the port of all sockets.
            addr.set_port(self.port);
            bound = true;
            if self.port != 0 && (self.bound.contains(&addr) || self.takes(&addr)) {
                continue;
            }
            let socket = TcpListener::bind(addr).map_err(|e| bind_error(&what, &e))?;
            set_backlog(socket.as_raw_fd(), self.backlog);
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

    /// Whether a bound socket already accepts connections to an IPv4 address.
    fn takes(&self, addr: &SocketAddr) -> bool {
        let all = |b: &SocketAddr| b.is_ipv6() && b.ip().is_unspecified();
        addr.is_ipv4() && self.bound.iter().any(all)
    }

    fn bind_unix(&mut self, path: PathBuf) -> Result<()> {
        // A process that was killed leaves its socket's file behind, and nothing answers there.
        if path.exists() && std::os::unix::net::UnixStream::connect(&path).is_err() {
            let _ = std::fs::remove_file(&path);
        }
        let socket =
            UnixListener::bind(&path).map_err(|e| bind_error(&path.to_string_lossy(), &e))?;
        let mode = std::fs::Permissions::from_mode(self.permissions);
        std::fs::set_permissions(&path, mode)
            .map_err(|e| bind_error(&path.to_string_lossy(), &e))?;
        set_backlog(socket.as_raw_fd(), self.backlog);
        let _ = socket.set_nonblocking(true);
        self.sockets.push(Socket::Unix(socket));
        self.unix_path = Some(path);
        Ok(())
    }

    /// The hosts that have no address to listen on, and why.
    pub fn missed(&self) -> &[(String, Error)] {
        &self.missed
    }

    /// The bound TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The file of the Unix socket.
    pub fn socket(&self) -> Option<&PathBuf> {
        self.unix_path.as_ref()
    }

    /// Removes the Unix socket's file.
    pub fn cleanup(&self) {
        if let Some(p) = &self.unix_path {
            let _ = std::fs::remove_file(p);
        }
    }

    /// Accepts until `waker` is woken and the server ends.
    pub fn run(
        &self,
        server: &Arc<ServerState>,
        waker: &Waker,
        hangups: &Hangups,
        pool: Option<&Pool>,
    ) {
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
        let way = Way {
            turning_away: Arc::default(),
            hangups,
            pool,
        };
        let ingress = &server.parameters.ingress;
        let mut limiter = Limiter::new(Instant::now());
        let mut queue = VecDeque::new();
        let mut spare = Spare::new();
        loop {
            let timeout = match queue.is_empty() {
                true => -1,
                false => limiter.wait(ingress).as_millis() as libc::c_int + 1,
            };
            // SAFETY: the vector is owned by this function, and its length is given.
            let n = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout) };
            if n < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            waker.drain();
            if server.lifecycle.is_stopping() {
                return;
            }
            for s in &self.sockets {
                while let Some(stream) = accept(s, server, &mut spare) {
                    queue.push_back(stream);
                    while let Some(stream) = next_of(&mut queue, &mut limiter, server) {
                        admit(server, stream, &way);
                    }
                }
            }
            while let Some(stream) = next_of(&mut queue, &mut limiter, server) {
                admit(server, stream, &way);
            }
        }
    }
}

/// The next connection that may be accepted. Closes connections beyond the queue's length.
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
        server.connections.rejected.fetch_add(1, Ordering::Relaxed);
    }
    None
}

fn set_backlog(fd: RawFd, backlog: i32) {
    // SAFETY: calling listen again only changes the backlog.
    unsafe { libc::listen(fd, backlog) };
}

/// An open file to close when the process has no descriptor left for a connection. With its descriptor the
/// connection can be accepted and closed. Otherwise the connection would stay in the system's queue: its
/// client would wait for nothing, and the queue would wake the listener again and again.
struct Spare {
    file: Option<File>,
    errors: Seldom,
}

impl Spare {
    fn new() -> Spare {
        Spare {
            file: File::open("/dev/null").ok(),
            errors: Seldom::new(),
        }
    }

    /// Accepts a connection and closes it. False if there is none, or it fails.
    fn turn_away(&mut self, socket: &Socket) -> bool {
        let had = self.file.take().is_some();
        let closed = had
            && match socket {
                Socket::Tcp(l) => l.accept().is_ok(),
                Socket::Unix(l) => l.accept().is_ok(),
            };
        self.file = File::open("/dev/null").ok();
        closed
    }

    /// Logs an error and how often it occurred, but only once in a while.
    fn tell(&mut self, server: &ServerState, e: &io::Error) {
        let Some(times) = self.errors.note() else {
            return;
        };
        let (severity, msg) = match is_out_of_files(e) {
            true => (
                Severity::Error,
                "Out of file descriptors: connections are closed as soon as they come",
            ),
            false => (
                Severity::Warning,
                "Error accepting new connection on local endpoint",
            ),
        };
        let attr = doc! { "error": e.to_string(), "times": times as i64 };
        let log = &server.log;
        log.log(severity, "NETWORK", 23023, "listener", msg, Some(&attr));
    }
}

/// Whether the process, or the system, has no file descriptor left.
fn is_out_of_files(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

fn accept(socket: &Socket, server: &ServerState, spare: &mut Spare) -> Option<Stream> {
    loop {
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
        let e = match accepted {
            Ok(s) => {
                return Some(match &server.trust.tls {
                    Some(tls) => s.offering(tls),
                    None => s,
                });
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return None,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return None,
            Err(e) => e,
        };
        spare.tell(server, &e);
        if !is_out_of_files(&e) || !spare.turn_away(socket) {
            // An error of this one connection, or of the system: a short pause keeps the loop from spinning.
            std::thread::sleep(std::time::Duration::from_millis(5));
            return None;
        }
        server.connections.rejected.fetch_add(1, Ordering::Relaxed);
    }
}

/// Lets the system find half-open connections: after two minutes of silence it sends probes.
fn keep_alive(fd: RawFd) {
    for (level, name, value) in [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 120),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 10),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 6),
    ] {
        let value: libc::c_int = value;
        // SAFETY: the value is on this function's stack, and its size is given.
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

/// What the accepting thread keeps for the connections that it admits.
struct Way<'w> {
    /// How many refused connections wait for their error.
    turning_away: Arc<AtomicU64>,
    hangups: &'w Hangups,
    /// Serves the connections; without one, each has its own thread.
    pool: Option<&'w Pool>,
}

/// Gives a new connection to the pool, or a thread of its own.
fn admit(server: &Arc<ServerState>, stream: Stream, way: &Way<'_>) {
    let open = server.connections.open.load(Ordering::Relaxed);
    let most = server.connections.most;
    if open as usize >= most {
        let why = format!("there are already {most} connections (--maxConns)");
        return turn_away(server, stream, &way.turning_away, why);
    }
    let of_one = server.parameters.most_of_address.load(Ordering::Relaxed);
    if of_one > 0 && server.connections.count_from(&stream.peer()) as i64 >= of_one {
        let why = format!(
            "there are already {of_one} connections from this address \
             (munimentMaxConnectionsPerAddress)"
        );
        return turn_away(server, stream, &way.turning_away, why);
    }
    let id = server.connections.created.fetch_add(1, Ordering::Relaxed) + 1;
    let stream = Arc::new(stream);
    let shared = Arc::new(ConnShared {
        id,
        peer: stream.peer().into(),
        remote: Arc::default(),
        stream,
        since: Instant::now(),
        client: Mutex::new(ClientInfo::default()),
        command: Mutex::new(Vec::new()),
        spoke: AtomicBool::new(false),
        busy: AtomicBool::new(false),
        stuck: AtomicBool::new(false),
        user: Mutex::default(),
        uuid: std::sync::OnceLock::new(),
    });
    server.connections.insert(&shared);
    let count = opened(server, &shared, way.hangups);
    let begun = match way.pool {
        Some(pool) => pool.take(server, &shared),
        None => serve_in_thread(server, &shared),
    };
    if let Err(e) = begun {
        server.connections.remove(id);
        server.connections.open.fetch_sub(1, Ordering::Relaxed);
        server.connections.rejected.fetch_add(1, Ordering::Relaxed);
        log_unserved(&server.log, count, &e);
    }
}

/// Gives a new connection a thread of its own.
fn serve_in_thread(server: &Arc<ServerState>, shared: &Arc<ConnShared>) -> io::Result<()> {
    let (state, shared) = (Arc::clone(server), Arc::clone(shared));
    let thread = std::thread::Builder::new().name(format!("conn{}", shared.id));
    thread.stack_size(STACK).spawn(move || {
        // A bug in the connection's own code must not leave its entry among the open connections.
        let served = guarded(|| serving::serve(&state, Arc::clone(&shared)));
        if let Err(caught) = served {
            serving::log_panic(&state, shared.id, &caught);
        }
        serving::closed(&state, &shared);
    })?;
    Ok(())
}

/// Tells the client of a connection too many so, on a thread of its own. `turning_away` counts such threads; a
/// connection beyond [`TURNING_AWAY`] of them is closed without a word.
fn turn_away(
    server: &Arc<ServerState>,
    stream: Stream,
    turning_away: &Arc<AtomicU64>,
    why: String,
) {
    server.connections.rejected.fetch_add(1, Ordering::Relaxed);
    if turning_away.fetch_add(1, Ordering::Relaxed) >= TURNING_AWAY {
        turning_away.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let count = Arc::clone(turning_away);
    let spawned = std::thread::Builder::new()
        .stack_size(128 << 10)
        .spawn(move || {
            connection::turn_away(&stream, &why);
            count.fetch_sub(1, Ordering::Relaxed);
        });
    if spawned.is_err() {
        turning_away.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Logs that a connection could not be served, seldom if that happens often. `open` is the number of
/// connections.
fn log_unserved(log: &Logger, open: u64, e: &io::Error) {
    static UNSERVED: Seldom = Seldom::new();
    if let Some(times) = UNSERVED.note() {
        log.log(
            Severity::Error,
            "NETWORK",
            7_340_005,
            "listener",
            "Could not start a thread for a connection",
            Some(&doc! {
                "error": e.to_string(), "connectionCount": open as i64, "times": times as i64,
            }),
        );
    }
}

/// Registers a connection. Returns how many are open with it.
fn opened(server: &ServerState, shared: &ConnShared, hangups: &Hangups) -> u64 {
    if let Err(e) = hangups.watch(&*shared.stream, shared.id) {
        unwatched(server, shared.id, &e);
    }
    let count = server.connections.open.fetch_add(1, Ordering::Relaxed) + 1;
    serving::log_connection(server, shared, 22943, "Connection accepted", count);
    count
}

/// Warns that the operations of this connection will not end when its client goes.
fn unwatched(server: &ServerState, id: u64, e: &io::Error) {
    static UNWATCHED: Seldom = Seldom::new();
    if let Some(times) = UNWATCHED.note() {
        server.log.log(
            Severity::Warning,
            "NETWORK",
            7_340_025,
            "listener",
            "Could not watch whether the client of a connection goes away",
            Some(&doc! {
                "error": e.to_string(), "connectionId": id as i64, "times": times as i64,
            }),
        );
    }
}

/// Wakes the accepting thread from any other thread.
pub struct Waker {
    read: OwnedFd,
    write: OwnedFd,
}

impl Waker {
    /// A new waker.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new() -> io::Result<Waker> {
        let mut fds = [0; 2];
        // SAFETY: the call writes two descriptors into the array; both are owned from here on.
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

    /// Wakes the accepting thread.
    pub fn wake(&self) {
        // SAFETY: the call reads one byte from this function's stack.
        unsafe { libc::write(self.write.as_raw_fd(), [0_u8].as_ptr().cast(), 1) };
    }

    /// Reads the bytes of past wake-ups, so that the next one is noticed.
    fn drain(&self) {
        let mut buf = [0_u8; 64];
        // SAFETY: the buffer is owned by this function, and its length is given.
        unsafe { libc::read(self.read.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len()) };
    }
}
