//! Repairs what is damaged (`damage`), for a process that has the directory alone: `muniment doctor`.
//!
//! A closed index is built anew, or dropped if its specification cannot be used. A closed collection
//! keeps its documents, as far as the log could be applied to them, and the options that can be read;
//! all its indexes are built anew. A validator that cannot be read is removed.
//!
//! Each collection is repaired by one record of the log, with its new entry. A cut follows, so that the
//! cause of the damage is not applied again; until the cut is made a start finds the same damage. Then
//! the indexes are built. `_id_` comes first, because the collection stays closed without it.

use crate::build::Unbuilt;
use crate::catalog::{Entry, IndexEntry, IndexSpec};
use crate::collection::{Collection, number_of};
use crate::damage::{Damage, Damaged};
use crate::index::{Index, is_id_pattern};
use crate::inner::Inner;
use crate::lockfile::DirLock;
use crate::options::StoreOptions;
use crate::store::Store;
use crate::view::Direction;
use muniment_op::{Interrupt, NeverInterrupted};
use muniment_query::QueryContext;
use muniment_tree::Range;
use muniment_value::{Code, Doc, DocBuf, Error, KeyLimits, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Options that mean nothing without a validator.
const OF_VALIDATORS: [&str; 3] = ["validator", "validationLevel", "validationAction"];

/// What a repair has done, a line each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// The repairs that were made.
    pub done: Vec<String>,
    /// The repairs that were not possible.
    pub failed: Vec<String>,
}

impl Store {
    /// Opens a directory, repairs what is damaged in it, and closes it. Nothing is done if nothing was
    /// damaged. If one repair is impossible the others are made all the same.
    ///
    /// # Errors
    /// As [`Store::open`], and as a cut's.
    pub fn repair(options: &StoreOptions, lock: &DirLock) -> Result<Repaired> {
        let mut repaired = Repaired::default();
        let store = Store::open_as(options.clone(), Some(lock.share()), false)?;
        let hurt: BTreeSet<String> = store.damages().into_iter().map(|d| d.namespace).collect();
        for namespace in &hurt {
            let Some(collection) = store.collection(namespace) else {
                continue;
            };
            if store.inner.prepared.changes(collection.id) {
                repaired.failed.push(format!(
                    "{namespace} could not be repaired: a prepared transaction changes it, which has to be \
                     decided first: start the server with the others of its cluster"
                ));
                continue;
            }
            let mut done = Vec::new();
            match store.repair_collection(&collection, &mut done, &NeverInterrupted) {
                Ok(()) => repaired.done.append(&mut done),
                Err(e) => {
                    let failed = format!("{namespace} could not be repaired: {}", e.message());
                    repaired.failed.push(failed);
                }
            }
        }
        store.flush()?;
        let builds = store.inner.builds_of_repair();
        store.close()?;
        drop(store);
        if builds.is_empty() {
            return Ok(repaired);
        }
        // The store is opened anew, so that the collection has `_id_` by its new entry.
        let store = Store::open_as(options.clone(), Some(lock.share()), false)?;
        // Documents that were accepted once are not refused now for the number of their keys.
        store.set_key_limits(KeyLimits::NONE);
        store.build_again(&mut repaired, &NeverInterrupted)?;
        store.flush()?;
        store.close()?;
        Ok(repaired)
    }

    /// Builds the indexes that are not built.
    fn build_again(&self, repaired: &mut Repaired, interrupt: &dyn Interrupt) -> Result<()> {
        let opening = self.inner.door.opening()?;
        for (collection, index) in self.inner.builds_of_repair() {
            if collection.is_closed() && !index.is_id() {
                // The collection's `_id_` could not be built, which was reported already.
                continue;
            }
            let inner = &self.inner;
            let stays = Unbuilt::StaysIfItCan;
            let Err(e) = inner.end_build(&collection, &index, stays, opening, interrupt) else {
                continue;
            };
            let named = named(&index, &collection.namespace());
            let there = collection.all_indexes().iter().any(|i| i.id == index.id);
            match there {
                false => repaired.done.push(format!(
                    "{named} could not be built and was dropped: {}",
                    e.message()
                )),
                true => repaired.failed.push(format!(
                    "{named} could not be built, and is left as it is: {}",
                    e.message()
                )),
            }
        }
        Ok(())
    }

