//! findAndModify on a sharded collection.

use super::one::{Wanted, choose, executed, narrowed, too_often};
use super::upsert::{Upsert, place, with_filter};
use super::{PRIMARY, parsed, reached, to_one};
use crate::context::CommandContext;
use crate::router::Router;
use crate::router::forward::{Beside, Part};
use crate::router::relay::{ask_one, back};
use crate::router::tables::Known;
use crate::sets::Reply;
use muniment_op::Interrupt;
use muniment_value::{Doc, Result, Value, number};
use std::sync::Arc;

/// How often a document is looked for.
const ATTEMPTS: usize = 100;

/// Runs findAndModify: on the shard that the filter names, or on that which has the document.
///
/// # Errors
/// 61 ShardKeyNotFound for an upsert of a document that cannot have a key; the shards'.
pub fn run(cx: &mut CommandContext<'_>, router: &Router, known: &Arc<Known>) -> Result<()> {
    let filter = cx.args.doc("query").unwrap_or(Doc::EMPTY);
    let collation = cx.args.doc("collation");
    let upsert = cx.args.bool("upsert", false);
    if upsert {
        let key = parsed(cx, known, filter, collation).and_then(|f| known.key.key_of_filter(&f));
        if let Some(key) = key {
            return to_one(cx, router, known, known.table.owner(&key));
        }
    }
    let shards = reached(cx, known, filter, collation);
    match shards.as_slice() {
        [] if !upsert => return to_one(cx, router, known, 0),
        [one] if !upsert => return to_one(cx, router, known, *one),
        _ => {}
    }
    let id = cx
        .args
        .get("stmtId")
        .and_then(number::to_i64_clamped)
        .unwrap_or(0);
    if let Some(shard) = executed(cx, router, known, &shards, id)? {
        return to_one(cx, router, known, shard);
    }
    let wanted = Wanted {
        filter,
        sort: cx.args.doc("sort"),
        collation,
        variables: cx.args.doc("let"),
    };
    for _ in 0..ATTEMPTS {
        cx.op.check()?;
        let Some(chosen) = choose(cx, router, known, &wanted, &shards)? else {
            if !upsert {
                // The shard says what it comes to if there is none.
                return to_one(cx, router, known, shards.first().copied().unwrap_or(0));
            }
            let statement = Upsert {
                filter,
                update: cx.args.get("update").unwrap_or(Value::Null),
                array_filters: cx.args.array("arrayFilters").unwrap_or(Doc::EMPTY),
                variables: cx.args.doc("let").unwrap_or(Doc::EMPTY),
                collation,
            };
            let (shard, filter) = place(cx, known, &statement)?;
            let body = with_filter(cx.request.body, "query", filter);
            return send(cx, router, known, shard, body.as_doc()).and_then(|reply| {
                let set = Arc::clone(known.set(shard)?);
                back(cx, router, &set, &reply)
            });
        };
        let body = narrowed(cx.request.body, "query", &chosen);
        let reply = send(cx, router, known, chosen.shard, body.as_doc())?;
        let set = known.set(chosen.shard)?;
        let done = reply.body.as_doc().get_doc("lastErrorObject");
        if done.and_then(|d| d.get("n")?.as_i64_exact()) != Some(0) {
            return back(cx, router, set, &reply);
        }
    }
    Err(too_often())
}

fn send(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    shard: usize,
    body: Doc<'_>,
) -> Result<Reply> {
    let versions = known.versions(shard);
    let part = Part {
        set: known.set(shard)?,
        db: cx.db(),
        body,
        beside: Beside::Nothing,
        versions: Some(versions.as_doc()),
        reach: PRIMARY,
    };
    ask_one(cx, router, &part)
}
