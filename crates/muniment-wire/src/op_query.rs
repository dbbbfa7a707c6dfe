//! The legacy OP_QUERY, which old drivers open a connection with, and its answer OP_REPLY.
//!
//! Source of the format: the MongoDB manual, "Wire Protocol", legacy opcodes.

use crate::frame::{
    Header, MAX_MESSAGE_SIZE, OP_QUERY, OP_REPLY, i32_at, next_request_id, set_i32,
};
use crate::op_msg::cut_document;
use muniment_value::{Code, Doc, Error, Result};

/// A parsed and validated OP_QUERY.
#[derive(Clone, Copy, Debug)]
pub struct OpQuery<'a> {
    /// The header.
    pub header: Header,
    /// The flag bits.
    pub flags: u32,
    /// `<database>.$cmd` for a command.
    pub full_collection_name: &'a str,
    /// Documents to skip.
    pub skip: i32,
    /// Documents wanted in the first reply; −1 for a command.
    pub n_to_return: i32,
    /// The query, or the command.
    pub query: Doc<'a>,
    /// The projection, if there is one.
    pub fields: Option<Doc<'a>>,
}

impl<'a> OpQuery<'a> {
    /// Parses a whole message, header included.
    ///
    /// # Errors
    /// 17 ProtocolError for a message that is cut or followed by rubbish, 22 InvalidBSON.
    pub fn parse(message: &'a [u8]) -> Result<OpQuery<'a>> {
        let cut = || Error::new(Code::ProtocolError, "OP_QUERY message is cut");
        let header = Header::parse(message).ok_or_else(cut)?;
        if header.op_code != OP_QUERY || header.checked_len()? != message.len() {
            return Err(Error::new(
                Code::ProtocolError,
                format!(
                    "not an OP_QUERY of {} bytes: op code {}, length {}",
                    message.len(),
                    header.op_code,
                    header.message_length
                ),
            ));
        }
        let flags = i32_at(message, Header::LEN).ok_or_else(cut)? as u32;
        let name_at = Header::LEN + 4;
        let rest = message.get(name_at..).ok_or_else(cut)?;
        let name_len = rest.iter().position(|&b| b == 0).ok_or_else(cut)?;
        let full_collection_name = std::str::from_utf8(rest.get(..name_len).unwrap_or_default())
            .map_err(|_| {
                Error::new(
                    Code::InvalidNamespace,
                    "OP_QUERY collection name is not UTF-8",
                )
            })?;
        let at = name_at + name_len + 1;
        let skip = i32_at(message, at).ok_or_else(cut)?;
        let n_to_return = i32_at(message, at + 4).ok_or_else(cut)?;
        let query = cut_document(message, at + 8)?;
        let at = at + 8 + query.byte_len();
        let fields = if at < message.len() {
            let doc = cut_document(message, at)?;
            if at + doc.byte_len() != message.len() {
                return Err(Error::new(
                    Code::ProtocolError,
                    "OP_QUERY message has bytes behind its documents",
                ));
            }
            Some(doc)
        } else {
            None
        };
        Ok(OpQuery {
            header,
            flags,
            full_collection_name,
            skip,
            n_to_return,
            query,
            fields,
        })
    }

    /// The database of a command, or `None` if the collection is not `$cmd`.
    pub fn command_db(&self) -> Option<&'a str> {
        self.full_collection_name.strip_suffix(".$cmd")
    }

    /// The command, without the `{$query: …, $readPreference: …}` that some drivers wrap it in.
    pub fn command(&self) -> Doc<'a> {
        match self.query.first() {
            Some(e) if matches!(e.name(), "$query" | "query") => {
                e.value().as_doc().unwrap_or(self.query)
            }
            _ => self.query,
        }
    }

    /// The name of the command.
    pub fn command_name(&self) -> &'a str {
        self.command().first().map_or("", |e| e.name())
    }
}

