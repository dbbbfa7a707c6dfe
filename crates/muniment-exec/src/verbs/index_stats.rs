//! `$indexStats`: the uses of every index of a collection.

use crate::source::Source;
use crate::timeseries::TimeSeries;
use muniment_storage::Store;
use muniment_value::{Doc, DocBuf, Result, Value, doc};

/// Implements [`crate::Database::index_stats`].
pub(crate) fn index_stats(
    store: &Store,
    namespace: &str,
    host: Option<&str>,
) -> Result<Vec<DocBuf>> {
    let source = Source::now(store, namespace)?;
    let source = source.below_views(store, namespace)?;
    let series = source.buckets().and_then(|c| TimeSeries::of(c));
    let indexes = source
        .stored()
        .into_iter()
        .flat_map(|c| c.indexes().to_vec());
    Ok(indexes
        .map(|index| {
            let spec = index.spec();
            let (ops, since) = index.usage();
            let shown = match &series {
                Some(s) => s.index_of_buckets(spec.document.as_doc()),
                None => spec.document.clone(),
            };
            let key = shown.as_doc().get_doc("key").unwrap_or(Doc::EMPTY);
            let mut d = doc! { "name": spec.name.as_str(), "key": key };
            d.append_some("host", host);
            d.append(
                "accesses",
                doc! { "ops": ops as i64, "since": Value::DateTime(since) },
            );
            d.append("spec", &shown);
            d
        })
        .collect())
}
