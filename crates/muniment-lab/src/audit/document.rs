//! The documents that the audit writes. The whole content of a document follows from the round's
//! mark, the writer and the number, so that every byte that is found can be compared.

use muniment_load::rng::Rng;
use muniment_value::{DocBuf, doc};

/// The collection that the writers fill.
pub(crate) const COLLECTION: &str = "audit";
/// The secondary index, whose entries are compared with the documents. With `_id` in it a query
/// for both fields can be answered by the index alone.
pub(crate) const INDEX: &str = "k_1__id_1";
/// The number of documents that one writer can number.
const RANGE: i64 = 1 << 40;

/// The `_id` of document `number` (from 1) of writer `thread`: monotone for each writer.
pub(crate) fn id(thread: usize, number: u64) -> i64 {
    thread as i64 * RANGE + number as i64
}

/// The writer and number of an `_id`; `None` if the audit does not write such an `_id`.
pub(crate) fn split(id: i64) -> Option<(usize, u64)> {
    (id > 0).then_some(((id / RANGE) as usize, (id % RANGE) as u64))
}

/// The `_id` of a writer's counter.
pub(crate) fn counter_id(thread: usize) -> i64 {
    -1 - thread as i64
}

/// The writer whose counter has this `_id`.
pub(crate) fn counter_of(id: i64) -> Option<usize> {
    usize::try_from(-1 - i128::from(id)).ok()
}

/// The indexed field. Its values are scattered, so that index entries are not in the order of the
/// writes.
pub(crate) fn key(mark: u64, id: i64, value: u64) -> i64 {
    Rng::new(mark ^ (id as u64).wrapping_mul(31) ^ (value << 20)).next_u64() as i64
}

/// Document `number` of writer `thread` in the round with this mark: 40 to 440 bytes of text.
pub(crate) fn document(mark: u64, thread: usize, number: u64) -> DocBuf {
    let id = id(thread, number);
    let mut rng = Rng::new(mark.wrapping_add(id as u64));
    let length = 40 + rng.below(400) as usize;
    let mut text = String::with_capacity(length + 16);
    while text.len() < length {
        text.push_str(&format!("{:016x}", rng.next_u64()));
    }
    text.truncate(length);
    doc! { "_id": id, "mark": mark as i64, "k": key(mark, id, 0), "text": text.as_str() }
}

/// A writer's counter before its first update.
pub(crate) fn counter(mark: u64, thread: usize) -> DocBuf {
    let id = counter_id(thread);
    doc! { "_id": id, "mark": mark as i64, "k": key(mark, id, 0), "set": 0i64, "added": 0i64 }
}

/// The update that brings a counter from `value - 1` to `value`, in one field by $set and in
/// another by $inc. The two fields agree unless half an update was kept or an update was applied to
/// an older state.
pub(crate) fn update(mark: u64, thread: usize, value: u64) -> DocBuf {
    let id = counter_id(thread);
    doc! {
        "q": doc! { "_id": id },
        "u": doc! {
            "$set": doc! { "set": value as i64, "k": key(mark, id, value) },
            "$inc": doc! { "added": 1i64 },
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ids_are_monotone_and_name_their_writer() {
        assert!(id(0, 1) < id(0, 2) && id(0, 1 << 39) < id(1, 1));
        assert_eq!(split(id(3, 77)), Some((3, 77)));
        assert_eq!(split(counter_id(0)), None);
        assert_eq!(counter_of(counter_id(5)), Some(5));
        assert_eq!(counter_of(id(0, 1)), None);
        assert_eq!(counter_of(i64::MIN), Some(i64::MAX as usize));
    }

    #[test]
    fn a_document_follows_from_its_number_and_only_from_it() {
        let d = document(9, 1, 5);
        assert_eq!(d, document(9, 1, 5));
        for other in [document(8, 1, 5), document(9, 0, 5), document(9, 1, 6)] {
            assert_ne!(d, other);
        }
        let text = d.as_doc().get_str("text").unwrap().len();
        assert!((40..440).contains(&text), "{text}");
    }
}
