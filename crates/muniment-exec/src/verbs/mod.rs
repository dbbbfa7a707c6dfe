//! The engine's verbs: one file or folder for each verb, or for a family of them.
//!
//! A verb resolves a name ([`crate::source`]; a query does so by its [`head`]), plans what it reads
//! (`planning`), runs the plan (`crate::run`) and then does its own part with the rows. Verbs may
//! use each other in one direction only. Nothing below them (`run`, `plan`, `operation`) uses a
//! verb.

pub(crate) mod aggregate;
pub(crate) mod count;
pub(crate) mod create;
pub(crate) mod distinct;
pub(crate) mod explain;
pub(crate) mod find;
pub(crate) mod head;
pub(crate) mod index_stats;
mod leave;
pub(crate) mod plan_cache;
pub(crate) mod planning;
pub(crate) mod ttl;
pub(crate) mod views;
pub(crate) mod write;
