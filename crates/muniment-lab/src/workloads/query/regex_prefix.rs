//! A regular expression whose prefix bounds an index scan.

use super::Query;
use super::data::RARE;
use muniment_value::doc;

pub(super) const QUERY: Query = Query {
    name: "regex-prefix",
    title: "regular expression with a prefix, by an index",
    index: Some(|| {
        (
            "orders",
            doc! { "key": doc! { "code": 1 }, "name": "code_1" },
        )
    }),
    command: |_| {
        doc! {
            "find": "orders",
            "filter": doc! { "code": doc! { "$regex": "^RX" } },
            "batchSize": 10_000,
        }
    },
    documents: |s| s.orders.div_ceil(RARE),
    results: |s| s.orders.div_ceil(RARE),
    target: None,
};
