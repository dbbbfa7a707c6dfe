//! `collStats`.

use crate::args::{Field, Types, idle, opt};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Target};
use muniment_value::{ArrayBuf, DocBuf, Error, Result, number};

const FIELDS: &[Field] = &[
    opt("scale", Types::NUMBER),
    idle("verbose", Types::SAFE_BOOL, "old clients send it"),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "collStats",
    aliases: &["collstats"],
    doc: "Sizes of a collection and its indexes",
    target: Target::Collection,
    read_concern: true,
    fields: FIELDS,
    run,
    ..CommandSpec::DEFAULT
};

/// The `scale` argument.
pub(super) fn scale(cx: &CommandContext<'_>) -> Result<u64> {
    match cx.args.get("scale").and_then(number::to_i64_clamped) {
        None => Ok(1),
        Some(n) if n >= 1 => Ok(n as u64),
        Some(n) => Err(Error::location(
            51024,
            format!("BSON field 'scale' value must be >= 1, actual value '{n}'"),
        )),
    }
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let scale = scale(cx)?;
    let by = |n: u64| number::narrow((n / scale) as i64);
    let store = &cx.engine().store;
    let collection = store.collection(cx.ns());
    let w = &mut cx.reply;
    w.field("ns", cx.op.namespace());
    let Some(c) = collection else {
        for name in ["size", "count", "numOrphanDocs", "storageSize", "totalSize", "nindexes", "totalIndexSize"] {
            w.field(name, 0);
        }
        w.field("indexDetails", DocBuf::new());
        w.field("indexSizes", DocBuf::new());
        w.field("scaleFactor", number::narrow(scale as i64));
        return Ok(());
    };
    let (size, count) = (c.data_bytes(), c.count());
    let storage = store.storage_bytes(&c);
    let options = c.options();
    let indexes = c.indexes();
    let sizes: Vec<_> = indexes
        .iter()
        .map(|i| (i.spec().name.clone(), store.index_bytes(i)))
        .collect();
    let total_index: u64 = sizes.iter().map(|(_, n)| n).sum();
    w.field("size", by(size));
    w.field("count", number::narrow(count as i64));
    if let Some(average) = size.checked_div(count) {
        w.field("avgObjSize", number::narrow(average as i64));
    }
    w.field("numOrphanDocs", 0);
    w.field("storageSize", by(storage));
    w.field("freeStorageSize", 0);
    w.field("capped", options.capped_size.is_some());
    if let Some(n) = options.capped_size {
        w.field("maxSize", by(n));
        w.field("max", number::narrow(options.capped_max.unwrap_or(0) as i64));
    }
    w.field("nindexes", indexes.len() as i32);
    w.field("indexDetails", DocBuf::new());
    w.field("indexBuilds", ArrayBuf::new());
    w.field("totalIndexSize", by(total_index));
    w.field("totalSize", by(storage + total_index));
    let mut all = DocBuf::new();
    for (name, n) in &sizes {
        all.append(name, by(*n));
    }
    w.field("indexSizes", all);
    w.field("scaleFactor", number::narrow(scale as i64));
    Ok(())
}
