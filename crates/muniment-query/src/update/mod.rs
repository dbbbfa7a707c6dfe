//! Updates: operators, replacements and pipelines, which are applied to raw documents in one pass.
//!
//! The paths of all operators are merged into one tree when the update is parsed. Applying it is one walk
//! over the document's bytes, which copies everything else in the longest possible runs. No tree of the
//! document is built.

mod apply;
mod array_filter;
pub mod diff;
mod ops;
mod registry;
mod replace;
mod tree;
mod upsert;

#[cfg(test)]
pub(crate) mod testing;

pub use registry::{Spec, registry};
pub use replace::{fill_zero_timestamps, validate_id};

use crate::bytes::{IndexName, MAX_DOCUMENT, array_position, check_depth};
use crate::context::{MatchInfo, QueryContext};
use crate::filter::Filter;
use crate::running::Work;
use crate::stage::Transform;
use apply::Cx;
use array_filter::ArrayFilters;
use muniment_value::{Doc, DocBuf, Error, MAX_DEPTH, Result, Value};
use registry::{LeafOp, ParseCx};
use replace::{Replacement, check_same_id, id_first, immutable_id};
use std::sync::Arc;
use tree::{Tree, dollar_field};

/// A parsed update.
#[derive(Clone, Debug)]
pub struct Update {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Operators(Arc<Operators>),
    Replacement(Arc<Replacement>),
    Pipeline(Vec<Arc<dyn Transform>>),
    /// The difference of two documents.
    Diff(Arc<DocBuf>),
}

/// A document of operators.
#[derive(Debug, Default)]
struct Operators {
    /// The changes to an existing document.
    tree: Tree,
    /// The changes to the document of an upsert, if `$setOnInsert` makes them different.
    insert: Option<Tree>,
    filters: ArrayFilters,
    /// All paths, as they were written.
    paths: Vec<Arc<str>>,
    /// The paths of arrays to which elements are appended.
    appends: Vec<Arc<str>>,
    /// The path that touches `_id`, if there is one.
    id_path: Option<String>,
    /// The top-level names that begin with a dollar. An update may remove such fields, and an upsert may
    /// insert them, but an update may not create them.
    dollars: Vec<String>,
    positional: bool,
    /// Whether the result may be nested more deeply than is allowed.
    deep: bool,
}

impl Update {
    /// Parses `u`: a replacement, a document of operators, or a pipeline. `array_filters` is the
    /// array of arrayFilters (empty if there are none).
    ///
    /// # Errors
    /// 9 FailedToParse, 40 ConflictingUpdateOperators, 56 EmptyFieldName, … with MongoDB's
    /// messages.
    pub fn parse(u: Value<'_>, array_filters: Doc<'_>, ctx: &QueryContext) -> Result<Update> {
        let kind = match u {
            Value::Array(stages) => {
                if !array_filters.is_empty() {
                    return Err(Error::failed_to_parse(
                        "arrayFilters may not be specified for pipeline-syle updates",
                    ));
                }
                Kind::Pipeline(crate::stage::parse_update_pipeline(stages, ctx)?)
            }
            Value::Document(d) => {
                if d.first().is_some_and(|e| e.name().starts_with('$')) {
                    Kind::Operators(Arc::new(Operators::parse(d, array_filters, ctx)?))
                } else {
                    if !array_filters.is_empty() {
                        return Err(Error::failed_to_parse(
                            "arrayFilters may not be specified for replacement-style updates",
                        ));
                    }
                    Kind::Replacement(Arc::new(Replacement::parse(d)?))
                }
            }
            other => {
                return Err(Error::failed_to_parse(format!(
                    "Update argument must be either an object or an array, not {}",
                    other.type_name()
                )));
            }
        };
        Ok(Update { kind })
    }

    /// The update that applies the difference of two documents in the form of MongoDB's oplog (`{$v: 2,
    /// diff}`). Faults of the difference are found when it is applied: 9 FailedToParse.
    pub fn from_diff(diff: Doc<'_>) -> Update {
        Update {
            kind: Kind::Diff(Arc::new(diff.to_buf())),
        }
    }

