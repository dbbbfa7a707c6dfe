//! Resume tokens: `{_data: "82…"}`, hexadecimal digits that sort in the order of the events.
//!
//! The digits have MongoDB 8.0's format (a KeyString of the event's time, a version, the token's
//! type, the place in a transaction, whether it is an invalidation, and the collection's UUID), so
//! that tools find the time in a token. MongoDB appends more to distinguish events of the same
//! time. That is left out, because on one server no two events have the same time and place. Events
//! of several shards may; their tokens have the shard's number after the token's type.

use muniment_storage::Timestamp;
use muniment_value::{Code, Doc, DocBuf, Error, Put, Result, Type, Value};

/// The type byte of a timestamp.
const TIMESTAMP: u8 = 0x82;
/// The type byte of zero. The type bytes of positive numbers begin at [`ONE_BYTE`] and count the
/// bytes of the number.
const ZERO: u8 = 0x29;
const ONE_BYTE: u8 = 0x2B;
const FALSE: u8 = 0x6E;
const TRUE: u8 = 0x6F;
/// The head of a UUID: binary data of 16 bytes and subtype 4.
const UUID: [u8; 3] = [0x5A, 0x10, 0x04];
const NOTHING: u8 = 0x14;
const END: u8 = 0x04;
/// The version of tokens.
const VERSION: u32 = 2;
/// The type of an event's token. The type of a high-water mark is 0.
const EVENT: u32 = 128;
/// The head of a shard's number: binary data of 8 bytes and subtype 0.
const SHARD: [u8; 3] = [0x5A, 0x08, 0x00];
/// The most bytes of a token: a time, four numbers, a shard, a UUID, and the bytes before and after
/// them.
const MOST: usize = 68;

/// The position of an event among all events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The time of its entry.
    pub at: Timestamp,
    /// False for a high-water mark, which is before every event of its time.
    pub is_event: bool,
    /// The shard of the event, if a router merges the events of several: see [`number_of`]. 0 in
    /// high-water marks, and in the stream of a single server.
    pub shard: u64,
    /// The position within a transaction.
    pub index: u32,
    /// True for the invalidation that follows the event.
    pub invalidates: bool,
}

/// A resume token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// The position of its event.
    pub place: Place,
    /// The UUID of the event's collection.
    pub uuid: Option<[u8; 16]>,
    /// The part of a divided event, counted from 0.
    pub fragment: Option<u32>,
}

