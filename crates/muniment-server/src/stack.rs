//! Gives the unused stack of a waiting thread back to the system.
//!
//! A command may have touched much of its thread's stack, and those pages stay resident while the connection
//! idles. Everything below the stack pointer is dead, so the system can have it; the next command gets fresh
//! pages.

/// Bytes kept below the stack pointer: the red zone, and the frames of the system calls.
const KEEP: usize = 4 * 1024;

/// Gives back the pages well below the stack pointer of the calling thread.
pub fn release_unused() {
    let Some(low) = lowest_address() else { return };
    // SAFETY: `sysconf` takes no pointer.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let Ok(page) = usize::try_from(page) else {
        return;
    };
    let here = 0_u8;
    let sp = std::ptr::from_ref(&here).addr();
    let end = sp.saturating_sub(KEEP) / page * page;
    let start = low.div_ceil(page) * page;
    if end <= start || page == 0 {
        return;
    }
    // SAFETY: the range is inside this thread's own stack and below every live frame, so nothing there is
    // read before it is written again.
    unsafe {
        libc::madvise(
            std::ptr::without_provenance_mut(start),
            end - start,
            libc::MADV_DONTNEED,
        );
    }
}

/// The lowest usable address of the calling thread's stack.
fn lowest_address() -> Option<usize> {
    let mut attr = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut addr = std::ptr::null_mut();
    let mut size = 0;
    // SAFETY: the attribute is initialised by the first call and destroyed by the last.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attr.as_mut_ptr()) != 0 {
            return None;
        }
        let rc = libc::pthread_attr_getstack(attr.as_ptr(), &mut addr, &mut size);
        libc::pthread_attr_destroy(attr.as_mut_ptr());
        (rc == 0 && size > 0).then(|| addr.addr())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    /// Touches `n` KiB of stack.
    fn dig(n: usize) -> usize {
        let frame = std::hint::black_box([7_u8; 1024]);
        if n == 0 {
            usize::from(frame[0])
        } else {
            dig(n - 1) + usize::from(frame[n % 1024])
        }
    }

    #[test]
    fn the_thread_goes_on_after_its_stack_is_given_back() {
        let t = std::thread::Builder::new().stack_size(2 << 20);
        let sums = t
            .spawn(|| {
                let keep = std::hint::black_box([3_u8; 64]);
                let mut sums = Vec::new();
                for _ in 0..3 {
                    sums.push(dig(200));
                    super::release_unused();
                }
                assert!(keep.iter().all(|b| *b == 3));
                sums
            })
            .unwrap()
            .join()
            .unwrap();
        assert_eq!(sums, [201 * 7; 3]);
    }
}
