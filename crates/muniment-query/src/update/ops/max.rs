//! `$max`: sets a field if the operand is greater.

use super::min::Extreme;
use crate::update::registry::{ParseCx, Sink, Spec};
use muniment_value::{Elem, Result};
use std::cmp::Ordering;
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$max",
    doc: "Sets a field when the value given is greater than the field's, or the field is missing.",
    parse,
};

fn parse(cx: &ParseCx<'_>, e: Elem<'_>, sink: &mut Sink<'_>) -> Result<()> {
    sink(e.name(), Arc::new(Extreme::new(cx, e, Ordering::Greater)))
}

#[cfg(test)]
mod tests {
    use crate::update::testing::table;

    #[test]
    fn table_of_max() {
        table(&[
            ("{a:3}", "{$max:{a:4}}", "{a:4}"),
            ("{a:3}", "{$max:{a:3.0}}", "="),
            ("{a:3}", "{$max:{a:2}}", "="),
            ("{a:3}", "{$max:{a:'x'}}", "{a:'x'}"),
            ("{}", "{$max:{'a.b':1}}", "{a:{b:1}}"),
        ]);
    }
}
