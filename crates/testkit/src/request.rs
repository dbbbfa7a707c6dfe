//! Requests that several tests send.

use muniment_value::{DocBuf, array, doc};
use muniment_wire::begin_request;

/// A command with its `$db`, as the bytes of a message.
///
/// # Panics
/// The command is larger than a message may be.
pub fn request_bytes(command: &DocBuf) -> Vec<u8> {
    let mut bytes = Vec::new();
    begin_request(&mut bytes, 3, 0)
        .body(command.as_doc())
        .finish()
        .unwrap();
    bytes
}

/// An aggregation that computes for minutes, unless it is ended. It has this `comment`.
pub fn endless(comment: &str) -> DocBuf {
    let numbers = doc! { "$range": array![0, 2_000_000] };
    let map = doc! { "$map": doc! { "input": numbers, "in": doc! { "$sin": "$$this" } } };
    let input = doc! { "$range": array![0, 100_000] };
    let more = doc! { "$map": doc! { "input": input, "in": doc! { "$sum": map } } };
    let pipeline = array![
        doc! { "$documents": array![doc! { "a": 1 }] },
        doc! { "$project": doc! { "x": more } },
    ];
    doc! { "aggregate": 1, "pipeline": pipeline, "cursor": doc! {}, "comment": comment }
}
