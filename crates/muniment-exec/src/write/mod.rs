//! Writes: insert, update, delete, findAndModify.
//!
//! Candidates are found by a plan on a snapshot; then each record is locked, read again, matched
//! again and changed, so that no decision rests on a stale document. A statement over many
//! documents works on the snapshot it began with: a document is changed once.

mod bulk;
pub(crate) mod core;
mod delete;
mod find_and_modify;
mod insert;
pub(crate) mod merge;
mod observed;
pub(crate) mod out;
mod retry;
pub(crate) mod slices;
mod update;
mod validator;
mod version;

pub use bulk::{BulkOutcome, StatementOutcome, WriteError};
pub use delete::DeleteStatement;
pub use find_and_modify::{FindAndModifyOutcome, FindAndModifyRequest};
pub(crate) use insert::prepare;
pub use insert::{Documents, InsertOptions};
pub use observed::StatementFigures;
pub(crate) use retry::Statements;
pub use retry::{Retry, StatementIds};
pub use update::UpdateStatement;
pub(crate) use validator::Validators;
pub use version::{VERSION_COLLECTION, VERSION_DOCUMENT};
