//! The interface that stages use if they need more than their input. It is the only connection between the
//! query language and the storage, and the executor implements it.

use super::DocStream;
use super::merge::MergeSpec;
use super::out::OutSpec;
use crate::context::QueryContext;
use bytes::Bytes;
use muniment_value::path::Path;
use muniment_value::{Code, Doc, Error, Result, Value};
use std::collections::BTreeSet;

/// The database around a running pipeline.
pub trait Host: Send + Sync {
    /// Opens `pipeline` over the collection `ctx.db`.`ctx.collection` (or without a collection, if the name
    /// is empty), with the context's variables. A collection that does not exist counts as empty.
    ///
    /// # Errors
    /// Those of the stages.
    fn pipeline(&self, pipeline: Doc<'_>, ctx: &QueryContext) -> Result<Box<dyn DocStream>>;

    /// Prepares equality look-ups on a field of a collection of the context's database, by the context's
    /// collation; `None` if that collection can only be read through [`Host::pipeline`] (a view).
    ///
    /// # Errors
    /// Damaged data.
    fn join(
        &self,
        collection: &str,
        field: &Path,
        ctx: &QueryContext,
    ) -> Result<Option<Box<dyn Join>>>;

    /// The documents of a stage that reports about the server or a collection (`$collStats`, `$currentOp`,
    /// …). Its operand has been checked already.
    ///
    /// # Errors
    /// 26 NamespaceNotFound if the stage needs a collection and it does not exist.
    fn figures(&self, stage: &str, operand: Doc<'_>, ctx: &QueryContext) -> Result<Vec<Bytes>>;

    /// Opens the target of a `$merge`.
    ///
    /// # Errors
    /// 51183 if there is no unique index on the `on` fields, and those of the namespace.
    fn merge(&self, spec: &MergeSpec, ctx: &QueryContext) -> Result<Box<dyn Writer>>;

    /// Opens the target of an `$out`.
    ///
    /// # Errors
    /// Those of the namespace.
    fn out(&self, spec: &OutSpec, ctx: &QueryContext) -> Result<Box<dyn Writer>>;

    /// The amount of data that the pipelines and joins of this host have read since the last call. The
    /// indexes and scans are counted from the beginning.
    fn reads(&self) -> Reads {
        Reads::default()
    }
}

/// The amount of data that was read from collections.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    /// Index keys examined.
    pub keys: u64,
    /// Documents examined.
    pub docs: u64,
    /// Scans of whole collections.
    pub scans: u64,
    /// The names of the indexes that were used.
    pub indexes: BTreeSet<String>,
}

/// Equality look-ups on one field of one collection.
pub trait Join: Send {
    /// Passes every document whose field equals one of `values` to `found`, each document once. `null` also
    /// finds missing fields; an array finds equal arrays, and arrays that contain it.
    ///
    /// # Errors
    /// Damaged data, an interrupt, those of `found`.
    fn find(
        &mut self,
        values: &[Value<'_>],
        found: &mut dyn FnMut(Bytes) -> Result<()>,
    ) -> Result<()>;
}

/// The target of a pipeline's documents. If an `$out` is dropped before [`Writer::finish`], its target stays
/// as it was.
pub trait Writer: Send {
    /// Takes one document.
    ///
    /// # Errors
    /// Those of writing.
    fn write(&mut self, doc: Bytes) -> Result<()>;

    /// Writes the remaining documents and makes the result visible.
    ///
    /// # Errors
    /// Those of writing.
    fn finish(&mut self) -> Result<()>;
}

/// A host without a database, for pipelines over documents in memory.
pub struct NoHost;

fn no_database<T>() -> Result<T> {
    Err(Error::new(
        Code::IllegalOperation,
        "the pipeline runs without a database",
    ))
}

impl Host for NoHost {
    fn pipeline(&self, _: Doc<'_>, _: &QueryContext) -> Result<Box<dyn DocStream>> {
        no_database()
    }

    fn join(&self, _: &str, _: &Path, _: &QueryContext) -> Result<Option<Box<dyn Join>>> {
        no_database()
    }

    fn figures(&self, _: &str, _: Doc<'_>, _: &QueryContext) -> Result<Vec<Bytes>> {
        no_database()
    }

    fn merge(&self, _: &MergeSpec, _: &QueryContext) -> Result<Box<dyn Writer>> {
        no_database()
    }

    fn out(&self, _: &OutSpec, _: &QueryContext) -> Result<Box<dyn Writer>> {
        no_database()
    }
}
