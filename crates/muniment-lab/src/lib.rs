//! The benchmark lab: workloads, load generator, statistics and reports. A black box over the
//! wire: it starts a server as a process and talks to it as any client does.

pub mod conn;
pub mod docs;
pub mod fail;
pub mod hist;
pub mod report;
pub mod rng;
pub mod stats;
