//! find on a sharded collection.

use super::host::Around;
use super::output::variables;
use super::reads::at_least_one;
use super::remote::{Terms, streams};
use super::{collation_in, gather, reached, to_one, told};
use crate::context::CommandContext;
use crate::placement::merging;
use crate::router::Router;
use crate::router::tables::Known;
use muniment_exec::{BatchLimits, Cursor};
use muniment_query::QueryContext;
use muniment_query::split::{FindParts, split_find};
use muniment_value::{Collation, Doc, DocBuf, Error, Result, number};
use std::sync::Arc;

/// Runs find. If one shard has all that the filter can match, its cursor is passed on; else the router has a cursor
/// over those of the shards.
///
/// # Errors
/// The shards'.
pub fn run(cx: &mut CommandContext<'_>, router: &Router, known: &Arc<Known>) -> Result<()> {
    let filter = cx.args.doc("filter").unwrap_or(Doc::EMPTY);
    let shards = at_least_one(reached(cx, known, filter, collation_in(cx.request.body)));
    let wrong = |name: &str| {
        cx.args
            .get(name)
            .and_then(number::to_i64_clamped)
            .is_some_and(|n| n < 0)
    };
    if let [one, ..] = shards.as_slice()
        && (shards.len() == 1 || wrong("skip") || wrong("limit"))
    {
        return to_one(cx, router, known, *one);
    }
    if cx.args.bool("tailable", false) {
        return Err(Error::bad_value(
            "a sharded collection is not capped, and so has no tailable cursors",
        ));
    }
    let of = |name: &str| {
        cx.args
            .get(name)
            .and_then(number::to_i64_clamped)
            .unwrap_or(0)
            .max(0)
    };
    let collation = collation_in(cx.request.body);
    let own = known.collection.default_collation.as_ref();
    let collation = Collation::parse_some(collation.or(own.map(|d| d.as_doc())))?;
    let let_ = cx.args.doc("let").unwrap_or(Doc::EMPTY);
    let parts = FindParts {
        filter,
        sort: cx.args.doc("sort").unwrap_or(Doc::EMPTY),
        skip: of("skip") as u64,
        limit: of("limit") as u64,
    };
    let ctx = cx.engine().context(cx.op, let_, collation)?;
    let split = split_find(&parts, &ctx)?;
    let body = of_shard(cx, &ctx, split.limit);
    let mut sets = Vec::new();
    for shard in &shards {
        let versions = known.versions(*shard);
        let versions = if split.sort_key {
            merging(versions)
        } else {
            versions
        };
        sets.push((Arc::clone(known.set(*shard)?), versions));
    }
    let replies = gather(cx, router, &sets, body.as_doc())?;
    let limits = match cx.args.int("batchSize", 0, i64::MAX)? {
        Some(n) => BatchLimits::of(n as usize),
        None => BatchLimits::FIRST,
    };
    let single = cx.args.bool("singleBatch", false);
    let allow_disk_use = cx.args.get("allowDiskUse").map(|v| v.truthy());
    let cursor = Cursor::over(cx.ns(), cx.op, single, |on| {
        let terms = Terms::new(cx, &on);
        let streams = streams(&terms, &sets, &replies)?;
        Ok(split.open(streams, &Around::runtime(&terms, allow_disk_use)))
    })?;
    let stays = cx.args.bool("noCursorTimeout", false);
    cx.first_batch(cursor.without_timeout(stays), limits)?;
    told(cx, router);
    Ok(())
}

/// The find for a shard: what the client sent, but it skips nothing and has this limit; 0 for none. The variables of `let`
/// have one value for all shards. The router keeps the shard's cursor open, so it needs no time limit of its own to be
/// without: it would stay open if the router ended.
fn of_shard(cx: &CommandContext<'_>, ctx: &QueryContext, limit: u64) -> DocBuf {
    let mut body = DocBuf::new();
    for e in cx.request.body {
        match e.name() {
            "skip" | "singleBatch" | "noCursorTimeout" => {}
            "let" => {
                body.append("let", variables(ctx));
            }
            "limit" => {
                body.append_some("limit", (limit > 0).then_some(limit as i64));
            }
            _ => {
                body.append_elem(e);
            }
        }
    }
    body
}
