//! `$setOnInsert`: gives a field a value if an upsert inserts a document.

use super::Raw;
use super::set::Set;
use crate::update::registry::{ParseCx, Sink, Spec};
use muniment_value::{Elem, Result};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$setOnInsert",
    doc: "Gives a field a value when an upsert inserts a document; nothing otherwise.",
    parse,
};

/// The leaf is the same as that of `$set`; the code that builds the trees makes it apply to inserts only.
fn parse(_: &ParseCx<'_>, e: Elem<'_>, sink: &mut Sink<'_>) -> Result<()> {
    sink(e.name(), Arc::new(Set(Raw::new(e))))
}

#[cfg(test)]
mod tests {
    use crate::update::testing::{table, upserts};

    #[test]
    fn table_of_set_on_insert() {
        table(&[
            ("{a:1}", "{$setOnInsert:{a:2}}", "="),
            ("{a:1}", "{$setOnInsert:{'a.b':2}}", "="),
            ("{a:1}", "{$set:{a:5},$setOnInsert:{b:2}}", "{a:5}"),
            (
                "{a:1}",
                "{$set:{a:5},$setOnInsert:{a:2}}",
                "40: Updating the path 'a' would create a conflict at 'a'",
            ),
        ]);
        upserts(&[
            (
                "{_id:1}",
                "{$set:{a:5},$setOnInsert:{b:2}}",
                "{_id:1,a:5,b:2}",
            ),
            ("{x:1}", "{$setOnInsert:{_id:7}}", "{_id:7,x:1}"),
        ]);
    }
}
