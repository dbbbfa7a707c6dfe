//! The constant replies of the null responder.

use crate::compress::decompress;
use crate::frame::{Header, OP_COMPRESSED, OP_MSG, OP_QUERY};
use crate::op_msg::{OpMsg, begin_reply};
use crate::op_query::{OpQuery, write_op_reply};
use muniment_value::{Code, Doc, DocBuf, Error, Result, array, doc};

/// The constant replies.
pub(super) struct Replies {
    written: DocBuf,
    found: DocBuf,
    ok: DocBuf,
    hello: DocBuf,
    build_info: DocBuf,
    hello_legacy: DocBuf,
}

impl Replies {
    /// The replies, of which that to `find` has `document`.
    pub(super) fn new(document: Doc<'_>) -> Replies {
        let cursor = doc! { "firstBatch": array![document], "id": 0_i64, "ns": "db.c" };
        let mut hello = doc! {
            "isWritablePrimary": true,
            "helloOk": true,
            "maxBsonObjectSize": 16 * 1024 * 1024,
            "maxMessageSizeBytes": 48_000_000,
            "maxWriteBatchSize": 100_000,
            "logicalSessionTimeoutMinutes": 30,
            "connectionId": 1,
            "minWireVersion": 0,
            "maxWireVersion": 25,
            "readOnly": false,
        };
        let mut hello_legacy = doc! { "ismaster": true };
        hello_legacy.append_all(hello.as_doc());
        hello.append("ok", 1.0);
        hello_legacy.append("ok", 1.0);
        Replies {
            written: doc! { "n": 1, "ok": 1.0 },
            found: doc! { "cursor": cursor, "ok": 1.0 },
            ok: doc! { "ok": 1.0 },
            hello,
            hello_legacy,
            build_info: doc! {
                "version": "8.0.0",
                "versionArray": array![8, 0, 0, 0],
                "maxBsonObjectSize": 16 * 1024 * 1024,
                "ok": 1.0,
            },
        }
    }

    /// Appends the reply to a whole message to `out`; nothing for a message that wants none. `plain` is room
    /// for a compressed message.
    pub(super) fn answer(
        &self,
        header: Header,
        message: &[u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if header.op_code != OP_COMPRESSED {
            return self.answer_plain(header, message, out);
        }
        decompress(message, plain)?;
        let inner = Header::parse(plain).unwrap_or_default();
        self.answer_plain(inner, plain, out)
    }

    fn answer_plain(&self, header: Header, message: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match header.op_code {
            OP_MSG => {
                let msg = OpMsg::parse(message)?;
                if msg.more_to_come() {
                    return Ok(());
                }
                let writer = begin_reply(out, header.request_id, 0);
                match msg.sequences.first() {
                    Some(s) if s.docs.len() != 1 => writer
                        .body_with(|b| {
                            b.field("n", s.docs.len() as i32).field("ok", 1.0);
                        })
                        .finish(),
                    _ => writer
                        .body(self.constant(msg.command_name()).as_doc())
                        .finish(),
                }
            }
            OP_QUERY => {
                let query = OpQuery::parse(message)?;
                let reply = self.constant(query.command_name());
                write_op_reply(out, header.request_id, reply.as_doc())
            }
            other => Err(Error::new(
                Code::ProtocolError,
                format!("op code {other} is not supported"),
            )),
        }
    }

    fn constant(&self, command: &str) -> &DocBuf {
        match command {
            "insert" | "update" | "delete" => &self.written,
            "find" => &self.found,
            "hello" => &self.hello,
            "isMaster" | "ismaster" => &self.hello_legacy,
            "buildInfo" | "buildinfo" => &self.build_info,
            _ => &self.ok,
        }
    }
}
