//! `$out`: writes documents into a temporary collection, which takes the target's name in one step
//! at the end. The target's options and indexes stay.

use super::batch::Batch;
use super::insert::InsertOptions;
use super::temporary::TEMPORARY;
use crate::database::Database;
use crate::operation::{CatalogChange, OpContext};
use crate::source::Source;
use crate::timeseries::catalog::settle_series;
use crate::timeseries::create_series_index;
use crate::timeseries::{granularity_span, series_options};
use crate::verbs::aggregate::link::Link;
use crate::verbs::create::is_first;
use crate::verbs::write::insert::insert_many;
use crate::verbs::write::perform::check_new_namespace;
use bytes::Bytes;
use muniment_query::Interrupt;
use muniment_query::stage::host::Writer;
use muniment_query::stage::out::{OutSpec, SeriesSpec};
use muniment_storage::CollectionOptions;
use muniment_value::{Code, Doc, Error, Result, doc, new_object_id};
use std::sync::Arc;

/// A batch is written when it reaches this many bytes.
const BATCH_BYTES: usize = 8 << 20;

/// A collection that takes a target's name when all documents are in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HalfWritten {
    /// The target's full name.
    pub target: String,
    /// The full name until then.
    pub temporary: String,
    /// The collection's UUID. If another collection takes the name, inserts into it must fail, since it does not have
    /// the earlier documents.
    pub made: [u8; 16],
    /// The target as it was at the beginning: its UUID, and its generation, of which a change means that it was altered
    /// meanwhile.
    pub before: Option<([u8; 16], u64)>,
    /// The target is the first collection of its database. Only an audited operation looks.
    pub first: bool,
}

impl HalfWritten {
    /// Makes the collection, with the target's options and indexes.
    ///
    /// # Errors
    /// Those of [`muniment_query::stage::host::Host::out`].
    pub(crate) fn begin(
        engine: &Database,
        op: &Arc<OpContext>,
        spec: &OutSpec,
    ) -> Result<HalfWritten> {
        let target = format!("{}.{}", spec.db, spec.collection);
        let store = &engine.store;
        let there = Source::now(store, &target)?;
        op.check_placement(&target, there.stored().map(|c| &**c))?;
        let series = match &spec.timeseries {
            Some(series) => Some(new_series(&there, &target, series)?),
            None => None,
        };
        check_new_namespace(&target)?;
        there.refuse_view(&target)?;
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
        let first = is_first(engine, op, &target).is();
        let collection = store.create_collection(&temporary, options, &**op)?;
        let begun = HalfWritten {
            target,
            temporary,
            made: collection.uuid(),
            before: before.as_ref().map(|c| (c.uuid(), c.generation())),
            first,
        };
        let indexed = match &before {
            Some(c) => {
                let indexes = c.indexes();
                let mut specs = indexes.iter().filter(|i| !i.is_id()).map(|i| i.spec());
                specs.try_for_each(|spec| {
                    store
                        .create_index(&collection, (*spec).clone(), &**op)
                        .map(drop)
                })
            }
            None => create_series_index(store, &collection, &**op),
        };
        if let Err(e) = indexed {
            begun.discard(engine);
            return Err(e);
        }
        Ok(begun)
    }

    /// Writes documents into it.
    ///
    /// # Errors
    /// The first document's that cannot be written.
    pub(crate) fn write(
        &self,
        engine: &Database,
        op: &Arc<OpContext>,
        docs: &[Bytes],
        bypass_document_validation: bool,
    ) -> Result<()> {
        let outcome = insert_many(
            engine,
            op,
            &self.temporary,
            &|| Box::new(docs.iter().map(|d| Doc::new(d))),
            InsertOptions {
                ordered: true,
                bypass_document_validation,
                bypass_empty_ts_replacement: false,
                only: Some(self.made),
            },
        )?;
        let first = outcome.errors.into_iter().next();
        first.map_or(Ok(()), |e| Err(e.error))
    }

    /// Has it take the target's name.
    ///
    /// # Errors
    /// 125 CommandFailed if the target has changed since the beginning; as a commit's.
    pub(crate) fn finish(&self, engine: &Database, op: &Arc<OpContext>) -> Result<()> {
        op.check()?;
        let store = &engine.store;
        let changed = || {
            Error::new(
                Code::CommandFailed,
                format!(
                    "collection {} has changed during the aggregation: $out does not replace it",
                    self.target
                ),
            )
        };
        let new = store.collection(&self.temporary);
        let new = new.filter(|c| c.uuid() == self.made).ok_or_else(changed)?;
        let (db, _) = self.target.split_once('.').unwrap_or_default();
        match self.before {
            None => {
                match store.rename_collection(&self.temporary, &self.target, false, &**op) {
                    Err(e) if e.code() == Code::NamespaceExists => return Err(changed()),
                    other => other?,
                }
                if self.first {
                    op.note_change(|| CatalogChange::CreatedDatabase(db.to_string()));
                }
                op.note_change(|| CatalogChange::CreatedCollection(self.target.clone()));
            }
            Some((uuid, generation)) => {
                let before = store.collection(&self.target);
                let before = before.filter(|c| c.uuid() == uuid).ok_or_else(changed)?;
                // From here on no operation writes or changes the old collection: indexes made
                // meanwhile would be lost with it.
                let alone = match store.exclusive(&before, &**op) {
                    Err(e) if e.code() == Code::NamespaceNotFound => return Err(changed()),
                    other => other?,
                };
                if before.namespace() != self.target || before.generation() != generation {
                    return Err(changed());
                }
                // It may have been sharded since.
                op.check_placement(&self.target, Some(&before))?;
                store.replace_collection(&alone, &new, &**op)?;
                op.note_change(|| CatalogChange::Renamed {
                    from: self.temporary.clone(),
                    to: self.target.clone(),
                });
            }
        }
        if new.is_time_series() {
            settle_series(engine, op, db)?;
        }
        Ok(())
    }

    /// Drops it, if it has not taken the target's name.
    pub(crate) fn discard(&self, engine: &Database) {
        let there = engine.store.collection(&self.temporary);
        if there.is_some_and(|c| c.uuid() == self.made) {
            engine.store.discard_collection(&self.temporary);
        }
    }
}

pub(crate) struct OutWriter {
    link: Link,
    half: HalfWritten,
    batch: Batch,
    done: bool,
}

impl OutWriter {
    pub(crate) fn new(link: Link, spec: &OutSpec) -> Result<OutWriter> {
        let half = HalfWritten::begin(&link.engine, &link.op.get(), spec)?;
        Ok(OutWriter {
            link,
            half,
            batch: Batch::new(BATCH_BYTES),
            done: false,
        })
    }

    fn flush(&mut self) -> Result<()> {
        let docs = self.batch.take();
        if docs.is_empty() {
            return Ok(());
        }
        let (engine, op) = (&self.link.engine, self.link.op.get());
        self.half
            .write(engine, &op, &docs, self.link.bypass_validation)
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
        self.half.finish(&self.link.engine, &self.link.op.get())?;
        self.done = true;
        Ok(())
    }
}

impl Drop for OutWriter {
    fn drop(&mut self) {
        if !self.done {
            self.half.discard(&self.link.engine);
        }
    }
}
