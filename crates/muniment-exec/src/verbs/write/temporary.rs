//! Collections that exist only while a command runs.

use muniment_query::NeverInterrupted;
use muniment_storage::Store;

/// The prefix of the names that `$out` gives to half-written collections.
pub const TEMPORARY: &str = "tmp.agg_out.";

/// Drops the collections that `$out` or convertToCapped left half-written when the process ended.
pub(crate) fn drop_temporary(store: &Store) {
    for db in store.databases() {
        for c in store.collections(&db) {
            let namespace = c.namespace();
            let name = namespace.get(db.len() + 1..).unwrap_or_default();
            let id = name.strip_prefix(TEMPORARY).unwrap_or_default();
            let out = id.len() == 24 && id.bytes().all(|b| b.is_ascii_hexdigit());
            let copy = name.strip_prefix("tmp").and_then(|n| n.get(..5));
            let converted = copy.is_some_and(|tag| {
                name.get(8..)
                    .is_some_and(|n| n.starts_with(".convertToCapped."))
                    && tag.bytes().all(|b| b.is_ascii_hexdigit())
            });
            let options = c.options();
            let temp = options.document.as_doc().get("temp");
            let temp = temp.is_some_and(|v| v.truthy());
            if out || converted || temp {
                let _ = store.drop_collection(&namespace, &NeverInterrupted);
            }
        }
    }
}