/// Appends an OP_REPLY with one document to `out`.
///
/// # Errors
/// 10334 BSONObjectTooLarge if it exceeds [`MAX_MESSAGE_SIZE`]; nothing is appended then.
pub fn write_op_reply(out: &mut Vec<u8>, response_to: i32, doc: Doc<'_>) -> Result<()> {
    let len = Header::LEN + 20 + doc.byte_len();
    if len > MAX_MESSAGE_SIZE {
        return Err(Error::new(
            Code::BSONObjectTooLarge,
            format!("reply of {len} bytes exceeds the limit of {MAX_MESSAGE_SIZE}"),
        ));
    }
    let start = out.len();
    Header {
        message_length: 0,
        request_id: next_request_id(),
        response_to,
        op_code: OP_REPLY,
    }
    .put(out);
    out.extend_from_slice(&8_u32.to_le_bytes()); // AwaitCapable, set since MongoDB 1.6
    out.extend_from_slice(&0_i64.to_le_bytes()); // cursor
    out.extend_from_slice(&0_i32.to_le_bytes()); // starting from
    out.extend_from_slice(&1_i32.to_le_bytes()); // documents
    out.extend_from_slice(doc.as_bytes());
    set_i32(out, start, len as i32);
    Ok(())
}

/// The first document of an OP_REPLY (for clients and tests).
///
/// # Errors
/// 17 ProtocolError for another or a cut message, 22 InvalidBSON.
pub fn parse_op_reply(message: &[u8]) -> Result<Doc<'_>> {
    match Header::parse(message) {
        Some(h) if h.op_code == OP_REPLY && i32_at(message, Header::LEN + 16) >= Some(1) => {
            cut_document(message, Header::LEN + 20)
        }
        _ => Err(Error::new(
            Code::ProtocolError,
            "not an OP_REPLY with a document",
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{DocBuf, doc};

    fn query(ns: &str, docs: &[DocBuf]) -> Vec<u8> {
        let mut m = Vec::new();
        Header {
            message_length: 0,
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
        for d in docs {
            m.extend_from_slice(d.as_bytes());
        }
        let n = m.len() as i32;
        set_i32(&mut m, 0, n);
        m
    }

    #[test]
    fn a_drivers_handshake() {
        let m = query("admin.$cmd", &[doc! { "isMaster": 1, "helloOk": true }]);
        let q = OpQuery::parse(&m).unwrap();
        assert_eq!(q.command_db(), Some("admin"));
        assert_eq!((q.flags, q.skip, q.n_to_return), (4, 0, -1));
        assert_eq!(q.command_name(), "isMaster");
        assert!(q.fields.is_none());
    }

    #[test]
    fn wrapped_command_and_fields() {
        let wrapped = doc! { "$query": doc! { "buildinfo": 1 }, "$readPreference": doc! {} };
        let m = query("test.$cmd", &[wrapped, doc! { "x": 1 }]);
        let q = OpQuery::parse(&m).unwrap();
        assert_eq!(q.command_name(), "buildinfo");
        assert!(q.fields.is_some());
        assert!(
            OpQuery::parse(&query("test.c", &[doc! {}]))
                .unwrap()
                .command_db()
                .is_none()
        );
    }

    #[test]
    fn every_cut_is_refused() {
        let whole = query("admin.$cmd", &[doc! { "isMaster": 1 }]);
        for n in 0..whole.len() {
            let mut cut = whole[..n].to_vec();
            assert!(OpQuery::parse(&cut).is_err(), "cut at {n}");
            set_i32(&mut cut, 0, n as i32);
            assert!(OpQuery::parse(&cut).is_err(), "cut at {n}, length patched");
        }
        let mut long = whole.clone();
        long.push(0);
        let n = long.len() as i32;
        set_i32(&mut long, 0, n);
        assert!(OpQuery::parse(&long).is_err());
    }

    #[test]
    fn reply_round_trip_and_bytes() {
        let d = doc! { "ok": 1.0 };
        let mut m = Vec::new();
        write_op_reply(&mut m, 77, d.as_doc()).unwrap();
        assert_eq!(parse_op_reply(&m).unwrap().as_bytes(), d.as_bytes());
        let h = Header::parse(&m).unwrap();
        assert_eq!(
            (h.message_length as usize, h.response_to, h.op_code),
            (m.len(), 77, 1)
        );
        assert_eq!(
            m[16..36],
            [8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]
        );
    }
}
