//! The parts of the machine that a server uses through traits.

use crate::{Clock, Disk, OsDisk, SystemClock};
use std::fmt;
use std::sync::Arc;

/// The disk, the clock, and whether there are threads.
#[derive(Clone)]
pub struct Machine {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The clock and the source of randomness.
    pub clock: Arc<dyn Clock>,
    /// If false, nothing runs by itself. The caller that has opened something calls its steps, as a simulator
    /// with one thread does.
    pub threads: bool,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine {
            disk: Arc::new(OsDisk),
            clock: Arc::new(SystemClock),
            threads: true,
        }
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = &self.threads;
        f.debug_struct("Machine")
            .field("threads", threads)
            .finish_non_exhaustive()
    }
}
