//! Ctrl-C: the first one asks everything to end and write what there is, the second ends at once.

use std::sync::atomic::{AtomicUsize, Ordering};

static ASKED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    if ASKED.fetch_add(1, Ordering::Relaxed) > 0 {
        // SAFETY: _exit is async-signal-safe. The embedded server dies with us (PDEATHSIG).
        unsafe { libc::_exit(130) };
    }
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

/// True once the user has asked to end.
#[inline]
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed) > 0
}
