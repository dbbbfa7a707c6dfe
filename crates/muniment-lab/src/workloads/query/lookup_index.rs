//! A join: one look-up in an index of the other collection for every order.

use super::Query;
use muniment_value::{Value, array, doc};

pub(super) const QUERY: Query = Query {
    name: "lookup-index",
    title: "$lookup of each order's customer by an indexed field",
    index: Some(|| {
        (
            "customers",
            doc! { "key": doc! { "number": 1 }, "name": "number_1" },
        )
    }),
    command: |_| {
        doc! {
            "aggregate": "orders",
            "pipeline": array![
                doc! { "$lookup": doc! {
                    "from": "customers",
                    "localField": "customer",
                    "foreignField": "number",
                    "as": "who",
                } },
                doc! { "$group": doc! {
                    "_id": Value::Null,
                    "found": doc! { "$sum": doc! { "$size": "$who" } },
                } },
            ],
            "cursor": doc! {},
        }
    },
    documents: |s| s.orders,
    results: |_| 1,
    target: Some(150e3),
};
