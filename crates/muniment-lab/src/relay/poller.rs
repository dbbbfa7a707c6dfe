//! Waits for many sockets in one thread with edge-triggered epoll. Time limits are a timer among
//! the sockets, because epoll's own limit counts in milliseconds and the kernel may exceed it. This
//! file must not know what the sockets are for.

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The number by which a socket is reported.
pub(super) type Token = u64;
/// The token of [`Waker`].
pub(super) const WOKEN: Token = u64::MAX;
const TIMER: Token = u64::MAX - 1;
/// The most events that one call returns.
const EVENTS: usize = 256;

/// The events of a socket since it was last reported.
pub(super) struct Event {
    /// The token of the socket.
    pub token: Token,
    /// There may be something to read, which includes an end or an error.
    pub readable: bool,
    /// The socket may take bytes.
    pub writable: bool,
}

/// A handle that wakes the waiting thread.
#[derive(Clone)]
pub(super) struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Ends the current wait, or the next one if no thread is waiting.
    pub(super) fn wake(&self) {
        // Writing fails only if the waiting thread has been woken 2^64 times without looking.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// The set of sockets to wait for.
pub(super) struct Poller {
    epoll: OwnedFd,
    waker: Waker,
    timer: OwnedFd,
}

impl Poller {
    /// Makes a set that contains only the waker and the timer.
    ///
    /// # Errors
    /// The system has no more file descriptors.
    pub(super) fn new() -> io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let waker = Waker(Arc::new(wake));
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &*waker.0, EventData::new_u64(WOKEN), flags)?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), flags)?;
        Ok(Poller {
            epoll,
            waker,
            timer,
        })
    }

    /// Returns the handle by which another thread ends a wait.
    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Adds a socket until it is closed. Its present state is reported by the next wait.
    ///
    /// # Errors
    /// The system cannot add it.
    pub(super) fn add(&self, socket: impl AsFd, token: Token) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(
            &self.epoll,
            socket,
            EventData::new_u64(token),
            flags,
        )?)
    }

    /// Waits until something happens or `nanoseconds` have passed (`None` waits for ever), and
    /// appends the events to `happened`. Returns true if the time was up; a timer of an earlier
    /// wait can cause that too.
    ///
    /// # Errors
    /// The system cannot wait. An interruption is no error.
    pub(super) fn wait(
        &self,
        nanoseconds: Option<u64>,
        happened: &mut Vec<Event>,
    ) -> io::Result<bool> {
        const NOTHING: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let limit = match nanoseconds {
            Some(0) => Some(&NOTHING),
            Some(ns) => {
                let time = Itimerspec {
                    it_interval: NOTHING,
                    it_value: Timespec {
                        tv_sec: (ns / 1_000_000_000) as i64,
                        tv_nsec: (ns % 1_000_000_000) as _,
                    },
                };
                timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time)?;
                None
            }
            None => None,
        };
        let mut room = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
        let events = match epoll::wait(&self.epoll, room.as_mut_slice(), limit) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        let mut time_is_up = false;
        for e in events {
            let (flags, data) = (e.flags, e.data);
            let broken = EventFlags::ERR | EventFlags::HUP;
            match data.u64() {
                TIMER => time_is_up = true,
                token => happened.push(Event {
                    token,
                    readable: flags.intersects(EventFlags::IN | EventFlags::RDHUP | broken),
                    writable: flags.intersects(EventFlags::OUT | broken),
                }),
            }
        }
        Ok(time_is_up)
    }
}
