//! Reads, writes, flushes and changes of the catalog at the same time, with oracles that know every
//! row. Each race lasts about a second, or a minute with `MUNIMENT_LONG=1`.

use super::*;
use muniment_storage::CollectionOptions;
use muniment_value::{Code, Value, array, doc};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

/// Threads that run together until the time is over or one of them fails.
pub(super) struct Race {
    until: Instant,
    failed: AtomicBool,
}

impl Race {
    /// True while the jobs have to continue.
    pub(super) fn on(&self) -> bool {
        !self.failed.load(SeqCst) && Instant::now() < self.until
    }

    /// Runs each job in a thread of its own.
    pub(super) fn run(jobs: &[&(dyn Fn(&Race) + Sync)]) {
        let long = std::env::var_os("MUNIMENT_LONG").is_some_and(|v| v != "0");
        let lasts = Duration::from_millis(if long { 60_000 } else { 1500 });
        let race = Race {
            until: Instant::now() + lasts,
            failed: AtomicBool::new(false),
        };
        std::thread::scope(|s| {
            for job in jobs {
                s.spawn(|| {
                    let _told = Told(&race);
                    job(&race);
                });
            }
        });
    }
}

/// Stops the other threads if its own panics.
struct Told<'r>(&'r Race);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed.store(true, SeqCst);
        }
    }
}

/// Flushes memory to tables all the time.
pub(super) fn flusher(b: &Bench) -> impl Fn(&Race) + Sync + '_ {
    |race| {
        while race.on() {
            b.engine.store.flush().unwrap();
        }
    }
}

pub(super) fn number(d: &DocBuf, field: &str) -> i64 {
    let n = d.as_doc().get(field).and_then(|v| v.as_i64_exact());
    n.unwrap_or_else(|| panic!("no {field} in {d:?}"))
}

/// All documents of a cursor. The view is released after every `release` documents, as it is
/// between two batches.
fn drain(b: &Bench, mut cursor: Cursor, release: usize) -> Result<Vec<DocBuf>> {
    let mut out = Vec::new();
    while let Some(d) = cursor.next_doc(&b.op)? {
        out.push(DocBuf::from_doc(Doc::new(&d)));
        if out.len() % release == 0 {
            cursor.release();
        }
    }
    Ok(out)
}

/// The result of an operation whose collection or index may be dropped or replaced meanwhile. It
/// has to be the whole result or 175 QueryPlanKilled, for which this returns `None`.
fn whole_or_killed<T>(what: &str, r: Result<T>) -> Option<T> {
    match r {
        Ok(v) => Some(v),
        Err(e) if e.code() == Code::QueryPlanKilled => None,
        Err(e) => panic!("{what}: {e}"),
    }
}

// ---- Reads against commits and flushes ----------------------------------------------------

/// The number of documents in this race.
const ROWS: i64 = 400;

/// Document `i` in its version `v`: every field can be computed from the two.
pub(super) fn row(i: i64, v: i64) -> DocBuf {
    let a = (i * 7919 + v * 104_729) % 1000;
    let b = (i + v) % 50;
    let (lon, lat) = ((a % 359) as f64 - 179.0, (b * 3) as f64 - 74.0);
    doc! {
        "_id": i, "v": v, "a": a, "b": b, "u": v * ROWS + i, "s": a, "p": a,
        "tags": array![v % 7, 10 + (i + v) % 5],
        "h": b % 20,
        "w": doc! { "x": a, "y": array![b, b + 1] },
        "text": format!("common word{}", v % 9),
        "pos": doc! { "type": "Point", "coordinates": array![lon, lat] },
        "flat": array![lon, lat],
    }
}

/// One index of every kind.
pub(super) const INDEXES: &[&str] = &[
    r#"{"key": {"a": 1}, "name": "plain"}"#,
    r#"{"key": {"b": -1, "a": 1}, "name": "compound"}"#,
    r#"{"key": {"u": 1}, "name": "unique", "unique": true}"#,
    r#"{"key": {"s": 1}, "name": "sparse", "sparse": true}"#,
    r#"{"key": {"p": 1}, "name": "partial", "partialFilterExpression": {"a": {"$gte": 0}}}"#,
    r#"{"key": {"tags": 1}, "name": "multikey"}"#,
    r#"{"key": {"h": "hashed"}, "name": "hashed"}"#,
    r#"{"key": {"w.$**": 1}, "name": "wildcard"}"#,
    r#"{"key": {"text": "text"}, "name": "text"}"#,
    r#"{"key": {"pos": "2dsphere"}, "name": "sphere"}"#,
    r#"{"key": {"flat": "2d"}, "name": "plane"}"#,
];

