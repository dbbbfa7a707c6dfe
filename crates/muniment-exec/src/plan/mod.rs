//! The planner: from a filter, a sort and a projection to a plan over the collection's indexes.
//!
//! Rules first (an index that answers more of the filter, then one that gives the sort), a short
//! trial run where rules do not decide, the winner remembered per query shape.

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
