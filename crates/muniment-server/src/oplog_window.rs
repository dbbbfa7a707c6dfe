//! How much of the oplog is kept: what the options say, and what `replSetResizeOplog` has said, which
//! outlives the server, as the options of MongoDB's oplog collection do.
//!
//! Invariant: it is told to the storage before anything can trim the log with another one.

use crate::log::{Logger, Severity};
use crate::options::ServerOptions;
use crate::own_collections;
use crate::state::ServerState;
use muniment_exec::{OpContext, UpdateStatement};
use muniment_query::Interrupt;
use muniment_storage::{CollectionOptions, Store};
use muniment_value::{Doc, DocBuf, Result, Value, doc, number};
use std::sync::Arc;
use std::time::Duration;

/// Where it is stored: beside what else a member has for itself alone.
const NAMESPACE: &str = "local.replset.oplogWindow";
/// The `_id` of its only document.
const ID: &str = "oplogWindow";
/// Bytes.
const SIZE: &str = "size";
/// Hours.
const HOURS: &str = "minRetentionHours";

/// A time of so many hours; `None` if it is none. Too long for a number of nanoseconds is for ever.
pub fn time_of(hours: f64) -> Option<Duration> {
    match Duration::try_from_secs_f64(hours * 3600.0) {
        Ok(time) => Some(time),
        Err(_) => (hours > 0.0).then_some(Duration::MAX),
    }
}

/// Tells the storage what holds at a start. What was resized has its size whatever the options say,
/// as in MongoDB, where they make a new oplog only; the time that the options say is newer than a
/// stored one. Without either: of a set 5 % of the free disk, but at least 990 MB and at most 50 GB, as
/// MongoDB does; of a standalone what the storage has.
pub fn restore(options: &ServerOptions, store: &Store, log: &Logger) {
    let (own, _) = store.log_window();
    let for_members = || {
        let free = muniment_storage::disk_space(&options.dbpath).map(|(free, _)| free);
        free.map(|free| (free / 20).clamp(990 << 20, 50 << 30))
    };
    let of_set = options.replica_set.is_some() && store.is_durable();
    let stored = stored(store).unwrap_or_else(|e| {
        log.log(
            Severity::Warning,
            "STORAGE",
            6_226_302,
            "initandlisten",
            "What replSetResizeOplog has set cannot be read",
            Some(&doc! { "namespace": NAMESPACE, "error": e.to_string() }),
        );
        DocBuf::new()
    });
    let (bytes, time) = chosen(stored.as_doc(), options);
    let bytes = bytes.or_else(|| of_set.then(for_members).flatten());
    store.keep_log(bytes.unwrap_or(own), time);
}

/// The size, if anybody has said one, and the time.
fn chosen(stored: Doc<'_>, options: &ServerOptions) -> (Option<u64>, Duration) {
    let size = stored.get(SIZE).and_then(number::to_i64_exact);
    let size = size.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
    let time = stored.get(HOURS).and_then(number::to_f64).and_then(time_of);
    let time = options.oplog_min_retention.or(time).unwrap_or_default();
    (size.or(options.oplog_bytes), time)
}

fn stored(store: &Store) -> Result<DocBuf> {
    let Some(collection) = store.collection(NAMESPACE) else {
        return Ok(DocBuf::new());
    };
    let found = store.glance()?.find_by_id(&collection, Value::String(ID))?;
    Ok(found.map_or_else(DocBuf::new, |(_, d)| Doc::new(&d).to_buf()))
}

/// Stores what was given of `bytes` and `hours`, and waits until it is on the disk.
///
/// # Errors
/// A write's.
pub fn store(
    server: &ServerState,
    op: &Arc<OpContext>,
    bytes: Option<u64>,
    hours: Option<f64>,
) -> Result<()> {
    let mut given = DocBuf::new();
    given.append_some(SIZE, bytes.and_then(|n| i64::try_from(n).ok()));
    given.append_some(HOURS, hours);
    let filter = doc! { "_id": ID };
    let set = doc! { "$set": given };
    let statement = UpdateStatement {
        upsert: true,
        ..UpdateStatement::new(filter.as_doc(), Value::Document(set.as_doc()))
    };
    own_collections::collection(server, op, NAMESPACE, CollectionOptions::default())?;
    server.engine.update(op, NAMESPACE, &statement)?;
    let store = &server.engine.store;
    let interrupt: &dyn Interrupt = &**op;
    store.wait_journaled(store.last_commit(), interrupt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_resized_and_what_the_options_say() {
        let said = ServerOptions {
            oplog_bytes: Some(7),
            oplog_min_retention: Some(Duration::from_secs(60)),
            ..ServerOptions::default()
        };
        let silent = ServerOptions::default();
        let stored = doc! { "size": 9_i64, "minRetentionHours": 0.5 };
        let half = Duration::from_secs(1800);
        let minute = Duration::from_secs(60);
        for (stored, options, want) in [
            (doc! {}, &silent, (None, Duration::ZERO)),
            (doc! {}, &said, (Some(7), minute)),
            (stored.clone(), &silent, (Some(9), half)),
            (stored, &said, (Some(9), minute)),
            (
                doc! { "minRetentionHours": 1e300 },
                &silent,
                (None, Duration::MAX),
            ),
            (
                doc! { "size": "x", "minRetentionHours": -1 },
                &silent,
                (None, Duration::ZERO),
            ),
        ] {
            assert_eq!(chosen(stored.as_doc(), options), want, "{stored:?}");
        }
    }
}
