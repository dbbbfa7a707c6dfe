//! The query language as pure functions over documents: filters, expressions, projections,
//! updates, sorts and aggregation stages.
//!
//! Invariants: no I/O but the spill files a stage is given a directory for; no knowledge of the
//! storage or of commands; everything works on raw BSON bytes; nothing panics on any input.

pub mod budget;
pub mod bytes;
pub mod context;
pub mod expr;
pub mod filter;
pub mod geo;
pub mod meta;
mod needs;
pub mod projection;
pub mod running;
pub mod sort;
pub mod stage;
pub mod text;
pub mod update;

pub use budget::{MemoryBudget, Share};
pub use context::{Clocks, Interrupt, MatchInfo, NeverInterrupted, QueryContext, Runtime};
pub use expr::Expr;
pub use filter::Filter;
pub use meta::{Meta, MetaSet};
pub use needs::Needs;
pub use projection::Projection;
pub use sort::SortSpec;
pub use stage::{DocStream, Pipeline, check_result_size, check_update_stages};
pub use update::{Update, diff};
