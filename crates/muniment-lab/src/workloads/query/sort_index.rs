//! Returns the first thousand orders in the order of an index.

use super::Query;
use muniment_value::doc;

pub(super) const QUERY: Query = Query {
    name: "sort-index",
    title: "sort and limit 1000, by an index",
    index: Some(|| {
        (
            "orders",
            doc! { "key": doc! { "total": 1 }, "name": "total_1" },
        )
    }),
    command: |_| {
        doc! {
            "find": "orders",
            "sort": doc! { "total": -1 },
            "limit": 1000,
            "batchSize": 1000,
        }
    },
    documents: |_| 1000,
    results: |_| 1000,
    target: None,
};
