//! A scan of all orders that returns one in ten of them, projected.

use super::Query;
use muniment_value::doc;

pub(super) const QUERY: Query = Query {
    name: "filter-project",
    title: "scan with a filter, projection of three fields",
    index: None,
    command: |_| {
        doc! {
            "find": "orders",
            "filter": doc! { "rank": doc! { "$lt": 100 }, "total": doc! { "$gte": 0.0 } },
            "projection": doc! { "customer": 1, "total": 1, "status": 1 },
            "batchSize": 10_000,
        }
    },
    documents: |s| s.orders,
    results: |s| s.orders / 10,
    target: None,
};
