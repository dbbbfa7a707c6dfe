//! The life of a server: since when it runs, and how it comes to end or to begin anew.
//!
//! A signal, a command, the embedding process or the member of a replica set asks for the end; the main
//! thread, which waits for that, then stops the server. Between the request and the stop, operations still
//! run. A member that must not go on from what it has in memory asks to begin anew instead: the process and
//! its sockets stay.
//!
//! Invariant: a request to end is final, and overrules a request to begin anew.

use crate::initial_sync::Copied;
use muniment_op::{Interrupt, Sleepers};
use muniment_value::{Code, Error, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Why the server ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopRequest {
    /// For the log.
    pub reason: String,
    /// How the server begins again at once; `None`: not at all.
    pub restart: Option<Restart>,
}

/// Why a member begins anew in the same process, with its sockets: it must not go on from what it has in
/// memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restart {
    /// The state says what is to be cut off the log.
    Storage,
    /// A copy of another member's data takes the place of its own.
    Synced(Box<Copied>),
}

/// See the module's head.
pub struct Lifecycle {
    /// When the server started.
    pub started: Instant,
    /// The same in milliseconds since 1970.
    pub started_ms: i64,
    /// The threads whose waits end with the server, or when it is asked to end.
    pub sleepers: Sleepers,
    stopping: AtomicBool,
    asked: Mutex<Option<StopRequest>>,
    asked_signal: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Default for Lifecycle {
    /// The life of a server that starts now.
    fn default() -> Lifecycle {
        Lifecycle {
            started: Instant::now(),
            started_ms: muniment_logger::now_ms(),
            sleepers: Sleepers::new(),
            stopping: AtomicBool::new(false),
            asked: Mutex::new(None),
            asked_signal: Condvar::new(),
            threads: Mutex::default(),
        }
    }
}

impl Lifecycle {
    /// True once the server ends.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// True once the server was asked to end, or to begin anew.
    pub fn is_ending(&self) -> bool {
        self.asked.lock().is_some() || self.is_stopping()
    }

    /// True if the server is to end and not to begin anew.
    pub fn is_asked_to_end(&self) -> bool {
        let asked = self.asked.lock();
        asked.as_ref().is_some_and(|asked| asked.restart.is_none())
    }

    /// Asks the server to end; the thread that waits in [`Lifecycle::wait_for_stop`] ends it.
    pub fn request_stop(&self, reason: &str) {
        let mut asked = self.asked.lock();
        if asked.as_ref().is_none_or(|asked| asked.restart.is_some()) {
            *asked = Some(StopRequest {
                reason: reason.to_string(),
                restart: None,
            });
        }
        self.asked_signal.notify_all();
        drop(asked);
        self.sleepers.wake_all();
    }

    /// Asks the server to end and to begin anew.
    pub fn request_restart(&self, how: Restart) {
        let mut asked = self.asked.lock();
        if asked.is_none() {
            *asked = Some(StopRequest {
                reason: "the member begins anew".to_string(),
                restart: Some(how),
            });
        }
        self.asked_signal.notify_all();
        drop(asked);
        self.sleepers.wake_all();
    }

    /// Waits until someone asks the server to end.
    pub fn wait_for_stop(&self) -> StopRequest {
        let mut asked = self.asked.lock();
        loop {
            if let Some(request) = asked.clone() {
                return request;
            }
            self.asked_signal.wait(&mut asked);
        }
    }

    /// Waits until someone asks the server to end, or for `time`; true if it ends.
    pub fn wait_for_stop_for(&self, time: Duration) -> bool {
        let mut asked = self.asked.lock();
        if asked.is_none() {
            self.asked_signal.wait_for(&mut asked, time);
        }
        asked.is_some() || self.is_stopping()
    }

    /// From here on the server ends: operations fail with 11600 and connections end.
    pub fn begin_stopping(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.sleepers.wake_all();
    }

    /// Starts a thread that ends with the server: see [`Lifecycle::join`].
    ///
    /// # Errors
    /// If the system has no thread.
    pub fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new()
            .name(name.to_string())
            .stack_size(2 << 20)
            .spawn(run)?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Waits for the threads of [`Lifecycle::spawn`], which the caller has told to end.
    pub fn join(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A thread that panicked has been reported already, and has no result.
            let _ = thread.join();
        }
    }
}

/// 91 ShutdownInProgress: the driver of this member has ended.
pub(crate) fn ended() -> Error {
    Error::new(Code::ShutdownInProgress, "replication is being shut down")
}

fn over(is_over: bool) -> Result<()> {
    match is_over {
        true => Err(Error::new(
            Code::InterruptedAtShutdown,
            "interrupted at shutdown",
        )),
        false => Ok(()),
    }
}

/// The interrupt of what has to stop as soon as the server is asked to end, or to begin anew.
pub struct Ending<'l>(pub &'l Lifecycle);

impl Interrupt for Ending<'_> {
    fn check(&self) -> Result<()> {
        over(self.0.is_ending())
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        show(&self.0.sleepers);
    }
}

/// The interrupt of what may go on until the server, when it ends, stops operations.
pub struct Stopping<'l>(pub &'l Lifecycle);

impl Interrupt for Stopping<'_> {
    fn check(&self) -> Result<()> {
        over(self.0.is_stopping())
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        show(&self.0.sleepers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_to_end_is_final() {
        let life = Lifecycle::default();
        assert!(!life.is_ending() && !life.wait_for_stop_for(Duration::ZERO));
        life.request_restart(Restart::Storage);
        assert!(life.is_ending() && !life.is_asked_to_end());
        assert_eq!(life.wait_for_stop().restart, Some(Restart::Storage));
        life.request_stop("a signal");
        life.request_restart(Restart::Storage);
        life.request_stop("another signal");
        let asked = life.wait_for_stop();
        assert_eq!((asked.reason.as_str(), asked.restart), ("a signal", None));
        assert!(life.is_asked_to_end());
    }

    #[test]
    fn what_may_go_on_after_the_request_ends_with_the_server() {
        let life = Lifecycle::default();
        life.request_stop("a test");
        let code = |checked: Result<()>| checked.err().map(|e| e.code());
        let interrupted = Some(Code::InterruptedAtShutdown);
        assert_eq!(code(Ending(&life).check()), interrupted);
        assert_eq!(code(Stopping(&life).check()), None);
        life.begin_stopping();
        assert_eq!(code(Stopping(&life).check()), interrupted);
    }
}
