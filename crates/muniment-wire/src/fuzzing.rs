//! The body of the fuzz target `message`, shared with the test that replays its corpus.

use crate::compress::{Compressor, compress, decompress};
use crate::frame::{Header, MessageReader, OP_COMPRESSED, OP_MSG, OP_QUERY, set_i32};
use crate::op_msg::{CHECKSUM_PRESENT, OpMsg, begin_request};
use crate::op_query::{OpQuery, parse_op_reply};
use muniment_value::Doc;

/// Reads `data` as a byte stream: cuts it into messages and parses each. Then reads it as one whole message,
/// with a fitting length, and once more with a fitting checksum, so that mutations get past those checks.
/// Panics if an invariant of the crate does not hold.
pub fn message(data: &[u8]) {
    let mut reader = MessageReader::new(data);
    while let Ok(Some((_, m))) = reader.read() {
        parse(m, 0);
    }
    assert!(reader.capacity() <= 2 * data.len() + 32 * 1024);
    if data.len() < Header::LEN + 4 {
        return;
    }
    let mut patched = data.to_vec();
    set_i32(&mut patched, 0, data.len() as i32);
    parse(&patched, 0);
    if let Some(flags) = patched.get_mut(Header::LEN) {
        *flags |= CHECKSUM_PRESENT as u8;
    }
    let at = patched.len();
    set_i32(&mut patched, 0, at as i32 + 4);
    let sum = crc32c::crc32c(&patched);
    patched.extend_from_slice(&sum.to_le_bytes());
    parse(&patched, 0);
}

fn parse(m: &[u8], depth: u32) {
    let Some(header) = Header::parse(m) else {
        return;
    };
    match header.op_code {
        OP_MSG => {
            if let Ok(msg) = OpMsg::parse(m) {
                check(m, &msg);
            }
        }
        OP_QUERY => {
            if let Ok(q) = OpQuery::parse(m) {
                walk(q.query);
                let _ = (q.command_db(), q.command_name());
            }
        }
        OP_COMPRESSED => {
            let mut plain = Vec::new();
            if decompress(m, &mut plain).is_ok() && depth == 0 {
                parse(&plain, 1);
            }
        }
        _ => {
            let _ = parse_op_reply(m);
        }
    }
}

/// Checks that a parsed message, written again, is the same message, also after compression.
fn check(m: &[u8], msg: &OpMsg<'_>) {
    walk(msg.body);
    let mut again = Vec::new();
    let mut w = begin_request(&mut again, msg.header.request_id, msg.flags).body(msg.body);
    for s in msg.sequences.iter() {
        assert_eq!(s.docs.count(), s.docs.len());
        s.docs.for_each(walk);
        w = w.sequence(s.name, s.docs);
    }
    assert!(w.finish().is_ok());
    assert_eq!(again.len(), m.len());
    let (mut packed, mut plain) = (Vec::new(), Vec::new());
    for with in [Compressor::Noop, Compressor::Snappy] {
        assert!(compress(m, with, &mut packed).is_ok());
        assert!(decompress(&packed, &mut plain).is_ok());
        assert_eq!(plain, m);
    }
}

/// Checks that a validated document can be read to its last byte.
fn walk(d: Doc<'_>) {
    let mut end = 4;
    for e in d {
        end += e.as_bytes().len();
        let v = e.value();
        if let Some(inner) = v.as_doc().or_else(|| v.as_array()) {
            walk(inner);
        }
    }
    assert_eq!(end + 1, d.byte_len());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::begin_reply;
    use muniment_value::{array, doc};

    /// Inputs that reach every parser, from which the fuzzer starts too.
    fn seeds() -> Vec<Vec<u8>> {
        let body = doc! { "insert": "c", "x": array![1, 2.5, doc! { "y": "z" }], "$db": "d" };
        let docs = [doc! { "_id": 1 }, doc! { "_id": 2, "s": "text" }];
        let mut plain = Vec::new();
        begin_reply(&mut plain, 1, 0)
            .body(body.as_doc())
            .sequence("documents", docs.iter().map(|d| d.as_doc()))
            .finish()
            .unwrap();
        let mut all = vec![plain.clone()];
        for with in [
            Compressor::Noop,
            Compressor::Snappy,
            Compressor::Zlib,
            Compressor::Zstd,
        ] {
            let mut packed = Vec::new();
            compress(&plain, with, &mut packed).unwrap();
            all.push(packed);
        }
        let mut query = Vec::new();
        Header {
            message_length: 0,
            request_id: 1,
            response_to: 0,
            op_code: OP_QUERY,
        }
        .put(&mut query);
        query.extend_from_slice(b"\0\0\0\0admin.$cmd\0\0\0\0\0\xff\xff\xff\xff");
        query.extend_from_slice(doc! { "isMaster": 1 }.as_bytes());
        let n = query.len() as i32;
        set_i32(&mut query, 0, n);
        all.push(query);
        let mut reply = Vec::new();
        crate::write_op_reply(&mut reply, 3, body.as_doc()).unwrap();
        all.push(reply);
        all
    }

    #[test]
    fn seeds_and_corpus() {
        for s in seeds() {
            for n in 0..=s.len() {
                message(&s[..n]);
            }
        }
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/message");
        let write = std::env::var_os("MUNIMENT_WRITE_SEEDS").is_some();
        if write {
            std::fs::create_dir_all(dir).unwrap();
            for (i, s) in seeds().iter().enumerate() {
                std::fs::write(format!("{dir}/seed-{i}"), s).unwrap();
            }
        }
        let mut files = 0;
        for f in std::fs::read_dir(dir).unwrap() {
            message(&std::fs::read(f.unwrap().path()).unwrap());
            files += 1;
        }
        assert!(files >= 7, "corpus of {files} files");
    }
}
