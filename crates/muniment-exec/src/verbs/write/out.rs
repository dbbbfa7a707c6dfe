//! `$out`: writes documents into a temporary collection, which takes the target's name in one step
//! at the end. The target's options and indexes stay.

use super::batch::Batch;
use super::insert::InsertOptions;
use super::temporary::TEMPORARY;
use crate::operation::CatalogChange;
use crate::source::Source;
use crate::timeseries::catalog::settle_series;
use crate::timeseries::create_series_index;
use crate::timeseries::{granularity_span, series_options};
use crate::verbs::aggregate::link::Link;
use crate::verbs::create::{First, is_first};
use crate::verbs::write::insert::insert_many;
use crate::verbs::write::perform::check_new_namespace;
use bytes::Bytes;
use muniment_query::Interrupt;
use muniment_query::stage::host::Writer;
use muniment_query::stage::out::{OutSpec, SeriesSpec};
use muniment_storage::{Collection, CollectionOptions};
use muniment_value::{Code, Doc, Error, Result, doc, new_object_id};
use std::sync::Arc;

/// A batch is written when it reaches this many bytes.
const BATCH_BYTES: usize = 8 << 20;

pub(crate) struct OutWriter {
    link: Link,
    target: String,
    temporary: String,
    /// The temporary collection's UUID. If another collection takes the name, inserts into it must
    /// fail, since it does not have the earlier documents.
    made: [u8; 16],
    /// The target as it was at the beginning.
    before: Option<Arc<Collection>>,
    /// The target's generation at that time; a change of it means that the target was altered
    /// meanwhile.
    generation: u64,
    batch: Batch,
    /// Whether the target is the first collection of its database.
    first: First,
    done: bool,
}

impl OutWriter {
    pub(crate) fn new(link: Link, spec: &OutSpec) -> Result<OutWriter> {
        let target = format!("{}.{}", spec.db, spec.collection);
        let there = Source::now(&link.engine.store, &target)?;
        link.op
            .get()
            .check_placement(&target, there.stored().map(|c| &**c))?;
        let series = match &spec.timeseries {
            Some(series) => Some(new_series(&there, &target, series)?),
            None => None,
        };
        check_new_namespace(&target)?;
        there.refuse_view(&target)?;
        let store = &link.engine.store;
        let before = match there {
            Source::Collection(collection) => Some(collection),
            _ => None,
        };
        if before.as_ref().is_some_and(|c| c.is_capped()) {
            return Err(Error::location(
                17152,
                format!("namespace '{target}' is capped so it can't be used for $out"),
            ));
        }
        let id: String = new_object_id().iter().map(|b| format!("{b:02x}")).collect();
        let temporary = format!("{}.{TEMPORARY}{id}", spec.db);
        let options = before.as_ref().map(|c| (*c.options()).clone());
        let options = options.or(series).unwrap_or_default();
        let first = is_first(&link.engine, &link.op.get(), &target);
        let collection = store.create_collection(&temporary, options, &*link.op)?;
        let writer = OutWriter {
            link: link.clone(),
            generation: before.as_ref().map_or(0, |c| c.generation()),
            target,
            temporary,
            made: collection.uuid(),
            before,
            batch: Batch::new(BATCH_BYTES),
            first,
            done: false,
        };
        if let Some(c) = &writer.before {
            for index in c.indexes().iter().filter(|i| !i.is_id()) {
                let spec = (*index.spec()).clone();
                store.create_index(&collection, spec, &*link.op)?;
            }
        } else {
            let engine = &writer.link.engine;
            create_series_index(&engine.store, &collection, &*link.op)?;
        }
        Ok(writer)
    }

