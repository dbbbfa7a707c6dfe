//! The allocator: jemalloc instead of the system's.
//!
//! What one connection's thread allocates, a document above all, another one's frees. In glibc a
//! block above 1 KiB goes straight to the heap that it came from, under that heap's lock: with 16
//! connections that sent `$set` on two cores every fourth update waited for one.

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// A heap for each core. A thread's cache is small, because a server has a thread for each
/// connection and most of them are idle: with jemalloc's own sizes it takes 70 KB. Pages that are
/// free go back to the system a second later, while there is work; the server's housekeeping sees to
/// it when there is none.
#[allow(non_upper_case_globals)]
// SAFETY: the name is the one that jemalloc as it is built here looks for, and nobody else's.
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
            // SAFETY: the setting is of that size.
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
