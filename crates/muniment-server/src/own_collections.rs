//! The server's own collections, as MongoDB's standalone has them: `admin.system.version` with the feature
//! compatibility version, `local.startup_log` with a document for each start, and `config.system.sessions`,
//! into which [`refresh_sessions`] writes the sessions that were used.
//!
//! Invariant: none of this keeps the server from starting. If a collection cannot be written (because the
//! disk is full), the log warns, and the next start or refresh tries again.

use crate::auth;
use crate::oplog_window;
use crate::router::forward;
use crate::sessions::{Job, TIMEOUT_MINUTES};
use crate::sets::Until;
use crate::state::ServerState;
use muniment_exec::{
    DeleteStatement, InsertOptions, OpContext, UpdateStatement, VERSION_DOCUMENT, session_doc,
};
use muniment_logger::{hostname, now_ms};
use muniment_member::ask_primary;
use muniment_storage::{Collection, CollectionOptions, IndexSpec, SessionKey};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc};
use muniment_wire::client::check_ok;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The collection with the feature compatibility version.
const VERSION: &str = muniment_exec::VERSION_COLLECTION;
/// The collection with a document for each start.
const STARTUP_LOG: &str = "local.startup_log";
/// The size of the capped collection [`STARTUP_LOG`], in bytes.
const STARTUP_LOG_BYTES: i64 = 10 << 20;
/// The collection of sessions and their last use.
pub const SESSIONS: &str = "config.system.sessions";

/// How often [`refresh_sessions`] is due, like MongoDB's logicalSessionRefreshMillis.
pub const REFRESH_EVERY: Duration = Duration::from_secs(300);

/// Creates the missing collections, and writes this start into the startup log. A member of a replica set
/// creates none before it is primary.
pub fn prepare(server: &ServerState) {
    if server.replica_set.is_some() {
        return;
    }
    let op = OpContext::internal("startup");
    told(server, STARTUP_LOG, startup(server, &op));
    prepare_shared(server, &op);
}

/// Creates the collections that all members share, on a member that has become primary.
pub fn prepare_as_primary(server: &ServerState) {
    prepare_shared(server, &OpContext::internal("primary"));
}

fn prepare_shared(server: &ServerState, op: &Arc<OpContext>) {
    told(server, VERSION, version(server, op));
    told(server, SESSIONS, sessions(server, op).map(|_| ()));
    told(server, "system.views", series(server, op));
    let earlier = oplog_window::drop_earlier(server, op);
    told(server, oplog_window::NAMESPACE, earlier);
}

fn told(server: &ServerState, name: &str, made: Result<()>) {
    if let Err(e) = made {
        server.log.startup_warning(
            20_557,
            &format!("the collection {name} could not be written at this start: {e}"),
        );
    }
}

/// The collection, which is created if it is missing.
///
/// # Errors
/// Those of creating it.
fn collection(
    server: &ServerState,
    op: &OpContext,
    name: &str,
    options: CollectionOptions,
) -> Result<Arc<Collection>> {
    let there = || server.engine.store.collection(name);
    if let Some(c) = there() {
        return Ok(c);
    }
    match server.engine.create_collection(name, options, op) {
        Err(e) if e.code() == Code::NamespaceExists => there().ok_or(e),
        other => other,
    }
}

fn insert(server: &ServerState, op: &Arc<OpContext>, name: &str, d: &DocBuf) -> Result<()> {
    let one = || Box::new(std::iter::once(d.as_doc())) as Box<dyn Iterator<Item = Doc<'_>>>;
    let options = InsertOptions::default();
    let mut out = server.engine.insert_many(op, name, &one, options)?;
    out.errors.pop().map_or(Ok(()), |e| Err(e.error))
}

/// Corrects the entries of `system.views` for the time series of every database.
fn series(server: &ServerState, op: &OpContext) -> Result<()> {
    let databases = server.engine.store.databases();
    let settle = |db: &String| server.engine.settle_series(op, db);
    databases.iter().try_for_each(settle)
}

fn version(server: &ServerState, op: &Arc<OpContext>) -> Result<()> {
    let c = collection(server, op, VERSION, CollectionOptions::default())?;
    let snapshot = server.engine.store.snapshot();
    let is_there = |id| Ok::<_, Error>(snapshot.find_by_id(&c, Value::String(id))?.is_some());
    if !is_there(VERSION_DOCUMENT)? {
        let d = doc! { "_id": VERSION_DOCUMENT, "version": "8.0" };
        insert(server, op, VERSION, &d)?;
    }
    // The users of a version that did not write this yet.
    let has_users = server.engine.store.collection(auth::USERS).is_some();
    match has_users && !is_there(auth::SCHEMA_ID)? {
        true => insert(server, op, VERSION, &auth::schema()),
        false => Ok(()),
    }
}

