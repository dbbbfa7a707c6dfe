//! `$shift`: the value of a document a given number of positions before or after the current one.

use super::super::accumulators::sliding::{Kind, Queue};
use super::frame::Frame;
use super::registry::Spec;
use super::{Call, Framed, Function, check_beside};
use crate::expr::Expr;
use muniment_value::{Error, Result, Value, ValueBuf, number};

pub(super) const SPEC: Spec = Spec {
    name: "$shift",
    doc: "The value of a document a number of places before or after it.",
    parse,
};

fn parse(call: &Call<'_>) -> Result<Function> {
    check_beside(call)?;
    call.no_window()?;
    if call.order.sort.is_none() {
        return Err(Error::failed_to_parse("'$shift' requires a sortBy"));
    }
    let options = call.options(&["output", "by", "default"])?;
    let input = Expr::parse(call.need(options, "output")?, call.ctx)?;
    let by = call.need(options, "by")?;
    let by = number::to_i64_exact(by)
        .filter(|n| by.is_number() && i32::try_from(*n).is_ok())
        .ok_or_else(|| {
            Error::failed_to_parse(format!(
                "'$shift:by' field must be an integer, but found by: {}",
                by.to_display()
            ))
        })?;
    let empty = match options.get("default") {
        None => ValueBuf::new(Value::Null),
        Some(v) => {
            let e = Expr::parse(v, call.ctx)?;
            let constant = e.as_constant().map(ValueBuf::new);
            constant.ok_or_else(|| {
                Error::failed_to_parse(format!(
                    "'$shift:default' expression must yield a constant value: {}",
                    v.to_display()
                ))
            })?
        }
    };
    Ok(Function::Framed(Framed {
        relate: None,
        input,
        frame: Frame::Documents(Some(by), Some(by)),
        growing: None,
        sliding: Box::new(|| Box::new(Queue::new(Kind::First))),
        empty: Some(empty),
    }))
}
