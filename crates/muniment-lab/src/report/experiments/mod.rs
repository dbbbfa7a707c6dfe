//! What each experiment found, told: its tables, plots, figures and sentences, made from the data that
//! it returns. One file an experiment, by its name.
//!
//! Must not: measure anything, or ask a server.

pub mod audit;
pub mod ceiling;
pub mod index_cost;
pub mod query;
pub mod rates;
pub mod vary;
pub mod versus;
pub mod w1;
pub mod w2;
pub mod w3;
pub mod w4a;
pub mod w4b;
pub mod w5;
pub mod workload;
pub mod yardsticks;
pub mod ycsb;

#[cfg(test)]
pub(crate) mod fixtures;
