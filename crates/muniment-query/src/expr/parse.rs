//! Parses expressions, and folds constants.

use super::field_path::{self, FieldPath};
use super::spec::{self, Arity, OpSpec};
use super::{EvalContext, Expr, Node, arena};
use crate::context::{Clocks, QueryContext};
use muniment_value::{Code, Doc, Error, Result, Value, ValueBuf};
use std::cell::Cell;
use std::collections::HashSet;

/// The deepest nesting of expressions.
pub(crate) const MAX_DEPTH: usize = 150;

/// Parses expressions, and keeps track of the variables in scope.
pub struct Parser<'c> {
    ctx: &'c QueryContext,
    scope: Vec<String>,
    depth: usize,
    /// Set in a branch that is never taken, and where failures are to come late. A constant expression that
    /// fails then stays an expression.
    dead: bool,
    /// The first failure of a constant expression. It is reported after all parse errors, because MongoDB's
    /// optimizer runs after its parser.
    late: Cell<Option<Error>>,
}

impl<'c> Parser<'c> {
    /// A parser that knows only the command's variables.
    pub fn new(ctx: &'c QueryContext) -> Parser<'c> {
        Parser {
            ctx,
            scope: ctx.unbound.clone(),
            depth: 0,
            dead: ctx.late_constants,
            late: Cell::new(None),
        }
    }

    /// The surroundings of the query.
    pub fn context(&self) -> &'c QueryContext {
        self.ctx
    }

    /// Parses one expression.
    ///
    /// # Errors
    /// MongoDB's codes; 15 Overflow if the nesting is too deep.
    pub fn parse(&mut self, value: Value<'_>) -> Result<Expr> {
        if self.depth >= MAX_DEPTH {
            return Err(Error::new(
                Code::Overflow,
                format!("expressions may not be nested more than {MAX_DEPTH} levels deep"),
            ));
        }
        self.depth += 1;
        let e = self.parse_inner(value);
        self.depth -= 1;
        match self.late.take() {
            Some(late) if self.depth == 0 => e.and(Err(late.while_optimizing())),
            None if self.depth == 0 => e.map(|e| e.collated(&self.ctx.collation)),
            late => {
                self.late.set(late);
                e
            }
        }
    }

    fn parse_inner(&mut self, value: Value<'_>) -> Result<Expr> {
        match value {
            Value::String(s) if s.starts_with('$') => self.path(s),
            Value::Document(d) => self.document(d),
            Value::Array(items) => {
                let items = self.parse_all(items)?;
                let e = Expr::from(Node::Array(items));
                let all_constant =
                    matches!(&e.node, Node::Array(i) if i.iter().all(Expr::is_constant));
                Ok(if all_constant { self.fold(e) } else { e })
            }
            v => {
                if let Value::String(s) = v {
                    arena::check_string(s.len())?;
                }
                Ok(Expr::constant(v))
            }
        }
    }

    /// Parses every element of an array.
    ///
    /// # Errors
    /// See [`Parser::parse`].
    pub fn parse_all(&mut self, items: Doc<'_>) -> Result<Vec<Expr>> {
        items.values().map(|v| self.parse(v)).collect()
    }

