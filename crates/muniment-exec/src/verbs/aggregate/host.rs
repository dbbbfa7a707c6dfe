//! Implements [`muniment_query::stage::host::Host`] on the engine: the part of the database that a
//! pipeline's stages see.

use super::join;
use super::link::Link;
use super::open::open;
use crate::source::Source;
use crate::verbs::index_stats::index_stats;
use crate::verbs::plan_cache::plan_cache_stats;
use crate::verbs::write::merge::MergeWriter;
use crate::verbs::write::out::OutWriter;
use bytes::Bytes;
use muniment_query::stage::host::{Host, Join, Reads, Writer};
use muniment_query::stage::merge::MergeSpec;
use muniment_query::stage::out::OutSpec;
use muniment_query::{DocStream, QueryContext};
use muniment_value::path::Path;
use muniment_value::{Doc, Result};

impl Host for Link {
    fn pipeline(&self, pipeline: Doc<'_>, ctx: &QueryContext) -> Result<Box<dyn DocStream>> {
        Ok(open(self, pipeline, ctx, None)?.into_stream(&self.op))
    }

    fn join(
        &self,
        collection: &str,
        field: &Path,
        ctx: &QueryContext,
    ) -> Result<Option<Box<dyn Join>>> {
        let namespace = format!("{}.{collection}", ctx.db);
        let store = &self.engine.store;
        let collection = match Source::resolve(store, &self.op.get(), &namespace)? {
            Source::Collection(collection) => Some(collection),
            Source::Absent => None,
            // These are not looked up by a field directly: the caller runs a pipeline on them.
            Source::View(_) | Source::Buckets(_) | Source::Generated(_) => return Ok(None),
        };
        Ok(Some(join::open(self, collection, field, &ctx.collation)))
    }

    fn figures(&self, stage: &str, operand: Doc<'_>, ctx: &QueryContext) -> Result<Vec<Bytes>> {
        let own = match self.engine.figures.get() {
            Some(f) => f.documents(&self.op.get(), stage, operand, &ctx.db, &ctx.collection),
            None => None,
        };
        let documents = match own {
            Some(documents) => documents?,
            None if stage == "$indexStats" => {
                let namespace = format!("{}.{}", ctx.db, ctx.collection);
                index_stats(&self.engine.store, &namespace, None)?
            }
            None if stage == "$planCacheStats" => {
                let namespace = format!("{}.{}", ctx.db, ctx.collection);
                plan_cache_stats(&self.engine, &namespace, None)?
            }
            None => Vec::new(),
        };
        Ok(documents
            .into_iter()
            .map(|d| Bytes::from(d.into_bytes()))
            .collect())
    }

    fn merge(&self, spec: &MergeSpec, ctx: &QueryContext) -> Result<Box<dyn Writer>> {
        Ok(Box::new(MergeWriter::new(self.clone(), spec, ctx, false)?))
    }

    fn reads(&self) -> Reads {
        self.op.get().take_reads()
    }

    fn out(&self, spec: &OutSpec, _: &QueryContext) -> Result<Box<dyn Writer>> {
        Ok(Box::new(OutWriter::new(self.clone(), spec)?))
    }
}
