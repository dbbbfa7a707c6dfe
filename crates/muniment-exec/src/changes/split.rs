//! `$changeStreamSplitLargeEvent`: divides events that are larger than a document may be.
//!
//! A part has some of the event's fields, the token with the part's number, and `splitEvent:
//! {fragment, of}`.

use super::token::Token;
use bytes::Bytes;
use muniment_query::DocStream;
use muniment_value::{Code, Doc, DocBuf, Error, Result, doc};
use std::collections::VecDeque;

/// The most bytes of a part: the size of a document in a reply, with room for the token and the
/// number.
const MOST: usize = (16 << 20) + (8 << 10);

/// The stage that divides large events.
pub(super) struct Splitter<G> {
    source: Box<dyn DocStream>,
    /// Is told the token of each part that is given.
    gives: G,
    parts: VecDeque<(DocBuf, Bytes)>,
    /// The number of parts of the first event that are not given.
    skip: u32,
    most: usize,
}

impl<G> Splitter<G> {
    /// Runs over the other stages of a stream. `skip` parts of the first event have been given to
    /// the client before.
    pub(super) fn new(source: Box<dyn DocStream>, gives: G, skip: u32) -> Splitter<G> {
        Splitter {
            source,
            gives,
            parts: VecDeque::new(),
            skip,
            most: MOST,
        }
    }
}

impl<G: Fn(Doc<'_>) + Send> DocStream for Splitter<G> {
    fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some((token, part)) = self.parts.pop_front() {
                (self.gives)(token.as_doc());
                return Ok(Some(part));
            }
            let Some(event) = self.source.next()? else {
                return Ok(None);
            };
            let skip = std::mem::take(&mut self.skip);
            if event.len() > self.most {
                self.parts = split(Doc::new(&event), self.most)?.into();
            } else if skip == 0 {
                return Ok(Some(event));
            }
            if skip as usize > self.parts.len() {
                return Err(Error::new(
                    Code::ChangeStreamFatalError,
                    "cannot resume stream; the event of the resume token is not split any more",
                ));
            }
            self.parts.drain(..skip as usize);
        }
    }
}

/// The parts of an event with their tokens: small fields together, the largest last.
fn split(event: Doc<'_>, most: usize) -> Result<Vec<(DocBuf, Bytes)>> {
    let token = event.get_doc("_id").unwrap_or(Doc::EMPTY);
    let token = Token::parse(token)?;
    let mut fields: Vec<_> = event.iter().filter(|e| e.name() != "_id").collect();
    fields.sort_by_key(|e| e.as_bytes().len());
    let mut groups: Vec<Vec<_>> = Vec::new();
    let mut room = 0;
    for e in fields {
        let bytes = e.as_bytes().len();
        if bytes > most {
            return Err(Error::new(
                Code::BSONObjectTooLarge,
                format!(
                    "The field '{}' of a change event is too large for a document by itself",
                    e.name()
                ),
            ));
        }
        match groups.last_mut().filter(|_| bytes <= room) {
            Some(group) => group.push(e),
            None => {
                groups.push(vec![e]);
                room = most;
            }
        }
        room = room.saturating_sub(bytes);
    }
    let of = groups.len() as i32;
    let parts = (0_u32..).zip(groups).map(|(n, group)| {
        let token = Token {
            fragment: Some(n),
            ..token
        };
        let token = token.to_doc();
        let mut part = doc! {
            "_id": &token,
            "splitEvent": doc! { "fragment": n as i32 + 1, "of": of },
        };
        for e in group {
            part.append_elem(e);
        }
        (token, Bytes::from(part.into_bytes()))
    });
    Ok(parts.collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_storage::Timestamp;

    #[test]
    fn every_field_is_in_one_part() {
        let event = doc! {
            "_id": Token::high_water(Timestamp(5)).to_doc(),
            "fullDocument": "x".repeat(700),
            "operationType": "update",
            "fullDocumentBeforeChange": "y".repeat(600),
            "ns": "db.c",
        };
        let parts = split(event.as_doc(), 1000).unwrap();
        let names: Vec<Vec<String>> = parts
            .iter()
            .map(|(token, d)| {
                let d = Doc::new(d);
                assert_eq!(d.get_doc("_id").unwrap().to_buf(), *token);
                assert_eq!(
                    d.get_doc("splitEvent")
                        .unwrap()
                        .get("of")
                        .and_then(|v| v.as_i64_exact()),
                    Some(2)
                );
                d.iter().skip(2).map(|e| e.name().to_string()).collect()
            })
            .collect();
        assert_eq!(
            names,
            [
                vec!["ns", "operationType", "fullDocumentBeforeChange"],
                vec!["fullDocument"]
            ]
        );
        assert!(parts[0].0.as_doc().get_str("_data") < parts[1].0.as_doc().get_str("_data"));
        assert!(split(event.as_doc(), 650).is_err());
    }
}