/// The document about this start in [`STARTUP_LOG`].
fn startup_document(server: &ServerState) -> DocBuf {
    let (host, now) = (hostname(), server.lifecycle.started_ms);
    doc! {
        "_id": format!("{host}-{now}"),
        "hostname": host.as_str(),
        "startTime": Value::DateTime(now),
        "startTimeLocal": local_time(now),
        "cmdLine": &server.options.parsed,
        "pid": i64::from(std::process::id()),
        "buildinfo": crate::server::build_info(),
    }
}

fn startup(server: &ServerState, op: &Arc<OpContext>) -> Result<()> {
    let options = CollectionOptions {
        capped_size: Some(STARTUP_LOG_BYTES as u64),
        document: doc! { "capped": true, "size": STARTUP_LOG_BYTES as i32 },
        ..CollectionOptions::default()
    };
    collection(server, op, STARTUP_LOG, options)?;
    insert(server, op, STARTUP_LOG, &startup_document(server))
}

/// The collection of sessions, with the index that lets them expire.
fn sessions(server: &ServerState, op: &OpContext) -> Result<Arc<Collection>> {
    let c = collection(server, op, SESSIONS, CollectionOptions::default())?;
    let name = "lsidTTLIndex";
    if !c.indexes().iter().any(|i| i.spec().name == name) {
        let spec = doc! {
            "v": 2,
            "key": doc! { "lastUse": 1 },
            "name": name,
            "expireAfterSeconds": TIMEOUT_MINUTES * 60,
        };
        let spec = IndexSpec::parse(spec.as_doc())?;
        server.engine.store.create_index(&c, spec, op)?;
    }
    Ok(c)
}

/// Writes the sessions that were used since the last refresh, and removes those that were ended. A member of
/// a set that is not primary sends them to the primary, which writes them; a router sends them to the primary of the
/// configuration, so that one collection has those of the whole cluster.
///
/// # Errors
/// Those of writing or sending; the next refresh writes what this one did not.
pub fn refresh_sessions(server: &ServerState, op: &Arc<OpContext>) -> Result<()> {
    let writes = server.is_writable() && server.router.is_none();
    if writes {
        sessions(server, op)?;
    }
    let (began, began_ms) = (Instant::now(), now_ms());
    let begun = server.sessions.begin_refresh();
    let ended = server.sessions.take_ended();
    let done = match writes {
        true => write_sessions(server, op, &ended)
            .and_then(|n| server.transactions.reap(server, &**op).map(|()| n)),
        false => tell_primary(server, &ended, |d| match &server.router {
            Some(router) => {
                let until = muniment_op::now() + ANSWERS;
                let on = Until { on: &**op, until };
                forward::run(&on, router, &router.config, "admin", &d, true)
            }
            None => {
                let not_primary = || Error::new(Code::NotWritablePrimary, "not primary");
                let set = server.replica_set.as_ref().ok_or_else(not_primary)?;
                ask_primary(set, op, "admin", d, Some(ANSWERS))
            }
        }),
    };
    let taken = ended.len();
    match done {
        Ok(_) => server.sessions.refreshed(begun),
        Err(_) => server.sessions.give_back_ended(ended),
    }
    let mut job = server.sessions.job.lock();
    *job = Job {
        count: job.count.saturating_add(1),
        began_ms,
        took_ms: i32::try_from(began.elapsed().as_millis()).unwrap_or(i32::MAX),
        refreshed: done.as_ref().map_or(0, |n| *n as i32),
        ended: done.as_ref().map_or(0, |_| taken as i32),
    };
    done.map(|_| ())
}

/// How many sessions are written at once.
const AT_ONCE: usize = 1000;

/// Writes used sessions and removes ended ones. Returns how many were written.
fn write_sessions(
    server: &ServerState,
    op: &Arc<OpContext>,
    ended: &HashSet<SessionKey>,
) -> Result<usize> {
    let mut written = 0;
    for part in server.sessions.used_since_refresh() {
        for some in part.chunks(AT_ONCE) {
            write_used(server, op, some)?;
            written += some.len();
        }
    }
    // A session that was ended may have been used again since then.
    let gone = ended.iter().filter(|id| !server.sessions.is_known(id));
    let gone: Vec<&SessionKey> = gone.collect();
    for some in gone.chunks(AT_ONCE) {
        take_away(server, op, some)?;
    }
    Ok(written)
}

