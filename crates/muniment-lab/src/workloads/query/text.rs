//! Finds a word by its stem in a text index.

use super::Query;
use super::data::RARE;
use muniment_value::doc;

pub(super) const QUERY: Query = Query {
    name: "text",
    title: "$text for a word in one order of 500, by a text index",
    index: Some(|| {
        (
            "orders",
            doc! { "key": doc! { "note": "text" }, "name": "note_text" },
        )
    }),
    command: |_| {
        doc! {
            "find": "orders",
            "filter": doc! { "$text": doc! { "$search": "giraffes" } },
            "batchSize": 10_000,
        }
    },
    documents: |s| s.orders.div_ceil(RARE),
    results: |s| s.orders.div_ceil(RARE),
    target: None,
};
