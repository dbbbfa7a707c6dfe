//! The generators, which may stand wherever a value stands. Each has a file (related ones share
//! one) and a line in [`ALL`], sorted by name.

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

/// A generator as a file describes it.
pub(crate) trait Generator: Debug + Send + Sync {
    /// The BSON type of its values; `None` if it varies.
    fn kind(&self) -> Option<u8>;

    /// The number of bytes of a value, if that is always the same.
    fn width(&self) -> Option<usize> {
        None
    }

    /// Whether a value may be absent.
    fn optional(&self) -> bool {
        false
    }

    /// Makes a source of values for one worker.
    ///
    /// # Errors
    /// The generator draws keys of a sequence that has no numbers.
    fn start(&self, env: &Env<'_>) -> Result<Box<dyn Source>>;
}

/// A worker's source of values.
pub(crate) trait Source: Send {
    /// Appends the bytes of a value and returns its BSON type; 0 stands for no value.
    fn write(&mut self, hand: &mut Hand, out: &mut Vec<u8>) -> u8;
}

/// The description of a generator.
#[cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "a test holds form and about against docs/workloads.md"
    )
)]
pub(crate) struct Spec {
    /// The generator's name in the file.
    pub name: &'static str,
    /// The form of the text that follows the name.
    pub form: &'static str,
    /// A line that tells what it makes.
    pub about: &'static str,
    /// Reads the value that follows the name.
    pub read: fn(&Item, &mut Seen) -> Parsed<Node>,
}

/// All generators, sorted by name.
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
