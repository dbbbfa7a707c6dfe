//! Filters: parsed once per command into a [`Node`] tree, which the planner reads, and compiled
//! into a program that matches raw documents.
//!
//! Every operator has a file in `ops/` with its `SPEC`, and a line in the sorted registry there. Invariants:
//! matching a document allocates nothing (except for what `$expr` computes); nesting is bounded by
//! [`parse::MAX_DEPTH`]; nothing here panics on any input.

mod compile;
mod cover;
pub mod details;
mod explain;
pub mod fuzzing;
mod matcher;
pub mod near;
mod operand;
pub mod ops;
pub mod parse;
pub(crate) mod regex;
pub mod schema;
#[cfg(test)]
mod tests;
mod text;
mod tree;
mod walk;

pub use ops::{OpSpec, registry};
pub use regex::Regex;

use crate::context::{MatchInfo, QueryContext};
use crate::expr::Expr;
use crate::geo::{GeoQuery, NearQuery};
use crate::meta::{Meta, MetaSet};
use crate::running::Work;
use crate::text::{TextSearch, TextSpec};
use muniment_value::collation::has_text;
use muniment_value::path::Path;
use muniment_value::{Code, Collation, Doc, DocBuf, Result, Type, Value, ValueBuf};
use std::sync::{Arc, OnceLock};

/// A parsed filter. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Filter(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: Node,
    /// Compiled when the first document is matched. A query that finds its document by `_id` does not match
    /// it against the filter, so it saves the compilation.
    program: OnceLock<compile::Prog>,
    collation: Collation,
}

/// A filter's tree, as the planner reads it. Equalities, ranges and similar predicates are [`Node::Field`]s;
/// an implicit or explicit `$and` is flattened into one [`Node::And`].
#[derive(Clone, Debug)]
pub enum Node {
    /// Matches everything (the empty filter).
    True,
    /// Matches nothing (`$alwaysFalse`, `$in: []`).
    False,
    /// `$and`, and several fields in one document.
    And(Vec<Node>),
    /// `$or`. Equalities on the same path are rewritten to [`Pred::In`].
    Or(Vec<Node>),
    /// `$nor`.
    Nor(Vec<Node>),
    /// A predicate on the values at a path.
    Field {
        /// The path.
        path: Path,
        /// The condition on its values.
        pred: Pred,
    },
    /// `$expr`.
    Expr {
        /// The expression.
        expr: Expr,
        /// A condition on fields that every matching document satisfies. Only the planner reads it, so that
        /// `$expr` can use indexes.
        implied: Option<Box<Node>>,
    },
    /// A predicate on the whole document that the planner cannot use (`$jsonSchema`).
    Doc(Arc<dyn DocOp>),
}

impl Node {
    /// The tree as a query document, as explain shows it.
    pub fn to_doc(&self) -> DocBuf {
        explain::to_doc(self)
    }
}

/// A predicate on the values at one path.
#[derive(Clone, Debug)]
pub enum Pred {
    /// Canonical equality (null also matches a missing field).
    Eq(ValueBuf),
    /// `$lt`, within the operand's type bracket.
    Lt(ValueBuf),
    /// `$lte`.
    Lte(ValueBuf),
    /// `$gt`.
    Gt(ValueBuf),
    /// `$gte`.
    Gte(ValueBuf),
    /// `$in`: values sorted canonically without duplicates, and regular expressions.
    In {
        /// The values.
        values: Vec<ValueBuf>,
        /// The regular expressions.
        regexes: Vec<Regex>,
    },
    /// `$regex` or a regular expression as the value.
    Regex(Regex),
    /// `$exists`.
    Exists(bool),
    /// `$elemMatch` with a filter on sub-documents.
    ElemMatchObject(Box<Node>),
    /// `$elemMatch` with predicates on the elements themselves.
    ElemMatchValue(Vec<Pred>),
    /// `$not`, `$ne`, `$nin`.
    Not(Box<Pred>),
    /// Several predicates on the same path that were written together; different values at the path may
    /// satisfy them. Also `$all`.
    And(Vec<Pred>),
    /// A predicate that the planner cannot use ($type, $mod, $size, bits, …).
    Other(Arc<dyn FieldOp>),
}

