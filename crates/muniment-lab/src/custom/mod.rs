//! Workloads that a user writes: a TOML file describes the documents, the operations that run on
//! them, how often and how fast. `docs/workloads.md` is the reference.
//!
//! | module | contents |
//! |---|---|
//! | [`source`] | the file as a tree whose values know their lines |
//! | [`plan`], [`operation`], [`set`] | the workload, checked as a whole, and its settings |
//! | [`template`], [`generate`], [`draw`] | the form of documents: constants, generators, distributions |
//! | [`encode`] | templates compiled to steps that append BSON to a message |
//! | [`worker`], [`run`] | collections, load and run phases |
//! | [`mod@experiment`] | the run on one target |
//! | [`sample`] | a sample of the documents and commands that a workload sends |
//! | [`builtin`] | the workloads that come with the lab |
//! | [`cli`] | `muniment bench run` |

pub(crate) mod builtin;
pub(crate) mod cli;
#[cfg(test)]
mod docs;
pub(crate) mod draw;
pub(crate) mod encode;
pub(crate) mod experiment;
pub(crate) mod generate;
pub(crate) mod operation;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod sample;
pub(crate) mod set;
pub(crate) mod source;
pub(crate) mod template;
pub(crate) mod worker;

pub(crate) use experiment::experiment;
pub(crate) use plan::Plan;
pub(crate) use run::{Ready, measure, prepare};
