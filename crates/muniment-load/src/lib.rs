//! The load generator of the lab: raw connections, the loads that workers make over them, and what is
//! measured of both sides.
//!
//! | module | what |
//! |---|---|
//! | [`conn`] | one connection that sends messages which were encoded before |
//! | [`load`] | workers, their pace and limits; what a load did |
//! | [`meter`], [`hist`] | latencies by kind of operation; histograms |
//! | [`samples`], [`number`] | what is kept of a load, and its numbers in JSON |
//! | [`procs`], [`usage`] | what the server's process and the workers used |
//! | [`placement`] | on which cores a single connection's client and server run |
//! | [`stats`], [`usl`], [`rng`] | ratios with intervals, the Universal Scalability Law, random numbers |
//! | [`stop`], [`fail`] | Ctrl-C, and the one error |
//!
//! Must not: know an experiment, lay anything out for people, or link the server.

pub mod conn;
pub mod fail;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod hist;
pub mod load;
pub mod meter;
pub mod number;
pub mod placement;
pub mod procs;
pub mod rng;
pub mod samples;
pub mod stats;
pub mod stop;
pub mod usage;
pub mod usl;
