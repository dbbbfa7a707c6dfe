//! Requests that several tests send.

use muniment_value::{DocBuf, array, doc};
use muniment_wire::{Header, OP_QUERY, begin_request};

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

/// An OP_QUERY message with a command, as drivers of before 2020 send it. `ns` is `db.$cmd`.
pub fn op_query(ns: &str, command: &DocBuf) -> Vec<u8> {
    let mut m = Vec::new();
    let len = 16 + 4 + ns.len() + 1 + 8 + command.as_bytes().len();
    Header {
        message_length: len as i32,
        request_id: 5,
        response_to: 0,
        op_code: OP_QUERY,
    }
    .put(&mut m);
    m.extend_from_slice(&4_u32.to_le_bytes());
    m.extend_from_slice(ns.as_bytes());
    m.push(0);
    m.extend_from_slice(&0_i32.to_le_bytes());
    m.extend_from_slice(&(-1_i32).to_le_bytes());
    m.extend_from_slice(command.as_bytes());
    m
}
