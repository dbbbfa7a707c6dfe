//! The TTL monitor's work: deleting documents that have expired.
//!
//! A pass looks only at collections in which something can expire, and of these only at those in
//! which something is due. After deleting, it notes the earliest date that is left, and later
//! passes skip the collection until then. A write to the collection may bring an earlier date, so
//! it makes the note void (`Collection::take_expiry_news`).

use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::hint::Hint;
use crate::timeseries::TimeSeries;
use crate::verbs::write::change::Change;
use crate::verbs::write::change::Done;
use crate::verbs::write::change::Turn;
use crate::verbs::write::change::Write;
use crate::verbs::write::perform::perform;
use crate::verbs::write::slices::Slices;
use muniment_op::NeverInterrupted;
use muniment_query::{Interrupt, QueryContext};
use muniment_storage::{Bound, Collection, Direction, Index, KeyRange, Store, Timestamp};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, array, doc, keyenc, number};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// `expireAfterSeconds` of a clustered or time-series collection.
fn collection_expiry(collection: &Collection) -> Option<i64> {
    let options = collection.options();
    let seconds = options.document.as_doc().get("expireAfterSeconds")?;
    number::to_i64_exact(seconds)
}

/// How long, and how many documents, one index has before the next one gets its turn.
const TURN: Duration = Duration::from_secs(1);
const TURN_DOCS: u64 = 50_000;

/// A pass ends after this time even if there is more to delete. The next pass begins with what has
/// become due meanwhile.
const LONGEST_PASS: Duration = Duration::from_secs(60);

/// The result of a pass.
#[derive(Debug, Default)]
pub struct TtlOutcome {
    /// Documents deleted.
    pub deleted: u64,
    /// TTL indexes in which something was due or may have been.
    pub indexes: u64,
    /// The failures of single indexes: the collection's namespace and the error.
    pub failed: Vec<(String, Error)>,
}

/// A part of a collection in which documents expire.
enum Due {
    /// The collection itself, which is a time series or clustered; documents expire after so many
    /// seconds.
    Collection(i64),
    /// A TTL index; documents expire after so many seconds.
    Index(Arc<Index>, i64),
}

impl Due {
    fn key(&self, collection: &Collection) -> (u32, u32) {
        match self {
            Due::Collection(_) => (collection.tree(), 0),
            Due::Index(index, _) => (collection.tree(), index.tree()),
        }
    }

    /// The expiry that is set now, in seconds. `None` if the collection or the index is gone or
    /// does not expire any more.
    fn seconds_now(&self, collection: &Collection) -> Option<i64> {
        if collection.is_dropped() {
            return None;
        }
        match self {
            Due::Collection(_) => collection_expiry(collection),
            Due::Index(index, _) => {
                let indexes = collection.indexes();
                // Another index may have taken the name, so the pointers are compared.
                let is_there = indexes.iter().any(|i| Arc::ptr_eq(i, index));
                index.spec().expire_after_seconds.filter(|_| is_there)
            }
        }
    }

    fn seconds(&self) -> i64 {
        match self {
            Due::Collection(seconds) | Due::Index(_, seconds) => *seconds,
        }
    }
}

/// The result of one turn.
struct Did {
    deleted: u64,
    /// True if there is more to delete in this pass.
    more: bool,
}

impl Did {
    fn of(deleted: u64, turn: Turn) -> Did {
        Did {
            deleted,
            // A turn that could delete nothing is not repeated in this pass, which would spin.
            more: deleted > 0 && turn.is_over(deleted),
        }
    }
}

/// Implements [`Database::ttl_pass`].
pub(crate) fn ttl_pass(engine: &Database, op: &Arc<OpContext>) -> Result<TtlOutcome> {
    let now = QueryContext::new().now_ms;
    let mut out = TtlOutcome::default();
    let mut waiting = due(engine, now);
    let mut passed: Vec<Arc<Collection>> = waiting.iter().map(|(c, _)| c.clone()).collect();
    passed.dedup_by_key(|c| c.tree());
    out.indexes = waiting.len() as u64;
    let ends = Instant::now() + LONGEST_PASS;
    // The loop looks at the clock between rounds only, so everything has at least one turn.
    while !waiting.is_empty() && Instant::now() < ends {
        let now = QueryContext::new().now_ms;
        let mut again = Vec::new();
        for (collection, due) in waiting {
            op.check()?;
            let turn = Turn {
                until: Instant::now() + TURN,
                docs: TURN_DOCS,
            };
            match expire_some(engine, op, &collection, &due, now, turn) {
                Ok(did) => {
                    out.deleted += did.deleted;
                    if did.more {
                        again.push((collection, due));
                    }
                }
                // Another operation holds the collection exclusively, or the collection is gone.
                Err(e) if matches!(e.code(), Code::LockTimeout | Code::QueryPlanKilled) => {}
                Err(e) if e.code() == Code::NotWritablePrimary => return Err(e),
                Err(e) => {
                    op.check()?;
                    out.failed.push((collection.namespace(), e));
                }
            }
        }
        waiting = again;
    }
    note_expiries(engine, &passed, now);
    Ok(out)
}

