//! find on a sharded collection.

use super::reads::at_least_one;
use super::remote::Remote;
use super::{broadcast, reached, to_one};
use crate::context::CommandContext;
use crate::router::Router;
use crate::router::tables::Known;
use bytes::Bytes;
use muniment_exec::{BatchLimits, Cursor};
use muniment_query::DocStream;
use muniment_value::{Code, Doc, DocBuf, Error, Result, number};
use std::collections::VecDeque;
use std::sync::Arc;

/// Runs find. If one shard has all that the filter can match, its cursor is passed on; else the router has a cursor
/// over those of the shards.
///
/// # Errors
/// The shards'.
pub fn run(cx: &mut CommandContext<'_>, router: &Router, known: &Arc<Known>) -> Result<()> {
    let filter = cx.args.doc("filter").unwrap_or(Doc::EMPTY);
    let shards = at_least_one(reached(cx, known, filter, cx.args.doc("collation")));
    if let [one] = shards.as_slice() {
        return to_one(cx, router, known, *one);
    }
    if cx.args.bool("tailable", false) {
        return Err(Error::bad_value(
            "a sharded collection is not capped, and so has no tailable cursors",
        ));
    }
    if cx.args.doc("sort").is_some_and(|sort| !sort.is_empty()) {
        return Err(Error::new(
            Code::NotImplemented,
            "sorted finds over shards are not there yet",
        ));
    }
    let of = |name: &str| {
        cx.args
            .get(name)
            .and_then(number::to_i64_clamped)
            .unwrap_or(0)
            .max(0)
    };
    let (skip, limit) = (of("skip"), of("limit"));
    let mut body = DocBuf::new();
    for e in cx.request.body {
        match e.name() {
            "skip" | "singleBatch" => {}
            "limit" if limit > 0 => {
                body.append("limit", limit.saturating_add(skip));
            }
            _ => {
                body.append_elem(e);
            }
        }
    }
    let replies = broadcast(cx, router, known, &shards, body.as_doc())?;
    let limits = match cx.args.int("batchSize", 0, i64::MAX)? {
        Some(n) => BatchLimits::of(n as usize),
        None => BatchLimits::FIRST,
    };
    let single = cx.args.bool("singleBatch", false);
    let cursor = Cursor::over(cx.ns(), cx.op, single, |on| {
        let mut parts = VecDeque::new();
        for (reply, shard) in replies.iter().zip(&shards) {
            parts.push_back(Remote::new(cx, known.set(*shard)?, reply, &on)?);
        }
        Ok(Box::new(Window {
            source: Box::new(One { parts }),
            skip: skip as u64,
            left: if limit > 0 { limit as u64 } else { u64::MAX },
        }))
    })?;
    cx.first_batch(cursor, limits)
}

/// One stream after the other.
struct One {
    parts: VecDeque<Remote>,
}

impl DocStream for One {
    fn next(&mut self) -> Result<Option<Bytes>> {
        while let Some(first) = self.parts.front_mut() {
            if let Some(d) = first.next()? {
                return Ok(Some(d));
            }
            self.parts.pop_front();
        }
        Ok(None)
    }
}

/// A part of a stream.
struct Window {
    source: Box<dyn DocStream>,
    skip: u64,
    left: u64,
}

impl DocStream for Window {
    fn next(&mut self) -> Result<Option<Bytes>> {
        while self.skip > 0 {
            self.skip -= 1;
            if self.source.next()?.is_none() {
                self.skip = 0;
                self.left = 0;
            }
        }
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.source.next()
    }
}