/// A predicate with a file of its own in the operator registry.
pub trait FieldOp: std::fmt::Debug + Send + Sync {
    /// The operator's name with its dollar, for `explain`'s parsedQuery.
    fn name(&self) -> &'static str;
    /// The operand as written, for parsedQuery.
    fn operand(&self) -> ValueBuf;
    /// Whether one value satisfies it. (The matcher passes the elements of an array one by one.)
    ///
    /// # Errors
    /// What stops the operation.
    fn matches(&self, value: Option<Value<'_>>, work: Work<'_>) -> Result<bool>;
    /// The types that `$type` asks for, for the planner.
    fn types(&self) -> Option<&[Type]> {
        None
    }
    /// True when no value but a number satisfies it (`$mod`), for the planner.
    fn wants_number(&self) -> bool {
        false
    }
    /// The query, if this is a geospatial predicate, for the planner.
    fn geo(&self) -> Option<&GeoQuery> {
        None
    }
    /// The query, if this is a `$near`, for the planner.
    fn near(&self) -> Option<&Arc<NearQuery>> {
        None
    }
    /// True if the elements of an array value are tried too. `$size` returns false, because it tests the
    /// array itself.
    fn traverses_array(&self) -> bool {
        true
    }
}

/// A predicate on the whole document with a file of its own in the operator registry.
pub trait DocOp: std::fmt::Debug + Send + Sync {
    /// The operator's name with its dollar, for `explain`'s parsedQuery.
    fn name(&self) -> &'static str;
    /// The operand as written, for parsedQuery.
    fn operand(&self) -> ValueBuf;
    /// Whether a document satisfies it.
    ///
    /// # Errors
    /// Those of the operator.
    fn matches(&self, doc: Doc<'_>, work: Work<'_>) -> Result<bool>;
    /// The operator, if this is a `$text`, for the planner.
    fn text(&self) -> Option<&ops::TextOp> {
        None
    }
}

impl Filter {
    /// The code of the error of a `$text` that no index answers.
    pub const NO_TEXT_INDEX: Code = Code(17313);

    /// Parses a filter that is only matched and never planned: `$near`, `$text` and `$where` are refused.
    ///
    /// # Errors
    /// 2 BadValue and 9 FailedToParse with MongoDB's messages; 5626500 for `$near`.
    pub fn parse(doc: Doc<'_>, ctx: &QueryContext) -> Result<Filter> {
        Filter::parse_unplanned(doc, ctx, || {
            muniment_value::Error::bad_value("$text is not allowed in this context")
        })
    }

    /// Parses the filter of a `$match`. It may have a `$text` only in the first stage.
    ///
    /// # Errors
    /// As [`Filter::parse`]; 17313 for a `$text` in a later stage.
    pub fn parse_match(doc: Doc<'_>, ctx: &QueryContext, first: bool) -> Result<Filter> {
        if !first {
            return Filter::parse_unplanned(doc, ctx, text::not_first);
        }
        let mut parser = parse::Parser::new(ctx);
        let root = parser.filter(doc)?;
        text::check(&parser, &root)?;
        Filter::matched(&parser, root)
    }

    fn parse_unplanned(
        doc: Doc<'_>,
        ctx: &QueryContext,
        text: impl FnOnce() -> muniment_value::Error,
    ) -> Result<Filter> {
        let mut parser = parse::Parser::new(ctx);
        let root = parser.filter(doc)?;
        if parser.saw_text {
            return Err(text());
        }
        Filter::matched(&parser, root)
    }

    fn matched(parser: &parse::Parser<'_>, root: Node) -> Result<Filter> {
        if parser.saw_where {
            return Err(muniment_value::Error::bad_value(
                "$where is not allowed in this context",
            ));
        }
        Ok(Filter::from_root(root, &parser.ctx.collation))
    }

    /// Parses the filter of a command that uses the planner. It may have one `$near`.
    ///
    /// # Errors
    /// As [`Filter::parse`]; 2 BadValue for a `$near` that is not at the top level.
    pub fn parse_query(doc: Doc<'_>, ctx: &QueryContext) -> Result<Filter> {
        let mut parser = parse::Parser::new(ctx);
        parser.planned = true;
        let root = parser.filter(doc)?;
        near::check(&parser, &root)?;
        text::check(&parser, &root)?;
        Ok(Filter::from_root(root, &ctx.collation))
    }

