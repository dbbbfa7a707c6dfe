//! MongoDB Extended JSON v2 in and out (through the `bson` crate), and the shell-like form that
//! error messages use.

use crate::{Doc, DocBuf, Result, Value};

/// Which Extended JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonMode {
    /// Type information kept exactly.
    Canonical,
    /// Numbers and dates as JSON readers expect them.
    Relaxed,
}

impl DocBuf {
    /// Parses Extended JSON (canonical or relaxed) into a document.
    ///
    /// # Errors
    /// 9 FailedToParse.
    pub fn from_json(json: &str) -> Result<DocBuf> {
        let _ = json;
        todo!()
    }
}

impl Doc<'_> {
    /// As Extended JSON on one line.
    pub fn to_json(&self, mode: JsonMode) -> String {
        let _ = mode;
        todo!()
    }
}

impl Value<'_> {
    /// As MongoDB's error messages print a value: `{ x: 1, s: "a", id: ObjectId('…') }`.
    pub fn to_display(&self) -> String {
        todo!()
    }
}
