//! Notices clients that hang up while something runs for them.
//!
//! One thread waits for the sockets of all connections at once. A socket is registered when its connection is
//! accepted, so that operations cost no system call for it, and the kernel forgets it when it is closed. A
//! client that closes its end, or half of it, counts as gone, although the server may not yet have read all
//! that the client sent before.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Marks the event that ends the thread, in place of a connection's number.
const END: u64 = 0;
/// How many clients one system call may report.
const AT_ONCE: usize = 64;

/// The sockets that are watched.
pub struct Hangups {
    epoll: OwnedFd,
    /// Becomes readable when the thread is to end.
    end: OwnedFd,
}

impl Hangups {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new() -> io::Result<Hangups> {
        // SAFETY: both calls return a descriptor that nothing else owns, or -1.
        let (epoll, end) = unsafe {
            let epoll = owned(libc::epoll_create1(libc::EPOLL_CLOEXEC))?;
            (epoll, owned(libc::eventfd(0, libc::EFD_CLOEXEC))?)
        };
        let hangups = Hangups { epoll, end };
        hangups.add(hangups.end.as_raw_fd(), libc::EPOLLIN, END)?;
        Ok(hangups)
    }

    fn add(&self, fd: RawFd, events: i32, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: number,
        };
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: both descriptors are open, and the event is on this function's stack.
        match unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Watches the socket of a connection, which the server already knows by its number. A client that is
    /// gone by then is reported as well.
    ///
    /// # Errors
    /// The kernel's limit of watched sockets per user is reached, or it has no memory.
    pub fn watch(&self, socket: &impl AsRawFd, connection: u64) -> io::Result<()> {
        // Edge-triggered, so that a client that has gone is reported once and not again and again.
        let events = libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR | libc::EPOLLET;
        self.add(socket.as_raw_fd(), events, connection)
    }

    /// Ends [`Hangups::run`].
    pub fn stop(&self) {
        // SAFETY: the call reads eight bytes from this function's stack.
        unsafe { libc::write(self.end.as_raw_fd(), [1_u64].as_ptr().cast(), 8) };
    }

    /// Reports the numbers of connections whose client has gone, until it is stopped.
    pub fn run(&self, tell: impl Fn(u64)) {
        let mut events = [libc::epoll_event {
            events: 0,
            u64: END,
        }; AT_ONCE];
        loop {
            let most = AT_ONCE as libc::c_int;
            // SAFETY: the array is owned by this function, and its length is given.
            let n =
                unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), most, -1) };
            for event in events.iter().take(usize::try_from(n).unwrap_or(0)) {
                match event.u64 {
                    END => return,
                    number => tell(number),
                }
            }
        }
    }
}

/// # Safety
/// Nothing else may own the descriptor.
unsafe fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    match fd {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the caller promises that nothing else owns the descriptor.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}