    fn flush(&mut self) -> Result<()> {
        let docs = self.batch.take();
        if docs.is_empty() {
            return Ok(());
        }
        let outcome = insert_many(
            &self.link.engine,
            &self.link.op.get(),
            &self.temporary,
            &|| Box::new(docs.iter().map(|d| Doc::new(d))),
            InsertOptions {
                ordered: true,
                bypass_document_validation: self.link.bypass_validation,
                bypass_empty_ts_replacement: false,
                only: Some(self.made),
            },
        )?;
        outcome
            .errors
            .into_iter()
            .next()
            .map_or(Ok(()), |e| Err(e.error))
    }
}

/// The options of the time-series collection that `$out` makes.
///
/// # Errors
/// 7268700 when there is another kind of collection; 7406103 when there is a time-series
/// collection with other options.
fn new_series(there: &Source, target: &str, spec: &SeriesSpec) -> Result<CollectionOptions> {
    let (granularity, span) = match (spec.granularity.as_deref(), spec.span) {
        (None, Some(span)) => (None, span),
        (g, _) => {
            let g = g.unwrap_or("seconds");
            (Some(g), granularity_span(g).unwrap_or_default())
        }
    };
    let (time, meta) = (spec.time_field.as_str(), spec.meta_field.as_deref());
    let wanted = series_options(time, meta, granularity, span, span);
    let series = match there {
        Source::Collection(c) if c.is_time_series() => Some(c),
        Source::Collection(_) | Source::View(_) => {
            return Err(Error::location(
                7_268_700,
                "Cannot create a time-series collection from a non time-series collection",
            ));
        }
        Source::Buckets(_) | Source::Generated(_) | Source::Absent => None,
    };
    if let Some(c) = series
        && c.options()
            .document
            .as_doc()
            .get_doc("timeseries")
            .map(|d| d.to_buf())
            != Some(wanted.clone())
    {
        return Err(Error::location(
            7_406_103,
            format!(
                "Time-series options of $out do not match those of the existing time-series \
                 collection {target}"
            ),
        ));
    }
    Ok(CollectionOptions {
        time_field: Some(spec.time_field.clone()),
        document: doc! { "timeseries": wanted },
        ..CollectionOptions::default()
    })
}

impl Writer for OutWriter {
    fn write(&mut self, doc: Bytes) -> Result<()> {
        match self.batch.push(doc) {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<()> {
        self.flush()?;
        self.link.op.check()?;
        let store = &self.link.engine.store;
        let op = &*self.link.op;
        let changed = || {
            Error::new(
                Code::CommandFailed,
                format!(
                    "collection {} has changed during the aggregation: $out does not replace it",
                    self.target
                ),
            )
        };
        let new = store.collection(&self.temporary).ok_or_else(changed)?;
        match &self.before {
            None => match store.rename_collection(&self.temporary, &self.target, false, op) {
                Err(e) if e.code() == Code::NamespaceExists => return Err(changed()),
                other => {
                    other?;
                    self.first.note(&self.link.op.get());
                    let created = || CatalogChange::CreatedCollection(self.target.clone());
                    self.link.op.get().note_change(created);
                }
            },
            Some(before) => {
                // From here on no operation writes or changes the old collection: indexes made
                // meanwhile would be lost with it.
                let alone = match store.exclusive(before, op) {
                    Err(e) if e.code() == Code::NamespaceNotFound => return Err(changed()),
                    other => other?,
                };
                if before.namespace() != self.target || before.generation() != self.generation {
                    return Err(changed());
                }
                store.replace_collection(&alone, &new, op)?;
                self.link.op.get().note_change(|| CatalogChange::Renamed {
                    from: self.temporary.clone(),
                    to: self.target.clone(),
                });
            }
        }
        self.done = true;
        if new.is_time_series() {
            let (db, _) = self.target.split_once('.').unwrap_or_default();
            settle_series(&self.link.engine, &self.link.op.get(), db)?;
        }
        Ok(())
    }
}

impl Drop for OutWriter {
    fn drop(&mut self) {
        if !self.done {
            self.link.engine.store.discard_collection(&self.temporary);
        }
    }
}