    /// Repairs a collection, except for its indexes, which are built later.
    pub(crate) fn repair_collection(
        &self,
        collection: &Arc<Collection>,
        done: &mut Vec<String>,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let inner = &self.inner;
        let opening = inner.door.opening()?;
        let _alone = inner.exclusive_to_drop(collection, opening, interrupt)?;
        let (ns, closed) = (collection.namespace(), collection.is_closed());
        let all = collection.all_indexes();
        let mut entry = Entry::of(collection, &all);
        for damage in collection.damages() {
            match damage.what {
                Damaged::Index(_) | Damaged::Validator => {}
                Damaged::Collection => {
                    repair_options(&mut entry.options.document, &damage, collection)?;
                    done.push(format!(
                        "collection {ns} keeps its {} documents, with the options that can be read: \
                         {}",
                        collection.count(),
                        damage.reason
                    ));
                }
            }
        }
        // The validator is parsed with the repaired options: only its collation may have been bad.
        if let Err(e) = entry.options.validator(QueryContext::new()) {
            done.push(format!(
                "the validator of {ns} is gone ({}): {}",
                e.message(),
                shown(entry.options.document.as_doc(), "validator")
            ));
            entry.options.document = without(&entry.options.document, &OF_VALIDATORS);
        }
        let mut indexes = Vec::new();
        for index in all.iter() {
            let held = index.spec();
            let named = named(index, &ns);
            let own = index.is_id() && collection.is_keyed_by_id();
            if own || !(closed || index.is_damaged()) {
                indexes.push(IndexEntry {
                    // By its old id the index is known as closed.
                    id: match index.is_damaged() {
                        true => inner.catalog.fresh_id()?,
                        false => index.id,
                    },
                    ready: index.is_ready(),
                    spec: match own {
                        true => Arc::new(IndexSpec::id_index(collection.collation())),
                        false => held.clone(),
                    },
                    damage: None,
                });
                continue;
            }
            match usable(collection, index) {
                Ok(spec) => {
                    done.push(format!("{named} is built anew"));
                    indexes.push(IndexEntry {
                        id: inner.catalog.fresh_id()?,
                        ready: false,
                        spec,
                        damage: None,
                    });
                }
                Err(e) => done.push(format!(
                    "{named} is dropped, since its specification cannot be used ({}): {}",
                    e.message(),
                    held.document.as_doc().to_display()
                )),
            }
        }
        let options = &entry.options;
        let needs_id = options.capped_size.is_none() && options.time_field.is_none();
        if needs_id && !indexes.iter().any(|i| is_id_pattern(&i.spec.key)) {
            done.push(format!("index '_id_' of {ns} is built anew"));
            indexes.insert(
                0,
                IndexEntry {
                    id: inner.catalog.fresh_id()?,
                    ready: collection.is_keyed_by_id(),
                    spec: Arc::new(IndexSpec::id_index(collection.collation())),
                    damage: None,
                },
            );
        }
        entry.indexes = indexes;
        entry.pending = false;
        inner.change_entry(collection.id, entry, opening, interrupt)?;
        if closed {
            inner.count_anew(collection)?;
            collection.open_again();
        }
        Ok(())
    }
}

/// Takes the options of a closed collection that cannot be used out.
///
/// # Errors
/// 301 if the collection's documents could not be found without them.
fn repair_options(options: &mut DocBuf, damage: &Damage, collection: &Collection) -> Result<()> {
    let collation = options.as_doc().get_doc("collation");
    if muniment_value::Collation::parse_some(collation).is_ok() {
        return Ok(());
    }
    if collection.is_keyed_by_id() {
        return Err(Error::new(
            Code::DataCorruptionDetected,
            format!(
                "{damage}. Its documents stand under keys that are made by the collation: it cannot be \
                 repaired, only dropped"
            ),
        ));
    }
    *options = without(options, &["collation"]);
    Ok(())
}

/// The specification by which an index can be built again.
fn usable(collection: &Collection, index: &Index) -> Result<Arc<IndexSpec>> {
    if index.is_id() {
        return Ok(Arc::new(IndexSpec::id_index(collection.collation())));
    }
    IndexSpec::read(index.spec().document.as_doc(), &NeverInterrupted)
}

fn without(document: &DocBuf, names: &[&str]) -> DocBuf {
    let mut rest = DocBuf::new();
    for e in document.as_doc() {
        if !names.contains(&e.name()) {
            rest.append_elem(e);
        }
    }
    rest
}

fn shown(document: Doc<'_>, name: &str) -> String {
    let value = document.get(name);
    value.map_or_else(String::new, |v| v.to_display())
}

/// The name of an index in messages.
fn named(index: &Index, namespace: &str) -> String {
    format!("index '{}' of {namespace}", index.spec().name)
}

impl Inner {
    /// The indexes that are not built, each collection's `_id_` first. Collections that stay closed for
    /// another reason are left out.
    fn builds_of_repair(&self) -> Vec<(Arc<Collection>, Arc<Index>)> {
        let all = self.catalog.all();
        let mut found = Vec::new();
        for collection in all.iter().filter(|c| !c.is_closed_for_good()) {
            let indexes = collection.all_indexes();
            let unbuilt = indexes.iter().filter(|i| !i.is_ready() && !i.is_damaged());
            found.extend(unbuilt.map(|index| (collection.clone(), index.clone())));
        }
        found.sort_by_key(|(collection, index)| (collection.id, !index.is_id()));
        found
    }

    /// Counts the documents of a collection and sets its totals.
    fn count_anew(&self, collection: &Collection) -> Result<()> {
        let view = self.snapshot();
        let all = view.raw_range(collection.id, Range::default(), Direction::Forward);
        let mut all = all.ok_or_else(crate::watch::closed)?;
        let (mut docs, mut bytes, mut last) = (0, 0, 0);
        while let Some((key, doc)) = all.next(&NeverInterrupted)? {
            docs += 1;
            bytes += doc.len() as u64;
            if let Some(n) = number_of(&key).filter(|_| collection.is_numbered()) {
                last = n;
            }
        }
        collection.set_totals(docs, bytes);
        let mut append = collection.append();
        append.last = append.last.max(last);
        Ok(())
    }
}
