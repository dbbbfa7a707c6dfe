//! Waiting for many sockets in one thread: epoll with edges. The clock is a timer among the sockets,
//! since the time limit of a wait itself counts in milliseconds and has a slack.
//! Must not know what the sockets are for.

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// What a socket is known by.
pub(super) type Token = u64;
/// The token of [`Waker`].
pub(super) const WOKEN: Token = u64::MAX;
/// The token of the timer.
const TIMER: Token = u64::MAX - 1;
/// Events that are taken at once.
const EVENTS: usize = 256;

/// What happened to a socket since it was told the last time.
pub(super) struct Event {
    /// Which socket.
    pub token: Token,
    /// It may have something to read, an end or an error among it.
    pub readable: bool,
    /// It may take something.
    pub writable: bool,
}

/// Wakes the thread that waits.
#[derive(Clone)]
pub(super) struct Waker(Arc<OwnedFd>);

impl Waker {
    /// The wait ends now, or the next one does.
    pub(super) fn wake(&self) {
        // It fails only when the waiting thread has been woken 2^64 times without looking.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// The sockets that are waited for.
pub(super) struct Poller {
    epoll: OwnedFd,
    waker: Waker,
    timer: OwnedFd,
}

impl Poller {
    /// Waits for nothing yet but the waker.
    ///
    /// # Errors
    /// The system has no more of them.
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

    /// The handle by which another thread ends a wait.
    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Waits for a socket too, until it is closed. What is the case already is told at once.
    ///
    /// # Errors
    /// The system has no room for it.
    pub(super) fn add(&self, socket: impl AsFd, token: Token) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(
            &self.epoll,
            socket,
            EventData::new_u64(token),
            flags,
        )?)
    }

    /// Waits until something happens or `nanoseconds` have passed (`None`: for ever), and appends
    /// what happened to `happened`. True if the time was up, or one of an earlier wait.
    ///
    /// # Errors
    /// The system cannot wait. An interruption is none.
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
