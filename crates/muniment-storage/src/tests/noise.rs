//! Everything at once on a store: writers of all kinds of collections, transactions, sessions, and
//! changes of the catalog. Checks state what must hold of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::index::KeySet;
use crate::sessions::SESSIONS;
use crate::tests::{Many, bytes};
use crate::*;
use muniment_op::{Interrupt, NeverInterrupted, Sleepers};
use muniment_query::running::Work;
use muniment_tree::Range;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Small random numbers, the same for the same seed.
pub(crate) struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % n
    }
}

/// Ends the other threads when one panics.
pub(crate) struct Stopper<'a>(pub &'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, SeqCst);
        }
    }
}

/// The threads that use a store until they are told to stop.
pub(crate) struct Noise<'a> {
    pub store: &'a Arc<Store>,
    pub stop: &'a AtomicBool,
    pub seed: u64,
    /// The number of commits so far.
    pub commits: &'a AtomicU64,
}

const NAMES: [&str; 4] = ["db.plain", "db.clustered", "db.capped", "db.series"];

fn options_of(name: &str) -> CollectionOptions {
    let mut options = CollectionOptions::default();
    match name {
        "db.clustered" => {
            let key = doc! { "key": doc! { "_id": 1 }, "unique": true };
            options.document.append("clusteredIndex", &key);
        }
        "db.capped" => (options.capped_size, options.capped_max) = (Some(8000), Some(60)),
        "db.series" => options.time_field = Some("t".into()),
        _ => {
            let images = doc! { "enabled": true };
            options
                .document
                .append("changeStreamPreAndPostImages", &images);
        }
    }
    options
}

/// Ends the waits of the threads when they are to stop: for what a prepared transaction holds.
struct Until<'a>(&'a AtomicBool);

impl Interrupt for Until<'_> {
    fn check(&self) -> Result<()> {
        match self.0.load(SeqCst) {
            true => Err(Error::new(Code::NotWritablePrimary, "the noise ends")),
            false => Ok(()),
        }
    }

    fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}

    fn wakes_at(&self) -> Option<Instant> {
        Some(Instant::now() + Duration::from_millis(10))
    }
}

/// The errors that a write may get while everything else goes on; any other is a bug.
fn expected(result: Result<()>) -> bool {
    match result {
        Ok(()) => true,
        Err(e) => {
            let codes = [
                Code::DuplicateKey,
                Code::NamespaceNotFound,
                Code::NamespaceExists,
                Code::WriteConflict,
                Code::IndexNotFound,
                Code::IndexOptionsConflict,
                Code::IndexBuildAborted,
                Code::SnapshotUnavailable,
                Code::LockTimeout,
                Code::NotWritablePrimary,
                Code::CannotCreateIndex,
                Code::IllegalOperation,
                Code::OperationNotSupportedInTransaction,
            ];
            assert!(codes.contains(&e.code()), "{e}");
            false
        }
    }
}

