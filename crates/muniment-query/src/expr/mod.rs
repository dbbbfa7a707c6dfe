//! Aggregation expressions: `$expr`, `$project`, `$group` and pipeline updates evaluate them.
//!
//! Every operator has a file in `ops/` with its `SPEC`, and a line in the sorted registry there. Intermediate
//! values are raw BSON in a bump arena that is reset for each document.
//!
//! Invariants: parsing and evaluation recurse at most [`parse::MAX_DEPTH`] levels; evaluation cannot use up
//! the memory ([`arena::MAX_ARENA`]); nothing here panics on any input.

pub mod arena;
mod field_path;
pub mod ops;
mod parse;
pub mod spec;
#[cfg(test)]
pub(crate) mod testing;

pub use field_path::FieldPath;
pub use parse::{Parser, check_user_variable};
pub use spec::{Arity, OpSpec, registry};

use crate::context::QueryContext;
use crate::needs::Needs;
use crate::running::Work;
use arena::Arena;
use muniment_value::{Collation, Doc, Result, Value, ValueBuf, cmp_values};
use std::cell::Cell;
use std::cmp::Ordering;
use std::sync::Arc;

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Expr {
    node: Node,
    /// The expression as it was written. Only the outermost expression has it, for `explain`.
    source: Option<Arc<ValueBuf>>,
}

#[derive(Clone, Debug)]
enum Node {
    /// A constant; `None` means missing (`$$REMOVE`).
    Const(Option<ValueBuf>),
    /// `$$ROOT`.
    Root,
    /// `$a.b`.
    Field(FieldPath),
    /// `$$name.a.b`: a variable, by its position in the chain of bindings, and a path in its value.
    Var { slot: usize, path: FieldPath },
    /// `{a: …, b: …}`.
    Object(Vec<(String, Expr)>),
    /// `[…, …]`.
    Array(Vec<Expr>),
    /// An operator.
    Call {
        spec: &'static OpSpec,
        args: Box<[Expr]>,
    },
    /// An expression whose operators compare texts by a collation.
    Collated {
        collation: Collation,
        inner: Box<Expr>,
    },
}

/// The input of an evaluation: the document, the variables, and the place for computed values.
#[derive(Clone, Copy)]
pub struct EvalContext<'a> {
    /// `$$ROOT` (and `$$CURRENT` at first).
    pub root: Doc<'a>,
    /// The arena for computed values.
    pub arena: &'a Arena<'a>,
    vars: Option<&'a Binding<'a>>,
    collation: Option<&'a Collation>,
}

/// A variable in scope. The length of the chain is the depth that the parser has counted.
struct Binding<'a> {
    slot: usize,
    value: Cell<Option<Value<'a>>>,
    outer: Option<&'a Binding<'a>>,
}

impl<'a> EvalContext<'a> {
    /// A context for one document. `$$NOW` and the command's `let` variables became part of the expression
    /// when it was parsed.
    pub fn new(root: Doc<'a>, arena: &'a Arena<'_>) -> EvalContext<'a> {
        arena::start_steps(arena);
        EvalContext {
            root,
            arena,
            vars: None,
            collation: None,
        }
    }

    /// What the evaluation works for.
    #[inline]
    pub fn work(&self) -> Work<'a> {
        self.arena.work
    }

    /// Compares two values canonically, texts by the expression's collation.
    pub fn cmp(&self, a: Value<'_>, b: Value<'_>) -> Ordering {
        match self.collation {
            None => cmp_values(a, b),
            Some(c) => c.cmp(a, b),
        }
    }

    /// Whether two values are equal, texts by the expression's collation.
    pub fn equal(&self, a: Value<'_>, b: Value<'_>) -> bool {
        self.cmp(a, b).is_eq()
    }

    /// This context with one more variable, the innermost one. A loop binds once, and then calls
    /// [`set`](EvalContext::set).
    #[must_use]
    pub fn bind(&self, value: Option<Value<'a>>) -> EvalContext<'a> {
        let binding: &'a Binding<'a> = self.arena.alloc(Binding {
            slot: self.vars.map_or(0, |b| b.slot + 1),
            value: Cell::new(value),
            outer: self.vars,
        });
        EvalContext {
            vars: Some(binding),
            ..*self
        }
    }

    /// Gives the innermost variable another value. This counts as one step of a loop.
    ///
    /// # Errors
    /// 402 ResourceExhausted after [`arena::MAX_STEPS`] steps on one document.
    pub fn set(&self, value: Option<Value<'a>>) -> Result<()> {
        if let Some(b) = self.vars {
            b.value.set(value);
        }
        arena::step(self.arena)
    }

    fn var(&self, slot: usize) -> Option<Value<'a>> {
        let mut at = self.vars;
        while let Some(b) = at {
            if b.slot == slot {
                return b.value.get();
            }
            at = b.outer;
        }
        None
    }
}

impl Expr {
    /// Parses an expression.
    ///
    /// # Errors
    /// MongoDB's codes, e.g. 168 InvalidPipelineOperator "Unrecognized expression '$x'".
    pub fn parse(value: Value<'_>, ctx: &QueryContext) -> Result<Expr> {
        let mut e = Parser::new(ctx).parse(value)?;
        e.source = Some(Arc::new(ValueBuf::new(value)));
        Ok(e)
    }

