//! The placement of the two threads of a single connection.
//!
//! A request over one connection causes two switches between two threads. The places where the scheduler puts
//! them have a greater effect than the server: a ping took 13 µs with both threads on one core and 97 µs
//! across two cores, on the same server. So loads with one connection are measured in both placements, with
//! pinned threads, and the results say if threads could not be pinned.
//!
//! All threads of the server's process are pinned (new threads inherit it), and so is the load's worker. The
//! thread that drives the load stays free, so that it disturbs neither of them. Dropping [`Pin`] undoes the
//! pinning. After every measurement the kernel is asked whether the pins held.

mod choice;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(not(target_os = "linux"))]
use other as system;

use crate::samples::SampleSet;
pub use choice::Place;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::marker::PhantomData;

/// The cores on which client and server run while a load is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Placement {
    /// Any cores, as the scheduler decides.
    #[default]
    Anywhere,
    /// Both on the same core.
    OneCore,
    /// Each on a core of its own.
    TwoCores,
}

impl Placement {
    /// The printed name; empty for [`Placement::Anywhere`].
    pub fn name(self) -> &'static str {
        match self {
            Placement::Anywhere => "",
            Placement::OneCore => "one core",
            Placement::TwoCores => "two cores",
        }
    }

    /// The name of a load without its placement, as it was passed to [`Placement::called`].
    pub fn without(name: &str) -> &str {
        [Placement::OneCore, Placement::TwoCores]
            .iter()
            .find_map(|p| name.strip_suffix(p.name())?.strip_suffix(", "))
            .unwrap_or(name)
    }

    /// The name of the load `load` in this placement.
    pub fn called(self, load: &str) -> String {
        match self.name() {
            "" => load.to_string(),
            name => format!("{load}, {name}"),
        }
    }
}

/// The placement that represents one connection where there can be only one figure, as in a sweep over
/// workers. It is two cores, because several workers spread over the cores too.
pub fn representative(all: &[Placement]) -> Placement {
    all.last().copied().unwrap_or_default()
}

/// The note on the rows of tables.
pub const NOTE: &str = "One core: the client's and the server's threads are pinned to the same core. Two cores: to a core each.";

/// The beginning of a warning about a missing placement.
pub const UNPINNED: &str = "One connection: ";

/// The server that is to be pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its process id, if that is known.
    pub pid: Option<u32>,
    /// `host:port`.
    pub address: String,
    /// Whether it runs on this host.
    pub same_host: bool,
}

/// The cores to which this server and its client can be pinned, or the reason why they cannot. The pinning
/// has been tried.
pub fn place(server: &Server) -> Result<Place, String> {
    let (pid, place) = find(server)?;
    // Only trying shows whether it is allowed.
    Pin::new(pid, &place, representative(&place.placements())).map_err(|e| e.to_string())?;
    Ok(place)
}

/// The server's process, and the cores for it and its client.
pub fn find(server: &Server) -> Result<(u32, Place), String> {
    if !server.same_host {
        return Err("the server is on another host".into());
    }
    let Some(pid) = server.pid else {
        return Err("the server does not say which process it is".into());
    };
    let said = |what: &str, e: std::io::Error| format!("{what}: {e}");
    let client = system::cpus(None).map_err(|e| said("reading the client's cores", e))?;
    let port = server.address.rsplit_once(':').map_or("", |a| a.1);
    // A server in a container reports its process id there, which may be that of another process here.
    if !system::listens(pid, port.parse().unwrap_or(0))
        .map_err(|e| said("looking whether the server is the process that it says", e))?
    {
        return Err(format!(
            "process {pid}, which the server says it is, does not listen on port {port} here"
        ));
    }
    let cores = system::cpus(Some(pid)).map_err(|e| said("reading the server's cores", e))?;
    let place = choice::choose(&client, &cores, system::core_of)
        .ok_or("client and server have no core in common and no two apart")?;
    Ok((pid, place))
}

/// The placements that a client of this server can have. It is only [`Placement::Anywhere`] if they cannot be
/// pinned.
pub fn possible(server: &Server) -> Vec<Placement> {
    place(server).map_or_else(|_| vec![Placement::Anywhere], |p| p.placements())
}

/// The core to which a load's worker pins itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worker {
    placement: Placement,
    cpu: usize,
}

