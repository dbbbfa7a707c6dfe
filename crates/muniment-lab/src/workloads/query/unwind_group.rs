//! Unwinds every item of every order and groups the items by what was sold.

use super::Query;
use super::data::SKUS;
use muniment_value::{array, doc};

pub(super) const QUERY: Query = Query {
    name: "unwind-group",
    title: "$unwind of the items, $group by item",
    index: None,
    command: |_| {
        doc! {
            "aggregate": "orders",
            "pipeline": array![
                doc! { "$unwind": "$items" },
                doc! { "$group": doc! {
                    "_id": "$items.sku",
                    "sold": doc! { "$sum": "$items.qty" },
                } },
            ],
            "cursor": doc! { "batchSize": 10_000 },
        }
    },
    documents: |s| s.orders,
    results: |_| SKUS,
    target: None,
};