    /// This update; `keep` says that a replacement keeps `Timestamp(0, 0)` as it is instead of filling in the
    /// time.
    pub fn keep_empty_timestamps(mut self, keep: bool) -> Update {
        if let Kind::Replacement(r) = &mut self.kind
            && keep
        {
            Arc::make_mut(r).keep_empty_timestamps();
        }
        self
    }

    /// True for a replacement document.
    pub fn is_replacement(&self) -> bool {
        matches!(self.kind, Kind::Replacement(_))
    }

    /// True for an aggregation pipeline.
    pub fn is_pipeline(&self) -> bool {
        matches!(self.kind, Kind::Pipeline(_))
    }

    /// True if `apply` needs a [`MatchInfo`] (for the positional `$`).
    pub fn needs_match_info(&self) -> bool {
        match &self.kind {
            Kind::Operators(ops) => ops.positional,
            _ => false,
        }
    }

    /// Appends the updated document to `out`, and returns whether it differs from `doc`. If it does not, or
    /// after an error, `out` is as it was. `_id` stays first and may not change.
    ///
    /// # Errors
    /// 66 ImmutableField, 28 PathNotViable, 14 TypeMismatch, … with MongoDB's messages; 17419 if the result
    /// is larger than a document may be.
    pub fn apply(
        &self,
        doc: Doc<'_>,
        info: MatchInfo,
        out: &mut Vec<u8>,
        work: Work<'_>,
    ) -> Result<bool> {
        let start = out.len();
        let result = self.apply_at(doc, info, start, out, work);
        if !matches!(result, Ok(true)) {
            out.truncate(start);
        }
        result
    }

    fn apply_at(
        &self,
        doc: Doc<'_>,
        info: MatchInfo,
        start: usize,
        out: &mut Vec<u8>,
        work: Work<'_>,
    ) -> Result<bool> {
        let changed = match &self.kind {
            Kind::Operators(ops) => {
                let changed = ops.apply(&ops.tree, doc, info, start, out, work)?;
                if changed && !ops.dollars.is_empty() {
                    let new = Doc::new(out.get(start..).unwrap_or_default());
                    if let Some(name) = ops.dollars.iter().find(|d| new.get_elem(d).is_some()) {
                        return Err(dollar_field(name, name));
                    }
                }
                changed
            }
            Kind::Replacement(r) => r.apply(doc, out)?,
            Kind::Pipeline(stages) => {
                run_pipeline(stages, doc, out, work)?;
                keep_id(doc, start, out)?;
                out.get(start..) != Some(doc.as_bytes())
            }
            Kind::Diff(d) => {
                diff::apply(doc, d.as_doc(), out)?;
                keep_id(doc, start, out)?;
                out.get(start..) != Some(doc.as_bytes())
            }
        };
        // For operators, the depth of their results is known from parsing.
        if changed && !matches!(self.kind, Kind::Operators(_)) {
            check_depth(Doc::new(out.get(start..).unwrap_or_default()))?;
        }
        if changed && out.len() - start > MAX_DOCUMENT {
            return Err(too_large(17_419, "Resulting document after update"));
        }
        Ok(changed)
    }

