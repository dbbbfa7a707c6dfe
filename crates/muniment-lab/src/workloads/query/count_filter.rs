//! A count that has to look at every document.

use super::Query;
use muniment_value::doc;

pub(super) const QUERY: Query = Query {
    name: "count-filter",
    title: "count with a filter on a field without an index",
    index: None,
    command: |_| {
        doc! { "count": "orders", "query": doc! { "status": "paid" } }
    },
    documents: |s| s.orders,
    results: |s| s.orders.div_ceil(5),
    target: None,
};