/// The primary has to answer within this time, because other work of the thread waits meanwhile.
const ANSWERS: Duration = Duration::from_secs(10);

/// Sends the sessions to the primary that `ask` asks. Returns how many were sent.
fn tell_primary(
    server: &ServerState,
    ended: &HashSet<SessionKey>,
    ask: impl Fn(DocBuf) -> Result<DocBuf>,
) -> Result<usize> {
    let tell = |command: &str, some: &mut dyn Iterator<Item = &SessionKey>| {
        let all: ArrayBuf = some.map(session_doc).collect();
        let mut d = DocBuf::new();
        d.append(command, all);
        check_ok(ask(d)?.as_doc())
    };
    let mut told = 0;
    for part in server.sessions.used_since_refresh() {
        for some in part.chunks(AT_ONCE) {
            // Noted before they are sent, as in `write_used` before they are written.
            server.sessions.written(some.iter().map(|(id, _)| id));
            tell("refreshSessions", &mut some.iter().map(|(id, _)| id))?;
            told += some.len();
        }
    }
    let gone = ended.iter().filter(|id| !server.sessions.is_known(id));
    let gone: Vec<&SessionKey> = gone.collect();
    for some in gone.chunks(AT_ONCE) {
        tell("endSessions", &mut some.iter().copied())?;
    }
    Ok(told)
}

/// The filter for the document of a session.
fn key(session: &SessionKey) -> DocBuf {
    doc! { "_id": session_doc(session) }
}

fn write_used(
    server: &ServerState,
    op: &Arc<OpContext>,
    used: &[(SessionKey, Duration)],
) -> Result<()> {
    // The sessions are marked as written before they are, so that the next refresh removes one that is ended
    // in between.
    server.sessions.written(used.iter().map(|(id, _)| id));
    let documents: Vec<_> = used
        .iter()
        .map(|(id, idle)| {
            let at = Value::DateTime(now_ms() - idle.as_millis() as i64);
            (key(id), doc! { "$max": doc! { "lastUse": at } })
        })
        .collect();
    let mut updates = documents.iter().map(|(q, u)| {
        Ok(UpdateStatement {
            upsert: true,
            ..UpdateStatement::new(q.as_doc(), Value::Document(u.as_doc()))
        })
    });
    let mut out = server.engine.update_many(op, SESSIONS, &mut updates, false);
    first_error(&mut out.errors)
}

fn take_away(server: &ServerState, op: &Arc<OpContext>, gone: &[&SessionKey]) -> Result<()> {
    let gone: Vec<_> = gone.iter().map(|id| key(id)).collect();
    let mut deletes = gone.iter().map(|q| {
        Ok(DeleteStatement {
            filter: q.as_doc(),
            multi: false,
            hint: None,
            let_: Doc::EMPTY,
            collation: None,
        })
    });
    let mut out = server.engine.delete_many(op, SESSIONS, &mut deletes, false);
    first_error(&mut out.errors)
}

fn first_error(errors: &mut Vec<muniment_exec::WriteError>) -> Result<()> {
    errors.pop().map_or(Ok(()), |e| Err::<(), Error>(e.error))
}

/// A time in the format of `ctime`, with milliseconds, in the local zone.
fn local_time(ms: i64) -> String {
    let seconds: libc::time_t = ms.div_euclid(1000);
    let mut text = [0_u8; 64];
    // SAFETY: a zeroed `tm` is valid (numbers, and a pointer that is not read); the buffer's length is given,
    // and the format is a C string.
    let n = unsafe {
        let mut parts: libc::tm = std::mem::zeroed();
        libc::localtime_r(&seconds, &mut parts);
        libc::strftime(
            text.as_mut_ptr().cast(),
            text.len(),
            c"%a %b %e %H:%M:%S".as_ptr(),
            &parts,
        )
    };
    let text = String::from_utf8_lossy(text.get(..n).unwrap_or_default());
    format!("{text}.{:03}", ms.rem_euclid(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_time_reads_as_ctime_writes_it() {
        let text = local_time(1_700_000_000_123);
        // The date depends on the machine's zone, but is within a day of 2023-11-14.
        assert_eq!(text.len(), "Tue Nov 14 22:13:20.123".len(), "{text}");
        assert!(
            text.contains(" Nov 1") && text.ends_with(":20.123"),
            "{text}"
        );
    }
}