/// The parts of a collection in which documents expire.
fn expiring_in(collection: &Collection) -> Vec<Arc<Due>> {
    let own = collection_expiry(collection).map(Due::Collection);
    let indexes = collection.indexes();
    let by_index = indexes.iter().filter_map(|index| {
        let seconds = index.spec().expire_after_seconds?;
        // An index kind that computes its keys (hashed, text, geo) has no dates as keys. Nothing
        // expires in a capped collection or by `_id` index.
        let plain = !(collection.is_capped() || index.is_id() || index.transforms(0));
        plain.then(|| Due::Index(index.clone(), seconds))
    });
    own.into_iter().chain(by_index).map(Arc::new).collect()
}

/// The collections and indexes in which something may have expired at `now`.
fn due(engine: &Database, now: i64) -> Vec<(Arc<Collection>, Arc<Due>)> {
    let mut all = Vec::new();
    let mut expiries = engine.expiries.lock();
    let before = std::mem::take(&mut *expiries);
    for collection in engine.store.expiring() {
        // A damaged collection is skipped, so that it does not keep the others from expiring.
        if collection.check_usable().is_err() {
            continue;
        }
        // Nobody uses it until the configuration has decided; it may take the place of another one.
        if collection.placement().is_some_and(|p| p.undecided) {
            continue;
        }
        let news = collection.take_expiry_news();
        for due in expiring_in(&collection) {
            let key = due.key(&collection);
            match before.get(&key).filter(|at| !news && **at > now) {
                Some(at) => {
                    expiries.insert(key, *at);
                }
                None => all.push((collection.clone(), due)),
            }
        }
    }
    all
}

/// Notes for each of these collections when the first of its remaining documents expires. The
/// pass's own deletes count as news, so the news is taken first.
fn note_expiries(engine: &Database, passed: &[Arc<Collection>], now: i64) {
    for collection in passed {
        collection.take_expiry_news();
    }
    // Every write whose news was just taken is visible in a view that is at least as new as this
    // timestamp. A later write makes news again.
    let newest = engine.store.newest_timestamp();
    for collection in passed {
        for due in expiring_in(collection) {
            let key = due.key(collection);
            let first = first_expiry(&engine.store, collection, &due, newest, now);
            let mut expiries = engine.expiries.lock();
            match first {
                Some(at) => expiries.insert(key, at),
                None => expiries.remove(&key),
            };
        }
    }
}

/// The date at which the first of the remaining documents expires. `None` if the view does not yet
/// show everything up to `newest`, or if something is due at `now`.
fn first_expiry(
    store: &Store,
    collection: &Arc<Collection>,
    due: &Due,
    newest: Timestamp,
    now: i64,
) -> Option<i64> {
    let snapshot = store.snapshot();
    if snapshot.timestamp() < newest {
        return None;
    }
    let dates = |descending: bool| {
        let key = |date: i64| {
            let mut key = Vec::new();
            keyenc::encode(Value::DateTime(date), descending, &mut key);
            Bound::Included(key)
        };
        let (first, last) = (key(i64::MIN), key(i64::MAX));
        match descending {
            false => KeyRange {
                low: first,
                high: last,
            },
            true => KeyRange {
                low: last,
                high: first,
            },
        }
    };
    let date = |v: Value<'_>| match v {
        Value::DateTime(t) => Some(t),
        _ => None,
    };
    let series = TimeSeries::of(collection);
    let first = match (due, &series) {
        (Due::Index(index, _), _) => {
            let (_, descending) = *index.fields().first()?;
            let dir = match descending {
                true => Direction::Backward,
                false => Direction::Forward,
            };
            let range = dates(descending);
            let mut entries = snapshot.entries(collection, index, &range, dir);
            match entries.next(&NeverInterrupted).ok()? {
                Some(e) => {
                    let bits = &mut &e.type_bits[..];
                    let (value, _) = keyenc::decode(&e.key, descending, bits).ok()?;
                    Some(date(value.as_value())?)
                }
                None => None,
            }
        }
        (Due::Collection(_), series) => {
            let (range, field) = match series {
                Some(series) => (KeyRange::all(), &*series.time_field),
                None => (dates(false), "_id"),
            };
            let mut docs = snapshot.docs(collection, &range, Direction::Forward);
            match docs.next(&NeverInterrupted).ok()? {
                Some((_, d)) => Some(date(Doc::new(&d).get(field)?)?),
                None => None,
            }
        }
    };
    let at = first.map_or(i64::MAX, |date| {
        date.saturating_add(due.seconds().saturating_mul(1000))
    });
    // If something is due all the same, another operation holds it or it came just now.
    (at > now).then_some(at)
}