impl<'a> Noise<'a> {
    /// Starts all threads.
    pub fn start<'s>(self, scope: &'s std::thread::Scope<'s, '_>)
    where
        'a: 's,
    {
        let noise = Arc::new(self);
        for (i, name) in NAMES.into_iter().enumerate() {
            let noise = noise.clone();
            scope.spawn(move || noise.until_stopped(i as u64, |rng| noise.write(name, rng)));
        }
        let n = noise.clone();
        scope.spawn(move || n.until_stopped(10, |rng| n.transact(rng)));
        let n = noise.clone();
        scope.spawn(move || n.until_stopped(20, |rng| n.change_catalog(rng)));
        let n = noise.clone();
        scope.spawn(move || n.until_stopped(30, |rng| n.remember(rng)));
    }

    fn until_stopped(&self, salt: u64, mut work: impl FnMut(&mut Random) -> Result<()>) {
        let _stopper = Stopper(self.stop);
        let mut rng = Random(self.seed.wrapping_mul(1000) + salt);
        while !self.stop.load(SeqCst) {
            if expected(work(&mut rng)) {
                self.commits.fetch_add(1, SeqCst);
            }
            std::thread::sleep(Duration::from_micros(rng.below(1500)));
        }
    }

    fn collection(&self, name: &str) -> Result<Arc<Collection>> {
        match self.store.collection(name) {
            Some(c) => Ok(c),
            None => {
                let options = options_of(name);
                self.store
                    .create_collection(name, options, &Until(self.stop))
            }
        }
    }

    fn document(rng: &mut Random) -> DocBuf {
        let arrays: ArrayBuf = (0..rng.below(3)).map(|_| rng.below(9) as i64).collect();
        let mut d = doc! {
            "_id": rng.below(150) as i64,
            "u": rng.below(1 << 40) as i64,
            "t": Value::DateTime(rng.below(1000) as i64),
            "text": "x".repeat(rng.below(300) as usize),
        };
        match rng.below(2) {
            0 => d.append("m", arrays),
            _ => d.append("m", rng.below(9) as i64),
        };
        d
    }

    fn write(&self, name: &str, rng: &mut Random) -> Result<()> {
        let c = self.collection(name)?;
        let end = Until(self.stop);
        let mut many = Many::until(self.store, &c, &end);
        let most = if rng.below(4) == 0 { 30 } else { 3 };
        for _ in 0..=rng.below(most) {
            let d = bytes(Noise::document(rng));
            let id = Doc::new(&d).get("_id").unwrap();
            let choice = rng.below(10);
            if choice < 5 || !c.finds_by_id() || c.is_capped() {
                expected(many.run(|w| w.insert(&d)));
                continue;
            }
            let done = many.run(|w| {
                let found = match w.lock_by_id(id)? {
                    Ok(found) => found,
                    Err(busy) => return Ok(Err(busy)),
                };
                let Some((key, old)) = found else {
                    return Ok(Ok(()));
                };
                match choice {
                    5 | 6 => w.delete(&key, &old),
                    7 => w.update(&key, &old, &d, Changed::Whole, &|_| true),
                    _ => w.update(&key, &old, &d, Changed::Shorter, &|_| true),
                }
            });
            expected(done);
        }
        many.commit()
    }

    /// Ends the transactions that are prepared, if it is their turn.
    fn resolve(&self, rng: &mut Random) -> Result<()> {
        let end = Until(self.stop);
        let mut all = self.store.prepared();
        all.sort_by_key(|p| p.at);
        for prepared in all {
            if rng.below(3) == 0 {
                continue;
            }
            let outcome = match rng.below(4) {
                0 => Outcome::Abort,
                _ => Outcome::Commit(prepared.at.plus(rng.below(3) as u32)),
            };
            self.store
                .resolve(prepared.id, outcome, Announce::Door, &end)?;
        }
        Ok(())
    }

    fn transact(&self, rng: &mut Random) -> Result<()> {
        let end = Until(self.stop);
        self.resolve(rng)?;
        let t = self.store.begin_transaction(Duration::from_millis(2), None);
        for name in ["db.plain", "db.clustered", "db.plain"] {
            let c = self.collection(name)?;
            let mut unit = self.store.write_unit_in(&t, &c, &end)?;
            let many = if rng.below(20) == 0 { 400 } else { 4 };
            for _ in 0..=rng.below(many) {
                let mut d = Noise::document(rng);
                if many > 4 {
                    d.append("large", "y".repeat(3000).as_str());
                }
                // A document that exists ends the transaction, as with MongoDB.
                if unit.insert(&bytes(d))?.is_err() {
                    break;
                }
            }
            unit.commit()?;
        }
        if rng.below(3) == 0 {
            let name = format!("db.made{}", rng.below(4));
            let options = CollectionOptions::default();
            let made = self
                .store
                .create_collection_in(&t, &name, options, None, &end)?;
            if rng.below(2) == 0 {
                let mut unit = self.store.write_unit_in(&t, &made, &end)?;
                let _ = unit.insert(&bytes(Noise::document(rng)))?;
                unit.commit()?;
            }
        }
        match rng.below(8) {
            0 => t.abort(),
            // It may stay prepared for a while, and through the end of this primary.
            1..=3 => {
                let id = TransactionId {
                    session: SessionKey::of_nobody([100 + rng.below(50) as u8; 16]),
                    number: rng.below(1 << 40) as i64,
                };
                if self.store.prepared_of(&id.session).is_none() {
                    let _ = t.prepare(id, "s1/h:1", Announce::Door, &end)?;
                }
            }
            _ => drop(t.commit(None, Announce::Door, &end)?),
        }
        Ok(())
    }

    fn change_catalog(&self, rng: &mut Random) -> Result<()> {
        let never = &Until(self.stop);
        let name = match rng.below(6) {
            0 => format!("db.made{}", rng.below(4)),
            _ => NAMES[rng.below(4) as usize].to_owned(),
        };
        match rng.below(12) {
            0 if name != "db.plain" || rng.below(4) == 0 => {
                self.store.drop_collection(&name, never).map(drop)
            }
            1 => {
                let to = format!("db.renamed{}", rng.below(2));
                self.store.rename_collection(&name, &to, true, never)
            }
            2 => self
                .store
                .note(
                    doc! { "op": "n", "ns": "", "o": doc! { "msg": 1 } }.as_doc(),
                    never,
                )
                .map(drop),
            3 => self.store.commit_nothing(never).map(drop),
            4 => {
                let c = self.collection(&name)?;
                let mut options = (*c.options()).clone();
                options.document.append("changed", rng.below(100) as i64);
                self.store.modify_options(&c, options, never)
            }
            _ => {
                let c = self.collection(&name)?;
                let (field, unique) = [("u", true), ("m", false), ("text", false), ("m", true)]
                    [rng.below(4) as usize];
                let name = format!("{field}_{unique}");
                if rng.below(2) == 0 {
                    return self.store.drop_index(&c, &name, never);
                }
                let mut key = DocBuf::new();
                key.append(field, 1);
                let spec = doc! { "key": key, "name": name.as_str(), "unique": unique };
                let spec = IndexSpec::parse_for(spec.as_doc(), c.collation())?;
                self.store.create_index(&c, spec, never).map(drop)
            }
        }
    }

    /// A write of a session, with its record. Now and then sessions are forgotten.
    fn remember(&self, rng: &mut Random) -> Result<()> {
        let end = Until(self.stop);
        let key = SessionKey::of_nobody([rng.below(5) as u8; 16]);
        if rng.below(10) == 0 {
            return self.store.forget_sessions(&[key], &end);
        }
        let c = self.collection("db.plain")?;
        let head = self.store.session_head(&key)?.unwrap_or_default();
        let number = head.record().number + i64::from(rng.below(8) == 0);
        let mut record = SessionRecord::new(number, SessionState::Retryable, 1);
        record.push(StatementRun {
            first: rng.below(1000) as i32,
            count: 1,
            result: vec![7; rng.below(800) as usize],
        });
        let mut unit = self.store.write_unit(&c, &end)?;
        let d = doc! { "_id": format!("s{}", rng.below(1 << 40)).as_str() };
        if unit.insert(&bytes(d))?.is_err() {
            return Ok(());
        }
        unit.remember(&SessionChange::new(key, record, &head));
        unit.commit().map(drop)
    }
}

