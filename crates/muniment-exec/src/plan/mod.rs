//! The planner: makes a plan over the collection's indexes from a filter, a sort and a projection.
//!
//! First there are rules: an index that answers more of the filter wins, then one that gives the
//! sort. Where the rules do not decide, a short trial does, and its winner is remembered by query
//! shape.

pub mod access;
pub mod bounds;
pub mod cache;
pub mod candidate;
pub mod collated;
pub mod express;
pub mod filters;
pub mod hint;
pub mod index_plan;
pub mod interval;
pub mod key_doc;
pub mod key_filter;
pub mod leaf;
pub mod min_max;
pub mod near;
pub mod or_plan;
pub mod order;
pub mod query;
pub mod ranges;
pub mod scan;
pub mod shape;
pub mod text;
pub mod text_access;
pub mod wild_keys;
pub mod wildcard;
