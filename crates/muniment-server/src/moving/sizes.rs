//! How much a shard has of a collection: what it owns, and the rest.

use muniment_exec::OpContext;
use muniment_storage::{Collection, Store};
use muniment_value::Result;

/// Documents and their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    /// Documents that the shard owns.
    pub docs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Rows that it does not own.
    pub foreign_docs: u64,
    /// Their bytes.
    pub foreign_bytes: u64,
}

/// The sizes of a collection. Rows that are not owned are looked at one by one.
///
/// # Errors
/// Those of reading.
pub fn sizes_of(store: &Store, op: &OpContext, collection: &Collection) -> Result<Sizes> {
    let mut sizes = Sizes {
        docs: collection.count(),
        bytes: collection.data_bytes(),
        ..Sizes::default()
    };
    let moved = collection.may_have_foreign_rows();
    let Some(placement) = collection.placement().filter(|_| moved) else {
        return Ok(sizes);
    };
    let view = store.snapshot().with_foreign_rows();
    for range in placement.foreign() {
        let mut rows = view.rows_of_range(collection, &placement.key, range, None);
        while let Some(row) = rows.next(op)? {
            sizes.foreign_docs += 1;
            sizes.foreign_bytes += row.doc.len() as u64;
        }
    }
    sizes.docs = sizes.docs.saturating_sub(sizes.foreign_docs);
    sizes.bytes = sizes.bytes.saturating_sub(sizes.foreign_bytes);
    Ok(sizes)
}
