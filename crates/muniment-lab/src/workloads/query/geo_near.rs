//! $geoNear: the documents nearest to a point, with their distance.

use super::Query;
use muniment_value::{array, doc};

pub(super) const QUERY: Query = Query {
    name: "geo-near",
    title: "the 100 orders nearest to a point, by a 2dsphere index",
    index: Some(|| {
        (
            "orders",
            doc! { "key": doc! { "place": "2dsphere" }, "name": "place_2dsphere" },
        )
    }),
    command: |_| {
        doc! {
            "aggregate": "orders",
            "pipeline": array![
                doc! { "$geoNear": doc! {
                    "near": doc! { "type": "Point", "coordinates": array![10.0, 50.0] },
                    "distanceField": "distance",
                } },
                doc! { "$limit": 100 },
            ],
            "cursor": doc! {},
        }
    },
    documents: |_| 100,
    results: |_| 100,
    target: None,
};
