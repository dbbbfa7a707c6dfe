//! The reports of the experiments: tables, plots, figures and sentences, made from the data that an
//! experiment returns. Each experiment has a file with its name.
//!
//! Nothing here may measure anything or ask a server.

pub(crate) mod audit;
pub(crate) mod ceiling;
mod cluster_costs;
pub(crate) mod index_cost;
pub(crate) mod query;
pub(crate) mod rates;
pub(crate) mod sharded;
pub(crate) mod vary;
pub(crate) mod versus;
pub(crate) mod w1;
pub(crate) mod w2;
pub(crate) mod w3;
pub(crate) mod w4a;
pub(crate) mod w4b;
pub(crate) mod w5;
pub(crate) mod workload;
pub(crate) mod yardsticks;
pub(crate) mod ycsb;

#[cfg(test)]
pub(crate) mod fixtures;
