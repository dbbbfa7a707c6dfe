//! The allocator: jemalloc instead of the system's.
//!
//! Memory that the thread of one connection allocates, mostly for a document, is often freed by that of
//! another one. In glibc a block above 1 KiB goes straight back to the heap that it came from, under that
//! heap's lock: with 16 connections that sent `$set` on two cores, every fourth update waited for a lock.

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// There is one heap for each core. A thread's cache is small, because a server has a thread for each
/// connection and most of them are idle: with jemalloc's default sizes it would take 70 KB. Free pages go
/// back to the system a second later, as long as there is work; the server's housekeeping does it when there
/// is none.
#[allow(non_upper_case_globals)]
// SAFETY: jemalloc, as it is built here, looks for this name, and nothing else has it.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static malloc_conf: &[u8] = b"narenas_ratio:1,dirty_decay_ms:1000,muzzy_decay_ms:0,\
lg_tcache_max:12,tcache_nslots_small_min:4,tcache_nslots_small_max:10,tcache_nslots_large:4\0";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    #[test]
    fn the_settings_are_jemallocs() {
        for (name, value) in [
            (c"opt.tcache_nslots_small_max", 10_u32),
            (c"opt.tcache_nslots_large", 4),
        ] {
            let (mut found, mut size) = (0_u32, size_of::<u32>());
            // SAFETY: the setting has that size.
            let failed = unsafe {
                tikv_jemalloc_sys::mallctl(
                    name.as_ptr(),
                    std::ptr::from_mut(&mut found).cast(),
                    &mut size,
                    std::ptr::null_mut(),
                    0,
                )
            };
            assert_eq!((failed, found), (0, value), "{name:?}");
        }
    }
}
