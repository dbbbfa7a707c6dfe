//! Identifiers that need no shared counter: ObjectIds and UUIDs.

use super::{Generator, Source, Spec};
use crate::custom::encode::{Env, Hand};
use crate::custom::source::{Item, Parsed};
use crate::custom::template::{Node, Seen};
use crate::docs::object_id;
use muniment_load::fail::Result;
use std::sync::Arc;

/// The generator `objectId`.
pub(super) const OBJECT_ID: Spec = Spec {
    name: "objectId",
    form: "true",
    about: "an ObjectId as drivers make it: seconds, five random bytes of the process, a counter",
    read: |item: &Item, _: &mut Seen| -> Parsed<Node> {
        if !item.flag("objectId")? {
            return Err(item.bad("objectId must be true"));
        }
        Ok(Node::Made(Arc::new(Id::Object)))
    },
};

/// The generator `uuid`.
pub(super) const UUID: Spec = Spec {
    name: "uuid",
    form: "\"binary\" or \"text\"",
    about: "a random UUID (version 4), as Binary of subtype 4 or as a string of 36 characters; true is \"binary\"",
    read: |item: &Item, _: &mut Seen| -> Parsed<Node> {
        let id = match item.flag("uuid") {
            Ok(true) => Id::Uuid,
            Ok(false) => return Err(item.bad("uuid must be true, \"binary\" or \"text\"")),
            Err(_) => item.one_of("uuid", &[("binary", Id::Uuid), ("text", Id::Text)])?,
        };
        Ok(Node::Made(Arc::new(id)))
    },
};

#[derive(Debug, Clone, Copy)]
enum Id {
    Object,
    Uuid,
    Text,
}

impl Generator for Id {
    fn kind(&self) -> Option<u8> {
        Some(match self {
            Id::Object => 7,
            Id::Uuid => 5,
            Id::Text => 2,
        })
    }

    fn width(&self) -> Option<usize> {
        Some(match self {
            Id::Object => 12,
            Id::Uuid => 21,
            Id::Text => 41,
        })
    }

    fn start(&self, _: &Env<'_>) -> Result<Box<dyn Source>> {
        Ok(Box::new(*self))
    }
}

impl Source for Id {
    #[inline]
    fn write(&mut self, hand: &mut Hand, out: &mut Vec<u8>) -> u8 {
        if matches!(self, Id::Object) {
            out.extend_from_slice(&object_id());
            return 7;
        }
        let (high, low) = (hand.rng.next_u64(), hand.rng.next_u64());
        // The bits that RFC 9562 sets for version 4 and variant 10.
        let high = high & !0xf000 | 0x4000;
        let low = low & !(3 << 62) | 2 << 62;
        if matches!(self, Id::Uuid) {
            out.extend_from_slice(&16u32.to_le_bytes());
            out.push(4);
            out.extend_from_slice(&high.to_be_bytes());
            out.extend_from_slice(&low.to_be_bytes());
            return 5;
        }
        out.extend_from_slice(&37u32.to_le_bytes());
        let all = u128::from(high) << 64 | u128::from(low);
        for i in 0..32 {
            if matches!(i, 8 | 12 | 16 | 20) {
                out.push(b'-');
            }
            let digit = (all >> (124 - 4 * i)) as u8 & 15;
            out.push(if digit < 10 {
                b'0' + digit
            } else {
                b'a' + digit - 10
            });
        }
        out.push(0);
        2
    }
}
