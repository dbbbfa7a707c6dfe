//! What serverStatus shows of a member: `metrics.repl` and the section `oplog`.

use super::ReplicaSet;
use super::inbox::ROOM;
use super::timestamps::timestamp;
use muniment_storage::Store;
use muniment_value::{DocBuf, Result, doc};

/// The section `oplog`: the timestamps of the newest entry and of the oldest that can be read.
///
/// # Errors
/// The log's, for instance 14031 while there is none.
pub fn oplog(store: &Store) -> Result<DocBuf> {
    let oldest = store.log_entries(store.log_begins_after()?)?.next()?;
    let latest = store.position()?.applied.at;
    Ok(doc! {
        "latestOptime": timestamp(latest),
        "earliestOptime": timestamp(oldest.map_or(latest, |e| e.at)),
    })
}

/// `metrics.repl`. On a standalone it is what came from others, which is nothing.
pub fn metrics(store: &Store, set: Option<&ReplicaSet>) -> DocBuf {
    let f = store.follow_stats();
    let ops = f.ops.iter().sum::<u64>() as i64;
    let apply = doc! {
        "batchSize": ops,
        "batches": doc! { "num": f.batches as i64, "totalMillis": (f.micros / 1000) as i64 },
        "ops": ops,
    };
    let mut network = doc! { "bytes": f.bytes as i64, "ops": ops };
    let Some(set) = set else {
        return doc! { "apply": apply, "network": network };
    };
    let figures = &set.figures;
    network.append("notPrimaryUnacknowledgedWrites", figures.unacknowledged());
    let node = set.node();
    let (waiting, bytes) = node.as_ref().map_or((0, 0), |node| node.inbox.held());
    doc! {
        "apply": apply,
        "buffer": doc! {
            "write": doc! {
                "count": waiting as i64,
                "maxSizeBytes": ROOM as i64,
                "sizeBytes": bytes as i64,
            },
        },
        "network": network,
        "stateTransition": figures.state_transition(),
        "syncSource": figures.sync_source(),
        "waiters": doc! {
            "opTime": figures.waiting(),
            "replication": node.map_or(0, |node| node.waiting()) as i64,
        },
    }
}
