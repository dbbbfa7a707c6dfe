//! Writes: insert, update, delete, findAndModify.
//!
//! Candidates are found by a plan on a snapshot; then each record is locked, read again, matched
//! again and changed, so that no decision rests on a stale document. A statement over many
//! documents works on the snapshot it began with: a document is changed once.

mod batch;
pub(crate) mod bulk;
pub(crate) mod change;
pub(crate) mod delete;
pub(crate) mod document;
pub(crate) mod find_and_modify;
pub(crate) mod insert;
pub(crate) mod merge;
mod observed;
pub(crate) mod out;
mod outcome;
pub(crate) mod perform;
pub(crate) mod slices;
pub(crate) mod temporary;
pub(crate) mod update;
mod validator;
mod version;

pub use batch::Batch;
pub use delete::DeleteStatement;
pub use find_and_modify::{FindAndModifyOutcome, FindAndModifyRequest, in_find_and_modify};
pub use insert::{Documents, InsertOptions};
pub use merge::{MergeRequest, Merged, check_on, with_id};
pub use out::HalfWritten;
pub use outcome::{BulkOutcome, WriteError};
pub use temporary::TEMPORARY;
pub use update::{UpdateStatement, with_constants};
pub use validator::Log as ValidationLog;
pub(crate) use validator::Validators;
pub use version::{VERSION_COLLECTION, VERSION_DOCUMENT};
