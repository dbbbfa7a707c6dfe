//! The query language as pure functions over documents: filters, expressions, projections,
//! updates, sorts and aggregation stages.
//!
//! Invariants: the only I/O is that on the scratch files of stages that spill; nothing here knows the storage
//! or the commands; everything works on raw BSON bytes; nothing panics on any input.

#![warn(unreachable_pub)]

pub mod bytes;
pub mod context;
pub mod expr;
pub mod filter;
pub mod geo;
pub mod meta;
mod needs;
pub mod projection;
pub mod running;
pub mod scratch;
pub mod sort;
pub mod split;
pub mod stage;
pub mod text;
pub mod update;

pub use context::{Clocks, MatchInfo, QueryContext, Runtime};
pub use expr::Expr;
pub use filter::Filter;
pub use meta::{Meta, MetaSet};
pub use muniment_op::{Account, Interrupt, Ledger, NeverInterrupted, Refused, Share, ledger};
pub use needs::Needs;
pub use projection::Projection;
pub use scratch::{Scratch, ScratchFile};
pub use sort::SortSpec;
pub use stage::{DocStream, Pipeline, check_result_size, check_update_stages};
pub use update::{Update, diff};
