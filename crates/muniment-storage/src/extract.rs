//! The keys of one document in an index: from extraction to encoding.

use crate::index::KeySet;
use muniment_value::path::Path;
use muniment_value::{Code, Doc, Error, Result};

/// Fills `set` with the encoded keys of `doc`.
pub(crate) fn index_keys(
    fields: &[(Path, bool)],
    sparse: bool,
    doc: Doc<'_>,
    set: &mut KeySet,
) -> Result<()> {
    let _ = (fields, sparse, doc, set);
    Err(Error::new(
        Code::NotImplemented,
        "secondary indexes are not connected yet",
    ))
}
