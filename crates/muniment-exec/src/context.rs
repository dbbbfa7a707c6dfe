//! The context of a command's expressions: its time, its collation and its `let`.

use crate::operation::OpContext;
use muniment_query::expr::arena::Arena;
use muniment_query::expr::{EvalContext, check_user_variable};
use muniment_query::{Expr, Needs, QueryContext};
use muniment_value::{Collation, Doc, Error, Result, Value};
use std::sync::Arc;

/// Makes the context for parsing, with the command's `let` evaluated.
pub(crate) fn query_context(
    op: &Arc<OpContext>,
    let_: Doc<'_>,
    collation: Collation,
) -> Result<QueryContext> {
    let ctx = QueryContext::at(op.now_ms()).with_collation(collation);
    let mut ctx = ctx.with_operation(op.clone());
    ctx.cluster_time = op.cluster_time();
    if !let_.is_empty() {
        bind_variables(let_, &mut ctx)?;
    }
    Ok(ctx)
}

/// Variables that only the server may set.
const BUILTIN: [&str; 3] = ["NOW", "CLUSTER_TIME", "USER_ROLES"];

/// Evaluates a `let` document into the context. Its values are constant expressions that may use
/// the variables before them.
fn bind_variables(let_: Doc<'_>, ctx: &mut QueryContext) -> Result<()> {
    let task = ctx.task.clone();
    let arena = Arena::new(task.work());
    for e in let_.iter() {
        if BUILTIN.contains(&e.name()) {
            return Err(Error::location(
                4_738_901,
                format!("Attempt to set internal constant: {}", e.name()),
            ));
        }
        check_user_variable(e.name())?;
        if let Some(name) = BUILTIN.iter().find(|n| mentions(e.value(), n)) {
            return Err(Error::location(
                51144,
                format!("Builtin variable '$${name}' is not available"),
            ));
        }
        let expr = Expr::parse(e.value(), ctx)?;
        let mut needs = Needs::default();
        needs.expr(&expr);
        if needs.into_paths().is_none_or(|p| !p.is_empty()) {
            return Err(Error::location(
                4_890_500,
                "Command let Expression tried to access a field, but this is not allowed because \
                 command let expressions run before the query examines any documents.",
            ));
        }
        let eval = EvalContext::new(Doc::EMPTY, &arena);
        let value = expr.eval(&eval).map_err(|e| {
            Error::new(
                e.code(),
                format!("Command let Expression does not evaluate: {}", e.message()),
            )
        })?;
        match value {
            Some(v) => {
                ctx.variables.append(e.name(), v);
            }
            None => ctx.missing.push(e.name().to_string()),
        }
    }
    Ok(())
}

/// True if the expression seems to read the variable. This looks only at its text.
fn mentions(v: Value<'_>, variable: &str) -> bool {
    match v {
        Value::String(s) => s
            .strip_prefix("$$")
            .is_some_and(|n| n.split('.').next() == Some(variable)),
        Value::Document(d) | Value::Array(d) => d
            .iter()
            .any(|e| e.name() != "$literal" && mentions(e.value(), variable)),
        _ => false,
    }
}
