//! The machine that a server runs on, as far as it goes through the seams.

use crate::{Clock, Disk, OsDisk, SystemClock};
use std::fmt;
use std::sync::Arc;

/// Disk, clock, and whether there are threads.
#[derive(Clone)]
pub struct Machine {
    /// Where files are.
    pub disk: Arc<dyn Disk>,
    /// What tells the time, and draws.
    pub clock: Arc<dyn Clock>,
    /// False: nothing runs by itself. The caller that has opened something calls its steps, as a
    /// simulator with one thread does.
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
