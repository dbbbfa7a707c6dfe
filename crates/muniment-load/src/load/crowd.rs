//! Many workers in few threads.
//!
//! With a thread for each of a thousand connections, the client's own switches between threads cost as much as
//! the server's work, and the system's scheduler decides which connections are served. So more than [`CROWD`]
//! workers share as many threads as there are cores, if each of their operations is one message and one answer,
//! sent as soon as the last one was answered. A thread waits for all of its sockets, and reads what is there.
//!
//! An answer that waits until the thread has read others is later by that, as it is when threads wait for a
//! core.

use super::{Limit, Numbered, Pace, Part, Run, Shared, Worker};
use crate::fail::{Failure, Result};
use crate::meter::Meter;
use crate::placement;
use crate::procs::thread_cpu_seconds;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::time::Instant;

/// Up to so many workers have a thread each.
const CROWD: usize = 32;
/// How many sockets one call of the system may report.
const AT_ONCE: usize = 128;

/// The number of threads for these workers.
pub(super) fn threads<W: Worker>(workers: &mut [W], limit: &Limit) -> usize {
    let share = workers.len() > CROWD
        && limit.pace == Pace::Closed
        && placement::for_worker().is_none()
        && workers.iter_mut().all(|w| w.divided().is_some());
    match share {
        true => std::thread::available_parallelism().map_or(1, usize::from),
        false => workers.len(),
    }
}

/// A worker of the thread.
struct Carried<'s, W> {
    run: Run<'s>,
    worker: W,
    /// When its message was sent.
    start: Instant,
}

/// Runs workers that are [divided](Worker::divided) in the calling thread.
pub(super) fn carry<'s, W: Worker>(shared: &'s Shared, all: Vec<Numbered<'s, W>>) -> Vec<Part> {
    let begin = shared.begin();
    let cpu = thread_cpu_seconds();
    let mut parts = Vec::new();
    let carried = all.into_iter().map(|(i, counter, worker)| Carried {
        run: Run::new(shared, counter, i, begin),
        worker,
        start: begin,
    });
    let mut carried: Vec<Option<Carried<'s, W>>> = carried.map(Some).collect();
    match watch(&mut carried) {
        Ok(epoll) => {
            let mut carrier = Carrier {
                epoll,
                meter: shared.meter(begin),
            };
            carrier.serve(&mut carried, &mut parts);
        }
        Err(e) => {
            if let Some(first) = carried.iter_mut().flatten().next() {
                first.run.fail(e);
            }
        }
    }
    // Those that are left have not begun.
    let left = carried.into_iter().flatten();
    parts.extend(left.map(|mut c| c.run.finish(&mut c.worker)));
    if let Some(first) = parts.first_mut() {
        first.cpu = thread_cpu_seconds() - cpu;
    }
    parts
}

/// Watches the sockets of all workers, which are reported by their places.
fn watch<W: Worker>(carried: &mut [Option<Carried<'_, W>>]) -> Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
    for (place, c) in carried.iter_mut().enumerate() {
        if let Some(worker) = c.as_mut().and_then(|c| c.worker.divided()) {
            let place = epoll::EventData::new_u64(place as u64);
            let added = epoll::add(&epoll, worker.socket(), place, epoll::EventFlags::IN);
            added.map_err(std::io::Error::from)?;
        }
    }
    Ok(epoll)
}

/// A thread that runs workers.
struct Carrier {
    epoll: OwnedFd,
    /// The measurements of all of them.
    meter: Meter,
}

impl Carrier {
    /// Has all workers begin, and reads their answers until all have ended.
    fn serve<W: Worker>(&mut self, carried: &mut [Option<Carried<'_, W>>], parts: &mut Vec<Part>) {
        let mut left = 0;
        for c in carried.iter_mut() {
            match self.next(c) {
                true => left += 1,
                false => parts.extend(self.end(c)),
            }
        }
        let mut events = Vec::with_capacity(AT_ONCE);
        while left > 0 {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => {
                    let e = Failure::new(std::io::Error::from(e).to_string());
                    let left = carried.iter_mut().flatten();
                    left.for_each(|c| c.run.fail(e.clone()));
                    return;
                }
            }
            for event in events.drain(..) {
                let Some(c) = carried.get_mut(event.data.u64() as usize) else {
                    continue;
                };
                if !(self.answered(c) && self.next(c)) {
                    parts.extend(self.end(c));
                    left -= 1;
                }
            }
        }
    }

    /// Sends a worker's next message. False if there is none.
    fn next<W: Worker>(&mut self, carried: &mut Option<Carried<'_, W>>) -> bool {
        let Some(c) = carried else { return false };
        if !c.run.more() || !c.worker.prepare() {
            return false;
        }
        let Some(divided) = c.worker.divided() else {
            return false;
        };
        c.start = Instant::now();
        match divided.send(&mut self.meter) {
            Ok(()) => true,
            Err(e) => {
                c.run.fail(e);
                false
            }
        }
    }

    /// Reads the answer to a worker's message. False if it was the last one.
    fn answered<W: Worker>(&mut self, carried: &mut Option<Carried<'_, W>>) -> bool {
        let Some(c) = carried else { return false };
        let Some(divided) = c.worker.divided() else {
            return false;
        };
        let result = divided.receive(&mut self.meter);
        c.run.ended(c.start, result, &mut self.meter)
    }

    /// Ends a worker.
    fn end<W: Worker>(&self, carried: &mut Option<Carried<'_, W>>) -> Option<Part> {
        let mut c = carried.take()?;
        if let Some(divided) = c.worker.divided() {
            // A connection that the server has closed would be reported again and again.
            let _ = epoll::delete(&self.epoll, divided.socket());
        }
        Some(c.run.finish(&mut c.worker))
    }
}
