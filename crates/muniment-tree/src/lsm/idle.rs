//! What the threads that do the engine's work wait for.

/// What a thread that does the engine's work waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// Something to flush, free or remove.
    Flush,
    /// A job.
    Job,
    /// Room for the next piece of a job.
    Room,
    /// The end of a pause.
    Time,
}
