//! What the stages that reach beyond their input ask of the database: the one door between the
//! query language and the storage. The executor implements it.

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
    /// Opens `pipeline` over the collection `ctx.db`.`ctx.collection` (or over nothing, when that
    /// is empty), with the context's variables. A collection that does not exist is empty.
    ///
    /// # Errors
    /// The stages' own.
    fn pipeline(&self, pipeline: Doc<'_>, ctx: &QueryContext) -> Result<Box<dyn DocStream>>;

    /// Prepares equality look-ups on a field of a collection of the context's database, by its
    /// collation; `None` when that collection can
    /// only be read through [`Host::pipeline`] (a view).
    ///
    /// # Errors
    /// Damaged data.
    fn join(
        &self,
        collection: &str,
        field: &Path,
        ctx: &QueryContext,
    ) -> Result<Option<Box<dyn Join>>>;

    /// The documents of a stage that tells about the server or a collection (`$collStats`,
    /// `$currentOp`, …), whose operand is checked already.
    ///
    /// # Errors
    /// 26 NamespaceNotFound where the stage needs a collection.
    fn figures(&self, stage: &str, operand: Doc<'_>, ctx: &QueryContext) -> Result<Vec<Bytes>>;

    /// Opens the target of a `$merge`.
    ///
    /// # Errors
    /// 51183 without the unique index that `on` needs, and what the namespace raises.
    fn merge(&self, spec: &MergeSpec, ctx: &QueryContext) -> Result<Box<dyn Writer>>;

    /// Opens the target of an `$out`.
    ///
    /// # Errors
    /// What the namespace raises.
    fn out(&self, spec: &OutSpec, ctx: &QueryContext) -> Result<Box<dyn Writer>>;

    /// What the pipelines and joins of this host have read since it was asked the last time; which
    /// indexes and scans from the first time on.
    fn reads(&self) -> Reads {
        Reads::default()
    }
}

/// What was read of collections.
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
    /// Gives every document whose field equals one of `values`, each document once. `null`
    /// finds missing fields too; an array finds itself, and arrays that hold it.
    ///
    /// # Errors
    /// Damaged data, an interrupt, what `found` returns.
    fn find(
        &mut self,
        values: &[Value<'_>],
        found: &mut dyn FnMut(Bytes) -> Result<()>,
    ) -> Result<()>;
}

/// Where a pipeline's documents go. Dropped before [`Writer::finish`], an `$out` leaves its
/// target as it was.
pub trait Writer: Send {
    /// Takes one document.
    ///
    /// # Errors
    /// What writing raises.
    fn write(&mut self, doc: Bytes) -> Result<()>;

    /// Writes what is left and makes it visible.
    ///
    /// # Errors
    /// What writing raises.
    fn finish(&mut self) -> Result<()>;
}

/// No database: for pipelines over documents in memory.
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
