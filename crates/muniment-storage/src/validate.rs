//! `validate`: the check of a collection against its indexes and totals, on one snapshot.

use crate::collection::{Collection, number_of};
use crate::entries::entry_of;
use crate::index::{Index, KeySet};
use crate::keys;
use crate::keys::KeyRange;
use crate::store::Store;
use crate::view::{Direction, Snapshot, split_entry};
use muniment_op::Interrupt;
use muniment_query::running::{Steps, Work};
use muniment_tree::{Cursor, TreeId};
use muniment_value::{ArrayBuf, Doc, DocBuf, Result, doc, number};
use std::sync::Arc;

/// The most problems that are listed one by one.
const MAX_LISTED: usize = 50;

/// A sum over the entries of an index. Equal sums on both sides mean equal sets (with a chance of error
/// of 2⁻⁶⁴), so one pass over each suffices, without memory for the entries.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Sum {
    entries: u64,
    hash: u64,
}

impl Sum {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.entries += 1;
        let one = xxhash_rust::xxh3::xxh3_64(key).wrapping_mul(0x9E37_79B9_7F4A_7C15)
            ^ xxhash_rust::xxh3::xxh3_64_with_seed(value, 1);
        self.hash = self.hash.wrapping_add(one);
    }
}

#[derive(Default)]
struct Report {
    errors: Vec<String>,
    invalid: u64,
    corrupt: bool,
}

impl Report {
    fn error(&mut self, text: String) {
        if self.errors.len() < MAX_LISTED && !self.errors.contains(&text) {
            self.errors.push(text);
        }
    }

    /// Whether the collection is valid, and the errors that were found.
    ///
    /// # Errors
    /// What has stopped the operation: that may be among the errors, and is no error of the collection.
    fn verdict(&self, interrupt: &dyn Interrupt) -> Result<(bool, ArrayBuf)> {
        interrupt.check()?;
        let valid = self.errors.is_empty() && self.invalid == 0 && !self.corrupt;
        Ok((valid, self.errors.iter().map(String::as_str).collect()))
    }
}

impl Store {
    /// Reports what is known already, and prepared transactions that do not fit the documents.
    fn known_faults(
        &self,
        collection: &Collection,
        snapshot: &Snapshot,
        report: &mut Report,
    ) -> Result<()> {
        let damages = collection.damages().into_iter().map(|d| d.to_string());
        let misfits = self.inner.misfits(collection, snapshot)?;
        damages.chain(misfits).for_each(|what| report.error(what));
        Ok(())
    }

