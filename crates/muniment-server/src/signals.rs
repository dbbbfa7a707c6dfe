//! The signals of a process that is a server, handled as in MongoDB:
//!
//! | signal | |
//! |---|---|
//! | SIGTERM, SIGINT, SIGXCPU, SIGHUP | the server ends in order; a primary first lets another member lead |
//! | SIGUSR1 | the log is rotated |
//! | SIGUSR2 | the threads are listed in the log |
//! | SIGQUIT | a line in the log, then the process ends at once, with the signal's exit status |
//! | SIGPIPE, SIGXFSZ | ignored: the write that caused it fails |
//!
//! Under `nohup` SIGHUP stays ignored. A second signal ends a primary without the wait for its successor.
//!
//! Invariant: the handler only writes to a pipe. A thread that lives as long as the process reads it, so that
//! no signal has to wait for a client, and none is lost while the server begins anew.

use crate::audit::{self, Logs, Who};
use crate::state::ServerState;
use muniment_logger::{Logger, Severity};
use muniment_op::NeverInterrupted;
use muniment_value::{ArrayBuf, DocBuf, Error, Result, doc};
use parking_lot::{Condvar, Mutex};
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// The name of the thread in the log.
const CTX: &str = "SignalHandler";
/// The signals that the thread handles.
const TAKEN: [libc::c_int; 7] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGXCPU,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGQUIT,
];
/// The size of a message from the handler: the signal, and the sender's process and user, of four bytes each.
const MESSAGE: usize = 12;

/// The end of the pipe that the handler writes to.
static PIPE: AtomicI32 = AtomicI32::new(-1);

/// The signal that asked the server to end; 0 if none has.
static ENDS: AtomicI32 = AtomicI32::new(0);

/// The server that runs in this process.
struct Target {
    server: Mutex<Option<Weak<ServerState>>>,
    set: Condvar,
}

static TARGET: Target = Target {
    server: Mutex::new(None),
    set: Condvar::new(),
};

extern "C" fn on_signal(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes the signal's information, which names the sender if a process has sent the
    // signal.
    let (pid, uid) = unsafe {
        match info.as_ref() {
            Some(info) => (info.si_pid(), info.si_uid()),
            None => (0, 0),
        }
    };
    let mut message = [0_u8; MESSAGE];
    let parts = [signal.to_ne_bytes(), pid.to_ne_bytes(), uid.to_ne_bytes()];
    for (to, from) in message.chunks_exact_mut(4).zip(parts) {
        to.copy_from_slice(&from);
    }
    let fd = PIPE.load(Ordering::Relaxed);
    // SAFETY: `write` is async-signal-safe, and the bytes are on the stack. The interrupted code may be about
    // to read errno, so it is restored.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(fd, message.as_ptr().cast(), MESSAGE);
        *libc::__errno_location() = errno;
    }
}

/// Handles the process's signals from now on. Only the first call in a process has an effect.
///
/// # Errors
/// No descriptor or thread is left.
pub(crate) fn take(log: &Arc<Logger>) -> io::Result<()> {
    static TAKEN_UP: OnceLock<()> = OnceLock::new();
    if TAKEN_UP.set(()).is_err() {
        return Ok(());
    }
    let mut fds = [0; 2];
    // SAFETY: the call writes two descriptors into the array; both are owned from here on.
    let (read, write) = unsafe {
        if libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]))
    };
    PIPE.store(write.into_raw_fd(), Ordering::Relaxed);
    let log = Arc::clone(log);
    std::thread::Builder::new()
        .name("signals".to_string())
        .stack_size(256 << 10)
        .spawn(move || read_all(File::from(read), &log))?;
    install();
    Ok(())
}