thread_local! {
    /// The setting for the workers of loads that this thread drives, while there is a [`Pin`].
    static WORKER: Cell<Option<Worker>> = const { Cell::new(None) };
    /// The faults that were found in the pins of those loads.
    static LOST: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// The setting for the worker of a load that this thread drives, if there is one.
pub fn for_worker() -> Option<Worker> {
    WORKER.get()
}

/// Runs `f` on the calling thread, on the core of a load's worker. If the kernel reports afterwards that the
/// thread was not there, this is recorded.
pub fn here<T>(f: impl FnOnce() -> T) -> T {
    let (Some(worker), Ok(before)) = (for_worker(), system::cpus(None)) else {
        return f();
    };
    worker.take();
    let result = f();
    if let Some(why) = worker.check() {
        lost(why);
    }
    // This thread was allowed on these cores before, so an error is not expected.
    let _ = system::set_cpus(None, &before);
    result
}

/// Records that the worker of a load was on another core.
pub fn lost(why: String) {
    LOST.with_borrow_mut(|l| l.push(why));
}

impl Worker {
    /// The placement of the worker.
    pub fn placement(self) -> Placement {
        self.placement
    }

    /// Pins the calling thread.
    pub fn take(self) {
        // An error is noticed by `check`, which asks the kernel.
        let _ = system::set_cpus(None, &[self.cpu]);
    }

    /// Asks the kernel whether the calling thread is on its core. The result is the fault, if there is one.
    pub fn check(self) -> Option<String> {
        let may = match system::cpus(None) {
            Ok(cpus) => cpus,
            Err(e) => return Some(format!("the client's cores cannot be read back: {e}")),
        };
        if may != [self.cpu] {
            return Some(format!(
                "the client may run on cores {}, not on {} alone",
                choice::list(&may),
                self.cpu
            ));
        }
        let on = system::running_on();
        (on != self.cpu).then(|| format!("the client runs on core {on}, not on {}", self.cpu))
    }
}

/// A server whose threads are pinned. While it exists, the workers of loads pin themselves too. Dropping it
/// ends both. It belongs to the thread that made it.
pub struct Pin {
    pid: u32,
    cpu: usize,
    /// The earlier cores of the threads, by thread.
    before: BTreeMap<u32, Vec<usize>>,
    here: PhantomData<*const ()>,
}

impl Pin {
    /// Pins every thread of process `pid`.
    ///
    /// # Errors
    /// The pinning is not allowed, or the process has ended.
    pub fn new(pid: u32, place: &Place, placement: Placement) -> std::io::Result<Pin> {
        let client = match placement {
            Placement::TwoCores => place.apart,
            _ => place.together.then_some(place.server),
        };
        let mut pin = Pin {
            pid,
            cpu: place.server,
            before: BTreeMap::new(),
            here: PhantomData,
        };
        // The first thread's cores are later given to new threads too.
        pin.thread(pid, true)?;
        for round in 0..ROUNDS {
            let mut news = false;
            for tid in system::threads(pid)? {
                if !pin.before.contains_key(&tid) {
                    news |= pin.thread(tid, round == 0)?;
                }
            }
            if !news {
                break;
            }
        }
        WORKER.set(client.map(|cpu| Worker { placement, cpu }));
        LOST.take();
        Ok(pin)
    }

    /// Pins one thread; false if that was not necessary. `first` says that the thread's cores are its own,
    /// and were not inherited from a thread that was pinned already.
    fn thread(&mut self, tid: u32, first: bool) -> std::io::Result<bool> {
        let pinned = [self.cpu];
        let result = system::cpus(Some(tid)).and_then(|before| {
            if before == pinned && !first {
                return Ok(false);
            }
            system::set_cpus(Some(tid), &pinned)?;
            self.before.insert(tid, before);
            Ok(true)
        });
        match result {
            // The thread has ended meanwhile.
            Err(e) if system::is_gone(&e) && tid != self.pid => Ok(false),
            other => other,
        }
    }

    /// Ends the pinning, and returns the faults that the kernel reports.
    pub fn end(self) -> Vec<String> {
        let mut wrong = LOST.take();
        let elsewhere: Vec<Vec<usize>> = system::threads(self.pid)
            .unwrap_or_default()
            .into_iter()
            .filter_map(|tid| system::cpus(Some(tid)).ok())
            .filter(|cpus| *cpus != [self.cpu])
            .collect();
        if let Some(first) = elsewhere.first() {
            wrong.push(format!(
                "{} of the server's threads may run elsewhere (one on cores {}), not on {} alone",
                elsewhere.len(),
                choice::list(first),
                self.cpu
            ));
        }
        wrong
    }
}

/// A server may make new threads while it is being pinned, but not for ever.
const ROUNDS: u32 = 8;

impl Drop for Pin {
    fn drop(&mut self) {
        WORKER.set(None);
        let Some(own) = self.before.get(&self.pid).cloned() else {
            return;
        };
        // This takes several rounds, as when it was pinned, because a thread that is still pinned may make
        // another one meanwhile.
        for _ in 0..ROUNDS {
            let mut left = false;
            for tid in system::threads(self.pid).unwrap_or_default() {
                let cpus = self.before.get(&tid).unwrap_or(&own);
                if system::cpus(Some(tid)).is_ok_and(|now| now != *cpus) {
                    // If a thread cannot be freed, it has ended.
                    let _ = system::set_cpus(Some(tid), cpus);
                    left = true;
                }
            }
            if !left {
                break;
            }
        }
    }
}

/// The warning about loads over one connection whose threads were not pinned; `None` if `told` contains it
/// already.
pub fn unpinned(samples: &[SampleSet], told: &[String]) -> Option<String> {
    const MOST: usize = 4;
    if told.iter().any(|w| w.starts_with(UNPINNED)) {
        return None;
    }
    let mut names: Vec<&str> = Vec::new();
    for s in samples
        .iter()
        .filter(|s| s.workers == 1 && s.placement.is_empty())
    {
        if !names.contains(&s.name.as_str()) {
            names.push(&s.name);
        }
    }
    let more = names.len().saturating_sub(MOST);
    names.truncate(MOST);
    let more = match more {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    (!names.is_empty()).then(|| {
        format!(
            "{UNPINNED}{}{more} ran wherever the scheduler put the two threads, on which latency depends up to five-fold.",
            names.join("; ")
        )
    })
}

#[cfg(test)]
mod tests;
