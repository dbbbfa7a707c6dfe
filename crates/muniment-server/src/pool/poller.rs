//! What a pool of workers waits for: sockets, by their connections' numbers.

use muniment_wire::Stream;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// How many sockets one call may report.
const AT_ONCE: usize = 256;
/// The number of the event that only wakes the waiting thread. No connection has it.
const WAKE: u64 = 0;

/// Sockets that are watched for bytes to read. Each arrival is reported once.
pub struct Poller {
    epoll: OwnedFd,
    /// Becomes readable when the waiting thread is to return.
    wake: OwnedFd,
}

impl Poller {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new() -> io::Result<Poller> {
        // SAFETY: both calls return a descriptor that nothing else owns, or -1.
        let (epoll, wake) = unsafe {
            let epoll = owned(libc::epoll_create1(libc::EPOLL_CLOEXEC))?;
            (epoll, owned(libc::eventfd(0, libc::EFD_CLOEXEC))?)
        };
        let poller = Poller { epoll, wake };
        // Edge-triggered: each call of `wake` is reported once.
        let events = libc::EPOLLIN | libc::EPOLLET;
        poller.control(libc::EPOLL_CTL_ADD, poller.wake.as_raw_fd(), events, WAKE)?;
        Ok(poller)
    }

    fn control(&self, how: libc::c_int, fd: RawFd, events: i32, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: number,
        };
        // SAFETY: both descriptors are open, and the event is on this function's stack.
        match unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), how, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Watches a socket. If something has arrived already, that is reported, too.
    ///
    /// # Errors
    /// The kernel's limit of watched sockets per user is reached, or it has no memory.
    pub fn add(&self, socket: &Stream, number: u64) -> io::Result<()> {
        // A handshake of TLS may have to go on when there is room for what the server sends.
        let events = match socket.tls() {
            Some(_) => ARRIVALS | libc::EPOLLOUT,
            None => ARRIVALS,
        };
        self.control(libc::EPOLL_CTL_ADD, socket.as_raw_fd(), events, number)
    }

    /// Does not watch a socket any more.
    ///
    /// # Errors
    /// The socket is not watched.
    pub fn remove(&self, socket: &Stream) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, socket.as_raw_fd(), 0, WAKE)
    }

    /// Makes [`Poller::wait`] return once.
    pub fn wake(&self) {
        // SAFETY: the call reads eight bytes from this function's stack.
        unsafe { libc::write(self.wake.as_raw_fd(), [1_u64].as_ptr().cast(), 8) };
    }

    /// Waits until something arrives, up to `ms` milliseconds if that is not negative, and shows the numbers
    /// of the sockets, and whether the client has closed its end or sent urgent data. Returns how many events
    /// there were.
    pub fn wait(&self, ms: i32, mut show: impl FnMut(u64, bool)) -> usize {
        let mut events = [libc::epoll_event {
            events: 0,
            u64: WAKE,
        }; AT_ONCE];
        let most = AT_ONCE as libc::c_int;
        // SAFETY: the array is owned by this function, and its length is given.
        let n = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), most, ms) };
        let n = usize::try_from(n).unwrap_or(0);
        for event in events.iter().take(n).filter(|event| event.u64 != WAKE) {
            show(event.u64, event.events & ODD as u32 != 0);
        }
        n
    }
}

/// Each arrival is told once, and a client that closes its end as well.
const ARRIVALS: i32 = libc::EPOLLIN | libc::EPOLLPRI | libc::EPOLLRDHUP | libc::EPOLLET;

/// A read that brings fewer bytes than asked for may not be the last one: the client has closed its end, the
/// connection has failed, or there is urgent data, before which a read stops.
const ODD: i32 = libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR | libc::EPOLLPRI;

/// # Safety
/// Nothing else may own the descriptor.
unsafe fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    match fd {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the caller promises that nothing else owns the descriptor.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}
