//! The forms in which the null responder serves its connections.

use muniment_wire::Form;
use std::thread::available_parallelism;
use std::time::Duration;

/// How long a worker of the polling responder looks for more before it sleeps.
const POLLS: Duration = Duration::from_micros(20);

/// A form of the null responder, as the command line calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Responder {
    /// A thread for each connection.
    Threads,
    /// One worker for all.
    One,
    /// A worker for each core.
    Pool,
    /// The same, and a worker without work polls for some time before it sleeps.
    Polling,
}

impl Responder {
    /// All of them.
    pub(crate) const ALL: [Responder; 4] = [
        Responder::Threads,
        Responder::One,
        Responder::Pool,
        Responder::Polling,
    ];

    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Responder::Threads => "threads",
            Responder::One => "one",
            Responder::Pool => "pool",
            Responder::Polling => "polling",
        }
    }

    /// The form as the responder takes it.
    pub(crate) fn form(self) -> Form {
        let workers = available_parallelism().map_or(1, usize::from);
        match self {
            Responder::Threads => Form::Threads,
            Responder::One => Form::Pool {
                workers: 1,
                polls: Duration::ZERO,
            },
            Responder::Pool => Form::Pool {
                workers,
                polls: Duration::ZERO,
            },
            Responder::Polling => Form::Pool {
                workers,
                polls: POLLS,
            },
        }
    }
}