    /// Parses an expression with the variables of a stage in scope. The stage that evaluates it
    /// [`bind`](EvalContext::bind)s their values in this order.
    ///
    /// # Errors
    /// Those of [`Expr::parse`].
    pub fn parse_with(value: Value<'_>, names: &[&str], ctx: &QueryContext) -> Result<Expr> {
        Parser::new(ctx).with_vars(names, |p| p.parse(value))
    }

    /// A constant.
    pub fn constant(value: Value<'_>) -> Expr {
        Node::Const(Some(ValueBuf::new(value))).into()
    }

    /// Evaluates to the value of a variable. It does the same as [`Expr::eval`], but refuses values that nest
    /// too deeply. Without variables, an expression can only make a value deeper by its own depth; with them
    /// it could build a value that overflows the stack when it is read.
    ///
    /// # Errors
    /// 15 Overflow, and those of the evaluation.
    pub fn eval_for_variable<'a>(&'a self, ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
        let v = self.eval(ctx)?;
        if let (
            Node::Object(_) | Node::Array(_) | Node::Call { .. } | Node::Collated { .. },
            Some(v),
        ) = (&self.node, v)
        {
            arena::check_depth(v)?;
        }
        Ok(v)
    }

    /// Evaluates the expression; `None` means "missing".
    ///
    /// # Errors
    /// MongoDB's codes for the operators.
    pub fn eval<'a>(&'a self, ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
        let v = self.evaluate(ctx)?;
        // An operator that gets a large value will walk through it, so the work is counted here.
        match v {
            Some(Value::Array(d)) => ctx.work().steps(d.byte_len())?,
            Some(Value::String(s)) => ctx.work().steps(s.len())?,
            _ => {}
        }
        Ok(v)
    }

    fn evaluate<'a>(&'a self, ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
        match &self.node {
            Node::Const(v) => Ok(v.as_ref().map(ValueBuf::as_value)),
            Node::Root => Ok(Some(Value::Document(ctx.root))),
            Node::Field(path) => path.eval(ctx.root, ctx.arena),
            Node::Var { slot, path } => match ctx.var(*slot) {
                Some(v) => path.eval_in(v, ctx.arena),
                None => Ok(None),
            },
            Node::Object(fields) => arena::build_doc(ctx.arena, |w| {
                for (name, e) in fields {
                    if let Some(v) = e.eval(ctx)? {
                        w.put(name, &v);
                    }
                }
                Ok(())
            })
            .map(|d| Some(Value::Document(d))),
            Node::Array(items) => arena::build_array(ctx.arena, |w| {
                for e in items {
                    w.push(&e.eval(ctx)?.unwrap_or(Value::Null))?;
                }
                Ok(())
            })
            .map(|d| Some(Value::Array(d))),
            Node::Call { spec, args } => (spec.eval)(args, ctx),
            Node::Collated { collation, inner } => inner.eval(&EvalContext {
                collation: Some(collation),
                ..*ctx
            }),
        }
    }

    /// Adds the fields that the expression reads.
    pub(crate) fn needs(&self, needs: &mut Needs) {
        match &self.node {
            Node::Const(_) | Node::Var { .. } => {}
            Node::Root => needs.whole(),
            Node::Field(path) => needs.path(path.as_str()),
            Node::Object(fields) => fields.iter().for_each(|(_, e)| e.needs(needs)),
            Node::Array(items) => items.iter().for_each(|e| e.needs(needs)),
            Node::Call { spec, args } => {
                if spec.name == ops::meta::NAME {
                    needs.metadata();
                }
                args.iter().for_each(|e| e.needs(needs));
            }
            Node::Collated { inner, .. } => inner.needs(needs),
        }
    }

    /// The value, if the expression is a constant (and not missing).
    pub fn as_constant(&self) -> Option<Value<'_>> {
        match &self.node {
            Node::Const(Some(v)) => Some(v.as_value()),
            _ => None,
        }
    }

    /// The path, if the expression is a plain field path of the document.
    pub fn as_field_path(&self) -> Option<&FieldPath> {
        match &self.node {
            Node::Field(p) => Some(p),
            _ => None,
        }
    }

    /// The operator and its arguments, if the expression is a call.
    pub fn as_call(&self) -> Option<(&'static OpSpec, &[Expr])> {
        match &self.node {
            Node::Call { spec, args } => Some((spec, args)),
            _ => None,
        }
    }

    /// The expression as it was written.
    pub fn to_value(&self) -> ValueBuf {
        match &self.source {
            Some(s) => (**s).clone(),
            None => match &self.node {
                Node::Const(Some(v)) => v.clone(),
                _ => ValueBuf::new(Value::Null),
            },
        }
    }

    /// The expression with a collation, by which its operators compare texts.
    fn collated(self, collation: &Collation) -> Expr {
        match &self.node {
            Node::Object(_) | Node::Array(_) | Node::Call { .. } if !collation.is_simple() => {
                Node::Collated {
                    collation: collation.clone(),
                    inner: Box::new(self),
                }
                .into()
            }
            _ => self,
        }
    }

    fn is_constant(&self) -> bool {
        matches!(self.node, Node::Const(_))
    }

    /// True for a constant that is null, undefined or missing.
    fn is_constant_null(&self) -> bool {
        match &self.node {
            Node::Const(v) => v.as_ref().is_none_or(|v| v.as_value().is_nullish()),
            _ => false,
        }
    }
}

impl From<Node> for Expr {
    fn from(node: Node) -> Expr {
        Expr { node, source: None }
    }
}
