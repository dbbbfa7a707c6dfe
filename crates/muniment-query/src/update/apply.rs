//! Applies an update in one pass: walks over a raw document together with the tree of paths, and writes the
//! new document.
//!
//! Invariants: untouched elements are copied in the longest possible runs, and once all paths of a level are
//! done, the rest of that level is copied at once; nothing is allocated except for the output buffer (and for
//! `$[id]`, which wraps each element, and for paths that collide at run time).

use super::array_filter::ArrayFilters;
use super::registry::{Outcome, Target};
use super::tree::{Leaf, Named, Node, Tree};
use crate::bytes::{IndexName, close, head, open, show};
use crate::context::MatchInfo;
use crate::running::Work;
use muniment_value::{Code, Doc, Elem, Error, Result, Type, Value};

/// The most nulls with which `$set: {"a.N": …}` may pad an array, which is MongoDB's limit.
const MAX_PADDING: usize = 1_500_000;

/// The information that every step of one application needs.
pub(crate) struct Cx<'a> {
    /// The document before the update.
    pub root: Doc<'a>,
    /// The details of the filter's match.
    pub info: MatchInfo,
    /// The array filters.
    pub filters: &'a ArrayFilters,
    /// What the update works for.
    pub work: Work<'a>,
}

/// The set of children of a level that are done.
enum Seen {
    Few(u64),
    Many(Vec<bool>),
}

impl Seen {
    fn new(n: usize) -> Seen {
        if n <= 64 {
            Seen::Few(0)
        } else {
            Seen::Many(vec![false; n])
        }
    }

    /// Marks `i`; false if it was marked before.
    fn mark(&mut self, i: usize) -> bool {
        match self {
            Seen::Few(bits) => {
                let bit = 1u64 << (i & 63);
                let new = *bits & bit == 0;
                *bits |= bit;
                new
            }
            Seen::Many(v) => v.get_mut(i).is_some_and(|b| !std::mem::replace(b, true)),
        }
    }

    fn has(&self, i: usize) -> bool {
        match self {
            Seen::Few(bits) => bits & (1u64 << (i & 63)) != 0,
            Seen::Many(v) => v.get(i).copied().unwrap_or(false),
        }
    }
}