    /// Runs `f` with more variables in scope, the innermost one last. The evaluation must
    /// [`bind`](EvalContext::bind) the same number.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn with_vars<T>(
        &mut self,
        names: &[&str],
        f: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let before = self.scope.len();
        self.scope.extend(names.iter().map(|n| n.to_string()));
        let out = f(self);
        self.scope.truncate(before);
        out
    }

    /// A call of an operator with parsed arguments. It is folded if it is constant.
    ///
    /// # Errors
    /// Those of evaluating a constant.
    pub fn call(&self, spec: &'static OpSpec, args: Vec<Expr>) -> Result<Expr> {
        // A single constant can decide the result. The other operands are then not evaluated, wherever the
        // constant stands.
        let decides = match spec.name {
            "$and" => Some(false),
            "$or" => Some(true),
            _ => None,
        };
        if let Some(decides) = decides
            && args.iter().any(|e| match &e.node {
                Node::Const(v) => v.as_ref().is_some_and(|v| v.as_value().truthy()) == decides,
                _ => false,
            })
        {
            return Ok(Expr::constant(Value::Bool(decides)));
        }
        let foldable = spec.pure && args.iter().all(Expr::is_constant);
        let e = Expr::from(Node::Call {
            spec,
            args: args.into_boxed_slice(),
        });
        Ok(if foldable { self.fold(e) } else { e })
    }

    /// Parses an expression that will never be evaluated, because constants before it have decided so.
    ///
    /// # Errors
    /// See [`Parser::parse`].
    pub fn parse_dead(&mut self, value: Value<'_>) -> Result<Expr> {
        let before = std::mem::replace(&mut self.dead, true);
        let e = self.parse(value);
        self.dead = before;
        e
    }

    /// Evaluates a constant expression once. If it fails, the query fails, even if no document would ever
    /// need the expression. MongoDB's optimizer does the same.
    fn fold(&self, e: Expr) -> Expr {
        let value = arena::with_arena(self.ctx.task.work(), |a| {
            let cx = EvalContext {
                collation: Some(&self.ctx.collation),
                ..EvalContext::new(Doc::EMPTY, a)
            };
            e.eval(&cx).map(|v| v.map(ValueBuf::new))
        });
        match value {
            Ok(value) => Node::Const(value).into(),
            Err(_) if self.dead => e,
            Err(error) => {
                let first = self.late.take().unwrap_or(error);
                self.late.set(Some(first));
                e
            }
        }
    }

    fn document(&mut self, d: Doc<'_>) -> Result<Expr> {
        let Some(first) = d.first() else {
            return Ok(Expr::constant(Value::Document(d)));
        };
        if first.name().starts_with('$') {
            if d.iter().nth(1).is_some() {
                return Err(Error::location(
                    15983,
                    format!(
                        "an expression specification must contain exactly one field, the name of the expression. Found {} fields in {}",
                        d.count(),
                        Value::Document(d).to_display()
                    ),
                ));
            }
            return self.operator(first.name(), first.value());
        }
        let mut fields = Vec::new();
        let mut names = HashSet::new();
        for e in d {
            let name = e.name();
            field_path::check_name(name)?;
            if name.contains('.') {
                return Err(Error::location(
                    16412,
                    format!(
                        "FieldPath field names may not contain '.'. Consider using $getField or $setField. Found: '{name}'"
                    ),
                ));
            }
            if !names.insert(name) {
                return Err(Error::location(
                    16406,
                    format!(
                        "duplicate field name specified in object literal: {}",
                        Value::Document(d).to_display()
                    ),
                ));
            }
            fields.push((name.to_string(), self.parse(e.value())?));
        }
        let constant = fields.iter().all(|(_, e)| e.is_constant());
        let e = Expr::from(Node::Object(fields));
        Ok(if constant { self.fold(e) } else { e })
    }

    fn operator(&mut self, name: &str, operand: Value<'_>) -> Result<Expr> {
        let Some(spec) = spec::find(name) else {
            return Err(Error::new(
                Code::InvalidPipelineOperator,
                format!("Unrecognized expression '{name}'"),
            ));
        };
        let args = match (spec.arity, operand) {
            (Arity::Custom(parse), v) => parse(v, self)?,
            (_, Value::Array(items)) => self.parse_all(items)?,
            (_, v) => vec![self.parse(v)?],
        };
        spec.check_count(args.len())?;
        self.call(spec, args)
    }

    fn path(&mut self, text: &str) -> Result<Expr> {
        let Some(rest) = text.strip_prefix("$$") else {
            return self.field_path(text.strip_prefix('$').unwrap_or(text));
        };
        let (name, path) = match rest.split_once('.') {
            Some(("", _)) => {
                check_variable("")?;
                ("", None)
            }
            Some((_, "")) => {
                return Err(Error::location(40353, "FieldPath must not end with a '.'."));
            }
            Some((name, path)) => (name, Some(FieldPath::parse(path)?)),
            None => (rest, None),
        };
        if let Some(slot) = self.scope.iter().rposition(|n| n == name) {
            let path = path.unwrap_or_else(FieldPath::none);
            return Ok(Node::Var { slot, path }.into());
        }
        self.bound(name, path)
    }

    /// A plain path, without the `$` at its front.
    fn field_path(&self, path: &str) -> Result<Expr> {
        if path.is_empty() {
            return Err(Error::location(
                16872,
                "'$' by itself is not a valid FieldPath",
            ));
        }
        let path = FieldPath::parse(path)?;
        // A `$let` may have rebound CURRENT, with which every plain path begins.
        if let Some(slot) = self.scope.iter().rposition(|n| n == "CURRENT") {
            return Ok(Node::Var { slot, path }.into());
        }
        // The command's `let` may have rebound it too.
        match self.ctx.variables.as_doc().get("CURRENT") {
            Some(v) => self.constant(v, Some(&path)),
            None => Ok(Node::Field(path).into()),
        }
    }

    /// A constant, or what is at a path within it.
    fn constant(&self, v: Value<'_>, path: Option<&FieldPath>) -> Result<Expr> {
        let Some(path) = path else {
            return Ok(Node::Const(Some(ValueBuf::new(v))).into());
        };
        arena::with_arena(self.ctx.task.work(), |a| {
            let at = path.eval_in(v, a)?;
            Ok(Node::Const(at.map(ValueBuf::new)).into())
        })
    }

    /// A variable that the command or the server has bound.
    fn bound(&self, name: &str, path: Option<FieldPath>) -> Result<Expr> {
        let constant = |v: Value<'_>| self.constant(v, path.as_ref());
        let current = self.ctx.variables.as_doc().get("CURRENT");
        match name {
            "CURRENT" if current.is_some() => constant(current.unwrap_or(Value::Null)),
            "ROOT" | "CURRENT" => Ok(match path {
                None => Node::Root.into(),
                Some(p) => Node::Field(p).into(),
            }),
            "REMOVE" => Ok(Node::Const(None).into()),
            "NOW" | "CLUSTER_TIME" if self.ctx.clocks == Clocks::None => Err(Error::location(
                51144,
                format!("Builtin variable '$${name}' is not available"),
            )),
            "NOW" => constant(Value::DateTime(self.ctx.now_ms)),
            "CLUSTER_TIME" if let Some((t, i)) = self.ctx.cluster_time => {
                constant(Value::Timestamp { t, i })
            }
            "CLUSTER_TIME" if self.ctx.clocks == Clocks::NowAndCluster => {
                let t = u32::try_from(self.ctx.now_ms / 1000).unwrap_or(u32::MAX);
                constant(Value::Timestamp { t, i: 1 })
            }
            "CLUSTER_TIME" => Err(Error::location(
                10071200,
                "$$CLUSTER_TIME is not available: this server is no part of a replica set or a sharded cluster",
            )),
            "USER_ROLES" => constant(Value::Array(Doc::EMPTY)),
            _ => match self.ctx.variables.as_doc().get(name) {
                Some(v) => constant(v),
                None if self.ctx.missing.iter().any(|n| n == name) => Ok(Node::Const(None).into()),
                None => {
                    check_variable(name)?;
                    Err(Error::location(
                        17276,
                        format!("Use of undefined variable: {name}"),
                    ))
                }
            },
        }
    }
}

/// Checks the characters of a variable's name.
fn check_variable(name: &str) -> Result<()> {
    let Some(first) = name.chars().next() else {
        return Err(Error::failed_to_parse(
            "empty variable names are not allowed",
        ));
    };
    if first.is_ascii() && !first.is_ascii_alphabetic() {
        return Err(Error::failed_to_parse(format!(
            "'{name}' starts with an invalid character for a variable name"
        )));
    }
    match name
        .chars()
        .find(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && *c != '_')
    {
        Some(c) => Err(Error::failed_to_parse(format!(
            "'{name}' contains an invalid character for a variable name: '{c}'"
        ))),
        None => Ok(()),
    }
}

/// Checks a variable name from the user ($let, $map's `as`, the command's `let`).
///
/// # Errors
/// 9 FailedToParse.
pub fn check_user_variable(name: &str) -> Result<()> {
    if name == "CURRENT" {
        return Ok(());
    }
    check_variable(name)?;
    match name.chars().next() {
        Some(c) if c.is_ascii() && !c.is_ascii_lowercase() => Err(Error::failed_to_parse(format!(
            "'{name}' starts with an invalid character for a user variable name"
        ))),
        _ => Ok(()),
    }
}
