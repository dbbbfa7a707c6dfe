//! Giving free memory back to the system: what the allocators keep for the next command.
//!
//! The program's allocator is jemalloc; glibc's serves what is written in C. Both give memory back by
//! themselves, but only while somebody allocates. In a program with another allocator (a test of
//! this crate) jemalloc's heap is empty and the calls do nothing.

use std::ffi::CStr;
use std::ptr::null_mut;

/// What the calling thread's cache keeps goes back to the heap: for a thread that waits.
pub fn flush_thread() {
    command(c"thread.tcache.flush");
}

/// What is free in the heaps goes back to the system. It holds their locks, so it is for a server
/// that has nothing to do.
pub fn purge() {
    // 4096 stands for all arenas (jemalloc's MALLCTL_ARENAS_ALL).
    command(c"arena.4096.purge");
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// What has been free in the heaps for as long as they keep it goes back to the system, also in
/// those in which nobody allocates now.
pub fn decay() {
    command(c"arena.4096.decay");
}

/// Bytes of the process that are in memory; `None` where the system does not say.
pub fn resident() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = text.split_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: it only asks.
    let size = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    pages.checked_mul(size)
}

/// One of jemalloc's commands that neither takes nor gives a value.
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
