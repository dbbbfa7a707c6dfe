//! The check that every document from outside passes once.

use crate::{Doc, Result};

/// Deepest nesting that is stored. Documented: 100; MongoDB's storage limit: 180.
pub const MAX_DEPTH: usize = 180;

/// Checks that `bytes` are exactly one well-formed document: lengths, terminators, types,
/// UTF-8 of names and strings, nesting ≤ [`MAX_DEPTH`] (without recursion on the input's depth
/// beyond it).
///
/// # Errors
/// 22 InvalidBSON naming what is wrong and at which offset; 15 Overflow for nesting.
pub fn validate(bytes: &[u8]) -> Result<Doc<'_>> {
    let _ = bytes;
    todo!()
}
