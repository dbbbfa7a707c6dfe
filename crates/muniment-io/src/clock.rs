//! The clock and randomness.

use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock and the source of random bytes.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970.
    fn now_ms(&self) -> i64;

    /// Fills `bytes` with random ones, good enough for identifiers that must never meet.
    ///
    /// # Errors
    /// The machine's.
    fn random(&self, bytes: &mut [u8]) -> std::io::Result<()>;
}

/// The machine's own.
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
