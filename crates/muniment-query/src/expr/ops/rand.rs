//! `$rand`: a random double, 0 ≤ n < 1, which is different for every evaluation.

use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser};
use muniment_value::{Error, Result, Value};
use std::cell::Cell;
use std::hash::{BuildHasher, Hasher};

/// The specification.
pub(super) const SPEC: OpSpec = OpSpec {
    name: "$rand",
    arity: Arity::Custom(parse),
    doc: "A random double between 0 (inclusive) and 1 (exclusive).",
    pure: false,
    eval,
};

fn parse(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    if p.context().validator {
        return Err(Error::location(
            3_040_500,
            "$rand not allowed inside collection validators",
        ));
    }
    match operand {
        Value::Document(d) | Value::Array(d) if d.is_empty() => Ok(Vec::new()),
        Value::Document(_) | Value::Array(_) => Err(Error::location(
            3040501,
            "$rand does not currently accept arguments",
        )),
        _ => Err(Error::location(
            10065,
            "invalid parameter: expected an object ($rand)",
        )),
    }
}

thread_local! {
    static STATE: Cell<u64> = Cell::new(
        std::collections::hash_map::RandomState::new().build_hasher().finish() | 1,
    );
}

/// Random bits, which are good enough for statistics but not for secrets.
pub(crate) fn bits() -> u64 {
    // xorshift64*. Source: Vigna, "An experimental exploration of Marsaglia's xorshift
    // generators, scrambled".
    STATE.with(|s| {
        let mut x = s.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        s.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    })
}

fn eval<'a>(_: &'a [Expr], _: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let bits = bits();
    Ok(Some(Value::Double(
        (bits >> 11) as f64 / (1_u64 << 53) as f64,
    )))
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        for _ in 0..100 {
            check(
                "{}",
                "{'$and': [{'$gte': [{'$rand': {}}, 0]}, {'$lt': [{'$rand': {}}, 1]}]}",
                &Gives("true"),
            );
            check(
                "{}",
                "{'$ne': [{'$rand': {}}, {'$rand': []}]}",
                &Gives("true"),
            );
        }
        check("{}", "{'$rand': 1}", &Fails(10065));
        check("{}", "{'$rand': [1]}", &Fails(3040501));
        check("{}", "{'$rand': {'a': 1}}", &Fails(3040501));
    }
}
