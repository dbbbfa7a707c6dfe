//! `$pull`: removes an array's elements that satisfy a condition. `$pullAll` uses the same walk.

use super::Raw;
use crate::bytes::{IndexName, body, close, head, open, put};
use crate::filter::Filter;
use crate::update::registry::{LeafOp, Outcome, ParseCx, Sink, Spec, Target};
use muniment_value::{Collation, Doc, DocBuf, Elem, Error, Result, Type, Value};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$pull",
    doc: "Removes an array's elements that equal a value or satisfy a condition.",
    parse,
};

/// The condition for the elements that are removed.
#[derive(Debug)]
enum Condition {
    /// Elements that are canonically equal to the value.
    Equal(Raw, Collation),
    /// Documents that match the filter.
    Document(Filter),
    /// Elements that match as the field `e` of a document. This is for conditions such as `{$gte: 5}`, and
    /// for regular expressions.
    Wrapped(Filter),
}

#[derive(Debug)]
struct Pull(Condition);

/// The operators whose operand is a whole document and not one value.
const LOGICAL: &[&str] = &[
    "$and",
    "$or",
    "$nor",
    "$expr",
    "$comment",
    "$jsonSchema",
    "$text",
    "$where",
];

fn parse(cx: &ParseCx<'_>, e: Elem<'_>, sink: &mut Sink<'_>) -> Result<()> {
    let wrap = |e: Elem<'_>| {
        let mut d = DocBuf::new();
        d.append("e", e);
        Filter::parse(d.as_doc(), cx.ctx).map(Condition::Wrapped)
    };
    let condition = match e.value() {
        Value::Document(d) => {
            let operator = d
                .first()
                .is_some_and(|f| f.name().starts_with('$') && !LOGICAL.contains(&f.name()));
            if operator {
                wrap(e)?
            } else {
                Condition::Document(Filter::parse(d, cx.ctx)?)
            }
        }
        Value::Regex { .. } => wrap(e)?,
        _ => Condition::Equal(Raw::new(e), cx.ctx.collation.clone()),
    };
    sink(e.name(), Arc::new(Pull(condition)))
}

impl LeafOp for Pull {
    fn apply(&self, t: &Target<'_>, out: &mut Vec<u8>) -> Result<Outcome> {
        let mut wrapped = Vec::new();
        remove(t, out, &mut |e| match &self.0 {
            Condition::Equal(v, c) => Ok(c.equal(v.value(), e.value())),
            Condition::Document(f) => match e.value() {
                Value::Document(d) => f.matches(d, t.work),
                _ => Ok(false),
            },
            Condition::Wrapped(f) => {
                wrapped.clear();
                let start = open(&mut wrapped);
                put(&mut wrapped, b"e", &e);
                close(&mut wrapped, start);
                f.matches(Doc::new(&wrapped), t.work)
            }
        })
    }

    fn creates(&self, _: Doc<'_>) -> bool {
        false
    }
}

/// Copies the array without the elements that `goes` selects.
pub(crate) fn remove(
    t: &Target<'_>,
    out: &mut Vec<u8>,
    goes: &mut dyn FnMut(Elem<'_>) -> Result<bool>,
) -> Result<Outcome> {
    let Some(old) = t.old else {
        return Ok(Outcome::Unchanged);
    };
    let Value::Array(array) = old.value() else {
        return Err(Error::bad_value("Cannot apply $pull to a non-array value"));
    };
    let before = out.len();
    let mut start = 0;
    let mut kept = 0;
    let mut elems = array.iter();
    let mut removed = false;
    loop {
        let at = elems.offset();
        let Some(e) = elems.next() else { break };
        if goes(e)? {
            if !removed {
                removed = true;
                head(out, Type::Array, t.name);
                start = open(out);
                out.extend_from_slice(body(array).get(..at - 4).unwrap_or_default());
            }
            continue;
        }
        if removed {
            head(out, e.ty(), IndexName::new(kept).as_bytes());
            out.extend_from_slice(e.raw_value());
        }
        kept += 1;
    }
    if !removed {
        out.truncate(before);
        return Ok(Outcome::Unchanged);
    }
    close(out, start);
    Ok(Outcome::Changed)
}

#[cfg(test)]
mod tests {
    use crate::update::testing::table;

    #[test]
    fn table_of_pull() {
        table(&[
            ("{a:[1,2,1.0,3]}", "{$pull:{a:1}}", "{a:[2,3]}"),
            ("{a:[1,2]}", "{$pull:{a:9}}", "="),
            ("{}", "{$pull:{a:9}}", "="),
            ("{a:[1,5,8]}", "{$pull:{a:{$gte:5}}}", "{a:[1]}"),
            ("{a:[1,5,8]}", "{$pull:{a:{$in:[1,8]}}}", "{a:[5]}"),
            ("{a:['ab','cd']}", "{$pull:{a:{$regex:'^a'}}}", "{a:['cd']}"),
            (
                "{a:[{x:1,y:1},{x:2},3]}",
                "{$pull:{a:{x:1}}}",
                "{a:[{x:2},3]}",
            ),
            (
                "{a:[{x:1},{x:2}]}",
                "{$pull:{a:{$or:[{x:1},{x:2}]}}}",
                "{a:[]}",
            ),
            (
                "{a:[{b:[{c:1}]},{b:[]}]}",
                "{$pull:{a:{b:{$elemMatch:{c:1}}}}}",
                "{a:[{b:[]}]}",
            ),
            ("{a:[[1,2],[3]]}", "{$pull:{a:[1,2]}}", "{a:[[3]]}"),
            (
                "{a:5}",
                "{$pull:{a:5}}",
                "2: Cannot apply $pull to a non-array value",
            ),
        ]);
    }
}