fn expire_some(
    engine: &Database,
    op: &Arc<OpContext>,
    collection: &Arc<Collection>,
    due: &Due,
    now: i64,
    turn: Turn,
) -> Result<Did> {
    let Some(seconds) = due.seconds_now(collection) else {
        return Ok(Did::of(0, turn));
    };
    let cutoff = now.saturating_sub(seconds.saturating_mul(1000));
    // Another collection may have taken the name since the look at the settings. The operation is
    // bound to this one, so that nothing is deleted in the other.
    op.bind(Some(collection.uuid()));
    let deleted = match due {
        Due::Collection(_) => match TimeSeries::of(collection) {
            Some(s) => expire_series(&engine.store, op, collection, &s, cutoff, turn),
            None => expire_clustered(engine, op, collection, cutoff, turn),
        },
        Due::Index(index, _) => expire(engine, op, collection, index, cutoff, turn),
    };
    op.bind(None);
    Ok(Did::of(deleted?, turn))
}

/// Deletes the measurements up to `cutoff`, which come first in the natural order.
fn expire_series(
    store: &Store,
    op: &Arc<OpContext>,
    collection: &Arc<Collection>,
    series: &TimeSeries,
    cutoff: i64,
    turn: Turn,
) -> Result<u64> {
    let snapshot = store.snapshot();
    let mut cursor = snapshot.docs(collection, &KeyRange::all(), Direction::Forward);
    let mut slices = Slices::<Done>::new(store, op, collection).only_try();
    while let Some((key, d)) = cursor.next(&**op)? {
        if turn.is_over(slices.stored().matched + slices.pending().matched) {
            break;
        }
        let old = matches!(
            Doc::new(&d).get(&series.time_field),
            Some(Value::DateTime(t)) if t <= cutoff
        );
        if !old {
            break;
        }
        op.check()?;
        let deleted = slices.change_record(&key, |unit, doc| {
            let mut done = Done::default();
            if let Some(doc) = doc {
                if let Err(busy) = unit.delete(&key, &doc)? {
                    return Ok(Err(busy));
                }
                done.matched = 1;
            }
            Ok(Ok(done))
        });
        match deleted {
            // The collection was dropped meanwhile.
            Err(e) if e.code() == Code::NamespaceNotFound => break,
            other => other?,
        }
    }
    slices.commit()?;
    Ok(slices.into_stored().0.matched)
}

/// Deletes the documents of a clustered collection whose `_id` is a date up to `cutoff`.
fn expire_clustered(
    engine: &Database,
    op: &Arc<OpContext>,
    collection: &Collection,
    cutoff: i64,
    turn: Turn,
) -> Result<u64> {
    let filter = doc! { "_id": doc! { "$lte": Value::DateTime(cutoff) } };
    let write = Write {
        turn: Some(turn),
        ..Write::new(
            &QueryContext::new(),
            filter.as_doc(),
            Doc::EMPTY,
            None,
            true,
            Change::Delete,
        )?
    };
    let mut done = Done::default();
    perform(engine, op, &collection.namespace(), &write, &mut done)?;
    Ok(done.matched)
}