    /// Appends the document that an upsert inserts: the filter's equalities, then the update with
    /// `$setOnInsert`. If there is no `_id`, an ObjectId is added at the front.
    ///
    /// # Errors
    /// As [`Update::apply`], but with 17420; 54 NotSingleValueField if equalities contradict each other.
    pub fn upsert(&self, filter: &Filter, out: &mut Vec<u8>, work: Work<'_>) -> Result<()> {
        let start = out.len();
        let result = self.upsert_at(filter, out, work);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    fn upsert_at(&self, filter: &Filter, out: &mut Vec<u8>, work: Work<'_>) -> Result<()> {
        let start = out.len();
        let mut base = Vec::new();
        upsert::base(filter, self.is_replacement(), &mut base)?;
        let base = Doc::new(&base);
        let mut new = Vec::new();
        match &self.kind {
            Kind::Operators(ops) => {
                let tree = ops.insert.as_ref().unwrap_or(&ops.tree);
                ops.apply(tree, base, MatchInfo::default(), 0, &mut new, work)?;
            }
            Kind::Replacement(r) => {
                r.apply(base, &mut new)?;
            }
            Kind::Pipeline(stages) => {
                run_pipeline(stages, base, &mut new, work)?;
                keep_id(base, 0, &mut new)?;
            }
            Kind::Diff(d) => {
                diff::apply(base, d.as_doc(), &mut new)?;
                keep_id(base, 0, &mut new)?;
            }
        }
        id_first(Doc::new(&new), out)?;
        check_depth(Doc::new(out.get(start..).unwrap_or_default()))?;
        if out.len() - start > MAX_DOCUMENT {
            return Err(too_large(17_420, "Document to upsert"));
        }
        Ok(())
    }

    /// Whether operators change the contents of a field separately. The field is given by the names that lead
    /// to it. An oplog then has the differences of the contents, otherwise the field as a whole.
    pub fn changes_below(&self, field: &[&[u8]]) -> bool {
        let Kind::Operators(ops) = &self.kind else {
            return true;
        };
        let more = |path: &Arc<str>| leads_to(path, field).is_some_and(|more| more > 0);
        let ends = |path: &Arc<str>| leads_to(path, field) == Some(0);
        ops.paths.iter().any(more) || ops.appends.iter().any(ends)
    }

    /// Whether the update can change a value at or below `path`. If not, the write path can skip the index on
    /// it.
    pub fn may_touch(&self, path: &str) -> bool {
        if path == "_id" {
            return false;
        }
        match &self.kind {
            Kind::Operators(ops) => ops.paths.iter().any(|p| overlaps(p, path)),
            Kind::Replacement(_) | Kind::Diff(_) => true,
            Kind::Pipeline(stages) => {
                // What a stage does below a field may change any key below it. For example, an inclusion
                // removes the scalars from an array, and so moves the elements after them.
                let field = path.split('.').next().unwrap_or(path);
                stages.iter().any(|s| s.may_touch(field))
            }
        }
    }
}

/// Whether an operator's path leads to a field, which is given by the names that lead to it. The result is
/// the number of further names in the path.
fn leads_to(path: &str, field: &[&[u8]]) -> Option<usize> {
    let mut parts = path.split('.');
    for name in field {
        let part = parts.next()?;
        let same = part.as_bytes() == *name
            || part.starts_with('$')
            || array_position(part).is_some_and(|i| IndexName::new(i).as_bytes() == *name);
        if !same {
            return None;
        }
    }
    Some(parts.count())
}

/// Whether an update of `updated` may change the keys of an index on `indexed`. It may if one of the paths is
/// equal to the other or a prefix of it, where elements of arrays are left out (`a.$[x].b` may change the
/// keys of `a.b`). If `updated` names an element by its number, it may create that element, which has a key
/// in every index on a field below: `a.1.c` adds a null to an index on `a.b`. So only the part of `updated`
/// before the number counts.
pub(crate) fn overlaps(updated: &str, indexed: &str) -> bool {
    let is_number = |(i, part): &(usize, &str)| *i > 0 && array_position(part).is_some();
    let changed = updated
        .split('.')
        .enumerate()
        .take_while(|part| !is_number(part))
        .map(|(_, part)| part)
        .filter(|part| !part.starts_with('$'));
    let held = indexed.split('.').enumerate();
    let held = held.filter(|part| !is_number(part)).map(|(_, part)| part);
    changed.zip(held).all(|(x, y)| x == y)
}

/// When arrays are padded, the update fails if the output becomes longer than this. The limit is greater than
/// that for a document, because the output may begin with other parts of a message.
const PADDED: usize = 4 * MAX_DOCUMENT;

fn too_large(code: i32, what: &str) -> Error {
    Error::location(code, format!("{what} is larger than {MAX_DOCUMENT}"))
}

fn run_pipeline(
    stages: &[Arc<dyn Transform>],
    doc: Doc<'_>,
    out: &mut Vec<u8>,
    work: Work<'_>,
) -> Result<()> {
    let Some((last, first)) = stages.split_last() else {
        out.extend_from_slice(doc.as_bytes());
        return Ok(());
    };
    let mut current: Option<Vec<u8>> = None;
    for s in first {
        let mut next = Vec::with_capacity(doc.byte_len());
        s.transform(current.as_deref().map_or(doc, Doc::new), &mut next, work)?;
        current = Some(next);
    }
    last.transform(current.as_deref().map_or(doc, Doc::new), out, work)
}

/// Enforces that `_id` stays in the result of a pipeline for `old` (from `start` on in `out`): a document
/// without one gets the old one.
fn keep_id(old: Doc<'_>, start: usize, out: &mut Vec<u8>) -> Result<()> {
    let Some(id) = old.get_elem("_id") else {
        return Ok(());
    };
    let new = Doc::new(out.get(start..).unwrap_or_default());
    match new.get_elem("_id") {
        Some(e) => check_same_id(id, e),
        None => {
            let rest = crate::bytes::body(new).to_vec();
            out.truncate(start);
            let at = crate::bytes::open(out);
            out.extend_from_slice(id.as_bytes());
            out.extend_from_slice(&rest);
            crate::bytes::close(out, at);
            Ok(())
        }
    }
}

impl Operators {
    fn parse(d: Doc<'_>, array_filters: Doc<'_>, ctx: &QueryContext) -> Result<Operators> {
        let mut ops = Operators {
            filters: ArrayFilters::parse(array_filters, ctx)?,
            ..Operators::default()
        };
        let on_insert = d.get("$setOnInsert").is_some();
        let mut insert = Tree::default();
        let cx = ParseCx { ctx };
        for e in d {
            let spec = registry::find(e.name()).ok_or_else(|| {
                Error::failed_to_parse(format!(
                    "Unknown modifier: {}. Expected a valid update modifier or pipeline-style \
                     update specified as an array",
                    e.name()
                ))
            })?;
            let Value::Document(fields) = e.value() else {
                return Err(Error::failed_to_parse(format!(
                    "Modifiers operate on fields but we found type {} instead. For example: \
                     {{$mod: {{<field>: ...}}}} not {{{}}}",
                    e.value().type_name(),
                    crate::bytes::show(e)
                )));
            };
            let inserts_only = spec.name == "$setOnInsert";
            for f in fields {
                (spec.parse)(&cx, f, &mut |path, op: Arc<dyn LeafOp>| {
                    let path: Arc<str> = path.into();
                    ops.note(&path, &op);
                    let Operators { tree, filters, .. } = &mut ops;
                    let find = &mut |id: &str, path: &str| filters.index(id, path);
                    if on_insert {
                        // The tree for inserts has all paths, so it is the one that finds conflicts.
                        insert.insert(&path, Arc::clone(&op), find)?;
                    }
                    if inserts_only {
                        return Ok(());
                    }
                    tree.insert(&path, op, find)
                })?;
            }
        }
        ops.filters.check_used(d)?;
        if on_insert {
            ops.insert = Some(insert);
        }
        Ok(ops)
    }

