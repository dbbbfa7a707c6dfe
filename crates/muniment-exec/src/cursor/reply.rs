//! The `cursor` element of replies, for first batches and getMore.

use super::{BatchEnd, BatchLimits, Cursor, CursorOwner, GetMoreRequest};
use crate::database::Database;
use crate::operation::OpContext;
use muniment_query::Interrupt;
use muniment_value::{Code, DocBuf, Error, Result, Type};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Appends `cursor: {NAME: […], id, ns}`. `fill` appends the array's elements and returns the
/// cursor's id, which the operation notes.
fn append_reply(
    op: &OpContext,
    out: &mut Vec<u8>,
    array: &str,
    namespace: &str,
    fill: impl FnOnce(&mut Vec<u8>) -> Result<(i64, Option<DocBuf>)>,
) -> Result<i64> {
    let start = out.len();
    out.push(Type::Document as u8);
    out.extend_from_slice(b"cursor\0");
    let doc_at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.push(Type::Array as u8);
    out.extend_from_slice(array.as_bytes());
    out.push(0);
    let array_at = out.len();
    out.extend_from_slice(&[0; 4]);
    let (id, token) = match fill(out) {
        Ok(done) => done,
        Err(e) => {
            out.truncate(start);
            return Err(e);
        }
    };
    out.push(0);
    set_length(out, array_at);
    out.push(Type::Int64 as u8);
    out.extend_from_slice(b"id\0");
    out.extend_from_slice(&id.to_le_bytes());
    out.push(Type::String as u8);
    out.extend_from_slice(b"ns\0");
    out.extend_from_slice(&(namespace.len() as u32 + 1).to_le_bytes());
    out.extend_from_slice(namespace.as_bytes());
    out.push(0);
    if let Some(token) = token {
        out.push(Type::Document as u8);
        out.extend_from_slice(b"postBatchResumeToken\0");
        out.extend_from_slice(token.as_bytes());
    }
    let at = op.pinned().map(|view| view.read_time()).or(op.reading_at());
    if let Some(at) = at {
        out.push(Type::Timestamp as u8);
        out.extend_from_slice(b"atClusterTime\0");
        out.extend_from_slice(&at.0.to_le_bytes());
    }
    out.push(0);
    set_length(out, doc_at);
    op.set_cursor(id);
    Ok(id)
}

fn set_length(out: &mut [u8], at: usize) {
    let n = ((out.len() - at) as u32).to_le_bytes();
    if let Some(head) = out.get_mut(at..at + 4) {
        head.copy_from_slice(&n);
    }
}

/// Implements [`Database::first_batch`].
pub(crate) fn first_batch(
    engine: &Database,
    op: &Arc<OpContext>,
    mut cursor: Cursor,
    owner: CursorOwner,
    limits: BatchLimits,
    out: &mut Vec<u8>,
) -> Result<i64> {
    let namespace = cursor.namespace.clone();
    append_reply(op, out, "firstBatch", &namespace, |out| {
        let end = cursor.fill_batch(op, out, limits);
        let end = end.map_err(|e| e.context(&cursor.opener.context(&cursor.namespace)))?;
        let token = cursor.token(end);
        if end.exhausted || cursor.flags.single_batch {
            return Ok((0, token));
        }
        cursor.time_left = op.time_left();
        // The next batch sees what was written meanwhile, as in MongoDB, so the snapshot is not
        // kept.
        cursor.rests();
        cursor.pinned = op.pinned().cloned();
        cursor.sharded = op.known_sharded();
        cursor.parsed = op.take_room_of_command();
        Ok((engine.cursors.keep(cursor, op, owner, end.docs), token))
    })
}

/// Implements [`Database::get_more`].
pub(crate) fn get_more(
    engine: &Database,
    op: &Arc<OpContext>,
    request: &GetMoreRequest<'_>,
    out: &mut Vec<u8>,
) -> Result<i64> {
    let mut cursor = engine.cursors.check_out(op, request)?;
    if let Some(view) = &cursor.pinned {
        op.pin(view.clone());
    }
    if let Some(sharded) = &cursor.sharded {
        op.continues_for_router(Arc::clone(sharded));
    }
    if cursor.tail.as_ref().is_some_and(|t| t.is_change_stream()) {
        op.watches_changes();
    }
    if let Some(e) = (request.fails)() {
        engine.cursors.forget(request.id);
        return Err(e);
    }
    let awaits = cursor.flags.tailable && cursor.flags.await_data;
    if request.await_time_given && !awaits {
        engine.cursors.check_in(request.id, cursor, 0);
        return Err(Error::bad_value(
            "cannot set maxTimeMS on getMore command for a non-awaitData cursor",
        ));
    }
    // A getMore that waits for data is limited by its waiting time only.
    if let Some(left) = cursor.time_left.filter(|_| !awaits) {
        let late = (request.is_late)();
        op.limit(if late { Duration::ZERO } else { left });
    }
    let limits = request
        .batch_size
        .filter(|&n| n > 0)
        .map_or(BatchLimits::NEXT, BatchLimits::of);
    let result = append_reply(op, out, "nextBatch", request.namespace, |out| {
        // Even a batch that needs no waiting may be too late.
        op.check()?;
        let end = next_batch(op, &mut cursor, request, limits, out)?;
        let token = cursor.token(end);
        if end.exhausted {
            return Ok((0, token));
        }
        if !awaits {
            cursor.time_left = op.time_left();
        }
        cursor.rests();
        engine.cursors.check_in(request.id, cursor, end.docs);
        Ok((request.id, token))
    });
    if !matches!(result, Ok(id) if id != 0) {
        // The cursor is removed without killing the operation, which is the getMore that is just
        // ending.
        engine.cursors.forget(request.id);
    }
    result
}

fn next_batch(
    op: &Arc<OpContext>,
    cursor: &mut Cursor,
    request: &GetMoreRequest<'_>,
    limits: BatchLimits,
    out: &mut Vec<u8>,
) -> Result<BatchEnd> {
    if let Some(c) = &cursor.collection
        && c.is_dropped()
    {
        return Err(Error::new(
            Code::QueryPlanKilled,
            "collection dropped between getMore calls",
        ));
    }
    let plan_failed = |e: Error| e.context("Executor error during getMore :: caused by :: ");
    if !(cursor.flags.tailable && cursor.flags.await_data) {
        return cursor.fill_batch(op, out, limits).map_err(plan_failed);
    }
    let until = Instant::now() + request.await_time.unwrap_or(Duration::from_secs(1));
    loop {
        // The count of inserts is read before looking for documents. An insert in between then
        // changes the count and ends the wait.
        let seen = cursor.collection.as_ref().map_or(0, |c| c.inserts());
        let end = cursor.fill_batch(op, out, limits).map_err(plan_failed)?;
        if end.docs > 0 || end.exhausted || Instant::now() >= until {
            return Ok(end);
        }
        if cursor.tail.as_ref().is_some_and(|tail| tail.has_news()) {
            return Ok(end);
        }
        op.check()?;
        if let Some(tail) = &cursor.tail {
            op.without_ticket(|| op.counters.idle(|| tail.wait(op, until)))??;
        } else if let Some(c) = &cursor.collection {
            if c.is_dropped() {
                return Err(Error::new(
                    Code::QueryPlanKilled,
                    "collection dropped while the cursor waited for data",
                ));
            }
            op.without_ticket(|| op.counters.idle(|| c.wait_insert(seen, until, &**op)))??;
        }
    }
}
