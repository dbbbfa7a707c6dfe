//! What runs on the shards, as `currentOp`, `$currentOp` and `killOp` at a router see it.
//!
//! An operation of a shard has the shard's name before its number there (`shard0:123`), and its client is the router's
//! connection (`client_s`), as in MongoDB.

use super::forward::{Own, ask_own_of_all, run, run_on};
use super::{Reach, Router};
use muniment_op::Interrupt;
use muniment_value::{Code, Doc, DocBuf, Error, Result, array, doc};
use muniment_wire::client::check_ok;

/// The most operations in a batch.
const BATCH: i32 = 100_000;

/// What `$currentOp` with this operand shows on the primaries of all shards, and the resharding that this router does.
///
/// # Errors
/// Those of the shards.
pub fn of_shards(on: &dyn Interrupt, router: &Router, operand: Doc<'_>) -> Result<Vec<DocBuf>> {
    let mut stage = DocBuf::new();
    for e in operand.iter().filter(|e| e.name() != "localOps") {
        stage.append_elem(e);
    }
    let command = doc! {
        "aggregate": 1, "pipeline": array![doc! { "$currentOp": stage }],
        "cursor": doc! { "batchSize": BATCH },
    };
    let shards = router.catalog.shards(on, router)?;
    let asked = shards.iter().map(|(_, set)| Own {
        set,
        db: "admin",
        command: &command,
        versions: None,
        reach: Reach::Primary,
    });
    let replies = ask_own_of_all(on, router, &asked.collect::<Vec<_>>());
    let mut all = router.resharding.to_docs();
    for (reply, (shard, set)) in replies.into_iter().zip(&shards) {
        let reply = reply?;
        let (host, mut body) = (reply.host, reply.body);
        loop {
            check_ok(body.as_doc())?;
            let cursor = body.as_doc().get_doc("cursor").unwrap_or(Doc::EMPTY);
            let first = cursor.get_array("firstBatch");
            let batch = first.or_else(|| cursor.get_array("nextBatch"));
            let batch = batch.unwrap_or(Doc::EMPTY).values();
            all.extend(batch.filter_map(|v| v.as_doc()).map(|d| named(shard, d)));
            let id = cursor.get("id").and_then(|v| v.as_i64_exact());
            let Some(id) = id.filter(|id| *id != 0) else {
                break;
            };
            let more = doc! { "getMore": id, "collection": "$cmd.aggregate", "batchSize": BATCH };
            body = run_on(on, router, set, &host, "admin", &more)?;
        }
    }
    Ok(all)
}

/// An operation with its shard's name.
fn named(shard: &str, d: Doc<'_>) -> DocBuf {
    let mut named = doc! { "shard": shard };
    for e in d {
        match (e.name(), e.value().as_i64_exact()) {
            ("opid", Some(id)) => named.append("opid", format!("{shard}:{id}")),
            ("client", _) => named.append("client_s", e.value()),
            _ => named.append_elem(e),
        };
    }
    named
}

/// Ends an operation that is named as [`of_shards`] does it: its shard, and its number there.
///
/// # Errors
/// 28625 for another form; 70 ShardNotFound; 9 FailedToParse for a number that is none; the shard's.
pub fn kill(on: &dyn Interrupt, router: &Router, operation: &str) -> Result<(String, i64)> {
    let parts = operation.rsplit_once(':');
    let parts = parts.filter(|(shard, id)| !shard.is_empty() && !id.is_empty());
    let (shard, id) = parts.ok_or_else(|| {
        Error::location(
            28_625,
            format!(
                "The op argument to killOp must be of the format shardid:opid but found \"{operation}\""
            ),
        )
    })?;
    let set = router.catalog.shard(on, router, shard)?;
    let id: i64 = id.parse().map_err(|_| {
        Error::new(
            Code::FailedToParse,
            format!("Did not consume whole string: \"{id}\" is no operation's number"),
        )
    })?;
    let kill = doc! { "killOp": 1, "op": id };
    // Sent again, it could end an operation of another primary that has the same number.
    run(on, router, &set, "admin", &kill, false)?;
    Ok((shard.to_string(), id))
}
