//! `$min`: sets a field if the operand is less.

use super::Raw;
use crate::update::registry::{LeafOp, Outcome, ParseCx, Sink, Spec, Target};
use muniment_value::{Collation, Elem, Result};
use std::cmp::Ordering;
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$min",
    doc: "Sets a field when the value given is less than the field's, or the field is missing.",
    parse,
};

fn parse(cx: &ParseCx<'_>, e: Elem<'_>, sink: &mut Sink<'_>) -> Result<()> {
    sink(e.name(), Arc::new(Extreme::new(cx, e, Ordering::Less)))
}

/// `$min` or `$max`.
#[derive(Debug)]
pub(crate) struct Extreme {
    operand: Raw,
    /// The result of comparing the operand with the field for which the operand replaces the field.
    wanted: Ordering,
    collation: Collation,
}

impl Extreme {
    pub(crate) fn new(cx: &ParseCx<'_>, e: Elem<'_>, wanted: Ordering) -> Extreme {
        Extreme {
            operand: Raw::new(e),
            wanted,
            collation: cx.ctx.collation.clone(),
        }
    }
}

impl LeafOp for Extreme {
    fn apply(&self, t: &Target<'_>, out: &mut Vec<u8>) -> Result<Outcome> {
        if let Some(old) = t.old
            && self.collation.cmp(self.operand.value(), old.value()) != self.wanted
        {
            return Ok(Outcome::Unchanged);
        }
        self.operand.put(t.name, out);
        Ok(Outcome::Changed)
    }

    fn depth(&self) -> usize {
        self.operand.depth()
    }
}

#[cfg(test)]
mod tests {
    use crate::update::testing::table;

    #[test]
    fn table_of_min() {
        table(&[
            ("{a:3}", "{$min:{a:2}}", "{a:2}"),
            ("{a:3}", "{$min:{a:3.0}}", "="),
            ("{a:3}", "{$min:{a:4}}", "="),
            ("{a:3}", "{$min:{a:'x'}}", "="),
            ("{a:3}", "{$min:{a:null}}", "{a:null}"),
            ("{}", "{$min:{'a.b':1}}", "{a:{b:1}}"),
        ]);
    }
}
