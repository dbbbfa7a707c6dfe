//! Systems on which threads cannot be pinned.

use std::io::{Error, ErrorKind, Result};

fn none<T>() -> Result<T> {
    Err(Error::new(
        ErrorKind::Unsupported,
        "threads are pinned on Linux only",
    ))
}

/// The cores on which a thread may run.
pub(super) fn cpus(_: Option<u32>) -> Result<Vec<usize>> {
    none()
}

/// Sets the cores on which a thread may run.
pub(super) fn set_cpus(_: Option<u32>, _: &[usize]) -> Result<()> {
    none()
}

/// The threads of a process.
pub(super) fn threads(_: u32) -> Result<Vec<u32>> {
    none()
}

/// The core on which the calling thread runs.
pub(super) fn running_on() -> usize {
    0
}

/// Whether an error means that a thread has ended.
pub(super) fn is_gone(_: &Error) -> bool {
    false
}

/// Whether a process listens on a port.
pub(super) fn listens(_: u32, _: u16) -> Result<bool> {
    none()
}

/// The package and the core of a CPU.
pub(super) fn core_of(cpu: usize) -> (usize, usize) {
    (0, cpu)
}
