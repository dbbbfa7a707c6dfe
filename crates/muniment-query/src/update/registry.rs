//! The definition of an update operator, and the sorted list of all of them.

use super::ops;
use crate::context::QueryContext;
use crate::running::Work;
use muniment_value::{Doc, Elem, Result};
use std::fmt::Debug;
use std::sync::Arc;

/// One update operator: its name, a line for the generated page, and its parser.
#[derive(Clone, Copy)]
pub struct Spec {
    /// The name with its dollar.
    pub name: &'static str,
    /// One line of documentation.
    pub doc: &'static str,
    pub(crate) parse: Parse,
}

/// Parses one `path: operand` of an operator and adds its leaves to the sink.
pub(crate) type Parse = fn(&ParseCx<'_>, Elem<'_>, &mut Sink<'_>) -> Result<()>;

/// Takes a path and the operation at its end.
pub(crate) type Sink<'s> = dyn FnMut(&str, Arc<dyn LeafOp>) -> Result<()> + 's;

/// The surroundings that an operator's parser may need.
pub(crate) struct ParseCx<'a> {
    /// The command's context.
    pub ctx: &'a QueryContext,
}

/// The operation at the end of one path.
pub(crate) trait LeafOp: Debug + Send + Sync {
    /// Computes the new element into `out`: the whole element for [`Outcome::Changed`], and nothing
    /// otherwise.
    fn apply(&self, target: &Target<'_>, out: &mut Vec<u8>) -> Result<Outcome>;

    /// Whether it creates its field if that is missing. In that case, a path that cannot be created is an
    /// error.
    fn creates(&self, root: Doc<'_>) -> bool {
        let _ = root;
        true
    }

    /// Whether a path that does not exist and cannot be created is simply ignored.
    fn ignores_unviable(&self) -> bool {
        false
    }

    /// Whether it adds elements at the end of an array and leaves the others as they are.
    fn appends(&self) -> bool {
        false
    }

    /// How deeply the value nests that it may write at its path.
    fn depth(&self) -> usize {
        0
    }
}

/// The place at which a leaf is applied.
pub(crate) struct Target<'a> {
    /// The field's name (an index in an array).
    pub name: &'a [u8],
    /// The element at the place, if there is one.
    pub old: Option<Elem<'a>>,
    /// Whether the parent is an array.
    pub in_array: bool,
    /// The whole document before the update.
    pub root: Doc<'a>,
    /// The path as it is written in the update.
    pub path: &'a str,
    /// What the update works for.
    pub work: Work<'a>,
}

impl Target<'_> {
    /// The name as text, for messages.
    pub(crate) fn name_str(&self) -> &str {
        std::str::from_utf8(self.name).unwrap_or("?")
    }
}

/// The result of applying a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The element stays as it is (or stays missing).
    Unchanged,
    /// The new element has been written.
    Changed,
    /// The element is removed.
    Removed,
}

/// Every update operator, sorted by name.
pub fn registry() -> &'static [Spec] {
    &[
        ops::add_to_set::SPEC,
        ops::bit::SPEC,
        ops::current_date::SPEC,
        ops::inc::SPEC,
        ops::max::SPEC,
        ops::min::SPEC,
        ops::mul::SPEC,
        ops::pop::SPEC,
        ops::pull::SPEC,
        ops::pull_all::SPEC,
        ops::push::SPEC,
        ops::rename::SPEC,
        ops::set::SPEC,
        ops::set_on_insert::SPEC,
        ops::unset::SPEC,
    ]
}

/// The operator with this name.
pub(crate) fn find(name: &str) -> Option<&'static Spec> {
    let all = registry();
    all.binary_search_by(|s| s.name.cmp(name))
        .ok()
        .and_then(|i| all.get(i))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_is_sorted_and_documented() {
        assert!(registry().is_sorted_by(|a, b| a.name < b.name));
        assert!(registry().iter().all(|s| !s.doc.is_empty()));
        assert!(find("$set").is_some());
        assert!(find("$sett").is_none());
    }
}
