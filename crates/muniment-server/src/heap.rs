//! Gives free memory, which the allocators keep for later commands, back to the system.
//!
//! The program's allocator is jemalloc; the C code in it uses glibc's. Both give memory back by themselves,
//! but only while something allocates. In a program with another allocator (a test of this crate) jemalloc's
//! heap is empty and the calls do nothing.

use parking_lot::Mutex;
use std::ffi::CStr;
use std::ptr::null_mut;

/// Returns the memory in the calling thread's cache to the heap. It is for a thread that is about to wait.
pub fn flush_thread() {
    command(c"thread.tcache.flush");
}

/// Returns all free memory of the heaps to the system. This holds the heaps' locks, so it is for a server
/// that has nothing to do.
///
/// jemalloc skips a heap that another thread purges at the same moment. Threads that call this take turns; an
/// allocation may still purge a little, so memory that was freed just before may stay until the next call.
pub fn purge() {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    // 4096 means all arenas (jemalloc's MALLCTL_ARENAS_ALL).
    command(c"arena.4096.purge");
    #[cfg(target_env = "gnu")]
    // SAFETY: the call touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns the memory that has been free for as long as the heaps keep it to the system, also from heaps in
/// which no thread allocates now.
pub fn decay() {
    command(c"arena.4096.decay");
}

/// Bytes of the process that are in memory; `None` if the system does not say.
pub fn resident() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = text.split_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: `sysconf` takes no pointer.
    let size = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    pages.checked_mul(size)
}

/// Runs one of jemalloc's commands that neither takes nor returns a value.
fn command(name: &CStr) {
    // SAFETY: the name ends with a zero byte, and there is no value to read or to write.
    let error =
        unsafe { tikv_jemalloc_sys::mallctl(name.as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
    debug_assert_eq!(error, 0, "{name:?}");
}

#[cfg(test)]
mod tests {
    #[test]
    fn jemalloc_knows_the_commands() {
        // A wrong name panics in a debug build.
        super::flush_thread();
        super::decay();
        super::purge();
        assert!(super::resident().is_some_and(|n| n > 1 << 20));
    }
}
