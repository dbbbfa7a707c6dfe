//! Filters: parsed once per command into a [`Node`] tree, then matched against raw documents.

use crate::context::{MatchInfo, QueryContext};
use crate::expr::Expr;
use muniment_value::path::Path;
use muniment_value::{Doc, DocBuf, Result, ValueBuf};

/// A parsed and compiled filter.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Node,
}

/// A filter's tree, as the planner reads it. Equality, ranges and the like stand in
/// [`Node::Field`]; an implicit or explicit `$and` is flattened into one [`Node::And`].
#[derive(Clone, Debug)]
pub enum Node {
    /// Matches everything (the empty filter).
    True,
    /// Matches nothing (`$alwaysFalse`, `$in: []`).
    False,
    /// `$and`, and several fields side by side.
    And(Vec<Node>),
    /// `$or`.
    Or(Vec<Node>),
    /// `$nor`.
    Nor(Vec<Node>),
    /// A predicate on the values at a path.
    Field {
        /// The path.
        path: Path,
        /// What its values must satisfy.
        pred: Pred,
    },
    /// `$expr`.
    Expr(Expr),
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
    /// Several predicates on the same path written together; also `$all`.
    And(Vec<Pred>),
    /// A predicate the planner has no use for ($type, $mod, $size, bits, …).
    Other(std::sync::Arc<dyn FieldOp>),
}

/// A predicate that is a file of its own in the operator registry.
pub trait FieldOp: std::fmt::Debug + Send + Sync {
    /// The operator's name with its dollar, for `explain`'s parsedQuery.
    fn name(&self) -> &'static str;
    /// The operand as written, for parsedQuery.
    fn operand(&self) -> ValueBuf;
    /// Whether one value (never the elements of an array; the matcher sees to them) satisfies it.
    fn matches(&self, value: Option<muniment_value::Value<'_>>) -> bool;
    /// True when an array value is also tried element by element ($size and $type: "array" say
    /// no here and look at the array themselves).
    fn traverses_array(&self) -> bool {
        true
    }
}

/// A compiled regular expression with its source.
#[derive(Clone, Debug)]
pub struct Regex {
    /// The pattern.
    pub pattern: String,
    /// The options, sorted.
    pub options: String,
}

impl Filter {
    /// Parses a filter document.
    ///
    /// # Errors
    /// 2 BadValue and 9 FailedToParse with MongoDB's messages.
    pub fn parse(doc: Doc<'_>, ctx: &QueryContext) -> Result<Filter> {
        let _ = (doc, ctx);
        todo!()
    }

    /// Whether `doc` matches.
    ///
    /// # Errors
    /// What `$expr` raises.
    pub fn matches(&self, doc: Doc<'_>) -> Result<bool> {
        let _ = doc;
        todo!()
    }

    /// As [`Filter::matches`], with what the positional operator needs; `None` is no match.
    ///
    /// # Errors
    /// What `$expr` raises.
    pub fn matches_info(&self, doc: Doc<'_>) -> Result<Option<MatchInfo>> {
        let _ = doc;
        todo!()
    }

    /// A filter of a tree that parsing made: the planner's residual filters.
    pub fn from_root(root: Node) -> Filter {
        Filter { root }
    }

    /// The tree.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// The operand when the filter is exactly `{_id: <value>}` by equality with a value that is
    /// no array, regex, undefined or null: the planner's short cut.
    pub fn id_equality(&self) -> Option<&ValueBuf> {
        todo!()
    }

    /// The filter as `explain`'s parsedQuery shows it.
    pub fn to_doc(&self) -> DocBuf {
        todo!()
    }
}
