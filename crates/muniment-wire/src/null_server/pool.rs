//! A few threads for all connections.
//!
//! Each worker waits for the sockets that it has. It takes all that are ready; for each it reads without
//! waiting into one buffer that serves all, answers every whole message there is, and sends the replies in
//! one write. What a socket does not take at once stays with the connection, which is not read any further
//! until the rest has gone.

#[cfg(target_os = "linux")]
pub(super) use linux::Pool;

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::Pool;

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use super::super::Serve;
    use super::super::replies::Replies;
    use std::io;
    use std::net::TcpStream;
    use std::time::Duration;

    /// There is none.
    pub(in super::super) enum Pool {}

    impl Pool {
        pub(in super::super) fn start(_: usize, _: Duration, _: Replies) -> io::Result<Pool> {
            let why = "a pool of workers needs Linux";
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        }
    }

    impl Serve for Pool {
        fn take(&self, _: TcpStream) -> io::Result<()> {
            match *self {}
        }

        fn end(&self) {
            match *self {}
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use super::super::Serve;
    use super::super::replies::Replies;
    use crate::frame::Header;
    use muniment_value::Result;
    use rustix::event::{Timespec, epoll};
    use rustix::io::Errno;
    use std::collections::HashMap;
    use std::io::{self, Read, Write};
    use std::net::TcpStream;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex, PoisonError};
    use std::thread::{self, JoinHandle};
    use std::time::{Duration, Instant};

    /// A worker reads so many bytes at once.
    const BUFFER: usize = 64 * 1024;
    /// A worker learns of so many ready sockets at once.
    const EVENTS: usize = 256;
    /// The event that ends a worker.
    const END: u64 = u64::MAX;

    /// The workers.
    pub(in super::super) struct Pool {
        workers: Vec<Arc<Inbox>>,
        threads: Mutex<Vec<JoinHandle<()>>>,
        /// Its other end is what the workers wait for beside their connections.
        ends: Mutex<Option<UnixStream>>,
        next: AtomicU64,
    }

    /// How connections come to a worker.
    struct Inbox {
        epoll: OwnedFd,
        /// Connections that the worker has not seen, with the number that their events have.
        new: Mutex<Vec<(u64, TcpStream)>>,
    }

    impl Pool {
        pub(in super::super) fn start(
            workers: usize,
            polls: Duration,
            replies: Replies,
        ) -> io::Result<Pool> {
            let (ends, ended) = UnixStream::pair()?;
            let replies = Arc::new(replies);
            let mut pool = Pool {
                workers: Vec::new(),
                threads: Mutex::new(Vec::new()),
                ends: Mutex::new(Some(ends)),
                next: AtomicU64::new(0),
            };
            for _ in 0..workers.max(1) {
                let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
                let ended = ended.try_clone()?;
                let data = epoll::EventData::new_u64(END);
                epoll::add(&epoll, &ended, data, epoll::EventFlags::IN)?;
                let inbox = Arc::new(Inbox {
                    epoll,
                    new: Mutex::default(),
                });
                let worker = Worker {
                    inbox: Arc::clone(&inbox),
                    connections: HashMap::new(),
                    replies: Arc::clone(&replies),
                    polls,
                    buffer: vec![0; BUFFER],
                    plain: Vec::new(),
                    out: Vec::new(),
                    _ended: ended,
                };
                let thread = thread::Builder::new().name("null-worker".into());
                let thread = thread.spawn(move || worker.run())?;
                pool.workers.push(inbox);
                let threads = pool.threads.get_mut();
                threads.unwrap_or_else(PoisonError::into_inner).push(thread);
            }
            Ok(pool)
        }
    }

    impl Serve for Pool {
        fn take(&self, socket: TcpStream) -> io::Result<()> {
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            let turn = usize::try_from(id).unwrap_or_default() % self.workers.len();
            let Some(inbox) = self.workers.get(turn) else {
                return Ok(());
            };
            // The worker may be told of the socket at once. It then waits for the lock, and finds the socket.
            let mut new = inbox.lock();
            let data = epoll::EventData::new_u64(id);
            epoll::add(&inbox.epoll, &socket, data, epoll::EventFlags::IN)?;
            new.push((id, socket));
            Ok(())
        }

        fn end(&self) {
            let ends = self.ends.lock();
            drop(ends.unwrap_or_else(PoisonError::into_inner).take());
            let threads = self.threads.lock();
            for thread in threads.unwrap_or_else(PoisonError::into_inner).drain(..) {
                let _ = thread.join();
            }
        }
    }

    impl Inbox {
        fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(u64, TcpStream)>> {
            self.new.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// A connection: idle, it is no more than its socket.
    struct Conn {
        socket: TcpStream,
        /// The beginning of a message whose rest has not come.
        begun: Vec<u8>,
        /// The rest of replies that the socket has not taken.
        unsent: Vec<u8>,
    }

    struct Worker {
        inbox: Arc<Inbox>,
        connections: HashMap<u64, Conn>,
        replies: Arc<Replies>,
        polls: Duration,
        buffer: Vec<u8>,
        plain: Vec<u8>,
        out: Vec<u8>,
        _ended: UnixStream,
    }

    impl Worker {
        fn run(mut self) {
            let mut events = Vec::with_capacity(EVENTS);
            while self.wait(&mut events).is_ok() {
                for event in events.drain(..) {
                    let id = event.data.u64();
                    if id == END {
                        return;
                    }
                    self.ready(id);
                }
            }
        }

        /// Waits until a socket is ready.
        fn wait(&self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
            let at_once = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let begun = (!self.polls.is_zero()).then(Instant::now);
            loop {
                let polls = begun.is_some_and(|begun| begun.elapsed() < self.polls);
                let limit = polls.then_some(&at_once);
                let spare = rustix::buffer::spare_capacity(events);
                match epoll::wait(&self.inbox.epoll, spare, limit) {
                    Ok(0) | Err(Errno::INTR) => {}
                    Ok(_) => return Ok(()),
                    Err(e) => return Err(e.into()),
                }
            }
        }

        fn ready(&mut self, id: u64) {
            let mut conn = match self.connections.remove(&id) {
                Some(conn) => conn,
                None => {
                    for (id, socket) in self.inbox.lock().drain(..) {
                        let conn = Conn {
                            socket,
                            begun: Vec::new(),
                            unsent: Vec::new(),
                        };
                        self.connections.insert(id, conn);
                    }
                    match self.connections.remove(&id) {
                        Some(conn) => conn,
                        None => return,
                    }
                }
            };
            self.out.clear();
            // An error closes the connection: so does the end of the stream.
            if let Ok(true) = self.serve(id, &mut conn) {
                self.connections.insert(id, conn);
            }
        }

        /// Serves a connection that is ready. False at its end.
        fn serve(&mut self, id: u64, conn: &mut Conn) -> Result<bool> {
            if !conn.unsent.is_empty() && !self.send_rest(id, conn)? {
                return Ok(true);
            }
            loop {
                let have = conn.begun.len();
                if have > 0 {
                    // Room for the message that has begun, as far as its bytes come.
                    if self.buffer.len() < have + BUFFER {
                        self.buffer.resize(have + BUFFER, 0);
                    }
                    self.buffer[..have].copy_from_slice(&conn.begun);
                    conn.begun.clear();
                }
                let room = self.buffer.len() - have;
                let read = match conn.socket.read(&mut self.buffer[have..]) {
                    Ok(0) => return Ok(false),
                    Ok(n) => n,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        conn.begun.extend_from_slice(&self.buffer[..have]);
                        return Ok(true);
                    }
                    Err(e) => return Err(e.into()),
                };
                self.answer(conn, have + read)?;
                if !self.send(id, conn)? || read < room {
                    return Ok(true);
                }
            }
        }

        /// Answers the whole messages of the buffer's first bytes into `out`, and keeps the rest.
        fn answer(&mut self, conn: &mut Conn, len: usize) -> Result<()> {
            let mut rest = &self.buffer[..len];
            while let Some(header) = Header::parse(rest) {
                let length = header.checked_len()?;
                let Some((message, after)) = rest.split_at_checked(length) else {
                    break;
                };
                self.replies
                    .answer(header, message, &mut self.plain, &mut self.out)?;
                rest = after;
            }
            conn.begun.extend_from_slice(rest);
            Ok(())
        }

        /// Sends what was answered. False if some of it is left.
        fn send(&mut self, id: u64, conn: &mut Conn) -> Result<bool> {
            let sent = send_some(&mut conn.socket, &self.out);
            if let Ok(sent) = &sent
                && *sent < self.out.len()
            {
                conn.unsent.extend_from_slice(&self.out[*sent..]);
                let data = epoll::EventData::new_u64(id);
                let writable = epoll::EventFlags::OUT;
                epoll::modify(&self.inbox.epoll, &conn.socket, data, writable)
                    .map_err(io::Error::from)?;
            }
            self.out.clear();
            sent?;
            Ok(conn.unsent.is_empty())
        }

        /// Sends more of what was left. False if some of it is still left.
        fn send_rest(&mut self, id: u64, conn: &mut Conn) -> Result<bool> {
            let sent = send_some(&mut conn.socket, &conn.unsent)?;
            conn.unsent.drain(..sent);
            if !conn.unsent.is_empty() {
                return Ok(false);
            }
            conn.unsent = Vec::new();
            let data = epoll::EventData::new_u64(id);
            epoll::modify(&self.inbox.epoll, &conn.socket, data, epoll::EventFlags::IN)
                .map_err(io::Error::from)?;
            Ok(true)
        }
    }

    /// Writes as many of `bytes` as the socket takes without waiting.
    fn send_some(socket: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
        let mut sent = 0;
        while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
            match socket.write(rest) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        Ok(sent)
    }
}
