//! `$pop`: removes the first or last element of an array.

use crate::bytes::{IndexName, body, close, head, open, show};
use crate::update::registry::{LeafOp, Outcome, ParseCx, Sink, Spec, Target};
use muniment_value::{Doc, Elem, Error, Result, Type, Value};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$pop",
    doc: "Removes the first (-1) or the last (1) element of an array.",
    parse,
};

#[derive(Debug)]
struct Pop {
    first: bool,
}

fn parse(_: &ParseCx<'_>, e: Elem<'_>, sink: &mut Sink<'_>) -> Result<()> {
    if !e.value().is_number() {
        return Err(Error::failed_to_parse(format!(
            "Expected a number in: {}",
            show(e)
        )));
    }
    let first = match super::whole(e.value()) {
        Some(1) => false,
        Some(-1) => true,
        Some(n) => {
            return Err(Error::failed_to_parse(format!(
                "$pop expects 1 or -1, found: {n}"
            )));
        }
        None => {
            return Err(Error::failed_to_parse(format!(
                "Expected an integer: {}",
                show(e)
            )));
        }
    };
    sink(e.name(), Arc::new(Pop { first }))
}

impl LeafOp for Pop {
    fn apply(&self, t: &Target<'_>, out: &mut Vec<u8>) -> Result<Outcome> {
        let Some(old) = t.old else {
            return Ok(Outcome::Unchanged);
        };
        let Value::Array(array) = old.value() else {
            return Err(Error::type_mismatch(format!(
                "Path '{}' contains an element of non-array type '{}'",
                t.path,
                old.value().type_name()
            )));
        };
        if array.is_empty() {
            return Ok(Outcome::Unchanged);
        }
        head(out, Type::Array, t.name);
        let start = open(out);
        if self.first {
            for (i, e) in array.iter().skip(1).enumerate() {
                head(out, e.ty(), IndexName::new(i).as_bytes());
                out.extend_from_slice(e.raw_value());
            }
        } else {
            let mut elems = array.iter();
            let mut last = 4;
            loop {
                let at = elems.offset();
                if elems.next().is_none() {
                    break;
                }
                last = at;
            }
            out.extend_from_slice(body(array).get(..last - 4).unwrap_or_default());
        }
        close(out, start);
        Ok(Outcome::Changed)
    }

    fn creates(&self, _: Doc<'_>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use crate::update::testing::table;

    #[test]
    fn table_of_pop() {
        table(&[
            ("{a:[1,2,3]}", "{$pop:{a:1}}", "{a:[1,2]}"),
            ("{a:[1,2,3]}", "{$pop:{a:-1}}", "{a:[2,3]}"),
            ("{a:[1]}", "{$pop:{a:1}}", "{a:[]}"),
            ("{a:[]}", "{$pop:{a:1}}", "="),
            ("{}", "{$pop:{a:1}}", "="),
            (
                "{a:5}",
                "{$pop:{a:1}}",
                "14: Path 'a' contains an element of non-array type 'int'",
            ),
            (
                "{a:5}",
                "{$pop:{'a.b':1}}",
                "28: Cannot use the part (b) of (a.b) to traverse the element ({a: 5})",
            ),
            ("{}", "{$pop:{a:2}}", "9: $pop expects 1 or -1, found: 2"),
            ("{}", "{$pop:{a:'x'}}", "9: Expected a number in: a: \"x\""),
            ("{}", "{$pop:{a:1.5}}", "9: Expected an integer: a: 1.5"),
        ]);
    }
}
