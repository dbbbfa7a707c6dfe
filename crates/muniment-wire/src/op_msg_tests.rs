#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use muniment_value::{DocBuf, doc};
use proptest::prelude::*;

fn request(flags: u32, body: &DocBuf, sequences: &[(&str, Vec<DocBuf>)]) -> Vec<u8> {
    let mut m = Vec::new();
    let mut w = begin_request(&mut m, 7, flags).body(body.as_doc());
    for (name, docs) in sequences {
        w = w.sequence(name, docs.iter().map(DocBuf::as_doc));
    }
    w.finish().unwrap();
    m
}

/// A message with these sections' bytes and a length that fits.
fn raw(flags: u32, sections: &[u8]) -> Vec<u8> {
    let mut m = Vec::new();
    Header {
        message_length: (SECTIONS_AT + sections.len()) as i32,
        request_id: 7,
        response_to: 0,
        op_code: OP_MSG,
    }
    .put(&mut m);
    m.extend_from_slice(&flags.to_le_bytes());
    m.extend_from_slice(sections);
    m
}

fn code_of(message: &[u8]) -> i32 {
    OpMsg::parse(message)
        .map(|_| 0)
        .unwrap_or_else(|e| e.code().0)
}

#[test]
fn golden_ping() {
    let m = request(0, &doc! { "ping": 1, "$db": "admin" }, &[]);
    let expected: &[u8] = &[
        51, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0xDD, 7, 0, 0, // header
        0, 0, 0, 0, // flags
        0, // kind 0
        30, 0, 0, 0, 0x10, b'p', b'i', b'n', b'g', 0, 1, 0, 0, 0, // ping: 1
        0x02, b'$', b'd', b'b', 0, 6, 0, 0, 0, b'a', b'd', b'm', b'i', b'n', 0, 0,
    ];
    assert_eq!(m, expected);
}

#[test]
fn golden_sequence() {
    let docs = vec![doc! { "a": 1 }, doc! {}];
    let m = request(MORE_TO_COME, &doc! {}, &[("documents", docs)]);
    let expected: &[u8] = &[
        58, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0xDD, 7, 0, 0, // header
        2, 0, 0, 0, // flags
        0, 5, 0, 0, 0, 0, // body {}
        1, 31, 0, 0, 0, // kind 1, size
        b'd', b'o', b'c', b'u', b'm', b'e', b'n', b't', b's', 0, //
        12, 0, 0, 0, 0x10, b'a', 0, 1, 0, 0, 0, 0, // { a: 1 }
        5, 0, 0, 0, 0, // {}
    ];
    assert_eq!(m, expected);
    let p = OpMsg::parse(&m).unwrap();
    assert!(p.more_to_come() && !p.exhaust_allowed());
    let docs = p.sequences.named("documents").unwrap();
    assert_eq!(docs.len(), 2);
    let sizes: Vec<usize> = docs.map(|d| d.byte_len()).collect();
    assert_eq!(sizes, [12, 5]);
    assert!(p.sequences.named("updates").is_none());
}

#[test]
fn checksum_is_verified() {
    // The sum of the first 51 bytes (those of `golden_ping`, with flag bit 0 and length 55) is compared with
    // that of the bitwise implementation below.
    let m = request(CHECKSUM_PRESENT, &doc! { "ping": 1, "$db": "admin" }, &[]);
    assert_eq!(m.len(), 55);
    let sum = u32::from_le_bytes(m[51..].try_into().unwrap());
    assert_eq!(sum, bitwise_crc32c(&m[..51]));
    assert_eq!(OpMsg::parse(&m).unwrap().command_name(), "ping");
    for at in 20..m.len() {
        let mut bad = m.clone();
        bad[at] ^= 0x10;
        assert_eq!(code_of(&bad), 288, "byte {at}");
    }
}