    /// Full check of a collection: every document parses, every index entry points to a document that
    /// has that key, every key of every document is in the index, counts agree. Returns the reply of
    /// `validate`: `{nrecords, nIndexes, keysPerIndex, valid, errors, warnings, indexDetails, …}`. With
    /// `full` the documents' BSON is checked byte by byte, and the files are read through, because parts
    /// that a scan does not need (filters) may be damaged too.
    ///
    /// # Errors
    /// Only if the check cannot run.
    pub fn validate(
        &self,
        collection: &Arc<Collection>,
        full: bool,
        interrupt: &dyn Interrupt,
    ) -> Result<DocBuf> {
        self.inner.watch.check_open()?;
        // View, indexes and totals have to belong together, so commits wait while they are taken.
        let (snapshot, totals, indexes, all) = {
            let _alone = loop {
                if let Some(guard) = self.inner.cuts.gate.own_for(crate::gate::MOMENT * 5) {
                    break Some(guard);
                }
                interrupt.check()?;
                // fsyncLock stops all writers already.
                if self.write_lock_depth() > 0 {
                    break None;
                }
            };
            (
                self.snapshot(),
                (collection.count(), collection.data_bytes()),
                collection.indexes(),
                collection.all_indexes().len(),
            )
        };
        let checked: Vec<&Arc<Index>> =
            indexes.iter().filter(|i| collection.maintains(i)).collect();
        let mut report = Report::default();
        self.known_faults(collection, &snapshot, &mut report)?;
        let mut wanted = vec![Sum::default(); checked.len()];
        let (docs, bytes) = scan_docs(
            collection,
            &snapshot,
            &checked,
            full,
            &mut wanted,
            &mut report,
            interrupt,
        )?;
        check_totals(totals, (docs, bytes), &mut report);
        if full {
            let ids = indexes.iter().map(|i| i.id).chain([collection.id]);
            let trees: Vec<TreeId> = ids.map(TreeId).collect();
            for damage in self.inner.trees.check(Some(&trees), interrupt)? {
                report.corrupt = true;
                report.error(damage);
            }
        }

        let mut keys_per_index = DocBuf::new();
        let mut details = DocBuf::new();
        let mut missing = ArrayBuf::new();
        let mut extra = ArrayBuf::new();
        for index in indexes.iter() {
            let name = index.spec().name.clone();
            let before = report.errors.len();
            let entries = match checked.iter().position(|i| i.id == index.id) {
                None => docs,
                Some(at) => {
                    let found = sum_entries(&snapshot, index, &mut report, interrupt)?;
                    if wanted.get(at) != Some(&found) {
                        compare(
                            collection,
                            &snapshot,
                            index,
                            &mut missing,
                            &mut extra,
                            interrupt,
                        )?;
                        report.error(format!(
                            "index '{name}' does not agree with its collection: {} entries, {} \
                             keys",
                            found.entries,
                            wanted.get(at).map_or(0, |s| s.entries)
                        ));
                    }
                    found.entries
                }
            };
            keys_per_index.append(&name, number::narrow(entries as i64));
            let spec = index.spec();
            details.append(
                &name,
                doc! { "valid": report.errors.len() == before, "spec": &spec.document },
            );
        }
        for index in collection.listed_indexes() {
            if index.is_damaged() {
                let spec = index.spec();
                details.append(&spec.name, doc! { "valid": false, "spec": &spec.document });
            }
        }
        let (valid, errors) = report.verdict(interrupt)?;
        Ok(doc! {
            "ns": collection.namespace().as_str(),
            "uuid": muniment_value::Value::Binary { subtype: 4, bytes: &collection.uuid() },
            "nInvalidDocuments": number::narrow(report.invalid as i64),
            "nNonCompliantDocuments": 0,
            "nrecords": number::narrow(docs as i64),
            "nIndexes": all as i32,
            "keysPerIndex": keys_per_index,
            "indexDetails": details,
            "valid": valid,
            "repaired": false,
            "readTimestamp": muniment_value::Value::Timestamp { t: 0, i: 0 },
            "warnings": ArrayBuf::new(),
            "errors": errors,
            "extraIndexEntries": extra,
            "missingIndexEntries": missing,
            "corruptRecords": ArrayBuf::new(),
        })
    }
}

#[allow(clippy::too_many_arguments)]
fn scan_docs(
    collection: &Collection,
    snapshot: &Snapshot,
    indexes: &[&Arc<Index>],
    full: bool,
    sums: &mut [Sum],
    report: &mut Report,
    interrupt: &dyn Interrupt,
) -> Result<(u64, u64)> {
    let (mut docs, mut bytes, mut set, steps) = (0u64, 0u64, KeySet::default(), Steps::default());
    let work = Work::of(interrupt, &steps);
    // A closed collection's documents are checked as well.
    let mut cursor = all_docs(snapshot, collection)?;
    loop {
        if docs.is_multiple_of(256) {
            interrupt.check()?;
        }
        let (record_key, d) = match cursor.next(interrupt) {
            Ok(Some(pair)) => pair,
            Ok(None) => break,
            Err(e) => {
                report.corrupt = true;
                report.error(e.message().to_string());
                break;
            }
        };
        docs += 1;
        bytes += d.len() as u64;
        if full && let Err(e) = muniment_value::validate(&d) {
            report.invalid += 1;
            report.error(format!("document with key {record_key:02x?}: {e}"));
            continue;
        }
        let view = Doc::new(&d);
        match view.get("_id") {
            None if collection.finds_by_id() || collection.is_time_series() => {
                report.invalid += 1;
                report.error(format!("document with key {record_key:02x?} has no _id"));
            }
            Some(id) if collection.is_keyed_by_id() && collection.id_key(id) != *record_key => {
                report.invalid += 1;
                report.error(format!(
                    "document with _id {} stands under another key",
                    id.to_display()
                ));
            }
            _ if collection.is_numbered() => {
                let number = number_of(&record_key);
                if number.is_none_or(|n| n > collection.append().last) {
                    report.invalid += 1;
                    report.error(format!(
                        "a document stands under the key {record_key:02x?}, which is no record \
                         number that was given out"
                    ));
                }
            }
            _ => {}
        }
        for (index, sum) in indexes.iter().zip(sums.iter_mut()) {
            if let Err(e) = index.key_set(view, &mut set, work) {
                report.error(format!("index '{}': {}", index.spec().name, e.message()));
                continue;
            }
            for (key, bits) in set.iter() {
                let (key, value) = entry_of(index, key, bits, &record_key);
                sum.add(&key, &value);
            }
            let covered = set.keys().is_none_or(|k| index.multikey().covers(k));
            if !covered {
                report.error(format!(
                    "index '{}' is not marked as multikey, but a document makes it so",
                    index.spec().name
                ));
            }
        }
    }
    Ok((docs, bytes))
}

