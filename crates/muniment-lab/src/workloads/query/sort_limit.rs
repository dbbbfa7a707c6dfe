//! Returns the first thousand of all orders in a sort order without an index: a scan that must not
//! keep more than those in memory.

use super::Query;
use muniment_value::doc;

pub(super) const QUERY: Query = Query {
    name: "sort-limit",
    title: "sort and limit 1000, without an index",
    index: None,
    command: |_| {
        doc! {
            "find": "orders",
            "sort": doc! { "total": -1 },
            "limit": 1000,
            "batchSize": 1000,
        }
    },
    documents: |s| s.orders,
    results: |_| 1000,
    target: None,
};
