//! Workloads of one's own: a TOML file says what documents look like, which operations run on
//! them, how often, how fast. `docs/workloads.md` is the reference.
//!
//! | module | what |
//! |---|---|
//! | [`source`] | the file as a tree whose values know their lines |
//! | [`plan`], [`operation`], [`set`] | the workload, checked as a whole, and its settings |
//! | [`template`], [`generate`], [`draw`] | what documents look like: constants, generators, distributions |
//! | [`encode`] | templates compiled to steps that append BSON to a message |
//! | [`worker`], [`run`] | collections, load and run phases |
//! | [`mod@experiment`] | one target's run |
//! | [`sample`] | what a workload would send |
//! | [`builtin`] | the workloads that come with the lab |
//! | [`cli`] | `muniment bench run` |

pub mod builtin;
pub mod cli;
#[cfg(test)]
mod docs;
pub mod draw;
pub mod encode;
pub mod experiment;
pub mod generate;
pub mod operation;
pub mod plan;
pub mod run;
pub mod sample;
pub mod set;
pub mod source;
pub mod template;
pub mod worker;

pub use experiment::experiment;
pub use plan::Plan;
pub use run::{Ready, measure, prepare};
