//! The load generator of the lab: raw connections, the loads that workers make over them, and the
//! measurements of both sides.
//!
//! | module | content |
//! |---|---|
//! | [`conn`] | one connection that sends pre-encoded messages |
//! | [`access`] | a server's address, and the login that every connection to it begins with |
//! | [`load`] | workers, their pace and limits; the results of a load |
//! | [`meter`], [`hist`] | latencies by kind of operation; histograms |
//! | [`samples`], [`number`] | the data that is kept of a load, and its numbers in JSON |
//! | [`procs`], [`usage`] | the resources that the server's process and the workers used |
//! | [`placement`] | the cores on which a single connection's client and server run |
//! | [`stats`], [`usl`], [`rng`] | ratios with intervals, the Universal Scalability Law, random numbers |
//! | [`stop`], [`fail`] | Ctrl-C, and the only error type |
//!
//! Must not: know an experiment, lay out anything for people, or link the server.

#![warn(unreachable_pub)]

pub mod access;
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