/// Filters that every document matches in every version, each with the index that answers it.
pub(super) const WAYS: &[(&str, Option<&str>)] = &[
    (r#"{}"#, None),
    (r#"{"a": {"$gte": 0}}"#, Some("plain")),
    (r#"{"b": {"$gte": 0}}"#, Some("compound")),
    (r#"{"u": {"$gte": 0}}"#, Some("unique")),
    (r#"{"s": {"$gte": 0}}"#, Some("sparse")),
    (r#"{"p": {"$gte": 0}, "a": {"$gte": 0}}"#, Some("partial")),
    (r#"{"tags": {"$gte": 0}}"#, Some("multikey")),
    (
        r#"{"h": {"$in": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19]}}"#,
        Some("hashed"),
    ),
    (r#"{"w.x": {"$gte": 0}}"#, Some("wildcard")),
    (r#"{"w.y": {"$gte": 0}}"#, Some("wildcard")),
    (r#"{"$text": {"$search": "common"}}"#, None),
    (
        r#"{"pos": {"$geoWithin": {"$centerSphere": [[0, 0], 3.14159]}}}"#,
        Some("sphere"),
    ),
    (
        r#"{"flat": {"$geoWithin": {"$box": [[-180, -90], [180, 90]]}}}"#,
        Some("plane"),
    ),
    (
        r#"{"$or": [{"a": {"$lt": 500}}, {"s": {"$gte": 500}}]}"#,
        None,
    ),
];

/// An index scan never sees half a commit. Commits move keys through every kind of index, and
/// memory is flushed all the time; each read finds every document exactly once, in a state that it
/// had.
#[test]
fn every_read_finds_all_rows_once_while_commits_and_flushes_go_on() {
    let b = Bench::new();
    for spec in INDEXES {
        b.index(spec).unwrap();
    }
    let docs: Vec<DocBuf> = (0..ROWS).map(|i| row(i, 0)).collect();
    assert!(b.insert(&docs).errors.is_empty());
    const WRITERS: i64 = 2;
    let newest = Mutex::new(BTreeMap::new());
    let write = |race: &Race, writer: i64| {
        // The documents of this writer alone: its last version of each is the one that is stored.
        let mine: Vec<i64> = (0..ROWS).filter(|i| i % WRITERS == writer).collect();
        let mut versions: BTreeMap<i64, i64> = mine.iter().map(|i| (*i, 0)).collect();
        // All of them are changed in one commit.
        let size = mine.len();
        let mut at = 0;
        while race.on() {
            let batch: Vec<(DocBuf, DocBuf)> = (0..size)
                .map(|n| {
                    let i = mine[(at + n) % mine.len()];
                    let v = versions.get_mut(&i).unwrap();
                    *v += 1;
                    (doc! { "_id": i }, row(i, *v))
                })
                .collect();
            at += size;
            let mut statements = batch.iter().map(|(q, u)| {
                let u = Value::Document(u.as_doc());
                Ok(UpdateStatement::new(q.as_doc(), u))
            });
            let out = b.engine.update_many(&b.op, NS, &mut statements, true);
            assert!(out.errors.is_empty(), "{:?}", out.errors);
            assert_eq!(out.n, size as u64);
        }
        newest.lock().extend(versions);
    };
    let check = |&(text, hint): &(&str, Option<&str>)| {
        let filter = j(text);
        let request = FindRequest {
            filter: filter.as_doc(),
            hint: hint.map(Hint::Name),
            ..FindRequest::new(NS)
        };
        let found = b.run(&request).unwrap();
        let mut versions = BTreeMap::new();
        for d in &found {
            let (i, v) = (number(d, "_id"), number(d, "v"));
            assert_eq!(d.as_bytes(), row(i, v).as_bytes(), "never was: {d:?}");
            let before = versions.insert(i, v);
            assert!(
                before.is_none(),
                "{text} by {hint:?}: {i} twice: {before:?}, {v}"
            );
        }
        let missing: Vec<i64> = (0..ROWS).filter(|i| !versions.contains_key(i)).collect();
        assert!(missing.is_empty(), "{text} by {hint:?}: no {missing:?}");
        versions
    };
    let read = |race: &Race| {
        for way in WAYS.iter().cycle() {
            if !race.on() {
                return;
            }
            check(way);
        }
    };
    let count = |race: &Race| {
        for (text, hint) in WAYS.iter().cycle() {
            if !race.on() {
                return;
            }
            let filter = j(text);
            let request = CountRequest {
                filter: filter.as_doc(),
                hint: hint.map(Hint::Name),
                ..CountRequest::new(NS)
            };
            let n = b.engine.count(&b.op, &request).unwrap();
            assert_eq!(n, ROWS as u64, "count of {text} by {hint:?}");
        }
    };
    Race::run(&[
        &|r| write(r, 0),
        &|r| write(r, 1),
        &read,
        &count,
        &count,
        &flusher(&b),
    ]);
    let newest = newest.into_inner();
    for way in WAYS {
        assert_eq!(check(way), newest, "after all, {way:?}");
    }
}

// ---- Reads and writes while what they use is dropped or replaced ---------------------------

/// The number of documents in a generation.
const MEMBERS: i64 = 300;
/// The number of documents with the same `k`.
const ALIKE: i64 = 3;

/// Generation `g` of the collection. All generations have the same `_id`s and the same values of
/// `k`.
fn generation(g: i64) -> Vec<DocBuf> {
    let member = |i| doc! { "_id": i, "k": i / ALIKE, "g": g, "n": 0 };
    (0..MEMBERS).map(member).collect()
}

const BY_K: &str = r#"{"key": {"k": 1}, "name": "k_1"}"#;

/// A collection of generation 0 with an index on `k`.
fn first_generation() -> Bench {
    let b = Bench::new();
    b.index(BY_K).unwrap();
    assert!(b.insert(&generation(0)).errors.is_empty());
    b
}

/// Makes the generation in another collection, which is then renamed onto this one.
fn replace_by_rename(b: &Bench, g: i64) {
    const NEXT: &str = "test.next";
    let store = &b.engine.store;
    let next = store
        .create_collection(NEXT, CollectionOptions::default(), &*b.op)
        .unwrap();
    let spec = IndexSpec::parse(j(BY_K).as_doc()).unwrap();
    store.create_index(&next, spec, &NeverInterrupted).unwrap();
    let docs = generation(g);
    let options = InsertOptions::default();
    let out = b.engine.insert_many(&b.op, NEXT, &each(&docs), options);
    assert!(out.unwrap().errors.is_empty());
    store
        .rename_collection(NEXT, NS, true, &NeverInterrupted)
        .unwrap();
}

/// Replaces the collection by the generation with `$out`.
fn replace_by_out(b: &Bench, g: i64) {
    let set = format!(r#"{{"p": [{{"$set": {{"g": {g}}}}}, {{"$out": "c"}}]}}"#);
    let set = j(&set);
    let request = AggregateRequest {
        collection: Some("source"),
        ..aggregation(set.as_doc().get_array("p").unwrap())
    };
    let mut cursor = b.engine.aggregate(&b.op, &request).unwrap();
    while cursor.next_doc(&b.op).unwrap().is_some() {}
}

/// Fills the collection that [`replace_by_out`] reads.
fn source_of_out(b: &Bench) {
    let docs = generation(0);
    let options = InsertOptions::default();
    let out = b
        .engine
        .insert_many(&b.op, "test.source", &each(&docs), options);
    assert!(out.unwrap().errors.is_empty());
}

/// Drops and builds the index again and again. After a build has ended, the index answers at once
/// and completely.
fn drop_and_build(b: &Bench, race: &Race) -> u64 {
    let mut rounds = 0;
    while race.on() {
        let collection = b.engine.store.collection(NS).unwrap();
        b.engine
            .store
            .drop_index(&collection, "k_1", &NeverInterrupted)
            .unwrap();
        // This is time in which a dropped index can be reclaimed while it is still being read.
        std::thread::sleep(Duration::from_millis(rounds % 4 * 10));
        b.index(BY_K).unwrap();
        let filter = j(r#"{"k": {"$gte": 0}}"#);
        let request = FindRequest {
            filter: filter.as_doc(),
            hint: Some(Hint::Name("k_1")),
            ..FindRequest::new(NS)
        };
        let n = b.run(&request).unwrap().len() as i64;
        assert_eq!(n, MEMBERS, "through an index just built");
        rounds += 1;
    }
    rounds
}

/// Checks that these are all members, each once, and all of one generation.
fn one_generation(docs: &[DocBuf]) {
    let mut ids: Vec<i64> = docs.iter().map(|d| number(d, "_id")).collect();
    ids.sort_unstable();
    let all: Vec<i64> = (0..MEMBERS).collect();
    assert!(ids == all, "{} rows of {MEMBERS}", ids.len());
    let g = docs.first().map(|d| number(d, "g"));
    let mixed = docs.iter().find(|d| Some(number(d, "g")) != g);
    assert!(
        mixed.is_none(),
        "generations {g:?} and {mixed:?} in one read"
    );
}

/// Reads all members until the race ends, in one view or with cursors that release theirs from time
/// to time. Returns how many reads came to their end.
fn read_members(b: &Bench, race: &Race, batches: bool) -> u64 {
    let filter = j(r#"{"k": {"$gte": 0}}"#);
    let (mut whole, mut killed) = (0, 0);
    while race.on() {
        let request = FindRequest {
            filter: filter.as_doc(),
            ..FindRequest::new(NS)
        };
        // The cursors read in batches, with and without time between these.
        let turn = if batches { 1 + (whole + killed) % 2 } else { 0 };
        let release = if turn == 0 { usize::MAX } else { 50 };
        let found = b.engine.find(&b.op, &request).and_then(|mut cursor| {
            let first = cursor.next_doc(&b.op)?;
            if turn == 2 {
                cursor.release();
                std::thread::sleep(Duration::from_millis(15));
            }
            let mut docs: Vec<DocBuf> = first
                .iter()
                .map(|d| DocBuf::from_doc(Doc::new(d)))
                .collect();
            docs.extend(drain(b, cursor, release)?);
            Ok(docs)
        });
        match whole_or_killed("find", found) {
            Some(docs) => {
                one_generation(&docs);
                whole += 1;
            }
            None => killed += 1,
        }
    }
    whole
}

/// A cursor whose index or collection is dropped ends with all rows or with 175 QueryPlanKilled,
/// never with fewer rows.
#[test]
fn a_cursor_over_a_dropped_index_gives_all_rows_or_175() {
    let b = first_generation();
    let rounds = AtomicU64::new(0);
    Race::run(&[
        &|r| rounds.store(drop_and_build(&b, r), SeqCst),
        &|r| assert!(read_members(&b, r, true) > 0, "no read came to its end"),
        &|r| assert!(read_members(&b, r, false) > 0, "no read came to its end"),
    ]);
    assert!(rounds.into_inner() > 1);
}

/// Each statement of a command looks up the name. A collection that is renamed between two of them
/// is not changed by the second, even if they could have been committed together.
#[test]
fn a_command_does_not_follow_a_renamed_collection() {
    const AWAY: &str = "test.away";
    let b = Bench::new();
    b.insert(&[doc! { "_id": 1 }, doc! { "_id": 2 }]);
    // This statement is committed by itself because of its size.
    let large = doc! { "$set": doc! { "pad": "x".repeat(3 << 20) } };
    let small = doc! { "$set": doc! { "seen": true } };
    let (one, two) = (doc! { "_id": 1 }, doc! { "_id": 2 });
    let mut n = 0;
    let mut statements = std::iter::from_fn(|| {
        n += 1;
        let (q, u) = match n {
            1 => (&one, &large),
            2 => {
                let never = NeverInterrupted;
                b.engine
                    .store
                    .rename_collection(NS, AWAY, false, &never)
                    .unwrap();
                (&two, &small)
            }
            _ => return None,
        };
        Some(Ok(UpdateStatement::new(
            q.as_doc(),
            Value::Document(u.as_doc()),
        )))
    });
    let out = b.engine.update_many(&b.op, NS, &mut statements, true);
    assert_eq!((out.n, out.modified, out.errors.len()), (1, 1, 0));
    let renamed = b.engine.store.collection(AWAY).unwrap();
    let found = b
        .engine
        .store
        .snapshot()
        .find_by_id(&renamed, Value::Int32(2));
    assert_eq!(
        Doc::new(&found.unwrap().unwrap().1).get("seen").map(|_| ()),
        None
    );
}

/// The same for a collection that a rename with dropTarget replaces: a read sees one generation.
#[test]
fn a_cursor_over_a_replaced_collection_gives_one_generation_or_175() {
    let b = first_generation();
    Race::run(&[
        &|r| {
            let mut g = 0;
            while r.on() {
                g += 1;
                replace_by_rename(&b, g);
            }
            assert!(g > 1);
        },
        &|r| assert!(read_members(&b, r, true) > 0, "no read came to its end"),
        &|r| assert!(read_members(&b, r, false) > 0, "no read came to its end"),
    ]);
}

/// Joins with the collection until the race ends. Every array has to be whole, and all arrays of
/// one command have to be of one generation.
fn join_members(b: &Bench, race: &Race) {
    let keys = MEMBERS / ALIKE;
    let stages = [
        r#"{"$lookup": {"from": "c", "localField": "k", "foreignField": "k", "as": "m"}}"#,
        concat!(
            r#"{"$lookup": {"from": "c", "let": {"k": "$k"}, "as": "m", "#,
            r#""pipeline": [{"$match": {"$expr": {"$eq": ["$k", "$$k"]}}}]}}"#
        ),
    ];
    let mut turn = 0;
    while race.on() {
        let pipeline = j(&format!(r#"{{"p": [{}]}}"#, stages[turn % 2]));
        turn += 1;
        let request = AggregateRequest {
            collection: Some("keys"),
            ..aggregation(pipeline.as_doc().get_array("p").unwrap())
        };
        let joined = b
            .engine
            .aggregate(&b.op, &request)
            .and_then(|c| drain(b, c, usize::MAX));
        let Some(joined) = whole_or_killed("$lookup", joined) else {
            continue;
        };
        assert_eq!(joined.len() as i64, keys);
        let mut seen = None;
        for d in &joined {
            let members = d.as_doc().get_array("m").unwrap();
            let n = members.count() as i64;
            assert_eq!(n, ALIKE, "an array of {n} in {d:?}, turn {turn}");
            for m in members.values().filter_map(|v| v.as_doc()) {
                let g = number(&m.to_buf(), "g");
                let first = *seen.get_or_insert(g);
                assert_eq!(g, first, "two generations in one command");
            }
        }
    }
}

/// Adds the collection for the outer side of the joins.
fn with_keys() -> Bench {
    let b = first_generation();
    let keys: Vec<DocBuf> = (0..MEMBERS / ALIKE)
        .map(|k| doc! { "_id": k, "k": k })
        .collect();
    let options = InsertOptions::default();
    let out = b
        .engine
        .insert_many(&b.op, "test.keys", &each(&keys), options);
    assert!(out.unwrap().errors.is_empty());
    b
}

/// `$lookup` never finds too few documents because an index was dropped.
#[test]
fn lookups_over_a_dropped_index_join_all_or_end_with_175() {
    let b = with_keys();
    Race::run(&[
        &|r| assert!(drop_and_build(&b, r) > 1),
        &|r| join_members(&b, r),
        &|r| join_members(&b, r),
    ]);
}

/// `$lookup` never reads a collection that is half gone, and one command reads one generation.
#[test]
fn lookups_over_a_replaced_collection_join_one_generation_or_end_with_175() {
    let b = with_keys();
    Race::run(&[
        &|r| {
            let mut g = 0;
            while r.on() {
                g += 1;
                replace_by_rename(&b, g);
            }
        },
        &|r| join_members(&b, r),
        &|r| join_members(&b, r),
    ]);
}

/// Updates all members until the race ends: all of them match, or the statement is killed.
fn update_members(b: &Bench, race: &Race) -> u64 {
    let mut done = 0;
    while race.on() {
        let r = b.update(r#"{"k": {"$gte": 0}}"#, r#"{"$inc": {"n": 1}}"#, true);
        if let Some(outcome) = whole_or_killed("update", r) {
            let n = outcome.matched as i64;
            assert_eq!(n, MEMBERS, "an update matched {n} of {MEMBERS} documents");
            done += 1;
        }
    }
    done
}

/// Deletes one member and inserts it again until the race ends. It always exists when it is
/// deleted.
fn delete_a_member(b: &Bench, race: &Race, id: i64) {
    let member = doc! { "_id": id, "k": 9000 + id, "g": 0, "n": 0 };
    let filter = format!(
        r#"{{"k": {{"$in": [{}, {}]}}, "_id": {{"$gte": {id}, "$lte": {id}}}}}"#,
        id / ALIKE,
        9000 + id
    );
    while race.on() {
        if let Some(outcome) = whole_or_killed("delete", b.delete(&filter, false)) {
            assert_eq!(outcome.matched, 1, "a delete found nothing");
        }
        // The document exists again, inserted here or with the next generation.
        let out = b.insert(std::slice::from_ref(&member));
        let fine = |e: &WriteError| e.error.code() == Code::DuplicateKey;
        assert!(out.errors.iter().all(fine), "{:?}", out.errors);
    }
}

/// An update or a delete through an index that is dropped changes all documents that match, or
/// fails with 175.
#[test]
fn updates_and_deletes_over_a_dropped_index_match_all_or_end_with_175() {
    let b = Bench::new();
    b.index(BY_K).unwrap();
    let mut docs = generation(0);
    let spare = docs.split_off(7);
    assert!(b.insert(&spare).errors.is_empty());
    assert!(b.insert(&docs).errors.is_empty());
    Race::run(&[
        &|r| {
            let store = &b.engine.store;
            while r.on() {
                store
                    .drop_index(&store.collection(NS).unwrap(), "k_1", &NeverInterrupted)
                    .unwrap();
                std::thread::sleep(Duration::from_millis(5));
                b.index(BY_K).unwrap();
            }
        },
        &|r| assert!(update_members(&b, r) > 0, "no update came to its end"),
        &|r| assert!(update_members(&b, r) > 0, "no update came to its end"),
    ]);
    Race::run(&[
        &|r| {
            let store = &b.engine.store;
            while r.on() {
                store
                    .drop_index(&store.collection(NS).unwrap(), "k_1", &NeverInterrupted)
                    .unwrap();
                std::thread::sleep(Duration::from_millis(5));
                b.index(BY_K).unwrap();
            }
        },
        &|r| delete_a_member(&b, r, 7),
        &|r| delete_a_member(&b, r, 8),
    ]);
}

/// An update or a delete on a collection that is replaced changes all documents that match, or
/// fails with 175. It never finds nothing, because every generation has the documents that it looks
/// for.
#[test]
fn updates_and_deletes_over_a_replaced_collection_match_all_or_end_with_175() {
    let b = first_generation();
    let replace = |r: &Race| {
        let mut g = 0;
        while r.on() {
            g += 1;
            replace_by_rename(&b, g);
        }
    };
    Race::run(&[&replace, &|r| {
        update_members(&b, r);
    }]);
    Race::run(&[&replace, &|r| delete_a_member(&b, r, 7), &|r| {
        delete_a_member(&b, r, 8);
    }]);
}

/// A replacement is atomic and loses nothing: readers see one generation, and an insert that was
/// acknowledged after a replacement is there until the next one.
fn replacements_lose_nothing(b: &Bench, replace: fn(&Bench, i64)) {
    // The number is odd while a replacement is under way.
    let epoch = AtomicU64::new(0);
    let acknowledged = Mutex::new(Vec::new());
    let next = AtomicU64::new(0);
    let insert = |race: &Race| {
        while race.on() {
            let id = 1_000_000 + next.fetch_add(1, SeqCst) as i64;
            let before = epoch.load(SeqCst);
            let out = b.insert(&[doc! { "_id": id, "late": true }]);
            assert!(out.errors.is_empty(), "{:?}", out.errors);
            if before.is_multiple_of(2) && epoch.load(SeqCst) == before {
                acknowledged.lock().push((before, id));
            }
        }
    };
    let swap = |race: &Race| {
        let (mut g, mut checked) = (0, 0);
        while race.on() {
            g += 1;
            epoch.fetch_add(1, SeqCst);
            replace(b, g);
            let now = epoch.fetch_add(1, SeqCst) + 1;
            std::thread::sleep(Duration::from_millis(20));
            let mut due: Vec<i64> = std::mem::take(&mut *acknowledged.lock())
                .into_iter()
                .filter_map(|(e, id)| (e == now).then_some(id))
                .collect();
            let found = b.run(&FindRequest::new(NS)).unwrap();
            let (late, members): (Vec<DocBuf>, Vec<DocBuf>) = found
                .into_iter()
                .partition(|d| d.as_doc().get("late").is_some());
            one_generation(&members);
            assert_eq!(number(&members[0], "g"), g);
            let late: std::collections::BTreeSet<i64> =
                late.iter().map(|d| number(d, "_id")).collect();
            checked += due.len();
            due.retain(|id| !late.contains(id));
            assert!(due.is_empty(), "acknowledged and lost: {due:?}");
        }
        assert!(g > 1 && checked > 0, "{g} replacements, {checked} inserts");
    };
    Race::run(&[&swap, &insert, &insert, &|r| {
        read_members(b, r, false);
    }]);
}

/// A renameCollection with dropTarget during writes loses no acknowledged insert, and no reader
/// sees it half done.
#[test]
fn a_rename_onto_a_collection_in_use_is_atomic() {
    replacements_lose_nothing(&first_generation(), replace_by_rename);
}

/// An `$out` during writes loses no insert that was acknowledged after it, and no reader sees it
/// half done.
#[test]
fn an_out_onto_a_collection_in_use_is_atomic() {
    let b = first_generation();
    source_of_out(&b);
    replacements_lose_nothing(&b, replace_by_out);
}

/// An index that is created on `$out`'s target while it runs is not lost: `$out` fails, because the
/// collection has changed.
#[test]
fn an_index_made_while_out_runs_is_not_lost() {
    let b = first_generation();
    source_of_out(&b);
    Race::run(&[
        &|r| {
            let mut g = 0;
            while r.on() {
                g += 1;
                let set = format!(r#"{{"p": [{{"$set": {{"g": {g}}}}}, {{"$out": "c"}}]}}"#);
                let set = j(&set);
                let request = AggregateRequest {
                    collection: Some("source"),
                    ..aggregation(set.as_doc().get_array("p").unwrap())
                };
                let run = b.engine.aggregate(&b.op, &request);
                let run = run.and_then(|c| drain(&b, c, usize::MAX));
                if let Err(e) = run {
                    assert!(e.message().contains("changed"), "{e}");
                }
            }
        },
        &|r| {
            let store = &b.engine.store;
            let mut made = 0;
            while r.on() {
                let name = format!("extra_{made}");
                let spec = format!(r#"{{"key": {{"x{made}": 1}}, "name": "{name}"}}"#);
                made += 1;
                let Some(collection) = store.collection(NS) else {
                    panic!("the collection is gone");
                };
                let spec = IndexSpec::parse(j(&spec).as_doc()).unwrap();
                if store
                    .create_index(&collection, spec, &NeverInterrupted)
                    .is_err()
                {
                    // The index's collection was replaced meanwhile.
                    continue;
                }
                let there = || {
                    let now = store.collection(NS).unwrap();
                    now.indexes().iter().any(|i| i.spec().name == name)
                };
                for _ in 0..10 {
                    assert!(there(), "{name} was made and is gone");
                    std::thread::sleep(Duration::from_millis(2));
                }
                // The collection may have been replaced by another one with the same indexes.
                let _ = store.drop_index(&store.collection(NS).unwrap(), &name, &NeverInterrupted);
            }
        },
    ]);
}

// ---- Single documents ------------------------------------------------------------------------

/// An update or a findAndModify of one document always finds one if some document matches at every
/// moment, even if it is not always the same one.
#[test]
fn an_update_of_one_document_finds_the_match_that_always_exists() {
    let b = Bench::new();
    b.insert_json(&[
        r#"{"_id": 1, "on": true, "hits": 0}"#,
        r#"{"_id": 2, "on": false, "hits": 0}"#,
    ]);
    let turn = |id: i64, on: bool| {
        let (q, u) = (
            format!(r#"{{"_id": {id}}}"#),
            format!(r#"{{"$set": {{"on": {on}}}}}"#),
        );
        assert_eq!(b.update(&q, &u, false).unwrap().matched, 1);
    };
    let hits = AtomicU64::new(0);
    let move_on = |r: &Race| {
        while r.on() {
            for (id, on) in [(2, true), (1, false), (1, true), (2, false)] {
                turn(id, on);
            }
        }
    };
    let update = |r: &Race| {
        while r.on() {
            let done = b.update(r#"{"on": true}"#, r#"{"$inc": {"hits": 1}}"#, false);
            assert_eq!(done.unwrap().matched, 1, "an update matched nothing");
            hits.fetch_add(1, SeqCst);
        }
    };
    let modify = |r: &Race| {
        let (q, u) = (doc! { "on": true }, doc! { "$inc": doc! { "hits": 1 } });
        while r.on() {
            let request = FindAndModifyRequest {
                namespace: NS,
                filter: q.as_doc(),
                sort: Doc::EMPTY,
                remove: false,
                update: Some(Value::Document(u.as_doc())),
                new: true,
                fields: Doc::EMPTY,
                upsert: false,
                array_filters: Doc::EMPTY,
                hint: None,
                collation: None,
                let_: Doc::EMPTY,
                bypass_document_validation: false,
                bypass_empty_ts_replacement: false,
            };
            let out = b.engine.find_and_modify(&b.op, &request).unwrap();
            assert!(out.value.is_some(), "a findAndModify found nothing");
            hits.fetch_add(1, SeqCst);
        }
    };
    for indexed in [false, true] {
        if indexed {
            b.index(r#"{"key": {"on": 1}, "name": "on_1"}"#).unwrap();
        }
        Race::run(&[&move_on, &update, &modify]);
    }
    let all = b.run(&FindRequest::new(NS)).unwrap();
    let counted: i64 = all.iter().map(|d| number(d, "hits")).sum();
    assert_eq!(counted as u64, hits.into_inner(), "an increment was lost");
}

/// Inserts and upserts create their collection, two of each at the same time, while another thread
/// drops it. None of them fails because it exists already.
#[test]
fn collections_made_by_writes_while_others_drop_them() {
    let b = Bench::new();
    let never = NeverInterrupted;
    let dropped = AtomicU64::new(0);
    let wrong = Mutex::new(Vec::new());
    let insert = |race: &Race| {
        while race.on() {
            let one = [doc! { "a": 1 }];
            let options = InsertOptions::default();
            let out = b.engine.insert_many(&b.op, NS, &each(&one), options);
            if let Err(e) = out {
                wrong.lock().push(e);
            }
        }
    };
    let upsert = |race: &Race| {
        let (q, u) = (doc! { "a": 2 }, doc! { "$inc": doc! { "n": 1 } });
        while race.on() {
            let statement = UpdateStatement {
                upsert: true,
                ..UpdateStatement::new(q.as_doc(), Value::Document(u.as_doc()))
            };
            match b.engine.update(&b.op, NS, &statement) {
                // The collection was dropped during the write.
                Err(e) if e.code() == Code::QueryPlanKilled => {}
                Err(e) => wrong.lock().push(e),
                Ok(_) => {}
            }
        }
    };
    // These are statements by `_id`, which are committed together.
    let by_id = |race: &Race| {
        let (q, u) = (doc! { "_id": 1 }, doc! { "$inc": doc! { "n": 1 } });
        while race.on() {
            let one = || UpdateStatement {
                upsert: true,
                ..UpdateStatement::new(q.as_doc(), Value::Document(u.as_doc()))
            };
            let mut both = [Ok(one()), Ok(one())].into_iter();
            for e in b.engine.update_many(&b.op, NS, &mut both, true).errors {
                if e.error.code() != Code::QueryPlanKilled {
                    wrong.lock().push(e.error);
                }
            }
        }
    };
    let drop_it = |race: &Race| {
        while race.on() {
            let there = b.engine.store.collection(NS).is_some();
            if there && b.engine.store.drop_collection(NS, &never).is_ok() {
                dropped.fetch_add(1, SeqCst);
            }
        }
    };
    Race::run(&[
        &insert, &insert, &upsert, &by_id, &by_id, &drop_it, &drop_it,
    ]);
    let wrong = wrong.into_inner();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(dropped.into_inner() > 10);
}
