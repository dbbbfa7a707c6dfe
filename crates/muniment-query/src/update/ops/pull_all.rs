//! `$pullAll`: removes an array's elements that equal any of a list.

use crate::update::registry::{LeafOp, Outcome, ParseCx, Sink, Spec, Target};
use muniment_value::{Collation, Doc, Elem, Error, Result, Value, ValueBuf};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$pullAll",
    doc: "Removes an array's elements that equal any of the given values.",
    parse,
};

/// The values, sorted.
#[derive(Debug)]
struct PullAll(Vec<ValueBuf>, Collation);

fn parse(cx: &ParseCx<'_>, e: Elem<'_>, sink: &mut Sink<'_>) -> Result<()> {
    let Value::Array(array) = e.value() else {
        return Err(Error::bad_value(format!(
            "$pullAll requires an array argument but was given a {}",
            e.value().type_name()
        )));
    };
    let mut values: Vec<ValueBuf> = array.values().map(ValueBuf::new).collect();
    let collation = cx.ctx.collation.clone();
    values.sort_by(|a, b| collation.cmp(a.as_value(), b.as_value()));
    sink(e.name(), Arc::new(PullAll(values, collation)))
}

impl LeafOp for PullAll {
    fn apply(&self, t: &Target<'_>, out: &mut Vec<u8>) -> Result<Outcome> {
        super::pull::remove(t, out, &mut |e| {
            Ok(self
                .0
                .binary_search_by(|v| self.1.cmp(v.as_value(), e.value()))
                .is_ok())
        })
    }

    fn creates(&self, _: Doc<'_>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use crate::update::testing::table;

    #[test]
    fn table_of_pull_all() {
        table(&[
            ("{a:[3,1,2,1,0]}", "{$pullAll:{a:[1,0]}}", "{a:[3,2]}"),
            (
                "{a:[{x:1},{x:1,y:2}]}",
                "{$pullAll:{a:[{x:1}]}}",
                "{a:[{x:1,y:2}]}",
            ),
            ("{a:[1]}", "{$pullAll:{a:[]}}", "="),
            ("{}", "{$pullAll:{a:[1]}}", "="),
            (
                "{a:1}",
                "{$pullAll:{a:[1]}}",
                "2: Cannot apply $pull to a non-array value",
            ),
            (
                "{}",
                "{$pullAll:{a:1}}",
                "2: $pullAll requires an array argument but was given a int",
            ),
        ]);
    }
}
