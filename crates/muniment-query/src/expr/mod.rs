//! Aggregation expressions: `$expr`, `$project`, `$group` and pipeline updates evaluate them.
//!
//! Every operator is one file below `ops/` with its `SPEC`, and one line in the sorted registry.
//! Values computed on the way live as raw BSON in a bump arena that is reset per document.

use crate::context::QueryContext;
use bumpalo::Bump;
use muniment_value::{Doc, Result, Value};

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Expr {
    _private: (),
}

/// What an evaluation sees: the document, the variables, and where to put computed values.
pub struct EvalContext<'a> {
    /// `$$ROOT` (and `$$CURRENT` at first).
    pub root: Doc<'a>,
    /// Where computed values live.
    pub arena: &'a Bump,
}

impl Expr {
    /// Parses an expression.
    ///
    /// # Errors
    /// MongoDB's codes, e.g. 168 InvalidPipelineOperator "Unrecognized expression '$x'".
    pub fn parse(value: Value<'_>, ctx: &QueryContext) -> Result<Expr> {
        let _ = (value, ctx);
        todo!()
    }

    /// Evaluates; `None` is "missing".
    ///
    /// # Errors
    /// MongoDB's codes of the operators.
    pub fn eval<'a>(&self, ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
        let _ = ctx;
        todo!()
    }

    /// The value when the expression is a constant.
    pub fn as_constant(&self) -> Option<Value<'_>> {
        todo!()
    }
}
