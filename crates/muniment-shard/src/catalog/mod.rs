//! The documents of the `config` database that describe placement, as typed values.
//!
//! Their shapes are MongoDB's, since tools and people read them. Parsing names the collection and the field
//! that is wrong. Fields of newer versions are kept in [`Collection`], which clients may write to, and ignored
//! elsewhere.

mod chunk;
mod collection;
mod database;
mod fields;
mod shard;
mod tag;

pub use chunk::{Chunk, Owner};
pub use collection::Collection;
pub use database::{Database, DatabaseVersion};
pub use shard::Shard;
pub use tag::Tag;