    /// Records the properties of a path for the checks after an update.
    fn note(&mut self, path: &Arc<str>, op: &Arc<dyn LeafOp>) {
        let parts = path.split('.').count();
        self.deep |= parts + op.depth() > MAX_DEPTH;
        self.positional |= path.split('.').any(|p| p == "$");
        if &**path == "_id" || path.starts_with("_id.") {
            self.id_path = Some(path.to_string());
        }
        let first = path.split('.').next().unwrap_or_default();
        if first.starts_with('$') {
            self.dollars.push(first.to_string());
        }
        if op.appends() {
            self.appends.push(Arc::clone(path));
        }
        self.paths.push(Arc::clone(path));
    }

    fn apply(
        &self,
        tree: &Tree,
        doc: Doc<'_>,
        info: MatchInfo,
        start: usize,
        out: &mut Vec<u8>,
        work: Work<'_>,
    ) -> Result<bool> {
        out.reserve(doc.byte_len() + 64);
        let cx = Cx {
            root: doc,
            info,
            filters: &self.filters,
            work,
        };
        let changed = cx.document(tree, doc, out)?;
        if !changed {
            return Ok(false);
        }
        let new = Doc::new(out.get(start..).unwrap_or_default());
        if let Some(path) = &self.id_path
            && let Some(old) = doc.get_elem("_id")
            && new.get_elem("_id").map(|e| e.as_bytes()) != Some(old.as_bytes())
        {
            return Err(immutable_id(path));
        }
        if self.deep {
            check_depth(new)?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::testing::{parse, table, table_with};
    use super::*;

    #[test]
    fn table_of_parse_errors() {
        table(&[
            (
                "{}",
                "{$foo:{a:1}}",
                "9: Unknown modifier: $foo. Expected a valid update modifier or pipeline-style update \
              specified as an array",
            ),
            (
                "{}",
                "{$set:{a:1},b:1}",
                "9: Unknown modifier: b. Expected a valid update modifier or pipeline-style update \
              specified as an array",
            ),
            (
                "{}",
                "{$set:5}",
                "9: Modifiers operate on fields but we found type int instead. For example: {$mod: \
              {<field>: ...}} not {$set: 5}",
            ),
            (
                "{}",
                "{$set:{'':1}}",
                "56: An empty update path is not valid.",
            ),
            (
                "{}",
                "{$set:{'a.':1}}",
                "56: The update path 'a.' contains an empty field name, which is not allowed.",
            ),
            (
                "{}",
                "{$set:{a:1,'a.b':1}}",
                "40: Updating the path 'a.b' would create a conflict at 'a'",
            ),
            (
                "{}",
                "{$set:{'a.b':1},$inc:{a:1}}",
                "40: Updating the path 'a' would create a conflict at 'a'",
            ),
            (
                "{}",
                "{$set:{'a.b':1},$inc:{'a.b':1}}",
                "40: Updating the path 'a.b' would create a conflict at 'a.b'",
            ),
            (
                "{}",
                "{$set:{'a.b':1,'a.$[]':1}}",
                "40: Updating the path 'a.$[]' would create a conflict at 'a'",
            ),
            (
                "{}",
                "{$set:{'$':1}}",
                "2: Cannot have positional (i.e. '$') element in the first position in path '$'",
            ),
            (
                "{}",
                "{$set:{'a.$.b.$':1}}",
                "2: Too many positional (i.e. '$') elements found in path 'a.$.b.$'",
            ),
            (
                "{}",
                "{$set:{'a.$[x]':1}}",
                "2: No array filter found for identifier 'x' in path 'a.$[x]'",
            ),
            (
                "{}",
                "{$set:{$a:1}}",
                "52: The dollar ($) prefixed field '$a' in '$a' is not allowed in the context of an \
              update's replacement document. Consider using an aggregation pipeline with \
              $replaceWith.",
            ),
            ("{_id:1}", "{$set:{'a.$b':1}}", "{_id:1,a:{$b:1}}"),
            ("{a:1}", "{$set:{}}", "="),
        ]);
    }

    #[test]
    fn table_of_positional() {
        table_with(
            1,
            "[]",
            &[
                ("{a:[1,2,3]}", "{$set:{'a.$':9}}", "{a:[1,9,3]}"),
                ("{a:[1,2,3]}", "{$unset:{'a.$':9}}", "{a:[1,null,3]}"),
                ("{a:[1,2,3]}", "{$set:{'a.$':9,'a.0':8}}", "{a:[8,9,3]}"),
                (
                    "{a:[{b:1},{b:2}]}",
                    "{$inc:{'a.$.b':9}}",
                    "{a:[{b:1},{b:11}]}",
                ),
                (
                    "{a:[{b:1},{b:2}]}",
                    "{$set:{'a.$.b':9,'a.1.c':3}}",
                    "{a:[{b:1},{b:9,c:3}]}",
                ),
                (
                    "{a:[1,2]}",
                    "{$set:{'a.$':9,'a.1':8}}",
                    "40: Update created a conflict at 'a.1'",
                ),
            ],
        );
        table(&[(
            "{a:[1]}",
            "{$set:{'a.$':9}}",
            "2: The positional operator did not find the match needed from the query.",
        )]);
        assert!(
            parse("{$set:{'a.$.b':1}}", "[]")
                .unwrap()
                .needs_match_info()
        );
        assert!(
            !parse("{$set:{'a.$[].b':1}}", "[]")
                .unwrap()
                .needs_match_info()
        );
    }

    #[test]
    fn table_of_array_updates() {
        table(&[
            ("{a:[1,2]}", "{$inc:{'a.$[]':1}}", "{a:[2,3]}"),
            (
                "{a:[{b:1},{}]}",
                "{$set:{'a.$[].b':5}}",
                "{a:[{b:5},{b:5}]}",
            ),
            ("{a:[[1],[2]]}", "{$inc:{'a.$[].$[]':1}}", "{a:[[2],[3]]}"),
            ("{a:[]}", "{$inc:{'a.$[]':1}}", "="),
            (
                "{a:1}",
                "{$inc:{'a.$[]':1}}",
                "2: Cannot apply array updates to non-array element a: 1",
            ),
            (
                "{a:1}",
                "{$set:{'a.b.c.$[]':1}}",
                "2: The path 'a.b.c' must exist in the document in order to apply array updates.",
            ),
            (
                "{a:1}",
                "{$unset:{'a.b.$[].c':1}}",
                "2: The path 'a.b' must exist in the document in order to apply array updates.",
            ),
            (
                "{a:1}",
                "{$set:{'a.b':1,'a.c.$[]':1}}",
                "28: Cannot create field 'b' in element {a: 1}",
            ),
            (
                "{}",
                "{$inc:{'a.$[]':1}}",
                "2: The path 'a' must exist in the document in order to apply array updates.",
            ),
        ]);
        table_with(
            0,
            "[{x:{$gte:5}}]",
            &[
                ("{a:[1,5,9]}", "{$set:{'a.$[x]':0}}", "{a:[1,0,0]}"),
                (
                    "{a:[1,5,9]}",
                    "{$set:{b:0}}",
                    "9: The array filter for identifier 'x' was not used in the update { $set: { b: 0 } }",
                ),
            ],
        );
        table_with(
            0,
            "[{'x.n':1},{'y.m':2}]",
            &[
                (
                    "{a:[{n:1,l:[{m:1},{m:2}]},{n:2,l:[{m:2}]}]}",
                    "{$set:{'a.$[x].l.$[y].k':0}}",
                    "{a:[{n:1,l:[{m:1},{m:2,k:0}]},{n:2,l:[{m:2}]}]}",
                ),
                (
                    "{a:[{n:1,m:2}]}",
                    "{$set:{'a.$[x].p':0,'a.$[y].q':1}}",
                    "{a:[{n:1,m:2,p:0,q:1}]}",
                ),
                (
                    "{a:[{n:1,m:2}]}",
                    "{$set:{'a.$[x].p':0,'a.$[y].p':1}}",
                    "40: Update created a conflict at 'a.$[x].p'",
                ),
            ],
        );
        let bad = |f: &str| {
            parse("{$set:{'a.$[x]':1}}", f)
                .unwrap_err()
                .message()
                .to_string()
        };
        assert!(bad("[{x:1},{x:2}]").starts_with("Found multiple array filters"));
        assert!(bad("[{X:1}]").contains("found 'X'"));
        assert!(bad("[{}]").starts_with("Cannot use an expression without a top-level"));
        assert!(bad("[{x:1,y:1}]").contains("Expected a single top-level field name"));
    }

    #[test]
    fn table_of_pipelines() {
        table(&[
            (
                "{_id:1,a:1}",
                "[{$set:{b:{$add:['$a',1]}}}]",
                "{_id:1,a:1,b:2}",
            ),
            (
                "{_id:1,a:1}",
                "[{$set:{b:'$a'}},{$unset:'a'}]",
                "{_id:1,b:1}",
            ),
            ("{_id:1,a:1,b:2}", "[{$project:{a:1}}]", "{_id:1,a:1}"),
            ("{_id:1,a:{x:1}}", "[{$replaceWith:'$a'}]", "{_id:1,x:1}"),
            ("{_id:1,a:1,b:1}", "[{$unset:['_id','a']}]", "{_id:1,b:1}"),
            (
                "{_id:1,a:1}",
                "[{$lookup:{}}]",
                "72: $lookup is not allowed to be used within an update",
            ),
            (
                "{_id:1,a:{_id:1,x:1}}",
                "[{$replaceWith:'$a'}]",
                "{_id:1,x:1}",
            ),
            ("{_id:1,a:1}", "[{$addFields:{a:1}}]", "="),
            ("{_id:1,a:1}", "[]", "="),
            (
                "{_id:1,a:1}",
                "[{$set:{_id:2}}]",
                "66: After applying the update, the (immutable) field '_id' was found to have been \
              altered to _id: 2",
            ),
            (
                "{_id:1,a:1}",
                "[{$match:{a:1}}]",
                "72: $match is not allowed to be used within an update",
            ),
            (
                "{_id:1,a:1}",
                "[{$foo:{a:1}}]",
                "40324: Unrecognized pipeline stage name: '$foo'",
            ),
        ]);
        let u = parse("[{$set:{'a.b':1}},{$unset:'c'}]", "[]").unwrap();
        for (path, want) in [
            ("a", true),
            ("a.b", true),
            ("a.b.x", true),
            ("a.c", true),
            ("c.d", true),
            ("z", false),
            ("_id", false),
        ] {
            assert_eq!(u.may_touch(path), want, "{path}");
        }
        let e = parse("[{$set:{a:1}}]", "[{x:1}]").unwrap_err();
        assert_eq!(e.code(), muniment_value::Code::FailedToParse);
    }

    #[test]
    fn touched_paths() {
        let u = parse("{$set:{'a.b':1,'c.0.d':1,'e.$[].f':1}}", "[]").unwrap();
        for (path, want) in [
            ("a", true),
            ("a.b", true),
            ("a.b.c", true),
            ("a.c", false),
            ("ab", false),
            ("c.d", true),
            ("c", true),
            // A new element has a null for such a field.
            ("c.e", true),
            ("c.0.d", true),
            ("e.g", false),
            ("e.f", true),
            ("_id", false),
            ("z", false),
        ] {
            assert_eq!(u.may_touch(path), want, "{path}");
        }
    }

    #[test]
    fn limits() {
        let big = "x".repeat(MAX_DOCUMENT - 20);
        let d = muniment_value::doc! { "a": big.as_str() };
        let u = parse("{$set:{b:'0123456789'}}", "[]").unwrap();
        let mut out = vec![7];
        let e = u
            .apply(d.as_doc(), MatchInfo::default(), &mut out, Work::unasked())
            .unwrap_err();
        assert_eq!(e.code().0, 17_419);
        assert_eq!(out, [7]);
        let deep = vec!["a"; 181].join(".");
        let u = parse(&format!("{{$set:{{'{deep}':1}}}}"), "[]").unwrap();
        let e = u
            .apply(Doc::EMPTY, MatchInfo::default(), &mut out, Work::unasked())
            .unwrap_err();
        assert_eq!(e.code(), muniment_value::Code::Overflow);
        let deep = vec!["a"; 180].join(".");
        let u = parse(&format!("{{$set:{{'{deep}':1}}}}"), "[]").unwrap();
        assert!(
            u.apply(Doc::EMPTY, MatchInfo::default(), &mut out, Work::unasked())
                .unwrap()
        );
        for (levels, fits) in [(179, true), (180, false)] {
            let new = (0..levels).fold(DocBuf::new(), |d, _| muniment_value::doc! { "a": d });
            let new = Value::Document(new.as_doc());
            let u = Update::parse(new, Doc::EMPTY, &QueryContext::new()).unwrap();
            let got = u.apply(Doc::EMPTY, MatchInfo::default(), &mut out, Work::unasked());
            assert_eq!(got.is_ok(), fits, "a replacement of {levels}");
        }
        let long = vec!["a"; 5000].join(".");
        assert!(parse(&format!("{{$set:{{'{long}':1}}}}"), "[]").is_err());
    }
}