    /// Finds the keys that its geometries mean in a 2dsphere index, which planning asks for.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn cover(&self, work: Work<'_>) -> Result<()> {
        cover::node(&self.0.root, work)
    }

    /// True if the filter has a `$text`.
    pub fn has_text(&self) -> bool {
        text::is_in(&self.0.root)
    }

    /// The filter with its `$text` translated into the terms of an index. Then it can be planned, and matched
    /// without the index.
    #[must_use]
    pub fn bind_text(&self, spec: &Arc<TextSpec>) -> Filter {
        Filter::from_root(text::bind(&self.0.root, spec), &self.0.collation)
    }

    /// The `$near` of the filter, with its path.
    pub fn near(&self) -> Option<(&Path, &Arc<NearQuery>)> {
        near::find(&self.0.root)
    }

    /// The metadata that documents get by matching.
    pub fn metadata(&self) -> MetaSet {
        match self.near() {
            Some(_) => MetaSet::NONE
                .with(Meta::GeoNearDistance)
                .with(Meta::GeoNearPoint),
            None if self.has_text() => MetaSet::NONE.with(Meta::TextScore),
            None => MetaSet::NONE,
        }
    }

    /// The filter with an additional `$near` on a path.
    #[must_use]
    pub fn with_near(&self, path: Path, near: Arc<NearQuery>) -> Filter {
        let near = Node::Field {
            path,
            pred: ops::near_pred(near),
        };
        Filter::from_root(
            parse::and(vec![self.0.root.clone(), near]),
            &self.0.collation,
        )
    }

    /// The filter without its `$near`.
    #[must_use]
    pub fn without_near(&self) -> Filter {
        Filter::from_root(near::without(&self.0.root), &self.0.collation)
    }

    /// The filter without what only an index can answer of a whole query: its `$near`, and its `$text`.
    #[must_use]
    pub fn without_planned(&self) -> Filter {
        let rest = self.without_near();
        Filter::from_root(Filter::without_text(rest.root()), rest.collation())
    }

    /// The bound `$text` of a tree, if it is a condition of the whole tree.
    pub fn text_of(root: &Node) -> Option<&Arc<TextSearch>> {
        text::find(root)
    }

    /// The tree without the `$text` that [`Filter::text_of`] finds.
    pub fn without_text(root: &Node) -> Node {
        text::without(root)
    }

    /// The filter that matches everything.
    pub fn always_true() -> Filter {
        Filter::from_root(Node::True, &Collation::SIMPLE)
    }

    /// A filter from a tree that parsing has made, such as the planner's residual filters.
    pub fn from_root(root: Node, collation: &Collation) -> Filter {
        Filter(Arc::new(Inner {
            root,
            program: OnceLock::new(),
            collation: collation.clone(),
        }))
    }

    fn program(&self) -> &compile::Prog {
        let Inner {
            root, collation, ..
        } = &*self.0;
        self.0
            .program
            .get_or_init(|| compile::compile(root, collation))
    }

    /// The collation by which the filter compares texts.
    pub fn collation(&self) -> &Collation {
        &self.0.collation
    }

    /// Whether `doc` matches.
    ///
    /// # Errors
    /// Those of `$expr`; 51156 for a regular expression that exceeds its limits; the reason to stop the
    /// operation.
    pub fn matches(&self, doc: Doc<'_>, work: Work<'_>) -> Result<bool> {
        matcher::matches(self.program(), doc, work)
    }

    /// As [`Filter::matches`], with the information that the positional operator needs; `None` means no
    /// match.
    ///
    /// # Errors
    /// Those of [`Filter::matches`].
    pub fn matches_info(&self, doc: Doc<'_>, work: Work<'_>) -> Result<Option<MatchInfo>> {
        matcher::matches_info(self.program(), doc, work)
    }

    /// The tree.
    pub fn root(&self) -> &Node {
        &self.0.root
    }

    /// The operand, if the filter is exactly `{_id: <value>}`, an equality with a value other than an array,
    /// regex, undefined or null. The planner has a short cut for it.
    pub fn id_equality(&self) -> Option<&ValueBuf> {
        match &self.0.root {
            Node::Field {
                path,
                pred: Pred::Eq(v),
            } if path.as_str() == "_id" => match v.as_value() {
                Value::Array(_) | Value::Regex { .. } | Value::Undefined | Value::Null => None,
                _ => Some(v),
            },
            _ => None,
        }
    }

    /// As [`Filter::id_equality`], but `None` if an index whose keys collate by `of` could have the value
    /// more than once, or under another key.
    pub fn id_equality_by(&self, of: &Collation) -> Option<&ValueBuf> {
        self.id_equality()
            .filter(|id| self.0.collation == *of || !has_text(id.as_value()))
    }

    /// The filter as `explain`'s parsedQuery shows it.
    pub fn to_doc(&self) -> DocBuf {
        explain::to_doc(&self.0.root)
    }

    /// The filter as the planner's error messages show it: one line for each of its nodes.
    pub fn to_tree(&self) -> String {
        tree::text(self)
    }
}