/// The number of the shard with this name, which is never 0. Events of the same time on different
/// shards are in the order of these numbers, so a number must be the same at any time and on any
/// server.
pub(super) fn number_of(shard: &str) -> u64 {
    // FNV-1a. A cluster has far too few shards for two of them to get the same one.
    let mixed = shard.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, b| {
        (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    mixed.max(1)
}

impl Token {
    /// The mark before everything that happens at a time.
    pub(super) fn high_water(at: Timestamp) -> Token {
        Token {
            place: Place {
                at,
                is_event: false,
                shard: 0,
                index: 0,
                invalidates: false,
            },
            uuid: None,
            fragment: None,
        }
    }

    /// The token in the form that clients get.
    pub(super) fn to_doc(self) -> DocBuf {
        let mut bytes = Vec::with_capacity(2 * MOST + 20);
        self.put(&mut bytes);
        DocBuf::from_bytes_trusted(bytes)
    }

    /// The bytes that its digits stand for.
    fn bytes(&self) -> Key {
        let p = self.place;
        let mut key = Key {
            bytes: [0; MOST],
            len: 0,
        };
        key.push(&[TIMESTAMP]);
        key.push(&p.at.0.to_be_bytes());
        key.number(VERSION);
        key.number(if p.is_event { EVENT } else { 0 });
        if p.shard != 0 {
            key.push(&SHARD);
            key.push(&p.shard.to_be_bytes());
        }
        key.number(p.index);
        key.push(&[if p.invalidates { TRUE } else { FALSE }]);
        match &self.uuid {
            Some(uuid) => {
                key.push(&UUID);
                key.push(uuid);
            }
            None => key.push(&[NOTHING]),
        }
        if let Some(n) = self.fragment {
            key.number(n);
        }
        key.push(&[END]);
        key
    }

    /// Reads a client's token. Anything after it is ignored, as in MongoDB.
    ///
    /// # Errors
    /// 40647, 40648 and 40649 for a document that is no token; 9 FailedToParse for digits that are
    /// not hexadecimal; 50811 and 15 Overflow for bytes that are no token.
    pub(super) fn parse(token: Doc<'_>) -> Result<Token> {
        let bad = |code: i32, what: &str| {
            let shown = token.to_display();
            let message = format!("Bad resume token: {what}: {shown}");
            Err(Error::new(Code(code), message))
        };
        let Some(data) = token.get_str("_data") else {
            return bad(40_647, "_data is missing or of the wrong type");
        };
        if !matches!(token.get("_typeBits"), None | Some(Value::Binary { .. })) {
            return bad(40_648, "_typeBits is of the wrong type");
        }
        if data.is_empty() {
            return bad(40_649, "_data is empty");
        }
        let Some(bytes) = unhex(data) else {
            return bad(Code::FailedToParse.0, "_data is not hexadecimal");
        };
        if bytes.first() != Some(&TIMESTAMP) {
            return bad(50_811, "_data does not begin with a time");
        }
        match decode(&mut &*bytes) {
            Some(token) => Ok(token),
            None => bad(Code::Overflow.0, "_data ends too early or is no token's"),
        }
    }
}

/// Every event has a token, so it is written directly into the event without a buffer of its own.
impl Put for Token {
    fn put_type(&self) -> Type {
        Type::Document
    }

    fn put(&self, out: &mut Vec<u8>) {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        let key = self.bytes();
        let mut text = [0; 2 * MOST];
        for (place, b) in key.bytes.iter().enumerate() {
            text[2 * place] = DIGITS[usize::from(b >> 4)];
            text[2 * place + 1] = DIGITS[usize::from(b & 15)];
        }
        // The text ends with a NUL, and the document with another one.
        let text = text.get(..2 * key.len).unwrap_or_default();
        let length = text.len() as u32 + 1;
        out.extend_from_slice(&(length + 16).to_le_bytes());
        out.push(Type::String as u8);
        out.extend_from_slice(b"_data\0");
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(text);
        out.extend_from_slice(&[0, 0]);
    }
}

/// The bytes of a token.
struct Key {
    bytes: [u8; MOST],
    len: usize,
}

impl Key {
    fn push(&mut self, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            place.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }

    /// Appends a number that is not negative.
    fn number(&mut self, n: u32) {
        if n == 0 {
            return self.push(&[ZERO]);
        }
        let bytes = (u64::from(n) << 1).to_be_bytes();
        let zeros = bytes.iter().take_while(|b| **b == 0).count();
        let bytes = bytes.get(zeros..).unwrap_or_default();
        self.push(&[ONE_BYTE - 1 + bytes.len() as u8]);
        self.push(bytes);
    }
}

fn take<'b>(rest: &mut &'b [u8], n: usize) -> Option<&'b [u8]> {
    let (taken, behind) = rest.split_at_checked(n)?;
    *rest = behind;
    Some(taken)
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    take(rest, 1)?.first().copied()
}

fn read_number(rest: &mut &[u8]) -> Option<u32> {
    let len = match byte(rest)? {
        ZERO => return Some(0),
        ty => usize::from(ty.checked_sub(ONE_BYTE - 1)?),
    };
    if !(1..=5).contains(&len) {
        return None;
    }
    let all = take(rest, len)?;
    let n = all.iter().fold(0_u64, |n, b| n << 8 | u64::from(*b));
    u32::try_from(n >> 1).ok()
}

