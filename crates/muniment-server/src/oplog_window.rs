//! How much of the oplog is kept: by the options, and by `replSetResizeOplog`, whose values survive a
//! restart, as the options of MongoDB's oplog collection do. Each member has its own window, so the values
//! are in a file of the data directory and not in the log, which is the same on all members; a member that
//! copies another member's data keeps its file. `local.replset.oplogWindow` is generated from it when it is
//! read.
//!
//! Invariant: the storage knows the window before anything can trim the log.

use crate::options::ServerOptions;
use crate::state::ServerState;
use muniment_exec::OpContext;
use muniment_logger::{Logger, Severity};
use muniment_storage::{Store, replace, whole};
use muniment_value::{Doc, DocBuf, Error, Result, Value, doc, number, validate};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// The file, which has one document with the values that were set, and is rewritten as a whole.
const FILE: &str = "oplogWindow";
/// The most bytes of such a document.
const MOST: u64 = 1 << 16;
/// The namespace under which the window can be read. Earlier versions stored it there, in the log that all
/// members share.
pub const NAMESPACE: &str = "local.replset.oplogWindow";
/// The `_id` of its only document.
const ID: &str = "oplogWindow";
/// The field of the size, in bytes.
const SIZE: &str = "size";
/// The field of the retention time, in hours.
const HOURS: &str = "minRetentionHours";

/// The duration of this many hours, or `None` for a number that is no duration. A duration too long for a
/// number of nanoseconds counts as infinite.
pub fn time_of(hours: f64) -> Option<Duration> {
    match Duration::try_from_secs_f64(hours * 3600.0) {
        Ok(time) => Some(time),
        Err(_) => (hours > 0.0).then_some(Duration::MAX),
    }
}

/// Sets the storage's window at a start. As in MongoDB, a size that replSetResizeOplog has set takes
/// precedence over the options, which there only count for a new oplog; but a retention time in the options
/// takes precedence over a stored one. Without any size, a member of a set keeps 5 % of the free disk, but at
/// least 990 MB and at most 50 GB, as MongoDB does, and a standalone the storage's default. Returns the
/// values that replSetResizeOplog has set.
pub fn restore(options: &ServerOptions, store: &Store, log: &Logger) -> DocBuf {
    let (own, _) = store.log_window();
    let for_members = || {
        let space = muniment_storage::disk_space(&*options.machine.disk, &options.dbpath);
        let free = (space != muniment_io::Space::UNKNOWN).then_some(space.free);
        free.map(|free| (free / 20).clamp(990 << 20, 50 << 30))
    };
    let of_set = options.replica_set.is_some() && store.is_durable();
    let stored = stored(options, store).unwrap_or_else(|e| {
        log.log(
            Severity::Warning,
            "STORAGE",
            6_226_302,
            "initandlisten",
            "What replSetResizeOplog has set cannot be read",
            Some(&doc! { "file": FILE, "error": e.to_string() }),
        );
        DocBuf::new()
    });
    let (bytes, time) = chosen(stored.as_doc(), options);
    let bytes = bytes.or_else(|| of_set.then(for_members).flatten());
    store.keep_log(bytes.unwrap_or(own), time);
    stored
}

/// The size, if the file or the options have one, and the time.
fn chosen(stored: Doc<'_>, options: &ServerOptions) -> (Option<u64>, Duration) {
    let size = stored.get(SIZE).and_then(number::to_i64_exact);
    let size = size.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
    let time = stored.get(HOURS).and_then(number::to_f64).and_then(time_of);
    let time = options.oplog_min_retention.or(time).unwrap_or_default();
    (size.or(options.oplog_bytes), time)
}

/// The document in the file. If there is no file, the values that an earlier version has stored, which are
/// then written into the file.
fn stored(options: &ServerOptions, store: &Store) -> Result<DocBuf> {
    let path = options.dbpath.join(FILE);
    match whole(&*options.machine.disk, &path, MOST) {
        Ok(bytes) => Ok(validate(&bytes)?.to_buf()),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let earlier = of_earlier_version(store)?;
            if !earlier.as_doc().is_empty() {
                write(options, store, &earlier)?;
            }
            Ok(earlier)
        }
        Err(e) => Err(failed("reading", &path, e)),
    }
}