/// Deletes the documents that have expired by one TTL index. Of an array, the earliest date counts;
/// a range over the array's elements finds that one.
fn expire(
    engine: &Database,
    op: &Arc<OpContext>,
    collection: &Collection,
    index: &Index,
    cutoff: i64,
    turn: Turn,
) -> Result<u64> {
    let spec = index.spec();
    let Some((path, _)) = index.fields().first() else {
        return Ok(0);
    };
    let mut filter = DocBuf::new();
    filter.append(path.as_str(), doc! { "$lte": Value::DateTime(cutoff) });
    if let Some(partial) = &spec.partial_filter {
        filter = doc! { "$and": array![partial, filter] };
    }
    let write = Write {
        turn: Some(turn),
        ..Write::new(
            &QueryContext::new().with_collation(index.collation().clone()),
            filter.as_doc(),
            Doc::EMPTY,
            (!spec.hidden).then_some(Hint::Name(&spec.name)),
            true,
            Change::Delete,
        )?
    };
    let namespace = collection.namespace();
    let mut done = Done::default();
    match perform(engine, op, &namespace, &write, &mut done) {
        Ok(()) => Ok(done.matched),
        // The index was dropped meanwhile.
        Err(e) if e.code() == Code::BadValue => Ok(0),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::tests::Bench;
    use muniment_query::NeverInterrupted;
    use muniment_storage::{CollectionOptions, IndexSpec};

    fn spec(name: &str, seconds: Option<i64>) -> IndexSpec {
        let mut d = doc! { "key": doc! { "at": 1 }, "name": name };
        d.append_some("expireAfterSeconds", seconds);
        IndexSpec::parse(d.as_doc()).unwrap()
    }

    /// A change while a pass is under way counts from the next turn on: another expiry, an index of
    /// the same name without one, a collection that has taken the name.
    #[test]
    fn a_turn_goes_by_what_is_set_when_it_begins() {
        let b = Bench::new();
        let store = &b.engine.store;
        let now = QueryContext::new().now_ms;
        let create = |name: &str| {
            let options = CollectionOptions::default();
            let made = store.create_collection(name, options, &NeverInterrupted);
            let c = made.unwrap();
            let mut unit = store.write_unit(&c, &*b.op).unwrap();
            let old = doc! { "_id": 1, "at": Value::DateTime(now - 100_000) };
            unit.insert(&old.into_bytes()).unwrap().unwrap();
            unit.commit().unwrap();
            c
        };
        let index = |c: &Arc<Collection>, seconds| {
            let made = store.create_index(c, spec("at", seconds), &NeverInterrupted);
            made.unwrap();
        };
        let names = [
            "test.longer",
            "test.again",
            "test.replaced",
            "test.dropped",
            "test.same",
        ];
        for name in names {
            index(&create(name), Some(60));
        }
        let mut due = due(&b.engine, now);
        due.sort_by_key(|(c, _)| names.iter().position(|n| *n == c.namespace()));
        assert_eq!(due.len(), 5);
        let [longer, again, replaced, dropped, same] = [0, 1, 2, 3, 4].map(|i: usize| &due[i]);
        let longer_spec = spec("at", Some(1000));
        store
            .modify_index(&longer.0, longer_spec, &NeverInterrupted)
            .unwrap();
        store.drop_index(&again.0, "at", &NeverInterrupted).unwrap();
        index(&again.0, None);
        index(&create("test.new"), Some(1000));
        store
            .rename_collection("test.new", "test.replaced", true, &NeverInterrupted)
            .unwrap();
        store
            .drop_collection("test.dropped", &NeverInterrupted)
            .unwrap();
        let turn = |(c, due): &(Arc<Collection>, Arc<Due>)| {
            let turn = Turn {
                until: Instant::now() + TURN,
                docs: TURN_DOCS,
            };
            let did = expire_some(&b.engine, &b.op, c, due, now, turn);
            did.unwrap().deleted
        };
        assert_eq!([longer, again, replaced, dropped].map(turn), [0; 4]);
        for name in ["test.longer", "test.again", "test.replaced"] {
            assert_eq!(store.collection(name).unwrap().count(), 1, "{name}");
        }
        assert_eq!(turn(same), 1);
        // The collection is renamed or replaced after the turn has read its settings.
        let late = create("test.late");
        b.op.bind(Some(late.uuid()));
        store
            .drop_collection("test.late", &NeverInterrupted)
            .unwrap();
        create("test.late");
        let e = crate::source::stored(store, &b.op, "test.late")
            .map(drop)
            .unwrap_err();
        assert_eq!(e.code(), Code::QueryPlanKilled);
    }
}
