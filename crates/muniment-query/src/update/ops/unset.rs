//! `$unset`: removes a field.

use crate::bytes::head;
use crate::update::registry::{LeafOp, Outcome, ParseCx, Sink, Spec, Target};
use muniment_value::{Doc, Elem, Result, Type};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$unset",
    doc: "Removes a field; an array's element becomes null.",
    parse,
};

#[derive(Debug)]
pub(crate) struct Unset;

fn parse(_: &ParseCx<'_>, e: Elem<'_>, sink: &mut Sink<'_>) -> Result<()> {
    sink(e.name(), Arc::new(Unset))
}

impl LeafOp for Unset {
    fn apply(&self, t: &Target<'_>, out: &mut Vec<u8>) -> Result<Outcome> {
        let Some(old) = t.old else {
            return Ok(Outcome::Unchanged);
        };
        if !t.in_array {
            return Ok(Outcome::Removed);
        }
        if old.ty() == Type::Null {
            return Ok(Outcome::Unchanged);
        }
        head(out, Type::Null, t.name);
        Ok(Outcome::Changed)
    }

    fn creates(&self, _: Doc<'_>) -> bool {
        false
    }

    fn ignores_unviable(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::update::testing::table;

    #[test]
    fn table_of_unset() {
        table(&[
            ("{a:1,b:2}", "{$unset:{a:''}}", "{b:2}"),
            ("{a:1}", "{$unset:{b:''}}", "="),
            ("{a:1}", "{$unset:{'a.b':''}}", "="),
            ("{a:1}", "{$unset:{'b.c.d':''}}", "="),
            ("{a:[1,2,3]}", "{$unset:{'a.1':''}}", "{a:[1,null,3]}"),
            ("{a:[1,2,3]}", "{$unset:{'a.01':''}}", "{a:[1,null,3]}"),
            ("{a:[1,2,3]}", "{$unset:{'a.9':''}}", "="),
            ("{a:{b:1,c:1}}", "{$unset:{'a.b':'','a.c':''}}", "{a:{}}"),
            (
                "{_id:1}",
                "{$unset:{_id:''}}",
                "66: Performing an update on the path '_id' would modify the immutable field '_id'",
            ),
        ]);
    }
}