fn of_earlier_version(store: &Store) -> Result<DocBuf> {
    let mut d = DocBuf::new();
    let Some(collection) = store.collection(NAMESPACE) else {
        return Ok(d);
    };
    if let Some((_, found)) = store.glance()?.find_by_id(&collection, Value::String(ID))? {
        let found = Doc::new(&found);
        d.append_some(SIZE, found.get(SIZE));
        d.append_some(HOURS, found.get(HOURS));
    }
    Ok(d)
}

/// Removes the values that an earlier version has stored, if this server may write: the file has them now.
///
/// # Errors
/// The storage's.
pub fn drop_earlier(server: &ServerState, op: &OpContext) -> Result<()> {
    let store = &server.engine.store;
    if store.collection(NAMESPACE).is_some() && server.is_writable() {
        store.drop_collection(NAMESPACE, op)?;
    }
    Ok(())
}

/// Writes the file, unless nothing survives the process anyway.
fn write(options: &ServerOptions, store: &Store, d: &DocBuf) -> Result<()> {
    if !store.is_durable() {
        return Ok(());
    }
    replace(
        &*options.machine.disk,
        &options.dbpath,
        FILE,
        d.as_doc().as_bytes(),
    )
    .map_err(|e| failed("writing", &options.dbpath.join(FILE), e))
}

fn failed(doing: &str, path: &Path, e: std::io::Error) -> Error {
    Error::from(e).context(&format!("{doing} {}: ", path.display()))
}

/// Stores the given size and time (in hours and as a duration). They are then on disk, and in force.
///
/// # Errors
/// The disk's.
pub fn store(
    server: &ServerState,
    bytes: Option<u64>,
    time: Option<(f64, Duration)>,
) -> Result<()> {
    let mut window = server.oplog_window.lock();
    let mut next = DocBuf::new();
    let size = bytes.and_then(|n| i64::try_from(n).ok()).map(Value::Int64);
    let hours = time.map(|(hours, _)| Value::Double(hours));
    next.append_some(SIZE, size.or_else(|| window.as_doc().get(SIZE)));
    next.append_some(HOURS, hours.or_else(|| window.as_doc().get(HOURS)));
    write(&server.options, &server.engine.store, &next)?;
    *window = next;
    // This is done under the lock, before another thread can store other values.
    let store = &server.engine.store;
    let (own_bytes, own_time) = store.log_window();
    let time = time.map_or(own_time, |(_, time)| time);
    store.keep_log(bytes.unwrap_or(own_bytes), time);
    Ok(())
}

/// The document of [`NAMESPACE`], if any value was set.
pub fn document(server: &ServerState) -> Option<DocBuf> {
    let window = server.oplog_window.lock();
    let mut d = doc! { "_id": ID };
    d.append_all(window.as_doc());
    (!window.as_doc().is_empty()).then_some(d)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::server::Server;
    use bytes::Bytes;
    use muniment_op::NeverInterrupted;
    use muniment_storage::{CollectionOptions, StoreOptions};

    #[test]
    fn a_window_of_an_earlier_version_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(StoreOptions::new(dir.path())).unwrap();
        let options = CollectionOptions::default();
        let c = store.create_collection(NAMESPACE, options, &NeverInterrupted);
        let mut unit = store.write_unit(&c.unwrap(), &NeverInterrupted).unwrap();
        let stored = doc! { "_id": ID, "size": 7_i64 << 20, "minRetentionHours": 2.0 };
        unit.insert(&Bytes::from(stored.into_bytes()))
            .unwrap()
            .unwrap();
        unit.commit().unwrap();
        store.close().unwrap();
        drop(store);
        let options = ServerOptions::embedded(dir.path().to_path_buf());
        let two_hours = Duration::from_secs(7200);
        for (wanted, set) in [(7_i64, None), (7, Some(9)), (9, None)] {
            let server = Server::start(options.clone()).unwrap();
            let state = server.state();
            let shown = doc! { "_id": ID, "size": wanted << 20, "minRetentionHours": 2.0 };
            assert_eq!(document(state), Some(shown));
            let own = &state.engine.store;
            assert_eq!(own.log_window(), ((wanted as u64) << 20, two_hours));
            assert!(own.collection(NAMESPACE).is_none());
            if let Some(mb) = set {
                super::store(state, Some(mb << 20), None).unwrap();
            }
            server.shutdown().unwrap();
        }
    }

    #[test]
    fn resized_windows_and_options() {
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
