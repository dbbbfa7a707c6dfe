//! The shared parts of commands that answer with a cursor over documents which they make themselves.

use crate::context::CommandContext;
use bytes::Bytes;
use muniment_exec::{BatchLimits, Cursor, OpContext};
use muniment_op::{Account, Share};
use muniment_query::{Clocks, Filter, QueryContext};
use muniment_value::args::{Args, Field, Types, opt};
use muniment_value::{Doc, DocBuf, Error, Result, Value};
use std::sync::Arc;

const CURSOR: &[Field] = &[opt("batchSize", Types::NUMBER)];

/// Limits of the first batch from a `cursor: {batchSize}` option.
pub(crate) fn limits(cursor: Option<Doc<'_>>, default: BatchLimits) -> Result<BatchLimits> {
    let Some(d) = cursor else { return Ok(default) };
    let a = Args::parse("cursor", CURSOR, d)?;
    Ok(match a.int("batchSize", 0, i64::MAX)? {
        Some(n) => BatchLimits::of(n as usize),
        None => default,
    })
}

/// Refuses the operators that need a stored collection.
fn check_operators(filter: Doc<'_>, depth: usize) -> Result<()> {
    for e in filter {
        match (e.name(), e.value()) {
            (name @ ("$text" | "$where"), _) => {
                return Err(Error::bad_value(format!(
                    "{name} is not allowed in this context"
                )));
            }
            ("$near" | "$nearSphere" | "$geoNear", _) => {
                return Err(Error::location(
                    5_626_500,
                    "$geoNear, $near, and $nearSphere are not allowed in this context",
                ));
            }
            (_, Value::Document(d) | Value::Array(d)) if depth < 100 => {
                check_operators(d, depth + 1)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// A filter argument, parsed.
pub(super) fn filter(d: Option<Doc<'_>>, op: &Arc<OpContext>) -> Result<Option<Filter>> {
    if let Some(d) = d {
        check_operators(d, 0)?;
    }
    let ctx = || QueryContext::new().with_clocks(Clocks::None);
    d.filter(|d| !d.is_empty())
        .map(|d| Filter::parse(d, &ctx().with_operation(op.clone())))
        .transpose()
}

/// Answers with a cursor over `documents`.
pub(super) fn answer(
    cx: &mut CommandContext<'_>,
    namespace: &str,
    documents: Vec<DocBuf>,
) -> Result<()> {
    let limits = limits(cx.args.doc("cursor"), BatchLimits::NEXT)?;
    let bytes = documents.iter().map(|d| d.len()).sum();
    let mut share = Share::new(&cx.engine().memory, Account::Cursors);
    share.try_hold(bytes)?;
    let documents = documents
        .into_iter()
        .map(|d| Bytes::from(d.into_bytes()))
        .collect();
    let cursor = Cursor::of_documents(namespace, documents, share);
    cx.first_batch(cursor, limits)?;
    Ok(())
}
