//! `_shardSplitPoints`: a router or the balancer asks a shard where a chunk can be split.

use crate::context::CommandContext;
use crate::registry::{CommandSpec, Target};
use muniment_exec::{FindRequest, Hint};
use muniment_shard::ShardKey;
use muniment_storage::Collection;
use muniment_value::args::{Types, opt, req};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, number};
use std::cmp::Ordering;

/// The command: `{_shardSplitPoints: <collection>, keyPattern, min, max, bytes?, most?}`. The reply's `splitKeys` has
/// keys within the range, ascending. Without `bytes`, that is the key in the middle of the documents; otherwise there
/// are `bytes` bytes of documents or a little more before each key, and `most` keys at most.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardSplitPoints",
    doc: "Internal: a router asks a shard where a chunk can be split",
    target: Target::Collection,
    fields: &[
        req("keyPattern", Types::OBJECT),
        req("min", Types::OBJECT),
        req("max", Types::OBJECT),
        opt("bytes", Types::NUMBER),
        opt("most", Types::NUMBER),
    ],
    run,
    ..CommandSpec::between_members()
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let field = |name: &str| cx.args.doc(name).unwrap_or(Doc::EMPTY);
    let key = ShardKey::parse(field("keyPattern"))?;
    let index = index_of(&*cx.collection()?, &key)?;
    // Both ends are below all keys of the index that begin with the bound.
    let (mut min, mut max) = (field("min").to_buf(), field("max").to_buf());
    for e in index.as_doc().iter().skip(key.fields().len()) {
        min.append(e.name(), Value::MinKey);
        max.append(e.name(), Value::MinKey);
    }
    let request = FindRequest {
        hint: Some(Hint::Pattern(index.as_doc())),
        min: min.as_doc(),
        max: max.as_doc(),
        ..FindRequest::new(cx.ns())
    };
    let low = key.bound(field("min"))?;
    let of = |name: &str| cx.args.get(name).and_then(number::to_i64_clamped);
    let keys = match of("bytes").and_then(|n| u64::try_from(n).ok()) {
        Some(bytes) => {
            let most = of("most").and_then(|n| usize::try_from(n).ok());
            by_size(
                cx,
                &request,
                (&key, low),
                (bytes, most.unwrap_or(usize::MAX)),
            )?
        }
        None => middle(cx, &request, (&key, low))?,
    };
    cx.reply.field("splitKeys", keys);
    Ok(())
}

/// The pattern of the shortest index that begins with the shard key and has all documents.
fn index_of(collection: &Collection, key: &ShardKey) -> Result<DocBuf> {
    let indexes = collection.indexes();
    let fits = indexes.iter().filter_map(|i| {
        let spec = i.spec();
        let spec = spec.document.as_doc();
        let pattern = spec.get_doc("key")?;
        let mut fields = pattern.iter();
        let begins = key.pattern().iter().all(|k| {
            let same = |e: muniment_value::Elem<'_>| {
                e.is_named(k.name())
                    && muniment_value::cmp_values(e.value(), k.value()) == Ordering::Equal
            };
            fields.next().is_some_and(same)
        });
        let whole = ["sparse", "partialFilterExpression", "hidden", "collation"]
            .iter()
            .all(|f| !spec.get(f).is_some_and(|v| v.truthy()));
        (begins && whole).then(|| pattern.to_buf())
    });
    let shortest = fits.min_by_key(|p| p.as_doc().iter().count());
    shortest.ok_or_else(|| {
        Error::new(
            Code::IndexNotFound,
            format!(
                "there is no index that begins with the shard key {}",
                key.pattern().to_display()
            ),
        )
    })
}

/// The first key at or after the middle of the documents above which others lie, if there is one.
fn middle(
    cx: &CommandContext<'_>,
    request: &FindRequest<'_>,
    (key, low): (&ShardKey, Vec<u8>),
) -> Result<ArrayBuf> {
    let mut count = 0_u64;
    let mut cursor = cx.engine().find(cx.op, request)?;
    while cursor.next_doc(cx.op)?.is_some() {
        count += 1;
    }
    let mut cursor = cx.engine().find(cx.op, request)?;
    let (mut at, mut keys) = (0_u64, ArrayBuf::new());
    while let Some(d) = cursor.next_doc(cx.op)? {
        if at >= count / 2 && key.key_of(Doc::new(&d))? > low {
            keys.push(key.key_doc(Doc::new(&d))?);
            break;
        }
        at += 1;
    }
    Ok(keys)
}

/// Keys with some bytes of documents before each.
fn by_size(
    cx: &CommandContext<'_>,
    request: &FindRequest<'_>,
    (key, mut last): (&ShardKey, Vec<u8>),
    (bytes, most): (u64, usize),
) -> Result<ArrayBuf> {
    let mut cursor = cx.engine().find(cx.op, request)?;
    let (mut size, mut n, mut keys) = (0, 0, ArrayBuf::new());
    while n < most
        && let Some(d) = cursor.next_doc(cx.op)?
    {
        if size >= bytes {
            let here = key.key_of(Doc::new(&d))?;
            if here > last {
                keys.push(key.key_doc(Doc::new(&d))?);
                (size, n, last) = (0, n + 1, here);
            }
        }
        size += d.len() as u64;
    }
    Ok(keys)
}
