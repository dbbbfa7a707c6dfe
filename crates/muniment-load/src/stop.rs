//! Ctrl-C: the first one asks all parts to end and to write their results, the second one ends the process at
//! once. In both cases the exit code is that of the signal: 130 for Ctrl-C.

use crate::fail::Failure;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

static ASKED: AtomicUsize = AtomicUsize::new(0);
static SIGNAL: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_signal(signal: libc::c_int) {
    SIGNAL.store(signal, Ordering::Relaxed);
    if ASKED.fetch_add(1, Ordering::Relaxed) > 0 {
        // SAFETY: _exit is async-signal-safe. The embedded server dies with this process (PDEATHSIG).
        unsafe { libc::_exit(128 + signal) };
    }
}

/// The exit code of a process that was ended by a signal, as shells define it: 130 for Ctrl-C, 143 for a
/// termination. `None` if no signal came.
pub fn exit_code() -> Option<u8> {
    let signal = SIGNAL.load(Ordering::Relaxed);
    u8::try_from(128 + signal).ok().filter(|_| asked())
}

/// The failure of a run that was ended in this way.
pub fn interrupted() -> Failure {
    Failure::new("interrupted; what there was has been written")
}

/// Installs the handler for SIGINT and SIGTERM.
pub fn install() {
    // SAFETY: `on_signal` only touches an atomic and calls _exit; a zeroed sigaction with a
    // handler and SA_RESTART is valid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGINT, &action, std::ptr::null_mut());
        libc::sigaction(libc::SIGTERM, &action, std::ptr::null_mut());
    }
}

/// True after the user has asked to end.
#[inline]
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed) > 0
}
