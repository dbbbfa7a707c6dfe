//! A scan with a filter that half the orders pass, grouped by two keys.

use super::Query;
use super::data::{REGION, STATUS};
use muniment_value::{array, doc};

pub(super) const QUERY: Query = Query {
    name: "group-two",
    title: "scan with a filter, $group by two fields: count and sum",
    index: None,
    command: |_| {
        doc! {
            "aggregate": "orders",
            "pipeline": array![
                doc! { "$match": doc! { "rank": doc! { "$gte": 500 } } },
                doc! { "$group": doc! {
                    "_id": doc! { "region": "$region", "status": "$status" },
                    "n": doc! { "$sum": 1 },
                    "sum": doc! { "$sum": "$total" },
                } },
            ],
            "cursor": doc! {},
        }
    },
    documents: |s| s.orders,
    results: |_| (REGION.len() * STATUS.len()) as u64,
    target: Some(1e6),
};
