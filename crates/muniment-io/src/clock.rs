//! The clock and randomness.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The wall clock and the source of random bytes.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970.
    fn now_ms(&self) -> i64;

    /// A clock that is never set.
    fn instant(&self) -> Instant {
        Instant::now()
    }

    /// Fills `bytes` with random ones that are good enough for unique identifiers.
    ///
    /// # Errors
    /// Those of the machine.
    fn random(&self, bytes: &mut [u8]) -> std::io::Result<()>;
}

/// The processor time of the calling thread, if the system reports it. It costs a system call.
pub fn thread_time() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    {
        let mut t = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `t` is a valid timespec to write to.
        let told = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
        let (seconds, nanos) = (
            u64::try_from(t.tv_sec).ok()?,
            u32::try_from(t.tv_nsec).ok()?,
        );
        (told == 0).then(|| Duration::new(seconds, nanos))
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// The machine's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_millis() as i64)
    }

    fn random(&self, bytes: &mut [u8]) -> std::io::Result<()> {
        use std::io::Read;
        std::fs::File::open("/dev/urandom")?.read_exact(bytes)
    }
}
