//! What the engine does: one file or folder for each verb, or for a family of them.
//!
//! A verb resolves a name ([`crate::source`], a query by its [`head`]), plans what it reads (`planning`),
//! runs the plan (`crate::run`) and does its own with the rows. Verbs may need each other, in one
//! direction; nothing below (`run`, `plan`, `operation`) needs a verb.

pub(crate) mod aggregate;
pub(crate) mod count;
pub(crate) mod create;
pub(crate) mod distinct;
pub(crate) mod explain;
pub(crate) mod find;
pub(crate) mod head;
pub(crate) mod index_stats;
pub(crate) mod plan_cache;
pub(crate) mod planning;
pub(crate) mod ttl;
pub(crate) mod views;
pub(crate) mod write;
