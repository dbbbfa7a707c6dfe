//! The generators: what may stand where a value stands. One file each (kinsmen share one), one
//! line each in [`ALL`], sorted by name.

mod array;
mod binary;
mod choice;
mod constant;
mod date;
mod double;
mod format;
mod id;
mod int;
mod length;
mod noise;
mod optional;
mod sequence;
mod text;

use super::encode::{Env, Hand};
use super::source::{Item, Parsed};
use super::template::{Node, Seen};
use muniment_load::fail::Result;
use std::fmt::Debug;

/// How values are made, as the file says it.
pub(crate) trait Generator: Debug + Send + Sync {
    /// The BSON type of its values; `None` when it varies.
    fn kind(&self) -> Option<u8>;

    /// Bytes of a value, when that is always the same.
    fn width(&self) -> Option<usize> {
        None
    }

    /// Whether a value may be absent.
    fn optional(&self) -> bool {
        false
    }

    /// Begins the work of one worker.
    ///
    /// # Errors
    /// Keys of a sequence that has none.
    fn start(&self, env: &Env<'_>) -> Result<Box<dyn Source>>;
}

/// A generator at work.
pub(crate) trait Source: Send {
    /// Appends the bytes of a value, and gives its BSON type; 0 for none.
    fn write(&mut self, hand: &mut Hand, out: &mut Vec<u8>) -> u8;
}

/// A generator.
#[cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "a test holds form and about against docs/workloads.md"
    )
)]
pub(crate) struct Spec {
    /// Its name in the file.
    pub name: &'static str,
    /// What follows the name.
    pub form: &'static str,
    /// What it makes.
    pub about: &'static str,
    /// Reads what follows the name.
    pub read: fn(&Item, &mut Seen) -> Parsed<Node>,
}

/// Every generator, sorted by name.
pub(crate) const ALL: &[Spec] = &[
    array::SPEC,
    binary::SPEC,
    choice::BOOL,
    date::SPEC,
    constant::DOCUMENT,
    double::SPEC,
    choice::ENUM,
    format::SPEC,
    int::INT,
    constant::JSON,
    sequence::KEY,
    int::LONG,
    constant::NULL,
    id::OBJECT_ID,
    optional::SPEC,
    constant::REPEAT,
    sequence::SEQUENCE,
    text::SPEC,
    id::UUID,
];

/// The generator of this name.
pub(crate) fn named(name: &str) -> Option<&'static Spec> {
    ALL.iter().find(|s| s.name == name)
}

#[cfg(test)]
pub(crate) mod tests;
