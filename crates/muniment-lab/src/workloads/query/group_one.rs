//! A scan grouped by one key.

use super::Query;
use super::data::REGION;
use muniment_value::{array, doc};

pub(super) const QUERY: Query = Query {
    name: "group-one",
    title: "$group by one field: count and sum",
    index: None,
    command: |_| {
        doc! {
            "aggregate": "orders",
            "pipeline": array![doc! { "$group": doc! {
                "_id": "$region",
                "n": doc! { "$sum": 1 },
                "sum": doc! { "$sum": "$total" },
            } }],
            "cursor": doc! {},
        }
    },
    documents: |s| s.orders,
    results: |_| REGION.len() as u64,
    target: None,
};
