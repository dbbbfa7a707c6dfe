//! Muniment's BSON: views over raw bytes, MongoDB's canonical order, dotted paths,
//! the order-preserving key encoding, and the one [`Error`].
//!
//! Invariants: nothing here does I/O; nothing here panics on any input; a [`Doc`] is a cheap,
//! copyable view whose every read is bounds-checked, so that even bytes that were never
//! validated can only end an iteration early.

#![warn(unreachable_pub)]

#[cfg(any(test, feature = "arbitrary"))]
pub mod arbitrary;
pub mod args;
mod build;
mod codes;
pub mod collation;
pub mod column;
pub mod decimal;
mod error;
pub mod fuzzing;
pub mod hashed;
mod indexkeys;
mod json;
pub mod keyenc;
pub mod number;
mod oid;
mod order;
pub mod path;
mod raw;
mod trig;
mod types;
mod validate;

pub use build::{ArrayBuf, DocBuf, Put, ValueBuf};
pub use codes::Code;
pub use collation::Collation;
pub use error::{Error, Result};
pub use indexkeys::{IndexKeys, KeyLimits, index_keys};
pub use json::{JsonMode, beginning, uuid_text};
pub use oid::new_object_id;
pub use order::{cmp_docs, cmp_values, values_equal};
pub use raw::{Doc, DocIter, Elem, Type, Value};
pub use validate::{
    MAX_DEPTH, MAX_MESSAGE_DEPTH, MAX_REPLY_DEPTH, nests_deeper, validate, validate_depth,
    validate_first,
};

/// The version of MongoDB that the server presents.
pub const MONGODB_VERSION: &str = "8.0.16";
