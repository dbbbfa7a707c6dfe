//! Reads what the configuration's set has stored.

use super::forward::{Own, ask_own_of_all};
use super::{Reach, Router};
use crate::read_preference::{Mode, ReadPreference};
use muniment_member::{times_of, timestamp};
use muniment_op::Interrupt;
use muniment_storage::Timestamp;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, array, doc};
use muniment_wire::client::check_ok;

/// So many documents are read at a time. A batch may hold 16 MiB, and a document of the configuration has some hundred
/// bytes.
const PAGE: usize = 10_000;

/// The documents of a collection of the configuration, as a majority has them, sorted by `_id`.
///
/// # Errors
/// Those of the way there, and the set's.
pub fn read(
    on: &dyn Interrupt,
    router: &Router,
    collection: &str,
    filter: DocBuf,
) -> Result<Vec<DocBuf>> {
    read_all(on, router, collection, filter, Reach::Primary)
}

/// As [`read`], for what cannot change, or is compared by the shards: while the configuration has no primary, a
/// secondary tells it.
///
/// # Errors
/// As [`read`].
pub fn read_any(
    on: &dyn Interrupt,
    router: &Router,
    collection: &str,
    filter: DocBuf,
) -> Result<Vec<DocBuf>> {
    let reach = Reach::By(ReadPreference::of(Mode::PrimaryPreferred));
    read_all(on, router, collection, filter, reach)
}

fn read_all(
    on: &dyn Interrupt,
    router: &Router,
    collection: &str,
    filter: DocBuf,
    reach: Reach<'_>,
) -> Result<Vec<DocBuf>> {
    let mut found = Vec::new();
    loop {
        let last = found.last().and_then(|d: &DocBuf| d.as_doc().get("_id"));
        let rest = match last {
            None => filter.clone(),
            // All `_id`s of these collections are of one type.
            Some(id) => doc! { "$and": array![&filter, doc! { "_id": doc! { "$gt": id } }] },
        };
        let page = read_after(on, router, collection, rest, ("_id", PAGE), reach)?;
        let last = is_last(&page, PAGE);
        found.extend(page);
        if last {
            return Ok(found);
        }
    }
}

/// Whether no documents follow those that were read, of which there are `most` at most. A batch also ends before it has
/// 16 MiB, so one that has fewer documents and is not small may have others after it.
pub fn is_last(page: &[DocBuf], most: usize) -> bool {
    const SMALL: usize = 1 << 20;
    let bytes: usize = page.iter().map(|d| d.as_bytes().len()).sum();
    page.is_empty() || (page.len() < most && bytes < SMALL)
}

/// The first `most` documents in the order of a field, as a majority has them.
///
/// # Errors
/// As [`read`].
pub fn read_after(
    on: &dyn Interrupt,
    router: &Router,
    collection: &str,
    filter: DocBuf,
    (by, most): (&str, usize),
    reach: Reach<'_>,
) -> Result<Vec<DocBuf>> {
    let mut find = find((collection, filter), (by, most), concern(router, reach));
    if !matches!(reach, Reach::Primary) {
        // A secondary that has just begun waits until it knows what the majority has, and it may be cut off.
        find.append("maxTimeMS", LATER);
    }
    first_batch(on, router, &find, reach).map(|(found, _)| found)
}

/// A find of the first `most` documents in the order of a field.
fn find(
    (collection, filter): (&str, DocBuf),
    (by, most): (&str, usize),
    concern: DocBuf,
) -> DocBuf {
    let mut sort = DocBuf::new();
    sort.append(by, 1);
    doc! {
        "find": collection, "filter": filter, "sort": sort, "readConcern": concern,
        "limit": most as i64, "batchSize": most as i64, "singleBatch": true,
        "$readPreference": doc! { "mode": "primaryPreferred" },
    }
}

/// Where and as of when pages are read that belong together.
pub struct Place {
    host: String,
    at: Timestamp,
}

/// How long the reading of a later page may take, in milliseconds. The member may have lost what confirms it.
const LATER: i64 = 10_000;

