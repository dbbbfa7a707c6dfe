//! `_shardSizes`: how much a shard has of some collections.

use crate::context::CommandContext;
use crate::moving::sizes::{Sizes, sizes_of};
use crate::registry::CommandSpec;
use muniment_value::args::{Types, req};
use muniment_value::{ArrayBuf, Doc, Result, doc};

/// The command: `{_shardSizes: 1, namespaces: [<db.collection>, …]}`. The reply's `sizes` are the bytes of documents
/// that the shard owns of each, in the same order; 0 for a collection that is not there. `details` has more of each.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardSizes",
    doc: "Internal: the balancer asks a shard how much it has of some collections",
    fields: &[req("namespaces", Types::ARRAY)],
    run,
    ..CommandSpec::between_members()
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let names = cx.args.array("namespaces").unwrap_or(Doc::EMPTY);
    let store = &cx.engine().store;
    let (mut sizes, mut details) = (ArrayBuf::new(), ArrayBuf::new());
    for ns in names.values() {
        let of = match store.collection(ns.as_str().unwrap_or_default()) {
            Some(collection) => sizes_of(store, cx.op, &collection)?,
            None => Sizes::default(),
        };
        sizes.push(long(of.bytes));
        details.push(doc! {
            "docs": long(of.docs), "foreignDocs": long(of.foreign_docs),
            "foreignBytes": long(of.foreign_bytes),
        });
    }
    cx.reply.field("sizes", sizes);
    cx.reply.field("details", details);
    Ok(())
}

fn long(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
