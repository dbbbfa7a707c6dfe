//! A wrong wall clock. A file, which the test changes, says by how many milliseconds it is wrong.

use crate::enter;
use libc::{c_int, clockid_t, timespec};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// The number of milliseconds by which the wall clock is ahead.
fn ahead() -> i64 {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let file = FILE.get_or_init(|| File::open(std::env::var_os("POWERLOSS_CLOCK")?).ok());
    let Some(file) = file else {
        return 0;
    };
    let mut text = [0; 32];
    let n = file.read_at(&mut text, 0).unwrap_or(0);
    let text = std::str::from_utf8(text.get(..n).unwrap_or_default()).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// The C library's function, except for the wall clock.
///
/// # Safety
/// As for the C function: `t` must be writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, t: *mut timespec) -> c_int {
    // SAFETY: the caller guarantees the same.
    let result = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, t) } as c_int;
    if result == 0 && matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE) {
        let ms = enter(ahead).unwrap_or(0);
        // SAFETY: the kernel has just written to it.
        let t = unsafe { &mut *t };
        let nanos = t.tv_nsec + (ms.rem_euclid(1000)) * 1_000_000;
        t.tv_sec += ms.div_euclid(1000) + nanos / 1_000_000_000;
        t.tv_nsec = nanos % 1_000_000_000;
    }
    result
}
