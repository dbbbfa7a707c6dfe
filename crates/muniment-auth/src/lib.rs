//! The identity and the rights of a user: logging in by SCRAM, users, roles and privileges.
//!
//! Pure functions over documents: this crate reads no store, knows no command and no connection. Nothing here
//! prints a password, a key or a salted value: the types that hold one have a `Debug` that leaves it out, and
//! are zeroed when they are dropped.

pub mod action;
pub mod builtin;
#[doc(hidden)]
pub mod fuzzing;
pub mod names;
pub mod prep;
pub mod privilege;
pub mod resource;
pub mod restrictions;
pub mod scram;