/// As [`read_after`], for pages that belong together: all of them are read where the first one was, and as of its time.
///
/// # Errors
/// As [`read`]; 117 ConflictingOperationInProgress if a later page cannot be read so any more.
pub fn read_page(
    on: &dyn Interrupt,
    router: &Router,
    collection: &str,
    filter: DocBuf,
    order: (&str, usize),
    (reach, place): (Reach<'_>, &mut Option<Place>),
) -> Result<Vec<DocBuf>> {
    let of = (collection, filter);
    let Some(place) = place else {
        let find = find(of, order, concern_of("snapshot", router, reach));
        let (found, told) = first_batch(on, router, &find, reach)?;
        *place = told.at.map(|at| Place {
            host: told.host,
            at,
        });
        return Ok(found);
    };
    let concern = doc! { "level": "snapshot", "atClusterTime": timestamp(place.at) };
    let mut find = find(of, order, concern);
    find.append("maxTimeMS", LATER);
    match first_batch(on, router, &find, Reach::Host(&place.host)) {
        Ok((found, _)) => Ok(found),
        Err(e) => {
            on.check()?;
            // It may have ended since, or keep that time no more.
            let why = format!("config.{collection} can no longer be read as of one time: {e}");
            Err(Error::new(Code::ConflictingOperationInProgress, why))
        }
    }
}

/// What a primary tells is not older than anything that this router was told before: one that leads no more and does not
/// know it yet never comes to that time.
fn concern(router: &Router, reach: Reach<'_>) -> DocBuf {
    concern_of("majority", router, reach)
}

fn concern_of(level: &str, router: &Router, reach: Reach<'_>) -> DocBuf {
    let mut concern = doc! { "level": level };
    // An answer that was not taken any further may have told a time that no other message tells.
    let heard = router.times.newest();
    let heard = heard.and_then(|d| d.as_doc().get("clusterTime").map(times_of));
    let told = router.config.told().min(heard.unwrap_or(Timestamp::ZERO));
    if told > Timestamp::ZERO && matches!(reach, Reach::Primary) {
        concern.append("afterClusterTime", timestamp(told));
    }
    concern
}

/// So many documents may a pipeline give.
const MOST: i32 = 200_000;

/// What a pipeline gives on a collection of the configuration, as a majority has it: documents that fit into one batch.
///
/// # Errors
/// As [`read`]; 1 if there are more.
pub fn aggregated(
    on: &dyn Interrupt,
    router: &Router,
    collection: &str,
    pipeline: ArrayBuf,
) -> Result<Vec<DocBuf>> {
    let aggregate = doc! {
        "aggregate": collection, "pipeline": pipeline, "cursor": doc! { "batchSize": MOST },
        "readConcern": concern(router, Reach::Primary),
    };
    let (found, cursor) = first_batch(on, router, &aggregate, Reach::Primary)?;
    match cursor.goes_on {
        false => Ok(found),
        true => Err(Error::internal(format!(
            "config.{collection} gives more than fits into one batch"
        ))),
    }
}

/// What a reply says of its cursor.
struct Cursor {
    /// There are more documents.
    goes_on: bool,
    /// The time as of which it reads, if the command asks for one.
    at: Option<Timestamp>,
    /// The member that has it.
    host: String,
}

/// The documents of the first batch of a command with a cursor.
fn first_batch(
    on: &dyn Interrupt,
    router: &Router,
    command: &DocBuf,
    reach: Reach<'_>,
) -> Result<(Vec<DocBuf>, Cursor)> {
    let mut found = Vec::new();
    let own = Own {
        set: &router.config,
        db: "config",
        command,
        versions: None,
        reach,
    };
    let reply = ask_own_of_all(on, router, &[own]).pop();
    let reply = reply.ok_or_else(|| Error::internal("a reply is lost"))??;
    check_ok(reply.body.as_doc())?;
    let cursor = reply.body.as_doc().get_doc("cursor").unwrap_or(Doc::EMPTY);
    for v in cursor
        .get_array("firstBatch")
        .unwrap_or(Doc::EMPTY)
        .values()
    {
        found.extend(v.as_doc().map(|d| d.to_buf()));
    }
    let told = Cursor {
        goes_on: cursor.get("id").and_then(|v| v.as_i64_exact()) != Some(0),
        at: cursor.get("atClusterTime").map(times_of),
        host: reply.host.clone(),
    };
    Ok((found, told))
}
