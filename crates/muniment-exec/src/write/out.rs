//! `$out`: documents written into a collection of their own, which then takes the target's name
//! in one step. The target's options and indexes stay.

use super::insert::InsertOptions;
use crate::engine::Engine;
use crate::host::Link;
use bytes::Bytes;
use muniment_query::Interrupt;
use muniment_query::stage::host::Writer;
use muniment_query::stage::out::OutSpec;
use muniment_storage::Collection;
use muniment_value::{Code, Doc, Error, Result, new_object_id};
use std::sync::Arc;

/// What the names of half-written collections begin with.
const TEMPORARY: &str = "tmp.agg_out.";

/// A batch is written when it has so many bytes or documents.
const BATCH_BYTES: usize = 8 << 20;
const BATCH_DOCS: usize = 10_000;

pub(crate) struct OutWriter {
    link: Link,
    target: String,
    temporary: String,
    /// The target as it was at the beginning.
    before: Option<Arc<Collection>>,
    docs: Vec<Bytes>,
    bytes: usize,
    done: bool,
}

impl OutWriter {
    pub fn new(link: Link, spec: &OutSpec) -> Result<OutWriter> {
        let target = format!("{}.{}", spec.db, spec.collection);
        if spec.timeseries.is_some() {
            let there = link.engine.store.collection(&target).is_some();
            if there || link.engine.view(&target)?.is_some() {
                return Err(Error::location(
                    7_268_700,
                    "Cannot create a time-series collection from a non time-series collection",
                ));
            }
            return Err(Error::new(
                Code::CommandNotSupported,
                "$out into a time-series collection is not supported",
            ));
        }
        crate::write::core::check_new_namespace(&target)?;
        link.engine.refuse_view(&target)?;
        let store = &link.engine.store;
        let before = store.collection(&target);
        if before.as_ref().is_some_and(|c| c.is_capped()) {
            return Err(Error::location(
                17152,
                format!("namespace '{target}' is capped so it can't be used for $out"),
            ));
        }
        let id: String = new_object_id().iter().map(|b| format!("{b:02x}")).collect();
        let temporary = format!("{}.{TEMPORARY}{id}", spec.db);
        let options = before.as_ref().map(|c| (*c.options()).clone());
        let collection = store.create_collection(&temporary, options.unwrap_or_default())?;
        let writer = OutWriter {
            link: link.clone(),
            target,
            temporary,
            before,
            docs: Vec::new(),
            bytes: 0,
            done: false,
        };
        if let Some(c) = &writer.before {
            for index in c.indexes().iter().filter(|i| !i.is_id()) {
                let spec = (*index.spec()).clone();
                store.create_index(&collection, spec, &*link.op)?;
            }
        }
        Ok(writer)
    }

    fn flush(&mut self) -> Result<()> {
        let docs = std::mem::take(&mut self.docs);
        self.bytes = 0;
        if docs.is_empty() {
            return Ok(());
        }
        let outcome = self.link.engine.insert_many(
            &self.link.op.get(),
            &self.temporary,
            &mut docs.iter().map(|d| Doc::new(d)),
            InsertOptions {
                ordered: true,
                bypass_document_validation: self.link.bypass_validation,
                bypass_empty_ts_replacement: false,
            },
        )?;
        outcome
            .errors
            .into_iter()
            .next()
            .map_or(Ok(()), |e| Err(e.error))
    }
}

impl Writer for OutWriter {
    fn write(&mut self, doc: Bytes) -> Result<()> {
        self.bytes += doc.len();
        self.docs.push(doc);
        if self.bytes >= BATCH_BYTES || self.docs.len() >= BATCH_DOCS {
            self.flush()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.flush()?;
        self.link.op.check()?;
        let store = &self.link.engine.store;
        // Indexes that came meanwhile would be lost.
        let now = store.collection(&self.target);
        let same = match (&self.before, &now) {
            (Some(a), Some(b)) => a.uuid() == b.uuid() && a.generation() == b.generation(),
            (None, None) => true,
            _ => false,
        };
        if !same {
            return Err(Error::new(
                Code::CommandFailed,
                format!(
                    "collection {} has changed during the aggregation: $out does not replace it",
                    self.target
                ),
            ));
        }
        store.rename_collection(&self.temporary, &self.target, true)?;
        self.done = true;
        Ok(())
    }
}

impl Drop for OutWriter {
    fn drop(&mut self) {
        if !self.done {
            // What remains is dropped at the next start.
            let _ = self.link.engine.store.drop_collection(&self.temporary);
        }
    }
}

impl Engine {
    /// Drops what an `$out` left half-written when the process ended.
    pub(crate) fn drop_temporary(&self) {
        for db in self.store.databases() {
            for c in self.store.collections(&db) {
                let namespace = c.namespace();
                let name = namespace.get(db.len() + 1..).unwrap_or_default();
                if name.starts_with(TEMPORARY) {
                    let _ = self.store.drop_collection(&namespace);
                }
            }
        }
    }
}
