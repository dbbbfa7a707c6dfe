//! The request of an aggregation.

use crate::plan::hint::Hint;
use muniment_value::{Collation, Doc};

/// The fields of an `aggregate` command.
#[derive(Clone, Debug)]
pub struct AggregateRequest<'a> {
    /// The database.
    pub db: &'a str,
    /// The collection; `None` for `aggregate: 1`.
    pub collection: Option<&'a str>,
    /// The array of stages.
    pub pipeline: Doc<'a>,
    /// The hint.
    pub hint: Option<Hint<'a>>,
    /// `allowDiskUse`: with `Some(false)` a stage that exceeds the memory limit fails.
    pub allow_disk_use: Option<bool>,
    /// The command's `let`.
    pub let_: Doc<'a>,
    /// How strings compare; `None` means by the collection's collation.
    pub collation: Option<Collation>,
    /// `$merge` and `$out` skip the target's validator.
    pub bypass_document_validation: bool,
    /// Whether the router of the cluster sends the pipeline, which may then be a shard's part of one (see
    /// [`muniment_query::split`]).
    pub member: bool,
}

impl<'a> AggregateRequest<'a> {
    /// A pipeline on a database, without options.
    pub fn new(db: &'a str, pipeline: Doc<'a>, let_: Doc<'a>) -> AggregateRequest<'a> {
        AggregateRequest {
            db,
            collection: None,
            pipeline,
            hint: None,
            allow_disk_use: None,
            let_,
            collation: None,
            bypass_document_validation: false,
            member: false,
        }
    }

    /// The namespace that replies show.
    pub(crate) fn namespace(&self) -> String {
        let name = self.collection.unwrap_or("$cmd.aggregate");
        format!("{}.{name}", self.db)
    }
}
