//! The planner: makes a plan over the collection's indexes from a filter, a sort and a projection.
//!
//! First there are rules: an index that answers more of the filter wins, then one that gives the
//! sort. Where the rules do not decide, a short trial does, and its winner is remembered by query
//! shape.

pub(crate) mod access;
pub(crate) mod bounds;
pub(crate) mod cache;
pub(crate) mod candidate;
pub(crate) mod collated;
pub(crate) mod express;
pub(crate) mod filters;
pub(crate) mod hint;
pub(crate) mod index_plan;
pub(crate) mod interval;
pub(crate) mod key_doc;
pub(crate) mod key_filter;
pub(crate) mod leaf;
pub(crate) mod min_max;
pub(crate) mod near;
pub(crate) mod or_plan;
pub(crate) mod order;
pub(crate) mod query;
pub(crate) mod ranges;
pub(crate) mod scan;
pub(crate) mod shape;
pub(crate) mod text;
pub(crate) mod text_access;
pub(crate) mod wild_keys;
pub(crate) mod wildcard;
