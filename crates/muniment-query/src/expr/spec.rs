//! The parts that define an expression operator.

use super::{EvalContext, Expr, Parser};
use muniment_value::{Error, Result, Value};

/// Evaluates an operator over its (unevaluated) arguments.
pub type EvalFn = for<'a> fn(&'a [Expr], &EvalContext<'a>) -> Result<Option<Value<'a>>>;

/// Parses the operand of an operator that takes named arguments.
pub type ParseFn = fn(Value<'_>, &mut Parser<'_>) -> Result<Vec<Expr>>;

/// The number of arguments that an operator takes. A single argument may be written without an array.
#[derive(Clone, Copy, Debug)]
pub enum Arity {
    /// Exactly this many.
    Exactly(usize),
    /// From the first to the second.
    Range(usize, usize),
    /// Any number.
    Any,
    /// The operator parses its operand itself (named arguments).
    Custom(ParseFn),
}

/// An expression operator.
#[derive(Debug)]
pub struct OpSpec {
    /// The name with its dollar.
    pub name: &'static str,
    /// Its arguments.
    pub arity: Arity,
    /// One line for the documentation.
    pub doc: &'static str,
    /// False for operators whose results differ from call to call (`$rand`).
    pub pure: bool,
    /// The function that evaluates it.
    pub eval: EvalFn,
}

impl OpSpec {
    /// A pure operator.
    pub const fn new(name: &'static str, arity: Arity, doc: &'static str, eval: EvalFn) -> OpSpec {
        OpSpec {
            name,
            arity,
            doc,
            pure: true,
            eval,
        }
    }

    /// Checks the number of arguments.
    ///
    /// # Errors
    /// 16020 and 28667, as in MongoDB.
    pub(crate) fn check_count(&self, n: usize) -> Result<()> {
        match self.arity {
            Arity::Exactly(want) if n != want => Err(Error::location(
                16020,
                format!(
                    "Expression {} takes exactly {want} arguments. {n} were passed in.",
                    self.name
                ),
            )),
            Arity::Range(least, most) if n < least || n > most => Err(Error::location(
                28667,
                format!(
                    "Expression {} takes at least {least} arguments, and at most {most}, but {n} were passed in.",
                    self.name
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// All operators, sorted by name.
pub fn registry() -> &'static [&'static OpSpec] {
    super::ops::REGISTRY
}

/// The operator with this name (with its dollar).
pub fn find(name: &str) -> Option<&'static OpSpec> {
    let all = registry();
    all.binary_search_by(|s| s.name.cmp(name))
        .ok()
        .and_then(|i| all.get(i))
        .copied()
}