impl Cx<'_> {
    fn matched_index(&self) -> Result<usize> {
        self.info.array_index.ok_or_else(|| {
            Error::bad_value(
                "The positional operator did not find the match needed from the query.",
            )
        })
    }

    /// Writes `doc` with `tree` applied; true if anything changed.
    pub(crate) fn document(&self, tree: &Tree, doc: Doc<'_>, out: &mut Vec<u8>) -> Result<bool> {
        if tree.positional.is_some() {
            return self.document(&tree.resolve(self.matched_index()?)?, doc, out);
        }
        let bytes = doc.as_bytes();
        let start = open(out);
        let mut changed = false;
        let mut run = 4;
        let mut left = tree.named.len();
        let mut seen = Seen::new(left);
        let mut elems = doc.iter();
        while left > 0 {
            let at = elems.offset();
            let Some(e) = elems.next() else { break };
            let Some(i) = tree.find(e.name_bytes()) else {
                continue;
            };
            let Some(child) = tree.named.get(i) else {
                continue;
            };
            if !seen.mark(i) {
                continue;
            }
            left -= 1;
            out.extend_from_slice(bytes.get(run..at).unwrap_or_default());
            run = elems.offset();
            changed |= self.existing(&child.node, e, e.name_bytes(), false, out)?;
        }
        let end = bytes.len().saturating_sub(1);
        out.extend_from_slice(bytes.get(run..end).unwrap_or_default());
        if left > 0 {
            for (i, child) in tree.named.iter().enumerate() {
                if !seen.has(i) {
                    changed |= self.missing(&child.node, child.name.as_bytes(), false, out)?;
                }
            }
        }
        close(out, start);
        Ok(changed)
    }

    /// Writes the array `array` (the value of `elem`) with `tree` applied.
    fn array(
        &self,
        tree: &Tree,
        elem: Elem<'_>,
        array: Doc<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        if !tree.each.is_empty() {
            return self.each(tree, array, out);
        }
        if let Some(node) = &tree.positional {
            let index = self.matched_index()?;
            if tree.named.is_empty()
                && let Some(changed) = self.one(node, index, array, out)?
            {
                return Ok(changed);
            }
            return self.array(&tree.resolve(index)?, elem, array, out);
        }
        for child in tree.named.iter().filter(|c| c.index.is_none()) {
            self.unviable(&child.node, &child.name, elem)?;
        }
        if tree.ascends() {
            let each = tree.named.iter();
            let each = each.filter_map(|c| Some((c.index?, std::iter::once(c))));
            return self.elements(each, array, out);
        }
        // `a.01` and `a.1` stand for the same element.
        let mut sorted: Vec<&Named> = tree.named.iter().filter(|c| c.index.is_some()).collect();
        sorted.sort_by_key(|c| c.index);
        let same = sorted.chunk_by(|a, b| a.index == b.index);
        let each = same.filter_map(|some| {
            let index = some.first()?.index?;
            Some((index, some.iter().copied()))
        });
        self.elements(each, array, out)
    }

    /// Writes an array with some elements changed or created. `each` gives the elements' indexes in ascending
    /// order, each with the children that are to be applied to it one after the other.
    fn elements<'t>(
        &self,
        each: impl Iterator<Item = (usize, impl Iterator<Item = &'t Named>)>,
        array: Doc<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let bytes = array.as_bytes();
        let start = open(out);
        let mut changed = false;
        let mut run = 4;
        let mut n = 0;
        let mut each = each.peekable();
        let mut elems = array.iter();
        while each.peek().is_some() {
            let at = elems.offset();
            let Some(e) = elems.next() else { break };
            if let Some((_, named)) = each.next_if(|(index, _)| *index == n) {
                out.extend_from_slice(bytes.get(run..at).unwrap_or_default());
                run = elems.offset();
                changed |= self.element(named, e, out)?;
            }
            n += 1;
        }
        let end = bytes.len().saturating_sub(1);
        out.extend_from_slice(bytes.get(run..end).unwrap_or_default());
        for (index, mut named) in each {
            if index.saturating_sub(n) > MAX_PADDING {
                return Err(Error::new(
                    Code::CannotBackfillArray,
                    format!("can't backfill more than {MAX_PADDING} elements"),
                ));
            }
            let before = out.len();
            for i in n..index {
                head(out, Type::Null, IndexName::new(i).as_bytes());
            }
            if out.len() > super::PADDED {
                // Each of many arrays may be padded, so a result that cannot be stored is not built to its
                // end.
                return Err(super::too_large(17_419, "Resulting document after update"));
            }
            let at = out.len();
            let name = IndexName::new(index);
            let mut made = false;
            for child in named.by_ref() {
                made = self.missing(&child.node, name.as_bytes(), true, out)?;
                if made {
                    break;
                }
            }
            if !made {
                out.truncate(before);
                continue;
            }
            changed = true;
            n = index + 1;
            for child in named {
                self.again(child, at, out)?;
            }
        }
        close(out, start);
        Ok(changed)
    }

    /// Writes an element after applying all of these, each to the result of the one before.
    fn element<'t>(
        &self,
        mut named: impl Iterator<Item = &'t Named>,
        e: Elem<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let Some(first) = named.next() else {
            out.extend_from_slice(e.as_bytes());
            return Ok(false);
        };
        let at = out.len();
        let mut changed = self.existing(&first.node, e, e.name_bytes(), true, out)?;
        for child in named {
            changed |= self.again(child, at, out)?;
        }
        Ok(changed)
    }

    /// Applies a child to the last element in `out`, which begins at `at`.
    fn again(&self, child: &Named, at: usize, out: &mut Vec<u8>) -> Result<bool> {
        let element = out.get(at..).unwrap_or_default();
        let mut before = Vec::with_capacity(element.len() + 5);
        let start = open(&mut before);
        before.extend_from_slice(element);
        close(&mut before, start);
        out.truncate(at);
        match Doc::new(&before).first() {
            Some(e) => self.existing(&child.node, e, e.name_bytes(), true, out),
            None => Ok(false),
        }
    }

    /// The common case of one `$`, which changes a single element. `None` if there is no such element.
    fn one(
        &self,
        node: &Node,
        index: usize,
        array: Doc<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<bool>> {
        let bytes = array.as_bytes();
        let mut elems = array.iter();
        let mut at = elems.offset();
        for _ in 0..index {
            if elems.next().is_none() {
                return Ok(None);
            }
            at = elems.offset();
        }
        let Some(e) = elems.next() else {
            return Ok(None);
        };
        let start = open(out);
        out.extend_from_slice(bytes.get(4..at).unwrap_or_default());
        let changed = self.existing(node, e, e.name_bytes(), true, out)?;
        let end = bytes.len().saturating_sub(1);
        out.extend_from_slice(bytes.get(elems.offset()..end).unwrap_or_default());
        close(out, start);
        Ok(Some(changed))
    }

    /// `$[]` and `$[id]`: changes every element that they select.
    fn each(&self, tree: &Tree, array: Doc<'_>, out: &mut Vec<u8>) -> Result<bool> {
        let bytes = array.as_bytes();
        let start = open(out);
        let mut changed = false;
        let mut run = 4;
        let mut wrapped = Vec::new();
        let mut elems = array.iter();
        loop {
            let at = elems.offset();
            let Some(e) = elems.next() else { break };
            let mut first: Option<&Node> = None;
            let mut merged: Option<Node> = None;
            for child in &tree.each {
                let meant = match child.filter {
                    None => true,
                    Some(f) => self.filters.matches(f, e, &mut wrapped, self.work)?,
                };
                if !meant {
                    continue;
                }
                match (&mut merged, first) {
                    (Some(m), _) => m.merge(child.node.clone(), e.name())?,
                    (None, Some(f)) => {
                        let mut m = f.clone();
                        m.merge(child.node.clone(), e.name())?;
                        merged = Some(m);
                    }
                    (None, None) => first = Some(&child.node),
                }
            }
            if let Some(node) = merged.as_ref().or(first) {
                out.extend_from_slice(bytes.get(run..at).unwrap_or_default());
                run = elems.offset();
                changed |= self.existing(node, e, e.name_bytes(), true, out)?;
            }
        }
        let end = bytes.len().saturating_sub(1);
        out.extend_from_slice(bytes.get(run..end).unwrap_or_default());
        close(out, start);
        Ok(changed)
    }

    /// Applies `node` to an existing element, and writes the result.
    fn existing(
        &self,
        node: &Node,
        e: Elem<'_>,
        name: &[u8],
        in_array: bool,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        match node {
            Node::Leaf(leaf) => match self.leaf(leaf, name, Some(e), in_array, out)? {
                Outcome::Unchanged => {
                    out.extend_from_slice(e.as_bytes());
                    Ok(false)
                }
                Outcome::Changed | Outcome::Removed => Ok(true),
            },
            Node::Inner(tree) => match e.value() {
                Value::Document(_) if !tree.each.is_empty() => Err(not_an_array(e)),
                Value::Document(d) => {
                    head(out, Type::Document, name);
                    self.document(tree, d, out)
                }
                Value::Array(a) => {
                    head(out, Type::Array, name);
                    self.array(tree, e, a, out)
                }
                _ if !tree.each.is_empty() => Err(not_an_array(e)),
                _ => {
                    for child in &tree.named {
                        self.unviable(&child.node, &child.name, e)?;
                    }
                    if let Some(node) = &tree.positional {
                        self.unviable(node, &self.matched_index()?.to_string(), e)?;
                    }
                    out.extend_from_slice(e.as_bytes());
                    Ok(false)
                }
            },
        }
    }

    /// Creates the fields of `node` where no element exists; true if it created any.
    fn missing(&self, node: &Node, name: &[u8], in_array: bool, out: &mut Vec<u8>) -> Result<bool> {
        match node {
            Node::Leaf(leaf) => Ok(self.leaf(leaf, name, None, in_array, out)? == Outcome::Changed),
            Node::Inner(tree) => {
                if !tree.each.is_empty() {
                    return Err(must_exist(node));
                }
                let before = out.len();
                head(out, Type::Document, name);
                let start = open(out);
                let mut created = false;
                let resolved;
                let tree = if tree.positional.is_some() {
                    resolved = tree.resolve(self.matched_index()?)?;
                    &resolved
                } else {
                    tree
                };
                for child in &tree.named {
                    created |= self.missing(&child.node, child.name.as_bytes(), false, out)?;
                }
                if created {
                    close(out, start);
                } else {
                    out.truncate(before);
                }
                Ok(created)
            }
        }
    }

    #[inline]
    fn leaf(
        &self,
        leaf: &Leaf,
        name: &[u8],
        old: Option<Elem<'_>>,
        in_array: bool,
        out: &mut Vec<u8>,
    ) -> Result<Outcome> {
        leaf.op.apply(
            &Target {
                name,
                old,
                in_array,
                root: self.root,
                path: &leaf.path,
                work: self.work,
            },
            out,
        )
    }

    /// Handles a child `name` that `elem` cannot have. This is an error for most operators, but some ignore
    /// it. There is no array below the child either, so a `$[]` there is always an error.
    fn unviable(&self, node: &Node, name: &str, elem: Elem<'_>) -> Result<()> {
        if let Node::Inner(tree) = node {
            if !tree.each.is_empty() {
                return Err(must_exist(node));
            }
            let named = tree.named.iter().map(|child| &child.node);
            let mut below = named.chain(tree.positional.as_deref());
            return below.try_for_each(|node| self.unviable(node, name, elem));
        }
        node.each_leaf(&mut |leaf| {
            if leaf.op.creates(self.root) {
                return Err(Error::new(
                    Code::PathNotViable,
                    format!("Cannot create field '{name}' in element {{{}}}", show(elem)),
                ));
            }
            if !leaf.op.ignores_unviable() {
                return Err(Error::new(
                    Code::PathNotViable,
                    format!(
                        "Cannot use the part ({name}) of ({}) to traverse the element ({{{}}})",
                        leaf.path,
                        show(elem)
                    ),
                ));
            }
            Ok(())
        })
    }
}

fn not_an_array(e: Elem<'_>) -> Error {
    Error::bad_value(format!(
        "Cannot apply array updates to non-array element {}",
        show(e)
    ))
}

/// The error for `$[]` below a field that does not exist.
fn must_exist(node: &Node) -> Error {
    let mut path = String::new();
    let found = node.each_leaf(&mut |leaf| {
        let at = leaf.path.find(".$[").unwrap_or(leaf.path.len());
        Err(Error::bad_value(leaf.path.get(..at).unwrap_or_default()))
    });
    if let Err(e) = found {
        path.push_str(e.message());
    }
    Error::bad_value(format!(
        "The path '{path}' must exist in the document in order to apply array updates."
    ))
}
