//! Notices clients that hang up while something runs for them.
//!
//! One thread waits for the sockets of all connections at once. Each is registered when it is accepted,
//! so that an operation costs no system call for it, and forgotten by the kernel when it is closed. A
//! client that closes its end, or half of it, is taken to have gone, although it may have sent something
//! before that which is still to be read.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// What tells of the end of the server, in place of a connection's number.
const END: u64 = 0;
/// So many clients are told of at once.
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
        // SAFETY: both calls give a descriptor that nobody else has, or -1.
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
        // SAFETY: both descriptors are open, and the event lives on the stack.
        match unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Watches the socket of a connection that the server knows by its number already. One that has been
    /// closed by then is told of as well.
    ///
    /// # Errors
    /// The kernel's limit of what one user may watch is reached, or it has no memory.
    pub fn watch(&self, socket: &impl AsRawFd, connection: u64) -> io::Result<()> {
        // Once for each change: a client that has gone is not told of again and again.
        let events = libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR | libc::EPOLLET;
        self.add(socket.as_raw_fd(), events, connection)
    }

    /// Ends [`Hangups::run`].
    pub fn stop(&self) {
        // SAFETY: eight bytes from the stack.
        unsafe { libc::write(self.end.as_raw_fd(), [1_u64].as_ptr().cast(), 8) };
    }

    /// Tells the numbers of connections whose client has gone, until it is stopped.
    pub fn run(&self, tell: impl Fn(u64)) {
        let mut events = [libc::epoll_event {
            events: 0,
            u64: END,
        }; AT_ONCE];
        loop {
            let most = AT_ONCE as libc::c_int;
            // SAFETY: the array is ours and its length is given.
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
/// Nobody else owns the descriptor.
unsafe fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    match fd {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the caller's promise.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}