fn decode(rest: &mut &[u8]) -> Option<Token> {
    if byte(rest)? != TIMESTAMP {
        return None;
    }
    let at = Timestamp(u64::from_be_bytes(take(rest, 8)?.try_into().ok()?));
    if !matches!(read_number(rest)?, 1 | VERSION) {
        return None;
    }
    let is_event = match read_number(rest)? {
        0 => false,
        EVENT => true,
        _ => return None,
    };
    let mut shard = 0;
    if rest.starts_with(&SHARD) {
        take(rest, SHARD.len())?;
        shard = u64::from_be_bytes(take(rest, 8)?.try_into().ok()?);
    }
    let index = read_number(rest)?;
    let invalidates = match byte(rest)? {
        FALSE => false,
        TRUE => true,
        _ => return None,
    };
    let mut token = Token {
        place: Place {
            at,
            is_event,
            shard,
            index,
            invalidates,
        },
        uuid: None,
        fragment: None,
    };
    match *rest.first()? {
        NOTHING => drop(byte(rest)),
        // MongoDB 4.0 to 5.0 end a high-water mark here.
        END => {}
        _ if take(rest, 3)? == UUID => token.uuid = take(rest, 16)?.try_into().ok(),
        _ => return None,
    }
    if rest.first().is_some_and(|b| (ZERO..FALSE).contains(b)) {
        token.fragment = read_number(rest);
    }
    Some(token)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || digits.len() > 256 {
        return None;
    }
    let digit = |d: u8| (d as char).to_digit(16);
    let pairs = digits.chunks_exact(2);
    pairs
        .map(|p| match p {
            [a, b] => u8::try_from(digit(*a)? << 4 | digit(*b)?).ok(),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::doc;

    fn event(seconds: u32, index: u32, invalidates: bool) -> Token {
        Token {
            place: Place {
                at: Timestamp::new(seconds, 1),
                is_event: true,
                shard: 0,
                index,
                invalidates,
            },
            uuid: Some([0xAB; 16]),
            fragment: None,
        }
    }

    fn data(t: Token) -> String {
        t.to_doc().as_doc().get_str("_data").unwrap().to_string()
    }

    #[test]
    fn they_sort_as_the_events_do_and_are_read_again() {
        let mut all = vec![
            Token::high_water(Timestamp::new(5, 1)),
            event(5, 0, false),
            Token {
                fragment: Some(1),
                ..event(5, 0, false)
            },
            event(5, 0, true),
        ];
        for index in [1, 63, 64, 127, 128, 40_000, 5_000_000] {
            all.push(event(5, index, false));
        }
        all.push(Token::high_water(Timestamp::new(5, 2)));
        all.push(event(6, 0, false));
        all.push(Token::high_water(Timestamp::new(u32::MAX, 0)));
        for pair in all.windows(2) {
            assert!(data(pair[0]) < data(pair[1]), "{pair:?}");
            assert!(pair[0].place <= pair[1].place);
        }
        for t in all {
            assert_eq!(Token::parse(t.to_doc().as_doc()).unwrap(), t);
        }
    }

    #[test]
    fn those_of_several_shards_sort_by_time_and_then_by_shard() {
        let of = |seconds: u32, shard: u64, index: u32| {
            let mut token = event(seconds, index, false);
            token.place.shard = shard;
            token
        };
        let (a, b) = (number_of("s0"), number_of("s1"));
        assert_eq!(a, 0x08D8_FE07_B578_CF96, "the numbers have to last");
        let (low, high) = (a.min(b), a.max(b));
        let all = [
            Token::high_water(Timestamp::new(5, 1)),
            of(5, low, 0),
            of(5, low, 70_000),
            of(5, high, 0),
            of(5, high, 1),
            Token::high_water(Timestamp::new(5, 2)),
        ];
        for pair in all.windows(2) {
            assert!(data(pair[0]) < data(pair[1]), "{pair:?}");
            assert!(pair[0].place < pair[1].place);
        }
        for t in all {
            assert_eq!(Token::parse(t.to_doc().as_doc()).unwrap(), t);
        }
    }

    #[test]
    fn they_look_like_mongodb_s() {
        let mark = data(Token::high_water(Timestamp::new(0x664D_0ACB, 1)));
        assert_eq!(mark, "82664D0ACB000000012B0429296E1404");
        let begins = data(event(5, 0, false));
        assert!(begins.starts_with("8200000005000000012B042C0100296E5A1004ABAB"));
        // A token of MongoDB 4.4.
        let old = doc! { "_data": "826635FB1C000000012B0229296E04" };
        let old = Token::parse(old.as_doc()).unwrap();
        assert_eq!(old, Token::high_water(Timestamp::new(0x6635_FB1C, 1)));
    }

    #[test]
    fn what_is_no_token() {
        let good = data(event(5, 7, true));
        // The end byte may be missing, and more may follow it.
        for n in 0..good.len() - 2 {
            let cut = doc! { "_data": good.get(..n).unwrap() };
            assert!(Token::parse(cut.as_doc()).is_err(), "{n}");
        }
        for more in ["", "04", "0400", "04FF"] {
            let data = format!("{}{more}", &good[..good.len() - 2]);
            let read = Token::parse(doc! { "_data": data }.as_doc()).unwrap();
            assert_eq!(read, event(5, 7, true));
        }
        for (bad, code) in [
            (doc! {}, 40_647),
            (doc! { "_data": 1 }, 40_647),
            (doc! { "_data": "00", "_typeBits": "x" }, 40_648),
            (doc! { "_data": "" }, 40_649),
            (doc! { "_data": "zz" }, 9),
            (doc! { "_data": "abc" }, 9),
            (doc! { "_data": "FF".repeat(4000) }, 9),
            (doc! { "_data": "00" }, 50_811),
            (doc! { "_data": "82" }, 15),
        ] {
            let e = Token::parse(bad.as_doc()).unwrap_err();
            assert_eq!(e.code().0, code, "{bad:?}");
        }
    }
}