/// Two keys, or a key and a value.
type Row = (Vec<u8>, Vec<u8>);

/// A view is one state: documents and the entries of every index agree.
pub(crate) fn one_state(store: &Store, view: &Snapshot) {
    for c in store.collections("db") {
        let at = view.timestamp();
        let indexes: Vec<_> = c.all_indexes().to_vec();
        let mut wanted: BTreeMap<u32, BTreeSet<Row>> = BTreeMap::new();
        let mut docs = view.docs(&c, &KeyRange::all(), Direction::Forward);
        let mut set = KeySet::default();
        while let Some((key, d)) = docs.next(&NeverInterrupted).unwrap() {
            for index in indexes.iter().filter(|i| c.maintains(i)) {
                index
                    .key_set(Doc::new(&d), &mut set, Work::unasked())
                    .unwrap();
                let keys = set.iter().map(|(k, _)| (k.to_vec(), key.to_vec()));
                wanted.entry(index.id).or_default().extend(keys);
            }
        }
        for index in indexes.iter().filter(|i| c.maintains(i)) {
            let mut entries = view.entries(&c, index, &KeyRange::all(), Direction::Forward);
            let mut found = BTreeSet::new();
            while let Some(e) = entries.next(&NeverInterrupted).unwrap() {
                found.insert((e.key.to_vec(), e.record_key.to_vec()));
            }
            // A dropped collection is given up when no view from before the drop is left; this view may
            // be younger.
            let is_known = index.complete_since().is_some_and(|since| since <= at);
            if is_known && c.named_since() <= at && !c.is_dropped() && !index.is_dropped() {
                let wanted = wanted.remove(&index.id).unwrap_or_default();
                assert_eq!(found, wanted, "{} {}", c.namespace(), index.spec().name);
            }
        }
    }
}

/// Everything in a view: the catalog's entries, and the rows of the trees that they name.
pub(crate) fn contents(view: &Snapshot) -> BTreeMap<u32, Vec<Row>> {
    let rows = |tree: u32| {
        let mut cursor = view
            .raw_range(tree, Range::default(), Direction::Forward)
            .unwrap();
        let mut rows = Vec::new();
        while let Some((key, value)) = cursor.next(&NeverInterrupted).unwrap() {
            rows.push((key.to_vec(), value.to_vec()));
        }
        rows
    };
    let mut all = BTreeMap::new();
    let mut catalog = rows(0);
    catalog.retain(|(key, _)| key[0] == b'c');
    for (key, entry) in &catalog {
        let id = u32::from_be_bytes(key[1..5].try_into().unwrap());
        all.insert(id, rows(id));
        let entry = crate::catalog::Entry::read(entry, id, &NeverInterrupted);
        for index in entry.indexes {
            all.insert(index.id, rows(index.id));
        }
    }
    all.insert(SESSIONS, rows(SESSIONS));
    all.insert(0, catalog);
    all
}

/// Checks that two states are the same; names the trees that differ.
pub(crate) fn same(a: &Snapshot, b: &Snapshot) {
    let (mut a, b) = (contents(a), contents(b));
    for (tree, rows) in &b {
        let of_a = a.remove(tree);
        let differs = of_a
            .as_ref()
            .map(|a| a.iter().zip(rows).find(|(a, b)| a != b));
        assert!(
            of_a.as_ref() == Some(rows),
            "tree {tree}: {:?} of {:?} rows, first difference {differs:02x?}",
            of_a.as_ref().map(Vec::len),
            rows.len()
        );
    }
    assert!(a.is_empty(), "trees of one only: {:?}", a.keys());
}

/// The totals in memory are those of the documents.
pub(crate) fn totals_are_right(store: &Store) {
    for c in store.collections("db") {
        let found = crate::tests::all(store, &c);
        let sizes: usize = found.iter().map(|d| d.as_bytes().len()).sum();
        let counted = (c.count(), c.data_bytes());
        assert_eq!(
            counted,
            (found.len() as u64, sizes as u64),
            "{}",
            c.namespace()
        );
    }
}