fn install() {
    // SAFETY: the structures are plain data, and the handler only writes to a pipe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        action.sa_sigaction = on_signal as *const () as libc::sighandler_t;
        libc::sigemptyset(&mut action.sa_mask);
        for signal in TAKEN {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut before);
            // nohup has set it to be ignored.
            if signal == libc::SIGHUP && before.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Directs the signals to this server from now on, if its options say so. It also ends if a signal came while its predecessor was
/// already beginning anew.
pub(crate) fn serve(server: &Arc<ServerState>) {
    if !server.options.handle_signals {
        return;
    }
    let mut target = TARGET.server.lock();
    *target = Some(Arc::downgrade(server));
    TARGET.set.notify_all();
    drop(target);
    let signal = ENDS.load(Ordering::SeqCst);
    if signal != 0 {
        server
            .lifecycle
            .request_stop(&format!("got signal {signal}"));
    }
}

fn read_all(mut pipe: File, log: &Logger) {
    let mut message = [0_u8; MESSAGE];
    while pipe.read_exact(&mut message).is_ok() {
        let mut parts = [0_i32; 3];
        for (to, from) in parts.iter_mut().zip(message.chunks_exact(4)) {
            *to = i32::from_ne_bytes(from.try_into().unwrap_or_default());
        }
        let [signal, pid, uid] = parts;
        handle(signal, pid, uid, log);
    }
}

fn handle(signal: i32, pid: i32, uid: i32, log: &Logger) {
    let info = |id, msg: &str, attr: &DocBuf| log.info("CONTROL", id, CTX, msg, attr);
    info(
        23377,
        "Received signal",
        &doc! { "signal": signal, "error": name(signal) },
    );
    if pid > 0 {
        info(
            23378,
            "Signal was sent by kill(2)",
            &doc! { "pid": pid, "uid": uid },
        );
    }
    match signal {
        libc::SIGUSR1 => {
            if let Err(e) = rotate(log) {
                log.log(
                    Severity::Error,
                    "CONTROL",
                    23168,
                    CTX,
                    "Log rotation failed",
                    Some(&doc! { "error": e.to_string() }),
                );
            }
        }
        libc::SIGUSR2 => {
            let (total, threads) = threads();
            info(
                7_340_002,
                "The threads of this process",
                &doc! { "total": total, "threads": threads },
            );
        }
        libc::SIGQUIT => {
            log.log(
                Severity::Fatal,
                "CONTROL",
                4_757_800,
                CTX,
                "Ending at once, without order; what was acknowledged as durable is",
                Some(&doc! { "signal": signal }),
            );
            // SAFETY: the calls take plain numbers; the default action ends the process.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                libc::kill(libc::getpid(), signal);
            }
        }
        _ => {
            info(
                23381,
                "will terminate after current cmd ends",
                &DocBuf::new(),
            );
            end(signal);
        }
    }
}

/// Ends the server. A primary first lets another member lead; a second signal ends it without that wait. If
/// no server has started yet, the process simply ends: the next start treats what is on disk like that of a
/// crash.
fn end(signal: i32) {
    let again = ENDS.swap(signal, Ordering::SeqCst) != 0;
    let mut server = TARGET.server.lock();
    loop {
        match server.as_ref().map(Weak::upgrade) {
            // SAFETY: the call ends the process.
            None => unsafe { libc::_exit(0) },
            Some(Some(state)) => {
                drop(server);
                match again {
                    true => state
                        .lifecycle
                        .request_stop(&format!("got signal {signal} once more")),
                    false => leave(state, signal),
                }
                return;
            }
            // The server is beginning anew, so this waits for its successor.
            Some(None) => TARGET.set.wait(&mut server),
        }
    }
}

/// Ends the server. If it leads, it first waits for another member to lead, but only for so long. Further
/// signals are handled meanwhile.
fn leave(state: Arc<ServerState>, signal: i32) {
    let reason = format!("got signal {signal}");
    let ending = Arc::clone(&state);
    let leaves = move |reason: &str| {
        if let Some(set) = &ending.replica_set {
            let patience = ending
                .parameters
                .shutdown_patience_ms
                .load(Ordering::Relaxed);
            let patience = Duration::from_millis(patience.max(0) as u64);
            if let Err(e) = set.hand_over(patience, true, &NeverInterrupted) {
                no_successor(&ending.log, CTX, &e);
            }
        }
        ending.lifecycle.request_stop(reason);
    };
    let why = reason.clone();
    let begun = std::thread::Builder::new()
        .name("handover".to_string())
        .stack_size(1 << 20)
        .spawn(move || leaves(&why));
    if begun.is_err() {
        state.lifecycle.request_stop(&reason);
    }
}

/// Logs that the server ends although no other member leads.
pub(crate) fn no_successor(log: &Logger, context: &str, e: &Error) {
    log.log(
        Severity::Warning,
        "REPL",
        4_719_000,
        context,
        "No other member has taken over; the server ends all the same",
        Some(&doc! { "error": e.to_string() }),
    );
}

/// Rotates the logs of the server that runs, or the log alone while none does.
fn rotate(log: &Logger) -> Result<()> {
    let server = TARGET.server.lock().as_ref().and_then(Weak::upgrade);
    match server {
        Some(server) => audit::rotate(&server, &Who::server(), Logs::Both, CTX),
        None => log.rotate(CTX).map_err(Error::from),
    }
}

fn name(signal: i32) -> String {
    // SAFETY: the C library owns the text, which is copied at once, and no other thread calls this function.
    unsafe {
        let text = libc::strsignal(signal);
        match text.is_null() {
            true => String::new(),
            false => CStr::from_ptr(text).to_string_lossy().into_owned(),
        }
    }
}

/// The number of threads, and a document for each: its id, its name and its state (R runs, S sleeps, D waits
/// for the disk).
fn threads() -> (i32, ArrayBuf) {
    let mut list = ArrayBuf::new();
    let mut total = 0;
    for task in fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
    {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let (stat, name) = (read("stat"), read("comm"));
        let state = stat.rsplit(") ").next().and_then(|s| s.split(' ').next());
        total += 1;
        list.push(doc! {
            "tid": task.file_name().to_string_lossy().parse::<i32>().unwrap_or_default(),
            "name": name.trim(),
            "state": state.unwrap_or_default(),
            "waitsIn": read("wchan").trim(),
        });
    }
    (total, list)
}
