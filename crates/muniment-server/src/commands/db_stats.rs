//! `dbStats`.

use super::coll_stats::scale;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Routed, RunsOn};
use muniment_auth::action::Action;
use muniment_value::Result;
use muniment_value::args::{Field, Types, opt};

const FIELDS: &[Field] = &[
    opt("scale", Types::NUMBER),
    opt("freeStorage", Types::SAFE_BOOL),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "dbStats",
    aliases: &["dbstats"],
    doc: "Sizes of a database",
    fields: FIELDS,
    run,
    runs_on: Some(RunsOn::Data),
    ..CommandSpec::new(
        Routed::By(crate::router::sharded::stats::db_stats),
        Needs::database(&[Action::DbStats]),
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let scale = scale(cx)?;
    let by = |n: u64| (n / scale) as f64;
    let store = &cx.engine().store;
    let (mut objects, mut data, mut storage, mut index_bytes) = (0, 0, 0, 0);
    let mut indexes = 0;
    let collections = store.collections(cx.db());
    for c in &collections {
        if c.is_time_series() {
            // The figures of a time series are those of its buckets, as in MongoDB.
            let buckets = cx.engine().bucket_figures(c, &**cx.op)?;
            objects += buckets.count;
            data += buckets.bytes;
        } else {
            objects += c.count();
            data += c.data_bytes();
        }
        storage += store.storage_bytes(c);
        let all = c.indexes();
        indexes += all.len();
        for index in all.iter() {
            index_bytes += store.index_bytes(c, index, &**cx.op)?;
        }
    }
    let (used, total) = disk(&cx.server.options.dbpath);
    // A time series counts as a view, as in MongoDB: it is one over its buckets.
    let series = collections.iter().filter(|c| c.is_time_series()).count();
    let views = (cx.engine().views(cx.db(), &**cx.op)?.len() + series) as i64;
    let w = &mut cx.reply;
    w.field("db", cx.request.db);
    w.field("collections", collections.len() as i64);
    w.field("views", views);
    w.field("objects", objects as i64);
    w.field(
        "avgObjSize",
        if objects == 0 {
            0.0
        } else {
            data as f64 / objects as f64
        },
    );
    w.field("dataSize", by(data));
    w.field("storageSize", by(storage));
    if cx.args.bool("freeStorage", false) {
        w.field("freeStorageSize", 0.0);
        w.field("indexFreeStorageSize", 0.0);
        w.field("totalFreeStorageSize", 0.0);
    }
    w.field("indexes", indexes as i64);
    w.field("indexSize", by(index_bytes));
    w.field("totalSize", by(storage + index_bytes));
    w.field("scaleFactor", scale as i64);
    w.field("fsUsedSize", by(used));
    w.field("fsTotalSize", by(total));
    Ok(())
}

/// Used and total bytes of the file system that holds `path`.
fn disk(path: &std::path::Path) -> (u64, u64) {
    use std::os::unix::ffi::OsStrExt;
    let Ok(c) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
        return (0, 0);
    };
    let mut s = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path ends with a zero byte, and the struct is owned by this function.
    let s = unsafe {
        if libc::statvfs(c.as_ptr(), s.as_mut_ptr()) != 0 {
            return (0, 0);
        }
        s.assume_init()
    };
    let total = s.f_blocks * s.f_frsize;
    (total.saturating_sub(s.f_bfree * s.f_frsize), total)
}
