//! Finds a thousand documents by ids that are spread over the whole collection.

use super::Query;
use muniment_value::{ArrayBuf, doc};

/// The number of ids.
const IDS: u64 = 1000;

pub(super) const QUERY: Query = Query {
    name: "in-ids",
    title: "$in of 1000 ids",
    index: None,
    command: |s| {
        let step = (s.orders / IDS).max(1);
        let ids = (0..IDS).map(|i| (i * step) as i32).collect::<ArrayBuf>();
        doc! {
            "find": "orders",
            "filter": doc! { "_id": doc! { "$in": ids } },
            "batchSize": 10_000,
        }
    },
    documents: |_| IDS,
    results: |_| IDS,
    target: None,
};