/// The definition of CRC-32C (reflected polynomial 0x82F63B78), bit by bit.
fn bitwise_crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for &b in bytes {
        crc ^= u32::from(b);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82F6_3B78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

#[test]
fn flags() {
    let body: Vec<u8> = [&[0], doc! { "a": 1 }.as_bytes()].concat();
    for bit in 2..16 {
        assert_eq!(code_of(&raw(1 << bit, &body)), 223, "bit {bit}");
    }
    for bit in 16..32 {
        assert_eq!(code_of(&raw(1 << bit, &body)), 0, "bit {bit}");
    }
    assert!(
        OpMsg::parse(&raw(EXHAUST_ALLOWED, &body))
            .unwrap()
            .exhaust_allowed()
    );
}

#[test]
fn malformed() {
    let body: Vec<u8> = [&[0], doc! { "a": 1 }.as_bytes()].concat();
    let seq = |name: &str, bytes: &[u8]| {
        let n = (4 + name.len() + 1 + bytes.len()) as u32;
        [&[1], &n.to_le_bytes()[..], name.as_bytes(), &[0], bytes].concat()
    };
    let d = doc! {};
    let e = d.as_bytes();
    let join = |parts: &[&[u8]]| parts.concat();
    let table: &[(&str, Vec<u8>, i32)] = &[
        ("no section", vec![], 40587),
        ("only a sequence", seq("docs", e), 40587),
        ("two bodies", join(&[&body, &body]), 40430),
        ("kind 2", join(&[&body, &[2, 5, 0, 0, 0, 0]]), 40432),
        ("kind 255", vec![255], 40432),
        ("body cut", body[..6].to_vec(), 22),
        ("kind without body", vec![0], 22),
        ("negative length", vec![0, 0xFF, 0xFF, 0xFF, 0xFF, 0], 22),
        ("length 4", vec![0, 4, 0, 0, 0], 22),
        (
            "same sequence twice",
            join(&[&body, &seq("d", e), &seq("d", e)]),
            40431,
        ),
        (
            "three sequences",
            join(&[&body, &seq("d", e), &seq("e", e), &seq("f", e)]),
            233,
        ),
        (
            "two sequences",
            join(&[&body, &seq("d", e), &seq("e", e)]),
            0,
        ),
        ("sequence before the body", join(&[&seq("d", e), &body]), 0),
        ("empty sequence", join(&[&body, &seq("d", &[])]), 0),
        ("also in the body", join(&[&body, &seq("a", e)]), 40433),
        ("sequence size 0", join(&[&body, &[1, 0, 0, 0, 0]]), 17),
        ("sequence size 4", join(&[&body, &[1, 4, 0, 0, 0]]), 17),
        (
            "sequence too long",
            join(&[&body, &[1, 99, 0, 0, 0, b'd', 0]]),
            17,
        ),
        (
            "sequence size -1",
            join(&[&body, &[1, 255, 255, 255, 255, b'd', 0]]),
            17,
        ),
        (
            "name without end",
            join(&[&body, &[1, 6, 0, 0, 0, b'd', b'e']]),
            17,
        ),
        (
            "name not UTF-8",
            join(&[&body, &[1, 6, 0, 0, 0, 0xFF, 0]]),
            17,
        ),
        (
            "document cut in a sequence",
            join(&[&body, &seq("d", &[5, 0, 0])]),
            22,
        ),
        (
            "rubbish after a document",
            join(&[&body, &seq("d", &[5, 0, 0, 0, 0, 9])]),
            22,
        ),
    ];
    for (what, sections, code) in table {
        assert_eq!(code_of(&raw(0, sections)), *code, "{what}");
    }
}

#[test]
fn every_cut_is_refused() {
    let docs = vec![doc! { "_id": 1, "x": "text" }, doc! { "_id": 2 }];
    for flags in [0, CHECKSUM_PRESENT] {
        let whole = request(
            flags,
            &doc! { "insert": "c" },
            &[("documents", docs.clone())],
        );
        assert_eq!(code_of(&whole), 0);
        for n in 0..whole.len() {
            assert_ne!(code_of(&whole[..n]), 0, "cut at {n}");
            // With its length adjusted, a message that is cut at the end of a section is a valid one.
            let mut cut = whole[..n].to_vec();
            set_i32(&mut cut, 0, n as i32);
            let at_section_end = flags == 0 && n == 40;
            assert_eq!(
                code_of(&cut) == 0,
                at_section_end,
                "cut at {n}, flags {flags}"
            );
        }
    }
}

#[test]
fn wrong_headers() {
    let good = request(0, &doc! { "ping": 1 }, &[]);
    for len in [
        -1,
        0,
        15,
        16,
        good.len() as i32 - 1,
        good.len() as i32 + 1,
        48_000_001,
        i32::MAX,
    ] {
        let mut m = good.clone();
        set_i32(&mut m, 0, len);
        assert_ne!(code_of(&m), 0, "length {len}");
    }
    let mut m = good;
    set_i32(&mut m, 12, 2004);
    assert_ne!(code_of(&m), 0);
}

#[test]
fn a_reply_is_appended_to_the_buffer() {
    let mut out = vec![9; 3];
    begin_reply(&mut out, 5, 0)
        .body(doc! { "ok": 1.0 }.as_doc())
        .finish()
        .unwrap();
    let first = out.len();
    begin_reply(&mut out, 6, 0)
        .body_with(|b| {
            b.field("ok", 1.0);
        })
        .finish()
        .unwrap();
    assert_eq!(OpMsg::parse(&out[3..first]).unwrap().header.response_to, 5);
    assert_eq!(OpMsg::parse(&out[first..]).unwrap().header.response_to, 6);
    let mut w = begin_reply(&mut out, 7, 0);
    w.body_bytes().extend_from_slice(&[1, 2, 3]);
    w.abandon();
    begin_reply(&mut out, 8, 0)
        .body(doc! {}.as_doc())
        .finish()
        .unwrap();
    let both = out.len() - first;
    assert_eq!(both, (first - 3) + 26);
}

#[test]
fn too_large_a_message_is_refused_and_removed() {
    let mut out = vec![1];
    let big = vec![0; MAX_MESSAGE_SIZE];
    let mut w = begin_reply(&mut out, 1, 0);
    w.body_bytes().extend_from_slice(&big);
    assert_eq!(w.finish().unwrap_err().code().0, 10334);
    assert_eq!(out, [1]);
}

proptest! {
    /// The parser reads back what the writer has written.
    #[test]
    fn round_trip(
        body in proptest::collection::vec(("[a-z]{1,6}", any::<i64>()), 0..5),
        docs in proptest::collection::vec(proptest::collection::vec(("[a-z]{1,6}", ".{0,20}"), 0..4), 0..6),
        checksum in any::<bool>(),
        exhaust in any::<bool>(),
    ) {
        let mut b = DocBuf::new();
        for (k, v) in &body { b.append(k, *v); }
        let docs: Vec<DocBuf> = docs.iter().map(|fields| {
            let mut d = DocBuf::new();
            for (k, v) in fields { d.append(k, v.as_str()); }
            d
        }).collect();
        let flags = u32::from(checksum) | if exhaust { EXHAUST_ALLOWED } else { 0 };
        let m = request(flags, &b, &[("UPPER", docs.clone())]);
        let p = OpMsg::parse(&m).unwrap();
        prop_assert_eq!(p.flags, flags);
        prop_assert_eq!(p.body.as_bytes(), b.as_bytes());
        let back: Vec<Vec<u8>> = p.sequences.named("UPPER").unwrap().map(|d| d.as_bytes().to_vec()).collect();
        let sent: Vec<Vec<u8>> = docs.iter().map(|d| d.as_bytes().to_vec()).collect();
        prop_assert_eq!(back, sent);
    }

    /// No bytes make the parser panic, and what it accepts is consistent.
    #[test]
    fn arbitrary_sections(flags in 0u32..4, sections in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(p) = OpMsg::parse(&raw(flags, &sections)) {
            for s in p.sequences.iter() {
                prop_assert_eq!(s.docs.count(), s.docs.len());
            }
        }
    }
}
