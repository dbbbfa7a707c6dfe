//! `$currentDate`: sets a field to the current time.

use super::put_if_new;
use crate::bytes::show;
use crate::update::registry::{LeafOp, Outcome, ParseCx, Sink, Spec, Target};
use crate::update::replace::next_timestamp;
use muniment_value::{Elem, Error, Result, Value};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$currentDate",
    doc: "Sets a field to the current time, as a date or a timestamp.",
    parse,
};

#[derive(Debug)]
enum CurrentDate {
    /// Milliseconds, fixed for the whole command.
    Date(i64),
    Timestamp,
}

fn parse(cx: &ParseCx<'_>, e: Elem<'_>, sink: &mut Sink<'_>) -> Result<()> {
    let date = CurrentDate::Date(cx.ctx.now_ms);
    let op = match e.value() {
        Value::Bool(_) => date,
        Value::Document(d) => {
            if let Some(other) = d.iter().find(|o| o.name() != "$type") {
                return Err(Error::bad_value(format!(
                    "Unrecognized $currentDate option: {}",
                    other.name()
                )));
            }
            match d.get_str("$type") {
                Some("date") => date,
                Some("timestamp") => CurrentDate::Timestamp,
                _ => {
                    return Err(Error::bad_value(
                        "The '$type' string field is required to be 'date' or 'timestamp': \
                         {$currentDate: {field : {$type: 'date'}}}",
                    ));
                }
            }
        }
        other => {
            return Err(Error::bad_value(format!(
                "{} is not valid type for $currentDate. Please use a boolean ('true') or a $type \
                 expression ({{$type: 'timestamp/date'}}). Found {}",
                other.type_name(),
                show(e)
            )));
        }
    };
    sink(e.name(), Arc::new(op))
}

impl LeafOp for CurrentDate {
    fn apply(&self, t: &Target<'_>, out: &mut Vec<u8>) -> Result<Outcome> {
        let now = match self {
            CurrentDate::Date(ms) => Value::DateTime(*ms),
            CurrentDate::Timestamp => next_timestamp(),
        };
        Ok(put_if_new(t.old, t.name, now, out))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::update::testing::{apply, table};
    use muniment_value::Type;

    #[test]
    fn table_of_current_date() {
        table(&[
            (
                "{}",
                "{$currentDate:{a:{$type:'x'}}}",
                "2: The '$type' string field is required to be 'date' or 'timestamp': {$currentDate: \
              {field : {$type: 'date'}}}",
            ),
            (
                "{}",
                "{$currentDate:{a:{x:1}}}",
                "2: Unrecognized $currentDate option: x",
            ),
            (
                "{}",
                "{$currentDate:{a:1}}",
                "2: int is not valid type for $currentDate. Please use a boolean ('true') or a $type \
              expression ({$type: 'timestamp/date'}). Found a: 1",
            ),
        ]);
        let ty = |u| {
            apply("{a:1}", u)
                .unwrap()
                .unwrap()
                .as_doc()
                .get("a")
                .unwrap()
                .ty()
        };
        assert_eq!(ty("{$currentDate:{a:true}}"), Type::DateTime);
        assert_eq!(ty("{$currentDate:{a:{$type:'date'}}}"), Type::DateTime);
        assert_eq!(
            ty("{$currentDate:{a:{$type:'timestamp'}}}"),
            Type::Timestamp
        );
    }
}