fn all_docs(snapshot: &Snapshot, collection: &Collection) -> Result<Box<dyn Cursor>> {
    let all = keys::bounds(&KeyRange::all());
    let docs = snapshot.raw_range(collection.id, all, Direction::Forward);
    docs.ok_or_else(crate::watch::closed)
}

fn check_totals(totals: (u64, u64), found: (u64, u64), report: &mut Report) {
    if totals != found && !report.corrupt {
        report.error(format!(
            "the totals say {} documents and {} bytes, there are {} and {}",
            totals.0, totals.1, found.0, found.1
        ));
    }
}

fn sum_entries(
    snapshot: &Snapshot,
    index: &Index,
    report: &mut Report,
    interrupt: &dyn Interrupt,
) -> Result<Sum> {
    let mut sum = Sum::default();
    let all = keys::bounds(&KeyRange::all());
    let Some(mut entries) = snapshot.raw_range(index.id, all, Direction::Forward) else {
        return Ok(sum);
    };
    loop {
        if sum.entries.is_multiple_of(256) {
            interrupt.check()?;
        }
        match entries.next(interrupt) {
            Ok(Some((key, value))) => sum.add(&key, &value),
            Ok(None) => return Ok(sum),
            Err(e) => {
                report.corrupt = true;
                report.error(e.message().to_string());
                return Ok(sum);
            }
        }
    }
}

/// Compares entry by entry, to report the differences.
fn compare(
    collection: &Collection,
    snapshot: &Snapshot,
    index: &Index,
    missing: &mut ArrayBuf,
    extra: &mut ArrayBuf,
    interrupt: &dyn Interrupt,
) -> Result<()> {
    let name = index.spec().name.clone();
    let steps = Steps::default();
    let work = Work::of(interrupt, &steps);
    let mut set = KeySet::default();
    let mut cursor = all_docs(snapshot, collection)?;
    while let Ok(Some((record_key, d))) = cursor.next(interrupt) {
        interrupt.check()?;
        if index.key_set(Doc::new(&d), &mut set, work).is_err() {
            continue;
        }
        for (key, bits) in set.iter() {
            let (full, value) = entry_of(index, key, bits, &record_key);
            if snapshot.raw_get(index.id, &full)?.as_deref() != Some(&*value)
                && missing.len() < MAX_LISTED
            {
                missing.push(doc! {
                    "indexName": name.as_str(),
                    "idKey": Doc::new(&d).get("_id"),
                    "indexKey": index.key_value(key, bits),
                });
            }
        }
    }
    let all = keys::bounds(&KeyRange::all());
    let Some(mut entries) = snapshot.raw_range(index.id, all, Direction::Forward) else {
        return Ok(());
    };
    while let Ok(Some((key, value))) = entries.next(interrupt) {
        interrupt.check()?;
        let known = split_entry(&key, &value, index.unique()).is_some_and(|e| {
            let Ok(Some(d)) = snapshot.raw_get(collection.id, &e.record_key) else {
                return false;
            };
            index.key_set(Doc::new(&d), &mut set, work).is_ok()
                && set.iter().any(|(k, bits)| {
                    entry_of(index, k, bits, &e.record_key) == (key.to_vec(), value.to_vec())
                })
        });
        if !known && extra.len() < MAX_LISTED {
            let shown = split_entry(&key, &value, index.unique())
                .map(|e| index.key_value(&e.key, &e.type_bits))
                .unwrap_or_default();
            extra.push(doc! { "indexName": name.as_str(), "indexKey": shown });
        }
    }
    Ok(())
}
